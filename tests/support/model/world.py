"""Runs a scenario: hosts with their drivers, the network, the user, and the judgement.

Time is that of the scenario, ns from 0; a host's own clock runs beside it, from another beginning.
"""

from __future__ import annotations

import heapq
import random
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from mrc_host.proto.completion import CompletionKind, CompletionStatus
from mrc_host.proto.events import ErrorReason, EvState, Fault, ProbeResult, QpError, QpState, QpStateChanged
from mrc_host.proto.wire.fields import NackReason
from support.model import make
from support.model.network import Network, dest_qp, destination, is_nak, kind_of
from support.model.oracle import KNOWN, End, Posted, Target, Violation, content
from support.model.scenario import MRC, ROCE, SECOND, Op, Scenario

Wrap = Callable[[Any], Any]
_RING: Final = 2048
_SPINS: Final = 2000
_NEVER: Final = 1 << 62
_ARRIVE, _WAKE, _OP, _CALL = range(4)
#: What no scenario makes: honest peers do not contradict each other, and the endpoint has no faults of its own.
_IMPOSSIBLE: Final = {
    ErrorReason.INTERNAL, ErrorReason.CONTRADICTION, ErrorReason.REMOTE_INVALID_REQUEST,
    ErrorReason.LOCAL_INVALID_REQUEST, ErrorReason.WIMM_LIMIT, ErrorReason.CQ_OVERFLOW,
}  # fmt: skip


class TooLong(Exception):
    """A run that takes more events than it is worth; nothing is known of it."""


class Host:
    """An endpoint, its driver, and its user's completion queues."""

    def __init__(self, number: int, planes: int, skew: int) -> None:
        self.number = number
        self.skew = skew
        self.life = 0
        self.endpoint: Any = None
        self.profiles: Any = None
        self.send_cq: Any = None
        self.recv_cq: Any = None
        self.port_free = [0] * planes
        self.wake_at = _NEVER
        self.stalled_until = -1
        self.late = False  # after a stall timers come before packets
        self.ring: deque[tuple[int, bytes]] = deque()
        self.ends: dict[int, End] = {}  # by queue pair number, of this life
        self.lasting: dict[tuple[int, int], End] = {}  # by (peer host, peer's queue pair): who sends there
        self.starved = False
        self.denied: set[int] = set()  # EVs that a controller has denied here, also for later queue pairs
        self.probes: set[int] = set()  # tokens of a controller's probes without a result
        self.spins = 0
        self.spun_at = -1
        self.failing: list[End] = []  # in ERROR, not drained


