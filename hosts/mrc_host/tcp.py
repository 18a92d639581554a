"""Workloads over the kernel's own TCP: one rank, a process in its host's network namespace. Nothing of TCP is ours.

    python -m mrc_host.tcp CONFIG_JSON

Configuration (JSON): `workload`, `params`, `rank`, `addresses` (of all ranks), `port` (of rank 0, the next one's is one
more), `streams` (connections per peer), `timeout_s`. The program says `{"ready": "listening"}`, waits for a line,
connects, says `{"ready": "connected"}`, waits for a line, runs the workload, says how it went (`progress`, `measured`),
and serves its peers until its input ends. Exit code 1: no connections; 2: unusable configuration.

A workload's writes are frames, some to each peer, among whose connections a write is cut. A frame is a header
(`HEADER`) and, for data, the bytes. Each write is answered by a frame without
bytes once all of it is in place: TCP's own acknowledgements stay in the kernel.
"""

from __future__ import annotations

import asyncio
import json
import socket
import struct
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from mrc_host.workloads import WORKLOADS, WorkloadError
from mrc_host.workloads.base import Parameters, Workload
from mrc_topo.base.errors import ErrorCode, MrclabError
from mrc_topo.base.plain import DecodeError, decode, encode

DATA, DONE, HELLO = 1, 2, 3
#: Kind, whether there is an immediate, immediate, number of the write, offset in the receiver's region, length.
HEADER: Final = struct.Struct("!B?2xIQQQ")
#: A connection that waits for `accept` of a rank.
BACKLOG: Final = 1024
Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class ChannelError(MrclabError):
    """A connection that cannot be made, or has ended; the text says why."""

    code = ErrorCode.GONE


