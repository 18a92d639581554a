"""How the requestor repairs: NACKs and their effects, timeouts and budget, loss inference."""

from __future__ import annotations

from mrc_conform.case import Area, Basis, case
from mrc_conform.device import FOR_EVER, Need, Outcome, PairState, PathState, Settings
from mrc_conform.script import NackReason, Script
from mrc_conform.wire import Packet

_NACK = Area.NACK
_RETRY = Area.RETRY
_LOSS = Area.LOSS
_TRIM = Area.TRIM
_DATA = ("WRITE_FIRST", "WRITE_MIDDLE", "WRITE_LAST", "WRITE_ONLY")
_ONE_PLANE = Settings(planes=1, tail_probe=False, ev_count=8, ev_active=4)
_QUIET = Settings(tail_probe=False)
#: Rule (c) alone: one EV more than packets, so that none overtakes another on its EV.
_RACK = Settings(planes=1, tail_probe=False, same_ev_inference=False, ev_count=64, ev_active=32)
_SAME_EV = Settings(planes=1, tail_probe=False, rack_inference=False, ev_count=2, ev_active=1, ev_min_active=1)


def _one(c: Script) -> Packet:
    c.post(8)
    return c.expect("WRITE_ONLY")


# --- NACKs ---


@case("nack-trimmed-repeats", _TRIM, "A packet refused with TRIMMED is sent again at once, on another EV.", Basis.NOTES, "§5", Need.POST)
def nack_trimmed_repeats(c: Script) -> None:
    packet = _one(c)
    c.nack(packet, NackReason.TRIMMED)
    again = c.expect("WRITE_ONLY", psn=packet["psn"], rtx=1, dscp=8)
    c.check(again.ev != packet.ev, "the retransmission travels on the EV that failed")


@case("nack-trimmed-skips", _TRIM, "TRIMMED brings a GOOD EV to SKIP.", Basis.NOTES, "§7", Need.POST, Need.EVS)
def nack_trimmed_skips(c: Script) -> None:
    packet = _one(c)
    c.nack(packet, NackReason.TRIMMED)
    c.check(c.ev_state(packet.ev) is PathState.SKIP, f"the EV is {c.ev_state(packet.ev).name}")


@case("nack-last-hop-repeats", _TRIM, "A packet refused with TRIMMED_LASTHOP is sent again, and its EV stays GOOD.", Basis.NOTES, "§5, §7",
      Need.POST, Need.EVS)
def nack_last_hop_repeats(c: Script) -> None:
    packet = _one(c)
    c.nack(packet, NackReason.TRIMMED_LASTHOP)
    c.expect("WRITE_ONLY", psn=packet["psn"], rtx=1)
    c.check(c.ev_state(packet.ev) is PathState.GOOD, f"the EV is {c.ev_state(packet.ev).name}")


@case("nack-trim-budget", _TRIM, "Trims cost at most one retry in each local ACK timeout, so that an incast does not end a queue pair.",
      Basis.OURS, "§4", Need.POST, Need.STATES)
def nack_trim_budget(c: Script) -> None:
    packet = _one(c)
    for _ in range(60):
        c.nack(packet, NackReason.TRIMMED_LASTHOP)
        packet = c.expect("WRITE_ONLY", rtx=1)
    c.expect_state(PairState.RTS)


