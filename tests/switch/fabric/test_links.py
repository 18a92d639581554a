"""Traffic manager, links and impairments, in virtual time."""

from __future__ import annotations

import itertools
import math
import struct
from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import pytest
from hypothesis import given
from hypothesis import strategies as st

from p4lite.switch.fabric import outside
from p4lite.switch.fabric.fabric import Fabric, FabricError, FabricSwitch, LinkSettings, Port
from p4lite.switch.fabric.values import BurstLoss, QueueLimits
from support.pcapng import blocks
from support.switch.hand_program import HandProgram, Op, packet
from support.switch.words import words

MBPS_8 = LinkSettings(rate_bps=8 * 10**6)  # one byte per µs


def one_switch(ports: int = 2, **options: int) -> tuple[Fabric, FabricSwitch]:
    fabric = Fabric("virtual", seed=3)
    switch = fabric.add_switch(1, **options)  # type: ignore[arg-type]
    switch.load(HandProgram())  # type: ignore[arg-type]
    for number in range(1, ports + 1):
        switch.add_port(number)
    return fabric, switch


def burst(fabric: Fabric, port: Port, count: int, *, at_ns: int = 0, size: int = 100, priority: int = 0) -> None:
    for i in range(count):
        frame = packet(Op.FORWARD, 2, priority=priority, size=size, stamp=False, fill=i % 256)
        fabric.inject(port, frame, at_ns)


def test_rate_and_delay_to_the_nanosecond() -> None:
    fabric, switch = one_switch()
    switch.port(2).set_link(outgoing=LinkSettings(rate_bps=3 * 10**9, delay_ns=777, overhead_bytes=24))
    burst(fabric, switch.port(1), 30)
    times = [t for t, *_ in fabric.run_until(10**6)]
    # fractions of a nanosecond are carried on: the k-th packet ends after k * 124 * 8 / 3 ns
    assert times == [777 + math.floor(k * 124 * 8 / 3) for k in range(1, 31)]


def test_a_port_without_rate_sends_at_once() -> None:
    fabric, switch = one_switch()
    burst(fabric, switch.port(1), 500)
    assert [t for t, *_ in fabric.run_until(0)] == [0] * 500
    assert switch.port(2).stats().queues[0].max_packets == 1


def test_tail_drop_in_packets_and_bytes() -> None:
    for limits, kept in (
        (QueueLimits(), 64),
        (QueueLimits(packets=10), 10),
        (QueueLimits(packets=0, bytes=1250), 12),
        (QueueLimits(packets=0), 200),
    ):
        fabric, switch = one_switch()
        port = switch.port(2)
        port.set_link(outgoing=MBPS_8)
        port.set_queue(limits)
        burst(fabric, switch.port(1), 1)
        fabric.run_until(1)  # one is on the wire, so the queue takes just its capacity
        burst(fabric, switch.port(1), 200, at_ns=1)
        out = fabric.run_until(10**9)
        queue = port.stats().queues[0]
        assert len(out) == kept + 1
        assert (queue.enqueued_packets, queue.dropped_packets) == (kept + 1, 200 - kept)
        assert (queue.enqueued_bytes, queue.dropped_bytes) == ((kept + 1) * 100, (200 - kept) * 100)
        assert port.stats().drops["queue_full"] == 200 - kept
        assert (queue.max_packets, queue.max_bytes, queue.depth_packets) == (kept, kept * 100, 0)


@pytest.mark.parametrize("limits", [QueueLimits(packets=5), QueueLimits(packets=0, bytes=550)])
def test_buffer_over_all_priorities(limits: QueueLimits) -> None:
    fabric, switch = one_switch(priority_queues=2)
    port = switch.port(2)
    port.set_link(outgoing=MBPS_8)
    port.set_buffer(limits)
    for start in (0, 10**9):
        burst(fabric, switch.port(1), 1, at_ns=start)
        fabric.run_until(start + 1)
        burst(fabric, switch.port(1), 4, at_ns=start + 1)
        burst(fabric, switch.port(1), 4, at_ns=start + 1, priority=1)
        fabric.run_until(start + 1000)
        assert port.stats().drops["buffer_full"] == (3 if start == 0 else 6)
        assert [queue.max_bytes for queue in port.stats().queues[:2]] == [400, 100]
        # What the switch loses when it is stopped takes no room afterwards.
        switch.set_state("stopped")
        switch.set_state("running")
    assert [len(fabric.run_until(10**10)), switch.stats().drops["flushed"]] == [1, 10]


