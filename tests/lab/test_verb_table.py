"""The command's table of verbs, which `mrclab --help` shows without importing any of them."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys

import pytest
import typer

from mrclab.cli.app import app
from mrclab.cli.verbs import VERBS, Group
from support import cli


@pytest.mark.parametrize("verb", VERBS)
def test_the_table_says_what_the_verb_says(verb: str) -> None:
    command = typer.main.get_command(app).commands[verb]  # type: ignore[attr-defined]
    assert " ".join(command.help.split("\n\n")[0].split()) == VERBS[verb].summary
    assert not command.hidden


@pytest.mark.parametrize(("verb", "example"), [(verb, each) for verb in VERBS for each in VERBS[verb].examples])
def test_each_example_is_a_command_of_its_verb(verb: str, example: str) -> None:
    words = shlex.split(re.sub(r'^eval "\$\((.*)\)"$|^(.*?) >.*$', r"\1\2", example))
    assert words[:2] == ["mrclab", verb]
    assert cli.problem(words) is None


def test_help_has_all_groups_and_examples(capsys: pytest.CaptureFixture[str]) -> None:
    app(["--help"], standalone_mode=False)
    shown = capsys.readouterr().out
    assert [group for group in Group if f"─ {group.value} ─" not in shown] == []
    app(["logs", "--help"], standalone_mode=False)
    shown = capsys.readouterr().out
    assert VERBS["logs"].examples[-1] in shown
    assert "--verbose" in shown


def test_help_imports_no_verb() -> None:
    code = (
        "import sys; from mrclab.cli.app import app\n"
        "try: app(['--help'], standalone_mode=False)\n"
        "finally: print([name for name in ('mrclab.lab', 'mrclab.cli.up', 'numpy', 'grpc') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "Start a lab on the real clock" in done.stdout
    assert done.stdout.splitlines()[-1] == "[]"
