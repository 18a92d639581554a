"""Both ends and the network between them: which events may happen next, and what each leads to.

Packets take `LATENCY_NS`. Those that are due at one time may be delivered in any order. Deliveries to different ends at
one time do not depend on each other, so all to end 0 come first, and then those to end 1: every other order leads to
the same state. The same holds for the fates of packets, which are chosen before the first delivery of a time, in one
order. A timer that is due when packets are runs after them, unless a packet is late.
"""

from __future__ import annotations

from enum import Enum
from typing import Final, NamedTuple

from mrc_host.proto.completion import CompletionKind, CompletionStatus
from mrc_host.proto.events import ErrorReason, QpState
from support.checker.ends import (
    REQUESTOR,
    RESPONDER,
    SENT,
    START_NS,
    Action,
    ActionKind,
    End,
    Local,
    connected,
)
from support.checker.packets import label, marked, may_mark, may_trim, timeless, trimmed
from support.checker.scenario import LATENCY_NS, MRC, Scenario

#: Steps of time in a row in which nothing went wrong and no request completed, before a run counts as one without end.
_MOST_WAITS: Final = 400
_NAMES: Final = ("requestor", "responder")


class EventKind(Enum):
    """What may happen next. The values of faults are those of `FaultKind`."""

    DELIVER = "deliver"
    RELEASE = "release"  # a late packet, or a second copy, arrives
    TIME = "time"  # the time of the next packet or timer has come
    POST = "post"
    RECEIVE = "receive"
    LINK_UP = "link up"
    ENABLE = "enable"
    DROP = "drop"
    DUPLICATE = "duplicate"
    LATE = "late"
    TRIM = "trim"
    LASTHOP = "lasthop"
    MARK = "mark"
    LINK = "link"
    DISABLE = "disable"
    CUT = "cut"
    MUTE = "mute"


FATES: Final = (EventKind.DROP, EventKind.DUPLICATE, EventKind.LATE, EventKind.TRIM, EventKind.LASTHOP, EventKind.MARK)
PORTS: Final = (EventKind.LINK, EventKind.DISABLE, EventKind.LINK_UP, EventKind.ENABLE)


class Event(NamedTuple):
    """One event: of a packet on its way to end `to`, or of that end or its port."""

    kind: EventKind
    to: int = -1
    port: int = -1
    packet: bytes = b""

    def __str__(self) -> str:
        kind = self.kind
        if self.packet:
            return f"{kind.value} {label(self.packet)} to the {_NAMES[self.to]} on port {self.port}"
        if kind in PORTS:
            return f"{kind.value} of port {self.port} of the {_NAMES[self.to]}"
        return kind.value


class Flying(NamedTuple):
    """A packet on its way."""

    due: int
    to: int
    port: int
    packet: bytes


class World(NamedTuple):
    """A state of everything. `held` may arrive at any time, `later` from the next step of time on.

    `stage`: 0 while fates are chosen, then 1 and 2 while packets arrive at end 0 and 1. `fated`: the packet whose fate
    was chosen last. `down`: ports without a link or disabled. `silent_ns`: since when nothing arrives any more.
    `waits` and `upset` say how long nothing has happened, and whether a port or the network has failed; `waits` is not
    part of the state.
    """

    now: int
    ends: tuple[Local, Local]
    flying: tuple[Flying, ...]
    held: tuple[Flying, ...]
    later: tuple[Flying, ...]
    faults: int
    stage: int = 0
    fated: tuple[int, int, bytes, int] | None = None
    down: tuple[tuple[EventKind, int, int], ...] = ()
    silent: EventKind | None = None
    silent_ns: int = 0
    upset: bool = False
    waits: int = 0


