"""What a peer, or somebody in its name, may say: bounds on every kind of packet, and nothing that ends the endpoint."""

from __future__ import annotations

import itertools
import random
from collections import deque
from typing import Any

import pytest

from mrc_host.proto.completion import CompletionKind, CompletionStatus
from mrc_host.proto.config import (
    EndpointConfig,
    EvConfig,
    EvFormat,
    EvMode,
    PortsConfig,
    ReliabilityConfig,
    Srv6Path,
    WireConfig,
)
from mrc_host.proto.congestion.nscc import NsccConfig
from mrc_host.proto.endpoint import Endpoint
from mrc_host.proto.events import ErrorReason, Fault, QpState, QpStateChanged
from mrc_host.proto.reliability.recovery import LossDetector
from mrc_host.proto.reliability.scoreboard import LOST
from mrc_host.proto.wire import packet as wire
from mrc_host.proto.wire.encap import encapsulate
from mrc_host.proto.wire.fields import Opcode
from support.proto.net import NetConfig
from support.proto.story import WIDE, Story
from support.proto.workload import Bench

MTU = 1024
MS = 1_000_000
MINE, THEIRS, STRANGER = (bytes(15) + bytes((last,)) for last in (1, 2, 9))


def story(**changes: Any) -> Story:
    settings: dict[str, Any] = {
        "wire": WireConfig(mtu=MTU),
        "cc": WIDE,
        "reliability": ReliabilityConfig(timeout=8, linear_cnt=2, exp_cnt=2),
        "ev": EvConfig(count=8, active=4, ev_min_active=1),
    }
    return Story(NetConfig(trim_bytes=None, ecn=None), **(settings | changes))


# --- data: a message is as long as it says ---

FIRST, MIDDLE, LAST = Opcode.WRITE_FIRST, Opcode.WRITE_MIDDLE, Opcode.WRITE_LAST
LAST_IMM, ONLY, ONLY_IMM = Opcode.WRITE_LAST_IMM, Opcode.WRITE_ONLY, Opcode.WRITE_ONLY_IMM
# opcode, payload bytes, DMA length, MSN, offset of the address
Piece = tuple[int, int, int, int, int]
WHOLE: list[Piece] = [(FIRST, MTU, 2_100, 1, 0), (MIDDLE, MTU, 2_100, 1, MTU), (LAST_IMM, 52, 2_100, 1, 2 * MTU)]
BROKEN: dict[str, list[Piece]] = {
    "two packets claim 100 000 bytes": [(FIRST, MTU, 100_000, 1, 0), (LAST_IMM, 52, 100_000, 1, MTU)],
    "first and last disagree": [(FIRST, MTU, 100_000, 1, 0), (LAST_IMM, 52, MTU + 52, 1, MTU)],
    "last is elsewhere": [(FIRST, MTU, MTU + 52, 1, 0), (LAST_IMM, 52, MTU + 52, 1, MTU + 4)],
    "last without first": [(LAST_IMM, 52, MTU, 1, 0)],
    "middle without first": [(MIDDLE, MTU, MTU + 52, 1, 0), (LAST_IMM, 52, MTU + 52, 1, MTU)],
    "first twice": [(FIRST, MTU, 2_100, 1, 0), (FIRST, MTU, 2_100, 1, MTU), (LAST_IMM, 52, 2_100, 1, 2 * MTU)],
    "only in the middle": [(FIRST, MTU, MTU + 52, 1, 0), (ONLY_IMM, 52, 52, 1, MTU)],
    "another message's first": [(FIRST, MTU, MTU + 52, 2, 0), (LAST_IMM, 52, MTU + 52, 1, MTU)],
}


def deliver(pieces: list[Piece], order: list[int]) -> tuple[Story, list[Any]]:
    s = story()
    core, qp = s.connection.target.core, s.connection.peer
    region = core.register_memory(bytearray(200_000))
    core.post_recv(qp, 7)
    ends = s.connection.source.address + s.connection.target.address
    for index in order:
        opcode, size, length, msn, offset = pieces[index]
        immediate = int(opcode in (LAST_IMM, ONLY_IMM))
        packet = core.context.codec.encode_data(
            ends, 5, 18, opcode, qp.number, s.qp.sq_psn + index, 0x80, immediate, msn, 5, region.va + offset,
            region.rkey, length, bytes(size), 3,
        )  # fmt: skip
        core.receive_datagram(0, packet, 0)
    completions = [c for c in core.poll(s.connection.peer_cq) if c.status is CompletionStatus.SUCCESS]
    return s, completions


