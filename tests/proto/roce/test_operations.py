"""SEND, READ, atomics, RNR, fences and shared receives of RoCE's reliable connection, over a wire with losses."""

from __future__ import annotations

import random
import struct
from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mrc_host.access import Access
from mrc_host.proto.completion import Completion, CompletionKind, CompletionStatus
from mrc_host.proto.config import WireConfig
from mrc_host.proto.events import ErrorReason, LastReceiveTaken, QpError, QpState, QpStateChanged, SrqLimitReached
from mrc_host.proto.limits import ConfigError
from mrc_host.proto.receive import Element, Scatter
from mrc_host.proto.wire.fields import Nak, RoceOpcode
from support.proto.net import psn_of
from support.proto.rc import ALL, MS, MTU, Wire

OK = CompletionStatus.SUCCESS
U64 = struct.Struct("=Q")


def statuses(found: list[Completion]) -> list[tuple[int, CompletionStatus]]:
    return [(each.wr_id, each.status) for each in found]


# --- SEND ---


@pytest.mark.parametrize("size", [0, 1, MTU, MTU + 1, 5 * MTU - 3])
@pytest.mark.parametrize("immediate", [None, 0xFEEDFACE])
def test_a_send_is_scattered_into_the_receive(size: int, immediate: int | None) -> None:
    wire = Wire()
    a, b = wire.ends
    data = random.Random(size).randbytes(size)
    b.core.post_receive(b.qp, 7, [b.element(100, 3), b.element(1000, 0), b.element(5000, 2000)])
    a.core.post_send(a.qp, data, 1, immediate=immediate, solicited=True)
    wire.run()
    (got,) = wire.completions(1)
    assert got == Completion(7, b.qp.number, CompletionKind.RECV, OK, size, immediate, True)
    assert (b.memory[100:103] + b.memory[5000:7000])[:size] == data
    assert b.memory[7000:] == bytes(len(b.memory) - 7000)
    assert wire.completions(0) == [Completion(1, a.qp.number, CompletionKind.SEND, OK, size, None)]


def test_a_send_without_a_receive_waits_for_one_unless_rnr_retries_are_spent() -> None:
    wire = Wire(min_rnr_timer=1)  # 10 us
    a, b = wire.ends
    a.core.post_send(a.qp, b"late", 1)
    wire.run(MS)
    assert wire.completions(0) == []
    assert wire.opcodes(1).count(RoceOpcode.ACK) > 20
    b.core.post_receive(b.qp, 2, [b.element(0, 4)])
    wire.run(MS)
    assert statuses(wire.completions(0)) == [(1, OK)]
    assert b.memory[:4] == b"late"

    wire = Wire(connect=False, min_rnr_timer=1)
    a, b = wire.ends
    a.core.local_attributes(a.qp)
    a.core.set_attribute(a.qp, "rnr_retry", 2)
    wire.connect()
    for wr_id in (1, 2):
        a.core.post_send(a.qp, b"never", wr_id)
    wire.run()
    assert statuses(wire.completions(0)) == [
        (1, CompletionStatus.RNR_RETRY_EXC_ERR), (2, CompletionStatus.WR_FLUSH_ERR)
    ]  # fmt: skip
    assert wire.opcodes(1).count(RoceOpcode.ACK) == 3
    assert wire.states() == [QpState.ERROR, QpState.RTS]


@pytest.mark.parametrize("lacks", ["receive", "answer"])
def test_every_request_has_all_its_retries(lacks: str) -> None:
    """One retry is enough for each of many requests that need one."""
    wire = Wire(rnr_retry=1, retry_cnt=1, min_rnr_timer=1)
    a, b = wire.ends
    for number in range(3):
        if lacks == "answer":
            b.core.post_receive(b.qp, number, [b.element(0, 4)])
            wire.rule = lambda sender, packet: sender == 0 and wire.opcodes(0).count(packet[48]) % 2 == 1
        a.core.post_send(a.qp, b"once", number)
        wire.run(5_000)
        assert wire.completions(0) == []
        if lacks == "receive":
            b.core.post_receive(b.qp, number, [b.element(0, 4)])
        wire.run(MS)
        assert statuses(wire.completions(0)) == [(number, OK)]


