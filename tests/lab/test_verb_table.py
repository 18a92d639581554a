"""The command's table of verbs, which `mrclab --help` shows without importing any of them."""

from __future__ import annotations

import subprocess
import sys

import pytest
import typer

from mrc_cli.app import HIDDEN, VERBS, app


@pytest.mark.parametrize("verb", VERBS)
def test_the_table_says_what_the_verb_says(verb: str) -> None:
    command = typer.main.get_command(app).commands[verb]  # type: ignore[attr-defined]
    assert " ".join(command.help.split("\n\n")[0].split()) == VERBS[verb]
    assert not command.hidden


def test_hidden_verbs_can_be_called_and_are_not_listed() -> None:
    group = typer.main.get_command(app)
    assert [group.commands[verb].hidden for verb in HIDDEN] == [True]  # type: ignore[attr-defined]
    assert not HIDDEN & set(group.list_commands(typer.Context(group)))  # type: ignore[attr-defined]


def test_help_imports_no_verb() -> None:
    code = (
        "import sys; from mrc_cli.app import app\n"
        "try: app(['--help'], standalone_mode=False)\n"
        "finally: print([name for name in ('mrc_lab', 'mrc_cli.up', 'numpy', 'grpc') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "Start a lab on the real clock" in done.stdout
    assert done.stdout.splitlines()[-1] == "[]"
