"""Timeouts and the retry budget."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

from mrc_conform.case import Area, Basis, case
from mrc_conform.cases.shorthand import one
from mrc_conform.device import FOR_EVER, Need, Outcome, PairState, Settings
from mrc_conform.script import NackReason, Script, pattern
from mrc_conform.wire import Packet

_RETRY = Area.RETRY
_DATA = ("WRITE_FIRST", "WRITE_MIDDLE", "WRITE_LAST", "WRITE_ONLY")
_QUIET = Settings(tail_probe=False)


@case(
    "timeout-first",
    _RETRY,
    "A packet without an answer is sent again after the local ACK timeout, 1.024 us * 2^t.",
    Basis.NOTES,
    "§4",
    Need.POST,
    settings=_QUIET,
)
def timeout_first(c: Script) -> None:
    packet = one(c)
    again = c.expect("WRITE_ONLY", after=c.ack_timeout_ns, since=packet.at_ns, rtx=1, psn=packet["psn"])
    c.check(again.payload == packet.payload, "the retransmission has another payload")


@case(
    "timeout-linear",
    _RETRY,
    "The first linear_cnt retries keep the timeout, the next exp_cnt double it.",
    Basis.NOTES,
    "§4",
    Need.POST,
    settings=Settings(tail_probe=False, linear_cnt=3, exp_cnt=3),
)
def timeout_linear(c: Script) -> None:
    packet = one(c)
    for factor in (1, 1, 1, 1, 2, 4):
        packet = c.expect("WRITE_ONLY", after=factor * c.ack_timeout_ns, since=packet.at_ns)


@case(
    "timeout-exponential-only",
    _RETRY,
    "With linear_cnt 0 the timeout doubles from the first retry on.",
    Basis.NOTES,
    "§4",
    Need.POST,
    settings=Settings(tail_probe=False, linear_cnt=0, exp_cnt=4),
)
def timeout_exponential_only(c: Script) -> None:
    packet = one(c)
    for factor in (1, 2, 4, 8):
        packet = c.expect("WRITE_ONLY", after=factor * c.ack_timeout_ns, since=packet.at_ns)


@case(
    "timeout-budget",
    _RETRY,
    "After linear_cnt + exp_cnt retries the queue pair goes to ERROR with retry exceeded.",
    Basis.NOTES,
    "§4",
    Need.POST,
    Need.STATES,
    settings=Settings(tail_probe=False, linear_cnt=2, exp_cnt=1),
)
def timeout_budget(c: Script) -> None:
    wr = c.post(8)
    c.expect("WRITE_ONLY")
    for _ in range(3):
        c.expect("WRITE_ONLY", within=2 * c.ack_timeout_ns)
    c.expect_nothing("WRITE_ONLY", within=c.ack_timeout_ns)
    c.expect_state(PairState.RTS)
    c.expect_nothing("WRITE_ONLY", within=2 * c.ack_timeout_ns)
    c.expect_completion(wr, Outcome.RETRY_EXC_ERR)
    c.expect_state(PairState.ERROR)


@case(
    "timeout-no-retries",
    _RETRY,
    "With no retries one timeout ends the queue pair.",
    Basis.NOTES,
    "§4",
    Need.POST,
    settings=Settings(tail_probe=False, linear_cnt=0, exp_cnt=0),
)
def timeout_no_retries(c: Script) -> None:
    wr = c.post(8)
    c.expect("WRITE_ONLY")
    c.expect_nothing("WRITE_ONLY", within=c.ack_timeout_ns)
    c.expect_completion(wr, Outcome.RETRY_EXC_ERR)


@case(
    "timeout-for-ever",
    _RETRY,
    "With exp_cnt 25 retries never end.",
    Basis.NOTES,
    "§4",
    Need.POST,
    Need.EXACT_TIME,
    Need.STATES,
    settings=Settings(tail_probe=False, timeout=2, linear_cnt=1, exp_cnt=FOR_EVER, probe_interval_ns=10**12),
)
def timeout_for_ever(c: Script) -> None:
    one(c)
    c.advance(100 * 1_000_000_000)
    c.expect_state(PairState.RTS)
    c.check(len(c.drain()) > 20, "fewer than 20 retries in 100 s")


@case(
    "timeout-error-flushes",
    _RETRY,
    "When retries are spent, the oldest request says so, and the others are flushed in order.",
    Basis.IBTA,
    "10.8.3",
    Need.POST,
    settings=Settings(tail_probe=False, linear_cnt=0, exp_cnt=0),
)
def timeout_error_flushes(c: Script) -> None:
    requests = [c.post(8) for _ in range(3)]
    c.advance(2 * c.ack_timeout_ns)
    c.expect_completion(requests[0], Outcome.RETRY_EXC_ERR)
    for wr in requests[1:]:
        c.expect_completion(wr, Outcome.WR_FLUSH_ERR)


@case(
    "timeout-error-silent",
    _RETRY,
    "After the error nothing is sent any more.",
    Basis.NOTES,
    "§4",
    Need.POST,
    settings=Settings(linear_cnt=0, exp_cnt=0),
)
def timeout_error_silent(c: Script) -> None:
    wr = c.post(8)
    c.advance(2 * c.ack_timeout_ns)
    c.expect_completion(wr, Outcome.RETRY_EXC_ERR)
    c.drain({*_DATA, "PROBE"})
    c.expect_nothing(*_DATA, "PROBE", within=10 * c.ack_timeout_ns)


@case("timeout-stops", _RETRY, "An acknowledged packet is not sent again.", Basis.NOTES, "§5", Need.POST)
def timeout_stops(c: Script) -> None:
    c.sack(one(c), 0)
    c.ack(0, 1)
    c.expect_nothing("WRITE_ONLY", "PROBE", within=10 * c.ack_timeout_ns)


@case(
    "timeout-per-packet",
    _RETRY,
    "The timer belongs to the packet: one that was sent later expires later.",
    Basis.NOTES,
    "§4",
    Need.POST,
    Need.EXACT_TIME,
    settings=Settings(tail_probe=False, rack_inference=False, same_ev_inference=False),
)
def timeout_per_packet(c: Script) -> None:
    first = one(c)
    c.advance(c.ack_timeout_ns // 2)
    c.post(8)
    second = c.expect("WRITE_ONLY", psn=c.tx(1))
    c.sack(second, -1, [1])
    third_wr = c.post(8)
    third = c.expect("WRITE_ONLY", psn=c.tx(2))
    c.expect("WRITE_ONLY", after=c.ack_timeout_ns, since=first.at_ns, psn=c.tx(0))
    c.expect("WRITE_ONLY", after=c.ack_timeout_ns, since=third.at_ns, psn=c.tx(2))
    c.check(third_wr > 0, "no request was posted")


@case(
    "timeout-holes-only",
    _RETRY,
    "Only packets that no SACK names are sent again.",
    Basis.NOTES,
    "§5",
    Need.EXACT_TIME,
    Need.POST,
    settings=Settings(tail_probe=False, rack_inference=False, same_ev_inference=False),
)
def timeout_holes_only(c: Script) -> None:
    c.post(6 * c.settings.mtu)
    packets = c.drain()
    c.sack(packets[5], 0, [2, 4, 5])
    c.advance(c.ack_timeout_ns)
    again = [packet["psn"] for packet in c.drain()]
    c.check(again == [c.tx(1), c.tx(3)], f"sent again: {[psn - c.dut.psn for psn in again]}, and 1 and 3 were missing")


@case(
    "timeout-bitmap-offset",
    _RETRY,
    "sack_offset shifts the bitmap: bit 0 is PSN cack_psn + sack_offset.",
    Basis.NOTES,
    "§3",
    Need.EXACT_TIME,
    Need.POST,
    settings=Settings(tail_probe=False, rack_inference=False, same_ev_inference=False),
)
def timeout_bitmap_offset(c: Script) -> None:
    c.post(8 * c.settings.mtu)
    packets = c.drain()
    c.sack(packets[7], 0, [], sack_offset=4, sack_bitmap=0b1011)
    c.advance(c.ack_timeout_ns)
    again = [packet["psn"] - c.dut.psn for packet in c.drain()]
    c.check(again == [1, 2, 3, 6], f"sent again: {again}, and 1, 2, 3 and 6 were missing")


@case(
    "timeout-oldest-only",
    _RETRY,
    "While the peer is silent only the oldest packet is sent again.",
    Basis.OURS,
    "§5",
    Need.EXACT_TIME,
    Need.POST,
    settings=_QUIET,
)
def timeout_oldest_only(c: Script) -> None:
    c.post(6 * c.settings.mtu)
    c.drain()
    c.advance(c.ack_timeout_ns)
    again = c.drain()
    c.check([packet["psn"] for packet in again] == [c.tx(0)], f"{len(again)} packets were sent again")


@case(
    "timeout-answer-resumes",
    _RETRY,
    "Any answer ends that restriction: the other lost packets follow.",
    Basis.OURS,
    "§5",
    Need.EXACT_TIME,
    Need.POST,
    settings=_QUIET,
)
def timeout_answer_resumes(c: Script) -> None:
    c.post(6 * c.settings.mtu)
    c.drain()
    c.advance(c.ack_timeout_ns)
    (oldest,) = c.drain()
    c.sack(oldest, 0)
    again = [packet["psn"] for packet in c.drain()]
    c.check(
        again == [c.tx(index) for index in range(1, 6)], f"{len(again)} packets were sent again, and five were lost"
    )


@case(
    "retransmission-rebuilds",
    _RETRY,
    "A retransmission is the same message part: PSN, address, length, keys and numbers.",
    Basis.NOTES,
    "§5",
    Need.POST,
)
def retransmission_rebuilds(c: Script) -> None:
    c.post(3 * c.settings.mtu, 0x99)
    packets = c.drain({"WRITE_FIRST", "WRITE_MIDDLE", "WRITE_LAST_IMM"})
    for packet in packets:
        c.nack(packet, NackReason.TRIMMED_LASTHOP)
        again = c.expect(packet.opcode, rtx=1, payload=packet.payload)
        for name in ("psn", "msn", "rqmsn", "va", "rkey", "dma_length"):
            c.check(
                again[name] == packet[name],
                f"the retransmission has {name} {again[name]:#x}, the packet {packet[name]:#x}",
            )


@case("retransmission-asks", _RETRY, "A retransmission asks for a SACK.", Basis.NOTES, "§5", Need.POST)
def retransmission_asks(c: Script) -> None:
    c.post(3 * c.settings.mtu)
    packets = c.drain()
    c.nack(packets[0], NackReason.TRIMMED_LASTHOP)
    c.expect("WRITE_FIRST", rtx=1, ack_req=1)


@case(
    "silence-ends-with-nack",
    _RETRY,
    "While the peer is silent only the oldest packet is repeated; a NACK ends that.",
    Basis.OURS,
    "§4",
    Need.POST,
    settings=_QUIET,
)
def silence_ends_with_nack(c: Script) -> None:
    c.post(4 * c.settings.mtu)
    first = c.drain()[0]
    again = c.expect(first.opcode, within=2 * c.ack_timeout_ns, psn=first["psn"])
    c.expect_nothing(*_DATA)
    c.nack(again, NackReason.TRIMMED_LASTHOP)
    c.check(len(c.drain()) == 4, "packets that were lost in silence stay behind")


@case(
    "timeout-beside-slow",
    _RETRY,
    "A packet has its own timeout also while another waits for a longer one in its exponential retries.",
    Basis.NOTES,
    "§4",
    Need.POST,
    Need.EXACT_TIME,
    settings=replace(_QUIET, planes=1, linear_cnt=0, exp_cnt=6, rack_inference=False, same_ev_inference=False),
)
def timeout_beside_slow(c: Script) -> None:
    step = c.ack_timeout_ns
    slow = one(c)
    for wait in (1, 2, 4):
        c.expect("WRITE_ONLY", within=wait * step, psn=slow["psn"])
    packets = []
    for pause in (6 * step // 5, step // 2):
        c.advance(pause)
        c.ack(-1, 0)  # the peer answers again
        packets.append(one(c))
    # The slow one is due 8 steps after its third repetition, the others one step after they left, and again two later.
    for wait in (1, 2):
        c.ack(-1, 0)
        for packet in packets:
            c.expect("WRITE_ONLY", after=wait * step, since=packet.at_ns + (wait - 1) * step, psn=packet["psn"])


@case(
    "timeout-overtaken-bitmap",
    _RETRY,
    "The bitmap of a SACK that was overtaken counts for the packets above what is acknowledged by now.",
    Basis.NOTES,
    "§5",
    Need.POST,
    Need.EXACT_TIME,
    settings=replace(_QUIET, rack_inference=False, same_ev_inference=False),
)
def timeout_overtaken_bitmap(c: Script) -> None:
    c.post(8 * c.settings.mtu)
    packets = c.drain()
    c.sack(packets[3], 3)
    c.sack(packets[2], 1, [5])
    c.advance(c.ack_timeout_ns)
    again = sorted(packet["psn"] for packet in c.drain())
    c.check(again == [c.tx(n) for n in (4, 6, 7)], f"packets {again} were sent again; 4, 6 and 7 were missing")


@case(
    "retransmission-oldest-first",
    _RETRY,
    "Of several lost packets the oldest is sent again first.",
    Basis.OURS,
    "§5",
    Need.POST,
    Need.STALL,
    settings=replace(_QUIET, planes=1),
)
def retransmission_oldest_first(c: Script) -> None:
    c.post(5 * c.settings.mtu)
    packets = c.drain()
    c.device.stall_port(0, True)
    for index in (3, 1, 2):
        c.nack(packets[index], NackReason.TRIMMED_LASTHOP)
    c.device.stall_port(0, False)
    again = [packet["psn"] for packet in c.drain()]
    c.check(again[0] == c.tx(1) and len(again) == 3, f"packets {again} were sent again")


@case(
    "retransmission-from-program",
    _RETRY,
    "A packet that is sent again has its own bytes, however far its device has read on in a program's memory.",
    Basis.NOTES,
    "§5",
    Need.EXACT_TIME,
    Need.POST,
    settings=replace(_QUIET, planes=1, program_memory=True),
)
def retransmission_from_program(c: Script) -> None:
    count = 200
    c.post(count * c.settings.mtu)
    packets = c.drain()
    whole = b"".join(packet.payload for packet in packets)
    c.check(whole == pattern(0, count * c.settings.mtu), "the packets are not the bytes of the program")
    for index in (3, 190, 64, 62):
        c.nack(packets[index], NackReason.TRIMMED_LASTHOP)
        again = c.drain()[0]
        c.check(again.payload == packets[index].payload, f"packet {index} was sent again with other bytes")


@case(
    "retransmission-before-new",
    _RETRY,
    "A lost packet is sent again before anything new.",
    Basis.OURS,
    "§5",
    Need.POST,
    settings=replace(_QUIET, planes=1, window=10_000, rack_inference=False, same_ev_inference=False),
)
def retransmission_before_new(c: Script) -> None:
    c.post(40 * c.settings.mtu)
    packets = c.drain()
    c.nack(packets[2], NackReason.TRIMMED_LASTHOP)
    again = c.drain()
    c.check([packet["psn"] for packet in again] == [c.tx(2)], "something else took the room of the trimmed packet")


@case(
    "retransmission-only-path",
    _RETRY,
    "With a single EV a packet is sent again on it.",
    Basis.OURS,
    "§5",
    Need.POST,
    settings=replace(_QUIET, planes=1, ev_count=1, ev_active=1, ev_min_active=1),
)
def retransmission_only_path(c: Script) -> None:
    packet = one(c)
    c.nack(packet, NackReason.TRIMMED_LASTHOP)
    c.expect("WRITE_ONLY", rtx=1, ev=packet.ev)


@case(
    "silence-counted-from-first",
    _RETRY,
    "A peer that answers anything after a packet has left is not silent: all that is late is sent again.",
    Basis.OURS,
    "§4",
    Need.POST,
    Need.EXACT_TIME,
    settings=replace(_QUIET, rack_inference=False, same_ev_inference=False),
)
def silence_counted_from_first(c: Script) -> None:
    c.post(4 * c.settings.mtu)
    packets = c.drain()
    c.advance(c.ack_timeout_ns // 2)
    c.sack(packets[3], -1, [3])
    again = c.drain(within=c.ack_timeout_ns // 2)
    c.check(len(again) == 3, f"{len(again)} of 3 packets were sent again")


def _silence_ends(c: Script, answer: Callable[[Script, list[Packet]], object]) -> None:
    requests = [c.post(c.settings.mtu) for _ in range(4)]
    packets = c.drain()
    again = c.drain(within=c.ack_timeout_ns)
    c.check([packet["psn"] for packet in again] == [c.tx(0)], f"{len(again)} packets were sent again in silence")
    c.check(len(requests) == len(packets), "not every request is one packet")
    answer(c, packets)
    found = sorted(packet["psn"] - c.tx(0) for packet in c.drain())
    c.check(found == [2, 3], f"packets {found} followed the answer")


_ANSWERS: Mapping[str, Callable[[Script, list[Packet]], object]] = {
    "SACK": lambda c, packets: c.sack(packets[1], 1),
    "transport ACK": lambda c, packets: c.ack(1, 2),
}
for _name, _answer in _ANSWERS.items():
    case(
        f"silence-ends-with-{_name.split()[-1].lower()}",
        _RETRY,
        f"A {_name} ends the silence in which only the oldest packet is repeated.",
        Basis.OURS,
        "§4",
        Need.POST,
        Need.EXACT_TIME,
        settings=replace(_QUIET, first_psn=7, rack_inference=False, same_ev_inference=False),
    )(partial(_silence_ends, answer=_answer))


@case(
    "silent-peer-new-data",
    _RETRY,
    "While the peer is silent nothing new is sent, only the oldest packet again.",
    Basis.OURS,
    "§5",
    Need.POST,
    settings=_QUIET,
)
def silent_peer_new_data(c: Script) -> None:
    first = one(c)
    c.expect("WRITE_ONLY", after=c.ack_timeout_ns, since=first.at_ns, rtx=1, psn=first["psn"])
    c.post(8)
    new = [packet for packet in c.drain(_DATA, within=c.ack_timeout_ns // 2) if packet["psn"] != first["psn"]]
    c.check(new == [], f"{len(new)} new packets were sent to a peer that is silent")
    c.sack(first, 0)
    c.expect("WRITE_ONLY", psn=c.tx(1))
