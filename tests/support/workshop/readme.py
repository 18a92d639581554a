"""Walks through the README of an exercise as a new user would: every command is run, and prints what is printed there.

    PYTHONPATH=tests python -m support.workshop.readme workshop/01-usid

Commands are the lines that begin with `$ ` in blocks of language `console`; what follows is their output. The comment
`<!-- edit: solution -->` stands where the learner edits. Called like this, it puts what is printed now into the README.
"""

from __future__ import annotations

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass

EDIT = re.compile(r"<!-- edit: (\S+) -->")
BIN = pathlib.Path(sys.executable).parent


@dataclass
class Command:
    """A command of a README with its output there, and where that stands (lines of the file)."""

    text: str
    expected: str
    begin: int
    end: int
    edit: str = ""


def commands(readme: str) -> list[Command]:
    """Return the commands of a README, in order; an edit goes before the next command."""
    found: list[Command] = []
    inside = False
    edit = ""
    for number, line in enumerate(readme.splitlines()):
        if line.startswith("```"):
            inside = line == "```console"
        elif not inside:
            match = EDIT.search(line)
            edit = match.group(1) if match else edit
        elif line.startswith("$ "):
            found.append(Command(line[2:], "", number + 1, number + 1, edit))
            edit = ""
        else:
            found[-1].expected += line + "\n"
            found[-1].end = number + 1
    return found


def run(command: str, place: pathlib.Path, environment: Mapping[str, str]) -> str:
    """Return what a command prints; of standard error only what tells a mistake, because checks say there which run has
    begun, which on a terminal does not stay."""
    done = subprocess.run(
        ["bash", "-c", command], cwd=place, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    return done.stdout if done.returncode in (0, 1) else done.stdout + done.stderr


def walk(folder: pathlib.Path, place: pathlib.Path, more: Mapping[str, str] | None = None) -> list[tuple[Command, str]]:
    """Every command of an exercise's README with what it printed, run in an empty folder."""
    state = place / ".state"
    environment = {
        **os.environ,
        "PATH": f"{BIN}:{os.environ['PATH']}",
        "MRCLAB_WORKSHOP": str(state / "workshop.json"),
        "COLUMNS": "120",
        "TERM": "dumb",
        **(more or {}),
    }
    found = []
    for command in commands((folder / "README.md").read_text()):
        if command.edit:
            for path in (folder / command.edit).iterdir():
                shutil.copyfile(path, place / folder.name / path.name)
        found.append((command, run(command.text, place, environment)))
    return found


def rewrite(folder: pathlib.Path) -> None:
    """Put what the commands print now into the README."""
    path = folder / "README.md"
    with tempfile.TemporaryDirectory() as place:
        pathlib.Path(place).chmod(0o755)  # root's checks run as a user without an account
        results = walk(folder, pathlib.Path(place))
    lines = path.read_text().splitlines()
    for command, got in reversed(results):
        lines[command.begin : command.end] = [line.rstrip() for line in got.rstrip().splitlines()]
    path.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    rewrite(pathlib.Path(sys.argv[1]))
