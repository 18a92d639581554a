"""Loader of the host's compiled modules.

`python -m mrc_host.build` (`make setup`, and the build of a wheel) translates the hot ones to C by mypyc, into a folder
of `__compiled__` beside this file that is named after the hash of their sources and of the Python they are for.
Importing `mrc_host` looks for exactly that folder: a source that was edited since has another hash, so what was built
from the old one is not found and Python runs the source as it stands. `MRCLAB_PURE=1` never looks.
"""

from __future__ import annotations

import hashlib
import importlib.abc
import importlib.machinery
import importlib.util
import os
import platform
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Final

PACKAGE: Final = Path(__file__).parent
BUILDS: Final = PACKAGE / "__compiled__"
SUFFIX: Final = str(sysconfig.get_config_var("EXT_SUFFIX") or ".so")
#: The library that holds all compiled modules; each has a small one of its own through which it is imported.
LIBRARY: Final = "mrc_host__mypyc"
#: Modules that are compiled besides `proto`: what the data path has beside it, on either clock.
BESIDE: Final = (
    "drivers/frames.py",
    "drivers/packet_ring.py",
    "drivers/raw.py",
    "drivers/surface.py",
    "drivers/virtual.py",
    "node/datapath.py",
    "node/mapper.py",
    "node/programs/completions.py",
    "node/programs/programs.py",
    "node/programs/queues.py",
    "node/programs/submissions.py",
    "node/samples.py",
)
#: Folders and files with compiled modules in them, and all that is made from at the build.
SOURCES: Final = (
    "access.py",
    "proto",
    "drivers/__init__.py",
    "drivers/frames.c",
    "drivers/frames.h",
    "drivers/netns.py",
    *BESIDE,
    "build.py",
    "native.py",
)

_SUFFIXES: Final = (".py", ".c", ".h")


def _python() -> str:
    """Return the name of the Pythons that can load what this one builds.

    All releases of 3.X have one binary interface, which `SUFFIX` names with the kind of machine; so a wheel that was
    built by one of them serves the others. Before the first release of 3.X its interface may change, and a build serves
    the same Python only.
    """
    return SUFFIX if sys.version_info.releaselevel == "final" else f"{sys.version} {SUFFIX}"


def key() -> str:
    """Return the name of the build that fits the sources as they are now, this Python and this machine.

    The machine is named on its own: `SUFFIX` names it on Linux, but on macOS it is the same for both architectures.
    """
    digest = hashlib.blake2b(f"{_python()} {platform.machine()}".encode(), digest_size=16)
    for source in SOURCES:
        place = PACKAGE / source
        for path in (
            sorted(path for path in place.rglob("*") if path.suffix in _SUFFIXES) if place.is_dir() else [place]
        ):
            content = path.read_bytes()
            digest.update(f"{path.relative_to(PACKAGE)} {len(content)}\n".encode())
            digest.update(content)
    return digest.hexdigest()


class Finder(importlib.abc.MetaPathFinder):
    """Finds the compiled modules of one build before Python looks for their sources."""

    def __init__(self, folder: Path) -> None:
        self.files = {path.name.removesuffix(SUFFIX): path for path in folder.glob(f"*{SUFFIX}")}

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """See `importlib`."""
        file = self.files.get(fullname)
        if file is None:
            return None
        loader = importlib.machinery.ExtensionFileLoader(fullname, str(file))
        return importlib.util.spec_from_file_location(fullname, file, loader=loader)


def pure() -> bool:
    """Return whether the environment asks for plain Python (`MRCLAB_PURE`)."""
    return os.environ.get("MRCLAB_PURE", "") not in ("", "0")


def _install() -> tuple[bool, str]:
    """Install the finder of compiled modules; return whether they run from now on, and why not."""
    if pure():
        return False, "MRCLAB_PURE is set"
    folder = BUILDS / key()
    if folder.is_dir():
        sys.meta_path.insert(0, Finder(folder))
        return True, ""
    built = BUILDS.is_dir() and any(BUILDS.iterdir())
    if built:
        return False, "sources have changed since the build"
    checkout = (PACKAGE.parents[1] / "Makefile").is_file()
    return False, "not built; `make setup` does" if checkout else "the wheel has none for this Python"


COMPILED, WHY_NOT = _install()
