"""A node on its rings: what was readable goes before what fell due meanwhile, however late this program is."""

from __future__ import annotations

import errno
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from mrc_host.drivers.raw import RX_BATCH, STALL_NS, RawDriver, RingNode
from mrc_host.drivers.surface import FOREVER, NodeInterface, PortRing, PortSender

MS = 1_000_000
RATE = 10**9


class Ring(PortRing):
    """A ring whose frames the test puts there, each as old as it says."""

    def __init__(self) -> None:
        super().__init__("no-such-if")
        self.frames: list[tuple[int, bytes]] = []
        self.signal = socket.socketpair()

    def put(self, packet: bytes, age_ns: int) -> None:
        self.frames.append((time.time_ns() - age_ns, packet))

    def fileno(self) -> int:
        return self.signal[0].fileno()

    def arrival(self) -> int:
        return self.frames[0][0] if self.frames else 0

    def take(self) -> bytes:
        return self.frames.pop(0)[1]

    def close(self) -> None:
        for end in self.signal:
            end.close()


class Sender(PortSender):
    """Keeps what is sent."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: list[list[list[bytes]]] = []

    def send(self, packets: list[list[bytes]]) -> None:
        self.sent.append(packets)


class Node(NodeInterface):
    """Writes down what happens to it."""

    def __init__(self, ports: int) -> None:
        self.ports = ports
        self.log: list[tuple[str, int, Any]] = []
        self.sendable: list[int] = []
        self.due: int | None = None
        self.carriers: list[tuple[int, bool]] = []

    def receive(self, port: int, packet: bytes, now: int, missing: int = 0) -> None:
        self.log.append(("packet", now, packet))

    def to_send(self, port: int, now: int, budget_bytes: int) -> list[bytes]:
        self.sendable.append(now)
        return []

    def next_timer(self) -> int:
        return FOREVER if self.due is None else self.due

    def handle_timer(self, now: int) -> None:
        self.log.append(("timer", now, self.due))
        if self.due is not None and self.due <= now:
            self.due = None

    def settle(self, now: int) -> None:
        """Do nothing: there is no application."""

    def set_carrier(self, port: int, up: bool, now: int) -> None:
        self.carriers.append((port, up))


@pytest.fixture
def made() -> Iterator[tuple[Node, list[Ring], RingNode]]:
    node, rings = Node(2), [Ring(), Ring()]
    station = RingNode(node, rings, Sender(), [RATE, RATE], 1500)
    yield node, rings, station
    station.close()


def test_a_port_comes_up_although_the_notice_of_the_kernel_was_lost(made: tuple[Node, list[Ring], RingNode]) -> None:
    node, rings, station = made
    driver = RawDriver([station])
    loop = threading.Thread(target=driver.run)
    loop.start()
    try:
        deadline = time.monotonic() + 60
        while (0, False) not in node.carriers and time.monotonic() < deadline:
            time.sleep(0.01)
        rings[0].interface = "lo"  # which has a carrier; no netlink message says so
        while (0, True) not in node.carriers and time.monotonic() < deadline:
            time.sleep(0.01)
    finally:
        driver.stop()
        loop.join()
    assert (0, True) in node.carriers


def test_packets_of_all_rings_come_in_the_order_of_their_arrival(made: tuple[Node, list[Ring], RingNode]) -> None:
    node, rings, station = made
    for age, ring, packet in ((40, 0, b"a"), (30, 1, b"b"), (20, 0, b"c"), (10, 1, b"d")):
        rings[ring].put(packet, age * MS)
    before = time.monotonic_ns()
    station.round()
    assert [packet for _, _, packet in node.log] == [b"a", b"b", b"c", b"d"]
    for (_, at, _), age in zip(node.log, (40, 30, 20, 10), strict=True):
        assert abs(before - age * MS - at) < 5 * MS


def test_what_is_due_at_once_is_not_late_since_the_machine_started(made: tuple[Node, list[Ring], RingNode]) -> None:
    node, _, station = made
    for _ in range(3):
        node.due = 0
        begin = time.monotonic_ns()
        station.round()
    assert station.lag.count == 3
    assert station.lag.max_ns <= 60_000 * MS, "at most since the last look, not the uptime"
    assert station.lag.max_ns < begin


def test_a_late_program_reads_the_answer_before_it_times_out(made: tuple[Node, list[Ring], RingNode]) -> None:
    node, rings, station = made
    rings[1].put(b"answer", 50 * MS)
    node.due = time.monotonic_ns() - 20 * MS
    station.round()
    assert [kind for kind, _, _ in node.log] == ["packet", "timer"]
    assert station.lag.count == 1
    assert station.lag.max_ns >= 20 * MS


def test_no_timer_overtakes_packets_that_are_not_yet_read(made: tuple[Node, list[Ring], RingNode]) -> None:
    node, rings, station = made
    for number in range(RX_BATCH + 5):
        rings[0].put(b"%d" % number, 100 * MS - number * MS // 10)
    due = node.due = time.monotonic_ns() - 50 * MS
    station.round()
    assert len(node.log) == RX_BATCH
    assert station.wake_ns <= due, "it has more to do at once"
    station.round()
    assert [kind for kind, _, _ in node.log[RX_BATCH:]] == ["packet"] * 5 + ["timer"]


def test_what_is_sent_after_a_stall_does_not_count_from_before_it(made: tuple[Node, list[Ring], RingNode]) -> None:
    """Else its round-trip time would have the stall in it, and its timeout would be over before the answer can come."""
    node, rings, station = made
    for number in range(2 * RX_BATCH + 5):
        rings[0].put(b"%d" % number, 300 * MS - number * MS // 10)
    began = time.monotonic_ns()
    rounds = 0
    while rings[0].frames or not node.sendable:
        station.round()
        rounds += 1
        assert station.wake_ns <= time.monotonic_ns() or not rings[0].frames, "it has more to do at once"
    assert rounds == 3
    assert len(node.log) == 2 * RX_BATCH + 5
    assert min(node.sendable) >= began


def test_a_loop_that_never_catches_up_sends_all_the_same(made: tuple[Node, list[Ring], RingNode]) -> None:
    """Every round comes after a stall, and the ring, which has room for four rounds, is always full."""
    node, rings, station = made
    for _ in range(20):
        while len(rings[0].frames) < 4 * RX_BATCH:
            rings[0].put(b"more", 0)
        time.sleep(2 * STALL_NS / 1e9)
        station.round()
    assert len(node.sendable) >= 3 * 2


def test_time_never_goes_back(made: tuple[Node, list[Ring], RingNode]) -> None:
    node, rings, station = made
    station.round()
    rings[0].put(b"old", 3000 * MS)
    rings[1].put(b"of the future", -3000 * MS)
    node.due = 0
    station.round()
    times = [at for _, at, _ in node.log]
    assert times == sorted(times)
    assert times[-1] <= time.monotonic_ns()


@pytest.mark.parametrize("count", [1, 3 * RX_BATCH])
def test_a_command_does_not_overtake_packets(count: int, made: tuple[Node, list[Ring], RingNode]) -> None:
    node, rings, station = made
    inner, outer = socket.socketpair()
    with inner, outer:
        driver = RawDriver([station])
        outer.send(b"x")
        driver.watch(inner.fileno(), lambda now: node.log.append(("command", now, inner.recv(1))))
        for number in range(count):
            rings[0].put(b"packet", 100 * MS - number * MS // 10)
        driver._listen(0)
    assert [kind for kind, _, _ in node.log] == ["packet"] * count + ["command"]
    assert station.wake_ns == 0


def test_an_error_of_an_interface_does_not_keep_the_loop_awake(made: tuple[Node, list[Ring], RingNode]) -> None:
    _, rings, station = made
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as to,
    ):
        to.bind(("127.0.0.1", 0))
        other.connect(to.getsockname())
        to.close()
        other.send(b"nobody is there")  # the socket's error is that the port is closed
        rings[0].fileno = other.fileno  # type: ignore[method-assign]
        rings[0].clear_error = lambda: cleared.append(  # type: ignore[method-assign]
            other.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        )
        cleared: list[int] = []
        driver = RawDriver([station])
        deadline = time.monotonic() + 60
        while not cleared and time.monotonic() < deadline:
            driver._listen(10 * MS)
    assert cleared == [errno.ECONNREFUSED]


@pytest.mark.parametrize("moderation_ms", [0, 8])
def test_rings_are_looked_at_once_in_an_interval(moderation_ms: int) -> None:
    """Each look takes what is in both rings; `nic.rx_usecs` of a lab is how far they are apart at least."""
    node, rings = Node(2), [Ring(), Ring()]
    station = RingNode(node, rings, Sender(), [RATE, RATE], 1500)
    driver = RawDriver([station], moderation_ms * MS)
    looks: list[float] = []

    def receive(port: int, packet: bytes, now: int, missing: int = 0) -> None:
        if port == 1:
            looks.append(time.monotonic())
            if len(looks) >= 20:
                driver.stop()

    def to_send(port: int, now: int, budget_bytes: int) -> list[bytes]:
        rings[port].put(b"more", 0)
        return []

    node.to_send = to_send  # type: ignore[method-assign]
    node.receive = receive  # type: ignore[method-assign]
    driver.run()
    driver.close()
    assert len(looks) >= 20
    # A busy machine makes it longer, nothing makes it shorter. One of them may serve a change of links meanwhile.
    assert looks[-1] - looks[0] >= 17 * moderation_ms / 1e3
