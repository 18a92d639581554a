"""Clients that say nothing, read nothing or vanish: nobody else is locked out, and threads and memory come back."""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import grpc
import psutil
import pytest

from p4lite.messages import p4runtime_pb2
from p4lite.switch.p4rt import arbitration, service
from p4lite.switch.p4rt.service import Waiting
from p4lite.switch.targetapi.client import TargetClient
from p4lite.switch.targetapi.codec import SERVICE
from support.switch.p4rt import INSERT, Bench, Controller, control_config
from support.switch.process import SwitchProcess


def eventually(condition: Callable[[], bool], what: str, timeout_s: float = 60.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench()
    yield made
    made.close()


def sample_now(bench: Bench) -> None:
    """Patience ends: only now, as on a busy machine those who are served would need it, too."""
    service = bench.server.service
    for waiting in (service.silent, service.unsent, service.unread):
        waiting.seconds = 0.2


class Crowd:
    """Calls opened on many connections, each of which takes its request from an iterator that gives nothing."""

    def __init__(self, address: str, connections: int) -> None:
        options = [("grpc.use_local_subchannel_pool", 1)]
        self.channels = [grpc.insecure_channel(address, options=options) for _ in range(connections)]
        self.over = threading.Event()
        self.calls: list[Any] = []

    def open(self, method: str, count: int, first: bytes | None = None) -> None:
        for _, channel in zip(range(count), itertools.cycle(self.channels), strict=False):
            call = channel.stream_stream(method, request_serializer=bytes, response_deserializer=bytes)
            requests = self._silence() if first is None else itertools.chain([first], self._silence())
            self.calls.append(call(requests))

    def _silence(self) -> Iterator[bytes]:
        self.over.wait(120)
        yield from ()

    def __enter__(self) -> Crowd:
        return self

    def __exit__(self, *exc: object) -> None:
        for call in self.calls:
            call.cancel()
        self.over.set()
        for channel in self.channels:
            channel.close()


#: The server may not have noticed yet that the controller before is gone, whose number nobody else may have till then.
ELECTION_IDS = itertools.count(2)


def served(bench: Bench) -> None:
    """Check that a controller becomes primary, writes and reads, and that the target API answers; each soon."""
    mine = Controller(bench.address, election_id=next(ELECTION_IDS))
    with mine as controller, TargetClient(bench.address, timeout_s=20) as target:
        assert controller.arbitrate().status.code == 0
        controller.set_pipeline(control_config())
        assert controller.read(controller.entry("fixed"))
        assert list(target.info().switches) == [1]


@pytest.mark.long
def test_a_thousand_streams_that_never_arbitrate(bench: Bench) -> None:
    """More than there were threads: before, every other call waited for ever."""
    before = threading.active_count()
    with Crowd(bench.address, 8) as crowd:
        crowd.open("/p4.v1.P4Runtime/StreamChannel", 1100)
        refused = 1100 - service.SILENT_STREAMS
        eventually(lambda: sum(call.done() for call in crowd.calls) >= refused, "all have come")
        for _ in range(3):
            served(bench)
        serving = bench.server.service
        sample_now(bench)
        eventually(lambda: len(serving.silent) == 0, "silent streams end")
        eventually(lambda: len(serving._streams) == 0, "streams are gone")
        assert {call.code() for call in crowd.calls} == {grpc.StatusCode.DEADLINE_EXCEEDED}
        assert "arbitrate first" in crowd.calls[0].details()
    eventually(lambda: threading.active_count() < before + service.THREADS + service.READ_THREADS, "threads return")


@pytest.mark.parametrize("method", ["p4.v1.P4Runtime/Write", "p4.v1.P4Runtime/Read", f"{SERVICE}/Info"])
def test_calls_whose_request_never_comes(bench: Bench, method: str) -> None:
    with Crowd(bench.address, 4) as crowd:
        crowd.open(f"/{method}", 600)
        for _ in range(3):
            served(bench)
        sample_now(bench)
        eventually(lambda: all(call.done() for call in crowd.calls), "they end")
        assert {call.code() for call in crowd.calls} == {grpc.StatusCode.CANCELLED}


def test_readers_that_take_nothing(bench: Bench) -> None:
    """Others are served, and none of them keeps a thread. Whether an answer waits for its client is up to gRPC, which
    takes megabytes for one that does not read; what happens to those that do wait is `Waiting`'s own test."""
    with Controller(bench.address) as controller:
        controller.arbitrate()
        controller.set_pipeline(control_config())
        macs = [k.to_bytes(6, "big") for k in range(1, 5)]
        controller.write(
            *((INSERT, controller.entry("l2", {"hdr.ethernet.dst": mac}, "flood", [b"\1"])) for mac in macs)
        )
        request = p4runtime_pb2.ReadRequest(device_id=1, entities=[controller.entry("l2")] * 200)
    with Crowd(bench.address, 4) as crowd:
        crowd.open("/p4.v1.P4Runtime/Read", 150, request.SerializeToString())
        for _ in range(3):
            served(bench)
        sample_now(bench)
        eventually(lambda: len(bench.server.service.unread) == 0, "they end")


def test_calls_at_once_on_one_connection(bench: Bench) -> None:
    """HTTP/2 tells a client how many; what it opens beyond waits on its own side, and others are served."""
    with Crowd(bench.address, 1) as crowd:
        crowd.open("/p4.v1.P4Runtime/StreamChannel", 1000)
        served(bench)
        assert len(bench.server.service._streams) <= service.MIN_CALLS_PER_CONNECTION + 1


def test_streams_that_arbitrate_are_bounded_too(bench: Bench) -> None:
    with contextlib.ExitStack() as stack:
        codes = []
        for number in range(arbitration.MAX_ROLES + 2):
            controller = stack.enter_context(Controller(bench.address, role=f"role{number}" if number else ""))
            request = p4runtime_pb2.StreamMessageRequest()
            request.arbitration.device_id = 1
            request.arbitration.election_id.low = 1
            if number:
                request.arbitration.role.name = f"role{number}"
            controller.open()
            controller.say(request)
            found = controller.heard.get(timeout=120)
            codes.append(found.code().name if isinstance(found, grpc.RpcError) else "OK")
        assert codes == ["OK"] * arbitration.MAX_ROLES + ["RESOURCE_EXHAUSTED"] * 2
        long = stack.enter_context(Controller(bench.address, role="x" * 1000))
        long.open()
        request.arbitration.role.name = long.role
        long.say(request)
        assert long.stream_end() == "INVALID_ARGUMENT"


def test_waiting_ends_the_oldest_and_the_late(monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[int] = []
    waiting = Waiting(2, 10.0)
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    tokens = [waiting.add(lambda k=k: ended.append(k)) for k in range(3)]  # type: ignore[misc]
    assert ended == [0]
    waiting.remove(tokens[1])
    waiting.remove(tokens[0])
    now = 109.0
    waiting.add(lambda: ended.append(3))
    now = 111.0
    waiting.expire()
    assert ended == [0, 2]
    assert len(waiting) == 1


def vanish(address: str, rounds: int) -> None:
    """Run controllers that arbitrate, work, and vanish."""
    for number in range(rounds):
        controller = Controller(address, device_id=0, election_id=number + 1)
        controller.arbitrate()
        controller.stub.Capabilities(p4runtime_pb2.CapabilitiesRequest())
        controller.hang_up()


@pytest.mark.slow
@pytest.mark.long
def test_memory_of_clients_that_vanish_comes_back() -> None:
    with SwitchProcess("--no-p4") as switch:
        process = psutil.Process(switch.process.pid)

        def used() -> int:
            return int(process.memory_info().rss)

        vanish(switch.address, 150)
        first = used()
        vanish(switch.address, 500)
        eventually(lambda: used() - first < 3 << 20, "memory comes back", 20)
        assert process.num_threads() < service.THREADS + service.READ_THREADS + 40
        assert process.num_fds() < 60
        assert switch.stop() == 0


#: More than a connection may have at once: were each kept open, the last ones would not be answered.
REFUSALS = service.MIN_CALLS_PER_CONNECTION + 50


def _refused_write(client: Controller) -> None:
    client.stub.Write(p4runtime_pb2.WriteRequest(device_id=9))


def _refused_element(client: Controller) -> None:
    request = p4runtime_pb2.WriteRequest(device_id=client.device_id)
    client._identify(request)
    request.updates.add(type=p4runtime_pb2.Update.INSERT).entity.table_entry.table_id = 1
    client.stub.Write(request)


def _malformed_write(client: Controller) -> None:
    client.channel.unary_unary("/p4.v1.P4Runtime/Write", bytes, bytes)(b"\xff\xff\xff")


def _refused_stream(client: Controller) -> None:
    request = p4runtime_pb2.StreamMessageRequest()
    request.arbitration.device_id = 9
    list(client.stub.StreamChannel(iter([request])))


def _refused_target_call(client: Controller) -> None:
    client.channel.unary_unary(f"/{SERVICE}/Stats", bytes, bytes)(b"\xff\xff\xff")


@pytest.mark.parametrize(
    ("refused", "code"),
    [
        (_refused_write, "NOT_FOUND"),
        (_refused_element, "UNKNOWN"),
        (_malformed_write, "INVALID_ARGUMENT"),
        (_refused_stream, "NOT_FOUND"),
        (_refused_target_call, "INVALID_ARGUMENT"),
    ],
)
def test_a_connection_survives_refused_calls(refused: Callable[[Controller], None], code: str) -> None:
    """A call that is refused is over at once, and not when the server's garbage collector runs."""
    with SwitchProcess("--no-p4", "--device-id", "1") as switch, Controller(switch.address) as client:
        client.arbitrate()
        client.set_pipeline(control_config())
        codes = set()
        for _ in range(REFUSALS):
            with pytest.raises(grpc.RpcError) as caught:
                refused(client)
            codes.add(caught.value.code().name)
        assert codes == {code}
