"""What a queue pair with unfinished requests waits for, and since when, for whoever must name the culprit of a stall.

It only looks: nothing here changes the state of a queue pair.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mrc_host.proto.events import QpState
from mrc_host.proto.reliability.scoreboard import IN_FLIGHT
from mrc_host.proto.wire.psn import PSN_MASK

if TYPE_CHECKING:
    from mrc_host.proto.reliability.qp import QueuePair
    from mrc_host.proto.roce.qp import RoceQueuePair


@dataclass(frozen=True)
class Waiting:
    """`what` is waited for since `since_ns` (of the endpoint's clock) by requests of which `psn` is the oldest packet
    (24 bits, as on the wire), sent `sent` times; `packets` are on their way on `planes`.

    `patience_ns`: how long a packet is retried in a silent network; None: for ever.
    """

    what: str
    since_ns: int
    psn: int
    sent: int
    packets: int
    planes: tuple[int, ...]
    patience_ns: int | None


def numbers(values: tuple[int, ...]) -> str:
    """As `plane 1`, `planes 0,2`."""
    return f"plane{'s' if len(values) > 1 else ''} {','.join(map(str, values))}"


def of_qp(qp: QueuePair, now: int) -> Waiting | None:
    """What an MRC queue pair waits for; None if it has nothing to do (or is in ERROR, where nothing waits)."""
    requestor = qp.requestor
    if qp.state is not QpState.RTS or not requestor.unacked:
        return None
    board = requestor.board
    flying = [sent for sent in board.outstanding.values() if sent.state == IN_FLIGHT]
    planes = tuple(sorted({sent.plane for sent in flying}))
    oldest = board.outstanding.get(min(board.outstanding, default=-1))
    psn = board.nxt if oldest is None else oldest.psn
    wire = psn & PSN_MASK
    usable = qp.peer.planes & qp.evs.planes()
    if flying:
        what = f"SACK of PSN {min(sent.psn for sent in flying) & PSN_MASK} on {numbers(planes)}"
    elif not usable:
        count = qp.context.config.ports.count
        ours, theirs = (
            ",".join(str(port) for port in range(count) if mask >> port & 1) or "none"
            for mask in (qp.context.ports.mask, qp.peer.remote_ports)
        )
        what = f"a plane to send PSN {wire} on (own ports up: {ours}; the peer's: {theirs})"
    elif requestor.recovery.alone:
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


def of_roce(qp: RoceQueuePair, patience_ns: int) -> Waiting | None:
    """What a RoCE queue pair waits for."""
    if qp.state is not QpState.RTS or not qp.messages:
        return None
    flying = qp.next_psn - qp.una
    wire = qp.una & PSN_MASK
    what = f"ACK of PSN {wire} on {numbers((qp.port,))}" if flying else f"its turn to send PSN {wire}"
    return Waiting(what, qp.progress_ns, wire, 1 + qp.retries, flying, (qp.port,), patience_ns)
