"""All programs on a host: who they are, when they are served, and what of the endpoint's events is whose.

A program that breaks the rules of its rings loses its connection, and with it all it has; nothing else notices.
"""

from __future__ import annotations

import ipaddress
import itertools
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Final, Generic, TypeVar

from mrc_host.node.profiles import DEFAULT, ControlledQp
from mrc_host.node.programs.completions import deliver
from mrc_host.node.programs.objects import QueuePairOf
from mrc_host.node.programs.program import Answer, Program
from mrc_host.node.programs.shared import Resources, Wires
from mrc_host.node.programs.submissions import serve
from mrc_host.node.stacks import Limits, RefusedError
from mrc_host.proto.events import (
    CompletionsReady,
    ErrorReason,
    EvChanged,
    Event,
    EvState,
    LastReceiveTaken,
    PortChanged,
    QpError,
    QpState,
    QpStateChanged,
    SrqLimitReached,
)
from mrc_host.proto.limits import ConfigError
from mrc_host.proto.reliability.qp import QueuePair
from mrc_host.proto.transport import Pair
from mrc_host.requests import ProgramList, ProgramRow
from mrc_host.verbs.layout import EventType, RingCorrupt

P = TypeVar("P", bound=Pair)
#: Work requests that are taken from one program before the next one has its turn.
BUDGET: Final = 256
EINVAL: Final = 22
EMFILE: Final = 24
#: States of which profiles tell, with the numbers of `mrc_ctl_ev_state`.
_EV_STATES: Final = {EvState.GOOD: 1, EvState.ASSUMED_BAD: 2}
_NUMBERED: Final = re.compile(r"c-[1-9][0-9]{0,19}\Z")
_EV_EVENTS: Final = {
    EvState.GOOD: EventType.EV_GOOD,
    EvState.SKIP: EventType.EV_GOOD,
    EvState.ASSUMED_BAD: EventType.EV_ASSUMED_BAD,
    EvState.DENIED: EventType.EV_DENIED,
}


