"""Checks of what a learner's own loss detector, EV policy, window and localiser did to packets."""

from __future__ import annotations

import struct
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Annotated

from pydantic import Field

from mrc_host.answers import EvEvent, MrcHostStatistics
from mrc_host.policy import EvInput
from mrc_host.proto.events import EvState
from mrc_topo.base.document import Model
from mrc_topo.paths import Paths
from mrc_topo.units import format_rate
from mrc_workshop.job import Run
from mrc_workshop.kinds.registry import Finding, NoParams, kind
from mrc_workshop.trace import BTH, IPV6, CapturedPacket, line
from mrclab.results import performance

MS = 1_000_000
#: The names of states in events of EVs.
BAD, GOOD = EvState.ASSUMED_BAD.name, EvState.GOOD.name
SHOWN = 6
#: A queue pair that used fewer EVs of a plane sent too little to show whether they were replaced.
FEW_EVS = 8
Share = Annotated[float, Field(ge=0)]
#: A bit in the BTH, beside the PSN.
RTX = 0x20


@dataclass
class Flight:
    """One transmission of a write: where it entered the fabric, and whether it left it at the right host."""

    seen: CapturedPacket
    ev: int
    again: bool
    delivered: CapturedPacket | None = None
    later: list[Flight] = field(default_factory=list)

    @property
    def psn(self) -> int:
        """The PSN in the BTH."""
        return self.seen.psn or 0


def _ev(seen: CapturedPacket) -> int:
    at = seen.inner_at
    label = struct.unpack_from("!I", seen.data, at)[0] & 0xFFFF
    return int(label << 16 | struct.unpack_from("!H", seen.data, at + IPV6)[0])


def _pair(seen: CapturedPacket) -> bytes:
    """Return addresses and destination QP."""
    at, bth = seen.inner_at, seen.bth_at or 0
    return seen.data[at + 8 : at + 40] + seen.data[bth + 5 : bth + 8]


def flights(run: Run) -> Iterator[list[Flight]]:
    """Yield all transmissions of writes, a list for each queue pair, in the order in which they entered the fabric."""
    host_ports = {(s.name, p) for s in run.topology.switches for p, link in s.links.items() if link.is_host_link}
    found: dict[bytes, list[Flight]] = defaultdict(list)
    waiting: dict[tuple[bytes, int, int], list[Flight]] = defaultdict(list)
    for seen in run.packets:
        if (seen.switch, seen.port) not in host_ports or not seen.is_write or seen.bth_at is None:
            continue
        if len(seen.data) < seen.bth_at + BTH:
            continue
        pair, ev = _pair(seen), _ev(seen)
        key = (pair, seen.psn or 0, ev)
        if not seen.out:
            flight = Flight(seen, ev, bool(seen.data[seen.bth_at + 8] & RTX))
            found[pair].append(flight)
            waiting[key].append(flight)
        elif waiting[key]:
            waiting[key].pop(0).delivered = seen
    yield from found.values()


# --- loss detection --------------------------------------------------------------------------------------------------


@kind(NoParams)
def no_spurious(params: NoParams, runs: Sequence[Run]) -> Finding:
    """No packet is sent again that was only overtaken: what arrives, arrives from its first transmission."""
    again, count = 0, 0
    for run in runs:
        worst: Finding | None = None
        number = 0
        for qp in flights(run):
            for flight in qp:
                count += 1
                if flight.again:
                    again += 1
                    if (first := _needless_retransmission(qp, flight)) is not None:
                        number += 1
                        worst = worst or _overtaken(run, qp, first, flight)
        if worst is not None:
            mistake = f"{number} packets were {worst.mistake}"
            return Finding(False, f"{number} needless repetitions", mistake, worst.evidence, worst.packets, run)
    return Finding(True, f"{again} of {count} packets sent again, none needlessly")


def _needless_retransmission(qp: Sequence[Flight], again: Flight) -> Flight | None:
    """Return the earlier transmission of the same PSN if it arrived."""
    earlier = [each for each in qp if each.psn == again.psn and each.seen.t_ns < again.seen.t_ns]
    return next((each for each in earlier if each.delivered is not None), None)


