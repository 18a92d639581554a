"""Contents of a SACK besides what has arrived: an RTT sample and the mark of a path; and its trace."""

from __future__ import annotations

from typing import Final

from mrc_host.proto.paths.association import Association
from mrc_host.proto.paths.ev import EvInput
from mrc_host.proto.reliability.rtt import Rtt
from mrc_host.proto.reliability.scoreboard import LOST, Transmission
from mrc_host.proto.stats import RequestorCounters
from mrc_host.proto.wire.messages import FLAG_RTX, Sack
from mrc_host.proto.wire.psn import PSN_MASK

EARLIER: Final = -1  # no RTT sample: an earlier transmission was answered


def rtt_sample(association: Association, rtts: Rtt, sent: Transmission, sack: Sack, stamps: bool, now: int) -> int:
    """Return the RTT sample (ns) of the transmission that triggered a SACK; 0: none; EARLIER: an earlier
    transmission did.

    There is a sample only when it is clear which transmission was answered (`§8`), and the echoed timestamp is its
    own.
    """
    count = sent.count
    if (count > 1) != bool(sack.flags & FLAG_RTX):
        return EARLIER
    if association.evs.universe.values[sent.ev] != sack.entropy:
        return EARLIER
    if count > 2 or sent.state == LOST:
        return 0
    rtt = now - sent.sent_ns
    if stamps:
        hold = (sack.tx_timestamp - (sent.sent_ns >> 7)) & 0xFFFF
        if hold:
            if not association.attributes.peer_service_time or hold << 7 >= rtt:
                return 0
            rtt -= hold << 7
    if rtt <= 0:
        return 0
    rtts.sample(rtt, sent.plane)
    return rtt


def mark_path(association: Association, counters: RequestorCounters, entropy: int, mark: int, now: int) -> None:
    """Apply the responder's mark of a path: SKIP_ONCE, ALWAYS_SKIP, or none, for policies that listen to that."""
    evs = association.evs
    ev = evs.universe.index.get(entropy)
    if ev is None:
        return
    if mark == 1:
        counters.skip_once += 1
        evs.apply(ev, EvInput.SKIP_ONCE)
    elif mark == 2:
        evs.apply(ev, EvInput.ALWAYS_SKIP)
    if evs.listens:
        evs.answered(ev, mark, now)


def trace_sack(association: Association, sack: Sack, cack: int, trigger: int, rtt: int, now: int) -> None:
    """Trace a SACK that has been taken, and the window after it."""
    trace = association.context.trace
    if trace is None:
        return
    cc = association.qpcc.cc
    trace(
        now, "sack:received", qpn=association.number, cack=cack & PSN_MASK, ack_psn=max(trigger, 0) & PSN_MASK,
        ev=sack.entropy, m=sack.m,
    )  # fmt: skip
    trace(
        now, "cc:cwnd", peer=association.peer.address.hex(), cwnd=int(cc.cwnd), inflight=cc.inflight, rtt=rtt,
        qdelay=max(cc.rtt_ns - cc.base_rtt_ns, 0), case=getattr(cc.snapshot(), "case", "fixed"),
    )  # fmt: skip
