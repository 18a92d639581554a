"""The `mrclab` command: one module per verb or family of verbs."""

from __future__ import annotations

import sys
from typing import cast

import typer

from mrc_control.cli import chaos, control, inside, lifecycle, topo
from mrc_control.cli import run as running
from mrc_control.cli.common import fail, report_errors

app = typer.Typer(
    name="mrclab",
    help="A laboratory for MRC: fabrics of P4 switches, endpoints, failures on demand.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.add_typer(topo.app, name="topo")
for module in (lifecycle, running, control, chaos, inside):
    module.register(app)


#: What typer raises for a command that cannot be understood; it has no public name of its own.
_UsageError = cast(type[typer.BadParameter], typer.BadParameter.__bases__[0])


def main() -> None:
    """Entry point: 0, 1 for a failed run, 2 for usage; every error is one line."""
    with report_errors():
        try:
            code = app(prog_name="mrclab", standalone_mode=False)
        except _UsageError as error:
            if len(sys.argv) == 1 or type(error).__name__ == "NoArgsIsHelpError":
                error.show()
                sys.exit(2)
            where = getattr(getattr(error, "ctx", None), "command_path", "mrclab")
            text = " ".join(error.format_message().split()).rstrip(".")
            fail(f"{text}; see {where} --help", 2)
    sys.exit(code if isinstance(code, int) else 0)
