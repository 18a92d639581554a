"""`make install-check NAME=debian-13`: the files in `dist` installed in a bare root, with the demonstration and tests.

    PYTHONPATH=tests python3 -m support.platforms.install NAME [--ways wheel,sdist] [--keep FOLDER]

`make release-check` fills `dist`. The root has Python and a C compiler, and no checkout. As an ordinary user, for each
way: an environment, pip, `mrclab --version`, `mrclab demo`, and the tests of tests/quick.txt from the unpacked source
distribution. The root is made in a temporary folder and removed at the end. With `--keep` it is made in that folder,
stays there, and is used again. The messages are in build/roots/NAME-install.log.
"""

from __future__ import annotations

import argparse
import contextlib
import pathlib
import platform
import shutil
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import IO, Final

from support.platforms.check import HOME, add_user
from support.platforms.roots import CHECKOUT, PLATFORMS, Root, RootError

DIST: Final = CHECKOUT / "dist"
#: What "a machine with Python and gcc" has; pip builds a source distribution with the core where Python's headers are.
PACKAGES: Final = "ca-certificates,sudo,python3,python3-venv,python3-dev,gcc,libc6-dev"
#: What the real clock needs besides.
REAL_CLOCK: Final = "mininet iproute2 procps iputils-ping ethtool"
#: Tests of pages and sources, by the beginnings of their files, which need the checkout.
OF_THE_CHECKOUT: Final = ("tests/docs/", "tests/test_", "tests/topo/test_extras")
PLACE: Final = f"{HOME['user']}/dist"


@dataclass(frozen=True)
class Way:
    """A way to install: the endings of the files of p4lite and mrclab, the demonstration's clock, Debian's packages."""

    p4lite: str
    mrclab: str
    clock: str = "virtual"
    packages: str = ""


WAYS: Final[Mapping[str, Way]] = {
    "wheel": Way("-none-any.whl", "-none-any.whl"),
    "sdist": Way(".tar.gz", ".tar.gz"),
    "mininet": Way("-none-any.whl", f"-linux_{platform.machine()}.whl", "real", REAL_CLOCK),
}


def one(prefix: str, ending: str, dist: pathlib.Path = DIST) -> pathlib.Path:
    """Return the only file of `dist` with this beginning and end. Raises RootError if there is not just one."""
    found = [path for path in sorted(dist.glob(f"{prefix}-*")) if path.name.endswith(ending)]
    if len(found) != 1:
        raise RootError(
            f"{dist} has {len(found)} files {prefix}-*{ending} instead of one: run `make release-check` first"
        )
    return found[0]


def steps(name: str, way: Way, dist: pathlib.Path = DIST) -> list[tuple[str, str]]:
    """Return the steps of a way as names and shell texts, to be run as the user in an empty folder.

    The tests find the packages where pip has put them: the sources beside them are removed.
    """
    files = [f"{PLACE}/{one('p4lite', way.p4lite, dist).name}", f"{PLACE}/{one('mrclab', way.mrclab, dist).name}"]
    source = one("mrclab", ".tar.gz", dist)
    unpacked = source.name.removesuffix(".tar.gz")
    shared = "--system-site-packages " if way.packages else ""
    return [
        ("environment", f"/usr/bin/python3 -m venv {shared}~/{name}"),
        ("pip install", f"~/{name}/bin/pip install --no-cache-dir {files[0]} '{files[1]}[dev]'"),
        ("--version", f"~/{name}/bin/mrclab --version"),
        ("demo", f"~/{name}/bin/mrclab demo --clock {way.clock} --output ~/{name}-demo"),
        (
            "tests",
            f"tar xzf {PLACE}/{source.name} && cd {unpacked} && rm -rf controller hosts topologies/mrc_* && "
            "find extras -mindepth 2 -maxdepth 2 ! -name tests -exec rm -r {} + && "
            f"grep -v {' '.join(f'-e ^{each}' for each in OF_THE_CHECKOUT)} tests/quick.txt > tests/installed.txt && "
            f"~/{name}/bin/pytest -n 2 --dist loadfile -p no:cacheprovider "
            "-m 'not lab and not netns and not root and not slow' @tests/installed.txt",
        ),
    ]


def as_user(text: str) -> list[str]:
    """Return the command that runs a shell text as the user `learner` in an empty folder below their home folder."""
    enter = "cd && rm -rf empty && mkdir empty && cd empty && "
    return ["runuser", "-u", "learner", "--", "env", f"HOME={HOME['user']}", "USER=learner", "sh", "-c", enter + text]


def check(name: str, ways: Sequence[str], folder: pathlib.Path, log: IO[str]) -> int:
    """Make a root if the folder has none, install in each way and use it; print a line for each step; return 0 or 1."""
    for way in ways:
        steps(way, WAYS[way])
    root = Root(folder)
    if not (folder / "etc/os-release").exists():
        began = time.monotonic()
        root.make(PLATFORMS[name], log, include=PACKAGES)
        print(f"debootstrap: passed, {time.monotonic() - began:.0f} s", flush=True)
    root.furnish()
    shutil.rmtree(folder / PLACE.lstrip("/"), ignore_errors=True)
    shutil.copytree(DIST, folder / PLACE.lstrip("/"))
    if code := root.run(add_user(root), log):
        raise RootError(f"the user learner cannot be made (exit code {code}); see {log.name}")
    for way in ways:
        if packages := WAYS[way].packages:
            install = f"apt-get update -qq && apt-get install -y -qq --no-install-recommends {packages}"
            if root.run(["sh", "-c", install], log, {"DEBIAN_FRONTEND": "noninteractive"}):
                raise RootError(f"apt-get installs no {packages}; see {log.name}")
        for step, text in steps(way, WAYS[way]):
            began = time.monotonic()
            code = root.run(as_user(text), log)
            outcome = "passed" if code == 0 else f"failed ({code}); see {log.name}"
            print(f"{name}, {way}: {step}: {outcome}, {time.monotonic() - began:.0f} s", flush=True)
            if code:
                return 1
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the check of the command line; return 0 if all steps passed, 1 if one failed, 2 if it cannot be run."""
    parser = argparse.ArgumentParser(prog="install-check", description=__doc__)
    parser.add_argument("name", choices=sorted(PLATFORMS))
    parser.add_argument("--ways", default="wheel,sdist", help=f"some of {', '.join(WAYS)}, with commas between them")
    parser.add_argument("--keep", type=pathlib.Path, help="a folder for the root that is kept and used again")
    chosen = parser.parse_args(arguments)
    ways = chosen.ways.split(",")
    if unknown := set(ways) - set(WAYS):
        parser.error(f"no ways to install: {', '.join(sorted(unknown))}; there are {', '.join(WAYS)}")
    file = CHECKOUT / "build" / "roots" / f"{chosen.name}-install.log"
    file.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as stack:
        folder = chosen.keep
        if folder is None:
            above = tempfile.mkdtemp(prefix="mrclab-root-")
            stack.callback(shutil.rmtree, above)
            folder = pathlib.Path(above, "root")
            folder.mkdir(mode=0o755)
        log = stack.enter_context(file.open("w", encoding="utf-8"))
        try:
            return check(chosen.name, ways, folder.resolve(), log)
        except RootError as error:
            print(f"install-check: {error}", file=sys.stderr)
            return 2


if __name__ == "__main__":
    sys.exit(main())