class Programs(Generic[P]):
    """See the module's docstring.

    Args:
        wires: the transports.
        limits: what programs may have.
        ports: whether each port of the host is up.
        address: of the host, as text.
        mtu: of the path.
        fault: called with the place, the error and the time of an internal error.
    """

    def __init__(
        self,
        wires: Wires,
        limits: Limits,
        *,
        ports: Callable[[], list[bool]],
        address: str,
        mtu: int,
        fault: Callable[[str, Exception, int], None],
    ) -> None:
        self.wires = wires
        self.limits = limits
        self.ports = ports
        self.address = address
        self.mtu = mtu
        self.fault = fault
        self.connected: dict[int, tuple[Program[P], Callable[[str, int], None]]] = {}
        self._now = 0
        self.ejected = 0  # programs that broke a rule
        self._numbers = itertools.count(1)
        self._domains = itertools.count(1)

    # -- programs come and go ---------------------------------------------------------------------------------

    def connect(self, resources: Resources, hang_up: Callable[[str, int], None]) -> Program[P]:
        """Add a program. `hang_up(why, now)` must close its connection, which leads to `disconnect`.

        Raises:
            RefusedError: there are too many.
        """
        if len(self.connected) >= self.limits.programs:
            raise RefusedError(
                EMFILE,
                f"{len(self.connected)} programs are connected; this host allows no more (`agents.verbs.programs`)",
            )
        program: Program[P] = Program(
            next(self._numbers),
            self.wires,
            self.limits,
            resources,
            ports=self.ports,
            address=self.address,
            domains=lambda: next(self._domains),
            mtu=self.mtu,
        )
        self.connected[program.number] = (program, hang_up)
        return program

    def disconnect(self, program: Program[P], now: int) -> None:
        """Release all resources of a program that has ended in any way."""
        if self.connected.pop(program.number, None) is not None:
            program.close(now)

    def request(self, program: Program[P], op: object, arguments: Mapping[str, object], now: int) -> Answer:
        """Serve a request of a program, after what it has posted and what has completed before.

        Raises:
            RefusedError: it is refused.
        """
        self._serve(program, now, 1 << 16)
        if program.number not in self.connected:
            raise RefusedError(EINVAL, "the program has spoilt its rings and lost its connection")
        for queue in list(program.queues):
            self.completions(queue, now)
        try:
            return program.request(op, arguments, now)
        except (QpError, ConfigError, ValueError, KeyError, TypeError) as error:
            raise RefusedError(EINVAL, str(error)) from error

    def _disconnect(self, program: Program[P], why: str, now: int) -> None:
        self.ejected += 1
        if program.number in self.connected:
            self.connected[program.number][1](why, now)

    # -- serving ------------------------------------------------------------------------------------------------

    def posted(self) -> bool:
        """Return whether a program has posted something that has not been taken yet."""
        for program, _ in self.connected.values():
            ring = program.submissions
            if ring.words[0] != ring.head:
                return True
        return False

    def serve(self, now: int, /) -> None:
        """Handle the requests that programs have posted; of each program no more at once than is fair."""
        if not self.posted():
            return
        self.wires.driven().handle_timer(now)  # what is posted counts from now on
        for program, _ in list(self.connected.values()):
            self._serve(program, now, BUDGET)

    def _serve(self, program: Program[P], now: int, budget: int) -> None:
        try:
            serve(program, now, budget)
        except RingCorrupt as error:
            self._disconnect(program, f"its ring of work requests: {error}", now)
        except Exception as error:  # noqa: BLE001 - an error of ours is contained where it arose
            self.fault("a program's work requests", error, now)
            self._disconnect(program, f"internal fault: {error}", now)

    def tell(self) -> None:
        """Ring the bells of the completion channels that have notifications."""
        for program, _ in self.connected.values():
            for channel in program.channels.values():
                if channel.due:
                    channel.bell.ring(channel.due)
                    channel.due = 0

    # -- events of the endpoint -----------------------------------------------------------------------------------

    def completions(self, number: int, now: int) -> None:
        """Deliver what completed into a queue, if the queue belongs to a program."""
        for program, _ in list(self.connected.values()):
            queue = program.queues.get(number)
            if queue is not None:
                try:
                    deliver(program, queue, now)
                except RingCorrupt as error:
                    self._disconnect(program, f"a ring of completions: {error}", now)
                except Exception as error:  # noqa: BLE001
                    self.fault("a program's completions", error, now)
                    self._disconnect(program, f"internal fault: {error}", now)
                return

    def owner(self, number: int) -> tuple[Program[P], QueuePairOf[P]] | None:
        """Return the program that owns a queue pair, and the queue pair; None if no program does."""
        for program, _ in self.connected.values():
            pair = program.pairs.get(number)
            if pair is not None:
                return program, pair
        return None

    def holders(self) -> Iterator[ControlledQp]:
        """Yield the queue pairs of MRC, as a controller sees them; their peers are addresses."""
        for program, _ in self.connected.values():
            for pair in program.pairs.values():
                if isinstance(pair.qp, QueuePair):
                    peer = str(ipaddress.IPv6Address(pair.qp.peer.address)) if pair.qp.connected else ""
                    yield ControlledQp(peer, pair.qp, pair.ev_profile, pair.cc_profile)

    def event(self, event: Event, now: int) -> None:
        """Notify the programs that an event concerns."""
        self._now = now
        if isinstance(event, CompletionsReady):
            return
        if isinstance(event, PortChanged):
            if event.peer is None:
                kind = EventType.PORT_ACTIVE if event.up else EventType.PORT_ERR
            else:
                kind = EventType.PEER_PORT_ACTIVE if event.up else EventType.PEER_PORT_ERR
            for program, _ in list(self.connected.values()):
                self._tell(program, kind, event.port + 1)
        elif isinstance(event, QpStateChanged):
            found = self.owner(event.qpn)
            if found is None or event.new is not QpState.ERROR:
                return
            program, pair = found
            if event.reason is ErrorReason.REQUESTED and not pair.why:
                return
            reason = event.reason.value if event.reason is not None else ""
            pair.why = pair.why or reason
            self._tell(program, EventType.QP_FATAL, event.qpn, text=pair.why)
        elif isinstance(event, SrqLimitReached):
            for program, _ in list(self.connected.values()):
                if event.srq in program.shared:
                    self._tell(program, EventType.SRQ_LIMIT_REACHED, event.srq)
        elif isinstance(event, LastReceiveTaken):
            found = self.owner(event.qpn)
            if found is not None:
                self._tell(found[0], EventType.QP_LAST_WQE_REACHED, event.qpn)
        elif isinstance(event, EvChanged):
            found = self.owner(event.qpn)
            if found is not None:
                kind = _EV_EVENTS[event.new]
                self._tell(found[0], kind, event.qpn, event.ev, event.plane, event.losses, event.cause)

    def ev_changed(self, profile: str, event: EvChanged, state: EvState) -> None:
        """Report a change of an EV to the programs that watch them."""
        number = int(profile[2:]) if _NUMBERED.match(profile) else 0 if profile == DEFAULT else None
        for program, _ in list(self.connected.values()):
            for queue in program.queues.values():
                if queue.watching and number is not None:
                    try:
                        queue.report(number, _EV_STATES[state], event.ev, event.plane)
                    except RingCorrupt as error:
                        self._disconnect(program, f"a ring of events: {error}", self._now)

    def _tell(
        self, program: Program[P], kind: EventType, element: int, a: int = 0, b: int = 0, c: int = 0, text: str = ""
    ) -> None:
        try:
            program.tell(kind, element, a, b, c, text)
        except RingCorrupt as error:
            self._disconnect(program, f"its ring of events: {error}", self._now)

    def document(self) -> ProgramList:
        """Return what all programs have."""
        rows = [
            ProgramRow(
                number=program.number,
                memory=program.memory.used,
                regions=len(program.regions),
                queue_pairs=len(program.pairs),
                completion_queues=len(program.queues),
                events_lost=program.events_lost,
            )
            for program, _ in self.connected.values()
        ]
        return ProgramList(rows, self.ejected)
