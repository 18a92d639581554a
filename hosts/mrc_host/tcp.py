"""Workloads over the kernel's own TCP: one rank, a process in its host's network namespace. Nothing of TCP is ours.

    python -m mrc_host.tcp CONFIG_JSON

Configuration (JSON): `workload`, `params`, `rank`, `addresses` (of all ranks), `port` (of rank 0, the next one's is one
more), `streams` (connections per peer), `timeout_s`. The program says `{"ready": "listening"}`, waits for a line,
connects, says `{"ready": "connected"}`, waits for a line, runs the workload, says how it went (`progress`, `measured`),
and serves its peers until its input ends. Exit code 1: no connections; 2: unusable configuration.

A workload's writes are frames, some to each peer, among whose connections a write is cut. A frame is a header
(`HEADER`) and, for data, the bytes, which are read straight into the region. Each write is answered by a frame without
bytes once all of it is in place: TCP's own acknowledgements stay in the kernel.
"""

from __future__ import annotations

import contextlib
import heapq
import json
import selectors
import socket
import struct
import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from mrc_host.workloads import WORKLOADS, WorkloadError
from mrc_host.workloads.base import Parameters, Workload
from mrc_topo.base.errors import ErrorCode, MrclabError
from mrc_topo.base.plain import DecodeError, decode, encode

DATA, DONE, HELLO = 1, 2, 3
#: Kind, whether there is an immediate, immediate, number of the write, offset in the receiver's region, length.
HEADER: Final = struct.Struct("!B?2xIQQQ")
#: The fields of a header.
Frame = tuple[int, bool, int, int, int, int]
#: What one system call is given at most.
BATCH = 64
TURN_S = 0.05


class ChannelError(MrclabError):
    """A connection cannot be made, or that to `peer` has ended; the text says why."""

    code = ErrorCode.GONE

    def __init__(self, text: str, peer: int = -1) -> None:
        super().__init__(text)
        self.peer = peer


class TcpConnection:
    """One TCP connection: frames that wait to be sent, and how far the one that is coming in has come."""

    def __init__(self, sock: socket.socket, peer: int) -> None:
        self.sock, self.peer = sock, peer
        self.out: deque[memoryview] = deque()
        self.dead = False
        self._head = bytearray(HEADER.size)
        self._got = 0
        self._frame: Frame | None = None

    def flush(self) -> None:
        """Send as much as the kernel accepts."""
        out = self.out
        while out:
            batch = [out[index] for index in range(min(len(out), BATCH))]
            try:
                sent = self.sock.sendmsg(batch)
            except BlockingIOError:
                return
            while out and sent >= len(out[0]):
                sent -= len(out.popleft())
            if sent:
                out[0] = out[0][sent:]

    def frames(self, memory: memoryview) -> list[Frame]:
        """Read what has arrived, and return the frames that are complete.

        Raises:
            ChannelError: the peer is gone, or writes beyond the region.
        """
        done: list[Frame] = []
        while True:
            frame = self._frame
            if frame is None:
                target = memoryview(self._head)[self._got :]
            else:
                offset, length = frame[4], frame[5]
                target = memory[offset + self._got : offset + length]
            try:
                count = self.sock.recv_into(target)
            except BlockingIOError:
                return done
            if not count:
                raise ChannelError("the connection was closed")
            self._got += count
            if frame is None and self._got == HEADER.size:
                frame = HEADER.unpack(self._head)
                kind, _, _, _, offset, length = frame
                if kind == DATA and offset + length > len(memory):
                    raise ChannelError(f"{length} bytes at {offset} are beyond the region of {len(memory)}")
                self._got = 0
                if kind == DATA and length:
                    self._frame = frame
                else:
                    done.append(frame)
            elif frame is not None and self._got == frame[5]:
                self._got, self._frame = 0, None
                done.append(frame)