def losing(sent: Counter[int], *lost: tuple[int, int]) -> Callable[[int, bytes], bool]:
    """Return a rule that loses packets of the requestor, each by its PSN and by which time it is sent; it counts what
    is sent by PSN."""

    def lose(sender: int, packet: bytes) -> bool:
        if sender:
            return False
        psn = psn_of(packet)
        sent[psn] += 1
        return (psn, sent[psn]) in lost

    return lose


def test_a_gap_after_an_rnr_nak_is_noticed_though_it_had_been_one_before() -> None:
    """Selective repeat, across the wrap: PSN 0 is lost, PSN 1 is kept early, refused, repeated and lost."""
    wire = Wire(selective_repeat=True, min_rnr_timer=1, initial_psn=0xFFFFFF)
    a, b = wire.ends
    sent: Counter[int] = Counter()
    wire.rule = losing(sent, (0, 1), (1, 2))
    for number in range(2):
        a.core.post_write(a.qp, b"x", b.region.va, b.region.rkey, number)
    a.core.post_write_imm(a.qp, b"x", b.region.va, b.region.rkey, 7, 2)
    a.core.post_write(a.qp, b"x", b.region.va, b.region.rkey, 3)
    wire.run(9_000)
    b.core.post_recv(b.qp, 8)
    wire.run()
    assert statuses(wire.completions(0)) == [(number, OK) for number in range(4)]
    assert sent[1] == 3
    assert a.core.statistics().endpoint["timeouts"] == 0


def test_a_send_longer_than_its_receive_ends_both() -> None:
    wire = Wire()
    a, b = wire.ends
    b.core.post_receive(b.qp, 7, [b.element(0, MTU + 9)])
    b.core.post_receive(b.qp, 8, [])
    a.core.post_send(a.qp, bytes(range(256)) + bytes(10), 1)
    wire.run()
    assert statuses(wire.completions(0)) == [(1, CompletionStatus.REM_INV_REQ_ERR)]
    assert statuses(wire.completions(1)) == [(7, CompletionStatus.LOC_LEN_ERR), (8, CompletionStatus.WR_FLUSH_ERR)]
    assert wire.states() == [QpState.ERROR, QpState.ERROR]
    assert QpStateChanged(b.qp.number, QpState.RTS, QpState.ERROR, ErrorReason.LOCAL_LENGTH) in b.events()


@pytest.mark.parametrize("wrong", ["key", "bounds", "domain", "right", "gone"])
def test_a_receive_into_memory_that_is_not_the_programs_ends_both(wrong: str) -> None:
    wire = Wire()
    a, b = wire.ends
    element = b.element(0, 64)
    if wrong == "key":
        element = Element(element.address, 64, element.key ^ 1)
    elif wrong == "bounds":
        element = Element(element.address + len(b.memory) - 63, 64, element.key)
    elif wrong == "domain":
        region = b.core.register_memory(bytearray(64), domain=5, access=ALL)
        element = Element(region.va, 64, region.rkey)
    elif wrong == "right":
        region = b.core.register_memory(bytearray(64), access=int(Access.REMOTE_READ))
        element = Element(region.va, 64, region.rkey)
    b.core.post_receive(b.qp, 7, [element])
    if wrong == "gone":
        b.core.deregister_memory(b.region)
    a.core.post_send(a.qp, b"x", 1)
    wire.run()
    assert statuses(wire.completions(1)) == [(7, CompletionStatus.LOC_PROT_ERR)]
    assert statuses(wire.completions(0)) == [(1, CompletionStatus.REM_OP_ERR)]
    assert b.memory == bytes(len(b.memory))


# --- READ ---


