"""Waits of an MRC queue pair. It only looks: nothing here changes the state of a queue pair."""

from __future__ import annotations

from mrc_host.proto.events import QpState
from mrc_host.proto.reliability.qp import QueuePair
from mrc_host.proto.reliability.scoreboard import IN_FLIGHT
from mrc_host.proto.waiting import Waiting, numbers
from mrc_host.proto.wire.psn import PSN_MASK


def waits_for(qp: QueuePair, now: int) -> Waiting | None:
    """Return the wait of an MRC queue pair; None if it has nothing to do (or is in ERROR, where nothing waits)."""
    requestor = qp.requestor
    if qp.state is not QpState.RTS or not requestor.unacked:
        return None
    board = requestor.board
    flying = [sent for sent in board.outstanding.values() if sent.state == IN_FLIGHT]
    planes = tuple(sorted({sent.plane for sent in flying}))
    oldest = board.oldest()
    psn = board.nxt if oldest is None else oldest.psn
    wire = psn & PSN_MASK
    usable = qp.evs.usable & qp.evs.planes()
    if flying:
        what = f"SACK of PSN {min(sent.psn for sent in flying) & PSN_MASK} on {numbers(planes)}"
    elif not usable:
        count = qp.context.config.ports.count
        ours, theirs = [
            ",".join(str(port) for port in range(count) if mask >> port & 1) or "none"
            for mask in (qp.context.ports.mask, qp.peer.remote_ports)
        ]
        what = f"a plane to send PSN {wire} on (own ports up: {ours}; the peer's: {theirs})"
    elif requestor.recovery.single_packet_mode:
        what = f"its turn to send PSN {wire} again to a peer that is silent"
    elif requestor.recovery.hold_ns > now:
        what = f"the end of the pause after the peer's refusal of PSN {wire}"
    elif psn > requestor.limit:
        what = f"room at the peer for PSN {wire}, which allows PSNs up to {requestor.limit & PSN_MASK}"
    else:
        what = f"its turn to send PSN {wire}"
    since = max(board.progress_ns, requestor.unacked[0].posted_ns)
    count = 0 if oldest is None else oldest.count
    return Waiting(what, since, wire, count, len(flying), planes, qp.attributes.patience_ns())
