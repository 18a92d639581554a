"""Links to other machines: frames as UDP datagrams, numbered, with a keyed tag; only the peer's are taken, each once.

The tag and the header are made here anew, so that the two sides are not of one source.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import socket
import time
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from p4lite.switch.fabric.fabric import Fabric
from p4lite.switch.fabric.port import Port, tunnel_end, tunnel_socket
from p4lite.switch.fabric.values import FabricError, LinkSettings, PortStats, QueueLimits, TunnelSettings, TunnelStats
from p4lite.switch.listen import ServerError
from p4lite.switch.server import FabricServer
from p4lite.switch.targetapi import codec, target_pb2

KEY = bytes(range(16))
MASK = (1 << 64) - 1
MAGIC = 0x4D524354
WINDOW = 1024
WAIT_S = 120.0


def siphash(key: bytes, message: bytes) -> int:
    """SipHash-2-4, as its paper has it."""
    k0, k1 = int.from_bytes(key[:8], "little"), int.from_bytes(key[8:], "little")
    v = [k0 ^ 0x736F6D6570736575, k1 ^ 0x646F72616E646F6D, k0 ^ 0x6C7967656E657261, k1 ^ 0x7465646279746573]

    def turn(value: int, by: int) -> int:
        return (value << by | value >> (64 - by)) & MASK

    def rounds(count: int) -> None:
        for _ in range(count):
            v[0] = (v[0] + v[1]) & MASK
            v[2] = (v[2] + v[3]) & MASK
            v[1], v[3] = turn(v[1], 13) ^ v[0], turn(v[3], 16) ^ v[2]
            v[0] = (turn(v[0], 32) + v[3]) & MASK
            v[2] = (v[2] + v[1]) & MASK
            v[1], v[3] = turn(v[1], 17) ^ v[2], turn(v[3], 21) ^ v[0]
            v[2] = turn(v[2], 32)

    padded = message + bytes(7 - len(message) % 8) + bytes([len(message) & 0xFF])
    for at in range(0, len(padded), 8):
        word = int.from_bytes(padded[at : at + 8], "little")
        v[3] ^= word
        rounds(2)
        v[0] ^= word
    v[2] ^= 0xFF
    rounds(4)
    return v[0] ^ v[1] ^ v[2] ^ v[3]


def sealed(frame: bytes, end: int, seq: int, epoch: int = 1, key: bytes = KEY, magic: int = MAGIC) -> bytes:
    """Return a datagram as an end sends it."""
    head = magic.to_bytes(4, "big") + end.to_bytes(4, "big") + epoch.to_bytes(8, "big") + seq.to_bytes(8, "big")
    return head + siphash(key, head + frame).to_bytes(8, "big") + frame


class Peer:
    """The other end of a tunnel, in Python, on loopback."""

    def __init__(self) -> None:
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind(("127.0.0.1", 0))
        self.socket.settimeout(WAIT_S)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as free:
            free.bind(("127.0.0.1", 0))
            self.theirs = free.getsockname()
        self.socket.connect(self.theirs)

    def settings(self, end: int = 1, peer_end: int = 2, key: bytes = KEY) -> TunnelSettings:
        """For the fabric's end."""
        return TunnelSettings(text(self.theirs), text(self.socket.getsockname()), key, end, peer_end)


def text(address: tuple[str, int]) -> str:
    return f"{address[0]}:{address[1]}"


class Relay:
    """A fabric that carries what comes through one tunnel on to another; `one` and `two` are the machines behind."""

    def __init__(self, fabric: Fabric, to_two: LinkSettings | None = None) -> None:
        self.one, self.two = Peer(), Peer()
        switch = fabric.add_switch(1)
        self.first: Port = switch.add_port(1, tunnel=self.one.settings())
        self.second: Port = switch.add_port(2, tunnel=self.two.settings(3, 4), to_host=to_two or LinkSettings())
        switch.patch(1, 2)
        self.fabric = fabric

    def stats(self) -> TunnelStats:
        found = self.first.tunnel_stats()
        assert found is not None
        return found

    def settled(self, count: int) -> TunnelStats:
        """Once so many datagrams were looked at."""

        def done() -> bool:
            now = self.stats()
            return now.received + now.refused + now.repeated >= count

        until(done)
        return self.stats()


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.002)


@contextlib.contextmanager
def relay(**options: LinkSettings) -> Iterator[Relay]:
    with Fabric("real") as fabric:
        made = Relay(fabric, **options)
        fabric.start()
        try:
            yield made
        finally:
            made.one.socket.close()
            made.two.socket.close()


