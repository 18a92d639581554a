"""Compiles the protocol core and the agents' drivers: `python -m mrc_host.build`, which `make setup` runs; `native.py`
says how what it makes is found.

Does nothing where the build is there, and says in one line what is missing where it cannot: a C compiler, Python's
headers, or mypy. `MRCLAB_PURE=1` skips it. Exit status: 0, 1 (the compiler failed; its words are on stderr).

For the build of a wheel (`release/hook.py`), `--folder` prints the folder of the build on the last line. `--lacking`
builds nothing and prints what the machine lacks for a build, or nothing. `--needed` builds nothing either, and
exits with 0 if a build would run the compiler; else it says why there is no build, if there is none, and exits with 1.
"""

from __future__ import annotations

import importlib.util
import itertools
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

from mrc_host import native

#: Modules of `proto` that are not compiled: tables and configurations that are read by reflection, and modules beside
#: the data path.
INTERPRETED: Final = frozenset(
    {
        "proto.config",
        "proto.congestion.base",
        "proto.congestion.dcqcn",
        "proto.limits",
        "proto.qp_document",
        "proto.roce.codec",
        "proto.roce.messages",
        "proto.roce.config",
        "proto.roce.endpoint",
        "proto.roce.pairs",
        "proto.roce.qp",
        "proto.roce.responder",
        "proto.statistics",
        "proto.trace",
        "proto.wire.crc",
        "proto.wire.fields",
        "proto.wire.packet",
        "proto.wire.words",
    }
)
# Functions of the core call each other directly: they are never replaced, and Python needs only the initialisers.
_DIRECT: Final = ("-fvisibility=hidden", "-fno-semantic-interposition", "-fno-plt")
# Without this gcc makes one instruction, with one rounding, of a product and a sum where the machine has it (arm64, not
# the least x86-64), and a run would differ from machine to machine, and from the interpreted core.
_ROUNDED: Final = ("-ffp-contract=off",)
_FLAGS: Final = ("-g0", "-fPIC", *_DIRECT, *_ROUNDED, "-fwrapv", "-DNDEBUG", "-w")
_OPTIMISE: Final = ("-O2",)
#: As fast a program of what mypyc makes, in five eighths of the compiler's time. Clang has no such flags.
_OPTIMISE_MADE: Final = (
    *("-O1", "-fstrict-aliasing", "-fcaller-saves", "-fpeephole2", "-fthread-jumps", "-fpartial-inlining"),
    *("-freorder-blocks-and-partition", "-freorder-blocks-algorithm=stc"),
)
#: The C that compiled modules call: their declarations, beside their sources.
_C: Final = ("proto/wire/framing.h", "drivers/frames.h")
_MOST_VALUES: Final = 32  # of a head
_KEPT: Final = 4  # builds of other versions of the sources; processes may still load from the newest of them


class BuildError(Exception):
    """The compiler failed; the text is its output."""


def modules() -> list[Path]:
    """Return the sources to compile, relative to the folder that holds the package."""
    found = []
    beside = (native.PACKAGE / name for name in native.BESIDE)
    for path in (*sorted((native.PACKAGE / "proto").rglob("*.py")), *beside):
        relative = path.relative_to(native.PACKAGE)
        if path.name != "__init__.py" and ".".join(relative.with_suffix("").parts) not in INTERPRETED:
            found.append(Path(native.PACKAGE.name) / relative)
    return found


def compiler() -> str:
    """Return the C compiler: `CC`, else gcc or cc; empty when there is none."""
    return next(
        (found for name in (os.environ.get("CC", ""), "gcc", "cc") if name and (found := shutil.which(name))), ""
    )


def lacking() -> str:
    """Return which Debian package the machine lacks for a build; empty when it lacks none."""
    if not compiler():
        return "no C compiler (Debian: gcc)"
    if not (Path(sysconfig.get_path("include")) / "Python.h").is_file():
        return "no headers of Python (Debian: python3-dev)"
    return ""


