"""The two endpoints: how they are made and connected, and what one event does to one of them.

An event concerns one end, and what it does there depends on nothing else but the end's state and the time. So the
result of each (state, time, action) is computed once and remembered: a run of two ends consists of few different such
steps, however many orders there are.
"""

from __future__ import annotations

import random
from enum import Enum
from typing import Any, Final, NamedTuple

from mrc_host.proto.completion import CompletionKind, CompletionQueue, CompletionStatus
from mrc_host.proto.config import EndpointConfig, EvConfig, EvMode, PortsConfig, ReliabilityConfig, WireConfig
from mrc_host.proto.congestion.base import CcConfig
from mrc_host.proto.congestion.dcqcn import DcqcnConfig
from mrc_host.proto.congestion.nscc import FixedConfig, NsccConfig
from mrc_host.proto.endpoint import Endpoint
from mrc_host.proto.events import ErrorReason, Fault, QpState
from mrc_host.proto.memory import MemoryRegion
from mrc_host.proto.negotiation import NegotiatedAttributes
from mrc_host.proto.roce.config import RoceConfig
from mrc_host.proto.roce.endpoint import RoceEndpoint
from support.checker import invariants
from support.checker.packets import label
from support.checker.scenario import LATENCY_NS, MRC, MTU, Scenario
from support.checker.state import Snapshot, Walker, restore

REQUESTOR: Final = 0
RESPONDER: Final = 1
START_NS: Final = 1 << 20
#: Completions of requests.
SENT: Final = (CompletionKind.WRITE, CompletionKind.WRITE_IMM)
_FIRST_PSN: Final = 10
_BASE_RTT_NS: Final = 2 * LATENCY_NS + 2_048
#: What a port takes in one turn: a data packet, so that packets are spread over the ports as on real ones.
_ROOM_BYTES: Final = MTU + 110
_MOST_PACKETS: Final = 64  # that one event may cause
_REUSED: Final = 0x5A
_RNR_TIMER: Final = 3  # 30 us


class FrozenRandom(random.Random):
    """A generator that draws zeros after `freeze`.

    What endpoints draw while they run must not branch a run: jitter of probe intervals, reverse EVs, the boxes that
    make identifiers of probes unpredictable. The network here treats all EVs alike, so that none of it matters.
    """

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self._frozen = False

    def freeze(self) -> None:
        """Draw zeros from now on."""
        self._frozen = True

    def random(self) -> float:
        return 0.0 if getattr(self, "_frozen", False) else super().random()

    def getrandbits(self, bits: int) -> int:
        return 0 if getattr(self, "_frozen", False) else super().getrandbits(bits)


class ActionKind(Enum):
    """What happens at one end."""

    DELIVER = "deliver"
    TIMER = "timer"
    POST = "post"
    RECEIVE = "receive"
    LINK = "link"
    ENABLE = "enable"


class Action(NamedTuple):
    """One happening at one end; `up` is of ports."""

    kind: ActionKind
    port: int = 0
    packet: bytes = b""
    up: bool = False


class Local:
    """A state of one end: what the rest of the world sees of it, and the snapshot that it is restored from."""

    __slots__ = (
        "at",
        "done",
        "due",
        "error",
        "key",
        "number",
        "placed",
        "posted",
        "receives",
        "snapshot",
        "state",
        "up",
    )

    def __init__(self, number: int, snapshot: Snapshot, now: int, end: End) -> None:
        self.number = number  # counted in the order in which states were found
        self.snapshot = snapshot
        self.key = snapshot.digest
        self.at = now  # the time from which the snapshot's digest counts
        self.due: int | None = end.core.next_timer()
        self.up = tuple(end.core.ports_up())
        record = end.record
        self.done: tuple[Done, ...] = tuple(record.done)
        self.posted = record.posted
        self.receives = record.receives
        self.placed = end.placed()
        states = [qp.state for qp in end.qps]
        self.state: QpState = QpState.ERROR if QpState.ERROR in states else states[0]
        self.error: ErrorReason | None = record.error


class Done(NamedTuple):
    """A completion: of request or receive `number`."""

    kind: CompletionKind
    number: int
    status: CompletionStatus
    immediate: int | None


class Record:
    """What the user of one end has done and seen."""

    __slots__ = ("done", "error", "mark", "posted", "questions", "receives")

    def __init__(self) -> None:
        self.posted = 0
        self.questions = 0  # probes, and repeated last packets, since something was acknowledged last
        self.mark: tuple[int, ...] = ()  # what had been acknowledged then
        self.receives = 0
        self.done: list[Done] = []
        self.error: ErrorReason | None = None


