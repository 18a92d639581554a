"""One run of a figure: made in simulated time, and reduced to plain data."""

from __future__ import annotations

import itertools
import json
import math
import pathlib
from collections.abc import Callable
from typing import Any

import numpy as np

from mrc_lab.faults.action import Action
from mrc_lab.session.base import Session, closing
from mrc_lab.session.virtual import VirtualSession
from mrc_results import analysis, evidence, performance
from mrc_results.record import RunResult
from mrc_results.recording import Recording
from mrc_runs import execute, sources
from mrc_runs.compare import seconds_per_iteration
from mrc_runs.experiment import Experiment
from mrc_runs.ideal import payload_share
from mrc_studies.figures.model import Cell
from mrc_topo import addressing
from mrc_topo.labfile import parse_lab
from mrc_topo.paths import Paths
from mrc_topo.topology import Topology

BIN_S = 0.05
#: Goodput is missing when it is below this share of what the capacity that is left allows.
GLITCH = 0.85
#: What is done within this time is one step.
TOGETHER_S = 0.02
#: After a step goodput counts as settled.
SETTLED_S = 0.15


def software() -> str:
    """Stands for all programs that a figure depends on."""
    return sources.software(pathlib.Path(__file__))


def prepare(cell: Cell) -> tuple[Topology, Experiment]:
    """Lab and experiment of a cell, checked.

    Raises:
        LabError, ExperimentError, ValidationError: they cannot be.
    """
    topology = parse_lab(json.dumps(cell.lab), f"lab of {cell.name}")  # JSON is YAML
    experiment = Experiment.model_validate({"name": "figure", "title": cell.name, **cell.experiment})
    execute.check(experiment, topology)
    return topology, experiment


def measure(cell: Cell, look: Callable[[VirtualSession], object] | None = None) -> dict[str, Any]:
    """Runs a cell; all of what is returned is the same for the same inputs. `look` is called after every step of time.

    `evidence`: checks (`mrc_results.check.Check`); `failures`; `series`: `[t_s, goodput_bps, capacity share]`;
    `segments`: what each step of the schedule left (`_segments`); `streams`, `latency`, `iterations`: as
    `results.performance.of`; `iteration_s`: seconds of one iteration over all ranks, None if it failed; `totals`;
    `qp_errors`; `qps` and `qps_hit`: queue pairs that sent, and those of them that took an EV for bad across the
    first broken element, the last of these `found_s` after it broke; `evs`: levels of EVs by state over time;
    `queues`: `_queues`; `host_bps`: capacity of a host; `watched`: `[t_s, bps]` by host (payload placed) or port
    (sent) of `Cell.watch`; `payload_share`: of all that the links of a host carry that sends as much as it receives
    (`ideal.payload_share`), None without such streams.
    """
    topology, experiment = prepare(cell)
    links = [link.name for link in topology.links.values() if not link.is_host_link]
    session = VirtualSession(topology, experiment.transport)
    with closing(session), Recording() as recording:
        if cell.impair and cell.broken:
            for link in links:
                session.failures.perform(session, Action("fail", link, "impair", settings=dict(cell.impair)))
        before = _lost(session)
        runs = experiment if cell.broken else experiment.model_copy(update={"schedule": []})

        def observe(_: object) -> None:
            if look is not None:
                look(session)

        result = execute.run_on(session, runs, observe, recording)
        lost = _lost(session) - before
        found = [
            {"what": each.what, "expected": each.expected, "measured": each.measured, "passed": bool(each.passed)}
            for each in evidence.findings(result, topology, experiment.claims())
        ]
        if cell.impair:
            passed = lost >= max(cell.lost, 1)
            wanted = f"at least {max(cell.lost, 1)}"
            text = f"evidence of {', '.join(f'{key} {value}' for key, value in cell.impair.items())} on all links"
            found.append({"what": f"{text}: packets lost", "expected": wanted, "measured": str(lost), "passed": passed})
        seconds = seconds_per_iteration(result)
        progress = result.progress.values()
        wrong = [f"{each.mismatches} blocks are wrong" for each in progress if each.mismatches]
        return {
            "evidence": found,
            "failures": [*result.failures, *wrong],
            "series": _series(result),
            "segments": _segments(result, experiment.workload.duration or math.inf),
            "streams": [],
            "latency": [],
            "iterations": [],
            **{{"bandwidth": "streams"}.get(key, key): rows for key, rows in performance.of(result).document().items()},
            "iteration_s": seconds if math.isfinite(seconds) else None,
            "totals": analysis.totals(result),
            "lost": lost,
            "qp_errors": sum(each.qps - each.qps_in_rts for each in progress),
            **_queue_pairs(result, topology),
            "evs": _ev_levels(result),
            "queues": _queues(result),
            "host_bps": topology.lab.host_rate_bps,
            "watched": {name: _watched(result, name) for name in cell.watch},
            "payload_share": _payload_share(topology, experiment),
        }


def _watched(result: RunResult, name: str) -> list[list[float]]:
    if ":" not in name:
        edges = analysis.grid(result, BIN_S)
        rates = 8 * analysis.rates(result, name, "delivered_bytes", edges)
        return [[round(float(t), 3), round(float(y))] for t, y in zip(edges, rates, strict=False)]
    times, sent = result.fabric.take(["t_ns", f"ports.{name}.tx_bytes"])
    spans = np.maximum(np.diff(times), 1)
    start = result.started_ns
    return [
        [round((t - start) / 1e9, 3), round(float(y))] for t, y in zip(times, 8e9 * np.diff(sent) / spans, strict=False)
    ]


