"""The responder of RoCEv2's reliable connection."""

from __future__ import annotations

from mrc_conform.case import Area, Basis, case
from mrc_conform.cases.roce_shorthand import USUAL, number, request, roce, write
from mrc_conform.device import Need, Outcome, PairState
from mrc_conform.script import Nak, Script, pattern
from mrc_conform.wire import Damage, Transport

_AREA = Area.ROCE
_R = Transport.ROCE
_RNR = 0x20
_CE = 3


@case(
    "roce-places",
    _AREA,
    "A WRITE is placed, and acknowledged when it asks for it, with the number of messages.",
    Basis.IBTA,
    "9.7.5.1.2",
    Need.MEMORY,
    settings=USUAL,
    transport=_R,
)
def places(c: Script) -> None:
    for packet in write(c, 0, 3):
        c.send(packet)
    c.expect("ACK", psn=c.rx(2), syndrome=0x1F, msn=1)
    c.expect_memory(0, b"".join(pattern(n, c.settings.mtu) for n in range(3)))


@case(
    "roce-no-ack-unasked",
    _AREA,
    "A packet that does not ask for an acknowledgement gets none.",
    Basis.OURS,
    "baselines",
    settings=USUAL,
    transport=_R,
)
def no_ack_unasked(c: Script) -> None:
    c.send(request(c, 0, ack_req=0))
    c.expect_nothing("ACK")


@case(
    "roce-out-of-order",
    _AREA,
    "A packet ahead of its turn is refused by a NAK for a sequence error with the expected PSN, and not placed.",
    Basis.IBTA,
    "9.7.4.1.1",
    Need.MEMORY,
    settings=USUAL,
    transport=_R,
)
def out_of_order(c: Script) -> None:
    c.send(request(c, 2))
    c.expect("ACK", syndrome=Nak.SEQUENCE, psn=c.rx(0))
    c.expect_memory(2 * c.settings.mtu, bytes(64))


@case(
    "roce-one-nak",
    _AREA,
    "One NAK answers a gap, until the expected packet arrives.",
    Basis.IBTA,
    "9.7.5.2.1",
    settings=USUAL,
    transport=_R,
)
def one_nak(c: Script) -> None:
    c.send(request(c, 1))
    c.expect("ACK", syndrome=Nak.SEQUENCE)
    c.send(request(c, 2))
    c.expect_nothing("ACK")
    c.send(request(c, 0))
    c.expect("ACK", syndrome=0x1F, psn=c.rx(0))
    c.send(request(c, 2))
    c.expect("ACK", syndrome=Nak.SEQUENCE, psn=c.rx(1))


@case(
    "roce-duplicate",
    _AREA,
    "A duplicate is acknowledged again and not placed.",
    Basis.IBTA,
    "9.7.5.1.4",
    Need.MEMORY,
    settings=USUAL,
    transport=_R,
)
def duplicate(c: Script) -> None:
    c.send(request(c, 0))
    c.expect("ACK", psn=c.rx(0))
    c.send(request(c, 0, payload=b"\xff" * c.settings.mtu))
    c.expect("ACK", psn=c.rx(0), syndrome=0x1F, msn=1)
    c.expect_memory(0, pattern(0, c.settings.mtu))


@case(
    "roce-selective-keeps",
    _AREA,
    "With selective repeat an early packet is kept, and the NAK names it.",
    Basis.OURS,
    "baselines",
    Need.MEMORY,
    settings=roce(selective_repeat=True),
    transport=_R,
)
def selective_keeps(c: Script) -> None:
    c.send(request(c, 1))
    c.expect("ACK", syndrome=Nak.SEQUENCE, psn=c.rx(0), msn=c.rx(1))
    c.send(request(c, 0))
    c.expect("ACK", syndrome=0x1F, psn=c.rx(1), msn=2)
    c.expect_memory(c.settings.mtu, pattern(1, c.settings.mtu))


