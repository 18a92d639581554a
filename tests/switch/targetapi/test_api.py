"""The target API over a real connection: every operation does what it says, and refuses what is wrong."""

from __future__ import annotations

import pathlib
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any, cast

import grpc
import pytest

from p4lite.switch.fabric.values import (
    BurstLoss,
    CreditStats,
    Lag,
    LinkSettings,
    PfcStats,
    PortSample,
    PortStats,
    QueueLimits,
    QueueStats,
    SwitchState,
    TunnelStats,
)
from p4lite.switch.targetapi import codec
from p4lite.switch.targetapi import target_pb2 as pb
from p4lite.switch.targetapi.client import TargetClient, TargetError
from p4lite.switch.targetapi.codec import SERVICE
from p4lite.switch.targetapi.values import DeviceSample, LinkEnd, PortInfo
from support.switch.p4rt import INSERT, Bench, Controller, ethernet

ROOT = pathlib.Path(__file__).parents[3]


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


def test_frozen_and_stopped_switch_restarts_without_its_registers(
    bench: Bench, primary: Controller, target: TargetClient
) -> None:
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


def refused(bench: Bench, method: str, request: Any) -> tuple[str, str]:
    """Code and text with which a method refuses a message."""
    with grpc.insecure_channel(bench.address) as channel:
        call = channel.unary_unary(f"/{SERVICE}/{method}", request_serializer=lambda each: each.SerializeToString())  # type: ignore[call-arg]
        with pytest.raises(grpc.RpcError) as caught:
            call(request)
        return caught.value.code().name, caught.value.details()  # type: ignore[return-value]


def test_refusals(bench: Bench, target: TargetClient) -> None:
    port, none = pb.End(device_id=1, port=1), pb.End(device_id=1, port=77)
    burst = pb.LinkSettings(burst_loss=pb.BurstLoss(to_bad=1))
    cases: list[tuple[str, str, Any, str]] = [
        ("NOT_FOUND", "SetState", pb.SetStateRequest(device_id=5, state="SWITCH_STATE_FROZEN"), "5"),
        ("NOT_FOUND", "SetPortUp", pb.SetPortUpRequest(at=none, up=True), "switch 1 has no port 77; known: 1, 2, 3, 4"),
        ("NOT_FOUND", "SetLinkUp", pb.SetLinkUpRequest(at=port, up=True), "port 1 of switch 1 has no link"),
        ("INVALID_ARGUMENT", "SetState", pb.SetStateRequest(device_id=1), "state: expected one of"),
        ("INVALID_ARGUMENT", "SetState", pb.SetStateRequest(device_id=1, state=9), "state: expected one of"),  # type: ignore[arg-type]
        ("INVALID_ARGUMENT", "SetPortUp", pb.SetPortUpRequest(at=port), "up: expected true or false"),
        (
            "INVALID_ARGUMENT",
            "SetPortUp",
            pb.SetPortUpRequest(at=port, up=True, direction=7),  # type: ignore[arg-type]
            "both, outgoing, incoming",
        ),
        ("INVALID_ARGUMENT", "SetPortLink", pb.SetPortLinkRequest(at=port, outgoing=pb.LinkSettings(loss=1.5)), "loss"),
        ("INVALID_ARGUMENT", "SetPortLink", pb.SetPortLinkRequest(at=port, outgoing=burst), "needs 'to_good'"),
        ("INVALID_ARGUMENT", "SetPfc", pb.SetPfcRequest(at=port, settings=pb.PfcSettings(xoff_bytes=1)), "xon_bytes"),
        ("INVALID_ARGUMENT", "SetPfc", pb.SetPfcRequest(at=port, source_mac=1 << 48), "source_mac"),
        ("INVALID_ARGUMENT", "SetCredits", pb.SetCreditsRequest(at=port, settings=pb.CreditSettings()), "buffer_bytes"),
        ("INVALID_ARGUMENT", "Samples", pb.SamplesRequest(priority=8), "priority: expected an integer from 0 to 7"),
        ("FAILED_PRECONDITION", "Samples", pb.SamplesRequest(reasons=["weather"]), "weather"),
        ("FAILED_PRECONDITION", "AddSwitch", pb.AddSwitchRequest(device_id=1), "in use"),
        ("FAILED_PRECONDITION", "AddSwitch", pb.AddSwitchRequest(device_id=7, drop_port=65536), "drop_port"),
        ("FAILED_PRECONDITION", "AddPort", pb.AddPortRequest(device_id=1, port=1), "in use"),
        ("FAILED_PRECONDITION", "AddPort", pb.AddPortRequest(device_id=1, port=65536), "not a port number"),
        ("PERMISSION_DENIED", "AddPort", pb.AddPortRequest(device_id=1, port=9, interface="nope-if0"), "nope-if0"),
        ("FAILED_PRECONDITION", "AddLink", pb.AddLinkRequest(a=port, b=port), ""),
        ("FAILED_PRECONDITION", "ReadRegister", pb.ReadRequest(device_id=1, name="I.seen"), ""),
        ("UNIMPLEMENTED", "NoSuchMethod", pb.InfoRequest(), ""),
    ]
    for code, method, request, reason in cases:
        found, text = refused(bench, method, request)
        assert (found, method) == (code, method), text
        assert reason in text
    with pytest.raises(TargetError) as caught:
        target.set_state(5, "frozen")
    assert caught.value.code == "NOT_FOUND"
    assert bench.address in str(caught.value)


