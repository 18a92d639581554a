"""The answer to a shell's Tab key.

The options of all verbs and the names of what comes with mrclab are kept in a file of the private cache, which the
first use of each version writes. So a keystroke imports neither the verbs nor what they need.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import pathlib
import sys

from mrc_cli.candidates import Table, candidates
from mrc_common.errors import MrclabError
from mrc_common.files import write_whole
from mrc_common.plain import DecodeError, decode, encode
from p4lite.errors import P4liteError
from p4lite.folders import cache_path, make_private


def main() -> None:
    """Print the candidates for the last of the given words, one per line; nothing if anything fails.

    An error must not appear in the middle of what a user types.
    """
    words = sys.argv[2:] or [""]
    with contextlib.suppress(Exception):
        print("\n".join(candidates(table(), words[:-1], words[-1])))


def table() -> Table:
    """Return the table of this version: from the cache, or made and kept there.

    Raises:
        MrclabError, OSError: it cannot be made.
    """
    path = _place()
    if path is not None:
        with contextlib.suppress(OSError, ValueError, DecodeError):
            return decode(Table, json.loads(path.read_text(encoding="utf-8")))
    from mrc_cli.completion import make_table

    made = make_table()
    if path is not None:
        with contextlib.suppress(OSError, MrclabError):
            for old in path.parent.glob("completion-*.json"):
                old.unlink()
            write_whole(path, json.dumps(encode(made)), mode=0o600)
    return made


def _place() -> pathlib.Path | None:
    """Return the file of the table in the private cache, by what it is made from; None: there is no such cache."""
    here = pathlib.Path(__file__).resolve().parent
    digest = hashlib.blake2b(digest_size=12)
    for folder in (here, here / "topo", *_shipped(here)):
        with contextlib.suppress(OSError):
            for each in sorted(os.scandir(folder), key=lambda entry: entry.name):
                if not each.name.startswith("__"):
                    digest.update(f"{each.path} {each.stat().st_mtime_ns}\n".encode())
    try:
        return make_private(cache_path()) / f"completion-{digest.hexdigest()}.json"
    except (OSError, RuntimeError, P4liteError):
        return None


def _shipped(here: pathlib.Path) -> list[pathlib.Path]:
    """Return the folders of labs, clusters, experiments and exercises, in a checkout and in an installed wheel."""
    checkout, wheel = here.parents[1], here.parent / "mrc_topo" / "data"
    parts = ("topologies/labs", "topologies/clusters", "experiments", "experiments/sweeps", "workshop")
    return [checkout / part for part in parts] + [wheel / part.rpartition("/")[2] for part in parts]