def _overtaken(run: Run, qp: Sequence[Flight], first: Flight, again: Flight) -> Finding:
    sent, repeated = first.seen.t_ns, again.seen.t_ns
    before = [
        each
        for each in qp
        if each.delivered is not None and each.delivered.t_ns < repeated and each.seen.t_ns > sent and each is not again
    ]
    same = [each for each in before if each.ev == first.ev]
    where = "all of them on other EVs: other paths prove nothing" if not same else f"{len(same)} of them on its EV"
    if not before:
        where = "it was only given up too early"
    assert first.delivered is not None
    mistake = (
        f"sent again although they were only overtaken: PSN {first.psn} left on EV {first.ev:08x} at {sent / MS:.3f} "
        f"ms, arrived at {first.delivered.t_ns / MS:.3f} ms, and was sent again at {repeated / MS:.3f} ms, when "
        f"{len(before)} packets that left later had arrived, {where}"
    )
    packets = [first.seen, *(each.delivered for each in before[:2] if each.delivered), again.seen, first.delivered]
    packets.sort(key=lambda seen: seen.t_ns)
    evidence = [line(run.topology, seen) for seen in packets[:SHOWN]]
    return Finding(False, "", mistake, tuple(evidence), tuple(packets), run)


# --- states of EVs ---------------------------------------------------------------------------------------------------


class DeadPath(Model):
    """`element`: the element that fails once and is restored. At most `at_most` writes may be lost on it later than
    `grace_ms` after the failure; its EVs must be in use again `back_ms` after it was restored. `evs_at_least`: how many
    EVs each plane must use meanwhile, as a share of those used before."""

    element: str
    grace_ms: Annotated[int, Field(ge=0)] = 20
    back_ms: Annotated[int, Field(ge=1)] = 100
    at_most: Annotated[int, Field(ge=0)] = 0
    evs_at_least: Share = 0.9


@kind(DeadPath)
def dead_path(params: DeadPath, runs: Sequence[Run]) -> Finding:
    """EVs over a dead element are left, replaced by others of their plane, and used again after it was mended."""
    late_most = 0
    for run in runs:
        found = _dead_path(params, run)
        if not found.passed:
            return found
        late_most = max(late_most, int(found.measured))
    return Finding(True, f"{late_most} packets on dead EVs after {params.grace_ms} ms, all EVs replaced and revived")


def _dead_path(params: DeadPath, run: Run) -> Finding:
    start, times = run.result.started_ns, run.done_ns
    died, mended = times.get("fail", start), times.get("restore", start)
    crossing = _crossing(run, params.element)
    writes = sorted((each for qp in flights(run) for each in qp), key=lambda each: each.seen.t_ns)

    late = [
        each
        for each in writes
        if died + params.grace_ms * MS <= each.seen.t_ns < mended
        and each.delivered is None
        and each.ev in crossing[_pair(each.seen)[:32]]
    ]
    wrong = _given_up_for_congestion(run, crossing) or _restored_without_probe(run, crossing)
    if wrong is not None:
        return wrong
    if len(late) > params.at_most:
        one = late[0]
        mistake = (
            f"{len(late)} packets were sent on EVs over {params.element} later than {params.grace_ms} ms after it had "
            f"died; the first on EV {one.ev:08x}, {(one.seen.t_ns - died) / MS:.1f} ms after its path had died: a "
            "packet that is lost makes its EV ASSUMED_BAD"
        )
        packets = [each.seen for each in late[:SHOWN]]
        evidence = [line(run.topology, each) for each in packets[:3]]
        return Finding(False, f"{len(late)} packets", mistake, tuple(evidence), tuple(packets), run)
    wrong = _not_replaced(params, run, writes, (start, died, mended))
    if wrong is not None:
        return wrong
    still = _never_restored(run, mended + params.back_ms * MS)
    if still is not None:
        host, ev = still
        mistake = (
            f"EV {ev:08x} of {host} is still ASSUMED_BAD {params.back_ms} ms after {params.element} had been mended: "
            "probes that are answered bring an EV back"
        )
        return Finding(False, "not revived", mistake, tuple(_ev_events(run, crossing)), (), run)
    return Finding(True, str(len(late)))


def _crossing(run: Run, element: str) -> defaultdict[bytes, set[int]]:
    """Return the EVs that cross an element, by source and destination address."""
    paths, found = Paths(run.topology), defaultdict[bytes, set[int]](set)
    for source in run.topology.hosts:
        for target in run.topology.hosts:
            if source.index == target.index:
                continue
            for value in (value for plane in paths.profile(source.index, target.index) for value in plane):
                path = paths.path_of_ev(source.index, target.index, value)
                if path is not None and element in path.links:
                    found[source.address + target.address].add(value)
    return found


def _never_restored(run: Run, by_ns: int) -> tuple[str, int] | None:
    """Return host and EV of the first EV that was last set to ASSUMED_BAD before `by_ns`, else None."""
    for host, events in run.events.items():
        state: dict[tuple[int, int], str] = {}
        for event in events:
            if isinstance(event, EvEvent) and event.t_ns < by_ns:
                state[event.qpn, event.ev] = event.new
        for (_, ev), last in state.items():
            if last == BAD:
                return host, ev
    return None


