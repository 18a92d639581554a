"""The README of every exercise, walked through as a new user would: what each command prints is what it says there.

The learner's edit is the solution, so this also shows that the starter fails and the solution passes, with all seeds.
"""

from __future__ import annotations

import pathlib

import pytest

from mrc_workshop import exercise
from support import docs
from support.workshop import readme

pytestmark = pytest.mark.slow

SECTIONS = (
    "Theory in ten lines",
    "Run the starter and see it fail",
    "Your task",
    "Run again",
    "What you should see",
    "Questions to think about",
    "If it does not work",
)


@pytest.mark.parametrize("folder", exercise.known().values(), ids=lambda folder: folder.name)
def test_readme_tells_what_happens(folder: pathlib.Path, tmp_path: pathlib.Path) -> None:
    walked = readme.walk(folder, tmp_path)
    for command, got in walked:
        wrong = docs.difference(tuple(command.expected.splitlines()), got)
        assert wrong is None, f"{folder.name}/README.md:{command.begin}: {command.text}: {wrong}\n{got}"
    checks = [got for command, got in walked if command.text.startswith("mrclab workshop check")]
    assert "FAIL" in checks[0]
    assert "Passed." in checks[-1]


@pytest.mark.parametrize("folder", exercise.known().values(), ids=lambda folder: folder.name)
def test_readme_has_its_parts(folder: pathlib.Path) -> None:
    text = (folder / "README.md").read_text()
    headings = [line.removeprefix("## ") for line in text.splitlines() if line.startswith("## ")]
    assert [each for each in SECTIONS if each not in headings] == []
    assert headings[-1].startswith("How real ")
    assert "docs/reference/mrc-protocol.md#" in text
    assert "What you learn" in text
