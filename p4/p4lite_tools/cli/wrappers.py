"""`p4lite wrappers`: a folder with p4c's and BMv2's commands, served by p4lite, for courses such as p4lang/tutorials.

The commands are in a folder of their own, so that a p4c or a BMv2 of the machine is replaced only in shells that put
this folder first in PATH.
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from p4lite.files import write_whole

EXIT_OK, EXIT_FAILED, EXIT_USAGE = 0, 1, 2
MARK = "# Written by 'p4lite wrappers'."

#: Each command with the function that serves it.
COMMANDS = {
    "p4c": "p4lite_tools.cli.p4lang.p4c:p4c",
    "p4c-bm2-ss": "p4lite_tools.cli.p4lang.p4c:p4c_bm2_ss",
    "simple_switch": "p4lite_tools.cli.p4lang.simple_switch:run_plain",
    "simple_switch_grpc": "p4lite_tools.cli.p4lang.simple_switch:run",
    "simple_switch_CLI": "p4lite_tools.cli.p4lang.runtime_cli:run",
}

#: Packages that scripts of courses import, and how to install them where they are missing.
WANTED = {"scapy": "p4lite[tutorials]", "psutil": "p4lite[tutorials]"}

#: The package `p4` of courses. The modules of p4runtime do not load with today's protobuf; the messages are the same.
LIBRARY = {
    **{f"p4/{name}__init__.py": "" for name in ("", "config/", "config/v1/", "tmp/", "v1/")},
    **{
        f"p4/{folder}/{name}.py": f"import sys\nfrom p4lite.messages import {name}\nsys.modules[__name__] = {name}\n"
        for folder, names in (("config/v1", ("p4types_pb2", "p4info_pb2")), ("v1", ("p4data_pb2", "p4runtime_pb2")))
        for name in names
    },
    "p4/v1/p4runtime_pb2_grpc.py": "from p4lite.messages import P4RuntimeStub as P4RuntimeStub\n",
    "p4/tmp/p4config_pb2.py": "from p4lite_tools.cli.p4lang.p4c import P4DeviceConfig as P4DeviceConfig\n",
}


def parser() -> argparse.ArgumentParser:
    """Return the command line."""
    p = argparse.ArgumentParser(
        prog="p4lite wrappers",
        description="Write p4c, p4c-bm2-ss, simple_switch, simple_switch_grpc, simple_switch_CLI and a python3 that "
        "has p4runtime and Mininet into DIR/bin. '. DIR/activate' puts them first in the PATH of a shell.",
    )
    p.add_argument("folder", metavar="DIR", type=Path, help="a new folder, or one that this command wrote before")
    return p


def run(argv: Sequence[str]) -> int:
    """Run the verb; 0: done, 1: the folder cannot be written, 2: wrong usage."""
    try:
        args = parser().parse_args(list(argv))
    except SystemExit as end:
        return EXIT_OK if end.code in (0, None) else EXIT_USAGE
    folder = Path(os.path.abspath(args.folder))
    try:
        if folder.exists() and not _ours(folder):
            what = "is not a folder" if not folder.is_dir() else "has files that this command did not write"
            print(f"p4lite wrappers: error: {args.folder}: {what}: choose a new folder", file=sys.stderr)
            return EXIT_USAGE
        elsewhere = {name: found for name in COMMANDS if (found := _elsewhere(name, folder / "bin"))}
        _write(folder)
        mininet = _link_mininet(folder / "lib" / "mininet")
    except OSError as error:
        print(f"p4lite wrappers: error: {error.filename}: cannot write: {error.strerror}", file=sys.stderr)
        return EXIT_FAILED
    for name, found in elsewhere.items():
        print(f"note: {found} stays as it is; shells that read {args.folder}/activate run {args.folder}/bin/{name}")
    for package, extra in WANTED.items():
        if not _installed(package):
            print(f"note: no Python package {package}: pip install '{extra}'")
    if not mininet:
        print("note: no Mininet: install it (Debian: mininet), then run this again")
    print(f"ready: . {shlex.quote(str(args.folder))}/activate")
    return EXIT_OK


def _ours(folder: Path) -> bool:
    """Return whether the folder is empty or was written by this command."""
    if not folder.is_dir():
        return False
    activate = folder / "activate"
    return not any(folder.iterdir()) or (activate.is_file() and activate.read_text(encoding="utf-8").startswith(MARK))


def _elsewhere(name: str, ours: Path) -> str | None:
    """Return the path of a command of that name outside of `ours`."""
    path = os.pathsep.join(p for p in os.environ.get("PATH", "").split(os.pathsep) if Path(p) != ours)
    return shutil.which(name, path=path)


def _write(folder: Path) -> None:
    programs, library = folder / "bin", folder / "lib"
    for name, text in LIBRARY.items():
        (library / name).parent.mkdir(parents=True, exist_ok=True)
        write_whole(library / name, text)
    programs.mkdir(parents=True, exist_ok=True)
    python = shlex.quote(sys.executable)
    for name, target in COMMANDS.items():
        module, _, function = target.partition(":")
        code = f"import sys; from {module} import {function} as run; sys.exit(run(sys.argv[1:]))"
        _script(programs / name, f'exec {python} -c {shlex.quote(code)} "$@"')
    paths = f'export PYTHONPATH={shlex.quote(str(library))}"${{PYTHONPATH:+:$PYTHONPATH}}"'
    _script(programs / "python3", f'{paths}\nexec {python} "$@"')
    ptf = Path(sys.executable).with_name("ptf")
    if ptf.is_file():
        _script(programs / "ptf", f'{paths}\nexec {python} {shlex.quote(str(ptf))} "$@"')
    # sudo looks for commands in its own secure_path; `env` looks in the PATH that the exercise's Makefile gives it.
    activate = f'{MARK}\nexport PATH={shlex.quote(str(programs))}:"$PATH"\nexport P4_EXTRA_SUDO_OPTS=env\n'
    write_whole(folder / "activate", activate)


def _script(path: Path, body: str) -> None:
    write_whole(path, f"#!/bin/sh\n{MARK}\n{body}\n", mode=0o777)


def _installed(package: str) -> bool:
    import importlib.util

    return importlib.util.find_spec(package) is not None


def _link_mininet(link: Path) -> bool:
    """Let `import mininet` find the system's Mininet, which has no dependencies; return whether there is one."""
    code = "import mininet, os; print(os.path.dirname(mininet.__file__))"
    try:
        found = subprocess.run(
            ["/usr/bin/python3", "-c", code], capture_output=True, text=True, check=True, timeout=30
        ).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return False
    if link.is_symlink():
        link.unlink()
    link.symlink_to(found)
    return True