def _payload_share(topology: Topology, experiment: Experiment) -> float | None:
    size = experiment.workload.params.get("message_bytes")
    if experiment.workload.name not in ("permutation", "send_recv") or not size:
        return None
    return payload_share(topology, experiment.transport, experiment.workload.qps_per_peer, int(size))


def _lost(session: Session) -> int:
    """Packets that failures have taken on links between switches so far."""
    hosts = {f"{port.t0}:{port.t0_port}" for host in session.topology.hosts for port in host.ports}
    ports = session.fabric_sample()["ports"]
    return sum(int(values["lost"]) for port, values in ports.items() if port not in hosts)


def _steps(result: RunResult) -> list[tuple[float, float, str]]:
    """Time, share of capacity left and text of all that happened together."""
    start = result.started_ns
    steps: list[tuple[float, float, str]] = []
    for each in result.happenings:
        time, left, text = (each.done_ns - start) / 1e9, 1.0 - each.expected_loss, each.action.describe()
        if steps and time - steps[-1][0] < TOGETHER_S:
            time, _, texts = steps.pop()
            text = f"{texts}; {text}"
        steps.append((time, left, text))
    return steps


def _series(result: RunResult) -> list[list[float]]:
    edges = analysis.grid(result, BIN_S)
    rates = analysis.goodput_bps(result, edges)
    left = np.ones(len(rates))
    for time, share, _ in _steps(result):
        left[edges[:-1] >= time - 1e-9] = share
    return [[round(float(t), 3), round(float(y)), float(s)] for t, y, s in zip(edges, rates, left, strict=False)]


def _segments(result: RunResult, lasts: float) -> list[dict[str, Any]]:
    """Of each step of the schedule, against what was before the first: `at_s`, `until_s`, `what`, `left` (share of the
    capacity), `settled` (share of goodput after `SETTLED_S`), `mean`, `lowest`, and `glitch_s`, how long goodput was
    below `GLITCH` of what is left. The last ends where the workload begins to (after `lasts` seconds)."""
    steps = _steps(result)
    edges = analysis.grid(result, BIN_S)
    rates = analysis.goodput_bps(result, edges)
    if not steps:
        return []
    baseline = analysis.window_mean(rates, edges, steps[0][0] / 2, steps[0][0])
    ends = [*(time for time, _, _ in steps[1:]), min(float(edges[-1]), lasts)]
    found = []
    for (begin, left, text), end in zip(steps, ends, strict=True):
        inside = (edges[:-1] >= begin - 1e-9) & (edges[1:] <= end + 1e-9)
        shares = rates[inside] / baseline if baseline else np.zeros(int(inside.sum()))
        half = shares[round(SETTLED_S / BIN_S) :]
        runs = [len(list(group)) for low, group in itertools.groupby(shares < GLITCH * left) if low]
        found.append(
            {
                "at_s": begin,
                "until_s": end,
                "what": text,
                "left": left,
                "settled": float(half.mean()) if len(half) else 0.0,
                "mean": float(shares.mean()) if len(shares) else 0.0,
                "lowest": float(shares.min()) if len(shares) else 0.0,
                "glitch_s": max(runs, default=0) * BIN_S,
            }
        )
    return found


def _queue_pairs(result: RunResult, topology: Topology) -> dict[str, Any]:
    """Queue pairs that sent, and how many of them took an EV for bad that crosses the first element that was broken."""
    sent = {key: qp.peer for key, qp in result.queue_pairs().items() if qp.requestor.get("packets_sent")}
    broken = [each.action.target for each in result.happenings if each.fails]
    hit = set()
    last = 0.0
    if broken:
        begin = next(each.done_ns for each in result.happenings if each.fails)
        element, paths = topology.element(broken[0]), Paths(topology)
        indices = {addressing.text(host.address): host.index for host in topology.hosts}
        for host, event in result.bad_evs():
            key = (host, event.qpn)
            peer = indices.get(sent.get(key) or "")
            if peer is not None and paths.may_cross(element, topology.host(host).index, peer, event.ev):
                hit.add(key)
                last = max(last, (event.t_ns - begin) / 1e9)
    return {"qps": len(sent), "qps_hit": len(hit), "found_s": last}


def _queues(result: RunResult) -> list[list[float]]:
    """`[t_s, bytes in the longest data queue of the fabric, pause frames sent until then]`."""
    fabric = result.fabric
    depths = [name for name in fabric.columns if name.endswith(".depth_bytes")]
    pauses = [name for name in fabric.columns if name.endswith(".pauses_sent")]
    times, *rows = fabric.take(["t_ns", *depths, *pauses])
    longest = np.max(rows[: len(depths)], axis=0) if depths else np.zeros(len(times))
    sent = np.sum(rows[len(depths) :], axis=0) if pauses else np.zeros(len(times))
    start = result.started_ns
    return [[round((t - start) / 1e9, 3), float(q), float(n)] for t, q, n in zip(times, longest, sent, strict=True)]


def _ev_levels(result: RunResult) -> list[list[float]]:
    """`[t_s, EVs that are GOOD, EVs that are ASSUMED_BAD]` over all hosts."""
    edges = analysis.grid(result, BIN_S)
    good, bad = (analysis.levels(result, result.ranks, "ev", state, edges) for state in ("GOOD", "ASSUMED_BAD"))
    return [[round(float(t), 3), float(g), float(b)] for t, g, b in zip(edges, good, bad, strict=True)]
