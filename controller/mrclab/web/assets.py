"""The two libraries of the page, Cytoscape.js and uPlot: fetched from the npm registry by `make web-assets`.

`assets.json` names version, hash and files of each; nothing else is taken, and nothing without that hash. The files lie
in `static/vendor`, which is not committed, and travel in the wheel with their licences. npm itself is not needed;
`NPM_CONFIG_REGISTRY` names another registry, as for npm.

    python -m mrclab.web.assets            fetches what is missing
    python -m mrclab.web.assets --check    exit code 1 when something is missing
"""

from __future__ import annotations

import base64
import hashlib
import http.client
import io
import json
import os
import pathlib
import sys
import tarfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from mrc_topo.base.files import write_whole
from mrc_topo.base.plain import decode

HERE: Final = pathlib.Path(__file__).parent
LIST: Final = HERE / "assets.json"
VENDOR: Final = HERE / "static" / "vendor"
STAMP: Final = "versions.json"
REGISTRY: Final = "https://registry.npmjs.org"
#: The size limits of a package, and of one file in it.
MOST_PACKED: Final = 16 << 20
MOST_BYTES: Final = 8 << 20
TIMEOUT_S: Final = 30.0
#: The waits before further tries where the registry may answer otherwise a moment later.
AGAIN_S: Final = (1.0, 3.0)
PASSING: Final = frozenset({408, 429, 500, 502, 503, 504})


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
        files = _members(what, _download(name, entry), list(entry.files))
        vendor.mkdir(parents=True, exist_ok=True)
        for inside, file in entry.files.items():
            write_whole(vendor / file, files[inside])
        say(f"{what}: {', '.join(entry.files.values())}")
    if missing(listed, vendor):
        versions = {name: entry.integrity for name, entry in wanted(listed).items()}
        write_whole(vendor / STAMP, json.dumps(versions, indent=1))


def _download(name: str, package: Package) -> bytes:
    """Return a package of the registry, whose hash is as it should be. Raises AssetError."""
    registry = os.environ.get("NPM_CONFIG_REGISTRY", REGISTRY).rstrip("/")
    address = f"{registry}/{name}/-/{name}-{package.version}.tgz"
    if not registry.startswith(("https://", "http://")):
        raise AssetError(f"{name} is not fetched: NPM_CONFIG_REGISTRY ({registry}) is not an http address")
    for wait in (*AGAIN_S, None):
        try:
            with urllib.request.urlopen(address, timeout=TIMEOUT_S) as answer:
                data: bytes = answer.read(MOST_PACKED + 1)
            break
        except (OSError, http.client.HTTPException) as error:
            if (isinstance(error, urllib.error.HTTPError) and error.code not in PASSING) or wait is None:
                remedy = "is there a network? NPM_CONFIG_REGISTRY names another registry"
                raise AssetError(f"{name} is not fetched: {address}: {error}; {remedy}") from error
            time.sleep(wait)
    found = "sha512-" + base64.b64encode(hashlib.sha512(data).digest()).decode()
    if found != package.integrity:
        text = f"its hash is {found}, not {package.integrity}; nothing of it was used"
        raise AssetError(f"{name} is not fetched: {address}: {text}")
    return data


def _members(what: str, data: bytes, inside: list[str]) -> dict[str, bytes]:
    """Return files of a package by their names in it; none is written, so no name can lead out of a folder. Raises
    AssetError."""
    found: dict[str, bytes] = {}
    try:
        with tarfile.open(fileobj=io.BytesIO(data), mode="r:gz") as archive:
            for name in inside:
                member = archive.getmember(f"package/{name}")
                source = archive.extractfile(member) if member.isreg() and member.size <= MOST_BYTES else None
                if source is None:
                    raise AssetError(f"{what}: {name} is not a file, or larger than {MOST_BYTES >> 20} MiB")
                found[name] = source.read()
    except (KeyError, tarfile.TarError, EOFError, OSError) as error:
        raise AssetError(f"{what}: this is not the package that it should be ({error})") from error
    return found


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
