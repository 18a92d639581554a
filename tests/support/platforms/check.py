"""`make roots-check NAME=debian-13`: `make demo` and `make test` in a bare root of a distribution, with times of steps.

    PYTHONPATH=tests python3 -m support.platforms.check NAME [--person root] [--steps setup,demo] [--keep FOLDER]
        [--offline]

The root is made by debootstrap in a temporary folder and removed at the end. With `--keep` it is made in that folder,
stays there, and is used again. With `--offline` the steps have no network, and the folder of `make vendor` instead.
The steps' messages are in build/roots/NAME-PERSON.log.
"""

from __future__ import annotations

import argparse
import contextlib
import pathlib
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from typing import Final

from support.platforms.roots import CHECKOUT, PLATFORMS, Root, RootError

PERSONS: Final = ("user", "root")
#: The folder of the checkout inside, in the home folder of who uses it.
HOME: Final = {"root": "/root", "user": "/home/learner"}
STEPS: Final = ("setup", "demo", "test")
#: Installs what a root that `make install-check` has kept lacks.
COMPLETE: Final = (
    "{ command -v make && command -v sudo; } > /dev/null || "
    "{ apt-get update -qq && apt-get install -y -qq --no-install-recommends make sudo; }"
)


def script(person: str, words: Sequence[str]) -> list[str]:
    """Return the command of a step inside the root: `make` in the checkout, as root or as the user `learner`."""
    make = ["make", "-C", f"{HOME[person]}/mrclab", *words]
    if person == "root":
        return make
    return ["runuser", "-u", "learner", "--", "env", f"HOME={HOME['user']}", "USER=learner", *make]


def add_user(root: Root) -> list[str]:
    """Return the command that makes the user `learner`, who may become root with sudo as on a machine of their own."""
    rule = "learner ALL=(ALL) NOPASSWD: ALL"
    text = f"id learner || useradd -m -s /bin/bash learner; echo '{rule}' > /etc/sudoers.d/learner"
    return ["sh", "-c", f"{text}; chown -R learner: {HOME['user']}"]


def check(name: str, person: str, steps: Sequence[str], root: Root, log: pathlib.Path) -> int:
    """Make a root if its folder has none, run the steps as this person, and print a summary; return the exit code."""
    platform = PLATFORMS[name]
    taken: list[tuple[str, int, float]] = []
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("w", encoding="utf-8") as messages:
        began = time.monotonic()
        if not (root.folder / "etc/os-release").exists():
            root.make(platform, messages)
            taken.append(("debootstrap", 0, time.monotonic() - began))
        root.furnish()
        if code := root.run(["sh", "-c", COMPLETE], messages, {"DEBIAN_FRONTEND": "noninteractive"}):
            raise RootError(f"apt-get installs no make or sudo in {root.folder} (exit code {code}); see {log}")
        root.copy_checkout(f"{HOME[person]}/mrclab")
        if person == "user" and (code := root.run(add_user(root), messages)):
            raise RootError(f"the user learner cannot be made (exit code {code}); see {log}")
        for step in steps:
            print(f"roots-check: {name}, {person}: make {step}; its messages go to {log}", flush=True)
            began = time.monotonic()
            code = root.run(script(person, [step, *platform.words()]), messages)
            taken.append((f"make {step}", code, time.monotonic() - began))
            if code:
                break
    for text, code, seconds in taken:
        print(f"{text:12} {'passed' if code == 0 else f'failed ({code})':12} {seconds:6.0f} s")
    failed = [text for text, code, _ in taken if code]
    print(f"roots-check: {name}, {person}: {f'{failed[0]} failed; see {log}' if failed else 'good'}")
    return 1 if failed else 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the check of the command line; return 0 if all steps passed, 1 if one failed, 2 if it cannot be run."""
    parser = argparse.ArgumentParser(prog="roots-check", description=__doc__)
    parser.add_argument("name", choices=sorted(PLATFORMS))
    parser.add_argument("--person", choices=PERSONS, default="user")
    parser.add_argument("--steps", default=",".join(STEPS), help="targets of the Makefile, with commas between them")
    parser.add_argument("--keep", type=pathlib.Path, help="a folder for the root that is kept and used again")
    parser.add_argument("--offline", action="store_true", help="set up from the folder of `make vendor`")
    chosen = parser.parse_args(arguments)
    log = CHECKOUT / "build" / "roots" / f"{chosen.name}-{chosen.person}.log"
    with contextlib.ExitStack() as stack:
        folder = chosen.keep
        if folder is None:
            above = tempfile.mkdtemp(prefix="mrclab-root-")
            # All mounts are in a namespace that ended with the last step.
            stack.callback(shutil.rmtree, above)
            # Users inside need to enter the root's own folder.
            folder = pathlib.Path(above, "root")
            folder.mkdir(mode=0o755)
        try:
            root = Root(folder.resolve(), offline=chosen.offline)
            return check(chosen.name, chosen.person, chosen.steps.split(","), root, log)
        except RootError as error:
            print(f"roots-check: {error}", file=sys.stderr)
            return 2


if __name__ == "__main__":
    sys.exit(main())
