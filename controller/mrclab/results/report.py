"""The HTML report of a run: one self-contained file with the verdict, charts, what every failure did, and the lab.

It says in this order: the verdict, what it cost, what happened when, why, and then what is folded. First all that the
page shows is computed, part by part, as values (`view_of`). Then the template `report.html` makes the page of them.
"""

from __future__ import annotations

import itertools
import pathlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter

from mrc_host.answers import LagSummary, RoceHostStatistics, Software
from mrc_topo import draw
from mrc_topo.base import look, quantiles
from mrc_topo.topology import Topology
from mrc_topo.units import Unit, format_rate, format_time, named, shown
from mrclab.lab import describe, payloads
from mrclab.lab.session.fidelity import Fidelity, MachineFidelity
from mrclab.pages import chart
from mrclab.pages.chart import Mark
from mrclab.results import capacity, charts, milestones, moments, performance, reordering, tenants
from mrclab.results.analysis import Recovery, duration_text
from mrclab.results.charts import RunCharts
from mrclab.results.check import Check, Verdict
from mrclab.results.moments import Moments
from mrclab.results.performance import Table
from mrclab.results.record import EXPLAINED, Readings, RunResult, losses_of
from mrclab.results.verdict import goodput_share
from p4lite.switch.fabric.values import Lag


@dataclass(frozen=True)
class Coloured:
    """A text in a `colour` of the style sheet."""

    text: str
    colour: str


@dataclass(frozen=True)
class Grid:
    """Cells in rows under heads."""

    heads: Sequence[str]
    rows: Sequence[Sequence[str | Coloured]]


@dataclass(frozen=True)
class Trust:
    """Lateness of the processes of a run, and the clocks of its machines; no table of a simulation."""

    lateness: Grid | None
    machines: Grid | None
    software: str


@dataclass(frozen=True)
class Sections:
    """The tables of a report; `failures` is None where nothing was done to the lab. `lost` explains its two counts of
    lost packets, and is empty where both are 0."""

    run: Grid
    checks: Grid
    failures: Grid | None
    hosts: Grid
    trust: Trust
    lost: str


def sections_of(
    result: RunResult, topology: Topology, readings: Readings, verdict: Verdict, followed: Sequence[Sequence[str]]
) -> Sections:
    """Return the tables of a report; `followed`: rows of what followed each action."""
    # What never happened needs no column.
    kept = [at for at in range(len(milestones.HEADS)) if any(row[at] != "-" for row in followed)]
    happened = Grid([milestones.HEADS[at] for at in kept], [[row[at] for at in kept] for row in followed])
    return Sections(
        _run(result, topology, readings, verdict),
        Grid(["check", "expected", "measured", ""], [_check(each, verdict) for each in verdict.checks]),
        happened if followed else None,
        _hosts(result),
        _trust(result.fidelity),
        " ".join(EXPLAINED) if losses_of(result) else "",
    )


def _run(result: RunResult, topology: Topology, readings: Readings, verdict: Verdict) -> Grid:
    lab = topology.lab
    totals = readings.totals
    simulated = " (simulated time)" if result.clock == "virtual" else ""
    lost = losses_of(result)
    colour = "good" if verdict.passed else "doubt" if verdict.timing_only else "bad"
    rows: list[list[str | Coloured]] = [
        ["verdict", Coloured(verdict.outcome, colour)],
        ["mean goodput", format_rate(readings.mean_bps)],
        ["lab", f"{lab.name}: {topology.shape}, "
                f"{lab.hosts} hosts, {format_rate(lab.links.host.rate)} per port, {lab.routing.mode.value}"],
        ["workload", f"{words(result.workload)} ({parameters(result.params)}) on {len(result.ranks)} hosts"],
        ["clock", f"{result.clock}{simulated}, {result.seconds:.1f} s, seed {result.seed}"],
        ["base RTT, ACK timeout", f"{format_time(describe.base_rtt_ns(topology, result.clock))}, "
                                  f"{format_time(describe.ack_timeout_ns(topology))}"],
        ["retransmissions, of them spurious", f"{totals['retransmissions']}, {totals['spurious_retransmissions']}"],
        ["packets dropped in the fabric by failures; taken for lost by hosts", f"{lost.dropped}; {lost.taken}"],
        ["trims, marks, timeouts", ", ".join(str(totals[key]) for key in ("trims", "marks", "timeouts"))],
    ]  # fmt: skip
    if (use := capacity.use_of(result, topology)) is not None:
        rows.insert(2, ["capacity of the hosts' ports", use.text()])
    if result.fidelity.length_only:
        rows.insert(1, ["payload", Coloured(payloads.NOT_VERIFIED, "doubt")])
    return Grid(["", ""], rows)


