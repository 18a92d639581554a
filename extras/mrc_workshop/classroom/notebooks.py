"""Notebooks of exercises for nbgrader: cells for the learner's files, and a graded cell for each check.

They are made from the exercises, so that no solution exists twice. A notebook is one of nbformat 4.5; cells have the
metadata of nbgrader's schema 3 (`nbgrader/nbgraderformat/v3.py`), and solutions lie between its default delimiters.
"""

from __future__ import annotations

import ast
import itertools
import json
import pathlib
import pprint
import re
from collections.abc import Sequence
from typing import Any

import yaml

from mrc_topo.base.files import write_whole
from mrc_workshop import exercise as exercises
from mrc_workshop.exercise import Exercise, WorkshopError

SCHEMA = 3
BEGIN, END = "### BEGIN SOLUTION", "### END SOLUTION"
#: The exercises of which notebooks are made if none is named.
DEFAULT = ("2", "5", "7")
Cell = dict[str, Any]
_LINK = re.compile(r"\[([^\]]*)\]\(\.\./[^)]*\)")

_SETUP = """\
import json
import pathlib
import subprocess

import yaml

if not pathlib.Path("starter").exists():
    subprocess.run(["mrclab", "workshop", "start", "{number}", "starter"], check=True)


def write_yaml(name, changes):
    \"\"\"Write the starter's file with these keys changed.\"\"\"
    text = pathlib.Path("starter", name).read_text(encoding="utf-8")
    pathlib.Path(name).write_text(yaml.safe_dump(yaml.safe_load(text) | changes), encoding="utf-8")


def held(statement):
    \"\"\"Fail unless this check holds; say what is wrong.\"\"\"
    for line in report["checks"]:
        if line["what"] == statement:
            assert line["passed"], line["mistake"] or line["measured"] or report["reason"]
            return
    raise AssertionError(report["reason"])
"""
_CHECK = """\
done = subprocess.run(
    ["mrclab", "workshop", "check", "{number}", ".", "--json", "--no-keep"], capture_output=True, text=True
)
report = json.loads(done.stdout) if done.stdout else {{"checks": [], "reason": done.stderr}}
for line in report["checks"]:
    print({{True: "ok", False: "FAIL", None: "-"}}[line["passed"]], line["what"], line["measured"])
print(report["reason"])
"""


def write(exercise: Exercise, folder: pathlib.Path) -> pathlib.Path:
    """Write the notebook of an exercise as an assignment of nbgrader into `folder/source/NAME`; return its path.

    Raises:
        WorkshopError: the exercise has files that are neither Python nor YAML.
        WriteError: it cannot be written.
    """
    place = folder / "source" / exercise.name
    document = notebook(exercise)
    try:
        place.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise WorkshopError(f"{error.filename}: {error.strerror}") from error
    path = place / f"{exercise.name}.ipynb"
    write_whole(path, json.dumps(document, indent=1, ensure_ascii=False) + "\n")
    return path


def notebook(exercise: Exercise) -> dict[str, Any]:
    """Return the notebook of an exercise, with its solution.

    Raises:
        WorkshopError: the exercise has files that are neither Python nor YAML.
    """
    content = exercise.content
    if other := [each for each in content.edit if not each.endswith((".py", ".yaml"))]:
        raise WorkshopError(
            f"{exercise.name}: {', '.join(other)}: notebooks are for exercises in Python and YAML; hand this one in by "
            "`mrclab workshop hand-in`"
        )
    cells = [
        _markdown("title", f"# {content.title}\n\n{content.learn}.\n\nAbout {content.minutes} minutes.\n"),
        _markdown("text", _text(exercise)),
        _code("setup", _SETUP.format(number=exercise.number), locked=True),
    ]
    for name in content.edit:
        key = name.replace(".", "-")
        starter = (exercise.starter / name).read_text(encoding="utf-8")
        cells.append(_markdown(f"starter-{key}", f"**{name}** of the starter:\n\n```\n{starter.rstrip()}\n```\n"))
        solve = _python if name.endswith(".py") else _yaml
        cells.append(_code(f"solution-{key}", solve(exercise, name), solution=True))
    cells.append(_code("check", _CHECK.format(number=exercise.number), locked=True))
    for number, check in enumerate(content.checks, 1):
        cells.append(_code(f"check-{number}", f"held({json.dumps(check.statement)})\n", points=int(not check.given)))
    return {
        "cells": cells,
        "metadata": {
            "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
            "language_info": {"name": "python"},
        },
        "nbformat": 4,
        "nbformat_minor": 5,
    }


