"""Transports as a workload uses them: how queue pairs are created, and what can be seen of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from mrc_host.node.own_evs import HostEvs
from mrc_host.proto.completion import CompletionQueue
from mrc_host.proto.config import EvConfig
from mrc_host.proto.congestion.base import CcConfig
from mrc_host.proto.endpoint import Endpoint
from mrc_host.proto.reliability import stall
from mrc_host.proto.reliability.qp import QueuePair
from mrc_host.proto.roce import qp as roce_qp
from mrc_host.proto.roce.endpoint import RoceEndpoint
from mrc_host.proto.roce.qp import RoceQueuePair
from mrc_host.proto.transport import Pair, Transport
from mrc_host.proto.waiting import Waiting

P = TypeVar("P", bound=Pair)


@dataclass(frozen=True)
class Profiles:
    """EV and CC profile of a job's QPs; None: the host's own. `per_peer`: with the host's EVs towards each peer."""

    ev: EvConfig | None = None
    cc: CcConfig | None = None
    per_peer: bool = True


@dataclass(frozen=True)
class Stack(Generic[P]):
    """A transport as jobs use it.

    `length_only`: no payload is placed, and regions need no memory. `create(peer, count, profiles)` makes queue pairs
    towards an address; `waiting(qp, now)` says what one waits for; `moved(qp)` is a number that changes when a packet
    is placed or acknowledged.
    """

    endpoint: Transport[P]
    length_only: bool
    create: Callable[[str, int, Profiles], list[P]]
    waiting: Callable[[P, int], Waiting | None]
    moved: Callable[[P], int]


def mrc(endpoint: Endpoint, cq: CompletionQueue, own_evs: HostEvs) -> Stack[QueuePair]:
    """Make the stack for MRC: queue pairs to one peer share one EV profile."""

    def create(peer: str, count: int, profiles: Profiles) -> list[QueuePair]:
        ev = profiles.ev or endpoint.config.ev
        if profiles.per_peer:
            ev = own_evs.towards(ev, peer)
        return [endpoint.create_qp(cq, cq, ev=ev, cc=profiles.cc) for _ in range(count)]

    def moved(qp: QueuePair) -> int:
        return qp.requestor.board.una + qp.responder.counters.payload_bytes_placed

    return Stack(endpoint, endpoint.config.wire.length_only, create, stall.waits_for, moved)


def roce(endpoint: RoceEndpoint, cq: CompletionQueue) -> Stack[RoceQueuePair]:
    """Make the stack for RoCE: one path per queue pair, no profiles."""

    def create(peer: str, count: int, profiles: Profiles) -> list[RoceQueuePair]:
        return [endpoint.create_qp(cq, cq) for _ in range(count)]

    def waits(qp: RoceQueuePair, now: int) -> Waiting | None:
        return roce_qp.waits_for(qp, (qp.retry_cnt + 1) * (qp.timeout_ns or 0))

    return Stack(endpoint, endpoint.config.wire.length_only, create, waits, lambda qp: qp.una + qp.epsn)
