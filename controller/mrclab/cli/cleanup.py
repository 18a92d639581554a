"""`mrclab cleanup`: what killed labs and commands left."""

from __future__ import annotations

import typer

from mrc_topo.base.document import printable
from mrclab.lab import lifecycle
from p4lite import scratch


def verb() -> None:
    """Remove what killed labs and commands left behind: processes, namespaces, files."""
    heard: list[str] = []

    def hear(text: str) -> None:
        heard.append(text)
        typer.echo(text)

    removed = lifecycle.cleanup(hear)
    for name, ended in removed.items():
        typer.echo(f"lab {name}: removed{': ' if ended else ''}{', '.join(ended)}")
    left = scratch.remove_abandoned()
    for text in left:
        typer.echo(f"temporary files: {printable(text)}: removed")
    if not removed and not left and not any("is ending" in each for each in heard):
        typer.echo("nothing to clean up")