def missing() -> str:
    """Return what a build lacks, packages of Python among it, with its remedy; empty when it lacks nothing."""
    if machine := lacking():
        return machine
    for name in ("mypyc", "setuptools"):
        if importlib.util.find_spec(name) is None:
            return f"no {name} (pip install 'mrclab[dev]')"
    return ""


def _run(command: list[str], cwd: Path) -> None:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True)
    if done.returncode:
        raise BuildError(f"{' '.join(command[:4])} ...: {done.stdout}{done.stderr}")


def translate(stage: Path) -> list[Any]:
    """Translate Python to C in `stage`, which holds a copy of the package; return mypyc's extensions."""
    from mypyc.build import mypycify

    _declare()
    before = Path.cwd()
    os.chdir(stage)
    try:
        return mypycify(
            ["--ignore-missing-imports", "--no-error-summary", *map(str, modules())],
            opt_level="2",
            debug_level="0",
            multi_file=True,
            target_dir="c",
            group_name=native.PACKAGE.name,
        )
    finally:
        os.chdir(before)


def _declare() -> None:
    """Have mypyc call C where modules call functions of `framing.py`, `reading.py` and `frames.py`.

    It does so where the arguments have these types; each number of values is a function of its own to it.
    """
    from mypyc.ir.ops import ERR_MAGIC, ERR_MAGIC_OVERLAPPING
    from mypyc.ir.rtypes import (
        RType,
        bool_rprimitive,
        bytes_rprimitive,
        int64_rprimitive,
        int_rprimitive,
        list_rprimitive,
        none_rprimitive,
        object_rprimitive,
    )
    from mypyc.primitives.registry import function_op

    package = f"{native.PACKAGE.name}.proto.wire"
    module = f"{package}.framing"
    head: list[RType] = [bytes_rprimitive, bytes_rprimitive, object_rprimitive]
    head += [int_rprimitive, int_rprimitive, bool_rprimitive]
    for count in range(_MOST_VALUES):
        for addresses_at in (2, 3):
            values: list[RType] = [int_rprimitive] * count
            values.insert(addresses_at, bytes_rprimitive)
            function_op(f"{module}.packet", head + values, bytes_rprimitive, "mrc_packet", ERR_MAGIC)
    seal: list[RType] = [bytes_rprimitive, int64_rprimitive, int64_rprimitive]
    function_op(f"{module}.sealed", seal, bool_rprimitive, "mrc_sealed", ERR_MAGIC)
    place: list[RType] = [bytes_rprimitive, int64_rprimitive]
    for name in ("u8", "u16", "u32"):
        function_op(f"{package}.reading.{name}", place, int64_rprimitive, f"mrc_{name}", ERR_MAGIC_OVERLAPPING)
    function_op(f"{package}.reading.u64", place, int_rprimitive, "mrc_u64", ERR_MAGIC)
    words: list[RType] = [object_rprimitive, *[int64_rprimitive] * 4]
    function_op(f"{module}.append_words", words, none_rprimitive, "mrc_append_words", ERR_MAGIC)
    module = f"{native.PACKAGE.name}.drivers.frames"
    frame: list[RType] = [object_rprimitive, int64_rprimitive]
    function_op(f"{module}.arrival", frame, int64_rprimitive, "mrc_arrival", ERR_MAGIC_OVERLAPPING)
    function_op(f"{module}.take", frame, bytes_rprimitive, "mrc_take", ERR_MAGIC)
    batch: list[RType] = [int64_rprimitive, list_rprimitive, list_rprimitive]
    function_op(f"{module}.send", batch, int64_rprimitive, "mrc_send", ERR_MAGIC_OVERLAPPING)


