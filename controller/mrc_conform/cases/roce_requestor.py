"""The requestor of RoCEv2's reliable connection: what it does with answers, and without them."""

from __future__ import annotations

from mrc_conform.case import Area, Basis, case
from mrc_conform.cases.roce_shorthand import USUAL, number, requests, response, roce
from mrc_conform.device import Need, Outcome, PairState, Settings
from mrc_conform.script import Nak, Script, pattern
from mrc_conform.wire import Transport

_AREA = Area.ROCE
_R = Transport.ROCE
_RNR = 0x20


@case(
    "roce-ack-completes",
    _AREA,
    "An ACK completes every request up to its PSN, in posting order.",
    Basis.IBTA,
    "9.7.5.1.2",
    Need.POST,
    settings=USUAL,
    transport=_R,
)
def ack_completes(c: Script) -> None:
    posted = [c.post(8) for _ in range(3)]
    requests(c)
    c.ack(1, 2)
    c.expect_completion(posted[0])
    c.expect_completion(posted[1])
    c.expect_no_completion()


@case(
    "roce-ack-unsent",
    _AREA,
    "An ACK of a PSN that was never sent completes nothing.",
    Basis.IBTA,
    "9.7.5.1.1",
    Need.POST,
    settings=USUAL,
    transport=_R,
)
def ack_unsent(c: Script) -> None:
    c.post(8)
    requests(c)
    c.ack(6, 1)
    c.expect_no_completion()


@case(
    "roce-ack-twice",
    _AREA,
    "A repeated ACK completes nothing a second time.",
    Basis.IBTA,
    "9.7.5.1.2",
    Need.POST,
    settings=USUAL,
    transport=_R,
)
def ack_twice(c: Script) -> None:
    wr = c.post(8)
    requests(c)
    c.ack(0, 1)
    c.ack(0, 1)
    c.expect_completion(wr)
    c.expect_no_completion()


@case(
    "roce-read-places",
    _AREA,
    "READ responses are placed in order, and the last completes the request.",
    Basis.IBTA,
    "9.7.5.1.9",
    Need.POST,
    Need.MEMORY,
    settings=USUAL,
    transport=_R,
)
def read_places(c: Script) -> None:
    mtu = c.settings.mtu
    c.device.post_read(c.dut, 5, c.region, 2 * mtu + 10, 0x9000, 0x55)
    requests(c)
    data = pattern(3, 2 * mtu + 10)
    response(c, "READ_RESPONSE_FIRST", 0, data[:mtu])
    response(c, "READ_RESPONSE_MIDDLE", 1, data[mtu : 2 * mtu])
    c.expect_no_completion()
    response(c, "READ_RESPONSE_LAST", 2, data[2 * mtu :])
    c.expect_completion(5)
    c.expect_memory(0, data)


@case(
    "roce-read-only",
    _AREA,
    "A READ of one packet is answered by READ Response Only.",
    Basis.IBTA,
    "9.4.4",
    Need.POST,
    Need.MEMORY,
    settings=USUAL,
    transport=_R,
)
def read_only(c: Script) -> None:
    c.device.post_read(c.dut, 5, c.region, 64, 0x9000, 0x55)
    requests(c)
    response(c, "READ_RESPONSE_ONLY", 0, b"\x5a" * 64)
    c.expect_completion(5)
    c.expect_memory(0, b"\x5a" * 64)


@case(
    "roce-read-not-by-ack",
    _AREA,
    "An ACK of a later request does not complete a READ without its response.",
    Basis.IBTA,
    "9.7.5.1.9",
    Need.POST,
    settings=USUAL,
    transport=_R,
)
def read_not_by_ack(c: Script) -> None:
    c.device.post_read(c.dut, 5, c.region, 64, 0x9000, 0x55)
    c.post(8)
    requests(c)
    c.ack(1, 2)
    c.expect_no_completion()


