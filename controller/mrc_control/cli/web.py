"""`mrclab web`: the live view in a browser."""

from __future__ import annotations

import pathlib
from typing import Annotated

import typer

from mrc_control.cli.common import the_lab
from mrc_control.cli.livepage import Port, page
from mrc_control.cli.outcome import Clock, clock_of
from mrc_control.lab.rundir import RunError, all_runs
from mrc_control.results.resultdir import RESULT
from mrc_control.runs.experiment import load_experiment
from mrc_control.runs.interruption import interruptible

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
