"""The training workload: its order of work, mixes of parallelism over an adversarial channel, what a step costs."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mrc_host.graph.generate import order
from mrc_host.workloads.base import split
from mrc_host.workloads.training import Training
from support.toynet import ToyNet


@given(stages=st.integers(1, 8), micro=st.integers(1, 20), stage=st.data())
def test_order_of_1f1b_is_complete_and_bounded_in_flight(stages: int, micro: int, stage: Any) -> None:
    """Each micro batch once forward, then once backward, in order; no more in flight than stages are left."""
    number = stage.draw(st.integers(0, stages - 1))
    rows = order(number, stages, micro)
    assert [each for forward, each in rows if forward] == list(range(micro))
    assert [each for forward, each in rows if not forward] == list(range(micro))
    flying = most = 0
    for forward, _ in rows:
        flying += 1 if forward else -1
        assert flying >= 0
        most = max(most, flying)
    assert most == min(stages - number, micro)


@given(st.integers(0, 1000), st.integers(1, 40))
def test_split_parts_are_even_and_cover_the_whole(count: int, parts: int) -> None:
    rows = split(count, parts)
    lengths = [row.stop - row.start for row in rows]
    assert sum(lengths) == count
    assert max(lengths) - min(lengths) <= 1
    assert [row.start for row in rows[1:]] == [row.stop for row in rows[:-1]]


MIXES = st.sampled_from(
    [
        (8, {}),
        (8, {"pipeline": 8}),
        (8, {"pipeline": 2, "experts": 4}),
        (8, {"pipeline": 4, "experts": 2, "micro_batches": 5}),
        (6, {"pipeline": 3, "micro_batches": 2}),
        (6, {"experts": 3, "micro_batches": 3}),
        (5, {"experts": 5}),
    ]
)


@settings(max_examples=30, deadline=None)
@given(mix=MIXES, steps=st.integers(1, 4), seed=st.integers(0, 2**32), compute=st.sampled_from([0, 1, 40]))
def test_every_mix_ends_with_verified_data(
    mix: tuple[int, dict[str, int]], steps: int, seed: int, compute: int
) -> None:
    size, params = mix
    small = {"gradient_bytes": 300, "buckets": 3, "activation_bytes": 50, "expert_bytes": 20, "compute_us": compute}
    net = ToyNet("training", size, {**small, **params, "jitter_percent": 30, "iterations": steps}, seed)
    net.run()
    stages, experts, micro = (params.get(key, 1) for key in ("pipeline", "experts", "micro_batches"))
    for rank in net.ranks:
        assert isinstance(rank, Training)
        assert (rank.done, rank.progress.failure, rank.progress.mismatches) == (True, "", 0)
        assert rank.progress.iterations == len(rank.ends_ns) == steps
        reduced = 300 if size // stages > 1 else 0
        exchanged = 4 * micro * (experts - 1) * 20
        passed = micro * 50 * ((rank.stage > 0) + (rank.stage < stages - 1))
        assert rank.progress.bytes_verified == steps * (reduced + exchanged + passed)
        operations = rank.measured().training.operations
        counts = {name: operations[name].count for name in operations}
        assert counts.get("all_reduce", 0) == (3 * steps if reduced else 0)
        assert counts.get("all_to_all", 0) == (4 * micro * steps if exchanged else 0)


def test_data_differ_by_bucket() -> None:
    """A bucket that lands in the place of another one, of the same step, is seen by its data."""
    net = ToyNet("training", 2, {"gradient_bytes": 4000, "buckets": 4, "compute_us": 0}, 1)
    net.run()
    rank = net.ranks[0]
    assert isinstance(rank, Training)
    rows = {rank.memory[offset : offset + length].tobytes() for offset, length in rank.shape.buckets}
    assert len(rows) == 4


@pytest.mark.parametrize("where", ["gradient", "exchange", "transfer"])
def test_corrupted_byte_is_counted_in_every_part(where: str) -> None:
    params = {"pipeline": 2, "experts": 2, "gradient_bytes": 64, "buckets": 2, "activation_bytes": 8, "expert_bytes": 8}
    net = ToyNet("training", 4, params, 1)
    shape = Training._shape(4, Training.complete(params))
    ends = {"gradient": (0, shape.exchange), "exchange": (shape.exchange, shape.transfers)}
    first, last = ends.get(where, (shape.transfers, shape.total))
    struck: list[Any] = []
    run, ranks = net.go, net.ranks

    def go(events: int) -> bool:
        for _ in range(events):
            more = run(1)
            if not struck:
                for (source, destination), queue in net.flows.items():
                    for offset, _, length, _, _ in queue[:1]:
                        if length and first <= offset < last:
                            net.memories[source][offset + 3] ^= 0x40  # of a float the exponent
                            struck.append(destination)
                            break
                    if struck:
                        break
            if not more:
                return False
        return True

    net.go = go  # type: ignore[method-assign]
    net.run()
    assert struck
    assert sum(rank.progress.mismatches for rank in ranks) > 0


def test_communication_hides_behind_computation() -> None:
    """What a step takes is its computation and what of the buckets does not fit behind it: none of the first ones."""

    def step(buckets: int, compute_us: int) -> int:
        params = {"gradient_bytes": 4096, "buckets": buckets, "compute_us": compute_us, "iterations": 1}
        net = ToyNet("training", 2, params, 5)
        net.run()
        rank = net.ranks[0]
        assert isinstance(rank, Training)
        assert rank.computed_ns == pytest.approx(1000 * compute_us, abs=100)
        return rank.ends_ns[0] - rank.progress.started_ns

    # An event of the toy network takes 1 ns, a reduction some tens of them.
    assert 200_000 < step(4, 200) < 200_100
    assert step(1, 0) < 100
