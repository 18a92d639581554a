"""Slowdown by flow size at a load, spraying beside ECMP, ours and uet-htsim on the same flows: the plot that papers on
load balancing have (docs/explanation/slowdown.md).

    python -m mrc_fluid.validation.slowdown FOLDER [--htsim htsim_uec] [--seeds 5]

Slowdown is a flow's completion time over the time that it takes alone, which is calculated for each packet format.
"""

from __future__ import annotations

import argparse
import csv
import dataclasses
import pathlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from mrc_fluid import kernels
from mrc_fluid.validation import packets, plots, suite
from mrc_fluid.validation.htsim import PACKET_BYTES, Htsim
from mrc_fluid.validation.outcome import ScenarioOutcome, interval_of
from mrc_fluid.validation.scenario import DELAY_NS, MTU, NIC_BPS, Backend, FlowSpec, Scenario, ScenarioFabric
from mrc_fluid.validation.scenarios import MICROSECOND
from mrc_fluid.validation.suite import Plan
from mrc_fluid.validation.variants import VARIANTS
from mrc_host.workloads.load import Load, LoadParameters
from mrc_topo.base.files import write_whole
from mrc_topo.topology import Topology
from mrclab.pages import paper
from mrclab.pages.paper import ink
from mrclab.results import wire
from mrclab.studies.cells.measure import prepare

#: Eight T0s of four hosts, and four T1s: nothing is oversubscribed.
FABRIC = ScenarioFabric(t0s=8)
LOADS = (0.3, 0.6)
#: For how long flows arrive, ns, and the distribution of their sizes.
TIME_NS, SIZES = 2_000_000, "web_search"
#: Upper ends of groups of sizes, bytes.
GROUPS = (20_000, 100_000, 1_000_000, 5_000_000, 30_000_000)


class Way(NamedTuple):
    """A way to choose paths: its name, the sprayer of ours (`VARIANTS`), and what htsim does alike."""

    name: str
    ours: str
    paths: int


WAYS = (Way("spraying", "MRC", 64), Way("one path (ECMP)", "ECMP", 1))


class SlowFlow(NamedTuple):
    """A flow of a run, with its time alone and its slowdown."""

    load: float
    backend: str
    way: str
    seed: int
    bytes: int
    completion_us: float
    alone_us: float
    slowdown: float


def scenario(load: float) -> Scenario:
    """Return an open-loop load as a scenario. Flows begin at whole microseconds, as htsim has them, and no two have
    both ends in common: in MRC they would share a queue pair, in which messages wait for each other."""

    def flows(seed: int) -> list[FlowSpec]:
        params = LoadParameters(load=load, time_ns=TIME_NS, sizes=SIZES, seed=seed, host_bps=NIC_BPS, length_only=1)
        every = (each for out in Load.listed(FABRIC.hosts, params).out for each in out)
        taken: dict[int, set[int]] = {host: {host} for host in range(FABRIC.hosts)}
        made = []
        for each in sorted(every, key=lambda one: one.number):
            others = (each.target + step for step in range(FABRIC.hosts))
            target = next(other % FABRIC.hosts for other in others if other % FABRIC.hosts not in taken[each.source])
            taken[each.source].add(target)
            start = each.start_ns // MICROSECOND * MICROSECOND
            made.append(FlowSpec(each.source, target, each.bytes, start))
        return made

    name = f"load-{load:.0%}".rstrip("%")
    return Scenario(name, f"{SIZES} at {load:.0%}", FABRIC, flows, both_ways=True, fluid=False, htsim=True, cost=10)