class World:
    """One run. `wrap` may put something around each endpoint, for tests of the oracle; `skip`: what not to report."""

    def __init__(
        self, scenario: Scenario, wrap: Wrap | None = None, skip: frozenset[str] = frozenset(), limit: int = 800_000
    ) -> None:
        self.scenario = scenario
        self.setup = setup = scenario.setup
        self.skip = skip
        self.skipped: list[str] = []
        self.limit = limit
        self.wrap = wrap
        self.rng = random.Random(f"world {setup.seed}")
        self.now = 0
        self.events = 0
        self.packets = 0
        self._heap: list[tuple[int, int, int, int, int, Any]] = []
        self._serial = 0
        self.next_wr = 1
        self.healed_at = _NEVER
        self.proofs_from = _NEVER  # number of the first write that must succeed
        self.network = Network(setup, scenario.faults, self._plan_arrival, self.plan)
        self.hosts = [Host(n, setup.planes, n * 98_765) for n in range(setup.hosts)]
        self.pairs: list[list[End] | None] = [None] * len(setup.pairs)
        self.everything: list[End] = []
        self.epochs = [0] * len(setup.pairs)
        for host in self.hosts:
            self.network.addresses[make.address(host.number)] = host.number
            self._start(host)
        for number in range(len(setup.pairs)):
            self.connect(number, 0)
        for op in scenario.ops:
            self._plan(op.at, _OP, 0, 0, op)

    # --- time ---

    def _plan(self, at: int, kind: int, a: int, b: int, item: Any) -> None:
        self._serial += 1
        heapq.heappush(self._heap, (at, self._serial, kind, a, b, item))

    def _plan_arrival(self, at: int, host: int, plane: int, packet: bytes) -> None:
        self._plan(at, _ARRIVE, host, plane, packet)

    def plan(self, at: int, action: Callable[[], None]) -> None:
        """Do something at a time of the scenario."""
        self._plan(at, _CALL, 0, 0, action)

    def clock(self, host: Host) -> int:
        """Return the host's own time."""
        return self.setup.epoch_ns + host.skew + self.now

    def report(self, kind: str, text: str) -> None:
        """Report a violation, unless its class is skipped."""
        if kind in self.skip:
            self.skipped.append(kind)
            return
        raise Violation(kind, f"at {self.now} ns: {text}")

    def run_until(self, end: int) -> None:
        """Everything up to a time."""
        heap = self._heap
        while heap and heap[0][0] <= end:
            at, _, kind, a, b, item = heapq.heappop(heap)
            self.now = max(self.now, at)
            self.events += 1
            if self.events > self.limit:
                raise TooLong(f"{self.events} events, {self.packets} packets")
            if kind == _ARRIVE:
                self._arrive(self.hosts[a], b, item)
            elif kind == _WAKE:
                host = self.hosts[a]
                if host.wake_at == at:
                    host.wake_at = _NEVER
                    self._wake(host)
            elif kind == _OP:
                if self.healed_at == _NEVER:
                    self.operate(item)
            else:
                item()
        self.now = max(self.now, end)

    def _arrive(self, host: Host, port: int, packet: bytes) -> None:
        if (host.number, port) in self.network.links_down:
            return
        if host.stalled_until > self.now:
            if len(host.ring) < _RING:
                host.ring.append((port, packet))
            return
        host.endpoint.receive_datagram(port, packet, self.clock(host))
        self.act(host)

    def _wake(self, host: Host) -> None:
        if host.stalled_until > self.now:
            return
        host.spins = host.spins + 1 if host.spun_at == self.now else 0
        host.spun_at = self.now
        if host.spins > _SPINS:
            raise Violation("spin", f"host {host.number} has been due {_SPINS} times at {self.now} ns")
        now = self.clock(host)
        if host.late:
            host.late = False
            host.endpoint.handle_timer(now)
            self._settle(host)
        while host.ring:
            port, packet = host.ring.popleft()
            host.endpoint.receive_datagram(port, packet, now)
        timer = host.endpoint.next_timer()
        if timer is not None and timer <= now:
            host.endpoint.handle_timer(now)
        self.act(host)

    def act(self, host: Host) -> None:
        """Act as the driver after any call: completions, packets for every free port, the next time to wake up."""
        if host.stalled_until > self.now:
            return
        self._settle(host)
        setup, endpoint, now = self.setup, host.endpoint, self.clock(host)
        wake = _NEVER
        full = setup.mtu + 200
        for port in range(setup.planes):
            while host.port_free[port] <= self.now:
                packets = endpoint.datagrams_to_send(port, now, max(full, setup.batch_bytes))
                if not packets:
                    break
                self._sent(host, port, packets)
            if host.port_free[port] > self.now:
                wake = min(wake, host.port_free[port])
        self._settle(host)
        idle = wake == _NEVER
        timer = endpoint.next_timer()
        if timer is not None:
            wake = min(wake, max(timer - self.setup.epoch_ns - host.skew, self.now))
        if idle:
            for end in host.failing:
                end.drained = True
            host.failing.clear()
            if timer is None:
                self._look_for_hang(host)
        if wake < _NEVER and wake != host.wake_at:
            host.wake_at = wake
            self._plan(wake, _WAKE, host.number, 0, None)

    def _sent(self, host: Host, port: int, packets: list[bytes]) -> None:
        """Packets that left: their time on the wire, and whether they may have left at all."""
        setup = self.setup
        at = max(self.now, host.port_free[port])
        for packet in packets:
            at += (len(packet) + 24) * 8 * SECOND // setup.rate_bps
            self.packets += 1
            peer = self.network.addresses.get(destination(packet), -1)
            end = host.lasting.get((peer, dest_qp(packet)))
            if end is not None:
                kind = kind_of(packet)
                if end.drained and not (kind == "ack" and is_nak(packet)):
                    what = "error-sends" if kind in ("data", "rtx", "probe") else "stale-control"
                    self.report(what, f"{end.name} sent {kind} long after its end")
                if self.healed_at < _NEVER:
                    end.sent[kind] = end.sent.get(kind, 0) + 1
            self.network.send(host.number, port, packet, at)
        host.port_free[port] = at

    def _look_for_hang(self, host: Host) -> None:
        """All ports are free and want nothing, and no timer is set: then nothing may be open."""
        for end in host.ends.values():
            if end.in_rts and end.done < len(end.posted) and not self._excused(end):
                kind = "hang" if not any(op.kind.startswith("port") for op in self.scenario.ops) else "hang-port"
                self.report(kind, f"{end.name}: {len(end.pending())} writes are open, no timer is set, nothing is sent")

    def _excused(self, end: End) -> bool:
        """Return whether a queue pair may wait for ever: retries without end, and nowhere to send."""
        return self.setup.transport == MRC and self.setup.exp_cnt >= 25

    # --- what the user sees ---

    def _settle(self, host: Host) -> None:
        endpoint = host.endpoint
        while (event := endpoint.next_event()) is not None:
            if isinstance(event, Fault):
                raise Violation("fault", f"host {host.number}: {event.where}: {event.detail}")
            if isinstance(event, QpStateChanged):
                self._state_changed(host, event)
            elif isinstance(event, ProbeResult):
                if event.token not in host.probes:
                    raise Violation("probes", f"host {host.number}: {event} of a probe that is not pending")
                host.probes.remove(event.token)
        for completion in endpoint.poll(host.send_cq, 1 << 20):
            end = host.ends.get(completion.qpn)
            if end is None:
                raise Violation("completion", f"host {host.number}: {completion} of a queue pair that is gone")
            try:
                posted = end.on_send(completion)
            except Violation as violation:
                if violation.kind not in self.skip:
                    raise
                self.skipped.append(violation.kind)
            else:
                self._completed(end, posted)
        for completion in endpoint.poll(host.recv_cq, 1 << 20):
            end = host.ends.get(completion.qpn)
            if end is None or completion.kind is not CompletionKind.RECV_IMM:
                raise Violation("completion", f"host {host.number}: {completion} in the queue of receives")
            end.on_receive(completion)

    def _completed(self, end: End, posted: Posted) -> None:
        if (
            posted.wr_id >= self.proofs_from
            and posted.status is not CompletionStatus.SUCCESS
            and posted.status is not None
        ):
            self.report("failed-though-well", f"{end.name}: write {posted.wr_id} ended with {posted.status.name}")

    def _state_changed(self, host: Host, event: QpStateChanged) -> None:
        end = host.ends.get(event.qpn)
        if event.reason in _IMPOSSIBLE:
            raise Violation("impossible", f"host {host.number}: {event}")
        if end is None:
            return
        if event.old is QpState.RTS and end.lost_at is None:
            end.lost_at = self.now
            if end not in host.failing:
                host.failing.append(end)

    # --- operations ---

    def _start(self, host: Host) -> None:
        """Start a new life of a host's endpoint."""
        host.life += 1
        endpoint = make.endpoint(self.setup, host.number, host.life)
        host.endpoint = self.wrap(endpoint) if self.wrap is not None else endpoint
        host.profiles = make.profiles(self.setup)
        host.send_cq = host.endpoint.create_cq(1 << 20)
        host.recv_cq = host.endpoint.create_cq(1 << 20)
        host.ring.clear()
        host.failing.clear()
        host.probes.clear()
        host.ends = {}
        host.lasting = {}
        host.wake_at = _NEVER
        for port in range(self.setup.planes):
            if (host.number, port) in self.network.links_down:
                host.endpoint.set_port_state(port, False, self.clock(host))

    def connect(self, number: int, lag: int) -> None:
        """Connect new queue pairs of a pair, of which the second connects `lag` later."""
        setup = self.setup
        self.epochs[number] += 1
        ends = []
        documents = []
        for side, host_number in enumerate(setup.pairs[number]):
            host = self.hosts[host_number]
            target = Target(setup.slots, setup.max_message + 9)
            region = host.endpoint.register_memory(target.region())
            qp = self._queue_pair(host, number, side)
            end = End(number, side, self.epochs[number], host_number, qp, target, region)
            end.reused = qp.number in host.ends
            host.ends[qp.number] = end
            documents.append(host.endpoint.local_attributes(qp))
            ends.append(end)
        ends[0].peer, ends[1].peer = ends[1], ends[0]
        self.pairs[number] = ends
        self.everything += ends
        lives = [self.hosts[end.host].life for end in ends]

        def join(side: int) -> None:
            end, other = ends[side], ends[1 - side]
            host = self.hosts[end.host]
            if not end.alive or host.life != lives[side] or end.qp.state is not QpState.INIT:
                return
            host.lasting[other.host, other.qp.number] = end
            try:
                host.endpoint.connect(end.qp, documents[1 - side], self.clock(host))
            except QpError:
                # The document is of an earlier life of the peer; this queue pair stays without a peer.
                if self.hosts[other.host].life == lives[1 - side]:
                    raise
                return
            if setup.wrap:
                make.near_wraps(setup, end.qp)
            self.act(host)

        join(0)
        if lag:
            self.plan(self.now + lag, lambda: join(1))
        else:
            join(1)

    def _queue_pair(self, host: Host, number: int, side: int) -> Any:
        """Return a new queue pair, or the one that was reset."""
        setup = self.setup
        before = self.pairs[number]
        # With a PSN of the configuration packets of the earlier connection would fit the next one.
        if setup.reuse and setup.psn < 0 and setup.transport == MRC and before is not None:
            old = before[side]
            known = host.ends.get(old.qp.number)
            if known is old and old.qp.state is QpState.RESET:
                return old.qp
        if setup.profiles and setup.transport == MRC and number % 3:
            ev, cc = host.profiles
            return host.endpoint.create_qp(host.send_cq, host.recv_cq, ev=ev if number % 3 > 1 else None, cc=cc)
        return host.endpoint.create_qp(host.send_cq, host.recv_cq)

    def post(self, end: End, size: int, odd: int, immediate: bool) -> Posted | None:
        """Post a write; None when the model has no room for it."""
        peer, host = end.peer, self.hosts[end.host]
        if peer is None or not end.alive or not peer.target.free:
            return None
        # In ERROR a request is flushed at once.
        if end.qp.state is not QpState.RTS and (end.qp.state is not QpState.ERROR or end.closing or odd & 3):
            return None
        if immediate:
            flying = sum(1 for each in end.pending() if each.immediate is not None)
            if flying >= self.setup.max_wimm:
                return None
            other = self.hosts[peer.host]
            if peer.alive and not other.starved and peer.qp.state in (QpState.INIT, QpState.RTR, QpState.RTS):
                self.receive(peer)
        size = min(size, self.setup.max_message)
        data = content(self.rng, size)
        slot = peer.target.free.popleft()
        offset = slot * peer.target.slot_bytes + (odd & 7)
        source = bytearray(data)
        wr_id = self.next_wr
        self.next_wr += 1
        number = self.rng.getrandbits(32) if immediate else None
        packets = max(1, -(-size // self.setup.mtu))
        posted = Posted(wr_id, data, source, slot, offset, number, self.now, packets)
        end.posted.append(posted)
        end.owed += packets
        self._tick(host)
        where, key = peer.region.va + offset, peer.region.rkey
        if number is None:
            host.endpoint.post_write(end.qp, source, where, key, wr_id)
        else:
            host.endpoint.post_write_imm(end.qp, source, where, key, number, wr_id)
        return posted

    def _tick(self, host: Host) -> None:
        """Verbs without a time of their own use that of the last call; a driver has always called before."""
        host.endpoint.handle_timer(self.clock(host))

    def receive(self, end: End) -> None:
        """Post a receive."""
        wr_id = self.next_wr
        self.next_wr += 1
        end.receives.append(wr_id)
        self.hosts[end.host].endpoint.post_recv(end.qp, wr_id)

    def end_of(self, op: Op) -> End | None:
        """Return the end that an operation on a pair is for."""
        ends = self.pairs[op.where]
        return ends[op.side] if ends is not None else None

    def operate(self, op: Op) -> None:
        """Do what a user or operator does."""
        from support.model import operations

        operations.perform(self, op)

    def leave(self, end: End, how: str) -> None:
        """End a queue pair as its user would: error, reset, destroy, close."""
        host = self.hosts[end.host]
        now = self.clock(host)
        if not end.alive:
            return
        endpoint = host.endpoint
        if how == "error":
            make.fail(self.setup, endpoint, end.qp, now)
            self.act(host)
            return
        if how == "reset" and self.setup.transport == MRC:
            endpoint.modify(end.qp, QpState.RESET, now)
        elif how == "close":
            end.closing = True
            endpoint.close_qp(end.qp, now)
        else:
            endpoint.destroy_qp(end.qp, now)
        if end.lost_at is None:
            end.lost_at = self.now
        self._settle(host)
        end.abandon()
        end.alive = False
        if how != "reset" or self.setup.transport == ROCE:
            host.ends.pop(end.qp.number, None)
        if end not in host.failing:
            host.failing.append(end)
        self.act(host)

    def deny(self, end: End, index: int, denied: bool) -> None:
        """Deny or allow an EV as the controller."""
        host = self.hosts[end.host]
        rows = host.endpoint.query_evs(end.qp)
        row = rows[index % len(rows)]
        state = EvState.DENIED if denied else EvState.GOOD
        if denied:
            host.denied.add(row.ev)
        host.endpoint.set_ev_state(end.qp, row.ev, state, self.clock(host))
        self.act(host)

    def pressure(self, host: Host, penalty: int, refuse: int) -> None:
        """Set the responder's load."""
        reason = NackReason(refuse) if refuse else None
        host.endpoint.set_receive_pressure(penalty, restore=not penalty, refuse=reason)


def skippable(names: str) -> frozenset[str]:
    """Classes of failures named on a command line: by class or by the item of the issue."""
    chosen = {name.strip() for name in names.split(",") if name.strip()}
    return frozenset(kind for kind in chosen | {k for k, item in KNOWN.items() if item in chosen})
