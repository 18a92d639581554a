"""Checks of a switch's queues: ECN marks and trimming, seen packet by packet.

How full a data queue was when a packet came follows from the captures alone: what came before it and had not begun to
leave. So the program under test is not asked.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from mrc_topo import rules
from mrc_topo.base.document import Model
from mrc_topo.schema import Marks, QueueSpec
from mrc_workshop.job import Run
from mrc_workshop.kinds.registry import Finding, NoParams, kind
from mrc_workshop.trace import CE, ETHERNET, IPV6, CapturedPacket, line

CONTROL = {rules.DSCP_TRIMMED, rules.DSCP_TRIMMED_LASTHOP, rules.DSCP_CONTROL}
NOT_ECT = 0
#: A standard normal variable exceeds this once in 16 000 draws.
Z = 4.0
BINS = 4


@dataclass
class SwitchTransit:
    """A packet through a switch: as it came, as it left (None if it did not), and the bytes that waited in the data
    queue of its port when it came."""

    came: CapturedPacket
    left: CapturedPacket | None
    waiting: int = 0

    @property
    def is_data(self) -> bool:
        """Return whether it came in a class of the data queue."""
        return self.came.dscp not in CONTROL


def transits(run: Run) -> list[SwitchTransit]:
    """Return every packet that came to a switch, in order of time."""
    found: list[SwitchTransit] = []
    open_: dict[tuple[str, bytes], deque[SwitchTransit]] = {}
    for seen in run.packets:
        if not seen.is_ipv6:
            continue
        key = (seen.switch, seen.identity)
        if not seen.out:
            passage = SwitchTransit(seen, None)
            found.append(passage)
            open_.setdefault(key, deque()).append(passage)
        elif open_.get(key):
            open_[key].popleft().left = seen
    queues: dict[tuple[str, int], deque[SwitchTransit]] = {}
    for passage in found:
        if passage.left is None:
            continue
        queue = queues.setdefault((passage.came.switch, passage.left.port), deque())
        while queue and queue[0].left is not None and queue[0].left.t_ns <= passage.came.t_ns:
            queue.popleft()
        passage.waiting = sum(each.came.length for each in queue)
        # Trimmed packets go to the control queue.
        if passage.is_data and passage.left.dscp not in CONTROL:
            queue.append(passage)
    return found


def _queue_of(run: Run, seen: CapturedPacket) -> QueueSpec:
    return run.topology.switch(seen.switch).links[seen.port].queue


def _marks_of(run: Run, seen: CapturedPacket) -> Marks | None:
    return run.topology.switch(seen.switch).links[seen.port].marks


def _is_last_hop(run: Run, seen: CapturedPacket) -> bool:
    return run.topology.switch(seen.switch).links[seen.port].is_host_link


class EcnMarks(Model):
    """`least`: how many packets must have found the queue between the thresholds for the test to mean anything."""

    least: Annotated[int, Field(ge=1)] = 50


@kind(EcnMarks)
def ecn_marks(params: EcnMarks, runs: Sequence[Run]) -> Finding:
    """Packets are marked with the probability that rises from 0 at kmin to 1 at kmax, and never towards a host."""
    between = marks = 0
    for run in runs:
        candidates: list[tuple[SwitchTransit, float]] = []
        fullest: SwitchTransit | None = None
        for each in transits(run):
            if each.left is None:
                continue
            wrong = _never(run, each)
            if wrong:
                return _shown(run, wrong, [each])
            ecn = _marks_of(run, each.left)
            if not each.is_data or each.came.ecn == NOT_ECT or ecn is None or _is_last_hop(run, each.left):
                continue
            if each.came.ecn == CE or each.left.dscp in CONTROL:
                continue  # The packet was marked before, or trimmed, so the switch drew nothing.
            if fullest is None or each.waiting > fullest.waiting:
                fullest = each
            candidates.append((each, min(max((each.waiting - ecn.kmin) / (ecn.kmax - ecn.kmin), 0.0), 1.0)))
        finding = _distribution(run, candidates, fullest)
        if finding is not None:
            return finding
        between += sum(0 < p < 1 for _, p in candidates)
        marks += sum(each.left is not None and each.left.ecn == CE for each, _ in candidates)
    if between < params.least:
        return Finding(
            False, f"{between} packets between kmin and kmax", "too few packets found the queue there to judge"
        )
    return Finding(True, f"{marks} marks; {between} packets found the queue between kmin and kmax")


def _never(run: Run, each: SwitchTransit) -> str:
    """Return what is wrong with a packet at any length of the queue; empty if nothing is."""
    came, left = each.came, each.left
    assert left is not None
    if came.inner_at > ETHERNET and left.data[left.inner_at + 1 :][:1] != came.data[came.inner_at + 1 :][:1]:
        return (
            f"{came.switch} changed the inner header: the mark belongs into the outer one, which the receiver looks at"
        )
    if left.ecn == came.ecn:
        return ""
    if came.ecn == NOT_ECT:
        return (
            f"{came.switch} set ECN of a packet that is not ECT (its sender does not know ECN): such are never marked"
        )
    if left.ecn != CE:
        return f"{came.switch} set ECN to {left.ecn}; congestion experienced (CE) is {CE}"
    if _is_last_hop(run, left):
        return (
            f"{came.switch} marked a packet on port {left.port}, which leads to a host: queueing there is incast, and "
            "no other path would help (mark_min of such a port is all ones)"
        )
    return ""


def _shown(
    run: Run, mistake: str, shown: Sequence[SwitchTransit], more: Sequence[str] = (), measured: str = ""
) -> Finding:
    packets = [seen for each in shown for seen in (each.came, each.left) if seen is not None]
    lines = [line(run.topology, seen) for seen in packets]
    waits = [
        f"{each.waiting} bytes waited in its data queue when it came" for each in shown[:1] if each.left is not None
    ]
    return Finding(False, measured, mistake, (*more, *lines[:4], *waits), tuple(packets), run)


def _distribution(
    run: Run, candidates: list[tuple[SwitchTransit, float]], fullest: SwitchTransit | None
) -> Finding | None:
    """Return the finding that the marks cannot be draws with these probabilities; None if they can."""
    if fullest is None:
        return Finding(False, "no data", "no data packet went through a port that marks", run=run)
    marked = [(each, p) for each, p in candidates if each.left is not None and each.left.ecn == CE]
    expected = sum(p for _, p in candidates)
    packet = max(each.came.length for each, _ in candidates)
    measured = f"{len(marked)} marks where {expected:.0f} are expected"
    assert fullest.left is not None
    ecn = _marks_of(run, fullest.left)
    assert ecn is not None
    bounds = f"kmin {ecn.kmin}, kmax {ecn.kmax}"
    if not marked and expected > Z:
        text = f"no packet was marked, though up to {fullest.waiting} bytes waited ({bounds}): the queue only grows"
        return _shown(run, text, [fullest], _occupancy(candidates), measured)
    low = next((each for each, p in marked if p == 0 and each.waiting + packet < ecn.kmin), None)
    if low is not None:
        return _shown(
            run,
            f"a packet was marked that found {low.waiting} bytes waiting, below kmin ({bounds})",
            [low],
            (),
            measured,
        )
    high = [each for each, p in candidates if p == 1 and each.waiting > ecn.kmax + packet and each.left is not None]
    missed = next((each for each in high if each.left is not None and each.left.ecn != CE), None)
    inside = [(each, p) for each, p in candidates if 0 < p < 1]
    seen = sum(each.left is not None and each.left.ecn == CE for each, _ in inside)
    shares = [_share(part) for part in _bins(inside)]
    if len(shares) > 1 and shares[0] > shares[-1] + 0.25:
        text = f"the more waits, the fewer packets are marked ({bounds}): the probability must rise, not fall"
        return _shown(run, text, [inside[0][0]], _occupancy(candidates), measured)
    if missed is not None and seen:
        text = f"a packet was not marked that found {missed.waiting} bytes waiting, above kmax ({bounds})"
        return _shown(run, text, [missed], _occupancy(candidates), measured)
    z = _z(inside)
    worst = max((_z(part) for part in _bins(inside)), key=abs, default=0.0)
    if abs(z) <= Z and abs(worst) <= Z:
        return None
    if inside and seen >= 0.98 * len(inside):
        text = f"every packet above kmin is marked ({bounds}); between them the probability rises from 0 to 1"
    elif seen <= 0.02 * len(inside):
        text = f"no packet between kmin and kmax is marked ({bounds}); there the probability rises from 0 to 1"
    else:
        many = "too many" if (z if abs(z) > Z else worst) > 0 else "too few"
        wanted = sum(p for _, p in inside)
        text = (
            f"{many} marks between kmin and kmax ({bounds}): {seen} of {len(inside)}, where (waiting - kmin) / "
            f"(kmax - kmin) gives {wanted:.0f}"
        )
    example = next((each for each, p in inside if 0.3 < p < 0.7), inside[0][0] if inside else fullest)
    return _shown(run, text, [example], _occupancy(candidates), measured)


def _share(part: Sequence[tuple[SwitchTransit, float]]) -> float:
    """Return the fraction of the packets that were marked."""
    return sum(each.left is not None and each.left.ecn == CE for each, _ in part) / len(part)


def _z(part: Sequence[tuple[SwitchTransit, float]]) -> float:
    """Return how many standard deviations the number of marks is from what independent draws give."""
    seen = sum(each.left is not None and each.left.ecn == CE for each, _ in part)
    variance = sum(p * (1 - p) for _, p in part)
    # The slack is half a mark for continuity, and a share for packets of unknown order that arrive at the same instant.
    difference = seen - sum(p for _, p in part)
    slack = 0.5 + 0.05 * len(part)
    return math.copysign(max(abs(difference) - slack, 0.0), difference) / math.sqrt(max(variance, 0.25))


def _bins(inside: Sequence[tuple[SwitchTransit, float]]) -> list[list[tuple[SwitchTransit, float]]]:
    parts: list[list[tuple[SwitchTransit, float]]] = [[] for _ in range(BINS)]
    for each, p in inside:
        parts[min(int(p * BINS), BINS - 1)].append((each, p))
    return [part for part in parts if len(part) >= 20]


def _occupancy(candidates: Sequence[tuple[SwitchTransit, float]]) -> list[str]:
    """Return a small table: marks by queue occupancy."""
    rows = ["waiting (share of kmin to kmax)    packets  marked  expected"]
    parts: dict[str, list[tuple[SwitchTransit, float]]] = {}
    for each, p in candidates:
        name = "below kmin" if p == 0 else "kmax and above" if p == 1 else f"{int(p * BINS) / BINS:.2f} and above"
        parts.setdefault(name, []).append((each, p))
    order = ["below kmin", *(f"{i / BINS:.2f} and above" for i in range(BINS)), "kmax and above"]
    for name in order:
        part = parts.get(name, [])
        seen = sum(each.left is not None and each.left.ecn == CE for each, _ in part)
        rows.append(f"{name:<34} {len(part):7d} {seen:7d} {sum(p for _, p in part):9.1f}")
    return rows


@kind(NoParams)
def trims(params: NoParams, runs: Sequence[Run]) -> Finding:
    """Check that a write that meets a long queue is trimmed behind its RETH, marked so, and sent first."""
    cut = 0
    for run in runs:
        every = transits(run)
        departures: dict[tuple[str, int], list[SwitchTransit]] = {}
        for each in every:
            if each.left is not None and each.is_data and each.left.length == each.came.length:
                departures.setdefault((each.came.switch, each.left.port), []).append(each)
        lost = next((each for each in every if each.left is None and each.came.is_write and each.is_data), None)
        some = any(each.left is not None and each.left.length < each.came.length for each in every)
        if lost is not None and not some:
            return _dropped(run, lost, every, cut)
        for each in every:
            if each.left is None:
                continue
            wrong = _cut_wrongly(run, each, departures)
            if wrong:
                return _shown(run, wrong, [each], measured=f"{cut} trimmed")
            cut += each.left.length < each.came.length
        if lost is not None:
            return _dropped(run, lost, every, cut)
    if not cut:
        return Finding(False, "0 trimmed", "nothing was trimmed, and nothing lost: the queues are never full")
    return Finding(True, f"{cut} trimmed headers, each behind its RETH and before the data")


def _dropped(run: Run, lost: SwitchTransit, every: Sequence[SwitchTransit], cut: int) -> Finding:
    text = (
        f"{lost.came.switch} dropped a write without a word: its sender hears nothing, and must guess. Where more than "
        "the trim threshold waits, cut it and send its headers"
    )
    count = sum(each.left is None and each.came.is_write and each.is_data for each in every)
    return _shown(run, text, [lost], measured=f"{cut} trimmed, {count} writes dropped")


def _cut_wrongly(run: Run, each: SwitchTransit, departures: dict[tuple[str, int], list[SwitchTransit]]) -> str:
    """Return what is wrong with how a packet was trimmed or not trimmed; empty if nothing is."""
    came, left = each.came, each.left
    assert left is not None
    if left.length >= came.length:
        if left.dscp != came.dscp:
            return f"{came.switch} changed DSCP {came.dscp} to {left.dscp} of a packet that it did not cut"
        trim = _queue_of(run, left).trim
        if trim is not None and each.is_data and came.is_write and each.waiting > trim.threshold + came.length:
            threshold = trim.threshold
            return f"{came.switch} queued a whole packet behind {each.waiting} bytes; the trim threshold is {threshold}"
        return ""
    if not each.is_data:
        return f"{came.switch} cut a packet of the control class (DSCP {came.dscp}), which is never trimmed"
    if not came.is_write:
        return (
            f"{came.switch} cut a packet that is not a write: only headers of a write tell the receiver what is missing"
        )
    bth = came.bth_at
    assert bth is not None
    has_timestamp = came.data[bth + 8] >> 4 & 1
    kept = bth + 12 + 4 + 4 * has_timestamp + 16
    if left.length != kept:
        why = "the TSETH of 4 bytes was forgotten" if left.length == kept - 4 else "count all headers up to the RETH"
        return f"{came.switch} kept {left.length} bytes of a packet whose RETH ends at byte {kept}: {why}"
    wanted = rules.DSCP_TRIMMED_LASTHOP if _is_last_hop(run, left) else rules.DSCP_TRIMMED
    if left.dscp != wanted:
        where = "on the port to the receiver" if _is_last_hop(run, left) else "on a port that is not the last"
        return f"{came.switch} sent trimmed headers with DSCP {left.dscp} {where}; it must be {wanted} (trim_dscp)"
    if left.payload_length != kept - ETHERNET - IPV6:
        return (
            f"{came.switch} cut a packet and left payload length {left.payload_length} in its outer header; what is "
            f"really there is {kept - ETHERNET - IPV6}"
        )
    if left.inner != came.inner[: len(left.inner)]:
        return f"{came.switch} changed the inner headers of a packet that it cut: they keep the original lengths"
    overtaken = [
        other
        for other in departures.get((came.switch, left.port), ())
        if other is not each and other.left is not None and came.t_ns < other.left.t_ns < left.t_ns
    ]
    if len(overtaken) > 1:
        return (
            f"trimmed headers waited at {came.switch} while {len(overtaken)} data packets left: they belong into the "
            "control queue (trim_priority), or their news comes too late"
        )
    return ""