@case(
    "roce-send-received",
    _AREA,
    "A SEND is placed in the receive that was posted first.",
    Basis.IBTA,
    "9.4.1",
    Need.POST,
    Need.MEMORY,
    settings=USUAL,
    transport=_R,
)
def send_received(c: Script) -> None:
    c.device.post_receive(c.dut, 31, c.region, 100, 64)
    c.device.post_receive(c.dut, 32, c.region, 300, 64)
    c.send(request(c, 0, "SEND_ONLY", payload=b"\x11" * 20))
    done = c.expect_completion(31)
    c.check(done.length == 20 and done.receive, "the completion is not of a receive of 20 bytes")
    c.expect_memory(100, b"\x11" * 20 + bytes(8))


@case(
    "roce-send-imm",
    _AREA,
    "A SEND with immediate delivers it with its receive.",
    Basis.IBTA,
    "9.4.1",
    Need.POST,
    settings=USUAL,
    transport=_R,
)
def send_imm(c: Script) -> None:
    c.device.post_receive(c.dut, 31, c.region, 0, 64)
    c.send(request(c, 0, "SEND_ONLY_IMM", payload=b"\x11" * 20, immediate=0x1234))
    c.expect_completion(31, immediate=0x1234)


@case(
    "roce-send-no-receive",
    _AREA,
    "A SEND without a receive is refused by an RNR NAK with the responder's timer.",
    Basis.IBTA,
    "9.7.5.2.8",
    settings=roce(min_rnr_timer=9),
    transport=_R,
)
def send_no_receive(c: Script) -> None:
    c.send(request(c, 0, "SEND_ONLY", payload=bytes(8)))
    c.expect("ACK", syndrome=_RNR | 9, psn=c.rx(0))


@case(
    "roce-imm-no-receive",
    _AREA,
    "So is a WRITE with immediate; nothing of it is placed.",
    Basis.IBTA,
    "9.7.5.2.8",
    Need.MEMORY,
    settings=roce(min_rnr_timer=9),
    transport=_R,
)
def imm_no_receive(c: Script) -> None:
    c.send(request(c, 0, "WRITE_ONLY_IMM", payload=b"\x66" * 16))
    c.expect("ACK", syndrome=_RNR | 9, psn=c.rx(0))
    c.expect_memory(0, bytes(16))


@case(
    "roce-rnr-then-received",
    _AREA,
    "After an RNR NAK the repeated request is taken, once a receive is posted.",
    Basis.IBTA,
    "9.7.5.2.8",
    Need.POST,
    settings=USUAL,
    transport=_R,
)
def rnr_then_received(c: Script) -> None:
    c.send(request(c, 0, "SEND_ONLY", payload=bytes(8)))
    c.expect("ACK")
    c.device.post_receive(c.dut, 31, c.region, 0, 64)
    c.send(request(c, 0, "SEND_ONLY", payload=bytes(8)))
    c.expect("ACK", syndrome=0x1F, psn=c.rx(0), msn=1)
    c.expect_completion(31)


@case(
    "roce-send-too-long",
    _AREA,
    "A SEND that is longer than its receive ends both: invalid request, local length error.",
    Basis.IBTA,
    "9.7.4.1.7",
    Need.POST,
    Need.STATES,
    settings=USUAL,
    transport=_R,
)
def send_too_long(c: Script) -> None:
    c.device.post_receive(c.dut, 31, c.region, 0, 16)
    c.send(request(c, 0, "SEND_ONLY", payload=bytes(20)))
    c.expect("ACK", syndrome=Nak.INVALID_REQUEST)
    c.expect_completion(31, Outcome.LOC_LEN_ERR)
    c.expect_state(PairState.ERROR)


