"""`mrclab plan`: what a run will take, before it starts."""

from __future__ import annotations

import contextlib
import json
import pathlib
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from mrc_cli.common import Compiler, Payload, Switch
from mrc_cli.outcome import Clock, clock_of
from mrc_cli.progress import steps
from mrc_cli.quantities import duration
from mrc_cli.run import check_cores, experiment_of
from mrc_common import document
from mrc_common.document import DocumentError
from mrc_common.interruption import interruptible
from mrc_common.plain import encode
from mrc_host.workloads import WORKLOADS
from mrc_results.terminal import Terminal
from mrc_runs import again as repetition
from mrc_runs.experiment import ExperimentError, known_experiments
from mrc_runs.remaining import duration_text
from mrc_scale.clusterfile import builtin_clusters, load_cluster
from mrc_studies.estimates import cluster as clusters
from mrc_studies.estimates import costs as stored
from mrc_studies.estimates import estimate as estimates
from mrc_studies.estimates import yardstick
from mrc_studies.estimates.estimate import Estimate, Machine
from mrc_topo.units import format_rate, format_size

#: A number of seconds has this many digits behind the point below the first of these limits, and so on.
DIGITS = ((10.0, 2), (100.0, 1))


def verb(
    name: Annotated[
        str | None, typer.Argument(help="an experiment (name or file), a workload, or a cluster of `mrclab scale`")
    ] = None,
    param: Annotated[
        list[str] | None,
        typer.Option("--set", help="a parameter of the workload, as for `mrclab run`; may be given several times"),
    ] = None,
    lab: Annotated[str | None, typer.Option(help="for a workload: the lab, as for `mrclab run`")] = None,
    hosts: Annotated[
        str | None, typer.Option(help="for a workload: participating hosts, such as h0,h3 (default: all)")
    ] = None,
    length: Annotated[float | None, duration("time to run, as for `mrclab run`")] = None,
    transport: Annotated[str | None, typer.Option(help="for a workload: mrc or roce (default: mrc)")] = None,
    qps: Annotated[int | None, typer.Option(help="for a workload: queue pairs per peer (default: 1)")] = None,
    switch: Switch = None,
    compiler: Compiler = None,
    payload: Payload = None,
    clock: Clock = None,
    cores: Annotated[int | None, typer.Option(min=1, max=64, help="cores of a simulation, as for `mrclab run`")] = None,
    again: Annotated[
        pathlib.Path | None, typer.Option(help="plan the repetition of the run whose results are in this folder")
    ] = None,
    calibrating: Annotated[
        bool, typer.Option("--calibrate", help="measure the costs of this machine with short runs and keep them")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="print JSON instead of tables")] = False,
) -> None:
    """Predict the CPU time, duration and memory of a run before it starts.

    Exit with 1 if the run does not fit this machine.
    """
    clock = clock_of(clock)
    given: dict[str, Any] = {"--set": param, "--lab": lab, "--hosts": hosts, "--duration": length, "--qps": qps}
    given |= {"--transport": transport, "--switch": switch, "--compiler": compiler, "--payload": payload}
    if calibrating:
        others = [name, again, clock, cores, *given.values()]
        if any(value is not None for value in others):
            raise ExperimentError("--calibrate measures this machine and takes no run; plan the run afterwards")
        _calibrate(as_json)
        return
    if again is not None:
        for option, value in {"a name": name, **given, "--clock": clock}.items():
            if value is not None:
                raise ExperimentError(f"{option} with --again: the results say what is run; leave one of them out")
    costs, machine = stored.known(), Machine.here(yardstick.pace())
    if again is None and name is not None and _is_cluster(name):
        for option, value in {**given, "--clock": clock, "--cores": cores}.items():
            if value is not None:
                raise ExperimentError(f"{option} is for runs in labs; '{name}' is a cluster: change its file")
        made = clusters.estimate(load_cluster(name), machine)
    else:
        with contextlib.ExitStack() as context:
            if again is not None:
                experiment = context.enter_context(repetition.repeatable(repetition.load(again)))
            else:
                experiment = experiment_of(name, given, clock, "plan")
            chosen = clock or experiment.clock
            check_cores(cores, chosen)
            made = estimates.estimate(experiment, chosen, costs, machine, cores or 1)
    if as_json:
        typer.echo(json.dumps(encode(made), indent=2))
    else:
        _show(made)
    if not made.fits:
        raise SystemExit(1)


