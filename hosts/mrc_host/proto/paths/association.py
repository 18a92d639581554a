"""Common state of both halves of a queue pair: who they are, what was negotiated, and how packets reach the peer."""

from __future__ import annotations

from typing import Protocol

from mrc_host.proto.completion import CompletionStatus
from mrc_host.proto.config import EvConfig
from mrc_host.proto.congestion.qpcc import Qpcc
from mrc_host.proto.context import EndpointContext
from mrc_host.proto.events import ErrorReason
from mrc_host.proto.negotiation import NegotiatedAttributes
from mrc_host.proto.paths.ev import EvSet
from mrc_host.proto.paths.peer import Peer
from mrc_host.proto.paths.route import Route


class Fail(Protocol):
    """Ends the queue pair: every request and receive completes, the oldest request with `status`."""

    def __call__(
        self,
        reason: ErrorReason,
        now: int,
        *,
        status: CompletionStatus = CompletionStatus.WR_FLUSH_ERR,
    ) -> None: ...


class Association:
    """See the module's docstring. `peer`, `route` and `qpcc` are there from RTR on, while `connected`."""

    __slots__ = (
        "attributes", "connected", "context", "domain", "ev_config", "evs", "fail", "number", "peer", "qpcc",
        "remote_number", "route",
    )  # fmt: skip
    peer: Peer
    route: Route
    qpcc: Qpcc

    def __init__(
        self,
        number: int,
        context: EndpointContext,
        attributes: NegotiatedAttributes,
        evs: EvSet,
        ev_config: EvConfig,
        fail: Fail,
    ) -> None:
        self.number = number
        self.remote_number = 0
        self.context = context
        self.attributes = attributes
        self.evs = evs
        self.ev_config = ev_config
        self.fail = fail
        self.connected = False
        self.domain = 0  # whose memory the peer may write to