@case(
    "roce-read-response",
    _AREA,
    "A READ is answered by First, Middle and Last from the PSN of its request on; First and Last have an AETH.",
    Basis.IBTA,
    "9.4.4",
    settings=USUAL,
    transport=_R,
)
def read_response(c: Script) -> None:
    mtu = c.settings.mtu
    for index in range(3):
        c.send(request(c, index))
    c.drain({"ACK"})
    c.send(request(c, 3, "READ_REQUEST", va=c.region.va, dma_length=2 * mtu + 7))
    c.expect("READ_RESPONSE_FIRST", psn=c.rx(3), payload=pattern(0, mtu), syndrome=0x1F, msn=4)
    c.expect("READ_RESPONSE_MIDDLE", psn=c.rx(4), payload=pattern(1, mtu))
    c.expect("READ_RESPONSE_LAST", psn=c.rx(5), payload=pattern(2, mtu)[:7], msn=4)


@case(
    "roce-read-psns",
    _AREA,
    "The request after a READ has the PSN after its response's last.",
    Basis.IBTA,
    "9.7.2",
    settings=USUAL,
    transport=_R,
)
def read_psns(c: Script) -> None:
    c.send(request(c, 0, "READ_REQUEST", va=c.region.va, dma_length=3 * c.settings.mtu))
    c.send(request(c, 3))
    c.expect("ACK", syndrome=0x1F, psn=c.rx(3), msn=2)


@case(
    "roce-read-nothing",
    _AREA,
    "A READ of no bytes is answered by an empty READ Response Only.",
    Basis.IBTA,
    "9.7.4.1.6",
    settings=USUAL,
    transport=_R,
)
def read_nothing(c: Script) -> None:
    c.send(request(c, 0, "READ_REQUEST", dma_length=0, rkey=0xBAD))
    c.expect("READ_RESPONSE_ONLY", psn=c.rx(0), payload=b"")


@case(
    "roce-read-again",
    _AREA,
    "A READ that comes again is answered again, from the PSN that it names.",
    Basis.IBTA,
    "9.7.5.1.4",
    settings=USUAL,
    transport=_R,
)
def read_again(c: Script) -> None:
    mtu = c.settings.mtu
    c.send(request(c, 0, "READ_REQUEST", va=c.region.va, dma_length=3 * mtu))
    c.drain({"READ_RESPONSE_FIRST", "READ_RESPONSE_MIDDLE", "READ_RESPONSE_LAST"})
    c.send(request(c, 1, "READ_REQUEST", va=c.region.va + mtu, dma_length=2 * mtu))
    c.expect("READ_RESPONSE_FIRST", psn=c.rx(1))
    c.expect("READ_RESPONSE_LAST", psn=c.rx(2))


@case(
    "roce-read-right",
    _AREA,
    "A READ of a region without the right is refused: remote access error.",
    Basis.IBTA,
    "10.6.6.2",
    settings=USUAL,
    transport=_R,
)
def read_right(c: Script) -> None:
    c.send(request(c, 0, "READ_REQUEST", dma_length=64, rkey=c.region.rkey ^ 1))
    c.expect("ACK", syndrome=Nak.REMOTE_ACCESS, psn=c.rx(0))


@case(
    "roce-answers-in-order",
    _AREA,
    "An acknowledgement of what followed a READ comes after the READ's response.",
    Basis.IBTA,
    "9.7.5.1.9",
    settings=USUAL,
    transport=_R,
)
def answers_in_order(c: Script) -> None:
    c.send(request(c, 0, "READ_REQUEST", va=c.region.va, dma_length=3 * c.settings.mtu))
    c.send(request(c, 3))
    c.advance(0)
    kinds = [packet.opcode for packet in c.pending]
    c.check(kinds.index("ACK") > kinds.index("READ_RESPONSE_LAST"), f"answers came in the order {kinds}")


@case(
    "roce-swap-equal",
    _AREA,
    "A compare and swap exchanges the number when it is equal, and answers with what it was.",
    Basis.IBTA,
    "9.4.5",
    Need.MEMORY,
    settings=USUAL,
    transport=_R,
)
def swap_equal(c: Script) -> None:
    c.send(request(c, 0, payload=number(5)))
    c.drain({"ACK"})
    c.send(request(c, 1, "COMPARE_SWAP", compare=5, swap_or_add=9))
    c.expect("ATOMIC_ACK", psn=c.rx(1), original=5, syndrome=0x1F, msn=2)
    c.expect_memory(0, number(9))


