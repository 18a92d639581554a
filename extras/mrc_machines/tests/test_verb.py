"""The verb that `mrclab up` runs on other machines."""

from __future__ import annotations

import typer

from mrclab.cli.app import app


def test_it_can_be_called_and_is_not_listed() -> None:
    group = typer.main.get_command(app)
    assert group.commands["part"].hidden  # type: ignore[attr-defined]
    assert "part" not in group.list_commands(typer.Context(group))  # type: ignore[attr-defined]