def compile_c(stage: Path, extensions: list[Any], target: Path) -> None:
    """Compile the C sources of the extensions and link them to shared objects in `target`."""
    cc = compiler()
    jobs: list[tuple[list[str], list[str]]] = []  # objects, and what links them
    compilations: list[tuple[int, list[str]]] = []  # bytes of the source, and what compiles it
    include = [f"-I{path}" for path in (sysconfig.get_path("include"), sysconfig.get_path("platinclude"))]
    understood = [cc, "-Werror", "-fsyntax-only", "-x", "c", os.devnull, *_OPTIMISE_MADE]
    optimise_made = _OPTIMISE if subprocess.run(understood, capture_output=True).returncode else _OPTIMISE_MADE
    for extension in extensions:
        objects = []
        flags = [*_FLAGS, *include, *(f"-I{path}" for path in extension.include_dirs)]
        flags += [f"-D{name}={value}" if value else f"-D{name}" for name, value in extension.define_macros]
        sources = list(extension.sources)
        if extension.name == native.LIBRARY:
            for header in (stage / native.PACKAGE.name / each for each in _C):
                flags += ["-include", str(header)]
                sources += [str(path) for path in sorted(header.parent.glob("*.c"))]
        for source in sources:
            made = f"{source}.{len(compilations)}.o"
            objects.append(made)
            optimise = optimise_made if Path(source).name.startswith("__native") else _OPTIMISE
            command = [cc, "-c", source, "-o", made, *optimise, *flags]
            compilations.append(((stage / source).stat().st_size, command))
        jobs.append((objects, [cc, "-shared", "-o", str(target / f"{extension.name}{native.SUFFIX}")]))
    # The longest first: at the end no processor waits for another.
    compilations.sort(key=lambda each: each[0], reverse=True)
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        try:
            for _ in pool.map(_run, [command for _, command in compilations], itertools.repeat(stage)):
                pass
            for _ in pool.map(_run, [[*link, *objects] for objects, link in jobs], itertools.repeat(stage)):
                pass
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


def build() -> Path:
    """Build what fits the sources as they are; return its folder."""
    name = native.key()
    folder = native.BUILDS / name
    native.BUILDS.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="mrclab-build-") as scratch:
        stage = Path(scratch)
        shutil.copytree(
            native.PACKAGE,
            stage / native.PACKAGE.name,
            ignore=shutil.ignore_patterns("__compiled__", "__pycache__"),
        )
        target = Path(tempfile.mkdtemp(prefix=".making-", dir=native.BUILDS))
        try:
            target.chmod(0o755)
            compile_c(stage, translate(stage), target)
            if native.key() != name:
                raise BuildError("sources were edited meanwhile; again, please")
            if not folder.exists():
                target.rename(folder)
        finally:
            shutil.rmtree(target, ignore_errors=True)
    for old in sorted(native.BUILDS.iterdir(), key=lambda path: path.stat().st_mtime)[:-_KEPT]:
        shutil.rmtree(old, ignore_errors=True)
    return folder


def main(option: str = "") -> int:
    """See the module's docstring."""
    if option == "--lacking":
        print("MRCLAB_PURE is set" if native.pure() else lacking())
        return 0
    if option == "--needed":
        return int(not _needed())
    status = _main()
    if option == "--folder" and status == 0:
        print(native.BUILDS / native.key())
    return status


def _needed() -> bool:
    """Return whether a build would run the compiler. Print why there is none if it is not wanted or not possible."""
    if native.pure():
        print("protocol core: not compiled, MRCLAB_PURE is set")
        return False
    if (native.BUILDS / native.key()).is_dir():
        return False
    if lacks := missing():
        print(f"protocol core: not compiled, {lacks}; pure Python runs, at half the speed")
        return False
    return True


def _main() -> int:
    if not _needed():
        return 0
    print("protocol core: compiling, about a minute", flush=True)
    # The set-up ends the build where something else fails; nothing is left behind then.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    started = time.monotonic()
    try:
        build()
    except (BuildError, OSError) as error:
        print(f"protocol core: the build failed; MRCLAB_PURE=1 goes on without it\n{error}", file=sys.stderr)
        return 1
    print(f"protocol core: compiled in {time.monotonic() - started:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