@pytest.mark.parametrize("order", [[0, 1, 2], [2, 1, 0], [1, 2, 0], [2, 0, 1]])
def test_a_whole_message_completes_in_any_order(order: list[int]) -> None:
    s, completions = deliver(WHOLE, order)
    assert [(c.kind, c.byte_len) for c in completions] == [(CompletionKind.RECV_IMM, 2_100)]
    assert s.connection.peer.state is QpState.RTS


@pytest.mark.parametrize("name", list(BROKEN))
@pytest.mark.parametrize("reverse", [False, True])
def test_a_message_that_is_not_what_it_claims_is_an_invalid_request(name: str, reverse: bool) -> None:
    pieces = BROKEN[name]
    order = list(range(len(pieces)))
    s, completions = deliver(pieces, order[::-1] if reverse else order)
    assert completions == []
    assert s.connection.peer.error is ErrorReason.LOCAL_INVALID_REQUEST


def test_a_later_message_may_have_the_number_of_an_earlier_one() -> None:
    s = story()
    core, qp = s.connection.target.core, s.connection.peer
    region = core.register_memory(bytearray(200_000))
    ends = s.connection.source.address + s.connection.target.address
    for index, offset in enumerate((0, MTU, 0, MTU)):
        if index == 2:
            qp.responder._acked_msn += 0xFFFF  # as if as many messages of one packet had come between
        packet = core.context.codec.encode_data(
            ends, 5, 18, int(Opcode.WRITE_LAST) if offset else FIRST, qp.number, s.qp.sq_psn + index, 0x80, 0, 1, 5,
            region.va + offset, region.rkey, MTU + 52, bytes(52 if offset else MTU),
        )  # fmt: skip
        core.receive_datagram(0, packet, 0)
    assert qp.error is None
    assert qp.responder.counters.messages_completed == 2


def test_an_address_half_of_all_away_is_another_one() -> None:
    s, _ = deliver([(FIRST, MTU, MTU + 52, 1, 0), (LAST_IMM, 52, MTU + 52, 1, MTU + (1 << 63))], [0, 1])
    assert s.connection.peer.error is ErrorReason.LOCAL_INVALID_REQUEST


def test_the_next_lost_packet_is_the_first_that_the_peer_takes() -> None:
    s = story()
    s.bench.post(s.connection, 5 * MTU)
    s.until(lambda: len(s.data()) == 5)
    packets = list(s.board.outstanding.values())
    for each in packets:
        each.state = LOST
    lost = s.qp.requestor.lost
    lost[:] = reversed(packets)
    assert s.qp.requestor.recovery.next_lost(packets[2].psn, s.net.now) is packets[2]
    assert lost == [*packets[2::-1], *packets[:2:-1]]


def test_a_packet_for_a_queue_pair_that_is_gone_is_for_none() -> None:
    s = story()
    s.bench.post(s.connection, 100 * MTU)
    s.until(lambda: s.connection.peer.responder.counters.packets_placed > 5)
    core = s.connection.target.core
    assert "unknown_qp" not in core.statistics().drops
    core.destroy_qp(s.connection.peer, s.net.now)
    s.net.run(max_time_ns=s.net.now + 1_000_000)
    drops = core.statistics().drops
    assert drops["unknown_qp"]
    assert "qp_state" not in drops


def test_control_packets_leave_as_far_as_there_is_room() -> None:
    core = story().connection.source.core
    waiting = [bytes([0x60, 0, 0, 0, 0, size]) + bytes(34 + size) for size in (10, 20, 30)]
    for packet in waiting:
        core.context.ports.enqueue(0, packet)
    assert core.datagrams_to_send(0, 0, 49) == []
    assert core.datagrams_to_send(0, 0, 50 + 60) == waiting[:2]
    assert core.datagrams_to_send(0, 0, 9000) == waiting[2:]
    assert core.datagrams_to_send(0, 0, 9000) == []


