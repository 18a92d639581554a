"""Hostile input, and restart of the peer."""

from __future__ import annotations

import random

from mrc_conform.case import Area, Basis, case
from mrc_conform.device import DeviceError, Need, Outcome, PairState, Settings
from mrc_conform.script import NackReason, Nak, Script, pattern
from mrc_conform.wire import Damage, encode

_HOSTILE = Area.HOSTILE
_RESTART = Area.RESTART


@case(
    "bogus-sack-cumulative",
    _HOSTILE,
    "A SACK of PSNs that were never sent is not believed.",
    Basis.OURS,
    "§5",
    Need.POST,
    Need.STATES,
)
def bogus_sack_cumulative(c: Script) -> None:
    wr = c.post(8)
    packet = c.expect("WRITE_ONLY")
    c.sack(packet, 500)
    c.sack(packet, 3, sack_offset=-10)
    c.expect_no_completion()
    c.expect("WRITE_ONLY", within=2 * c.ack_timeout_ns, rtx=1)
    c.expect_state(PairState.RTS)
    c.sack(packet, 0)
    c.ack(0, 1)
    c.expect_completion(wr)


@case(
    "bogus-sack-bitmap",
    _HOSTILE,
    "A SACK whose bitmap names a PSN that was never sent is not believed.",
    Basis.OURS,
    "§5",
    Need.POST,
)
def bogus_sack_bitmap(c: Script) -> None:
    c.post(2 * c.settings.mtu)
    packet, _ = c.drain()
    c.sack(packet, 0, sack_bitmap=1 << 40)
    c.expect("WRITE_FIRST", within=2 * c.ack_timeout_ns, rtx=1)


@case(
    "bogus-sack-extremes",
    _HOSTILE,
    "Extreme offsets and bitmaps of a SACK do no harm.",
    Basis.OURS,
    "§5",
    Need.POST,
    Need.STATES,
)
def bogus_sack_extremes(c: Script) -> None:
    wr = c.post(8)
    packet = c.expect("WRITE_ONLY")
    for offset in (-0x8000, -1, 0, 0x7FFF):
        for trigger in (-0x8000, 0x7FFF):
            c.sack(packet, 0, sack_offset=offset, sack_bitmap=(1 << 64) - 1, ack_psn_offset=trigger)
    c.expect_state(PairState.RTS)
    c.sack(packet, 0)
    c.ack(0, 1)
    c.expect_completion(wr)


@case(
    "bogus-ack-msn",
    _HOSTILE,
    "A transport ACK whose MSN is not that of its PSN is not believed.",
    Basis.OURS,
    "§5",
    Need.POST,
)
def bogus_ack_msn(c: Script) -> None:
    wr = c.post(8)
    c.expect("WRITE_ONLY")
    c.ack(0, 7)
    c.expect_no_completion()
    c.ack(0, 1)
    c.expect_completion(wr)


@case(
    "bogus-ack-psn",
    _HOSTILE,
    "A transport ACK of a PSN that was never sent is not believed.",
    Basis.OURS,
    "§5",
    Need.POST,
)
def bogus_ack_psn(c: Script) -> None:
    c.post(8)
    c.expect("WRITE_ONLY")
    c.ack(3, 1)
    c.expect_no_completion()


@case(
    "bogus-nak-complete",
    _HOSTILE,
    "A NAK of a complete message is not believed.",
    Basis.OURS,
    "§5",
    Need.POST,
    Need.STATES,
)
def bogus_nak_complete(c: Script) -> None:
    c.post(8)
    c.sack(c.expect("WRITE_ONLY"), 0)
    c.ack(0, 1)
    c.ack(0, 0, Nak.REMOTE_ACCESS)
    c.expect_state(PairState.RTS)


@case(
    "bogus-nak-unsent",
    _HOSTILE,
    "A NAK of a PSN that was never sent is not believed.",
    Basis.OURS,
    "§5",
    Need.POST,
    Need.STATES,
)
def bogus_nak_unsent(c: Script) -> None:
    c.post(8)
    c.expect("WRITE_ONLY")
    c.ack(5, 0, Nak.REMOTE_ACCESS)
    c.expect_state(PairState.RTS)


@case(
    "bogus-received-bytes",
    _HOSTILE,
    "rcvd_bytes beyond what was sent are not believed.",
    Basis.OURS,
    "§5",
    Need.EXACT_TIME,
    Need.POST,
    settings=Settings(planes=1, window=20_000, tail_probe=False, rack_inference=False, same_ev_inference=False),
)
def bogus_received_bytes(c: Script) -> None:
    c.post(4_000_000)
    packets = c.drain()
    c.sack(packets[0], 0, rcvd_bytes=4_000)
    more = c.drain()
    c.check(len(more) <= len(packets) + 1, f"{len(more)} packets left after {len(packets)} could have arrived")


