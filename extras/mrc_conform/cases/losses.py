"""Loss inference."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

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
#: One proof revives an EV, and no probe comes to give it.
_PROVED_ONCE = replace(_RACK, probes_to_revive=1, probe_interval_ns=10**12)


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


def _guess(c: Script) -> tuple[Packet, Packet]:
    """Have rule (c) take packet 16 for lost; return its first and its second transmission."""
    rtt = c.settings.base_rtt_ns
    _warm(c, rtt)
    first = one(c)
    c.advance(4 * rtt)
    late = one(c)
    c.advance(rtt)
    c.sack(late, 15, [17])
    return first, c.expect("WRITE_ONLY", psn=c.tx(16), rtx=1)


@case(
    "loss-proved",
    _LOSS,
    "The answer to the repetition of a packet that was taken for lost says nothing good of its first EV.",
    Basis.OURS,
    "§5",
    Need.POST,
    Need.EVS,
    Need.EXACT_TIME,
    settings=_PROVED_ONCE,
)
def loss_proved(c: Script) -> None:
    first, second = _guess(c)
    c.advance(c.settings.base_rtt_ns)
    c.sack(second, 17)
    c.expect_ev_state(first.ev, PathState.ASSUMED_BAD)


@case(
    "loss-disproved",
    _LOSS,
    "An answer to the first transmission of a packet that was taken for lost counts for its EV as that to a probe.",
    Basis.OURS,
    "§5",
    Need.POST,
    Need.EVS,
    Need.EXACT_TIME,
    settings=_PROVED_ONCE,
)
def loss_disproved(c: Script) -> None:
    first, _ = _guess(c)
    c.advance(c.settings.base_rtt_ns)
    c.sack(first, 17)
    c.expect_ev_state(first.ev, PathState.GOOD)


@case(
    "loss-disproved-early",
    _LOSS,
    "So does a SACK that shows the packet sooner than its repetition can have been answered.",
    Basis.OURS,
    "§5",
    Need.POST,
    Need.EVS,
    Need.EXACT_TIME,
    settings=_PROVED_ONCE,
)
def loss_disproved_early(c: Script) -> None:
    first, _ = _guess(c)
    other = one(c)
    c.advance(c.settings.base_rtt_ns // 2)
    c.sack(other, 18, tx_timestamp=other["tx_timestamp"] ^ 0x4000)  # no sample of the round trip
    c.expect_ev_state(first.ev, PathState.GOOD)


@case(
    "loss-disproved-late",
    _LOSS,
    "A SACK that shows the packet when its repetition may have been answered proves nothing.",
    Basis.OURS,
    "§5",
    Need.POST,
    Need.EVS,
    Need.EXACT_TIME,
    settings=_PROVED_ONCE,
)
def loss_disproved_late(c: Script) -> None:
    first, _ = _guess(c)
    other = one(c)
    c.advance(c.settings.base_rtt_ns)
    c.sack(other, 18)
    c.expect_ev_state(first.ev, PathState.ASSUMED_BAD)


@case(
    "loss-slower-plane",
    _LOSS,
    "What arrives late as it was sent first is a sample of its plane: rule (c) waits longer there.",
    Basis.OURS,
    "§5",
    Need.POST,
    Need.EXACT_TIME,
    settings=_RACK,
)
def loss_slower_plane(c: Script) -> None:
    rtt = c.settings.base_rtt_ns
    first, _ = _guess(c)
    c.advance(5 * rtt)
    c.sack(first, 17)
    one(c)
    c.advance(4 * rtt)
    late = one(c)
    c.advance(rtt)
    c.sack(late, 17, [19])
    c.expect_nothing("WRITE_ONLY")


@case(
    "loss-patience",
    _LOSS,
    "With adaptive reordering rule (c) waits as long as a packet was late that it had taken for lost, and an eighth.",
    Basis.OURS,
    "§5",
    Need.POST,
    Need.EXACT_TIME,
    settings=replace(_RACK, adaptive_reordering=True),
)
def loss_patience(c: Script) -> None:
    rtt = c.settings.base_rtt_ns
    first, _ = _guess(c)
    c.sack(first, 17, entropy=0)  # no sample of its plane
    base = 18
    for gap, lost in ((44 * rtt // 10, False), (46 * rtt // 10, True)):
        one(c)
        c.advance(gap)
        late = one(c)
        c.advance(rtt)
        c.sack(late, base - 1, [base + 1])
        again = bool(c.drain())
        c.check(again == lost, f"sent again: {again}, {gap} ns before the newest, 4 RTTs were not lost")
        base += 2
        c.sack(late, base - 1)


def _window_of_plane(c: Script, slow: int) -> None:
    rtt = c.settings.base_rtt_ns
    for index in range(40):
        c.post(c.settings.mtu)
        packet = c.drain()[0]
        c.advance(6 * rtt if packet.port == slow else rtt)
        c.sack(packet, index)
        c.ack(index, index + 1)
    c.post(4 * c.settings.mtu)
    packets = c.drain()
    c.advance(4 * rtt)
    late = one(c)
    c.advance(rtt)
    c.sack(late, 39, [44])
    again = {packet["psn"] for packet in c.drain()}
    fast = {packet["psn"] for packet in packets if packet.port != slow}
    c.check(again == fast, f"{len(again)} packets were taken for lost, and {len(fast)} of the fast plane are late")


for _plane in (0, 1):
    case(
        f"loss-window-of-plane-{_plane}",
        _LOSS,
        "How late a packet may be is measured on its own plane.",
        Basis.OURS,
        "§5 (c)",
        Need.POST,
        Need.EXACT_TIME,
        settings=replace(_RACK, planes=2, balance_slack=1),
    )(partial(_window_of_plane, slow=_plane))


@case(
    "loss-window-of-peer",
    _LOSS,
    "Round trips to the peer before RESET do not say when a packet to the next one is late.",
    Basis.OURS,
    "§5",
    Need.POST,
    Need.STATES,
    Need.EXACT_TIME,
    settings=_RACK,
)
def loss_window_of_peer(c: Script) -> None:
    _warm(c, 40 * c.settings.base_rtt_ns)
    c.reconnect()
    _guess(c)


@case(
    "loss-third-transmission",
    _LOSS,
    "An answer to an earlier transmission than the present one does not prove that what left between them is late.",
    Basis.OURS,
    "§5",
    Need.POST,
    Need.EXACT_TIME,
    settings=_RACK,
)
def loss_third_transmission(c: Script) -> None:
    rtt = c.settings.base_rtt_ns
    first = one(c)
    c.nack(first, NackReason.TRIMMED_LASTHOP)
    second = c.expect("WRITE_ONLY", rtx=1)
    one(c)
    c.advance(4 * rtt)
    c.nack(second, NackReason.TRIMMED_LASTHOP)
    c.expect("WRITE_ONLY", rtx=1)
    c.advance(rtt // 2)
    c.sack(second, 0)
    c.expect_nothing("WRITE_ONLY", within=2 * rtt)


@case(
    "loss-same-ev-only",
    _LOSS,
    "A packet on one EV does not overtake those on another, nor those that left later.",
    Basis.OURS,
    "§5 (b)",
    Need.POST,
    Need.EXACT_TIME,
    settings=replace(_SAME_EV, ev_count=4, ev_active=2),
)
def loss_same_ev_only(c: Script) -> None:
    c.post(6 * c.settings.mtu)
    packets = c.drain()
    c.advance(c.settings.base_rtt_ns)
    c.sack(packets[2], -1, [2])
    again = [packet["psn"] for packet in c.drain()]
    c.check(again == [c.tx(0)], f"packets {again} were sent again, and packet 0 alone was overtaken")
    c.sack(packets[5], -1, [2, 5])
    again = [packet["psn"] for packet in c.drain()]
    c.check(sorted(again) == [c.tx(1), c.tx(3)], f"packets {again} were sent again, and 1 and 3 were overtaken")


@case(
    "loss-beside-guess",
    _LOSS,
    "What a SACK says of a packet that rule (c) took for lost concerns no other that was sent again.",
    Basis.OURS,
    "§5",
    Need.POST,
    Need.EVS,
    Need.EXACT_TIME,
    settings=_PROVED_ONCE,
)
def loss_beside_guess(c: Script) -> None:
    first, _ = _guess(c)
    packets = [one(c) for _ in range(2)]
    c.nack(packets[0], NackReason.TRIMMED_LASTHOP)
    c.expect("WRITE_ONLY", rtx=1)
    c.sack(packets[1], 15, [17, 18, 19], tx_timestamp=packets[1]["tx_timestamp"] ^ 0x4000)
    c.expect_ev_state(first.ev, PathState.ASSUMED_BAD)
    one(c)
