"""docs/architecture.md and the code map name files and functions that exist."""

from __future__ import annotations

import ast
import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).parents[1]
PAGES = ("architecture.md", "reference/code-map.md")
TEXT = "\n".join((ROOT / "docs" / page).read_text(encoding="utf-8") for page in PAGES)
FILE = re.compile(r"[\w.<>-]+(?:/[\w.*-]+)+/?|[\w-]+\.(?:py|md|toml|yaml|p4|c|h|lua)")
"""A file or folder, from the repository's root or (in prose) without the way to its package."""

ELSEWHERE = {"experiments/NAME/", "path/of/file", "mrc_topo/data", "utils.py", "__init__.py"}
"""Placeholders, what is in the wheel only, and files that must not be."""
COMMANDS = ("mrclab ", "p4lite ", "python ", "make ")


def section(title: str) -> str:
    """Return the text under a heading, with the smaller headings in it."""
    found = re.search(rf"^(#+) {re.escape(title)}\n(.*?)(?=^#{{1,2}} |\Z)", TEXT, re.M | re.S)
    assert found, title
    return found[2]


def is_there(name: str) -> bool:
    if name in ELSEWHERE or (ROOT / name).exists():
        return True
    return any((ROOT / root / name).exists() for root in ("p4", "topologies", "controller", "hosts", "extras", "docs"))


PROSE = {name for name in re.findall(r"`([^`\n]+)`", TEXT) if FILE.fullmatch(name)}
LAYOUT = {
    name for line in re.findall(r"^    (\S.*)", section("Layout"), re.M) for name in FILE.findall(line.split("   ")[0])
}
NAMED = sorted(PROSE | LAYOUT)


@pytest.mark.parametrize("name", NAMED)
def test_named_file_is_there(name: str) -> None:
    assert is_there(name) or list(ROOT.glob(name)), name


def defined(path: pathlib.Path) -> set[str]:
    """Return what can be named of a file: functions, classes, methods and variables of Python; any name of others.

    Of a folder, what can be named of the files in it.
    """
    if path.is_dir():
        return set().union(*(defined(each) for each in path.iterdir() if each.is_file()))
    text = path.read_text(encoding="utf-8")
    if path.suffix != ".py":
        return set(re.findall(r"[A-Za-z_]\w*", text))
    names: set[str] = set()

    def add(body: list[ast.stmt], prefix: str) -> None:
        for node in body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                names.add(prefix + node.name)
                names.add(node.name)
                if isinstance(node, ast.ClassDef):
                    add(node.body, f"{node.name}.")
            for target in node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]:
                names.update(each.id for each in ast.walk(target) if isinstance(each, ast.Name)) if target else None

    add(ast.parse(text).body, "")
    return names


def steps() -> list[str]:
    """Return the lines of the two sections that name functions: a step each, or a row of the table."""
    text = section("Walks") + section("Where do I change what?")
    joined = re.sub(r"\n +", " ", text)
    return [line for line in joined.splitlines() if re.match(r"\d+\. |\* |\| ", line)]


def missing(step: str) -> list[str]:
    """Return what a step names that is not there: every `name` is a file, a command, or in the file named last before
    it.
    """
    path: pathlib.Path | None = None
    found = []
    for name in re.findall(r"`([^`]+)`", step):
        if name.startswith(COMMANDS):
            continue
        if "/" in name:
            path = ROOT / name
            found += [] if path.exists() else [name]
        elif path is None or not path.exists() or name.removesuffix("()") not in defined(path):
            found.append(name)
    return found


@pytest.mark.parametrize("step", steps())
def test_functions_of_a_step_are_in_its_files(step: str) -> None:
    assert missing(step) == []


def test_every_change_names_a_file() -> None:
    rows = [row.split("|")[2] for row in steps() if row.startswith("| ")][1:]
    for where in rows:
        assert re.search(r"`[^`]+/[^`]+`", where), where


def test_what_is_not_there_is_found() -> None:
    daemon = "controller/mrclab/lab/daemon.py"
    assert missing(f"1. `{daemon}` `Daemon.start`, `mrclab up`") == []
    assert missing(f"1. `{daemon}` `Daemon.begin`") == ["Daemon.begin"]
    assert missing("1. `controller/mrclab/lab/demon.py` `Daemon`") == ["controller/mrclab/lab/demon.py", "Daemon"]
    assert missing("1. `Daemon.start`") == ["Daemon.start"]
    assert missing("1. `controller/mrclab/lab/records/` `RunDir.read`, `RunDir.reed`") == ["RunDir.reed"]
    assert not is_there("controller/mrclab/lab/demon.py")
