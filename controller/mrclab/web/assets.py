"""The two libraries of the page, Cytoscape.js and uPlot: fetched from the npm registry by `make web-assets`.

`assets.json` names version, hash and files of each; nothing else is taken, and nothing without that hash. The files lie
in `static/vendor`, which is not committed, and travel in the wheel with their licences. npm itself is not needed.

    python -m mrclab.web.assets            fetches what is missing
    python -m mrclab.web.assets --check    exit code 1 when something is missing
"""

from __future__ import annotations

import json
import pathlib
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from mrc_topo.base.files import write_whole
from mrc_topo.base.plain import decode
from mrclab.web import npm

HERE: Final = pathlib.Path(__file__).parent
LIST: Final = HERE / "assets.json"
VENDOR: Final = HERE / "static" / "vendor"
STAMP: Final = "versions.json"


class AssetError(Exception):
    """A library that cannot be fetched or is missing; the text says why, and what to do."""


@dataclass(frozen=True)
class Package:
    """A package: its version, its hash, and the local name of each file that is taken from it."""

    version: str
    integrity: str
    files: Mapping[str, str]


def wanted(listed: pathlib.Path | None = None) -> dict[str, Package]:
    """Return the packages listed in `assets.json` or another such file, by name."""
    return decode(dict[str, Package], json.loads((listed or LIST).read_text(encoding="utf-8")))


def missing(listed: pathlib.Path | None = None, folder: pathlib.Path | None = None) -> list[str]:
    """Return the packages of a list that lack a file in a folder, or have one of another version."""
    vendor = folder or VENDOR
    try:
        stamp = json.loads((vendor / STAMP).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        stamp = {}
    return [
        name
        for name, entry in wanted(listed).items()
        if stamp.get(name) != entry.integrity or not all((vendor / file).is_file() for file in entry.files.values())
    ]


def installed() -> dict[str, pathlib.Path]:
    """Return the files that are here, by their name below /static."""
    names = [file for entry in wanted().values() for file in entry.files.values()]
    return {f"vendor/{name}": VENDOR / name for name in names if (VENDOR / name).is_file()}


def need() -> None:
    """Check that the page's libraries are installed.

    Raises:
        AssetError: a library is missing.
    """
    lacking = missing()
    if lacking:
        raise AssetError(
            f"the live view needs {' and '.join(lacking)}, which this checkout has not: `make web-assets` fetches "
            f"them from the npm registry into {VENDOR}; all other commands work without them"
        )


def fetch(
    say: Callable[[str], object] = print, listed: pathlib.Path | None = None, folder: pathlib.Path | None = None
) -> None:
    """Fetch what is missing of a list (default: `assets.json`) into a folder (default: `static/vendor`).

    Raises:
        AssetError: a package cannot be fetched; no unchecked file is left behind.
    """
    vendor = folder or VENDOR
    for name in missing(listed, vendor):
        entry = wanted(listed)[name]
        what = f"{name} {entry.version}"
        try:
            data = npm.download(name, entry.version)
            npm.check(what, data, entry.integrity)
            files = npm.members(what, data, list(entry.files))
        except npm.NpmError as error:
            raise AssetError(f"{name} is not fetched: {error}") from error
        vendor.mkdir(parents=True, exist_ok=True)
        for inside, file in entry.files.items():
            write_whole(vendor / file, files[inside])
        say(f"{what}: {', '.join(entry.files.values())}")
    if missing(listed, vendor):
        versions = {name: entry.integrity for name, entry in wanted(listed).items()}
        write_whole(vendor / STAMP, json.dumps(versions, indent=1))


def main(arguments: list[str]) -> int:
    """Run as the entry point; return 1 when something is missing."""
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
