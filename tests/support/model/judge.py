"""Runs a scenario to its end and judges what must hold then: everything ends in time, nothing storms, nothing stays.

The bounds, and why:

* A network that is well again (`settled_bound`): one timeout that had begun before may have to run out, and no longer
  one than what it doubled from, so twice the time of trouble. A pause or an RTT estimate that trouble prolonged may
  last as long as the longest delay, eight times over because the estimate falls by an eighth per sample. After that a
  window of one packet moves one packet per round trip; `_ROUNDS` are for asking, repairing and reviving.
* A peer that is gone (`silent_bound`): all retries of a packet and the timeout under way; and as queue pairs may share
  a window of one packet, which is free again after the first timeout of its owner, one timeout for each of them.
* Traffic after healing (`_storm`): a packet that was open may be sent again once for each of the three ways in which it
  can be taken for lost, and asked for by a probe; each EV that is assumed bad takes a probe or two to come back.
"""

from __future__ import annotations

import traceback
from dataclasses import dataclass, field
from typing import Final

from mrc_host.proto.completion import CompletionStatus
from mrc_host.proto.events import EvState, QpState
from support.model import make, operations
from support.model.oracle import End, Violation
from support.model.scenario import MRC, ROCE, SECOND, Scenario
from support.model.world import Host, TooLong, World, Wrap

_ROUNDS: Final = 60
_PROOFS: Final = 3


@dataclass
class Outcome:
    """How a run ended: `kind` is "ok", the class of a violation, or "too long"."""

    kind: str
    text: str = ""
    skipped: list[str] = field(default_factory=list)
    events: int = 0
    packets: int = 0
    writes: int = 0
    succeeded: int = 0

    @property
    def bad(self) -> bool:
        """Return whether an expectation was not met."""
        return self.kind not in ("ok", "too long")


def run(
    scenario: Scenario, wrap: Wrap | None = None, skip: frozenset[str] = frozenset(), limit: int = 800_000
) -> Outcome:
    """Run a scenario and judge it. Exceptions of the endpoints are violations, too."""
    world: World | None = None
    try:
        world = World(scenario, wrap, skip, limit)
        _go(world)
        outcome = Outcome("ok")
    except Violation as violation:
        kind = violation.kind
        outcome = Outcome("ok" if kind in skip else kind, str(violation))
    except TooLong as reason:
        outcome = Outcome("too long", str(reason))
    except Exception:  # noqa: BLE001 - whatever escapes an endpoint is a finding
        outcome = Outcome("exception", traceback.format_exc())
    if world is not None:
        outcome.skipped += world.skipped
        outcome.events, outcome.packets = world.events, world.packets
        posted = [each for end in world.everything for each in end.posted]
        outcome.writes = len(posted)
        outcome.succeeded = sum(1 for each in posted if each.status is CompletionStatus.SUCCESS)
    return outcome


def _go(world: World) -> None:
    setup = world.setup
    world.run_until(setup.chaos_ns)
    if setup.ending == "silence":
        world.network.silent = set(range(setup.hosts)) if setup.dead < 0 else {setup.dead}
        for end in world.everything:
            if world.network.silent & {end.host, end.peer.host if end.peer is not None else end.host}:
                end.lost_at = min(end.lost_at or world.now, world.now)
    operations.heal(world)
    world.healed_at = world.now
    for end in world.everything:
        end.owed = sum(posted.packets for posted in end.pending())
        end.sent.clear()
    _await_completions(world)
    _memory(world)
    _storm(world)
    if setup.ending == "heal":
        _prove(world)
        _rest(world)
    _dissolve(world)


# --- bounds ---


def _delays(world: World) -> int:
    """Return the longest that anything was held up in this scenario."""
    faults = [fault.value for fault in world.scenario.faults if fault.kind in ("delay", "reorder")]
    stalls = [op.size for op in world.scenario.ops if op.kind in ("stall", "late_timer")]
    return max([0, *faults, *stalls])


