"""Internal faults: each is counted, reported once per kind, and contained; everything else goes on."""

from __future__ import annotations

import traceback
from typing import Final

from mrc_host.proto.context import EndpointContext
from mrc_host.proto.events import ErrorReason, Fault
from mrc_host.proto.paths.peer import Peer
from mrc_host.proto.timers import TimerKind

_MAX_FAULTS: Final = 64  # kinds of faults that are reported; more are only counted


class Faults:
    """Contains errors of the core: each ends the queue pairs to the peer that it concerns, and nothing else."""

    __slots__ = ("_context", "_told")

    def __init__(self, context: EndpointContext) -> None:
        self._context = context
        self._told: set[tuple[str, str, int]] = set()

    def contain(self, where: str, error: Exception, peer: Peer | None, now: int) -> None:
        """Close the peer that an exception concerns, count it, and report each kind once (event `Fault`)."""
        context = self._context
        context.counters.faults += 1
        frame = traceback.extract_tb(error.__traceback__)[-1]
        kind = (type(error).__name__, frame.filename, frame.lineno or 0)
        if kind not in self._told and len(self._told) < _MAX_FAULTS:
            self._told.add(kind)
            text = f"{type(error).__name__}: {error}"
            detail = "".join(traceback.format_exception(error))
            context.events.append(Fault(where, peer.address if peer is not None else None, text, detail))
        if peer is None:
            return
        for qp in list(peer.qps):
            try:
                qp.fail(ErrorReason.INTERNAL, now)
            except Exception:  # noqa: BLE001 - its state is what is broken
                qp.abandon(now)
        context.timers.cancel(TimerKind.PORT_STATUS, peer)