@case(
    "roce-read-missing",
    _AREA,
    "A READ response whose predecessor is missing is asked for again, and not placed.",
    Basis.IBTA,
    "9.7.5.1.9",
    Need.POST,
    Need.MEMORY,
    settings=USUAL,
    transport=_R,
)
def read_missing(c: Script) -> None:
    mtu = c.settings.mtu
    c.device.post_read(c.dut, 5, c.region, 3 * mtu, 0x9000, 0x55)
    requests(c)
    response(c, "READ_RESPONSE_FIRST", 0, pattern(0, mtu))
    response(c, "READ_RESPONSE_LAST", 2, pattern(2, mtu))
    c.expect("READ_REQUEST", within=c.ack_timeout_ns, psn=c.tx(1), va=0x9000 + mtu, dma_length=2 * mtu)
    c.expect_no_completion()
    c.expect_memory(2 * mtu, bytes(16))


@case(
    "roce-read-wrong-size",
    _AREA,
    "A READ response of another length than the request's is ignored.",
    Basis.OURS,
    "baselines",
    Need.POST,
    Need.MEMORY,
    settings=USUAL,
    transport=_R,
)
def read_wrong_size(c: Script) -> None:
    c.device.post_read(c.dut, 5, c.region, 64, 0x9000, 0x55)
    requests(c)
    response(c, "READ_RESPONSE_ONLY", 0, b"\x5a" * 128)
    c.expect_no_completion()
    c.expect_memory(0, bytes(64))


@case(
    "roce-atomic-answer",
    _AREA,
    "The answer to an atomic operation has the number before it, and completes the request.",
    Basis.IBTA,
    "9.4.5",
    Need.POST,
    Need.MEMORY,
    settings=USUAL,
    transport=_R,
)
def atomic_answer(c: Script) -> None:
    c.device.post_add(c.dut, 5, c.region, 0x9000, 0x55, 1)
    requests(c)
    c.send("ATOMIC_ACK", psn=c.tx(0), syndrome=0x1F, msn=1, original=0x1122334455667788)
    c.expect_completion(5)
    c.expect_memory(0, number(0x1122334455667788))


@case(
    "roce-nak-sequence",
    _AREA,
    "A NAK for a sequence error repeats everything from its PSN on (go-back-N).",
    Basis.IBTA,
    "9.7.5.2.1",
    Need.POST,
    settings=USUAL,
    transport=_R,
)
def nak_sequence(c: Script) -> None:
    c.post(6 * c.settings.mtu)
    requests(c)
    c.ack(2, 0, Nak.SEQUENCE)
    again = [packet["psn"] - c.dut.psn for packet in requests(c)]
    c.check(again == [2, 3, 4, 5], f"packets {again} were sent again")


@case(
    "roce-nak-completes",
    _AREA,
    "A NAK acknowledges everything before its PSN.",
    Basis.IBTA,
    "9.7.5.1.3",
    Need.POST,
    settings=USUAL,
    transport=_R,
)
def nak_completes(c: Script) -> None:
    first = c.post(8)
    c.post(8)
    requests(c)
    c.ack(1, 1, Nak.SEQUENCE)
    c.expect_completion(first)
    c.expect_no_completion()


@case(
    "roce-nak-selective",
    _AREA,
    "With selective repeat only what is missing before the packet that a NAK names is sent again.",
    Basis.OURS,
    "baselines",
    Need.POST,
    settings=roce(selective_repeat=True),
    transport=_R,
)
def nak_selective(c: Script) -> None:
    c.post(6 * c.settings.mtu)
    requests(c)
    c.ack(1, c.tx(3), Nak.SEQUENCE)
    again = [packet["psn"] - c.dut.psn for packet in requests(c)]
    c.check(again == [1, 2], f"packets {again} were sent again")


def _nak(name: str, syndrome: int, outcome: Outcome) -> None:
    @case(
        name,
        _AREA,
        f"A NAK {syndrome:#04x} ends the queue pair with {outcome.value}; later requests are flushed.",
        Basis.IBTA,
        "9.7.5.2.8, 10.8.3",
        Need.POST,
        Need.STATES,
        settings=USUAL,
        transport=_R,
    )
    def ended(c: Script) -> None:
        first, second, third = (c.post(8) for _ in range(3))
        requests(c)
        c.ack(1, 1, syndrome)
        c.expect_completion(first)
        c.expect_completion(second, outcome)
        c.expect_completion(third, Outcome.WR_FLUSH_ERR)
        c.expect_state(PairState.ERROR)