def test_a_new_rate_begins_without_the_rest_of_the_one_before() -> None:
    fabric, switch = one_switch()
    switch.port(2).set_link(outgoing=LinkSettings(rate_bps=3 * 10**11))
    burst(fabric, switch.port(1), 1)
    fabric.run_until(1000)
    switch.port(2).set_link(outgoing=MBPS_8)
    burst(fabric, switch.port(1), 1, at_ns=1000)
    assert [t for t, *_ in fabric.run_until(10**9)] == [101_000]


def test_strict_priority_shares_one_rate() -> None:
    fabric, switch = one_switch(priority_queues=3)
    port = switch.port(2)
    port.set_link(outgoing=MBPS_8)
    for priority in (0, 1, 2, 1, 0, 2):
        burst(fabric, switch.port(1), 4, priority=priority)
    out = fabric.run_until(10**9)
    assert [data[2] for *_, data in out] == [0] + [2] * 8 + [1] * 8 + [0] * 7
    assert [t for t, *_ in out] == [100_000 * k for k in range(1, 25)]


def test_a_late_urgent_packet_overtakes_what_waits() -> None:
    fabric, switch = one_switch(priority_queues=2)
    switch.port(2).set_link(outgoing=MBPS_8)
    burst(fabric, switch.port(1), 10)
    fabric.run_until(250_000)
    burst(fabric, switch.port(1), 1, at_ns=250_000, priority=1)
    assert [data[2] for *_, data in fabric.run_until(10**9)][0:2] == [0, 1]


@given(
    rate=st.integers(10**6, 10**11),
    sizes=st.lists(st.integers(40, 9000), min_size=1, max_size=40),
)
def test_the_rate_holds_over_any_sizes(rate: int, sizes: list[int]) -> None:
    fabric, switch = one_switch()
    switch.port(2).set_link(outgoing=LinkSettings(rate_bps=rate))
    switch.port(2).set_queue(QueueLimits(packets=0))
    for size in sizes:
        fabric.inject(switch.port(1), packet(Op.FORWARD, 2, size=size), 0)
    out = fabric.run_until(10**10)
    assert [len(data) for *_, data in out] == sizes
    assert out[-1][0] == sum(sizes) * 8 * 10**9 // rate
    fabric.close()


def test_host_side_of_an_external_port() -> None:
    fabric, switch = one_switch(1)
    port = switch.add_port(
        2,
        to_switch=LinkSettings(rate_bps=8 * 10**6, delay_ns=5000, host_queue_bytes=250),
        to_host=LinkSettings(delay_ns=300),
    )
    frees = [fabric.inject(port, packet(Op.FORWARD, 2), 1000) for _ in range(4)]
    assert frees == [101_000, 201_000, -1, -1]  # the third would leave 300 bytes waiting
    assert [t for t, *_ in fabric.run_until(10**6)] == [106_300, 206_300]
    assert port.stats().drops["host_queue_full"] == 2


def test_advance_lets_hosts_answer_in_time() -> None:
    fabric, switch = one_switch(0)
    delay = LinkSettings(delay_ns=1000)
    ports = [switch.add_port(n, to_switch=delay, to_host=LinkSettings(delay_ns=50)) for n in (1, 2)]
    for at in (0, 400, 800, 1200):
        fabric.inject(ports[0], packet(Op.FORWARD, 2, fill=1), at)
    seen: list[tuple[int, int]] = []
    while batch := fabric.advance(10**6):
        assert fabric.now_ns < batch[0][0] + 1000
        for time_ns, _, port, _ in batch:
            seen.append((time_ns, port))
            if port == 2:
                fabric.inject(ports[1], packet(Op.FORWARD, 1, fill=2), time_ns)
    assert seen == [
        (1050, 2),
        (1450, 2),
        (1850, 2),
        (2100, 1),
        (2250, 2),
        (2500, 1),
        (2900, 1),
        (3300, 1),
    ]
    assert fabric.now_ns == 10**6
    with pytest.raises(FabricError, match="past"):
        fabric.inject(ports[0], packet(Op.FORWARD, 2), 10**6 - 1001)


