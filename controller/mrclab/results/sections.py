"""The tables of a report, as values: what was run, the verdict, every failure, every host, and how late these were."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter

from mrc_host.answers import LagSummary, Software
from mrc_topo.base import quantiles
from mrc_topo.topology import Topology
from mrc_topo.units import format_rate, format_time
from mrclab.lab import describe, payloads
from mrclab.lab.session.fidelity import Fidelity, MachineFidelity
from mrclab.results.analysis import Recovery
from mrclab.results.check import Check, Verdict
from mrclab.results.losses import EXPLAINED, losses_of
from mrclab.results.record import Readings, RunResult
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
    """How late the processes of a run were, and the clocks of its machines; no table of a simulation."""

    lateness: Grid | None
    machines: Grid | None
    software: str


@dataclass(frozen=True)
class Sections:
    """The tables of a report; `recoveries` is None where no failure was measured. `lost` explains its two counts of
    lost packets, and is empty where both are 0."""

    run: Grid
    checks: Grid
    recoveries: Grid | None
    hosts: Grid
    trust: Trust
    lost: str


def sections_of(result: RunResult, topology: Topology, readings: Readings, verdict: Verdict) -> Sections:
    """Return the tables of a report."""
    return Sections(
        _run(result, topology, readings, verdict),
        Grid(["check", "expected", "measured", ""], [_check(each, verdict) for each in verdict.checks]),
        _recoveries(verdict) if verdict.recoveries else None,
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
        ["workload", f"{result.workload} {result.params} on {len(result.ranks)} hosts"],
        ["clock", f"{result.clock}{simulated}, {result.seconds:.1f} s, seed {result.seed}"],
        ["base RTT, ACK timeout", f"{format_time(describe.base_rtt_ns(topology, result.clock))}, "
                                  f"{format_time(describe.ack_timeout_ns(topology))}"],
        ["retransmissions, of them spurious", f"{totals['retransmissions']}, {totals['spurious_retransmissions']}"],
        ["packets dropped in the fabric by failures; taken for lost by hosts", f"{lost.dropped}; {lost.taken}"],
        ["trims, marks, timeouts", ", ".join(str(totals[key]) for key in ("trims", "marks", "timeouts"))],
    ]  # fmt: skip
    if result.fidelity.length_only:
        rows.insert(1, ["payload", Coloured(payloads.NOT_VERIFIED, "doubt")])
    return Grid(["", ""], rows)


def _check(check: Check, verdict: Verdict) -> list[str | Coloured]:
    if check.passed:
        mark = Coloured("good", "good")
    elif check.timed and not verdict.valid:
        mark = Coloured("not valid", "doubt")
    else:
        mark = Coloured("missed", "bad")
    return [check.what, check.expected, check.measured, mark]


def recovery_cells(recovery: Recovery) -> list[str]:
    """Return a recovery as text: time, action, goodput before, shares (left, lowest, settled), and how long it took."""
    return [
        f"{recovery.at_s:.2f} s",
        recovery.text,
        format_rate(recovery.before_bps),
        f"{recovery.left:.1%}",
        recovery.lowest,
        f"{recovery.after:.1%}",
        recovery.took,
    ]


def _recoveries(verdict: Verdict) -> Grid:
    heads = [
        "at",
        "what",
        "goodput before",
        "capacity left",
        "lowest",
        "settled at",
        "back to 95 % of that after (in bins of 100 ms)",
    ]
    return Grid(heads, [recovery_cells(each) for each in verdict.recoveries])


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