def _one_timeout(world: World, answered: bool = True) -> int:
    """Return how long a packet may wait for its timeout; `answered`: its peer answers probes."""
    setup = world.setup
    grown = 2 * setup.chaos_ns + 2 * _delays(world)
    found_sooner = setup.rack and setup.tail_probe and answered
    if not found_sooner and any(op.kind == "pressure" for op in world.scenario.ops):
        # A NACK for lack of a resource is an attempt (mrc-protocol.md, 4), and attempts double the timeout of a
        # packet within a few round trips. Only that timeout then finds the loss of the next attempt: RACK needs an
        # answer to a later packet, and a last packet has none after it unless a tail probe is sent and answered.
        grown = setup.longest_ns
    return min(setup.longest_ns, max(setup.timeout_ns, grown)) + setup.timeout_ns


def settled_bound(world: World, packets: int) -> int:
    """How long after healing open work may take; `packets` are open."""
    setup = world.setup
    rtt = setup.healthy_rtt_ns
    slowest = packets * rtt
    if setup.transport == ROCE:
        slowest += 1_000_000  # pauses after an RNR NAK
        # A rate may have fallen to its least, a thousandth of the line's.
        slowest += packets * (setup.mtu + 100) * 8 * 1000 * SECOND // setup.rate_bps if setup.dcqcn else 0
    return _one_timeout(world) + 8 * _delays(world) + _ROUNDS * rtt + slowest


def silent_bound(world: World) -> int | None:
    """How long work towards a peer that is gone may stay open; None: for ever."""
    patience = world.setup.patience_ns
    if patience is None:
        return None
    setup = world.setup
    in_turn = len(setup.pairs) * setup.timeout_ns
    return patience + setup.longest_ns + in_turn + 8 * _delays(world) + _ROUNDS * setup.healthy_rtt_ns


def _well(world: World, end: End) -> bool:
    """Return whether both sides are there and can hear each other."""
    peer = end.peer
    if peer is None or not end.in_rts or not peer.in_rts:
        return False
    return not world.network.silent & {end.host, peer.host}


def _deadline(world: World, end: End, packets: int) -> int | None:
    if _well(world, end):
        # As towards a peer that is gone: queue pairs to the same host whose other ends are gone may share a window of
        # one packet, and each holds it until its first timeout. Their users still wait, so healing does not end them.
        there = end.peer.host if end.peer is not None else -1
        held = sum(
            1
            for each in world.everything
            if each.owed and each.host == end.host and not _well(world, each) and world.setup.transport == MRC
            if each.peer is not None and each.peer.host == there
        )
        return world.healed_at + settled_bound(world, packets) + held * _one_timeout(world, answered=False)
    bound = silent_bound(world)
    if bound is None:
        return None
    peer = end.peer
    gone = peer.lost_at if peer is not None and peer.lost_at is not None else world.healed_at
    return max(gone, world.healed_at) + bound


# --- the end of all work ---


def _open(world: World) -> list[End]:
    """Return the ends with open writes that must still complete. In ERROR and RESET there may be none."""
    ends = []
    for end in world.everything:
        if not end.alive or end.done >= len(end.posted) or not end.pending():
            continue
        if end.qp.state is not QpState.RTS:
            raise Violation("completion", f"{end.name} is in {end.qp.state.name} with {len(end.pending())} open writes")
        ends.append(end)
    return ends