def words(key: str) -> str:
    """Return a name of a file or setting for people."""
    return key.replace("_", " ")


def parameters(params: Mapping[str, object]) -> str:
    """Return the parameters of a workload for people, with units."""
    told = []
    for key, value in params.items():
        name, unit, factor = named(key)
        number = isinstance(value, int | float) and not isinstance(value, bool)
        told.append(f"{name} {shown(float(value) * factor, unit) if number else value}")  # type: ignore[arg-type]
    return ", ".join(told) or "no parameters"


def _check(check: Check, verdict: Verdict) -> list[str | Coloured]:
    if check.passed:
        mark = Coloured("good", "good")
    elif check.timed and not verdict.valid:
        mark = Coloured("not valid", "doubt")
    else:
        mark = Coloured("missed", "bad")
    return [check.what, check.expected, check.measured, mark]


#: Of the terminal, where no more fits a line of 80 columns.
RECOVERY_HEADS = ("at", "what", "lowest, of what was left", "settled", "recovered")


def recovery_cells(recovery: Recovery) -> list[str]:
    """Return a recovery as text, by `RECOVERY_HEADS`."""
    settled = shown(recovery.after, Unit.SHARE, 3)
    return [f"{recovery.at_s:.2f} s", recovery.text, recovery.lowest, settled, recovery.took]


def _hosts(result: RunResult) -> Grid:
    rows: list[list[str | Coloured]] = []
    for name in result.ranks:
        progress = result.progress.get(name)
        samples = result.samples_of(name)
        if progress is None or not len(samples):
            rows.append([name, Coloured("no word", "bad"), "", "", "", ""])
            continue
        verified, grown = f"{progress.bytes_verified / 1e6:.1f} MB", samples.growth(("packets", "retransmissions"))
        if result.fidelity.length_only:
            verified = "no"
        rows.append([name, str(progress.iterations), verified, *map(str, grown.values()), progress.failure or "-"])
    return Grid(["host", "iterations", "verified", "packets sent", "retransmitted", "failure"], rows)


def _trust(fidelity: Fidelity) -> Trust:
    if fidelity.simulated:
        return Trust(None, None, _software([fidelity.software]))
    rows = []
    fabrics = {f"fabric on {name}": row.fabric for name, row in fidelity.machines.items() if row.fabric is not None}
    if not fabrics and fidelity.fabric is not None:
        fabrics["fabric"] = fidelity.fabric
    for name, fabric in fabrics.items():
        rows.append([name, *_lag(fabric.loop), f"{fabric.cpu_share:.0%}", ""])
    for name, host in fidelity.hosts.items():
        others = [each for each in host.process if each != name]
        share = f"{host.cpu_share:.0%}{', with ' * bool(others)}{', '.join(others)}"
        rows.append([name, *_lag(host.loop_lag), share, str(host.rx_ring_drops)])
    heads = ["part", "loop late p50, ms", "p99, ms", "max, ms", "its process's CPU, cores", "frames lost by the host"]
    software = _software(host.software for host in fidelity.hosts.values())
    return Trust(Grid(heads, rows), _machines(fidelity.machines), software)


def _lag(lag: LagSummary | Lag) -> list[str]:
    tail = lag.p99_ns if quantiles.supported(lag.count, 0.99) else None
    return [quantiles.shown(each, 1e-6, 3) for each in (lag.p50_ns, tail, lag.max_ns)]