def alone_us(topology: Topology, backend: Backend, flow: FlowSpec) -> float:
    """Return the completion time of a flow that has the fabric for itself."""
    if backend is Backend.PACKETS:
        return wire.alone_ns(topology, "mrc", 1, flow.source, flow.target, flow.bytes) / 1e3
    count = -(-flow.bytes // MTU)
    links = 2 if flow.source // FABRIC.per_t0 == flow.target // FABRIC.per_t0 else 4
    last = flow.bytes if count == 1 else MTU
    wired = flow.bytes + count * (PACKET_BYTES - MTU) + (links - 1) * (last + PACKET_BYTES - MTU) + links * 64
    return wired * 8e6 / NIC_BPS + 2 * links * DELAY_NS / 1e3


def run(
    loads: Sequence[float], seeds: Sequence[int], folder: pathlib.Path, htsim: Htsim | None, jobs: int
) -> tuple[list[SlowFlow], list[str]]:
    """Run all loads both ways; return the flows, and the runs that say nothing."""
    made: list[SlowFlow] = []
    problems: list[str] = []
    scenarios = {each.name: (load, each) for load, each in ((load, scenario(load)) for load in loads)}
    for way in WAYS:
        algorithm = next(each.algorithm for each in VARIANTS if each.name == way.ours)
        other = htsim and dataclasses.replace(htsim, algorithms=dataclasses.replace(htsim.algorithms, paths=way.paths))
        plan = Plan([each for _, each in scenarios.values()], seeds, algorithm, other)
        found = suite.run(plan, folder / way.ours, jobs, kernels.reference())
        problems += found.problems
        for outcome in found.outcomes:
            made += _slow(*scenarios[outcome.scenario], way, outcome)
    return made, problems


def _slow(load: float, of: Scenario, way: Way, outcome: ScenarioOutcome) -> Iterable[SlowFlow]:
    topology = prepare_of(of)
    for flow, taken in zip(of.flows(outcome.seed), outcome.completion_us, strict=True):
        alone = alone_us(topology, outcome.backend, flow)
        yield SlowFlow(load, outcome.backend.value, way.name, outcome.seed, flow.bytes, taken, alone, taken / alone)


def prepare_of(of: Scenario) -> Topology:
    """Return the fabric of a scenario."""
    return prepare(packets.cell(of, 1, packets.Algorithm()))


Key = tuple[float, str, str]


def grouped(flows: Iterable[SlowFlow]) -> dict[Key, list[list[SlowFlow]]]:
    """Return flows by load, backend and way, and by `GROUPS` of size."""
    made: dict[Key, list[list[SlowFlow]]] = {}
    for each in flows:
        groups = made.setdefault((each.load, each.backend, each.way), [[] for _ in GROUPS])
        groups[next(index for index, most in enumerate(GROUPS) if each.bytes <= most)].append(each)
    return made


def summary(flows: Sequence[SlowFlow]) -> tuple[float, float | None, float]:
    """Return the mean over seeds of the mean slowdown with half of its interval, and the P99 of all flows."""
    seeds: dict[int, list[float]] = {}
    for each in flows:
        seeds.setdefault(each.seed, []).append(each.slowdown)
    mean, half = interval_of([float(np.mean(each)) for each in seeds.values()])
    return mean, half, float(np.quantile([each.slowdown for each in flows], 0.99))


def table(groups: Mapping[Key, Sequence[Sequence[SlowFlow]]]) -> str:
    """Return mean and P99 by size as a table in Markdown."""
    ends = [f"to {most // 1000} kB" if most < 10**6 else f"to {most // 10**6} MB" for most in GROUPS]
    lines = ["| load | | | " + " | ".join(ends) + " |", "|---|---|---|" + "---|" * len(ends)]
    for (load, backend, way), parts in sorted(groups.items()):
        cells = []
        for part in parts:
            mean, half, p99 = summary(part) if part else (np.nan, None, np.nan)
            cells.append(f"{mean:.2f}{'' if half is None else f' ± {half:.2f}'}, {p99:.1f}" if part else "–")
        lines.append(f"| {load:.0%} | {backend} | {way} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def plot(groups: Mapping[Key, Sequence[Sequence[SlowFlow]]]) -> str:
    """Return mean and P99 of the slowdown by size as SVG, a column for each load."""
    loads = sorted({load for load, *_ in groups})
    measures: Sequence[tuple[str, Callable[[Sequence[SlowFlow]], float]]] = (
        ("mean", lambda part: summary(part)[0]), ("P99", lambda part: summary(part)[2]),
    )  # fmt: skip
    size: dict[str, Any] = {"nrows": 2, "ncols": len(loads), "figsize": (6.6, 4.6), "sharex": True, "squeeze": False}
    with paper.drawing(**size) as (drawn, axes):
        for column, load in enumerate(loads):
            for row, (name, measure) in enumerate(measures):
                place = axes[row][column]
                for (of, backend, way), parts in sorted(groups.items()):
                    if of == load:
                        points = [(most, measure(part)) for most, part in zip(GROUPS, parts, strict=True) if part]
                        place.plot(
                            *zip(*points, strict=True), color=ink("plane-0" if way == WAYS[0].name else "down"),
                            linestyle=plots.DASHES[Backend(backend)], marker=plots.MARKERS[Backend(backend)],
                            markersize=4, label=f"{backend}, {way}",
                        )  # fmt: skip
                place.set_xscale("log")
                place.set_yscale("log")
                place.set_ylabel(f"slowdown, {name}")
                if not row:
                    place.set_title(f"load {load:.0%}", fontsize=9)
            axes[-1][column].set_xlabel("flow size up to, bytes")
        drawn.legend(*axes[0][0].get_legend_handles_labels(), loc="outside upper center", ncols=2, fontsize=8)
        return plots.svg(drawn)


def main() -> int:
    """Run the comparison, and write flows.csv, slowdown.md and slowdown.svg into a folder."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("folder", type=pathlib.Path, help="for results; runs that it has are not repeated")
    parser.add_argument("--htsim", type=pathlib.Path, help="path of htsim_uec")
    parser.add_argument("--seeds", type=int, default=5, help="seeds 1 to this")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    given = parser.parse_args()
    htsim = None if given.htsim is None else Htsim.found(given.htsim)
    flows, problems = run(LOADS, range(1, given.seeds + 1), given.folder, htsim, given.jobs)
    with (given.folder / "flows.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(SlowFlow._fields)
        writer.writerows(flows)
    groups = grouped(flows)
    write_whole(given.folder / "slowdown.md", table(groups) + "\n")
    write_whole(given.folder / "slowdown.svg", plot(groups))
    print(table(groups))
    print(*problems, sep="\n")
    return 1 if problems else 0


if __name__ == "__main__":
    raise SystemExit(main())