def test_a_client_of_the_json_messages_before_is_refused(bench: Bench) -> None:
    with grpc.insecure_channel(bench.address) as channel, pytest.raises(grpc.RpcError) as caught:
        channel.unary_unary("/mrclab.target.v1.Target/Info")(b"{}")  # type: ignore[call-arg]
    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED


def test_refusals_of_state(bench: Bench, primary: Controller) -> None:
    cases = [
        ("NOT_FOUND", "ReadRegister", pb.ReadRequest(device_id=1, name="I.none", index=0)),
        ("NOT_FOUND", "ReadRegister", pb.ReadRequest(device_id=1, name="I.seen", index=8)),
        ("INVALID_ARGUMENT", "WriteRegister", pb.WriteRegisterRequest(device_id=1, name="I.seen", value=b"\1\0\0\0\0")),
        ("NOT_FOUND", "ReadCounter", pb.ReadRequest(device_id=1, name="I.none")),
    ]
    for code, method, request in cases:
        assert refused(bench, method, request)[0] in (code, "INVALID_ARGUMENT")


def test_value_types_travel_as_they_are() -> None:
    lag = Lag(7, 1, 2, 3, 4)
    queues = (QueueStats(0, 1, 0, 2, 0, 3, 0, 0, 9), QueueStats(3, 0, 0, 0, 0, 0, 0, 0, 0))
    pfc = (PfcStats(3, *range(1, 12), True, False, True, False),)  # type: ignore[call-arg]
    credits = (CreditStats(2, 640, -64, -128, 1, 2, 3, 4, 5, 6, True),)
    drops = {"queue_full": 0, "link_down": 2**63}
    tunnel = TunnelStats(1, 2, 3, 4, 5, 6)
    port = PortStats(1, 2, 3, 4, drops, 5, 6, 7, queues, lag, 8, pfc, credits, tunnel)
    empty = PortStats(0, 0, 0, 0, {}, 0, 0, 0, (), Lag())
    for stats in (port, empty):
        assert codec.value(PortStats, codec.message(pb.PortStats, stats)) == stats
    sample = DeviceSample(5, SwitchState.FROZEN, {9: PortSample(*range(9)), 2: PortSample(*[0] * 9)}, {"I.c": 4})
    for samples in ({}, {7: sample}, {7: sample, 3: DeviceSample(5, SwitchState.RUNNING, {}, {})}):
        sent = codec.samples_message(5, samples).SerializeToString()
        assert codec.samples(pb.SamplesResponse.FromString(sent)) == samples
    message, running = codec.samples_message(5, {7: sample}), codec.state_number(SwitchState.RUNNING)
    for wrong in (
        pb.SamplesResponse(device_id=[1]),
        pb.SamplesResponse(device_id=[1], state=[running], ports=[1]),
        pb.SamplesResponse(device_id=[1], state=[cast(pb.SwitchState, 77)], ports=[0]),
        pb.SamplesResponse(device_id=[1, 2], state=[running, running], ports=[0, 0], counters=message.counters),
    ):
        with pytest.raises(codec.CodecError, match=r"expected (\d+ states|80 bytes|one of 1 \(running\))"):
            codec.samples(wrong)
    info = PortInfo(
        3, "", "if0", LinkEnd(0, 1), True, False, LinkSettings(1, burst_loss=BurstLoss(0, 0.5)), LinkSettings()
    )
    assert codec.value(PortInfo, codec.message(pb.PortInfo, info)) == info


def test_the_committed_code_is_what_protoc_makes(tmp_path: pathlib.Path) -> None:
    pytest.importorskip("grpc_tools", reason="no protoc; `make proto` installs it")
    place = pathlib.Path("p4lite/switch/targetapi")
    outputs = f"--pyi_out={tmp_path}", f"--descriptor_set_out={tmp_path / place / 'target.binpb'}"
    (tmp_path / place).mkdir(parents=True)
    command = [sys.executable, "-m", "grpc_tools.protoc", "-I.", *outputs, str(place / "target.proto")]
    subprocess.run(command, cwd=ROOT / "p4", check=True, timeout=300)
    for name in ("target.binpb", "target_pb2.pyi"):
        assert (ROOT / "p4" / place / name).read_bytes() == (tmp_path / place / name).read_bytes(), "run `make proto`"


@pytest.mark.parametrize("data", [b"\xff\xff", b"\x0a\x05x", b"\x08", b"\x0b" * 10000])
def test_bytes_that_are_no_request(bench: Bench, target: TargetClient, data: bytes) -> None:
    with grpc.insecure_channel(bench.address) as channel:
        with pytest.raises(grpc.RpcError) as caught:
            channel.unary_unary(f"/{SERVICE}/Stats")(data)  # type: ignore[call-arg]
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert list(target.info().switches) == [1]


def test_a_server_that_is_not_there() -> None:
    with TargetClient("127.0.0.1:1", timeout_s=1) as client:
        with pytest.raises(TargetError, match=r"127\.0\.0\.1:1"):
            client.wait_ready(0.2)
        with pytest.raises(TargetError) as caught:
            client.info()
        assert caught.value.code == "UNAVAILABLE"