def _machines(machines: Mapping[str, MachineFidelity]) -> Grid | None:
    """Return the clocks of a lab on several machines, and what went between them; None for a lab on one machine."""
    rows = []
    counted = attrgetter("sent", "received", "lost", "late", "refused", "repeated")
    for name, row in machines.items():
        clock = row.clock
        known = ["-", "-"] if clock is None else [f"{ns / 1e6:.3f}" for ns in (clock.off_ns, clock.uncertainty_ns)]
        sums = map(sum, zip(*map(counted, row.tunnels.values()), strict=True)) if row.tunnels else [0] * 6
        rows.append([name, *known, str(len(row.tunnels)), *map(str, sums)])
    heads = ["machine", "clock ahead, ms", "known within, ms", "tunnels", "datagrams sent", "received", "lost", "late"]
    return Grid([*heads, "refused", "repeated"], rows) if rows else None


def _software(measured: Iterable[Software | None]) -> str:
    """Return how the protocol core ran in these processes."""
    found = {(each.core, each.crc) for each in measured if each is not None}
    return "; ".join(f"Protocol core {core}, CRC by {crc}" for core, crc in sorted(found))


#: Missed checks that are named here; all of them are in the report's table.
NAMED = 4


@dataclass(frozen=True)
class KeyFigure:
    """A figure at the top of a report: its value, its name, and its meaning."""

    value: str
    what: str
    more: str


@dataclass(frozen=True)
class Top:
    """The banner, in a `colour` of the style sheet, with the first `NAMED` checks that were missed; and the figures."""

    headline: str
    story: str
    missed: Sequence[str]
    more: int
    figures: Sequence[KeyFigure]
    outcome: str
    colour: str


def top_of(result: RunResult, topology: Topology, readings: Readings, verdict: Verdict) -> Top:
    """Return what the top of a report says."""
    missed = [f"{each.what}: expected {each.expected}, measured {each.measured}" for each in verdict.missed]
    return Top(
        headline=headline(readings, verdict),
        story=story(result, topology, readings),
        missed=missed[:NAMED],
        more=max(len(missed) - NAMED, 0),
        figures=figures(result, topology, readings, verdict),
        outcome=verdict.outcome,
        colour="doubtful" if verdict.timing_only else verdict.status,
    )


def headline(readings: Readings, verdict: Verdict) -> str:
    """Return the outcome in one line."""
    count = readings.failures
    through = f", with {_many(count, 'failure')} on the way" if count else ""
    missed = len(verdict.missed)
    if verdict.interrupted:
        return f"Interrupted by {verdict.interrupted}: the run ended before its time"
    if verdict.passed:
        return f"Passed: everything came out as expected{through}"
    if verdict.timing_only:
        rates = f"{missed} of {_many(len(verdict.checks), 'check')} {'is' if missed == 1 else 'are'} of times and rates"
        return f"Passed; timing not valid: {rates} that this machine could not keep up with{through}"
    return (
        f"Failed: {missed} of {_many(len(verdict.checks), 'check')} {'was' if missed == 1 else 'were'} missed{through}"
    )