class Step(NamedTuple):
    """What one action led to: the state then, the packets that left by port, and what was wrong, if anything."""

    local: Local
    packets: tuple[tuple[int, bytes], ...]
    problem: str | None


def pattern(message: int, size: int) -> bytes:
    """Return the bytes of a message: no two packets of a scenario are alike."""
    return bytes(1 + (message * 64 + at // MTU * 16 + at) % 0x59 for at in range(size))


def congestion(scenario: Scenario) -> CcConfig:
    """Return the congestion control of a scenario."""
    if scenario.nscc:
        return NsccConfig(line_rate_bps=1_000_000_000, base_rtt_ns=_BASE_RTT_NS)
    return FixedConfig(fixed_window_bytes=scenario.window_bytes or 1 << 20, base_rtt_ns=_BASE_RTT_NS)


class End:
    """One endpoint with its queue pair, its memory, and its user."""

    def __init__(self, scenario: Scenario, index: int) -> None:
        self.scenario = scenario
        self.index = index
        self.rng = FrozenRandom(index + 1)
        self.core: Any = self._endpoint()
        self.cq: CompletionQueue = self.core.create_cq()
        self.qps: list[Any] = [self.core.create_qp(self.cq) for _ in range(scenario.pairs)]
        self.own = scenario.own(index)
        self.receive_pairs = scenario.receive_pairs(index)
        self.record = Record()
        self.sources = [bytearray(pattern(number, each.size)) for number, each in enumerate(scenario.requests)]
        self.targets = [bytearray(each.size) for each in scenario.requests]
        self.expected = [pattern(number, each.size) for number, each in enumerate(scenario.requests)]
        self.regions: list[MemoryRegion] = [self.core.register_memory(target) for target in self.targets]
        self.remote: list[MemoryRegion] = []
        self._walker = Walker()
        self._known: dict[tuple[bytes, int], Local] = {}
        self._steps: dict[tuple[int, int, Action], Step] = {}
        self._present: Local | None = None

    def _endpoint(self) -> Endpoint | RoceEndpoint:
        c = self.scenario
        address = bytes(15) + bytes((self.index + 1,))
        ports = PortsConfig(count=c.planes)
        if c.transport != MRC:
            return RoceEndpoint(
                RoceConfig(
                    address, WireConfig(mtu=MTU), ports, DcqcnConfig(enabled=False), timeout=c.timeout,
                    retry_cnt=c.budget, ack_every=c.ack_every, initial_psn=_FIRST_PSN, min_rnr_timer=_RNR_TIMER,
                    rnr_retry=c.budget, selective_repeat=c.selective, max_inflight_packets=16,
                ),
                self.rng,
            )  # fmt: skip
        values = [[plane << 8 | number for number in range(1, c.evs + 1)] for plane in range(c.planes)]
        count = c.planes * c.evs
        return Endpoint(
            EndpointConfig(
                address,
                wire=WireConfig(mtu=MTU),
                reliability=ReliabilityConfig(
                    timeout=c.timeout, linear_cnt=c.linear, exp_cnt=c.doubled, mpr=1, mpr_dest=1,
                    sack_every=c.sack_every, rack_inference=c.rack,
                ),
                ev=EvConfig(
                    mode=EvMode.EXPLICIT, values=values, count=count, active=count, ev_min_active=1,
                    probe_interval_ns=c.probe_interval_ns, probe_timeout_ns=300_000, probe_jitter=0.0,
                    reverse_probes=False,
                ),
                cc=congestion(c),
                ports=ports,
                initial_psn=_FIRST_PSN,
            ),
            self.rng,
        )  # fmt: skip

    # --- the beginning ---

    def begin(self) -> Local:
        """Return the state before anything happens."""
        self.rng.freeze()
        self._drain()
        self._present = self._capture(START_NS, None)
        return self._present

    # --- one step ---

    def step(self, local: Local, now: int, action: Action) -> Step:
        """Return what an action does to the end in a state."""
        key = (local.number, now, action)
        found = self._steps.get(key)
        if found is None:
            found = self._steps[key] = self._step(local, now, action)
        return found

    @property
    def computed(self) -> int:
        """How many different steps have been computed."""
        return len(self._steps)

    def _step(self, local: Local, now: int, action: Action) -> Step:
        if self._present is not local:
            restore(local.snapshot)
        self._present = None
        packets: list[tuple[int, bytes]] = []
        problem: str | None = None
        try:
            self._act(action, now)
            problem = self._collect(packets, now) or self._drain()
        except Exception as error:  # noqa: BLE001 - whatever an endpoint raises is a finding
            problem = f"{type(error).__name__}: {error}"
        problem = problem or invariants.questions(self, packets) or invariants.of_end(self)
        after = self._capture(now, local)
        self._present = after
        return Step(after, tuple(packets), problem)

    def _act(self, action: Action, now: int) -> None:
        core, kind = self.core, action.kind
        if kind is ActionKind.DELIVER:
            core.receive_datagram(action.port, action.packet, now)
        elif kind is ActionKind.TIMER:
            core.handle_timer(now)
        elif kind is ActionKind.LINK:
            core.set_port_state(action.port, action.up, now)
        elif kind is ActionKind.ENABLE:
            core.set_port_enabled(action.port, action.up, now)
        else:
            self._use(kind, now)

    def _use(self, kind: ActionKind, now: int) -> None:
        """Let the user post the next request or receive. The endpoint knows the time from its driver's last call."""
        due = self.core.next_timer()
        if due is None or due > now:
            self.core.handle_timer(now)
        record = self.record
        if kind is ActionKind.RECEIVE:
            self.core.post_recv(self.qps[self.receive_pairs[record.receives]], record.receives)
            record.receives += 1
            return
        number = self.own[record.posted]
        record.posted += 1
        remote, message = self.remote[number], self.scenario.requests[number]
        source, qp = self.sources[number], self.qps[message.pair]
        if message.immediate:
            self.core.post_write_imm(qp, source, remote.va, remote.rkey, 100 + number, number)
        else:
            self.core.post_write(qp, source, remote.va, remote.rkey, number)

    def _collect(self, packets: list[tuple[int, bytes]], now: int) -> str | None:
        """Take all packets that may leave, in turn from all ports."""
        core, ports = self.core, range(self.scenario.planes)
        while True:
            sent = [(port, packet) for port in ports for packet in core.datagrams_to_send(port, now, _ROOM_BYTES)]
            if not sent:
                return None
            packets.extend(sent)
            if len(packets) > _MOST_PACKETS:
                return f"one event caused more than {_MOST_PACKETS} packets, the last of which is {label(sent[-1][1])}"

    def _drain(self) -> str | None:
        """Take events and completions; return what they say of an internal fault."""
        record, problem = self.record, None
        while (event := self.core.next_event()) is not None:
            if isinstance(event, Fault):
                problem = f"internal fault in {event.where}: {event.error}"
            elif getattr(event, "reason", None) is not None and record.error is None:
                record.error = event.reason
        for each in self.core.poll(self.cq):
            record.done.append(Done(each.kind, each.wr_id, each.status, each.immediate))
            if each.kind in SENT:
                # The buffer is the user's again: what is sent of it from now on has other bytes.
                self.sources[each.wr_id][:] = bytes((_REUSED,)) * len(self.sources[each.wr_id])
        return problem

    def placed(self) -> tuple[bool, ...]:
        """Return which messages to this end are complete in its memory."""
        return tuple(bytes(mine) == data for mine, data in zip(self.targets, self.expected, strict=True))

    @property
    def attributes(self) -> NegotiatedAttributes | None:
        """What was negotiated, of MRC."""
        return self.qps[0].attributes if self.scenario.transport == MRC else None

    def _capture(self, now: int, before: Local | None) -> Local:
        roots = (self.core, self.cq, self.record, *self.sources, *self.targets)
        snapshot = self._walker.walk(roots, now, before.snapshot if before is not None else None)
        # Time stamps are in units of 128 ns: what is left of the clock has an effect.
        key = (snapshot.digest, now)
        local = self._known.get(key)
        if local is None:
            local = self._known[key] = Local(len(self._known), snapshot, now, self)
        return local

    @property
    def states(self) -> int:
        """How many different states of this end have been found."""
        return len(self._known)


def connected(scenario: Scenario) -> tuple[End, End]:
    """Return the two ends of a scenario, before anything was posted."""
    ends = End(scenario, REQUESTOR), End(scenario, RESPONDER)
    for pair in range(scenario.pairs):
        documents = [end.core.local_attributes(end.qps[pair]) for end in ends]
        for end, document in zip(ends, reversed(documents), strict=True):
            if end.index == RESPONDER and scenario.stays_rtr:
                end.core.accept(end.qps[pair], document, START_NS)
            else:
                end.core.connect(end.qps[pair], document, START_NS)
    for end, other in zip(ends, reversed(ends), strict=True):
        end.remote = other.regions
    return ends
