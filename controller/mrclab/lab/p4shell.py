"""The environment of p4runtime-shell, which needs protobuf 3 and an IPython that nothing else here can use."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

from mrc_topo.base.errors import MrclabError, UsageError
from mrc_topo.base.files import write_whole
from mrc_topo.shipped import checkout
from mrclab.lab.records.rundir import locked
from p4lite.files import cache_path, make_private

WANTED: Final = "p4runtime-shell==0.0.6"
#: Disk space of the environment, as `du -sm build/p4sh` says.
MEGABYTES: Final = 90
#: What IPython reads at its start. It is written last: an environment with another text, or none, is incomplete.
CONFIG: Final = "etc/ipython/ipython_config.py"
#: Without its second line IPython would import modules from the current folder, which may be anybody's.
_COMPLETE: Final = f"""\
# {WANTED}, Python {sys.version_info[0]}.{sys.version_info[1]}
c.InteractiveShellApp.ignore_cwd = True
"""


class ShellError(MrclabError):
    """An environment that could not be made; the text says why."""


class MissingShellError(UsageError):
    """An environment that is not there, or is incomplete; the text says how to make it."""


def environment() -> Path:
    """Return the folder of the environment: `build/p4sh` of a checkout, and otherwise `p4sh` of the cache.

    Users who can change a checkout can change this program, too, so its folder is not checked.

    Raises:
        FolderError: other users can change that of the cache.
    """
    root = checkout()
    return root / "build" / "p4sh" if root else make_private(make_private(cache_path()) / "p4sh")


def command(address: str, device_id: int, election_id: int) -> list[str]:
    """Return the command that opens the shell on a switch.

    Raises:
        MissingShellError: the environment is missing or incomplete.
        FolderError: as of `environment`.
    """
    folder = environment()
    if not _is_complete(folder):
        raise MissingShellError(
            f"{WANTED} is not installed in {folder}, an environment of its own of some {MEGABYTES} MB; "
            "`mrclab p4sh --install` installs it"
        )
    # Isolated: neither the current folder nor PYTHONPATH brings other modules than those of the environment.
    words = [str(folder / "bin" / "python"), "-I", "-m", "p4runtime_sh", "--grpc-addr", address]
    return [*words, "--device-id", str(device_id), "--election-id", f"0,{election_id}"]


def install() -> Path:
    """Make the environment unless it is complete, from the wheels of `make vendor` where they are; return its folder.

    Raises:
        ShellError: it cannot be made.
        FolderError: as of `environment`.
        OSError: the folder cannot be written to.
    """
    folder = environment()
    folder.mkdir(parents=True, exist_ok=True)
    pip = [
        str(folder / "bin" / "python"),
        "-I",
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "--retries=1",
        WANTED,
    ]
    root = checkout()
    if root and (root / "vendor" / "wheels").is_dir():
        pip += ["--no-index", "--find-links", str(root / "vendor" / "wheels")]
    steps = {
        "is the package python3-venv installed?": [sys.executable, "-I", "-m", "venv", "--clear", str(folder)],
        "is there a network to the package index? Otherwise see make vendor; then type `mrclab p4sh --install`": pip,
    }
    with locked(folder.with_name("p4sh.lock")) as lock:
        if _is_complete(folder):
            return folder
        (folder / CONFIG).unlink(missing_ok=True)
        for remedy, command in steps.items():
            # If we are killed, pip may go on; with the lock, which it inherits, nothing else begins before it ends.
            done = subprocess.run(
                command, cwd=folder, pass_fds=[lock.fileno()], capture_output=True, text=True, errors="replace"
            )
            if done.returncode:
                said = (done.stderr.strip() or done.stdout.strip() or f"exit code {done.returncode}").splitlines()[-1]
                raise ShellError(f"`mrclab p4sh`: cannot install {WANTED} in {folder}: {said}; {remedy}")
        (folder / CONFIG).parent.mkdir(parents=True, exist_ok=True)
        write_whole(folder / CONFIG, _COMPLETE)
    return folder


def _is_complete(folder: Path) -> bool:
    try:
        return (folder / CONFIG).read_text(encoding="utf-8") == _COMPLETE and (folder / "bin" / "python").exists()
    except (OSError, ValueError):
        return False