_nak("roce-nak-access", Nak.REMOTE_ACCESS, Outcome.REM_ACCESS_ERR)
_nak("roce-nak-invalid", Nak.INVALID_REQUEST, Outcome.REM_INV_REQ_ERR)
_nak("roce-nak-operation", Nak.REMOTE_OPERATION, Outcome.REM_OP_ERR)


@case(
    "roce-rnr-waits",
    _AREA,
    "After an RNR NAK the request is sent again when its timer is over, and not before.",
    Basis.IBTA,
    "9.7.5.2.8, table 45",
    Need.POST,
    Need.EXACT_TIME,
    settings=USUAL,
    transport=_R,
)
def rnr_waits(c: Script) -> None:
    c.device.post_send(c.dut, 1, pattern(0, 8))
    requests(c)
    c.ack(0, 0, _RNR | 12)  # 0.64 ms
    c.expect("SEND_ONLY", after=640_000, psn=c.tx(0))


@case(
    "roce-rnr-budget",
    _AREA,
    "After rnr_retry repetitions an RNR NAK ends the queue pair.",
    Basis.IBTA,
    "9.7.5.2.8",
    Need.POST,
    settings=roce(rnr_retry=2),
    transport=_R,
)
def rnr_budget(c: Script) -> None:
    c.device.post_send(c.dut, 1, pattern(0, 8))
    for _ in range(2):
        requests(c)
        c.ack(0, 0, _RNR | 1)
        c.expect("SEND_ONLY", within=20_000)
    c.expect_no_completion()
    c.ack(0, 0, _RNR | 1)
    c.expect_completion(1, Outcome.RNR_RETRY_EXC_ERR)


@case(
    "roce-rnr-for-ever",
    _AREA,
    "rnr_retry 7 means: for ever.",
    Basis.IBTA,
    "9.7.5.2.8",
    Need.POST,
    settings=roce(rnr_retry=7),
    transport=_R,
)
def rnr_for_ever(c: Script) -> None:
    c.device.post_send(c.dut, 1, pattern(0, 8))
    requests(c)
    for _ in range(40):
        c.ack(0, 0, _RNR | 1)
        c.expect("SEND_ONLY", within=20_000)
    c.expect_no_completion()


@case(
    "roce-timeout",
    _AREA,
    "A request that is not acknowledged is sent again after the timeout.",
    Basis.IBTA,
    "9.7.6.1.3",
    Need.POST,
    Need.EXACT_TIME,
    settings=USUAL,
    transport=_R,
)
def timeout(c: Script) -> None:
    c.post(8)
    packet = c.expect("WRITE_ONLY")
    c.expect("WRITE_ONLY", within=4 * c.ack_timeout_ns, psn=packet["psn"], payload=packet.payload)


@case(
    "roce-timeout-budget",
    _AREA,
    "After retry_cnt repetitions without an answer the queue pair ends with retry exceeded.",
    Basis.IBTA,
    "9.7.6.1.3",
    Need.POST,
    Need.STATES,
    settings=roce(retry_cnt=2),
    transport=_R,
)
def timeout_budget(c: Script) -> None:
    wr = c.post(8)
    c.advance(40 * c.ack_timeout_ns)
    sent = len(requests(c))
    c.check(sent == 3, f"the request was sent {sent} times")
    c.expect_completion(wr, Outcome.RETRY_EXC_ERR)
    c.expect_state(PairState.ERROR)


@case(
    "roce-timeout-reset",
    _AREA,
    "An acknowledgement gives the retries back.",
    Basis.IBTA,
    "9.7.6.1.3",
    Need.POST,
    Need.STATES,
    settings=roce(retry_cnt=2),
    transport=_R,
)
def timeout_reset(c: Script) -> None:
    c.post(8)
    c.post(8)
    requests(c)
    for _ in range(2):
        c.expect("WRITE_ONLY", within=4 * c.ack_timeout_ns)
    c.ack(0, 1)
    for _ in range(2):
        c.drain({"WRITE_ONLY"})
        c.expect("WRITE_ONLY", within=4 * c.ack_timeout_ns)
    c.expect_state(PairState.RTS)


