"""`mrclab web`: the live view in a browser."""

from __future__ import annotations

import contextlib
import pathlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from mrc_control.cli.common import the_lab
from mrc_control.cli.outcome import Clock, clock_of
from mrc_control.lab.rundir import RunError, all_runs
from mrc_control.results.resultdir import RESULT
from mrc_control.runs.experiment import known_experiments, load_experiment
from mrc_control.runs.interruption import interruptible

if TYPE_CHECKING:
    from mrc_control.web.page import Page

Port = Annotated[int | None, typer.Option(min=0, max=65535, help="8080, or the next free one, if left out; 0: any")]
Host = Annotated[str, typer.Option(help="the address to listen on; others than this machine's own reach the lab then")]


def verb(
    what: Annotated[
        str | None, typer.Argument(help="a folder of results, to replay; an experiment, to simulate; else a lab")
    ] = None,
    lab: Annotated[str | None, typer.Option(help="the lab that is up, or the one to simulate")] = None,
    clock: Clock = None,
    speed: Annotated[
        float, typer.Option(min=0, max=1000, help="of a simulation or replay; 0: as fast as it goes")
    ] = 1.0,
    paused: Annotated[bool, typer.Option("--paused", help="a simulation waits until it is told to go on")] = False,
    port: Port = None,
    host: Host = "127.0.0.1",
) -> None:
    """Show a lab, a simulation or a recorded run in a browser, and break it there; until Ctrl-C."""
    clock = clock_of(clock)
    folder = None if what is None else pathlib.Path(what)
    recorded = folder is not None and (folder / RESULT).is_file()
    if what is not None and not recorded and clock == "real":
        raise RunError(f"{what}: no results of a run; an experiment is shown with --clock virtual")
    with interruptible() as interruption, page(host, port) as made:
        interruption.patient = True
        if recorded and folder is not None:
            made.replay(folder, speed, interruption.check)
        elif what is not None or clock == "virtual" or (clock is None and not all_runs() and lab is not None):
            experiment = None if what is None else load_experiment(what)
            made.simulate(lab or "default", experiment, speed, paused, interruption.check)
        else:
            made.watch(the_lab(lab), interruption.check)


@contextlib.contextmanager
def page(host: str = "127.0.0.1", port: int | None = None) -> Iterator[Page]:
    """A page that is served for as long as the context lasts; its address is printed.

    Raises:
        RunError: a part of the live view is missing, or the port is taken.
    """
    try:
        from mrc_control.web import page as web
        from mrc_control.web.assets import AssetError, need
    except ImportError as error:
        name = (error.name or "").partition(".")[0]
        raise RunError(f"the live view needs the package {name}: pip install 'mrclab[web]'") from error
    try:
        need()
    except AssetError as error:
        raise RunError(str(error)) from error
    with web.Page.served(host, port, list(known_experiments()), load_experiment) as made:
        if not made.loopback:
            typer.echo(
                f"warning: {host} is reached from other machines: whoever sees the address below (it is not encrypted) "
                "can break this lab",
                err=True,
            )
        typer.echo(f"live view: {made.url}", err=True)
        yield made
