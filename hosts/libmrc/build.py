"""Compiles libmrc, and finds it again: `python -m libmrc.build`, which `make setup` runs.

What is built is kept in the cache of compiled objects (`p4lite.switch.native.build`), keyed by all that goes in.
Where it is there, nothing is done. The last line on stdout is the folder with `libmrc.so.1`, `libmrc.so` and
`lib_mrc.so`. `--include` prints the folder of `mrc.h` and `mrc_ctl.h` instead.

Exit status: 0, 1 (no compiler or header, or it failed; the reason is on stderr), 2 (wrong usage).
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

from p4lite.files import make_private
from p4lite.switch.errors import BuildError
from p4lite.switch.native import build as native

PACKAGE: Final = Path(__file__).parent
#: `mrc.h`, `mrc_ctl.h` and their versions.
INCLUDE: Final = PACKAGE / "include"
SOURCES: Final = PACKAGE / "src"
SONAME: Final = "libmrc.so.1"
#: What programs are linked with; OCP's example looks for the second.
LINKS: Final = ("libmrc.so", "lib_mrc.so")
# The library stays where it is once it is loaded: handlers of forks, and contexts of programs, refer to it.
_LINK: Final = ("-Wl,-soname," + SONAME, "-Wl,-z,nodelete", "-Wl,-z,now", "-ldl", "-ljansson")
#: Headers of others that the library is built with, and the Debian packages that have them.
HEADERS: Final = {"infiniband/verbs.h": "libibverbs-dev", "jansson.h": "libjansson-dev"}


def sources() -> list[Path]:
    """Return the C files."""
    return sorted(SOURCES.glob("*.c"))


def check_headers() -> None:
    """Look for the headers of others.

    Raises:
        BuildError: there is no C compiler, or one of them is missing.
    """
    for header, package in HEADERS.items():
        command = [*native.compiler(), "-E", "-x", "c", "-"]
        if subprocess.run(
            command, input=f"#include <{header}>", capture_output=True, text=True, check=False
        ).returncode:
            raise BuildError(f"{header}: not found; install {package} (apt install {' '.join(HEADERS.values())})")


def library(*, sanitize: bool = False) -> Path:
    """Return the folder of the library, which is built unless it is there.

    Args:
        sanitize: with the sanitizers of addresses and of undefined behaviour.

    Raises:
        BuildError: there is no C compiler, a header is missing, or the compiler fails.
    """
    try:
        return _links(native.build("libmrc", sources(), include=(SOURCES, INCLUDE), libs=_LINK, sanitize=sanitize))
    except BuildError:
        check_headers()
        raise


def _links(made: Path) -> Path:
    """Return a folder in which a built library has the names that programs look for."""
    folder = make_private(made.with_suffix(""))
    for name, target in ((SONAME, os.path.join("..", made.name)), *((name, SONAME) for name in LINKS)):
        link = folder / name
        if not link.is_symlink():
            # Another process may be at it, too: a link appears at once, and only whole.
            own = folder / f"{name}.{os.getpid()}"
            own.unlink(missing_ok=True)
            own.symlink_to(target)
            own.replace(link)
    return folder


def main(arguments: list[str]) -> int:
    """Run the command line."""
    if arguments == ["--include"]:
        print(INCLUDE)
        return 0
    if arguments:
        print(f"libmrc.build: unknown arguments {' '.join(arguments)}; there is --include", file=sys.stderr)
        return 2
    try:
        print(library())
    except BuildError as error:
        print(f"libmrc: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