class TcpChannel:
    """`workloads.base.Channel` over connections by peer; `workload` is notified of arrivals."""

    def __init__(
        self, connections: dict[int, list[TcpConnection]], memory: memoryview, clock: Callable[[], int]
    ) -> None:
        self.connections, self.memory, self.clock = connections, memory, clock
        self.workload: Workload[Parameters] | None = None
        self._next = 0
        self._parts: dict[int, list[int]] = {}
        self._immediates: Counter[tuple[int, int]] = Counter()
        self._alarms: list[int] = []
        self._selector = selectors.DefaultSelector()
        for each in self._all():
            each.sock.setblocking(False)
            self._selector.register(each.sock, selectors.EVENT_READ, each)

    def _all(self) -> list[TcpConnection]:
        return [each for group in self.connections.values() for each in group]

    def put(self, peer: int, offset: int, remote_offset: int, length: int, *, tag: int, imm: int | None = None) -> None:
        """See `Channel`."""
        group = self.connections[peer]
        number = self._next
        self._next += 1
        self._parts[number] = [len(group), tag]
        share = -(-length // len(group) // 4) * 4
        for index, each in enumerate(group):
            first = min(index * share, length)
            part = min(share, length - first)
            head = HEADER.pack(DATA, imm is not None, imm or 0, number, remote_offset + first, part)
            each.out.append(memoryview(head))
            if part:
                each.out.append(self.memory[offset + first : offset + first + part])
            self._push(each)

    def wake(self, at_ns: int) -> None:
        """See `Channel`."""
        heapq.heappush(self._alarms, at_ns)

    def _ring(self) -> None:
        while self._alarms and self._alarms[0] <= self.clock():
            heapq.heappop(self._alarms)
            assert self.workload is not None
            self.workload.woken(self.clock())

    def _push(self, each: TcpConnection) -> None:
        """Send, and wait for room where the kernel has none."""
        if each.dead:
            return
        try:
            each.flush()
        except OSError:  # the next read reports it
            each.out.clear()
        wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if each.out else 0)
        if self._selector.get_key(each.sock).events != wanted:
            self._selector.modify(each.sock, wanted, each)

    def turn(self, timeout_s: float) -> None:
        """Wait for sockets, then read and write those that are ready.

        Raises:
            ChannelError: a connection has ended.
        """
        self._ring()
        if self._alarms:
            timeout_s = min(timeout_s, max((self._alarms[0] - self.clock()) / 1e9, 0.0))
        for key, events in self._selector.select(timeout_s):
            each: TcpConnection = key.data
            try:
                if events & selectors.EVENT_READ:
                    for frame in each.frames(self.memory):
                        self._took(each, frame)
                if each.out:
                    self._push(each)
            except (OSError, ChannelError) as error:
                # The other connections go on, so that each rank reports its own error and not a consequence of it.
                each.dead = True
                self._selector.unregister(each.sock)
                each.sock.close()
                raise ChannelError(getattr(error, "strerror", None) or str(error), each.peer) from error

    def _took(self, each: TcpConnection, frame: Frame) -> None:
        kind, has_immediate, imm, number, _, _ = frame
        workload = self.workload
        assert workload is not None
        peer = each.peer
        if kind == DATA:
            each.out.append(memoryview(HEADER.pack(DONE, False, 0, number, 0, 0)))
            if has_immediate:
                self._immediates[peer, imm] += 1
                if self._immediates[peer, imm] == len(self.connections[peer]):
                    del self._immediates[peer, imm]
                    workload.arrived(peer, imm, self.clock())
        elif kind == DONE and number in self._parts:
            parts = self._parts[number]
            parts[0] -= 1
            if not parts[0]:
                del self._parts[number]
                workload.put_done(peer, parts[1], self.clock())

    def close(self) -> None:
        """Close all connections."""
        self._selector.close()
        for each in self._all():
            with contextlib.suppress(OSError):
                each.sock.close()


