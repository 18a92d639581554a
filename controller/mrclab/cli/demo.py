"""`mrclab demo`: MRC goes on while links, ports and switches die."""

from __future__ import annotations

import contextlib
import time
from typing import Annotated

import typer

from mrc_topo.base.errors import not_linux
from mrclab.cli import progress
from mrclab.cli.common import need_namespaces, parse_mbps
from mrclab.cli.livepage import Web, page
from mrclab.cli.outcome import Clock, Folder, clock_of, show
from mrclab.lab import lifecycle
from mrclab.results import resultdir
from mrclab.runs.demo import Demo

_NEXT = (
    "; next: `mrclab up`, `mrclab run ring_all_reduce --duration 30 &`, then break a switch: "
    "`mrclab fail p0-t1.1 --kind freeze`, `mrclab status`, `mrclab restore`"
)
Rate = Annotated[
    int | None,
    typer.Option(
        parser=parse_mbps,
        metavar="RATE",
        help="rate of each link, such as 20Mbps; a plain number is in Mb/s (default: measured on this machine)",
    ),
]


def verb(clock: Clock = None, rate: Rate = None, output: Folder = None, web: Web = False) -> None:
    """Run the demonstration: MRC continues while links, ports and switches fail.

    Use the real clock where the machine allows it, otherwise simulated time. Exit with 1 if a check fails.
    """
    clock = clock_of(clock)
    if clock is None:
        problem = lifecycle.problem()
        # Elsewhere than on Linux the compiler says what is missing for simulated time, too.
        if problem is not None and not not_linux():
            progress.warn(f"{problem}\nthe demonstration runs in simulated time instead")
        clock = "real" if problem is None else "virtual"
    if clock == "real":
        need_namespaces()
    folder = output or resultdir.default_folder("demo", clock)
    began = time.monotonic()

    def say(text: str) -> None:
        progress.warn(f"[{time.monotonic() - began:3.0f} s] {text}")

    with page() if web else contextlib.nullcontext(None) as made:
        view = None if made is None else made.beside()
        good = Demo(folder, say, show, view=view).go(clock, rate)
    typer.echo(
        f"{'all that must hold held' if good else 'failed'}; reports: {folder}/*/report.html\n"
        f"open one in a browser{'' if not_linux() else _NEXT}"
    )
    raise SystemExit(0 if good else 1)
