"""The `mrclab` command. Each verb is a function of a module of ours or of an extra; `mrclab.cli.verbs` has the table.

A verb's module is imported only when the verb is used: all of them together take more than a second of CPU time.
"""

from __future__ import annotations

import contextlib
import importlib
import signal
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Annotated, Any, cast

import typer
from typer.core import TyperCommand, TyperGroup

from mrc_topo.base import interruption
from mrc_topo.base.interruption import interruptible
from mrclab.cli import progress
from mrclab.cli.errors import end, report_errors
from mrclab.cli.progress import Verbosity
from mrclab.cli.verbs import HIDDEN, RENAMED, VERBS
from p4lite.cli import print_any_text
from p4lite.terminal import look_by


@cache
def _verb(name: str) -> Any:
    """Import a verb's module and make its command."""
    with interruption.idle():
        row = (VERBS | HIDDEN)[name]
        module = importlib.import_module(row.module or f"mrclab.cli.{name}")
    made = getattr(module, "app", None)
    if made is None:
        made = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
        context = getattr(module, "CONTEXT", None)
        made.command(name, context_settings=context, hidden=name in HIDDEN)(getattr(module, row.function))
    command = typer.main.get_command(made)
    command.name = name
    if name in VERBS:
        command.epilog = "\n\n".join(("Examples:", *VERBS[name].examples))
    _add_verbosity(command)
    return command


VERBOSE = "Print each step on a line of its own, with its time."
QUIET = "Print results and errors only."


def _verbose(given: bool) -> None:
    if given:
        progress.choose(Verbosity.VERBOSE)


def _quiet(given: bool) -> None:
    if given:
        progress.choose(Verbosity.QUIET)


@cache
def _verbosities() -> list[Any]:
    """Make the options that say how much a command prints of its own work."""
    made = typer.Typer(add_completion=False)

    @made.command()
    def verb(
        verbose: Annotated[
            bool, typer.Option("-v", "--verbose", callback=_verbose, expose_value=False, help=VERBOSE)
        ] = False,
        quiet: Annotated[bool, typer.Option("-q", "--quiet", callback=_quiet, expose_value=False, help=QUIET)] = False,
    ) -> None:
        pass

    return [each for each in typer.main.get_command(made).params if each.name in ("verbose", "quiet")]


def _add_verbosity(command: Any) -> None:
    """Give a command, and each below it, `-v` and `-q`, where it has no such options of its own."""
    for below in getattr(command, "commands", {}).values():
        _add_verbosity(below)
    taken = {name for each in command.params for name in each.opts}
    command.params += [each for each in _verbosities() if taken.isdisjoint(each.opts)]


class _Verbs(Mapping[str, Any]):
    """The commands by name; each is imported and made on its first use."""

    def __getitem__(self, name: str) -> Any:
        if name not in self:
            raise KeyError(name)
        return _verb(name)

    def __iter__(self) -> Iterator[str]:
        return iter((*VERBS, *HIDDEN))

    def __len__(self) -> int:
        return len(VERBS) + len(HIDDEN)

    def __contains__(self, name: object) -> bool:  # the inherited one would import the verb
        return name in VERBS or name in HIDDEN


class VerbGroup(TyperGroup):
    """The group of all verbs; its own help imports none of them."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands = cast(Any, _Verbs())
        self._listing = False

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the verbs in the order of `--help`."""
        return list(VERBS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a verb; while help is written, only its name and its sentence."""
        if self._listing:
            return TyperCommand(cmd_name, help=VERBS[cmd_name].summary, rich_help_panel=VERBS[cmd_name].group.value)
        return super().get_command(ctx, cmd_name)

    def shell_complete(self, ctx: Any, incomplete: str) -> list[Any]:
        """Return the candidates for a verb without importing the verbs."""
        self._listing = True
        try:
            return super().shell_complete(ctx, incomplete)
        finally:
            self._listing = False

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help of `mrclab` without importing its verbs."""
        self._listing = True
        try:
            super().format_help(ctx, formatter)
        finally:
            self._listing = False


app = typer.Typer(
    name="mrclab",
    cls=VerbGroup,
    help="Run MRC fabrics of P4 switches and endpoints, inject failures, and watch them recover.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


def _version(wanted: bool) -> None:
    if wanted:
        import importlib.metadata

        from mrc_host import running

        typer.echo(f"mrclab {importlib.metadata.version('mrclab')}, {running.description()}")
        raise typer.Exit


@app.callback(epilog="`mrclab VERB --help` has the options of a verb, and examples.")
def _command(
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            callback=_version,
            is_eager=True,
            help="Show the version and whether the protocol core is compiled.",
        ),
    ] = False,
    verbose: Annotated[bool, typer.Option("-v", "--verbose", help=VERBOSE)] = False,
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help=QUIET)] = False,
) -> None:
    if verbose or quiet:
        progress.choose(Verbosity.QUIET if quiet else Verbosity.VERBOSE)


#: Options of earlier versions: command and option, and what to write instead.
RENAMED_OPTIONS = {("train", "--patience"): "--collective-timeout", ("capture", "--seconds"): "--duration"}
#: What typer raises for a command that cannot be understood; it has no public name of its own.
_UsageError = cast(type[typer.BadParameter], typer.BadParameter.__bases__[0])


#: Verbs that run a user's command in the foreground, whose signals are not meant for them.
SIGNALS_OF_THEIR_OWN = {"exec", "sh", "p4sh"}


def main() -> None:
    """Run a command and exit with 0, 1 for a failed run, or 2 for wrong usage; every error is one line."""
    print_any_text()
    progress.choose(Verbosity.NORMAL)
    look_by(interruption.check)
    verb = next((word for word in sys.argv[1:] if not word.startswith("-")), "")
    own = verb in SIGNALS_OF_THEIR_OWN
    if own:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    with report_errors(), contextlib.nullcontext() if own else interruptible():
        try:
            code = app(prog_name="mrclab", standalone_mode=False)
        except _UsageError as error:
            if len(sys.argv) == 1 or type(error).__name__ == "NoArgsIsHelpError":
                error.show()
                sys.exit(2)
            where = getattr(getattr(error, "ctx", None), "command_path", "mrclab")
            if where == "mrclab" and sys.argv[1] in RENAMED:
                end(f"`mrclab {sys.argv[1]}` was renamed; write `mrclab {RENAMED[sys.argv[1]]}`", 2)
            text = " ".join(error.format_message().split()).rstrip(".")
            option = getattr(error, "option_name", "")
            if new := RENAMED_OPTIONS.get((where.removeprefix("mrclab "), option)):
                text = f"option {option} was renamed; write {new} instead"
            end(f"{text}; see {where} --help", 2)
    sys.exit(code if isinstance(code, int) else 0)
