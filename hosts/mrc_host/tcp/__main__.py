"""One rank of a workload over TCP.

    python -m mrc_host.tcp CONFIG_JSON

Configuration (JSON): `workload`, `params`, `rank`, `addresses` (of all ranks), `port` (of rank 0, the next one's is one
more), `streams` (connections per peer), `timeout_s`. The program says `{"ready": "listening"}`, waits for a line,
connects, says `{"ready": "connected"}`, waits for a line, runs the workload, says how it went (`progress`, `measured`),
and serves its peers until its input ends. Exit code 1: no connections; 2: unusable configuration.
"""

from __future__ import annotations

import json
import selectors
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mrc_host.tcp.channel import ChannelError, TcpChannel, connected
from mrc_host.workloads import WORKLOADS, WorkloadError
from mrc_topo.base.plain import DecodeError, decode, encode

TURN_S = 0.05


@dataclass(frozen=True)
class RankConfig:
    """See the module's docstring. The workload checks `params`."""

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
