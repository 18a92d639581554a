"""A queue pair, as the peer, the route and the congestion context see it that it is connected by."""

from __future__ import annotations

from typing import Protocol

from mrc_host.proto.completion import CompletionStatus
from mrc_host.proto.congestion.qpcc import Qpcc, Sender
from mrc_host.proto.events import ErrorReason
from mrc_host.proto.paths.ev import EvSet
from mrc_host.proto.timers import Timed


class Member(Protocol):
    """See the module's docstring."""

    @property
    def evs(self) -> EvSet:
        """Its EVs."""

    @property
    def qpcc(self) -> Qpcc:
        """The congestion context that it uses."""

    @property
    def requestor(self) -> Sender:
        """Its sending half."""

    def owns(self, timed: Timed) -> bool:
        """Return whether a timer's owner is the queue pair or a part of it."""

    def planes_changed(self) -> None:
        """Handle a change of the planes that are usable towards the peer, or on which the queue pair has EVs."""

    def planes_lost(self, planes: int, now: int) -> None:
        """Handle planes (a bit mask) that ceased to be usable: what is in flight there is lost."""

    def planes_returned(self, now: int) -> None:
        """Probe EVs that look bad at once: a port of this endpoint came back."""

    def peer_restarted(self, instance: int, now: int) -> None:
        """Handle a peer whose endpoint is `instance` now: a queue pair of its earlier instance is gone."""

    def fail(
        self,
        reason: ErrorReason,
        now: int,
        *,
        status: CompletionStatus = CompletionStatus.WR_FLUSH_ERR,
    ) -> None:
        """Go to ERROR."""

    def abandon(self, now: int) -> None:
        """Go to ERROR although its own state may be damaged."""
