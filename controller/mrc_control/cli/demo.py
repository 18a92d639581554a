"""`mrclab demo`: a ring all-reduce goes on while a link and a NIC port die and return."""

from __future__ import annotations

import typer

from mrc_control.cli.outcome import Clock, Folder, clock_of, run_and_show
from mrc_control.lab import lifecycle
from mrc_control.runs.experiment import load_experiment


def verb(clock: Clock = None, output: Folder = None) -> None:
    """The demonstration: a ring all-reduce goes on while a link and a NIC port die and return.

    On the real clock where that is possible, else in simulated time.
    """
    clock = clock_of(clock)
    if clock is None:
        problem = lifecycle.problem()
        if problem is not None:
            typer.echo(f"{problem}\nthe demonstration runs in simulated time instead", err=True)
        clock = "real" if problem is None else "virtual"
    try:
        run_and_show(load_experiment("demo"), clock, output, as_json=False)
    except SystemExit:  # the run went to its end, whatever the verdict
        typer.echo(
            "open the report in a browser; next: `mrclab up`, `mrclab run ring_all_reduce --duration 30 &`, then break "
            "a switch: `mrclab fail p0-t1.1 --kind freeze`, `mrclab status`, `mrclab restore`"
        )
        raise
