"""`mrclab chaos`: anything at random on a lab, until something that must be true is not."""

from __future__ import annotations

import json
import math
import pathlib
import random
import time
from typing import Annotated, Any

import typer

from mrc_topo.base.files import write_whole
from mrc_topo.base.interruption import interruptible
from mrc_topo.labfile import load_lab
from mrc_topo.topology import UnknownElement
from mrclab.cli import common
from mrclab.cli.common import lab_file, need_namespaces, own_lab, seconds, the_lab
from mrclab.cli.progress import steps
from mrclab.lab import describe
from mrclab.lab.faults import kinds
from mrclab.lab.faults.action import FailureError
from mrclab.lab.records.rundir import RunDir, all_runs
from mrclab.runs.experiment import ExperimentError
from mrclab.runs.precheck import check_workload
from mrclab.studies.chaos import schedule as schedules
from mrclab.studies.chaos.run import ChaosResult, is_ours, play, shrink
from mrclab.studies.chaos.schedule import Schedule

DURATION_S = 60.0
TRIES = {"virtual": 200, "real": 12}


def verb(
    seed: Annotated[int | None, typer.Option(help="seed of the schedule (default: random, printed)")] = None,
    seeds: Annotated[int, typer.Option(help="number of schedules; their seeds follow the first one")] = 1,
    duration: Annotated[float | None, common.duration("time of each schedule, such as 20s (default: 60s)")] = None,
    lab: Annotated[
        str | None, typer.Option("--lab", help="a lab (default: the one that is up, otherwise tiny)")
    ] = None,
    clock: Annotated[str | None, typer.Option(help="real or virtual (default: real if a lab is up)")] = None,
    file: Annotated[
        pathlib.Path | None, typer.Option("--schedule", help="play the schedule in this file instead of a random one")
    ] = None,
    output: Annotated[
        pathlib.Path | None,
        typer.Option("-o", "--output", help="file for the shortest schedule that violates an invariant"),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print JSON")] = False,
) -> None:
    """Inject failures and kills at random, and check invariants of the lab after each.

    On a violation, print the shortest schedule that causes it and exit with 1.
    """
    seconds("--duration", duration, least=0.1)
    if clock not in (None, "real", "virtual"):
        raise ExperimentError(f"clock is real or virtual, not '{clock}'")
    if not 1 <= seeds <= 100_000:
        raise ExperimentError(f"--seeds is a number from 1 to 100000, not {seeds}")
    if output is not None and not output.resolve().parent.is_dir():
        raise ExperimentError(f"-o {output}: there is no such folder")
    chosen, name, transport = _where(lab, clock, file)
    if file is not None:
        given = {"--seed": seed, "--duration": duration, "--lab": lab}
        for option in [key for key, value in given.items() if value is not None] + ["--seeds"] * (seeds > 1):
            raise ExperimentError(f"{option} is for schedules that are made up; {file} says what is done")
        todo = [schedules.load(file)]
    else:
        first = random.SystemRandom().randrange(1 << 32) if seed is None else seed
        length = DURATION_S if duration is None else duration
        ends = is_ours(load_lab(name).lab.name, chosen)
        # Where hosts share a process there is no killing one of them.
        agents = chosen == "virtual" or not describe.sharing(load_lab(name))
        todo = [
            schedules.generate(name, each, length, transport, ends=ends, agents=agents)
            for each in range(first, first + seeds)
        ]
    for each in todo:
        _check(each, chosen, f"chaos schedule {file}" if file is not None else "chaos")
    if chosen == "real":
        need_namespaces()
    with interruptible():
        rows = [_one(each, chosen, output, as_json) for each in todo]
    if as_json:
        typer.echo(json.dumps(rows, indent=1))
    if any(row["violation"] for row in rows):
        raise SystemExit(1)


def _where(lab: str | None, clock: str | None, file: pathlib.Path | None) -> tuple[str, str, Any]:
    """Return the clock, lab and transport that are meant."""
    up = {run.name: run for run in all_runs()}
    if clock is None:
        clock = "real" if (own_lab() if lab is None else lab in up) and file is None else "virtual"
    if clock == "real" and (lab in up or (lab is None and own_lab())):
        state = RunDir(the_lab(lab)).read()
        _need_p4lite("chaos", state.name, state.switch)
        return clock, state.lab_file, state.transport
    return clock, "tiny" if lab is None else lab_file(lab, clock), "mrc"


def _need_p4lite(where: str, lab: str, switch: str) -> None:
    if switch != "p4lite":
        raise ExperimentError(
            f"{where}: the rules look into the switches of p4lite, and lab '{lab}' has switch {switch}; take a lab "
            "with `switch: p4lite` (--lab), or leave --lab out and say --clock virtual"
        )


def _check(schedule: Schedule, clock: str, where: str) -> None:
    """Check that every step of a schedule can be applied to the lab.

    Raises:
        ExperimentError: one cannot; nothing was started.
    """
    topology = load_lab(schedule.lab)
    _need_p4lite(where, topology.lab.name, topology.lab.switch)
    hosts, switches = ({each.name for each in kind} for kind in (topology.hosts, topology.switches))
    for index, step in enumerate(schedule.steps):
        place = f"{where}: steps.{index}: {step.describe()}"
        if step.verb in ("fail", "restore"):
            try:
                kinds.check(topology, step.action())
            except (UnknownElement, FailureError) as error:
                raise ExperimentError(f"{place}: {error}") from error
        elif step.verb in ("enter", "leave") and step.target not in switches:
            raise ExperimentError(f"{place}: no such switch in lab '{topology.lab.name}'")
        elif step.verb in schedules.OF_AGENTS and step.target not in hosts:
            raise ExperimentError(f"{place}: no such host in lab '{topology.lab.name}'")
        elif step.verb in schedules.OF_AGENTS and clock == "real" and (others := describe.sharing(topology)):
            raise ExperimentError(
                f"{place}: in lab '{topology.lab.name}' {', '.join(others)} share an agent's process, and its fate; "
                f"give its file {describe.PER_HOST}"
            )
        elif step.workload is not None:
            check_workload(step.workload, topology, schedule.transport, (), place)


def _one(schedule: Schedule, clock: str, output: pathlib.Path | None, as_json: bool) -> dict[str, Any]:
    began = time.monotonic()
    title = "schedule" if schedule.seed is None else f"seed {schedule.seed}"
    with steps(f"{title}: starting") as tell:
        played = play(schedule, clock, lambda text: tell(f"{title}: {text}"))
    row: dict[str, Any] = {"seed": schedule.seed, "clock": clock, "duration": schedule.duration}
    row |= {"took_s": round(time.monotonic() - began, 1), "counts": dict(sorted(played.counts.items()))}
    row |= {"violation": None if played.violation is None else str(played.violation)}
    if not as_json:
        counts = ", ".join(f"{key} {count}" for key, count in row["counts"].items()) or "nothing"
        word = "broken" if played.violation else "held"
        typer.echo(f"{title}: {word} after {math.ceil(played.at)} s on the {clock} clock: {counts}")
    if played.violation is not None:
        row["schedule"] = _shrunk(schedule, played, clock, output, as_json)
    return row


def _shrunk(schedule: Schedule, played: ChaosResult, clock: str, output: pathlib.Path | None, as_json: bool) -> str:
    """Find and show the shortest schedule; return its YAML."""
    if not as_json:
        typer.echo(f"at {played.at:.3f} s: {played.violation}")
    tries = TRIES[clock]
    with steps("looking for the shortest schedule that does it") as tell:

        def again(candidate: Schedule) -> ChaosResult:
            tell(f"looking for the shortest schedule that does it: {len(candidate.steps)} steps")
            return play(candidate, clock)

        least, outcome, count = shrink(schedule, played, again, tries)
    text = least.text()
    if output is not None:
        write_whole(output, text)
    if not as_json:
        typer.echo(
            f"{len(least.steps)} of {len(schedule.steps)} steps do it, found in {count} plays: {outcome.violation}"
        )
        where = str(output) if output is not None else "FILE (what follows)"
        typer.echo(f"again: mrclab chaos --clock {clock} --schedule {where}\n{text}")
    return text