def test_the_tag_of_this_file_is_siphash() -> None:
    assert siphash(KEY, bytes(range(15))) == 0xA129CA6149BE45E5  # appendix A of its paper


def test_frames_come_out_as_they_went_in_numbered_and_sealed() -> None:
    frames = [bytes([size & 0xFF]) * size for size in (14, 60, 61, 62, 63, 64, 65, 1514, 4300, 9000, 60_000)]
    with relay() as made:
        epochs = set()
        for number, frame in enumerate(frames):
            made.one.socket.send(sealed(frame, 2, number))
            got = made.two.socket.recv(65536)
            assert int.from_bytes(got[4:8], "big") == 3
            assert int.from_bytes(got[16:24], "big") == number
            epochs.add(int.from_bytes(got[8:16], "big"))
            assert got == sealed(frame, 3, number, epoch=max(epochs))
        assert len(epochs) == 1
        assert made.stats() == TunnelStats(0, len(frames), 0, 0, 0, 0)
        other = made.second.stats()
        assert other.tunnel == TunnelStats(len(frames), 0, 0, 0, 0, 0)
        assert codec.value(PortStats, codec.message(target_pb2.PortStats, other)) == other
        made.two.socket.send(sealed(b"back" * 20, 4, 0))
        assert made.one.socket.recv(65536)[32:] == b"back" * 20


def test_what_is_not_the_peers_is_refused() -> None:
    frame = bytes(64)
    good = sealed(frame, 2, 7)
    wrong = [
        b"",
        good[:31],
        good[:-1],  # cut short
        good + b"x",
        sealed(frame, 1, 7),  # our own, sent back
        sealed(frame, 4, 7),  # of another link
        sealed(frame, 2, 7, key=bytes(16)),
        sealed(frame, 2, 7, magic=MAGIC ^ 1),
        *(good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :] for at in range(len(good))),
        bytes(65507),
    ]
    with relay() as made:
        for datagram in wrong:
            made.one.socket.send(datagram)
        assert made.settled(len(wrong)) == TunnelStats(0, 0, 0, 0, len(wrong), 0)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
            stranger.bind(("127.0.0.1", 0))
            stranger.sendto(good, made.one.theirs)  # right, but from elsewhere: the kernel keeps it
        made.one.socket.send(sealed(frame, 2, 8))
        made.two.socket.recv(65536)
        assert made.stats() == TunnelStats(0, 1, 0, 0, len(wrong), 0)
        assert made.second.stats().tx_packets == 1


def test_loss_is_counted_and_what_comes_late_is_not_lost() -> None:
    with relay() as made:
        for seq in (10, 11, 15, 13, 13, 12, 9, 15):
            made.one.socket.send(sealed(bytes(60), 2, seq))
        # 14 is lost, 13 and 12 late, 13 and 15 came twice; 9 was sent before the first that came.
        assert made.settled(8) == TunnelStats(0, 5, 1, 2, 0, 3)


def test_a_peer_that_begins_anew_is_heard_and_its_past_is_not() -> None:
    with relay() as made:
        sent = [(5, 100), (5, 101), (9, 0), (9, 1), (5, 102), (9, 2)]
        for epoch, seq in sent:
            made.one.socket.send(sealed(bytes(60), 2, seq, epoch))
        assert made.settled(len(sent)) == TunnelStats(0, 5, 0, 0, 0, 1)


class Model:
    """What a receiver must do, without a window of bits."""

    def __init__(self) -> None:
        self.came: set[int] = set()
        self.first = self.top = -1
        self.counts = dict.fromkeys(("received", "late", "repeated"), 0)

    def take(self, seq: int) -> None:
        if not self.came:
            self.first = self.top = seq
        late = seq < self.top
        if seq in self.came or seq < self.first or self.top + 1 - seq > WINDOW:
            self.counts["repeated"] += 1
            return
        self.came.add(seq)
        self.top = max(self.top, seq)
        self.counts["received"] += 1
        self.counts["late"] += late

    @property
    def lost(self) -> int:
        return self.top - self.first + 1 - len(self.came)


@pytest.fixture(scope="module")
def standing() -> Iterator[Relay]:
    with relay() as made:
        made.second.collect(False)
        yield made


STEPS = st.lists(
    st.one_of(st.integers(-3, 4), st.integers(-WINDOW - 3, -WINDOW + 3), st.integers(0, 3000)), max_size=40
)