@case(
    "roce-fence",
    _AREA,
    "A request with a fence waits for READs that were posted before.",
    Basis.IBTA,
    "10.8.3.3",
    Need.POST,
    settings=USUAL,
    transport=_R,
)
def fence(c: Script) -> None:
    c.device.post_read(c.dut, 5, c.region, 64, 0x9000, 0x55)
    c.device.post_send(c.dut, 6, pattern(0, 8), fence=True)
    c.expect("READ_REQUEST")
    c.expect_nothing("SEND_ONLY")
    response(c, "READ_RESPONSE_ONLY", 0, bytes(64))
    c.expect("SEND_ONLY", psn=c.tx(1))


@case(
    "roce-read-limit",
    _AREA,
    "No more READs and atomics are under way than max_rd_atomic.",
    Basis.IBTA,
    "9.7.3.1, 11.2.5",
    Need.POST,
    settings=roce(max_rd_atomic=2),
    transport=_R,
)
def read_limit(c: Script) -> None:
    for index in range(4):
        c.device.post_read(c.dut, index, c.region, 64, 0x9000, 0x55)
    sent = len(c.drain({"READ_REQUEST"}))
    c.check(sent == 2, f"{sent} READs are under way")
    response(c, "READ_RESPONSE_ONLY", 0, bytes(64))
    c.expect("READ_REQUEST", psn=c.tx(2))


@case(
    "roce-window",
    _AREA,
    "No more packets are in flight than max_inflight_packets.",
    Basis.OURS,
    "baselines",
    Need.POST,
    settings=roce(max_inflight_packets=8),
    transport=_R,
)
def window(c: Script) -> None:
    c.post(40 * c.settings.mtu)
    sent = len(requests(c))
    c.check(sent == 8, f"{sent} packets are in flight")


@case(
    "roce-psn-wrap",
    _AREA,
    "PSNs wrap at 2^24.",
    Basis.IBTA,
    "9.7.2",
    Need.POST,
    settings=Settings(planes=1, mtu=1024, first_psn=0xFFFFFF),
    transport=_R,
)
def psn_wrap(c: Script) -> None:
    wr = c.post(3 * c.settings.mtu)
    found = [packet["psn"] for packet in requests(c)]
    c.check(found == [0xFFFFFF, 0, 1], f"PSNs {found}")
    c.ack(2, 1)
    c.expect_completion(wr)


@case(
    "roce-cnp-slows",
    _AREA,
    "A congestion notification packet lowers the rate.",
    Basis.IBTA,
    "RoCEv2 A17.9; DCQCN",
    Need.POST,
    Need.EXACT_TIME,
    settings=USUAL,
    transport=_R,
)
def cnp_slows(c: Script) -> None:
    cnp = c.make("CNP", psn=0)
    cnp.payload = bytes(16)
    for _ in range(6):
        c.send(cnp)
        c.advance(100_000)
    c.post(40 * c.settings.mtu)
    at_once = len(requests(c))
    c.check(at_once < 40, "after congestion notifications all packets left at once")


@case(
    "roce-data-class",
    _AREA,
    "Data is sent ECT(0), without MRC's bits rtx and ts.",
    Basis.IBTA,
    "RoCEv2 A17.9",
    Need.POST,
    settings=USUAL,
    transport=_R,
)
def data_class(c: Script) -> None:
    c.post(8)
    c.expect("WRITE_ONLY", ecn=2, rtx=0, ts=0, tver=0)


@case(
    "roce-error-silent",
    _AREA,
    "In ERROR nothing is sent, and posted requests are flushed.",
    Basis.IBTA,
    "10.3.1.5",
    Need.POST,
    Need.STATES,
    settings=USUAL,
    transport=_R,
)
def error_silent(c: Script) -> None:
    wr = c.post(8)
    requests(c)
    c.device.modify(c.dut, PairState.ERROR)
    c.expect_completion(wr, Outcome.WR_FLUSH_ERR)
    c.expect_completion(c.post(8), Outcome.WR_FLUSH_ERR)
    c.expect_nothing("WRITE_ONLY", within=20 * c.ack_timeout_ns)
