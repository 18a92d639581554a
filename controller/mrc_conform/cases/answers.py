"""What the responder answers: SACKs, NACKs, transport ACKs, immediates in order."""

from __future__ import annotations

from mrc_conform.case import Area, Basis, case
from mrc_conform.device import Need, PairState, Settings
from mrc_conform.script import NackReason, Nak, Script, pattern
from mrc_conform.wire import Damage, Packet

_SACK = Area.SACK
_NACK = Area.NACK
_TRIM = Area.TRIM
_ORDER = Area.ORDER
_CE = 3
_DSCP_TRIMMED = 12
_DSCP_LASTHOP = 16
#: What a switch leaves of a data packet: UDP, BTH, METH, TSETH, RETH.
_HEADERS_BYTES = 8 + 12 + 4 + 4 + 16
_SOLICITED_NONE = Settings(sack_every=4, sack_delay_ns=50_000)


def _quiet(packet: Packet) -> Packet:
    """Return the packet without its request for an acknowledgement."""
    return packet.with_fields({"bth.ack_req": 0})


# --- SACK ---


@case("sack-every-packet", _SACK, "Without coalescing every packet is answered by a SACK.", Basis.NOTES, "§6")
def sack_every_packet(c: Script) -> None:
    for index, packet in enumerate(c.message(0, 5)):
        c.send(_quiet(packet))
        c.expect("SACK", cack_psn=c.rx(index), ack_psn_offset=0)


@case("sack-cumulative", _SACK, "cack_psn is the last PSN up to which everything has arrived.", Basis.NOTES, "§3")
def sack_cumulative(c: Script) -> None:
    for index, cack in ((0, 0), (2, 0), (3, 0), (1, 3), (4, 4)):
        c.send(c.data(index))
        c.expect("SACK", cack_psn=c.rx(cack))


@case("sack-bitmap", _SACK, "Bit i of the bitmap says that PSN cack_psn + sack_offset + i has arrived.", Basis.NOTES, "§3")
def sack_bitmap(c: Script) -> None:
    for index in (0, 2, 5, 6):
        c.send(c.data(index))
    found = c.drain({"SACK"})[-1]
    base = found["cack_psn"] + found["sack_offset"]
    shown = {base + bit - c.kit.psn for bit in range(64) if found["sack_bitmap"] >> bit & 1}
    c.check(shown - {0} == {2, 5, 6}, f"the bitmap shows the packets {sorted(shown)}, and 2, 5 and 6 arrived early")


@case("sack-trigger", _SACK, "ack_psn_offset names the packet that triggered the SACK, also one below cack_psn.", Basis.NOTES, "§3")
def sack_trigger(c: Script) -> None:
    c.send(c.data(0))
    c.expect("SACK", ack_psn_offset=0)
    c.send(c.data(4))
    c.expect("SACK", cack_psn=c.rx(0), ack_psn_offset=4)
    c.send(c.data(1))
    c.expect("SACK", cack_psn=c.rx(1), ack_psn_offset=0)
    c.send(c.data(0))
    c.expect("SACK", cack_psn=c.rx(1), ack_psn_offset=-1)


@case("sack-echo-ev", _SACK, "A SACK echoes the EV of the packet that triggered it.", Basis.NOTES, "§3")
def sack_echo_ev(c: Script) -> None:
    for index, ev in enumerate((0x12345678, 0x0000FFFF, 0xFFFF0001)):
        c.send(c.data(index), ev=ev)
        c.expect("SACK", entropy=ev)


@case("sack-echo-time", _SACK, "A SACK echoes the timestamp of the packet that triggered it.", Basis.NOTES, "§3")
def sack_echo_time(c: Script) -> None:
    for index, stamp in enumerate((0x0001, 0xFFFF, 0x8000)):
        c.send(c.data(index), tx_timestamp=stamp)
        c.expect("SACK", tx_timestamp=stamp)


@case("sack-echo-rtx", _SACK, "A SACK echoes rtx.", Basis.NOTES, "§3")
def sack_echo_rtx(c: Script) -> None:
    c.send(c.data(0))
    c.expect("SACK", rtx=0)
    c.send(c.data(1), rtx=1)
    c.expect("SACK", rtx=1)


@case("sack-mark-ce", _SACK, "A packet that arrived with CE is answered with m = SKIP_ONCE.", Basis.NOTES, "§3")
def sack_mark_ce(c: Script) -> None:
    c.send(c.data(0), ecn=_CE)
    c.expect("SACK", m=1)