def _given_up_for_congestion(run: Run, crossing: defaultdict[bytes, set[int]]) -> Finding | None:
    signals = (EvInput.SKIP_ONCE.value, EvInput.TRIMMED.value)
    for host, events in run.events.items():
        for event in events:
            if isinstance(event, EvEvent) and event.new == BAD and event.cause in signals:
                mistake = (
                    f"{host} gave up EV {event.ev:08x} because of '{event.cause}': congestion is no "
                    "failure, such an EV is passed over once (SKIP)"
                )
                evidence = tuple(_ev_events(run, crossing))
                return Finding(False, "an EV given up for congestion", mistake, evidence, (), run)
    return None


def _restored_without_probe(run: Run, crossing: defaultdict[bytes, set[int]]) -> Finding | None:
    causes = (EvInput.REVIVED.value, EvInput.REVIVED_SKIP.value, EvInput.ALLOW.value)
    for host, events in run.events.items():
        for event in events:
            if not isinstance(event, EvEvent) or event.old != BAD or event.new not in (GOOD, EvState.SKIP.name):
                continue
            if event.cause not in causes:
                mistake = (
                    f"{host} used EV {event.ev:08x} again without an answered probe ('{event.cause}'): to "
                    "try a path with data loses the data; probes cost nothing"
                )
                evidence = tuple(_ev_events(run, crossing))
                return Finding(False, "an EV back without a probe", mistake, evidence, (), run)
    return None


def _not_replaced(params: DeadPath, run: Run, writes: Sequence[Flight], times: tuple[int, int, int]) -> Finding | None:
    start, died, mended = times
    grace = params.grace_ms * MS
    used: dict[tuple[bytes, int], tuple[set[int], set[int]]] = defaultdict(lambda: (set(), set()))
    for each in writes:
        key = (_pair(each.seen)[:32], each.ev >> 28)
        if start <= each.seen.t_ns < died:
            used[key][0].add(each.ev)
        elif died + grace <= each.seen.t_ns < mended:
            used[key][1].add(each.ev)
    names = {host.address: host.name for host in run.topology.hosts}
    for (pair, plane), (before, after) in used.items():
        if len(before) >= FEW_EVS and len(after) < params.evs_at_least * len(before):
            who = f"{names.get(pair[:16])} to {names.get(pair[16:])}"
            mistake = (
                f"{who} used {len(before)} EVs of plane {plane} before the failure, and {len(after)} while the path "
                "was dead: no backup EV replaced them in the active set, so the load is on fewer paths"
            )
            return Finding(False, f"{len(after)} EVs of {len(before)}", mistake, (), (), run)
    return None


def _ev_events(run: Run, crossing: defaultdict[bytes, set[int]]) -> list[str]:
    dead = set().union(*crossing.values()) if crossing else set()
    rows = [
        (event.t_ns, host, event)
        for host, events in run.events.items()
        for event in events
        if isinstance(event, EvEvent) and event.new in (BAD, GOOD) and event.old != EvState.SKIP.name
    ]
    rows.sort(key=lambda row: (row[0], row[1]))
    return [
        f"{at / MS:11.3f} ms  {host}  EV {event.ev:08x} {'(dead path) ' if event.ev in dead else ''}"
        f"{event.old} to {event.new}: {event.cause}"
        for at, host, event in rows[:SHOWN]
    ]


# --- windows ---------------------------------------------------------------------------------------------------------


class Windows(Model):
    """`queue_bytes`: the limit of waiting bytes at any port; `utilisation`: the least use of the links `bottleneck_bps`
    (their sum); `jain`: the least value of Jain's index of the streams' rates."""

    queue_bytes: Annotated[int, Field(ge=1)]
    bottleneck_bps: Annotated[int, Field(ge=1)]
    utilisation: Share = 0.8
    jain: Share = 0.95


@kind(Windows)
def windows(params: Windows, runs: Sequence[Run]) -> Finding:
    """Check that queues stay short, the bottleneck is used, and streams are fair to each other (Jain's index)."""
    told = []
    for run in runs:
        port = max(run.facts.ports, key=lambda name: run.facts.ports[name]["max_bytes"])
        deepest = run.facts.ports[port]["max_bytes"]
        rates = performance.stream_rates(run.result, None, None)
        share = sum(rates.values()) / params.bottleneck_bps
        fair = performance.jain(list(rates.values())) if rates else 0.0
        measured = f"longest queue {deepest / 1000:.0f} kB, {share:.2f} of the bottleneck used, Jain's index {fair:.3f}"
        told.append(measured)
        evidence = _window_lines(run) + [f"{name}: {format_rate(rate)}" for name, rate in sorted(rates.items())]
        mistake = ""
        if deepest > params.queue_bytes:
            at_s = run.facts.ports[port].get("max_at_ns", 0) / 1e9
            mistake = (
                f"overshoot: {deepest} bytes waited at {port} by {at_s:.1f} s, at most {params.queue_bytes} may: the "
                "window goes on growing while marks and queueing delay say that it is too large"
            )
        elif share < params.utilisation:
            mistake = (
                f"only {share:.2f} of the bottleneck is used, {params.utilisation:g} must be: the window shrinks too "
                "often or grows too slowly; marks of one round trip are one signal"
            )
        elif fair < params.jain:
            mistake = (
                f"unfair: Jain's index is {fair:.3f}, {params.jain:g} is wanted: who has more must give up more, and "
                "all must grow by the same"
            )
        if mistake:
            return Finding(False, measured, mistake, tuple(evidence[: 2 * SHOWN]), (), run)
    return Finding(True, "; ".join(dict.fromkeys(told)))