@case(
    "roce-swap-unequal",
    _AREA,
    "A compare and swap changes nothing when the number is another.",
    Basis.IBTA,
    "9.4.5",
    Need.MEMORY,
    settings=USUAL,
    transport=_R,
)
def swap_unequal(c: Script) -> None:
    c.send(request(c, 0, payload=number(5)))
    c.drain({"ACK"})
    c.send(request(c, 1, "COMPARE_SWAP", compare=6, swap_or_add=9))
    c.expect("ATOMIC_ACK", original=5)
    c.expect_memory(0, number(5))


@case(
    "roce-add",
    _AREA,
    "A fetch and add adds modulo 2^64, and answers with what the number was.",
    Basis.IBTA,
    "9.4.5",
    Need.MEMORY,
    settings=USUAL,
    transport=_R,
)
def add(c: Script) -> None:
    top = (1 << 64) - 1
    c.send(request(c, 0, payload=number(top)))
    c.drain({"ACK"})
    c.send(request(c, 1, "FETCH_ADD", swap_or_add=3))
    c.expect("ATOMIC_ACK", original=top)
    c.expect_memory(0, number(2))


@case(
    "roce-atomic-again",
    _AREA,
    "An atomic operation that comes again is answered as before, and not executed again.",
    Basis.IBTA,
    "9.7.5.1.4",
    Need.MEMORY,
    settings=USUAL,
    transport=_R,
)
def atomic_again(c: Script) -> None:
    c.send(request(c, 0, "FETCH_ADD", swap_or_add=3))
    c.expect("ATOMIC_ACK", original=0)
    c.send(request(c, 0, "FETCH_ADD", swap_or_add=3))
    c.expect("ATOMIC_ACK", original=0, psn=c.rx(0))
    c.expect_memory(0, number(3))


@case(
    "roce-atomic-odd",
    _AREA,
    "An atomic operation on an address that is no multiple of 8 is an invalid request.",
    Basis.OURS,
    "baselines",
    settings=USUAL,
    transport=_R,
)
def atomic_odd(c: Script) -> None:
    c.send(request(c, 0, "FETCH_ADD", va=c.region.va + 4, swap_or_add=3))
    c.expect("ACK", syndrome=Nak.INVALID_REQUEST)


def _access(name: str, rule: str, va: int, length: int) -> None:
    @case(name, _AREA, rule, Basis.IBTA, "10.6.6.2", Need.STATES, settings=USUAL, transport=_R)
    def refused(c: Script) -> None:
        c.send(request(c, 0, payload=bytes(length), va=c.region.va + va))
        c.expect("ACK", syndrome=Nak.REMOTE_ACCESS, psn=c.rx(0), msn=0)
        c.expect_state(PairState.ERROR)


_access("roce-key-across", "A WRITE that ends one byte after its region is refused.", (1 << 20) - 63, 64)
_access("roce-key-before", "A WRITE that begins before its region is refused.", -1, 64)


@case(
    "roce-key-unknown",
    _AREA,
    "A WRITE with an R_Key that does not exist is refused.",
    Basis.IBTA,
    "10.6.6.2",
    settings=USUAL,
    transport=_R,
)
def key_unknown(c: Script) -> None:
    c.send(request(c, 0, rkey=0xDEAD))
    c.expect("ACK", syndrome=Nak.REMOTE_ACCESS)


@case(
    "roce-middle-first",
    _AREA,
    "A message that begins with Middle is an invalid request.",
    Basis.IBTA,
    "9.7.4.1.2",
    settings=USUAL,
    transport=_R,
)
def middle_first(c: Script) -> None:
    c.send(request(c, 0, "WRITE_MIDDLE"))
    c.expect("ACK", syndrome=Nak.INVALID_REQUEST)


