"""The `mrclab` command. Each verb is a module of its name, whose function `verb` it is; `VERBS` lists them."""

from __future__ import annotations

import importlib.metadata
import sys
from typing import Annotated, cast

import typer

from mrc_cli import (
    allow,
    capture,
    chaos,
    cleanup,
    compare,
    demo,
    deny,
    down,
    experiments,
    fail,
    figures,
    p4sh,
    part,
    perf,
    restore,
    run,
    scale,
    sh,
    status,
    sweep,
    topo,
    train,
    up,
    web,
    workshop,
)
from mrc_cli import exec as execute
from mrc_cli import list as labs
from mrc_cli.common import end, report_errors
from mrc_host import running

#: In the order in which `--help` has them.
VERBS = (
    *(up, down, status, cleanup, labs),
    *(run, demo, experiments, compare, perf, train, figures, scale, web),
    *(fail, restore, deny, allow),
    *(chaos, execute, sh, p4sh, capture),
)

app = typer.Typer(
    name="mrclab",
    help="A laboratory for MRC: fabrics of P4 switches, endpoints, failures on demand.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.add_typer(topo.app, name="topo")
app.add_typer(workshop.app, name="workshop")
app.add_typer(sweep.app, name="sweep")
for module in VERBS:
    app.command(module.__name__.rpartition(".")[2], context_settings=getattr(module, "CONTEXT", None))(module.verb)
# Nobody types it.
app.command("part", hidden=True)(part.verb)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"mrclab {importlib.metadata.version('mrclab')}, {running.description()}")
        raise typer.Exit


@app.callback()
def _command(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Version, and how the protocol core runs."),
    ] = False,
) -> None:
    pass


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
            end(f"{text}; see {where} --help", 2)
    sys.exit(code if isinstance(code, int) else 0)
