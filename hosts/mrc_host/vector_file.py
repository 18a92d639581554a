"""The loop of the commands that hold a codec against a JSON file of vectors: read, compare each, print, count."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

from mrc_topo.base.errors import UsageError


class VectorError(UsageError):
    """The file or an item in it is not in the format; the text names the place."""


def run(arguments: list[str], module: str, item: str, differences: Callable[[object], Iterable[str]]) -> int:
    """Run the command `python -m MODULE FILE.json`.

    The file is an object with a list of `item`s under its plural; `differences` gives one line for each way in which an
    item comes out otherwise, and raises VectorError. Exit status: 0 all equal, 1 any difference, 2 the file cannot be
    used.
    """
    if len(arguments) != 1 or arguments[0].startswith("-"):
        print(f"usage: python -m {module} FILE.json", file=sys.stderr)
        return 2
    path, many = Path(arguments[0]), f"{item}s"
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except OSError as problem:
        print(f"{path}: {problem.strerror}", file=sys.stderr)
        return 2
    except (ValueError, RecursionError) as problem:
        print(f"{path}: not JSON: {problem}", file=sys.stderr)
        return 2
    items = document.get(many) if isinstance(document, dict) else None
    if not isinstance(items, list) or not items:
        print(f"{path}: needs an object with a non-empty list '{many}'", file=sys.stderr)
        return 2
    bad = 0
    for number, each in enumerate(items):
        name = each.get("name", "?") if isinstance(each, dict) else "?"
        try:
            lines = list(differences(each))
        except VectorError as problem:
            print(f"{path}: {item} {number} ({name}): {problem}", file=sys.stderr)
            return 2
        bad += bool(lines)
        for line in lines:
            print(f"{item} {number} ({name}): {line}")
    print(f"{len(items)} {many}, {len(items) - bad} equal, {bad} different")
    return 1 if bad else 0
