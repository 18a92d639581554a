"""Every workload over an adversarial channel: data is read as late as MRC may read it, completions come late."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mrc_host.workloads import WORKLOADS, Workload, WorkloadError


class ToyNet:
    """Per (source, destination) in-order delivery at random times; acknowledgements at random later times."""

    def __init__(self, name: str, size: int, params: dict[str, Any], seed: int) -> None:
        self.rng = random.Random(seed)
        self.now = 0
        kind = WORKLOADS[name]
        nbytes = kind.memory_bytes(size, params)
        self.memories = [bytearray(nbytes) for _ in range(size)]
        self.peers = [kind.peers(rank, size, params) for rank in range(size)]
        self.flows: dict[tuple[int, int], list[tuple[int, int, int, int, int | None]]] = {}
        self.acks: dict[tuple[int, int], list[int]] = {}
        self.ranks: list[Workload] = [
            kind(rank, size, params, ToyChannel(self, rank), memoryview(self.memories[rank])) for rank in range(size)
        ]

    def run(self, events: int = 200_000) -> None:
        waiting = list(range(len(self.ranks)))
        self.rng.shuffle(waiting)
        for _ in range(events):
            self.now += 1
            choices: list[tuple[str, Any]] = [("start", waiting)] if waiting else []
            choices += [("data", flow) for flow, queue in self.flows.items() if queue]
            choices += [("ack", flow) for flow, queue in self.acks.items() if queue]
            if not choices:
                return
            kind, what = self.rng.choice(choices)
            if kind == "start":
                self.ranks[what.pop()].start(self.now)
            elif kind == "data":
                source, destination = what
                offset, remote, length, tag, imm = self.flows[what].pop(0)
                data = self.memories[source][offset : offset + length]
                assert len(data) == length
                self.memories[destination][remote : remote + length] = data
                self.acks.setdefault(what, []).append(tag)
                if imm is not None:
                    self.ranks[destination].arrived(source, imm, self.now)
            else:
                self.ranks[what[0]].put_done(what[1], self.acks[what].pop(0), self.now)
        raise AssertionError("no end")


class ToyChannel:
    def __init__(self, net: ToyNet, rank: int) -> None:
        self.net, self.rank = net, rank

    def put(self, peer: int, offset: int, remote_offset: int, length: int, *, tag: int, imm: int | None = None) -> None:
        assert peer in self.net.peers[self.rank]
        assert offset + length <= len(self.net.memories[self.rank])
        assert remote_offset + length <= len(self.net.memories[peer])
        self.net.flows.setdefault((self.rank, peer), []).append((offset, remote_offset, length, tag, imm))


PARAMS: dict[str, dict[str, Any]] = {
    "ring_all_reduce": {"size_bytes": 4 * 840},
    "reduce_scatter": {"size_bytes": 4 * 840},
    "all_gather": {"size_bytes": 4 * 840},
    "tree_all_reduce": {"size_bytes": 400},
    "all_to_all": {"block_bytes": 100},
    "permutation": {"message_bytes": 100, "shift": 1},
    "incast": {"message_bytes": 100, "target": 0},
    "send_recv": {"message_bytes": 64, "window": 3},
    "write_bw": {"message_bytes": 128},
    "write_lat": {},
}


@pytest.mark.parametrize("name", sorted(WORKLOADS))
@settings(max_examples=15)
@given(size=st.integers(2, 8), iterations=st.integers(0, 5), seed=st.integers(0, 2**32))
def test_every_rank_ends_with_verified_data(name: str, size: int, iterations: int, seed: int) -> None:
    net = ToyNet(name, size, {**PARAMS[name], "iterations": iterations}, seed)
    net.run()
    for rank in net.ranks:
        progress = rank.progress
        assert rank.done
        assert not progress.failure
        assert progress.mismatches == 0
        assert progress.iterations == iterations or (name == "write_lat" and rank.rank > 1)
        assert len(progress.iteration_ns) == progress.iterations
    if iterations:
        assert sum(rank.progress.bytes_verified for rank in net.ranks) > 0


def test_a_wrong_byte_is_seen() -> None:
    net = ToyNet("all_to_all", 3, {"block_bytes": 100, "iterations": 1}, 7)
    put = ToyChannel.put

    class Corrupting(ToyChannel):
        def put(self, peer: int, *args: Any, **rest: Any) -> None:
            put(self, peer, *args, **rest)
            net.memories[self.rank][args[0]] ^= 1

    net.ranks[1].channel = Corrupting(net, 1)
    net.run()
    assert [rank.progress.mismatches for rank in net.ranks] == [1, 0, 1]


def test_a_victim_beside_the_incast() -> None:
    net = ToyNet("incast", 5, {"message_bytes": 50, "iterations": 3, "target": 0, "victim": [3, 4]}, 1)
    net.run()
    assert [rank.progress.bytes_verified for rank in net.ranks] == [2 * 3 * 50, 0, 0, 0, 3 * 50]


def test_stop_after_ends_a_long_loop_on_all_ranks() -> None:
    net = ToyNet("ring_all_reduce", 4, {"size_bytes": 64, "iterations": 1_000_000}, 3)
    for rank in net.ranks:
        rank.stop_after(9)
    net.run()
    assert [rank.progress.iterations for rank in net.ranks] == [9] * 4


@pytest.mark.parametrize(
    ("name", "size", "params", "hint"),
    [
        ("ring_all_reduce", 3, {"size_bytes": 100}, "multiple of 12"),
        ("ring_all_reduce", 1, {}, "at least 2 ranks"),
        ("all_to_all", 4, {"block_bytes": 0}, "must be positive"),
        ("all_to_all", 4, {"blocks": 1}, "no parameter 'blocks'; known: block_bytes, iterations"),
        ("write_bw", 2, {"target": 0}, "from rank 0 to rank 0"),
        ("write_lat", 2, {"target": 5}, "two ranks below 2"),
        ("incast", 4, {"victim": [1]}, "pair"),
        ("send_recv", 4, {"window": 0}, "window must be at least 1"),
        ("send_recv", 4, {"iterations": -1}, "iterations must be a whole number"),
    ],
)
def test_bad_parameters(name: str, size: int, params: dict[str, Any], hint: str) -> None:
    with pytest.raises(WorkloadError, match=hint):
        WORKLOADS[name].memory_bytes(size, params)
