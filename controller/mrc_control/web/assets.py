"""The two libraries of the page, Cytoscape.js and uPlot: fetched from npm by `make web-assets`.

`assets.json` names version, hash and files of each; nothing else is taken, and nothing without that hash. The files lie
in `static/vendor`, which is not committed, and travel in the wheel with their licences.

    python -m mrc_control.web.assets            fetches what is missing
    python -m mrc_control.web.assets --check    exit code 1 when something is missing
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import io
import json
import pathlib
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable
from typing import Any, Final

from p4lite.files import write_whole

HERE: Final = pathlib.Path(__file__).parent
LIST: Final = HERE / "assets.json"
VENDOR: Final = HERE / "static" / "vendor"
#: More than any file that is wanted.
MOST_BYTES: Final = 8 << 20
TIMEOUT_S: Final = 120
STAMP: Final = "versions.json"


class AssetError(Exception):
    """A library cannot be had; the text says why, and what to do."""


def wanted() -> dict[str, dict[str, Any]]:
    """By package: `version`, `integrity`, and `files` with their names here."""
    found: dict[str, dict[str, Any]] = json.loads(LIST.read_text())
    return found


def _versions() -> dict[str, str]:
    return {name: entry["integrity"] for name, entry in wanted().items()}


def missing() -> list[str]:
    """Packages of which something is not here, or of another version."""
    try:
        stamp = json.loads((VENDOR / STAMP).read_text())
    except (OSError, ValueError):
        stamp = {}
    return [
        name
        for name, entry in wanted().items()
        if stamp.get(name) != entry["integrity"]
        or not all((VENDOR / file).is_file() for file in entry["files"].values())
    ]


def installed() -> dict[str, pathlib.Path]:
    """The files that are here, by their name below /static."""
    names = [file for entry in wanted().values() for file in entry["files"].values()]
    return {f"vendor/{name}": VENDOR / name for name in names if (VENDOR / name).is_file()}


def need() -> None:
    """Checks that the page's libraries are here.

    Raises:
        AssetError: they are not.
    """
    lacking = missing()
    if lacking:
        raise AssetError(
            f"the live view needs {' and '.join(lacking)}, which this checkout has not: `make web-assets` fetches "
            f"them from npm (Debian: apt-get install npm) into {VENDOR}; all other commands work without them"
        )


def check(name: str, data: bytes) -> None:
    """Checks a package against its hash.

    Raises:
        AssetError: it is another.
    """
    entry = wanted()[name]
    found = "sha512-" + base64.b64encode(hashlib.sha512(data).digest()).decode()
    if not hmac.compare_digest(found, entry["integrity"]):
        raise AssetError(
            f"{name} {entry['version']}: what npm gave is not what assets.json names ({found}); nothing of it was used"
        )


def unpack(name: str, data: bytes, folder: pathlib.Path) -> None:
    """Takes the files that are wanted out of a package that was checked.

    Raises:
        AssetError: one is not in it.
    """
    with tarfile.open(fileobj=io.BytesIO(data), mode="r:gz") as archive:
        for inside, file in wanted()[name]["files"].items():
            try:
                member = archive.getmember(f"package/{inside}")
            except KeyError:
                raise AssetError(f"{name}: no file {inside} in the package") from None
            source = archive.extractfile(member) if member.isreg() and member.size <= MOST_BYTES else None
            if source is None:
                raise AssetError(f"{name}: {inside} is no file, or too large")
            write_whole(folder / file, source.read())


def pack(name: str, version: str, folder: pathlib.Path) -> bytes:
    """A package as npm gives it.

    Raises:
        AssetError: npm is missing, or does not get it.
    """
    npm = shutil.which("npm")
    if npm is None:
        raise AssetError("npm is missing: the live view's libraries come from it (Debian: apt-get install npm)")
    command = [npm, "pack", "--silent", "--ignore-scripts", "--pack-destination", str(folder), f"{name}@{version}"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, cwd=folder)
    except subprocess.TimeoutExpired:
        raise AssetError(f"npm pack {name}@{version}: no answer within {TIMEOUT_S} s; is there a network?") from None
    packed = [path for path in folder.iterdir() if path.suffix == ".tgz" and path.name.startswith(f"{name}-")]
    if done.returncode or len(packed) != 1:
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        raise AssetError(f"npm pack {name}@{version} failed: {lines[-1] if lines else 'it says nothing'}"[:400])
    return packed[0].read_bytes()


def fetch(say: Callable[[str], object] = print) -> None:
    """Fetches what is missing.

    Raises:
        AssetError: it cannot be had; nothing that was not checked is left.
    """
    VENDOR.mkdir(exist_ok=True)
    for name in missing():
        entry = wanted()[name]
        with tempfile.TemporaryDirectory(prefix="mrclab-npm-") as folder:
            data = pack(name, entry["version"], pathlib.Path(folder))
        check(name, data)
        unpack(name, data, VENDOR)
        say(f"{name} {entry['version']}: {', '.join(entry['files'].values())}")
    write_whole(VENDOR / STAMP, json.dumps(_versions(), indent=1))


def main(arguments: list[str]) -> int:
    """Entry point; 1 when something is missing."""
    try:
        if arguments == ["--check"]:
            need()
        else:
            fetch()
    except (AssetError, OSError) as error:
        print(f"mrclab: error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