def _window_lines(run: Run) -> list[str]:
    found = []
    for host, statistics in sorted(run.result.statistics.items()):
        for peer in statistics.peers if isinstance(statistics, MrcHostStatistics) else ():
            cc = peer.cc
            if cc.srtt_ns:
                found.append(
                    f"{host} at the end: window {cc.cwnd} bytes, {cc.inflight} in flight, srtt "
                    f"{cc.srtt_ns / MS:.2f} ms, base RTT {cc.base_rtt_ns / MS:.2f} ms"
                )
    return found


# --- localisation ----------------------------------------------------------------------------------------------------


class Localised(Model):
    """`noisy`: probes are lost at random, too, so that a lost probe is no proof."""

    noisy: bool = False


@kind(Localised)
def localised(params: Localised, runs: Sequence[Run]) -> Finding:
    """After every failure the localiser names exactly what is broken."""
    named: Counter[str] = Counter()
    for run in runs:
        for each in run.result.happenings:
            broken, found = set(each.broken), set(each.localised)
            named["failures"] += len(broken)
            if broken != found:
                named["wrong"] += 1
                mistake = _misnamed(run, broken, found, params.noisy)
                evidence = [f"{each.done_ns / MS:11.3f} ms  {each.action.verb} {each.action.target}"]
                evidence += [
                    f"broken: {_list(broken)}",
                    f"named: {_list(found)}",
                    *_witnesses(run, broken, params.noisy),
                ]
                return Finding(False, "something else was named", mistake, tuple(evidence), (), run)
    return Finding(True, f"{named['failures']} failures named")


def _list(names: set[str]) -> str:
    return ", ".join(sorted(names)) or "nothing"


def _misnamed(run: Run, broken: set[str], found: set[str], noisy: bool) -> str:
    missed, extra = sorted(broken - found), sorted(found - broken)
    text = f"{_list(broken)} broke, {_list(found)} was named"
    switches = {switch.name for switch in run.topology.switches}
    if noisy and missed and not extra:
        return (
            f"{text}: probes that cross {missed[0]} come back, but it loses a share of them that noise does not "
            "explain; look at more than the latest"
        )
    if noisy and extra and not missed:
        return (
            f"{_list(broken)} broke, {extra[0]} was named, too: take away the probes that cross what broke, and of the "
            f"others that cross {extra[0]} no more are lost than noise takes"
        )
    if not found:
        return f"{text}: the probes that did not come back say more"
    if not broken:
        return f"{text}: everything was whole; old losses do not count, only the latest probes do"
    if extra and extra[0] in switches and missed and missed[0] not in switches:
        return f"{text}: others still reach {extra[0]}, so it is not the switch but a link to it"
    if missed and missed[0] in switches and extra and extra[0] not in switches:
        return f"{text}: all who share {missed[0]} lost it, so it is the switch and not each of its links"
    if extra and not missed:
        return f"{text}: what lies behind a dead element cannot be judged, it is hidden and not broken ({extra[0]})"
    return f"{text}: {missed[0] if missed else extra[0]} explains what the hosts saw, and nothing else does"


def _witnesses(run: Run, broken: set[str], noisy: bool) -> list[str]:
    """Return, for each host whose probes cross a broken element, which switches do not answer it, or not always."""
    rows = []
    for host in run.topology.hosts:
        lost = []
        for plane, port in enumerate(host.ports):
            t1s: list[int | None] = [None, *range(run.topology.lab.t1_per_plane)]
            for t1 in t1s:
                name = port.t0 if t1 is None else f"p{plane}-t1.{t1}"
                crossed = {port.name, port.t0, name, f"{port.t0}--{name}"}
                if crossed & broken:
                    lost.append(name)
        if lost:
            word = "misses answers from" if noisy else "gets no answer from"
            rows.append(f"{host.name} {word}: {', '.join(lost)}")
    return rows[:SHOWN]
