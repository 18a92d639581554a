"""The `mrclab` command: one module per verb or family of verbs."""

from __future__ import annotations

import sys

import typer

from mrc_control.cli import control, inside, lifecycle, topo
from mrc_control.cli import run as running
from mrc_control.cli.common import report_errors

app = typer.Typer(
    name="mrclab",
    help="A laboratory for MRC: fabrics of P4 switches, endpoints, failures on demand.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.add_typer(topo.app, name="topo")
for module in (lifecycle, running, control, inside):
    module.register(app)


def main() -> None:
    """Entry point: 0, 1 for a failed run, 2 for usage; every error is one line."""
    with report_errors():
        app(standalone_mode=True)
    sys.exit(0)
