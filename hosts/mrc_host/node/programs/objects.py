"""Objects of a program: regions, queue pairs, shared receive queues, hints; `queues` has completion queues."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from mrc_host.access import Access
from mrc_host.node.programs.pairs import Pairs
from mrc_host.node.programs.queues import Queue
from mrc_host.node.programs.shared import Memory
from mrc_host.proto.memory import MemoryRegion
from mrc_host.proto.receive import SharedReceives
from mrc_host.proto.transport import Pair
from mrc_host.verbs.requests import HintAttributes, RemoteQp

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