@case(
    "bogus-revocation",
    _HOSTILE,
    "An answer to a probe that takes back what was acknowledged before ends the queue pair.",
    Basis.OURS,
    "§5",
    Need.POST,
    Need.STATES,
)
def bogus_revocation(c: Script) -> None:
    c.post(8)
    c.post(8)
    first, second = c.drain()
    c.sack(first, 0)
    c.drain({"PROBE"})  # of before
    probe = c.expect("PROBE", within=c.ack_timeout_ns)
    c.probe_reply(probe, -1)
    c.expect_state(PairState.ERROR)
    c.check(second["psn"] == c.tx(1), "the second packet has another PSN")


@case(
    "forged-source",
    _HOSTILE,
    "An acknowledgement from another address than the peer's is dropped.",
    Basis.IBTA,
    "9.6.1.5",
    Need.POST,
)
def forged_source(c: Script) -> None:
    wr = c.post(8)
    c.expect("WRITE_ONLY")
    forged = c.make("ACK", psn=c.tx(0), msn=1, syndrome=0x1F)
    forged.source = forged.source[:-1] + b"\x13"
    c.send(forged)
    c.expect_no_completion()
    c.ack(0, 1)
    c.expect_completion(wr)


@case("forged-icrc", _HOSTILE, "An acknowledgement with a wrong ICRC is dropped.", Basis.IBTA, "9.2.8", Need.POST)
def forged_icrc(c: Script) -> None:
    wr = c.post(8)
    c.expect("WRITE_ONLY")
    c.send(c.make("ACK", psn=c.tx(0), msn=1, syndrome=0x1F), Damage(icrc=True))
    c.expect_no_completion()
    c.ack(0, 1)
    c.expect_completion(wr)


@case(
    "noise",
    _HOSTILE,
    "Random bytes do no harm: the queue pair works after a thousand packets of them.",
    Basis.NOTES,
    "§6",
    Need.MEMORY,
)
def noise(c: Script) -> None:
    rng = random.Random(11)
    for _ in range(1000):
        c.send_raw(rng.randbytes(rng.choice((0, 1, 39, 40, 47, 60, 80, 128, 500))))
    c.expect_nothing()
    c.send(c.data(0))
    c.expect("SACK", cack_psn=c.rx(0))
    c.expect_memory(0, pattern(0, c.settings.mtu))


@case(
    "noise-behind-headers",
    _HOSTILE,
    "Random bytes behind good IP and UDP headers do no harm.",
    Basis.NOTES,
    "§6",
    Need.MEMORY,
)
def noise_behind_headers(c: Script) -> None:
    rng = random.Random(12)
    good = encode(c.data(0))
    for _ in range(1000):
        end = rng.randrange(48, len(good))
        c.send_raw(
            good[:4]
            + (end - 40).to_bytes(2, "big")
            + good[6:44]
            + (end - 40).to_bytes(2, "big")
            + bytes(2)
            + rng.randbytes(end - 48)
        )
    c.expect_nothing()
    c.expect_memory(0, bytes(c.settings.mtu))
    c.send(c.data(0))
    c.expect("SACK", cack_psn=c.rx(0))