@case("sack-mark-none", _SACK, "A packet without CE is answered with m = NONE.", Basis.NOTES, "§3")
def sack_mark_none(c: Script) -> None:
    for index, ecn in enumerate((0, 1, 2)):
        c.send(c.data(index), ecn=ecn)
        c.expect("SACK", m=0)


@case("sack-always-skip", _SACK, "After the configured number of marks in a row on one EV, m = ALWAYS_SKIP.", Basis.OURS, "§3",
      settings=Settings(always_skip_after=3))
def sack_always_skip(c: Script) -> None:
    for index, mark in enumerate((1, 1, 2)):
        c.send(c.data(index), ecn=_CE, ev=0x77)
        c.expect("SACK", m=mark)


@case("sack-always-skip-row", _SACK, "An unmarked packet on the EV begins the count again, and other EVs do not.", Basis.OURS, "§3",
      settings=Settings(always_skip_after=3))
def sack_always_skip_row(c: Script) -> None:
    marks = [(0x77, _CE, 1), (0x88, 2, 0), (0x77, _CE, 1), (0x77, 2, 0), (0x77, _CE, 1), (0x77, _CE, 1), (0x77, _CE, 2)]
    for index, (ev, ecn, mark) in enumerate(marks):
        c.send(c.data(index), ecn=ecn, ev=ev)
        c.expect("SACK", m=mark)


@case("sack-received-bytes", _SACK, "rcvd_bytes counts nominal bytes (UDP length + 40) of new packets in units of 256, rounded up.",
      Basis.UET, "3.6.13; of MRC §3")
