"""The target API over a real connection: every operation does what it says, and refuses what is wrong."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import grpc
import pytest

from p4lite.switch.fabric.values import BurstLoss, LinkSettings, QueueLimits, SwitchState
from p4lite.switch.targetapi.client import TargetClient, TargetError
from p4lite.switch.targetapi.codec import SERVICE
from support.switch.p4rt import INSERT, Bench, Controller, ethernet


@pytest.fixture
def target(bench: Bench) -> Iterator[TargetClient]:
    with TargetClient(bench.address) as client:
        client.wait_ready()
        yield client


def learn(primary: Controller, port: int) -> None:
    primary.write((INSERT, primary.entry("l2", {"hdr.ethernet.dst": b"\2"}, "forward", [bytes([port])])))


def test_switches_ports_and_links_come_and_go(bench: Bench, target: TargetClient) -> None:
    made = target.add_switch(9, name="spine", priority_queues=4, cpu_port=64, drop_port=500)
    assert (made.name, made.priority_queues, made.cpu_port, made.drop_port) == ("spine", 4, 64, 500)
    port = target.add_port(9, 1, name="up", to_host=LinkSettings(rate_bps=5), to_switch=LinkSettings(delay_ns=7))
    assert (port.outgoing.rate_bps, port.incoming.delay_ns, port.peer) == (5, 7, None)
    target.add_link((9, 1), (1, 1), LinkSettings(rate_bps=10**9), LinkSettings(loss=0.5))
    info = target.info()
    assert info.switches[9].ports[1].peer == (1, 1)
    assert info.switches[1].ports[1].peer == (9, 1)
    assert info.switches[1].ports[1].outgoing == LinkSettings(loss=0.5)
    target.remove_link((1, 1))
    assert target.info().switches[1].ports[1].peer is None
    target.remove_port(9, 1)
    assert target.info().switches[9].ports == {}
    with Controller(bench.address, device_id=9) as controller:
        controller.arbitrate()
        target.remove_switch(9)
        assert controller.stream_end() == "UNAVAILABLE"
    assert list(target.info().switches) == [1]


@pytest.mark.parametrize("pool", ["_pool", "service.readers"])
def test_the_fabric_stays_until_calls_that_were_given_up_have_ended(pool: str) -> None:
    bench = Bench()
    executor: Any = bench.server
    for name in pool.split("."):
        executor = getattr(executor, name)

    def slow() -> int:
        time.sleep(1)  # as long as gRPC waits, and as long again
        return bench.fabric.now_ns

    call = executor.submit(slow)
    bench.close()
    assert call.done(), "the fabric was taken away from under it"
    assert call.result() == 0


def test_links_change_at_run_time(bench: Bench, primary: Controller, target: TargetClient) -> None:
    learn(primary, 2)
    target.add_switch(2)
    target.add_port(2, 1)
    target.add_link((1, 2), (2, 1))
    burst = BurstLoss(0.1, 0.2)
    target.set_link((2, 1), LinkSettings(rate_bps=10**6, burst_loss=burst), "a_to_b")
    assert target.info().switches[1].ports[2].outgoing == LinkSettings(rate_bps=10**6, burst_loss=burst)
    assert target.info().switches[1].ports[2].incoming == LinkSettings()
    target.set_link((1, 2), {"blackhole": True, "burst_loss": None})
    assert target.info().switches[1].ports[2].outgoing == LinkSettings(rate_bps=10**6, blackhole=True)
    bench.send(1, ethernet(), after_ns=10**9)
    assert target.stats()[1].ports[2].drops["blackhole"] == 1
    target.set_link((1, 2), LinkSettings())
    target.set_link_up((1, 2), False, "b_to_a")
    port = target.info().switches[1].ports[2]
    assert (port.up_outgoing, port.up_incoming) == (True, False)
    target.set_link_up((1, 2), False)
    bench.send(1, ethernet())
    assert target.stats([1])[1].ports[2].drops["link_down"] == 1
    target.set_link_up((1, 2), True)
    bench.send(1, ethernet())
    assert target.stats()[2].switch.drops["no_program"] == 1
    target.reset_stats([1])
    stats = target.stats()
    assert stats[1].ports[1].rx_packets == 0
    assert stats[2].switch.received == 1


def test_port_links_and_queues(bench: Bench, primary: Controller, target: TargetClient) -> None:
    learn(primary, 2)
    changed = target.set_port_link(1, 2, outgoing={"rate_bps": 8000}, incoming=LinkSettings(delay_ns=3))
    assert (changed.outgoing, changed.incoming) == (LinkSettings(rate_bps=8000), LinkSettings(delay_ns=3))
    target.set_queue(1, 2, QueueLimits(packets=2))
    for _ in range(6):
        bench.send(1, ethernet(), after_ns=0)
    stats = target.stats()[1].ports[2]
    assert stats.drops["queue_full"] == 3  # one on the wire, two wait
    assert stats.queues[0].max_packets == 2
    assert len(stats.queues) == 8
    target.set_buffer(1, 2, QueueLimits(packets=1))
    bench.send(1, ethernet(), after_ns=0)
    assert sum(target.stats()[1].ports[2].drops.values()) == 4
    target.set_port_up(1, 2, False)
    assert not target.info().switches[1].ports[2].up_outgoing
    target.set_port_up(1, 2, True, "outgoing")
    port = target.info().switches[1].ports[2]
    assert (port.up_outgoing, port.up_incoming) == (True, False)


def test_states_and_restart(bench: Bench, primary: Controller, target: TargetClient) -> None:
    learn(primary, 2)
    target.write_register(1, "I.seen", 1, 2**32 - 1)
    assert target.read_register(1, "I.seen", 1) == [2**32 - 1]
    for state in ("frozen", SwitchState.STOPPED):
        target.set_state(1, state)
        assert bench.send(1, ethernet()) == []
        assert target.info().switches[1].state is SwitchState(state)
    target.set_state(1, "running")
    assert [port for port, _ in bench.send(1, ethernet())] == [2]
    target.restart(1)
    assert bench.send(1, ethernet()) == []
    assert target.read_register(1, "I.seen")[1] == 1
    learn(primary, 3)  # what was there is gone for P4Runtime too
    assert [port for port, _ in bench.send(1, ethernet())] == [3]
    assert target.read_counter(1, "I.port_count", 1) == [(2, 2 * len(ethernet()))]
    assert len(target.read_counter(1, "I.port_count")) == 16
    target.reset_register(1, "I.seen")
    assert target.read_register(1, "I.seen") == [0] * 8
    assert set(target.faults(1).values()) == {0}
    target.restart(1, disconnect=True)
    assert primary.stream_end() == "UNAVAILABLE"


def test_samples_are_what_statistics_say(bench: Bench, primary: Controller, target: TargetClient) -> None:
    learn(primary, 2)
    target.set_port_link(1, 2, outgoing={"loss": 1.0})
    for _ in range(3):
        bench.send(1, ethernet())
    target.set_port_up(1, 3, False, "incoming")
    target.set_port_up(1, 4, False, "outgoing")
    (sample,), (stats,) = target.samples(0, ["loss", "loss"]).values(), target.stats().values()
    assert sample.state is SwitchState.RUNNING
    assert sample.now_ns == stats.now_ns
    assert sample.ports.keys() == stats.ports.keys()
    for number, port in stats.ports.items():
        row = sample.ports[number]
        assert (row.tx_bytes, row.rx_bytes, row.depth_bytes) == (port.tx_bytes, port.rx_bytes, 0)
        assert (row.drops, row.some_drops) == (sum(port.drops.values()), port.drops["loss"])
    assert sample.ports[2].some_drops == 3
    assert sample.ports[1].rx_bytes == 3 * len(ethernet())
    assert {number: sample.ports[number].up for number in (2, 3, 4)} == {2: 3, 3: 1, 4: 2}
    target.set_port_up(1, 4, False)
    assert target.samples(0)[1].ports[4].up == 0
    assert target.samples(0)[1].counters == {}
    counted = target.samples(0, counters=["I.port_count", "I.none"])[1].counters
    cells = target.read_counter(1, "I.port_count")
    assert counted == {"I.port_count": sum(packets for packets, _ in cells)} == {"I.port_count": 3}
    target.set_state(1, "frozen")
    assert target.samples(0)[1].state is SwitchState.FROZEN
    assert target.samples(0)[1].ports[2].some_drops == 0


def test_lateness(target: TargetClient) -> None:
    assert target.lateness(reset=True).loop.count == 0


def test_refusals(bench: Bench, target: TargetClient) -> None:
    cases: list[tuple[str, str, dict[str, Any]]] = [
        ("NOT_FOUND", "SetState", {"device_id": 5, "state": "frozen"}),
        ("NOT_FOUND", "SetPortUp", {"device_id": 1, "port": 77, "up": True}),
        ("NOT_FOUND", "SetLinkUp", {"a": [1, 1], "up": True}),
        ("INVALID_ARGUMENT", "SetState", {"device_id": 1, "state": "dead"}),
        ("INVALID_ARGUMENT", "SetState", {"device_id": "1", "state": "frozen"}),
        ("INVALID_ARGUMENT", "SetState", {"device_id": True, "state": "frozen"}),
        ("INVALID_ARGUMENT", "SetPortUp", {"device_id": 1, "port": 1, "up": 1}),
        ("INVALID_ARGUMENT", "SetPortUp", {"device_id": 1, "port": 1, "up": True, "direction": "up"}),
        ("INVALID_ARGUMENT", "SetPortLink", {"device_id": 1, "port": 1, "outgoing": {"rate": 5}}),
        ("INVALID_ARGUMENT", "SetPortLink", {"device_id": 1, "port": 1, "outgoing": {"loss": 1.5}}),
        ("INVALID_ARGUMENT", "SetPortLink", {"device_id": 1, "port": 1, "outgoing": {"burst_loss": {"to_bad": 1}}}),
        ("INVALID_ARGUMENT", "SetQueue", {"device_id": 1, "port": 1, "limits": {"packets": -1}}),
        ("INVALID_ARGUMENT", "Stats", {"device_ids": 5}),
        ("INVALID_ARGUMENT", "Samples", {}),
        ("INVALID_ARGUMENT", "Samples", {"priority": 8}),
        ("INVALID_ARGUMENT", "Samples", {"priority": 0, "reasons": "loss"}),
        ("INVALID_ARGUMENT", "Samples", {"priority": 0, "reasons": [5]}),
        ("INVALID_ARGUMENT", "Samples", {"priority": 0, "counters": {}}),
        ("FAILED_PRECONDITION", "Samples", {"priority": 0, "reasons": ["weather"]}),
        ("INVALID_ARGUMENT", "Info", {"what": 5}),
        ("FAILED_PRECONDITION", "AddSwitch", {"device_id": 1}),
        ("FAILED_PRECONDITION", "AddPort", {"device_id": 1, "port": 1}),
        ("PERMISSION_DENIED", "AddPort", {"device_id": 1, "port": 9, "interface": "nope-if0"}),
        ("FAILED_PRECONDITION", "AddLink", {"a": [1, 1], "b": [1, 1]}),
        ("FAILED_PRECONDITION", "ReadRegister", {"device_id": 1, "register": "I.seen"}),
        ("UNIMPLEMENTED", "NoSuchMethod", {}),
    ]
    for code, method, request in cases:
        with pytest.raises(TargetError) as caught:
            target.call(method, **request)
        assert (caught.value.code, method) == (code, method)
        assert bench.address in str(caught.value)


def test_refusals_of_state(primary: Controller, target: TargetClient) -> None:
    cases: list[tuple[str, str, dict[str, Any]]] = [
        ("NOT_FOUND", "ReadRegister", {"register": "I.none", "index": 0}),
        ("NOT_FOUND", "ReadRegister", {"register": "I.seen", "index": 8}),
        ("INVALID_ARGUMENT", "WriteRegister", {"register": "I.seen", "index": 0, "value": 2**32}),
        ("INVALID_ARGUMENT", "WriteRegister", {"register": "I.seen", "index": 0, "value": -1}),
        ("NOT_FOUND", "ReadCounter", {"counter": "I.none"}),
    ]
    for code, method, request in cases:
        with pytest.raises(TargetError) as caught:
            target.call(method, device_id=1, **request)
        assert caught.value.code in (code, "INVALID_ARGUMENT")


@pytest.mark.parametrize("data", [b"", b"\xff\xff", b"[]", b'{"a":', b"[" * 10000])
def test_bytes_that_are_no_request(bench: Bench, target: TargetClient, data: bytes) -> None:
    with grpc.insecure_channel(bench.address) as channel:
        with pytest.raises(grpc.RpcError) as caught:
            channel.unary_unary(f"/{SERVICE}/Info")(data)  # type: ignore[call-arg]
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert list(target.info().switches) == [1]


def test_a_server_that_is_not_there() -> None:
    with TargetClient("127.0.0.1:1", timeout_s=1) as client:
        with pytest.raises(TargetError, match=r"127\.0\.0\.1:1"):
            client.wait_ready(0.2)
        with pytest.raises(TargetError) as caught:
            client.info()
        assert caught.value.code == "UNAVAILABLE"
