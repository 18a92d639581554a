"""`make quick` names files that exist."""

from __future__ import annotations

import pathlib

ROOT = pathlib.Path(__file__).parents[2]


def test_list_of_make_quick_names_existing_files_once() -> None:
    """pytest ends with an error about a path that it does not find, and a file that was renamed would not be run."""
    names = (ROOT / "tests/quick.txt").read_text().splitlines()
    assert names == sorted(set(names))
    assert [name for name in names if not (ROOT / name).is_file()] == []