@case(
    "roce-length",
    _AREA,
    "A WRITE whose packets do not make its DMA length is an invalid request.",
    Basis.IBTA,
    "9.7.4.1.6",
    settings=USUAL,
    transport=_R,
)
def length(c: Script) -> None:
    packets = write(c, 0, 3)
    c.send(packets[0])
    c.send(request(c, 1, "WRITE_LAST"))
    c.expect("ACK", syndrome=Nak.INVALID_REQUEST, psn=c.rx(1))


@case(
    "roce-interleaved",
    _AREA,
    "Another message within a message is an invalid request.",
    Basis.IBTA,
    "9.7.4.1.2",
    settings=USUAL,
    transport=_R,
)
def interleaved(c: Script) -> None:
    c.send(write(c, 0, 3)[0])
    c.send(request(c, 1, "READ_REQUEST", va=c.region.va, dma_length=64))
    c.expect("ACK", syndrome=Nak.INVALID_REQUEST, psn=c.rx(1))


@case(
    "roce-psn-wrap-receive",
    _AREA,
    "Reception goes on across the wrap of the PSN.",
    Basis.IBTA,
    "9.7.2",
    settings=USUAL,
    transport=_R,
    connected=False,
)
def psn_wrap_receive(c: Script) -> None:
    c.connect(psn=0xFFFFFF)
    for index in range(3):
        c.send(request(c, index))
        c.expect("ACK", syndrome=0x1F, psn=c.rx(index), msn=index + 1)


@case(
    "roce-cnp-sent",
    _AREA,
    "A packet that arrived with CE makes the responder notify the sender by a CNP.",
    Basis.IBTA,
    "RoCEv2 A17.9",
    settings=USUAL,
    transport=_R,
)
def cnp_sent(c: Script) -> None:
    c.send(request(c, 0), ecn=_CE)
    c.expect("CNP", dest_qp=c.kit.number)


@case(
    "roce-cnp-once",
    _AREA,
    "It does so at most once in an interval.",
    Basis.IBTA,
    "RoCEv2 A17.9; DCQCN",
    Need.EXACT_TIME,
    settings=USUAL,
    transport=_R,
)
def cnp_once(c: Script) -> None:
    for index in range(10):
        c.send(request(c, index), ecn=_CE)
    count = len(c.drain({"CNP"}))
    c.check(count == 1, f"{count} notifications came")


@case("roce-icrc", _AREA, "A packet with a wrong ICRC is dropped.", Basis.IBTA, "9.2.8", settings=USUAL, transport=_R)
def icrc(c: Script) -> None:
    c.send(request(c, 0), Damage(icrc=True))
    c.expect_nothing()
    c.send(request(c, 0))
    c.expect("ACK", syndrome=0x1F)


@case(
    "roce-strangers",
    _AREA,
    "Packets of another P_Key, source or queue pair are dropped.",
    Basis.IBTA,
    "9.6.1.1",
    settings=USUAL,
    transport=_R,
)
def strangers(c: Script) -> None:
    c.send(request(c, 0), p_key=0x1234)
    c.send(request(c, 0), dest_qp=c.dut.number + 1)
    forged = request(c, 0)
    forged.source = forged.source[:-1] + b"\x13"
    c.send(forged)
    c.expect_nothing()
    c.send(request(c, 0))
    c.expect("ACK", syndrome=0x1F)


@case(
    "roce-mrc-opcode",
    _AREA,
    "An opcode of MRC is dropped by a RoCE queue pair.",
    Basis.NOTES,
    "§3",
    settings=USUAL,
    transport=_R,
)
def mrc_opcode(c: Script) -> None:
    c.send(request(c, 0), Damage(code=0xCA))
    c.expect_nothing()


@case(
    "roce-user-dies",
    _AREA,
    "When the user of a queue pair is gone the peer receives a NAK: remote operation error.",
    Basis.OURS,
    "baselines",
    Need.STATES,
    settings=USUAL,
    transport=_R,
)
def user_dies(c: Script) -> None:
    c.device.close_pair(c.dut)
    c.expect("ACK", within=c.ack_timeout_ns, syndrome=Nak.REMOTE_OPERATION, psn=c.rx(0))