def write_all(names: list[str] | None, folder: pathlib.Path) -> list[pathlib.Path]:
    """Write the notebooks of these exercises. Raises as `write`."""
    return [write(exercises.find(each), folder) for each in names or DEFAULT]


def _text(exercise: Exercise) -> str:
    """Return theory and task from the README: the two sections that a notebook needs, without commands."""
    wanted = []
    text = (exercise.folder / exercises.README).read_text(encoding="utf-8")
    for section in text.split("\n## ")[1:]:
        if section.startswith(("Theory in ten lines\n", "Your task\n")):
            wanted.append(f"## {section.strip()}\n")
    # Relative links of the README lead nowhere from a notebook.
    return _LINK.sub(r"\1", "\n".join(wanted))


def _python(exercise: Exercise, name: str) -> str:
    """Return a cell that writes a Python file, in which nbgrader takes the lines away that differ from the starter."""
    old, new = (_without_docstring(folder / name) for folder in (exercise.starter, exercise.solution))
    begin = _common(old, new)
    end = len(new) - _common(old[begin:][::-1], new[begin:][::-1])
    indent = re.match(" *", next((each for each in new[begin:end] if each.strip()), ""))[0]  # type: ignore[index]
    # What belongs to a statement of the solution goes with it.
    while end < len(new) and new[end].startswith(f"{indent} "):
        end += 1
    lines = [*new[:begin], f"{indent}{BEGIN}", *new[begin:end], f"{indent}{END}", *new[end:]]
    return f"%%writefile {name}\n" + "\n".join(lines) + "\n"


def _common(one: Sequence[str], other: Sequence[str]) -> int:
    """Return how many lines both begin with."""
    return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


def _without_docstring(path: pathlib.Path) -> list[str]:
    """Return the lines of a module after its docstring, which tells what the solution does."""
    text = path.read_text(encoding="utf-8")
    body = ast.parse(text).body
    told = bool(body) and isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant)
    lines = text.splitlines()
    after = lines[body[0].end_lineno or 0 :] if told else lines
    while after and not after[0].strip():
        after = after[1:]
    return after


def _yaml(exercise: Exercise, name: str) -> str:
    """Return a cell that writes a YAML file: the starter's with the keys that the solution changes."""
    old, new = (
        yaml.safe_load((folder / name).read_text(encoding="utf-8")) for folder in (exercise.starter, exercise.solution)
    )
    changes = {key: value for key, value in new.items() if old.get(key) != value}
    shown = pprint.pformat(changes, sort_dicts=False, width=100)
    keys = ", ".join(changes)
    return f"# {name}: {keys}\n{BEGIN}\nchanges = {shown}\n{END}\nwrite_yaml({json.dumps(name)}, changes)\n"


def _markdown(key: str, text: str) -> Cell:
    return _cell("markdown", key, text, _metadata(key, locked=True))


def _code(key: str, text: str, *, locked: bool = False, solution: bool = False, points: int | None = None) -> Cell:
    metadata = _metadata(key, locked=locked or points is not None, solution=solution, points=points)
    return _cell("code", key, text, metadata) | {"execution_count": None, "outputs": []}


def _metadata(key: str, *, locked: bool = False, solution: bool = False, points: int | None = None) -> Cell:
    found: Cell = {
        "grade": points is not None,
        "grade_id": key,
        "locked": locked,
        "schema_version": SCHEMA,
        "solution": solution,
        "task": False,
    }
    return found if points is None else found | {"points": points}


def _cell(kind: str, key: str, text: str, metadata: Cell) -> Cell:
    source = text.rstrip("\n").splitlines(keepends=True)
    return {"cell_type": kind, "id": key, "metadata": {"nbgrader": metadata}, "source": source}
