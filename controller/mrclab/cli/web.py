"""`mrclab web`: the live view in a browser."""

from __future__ import annotations

import pathlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from mrc_topo.base.errors import not_linux
from mrc_topo.base.interruption import interruptible
from mrc_topo.labfile import load_lab
from mrclab.cli.common import lab_file, the_lab
from mrclab.cli.livepage import Port, check_page, page
from mrclab.cli.outcome import Clock, clock_of
from mrclab.lab.records.rundir import RunError, all_runs
from mrclab.results.reading import RESULT, FolderError, folder_of, recorded_in
from mrclab.runs import precheck
from mrclab.runs.experiment import load_experiment

if TYPE_CHECKING:
    from mrclab.web.server import Page

Host = Annotated[
    str, typer.Option(help="address to listen on; any other than loopback lets other machines reach the lab")
]

#: What `mrclab scale` writes, and a run does not.
CLUSTER = "links.parquet"

Show = Callable[["Page", Callable[[], object]], None]


def verb(
    what: Annotated[
        str | None, typer.Argument(help="a folder of results to replay, or an experiment to simulate (default: a lab)")
    ] = None,
    lab: Annotated[str | None, typer.Option(help="the lab that is up, or the one to simulate")] = None,
    clock: Clock = None,
    speed: Annotated[
        float | None,
        typer.Option(
            min=0, max=1000, help="speed of a simulation or replay (default: 1, as in reality; 0: as fast as possible)"
        ),
    ] = None,
    paused: Annotated[
        bool, typer.Option("--paused", help="start a simulation paused; `resume` on the page continues it")
    ] = False,
    port: Port = None,
    host: Host = "127.0.0.1",
) -> None:
    """Serve a live view in a browser, of a lab, a simulation or a recorded run, until Ctrl-C."""
    clock = clock_of(clock)
    check_page()
    # What cannot be shown is refused before there is an address to open.
    folder = None if what is None else pathlib.Path(what)
    if folder is not None and (folder.is_dir() or folder.name == RESULT):
        if lab is not None or clock is not None or paused:
            raise RunError(
                f"{what} is a recorded run: its lab and clock are its own; leave out --lab, --clock, --paused"
            )
        show = replay(folder_of(folder), 1.0 if speed is None else speed)
    elif what is not None or clock == "virtual" or (clock is None and lab is not None and not all_runs()):
        if clock == "real":
            raise RunError(f"{what}: no results of a run; an experiment is shown with --clock virtual")
        show = simulate(what, lab_file(lab, "virtual") if lab else "default", 1.0 if speed is None else speed, paused)
    else:
        if speed is not None or paused:
            raise RunError("a lab on the real clock has no speed and does not pause; --clock virtual simulates one")
        show = watch(lab)
    with interruptible() as interruption, page(host, port) as made:
        show(made, interruption.check)


def replay(folder: pathlib.Path, speed: float) -> Show:
    """Show a recorded run. Raises FolderError."""
    if (folder / CLUSTER).is_file():
        raise FolderError(
            f"{folder}: results of a cluster; open {folder / 'report.html'}, which has a map of all links"
        )
    recorded_in(folder)
    # With numpy, which other verbs do without.
    from mrclab.web.replay import Recorded

    recorded = Recorded(folder)
    return lambda made, check: made.replay(recorded, speed, check)


def simulate(name: str | None, lab: str, speed: float, paused: bool) -> Show:
    """Show a simulation. Raises ExperimentError, LabError."""
    experiment = None if name is None else load_experiment(name).model_copy(update={"clock": "virtual"})
    if experiment is not None:
        precheck.check(experiment, precheck.requested_lab(experiment).topology)
    else:
        load_lab(lab)
    return lambda made, check: made.simulate(lab, experiment, speed, paused, check)


def watch(lab: str | None) -> Show:
    """Show a lab that is up. Raises RunError."""
    names = [run.name for run in all_runs()]
    if not names and lab is None:
        raise RunError(
            f"no lab is up: {not_linux() or '`mrclab up` brings one up; `mrclab web --clock virtual` simulates one'}"
        )
    name = the_lab(lab)
    if name not in names and (why := not_linux()):
        raise RunError(f"lab {name!r} is not up: {why}")
    if name not in names:
        up = f"those that are up: {', '.join(names)}" if names else "none is; `mrclab up` brings one up"
        raise RunError(f"lab {name!r} is not up; {up}; `mrclab web --clock virtual --lab {name}` simulates it")
    return lambda made, check: made.watch(name, check)