@pytest.mark.parametrize("size", [0, 1, MTU, MTU + 1, 7 * MTU, 7 * MTU + 5])
def test_a_read_takes_the_psns_of_its_response(size: int) -> None:
    wire = Wire()
    a, b = wire.ends
    b.memory[:] = random.Random(1).randbytes(len(b.memory))
    a.core.post_read(
        a.qp,
        Scatter([(a.region, 10, size // 2), (a.region, 9000, size - size // 2)]),
        b.region.va + 3,
        b.region.rkey,
        5,
    )
    a.core.post_write(a.qp, b"after", b.region.va + 60000, b.region.rkey, 6)
    wire.run()
    assert statuses(wire.completions(0)) == [(5, OK), (6, OK)]
    half = size // 2
    assert a.memory[10 : 10 + half] + a.memory[9000 : 9000 + size - half] == b.memory[3 : 3 + size]
    packets = max(1, -(-size // MTU))
    requests = [(packet[48], psn_of(packet)) for sender, packet in wire.sent if sender == 0]
    first = 0xFFFFF0
    assert requests == [
        (RoceOpcode.READ_REQUEST, first),
        (RoceOpcode.WRITE_ONLY, (first + packets) & 0xFFFFFF),
    ]
    answers = [(packet[48], psn_of(packet)) for sender, packet in wire.sent if sender == 1]
    kinds = [RoceOpcode.READ_RESPONSE_ONLY]
    if packets > 1:
        middle = [RoceOpcode.READ_RESPONSE_MIDDLE] * (packets - 2)
        kinds = [RoceOpcode.READ_RESPONSE_FIRST, *middle, RoceOpcode.READ_RESPONSE_LAST]
    assert answers == [
        *((kind, (first + index) & 0xFFFFFF) for index, kind in enumerate(kinds)),
        (RoceOpcode.ACK, (first + packets) & 0xFFFFFF),
    ]


def test_a_lost_response_packet_is_asked_for_again_from_there() -> None:
    wire = Wire(timeout=14)
    a, b = wire.ends
    b.memory[:] = random.Random(1).randbytes(len(b.memory))
    lost: list[int] = []

    def lose(sender: int, packet: bytes) -> bool:
        if sender == 1 and psn_of(packet) == 0xFFFFF4 and not lost:
            lost.append(1)
            return True
        return False

    wire.rule = lose
    a.core.post_read(a.qp, a.place(0, 10 * MTU), b.region.va, b.region.rkey, 5)
    a.core.post_read(a.qp, a.place(10 * MTU, 3 * MTU), b.region.va + 10 * MTU, b.region.rkey, 6)
    wire.run(10 * MS)
    assert statuses(wire.completions(0)) == [(5, OK), (6, OK)]
    assert a.memory[: 13 * MTU] == b.memory[: 13 * MTU]
    reads = [psn_of(packet) for sender, packet in wire.sent if sender == 0]
    assert reads == [0xFFFFF0, 0xFFFFFA, 0xFFFFF4, 0xFFFFFA]
    assert a.core.statistics().endpoint["timeouts"] == 0


def test_reads_under_way_are_no_more_than_max_rd_atomic() -> None:
    wire = Wire(max_rd_atomic=2, max_dest_rd_atomic=2)
    a, b = wire.ends
    for number in range(6):
        a.core.post_read(a.qp, a.place(number * 1000, 1000), b.region.va, b.region.rkey, number)
    wire._flush()
    assert wire.opcodes(0) == [RoceOpcode.READ_REQUEST] * 2
    wire.run()
    assert statuses(wire.completions(0)) == [(number, OK) for number in range(6)]
    assert wire.opcodes(0) == [RoceOpcode.READ_REQUEST] * 6


def test_acknowledgements_behind_a_read_are_one() -> None:
    wire = Wire()
    a, b = wire.ends
    a.core.post_read(a.qp, a.place(0, 40 * MTU), b.region.va, b.region.rkey, 0)
    for number in range(1, 6):
        a.core.post_write(a.qp, b"x", b.region.va, b.region.rkey, number)
    wire.run()
    assert statuses(wire.completions(0)) == [(number, OK) for number in range(6)]
    assert wire.opcodes(1).count(RoceOpcode.ACK) == 1


def test_an_acknowledgement_that_is_owed_does_not_outlive_a_reset() -> None:
    wire = Wire()
    a, b = wire.ends
    a.core.post_write(a.qp, b"x", b.region.va, b.region.rkey, 1)
    (packet,) = a.core.datagrams_to_send(0, 0, 9000)
    b.core.receive_datagram(0, packet, 1000)
    b.core.reset_qp(b.qp)
    b.core.local_attributes(b.qp)
    b.core.connect(b.qp, a.core.local_attributes(a.qp), 1000)
    assert b.core.datagrams_to_send(0, 1000, 9000) == []


def test_more_reads_than_the_responder_takes_are_an_invalid_request() -> None:
    wire = Wire(max_rd_atomic=3, max_dest_rd_atomic=1)
    a, b = wire.ends
    for number in range(3):
        a.core.post_read(a.qp, a.place(0, 40 * MTU), b.region.va, b.region.rkey, number)
    wire.run()
    assert statuses(wire.completions(0)) == [
        (0, OK), (1, CompletionStatus.REM_INV_REQ_ERR), (2, CompletionStatus.WR_FLUSH_ERR)
    ]  # fmt: skip


def test_a_read_takes_less_than_half_of_the_psns() -> None:
    wire = Wire(size=1 << 16, wire=WireConfig(mtu=64))
    a, b = wire.ends
    with pytest.raises(QpError, match="takes too many PSNs for a path MTU of 64"):
        a.core.post_read(a.qp, Scatter([(a.region, 0, 1 << 16)] * (1 << 13)), b.region.va, b.region.rkey, 1)


def test_answers_that_a_peer_asks_for_again_and_again_do_not_pile_up() -> None:
    size = 1 << 20
    wire = Wire(size=size, wire=WireConfig(mtu=64))
    a, b = wire.ends
    a.core.post_read(a.qp, a.place(0, size), b.region.va, b.region.rkey, 1)
    wire.step(MS)
    head = (a.qp.addresses, 1, 0)
    for packets in range(2000):
        length = size - 64 * (packets + 1)
        again = a.qp.codec.encode_read(*head, b.qp.number, 0xFFFFF0, b.region.va, b.region.rkey, length)
        b.core.receive_datagram(0, again, wire.now)
    assert len(b.qp.responses) == 1024


def test_acknowledgements_wait_behind_a_response_and_may_overtake_it() -> None:
    """Switches send control packets first: an acknowledgement of a later write does not mean that data is lost."""
    wire = Wire()
    a, b = wire.ends
    held: list[bytes] = []
    wire.rule = lambda sender, packet: (
        sender == 1 and RoceOpcode.READ_RESPONSE_FIRST <= packet[48] <= RoceOpcode.READ_RESPONSE_ONLY
        and not held.append(packet)
    )  # fmt: skip
    b.memory[:1000] = random.Random(3).randbytes(1000)
    a.core.post_read(a.qp, a.place(0, 1000), b.region.va, b.region.rkey, 1)
    a.core.post_write(a.qp, b"next", b.region.va + 5000, b.region.rkey, 2)
    wire.run(20_000)
    assert wire.completions(0) == []
    assert b.memory[5000:5004] == b"next"
    for packet in held:
        a.core.receive_datagram(0, packet, wire.now)
    assert statuses(wire.completions(0)) == [(1, OK), (2, OK)]
    assert a.memory[:1000] == b.memory[:1000]
    assert wire.opcodes(0) == [RoceOpcode.READ_REQUEST, RoceOpcode.WRITE_ONLY]


def test_a_nak_that_overtakes_a_response_counts_after_it() -> None:
    wire = Wire()
    a, b = wire.ends
    held: list[bytes] = []
    wire.rule = lambda sender, packet: (
        sender == 1 and packet[48] != RoceOpcode.ACK and not held.append(packet)
    )  # fmt: skip
    a.core.post_read(a.qp, a.place(0, 1000), b.region.va, b.region.rkey, 1)
    a.core.post_write(a.qp, b"x", b.region.va, b.region.rkey ^ 1, 2)
    wire.run(20_000)
    assert wire.completions(0) == []
    for packet in held:
        a.core.receive_datagram(0, packet, wire.now)
    assert statuses(wire.completions(0)) == [(1, OK), (2, CompletionStatus.REM_ACCESS_ERR)]


def test_a_response_stands_for_the_acknowledgements_before_it() -> None:
    wire = Wire()
    a, b = wire.ends
    a.core.post_write(a.qp, b"x", b.region.va, b.region.rkey, 1)
    a.core.post_read(a.qp, a.place(0, 8), b.region.va, b.region.rkey, 2)
    wire.run()
    assert statuses(wire.completions(0)) == [(1, OK), (2, OK)]
    assert wire.opcodes(1) == [RoceOpcode.READ_RESPONSE_ONLY]


def test_a_fence_waits_for_reads_before_it() -> None:
    wire = Wire()
    a, b = wire.ends
    b.memory[:8] = b"original"
    a.core.post_read(a.qp, a.place(0, 8), b.region.va, b.region.rkey, 1)
    a.core.post_send(a.qp, a.region, 2, fence=True)
    b.core.post_receive(b.qp, 9, [b.element(0, len(b.memory))])
    wire._flush()
    assert wire.opcodes(0) == [RoceOpcode.READ_REQUEST]
    wire.run()
    assert statuses(wire.completions(0)) == [(1, OK), (2, OK)]
    assert b.memory[:8] == b"original"


# --- atomics ---


def test_atomics_return_what_was_there() -> None:
    wire = Wire()
    a, b = wire.ends
    U64.pack_into(b.memory, 8, (1 << 64) - 2)
    va, rkey = b.region.va + 8, b.region.rkey
    a.core.post_fetch_add(a.qp, a.place(0, 8), va, rkey, 5, 1)
    a.core.post_compare_swap(a.qp, a.place(8, 8), va, rkey, 3, 77, 2)
    a.core.post_compare_swap(a.qp, a.place(16, 8), va, rkey, 3, 99, 3)
    wire.run()
    found = wire.completions(0)
    kinds = [CompletionKind.FETCH_ADD, CompletionKind.COMPARE_SWAP, CompletionKind.COMPARE_SWAP]
    assert [(each.kind, each.status, each.byte_len) for each in found] == [(kind, OK, 8) for kind in kinds]
    assert struct.unpack_from("=3Q", a.memory) == ((1 << 64) - 2, 3, 77)
    assert U64.unpack_from(b.memory, 8) == (77,)


@pytest.mark.parametrize("most", [1, 16])
def test_a_repeated_atomic_is_answered_from_the_table_and_not_executed(most: int) -> None:
    wire = Wire(max_dest_rd_atomic=most)
    a, b = wire.ends
    lost: list[int] = []

    def lose(sender: int, packet: bytes) -> bool:
        if packet[48] == RoceOpcode.ATOMIC_ACK and len(lost) < 3:
            lost.append(1)
            return True
        return False

    wire.rule = lose
    a.core.post_fetch_add(a.qp, a.place(0, 8), b.region.va, b.region.rkey, 5, 1)
    wire.run()
    assert statuses(wire.completions(0)) == [(1, OK)]
    assert wire.opcodes(0).count(RoceOpcode.FETCH_ADD) == 4
    assert U64.unpack_from(b.memory) == (5,)
    assert U64.unpack_from(a.memory) == (0,)


@pytest.mark.parametrize("operation", ["read", "atomic"])
def test_every_gap_is_named_whatever_filled_the_one_before(operation: str) -> None:
    wire = Wire()
    a, b = wire.ends
    wire.rule = losing(Counter(), (0xFFFFF0, 1), (0xFFFFF1, 2))
    for number in range(3):
        place = a.place(8 * number, 8)
        if operation == "read":
            a.core.post_read(a.qp, place, b.region.va, b.region.rkey, number)
        else:
            a.core.post_fetch_add(a.qp, place, b.region.va, b.region.rkey, 5, number)
    wire.run()
    assert statuses(wire.completions(0)) == [(0, OK), (1, OK), (2, OK)]
    assert b.core.statistics().endpoint["naks_sent"] == 2
    assert a.core.statistics().endpoint["timeouts"] == 0


def test_an_atomic_on_an_odd_address_is_an_invalid_request() -> None:
    wire = Wire()
    a, b = wire.ends
    a.core.post_fetch_add(a.qp, a.place(0, 8), b.region.va + 4, b.region.rkey, 5, 1)
    wire.run()
    assert statuses(wire.completions(0)) == [(1, CompletionStatus.REM_INV_REQ_ERR)]


# --- everything at once ---


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 1 << 16),
    st.sampled_from([0.0, 0.03, 0.15]),
    st.sampled_from([0.0, 0.1]),
    st.sampled_from([0.0, 0.2]),
    st.booleans(),
    st.integers(1, 4),
    st.sampled_from([4, 32]),
    st.integers(0, 1 << 16),
    st.text("srwfci", min_size=1, max_size=24),
)
# Selective repeat took a packet for arrived that its responder had dropped for lack of a receive.
@example(3053, 0.15, 0.0, 0.0, True, 1, 4, 0, "si")
# No timeout ran for the answer to an atomic operation that a later NAK had acknowledged.
@example(680, 0.03, 0.1, 0.2, True, 1, 32, 1, "fssswsfs")
def test_everything_is_done_once_and_in_order_over_a_bad_wire(
    seed: int,
    loss: float,
    repeats: float,
    delays: float,
    selective: bool,
    reads: int,
    flying: int,
    other: int,
    kinds: str,
) -> None:
    """Loss, repetition and reordering: each operation is executed once, in order, and completes with its result."""
    wire = Wire(
        seed, loss=loss, repeats=repeats, delays=delays, selective_repeat=selective, max_rd_atomic=reads,
        max_dest_rd_atomic=4, max_inflight_packets=flying, min_rnr_timer=1, timeout=5,
    )  # fmt: skip
    a, b = wire.ends
    a.qp.retry_cnt = 1 << 30
    rng = random.Random(other)
    # The peer's memory as it is when all before has been executed.
    model = bytearray(b.memory)
    expected: list[tuple[int, int, bytes]] = []  # number of the request, place in the peer's memory, result
    changes: list[tuple[int, int, int]] = []  # number, first byte, end
    fences: list[int] = []
    sends: list[bytes] = []
    for number, kind in enumerate(kinds):
        at, size = 8 * rng.randrange(64), rng.choice([0, 1, 8, MTU, MTU + 1, 1000])
        local = number * 1024
        payload, va, rkey = rng.randbytes(size), b.region.va + at, b.region.rkey
        fence = rng.random() < 0.3
        fences += [number] * fence
        changes += [(number, at, at + (8 if kind in "fc" else size))] * (kind in "wifc")
        if kind == "s":
            a.core.post_send(a.qp, payload, number, fence=fence)
            sends.append(payload)
        elif kind == "w":
            a.core.post_write(a.qp, payload, va, rkey, number, fence=fence)
            model[at : at + size] = payload
        elif kind == "i":
            a.core.post_write_imm(a.qp, payload, va, rkey, number, number, fence=fence)
            model[at : at + size] = payload
            sends.append(number.to_bytes(4, "big"))
        elif kind == "r":
            a.core.post_read(a.qp, a.place(local, size), va, rkey, number, fence=fence)
            expected.append((number, at, bytes(model[at : at + size])))
        else:
            (before,) = U64.unpack_from(model, at)
            expected.append((number, at, U64.pack(before)))
            if kind == "f":
                add = rng.getrandbits(64)
                a.core.post_fetch_add(a.qp, a.place(local, 8), va, rkey, add, number, fence=fence)
                U64.pack_into(model, at, (before + add) & ((1 << 64) - 1))
            else:
                guess = before if rng.random() < 0.5 else before ^ 1
                a.core.post_compare_swap(a.qp, a.place(local, 8), va, rkey, guess, number, number, fence=fence)
                if guess == before:
                    U64.pack_into(model, at, number)
    for number in range(len(sends)):
        b.core.post_receive(b.qp, number, [b.element(32768 + number * 1024, 1024)])
        wire.run(rng.randrange(30_000))
    wire.run(1000 * MS)
    assert statuses(wire.completions(0)) == [(number, OK) for number in range(len(kinds))]
    got = wire.completions(1)
    assert [each.wr_id for each in got] == list(range(len(sends)))
    for each, sent in zip(got, sends, strict=True):
        if each.kind is CompletionKind.RECV_IMM:
            assert each.immediate == int.from_bytes(sent, "big")
        else:
            start = 32768 + each.wr_id * 1024
            assert (each.byte_len, b.memory[start : start + len(sent)]) == (len(sent), sent)
    assert b.memory[:4096] == model[:4096]
    for number, at, value in expected:
        # Without a fence in between, a READ may see what a later request writes.
        safe = kinds[number] != "r" or all(
            later <= number or end <= at or first >= at + len(value) or any(number < each <= later for each in fences)
            for later, first, end in changes
        )
        assert not safe or a.memory[number * 1024 :][: len(value)] == value


# --- rights, attributes, states ---


@pytest.mark.parametrize("operation", ["write", "read", "atomic"])
@pytest.mark.parametrize("wrong", ["region", "pair", "domain", "key"])
def test_an_operation_needs_the_right_of_region_and_queue_pair_and_the_domain(operation: str, wrong: str) -> None:
    wire = Wire()
    a, b = wire.ends
    right = {"write": Access.REMOTE_WRITE, "read": Access.REMOTE_READ, "atomic": Access.REMOTE_ATOMIC}[operation]
    memory = bytearray(64)
    access = ALL & ~int(right) if wrong == "region" else ALL
    region = b.core.register_memory(memory, access=access, domain=3 if wrong == "domain" else 0)
    if wrong == "pair":
        b.core.set_attribute(b.qp, "qp_access_flags", ALL & ~int(right))
    va, rkey = region.va, region.rkey ^ (wrong == "key")
    if operation == "write":
        a.core.post_write(a.qp, b"12345678", va, rkey, 1)
    elif operation == "read":
        a.core.post_read(a.qp, a.place(0, 8), va, rkey, 1)
    else:
        a.core.post_fetch_add(a.qp, a.place(0, 8), va, rkey, 1, 1)
    wire.run()
    assert statuses(wire.completions(0)) == [(1, CompletionStatus.REM_ACCESS_ERR)]
    assert wire.states() == [QpState.ERROR, QpState.ERROR]
    assert memory == bytes(64)


def test_what_precedes_a_refused_request_completes() -> None:
    wire = Wire()
    a, b = wire.ends
    b.memory[:4000] = random.Random(2).randbytes(4000)
    a.core.post_read(a.qp, a.place(0, 4000), b.region.va, b.region.rkey, 1)
    a.core.post_write(a.qp, b"x", b.region.va, b.region.rkey ^ 1, 2)
    a.core.post_write(a.qp, b"x", b.region.va, b.region.rkey, 3)
    wire.run()
    assert statuses(wire.completions(0)) == [
        (1, OK), (2, CompletionStatus.REM_ACCESS_ERR), (3, CompletionStatus.WR_FLUSH_ERR)
    ]  # fmt: skip
    assert a.memory[:4000] == b.memory[:4000]


def test_a_read_of_a_region_that_goes_away_ends_with_a_remote_operation_error() -> None:
    wire = Wire()
    a, b = wire.ends
    a.core.post_read(a.qp, a.place(0, 60_000), b.region.va, b.region.rkey, 1)
    wire.step(MS)
    b.core.deregister_memory(b.region)
    wire.run()
    assert statuses(wire.completions(0)) == [(1, CompletionStatus.REM_OP_ERR)]


def test_a_queue_pair_in_rtr_receives_and_answers() -> None:
    wire = Wire(connect=False)
    a, b = wire.ends
    documents = [end.core.local_attributes(end.qp) for end in wire.ends]
    a.core.connect(a.qp, documents[1], 0)
    b.core.accept(b.qp, documents[0], 0)
    b.core.post_receive(b.qp, 4, [b.element(0, 64)])
    b.memory[100:104] = b"read"
    a.core.post_send(a.qp, b"hello", 1)
    wire.run()
    a.core.post_read(a.qp, a.place(0, 4), b.region.va + 100, b.region.rkey, 2)
    wire.run()
    assert statuses(wire.completions(0)) == [(1, OK), (2, OK)]
    assert a.core.statistics().endpoint["timeouts"] == 0
    assert (b.qp.state, bytes(a.memory[:4])) == (QpState.RTR, b"read")


def test_attributes_are_of_the_queue_pair() -> None:
    wire = Wire(connect=False)
    a, b = wire.ends
    for end in wire.ends:
        end.core.local_attributes(end.qp)
    for name, value in {"timeout": 0, "retry_cnt": 1, "sq_psn": 5, "max_rd_atomic": 3, "min_rnr_timer": 9}.items():
        a.core.set_attribute(a.qp, name, value)
    b.core.set_attribute(b.qp, "sq_psn", 900)
    a.core.accept_named(a.qp, b.qp.number, b.core.config.address, 900, 128)
    b.core.accept_named(b.qp, a.qp.number, a.core.config.address, 5, 128)
    for end in wire.ends:
        end.core.ready(end.qp, 0)
    assert a.core.attributes(a.qp) | {"rq_psn": 900} == {
        "path_mtu": 128, "rq_psn": 900, "max_dest_rd_atomic": 16, "min_rnr_timer": 9, "qp_access_flags": 14,
        "sq_psn": 5, "timeout": 0, "retry_cnt": 1, "rnr_retry": 7, "max_rd_atomic": 3, "dest_qp_num": b.qp.number,
    }  # fmt: skip
    wire.rule = lambda sender, packet: wire.now < 50 * MS
    a.core.post_write(a.qp, bytes(300), b.region.va, b.region.rkey, 1)
    wire.run(200 * MS)
    assert [psn_of(packet) for sender, packet in wire.sent] == [5, 6, 7]
    assert wire.completions(0) == []  # a timeout of 0 waits for ever
    assert a.qp.state is QpState.RTS
    c = a.core.create_qp(a.cq)
    with pytest.raises(ConfigError, match=r"path_mtu is 512; allowed: 64 to 256"):
        a.core.set_attribute(c, "path_mtu", 512)


def test_the_timeout_of_a_queue_pair_is_that_of_ibta() -> None:
    wire = Wire(connect=False)
    a, b = wire.ends
    a.core.local_attributes(a.qp)
    a.core.set_attribute(a.qp, "timeout", 8)
    a.core.set_attribute(a.qp, "retry_cnt", 2)
    wire.connect()
    wire.rule = lambda sender, packet: True
    a.core.post_write(a.qp, b"x", b.region.va, b.region.rkey, 1)
    wire.run()
    assert statuses(wire.completions(0)) == [(1, CompletionStatus.RETRY_EXC_ERR)]
    assert len(wire.sent) == 3
    (change,) = [each for each in a.events() if isinstance(each, QpStateChanged) and each.new is QpState.ERROR]
    assert change.reason is ErrorReason.RETRY_EXCEEDED
    assert a.core._now == 3 * (4096 << 8)


def test_reset_forgets_all_and_the_queue_pair_works_again() -> None:
    wire = Wire()
    a, b = wire.ends
    wire.rule = lambda sender, packet: True
    a.core.post_write(a.qp, bytes(3000), b.region.va, b.region.rkey, 1)
    a.core.post_recv(a.qp, 2)
    b.core.post_recv(b.qp, 2)
    wire.run(10_000)
    for end in wire.ends:
        end.core.reset_qp(end.qp)
    wire.run()
    assert wire.completions(0) == wire.completions(1) == []
    wire.rule = lambda sender, packet: False
    wire.connect()
    b.core.post_receive(b.qp, 3, [b.element(0, 10)])
    a.core.post_send(a.qp, b"again", 4)
    wire.run()
    assert statuses(wire.completions(0)) == [(4, OK)]
    assert statuses(wire.completions(1)) == [(3, OK)]


# --- shared receives ---


def test_shared_receives_report_their_limit_once_and_the_last_of_a_queue_pair() -> None:
    wire = Wire(connect=False)
    a, b = wire.ends
    srq = b.core.create_srq(5, 0, limit=3)
    b.qp = b.core.create_qp(b.cq, srq=srq)
    wire.connect()
    for number in range(4):
        b.core.post_shared(srq, number, [b.element(number * 100, 100)])
    b.events()
    for number in range(3):
        a.core.post_send(a.qp, bytes([number + 1]) * 10, number)
        wire.run(MS)
        assert [each for each in b.events() if isinstance(each, SrqLimitReached)] == [SrqLimitReached(5)] * (
            number == 1
        )
    assert srq.limit == 0
    assert statuses(wire.completions(1)) == [(0, OK), (1, OK), (2, OK)]
    b.core.fail_qp(b.qp)
    assert LastReceiveTaken(b.qp.number) in b.events()
    assert len(srq.receives) == 1
    assert wire.completions(1) == []
    b.core.destroy_qp(b.qp, wire.now)
    assert srq.users == 0


def test_a_nak_that_refuses_is_of_the_kind_that_the_error_has() -> None:
    wire = Wire()
    a, b = wire.ends
    a.core.post_read(a.qp, a.place(0, 8), b.region.va, b.region.rkey ^ 1, 1)
    wire.run()
    (nak,) = [packet for sender, packet in wire.sent if sender == 1]
    assert (nak[48], nak[52 + 8]) == (RoceOpcode.ACK, Nak.REMOTE_ACCESS)


def test_a_repeated_read_takes_no_place_of_another() -> None:
    """The answer of the first READ is late: it is asked for again, and answered again when the second one arrives."""
    wire = Wire(max_rd_atomic=2, max_dest_rd_atomic=2)
    a, b = wire.ends
    b.qp.max_dest_rd_atomic = 1
    for number in range(2):
        a.core.post_read(a.qp, a.place(0, 8), b.region.va, b.region.rkey, number)
    first, second = a.core.datagrams_to_send(0, 0, 1 << 20)
    b.core.receive_datagram(0, first, 0)
    assert len(b.core.datagrams_to_send(0, 0, 1 << 20)) == 1
    for request in (first, second):
        b.core.receive_datagram(0, request, 0)
    answers = [packet[48] for packet in b.core.datagrams_to_send(0, 0, 1 << 20)]
    assert answers == [RoceOpcode.READ_RESPONSE_ONLY] * 2