class TcpChannel:
    """`workloads.base.Channel` over connections by peer; `workload` is notified of arrivals."""

    def __init__(self, connections: Mapping[int, Sequence[Connection]], memory: memoryview) -> None:
        self.connections, self.memory = connections, memory
        self.workload: Workload[Parameters] | None = None
        self.finished = asyncio.Event()
        self._next = 0
        self._parts: dict[int, list[int]] = {}
        self._immediates: Counter[tuple[int, int]] = Counter()

    def put(self, peer: int, offset: int, remote_offset: int, length: int, *, tag: int, imm: int | None = None) -> None:
        """See `Channel`."""
        group = self.connections[peer]
        number = self._next
        self._next += 1
        self._parts[number] = [len(group), tag]
        share = -(-length // len(group) // 4) * 4
        for index, (_, writer) in enumerate(group):
            first = min(index * share, length)
            part = min(share, length - first)
            writer.write(HEADER.pack(DATA, imm is not None, imm or 0, number, remote_offset + first, part))
            writer.write(self.memory[offset + first : offset + first + part])

    def wake(self, at_ns: int) -> None:
        """See `Channel`."""
        assert self.workload is not None
        wait_s = max((at_ns - time.monotonic_ns()) / 1e9, 0.0)
        asyncio.get_running_loop().call_later(wait_s, self.tell, self.workload.woken)

    def tell(self, call: Callable[..., None], *arguments: object) -> None:
        """Call the workload with the time, and note when it has finished."""
        assert self.workload is not None
        call(*arguments, time.monotonic_ns())
        if self.workload.done:
            self.finished.set()

    async def serve(self, peer: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Take the frames of one connection until it ends, which ends the workload."""
        assert self.workload is not None
        try:
            while True:
                frame = HEADER.unpack(await reader.readexactly(HEADER.size))
                kind, has_immediate, imm, number, offset, length = frame
                if kind == DONE:
                    self._acknowledged(peer, number)
                    continue
                if offset + length > len(self.memory):
                    raise ChannelError(f"{length} bytes at {offset} are beyond the region of {len(self.memory)}")
                self.memory[offset : offset + length] = await reader.readexactly(length)
                writer.write(HEADER.pack(DONE, False, 0, number, 0, 0))
                if has_immediate:
                    self._arrived(peer, imm)
        except (OSError, asyncio.IncompleteReadError, ChannelError) as error:
            # The other connections go on, so that each rank reports its own error and not a consequence of it.
            closed = "the connection was closed" if isinstance(error, asyncio.IncompleteReadError) else str(error)
            self.tell(self.workload.failed, peer, getattr(error, "strerror", None) or closed)
            writer.close()

    def _arrived(self, peer: int, imm: int) -> None:
        assert self.workload is not None
        self._immediates[peer, imm] += 1
        if self._immediates[peer, imm] == len(self.connections[peer]):
            del self._immediates[peer, imm]
            self.tell(self.workload.arrived, peer, imm)

    def _acknowledged(self, peer: int, number: int) -> None:
        assert self.workload is not None
        if number in self._parts:
            parts = self._parts[number]
            parts[0] -= 1
            if not parts[0]:
                del self._parts[number]
                self.tell(self.workload.put_done, peer, parts[1])


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


async def _connected(config: RankConfig, peers: Sequence[int]) -> dict[int, list[Connection]] | None:
    """Open the connections to each of `peers`, of which the lower rank connects; None: the input has ended before.

    Raises:
        ChannelError: a connection was not made in time.
    """
    rank, own = config.rank, config.addresses[config.rank]
    made: dict[int, list[Connection]] = {peer: [] for peer in peers}
    complete = asyncio.Event()

    async def greeted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = HEADER.unpack(await reader.readexactly(HEADER.size))[2]
        if peer in made:
            made[peer].append((reader, writer))
        if all(len(made[each]) == config.streams for each in peers if each < rank):
            complete.set()

    server = await asyncio.start_server(greeted, own, config.port + rank, family=socket.AF_INET6, backlog=BACKLOG)
    async with server:
        _say({"ready": "listening"})
        if not await _heard():
            return None
        try:
            async with asyncio.timeout(config.timeout_s):
                for peer in (each for each in peers if each > rank):
                    for _ in range(config.streams):
                        there = config.addresses[peer], config.port + peer
                        reader, writer = await asyncio.open_connection(*there, local_addr=(own, 0))
                        writer.write(HEADER.pack(HELLO, False, rank, 0, 0, 0))
                        made[peer].append((reader, writer))
                if any(peer < rank for peer in peers):
                    await complete.wait()
        except OSError as error:  # a timeout is one
            raise ChannelError(f"rank {rank}: a connection could not be made: {error or 'no answer'}") from error
    return made


def _say(document: Mapping[str, object]) -> None:
    print(json.dumps(encode(document)), flush=True)


async def _heard() -> bool:
    """Wait for a line; False when there is none any more."""
    return bool(await asyncio.to_thread(sys.stdin.readline))


async def _run(config: RankConfig) -> None:
    kind = WORKLOADS[config.workload]
    rank, size, params = config.rank, len(config.addresses), kind.complete(config.params)
    memory = memoryview(bytearray(max(kind.plan(size, params), 1)))
    mine = kind.peers(rank, size, params)
    peers = sorted(mine | {peer for peer in range(size) if rank in kind.peers(peer, size, params)})
    groups = await _connected(config, peers)
    if groups is None:
        return
    channel = TcpChannel(groups, memory)
    workload: Workload[Any] = kind(rank, size, params, channel, memory)
    channel.workload = workload
    _say({"ready": "connected"})
    if not await _heard():
        return
    channel.tell(workload.start)
    late = f"not finished after {config.timeout_s:g} s"
    asyncio.get_running_loop().call_later(config.timeout_s, channel.tell, workload.failed, rank, late)
    async with asyncio.TaskGroup() as tasks:
        serving = [
            tasks.create_task(channel.serve(peer, *connection))
            for peer, group in groups.items()
            for connection in group
        ]
        end = tasks.create_task(_heard())
        finished = tasks.create_task(channel.finished.wait())
        await asyncio.wait((end, finished), return_when=asyncio.FIRST_COMPLETED)
        if finished.done():
            _say({"progress": workload.progress, "measured": workload.measured()})
        # When it is done, the others still need answers to what they have sent.
        await end
        for task in (*serving, finished):
            task.cancel()


def main(argv: list[str]) -> int:
    """Run the program; return its exit code."""
    try:
        asyncio.run(_run(decode(RankConfig, json.loads(argv[0]))))
    except (IndexError, KeyError, ValueError, WorkloadError, DecodeError) as error:
        print(f"unusable configuration: {type(error).__name__}: {error}", file=sys.stderr)
        return 2
    except (ChannelError, OSError) as error:
        _say({"error": str(error)})
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