def sack_received_bytes(c: Script) -> None:
    total = 0
    for index, length in enumerate((1024, 100, 1, 1024)):
        sent = c.send(c.data(index, payload=pattern(index, length)))
        total += len(sent.raw)
        c.expect("SACK", rcvd_bytes=-(-total // 256))


@case("sack-received-once", _SACK, "rcvd_bytes does not count duplicates.", Basis.UET, "3.6.13; of MRC §3")
def sack_received_once(c: Script) -> None:
    c.send(c.data(0))
    first = c.expect("SACK")["rcvd_bytes"]
    for _ in range(4):
        c.send(c.data(0))
        c.expect("SACK", rcvd_bytes=first)


@case("sack-out-of-order", _SACK, "ooo_count says how many packets arrived beyond cack_psn.", Basis.NOTES, "§3")
def sack_out_of_order(c: Script) -> None:
    for index, beyond in ((2, 1), (4, 2), (1, 3), (0, 1), (3, 0)):
        c.send(c.data(index))
        c.expect("SACK", ooo_count=beyond)


@case("sack-plain-fields", _SACK, "Without dynamic MPR, pressure or a probe, mpr, penalty, restore_cwnd and pr are 0.", Basis.NOTES, "§3")
def sack_plain_fields(c: Script) -> None:
    c.send(c.data(0))
    c.expect("SACK", mpr=0, rcv_cwnd_pen=0, restore_cwnd=0, pr=0)


@case("sack-penalty", _SACK, "The receiver's penalty and restore_cwnd go into every SACK.", Basis.UET, "3.6.13; of MRC §8", Need.PRESSURE)
def sack_penalty(c: Script) -> None:
    c.device.set_pressure(100, restore=True)
    c.send(c.data(0))
    c.expect("SACK", rcv_cwnd_pen=100, restore_cwnd=1)
    c.device.set_pressure(0)
    c.send(c.data(1))
    c.expect("SACK", rcv_cwnd_pen=0, restore_cwnd=0)


@case("sack-wide-trigger", _SACK, "With more to show than 64 PSNs, the bitmap shows the neighbourhood of the triggering packet.",
      Basis.OURS, "§6")
def sack_wide_trigger(c: Script) -> None:
    shown = 0
    for index in range(10, 400, 3):
        c.send(_quiet(c.data(index)))
        found = c.expect("SACK", ack_psn_offset=index + 1)
        first = found["sack_offset"]
        shown += int(first <= index + 1 < first + 64 and found["sack_bitmap"] >> (index + 1 - first) & 1)
    c.check(shown >= 90, f"{shown} of 130 SACKs show the packet that triggered them")


@case("sack-wide-cycle", _SACK, "Successive SACKs cycle over older holes, so that every packet is shown some time.", Basis.OURS, "§6")
def sack_wide_cycle(c: Script) -> None:
    arrived = set(range(5, 300, 2))
    seen: set[int] = set()
    for index in sorted(arrived):
        c.send(_quiet(c.data(index)))
    c.drain({"SACK"})
    for _ in range(40):
        c.send(c.data(299 if 299 in arrived else 5))
        found = c.expect("SACK")
        base = found["sack_offset"] - 1
        seen |= {base + bit for bit in range(64) if found["sack_bitmap"] >> bit & 1}
    c.check(seen == arrived, f"{len(arrived - seen)} packets are in none of 40 SACKs, {len(seen - arrived)} wrongly are")


@case("sack-coalesced", _SACK, "With coalescing one SACK answers several packets.", Basis.UET, "3.6.13.5", settings=_SOLICITED_NONE)
def sack_coalesced(c: Script) -> None:
    packets = [_quiet(packet) for packet in c.message(0, 12)]
    for index in range(8):
        c.send(packets[index])
        if index % 4 == 3:
            c.expect("SACK", cack_psn=c.rx(index))
        else:
            c.expect_nothing("SACK")


@case("sack-coalesced-delay", _SACK, "A SACK that is held back leaves after the configured delay.", Basis.UET, "3.6.13.5",
      Need.EXACT_TIME, settings=_SOLICITED_NONE)
def sack_coalesced_delay(c: Script) -> None:
    packets = [_quiet(packet) for packet in c.message(0, 12)]
    c.send(packets[0])
    c.advance(20_000)
    c.send(packets[1])
    c.expect("SACK", after=30_000, cack_psn=c.rx(1))
    c.expect_nothing("SACK", within=200_000)


@case("sack-coalesced-request", _SACK, "A packet that asks for an acknowledgement is answered at once.", Basis.UET, "3.6.13.5",
      settings=_SOLICITED_NONE)
def sack_coalesced_request(c: Script) -> None:
    packets = c.message(0, 12)
    c.send(packets[0])
    c.expect_nothing("SACK")
    c.send(packets[1], ack_req=1)
    c.expect("SACK", cack_psn=c.rx(1))


@case("sack-coalesced-mark", _SACK, "A packet with CE is answered at once.", Basis.UET, "3.6.13.5", settings=_SOLICITED_NONE)
def sack_coalesced_mark(c: Script) -> None:
    packets = c.message(0, 12)
    c.send(packets[0], ecn=_CE)
    c.expect("SACK", m=1)


@case("sack-coalesced-last", _SACK, "The last packet of a message is answered at once.", Basis.NOTES, "§6", settings=_SOLICITED_NONE)
def sack_coalesced_last(c: Script) -> None:
    for packet in c.message(0, 2):
        c.send(_quiet(packet))
    c.expect("SACK", cack_psn=c.rx(1))


@case("sack-coalesced-duplicate", _SACK, "A duplicate is answered at once.", Basis.NOTES, "§6", settings=_SOLICITED_NONE)
def sack_coalesced_duplicate(c: Script) -> None:
    packets = c.message(0, 12)
    c.send(packets[0])
    c.expect_nothing("SACK")
    c.send(packets[0])
    c.expect("SACK", cack_psn=c.rx(0), ack_psn_offset=0)


@case("sack-delayed-time", _SACK, "A SACK that was held back does not echo a timestamp from which the sender would take its delay.",
      Basis.OURS, "§6", Need.EXACT_TIME, settings=_SOLICITED_NONE)
def sack_delayed_time(c: Script) -> None:
    c.send(c.message(0, 12)[0])
    c.expect("SACK", after=50_000, tx_timestamp=0)


@case("sack-service-time", _SACK, "With the service-time capability the echoed timestamp is advanced by the time that the SACK was held.",
      Basis.NOTES, "§4", Need.EXACT_TIME, settings=Settings(sack_every=4, sack_delay_ns=51_200, service_time=True))
def sack_service_time(c: Script) -> None:
    c.send(c.message(0, 12)[0], tx_timestamp=0x100)
    c.expect("SACK", after=51_200, tx_timestamp=0x100 + 400)


# --- NACK ---


@case("nack-echo", _NACK, "A NACK names EV and timestamp of the packet that it refuses.", Basis.NOTES, "§3")
def nack_echo(c: Script) -> None:
    c.send(c.data(30_000), ev=0x01020304, tx_timestamp=0x5A5A)
    c.expect("NACK", entropy=0x01020304, tx_timestamp=0x5A5A)


def _resource(name: str, reason: int) -> None:
    @case(f"nack-{name.replace('_', '-').lower()}", _NACK, f"A responder that lacks a resource refuses a packet with {name} and does not place it.",
          Basis.UET, "3.5.12", Need.PRESSURE, Need.MEMORY)
    def refused(c: Script) -> None:
        c.device.set_pressure(0, refuse=reason)
        packet = c.data(0)
        c.send(packet)
        c.expect("NACK", nack_reason=reason, nack_psn=c.rx(0))
        c.expect_nothing("SACK")
        c.expect_memory(0, bytes(64))
        c.device.set_pressure(0)
        c.send(packet, rtx=1)
        c.expect("SACK", cack_psn=c.rx(0))
        c.expect_memory(0, packet.payload)


for _name in ("NO_BITMAP", "NO_PKT_BUFFER", "NO_RESOURCE", "UNEXP_EVENT"):
    _resource(_name, getattr(NackReason, _name))


@case("nack-not-for-duplicates", _NACK, "A duplicate is acknowledged though the responder refuses new packets.", Basis.NOTES, "§6", Need.PRESSURE)
def nack_not_for_duplicates(c: Script) -> None:
    c.send(c.data(0))
    c.expect("SACK")
    c.device.set_pressure(0, refuse=NackReason.NO_RESOURCE)
    c.send(c.data(0), rtx=1)
    c.expect("SACK", cack_psn=c.rx(0))
    c.expect_nothing("NACK")


# --- trimmed packets ---


def _trimmed(c: Script, packet: Packet, dscp: int, keep: int = _HEADERS_BYTES) -> None:
    c.send(packet, Damage(trim_to=keep), dscp=dscp)


@case("trim-nack", _TRIM, "A packet that a switch trimmed is refused with TRIMMED, and nothing is placed.", Basis.NOTES, "§6", Need.MEMORY)
def trim_nack(c: Script) -> None:
    packet = c.data(0)
    _trimmed(c, packet, _DSCP_TRIMMED)
    c.expect("NACK", nack_reason=NackReason.TRIMMED, nack_psn=c.rx(0), entropy=packet.ev)
    c.expect_nothing("SACK")
    c.expect_memory(0, bytes(64))


@case("trim-nack-last-hop", _TRIM, "A packet that was trimmed at the last hop is refused with TRIMMED_LASTHOP.", Basis.NOTES, "§6")
def trim_nack_last_hop(c: Script) -> None:
    _trimmed(c, c.data(0), _DSCP_LASTHOP)
    c.expect("NACK", nack_reason=NackReason.TRIMMED_LASTHOP, nack_psn=c.rx(0))
    c.expect_nothing("SACK")


@case("trim-by-length", _TRIM, "A UDP length beyond what arrived says that a packet was trimmed, whatever its DSCP.", Basis.NOTES, "§6")
def trim_by_length(c: Script) -> None:
    _trimmed(c, c.data(0), 4)
    c.expect("NACK", nack_reason=NackReason.TRIMMED, nack_psn=c.rx(0))


@case("trim-to-bth", _TRIM, "A packet of which only BTH and METH are left is refused as well.", Basis.OURS, "§6")
def trim_to_bth(c: Script) -> None:
    _trimmed(c, c.data(0), _DSCP_TRIMMED, keep=8 + 12 + 4)
    c.expect("NACK", nack_reason=NackReason.TRIMMED, nack_psn=c.rx(0))


@case("trim-some-payload", _TRIM, "Payload that is left of a trimmed packet is not placed.", Basis.NOTES, "§6", Need.MEMORY)
def trim_some_payload(c: Script) -> None:
    _trimmed(c, c.data(0), _DSCP_TRIMMED, keep=_HEADERS_BYTES + 256)
    c.expect("NACK", nack_reason=NackReason.TRIMMED)
    c.expect_memory(0, bytes(256))


@case("trim-echo-time", _TRIM, "The NACK of a trimmed packet echoes its timestamp.", Basis.NOTES, "§3")
def trim_echo_time(c: Script) -> None:
    packet = c.data(0, tx_timestamp=0x4321)
    _trimmed(c, packet, _DSCP_TRIMMED)
    c.expect("NACK", tx_timestamp=0x4321)


@case("trim-duplicate", _TRIM, "A trimmed packet that had arrived before is a duplicate: SACK, not NACK.", Basis.NOTES, "§6")
def trim_duplicate(c: Script) -> None:
    c.send(c.data(0))
    c.expect("SACK")
    _trimmed(c, c.data(0), _DSCP_TRIMMED)
    c.expect("SACK", cack_psn=c.rx(0))
    c.expect_nothing("NACK")


@case("trim-repaired", _TRIM, "The retransmission of a trimmed packet is placed.", Basis.NOTES, "§6", Need.MEMORY)
def trim_repaired(c: Script) -> None:
    packet = c.data(0)
    _trimmed(c, packet, _DSCP_TRIMMED)
    c.expect("NACK")
    c.send(packet, rtx=1, dscp=8)
    c.expect("SACK", cack_psn=c.rx(0), rtx=1)
    c.expect_memory(0, packet.payload)


@case("trim-not-capable", _TRIM, "Without the trim-NACK capability a trimmed packet is not answered.", Basis.NOTES, "§6",
      settings=Settings(trim_nack=False))
def trim_not_capable(c: Script) -> None:
    _trimmed(c, c.data(0), _DSCP_TRIMMED)
    c.expect_nothing()


@case("trim-control", _TRIM, "Only data may be trimmed: a trimmed SACK is dropped.", Basis.OURS, "§9", Need.POST)
def trim_control(c: Script) -> None:
    c.post(8)
    packet = c.expect("WRITE_ONLY")
    made = c.make("SACK", psn=c.tx(0), cack_psn=c.tx(0), entropy=packet.ev, sack_offset=1)
    c.send(made, Damage(trim_to=8 + 12 + 28), dscp=_DSCP_TRIMMED)
    c.expect("WRITE_ONLY", within=2 * c.ack_timeout_ns, rtx=1)


# --- immediates and order ---


def _receives(c: Script, count: int) -> None:
    for index in range(count):
        c.device.post_recv(c.dut, 100 + index)


@case("imm-delivered", _ORDER, "A WriteIMM delivers its immediate to one posted receive.", Basis.IBTA, "9.4.3", Need.POST)
def imm_delivered(c: Script) -> None:
    _receives(c, 2)
    c.send(c.data(0, "WRITE_ONLY_IMM", rqmsn=1, immediate=0xCAFE))
    done = c.expect_completion(100, immediate=0xCAFE)
    c.check(done.receive and done.length == c.settings.mtu, "the completion is not of a receive of the message's length")
    c.expect_no_completion()


@case("imm-after-its-packets", _ORDER, "An immediate is delivered only when all packets of its message have arrived.", Basis.NOTES, "§6",
      Need.POST)
def imm_after_its_packets(c: Script) -> None:
    _receives(c, 1)
    packets = c.message(0, 3, immediate=7, rqmsn=1)
    c.send(packets[2])
    c.send(packets[0])
    c.expect_no_completion()
    c.send(packets[1])
    c.expect_completion(100, immediate=7)


@case("imm-after-earlier", _ORDER, "An immediate is delivered only when all earlier messages have arrived.", Basis.NOTES, "§6", Need.POST)
def imm_after_earlier(c: Script) -> None:
    _receives(c, 1)
    c.send(c.data(1, "WRITE_ONLY_IMM", rqmsn=1, immediate=8))
    c.expect("SACK")
    c.expect_no_completion()
    c.expect_nothing("ACK")
    c.send(c.data(0))
    c.expect_completion(100, immediate=8)
    c.expect("ACK", psn=c.rx(1), msn=2)


@case("imm-order", _ORDER, "Immediates are delivered in the order of RQMSN.", Basis.NOTES, "§6", Need.POST)
def imm_order(c: Script) -> None:
    _receives(c, 4)
    for index in (3, 1, 2, 0):
        c.send(c.data(index, "WRITE_ONLY_IMM", rqmsn=index + 1, immediate=50 + index))
    for index in range(4):
        c.expect_completion(100 + index, immediate=50 + index)


@case("imm-rqmsn-wrong", _ORDER, "A WriteIMM whose RQMSN is not the next one is an invalid request.", Basis.NOTES, "§6", Need.POST)
def imm_rqmsn_wrong(c: Script) -> None:
    _receives(c, 2)
    c.send(c.data(0, "WRITE_ONLY_IMM", rqmsn=2, immediate=1))
    c.expect("ACK", syndrome=Nak.INVALID_REQUEST, psn=c.rx(0))


@case("imm-no-receive", _ORDER, "A WriteIMM for which no receive is posted is an error: MRC has no RNR NAK.", Basis.NOTES, "§1, §6",
      Need.STATES)
def imm_no_receive(c: Script) -> None:
    c.send(c.data(0, "WRITE_ONLY_IMM", rqmsn=1, immediate=1))
    c.expect("ACK", syndrome=Nak.REMOTE_OPERATION, psn=c.rx(0), msn=0)
    c.expect_state(PairState.ERROR)


@case("imm-limit-responder", _ORDER, "More WriteIMM waiting than max_wimm_dest end the queue pair.", Basis.NOTES, "§4", Need.STATES, Need.POST,
      settings=Settings(max_wimm_dest=2))
def imm_limit_responder(c: Script) -> None:
    _receives(c, 4)
    for index in (1, 2):
        c.send(c.data(index, "WRITE_ONLY_IMM", rqmsn=index + 1, immediate=1))
    c.expect_state(PairState.RTS)
    c.send(c.data(3, "WRITE_ONLY_IMM", rqmsn=4, immediate=1))
    c.send(c.data(0, "WRITE_ONLY_IMM", rqmsn=1, immediate=1))
    c.expect("ACK", syndrome=Nak.REMOTE_OPERATION)
    c.expect_state(PairState.ERROR)


@case("imm-limit-requestor", _ORDER, "A program that exceeds max_wimm has made an error: the queue pair ends.", Basis.NOTES, "§4", Need.POST,
      Need.STATES, settings=Settings(max_wimm=2))
def imm_limit_requestor(c: Script) -> None:
    c.post(8, 1)
    c.post(8, 2)
    c.expect_state(PairState.RTS)
    c.post(8, 3)
    c.expect_state(PairState.ERROR)


@case("imm-limit-freed", _ORDER, "A WriteIMM that is acknowledged no longer counts against max_wimm.", Basis.NOTES, "§4", Need.POST,
      Need.STATES, settings=Settings(max_wimm=2))
def imm_limit_freed(c: Script) -> None:
    c.post(8, 1)
    c.post(8, 2)
    packets = c.drain()
    c.sack(packets[1], 1)
    c.ack(0, 1)
    c.post(8, 3)
    c.expect_state(PairState.RTS)


@case("ack-msn", _ORDER, "A transport ACK has the PSN of the last packet of the last complete message, and the number of messages.",
      Basis.IBTA, "9.7.5.1.2")
def ack_msn(c: Script) -> None:
    for packet in c.message(0, 2):
        c.send(packet)
    c.expect("ACK", psn=c.rx(1), msn=1, syndrome=0x1F)
    c.send(c.data(2, msn=2))
    c.expect("ACK", psn=c.rx(2), msn=2)


@case("ack-in-order", _ORDER, "A message that is complete before an earlier one is not acknowledged yet.", Basis.NOTES, "§6")
def ack_in_order(c: Script) -> None:
    c.send(c.data(1))
    c.send(c.data(2))
    c.expect_nothing("ACK")
    c.send(c.data(0))
    c.expect("ACK", psn=c.rx(2), msn=3)
    c.expect_nothing("ACK")


@case("ack-completes-all", _ORDER, "A transport ACK completes all requests up to its PSN, in posting order.", Basis.IBTA, "9.7.5.1.2", Need.POST)
def ack_completes_all(c: Script) -> None:
    requests = [c.post(8) for _ in range(3)]
    packets = c.drain()
    c.sack(packets[2], 2)
    c.ack(2, 3)
    for wr in requests:
        c.expect_completion(wr)


@case("ack-completes-no-more", _ORDER, "A transport ACK completes nothing beyond its PSN.", Basis.IBTA, "9.7.5.1.2", Need.POST)
def ack_completes_no_more(c: Script) -> None:
    first = c.post(8)
    c.post(8)
    packets = c.drain()
    c.sack(packets[1], 1)
    c.ack(0, 1)
    c.expect_completion(first)
    c.expect_no_completion()


@case("ack-alone", _ORDER, "A transport ACK completes a request also when the SACK was lost, and nothing of it is sent again.", Basis.IBTA,
      "9.7.5.1.2", Need.POST)
def ack_alone(c: Script) -> None:
    wr = c.post(3 * c.settings.mtu)
    c.drain()
    c.ack(2, 1)
    c.expect_completion(wr)
    c.expect_nothing("WRITE_FIRST", "WRITE_MIDDLE", "WRITE_LAST", "PROBE", within=4 * c.ack_timeout_ns)


@case("sack-alone", _ORDER, "A SACK alone completes no request: the responder may still refuse the message.", Basis.OURS, "§5", Need.POST)
def sack_alone(c: Script) -> None:
    wr = c.post(8)
    c.sack(c.expect("WRITE_ONLY"), 0)
    c.expect_no_completion()
    c.ack(0, 1)
    c.expect_completion(wr)