@settings(max_examples=40, deadline=None)
@given(STEPS)
def test_numbers_are_taken_once_in_any_order(standing: Relay, steps: list[int]) -> None:
    model, seq, before = Model(), 10_000, standing.stats()
    epoch = time.time_ns()
    for step in [0, *steps]:
        seq = max(seq + step, 0)
        model.take(seq)
        standing.one.socket.send(sealed(bytes(60), 2, seq, epoch))
    after = standing.settled(before.received + before.repeated + before.refused + len(steps) + 1)
    grown = {key: getattr(after, key) - getattr(before, key) for key in model.counts}
    assert grown == model.counts
    assert after.lost - before.lost == model.lost
    assert after.refused == before.refused


@settings(max_examples=30, deadline=None)
@given(st.lists(st.binary(max_size=200), min_size=1, max_size=8))
def test_nothing_that_a_stranger_says_is_taken(standing: Relay, datagrams: list[bytes]) -> None:
    before = standing.stats()
    for each in datagrams:
        standing.one.socket.send(each)
    after = standing.settled(before.received + before.repeated + before.refused + len(datagrams))
    assert after.refused == before.refused + len(datagrams)
    assert after.received == before.received


def test_the_senders_end_keeps_the_rate_and_its_queue() -> None:
    # A second of the link's time for each frame: one is on its way, some wait, the rest finds the queue full.
    slow = LinkSettings(rate_bps=8 * 1000)
    with relay(to_two=slow) as made:
        made.second.set_queue(QueueLimits(packets=5))
        for seq in range(20):
            made.one.socket.send(sealed(bytes(1000), 2, seq))
        assert made.settled(20).received == 20
        until(lambda: made.second.stats().drops["queue_full"] > 0)
        now = made.second.stats()
        assert now.tunnel is not None
        waiting = sum(queue.depth_packets for queue in now.queues)
        assert now.tunnel.sent + waiting + now.drops["queue_full"] >= 19
        assert waiting <= 5
        assert now.tunnel.sent <= 20 - 5


def test_a_cut_link_carries_nothing_either_way() -> None:
    with relay() as made:
        made.first.set_up(False)
        made.one.socket.send(sealed(bytes(60), 2, 0))
        assert made.settled(1).received == 1  # by the tunnel, not by the link
        until(lambda: made.first.stats().drops["link_down"] == 1)
        assert made.second.stats().tx_packets == 0
        made.first.set_up(True)
        made.one.socket.send(sealed(b"now" * 20, 2, 1))
        assert made.two.socket.recv(65536)[32:] == b"now" * 20


def test_a_peer_that_is_not_there_yet_breaks_nothing() -> None:
    with relay() as made:
        there = made.two.socket.getsockname()
        made.two.socket.close()
        for seq in range(10):
            made.one.socket.send(sealed(bytes(60), 2, seq))
            made.settled(seq + 1)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as late:
            late.bind(there)
            late.settimeout(WAIT_S)
            for seq in range(10, 14):  # one of them may fall to the network's last word of the time before
                made.one.socket.send(sealed(bytes(60), 2, seq))
            assert len(late.recv(65536)) == 92


def test_a_tunnel_ends_with_its_port() -> None:
    with Fabric("real") as fabric:
        peer = Peer()
        switch = fabric.add_switch(1)
        switch.add_port(1, tunnel=peer.settings())
        fabric.start()
        switch.remove_port(1)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as again:
            again.bind(peer.theirs)
        assert switch.add_port(1).tunnel_stats() is None
        peer.socket.close()


@pytest.mark.parametrize("address", ["", "10.0.0.1:0", "10.0.0.1:70000", "name:70", "fd00::1:70", "[1.2.3.4]:5",
                                     "0.0.0.0:5", "[::]:5", "224.0.0.1:5", "10.0.0.1:²"])  # fmt: skip
def test_addresses_that_are_none(address: str) -> None:
    with pytest.raises(ValueError, match="is not an address"):
        tunnel_end(address)


def test_addresses_that_are_some() -> None:
    assert tunnel_end("10.0.0.1:7000") == (socket.AF_INET, ("10.0.0.1", 7000))
    assert tunnel_end("[fd00::1]:7000") == (socket.AF_INET6, ("fd00::1", 7000))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"local": "192.0.2.1:7000"}, "this machine does not have"),
        ({"local": "nobody"}, "not an address with a port"),
        ({"peer": "[::1]:7000"}, "not of one family"),
        ({"key": b"short"}, "16 bytes"),
        ({"end": 2}, "different numbers"),
        ({"end": -1}, "not between"),
    ],
)
def test_a_tunnel_that_cannot_be(changes: dict[str, object], reason: str) -> None:
    with Fabric("real") as fabric:
        given_settings = {"local": "127.0.0.1:7001", "peer": "127.0.0.1:7000", "key": KEY, "end": 1, "peer_end": 2}
        with pytest.raises(FabricError, match=reason):
            fabric.add_switch(1).add_port(1, tunnel=TunnelSettings(**{**given_settings, **changes}))  # type: ignore[arg-type]


