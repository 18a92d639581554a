"""Loss inference."""

from __future__ import annotations

from mrc_conform.case import Area, Basis, case
from mrc_conform.cases.shorthand import one
from mrc_conform.device import Need, PathState, Settings
from mrc_conform.script import NackReason, Script
from mrc_conform.wire import Packet

_LOSS = Area.LOSS
_DATA = ("WRITE_FIRST", "WRITE_MIDDLE", "WRITE_LAST", "WRITE_ONLY")
#: Rule (c) alone: one EV more than packets, so that none overtakes another on its EV.
_RACK = Settings(planes=1, tail_probe=False, same_ev_inference=False, ev_count=64, ev_active=32)
_SAME_EV = Settings(planes=1, tail_probe=False, rack_inference=False, ev_count=2, ev_active=1, ev_min_active=1)


@case(
    "loss-same-ev",
    _LOSS,
    "A packet is lost when one that was sent later on the same EV has arrived.",
    Basis.OURS,
    "§5 (b)",
    Need.EXACT_TIME,
    Need.POST,
    settings=_SAME_EV,
)
def loss_same_ev(c: Script) -> None:
    c.post(3 * c.settings.mtu)
    packets = c.drain()
    c.advance(c.settings.base_rtt_ns)
    c.sack(packets[1], -1, [1])
    c.expect("WRITE_FIRST", psn=c.tx(0), rtx=1)
    c.expect_nothing("WRITE_LAST")


@case(
    "loss-late",
    _LOSS,
    "A packet is lost that was sent more than srtt + 4 rttvar before the newest that has arrived.",
    Basis.OURS,
    "§5 (c)",
    Need.POST,
    Need.EXACT_TIME,
    settings=_RACK,
)
def loss_late(c: Script) -> None:
    rtt = c.settings.base_rtt_ns
    _warm(c, rtt)
    c.post(8)
    c.expect("WRITE_ONLY")
    c.advance(4 * rtt)
    c.post(8)
    late = c.expect("WRITE_ONLY")
    c.advance(rtt)
    c.sack(late, 15, [17])
    c.expect("WRITE_ONLY", psn=c.tx(16), rtx=1)


@case(
    "loss-not-late",
    _LOSS,
    "A packet that was sent at the same time as the newest that has arrived is not lost yet.",
    Basis.OURS,
    "§5 (c)",
    Need.POST,
    Need.EXACT_TIME,
    settings=_RACK,
)
def loss_not_late(c: Script) -> None:
    rtt = c.settings.base_rtt_ns
    _warm(c, rtt)
    c.post(4 * c.settings.mtu)
    packets = c.drain()
    c.advance(rtt)
    c.sack(packets[3], 15, [19])
    c.expect_nothing(*_DATA, within=2 * rtt)


def _warm(c: Script, rtt: int) -> Packet:
    """Let the requestor measure sixteen round trips of the base RTT; return the last packet of these."""
    for index in range(16):
        packet = one(c)
        c.advance(rtt)
        c.sack(packet, index)
        c.ack(index, index + 1)
    return packet


@case(
    "loss-blames-the-path",
    _LOSS,
    "An inferred loss brings the EV to ASSUMED_BAD.",
    Basis.NOTES,
    "§7",
    Need.POST,
    Need.EVS,
    settings=Settings(planes=1, tail_probe=False, ev_count=8, ev_active=4, ev_min_active=1),
)
def loss_blames_the_path(c: Script) -> None:
    packet = one(c)
    c.expect("WRITE_ONLY", within=2 * c.ack_timeout_ns)
    c.expect_ev_state(packet.ev, PathState.ASSUMED_BAD)


@case(
    "loss-exponential-phase",
    _LOSS,
    "Rule (c) holds for packets in the exponential phase of their retries as well.",
    Basis.OURS,
    "§5",
    Need.POST,
    Need.EXACT_TIME,
    settings=Settings(
        planes=1, tail_probe=False, same_ev_inference=False, ev_count=64, ev_active=32, linear_cnt=0, exp_cnt=6
    ),
)
def loss_exponential_phase(c: Script) -> None:
    rtt = c.settings.base_rtt_ns
    last = _warm(c, rtt)
    c.post(8)
    c.expect("WRITE_ONLY")
    for _ in range(2):
        c.expect("WRITE_ONLY", within=4 * c.ack_timeout_ns, rtx=1)
    c.sack(last, 15)  # the peer answers again
    c.advance(4 * rtt)
    c.post(8)
    late = c.expect("WRITE_ONLY", psn=c.tx(17))
    c.advance(rtt)
    c.sack(late, 15, [17])
    c.expect("WRITE_ONLY", psn=c.tx(16), rtx=1)


@case(
    "loss-spurious",
    _LOSS,
    "A SACK of a packet that was taken for lost takes its retransmission back when that has not left.",
    Basis.NOTES,
    "§5",
    Need.POST,
    settings=Settings(planes=1, tail_probe=False, window=1500, same_ev_inference=False, rack_inference=False),
)
def loss_spurious(c: Script) -> None:
    c.post(8)
    packet = c.expect("WRITE_ONLY")
    c.nack(packet, NackReason.NO_RESOURCE)
    c.sack(packet, 0)
    c.ack(0, 1)
    c.expect_nothing("WRITE_ONLY", within=3 * c.ack_timeout_ns)


@case(
    "loss-repetition-not-answered",
    _LOSS,
    "A repetition that a SACK covers without answering it does not prove that what was sent before it is late.",
    Basis.OURS,
    "§5",
    Need.POST,
    Need.EXACT_TIME,
    settings=Settings(tail_probe=False),
)
def loss_repetition_not_answered(c: Script) -> None:
    c.post(4 * c.settings.mtu)
    packets = c.drain()
    c.advance(5 * c.settings.base_rtt_ns)
    c.nack(packets[0], NackReason.TRIMMED)
    c.expect(packets[0].opcode, rtx=1)
    c.sack(packets[1], 1, tx_timestamp=packets[1]["tx_timestamp"] ^ 0x4000)  # no sample of the round trip
    c.expect_nothing(*_DATA, within=c.ack_timeout_ns // 4)
