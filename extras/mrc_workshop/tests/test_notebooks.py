"""Notebooks for nbgrader: their schema, and what is left of a solution when nbgrader takes it away."""

from __future__ import annotations

import importlib.util
import json
import os
import pathlib
import re
import subprocess
import sys
from typing import Any

import pytest

from mrc_workshop import exercise
from mrc_workshop.classroom import notebooks
from mrc_workshop.exercise import WorkshopError

STUB = "# YOUR CODE HERE\nraise NotImplementedError()"


def made(number: str) -> dict[str, Any]:
    return notebooks.notebook(exercise.find(number))


def released(text: str) -> str:
    """Return a cell as nbgrader's ClearSolutions leaves it, with its default delimiters and stub."""

    def stub(found: re.Match[str]) -> str:
        return "".join(f"{found[1]}{line}\n" for line in STUB.splitlines())

    pattern = rf"^( *){notebooks.BEGIN}\n.*?^ *{notebooks.END}\n"
    return re.sub(pattern, stub, text + "\n", flags=re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("number", notebooks.DEFAULT)
def test_metadata_follow_the_schema_of_nbgrader(number: str) -> None:
    """The rules of `MetadataValidatorV3`, which the test below asks itself where it is installed."""
    found = made(number)
    assert (found["nbformat"], found["nbformat_minor"]) == (4, 5)
    ids = [each["metadata"]["nbgrader"]["grade_id"] for each in found["cells"]]
    assert len(set(ids)) == len(ids)
    assert all(re.fullmatch(r"[A-Za-z0-9_-]{1,64}", each["id"]) for each in found["cells"])
    for each in found["cells"]:
        about = each["metadata"]["nbgrader"]
        assert set(about) - {"points"} == {"grade", "grade_id", "locked", "schema_version", "solution", "task"}
        assert about["schema_version"] == 3
        assert ("points" in about) == about["grade"]
        assert not (about["grade"] and about["solution"])
        assert about["locked"] != about["solution"]
        assert each["cell_type"] == "code" or not (about["grade"] or about["solution"])
    content = exercise.find(number).content
    assert sum(each["metadata"]["nbgrader"]["grade"] for each in found["cells"]) == len(content.checks)
    points = sum(each["metadata"]["nbgrader"].get("points", 0) for each in found["cells"])
    assert points == sum(not check.given for check in content.checks)
    assert sum(each["metadata"]["nbgrader"]["solution"] for each in found["cells"]) == len(content.edit)


@pytest.mark.parametrize("number", notebooks.DEFAULT)
def test_released_notebook_has_no_solution_and_is_python(number: str) -> None:
    found = exercise.find(number)
    for each in made(number)["cells"]:
        text = "".join(each["source"])
        if not each["metadata"]["nbgrader"]["solution"]:
            assert notebooks.BEGIN not in text
            continue
        left = released(text)
        assert left.count("raise NotImplementedError()") == 1
        compile(left.removeprefix("%%writefile").partition("\n")[2], each["id"], "exec")
        name = next(file for file in found.content.edit if each["id"].endswith(file.replace(".", "-")))
        if name.endswith(".py"):
            # With the markers taken away it is the solution, but for the docstring, which tells what it does.
            kept = re.sub(rf"^ *({notebooks.BEGIN}|{notebooks.END})\n", "", text + "\n", flags=re.MULTILINE)
            solution = (found.solution / name).read_text()
            assert solution.endswith(kept.partition("\n")[2])
            own = set(solution.splitlines()) - set((found.starter / name).read_text().splitlines())
            assert not [line for line in own if line.strip() and line in left.splitlines()]


def test_program_in_p4_has_no_notebook() -> None:
    with pytest.raises(WorkshopError, match=r"01-usid: usid\.p4: notebooks are for exercises in Python and YAML"):
        made("1")


def test_nbformat_and_nbgrader_accept_the_notebooks(tmp_path: pathlib.Path) -> None:
    if importlib.util.find_spec("nbformat") is None:
        pytest.skip("nbformat is not installed: the extra `notebook`")
    import nbformat

    paths = notebooks.write_all(None, tmp_path)
    for path in paths:
        nbformat.validate(nbformat.read(path, as_version=4))
    if importlib.util.find_spec("nbgrader") is None:
        pytest.skip("nbformat accepts them; nbgrader is not installed: `pip install nbgrader`")
    from nbgrader.nbgraderformat import MetadataValidator  # type: ignore[import-not-found, unused-ignore]

    for path in paths:
        MetadataValidator().validate_nb(nbformat.read(path, as_version=4))


@pytest.mark.long
def test_nbgrader_grades_right_and_empty_answers(tmp_path: pathlib.Path) -> None:
    """From the source to grades, by nbgrader itself; the answer is in the solution cells, as a student puts it."""
    if importlib.util.find_spec("nbgrader") is None:
        pytest.skip("nbgrader is not installed: `pip install nbgrader`")
    notebooks.write_all(["5"], tmp_path)
    name = "05-reordering"
    place = pathlib.Path(name) / f"{name}.ipynb"

    # It calls a program of its environment by its name, and so do the notebooks.
    environment = os.environ | {"PATH": f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}"}

    def nbgrader(*words: str) -> None:
        done = subprocess.run(
            [sys.executable, "-m", "nbgrader", *words],
            cwd=tmp_path, env=environment, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr[-3000:]

    nbgrader("generate_assignment", name)
    source, release = (json.loads((tmp_path / each / place).read_text()) for each in ("source", "release"))
    for student in ("ann", "bob"):
        answer = json.loads(json.dumps(release))
        if student == "ann":
            solved = {each["id"]: each["source"] for each in source["cells"]}
            for each in answer["cells"]:
                if each["metadata"]["nbgrader"]["solution"]:
                    each["source"] = solved[each["id"]]
        (tmp_path / "submitted" / student / name).mkdir(parents=True)
        (tmp_path / "submitted" / student / place).write_text(json.dumps(answer))
    nbgrader("autograde", name)
    nbgrader("export", "--to", str(tmp_path / "grades.csv"))
    rows = [line.split(",") for line in (tmp_path / "grades.csv").read_text().splitlines()]
    column = rows[0].index("raw_score")
    scores = {row[rows[0].index("student_id")]: float(row[column]) for row in rows[1:]}
    assert scores == {"ann": 3.0, "bob": 0.0}
