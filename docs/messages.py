"""Print every message that the commands and the checks can show, with its place: `python docs/messages.py [PATH ...]`.

A message is a text that a call shows or raises: the first text among the arguments of an exception, of `typer.echo`,
`end`, `print`, `problem`, a `Check` or a `Finding`, and the `help` of an option. In a text with values `{}` stands for
each of them. What is computed elsewhere and only passed on is found where it is written.
"""

from __future__ import annotations

import ast
import pathlib
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from mrclab.cli.errors import report_errors

ROOT = pathlib.Path(__file__).resolve().parent.parent
PACKAGES = ("controller", "extras", "hosts", "p4", "topologies")
#: Functions and methods whose first text argument is shown to a user.
SHOWING = frozenset(
    {
        "echo",
        "end",
        "print",
        "problem",
        "log",
        "warn",
        "warning",
        "error",
        "info",
        "progress",
        "write_line",
        "add_row",
        "Check",
        "CheckLine",
        "Finding",
        "Row",
        "Problem",
        "fail",
        "refuse",
    }
)


@dataclass(frozen=True, order=True)
class Message:
    """A text that a user can see: `kind` is the call that shows it, `path` is relative to the repository."""

    path: str
    line: int
    kind: str
    text: str


def text_of(node: ast.expr) -> str | None:
    """Return the text of a literal, an f-string or a sum of them, with `{}` for each value; None if it is none."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else None
    if isinstance(node, ast.JoinedStr):
        return "".join(text_of(part) or "{}" for part in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        left, right = text_of(node.left), text_of(node.right)
        return None if left is None and right is None else f"{left or '{}'}{right or '{}'}"
    if isinstance(node, ast.IfExp):
        left, right = text_of(node.body), text_of(node.orelse)
        return None if left is None and right is None else f"{left or '{}'} | {right or '{}'}"
    if isinstance(node, ast.List) and len(node.elts) == 1:
        return text_of(node.elts[0])
    return None


def _name(call: ast.Call) -> str:
    function = call.func
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def messages_of(path: pathlib.Path) -> Iterator[Message]:
    """Yield the messages of a file."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    raised = {id(node.exc) for node in ast.walk(tree) if isinstance(node, ast.Raise) and node.exc is not None}
    place = str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else str(path)
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        name = _name(node)
        if id(node) in raised or name in SHOWING or name.endswith("Error"):
            found = next((text for each in node.args if (text := text_of(each)) and " " in text), None)
            if found is not None:
                yield Message(place, node.lineno, name, found)
        for keyword in node.keywords:
            if keyword.arg in ("help", "mistake", "remedy") and (text := text_of(keyword.value)):
                yield Message(place, node.lineno, keyword.arg, text)


def messages(places: Iterable[pathlib.Path] = ()) -> list[Message]:
    """Return the messages of files and folders, by default of all packages, by file and line."""
    chosen = list(places) or [ROOT / package for package in PACKAGES]
    files = {path for place in chosen for path in (place.rglob("*.py") if place.is_dir() else [place])}
    return sorted(message for path in files for message in messages_of(path))


def main(words: list[str]) -> int:
    """Print the messages of the given files and folders, or of all packages; return 2 if a place does not exist.

    A place is looked for in the current folder, and then in the repository.
    """
    places = [path.resolve() if (path := pathlib.Path(word)).exists() else ROOT / word for word in words]
    missing = [word for word, place in zip(words, places, strict=True) if not place.exists()]
    if missing:
        print(f"{missing[0]}: no such file or folder; name some below {ROOT}", file=sys.stderr)
        return 2
    for message in messages(places):
        print(f"{message.path}:{message.line}: {message.kind}: {' '.join(message.text.split())}")
    return 0


if __name__ == "__main__":
    with report_errors():
        code = main(sys.argv[1:])
        sys.stdout.flush()
    sys.exit(code)