def two_switches(settings: LinkSettings, seed: int = 3) -> tuple[Fabric, FabricSwitch, FabricSwitch]:
    fabric = Fabric("virtual", seed=seed)
    left, right = fabric.add_switch(1), fabric.add_switch(2)
    for switch in (left, right):
        switch.load(HandProgram())  # type: ignore[arg-type]
        switch.add_port(1)
        switch.add_port(2)
    fabric.link(left.port(2), right.port(1), settings)
    return fabric, left, right


def flood(fabric: Fabric, left: FabricSwitch, count: int) -> list[bytes]:
    frames = [packet(Op.FORWARD, 2, stamp=False, size=64, fill=k % 251) for k in range(count)]
    left.port(1).generate(frames, count, interval_ns=1000)
    return frames


def within(observed: float, expected: float, count: int, sigmas: float = 5.0) -> bool:
    """Check that the observed share of `count` trials is no further off than chance explains."""
    return abs(observed - expected) <= sigmas * math.sqrt(expected * (1 - expected) / count)


def test_loss_corruption_duplication_statistics() -> None:
    count = 20_000
    fabric, left, _ = two_switches(LinkSettings(loss=0.1, corrupt=0.05, duplicate=0.02, delay_ns=10))
    frames = flood(fabric, left, count)
    out = fabric.run_until(10**9)
    stats = left.port(2).stats()
    assert within(stats.drops["loss"] / count, 0.1, count)
    kept = count - stats.drops["loss"]
    assert within(stats.corrupted / kept, 0.05, kept)
    assert within(stats.duplicated / kept, 0.02, kept)
    # a damaged header may send a packet anywhere; those with a damaged payload differ in one bit
    good, head = set(frames), frames[0][:40]
    damaged = [data for *_, data in out if data[:40] == head and data not in good]
    assert len(damaged) > 100
    for data in damaged:
        fill = max(set(data[40:]), key=data[40:].count)
        assert sum((byte ^ fill).bit_count() for byte in data[40:]) == 1