def story(result: RunResult, topology: Topology, readings: Readings) -> str:
    """Describe what was done, for readers who do not know the workloads' names."""
    clock = "simulated time" if result.clock == "virtual" else "real time"
    networks = len({switch.plane for switch in topology.switches})
    switches = _many(len(topology.switches) // networks, "switch", "switches")
    planes = "one network" if networks == 1 else f"{networks} parallel networks (planes)"
    happened = readings.failures
    done = f"{_many(happened, 'failure')} {'was' if happened == 1 else 'were'} caused on purpose" if happened else ""
    return (
        f"{_many(len(result.ranks), 'host')} ran the workload {words(result.workload)} "
        f"for {result.seconds:.1f} s ({clock}) over {planes} of {switches} each; {done or 'nothing was broken'}."
    )


def figures(result: RunResult, topology: Topology, readings: Readings, verdict: Verdict) -> list[KeyFigure]:
    """Return the six figures."""
    achieved = result.achieved()
    right, wrong = achieved.bytes_verified, achieved.mismatches
    # Of collectives only results are known beforehand, and partial ones arrive as well.
    arrived = f"of {result.delivered_bytes() / 1e6:.1f} MB that arrived"
    errors = f"{wrong} wrong; {arrived}" if right or wrong else f"none was; {arrived}"
    checked = KeyFigure(f"{right / 1e6:.1f} MB", "data checked byte by byte", errors)
    if result.fidelity.length_only:
        checked = KeyFigure("none", "data checked byte by byte", payloads.NOT_VERIFIED)
    share = goodput_share(result, topology, readings)
    judged = [each for each in verdict.recoveries if each.breaks]
    totals = readings.totals
    lost, spurious = totals["retransmissions"], totals["spurious_retransmissions"]
    return [
        KeyFigure(format_rate(readings.mean_bps), "goodput, on average", f"{share:.0%} of what the hosts' links carry"),
        checked,
        KeyFigure(str(readings.failures), "failures caused", _lowest([each.low for each in judged])),
        KeyFigure(*_slowest([each.recovery_s for each in judged]), "until goodput was 95 % of what the rest can carry"),
        KeyFigure(str(achieved.qp_errors), "connections lost", f"of {achieved.qps} queue pairs"),
        KeyFigure(str(lost), "packets sent again", f"to repair losses; {spurious} of them had arrived after all"),
    ]


def _lowest(dips: list[float]) -> str:
    return (
        f"goodput fell to {shown(min(dips), Unit.SHARE, 2)} of what the rest can carry, at the lowest"
        if dips
        else "no dip to be measured"
    )


def _slowest(times: list[float | None]) -> tuple[str, str]:
    if not times:
        return "-", "recovery"
    if None in times:
        return "never", "slowest recovery"
    return duration_text(max(each for each in times if each is not None)), "slowest recovery"


def _many(count: int, one: str, several: str = "") -> str:
    return f"{count} {one if count == 1 else several or one + 's'}"


FOLDER = pathlib.Path(__file__).parent / "templates"


@dataclass(frozen=True)
class Report:
    """The contents of a report.

    `doubts`: why the figures are not to be trusted; None where they are. `notes`: what `up` warns of. `measured`: the
    workload's measurements. `marks`: the failures. `lab`: its picture, as SVG.
    """

    title: str
    doubts: Sequence[str] | None
    notes: Sequence[str]
    charts: RunCharts
    top: Top
    moments: Moments
    measured: Sequence[Table]
    sections: Sections
    marks: Sequence[Mark]
    lab: str


def view_of(result: RunResult, topology: Topology, verdict: Verdict, title: str) -> Report:
    """Return what the report of a run's result shows."""
    readings = result.readings()
    marks = milestones.marks_of(result, readings)
    roce = any(isinstance(each, RoceHostStatistics) for each in result.statistics.values())
    followed = [each.cells for each in milestones.milestones_of(result, readings, verdict.recoveries)]
    return Report(
        title=title,
        doubts=None if verdict.valid else verdict.reasons,
        notes=describe.warnings(topology, result.clock, "roce" if roce else "mrc"),
        measured=[*tenants.tables(result), *performance.tables(result), *reordering.tables(result)],
        charts=charts.charts_of(result, topology, readings, verdict.recoveries, marks),
        top=top_of(result, topology, readings, verdict),
        moments=moments.moments_of(result, topology, readings, verdict.recoveries),
        sections=sections_of(result, topology, readings, verdict, followed),
        marks=marks,
        lab=draw.to_svg(topology),
    )


def render(result: RunResult, topology: Topology, verdict: Verdict, title: str) -> str:
    """Return the report of a run's result as HTML."""
    view = view_of(result, topology, verdict, title)
    percents = [0, *(round(100 * level) for level in moments.LEVELS), 100]
    body = look.fill(
        FOLDER,
        "report.html",
        report=view,
        chart=chart.html,
        data=look.data,
        loads=list(itertools.pairwise(percents)),
    )
    rules, code = ((FOLDER / f"moments.{kind}").read_text(encoding="utf-8") for kind in ("css", "js"))
    return chart.page(title, body, rules, code)