def _is_cluster(name: str) -> bool:
    """Return whether a name, or the content of a file, is that of a cluster of `mrclab scale`."""
    if name in WORKLOADS or name in known_experiments():
        return False
    if name in builtin_clusters():
        return True
    path = pathlib.Path(name)
    if path.suffix not in (".yaml", ".yml") or not path.is_file():
        return False
    try:
        content = document.load(path, name, "").data
    except DocumentError:
        return False  # reading it as an experiment says what is wrong
    return "jobs" in content and "workload" not in content


def _calibrate(as_json: bool) -> None:
    """Measure this machine, and keep what its runs cost."""
    path = stored.place()
    with interruptible(), steps(lines=True) as tell:

        def show(name: str, share: float) -> None:
            tell(f"{share:.0%} {name}")

        costs = stored.measure(show)
    stored.save(costs, path)
    if as_json:
        typer.echo(json.dumps({"file": str(path), "cpu": costs.cpu, "memory": costs.memory}, indent=2))
        return
    table = Table(title="costs of this machine", title_justify="left")
    for column in ("part", "quantity", "each costs"):
        table.add_column(column, justify="right" if column == "each costs" else "left")
    for part, quantity, cost in stored.described(costs):
        text = (
            f"{cost:,.0f} B" if part == "memory" and cost >= 1 else f"{cost * 1e6:.4g} µs" if part != "memory" else ""
        )
        table.add_row(part, quantity.replace("_", " "), text or f"{cost:.3g} B")
    Terminal().print(table)
    typer.echo(f"kept in {path}")


def _show(made: Estimate) -> None:
    console = Terminal()
    console.print(f"{made.name}: {made.level}, lab {made.lab}", highlight=False, soft_wrap=True)
    table = Table()
    for column in ("part", "CPU s"):
        table.add_column(column, justify="right" if column == "CPU s" else "left")
    for part in made.parts:
        table.add_row(part.name, seconds(part.cpu_seconds))
    table.add_row("all", seconds(made.cpu_seconds))
    console.print(table)
    lines = [
        "fits this machine" if made.fits else "does not fit this machine",
        f"duration {duration_text(made.wall_seconds)} at the present load, for {made.simulated_seconds:.2f} s of the "
        "lab's clock",
        f"memory {format_size(round(made.memory_bytes))}, cores {made.cores:.1f}",
        f"{made.hosts:,} {'NICs' if made.level == 'fluid model' else 'hosts'}, {made.switches:,} switches",
    ]
    if made.data_packets:
        lines.append(
            f"{made.messages:,.0f} messages, {made.data_packets:,.0f} data packets over {made.hops:,.0f} hops, goodput "
            f"{format_rate(made.goodput_bps)}"
        )
    if made.extrapolated:
        lines.append(f"{made.extrapolated:.0%} of the traffic is extrapolated")
    for share in made.dominates:
        portion = share.cpu_seconds / made.cpu_seconds if made.cpu_seconds else 0.0
        lines.append(
            f"{portion:4.0%} of the CPU time: {share.part}, {share.count:,.0f} {share.quantity.replace('_', ' ')}"
        )
    lines.append(f"costs: {made.costs}; this machine takes {made.machine.slowness:.2f} times the reference's time now")
    for line in lines:
        console.print(line, highlight=False, soft_wrap=True)
    for warning in made.warnings:
        console.print(Text.assemble(("warning", "yellow"), f": {warning}"), highlight=False, soft_wrap=True)


def seconds(value: float) -> str:
    """Return seconds as text, with fewer digits the more there are."""
    digits = next((count for limit, count in DIGITS if value < limit), 0)
    return f"{value:,.{digits}f}"