def _await_completions(world: World) -> None:
    """All open writes complete before their deadlines."""
    packets = sum(posted.packets for end in world.everything for posted in end.pending())
    step = world.setup.healthy_rtt_ns
    while True:
        ends = _open(world)
        deadlines = [(end, _deadline(world, end, packets)) for end in ends]
        due = [(end, at) for end, at in deadlines if at is not None]
        if not due:
            return
        for end, at in due:
            if world.now > at:
                kind = "late" if _well(world, end) else "late-silent"
                if any(op.kind.startswith("port") for op in world.scenario.ops):
                    kind += "-port"
                if _well(world, end) and not world.setup.strict:
                    continue
                since = world.now - world.healed_at
                text = f"{len(end.pending())} writes open, {since} ns after the network healed"
                world.report(kind, f"{end.name}: {text}; allowed: {at - world.healed_at}")
                return
        if all(world.now > at for _, at in due):
            return
        world.run_until(world.now + step)
        step = min(step * 2, max(world.setup.healthy_rtt_ns, (max(at for _, at in due) - world.now) // 8 + 1))


def _memory(world: World) -> None:
    for end in world.everything:
        end.check_memory()


def _storm(world: World) -> None:
    """Packets since healing, of each queue pair that was well all the time."""
    setup = world.setup
    if setup.transport == ROCE or not setup.strict:
        return
    for end in world.everything:
        if not _well(world, end):
            continue
        data = end.sent.get("data", 0) + end.sent.get("rtx", 0)
        probes = end.sent.get("probe", 0)
        most = 4 * end.owed + 40
        if data > most:
            world.report("storm", f"{end.name} sent {data} data packets since healing, {end.owed} were open")
        most = 4 * setup.ev_count + 2 * end.owed + 60
        if probes > most:
            # Without rule (c) an answered probe finds no loss, which is a storm of another kind.
            world.report(
                "storm" if setup.rack else "storm-no-rack",
                f"{end.name} sent {probes} probes since healing; {end.owed} packets were open, {most} allowed",
            )


def _prove(world: World) -> None:
    """In a network that is well new work succeeds at once, on old queue pairs and on new ones."""
    setup = world.setup
    world.run_until(max(world.now, world.network.last_arrival))
    for number, ends in enumerate(world.pairs):
        if ends is None or not all(end.in_rts and not end.spoiled for end in ends):
            for end in ends or ():
                world.leave(end, "destroy")
            world.connect(number, 0)
    if setup.strict:
        world.proofs_from = world.next_wr
    began = world.now
    packets = 0
    proofs: list[End] = []
    for ends in world.pairs:
        for end in ends or ():
            for count in range(1 if len(world.pairs) > 50 else _PROOFS):
                posted = world.post(end, (count * setup.max_message) // 2, count, count == 1)
                packets += posted.packets if posted is not None else 0
            proofs.append(end)
            world.act(world.hosts[end.host])
    slowest = settled_bound(world, packets) - _one_timeout(world) if setup.strict else settled_bound(world, packets)
    end_at = began + slowest
    while world.now < end_at and any(end.pending() for end in proofs):
        world.run_until(min(end_at, world.now + max(setup.healthy_rtt_ns, slowest // 200)))
    late = [end for end in proofs if end.pending()]
    if late and setup.strict:
        text = f"writes posted at {began} in a network that is well are open after {slowest} ns"
        world.report("late-proof", f"{late[0].name} and {len(late) - 1} others: {text}")
    _memory(world)


# --- rest ---


def _wait_for_timers(world: World, hosts: list[Host], bound: int, why: str) -> None:
    end = world.now + bound
    while any(host.endpoint.next_timer() is not None for host in hosts):
        if world.now >= end:
            left = [host for host in hosts if host.endpoint.next_timer() is not None]
            world.report("timers", f"{why}, timers of host {left[0].number} are set for {bound} ns: "
                         f"{make.tables(world.setup, left[0].endpoint)}")  # fmt: skip
            return
        world.run_until(min(end, world.now + bound // 50 + 1))


def _idle_bound(world: World) -> int:
    setup = world.setup
    slow = max(setup.probe_interval_ns, setup.healthy_rtt_ns, 10_000_000)
    bound = 100 * slow + 16 * _delays(world) + 2 * setup.longest_ns
    if setup.transport == ROCE and setup.dcqcn:
        bound += SECOND
    return bound


def _closing_bound(world: World) -> int:
    """How long a queue pair says that its user is gone: with eight doubled timeouts at most."""
    setup = world.setup
    return (
        2 * (setup.timeout_ns * (setup.linear_cnt + setup.retry_cnt + 4) + (setup.timeout_ns << 10)) + setup.longest_ns
    )


def _probes_a_dead_peer(world: World, end: End) -> bool:
    """Return whether a queue pair that works has a bad EV and a peer that has ended.

    It probes the EV until an answer comes (mrc-protocol.md, 7), and none comes.
    """
    if world.setup.transport != MRC or not end.in_rts or (end.peer is not None and end.peer.in_rts):
        return False
    rows = world.hosts[end.host].endpoint.query_evs(end.qp)
    return any(row.state is EvState.ASSUMED_BAD for row in rows)


def _rest(world: World) -> None:
    """Without work there are no timers, nothing is in flight, and the counters agree with what was done."""
    setup = world.setup
    if _open(world):
        return
    # A queue pair whose user is gone says so as long as packets are repeated.
    closing = _closing_bound(world) if any(end.closing for end in world.everything) else 0
    probing = {end.host for end in world.everything if _probes_a_dead_peer(world, end)}
    idle = [host for host in world.hosts if host.number not in probing]
    _wait_for_timers(world, idle, _idle_bound(world) + closing, "though nothing is to be done")
    world.run_until(max(world.now, world.network.last_arrival + setup.healthy_rtt_ns))
    before = world.packets
    world.run_until(world.now + 20 * setup.healthy_rtt_ns)
    if world.packets > before and not probing and "timers" not in world.skipped:
        world.report("restless", f"{world.packets - before} packets were sent though nothing is to be done")
    for host in world.hosts:
        if host.probes:
            raise Violation("probes", f"host {host.number}: {len(host.probes)} probes of a controller had no result")
        _counters(world, host)


def _counters(world: World, host: Host) -> None:
    setup = world.setup
    found = host.endpoint.statistics()
    ports_up = host.endpoint.ports_up()
    if not all(ports_up):
        raise Violation("ports", f"host {host.number}: ports {ports_up} after all links came back")
    if setup.transport == ROCE:
        for row in found.qps:
            if row.state == "RTS" and row.outstanding:
                raise Violation("counters", f"host {host.number}: {row} though nothing is to be done")
        if found.endpoint["retransmissions"] > found.endpoint["packets_sent"]:
            raise Violation("counters", f"host {host.number}: {found.endpoint}")
        return
    for row in found.peers:
        if row.cc.inflight:
            world.report("inflight", f"host {host.number}: {row.cc} though nothing is to be done")
        if not all(row.planes):
            world.report("planes", f"host {host.number} believes planes {row.planes} though all are well")
    for row in found.qps:
        end = host.ends.get(row.qpn)
        if end is None or row.state != "RTS" or end.peer is None or end.reused:
            continue
        sends, takes = row.requestor, row.responder
        good = sum(1 for each in end.posted if each.status is CompletionStatus.SUCCESS)
        if sends["requests_completed"] != good or sends["retransmissions"] > sends["packets_sent"]:
            world.report("counters", f"{end.name}: {sends} after {good} successes")
        packets = sum(each.packets for each in end.posted)
        if sends["packets_sent"] - sends["retransmissions"] != packets:
            world.report("counters", f"{end.name}: {sends} for {packets} packets")
        theirs = [each for each in end.peer.posted if each.status is CompletionStatus.SUCCESS]
        wanted = sum(len(each.data) for each in theirs)
        if len(theirs) == len(end.peer.posted) and takes["payload_bytes_placed"] != wanted:
            world.report("counters", f"{end.name}: {takes} for {wanted} bytes of the peer")
        if row.outstanding_packets or row.unacked_requests:
            world.report("counters", f"{end.name}: {row.outstanding_packets} packets are outstanding at rest")


def _dissolve(world: World) -> None:
    """Without queue pairs an endpoint holds nothing."""
    setup = world.setup
    for end in world.everything:
        if end.alive:
            world.leave(end, "destroy")
        elif end.qp.number in world.hosts[end.host].ends and setup.transport == MRC:
            host = world.hosts[end.host]
            if host.ends[end.qp.number] is end:
                host.endpoint.destroy_qp(end.qp, world.clock(host))
                world.act(host)
    bound = _idle_bound(world) + _closing_bound(world)
    _wait_for_timers(world, world.hosts, bound, "without queue pairs")
    for host in world.hosts:
        if world.network.silent or "timers" in world.skipped:
            continue
        held = {name: count for name, count in make.tables(setup, host.endpoint).items() if count}
        if any(op.kind == "deny" for op in world.scenario.ops):
            held.pop("denied EVs", None)  # a denial outlives the queue pair that it was told of
        if held:
            world.report("tables", f"host {host.number} holds {held} without queue pairs")
    _memory(world)
