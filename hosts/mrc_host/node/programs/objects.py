"""What a program owns: regions, completion queues and their channels, queue pairs, hints."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from mrc_host.access import Access
from mrc_host.node.programs.pairs import Pairs
from mrc_host.node.programs.shared import Memory, WakeupCounter
from mrc_host.proto.completion import CompletionQueue
from mrc_host.proto.memory import MemoryRegion
from mrc_host.proto.receive import SharedReceives
from mrc_host.proto.transport import Pair
from mrc_host.verbs.layout import COMPLETION, COMPLETION_BYTES, WcFlags, WcStatus
from mrc_host.verbs.requests import HintAttributes, RemoteQp
from mrc_host.verbs.ring import Producer

P = TypeVar("P", bound=Pair)


@dataclass(eq=False)
class ExchangedMemory:
    """Memory that has taken the place of a program's pages from `first` on, so that both have it mapped.

    `regions`: those that lie in it, wholly or in part.
    """

    number: int
    memory: Memory
    first: int
    regions: int

    def map(self, region: MemoryRegion) -> None:
        """Let a region of the program's memory use the part that lies in it."""
        at = self.first - region.address
        view = self.memory.buffer[max(-at, 0) : max(region.length - at, 0)]
        if len(view):
            region.view, region.view_at = view, max(at, 0)


@dataclass(eq=False)
class Region:
    """Registered memory. `uses`: sends under way that read from it, or wait for an answer into it. `memory`: None of a
    program's own, of which `exchanged` is a part."""

    region: MemoryRegion
    memory: Memory | None
    domain: int
    access: Access
    exchanged: ExchangedMemory | None = None
    uses: int = 0


@dataclass(eq=False)
class Channel:
    """Where completion queues notify of completions. `due`: notifications for which its bell has not been rung yet."""

    number: int
    bell: WakeupCounter
    queues: int = 0
    due: int = 0


class Queue:
    """A completion queue: the endpoint's, and the ring from which the program takes the completions.

    `armed`: of which next completion the program wants a notification: 0 (none), 1 (any), or 2 (solicited or failed).
    `events` counts the notifications.
    """

    __slots__ = (
        "armed", "channel", "events", "inner", "memory", "missed", "number", "overflowed", "ring", "told", "users",
        "watching",
    )  # fmt: skip

    def __init__(self, inner: CompletionQueue, memory: Memory, capacity: int, channel: Channel | None) -> None:
        self.inner = inner
        self.number = inner.number
        self.memory = memory
        self.ring = Producer(memory.buffer, capacity, COMPLETION_BYTES)
        self.channel = channel
        self.users: list[Any] = []
        self.armed = 0
        self.events = 0
        self.told = 0  # one more than the number of the newest completion that is solicited or failed
        self.overflowed = False
        #: Whether it takes changes of EVs instead of completions, and how many found no room since the last.
        self.watching = False
        self.missed = 0

    def push(
        self,
        wr_id: int,
        status: WcStatus,
        opcode: int,
        number: int,
        nbytes: int,
        immediate: int,
        flags: WcFlags,
        ended: int,
    ) -> bool:
        """Add a completion; False when there is no place for it.

        Raises:
            RingCorrupt: the program has written an impossible head into the ring.
        """
        ring = self.ring
        if self.overflowed or not ring.room():
            return False
        at = ring.at(ring.tail)
        COMPLETION.pack_into(
            ring.buffer, at, wr_id, status, opcode, number, nbytes, immediate, flags, ended & 0xFFFFFFFF
        )
        ring.tail += 1
        ring.publish()
        loud = bool(status) or flags & WcFlags.SOLICITED
        if loud:
            self.told = ring.tail
        if self.armed and (self.armed == 1 or loud):
            self.notify()
        return True

    def report(self, profile: int, state: int, ev: int, plane: int) -> None:
        """Add a change of an EV, or count it where there is no room; such a queue never overflows.

        Raises:
            RingCorrupt: as `push`.
        """
        if self.push(profile, WcStatus.SUCCESS, state, ev, plane, self.missed, WcFlags.SOLICITED, 0):
            self.missed = 0
        else:
            self.missed += 1

    def arm(self, seen: int, solicited: bool) -> None:
        """Ask for a notification of the next completion after the first `seen`: at once, if it is there."""
        self.armed = 2 if solicited else 1
        # The program counts in 64 bits; what it says it has seen is only compared.
        if (self.told if solicited else self.ring.tail) > seen:
            self.notify()

    def notify(self) -> None:
        """Notify the channel, and disarm."""
        self.armed = 0
        if self.channel is not None:
            self.events += 1
            self.ring.note(self.events)
            self.channel.due += 1


@dataclass(eq=False)
class SharedQueue:
    """A shared receive queue of a program."""

    inner: SharedReceives
    domain: int
    max_wr: int
    max_sge: int


@dataclass(frozen=True, slots=True)
class PostedRequest:
    """A work request under way: the values for its completion, and the regions that it uses."""

    wr_id: int
    signaled: bool
    regions: tuple[Region, ...]


@dataclass(eq=False)
class QueuePairOf(Generic[P]):
    """A queue pair of a program, around the endpoint's.

    `posted`: sends under way, in order; `receiving`: receives under way; `sent` and `received` count those that ended.
    `of`: the transport's queue pairs, of which it is one. `document` or `remote`: the peer's, from RTR on. `why`: what
    the program did wrong, if that ended the queue pair. `srq`: where its receives come from, if they are shared.
    """

    of: Pairs[P]
    qp: P
    number: int
    domain: int
    send: Queue
    recv: Queue
    signal_all: bool
    max_send: int
    max_recv: int
    max_sge: int
    max_recv_sge: int
    max_inline: int
    ev_profile: str
    cc_profile: str
    posted: deque[PostedRequest] = field(default_factory=deque)
    receiving: int = 0
    sent: int = 0
    received: int = 0
    hint: int | None = None
    document: object = None
    remote: RemoteQp | None = None
    why: str = ""
    srq: SharedQueue | None = None

    def forget_requests(self) -> None:
        """End all work requests without a completion, as on the way to RESET."""
        for posted in self.posted:
            for region in posted.regions:
                region.uses -= 1
        self.sent += len(self.posted)
        self.received += self.receiving
        self.posted.clear()
        self.receiving = 0


@dataclass(eq=False)
class Hint:
    """The traffic that a program expects (`mrc_qp_hint_attr`). `users`: queue pairs that name it."""

    attributes: HintAttributes
    users: int = 0
