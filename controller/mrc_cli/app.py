"""The `mrclab` command. Each verb is a module of its name; `VERBS` lists them with what `--help` says of each.

A verb's module is imported only when the verb is used: all of them together take more than a second of CPU time.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Annotated, Any, cast

import typer
from typer.core import TyperCommand, TyperGroup

from mrc_cli.errors import end, report_errors
from p4lite.cli import print_any_text

#: In the order in which `--help` has them; the first sentence of each module's docstring for the verb.
VERBS = {
    "up": "Start a lab on the real clock: namespaces, switches, tables and host agents.",
    "down": "Stop a lab and remove everything that it created.",
    "status": "Show what is up, which failures are injected, and what the hosts detect.",
    "cleanup": "Remove what killed labs left behind: processes, namespaces, files.",
    "list": "List your running labs, with the start time and the user of each.",
    "run": "Run an experiment or a workload, check it, and write a report.",
    "plan": "Predict the CPU time, duration and memory of a run before it starts.",
    "demo": "Run the demonstration: MRC continues while links, ports and switches fail.",
    "experiments": "List the experiments, comparisons and sweeps that come with mrclab.",
    "compare": "Run one workload over several transports and conditions, and compare the results.",
    "perf": "Measure a collective operation over message sizes, as nccl-tests do.",
    "train": "Train a PyTorch model with one rank per host while the lab fails around it.",
    "figures": "Reproduce the figures of the MRC paper in simulated time.",
    "validate": "Compare packets with a fluid model, closed forms and uet-htsim on a fixed suite.",
    "scale": "Simulate a whole cluster with its jobs and failures in a fluid model.",
    "replay": "Run a trace or a generated step of training on the fluid model of a cluster, or of a lab's fabric.",
    "web": "Serve a live view in a browser, of a lab, a simulation or a recorded run, until Ctrl-C.",
    "fail": "Inject a failure into a link, a host port or a switch.",
    "restore": "Undo injected failures: restore exactly what each of them changed.",
    "deny": "Put elements on the denylist: no queue pair sends across them until `allow`.",
    "allow": "Take elements off the denylist; their EVs are used again.",
    "chaos": "Inject failures and kills at random, and check invariants of the lab after each.",
    "exec": "Run a command in a host's namespace and return the command's exit code.",
    "env": "Print the variables that `mrclab exec` sets for programs in a host.",
    "sh": "Open a prompt: `h3 ping -c 1 ADDRESS` runs in host h3, `hosts` lists hosts, `exit` ends.",
    "p4sh": "Open p4runtime-shell on a switch as its primary controller, to read and change tables.",
    "capture": "Capture both directions of a port into a pcapng file (Wireshark: load docs/mrc.lua).",
    "topo": "Check, show, draw and plan fabrics.",
    "workshop": "Learn MRC with exercises that check your own code in simulated time.",
    "conform": "Test an endpoint against MRC 1.0 with scripted packets, and name each rule that it breaks.",
    "sweep": "Run one experiment over many settings and seeds, and draw the results.",
}
#: Verbs that no user types.
HIDDEN = frozenset({"part"})


@cache
def _verb(name: str) -> Any:
    """Import a verb's module and make its command."""
    module = importlib.import_module(f"mrc_cli.{name}")
    made = getattr(module, "app", None)
    if made is None:
        made = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
        context = getattr(module, "CONTEXT", None)
        made.command(name, context_settings=context, hidden=name in HIDDEN)(module.verb)
    command = typer.main.get_command(made)
    command.name = name
    return command


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


class Command(TyperGroup):
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
            return TyperCommand(cmd_name, help=VERBS[cmd_name])
        return super().get_command(ctx, cmd_name)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help of `mrclab` without importing its verbs."""
        self._listing = True
        try:
            super().format_help(ctx, formatter)
        finally:
            self._listing = False


app = typer.Typer(
    name="mrclab",
    cls=Command,
    help="Run MRC fabrics of P4 switches and endpoints, inject failures, and watch them recover.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _version(wanted: bool) -> None:
    if wanted:
        import importlib.metadata

        from mrc_host import running

        typer.echo(f"mrclab {importlib.metadata.version('mrclab')}, {running.description()}")
        raise typer.Exit


@app.callback()
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
) -> None:
    pass


#: Options of earlier versions: command and option, and what to write instead.
RENAMED_OPTIONS = {("train", "--patience"): "--collective-timeout"}
#: What typer raises for a command that cannot be understood; it has no public name of its own.
_UsageError = cast(type[typer.BadParameter], typer.BadParameter.__bases__[0])


def main() -> None:
    """Run a command and exit with 0, 1 for a failed run, or 2 for wrong usage; every error is one line."""
    print_any_text()
    with report_errors():
        try:
            code = app(prog_name="mrclab", standalone_mode=False)
        except _UsageError as error:
            if len(sys.argv) == 1 or type(error).__name__ == "NoArgsIsHelpError":
                error.show()
                sys.exit(2)
            where = getattr(getattr(error, "ctx", None), "command_path", "mrclab")
            text = " ".join(error.format_message().split()).rstrip(".")
            option = getattr(error, "option_name", "")
            if new := RENAMED_OPTIONS.get((where.removeprefix("mrclab "), option)):
                text = f"option {option} was renamed; write {new} instead"
            end(f"{text}; see {where} --help", 2)
    sys.exit(code if isinstance(code, int) else 0)