def test_burst_loss_statistics() -> None:
    count = 50_000
    chain = BurstLoss(to_bad=0.01, to_good=0.2)
    fabric, left, right = two_switches(LinkSettings(burst_loss=chain))
    left.port(1).generate([packet(Op.FORWARD, 2, stamp=False)], count, interval_ns=1000)
    times = [t // 1000 for t, *_ in fabric.run_until(10**9)]
    lost = sorted(set(range(count)) - set(times))
    assert left.port(2).stats().drops["burst_loss"] == len(lost)
    expected = 0.01 / 0.21
    assert abs(len(lost) / count - expected) < 0.2 * expected
    bursts = sum(1 for i, k in enumerate(lost) if i == 0 or lost[i - 1] != k - 1)
    assert 4.0 < len(lost) / bursts < 6.0  # mean length 1 / to_good = 5
    assert right.port(1).stats().rx_packets == count - len(lost)


def test_burst_loss_in_the_good_state_alone() -> None:
    fabric, left, right = two_switches(LinkSettings(burst_loss=BurstLoss(to_bad=0.0, to_good=0.0, loss_good=1.0)))
    left.port(1).generate([packet(Op.FORWARD, 2, stamp=False)], 3, interval_ns=1000)
    fabric.run_until(10**9)
    assert (left.port(2).stats().drops["burst_loss"], right.port(1).stats().rx_packets) == (3, 0)


def test_reordering() -> None:
    fabric, left, _ = two_switches(LinkSettings(delay_ns=100, reorder=0.1, reorder_extra_ns=2500))
    left.port(1).generate([packet(Op.FORWARD, 2, fill=k) for k in range(100)], 100, interval_ns=1000)
    order = [data[50] for *_, data in fabric.run_until(10**9)]
    late = left.port(2).stats().reordered
    assert sorted(order) == list(range(100))
    assert 0 < late < 30
    assert sum(1 for a, b in itertools.pairwise(order) if a > b) > 0


def test_a_packet_out_of_order_is_lost_with_its_link_even_if_that_is_back_before_it_arrives() -> None:
    fabric, left, right = two_switches(LinkSettings(delay_ns=1000, reorder=1.0, reorder_extra_ns=10_000))
    left.port(1).generate([packet(Op.FORWARD, 2)], 1, interval_ns=1000)
    fabric.run_until(5000)
    for up in (False, True):
        left.port(2).set_up(up, "outgoing")
    fabric.run_until(10**6)
    assert (left.port(2).stats().drops["link_down"], right.port(1).stats().rx_packets) == (1, 0)


def test_packets_on_a_link_are_counted() -> None:
    """Also those that travel past the order of the wire, and none once they have arrived or are cut."""
    fabric, left, right = two_switches(LinkSettings(delay_ns=10_000, reorder=0.3, reorder_extra_ns=5000))
    left.port(1).generate([packet(Op.FORWARD, 2, fill=k) for k in range(40)], 40, interval_ns=1000)
    for now in (500, 9500, 20_500, 39_500, 52_000, 80_000):
        fabric.run_until(now)
        sent, arrived = left.port(2).stats(), right.port(1).stats()
        assert sent.tx_packets == arrived.rx_packets + sent.on_wire
        if now == 20_500:
            assert sent.on_wire >= 10
            assert sent.reordered > 0
    assert sent.on_wire == 0
    left.port(1).generate([packet(Op.FORWARD, 2)], 5, interval_ns=1000)
    fabric.run_until(85_500)
    left.port(2).set_up(False, "outgoing")
    fabric.run_until(200_000)
    sent = left.port(2).stats()
    assert (sent.on_wire, sent.drops["link_down"]) == (0, 5)


def test_delay_shortened_at_run_time_keeps_the_order() -> None:
    fabric, left, _ = two_switches(LinkSettings(delay_ns=10_000))
    left.port(1).generate([packet(Op.FORWARD, 2, fill=k) for k in range(20)], 20, interval_ns=1000)
    fabric.run_until(5500)
    fabric.links[0].set(LinkSettings(delay_ns=10))
    out = fabric.run_until(10**6)
    assert [data[50] for *_, data in out] == list(range(20))
    assert out[-1][0] == 19_010
    fabric, switch = one_switch()
    switch.port(2).set_link(outgoing=LinkSettings(delay_ns=10_000))
    switch.port(1).generate([packet(Op.FORWARD, 2)], 20, interval_ns=1000)
    fabric.run_until(5500)
    switch.port(2).set_link(outgoing=LinkSettings(delay_ns=10))
    times = [t for t, *_ in fabric.run_until(10**6)]
    assert times == [*range(10_000, 15_001, 1000), *[15_000] * 9, *range(15_010, 19_011, 1000)]


def test_blackhole_and_link_down_per_direction() -> None:
    fabric, left, right = two_switches(LinkSettings(delay_ns=1000))
    link = fabric.links[0]
    link.set(LinkSettings(delay_ns=1000, blackhole=True), "a_to_b")
    burst(fabric, left.port(1), 3)
    assert fabric.run_until(10_000) == []
    assert left.port(2).stats().drops["blackhole"] == 3
    fabric.inject(right.port(2), packet(Op.FORWARD, 1), 10_000)
    assert [(device, port) for _, device, port, _ in fabric.run_until(20_000)] == [(1, 1)]
    assert right.port(1).stats().tx_packets == 1
    link.set(LinkSettings(delay_ns=1000), "a_to_b")
    burst(fabric, left.port(1), 5, at_ns=20_000)
    fabric.run_until(20_500)
    link.set_up(False, "a_to_b")  # all five are on the wire
    assert (link.is_up("a_to_b"), link.is_up("b_to_a")) == (False, True)
    burst(fabric, left.port(1), 2, at_ns=20_500)
    assert fabric.run_until(30_000) == []
    assert left.port(2).stats().drops["link_down"] == 7
    link.set_up(True)
    burst(fabric, left.port(1), 2, at_ns=30_000)
    assert len(fabric.run_until(40_000)) == 2
    fabric.unlink(link)
    burst(fabric, left.port(1), 2, at_ns=40_000)
    assert [device for _, device, _, _ in fabric.run_until(50_000)] == [1, 1]


def test_packets_that_multiply_stay_within_the_memory_limit() -> None:
    fabric = Fabric("virtual", seed=3, memory_limit_bytes=4 << 20)
    switch = fabric.add_switch(1)
    switch.load(HandProgram())  # type: ignore[arg-type]
    fabric.link(switch.add_port(1), switch.add_port(2), LinkSettings(delay_ns=100, duplicate=1.0))
    burst(fabric, switch.add_port(3), 1)
    fabric.run_until(3000)
    assert switch.port(2).stats().duplicated > 1000
    with pytest.raises(FabricError, match="out of memory"):
        burst(fabric, switch.port(3), 10_000, at_ns=3000)


@pytest.mark.parametrize("size", [100, 9000])
def test_the_memory_limit_is_not_on_what_is_delivered(size: int) -> None:
    with Fabric("virtual", memory_limit_bytes=1 << 20) as fabric:
        switch = fabric.add_switch(1)
        switch.load(HandProgram())  # type: ignore[arg-type]
        for number in (1, 2):
            switch.add_port(number)
        switch.port(1).generate([packet(Op.FORWARD, 2, size=size)], 2000, interval_ns=1000)
        assert len(fabric.run_until(10**9)) == 2000


def test_what_is_delivered_does_not_raise_the_memory_limit_run_by_run() -> None:
    with Fabric("virtual", memory_limit_bytes=1 << 20) as fabric:
        switch = fabric.add_switch(1)
        switch.load(HandProgram())  # type: ignore[arg-type]
        for number in (1, 2):
            switch.add_port(number)
        switch.port(1).generate([packet(Op.FORWARD, 2, size=9000)], 2000, interval_ns=1000)
        assert sum(len(fabric.run_until(at_ns)) for at_ns in range(10**5, 3 * 10**6, 10**5)) == 2000
        with pytest.raises(FabricError, match="out of memory"):
            burst(fabric, switch.port(1), 1000, at_ns=fabric.now_ns, size=9000)


def test_a_loop_without_delay_is_an_error() -> None:
    fabric = Fabric("virtual")
    switch = fabric.add_switch(1)
    switch.load(HandProgram())  # type: ignore[arg-type]
    fabric.link(switch.add_port(1), switch.add_port(2))
    burst(fabric, switch.add_port(3), 1)
    with pytest.raises(FabricError, match="without any delay"):
        fabric.run_until(1)


def clos(seed: int, trace: Path, packets: int) -> list[tuple[int, int, int, bytes]]:
    """24 switches: 16 edges, 8 spines, impaired links; returns the deliveries."""
    fabric = Fabric("virtual", seed=seed)
    program = HandProgram()
    for number in range(24):
        switch = fabric.add_switch(number, priority_queues=2)
        switch.load(program)  # type: ignore[arg-type]
        for port in range(1, 18):
            switch.add_port(port)
    settings = LinkSettings(
        rate_bps=10**9, delay_ns=1000, loss=0.1, duplicate=0.01, corrupt=0.01, reorder=0.05, reorder_extra_ns=700
    )
    for edge in range(16):
        for spine in range(8):
            fabric.link(fabric.switch(edge).port(1 + spine), fabric.switch(16 + spine).port(1 + edge), settings)
    fabric.trace(trace)
    for edge in range(16):
        frames = [packet(Op.FORWARD, 1 + (edge + k) % 8, priority=k % 2, size=100 + 7 * k, fill=k) for k in range(20)]
        fabric.switch(edge).port(17).generate(frames, packets // 16, interval_ns=700 + edge)
    out = fabric.run_until(10**9)
    assert sum(s.stats().received for s in fabric.switches.values()) > packets
    fabric.trace(None)
    fabric.close()
    return out


@pytest.mark.slow
def test_24_switches_100_000_packets_give_equal_traces(tmp_path: Path) -> None:
    traces, outputs = [], []
    for run, seed in enumerate((11, 11, 12)):
        outputs.append(clos(seed, tmp_path / f"trace{run}", 100_000))
        traces.append((tmp_path / f"trace{run}").read_bytes())
    assert traces[0] == traces[1]
    assert outputs[0] == outputs[1]
    assert traces[0] != traces[2]
    assert traces[0].count(b"\n") > 200_000


def test_trace_names_every_event(tmp_path: Path) -> None:
    fabric, switch = one_switch()
    fabric.trace(tmp_path / "trace")
    burst(fabric, switch.port(1), 1, at_ns=5)
    fabric.inject(switch.port(1), packet(Op.DROP), 6)
    fabric.run_until(10)
    fabric.trace(None)
    lines = (tmp_path / "trace").read_text().splitlines()
    assert [line.split()[:5] for line in lines] == [
        ["5", "rx", "1", "1", "100"],
        ["5", "tx", "1", "2", "100"],
        ["5", "deliver", "1", "2", "100"],
        ["6", "rx", "1", "1", "100"],
        ["6", "drop:ingress", "1", "1", "100"],
    ]


@pytest.mark.parametrize("label", ["", "h3:2"])
def test_capture_of_both_directions(tmp_path: Path, label: str) -> None:
    """A label names the interface; what a host's end of the cable receives is what the port sends."""
    fabric, switch = one_switch(1)
    switch.add_port(2, name="uplink").capture(tmp_path / "p2.pcapng", label=label, outside=bool(label))
    frame = packet(Op.FORWARD, 2, stamp=False, size=101)
    fabric.inject(switch.port(2), frame, 1_000_000_007)
    fabric.run_until(2 * 10**9)
    switch.port(2).capture(None)
    found = blocks((tmp_path / "p2.pcapng").read_bytes())
    assert [kind for kind, _ in found] == [0x0A0D0D0A, 1, 6, 6]
    assert b"\x09\x00\x01\x00\x09" in found[1][1]  # if_tsresol 10^-9
    shown = (label or "uplink").encode()
    assert found[1][1][16:-4].rstrip(b"\0") == struct.pack("<HH", 2, len(shown)) + shown
    for (_, body), direction in zip(found[2:], (2, 1) if label else (1, 2), strict=True):
        interface, high, low, captured, original = struct.unpack_from("<IIIII", body)
        assert (interface, (high << 32) + low, captured, original) == (0, 1_000_000_007, 101, 101)
        assert body[20:121] == frame
        assert struct.unpack_from("<HHI", body, 124) == (2, 4, direction)


def test_a_faster_rate_frees_a_slow_link() -> None:
    fabric, switch = one_switch()
    port = switch.port(2)
    port.set_link(outgoing=LinkSettings(rate_bps=8))  # a packet takes 100 s
    burst(fabric, switch.port(1), 3)
    assert fabric.run_until(10**9) == []
    port.set_link(outgoing=LinkSettings(rate_bps=8 * 10**6))
    assert [t for t, *_ in fabric.run_until(2 * 10**9)] == []  # the first keeps its arrival; the wire is in order
    port.set_up(False, "outgoing")
    port.set_up(True, "outgoing")
    burst(fabric, switch.port(1), 1, at_ns=fabric.now_ns)
    assert len(fabric.run_until(3 * 10**9)) == 1
    assert port.stats().drops["link_down"] == 3


def test_advance_hands_out_what_a_change_of_state_delivered() -> None:
    fabric, switch = one_switch()
    switch.port(2).set_link(outgoing=LinkSettings(rate_bps=8 * 10**6))
    burst(fabric, switch.port(1), 2)
    fabric.run_until(1)
    switch.set_state("frozen")
    assert len(fabric.run_until(10**6)) == 1
    switch.port(2).set_link(outgoing=LinkSettings())
    switch.set_state("running")
    assert [t for t, *_ in fabric.advance(10**9)] == [10**6]
    assert fabric.now_ns == 10**6


@pytest.mark.parametrize("way", ["run_until", "exchange"])
def test_deliveries_are_read_before_another_thread_makes_more(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outside, "ferries", lambda: None)  # it reads them in C
    fabric, switch = one_switch()
    switch.port(2).set_link(outgoing=LinkSettings(rate_bps=8 * 10**6))
    burst(fabric, switch.port(1), 2)
    fabric.run_until(1)
    switch.set_state("frozen")
    read = fabric._core.deliveries

    def change() -> None:
        switch.port(2).set_link(outgoing=LinkSettings())
        switch.set_state("running")

    def deliveries(batch: object) -> Iterator[tuple[int, int, int, bytes, int]]:
        threads[0].start()
        threads[0].join(0.1)
        return read(batch)

    threads = [Thread(target=change)]
    hosts = fabric.outside([(switch.port(2), b"")])
    monkeypatch.setattr(fabric._core, "deliveries", deliveries)
    if way == "exchange":
        ((_, _, data, _),) = hosts.exchange(words(), [], 10**6)
    else:
        ((_, _, _, data),) = fabric.run_until(10**6)
    assert data[-1] == 0
    threads[0].join()


def test_advance_to_a_time_already_passed_does_nothing() -> None:
    fabric, switch = one_switch(0)
    port = switch.add_port(1, to_switch=LinkSettings(delay_ns=1000))
    fabric.inject(port, packet(Op.FORWARD, 1), 0)
    assert [t for t, *_ in fabric.advance(10**6)] == [1000]
    assert fabric.now_ns == 1999
    assert fabric.advance(1500) == []
    assert fabric.now_ns == 1999
