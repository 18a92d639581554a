"""Verbs of `topo`: check, show, draw and plan fabrics; a module for each verb, as in `mrclab.cli`."""

from __future__ import annotations

import typer

from mrclab.cli.topo import draw, plan, show, validate

app = typer.Typer(help="Check, show, draw and plan fabrics.", no_args_is_help=True, add_completion=False)
for module in (validate, show, draw, plan):
    app.command(module.__name__.rpartition(".")[2])(module.verb)