def test_marks_on_made_up_evs_fill_no_memory() -> None:
    s = story(reliability=ReliabilityConfig(always_skip_after=3))
    responder = s.connection.peer.responder
    for ev in range(20_000):
        responder._mark(ev, True)
    assert len(responder._ce_runs) <= 4096


# --- acknowledgements ---


def forge_sack(s: Story, **changes: int) -> None:
    """Forge a SACK to the requestor in the peer's name."""
    board = s.board
    fields = {
        "flags": 0, "m": 0, "pr": 0, "ack": 0, "entropy": 0, "cack": board.una - 1, "offset": 1, "bitmap": 0, "rcvd": 0,
    } | changes  # fmt: skip
    ends = s.connection.target.address + s.connection.source.address
    packet = s.connection.source.core.context.codec.encode_sack(
        ends, 5, 184, s.qp.number, fields["flags"], fields["m"], fields["pr"], fields["ack"], fields["entropy"], 0, 0,
        fields["cack"] & 0xFFFFFF, 0, 0, 0, fields["offset"], fields["bitmap"], 0, 0, 0, 0, fields["rcvd"],
    )  # fmt: skip
    s.connection.source.core.receive_datagram(0, packet, s.net.now)


def test_sack_of_a_packet_never_sent_is_counted_as_bogus() -> None:
    s = story()
    s.bench.post(s.connection, 100 * MTU)
    s.until(lambda: len(s.data()) > 20)
    nxt, una = s.board.nxt, s.board.una
    outstanding = s.board.outstanding.values()
    for changes in (
        {"cack": nxt},
        {"ack": nxt - una + 5},
        {"offset": nxt - una + 1, "bitmap": 1},
        {"offset": nxt - una - 3, "bitmap": 0xFFFF},
    ):
        before = s.counters.bogus_sacks
        forge_sack(s, **changes)
        assert s.counters.bogus_sacks == before + 1
        assert s.board.outstanding.values() == outstanding
    forge_sack(s, rcvd=0x7FFFFE)
    assert s.qp.requestor.account.in_flight == 0  # not less
    sent = s.qp.requestor.account._sent
    assert s.qp.requestor.account._units <= -(-sent // 256)


def test_nack_of_a_packet_never_sent_is_counted_as_bogus() -> None:
    s = story()
    s.bench.post(s.connection, 100 * MTU)
    s.until(lambda: len(s.data()) > 20)
    codec, ends = s.connection.source.core.context.codec, s.connection.target.address + s.connection.source.address
    before = bytes(s.qp.evs.state)
    for reason in (1, 2, 6, 11, 0x19):
        for ev in s.qp.evs.universe.values:
            nack = codec.encode_nack(ends, 5, 184, s.qp.number, s.board.nxt, reason, ev, 0, 0, 0)
            s.connection.source.core.receive_datagram(0, nack, s.net.now)
    assert s.counters.bogus_nacks == 5 * 8
    assert bytes(s.qp.evs.state) == before
    assert s.qp.state is QpState.RTS


def test_a_transport_ack_whose_msn_does_not_fit_its_psn_completes_nothing() -> None:
    s = story()
    for _ in range(3):
        s.bench.post(s.connection, 10 * MTU)
    s.lose(lambda p: p.host == 1)
    s.until(lambda: len(s.data()) >= 30)
    codec, ends = s.connection.source.core.context.codec, s.connection.target.address + s.connection.source.address
    last = s.board.nxt - 1

    def answer(psn: int, syndrome: int, msn: int) -> None:
        core = s.connection.source.core
        core.receive_datagram(0, codec.encode_ack(ends, 5, 184, s.qp.number, psn, syndrome, msn), s.net.now)

    for psn, msn in ((last, 1), (last, 0), (last - 1, 3), (last - 10, 3), (last - 15, 2)):
        s.connection.source.core.receive_datagram(
            0, codec.encode_ack(ends, 5, 184, s.qp.number, psn, 31, msn), s.net.now
        )
    # A NAK of what is complete, or was never sent.
    answer(0, 0x62, 0)
    assert (s.counters.bogus_acks, s.counters.acks_received) == (6, 0)
    assert s.qp.state is QpState.RTS
    assert len(s.qp.requestor.unacked) == 3
    s.connection.source.core.receive_datagram(
        0, codec.encode_ack(ends, 5, 184, s.qp.number, last - 10, 31, 2), s.net.now
    )
    assert len(s.qp.requestor.unacked) == 1
    # What was sent last on an EV stays known until it arrives: rule (b) begins there.
    latest = {sent.ev: sent for sent in s.board.outstanding.values()}
    assert len(latest) > 1
    assert {ev: sent for ev, sent in enumerate(s.board.last_on_ev) if sent is not None} == latest
    answer(last, 31, 3)
    assert not any(s.board.last_on_ev)


def test_a_peer_that_does_not_have_what_was_acknowledged_ends_the_queue_pair() -> None:
    """The data is lost, a forged SACK says it arrived: once this waited for ever, probing and being answered."""
    s = story()
    s.lose(lambda p: p.is_data)
    write = s.bench.post(s.connection, 5 * MTU)
    s.until(lambda: len(s.data()) == 5)
    forge_sack(s, bitmap=0b11111)
    assert not s.board.outstanding
    s.bench.run(max_time_ns=1_000 * MS)
    assert (write.status, s.qp.error) == (CompletionStatus.REM_OP_ERR, ErrorReason.CONTRADICTION)


def test_contradiction_ends_the_queue_pair_with_a_window_closed_by_a_hole() -> None:
    s = story(reliability=ReliabilityConfig(timeout=8, linear_cnt=2, exp_cnt=2, mpr=1, mpr_dest=1))
    s.lose(lambda p: p.is_data and p.psn == 1)
    write = s.bench.post(s.connection, 400 * MTU)
    s.until(lambda: len(s.data()) >= 128)
    for offset in (1, 65):
        forge_sack(s, offset=offset, bitmap=(1 << 64) - 1)
    s.bench.run(max_time_ns=1_000 * MS)
    assert (write.status, s.qp.error) == (CompletionStatus.REM_OP_ERR, ErrorReason.CONTRADICTION)


def test_probe_nonces_are_not_predictable() -> None:
    s = story()
    ids = []
    for _ in range(40):
        s.qp.prober.send(0, s.net.now, revival=False)
        ids.append(list(s.qp.prober.pending)[-1])
        s.connection.source.core.probe_ev(s.connection.target.address, 5, 0, 0)
    steps = {b - a & 0xFFFF for a, b in itertools.pairwise(ids)}
    assert len(steps) > 30
    nonces = list(s.connection.source.core._node.pending)
    assert len({b - a & 0xFFFF for a, b in itertools.pairwise(nonces)}) > 30


# --- strangers, and faults of our own ---


def paths_of_the_lab(ev: int, destination: bytes) -> Srv6Path:
    """As the lab's resolver: only what the controller computed has a path, anything else is a KeyError."""
    return {(hop, THEIRS): Srv6Path(bytes(14) + hop.to_bytes(2, "big")) for hop in range(8)}[ev >> 16, destination]


UNIVERSES = {
    "auto": EvConfig(count=16, active=8),
    "udp": EvConfig(fmt=EvFormat.UDP16, count=16, active=8),
    "srv6": EvConfig(
        mode=EvMode.EXPLICIT,
        fmt=EvFormat.SRV6_USID128,
        values=[[hop << 16 | i for hop in range(plane, 8, 2) for i in range(2)] for plane in range(2)],
        count=16,
        active=8,
        resolver=paths_of_the_lab,
    ),
}


def endpoint(ev: EvConfig) -> Endpoint:
    config = EndpointConfig(
        address=MINE, wire=WireConfig(mtu=MTU), ports=PortsConfig(count=2), ev=ev, cc=NsccConfig(),
        reliability=ReliabilityConfig(timeout=8),
    )  # fmt: skip
    return Endpoint(config, random.Random(3))


def connected(core: Endpoint, address: bytes = THEIRS) -> Any:
    qp = core.create_qp(core.create_cq())
    document = core.local_attributes(qp)
    text = ":".join(address.hex()[i : i + 4] for i in range(0, 32, 4))
    core.connect(qp, document | {"address": text, "qpn": 99, "psn": 1_000, "instance": 5}, 0)
    core.post_recv(qp, 1, 100)
    return qp


def drain(core: Endpoint, now: int) -> list[bytes]:
    packets = []
    for port in range(2):
        while batch := core.datagrams_to_send(port, now, 100_000):
            packets += batch
    return packets


@pytest.mark.parametrize("name", list(UNIVERSES))
def test_request_of_an_unknown_peer_causes_no_fault(name: str) -> None:
    core = endpoint(UNIVERSES[name])
    connected(core)
    codec = core.context.codec
    for op in range(4):
        core.receive_datagram(0, codec.encode_endpoint_request(STRANGER + MINE, 5, 184, 7, op, 0, 5), 0)
    drops = core.statistics().drops
    assert core.context.counters.faults == 0
    if name == "srv6":
        assert drops["no_path"] == 1
    else:
        assert [wire.decode(p).bth.opcode for p in drain(core, 0)] == [Opcode.ENDPOINT_RESPONSE]


def some_packet(rng: random.Random, core: Endpoint, qp: Any, region: Any) -> bytes:
    """Any opcode with a right ICRC, from the peer, a stranger, ourselves, or nobody; to right and wrong queue pairs."""
    codec = core.context.codec
    source = rng.choice((THEIRS, THEIRS, STRANGER, MINE, bytes(16), rng.randbytes(16)))
    ends = source + rng.choice((MINE, MINE, MINE, THEIRS))
    number = rng.choice((qp.number, qp.number, 2, 0, 1, rng.getrandbits(24)))
    u16, u24, u32 = rng.getrandbits(16), rng.getrandbits(24), rng.getrandbits(32)
    values = qp.evs.universe.values
    ev = rng.choice((rng.choice(values), u32))
    seen = rng.choice((rng.choice(values), rng.getrandbits(32)))
    psn = rng.choice((qp.requestor.board.nxt - 1 & 0xFFFFFF, qp.responder.cack + 1 & 0xFFFFFF, u24))
    flags = rng.choice((0, 0x80, 0x20, 0xA0))
    what = rng.randrange(7)
    if what == 0:
        size = rng.choice((0, 4, MTU, 2 * MTU))
        return codec.encode_data(
            ends, ev, rng.choice((18, 19)), rng.randrange(0xC6, 0xCC), number, psn, flags, u16,
            rng.choice((1, u16)), u16, rng.choice((region.va, u32)), rng.choice((region.rkey, u32)),
            rng.choice((size, 3 * MTU, u32)), bytes(size), u32,
        )  # fmt: skip
    if what == 1:
        return codec.encode_sack(
            ends, ev, 184, number, flags, rng.randrange(4), rng.randrange(2), rng.randrange(-0x8000, 0x8000), seen,
            u16, u16, psn, rng.randrange(16), rng.randrange(16), rng.getrandbits(8), rng.randrange(-0x8000, 0x8000),
            rng.getrandbits(64), u16, rng.getrandbits(15), rng.randrange(2), rng.getrandbits(7), u24,
        )  # fmt: skip
    if what == 2:
        reason = rng.choice((1, 2, 6, 7, 10, 11, 0x19, rng.getrandbits(8)))
        return codec.encode_nack(ends, ev, 184, number, psn, reason, seen, u16, u16, u16)
    if what == 3:
        return codec.encode_ack(ends, ev, 184, number, psn, rng.getrandbits(8), u24)
    if what == 4:
        return codec.encode_probe(ends, ev, 18, number, u16, u16, u16, u16)
    if what == 5:
        return codec.encode_endpoint_request(ends, ev, 184, u16, rng.randrange(4), u32, u16, dest_qp=number)
    return codec.encode_endpoint_response(ends, ev, 184, u16, rng.randrange(4), u16, dest_qp=number)


@pytest.mark.parametrize("name", list(UNIVERSES))
@pytest.mark.parametrize("seed", range(4))
def test_random_valid_packets_from_unknown_peers_cause_no_fault(name: str, seed: int) -> None:
    rng = random.Random(f"strangers-{name}-{seed}")
    core = endpoint(UNIVERSES[name])
    now = 0
    region = core.register_memory(bytearray(64 * 1024))
    qp = connected(core)
    for _ in range(4_000):
        now += rng.randrange(100_000)
        if qp.state is not QpState.RTS:
            core.destroy_qp(qp, now)
            qp = connected(core)
        if rng.random() < 0.1 and qp.state is QpState.RTS:
            core.post_write(qp, region, 0, 1, 1, length=rng.choice((0, MTU, 5 * MTU)))
        if rng.random() < 0.02:
            core.set_port_state(rng.randrange(2), rng.random() < 0.6, now)
        packet = some_packet(rng, core, qp, region)
        if rng.random() < 0.4:  # as it arrives in an SRv6 fabric
            packet = wire_encapsulate(rng, packet)
        core.receive_datagram(rng.randrange(2), packet, now)
        drain(core, now)
        due = core.next_timer()
        if due is not None and due <= now:
            core.handle_timer(now)
        while (event := core.next_event()) is not None:
            assert not isinstance(event, Fault), event.detail
    assert core.context.counters.faults == 0
    assert core.context.counters.datagrams_received == 4_000
    assert len(core.peers) == 1


def wire_encapsulate(rng: random.Random, packet: bytes) -> bytes:

    return encapsulate(
        packet, rng.randbytes(16), rng.randbytes(16), tuple(rng.randbytes(16) for _ in range(rng.randrange(3)))
    )


@pytest.mark.parametrize("where", ["a packet", "sending", "timer"])
@pytest.mark.parametrize("broken", [False, True])
def test_a_fault_of_ours_closes_one_peer_and_the_rest_goes_on(where: str, broken: bool) -> None:
    b = Bench(NetConfig(trim_bytes=None, ecn=None), 3, wire=WireConfig(mtu=MTU), cc=WIDE,
              reliability=ReliabilityConfig(timeout=8))  # fmt: skip
    b.keep_events = True
    one, two, three = (b.add_host() for _ in range(3))
    ill = [b.connect(one, two), b.connect(one, two)]
    well = b.connect(one, three)
    for connection in (*ill, well):
        b.post(connection, 200 * MTU)
    b.net.run(lambda: len(ill[0].qp.requestor.board.outstanding) > 5, max_time_ns=MS)

    qp = ill[0].qp
    board, recovery = qp.requestor.board, qp.requestor.recovery
    if where == "a packet":  # what every SACK asks
        qp.requestor.detector = failing(LossDetector, "infer")(board, qp.requestor.rtt, True, True)
    elif where == "sending":
        request = qp.requestor.unacked[0]
        request.whole, request.view = None, failing(bytes, "__getitem__")()
    else:  # what the timeout and the tail timer look at first
        board.slow = failing(dict, "items")(board.slow)
        recovery._unacked = failing(deque, "__bool__")(recovery._unacked)
    if broken:  # even what closes it
        board.guessed = failing(dict, "clear")(board.guessed)
    b.net.run(lambda: well.qp.requestor.counters.requests_completed == 1, max_time_ns=100 * MS)
    b.post(well, 50 * MTU)
    b.net.run(lambda: well.qp.requestor.counters.requests_completed == 2, max_time_ns=100 * MS)
    if where == "timer":
        b.net.set_link(two, 0, False)
        b.post(ill[1], 200 * MTU)
        b.net.run(max_time_ns=50 * MS)
    assert [c.qp.error for c in ill] == [ErrorReason.INTERNAL] * 2
    assert well.qp.state is QpState.RTS
    faults = [event for _, _, event in b.events if isinstance(event, Fault)]
    assert len(faults) == 1  # told once
    assert faults[0].peer == two.address
    assert "planted" in faults[0].error
    assert "planted" in faults[0].detail
    assert where in faults[0].where
    assert one.core.statistics().endpoint["faults"] >= 1
    closed = [event for _, index, event in b.events if index == 0 and isinstance(event, QpStateChanged)]
    assert [event.qpn for event in closed if event.reason is ErrorReason.INTERNAL] == [c.qp.number for c in ill]


def failing(kind: type, method: str) -> Any:
    """Return a class with a bug in one of its methods: so a fault can be planted in compiled code, too."""

    def fail(self: object, *arguments: Any) -> Any:
        raise RuntimeError("planted")

    return type("Failing", (kind,), {method: fail})