def connected(
    listener: socket.socket,
    rank: int,
    peers: Sequence[int],
    targets: Callable[[int], tuple[str, int]],
    streams: int,
    timeout_s: float,
) -> dict[int, list[TcpConnection]]:
    """Open `streams` connections to each of `peers`; the lower rank connects to the higher.

    Raises:
        ChannelError: a connection was not made in time.
    """
    made: dict[int, list[TcpConnection]] = {peer: [] for peer in peers}
    local = listener.getsockname()[0]
    try:
        for peer in (each for each in peers if each > rank):
            for _ in range(streams):
                sock = socket.create_connection(targets(peer), timeout_s, (local, 0))
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                sock.sendall(HEADER.pack(HELLO, False, rank, 0, 0, 0))
                made[peer].append(TcpConnection(sock, peer))
        listener.settimeout(timeout_s)
        for _ in range(streams * sum(each < rank for each in peers)):
            sock, _ = listener.accept()
            sock.settimeout(timeout_s)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            greeting = sock.recv(HEADER.size, socket.MSG_WAITALL)
            if len(greeting) < HEADER.size:
                raise ChannelError("a peer hung up")
            peer = HEADER.unpack(greeting)[2]
            if peer not in made:
                raise ChannelError(f"rank {peer} called, which is not a peer of rank {rank}")
            made[peer].append(TcpConnection(sock, peer))
    except OSError as error:
        raise ChannelError(f"rank {rank}: a connection could not be made: {error}") from error
    return made


@dataclass(frozen=True)
class RankConfig:
    """Configuration of a rank (see the module). The workload checks `params`."""

    workload: str
    params: object
    rank: int
    addresses: Sequence[str]
    port: int
    streams: int
    timeout_s: float


def _say(document: Mapping[str, object]) -> None:
    print(json.dumps(encode(document)), flush=True)


def _heard() -> bool:
    """Wait for a line; False when there is none any more."""
    return bool(sys.stdin.readline())


def _run(config: RankConfig) -> None:
    kind = WORKLOADS[config.workload]
    rank, addresses, port = config.rank, config.addresses, config.port
    size, params = len(addresses), kind.complete(config.params)
    memory = memoryview(bytearray(max(kind.plan(size, params), 1)))
    mine = kind.peers(rank, size, params)
    peers = sorted(mine | {peer for peer in range(size) if rank in kind.peers(peer, size, params)})
    with socket.create_server((addresses[rank], port + rank), family=socket.AF_INET6, backlog=1024) as listener:
        _say({"ready": "listening"})
        if not _heard():
            return
        timeout_s = config.timeout_s
        groups = connected(
            listener, rank, peers, lambda peer: (addresses[peer], port + peer), config.streams, timeout_s
        )
    channel = TcpChannel(groups, memory, time.monotonic_ns)
    workload = channel.workload = kind(rank, size, params, channel, memory)
    _say({"ready": "connected"})
    if not _heard():
        return
    workload.start(time.monotonic_ns())
    deadline = time.monotonic() + timeout_s
    with selectors.DefaultSelector() as ear:
        ear.register(0, selectors.EVENT_READ)
        told = False
        # When it is done, the others still need answers to what they have sent.
        while not ear.select(0):
            try:
                channel.turn(TURN_S)
            except ChannelError as error:
                workload.failed(error.peer, str(error), time.monotonic_ns())
            if time.monotonic() > deadline:
                workload.failed(rank, f"not finished after {timeout_s:g} s", time.monotonic_ns())
            if workload.done and not told:
                told = True
                _say({"progress": workload.progress, "measured": workload.measured()})
    channel.close()


def main(argv: list[str]) -> int:
    """Run the program; return its exit code."""
    try:
        _run(decode(RankConfig, json.loads(argv[0])))
    except (IndexError, KeyError, ValueError, WorkloadError, DecodeError) as error:
        print(f"unusable configuration: {type(error).__name__}: {error}", file=sys.stderr)
        return 2
    except (ChannelError, OSError) as error:
        _say({"error": str(error)})
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