def test_a_port_in_use_and_the_virtual_clock_are_refused() -> None:
    peer = Peer()
    with Fabric("real") as fabric:
        switch = fabric.add_switch(1)
        switch.add_port(1, tunnel=peer.settings())
        with pytest.raises(FabricError, match="another process has the first port"):
            switch.add_port(2, tunnel=peer.settings())
        with pytest.raises(FabricError, match="a link, an interface or a tunnel already"):
            switch.ports[1].tunnel(Peer().settings())
    with Fabric("virtual") as fabric, pytest.raises(FabricError, match="real clock"):
        fabric.add_switch(1).add_port(1, tunnel=Peer().settings())


def described(folder: pathlib.Path, **changes: object) -> dict[str, object]:
    """Return a fabric with one tunnel, as a description."""
    one = Peer().settings()
    tunnel = {"local": one.local, "peer": one.peer, "key_file": "key", "end": 1, "peer_end": 2, **changes}
    return {"switches": [{"device_id": 1, "ports": [{"port": 1, "tunnel": tunnel}]}]}


def write_key(folder: pathlib.Path, text: str = KEY.hex(), mode: int = 0o600) -> None:
    (folder / "key").write_text(text)
    os.chmod(folder / "key", mode)


def test_a_description_has_tunnels_with_their_key_in_a_private_file(tmp_path: pathlib.Path) -> None:
    write_key(tmp_path, KEY.hex() + "\n")
    server = FabricServer.from_description(described(tmp_path), tmp_path)
    assert server.fabric.switches[1].ports[1].tunnel_stats() == TunnelStats(0, 0, 0, 0, 0, 0)
    server.stop()
    for change, reason in (
        ({"key_file": "none"}, r"switches\[0\].ports\[0\].tunnel.key_file: .*No such file"),
        ({"end": -1}, r"tunnel.end"),
        ({"more": 1}, "more"),
        ({"peer": "x"}, "not an address with a port"),
    ):
        with pytest.raises(ServerError, match=reason):
            FabricServer.from_description(described(tmp_path, **change), tmp_path)
    for content, mode, reason in (
        (KEY.hex(), 0o640, "chmod 600"),
        ("", 0o600, "openssl"),
        ("zz" * 16, 0o600, "openssl"),
    ):
        write_key(tmp_path, content, mode)
        with pytest.raises(ServerError, match=reason):
            FabricServer.from_description(described(tmp_path), tmp_path)


def test_a_socket_that_another_has_opened_is_taken(tmp_path: pathlib.Path) -> None:
    write_key(tmp_path)
    peer = Peer()
    ends = {"local": text(peer.theirs), "peer": text(peer.socket.getsockname())}
    opened = tunnel_socket(ends["local"], ends["peer"])
    server = FabricServer.from_description(described(tmp_path, **ends, socket=opened.fileno()), tmp_path)
    opened.detach()  # it is the port's now
    server.fabric.start()
    peer.socket.send(sealed(bytes(60), 2, 0))
    stats = server.fabric.switches[1].ports[1].tunnel_stats
    until(lambda: (found := stats()) is not None and found.received == 1)
    server.stop()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as again:
        again.bind(peer.theirs)


def test_a_descriptor_that_is_no_such_socket_is_refused(tmp_path: pathlib.Path) -> None:
    write_key(tmp_path)
    peer = Peer()
    ends = {"local": text(peer.theirs), "peer": text(peer.socket.getsockname())}
    with (
        tunnel_socket(ends["local"], ends["peer"]) as opened,
        socket.socket(socket.AF_INET, socket.SOCK_STREAM) as stream,
        (tmp_path / "key").open() as file,
    ):
        for descriptor, change, reason in (
            (opened.fileno(), {"peer": "127.0.0.1:9"}, "is not a socket from"),
            (opened.fileno(), {"local": "127.0.0.1:9"}, "is not a socket from"),
            (opened.fileno(), {"local": "[::1]:9", "peer": "[::1]:10"}, "not a UDP socket of the family"),
            (stream.fileno(), {}, "not a UDP socket"),
            (file.fileno(), {}, "Socket operation on non-socket"),
            (1000, {}, "Bad file descriptor"),
            (-1, {}, r"tunnel.socket: expected an integer from 3"),
        ):
            with pytest.raises(ServerError, match=reason):
                FabricServer.from_description(described(tmp_path, **{**ends, **change}, socket=descriptor), tmp_path)
        assert opened.getsockname() == peer.theirs, "whoever opened it still has it"
