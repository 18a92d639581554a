"""`mrclab cleanup`: what killed labs left."""

from __future__ import annotations

import typer

from mrc_lab import lifecycle


def verb() -> None:
    """Remove what killed labs left behind: processes, namespaces, files."""
    heard: list[str] = []

    def hear(text: str) -> None:
        heard.append(text)
        typer.echo(text)

    removed = lifecycle.cleanup(hear)
    for name, ended in removed.items():
        typer.echo(f"lab {name}: removed{': ' if ended else ''}{', '.join(ended)}")
    if not removed and not any("is ending" in each for each in heard):
        typer.echo("nothing to clean up")
