"""Check the language of the product's files, as `make lint` does.

    python docs/words.py [FOLDER ...]    exit code 1, and a line for each place, when a word of `WORDS` is there, or a
                                         class or function has a name that `docs/glossary.md` lists as an old one

The words hide who does what, or how many. Each has a remedy, which the message names.
"""

from __future__ import annotations

import ast
import pathlib
import re
import sys
from collections.abc import Iterator

ROOT = pathlib.Path(__file__).parents[1]
FOLDERS = (
    "p4",
    "topologies",
    "controller",
    "hosts",
    "extras",
    "workshop",
    "experiments",
    "examples",
    "benchmarks",
    "vagrant",
)
SUFFIXES = frozenset((".py", ".c", ".h", ".p4", ".js", ".html", ".yaml", ".ipynb", ".sh", ".lua"))
WORDS = {
    "nobody": "name the process, host or user (`no other user`, `no rank`)",
    "somebody": "name the process, host or user (`another user`, `a page`)",
    "whoever": "name the process, host or user",
    "so many": "name the number, or write `this many`",
    "is told": "say who sends what (`the peer is notified`, `receives`)",
    "anew": "write `again`, or what happens (`redraw`, `rebuild`, `restart`)",
}
ALLOWED = {"controller/mrclab/lab/processes/namespaces.py": {"nobody": "the system user of that name"}}
"""The words that a file may use, each with the reason."""

_PATTERN = re.compile(r"\b(" + "|".join(WORDS).replace(" ", r"\s+") + r")\b", re.IGNORECASE)


def findings(folders: list[pathlib.Path]) -> Iterator[str]:
    """Yield a line `FILE:LINE: what is wrong` for each word in the files of these folders."""
    for folder in folders:
        for path in sorted(each for each in folder.rglob("*") if each.suffix in SUFFIXES):
            name = path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else str(path)
            if "__compiled__" in path.parts or "node_modules" in path.parts:
                continue
            for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
                for found in _PATTERN.findall(line):
                    word = " ".join(found.lower().split())
                    if word not in ALLOWED.get(name, {}):
                        yield f"{name}:{number}: '{word}' is vague: {WORDS[word]}"


def renamed(glossary: str) -> dict[tuple[str, str], str]:
    """Return the new names in the glossary's table of renamed classes and functions, by package and old name."""
    table = glossary.partition("\n## Renamed\n")[2].partition("\nKeys of files")[0]
    rows = re.finditer(r"^\| (\w+) \| `(\w+)` \| `(\w+)` \|$", table, re.M)
    return {(row[1], row[2]): row[3] for row in rows}


def old_names(folders: list[pathlib.Path], names: dict[tuple[str, str], str]) -> Iterator[str]:
    """Yield a line `FILE:LINE: what is wrong` for each class or function that has an old name of its package."""
    for folder in folders:
        for path in sorted(folder.rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                    new = next((names[part, node.name] for part in path.parts if (part, node.name) in names), None)
                    if new is not None:
                        name = path.relative_to(ROOT) if path.is_relative_to(ROOT) else path
                        yield f"{name}:{node.lineno}: '{node.name}' was renamed to '{new}' (docs/glossary.md)"


def main(arguments: list[str]) -> int:
    """Print the findings; return 1 if there are any."""
    folders = [pathlib.Path(each) for each in arguments] or [ROOT / each for each in FOLDERS]
    names = renamed((ROOT / "docs" / "glossary.md").read_text(encoding="utf-8"))
    lines = [*findings(folders), *old_names(folders, names)]
    for line in lines:
        print(line)
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