class Model:
    """The events of one scenario. Without `reduced` every order is one of its own, to test that none is left out."""

    def __init__(self, scenario: Scenario, *, reduced: bool = True) -> None:
        self.scenario = scenario
        self._reduced = reduced
        self.ends: tuple[End, End] = connected(scenario)
        kinds = {EventKind(each.value) for each in scenario.kinds}
        self._fates = tuple(each for each in FATES if each in kinds)
        self._failures = tuple(each for each in (EventKind.LINK, EventKind.DISABLE) if each in kinds)
        self._silences = tuple(each for each in (EventKind.CUT, EventKind.MUTE) if each in kinds)
        self._requests = scenario.requests
        attributes = self.ends[REQUESTOR].attributes
        if attributes is not None:
            patience = attributes.patience_ns() or 0
            self._patience_ns = 2 * patience
        else:
            self._patience_ns = (scenario.budget + 3) * (1024 << scenario.timeout)

    def first(self) -> tuple[World, str | None]:
        """Return the state before anything happens, with what is posted at the beginning."""
        scenario = self.scenario
        world = World(START_NS, (self.ends[0].begin(), self.ends[1].begin()), (), (), (), scenario.faults)
        start = []
        for end in self.ends if not scenario.late_receives else ():
            start += [Event(EventKind.RECEIVE, end.index)] * len(end.receive_pairs)
        for end in self.ends:
            start += [Event(EventKind.POST, end.index)] * (
                min(1, len(end.own)) if scenario.post_any_time else len(end.own)
            )
        problem: str | None = None
        for event in start:
            world, found = self.apply(world, event)
            problem = problem or found
        return world._replace(stage=0), problem

    # --- what may happen ---

    def complete(self, world: World) -> bool:
        """Return whether every request has been posted and has completed."""
        return all(
            local.posted == len(end.own) == sum(each.kind in SENT for each in local.done)
            for end, local in zip(self.ends, world.ends, strict=True)
        )

    def over(self, world: World) -> bool:
        """Return whether all requests have completed and no packet is on its way."""
        return not (world.flying or world.held or world.later) and self.complete(world)

    def events(self, world: World) -> list[Event]:
        """Return what may happen next; equal copies of a packet are one event."""
        found: list[Event] = []
        ripe = [each for each in world.flying if each.due <= world.now]
        if world.faults:
            if world.stage == 0:
                self._choose_fates(world, ripe, found)
            if world.silent is None and not self.complete(world):
                found.extend(Event(kind) for kind in self._silences)
        waiting = {each.to for each in ripe}
        for end in (REQUESTOR, RESPONDER):
            if world.stage <= end + 1:
                self._at_end(world, end, ripe, found)
                if end in waiting and self._reduced:
                    return found
        if not waiting and self._may_wait(world):
            found.append(Event(EventKind.TIME))
        return found

    def _choose_fates(self, world: World, ripe: list[Flying], found: list[Event]) -> None:
        seen = set()
        for each in ripe:
            rank = _rank(each, world.now)
            if rank in seen or (world.fated is not None and rank < world.fated):
                continue
            seen.add(rank)
            for kind in self._fates:
                if kind in (EventKind.TRIM, EventKind.LASTHOP) and not may_trim(each.packet):
                    continue
                if kind is EventKind.MARK and not may_mark(each.packet):
                    continue
                found.append(Event(kind, each.to, each.port, each.packet))

    def _at_end(self, world: World, end: int, ripe: list[Flying], found: list[Event]) -> None:
        seen: set[tuple[object, ...]] = set()
        for kind, packets in ((EventKind.DELIVER, ripe), (EventKind.RELEASE, world.held)):
            for each in packets:
                same = (kind, each.port, *timeless(each.packet, world.now))
                if each.to == end and same not in seen and not _unlinked(world, end, each.port):
                    seen.add(same)
                    found.append(Event(kind, end, each.port, each.packet))
        local = world.ends[end]
        if local.posted < len(self.ends[end].own):
            found.append(Event(EventKind.POST, end))
        if local.receives < len(self.ends[end].receive_pairs) and not self.complete(world):
            found.append(Event(EventKind.RECEIVE, end))
        for kind, whose, port in world.down:
            if whose == end:
                up = EventKind.LINK_UP if kind is EventKind.LINK else EventKind.ENABLE
                found.append(Event(up, end, port))
        if world.faults and not self.complete(world):
            for kind in self._failures:
                found.extend(
                    Event(kind, end, port)
                    for port in range(self.scenario.planes)
                    if (kind, end, port) not in world.down
                )

    def _may_wait(self, world: World) -> bool:
        """Return whether something happens by itself later, or the requestor, whose turn is over, may act again."""
        posted = world.ends[REQUESTOR].posted == len(self.ends[REQUESTOR].own)
        down = any(end == REQUESTOR for _, end, _ in world.down)
        if world.stage > REQUESTOR + 1 and (world.held or not posted or down):
            return True
        if self.over(world):
            return False
        return bool(world.flying or world.later) or any(local.due is not None for local in world.ends)

    # --- what it leads to ---

    def apply(self, world: World, event: Event) -> tuple[World, str | None]:
        """Return the state after an event, and what is wrong with it, if anything."""
        kind = event.kind
        if kind is EventKind.TIME:
            return self._time(world)
        if kind in FATES:
            return self._fate(world, event), None
        if kind in (EventKind.CUT, EventKind.MUTE):
            kept = [] if kind is EventKind.CUT else [RESPONDER]
            flying, held, later = (
                tuple(each for each in packets if each.to in kept)
                for packets in (world.flying, world.held, world.later)
            )
            return world._replace(
                flying=flying, held=held, later=later, faults=world.faults - 1, silent=kind, silent_ns=world.now,
                upset=True, waits=0,
            ), None  # fmt: skip
        if kind in (EventKind.DELIVER, EventKind.RELEASE):
            packets = world.flying if kind is EventKind.DELIVER else world.held
            gone = next(each for each in packets if each[1:] == event[1:] and each.due <= world.now)
            rest = _without(packets, gone)
            world = world._replace(flying=rest) if kind is EventKind.DELIVER else world._replace(held=rest)
            return self._act(world, event.to, Action(ActionKind.DELIVER, event.port, event.packet))
        if kind in PORTS:
            return self._port(world, event)
        return self._act(world, event.to, Action(ActionKind.POST if kind is EventKind.POST else ActionKind.RECEIVE))

    def _fate(self, world: World, event: Event) -> World:
        gone = next(each for each in world.flying if each[1:] == event[1:] and each.due <= world.now)
        flying, held, later, packet = _without(world.flying, gone), world.held, world.later, gone.packet
        if event.kind is EventKind.DUPLICATE:
            flying, held = world.flying, (*held, gone)
        elif event.kind is EventKind.LATE:
            later = (*later, gone)
        elif event.kind is not EventKind.DROP:
            changed = (
                marked(packet)
                if event.kind is EventKind.MARK
                else trimmed(packet, last_hop=event.kind is EventKind.LASTHOP)
            )
            flying = (*flying, gone._replace(packet=changed))
        return world._replace(
            flying=flying, held=held, later=later, faults=world.faults - 1,
            fated=_rank(gone, world.now) if self._reduced else None, waits=0,
        )  # fmt: skip

    def _port(self, world: World, event: Event) -> tuple[World, str | None]:
        kind, end, port = event.kind, event.to, event.port
        up = kind in (EventKind.LINK_UP, EventKind.ENABLE)
        linked = kind in (EventKind.LINK, EventKind.LINK_UP)
        if up:
            gone = (EventKind.LINK if linked else EventKind.DISABLE, end, port)
            world = world._replace(down=tuple(each for each in world.down if each != gone))
        else:
            world = world._replace(
                down=tuple(sorted((*world.down, (kind, end, port)), key=str)), faults=world.faults - 1, upset=True
            )
        world = _lose_unlinked(world._replace(waits=0))
        return self._act(world, end, Action(ActionKind.LINK if linked else ActionKind.ENABLE, port, up=up))

    def _time(self, world: World) -> tuple[World, str | None]:
        """Go to the time of the next packets, or to that of the next timers and run them."""
        arrival = min((each.due for each in world.flying), default=None)
        timers = [local.due for local in world.ends if local.due is not None]
        timer = max(min(timers), world.now) if timers else None
        over = self.complete(world) and arrival is not None
        world = world._replace(held=world.held + world.later, later=(), stage=0, fated=None, waits=world.waits + 1)
        if arrival is not None and (timer is None or arrival <= timer or over):
            return _lose_unlinked(world._replace(now=max(arrival, world.now))), None
        if timer is None or self.over(world):
            return world, None
        world = world._replace(now=timer)
        problem: str | None = None
        for end, local in enumerate(world.ends):
            if local.due is not None and local.due <= timer:
                world, found = self._act(world, end, Action(ActionKind.TIMER))
                problem = problem or found
        world = world._replace(stage=0)
        return world, problem or self._too_long(world)

    def _too_long(self, world: World) -> str | None:
        """Check that a run ends."""
        if world.waits > _MOST_WAITS:
            return f"nothing has completed in {world.waits} steps of time"
        if world.silent is not None and not self.complete(world):
            since = world.now - world.silent_ns
            if world.ends[REQUESTOR].state is QpState.RTS and since > self._patience_ns:
                return (
                    f"in RTS {since / 1000:g} us after the network fell silent; {self._patience_ns / 1000:g} are enough"
                )
        return None

    def _act(self, world: World, end: int, action: Action) -> tuple[World, str | None]:
        """Let an action happen at one end, and put what it sends on its way."""
        before = world.ends[end]
        step = self.ends[end].step(before, world.now, action)
        local = step.local
        ends = (local, world.ends[1]) if end == REQUESTOR else (world.ends[0], local)
        flying = world.flying
        if step.packets and world.silent is not EventKind.CUT:
            to = 1 - end
            if world.silent is None or to == RESPONDER:
                due = world.now + LATENCY_NS
                flying += tuple(Flying(due, to, port, packet) for port, packet in step.packets)
        stage = max(world.stage, end + 1) if self._reduced else 0
        after = world._replace(ends=ends, flying=flying, stage=stage, fated=None)
        if len(local.done) > len(before.done):
            after = after._replace(waits=0)
        return after, step.problem or self._judge(after)

    # --- what must hold of both ends ---

    def _judge(self, world: World) -> str | None:
        """Check what a completion promises, and why a queue pair failed."""
        for local, other in (world.ends, world.ends[::-1]):
            for each in local.done:
                if each.kind in SENT and each.status is CompletionStatus.SUCCESS and not other.placed[each.number]:
                    return f"request {each.number} completed, and its bytes are not at the responder"
            received = sum(each.kind is CompletionKind.RECV_IMM and each.immediate is not None for each in other.done)
            promised = sum(
                each.kind is CompletionKind.WRITE_IMM and each.status is CompletionStatus.SUCCESS for each in local.done
            )
            if promised > received:
                return f"{promised} requests with immediate completed, and {received} immediates were delivered"
        for local in world.ends:
            if local.state is QpState.ERROR and local.error not in self._causes(world):
                reason = local.error.value if local.error is not None else "no reason"
                return f"the queue pair of the {_NAMES[world.ends.index(local)]} failed: {reason}"
        return None

    def _causes(self, world: World) -> set[ErrorReason | None]:
        """Return why a queue pair may fail in this run."""
        scenario, found = self.scenario, set[ErrorReason | None]()
        if world.upset or scenario.faults - world.faults > scenario.budget:
            found.add(ErrorReason.RETRY_EXCEEDED)
        receives = sum(len(end.receive_pairs) for end in self.ends)
        if scenario.late_receives or receives < sum(each.immediate for each in self._requests):
            if scenario.transport == MRC:
                found |= {ErrorReason.NO_RECEIVE_POSTED, ErrorReason.REMOTE_OPERATION}
            else:
                found.add(ErrorReason.RNR_RETRY_EXCEEDED)
        return found

    def stuck(self, world: World, events: list[Event]) -> str | None:
        """Return what is wrong with a state in which nothing can happen any more, None if it is the end."""
        if events or self.over(world):
            return None
        return "requests have not completed, and nothing is left to happen"

    def key(self, world: World) -> tuple[object, ...]:
        """Return what distinguishes a state from all that behave otherwise."""
        now = world.now
        return (
            now & 127,
            *((local.key, now - local.at) for local in world.ends),
            *(
                tuple(sorted(_token(each, now) for each in packets))
                for packets in (world.flying, world.held, world.later)
            ),
            world.faults,
            world.stage,
            world.fated,
            world.down,
            world.silent,
            now - world.silent_ns if world.silent is not None else 0,
            world.upset,
        )


def _token(flying: Flying, now: int) -> tuple[int, int, int, bytes, int]:
    return (max(flying.due - now, 0), flying.to, flying.port, *timeless(flying.packet, now))


def _rank(flying: Flying, now: int) -> tuple[int, int, bytes, int]:
    return (flying.to, flying.port, *timeless(flying.packet, now))


def _without(packets: tuple[Flying, ...], gone: Flying) -> tuple[Flying, ...]:
    at = packets.index(gone)
    return packets[:at] + packets[at + 1 :]


def _unlinked(world: World, end: int, port: int) -> bool:
    return (EventKind.LINK, end, port) in world.down


def _lose_unlinked(world: World) -> World:
    """Lose the packets that are due at ports without a link."""
    if not world.down:
        return world
    kept = tuple(each for each in world.flying if each.due > world.now or not _unlinked(world, each.to, each.port))
    return world._replace(flying=kept)
