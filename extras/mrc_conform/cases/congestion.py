"""Congestion control under scripted round trips and marks, and the receiver's window.

The window is seen from outside: what is in flight when the device stops sending. The expected windows are computed here
from the formulas of UET 1.0, 3.6.13, for the scripted samples.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from itertools import pairwise

from mrc_conform.case import Area, Basis, case
from mrc_conform.device import Control, Need, Settings
from mrc_conform.script import NackReason, Script
from mrc_conform.wire import Packet

_CC = Area.CONGESTION
_BASE_NS = 20_000
_RATE_BPS = 100_000_000_000
_MTU = 1024
#: Of a full packet with TSETH: UDP, BTH, METH, TSETH, RETH, payload, ICRC, and 40.
_FULL = 8 + 12 + 4 + 4 + 16 + _MTU + 4 + 40
_BDP = _RATE_BPS // 8 * _BASE_NS // 1_000_000_000
_TARGET_NS = _BASE_NS * 3 // 4
_A = _BDP / (100e9 / 8 * 12e-6)
_B = _TARGET_NS / 12_000
_FAIR = 5 * _MTU * _A
_ETA = 0.15 * _MTU * _A
_MARKED = 1


def _nscc(initial: int = 100_000, **nscc: float) -> Settings:
    """Return settings with NSCC, one plane, and no loss inference that would change the window."""
    profile: Mapping[str, float] = {"initial_cwnd_bytes": initial, "delay_gain": 1.0, **nscc}
    return Settings(
        planes=1, tail_probe=False, rack_inference=False, same_ev_inference=False, control=Control.NSCC,
        line_rate_bps=_RATE_BPS, base_rtt_ns=_BASE_NS, nscc=profile, mpr=255, mpr_dest=255, ev_count=64, ev_active=32,
    )  # fmt: skip


def _no_sample(packet: Packet) -> int:
    """Return a timestamp that the packet did not have, so that its SACK gives no sample of the round trip."""
    return packet["tx_timestamp"] ^ 0x4000


class _Window:
    """What the device has in flight, counted by the kit."""

    def __init__(self, c: Script) -> None:
        self.c = c
        self.packets: list[Packet] = []
        self.acknowledged = -1  # all packets up to this one
        c.post(4_000_000)
        self.take()

    def take(self) -> None:
        """Note what the device has sent."""
        self.packets += [packet for packet in self.c.drain() if not packet["rtx"]]

    @property
    def in_flight(self) -> int:
        """Nominal bytes sent and not acknowledged."""
        return sum(packet.size for packet in self.packets[self.acknowledged + 1 :])

    def answer(self, upto: int, **changes: int) -> None:
        """Acknowledge everything up to packet `upto`, with a sample of its round trip."""
        self.acknowledged = max(self.acknowledged, upto)
        self.c.sack(self.packets[upto], upto, **changes)
        self.take()

    def open(self, share: float = 0.7) -> None:
        """Acknowledge a share of what is in flight without an RTT sample, so that the window shows again."""
        upto = self.acknowledged + int(share * (len(self.packets) - 1 - self.acknowledged))
        self.answer(upto, tx_timestamp=_no_sample(self.packets[upto]))

    def expect(self, window: float, slack: float = 300) -> None:
        """Check that the device keeps this window filled (bytes), to a packet and `slack`."""
        found = self.in_flight
        self.c.check(
            window - _FULL - slack <= found <= window + slack,
            f"{found:,} bytes are in flight, expected a window of {window:,.0f}",
        )


@case(
    "fixed-window",
    _CC,
    "A packet leaves only while bytes in flight and its size fit the window.",
    Basis.NOTES,
    "§5.2",
    Need.POST,
    settings=Settings(planes=1, window=20_000, tail_probe=False),
)
def fixed_window(c: Script) -> None:
    _Window(c).expect(20_000, 0)


@case(
    "fixed-window-reopens",
    _CC,
    "An acknowledged packet makes room for one.",
    Basis.NOTES,
    "§5.2",
    Need.POST,
    settings=Settings(planes=1, window=20_000, tail_probe=False),
)
def fixed_window_reopens(c: Script) -> None:
    window = _Window(c)
    sent = len(window.packets)
    for index in range(12):
        window.answer(index)
        more = len(window.packets) - sent
        # The received bytes are rounded up to 256, which may let a packet leave early.
        c.check(more in (index + 1, index + 2), f"{more} packets left after {index + 1} were acknowledged")


@case(
    "one-packet-always",
    _CC,
    "One packet may always be in flight, however small the window is.",
    Basis.NOTES,
    "§5.2",
    Need.POST,
    settings=Settings(planes=1, window=100, tail_probe=False),
)
def one_packet_always(c: Script) -> None:
    window = _Window(c)
    c.check(len(window.packets) == 1, f"{len(window.packets)} packets are in flight")
    window.answer(0)
    c.check(len(window.packets) == 2, "no packet left after the first was acknowledged")


@case(
    "one-packet-larger",
    _CC,
    "So may one that is larger than the window, by its immediate.",
    Basis.NOTES,
    "§5.2",
    Need.POST,
    settings=Settings(planes=1, window=100, tail_probe=False),
)
def one_packet_larger(c: Script) -> None:
    c.post(_MTU, 5)
    c.expect("WRITE_ONLY_IMM")


@case(
    "received-bytes-count",
    _CC,
    "rcvd_bytes takes bytes off the flight, also of packets that no bitmap shows.",
    Basis.UET,
    "3.6.13",
    Need.EXACT_TIME,
    Need.POST,
    settings=Settings(planes=1, window=20_000, tail_probe=False, rack_inference=False, same_ev_inference=False),
)
def received_bytes_count(c: Script) -> None:
    window = _Window(c)
    sent = len(window.packets)
    c.sack(window.packets[0], 0, rcvd_bytes=-(-10 * _FULL // 256))
    more = len(c.drain())
    c.check(more in (9, 10, 11), f"{more} packets left after ten were received; {sent} were in flight")


@case(
    "received-bytes-never-back",
    _CC,
    "rcvd_bytes of an older SACK takes nothing back.",
    Basis.NOTES,
    "§4",
    Need.EXACT_TIME,
    Need.POST,
    settings=Settings(planes=1, window=20_000, tail_probe=False, rack_inference=False, same_ev_inference=False),
)
def received_bytes_never_back(c: Script) -> None:
    window = _Window(c)
    window.answer(9)
    before = len(window.packets)
    c.sack(
        window.packets[10],
        9,
        rcvd_bytes=2,
        ack_psn_offset=0,
        entropy=window.packets[9].ev,
        tx_timestamp=window.packets[9]["tx_timestamp"],
    )
    c.check(not c.drain(), "an older SACK let packets leave")
    window.answer(11)
    c.check(len(window.packets) == before + 2, "after an older SACK the flight is counted wrongly")


@case(
    "ack-frees-window",
    _CC,
    "A packet that only a transport ACK acknowledges no longer holds the window.",
    Basis.OURS,
    "§5, bytes in flight",
    Need.POST,
    settings=Settings(planes=1, window=1200, tail_probe=False),
)
def ack_frees_window(c: Script) -> None:
    c.post(500)
    c.expect("WRITE_ONLY")
    c.ack(0, 1)  # its SACK is lost
    c.post(1024)
    c.expect("WRITE_ONLY", psn=c.tx(1))


@case(
    "nscc-first-window",
    _CC,
    "Without a configured window the first one is 1.5 BDP.",
    Basis.UET,
    "3.6.13, initial cwnd",
    Need.EXACT_TIME,
    Need.POST,
    settings=Settings(
        planes=1, tail_probe=False, control=Control.NSCC, line_rate_bps=_RATE_BPS, base_rtt_ns=_BASE_NS, mpr=255
    ),
)
def nscc_first_window(c: Script) -> None:
    _Window(c).expect(min(1.5 * _BDP, 64 * 128 * _FULL), 0)


@case(
    "nscc-proportional",
    _CC,
    "Unmarked below the target: the window grows by alpha * headroom.",
    Basis.UET,
    "3.6.13.4, proportional increase",
    Need.POST,
    Need.EXACT_TIME,
    settings=_nscc(),
)
def nscc_proportional(c: Script) -> None:
    window = _Window(c)
    c.advance(_BASE_NS + _TARGET_NS // 2)
    window.answer(len(window.packets) - 1)
    window.expect(100_000 + 4 * _MTU * _A * _B / 2 + _ETA)


@case(
    "nscc-fair",
    _CC,
    "Unmarked at or above the target: the window grows by the fair increase.",
    Basis.UET,
    "3.6.13.4, fair increase",
    Need.POST,
    Need.EXACT_TIME,
    settings=_nscc(),
)
def nscc_fair(c: Script) -> None:
    window = _Window(c)
    c.advance(_BASE_NS + 2 * _TARGET_NS)
    window.answer(len(window.packets) - 1)
    window.expect(100_000 + _FAIR + _ETA)


@case(
    "nscc-hold",
    _CC,
    "Marked below the target: the window does not shrink.",
    Basis.UET,
    "3.6.13.4, no operation",
    Need.POST,
    Need.EXACT_TIME,
    settings=_nscc(),
)
def nscc_hold(c: Script) -> None:
    window = _Window(c)
    c.advance(_BASE_NS + _TARGET_NS // 2)
    window.answer(len(window.packets) - 1, m=_MARKED)
    window.expect(100_000 + _ETA)


@case(
    "nscc-decrease",
    _CC,
    "Marked at or above the target: the window shrinks by gamma (avg - target)/avg.",
    Basis.UET,
    "3.6.13.4, multiplicative decrease",
    Need.POST,
    Need.EXACT_TIME,
    settings=_nscc(),
)
def nscc_decrease(c: Script) -> None:
    window = _Window(c)
    c.advance(_BASE_NS + 2 * _TARGET_NS)
    window.answer(0, m=_MARKED)
    window.open()
    window.expect((1 - 0.8 * 0.5) * 100_000 + _ETA)


@case(
    "nscc-decrease-most",
    _CC,
    "One decrease takes at most half of the window.",
    Basis.UET,
    "3.6.13.4, max_md_jump",
    Need.POST,
    Need.EXACT_TIME,
    settings=_nscc(),
)
def nscc_decrease_most(c: Script) -> None:
    window = _Window(c)
    c.advance(_BASE_NS + 30 * _TARGET_NS)
    window.answer(0, m=_MARKED)
    window.open()
    window.expect(50_000 + _ETA)


@case(
    "nscc-decrease-once",
    _CC,
    "The window shrinks at most once in a base RTT.",
    Basis.UET,
    "3.6.13.4",
    Need.POST,
    Need.EXACT_TIME,
    settings=_nscc(),
)
def nscc_decrease_once(c: Script) -> None:
    window = _Window(c)
    c.advance(_BASE_NS + 2 * _TARGET_NS)
    for index in range(10):
        window.answer(index, m=_MARKED)
    window.open()
    window.expect((1 - 0.8 * 0.5) * 100_000 + _ETA)


@case(
    "nscc-decrease-again",
    _CC,
    "After a base RTT it may shrink again.",
    Basis.UET,
    "3.6.13.4",
    Need.POST,
    Need.EXACT_TIME,
    settings=_nscc(),
)
def nscc_decrease_again(c: Script) -> None:
    window = _Window(c)
    c.advance(_BASE_NS + 30 * _TARGET_NS)
    window.answer(0, m=_MARKED)
    c.advance(_BASE_NS + 1)
    window.answer(1, m=_MARKED)
    window.open(0.9)
    window.expect(25_000 + 2 * _ETA)


@case(
    "nscc-always-skip-marks",
    _CC,
    "ALWAYS_SKIP counts as a mark, too.",
    Basis.OURS,
    "§8",
    Need.POST,
    Need.EXACT_TIME,
    settings=_nscc(),
)
def nscc_always_skip_marks(c: Script) -> None:
    window = _Window(c)
    c.advance(_BASE_NS + 2 * _TARGET_NS)
    window.answer(0, m=2)
    window.open()
    window.expect((1 - 0.8 * 0.5) * 100_000 + _ETA)


@case(
    "nscc-floor",
    _CC,
    "The window never falls below one MTU.",
    Basis.UET,
    "3.6.13, minimum cwnd",
    Need.POST,
    Need.EXACT_TIME,
    settings=_nscc(6_000, eta=0.0),
)
def nscc_floor(c: Script) -> None:
    window = _Window(c)
    for _ in range(12):
        c.advance(_BASE_NS + 30 * _TARGET_NS)
        window.answer(len(window.packets) - 1, m=_MARKED)
        c.check(window.in_flight >= _FULL, "nothing is in flight although there is data")
    c.check(window.in_flight < 3 * _FULL, f"{window.in_flight} bytes are in flight after twelve decreases")


@case(
    "nscc-largest",
    _CC,
    "The window never exceeds its maximum.",
    Basis.UET,
    "3.6.13, max_wnd",
    Need.POST,
    Need.EXACT_TIME,
    settings=_nscc(max_wnd_bytes=150_000),
)
def nscc_largest(c: Script) -> None:
    window = _Window(c)
    for _ in range(8):
        c.advance(_BASE_NS)
        window.answer(len(window.packets) - 1)
        c.check(
            window.in_flight <= 150_256, f"{window.in_flight} bytes are in flight, and the largest window has 150,000"
        )
    window.expect(150_000)


@case(
    "nscc-fast",
    _CC,
    "After a window without delay the window grows by fi_scale of what arrives.",
    Basis.UET,
    "3.6.13.4, fast increase",
    Need.POST,
    Need.EXACT_TIME,
    settings=_nscc(20_000),
)
def nscc_fast(c: Script) -> None:
    window = _Window(c)
    sizes = []
    for _ in range(6):
        c.advance(_BASE_NS)
        window.answer(len(window.packets) - 1)
        sizes.append(window.in_flight)
    c.check(sizes[-1] > 1.25 * sizes[-2], f"in flight after each round trip without delay: {sizes}")


@case(
    "nscc-base-rtt",
    _CC,
    "A smaller base RTT lowers the largest window in proportion.",
    Basis.UET,
    "3.6.13.6, update_base_rtt",
    Need.POST,
    Need.EXACT_TIME,
    settings=_nscc(375_000),
)
def nscc_base_rtt(c: Script) -> None:
    window = _Window(c)
    window.expect(1.5 * _BDP)
    c.advance(_BASE_NS // 2)
    window.answer(len(window.packets) // 2)
    window.open(0.5)
    window.open(0.5)
    window.expect(0.75 * _BDP)


@case(
    "nscc-trim",
    _CC,
    "A trimmed packet takes its bytes off the window where quick adapt does not apply.",
    Basis.UET,
    "3.6.13.6, on NACK",
    Need.EXACT_TIME,
    Need.POST,
    settings=_nscc(disable_qa=True),
)
def nscc_trim(c: Script) -> None:
    window = _Window(c)
    for packet in window.packets[:10]:
        c.nack(packet, NackReason.TRIMMED_LASTHOP)
    again = c.drain()
    c.check(len(again) <= 1, f"{len(again)} packets left although the window shrank by what was trimmed")
    upto = len(window.packets) // 2
    c.sack(window.packets[upto], upto, tx_timestamp=_no_sample(window.packets[upto]))
    left = sum(packet.size for packet in [*window.packets[upto + 1 :], *again, *c.drain()])
    c.check(
        abs(left - (100_000 - 10 * _FULL)) <= 2 * _FULL,
        f"{left:,} bytes are in flight after ten packets of 100,000 bytes were trimmed",
    )


@case(
    "nscc-quick-adapt",
    _CC,
    "After a trim, when little arrived in the last interval, the window falls to what arrived.",
    Basis.UET,
    "3.6.13.4, quick adapt",
    Need.POST,
    Need.EXACT_TIME,
    settings=_nscc(),
)
def nscc_quick_adapt(c: Script) -> None:
    window = _Window(c)
    interval = _BASE_NS + _TARGET_NS
    c.advance(_BASE_NS)
    window.answer(0)
    window.answer(20)
    c.advance(interval)
    packet = window.packets[30]
    c.nack(packet, NackReason.TRIMMED_LASTHOP)
    window.take()
    window.open(0.9)
    window.expect(20 * _FULL, 600)


@case(
    "nscc-no-quick-adapt",
    _CC,
    "Quick adapt does not apply when much arrived in the interval.",
    Basis.UET,
    "3.6.13.4, qa_gate",
    Need.POST,
    Need.EXACT_TIME,
    settings=_nscc(),
)
def nscc_no_quick_adapt(c: Script) -> None:
    window = _Window(c)
    interval = _BASE_NS + _TARGET_NS
    c.advance(_BASE_NS)
    window.answer(0)
    window.answer(80)
    c.advance(interval)
    c.nack(window.packets[90], NackReason.TRIMMED_LASTHOP)
    window.take()
    c.check(window.in_flight > 80_000, f"{window.in_flight} bytes are in flight after one trim")


@case(
    "nscc-penalty",
    _CC,
    "The receiver's penalty shrinks the window, and it does not grow meanwhile.",
    Basis.UET,
    "3.6.13, rcv_cwnd_pen",
    Need.POST,
    Need.EXACT_TIME,
    settings=_nscc(),
)
def nscc_penalty(c: Script) -> None:
    window = _Window(c)
    c.advance(_BASE_NS)
    half = len(window.packets) // 2
    window.answer(half, rcv_cwnd_pen=127)
    c.check(window.in_flight < 60_000, f"{window.in_flight} bytes are in flight under a penalty of 127/128")


@case(
    "nscc-penalty-restores",
    _CC,
    "When the penalty ends with restore_cwnd, the window is what it was before.",
    Basis.UET,
    "3.6.13, restore_cwnd",
    Need.POST,
    Need.EXACT_TIME,
    settings=_nscc(),
)
def nscc_penalty_restores(c: Script) -> None:
    window = _Window(c)
    c.advance(_BASE_NS)
    half = len(window.packets) // 2
    window.answer(half, rcv_cwnd_pen=127, tx_timestamp=_no_sample(window.packets[half]))
    shrunk = window.in_flight
    window.answer(half + 1, restore_cwnd=1, tx_timestamp=_no_sample(window.packets[half + 1]))
    window.expect(100_000)
    c.check(shrunk < 60_000, f"{shrunk} bytes were in flight under the penalty")


@case(
    "nscc-ambiguous",
    _CC,
    "A SACK that may answer another transmission gives no sample of the round trip.",
    Basis.NOTES,
    "§8",
    Need.POST,
    Need.EXACT_TIME,
    settings=_nscc(),
)
def nscc_ambiguous(c: Script) -> None:
    window = _Window(c)
    c.advance(_BASE_NS + 30 * _TARGET_NS)
    for index in range(5):
        window.answer(index, m=_MARKED, rtx=1)
    window.open(0.6)
    window.expect(100_000)


@case(
    "nscc-loss",
    _CC,
    "An inferred loss takes its bytes off the window.",
    Basis.UET,
    "3.6.13.6; of MRC §8",
    Need.POST,
    Need.EXACT_TIME,
    settings=Settings(
        planes=1,
        tail_probe=False,
        rack_inference=False,
        control=Control.NSCC,
        line_rate_bps=_RATE_BPS,
        base_rtt_ns=_BASE_NS,
        nscc={"initial_cwnd_bytes": 30_000, "delay_gain": 1.0, "eta": 0.0},
        ev_count=1,
        ev_active=1,
        ev_min_active=1,
    ),
)
def nscc_loss(c: Script) -> None:
    window = _Window(c)
    trigger = window.packets[10]
    c.sack(trigger, -1, [10], tx_timestamp=_no_sample(trigger))
    again = [packet for packet in c.drain() if packet["rtx"]]
    c.check(1 <= len(again) <= 3, f"{len(again)} of ten lost packets left at once; the window shrank by their bytes")


@case(
    "rtt-another-transmission",
    _CC,
    "Without timestamps the answer to a packet that was sent again is a sample of no transmission but its own.",
    Basis.NOTES,
    "§8",
    Need.EXACT_TIME,
    Need.POST,
    settings=replace(_nscc(), timestamps=False, ev_count=1, ev_active=1, ev_min_active=1),
)
def rtt_another_transmission(c: Script) -> None:
    # The answer is that to the transmission before the last: after two to the first, after three to another repetition.
    for index, times in enumerate((1, 2)):
        c.post(_MTU)  # the base RTT is that of whole packets
        c.expect("WRITE_ONLY")
        for _ in range(times):
            packet = c.expect("WRITE_ONLY", within=2 * c.ack_timeout_ns, rtx=1)
        c.advance(_BASE_NS // 10)
        c.sack(packet, index, rtx=times - 1)
        c.ack(index, index + 1)
    c.post(4_000_000)
    found = sum(sent.size for sent in c.drain())
    c.check(found > 3 * _BDP // 10, f"{found:,} bytes are in flight, as if the base RTT were a tenth")


@case(
    "nscc-loss-once",
    _CC,
    "A packet that is repeated in silence takes its bytes off the window once.",
    Basis.OURS,
    "§8",
    Need.EXACT_TIME,
    Need.POST,
    settings=_nscc(20_000),
)
def nscc_loss_once(c: Script) -> None:
    c.post(_MTU)
    packet = c.expect("WRITE_ONLY")
    for _ in range(4):
        packet = c.expect("WRITE_ONLY", within=8 * c.ack_timeout_ns)
    c.sack(packet, 0, tx_timestamp=_no_sample(packet))
    c.ack(0, 1)
    c.post(4_000_000)
    found = sum(sent.size for sent in c.drain())
    c.check(20_000 - 3 * _FULL < found <= 20_000 - _FULL + 300, f"{found:,} bytes are in flight after one loss")


@case(
    "rtt-short-packet",
    _CC,
    "The round trip of a packet that is not full is no base RTT.",
    Basis.OURS,
    "§8",
    Need.EXACT_TIME,
    Need.POST,
    settings=_nscc(375_000),
)
def rtt_short_packet(c: Script) -> None:
    c.post(8)
    packet = c.expect("WRITE_ONLY")
    c.advance(_BASE_NS // 4)
    c.sack(packet, 0)
    c.ack(0, 1)
    c.post(4_000_000)
    found = sum(sent.size for sent in c.drain())
    c.check(found > 1.4 * _BDP, f"{found:,} bytes are in flight, as if the base RTT were a quarter")


def _held(c: Script, hold: int, trip: int) -> None:
    c.connect(service_time=c.settings.service_time)
    c.advance(-c.now % (65536 * 128) - _BASE_NS // 2)  # the timestamps wrap meanwhile
    c.post(_MTU)
    packet = c.expect("WRITE_ONLY")
    c.advance(_BASE_NS // 2)
    c.sack(packet, 0, tx_timestamp=packet["tx_timestamp"] + (hold >> 7) & 0xFFFF)
    c.ack(0, 1)
    c.post(4_000_000)
    found = sum(sent.size for sent in c.drain())
    window = 1.5 * _BDP * trip / _BASE_NS
    c.check(window - _FULL <= found <= window + _FULL, f"{found:,} bytes are in flight, expected {window:,.0f}")


for _name, _rule, _able, _hold, _trip in (
    ("counts", "With the service-time capability the peer's hold time is no part of the round trip.", True, 2560, 7440),
    ("none", "Without it a timestamp that is not the packet's own gives no sample.", False, 2560, _BASE_NS),
    ("absurd", "A hold time that is as long as the round trip gives no sample.", True, 12_800, _BASE_NS),
):
    case(
        f"rtt-service-time-{_name}",
        _CC,
        _rule,
        Basis.NOTES,
        "§4, §8",
        Need.EXACT_TIME,
        Need.POST,
        connected=False,
        settings=replace(_nscc(375_000), service_time=_able, tail_probe=False),
    )(partial(_held, hold=_hold, trip=_trip))


@case(
    "ack-frees-all",
    _CC,
    "What transport ACKs alone have acknowledged is not in flight when more is sent.",
    Basis.OURS,
    "§5, bytes in flight",
    Need.EXACT_TIME,
    Need.POST,
    settings=Settings(planes=1, window=20_000, tail_probe=False),
)
def ack_frees_all(c: Script) -> None:
    size = 1112
    for _ in range(10):
        c.post(_MTU)
    c.drain()
    c.ack(9, 10)  # all SACKs are lost
    for _ in range(30):
        c.post(_MTU)
    found = len(c.drain())
    c.check(found == 20_000 // size, f"{found} packets left in an empty window of {20_000 // size}")


@case(
    "window-immediate",
    _CC,
    "The immediate counts in the size of its packet.",
    Basis.NOTES,
    "§5",
    Need.POST,
    settings=Settings(planes=1, window=4 * 1112 + 3, tail_probe=False),
)
def window_immediate(c: Script) -> None:
    c.post(3 * _MTU)
    c.drain()
    c.post(_MTU, 7)
    c.expect_nothing("WRITE_ONLY_IMM")
    c.post(_MTU)
    c.expect_nothing("WRITE_ONLY")


@case(
    "ack-request-share",
    _CC,
    "A requestor asks for a SACK at least four times in a window, and with the packet that closes it.",
    Basis.OURS,
    "§5",
    Need.POST,
    Need.STALL,
    settings=Settings(planes=1, window=50_000, tail_probe=False),
)
def ack_request_share(c: Script) -> None:
    _asks(c)


@case(
    "ack-request-shared",
    _CC,
    "Queue pairs that share a window ask as often together, each for its share.",
    Basis.OURS,
    "§5",
    Need.POST,
    Need.SECOND_QP,
    Need.STALL,
    settings=Settings(planes=1, window=50_000, tail_probe=False),
)
def ack_request_shared(c: Script) -> None:
    _asks(c, c.second())


def _asks(*pairs: Script) -> None:
    """Check how many bytes leave from one packet that asks to the next, when these have data to send."""
    c = pairs[0]
    c.device.stall_port(0, True)
    for pair in pairs:
        pair.post(400 * _MTU)
    c.device.stall_port(0, False)
    for pair in pairs:
        packets = pair.drain()
        asking = [index for index, packet in enumerate(packets) if packet["ack_req"]]
        gaps = [later - earlier for earlier, later in pairwise([-1, *asking])]
        most = c.settings.window // (4 * len(pairs)) // packets[0].size + 1
        pair.check(len(gaps) > 2 and set(gaps[:-1]) == {most}, f"packets {asking} of {len(packets)} ask")


@case(
    "nscc-decrease-steady",
    _CC,
    "Feedback that comes within a base RTT of a decrease does not put off the next one.",
    Basis.UET,
    "3.6.13.4",
    Need.POST,
    Need.EXACT_TIME,
    settings=_nscc(),
)
def nscc_decrease_steady(c: Script) -> None:
    window = _Window(c)
    c.advance(_BASE_NS + 30 * _TARGET_NS)
    for index in range(5):  # every other one comes more than a base RTT after the last decrease
        window.answer(index, m=_MARKED)
        c.advance(_BASE_NS * 6 // 10)
    window.open(0.95)
    window.expect(100_000 / 8, 4 * _ETA)


@case(
    "rtt-second-transmission",
    _CC,
    "The answer to the second transmission of a packet, marked so, is a sample of its round trip.",
    Basis.NOTES,
    "§8",
    Need.EXACT_TIME,
    Need.POST,
    settings=_nscc(375_000),
)
def rtt_second_transmission(c: Script) -> None:
    c.post(_MTU)
    c.expect("WRITE_ONLY")
    again = c.expect("WRITE_ONLY", within=2 * c.ack_timeout_ns, rtx=1)
    c.advance(_BASE_NS // 2)
    c.sack(again, 0)
    c.ack(0, 1)
    c.post(4_000_000)
    found = sum(sent.size for sent in c.drain())
    window = 0.75 * _BDP
    c.check(
        window - _FULL <= found <= window,
        f"{found:,} bytes are in flight, and a half of the base RTT allows {window:,.0f}",
    )
