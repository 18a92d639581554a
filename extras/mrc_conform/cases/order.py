"""Immediates, order, and transport ACKs."""

from __future__ import annotations

from mrc_conform.case import Area, Basis, case
from mrc_conform.device import Need, Outcome, PairState, Settings
from mrc_conform.script import Nak, Script

_ORDER = Area.ORDER


def _receives(c: Script, count: int) -> None:
    for index in range(count):
        c.device.post_recv(c.dut, 100 + index)


@case(
    "imm-delivered", _ORDER, "A WriteIMM delivers its immediate to one posted receive.", Basis.IBTA, "9.4.3", Need.POST
)
def imm_delivered(c: Script) -> None:
    _receives(c, 2)
    c.send(c.data(0, "WRITE_ONLY_IMM", rqmsn=1, immediate=0xCAFE))
    done = c.expect_completion(100, immediate=0xCAFE)
    c.check(
        done.receive and done.length == c.settings.mtu, "the completion is not of a receive of the message's length"
    )
    c.expect_no_completion()


@case(
    "imm-after-its-packets",
    _ORDER,
    "An immediate is delivered only when all packets of its message have arrived.",
    Basis.NOTES,
    "§6",
    Need.POST,
)
def imm_after_its_packets(c: Script) -> None:
    _receives(c, 1)
    packets = c.message(0, 3, immediate=7, rqmsn=1)
    c.send(packets[2])
    c.send(packets[0])
    c.expect_no_completion()
    c.send(packets[1])
    c.expect_completion(100, immediate=7)


@case(
    "imm-after-earlier",
    _ORDER,
    "An immediate is delivered only when all earlier messages have arrived.",
    Basis.NOTES,
    "§6",
    Need.POST,
)
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


@case(
    "imm-rqmsn-wrong",
    _ORDER,
    "A WriteIMM whose RQMSN is not the next one is an invalid request.",
    Basis.NOTES,
    "§6",
    Need.POST,
)
def imm_rqmsn_wrong(c: Script) -> None:
    _receives(c, 2)
    c.send(c.data(0, "WRITE_ONLY_IMM", rqmsn=2, immediate=1))
    c.expect("ACK", syndrome=Nak.INVALID_REQUEST, psn=c.rx(0))


@case(
    "imm-no-receive",
    _ORDER,
    "A WriteIMM for which no receive is posted is an error: MRC has no RNR NAK.",
    Basis.NOTES,
    "§1, §6",
    Need.STATES,
)
def imm_no_receive(c: Script) -> None:
    c.send(c.data(0, "WRITE_ONLY_IMM", rqmsn=1, immediate=1))
    c.expect("ACK", syndrome=Nak.REMOTE_OPERATION, psn=c.rx(0), msn=0)
    c.expect_state(PairState.ERROR)


@case(
    "imm-limit-responder",
    _ORDER,
    "More WriteIMM waiting than max_wimm_dest end the queue pair.",
    Basis.NOTES,
    "§4",
    Need.STATES,
    Need.POST,
    settings=Settings(max_wimm_dest=2),
)
def imm_limit_responder(c: Script) -> None:
    _receives(c, 4)
    for index in (1, 2):
        c.send(c.data(index, "WRITE_ONLY_IMM", rqmsn=index + 1, immediate=1))
    c.expect_state(PairState.RTS)
    c.send(c.data(3, "WRITE_ONLY_IMM", rqmsn=4, immediate=1))
    c.send(c.data(0, "WRITE_ONLY_IMM", rqmsn=1, immediate=1))
    c.expect("ACK", syndrome=Nak.REMOTE_OPERATION)
    c.expect_state(PairState.ERROR)


@case(
    "imm-limit-requestor",
    _ORDER,
    "A program that exceeds max_wimm has made an error: the queue pair ends.",
    Basis.NOTES,
    "§4",
    Need.POST,
    Need.STATES,
    settings=Settings(max_wimm=2),
)
def imm_limit_requestor(c: Script) -> None:
    c.post(8, 1)
    c.post(8, 2)
    c.expect_state(PairState.RTS)
    c.post(8, 3)
    c.expect_state(PairState.ERROR)


@case(
    "imm-limit-freed",
    _ORDER,
    "A WriteIMM that is acknowledged no longer counts against max_wimm.",
    Basis.NOTES,
    "§4",
    Need.POST,
    Need.STATES,
    settings=Settings(max_wimm=2),
)
def imm_limit_freed(c: Script) -> None:
    c.post(8, 1)
    c.post(8, 2)
    packets = c.drain()
    c.sack(packets[1], 1)
    c.ack(0, 1)
    c.post(8, 3)
    c.expect_state(PairState.RTS)


@case(
    "ack-msn",
    _ORDER,
    "A transport ACK has the PSN of the last packet of the last complete message, and the number of messages.",
    Basis.IBTA,
    "9.7.5.1.2",
)
def ack_msn(c: Script) -> None:
    for packet in c.message(0, 2):
        c.send(packet)
    c.expect("ACK", psn=c.rx(1), msn=1, syndrome=0x1F)
    c.send(c.data(2, msn=2))
    c.expect("ACK", psn=c.rx(2), msn=2)


@case(
    "ack-in-order",
    _ORDER,
    "A message that is complete before an earlier one is not acknowledged yet.",
    Basis.NOTES,
    "§6",
)
def ack_in_order(c: Script) -> None:
    c.send(c.data(1))
    c.send(c.data(2))
    c.expect_nothing("ACK")
    c.send(c.data(0))
    c.expect("ACK", psn=c.rx(2), msn=3)
    c.expect_nothing("ACK")