def _refusal(name: str) -> None:
    reason = int(getattr(NackReason, name))
    label = name.replace("_", "-").lower()

    @case(f"nack-{label}-pause", _NACK, f"A packet refused with {name} is sent again after a pause, and its EV stays GOOD.", Basis.NOTES, "§5, §7",
          Need.POST, Need.EVS, settings=_QUIET)
    def pause(c: Script) -> None:
        packet = _one(c)
        c.nack(packet, reason)
        c.expect_nothing("WRITE_ONLY", within=c.settings.base_rtt_ns // 2)
        c.expect("WRITE_ONLY", within=c.settings.base_rtt_ns, rtx=1)
        c.check(c.ev_state(packet.ev) is PathState.GOOD, f"the EV is {c.ev_state(packet.ev).name}")


for _name in ("NO_BITMAP", "NO_PKT_BUFFER", "NO_RESOURCE", "PSN_OOR_WINDOW"):
    _refusal(_name)


@case("nack-pause-doubles", _NACK, "The pause is a round trip and doubles while refusals go on.", Basis.OURS, "§5", Need.POST, Need.EXACT_TIME,
      settings=_QUIET)
def nack_pause_doubles(c: Script) -> None:
    packet = _one(c)
    for turn in range(4):
        since = c.now
        c.nack(packet, NackReason.NO_RESOURCE)
        packet = c.expect("WRITE_ONLY", after=c.settings.base_rtt_ns << turn, since=since)


@case("nack-pause-ends", _NACK, "An acknowledged packet ends the series: the next pause is a round trip again.", Basis.OURS, "§5", Need.POST,
      Need.EXACT_TIME, settings=_QUIET)
def nack_pause_ends(c: Script) -> None:
    packet = _one(c)
    for _ in range(3):
        c.nack(packet, NackReason.NO_RESOURCE)
        packet = c.expect("WRITE_ONLY", within=8 * c.settings.base_rtt_ns)
    c.sack(packet, 0)
    c.ack(0, 1)
    packet = _one(c)
    since = c.now
    c.nack(packet, NackReason.NO_RESOURCE)
    c.expect("WRITE_ONLY", after=c.settings.base_rtt_ns, since=since)


@case("nack-refusal-budget", _NACK, "Every refusal costs a retry: beyond the budget the queue pair ends with retry exceeded.", Basis.NOTES, "§4",
      Need.POST, settings=Settings(tail_probe=False, linear_cnt=2, exp_cnt=1))
def nack_refusal_budget(c: Script) -> None:
    wr = c.post(8)
    packet = c.expect("WRITE_ONLY")
    for _ in range(3):
        c.nack(packet, NackReason.NO_BITMAP)
        packet = c.expect("WRITE_ONLY", within=c.ack_timeout_ns)
    c.expect_no_completion()
    c.nack(packet, NackReason.NO_BITMAP)
    c.expect_completion(wr, Outcome.RETRY_EXC_ERR)


@case("nack-unexpected-event", _NACK, "UNEXP_EVENT ends the queue pair with a remote operation error; nothing is sent again.", Basis.NOTES, "§5",
      Need.POST, Need.STATES)
def nack_unexpected_event(c: Script) -> None:
    wr = c.post(8)
    packet = c.expect("WRITE_ONLY")
    c.nack(packet, NackReason.UNEXP_EVENT)
    c.expect_completion(wr, Outcome.REM_OP_ERR)
    c.expect_state(PairState.ERROR)
    c.expect_nothing(*_DATA, within=3 * c.ack_timeout_ns)


@case("nack-unknown-reason", _NACK, "A reason that the protocol does not have yet is a lack of a resource.", Basis.OURS, "§5", Need.POST,
      settings=_QUIET)
def nack_unknown_reason(c: Script) -> None:
    packet = _one(c)
    c.nack(packet, 0x55)
    c.expect_nothing("WRITE_ONLY", within=c.settings.base_rtt_ns // 2)
    c.expect("WRITE_ONLY", within=c.settings.base_rtt_ns, rtx=1)


@case("nack-of-acknowledged", _NACK, "A NACK of a packet that is no longer outstanding has no effect.", Basis.NOTES, "§5", Need.POST, Need.STATES)
def nack_of_acknowledged(c: Script) -> None:
    wr = c.post(8)
    packet = c.expect("WRITE_ONLY")
    c.sack(packet, 0)
    for reason in (NackReason.TRIMMED, NackReason.NO_RESOURCE, NackReason.UNEXP_EVENT):
        c.nack(packet, reason)
    c.expect_state(PairState.RTS)
    c.expect_nothing("WRITE_ONLY")
    c.ack(0, 1)
    c.expect_completion(wr)


@case("nack-of-earlier", _NACK, "A NACK of an earlier transmission does not repeat the present one.", Basis.OURS, "§5", Need.POST, settings=_QUIET)
def nack_of_earlier(c: Script) -> None:
    packet = _one(c)
    c.nack(packet, NackReason.TRIMMED)
    c.expect("WRITE_ONLY", rtx=1)
    c.nack(packet, NackReason.TRIMMED)
    c.expect_nothing("WRITE_ONLY", within=c.ack_timeout_ns // 2)


@case("nack-of-unsent", _NACK, "A NACK of a PSN that was never sent has no effect.", Basis.NOTES, "§5", Need.POST, Need.STATES)
def nack_of_unsent(c: Script) -> None:
    packet = _one(c)
    c.nack(packet, NackReason.UNEXP_EVENT, psn=c.tx(7), nack_psn=c.tx(7))
    c.expect_state(PairState.RTS)


@case("nack-one-packet", _NACK, "A NACK repeats the packet that it names, and no other.", Basis.NOTES, "§5", Need.POST, settings=_QUIET)
def nack_one_packet(c: Script) -> None:
    c.post(5 * c.settings.mtu)
    packets = c.drain()
    c.nack(packets[2], NackReason.TRIMMED)
    c.expect("WRITE_MIDDLE", psn=c.tx(2), rtx=1, payload=packets[2].payload)
    c.expect_nothing(*_DATA, within=c.ack_timeout_ns // 2)


# --- timeouts and budget ---


@case("timeout-first", _RETRY, "A packet without an answer is sent again after the local ACK timeout, 1.024 us * 2^t.", Basis.NOTES, "§4",
      Need.POST, settings=_QUIET)
def timeout_first(c: Script) -> None:
    packet = _one(c)
    again = c.expect("WRITE_ONLY", after=c.ack_timeout_ns, since=packet.at_ns, rtx=1, psn=packet["psn"])
    c.check(again.payload == packet.payload, "the retransmission has another payload")


@case("timeout-linear", _RETRY, "The first linear_cnt retries keep the timeout, the next exp_cnt double it.", Basis.NOTES, "§4", Need.POST,
      settings=Settings(tail_probe=False, linear_cnt=3, exp_cnt=3))
def timeout_linear(c: Script) -> None:
    packet = _one(c)
    for factor in (1, 1, 1, 1, 2, 4):
        packet = c.expect("WRITE_ONLY", after=factor * c.ack_timeout_ns, since=packet.at_ns)


@case("timeout-exponential-only", _RETRY, "With linear_cnt 0 the timeout doubles from the first retry on.", Basis.NOTES, "§4", Need.POST,
      settings=Settings(tail_probe=False, linear_cnt=0, exp_cnt=4))
def timeout_exponential_only(c: Script) -> None:
    packet = _one(c)
    for factor in (1, 2, 4, 8):
        packet = c.expect("WRITE_ONLY", after=factor * c.ack_timeout_ns, since=packet.at_ns)


@case("timeout-budget", _RETRY, "After linear_cnt + exp_cnt retries the queue pair goes to ERROR with retry exceeded.", Basis.NOTES, "§4",
      Need.POST, Need.STATES, settings=Settings(tail_probe=False, linear_cnt=2, exp_cnt=1))
def timeout_budget(c: Script) -> None:
    wr = c.post(8)
    packet = c.expect("WRITE_ONLY")
    for _ in range(3):
        packet = c.expect("WRITE_ONLY", within=2 * c.ack_timeout_ns)
    c.expect_nothing("WRITE_ONLY", within=c.ack_timeout_ns)
    c.expect_state(PairState.RTS)
    c.expect_nothing("WRITE_ONLY", within=2 * c.ack_timeout_ns)
    c.expect_completion(wr, Outcome.RETRY_EXC_ERR)
    c.expect_state(PairState.ERROR)


@case("timeout-no-retries", _RETRY, "With no retries one timeout ends the queue pair.", Basis.NOTES, "§4", Need.POST,
      settings=Settings(tail_probe=False, linear_cnt=0, exp_cnt=0))
def timeout_no_retries(c: Script) -> None:
    wr = c.post(8)
    c.expect("WRITE_ONLY")
    c.expect_nothing("WRITE_ONLY", within=c.ack_timeout_ns)
    c.expect_completion(wr, Outcome.RETRY_EXC_ERR)


@case("timeout-for-ever", _RETRY, "With exp_cnt 25 retries never end.", Basis.NOTES, "§4", Need.POST, Need.EXACT_TIME, Need.STATES,
      settings=Settings(tail_probe=False, timeout=2, linear_cnt=1, exp_cnt=FOR_EVER, probe_interval_ns=10**12))
def timeout_for_ever(c: Script) -> None:
    _one(c)
    c.advance(100 * 1_000_000_000)
    c.expect_state(PairState.RTS)
    c.check(len(c.drain()) > 20, "fewer than 20 retries in 100 s")


@case("timeout-error-flushes", _RETRY, "When retries are spent, the oldest request says so, and the others are flushed in order.", Basis.IBTA,
      "10.8.3", Need.POST, settings=Settings(tail_probe=False, linear_cnt=0, exp_cnt=0))
def timeout_error_flushes(c: Script) -> None:
    requests = [c.post(8) for _ in range(3)]
    c.advance(2 * c.ack_timeout_ns)
    c.expect_completion(requests[0], Outcome.RETRY_EXC_ERR)
    for wr in requests[1:]:
        c.expect_completion(wr, Outcome.WR_FLUSH_ERR)


@case("timeout-error-silent", _RETRY, "After the error nothing is sent any more.", Basis.NOTES, "§4", Need.POST,
      settings=Settings(linear_cnt=0, exp_cnt=0))
def timeout_error_silent(c: Script) -> None:
    wr = c.post(8)
    c.advance(2 * c.ack_timeout_ns)
    c.expect_completion(wr, Outcome.RETRY_EXC_ERR)
    c.drain({*_DATA, "PROBE"})
    c.expect_nothing(*_DATA, "PROBE", within=10 * c.ack_timeout_ns)


@case("timeout-stops", _RETRY, "An acknowledged packet is not sent again.", Basis.NOTES, "§5", Need.POST)
def timeout_stops(c: Script) -> None:
    c.sack(_one(c), 0)
    c.ack(0, 1)
    c.expect_nothing("WRITE_ONLY", "PROBE", within=10 * c.ack_timeout_ns)


@case("timeout-per-packet", _RETRY, "The timer belongs to the packet: one that was sent later expires later.", Basis.NOTES, "§4", Need.POST,
      Need.EXACT_TIME, settings=Settings(tail_probe=False, rack_inference=False, same_ev_inference=False))
def timeout_per_packet(c: Script) -> None:
    first = _one(c)
    c.advance(c.ack_timeout_ns // 2)
    c.post(8)
    second = c.expect("WRITE_ONLY", psn=c.tx(1))
    c.sack(second, -1, [1])
    third_wr = c.post(8)
    third = c.expect("WRITE_ONLY", psn=c.tx(2))
    c.expect("WRITE_ONLY", after=c.ack_timeout_ns, since=first.at_ns, psn=c.tx(0))
    c.expect("WRITE_ONLY", after=c.ack_timeout_ns, since=third.at_ns, psn=c.tx(2))
    c.check(third_wr > 0, "no request was posted")


@case("timeout-holes-only", _RETRY, "Only packets that no SACK names are sent again.", Basis.NOTES, "§5", Need.POST,
      settings=Settings(tail_probe=False, rack_inference=False, same_ev_inference=False))
def timeout_holes_only(c: Script) -> None:
    c.post(6 * c.settings.mtu)
    packets = c.drain()
    c.sack(packets[5], 0, [2, 4, 5])
    c.advance(c.ack_timeout_ns)
    again = [packet["psn"] for packet in c.drain()]
    c.check(again == [c.tx(1), c.tx(3)], f"sent again: {[psn - c.dut.psn for psn in again]}, and 1 and 3 were missing")


@case("timeout-bitmap-offset", _RETRY, "sack_offset shifts the bitmap: bit 0 is PSN cack_psn + sack_offset.", Basis.NOTES, "§3", Need.POST,
      settings=Settings(tail_probe=False, rack_inference=False, same_ev_inference=False))
def timeout_bitmap_offset(c: Script) -> None:
    c.post(8 * c.settings.mtu)
    packets = c.drain()
    c.sack(packets[7], 0, [], sack_offset=4, sack_bitmap=0b1011)
    c.advance(c.ack_timeout_ns)
    again = [packet["psn"] - c.dut.psn for packet in c.drain()]
    c.check(again == [1, 2, 3, 6], f"sent again: {again}, and 1, 2, 3 and 6 were missing")


@case("timeout-oldest-only", _RETRY, "While the peer is silent only the oldest packet is sent again.", Basis.OURS, "§5", Need.POST, settings=_QUIET)
def timeout_oldest_only(c: Script) -> None:
    c.post(6 * c.settings.mtu)
    c.drain()
    c.advance(c.ack_timeout_ns)
    again = c.drain()
    c.check([packet["psn"] for packet in again] == [c.tx(0)], f"{len(again)} packets were sent again")


@case("timeout-answer-resumes", _RETRY, "Any answer ends that restriction: the other lost packets follow.", Basis.OURS, "§5", Need.POST,
      settings=_QUIET)
def timeout_answer_resumes(c: Script) -> None:
    c.post(6 * c.settings.mtu)
    c.drain()
    c.advance(c.ack_timeout_ns)
    (oldest,) = c.drain()
    c.sack(oldest, 0)
    again = [packet["psn"] for packet in c.drain()]
    c.check(again == [c.tx(index) for index in range(1, 6)], f"{len(again)} packets were sent again, and five were lost")


@case("retransmission-rebuilds", _RETRY, "A retransmission is the same message part: PSN, address, length, keys and numbers.", Basis.NOTES, "§5",
      Need.POST)
def retransmission_rebuilds(c: Script) -> None:
    c.post(3 * c.settings.mtu, 0x99)
    packets = c.drain({"WRITE_FIRST", "WRITE_MIDDLE", "WRITE_LAST_IMM"})
    for packet in packets:
        c.nack(packet, NackReason.TRIMMED_LASTHOP)
        again = c.expect(packet.opcode, rtx=1, payload=packet.payload)
        for name in ("psn", "msn", "rqmsn", "va", "rkey", "dma_length"):
            c.check(again[name] == packet[name], f"the retransmission has {name} {again[name]:#x}, the packet {packet[name]:#x}")


@case("retransmission-asks", _RETRY, "A retransmission asks for a SACK.", Basis.NOTES, "§5", Need.POST)
def retransmission_asks(c: Script) -> None:
    c.post(3 * c.settings.mtu)
    packets = c.drain()
    c.nack(packets[0], NackReason.TRIMMED_LASTHOP)
    c.expect("WRITE_FIRST", rtx=1, ack_req=1)


# --- loss inference ---


@case("loss-same-ev", _LOSS, "A packet is lost when one that was sent later on the same EV has arrived.", Basis.OURS, "§5 (b)", Need.POST,
      settings=_SAME_EV)
def loss_same_ev(c: Script) -> None:
    c.post(3 * c.settings.mtu)
    packets = c.drain()
    c.advance(c.settings.base_rtt_ns)
    c.sack(packets[1], -1, [1])
    c.expect("WRITE_FIRST", psn=c.tx(0), rtx=1)
    c.expect_nothing("WRITE_LAST")


@case("loss-late", _LOSS, "A packet is lost that was sent more than srtt + 4 rttvar before the newest that has arrived.", Basis.OURS, "§5 (c)",
      Need.POST, Need.EXACT_TIME, settings=_RACK)
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


@case("loss-not-late", _LOSS, "A packet that was sent at the same time as the newest that has arrived is not lost yet.", Basis.OURS, "§5 (c)",
      Need.POST, Need.EXACT_TIME, settings=_RACK)
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
    packet = None
    for index in range(16):
        c.post(8)
        packet = c.expect("WRITE_ONLY")
        c.advance(rtt)
        c.sack(packet, index)
        c.ack(index, index + 1)
    assert packet is not None
    return packet


@case("loss-blames-the-path", _LOSS, "An inferred loss brings the EV to ASSUMED_BAD.", Basis.NOTES, "§7", Need.POST, Need.EVS,
      settings=Settings(planes=1, tail_probe=False, ev_count=8, ev_active=4, ev_min_active=1))
def loss_blames_the_path(c: Script) -> None:
    packet = _one(c)
    c.expect("WRITE_ONLY", within=2 * c.ack_timeout_ns)
    c.check(c.ev_state(packet.ev) is PathState.ASSUMED_BAD, f"the EV is {c.ev_state(packet.ev).name}")


@case("loss-exponential-phase", _LOSS, "Rule (c) holds for packets in the exponential phase of their retries as well.", Basis.OURS, "§5",
      Need.POST, Need.EXACT_TIME,
      settings=Settings(planes=1, tail_probe=False, same_ev_inference=False, ev_count=64, ev_active=32, linear_cnt=0, exp_cnt=6))
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


@case("loss-spurious", _LOSS, "A SACK of a packet that was taken for lost takes its retransmission back when that has not left.", Basis.NOTES,
      "§5", Need.POST, settings=Settings(planes=1, tail_probe=False, window=1500, same_ev_inference=False, rack_inference=False))
def loss_spurious(c: Script) -> None:
    c.post(8)
    packet = c.expect("WRITE_ONLY")
    c.nack(packet, NackReason.NO_RESOURCE)
    c.sack(packet, 0)
    c.ack(0, 1)
    c.expect_nothing("WRITE_ONLY", within=3 * c.ack_timeout_ns)
