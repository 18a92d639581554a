"""`make image-check`: build the image of the Containerfile with buildah, measure it, and use it without privileges.

    PYTHONPATH=tests python3 -m support.platforms.image [--base IMAGE]

Without `--base` no registry is asked: the base image is a root of debootstrap's, of the release that the Containerfile
names. All of it is in a temporary folder that is removed at the end; the messages are in build/roots/image.log.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from typing import IO, Final

from support.platforms.roots import CHECKOUT, PLATFORMS, SETTINGS, Root, RootError, shared_folders

LIMIT_MB: Final = 600
OWN_BASE: Final = "localhost/mrclab-base"
#: What an image must do as its user, without privileges.
USES: Final[Sequence[Sequence[str]]] = (
    ("sh", "-c", "test $(id -u) = 1000"),
    ("mrclab", "--version"),
    ("mrclab", "run", "all_to_all", "--lab", "tiny", "--clock", "virtual", "-o", "/tmp/first"),
    ("mrclab", "demo", "-o", "/tmp/demo"),
)
#: What Debian's slim images leave out as well.
LEFT_OUT: Final = ("usr/share/doc", "usr/share/man", "usr/share/locale", "var/cache/apt/archives", "var/lib/apt/lists")


class Builder:
    """buildah with its storage in a folder of its own."""

    def __init__(self, folder: pathlib.Path, log: IO[str]) -> None:
        if shutil.which("buildah") is None:
            raise RootError("buildah is missing: apt-get install buildah crun")
        self.log = log
        self._command = ["buildah", "--root", str(folder / "storage"), "--runroot", str(folder / "state")]

    def __call__(self, *words: str) -> str:
        """Run buildah; return what it prints. Raises RootError where it fails."""
        environment = {**os.environ, "BUILDAH_ISOLATION": "chroot"}
        command = [*self._command, *words]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=self.log, text=True, env=environment, check=False)
        self.log.write(done.stdout)
        self.log.flush()
        if done.returncode:
            raise RootError(f"buildah {words[0]} failed ({done.returncode}); its messages are in {self.log.name}")
        return done.stdout.strip()


def release(containerfile: str) -> str:
    """Return the suite of the Containerfile's base image, such as bookworm."""
    found = re.search(r"^ARG BASE=\S+/debian:(\w+)-slim$", containerfile, re.M)
    if found is None:
        raise RootError("the Containerfile has no line `ARG BASE=.../debian:SUITE-slim`")
    return found[1]


def make_base(builder: Builder, root: Root, suite: str) -> None:
    """Make the base image from a root of debootstrap's."""
    platform = next(each for each in PLATFORMS.values() if each.suite == suite)
    root.make(platform, builder.log, include="ca-certificates")
    (root.folder / "etc/pip.conf").unlink()
    for name in LEFT_OUT:
        for path in (root.folder / name).iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    container = builder("from", "scratch")
    builder("add", "--quiet", container, str(root.folder), "/")
    builder("commit", "--quiet", container, OWN_BASE)
    builder("rm", container)


def build(builder: Builder, root: Root, base: str) -> float:
    """Build the image `mrclab` with pip's settings of this machine; return its size in 10^6 bytes."""
    place = root.folder.parent / "pip"
    place.mkdir()
    (place / "pip.conf").write_text(root.configuration(place))
    volumes = [f"{place / 'pip.conf'}:/etc/pip.conf:ro", *(f"{each}:{each}:ro" for each in shared_folders(root.pip))]
    if (place / SETTINGS).is_dir():
        volumes.append(f"{place / SETTINGS}:/{SETTINGS}:ro")
    words = [word for volume in volumes for word in ("--volume", volume)]
    file = str(CHECKOUT / "Containerfile")
    builder("bud", "--pull-never" if base == OWN_BASE else "--pull", "--build-arg", f"BASE={base}", *words,
            "--tag", "mrclab", "--file", file, str(CHECKOUT))  # fmt: skip
    (image,) = json.loads(builder("images", "--json", "mrclab"))
    number, unit = str(image["size"]).split()
    return float(number) * {"KB": 1e-3, "MB": 1.0, "GB": 1e3}[unit]


def check(folder: pathlib.Path, log: IO[str], base: str | None) -> int:
    """Build, measure and use the image; print a line for each step; return the exit code."""
    builder = Builder(folder, log)
    root = Root(folder / "root")
    root.folder.mkdir(mode=0o755)
    began = time.monotonic()
    if base is None:
        make_base(builder, root, release((CHECKOUT / "Containerfile").read_text(encoding="utf-8")))
    print(f"base image   {time.monotonic() - began:6.0f} s", flush=True)
    began = time.monotonic()
    size = build(builder, root, base or OWN_BASE)
    print(f"build        {time.monotonic() - began:6.0f} s, {size:.0f} MB (limit: {LIMIT_MB} MB)", flush=True)
    container = builder("from", "--pull-never", "mrclab")
    for words in USES:
        began = time.monotonic()
        builder("run", container, "--", *words)
        print(f"{time.monotonic() - began:6.0f} s  {' '.join(words)}", flush=True)
    return 0 if size < LIMIT_MB else 1


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the check; return 0 if the image is small enough and works, 1 if not, 2 if it cannot be checked here."""
    parser = argparse.ArgumentParser(prog="image-check", description=__doc__)
    parser.add_argument("--base", help="the base image to pull, such as docker.io/library/debian:bookworm-slim")
    chosen = parser.parse_args(arguments)
    file = CHECKOUT / "build" / "roots" / "image.log"
    file.parent.mkdir(parents=True, exist_ok=True)
    folder = pathlib.Path(tempfile.mkdtemp(prefix="mrclab-image-"))
    try:
        with file.open("w", encoding="utf-8") as log:
            return check(folder, log, chosen.base)
    except RootError as error:
        print(f"image-check: {error}", file=sys.stderr)
        return 2
    finally:
        # Storage of the kind overlay keeps a mount for each container.
        for mount in sorted(folder.glob("storage/overlay*/*/merged"), reverse=True):
            subprocess.run(["umount", "-l", str(mount)], capture_output=True, check=False)
        subprocess.run(["umount", "-l", str(folder / "storage/overlay")], capture_output=True, check=False)
        shutil.rmtree(folder)


if __name__ == "__main__":
    sys.exit(main())