@case(
    "ack-completes-all",
    _ORDER,
    "A transport ACK completes all requests up to its PSN, in posting order.",
    Basis.IBTA,
    "9.7.5.1.2",
    Need.POST,
)
def ack_completes_all(c: Script) -> None:
    requests = [c.post(8) for _ in range(3)]
    packets = c.drain()
    c.sack(packets[2], 2)
    c.ack(2, 3)
    for wr in requests:
        c.expect_completion(wr)


@case(
    "ack-completes-no-more",
    _ORDER,
    "A transport ACK completes nothing beyond its PSN.",
    Basis.IBTA,
    "9.7.5.1.2",
    Need.POST,
)
def ack_completes_no_more(c: Script) -> None:
    first = c.post(8)
    c.post(8)
    packets = c.drain()
    c.sack(packets[1], 1)
    c.ack(0, 1)
    c.expect_completion(first)
    c.expect_no_completion()


@case(
    "ack-alone",
    _ORDER,
    "A transport ACK completes a request also when the SACK was lost, and nothing of it is sent again.",
    Basis.IBTA,
    "9.7.5.1.2",
    Need.POST,
)
def ack_alone(c: Script) -> None:
    wr = c.post(3 * c.settings.mtu)
    c.drain()
    c.ack(2, 1)
    c.expect_completion(wr)
    c.expect_nothing("WRITE_FIRST", "WRITE_MIDDLE", "WRITE_LAST", within=4 * c.ack_timeout_ns)


@case(
    "sack-alone",
    _ORDER,
    "A SACK alone completes no request: the responder may still refuse the message.",
    Basis.OURS,
    "§5",
    Need.POST,
)
def sack_alone(c: Script) -> None:
    wr = c.post(8)
    c.sack(c.expect("WRITE_ONLY"), 0)
    c.expect_no_completion()
    c.ack(0, 1)
    c.expect_completion(wr)


@case(
    "imm-limit-exact",
    _ORDER,
    "max_wimm_dest WriteIMM may wait for what is missing before them.",
    Basis.NOTES,
    "§4",
    Need.POST,
    Need.STATES,
    settings=Settings(max_wimm=1, max_wimm_dest=3),
)
def imm_limit_exact(c: Script) -> None:
    for index in (1, 2, 3):
        c.device.post_recv(c.dut, 500 + index)
        c.send(c.message(index, 1, msn=index + 1, immediate=index, rqmsn=index)[0])
    c.expect_state(PairState.RTS)
    c.send(c.data(0))
    for index in (1, 2, 3):
        c.expect_completion(500 + index, immediate=index)


@case(
    "imm-limit-of-peer",
    _ORDER,
    "The peer's max_wimm_dest bounds what the requestor may post, where it is smaller.",
    Basis.NOTES,
    "§4",
    Need.POST,
    connected=False,
)
def imm_limit_of_peer(c: Script) -> None:
    c.connect(max_wimm_dest=2)
    requests = [c.post(8, index) for index in range(3)]
    c.expect_completion(requests[0], Outcome.LOC_QP_OP_ERR)


@case(
    "ack-repeated",
    _ORDER,
    "A transport ACK that comes again completes nothing again and does no harm.",
    Basis.IBTA,
    "9.7.5.1",
    Need.POST,
)
def ack_repeated(c: Script) -> None:
    for index in range(2):
        wr = c.post(8)
        c.sack(c.expect("WRITE_ONLY"), index)
        for _ in range(3):
            c.ack(index, index + 1)
        c.expect_completion(wr)
        c.expect_no_completion()


@case(
    "ack-asked-old",
    _ORDER,
    "A duplicate that asks for it brings the transport ACK again, if its message is complete.",
    Basis.NOTES,
    "§6",
)
def ack_asked_old(c: Script) -> None:
    packets = c.message(0, 2)
    c.send(packets[0])
    c.drain({"SACK"})
    c.send(packets[0], ack_req=1)
    c.expect("SACK")
    c.expect_nothing("ACK")
    c.send(packets[1])
    c.expect("ACK", psn=c.rx(1))
    c.send(c.message(2, 2, msn=2)[0])  # has arrived and completes nothing
    for again in packets:
        c.send(again, ack_req=1)
        c.expect("ACK", psn=c.rx(1), msn=1)
        c.send(again, ack_req=0)
        c.expect_nothing("ACK")


@case(
    "imm-limit-refilled",
    _ORDER,
    "A WriteIMM that was delivered no longer counts against max_wimm_dest.",
    Basis.NOTES,
    "§4",
    Need.POST,
    Need.STATES,
    settings=Settings(max_wimm=1, max_wimm_dest=2),
)
def imm_limit_refilled(c: Script) -> None:
    for index in range(0, 12, 3):
        for late in (1, 2):
            c.device.post_recv(c.dut, 500 + index)
            number = index // 3 * 2 + late
            c.send(c.message(index + late, 1, msn=index + late + 1, immediate=number, rqmsn=number)[0])
        c.send(c.data(index))
    c.expect_state(PairState.RTS)


@case(
    "ack-of-empty",
    _ORDER,
    "A WRITE of no bytes is completed by the transport ACK of its own packet, not by that of the one before.",
    Basis.IBTA,
    "9.7.5.1",
    Need.POST,
)
def ack_of_empty(c: Script) -> None:
    requests = [c.post(length) for length in (8, 0, 8)]
    c.sack(c.drain()[-1], 2)
    for index, request in enumerate(requests):
        c.ack(index, index + 1)
        c.expect_completion(request)
        c.expect_no_completion()
