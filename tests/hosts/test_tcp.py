"""Workloads over the kernel's TCP: verified bytes, what breaks is named. On the loopback interface, without a lab."""

from __future__ import annotations

import asyncio
import json
import pathlib
import socket
import subprocess
import sys
from typing import Any
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mrc_host.tcp import HEADER, TcpChannel

WAIT_S = 60


def free_port(count: int) -> int:
    """Return the first of so many ports that nobody listens on now."""
    with socket.create_server(("::1", 0), family=socket.AF_INET6) as found:
        port = int(found.getsockname()[1])
    return port if port + count < 65536 else 20000


def begin(workload: str, params: dict[str, Any], size: int, streams: int) -> list[subprocess.Popen[str]]:
    """Ranks that are connected and wait for the word to start."""
    config = {"workload": workload, "params": params, "addresses": ["::1"] * size, "port": free_port(size)}
    config |= {"streams": streams, "timeout_s": WAIT_S}
    ranks = [
        subprocess.Popen(
            [sys.executable, "-P", "-m", "mrc_host.tcp", json.dumps(config | {"rank": rank})],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(size)
    ]
    for state in ("listening", "connected"):
        for each in ranks:
            assert each.stdout is not None
            assert json.loads(each.stdout.readline()) == {"ready": state}
        if state == "listening":
            go(ranks)
    return ranks


def go(ranks: list[subprocess.Popen[str]]) -> None:
    for each in ranks:
        assert each.stdin is not None
        each.stdin.write("\n")
        each.stdin.flush()


def told(ranks: list[subprocess.Popen[str]]) -> list[dict[str, Any]]:
    found = []
    for each in ranks:
        assert each.stdout is not None
        found.append(json.loads(each.stdout.readline())["progress"])
    for each in ranks:
        each.communicate(timeout=WAIT_S)
    return found


@pytest.mark.parametrize(
    ("workload", "params", "streams", "verified"),
    [
        ("ring_all_reduce", {"size_bytes": 300_000, "iterations": 3}, 1, 3 * 300_000),
        ("all_to_all", {"block_bytes": 100_001, "iterations": 2}, 4, 2 * 2 * 100_001),
        ("write_bw", {"message_bytes": 1_000_003, "iterations": 4, "source": 0, "target": 2}, 3, 4 * 1_000_003),
        # Computation on the clock of the machine: 3 steps of 4 ms.
        ("training", {"gradient_bytes": 60_000, "compute_us": 4000, "iterations": 3}, 2, 180_000),
    ],
)
def test_every_byte_is_verified(workload: str, params: dict[str, Any], streams: int, verified: int) -> None:
    ranks = begin(workload, params, 3, streams)
    go(ranks)
    progress = told(ranks)
    assert not any(each["mismatches"] or each["failure"] for each in progress)
    assert max(each["bytes_verified"] for each in progress) == verified
    assert all(each["finished_ns"] >= each["started_ns"] for each in progress)


def test_a_rank_that_dies_is_named_by_the_others() -> None:
    ranks = begin("ring_all_reduce", {"size_bytes": 300_000, "iterations": 1 << 20}, 3, 1)
    go(ranks)
    ranks[1].kill()
    ranks[1].wait()
    assert ranks[0].stdout is not None
    assert json.loads(ranks[0].stdout.readline())["progress"]["failure"].startswith("rank 0 to rank 1: ")
    for each in ranks:
        each.communicate(timeout=WAIT_S)


def test_rank_exits_when_its_standard_input_closes() -> None:
    ranks = begin("ring_all_reduce", {"size_bytes": 300_000, "iterations": 1 << 20}, 2, 1)
    go(ranks)
    for each in ranks:
        each.communicate(timeout=WAIT_S)
        assert each.returncode == 0


@pytest.mark.parametrize(
    "config", ["{}", "nonsense", '{"workload": "sing", "params": {}, "rank": 0, "addresses": ["::1"], "port": 1}']
)
def test_an_unusable_configuration_is_one_line(config: str, tmp_path: pathlib.Path) -> None:
    command = [sys.executable, "-P", "-m", "mrc_host.tcp", config]
    done = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S, cwd=tmp_path)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr


def served(stream: bytes, cuts: list[int], memory: memoryview) -> tuple[mock.Mock, list[bytes]]:
    """Let a channel take a stream that arrives in pieces; return its workload and what it answered."""
    workload, writer = mock.Mock(done=False), mock.Mock()

    async def take() -> None:
        reader = asyncio.StreamReader()
        channel = TcpChannel({1: [(reader, writer)]}, memory)
        channel.workload = workload
        serving = asyncio.create_task(channel.serve(1, reader, writer))
        left = stream
        while left:
            cut = cuts.pop() if cuts else len(left)
            reader.feed_data(left[:cut])
            left = left[cut:]
            await asyncio.sleep(0)
        reader.feed_eof()
        await serving

    asyncio.run(take())
    return workload, [call.args[0] for call in writer.write.call_args_list]


@settings(max_examples=30, deadline=None)
@given(st.lists(st.binary(max_size=3000), max_size=6), st.lists(st.integers(1, 700), max_size=20))
def test_frames_come_out_as_they_went_in(blocks: list[bytes], cuts: list[int]) -> None:
    """However the bytes are cut on their way."""
    memory = memoryview(bytearray(20_000))
    stream = b"".join(
        HEADER.pack(1, True, index, 7, index * 3000, len(block)) + block for index, block in enumerate(blocks)
    )
    workload, answers = served(stream, cuts, memory)
    assert [call.args[:2] for call in workload.arrived.call_args_list] == [(1, index) for index in range(len(blocks))]
    assert answers == [HEADER.pack(2, False, 0, 7, 0, 0)] * len(blocks)
    for index, block in enumerate(blocks):
        assert memory[index * 3000 : index * 3000 + len(block)] == block


@pytest.mark.parametrize(
    ("stream", "said"),
    [
        (HEADER.pack(1, False, 0, 0, 90, 20) + bytes(20), "20 bytes at 90 are beyond the region of 100"),
        (HEADER.pack(1, False, 0, 0, 90, 10) + bytes(9), "the connection was closed"),
    ],
)
def test_a_write_beyond_the_region_or_cut_off_ends_the_workload(stream: bytes, said: str) -> None:
    memory = memoryview(bytearray(100))
    workload, answers = served(stream, [], memory)
    assert workload.failed.call_args.args[:2] == (1, said)
    assert answers == []
    assert not any(memory)