@case(
    "noise-flipped-bits",
    _HOSTILE,
    "One flipped bit anywhere is found, or is in a part that the ICRC does not cover.",
    Basis.IBTA,
    "9.2.8",
    Need.MEMORY,
)
def noise_flipped_bits(c: Script) -> None:
    rng = random.Random(13)
    packet = c.data(0)
    good = encode(packet)
    for _ in range(500):
        raw = bytearray(good)
        bit = rng.randrange(8 * 48, 8 * len(good))
        if bit // 8 == 52:
            continue  # BTH's reserved byte is not covered
        raw[bit // 8] ^= 1 << bit % 8
        c.send_raw(bytes(raw))
    c.expect_nothing("SACK", "ACK")
    c.expect_memory(0, bytes(c.settings.mtu))


@case(
    "nack-flood",
    _HOSTILE,
    "A flood of NACKs of all reasons for packets that are not outstanding does no harm.",
    Basis.OURS,
    "§5",
    Need.POST,
    Need.STATES,
)
def nack_flood(c: Script) -> None:
    wr = c.post(8)
    packet = c.expect("WRITE_ONLY")
    c.sack(packet, 0)
    for reason in range(256):
        c.nack(packet, reason)
    c.expect_state(PairState.RTS)
    c.ack(0, 1)
    c.expect_completion(wr)


@case(
    "receiver-memory-only",
    _HOSTILE,
    "Packets far ahead do not make a responder place or remember beyond its window.",
    Basis.NOTES,
    "§6",
    Need.MEMORY,
    settings=Settings(mpr_dest=1),
)
def receiver_memory_only(c: Script) -> None:
    for index in range(128, 1128, 10):
        c.send(c.data(index, place=0))
        c.expect("NACK", nack_reason=NackReason.PSN_OOR_WINDOW)
    c.expect_memory(0, bytes(64))
    c.send(c.data(0))
    c.expect("SACK", cack_psn=c.rx(0), sack_bitmap=0, ooo_count=0)


@case(
    "restart-ends-pairs",
    _RESTART,
    "A document of another incarnation of the peer ends the queue pairs to the earlier one at once.",
    Basis.OURS,
    "§7",
    Need.SECOND_QP,
    Need.POST,
    Need.STATES,
)
def restart_ends_pairs(c: Script) -> None:
    wr = c.post(8)
    old = c.dut
    c.expect("WRITE_ONLY")
    c.connect(number=0x5001, instance=8)
    c.check(c.device.state(old) is PairState.ERROR, "the queue pair to the earlier incarnation goes on")
    outcomes = [done.outcome for done in c.device.completions(old) if done.wr_id == wr]
    c.check(outcomes == [Outcome.RETRY_EXC_ERR], f"the request to the earlier incarnation ended with {outcomes}")


@case(
    "restart-new-pair-works", _RESTART, "The queue pair to the new incarnation works.", Basis.OURS, "§7", Need.SECOND_QP
)
def restart_new_pair_works(c: Script) -> None:
    c.connect(number=0x5001, instance=8)
    c.send(c.data(0))
    c.expect("SACK", cack_psn=c.rx(0), dest_qp=0x5001)


@case(
    "restart-old-document",
    _RESTART,
    "A document of an earlier incarnation is refused.",
    Basis.OURS,
    "§7",
    Need.SECOND_QP,
)
def restart_old_document(c: Script) -> None:
    c.connect(number=0x5001, instance=8)
    try:
        c.connect(number=0x5002, instance=7)
    except DeviceError:
        return
    c.check(False, "the document of an earlier incarnation was accepted")


@case(
    "restart-same-incarnation",
    _RESTART,
    "A second queue pair to the same incarnation leaves the first as it is.",
    Basis.NOTES,
    "§4",
    Need.SECOND_QP,
    Need.STATES,
)
def restart_same_incarnation(c: Script) -> None:
    first = c.dut
    c.connect(number=0x5001)
    c.check(c.device.state(first) is PairState.RTS, "the first queue pair ended")


@case(
    "restart-old-packets",
    _RESTART,
    "Packets of the earlier incarnation to a queue pair that has ended place nothing.",
    Basis.OURS,
    "§7",
    Need.SECOND_QP,
    Need.MEMORY,
)
def restart_old_packets(c: Script) -> None:
    stale = c.data(0)
    c.connect(number=0x5001, instance=8)
    c.send(stale)
    c.expect_nothing("SACK")
    c.expect_memory(0, bytes(64))


@case(
    "restart-status-number",
    _RESTART,
    "An answer to a status number that this endpoint never sent makes it announce its ports with a later one.",
    Basis.OURS,
    "§7",
    Need.PORTS,
)
def restart_status_number(c: Script) -> None:
    c.device.set_port(0, False)
    own = c.expect("ENDPOINT_REQUEST", op=0)
    later = own["psn"] + 0x200 & 0xFFFF
    c.send("ENDPOINT_RESPONSE", op=0, psn=own["psn"], tx_timestamp=own["tx_timestamp"], port=1)
    c.send("ENDPOINT_RESPONSE", op=0, psn=later, tx_timestamp=1, port=1)
    status = c.expect("ENDPOINT_REQUEST", op=0, port_status_mask=0b10)
    c.check(0 < (status["psn"] - later & 0xFFFF) < 0x8000, f"the status has the number {status['psn']:#x}")


@case(
    "bogus-sack-trigger",
    _HOSTILE,
    "A SACK that a packet is said to have triggered that was never sent is not believed.",
    Basis.OURS,
    "§5",
    Need.POST,
    settings=Settings(tail_probe=False),
)
def bogus_sack_trigger(c: Script) -> None:
    c.post(8)
    packet = c.expect("WRITE_ONLY")
    c.sack(packet, 0, ack_psn_offset=1)
    c.expect("WRITE_ONLY", within=2 * c.ack_timeout_ns, rtx=1)


@case(
    "bogus-nak-far",
    _HOSTILE,
    "A NAK for the user's end names the next PSN; one of a later PSN is not believed.",
    Basis.OURS,
    "§6",
    Need.POST,
    Need.STATES,
)
def bogus_nak_far(c: Script) -> None:
    wr = c.post(8)
    c.sack(c.expect("WRITE_ONLY"), 0)
    c.ack(0, 1)
    c.expect_completion(wr)
    c.ack(2, 1, Nak.REMOTE_OPERATION)
    c.ack(1, 1, Nak.REMOTE_ACCESS)
    c.expect_state(PairState.RTS)


@case(
    "bogus-ack-inside",
    _HOSTILE,
    "A transport ACK inside a message whose MSN counts that message is not believed.",
    Basis.OURS,
    "§5",
    Need.POST,
    settings=Settings(tail_probe=False),
)
def bogus_ack_inside(c: Script) -> None:
    c.post(3 * c.settings.mtu)
    c.drain()
    c.ack(1, 1)
    c.expect("WRITE_FIRST", within=2 * c.ack_timeout_ns, rtx=1)
