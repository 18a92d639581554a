"""Transports as a workload uses them: how queue pairs are created, and what can be seen of them."""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from mrc_host.node.own_evs import HostEvs
from mrc_host.proto.completion import CompletionQueue
from mrc_host.proto.config import EvConfig
from mrc_host.proto.congestion.base import CcConfig
from mrc_host.proto.endpoint import Endpoint
from mrc_host.proto.limits import check_range
from mrc_host.proto.reliability import stall
from mrc_host.proto.reliability.qp import QueuePair
from mrc_host.proto.roce import qp as roce_qp
from mrc_host.proto.roce.endpoint import RoceEndpoint
from mrc_host.proto.roce.qp import RoceQueuePair
from mrc_host.proto.transport import Pair, Transport
from mrc_host.proto.waiting import Waiting
from mrc_topo.base import rpc

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


#: What a work request takes at most, bytes, as `ibv_port_attr.max_msg_sz`.
MAX_MESSAGE_BYTES: Final = 1 << 31


@dataclass(frozen=True)
class Limits:
    """The limits of each program, except `programs`, which is the host's.

    `memory` is in bytes, with all rings; `work_requests` and `completions` are of one queue.
    """

    programs: int = 16
    memory: int = 1 << 30
    regions: int = 1024
    queue_pairs: int = 1024
    completion_queues: int = 256
    completions: int = 1 << 16
    work_requests: int = 4096
    submissions: int = 4096

    def __post_init__(self) -> None:
        check_range("verbs.programs", self.programs, 0, 1024)
        check_range("verbs.memory", self.memory, 1 << 20, 1 << 44)
        check_range("verbs.regions", self.regions, 1, 1 << 20)
        check_range("verbs.queue_pairs", self.queue_pairs, 1, 1 << 16)
        check_range("verbs.completion_queues", self.completion_queues, 1, 1 << 16)
        check_range("verbs.completions", self.completions, 1, 1 << 22)
        check_range("verbs.work_requests", self.work_requests, 1, 1 << 16)
        check_range("verbs.submissions", self.submissions, 16, 1 << 16)


class RefusedError(rpc.RefusedError):
    """A request that is not carried out; `number` is an errno."""

    def __init__(self, number: int, text: str) -> None:
        super().__init__(text, number)


def wanted(name: str, value: int, limit: int, key: str, number: int = errno.ENOMEM) -> None:
    """Check how many objects a program would have against a limit.

    Raises:
        RefusedError: they are too many, with the errno `number`; the text names the key of the configuration.
    """
    if value > limit:
        raise RefusedError(number, f"{value} {name}; this host allows {limit} (`agents.verbs.{key}`)")


def sized(name: str, value: int, limit: int, key: str) -> None:
    """Check the size of one object against what the device's attributes tell: beyond it no device of this kind goes.

    Raises:
        RefusedError: it is too large (EINVAL, as the kernel's drivers answer); the text names the key.
    """
    wanted(name, value, limit, key, errno.EINVAL)
