"""The RoCEv2 RC baseline: codec, go-back-N, acknowledgements, errors, DCQCN."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mrc_host.proto.completion import CompletionStatus
from mrc_host.proto.config import EndpointConfig, WireConfig
from mrc_host.proto.congestion.dcqcn import Dcqcn, DcqcnConfig
from mrc_host.proto.events import ErrorReason, PortChanged, QpError, QpState, QpStateChanged
from mrc_host.proto.limits import ConfigError
from mrc_host.proto.roce import messages as roce_wire
from mrc_host.proto.roce.codec import RoceCodec
from mrc_host.proto.roce.endpoint import RoceConfig, RoceEndpoint
from mrc_host.proto.wire import fields, packet
from mrc_host.proto.wire.fields import ROCE_LAYOUTS, RoceOpcode
from mrc_host.proto.wire.packet import Drop, WireError
from support.proto.net import Impairment, NetConfig, drop_psns, flip_bits, opcode_of, psn_of
from support.proto.workload import Bench, pair

MS = 1_000_000


def factory(**settings: Any) -> Any:
    def make(config: EndpointConfig, rng: random.Random) -> RoceEndpoint:
        values: dict[str, Any] = {"timeout": 8, "initial_psn": 100} | settings
        rate = config.cc.line_rate_bps
        return RoceEndpoint(RoceConfig(config.address, config.wire, config.ports, line_rate_bps=rate, **values), rng)

    return make


# --- codec ---


@given(
    st.sampled_from([op for op in RoceOpcode if RoceOpcode.WRITE_FIRST <= op <= RoceOpcode.WRITE_ONLY_IMM]),
    st.binary(max_size=50),
    st.integers(0, (1 << 64) - 1),
    st.integers(0, (1 << 24) - 1),
)
def test_write_packets_agree_with_the_readable_codec(opcode: RoceOpcode, payload: bytes, va: int, psn: int) -> None:
    codec = RoceCodec()
    made = codec.encode_write(bytes(range(32)), 0x1234C001, 2, opcode, 9, psn, True, va, 7, 1000, 0xFEED, payload)
    whole = packet.decode(made, ROCE_LAYOUTS)
    assert packet.encode(whole, ROCE_LAYOUTS) == made
    assert (whole.bth.psn, whole.bth.dest_qp, whole.payload, whole.entropy) == (psn, 9, payload, 0x1234C001)
    if whole.reth is not None:
        assert (whole.reth.va, whole.reth.rkey, whole.reth.dma_length) == (va, 7, 1000)
    back = codec.decode_roce(made)
    assert isinstance(back, roce_wire.RoceData)
    assert (back.psn, back.ack_req, bytes(back.payload), back.entropy) == (psn, True, payload, 0x1234C001)
    assert back.va == (va if opcode in roce_wire.WITH_RETH else 0)
    assert back.immediate == (0xFEED if opcode in roce_wire.WITH_IMM else 0)
    for end in range(len(made)):
        with pytest.raises(WireError, match="short"):
            codec.decode_roce(made[:end])
    with pytest.raises(WireError, match="trailing"):
        codec.decode_roce(made + b"\0")


def test_acknowledge_and_cnp_decode_to_what_was_encoded() -> None:
    codec = RoceCodec()
    ack = codec.encode_acknowledge(bytes(32), 1, 184, 9, 77, 0x60, 3)
    assert packet.decode(ack, ROCE_LAYOUTS).aeth == fields.Aeth(syndrome=0x60, msn=3)
    assert codec.decode_roce(ack) == roce_wire.RoceAck(0x11, 9, 77, bytes(32), 0xFFFF, 0x60, 3)
    cnp = codec.encode_cnp(bytes(32), 1, 184, 9)
    assert codec.decode_roce(cnp) == roce_wire.Cnp(0x81, 9, bytes(32), 0xFFFF)
    assert cnp[52] == 0x40  # BECN
    assert packet.decode(cnp, ROCE_LAYOUTS).payload == bytes(16)


def test_codec_refuses_by_reason() -> None:
    codec = RoceCodec()
    ack = codec.encode_acknowledge(bytes(32), 1, 184, 9, 77, 0x60, 3)
    mrc = codec.encode_ack(bytes(32), 1, 184, 9, 77, 0x1F, 3)
    cases = [
        (b"\x40" + ack[1:], Drop.VERSION),
        (ack[:6] + b"\x2b" + ack[7:], Drop.NEXT_HEADER),
        (ack[:42] + b"\0\0" + ack[44:], Drop.PORT),
        (ack[:44] + b"\0\1" + ack[46:], Drop.LENGTH),
        (ack[:49] + b"\1" + ack[50:], Drop.TVER),
        (ack[:-1] + bytes([ack[-1] ^ 1]), Drop.ICRC),
        (ack[:46] + b"\1" + ack[47:-1] + bytes([ack[-1] ^ 1]), Drop.ICRC),
        (mrc, Drop.OPCODE),
    ]
    for number, (bad, reason) in enumerate(cases):
        with pytest.raises(WireError) as caught:
            codec.decode_roce(bad)
        assert caught.value.reason is reason, number
    loose = RoceCodec(check_icrc=False)
    for opcode in (0x0A, 0x0B, 0x09):  # an ACK's length is too short for their headers
        with pytest.raises(WireError, match="length"):
            loose.decode_roce(ack[:48] + bytes([opcode]) + b"\x30" + ack[50:])


# --- go-back-N ---


def sent_psns(bench: Bench) -> list[int]:
    psns: list[int] = []

    def watch(time: int, kind: str, host: Any, port: int, path: int, data: bytes) -> None:
        if kind == "sent" and opcode_of(data) <= RoceOpcode.WRITE_ONLY_IMM:
            psns.append(psn_of(data))

    bench.net.watchers.append(watch)
    return psns


def test_one_lost_packet_sends_everything_after_it_again() -> None:
    bench, connection = pair(NetConfig(), 1, factory=factory())
    bench.net.rules.append(drop_psns([105]))
    psns = sent_psns(bench)
    bench.post(connection, 20 * 4096)
    bench.run(max_time_ns=MS)
    assert psns[:6] == [100, 101, 102, 103, 104, 105]
    again = psns.index(105, 6)
    assert psns[:again] == list(range(100, 100 + again))  # went on until the NAK came
    assert psns[again:] == list(range(105, 120))  # and back
    mine, peer = (h.core.statistics().endpoint for h in (connection.source, connection.target))
    assert peer["naks_sent"] == 1
    assert peer["payload_bytes_placed"] == 20 * 4096
    assert mine["retransmissions"] == len(psns) - 20
    connection.source.core.destroy_qp(connection.qp, bench.net.now)
    assert connection.source.core.statistics().endpoint == mine  # a queue pair's counts outlive it
    assert bench.net.now < 1024 << 8  # no timeout was needed


def test_last_packet_lost_waits_for_the_timeout() -> None:
    bench, connection = pair(NetConfig(), 1, factory=factory())
    bench.net.rules.append(drop_psns([119]))
    bench.post(connection, 20 * 4096)
    bench.run(max_time_ns=10 * MS)
    assert bench.net.now > 1024 << 8
    assert connection.source.core.statistics().endpoint["timeouts"] == 1


@pytest.mark.parametrize("selective", [False, True])
def test_the_timeout_begins_when_an_acknowledgement_is_asked_for(selective: bool) -> None:
    """As IBTA has it: a message that takes longer to send than the timeout (paced, or one of many queue pairs) waits
    for nothing yet."""
    settings = {"timeout": 6, "ack_every": 512, "selective_repeat": selective}
    bench, connection = pair(NetConfig(), 1, factory=factory(**settings))
    bench.post(connection, 500 * 4096)
    bench.run(max_time_ns=MS)
    mine = connection.source.core.statistics().endpoint
    assert bench.net.now > 2 * (1024 << 6)
    assert connection.target.core.statistics().endpoint["payload_bytes_placed"] == 500 * 4096
    assert (mine["timeouts"], mine["retransmissions"]) == (0, 0)


def test_acknowledgements_are_coalesced() -> None:
    bench, connection = pair(NetConfig(), 1, factory=factory(ack_every=16))
    bench.post(connection, 640 * 4096)
    bench.run(max_time_ns=10 * MS)
    assert connection.target.core.statistics().endpoint["acks_sent"] == 40


def test_selective_repeat_sends_only_what_is_missing() -> None:
    bench, connection = pair(NetConfig(), 1, factory=factory(selective_repeat=True))
    bench.net.rules.append(drop_psns([103, 105, 106]))
    psns = sent_psns(bench)
    bench.post(connection, 20 * 4096)
    bench.run(max_time_ns=MS)
    assert sorted(psns) == sorted([*range(100, 120), 103, 105, 106])
    mine, peer = (h.core.statistics().endpoint for h in (connection.source, connection.target))
    assert mine["retransmissions"] == 3
    assert peer["payload_bytes_placed"] == 20 * 4096
    assert bench.net.now < 1024 << 8  # no timeout was needed


def test_selective_repeat_of_a_lost_repeat_waits_for_the_timeout() -> None:
    bench, connection = pair(NetConfig(), 1, factory=factory(selective_repeat=True))
    bench.net.rules.append(drop_psns([103, 105]))
    bench.net.rules.append(drop_psns([105]))
    psns = sent_psns(bench)
    bench.post(connection, 20 * 4096)
    bench.run(max_time_ns=10 * MS)
    assert connection.source.core.statistics().endpoint["timeouts"] == 1
    assert psns.count(103) == 2
    assert psns.count(105) == 3
    assert len(psns) == 20 + 3


@pytest.mark.parametrize("selective", [False, True])
def test_transfer_completes_across_the_psn_wrap(selective: bool) -> None:
    bench, connection = pair(NetConfig(), 3, factory=factory(initial_psn=0xFFFFF8, selective_repeat=selective))
    bench.net.rules.append(drop_psns([0xFFFFFF, 0, 1]))
    for number in range(10):
        bench.post(connection, 3 * 4096 + number, immediate=number)
    bench.run(max_time_ns=10 * MS)
    assert connection.immediates == list(range(10))
    assert bench.statuses() == {"SUCCESS": 10}


@pytest.mark.parametrize("selective", [False, True])
@pytest.mark.parametrize("seed", range(6))
def test_every_byte_arrives_once_over_an_impaired_network(seed: int, selective: bool) -> None:
    """Every byte arrives, once, in order, whatever the network does to packets."""
    harm = Impairment(loss=0.03, reorder=0.05, duplicate=0.05, corrupt=0.03)
    made = factory(max_inflight_packets=16, selective_repeat=selective)
    bench = Bench(NetConfig(planes=2, impairment=harm), seed, factory=made)
    a, b = bench.add_host(), bench.add_host()
    connections = [bench.connect(*ends) for ends in ((a, b), (a, b), (b, a))]
    rng = random.Random(seed)
    for number in range(24):
        size = rng.choice([0, 1, 4095, 4096, 4097, rng.randrange(60_000)])
        bench.post(connections[number % 3], size, immediate=number if rng.random() < 0.5 else None)
    bench.run(max_time_ns=2_000 * MS)
    bench.settle(5 * MS)
    assert bench.statuses() == {"SUCCESS": 24}


def test_mutated_packets_do_not_harm_the_endpoint() -> None:
    bench, connection = pair(NetConfig(), 5, factory=factory())
    rng = random.Random(5)

    def mutate(time: int, kind: str, host: Any, port: int, path: int, data: bytes) -> None:
        if kind == "received":
            for _ in range(3):
                host.core.receive_datagram(0, flip_bits(data, rng), time)
            host.core.receive_datagram(0, data[: rng.randrange(len(data))], time)

    bench.net.watchers.append(mutate)
    for number in range(30):
        bench.post(connection, 9000, immediate=number)
    bench.run(max_time_ns=1_000 * MS)
    bench.settle(MS)
    assert bench.statuses() == {"SUCCESS": 30}
    drops = connection.target.core.statistics().drops
    assert drops["icrc"] > 50
    assert drops["short"] > 50


# --- errors ---


def test_retry_count_exceeded_flushes() -> None:
    bench, connection = pair(NetConfig(), 1, factory=factory(retry_cnt=2))
    bench.keep_events = True
    bench.net.set_path(False)
    for _ in range(3):
        bench.post(connection, 5000)
    bench.run(max_time_ns=100 * MS)
    assert [w.status for w in bench.writes] == [
        CompletionStatus.RETRY_EXC_ERR,
        CompletionStatus.WR_FLUSH_ERR,
        CompletionStatus.WR_FLUSH_ERR,
    ]
    change = bench.events[-2][2] if isinstance(bench.events[-2][2], QpStateChanged) else bench.events[-1][2]
    assert change == QpStateChanged(connection.qp.number, QpState.RTS, QpState.ERROR, ErrorReason.RETRY_EXCEEDED)
    assert bench.net.now == pytest.approx(3 * (1024 << 8), rel=0.02)
    late = bench.post(connection, 10)
    bench.run(max_time_ns=MS)
    assert late.status is CompletionStatus.WR_FLUSH_ERR


@pytest.mark.parametrize("how", ["rkey", "bounds", "read-only"])
def test_access_violation_ends_both_queue_pairs(how: str) -> None:
    bench, connection = pair(NetConfig(), 1, factory=factory())
    memory = bytearray(b"\xee" * 8192)
    region = connection.target.core.register_memory(memory, writable=how != "read-only")
    bench.outstanding = 2
    core, rkey, va = connection.source.core, region.rkey, region.va
    for wr_id, size in ((0, 8192), (1, 1)):
        bench._open[0, wr_id] = write = bench_write(connection, wr_id, size)
        bench.writes.append(write)
    core.post_write(connection.qp, bytes(8192), va + (4096 if how == "bounds" else 0), rkey ^ (how == "rkey"), 0)
    core.post_write(connection.qp, b"x", va, rkey, 1)
    bench.net.touch(connection.source)
    bench.verify = False
    bench.run(max_time_ns=10 * MS)
    assert [w.status for w in bench.writes] == [
        CompletionStatus.REM_ACCESS_ERR,
        CompletionStatus.WR_FLUSH_ERR,
    ]
    assert connection.qp.state is connection.peer.state is QpState.ERROR
    assert memory == b"\xee" * 8192


def bench_write(connection: Any, wr_id: int, size: int) -> Any:
    from support.proto.workload import Write

    return Write(connection, wr_id, bytes(size), bytearray(), None, 0)


def test_immediate_without_a_receive_waits_for_one() -> None:
    bench, connection = pair(NetConfig(), 1, factory=factory())
    core, peer = connection.source.core, connection.target.core
    target = bytearray(10)
    region = peer.register_memory(target)
    bench._open[0, 0] = write = bench_write(connection, 0, 10)
    bench.verify = False
    bench.outstanding = 1
    core.post_write_imm(connection.qp, b"0123456789", region.va, region.rkey, 5, 0)
    bench.net.touch(connection.source)
    bench.net.run(max_time_ns=MS)
    assert write.status is None
    assert peer.statistics().endpoint["naks_sent"] > 3
    peer.post_recv(connection.peer, 8)
    bench.run(max_time_ns=MS)
    assert write.status is CompletionStatus.SUCCESS
    assert connection.immediates == [5]
    assert target == b"0123456789"


def test_timeout_repeats_a_packet_that_was_kept_early_and_then_refused_for_lack_of_a_receive() -> None:
    """The selective responder drops an early packet that it refuses with an RNR NAK, so the requestor must forget that
    the packet had arrived: when its repetition is lost, the timeout must send it again."""
    bench, connection = pair(NetConfig(), 1, factory=factory(selective_repeat=True))
    core, peer = connection.source.core, connection.target.core
    psns = sent_psns(bench)
    lost: list[int] = []

    def lose(net: Any, host: Any, plane: int, index: int, data: bytes) -> str | None:
        psn = psn_of(data) if opcode_of(data) <= RoceOpcode.WRITE_ONLY_IMM else 0
        if (psn == 100 and 100 not in lost) or (psn == 101 and psns.count(101) == 2):
            lost.append(psn)
            return "drop"
        return None

    bench.net.rules.append(lose)
    region = peer.register_memory(bytearray(64))
    writes = [bench_write(connection, number, 1) for number in (0, 1)]
    bench._open.update({(0, number): write for number, write in enumerate(writes)})
    bench.verify = False
    bench.outstanding = 2
    core.post_write(connection.qp, b"0", region.va, region.rkey, 0)
    core.post_write_imm(connection.qp, b"1", region.va, region.rkey, 5, 1)
    bench.net.touch(connection.source)
    bench.net.run(max_time_ns=200_000)
    assert lost == [100, 101]
    peer.post_recv(connection.peer, 8)
    bench.run(max_time_ns=10 * MS)
    assert [write.status for write in writes] == [CompletionStatus.SUCCESS] * 2
    assert core.statistics().endpoint["timeouts"] == 1
    assert psns == [100, 101, 100, 101, 101]
    assert connection.immediates == [5]


def test_verbs_refuse_what_the_state_does_not_allow() -> None:
    make = factory()
    config = EndpointConfig(bytes(16))
    one, two = make(config, random.Random(1)), make(config, random.Random(2))
    cq = one.create_cq()
    qp = one.create_qp(cq)
    with pytest.raises(QpError, match="posting needs RTS"):
        one.post_write(qp, b"x", 0, 0, 1)
    with pytest.raises(QpError, match="connect needs INIT"):
        one.connect(qp, {}, 0)
    mine = one.local_attributes(qp)
    with pytest.raises(QpError, match="lack address, initial_psn, mtu"):
        one.connect(qp, {"qpn": 1}, 0)
    with pytest.raises(QpError, match="MTU is 1024, ours 4096"):
        one.connect(qp, mine | {"mtu": 1024}, 0)
    with pytest.raises(QpError, match="speaks mrc"):
        one.connect(qp, mine | {"transport": "mrc"}, 0)
    one.connect(qp, two.local_attributes(two.create_qp(two.create_cq())), 0)
    with pytest.raises(ValueError, match="leave the local buffer of 4 bytes"):
        one.post_write(qp, b"four", 0, 0, 1, local_offset=2, length=3)
    with pytest.raises(ConfigError, match=r"roce\.retry_cnt is 8; allowed: 0 to 7"):
        RoceConfig(bytes(16), retry_cnt=8)
    with pytest.raises(ConfigError, match="is one of IPv4"):
        RoceConfig(bytes(4))


def test_unknown_queue_pair_and_wrong_key_are_counted() -> None:
    _bench, connection = pair(NetConfig(), 1, factory=factory())
    core = connection.target.core
    addresses = connection.source.address + connection.target.address
    for codec, qp, source in (
        (RoceCodec(), 1, addresses),
        (RoceCodec(p_key=7), connection.peer.number, addresses),
        (RoceCodec(), connection.peer.number, bytes(16) + addresses[16:]),
    ):
        core.receive_datagram(
            0, codec.encode_write(source, 1, 2, RoceOpcode.WRITE_ONLY, qp, 100, True, 0, 0, 0, 0, b""), 0
        )
    assert core.statistics().drops == {"unknown_qp": 1, "p_key": 1, "wrong_peer": 1}


# --- ports ---


def test_queue_pairs_spread_over_ports_and_leave_a_dead_one() -> None:
    bench = Bench(NetConfig(planes=4), 1, factory=factory())
    a, b = bench.add_host(), bench.add_host()
    bench.keep_events = True
    connections = [bench.connect(a, b) for _ in range(8)]
    assert [c.qp.port for c in connections] == [0, 1, 2, 3] * 2
    for connection in connections:
        for _ in range(40):
            bench.post(connection, 65536)
    bench.net.flap(bench.net.set_link, 20_000, 300_000, a, 1)
    moved: list[int] = []
    bench.net.at(100_000, lambda: moved.extend(c.qp.port for c in connections))
    bench.run(max_time_ns=1_000 * MS)
    bench.settle(MS)
    assert bench.statuses() == {"SUCCESS": 320}
    assert 1 not in moved
    assert [c.qp.port for c in connections] == [0, 1, 2, 3] * 2
    assert [e for _, host, e in bench.events if isinstance(e, PortChanged)] == [
        PortChanged(1, False, None),
        PortChanged(1, True, None),
    ]


# --- DCQCN ---


def test_cnp_cuts_and_recovery_comes_back() -> None:
    control = Dcqcn(DcqcnConfig(), 100_000_000_000)
    assert control.deadline is None
    control.on_cnp(1_000_000)
    assert control.rate == 50e9
    assert control.target == 100e9
    assert control.deadline == 1_055_000
    rates: list[float] = []
    while control.deadline is not None:
        control.on_timer(control.deadline)
        rates.append(control.rate)
    assert rates == sorted(rates)
    assert rates[:3] == [75e9, 87.5e9, 93.75e9]  # fast recovery halves the distance
    assert rates[-1] == 100e9
    control.on_cnp(100_000_000)
    assert 50e9 < control.rate < 100e9  # alpha has decayed while it was quiet


def test_byte_counter_leads_to_hyper_increase() -> None:
    slow = DcqcnConfig(byte_counter=1000, minimum_bps=1_000_000)
    control = Dcqcn(slow, 100_000_000_000)
    for number in range(30):
        control.on_cnp(1_000_000 + number * 1000)
    low = control.rate
    control.target = low
    for _ in range(5):
        control.on_sent(1000)
    assert control.rate == low == control.target  # fast recovery: the target is where it was
    control.on_sent(1000)
    assert control.target == low + 100e6  # additive, by a thousandth of the line rate
    for _ in range(6):
        assert control.deadline is not None
        control.on_timer(control.deadline)
    assert control.target >= low + 1e9  # hyper: both the timer and the counter are past fast recovery


def test_a_cut_begins_the_rounds_and_their_bytes_afresh() -> None:
    control = Dcqcn(DcqcnConfig(byte_counter=1000), 100_000_000_000)
    control.on_cnp(1_000_000)
    for _ in range(5):
        control.on_sent(1000)
    control.on_sent(999)
    control.on_cnp(1_001_000)
    cut, target = control.rate, control.target
    control.on_sent(999)
    assert control.rate == cut
    control.on_sent(1)
    assert (control.rate, control.target) == ((cut + target) / 2, target)


def test_disabled_control_keeps_line_rate() -> None:
    control = Dcqcn(DcqcnConfig(enabled=False), 10**9)
    control.on_cnp(5)
    assert control.rate == 10**9
    with pytest.raises(ConfigError, match=r"dcqcn\.g is 2"):
        DcqcnConfig(g=2)


def test_marked_flow_slows_down_and_gets_at_most_one_cnp_per_interval() -> None:
    """Two senders into one path of the same rate: CNPs flow, nothing is dropped, both finish."""
    bench = Bench(
        NetConfig(paths=1, ecn=(20_000, 80_000), queue_bytes=10**9, trim_bytes=None, port_queue_bytes=10**9),
        2,
        factory=factory(timeout=14),
    )
    senders = [bench.add_host(group=0), bench.add_host(group=0)]
    receivers = [bench.add_host(group=1), bench.add_host(group=1)]
    connections = [bench.connect(a, b) for a, b in zip(senders, receivers, strict=True)]
    cnps: dict[int, list[int]] = {}

    def watch(time: int, kind: str, host: Any, port: int, path: int, data: bytes) -> None:
        if kind == "sent" and opcode_of(data) == RoceOpcode.CNP:
            cnps.setdefault(host.index, []).append(time)

    bench.net.watchers.append(watch)
    for connection in connections:
        bench.post(connection, 4_000_000)
    bench.net.run(max_time_ns=300_000)
    shares = [host.received_bytes[0] for host in receivers]
    assert min(shares) > 0.7 * max(shares)
    bench.run(max_time_ns=100 * MS)
    assert len(cnps) == 2
    for times in cnps.values():
        assert all(after - before >= 49_000 for before, after in itertools.pairwise(times))
    assert all(host.core.statistics().qps[0].retransmissions == 0 for host in senders)
    assert sum(queue.dropped for queue in bench.net.paths()) == 0


def test_transfer_with_a_small_mtu_takes_more_packets() -> None:
    bench, connection = pair(NetConfig(), 1, factory=factory(), wire=WireConfig(mtu=256))
    bench.post(connection, 10_001)
    bench.run(max_time_ns=MS)
    assert bench.statuses() == {"SUCCESS": 1}
    assert connection.source.core.statistics().qps[0].packets_sent == 40
