"""Every workload over an adversarial channel: data is read as late as MRC may read it, completions come late."""

from __future__ import annotations

import itertools
import math
import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mrc_host.workloads import WORKLOADS, WorkloadError
from mrc_host.workloads.base import PERIOD, differing, fill, period
from mrc_host.workloads.flows import ConnectionMatrix, FlowsParameters, placed_flows
from mrc_host.workloads.measure import MARKS, Distribution, Meter
from mrc_host.workloads.streams import Streams
from mrclab.cli.available import SECTIONS
from mrclab.cli.listed import ListedKind
from support.toynet import ToyChannel, ToyNet

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
    "broadcast": {"size_bytes": 1000, "root": 1, "piece_bytes": 300},
    "flows": {"flows": [[0, 1, 100, 0], [1, 0, 300, 40], [0, 1, 5, 90]]},
    "load": {
        "time_ns": 4000,
        "host_bps": 10**10,
        "sizes": [[3000, 100]],
        "arrivals": "deterministic",
        "all_to_all_bytes": 50,
        "seed": 1,
    },
    "trace": {
        "model": "gpt3-6.7b",
        "layers": 1,
        "data": 2,
        "buckets": 2,
        "micro_batches": 2,
        "bytes_divisor": 1_000_000,
        "time_divisor": 1_000_000,
    },
    "training": {"compute_us": 1, "gradient_bytes": 400, "buckets": 3, "jitter_percent": 50},
}


@pytest.mark.parametrize("name", sorted(WORKLOADS))
@settings(max_examples=15)
@given(size=st.integers(2, 8), iterations=st.integers(1, 5), seed=st.integers(0, 2**32))
def test_every_rank_ends_with_verified_data(name: str, size: int, iterations: int, seed: int) -> None:
    net = ToyNet(name, size, {**PARAMS[name], "iterations": iterations}, seed)
    net.run()
    for rank in net.ranks:
        progress = rank.progress
        assert rank.done
        assert not progress.failure
        assert progress.mismatches == 0
        assert progress.iterations == (iterations if progress.takes_part else 0)
    assert [rank.progress.takes_part for rank in net.ranks] == [takes_part(name, size, rank) for rank in range(size)]
    assert sum(rank.progress.bytes_verified for rank in net.ranks) > 0


def takes_part(name: str, size: int, rank: int) -> bool:
    if name in ("write_bw", "write_lat", "flows", "trace"):
        return rank < 2
    return name != "send_recv" or rank ^ 1 < size


LOCKSTEP = {
    *("ring_all_reduce", "reduce_scatter", "all_gather", "tree_all_reduce", "all_to_all", "broadcast", "write_lat"),
    *("training", "flows", "load", "trace"),
}


@pytest.mark.parametrize("name", sorted(WORKLOADS))
@settings(max_examples=25)
@given(size=st.integers(2, 8), events=st.integers(0, 300), seed=st.integers(0, 2**32))
def test_unbounded_loop_ends_after_a_stop_on_all_ranks(name: str, size: int, events: int, seed: int) -> None:
    """However far apart the ranks are, whoever takes no part, and whatever happens while they are told."""
    net = ToyNet(name, size, {**PARAMS[name], "iterations": 1 << 30}, seed)
    net.go(size + events)
    while net.waiting:
        net.go(1)
    net.stop()
    net.run()
    for rank in net.ranks:
        assert rank.done
        assert not rank.progress.failure
        assert rank.progress.mismatches == 0
    if name in LOCKSTEP:
        assert len({rank.progress.iterations for rank in net.ranks if rank.progress.takes_part}) == 1
    else:
        for rank in net.ranks:
            assert isinstance(rank, Streams)
            for peer, sent in rank.out.items():
                other = net.ranks[peer]
                assert isinstance(other, Streams)
                assert sent == rank.credited[peer] == other.incoming[rank.rank] == rank.meters[peer].completions


def test_a_rank_that_takes_no_part_ends_at_once() -> None:
    """It once counted up to its number of iterations."""
    net = ToyNet("write_bw", 3, {"message_bytes": 64, "iterations": 1 << 40}, 1)
    net.ranks[2].start(5)
    assert net.ranks[2].done
    assert net.ranks[2].progress.iterations == 0


def test_corrupted_byte_is_counted_as_mismatch() -> None:
    net = ToyNet("all_to_all", 3, {"block_bytes": 100, "iterations": 1}, 7)
    put = ToyChannel.put

    class Corrupting(ToyChannel):
        def put(self, peer: int, *args: Any, **rest: Any) -> None:
            put(self, peer, *args, **rest)
            net.memories[self.rank][args[0]] ^= 1

    net.ranks[1].channel = Corrupting(net, 1)
    net.run()
    assert [rank.progress.mismatches for rank in net.ranks] == [1, 0, 1]


def test_a_ring_runs_beside_the_incast_and_sends_nothing_to_its_target() -> None:
    kind = WORKLOADS["incast"]
    params = kind.complete({"target": 0, "ring": [2, 4, 3]})
    assert [kind.peers(rank, 6, params) for rank in range(6)] == [{1, 5}, {0}, {3, 4}, {2, 4}, {2, 3}, {0}]
    with pytest.raises(WorkloadError, match="every rank of ring"):
        kind.complete({"ring": [-1]})


def test_victim_stream_runs_beside_the_incast() -> None:
    net = ToyNet("incast", 5, {"message_bytes": 50, "iterations": 3, "target": 0, "victim": [3, 4]}, 1)
    net.run()
    assert [rank.progress.bytes_verified for rank in net.ranks] == [2 * 3 * 50, 0, 0, 0, 3 * 50]


def test_stop_after_ends_a_long_loop_on_all_ranks() -> None:
    net = ToyNet("ring_all_reduce", 4, {"size_bytes": 64, "iterations": 1_000_000}, 3)
    for rank in net.ranks:
        rank.stop_after(9, 0)
    net.run()
    assert [rank.progress.iterations for rank in net.ranks] == [9] * 4


@pytest.mark.parametrize(
    ("name", "size", "params", "hint"),
    [
        ("ring_all_reduce", 3, {"size_bytes": 102}, "multiple of 4"),
        ("ring_all_reduce", 1, {}, "at least 2 ranks"),
        ("all_to_all", 4, {"block_bytes": 0}, "must be positive"),
        ("all_to_all", 4, {"blocks": 1}, "no parameter 'blocks'; known: block_bytes, iterations"),
        ("write_bw", 2, {"target": 0}, "from rank 0 to rank 0"),
        ("write_lat", 2, {"target": 5}, "two ranks below 2"),
        ("incast", 4, {"victim": [1]}, "pair"),
        ("send_recv", 4, {"window": 0}, "window must be a whole number from 1 to 128, not 0"),
        ("send_recv", 4, {"iterations": -1}, "iterations must be a whole number"),
        ("send_recv", 4, {"iterations": 0}, "iterations must be a whole number of at least 1"),
        ("send_recv", 1, {}, "no rank of 1 has anything to send"),
        ("incast", 1, {}, "no rank of 1 has anything to send"),
        ("incast", 4, {"sources": []}, "no rank of 4 has anything to send"),
        ("permutation", 1, {}, "from rank 0 to rank 0"),
        ("write_bw", 1, {}, "from rank 0 to rank 1 among 1 ranks"),
        ("write_lat", 1, {}, "two ranks below 1"),
        ("all_to_all", 1, {}, "at least 2 ranks"),
        ("tree_all_reduce", 1, {}, "at least 2 ranks"),
        ("write_bw", 2, {"message_bytes": 0}, "message_bytes must be a whole number of at least 1, not 0"),
        ("write_bw", 2, {"message_bytes": True}, "whole number"),
        ("write_bw", 2, {"message_bytes": math.inf}, "whole number"),
        ("write_bw", 2, {"message_bytes": math.nan}, "whole number"),
        ("write_bw", 2, {"message_bytes": "64"}, "whole number"),
        ("write_bw", 2, {"message_bytes": 10**5001}, "not one with more digits"),
        ("write_bw", 2, {"message_bytes": 1 << 39}, "bytes of memory at every rank are more than"),
        ("ring_all_reduce", 4, {"size_bytes": 1 << 32}, "bytes of memory at every rank are more than"),
        ("write_bw", 2, {"window": 129}, "from 1 to 128"),
        ("incast", 4, {"sources": 7}, "sources must be a list of ranks, not 7"),
        ("incast", 4, {"sources": ["h1"]}, "every rank of sources must be a whole number"),
        ("incast", 4, {"sources": [1, 1]}, "named twice"),
        ("incast", 4, {"sources": [1], "victim": [1, 0]}, "named twice"),
        ("incast", 4, {"victim": [1, 4]}, "from rank 1 to rank 4 among 4 ranks"),
        ("incast", 4, {"victim": "12"}, "victim must be a list of ranks"),
        ("broadcast", 4, {"root": 4}, "root must be a whole number from 0 to 3, not 4"),
        ("broadcast", 4, {"piece_bytes": 1}, "more than 32768 pieces"),
        ("training", 1, {}, "at least 2 ranks"),
        ("training", 6, {"pipeline": 4}, "6 ranks cannot form 4 pipeline stages"),
        ("training", 8, {"pipeline": 2, "experts": 3}, "4 ranks of a stage cannot form groups of 3 experts"),
        ("training", 8, {"gradient_bytes": 10, "buckets": 2}, "multiple of 4, not 10"),
        ("training", 8, {"gradient_bytes": 4, "buckets": 2}, "gradient_bytes must be a whole number of at least 8"),
        ("training", 8, {"buckets": 49}, "buckets must be a whole number from 1 to 48, not 49"),
        ("training", 8, {"micro_batches": 0}, "micro_batches must be a whole number from 1"),
    ],
)
def test_invalid_parameters_are_refused_with_a_hint(name: str, size: int, params: dict[str, Any], hint: str) -> None:
    with pytest.raises(WorkloadError, match=hint) as caught:
        WORKLOADS[name].plan(size, WORKLOADS[name].complete(params))
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 250


@given(
    st.one_of(
        st.lists(st.integers(0, 10**12), min_size=1, max_size=300),
        st.integers(1, 1200).map(lambda count: [7 * number**2 for number in range(count)]),
    )
)
def test_distribution_agrees_with_numpy(values: list[int]) -> None:
    times = Distribution()
    for value in values:
        times.add(value)
    got = times.summary()
    assert got is not None
    assert (got.count, got.min, got.max) == (len(values), min(values), max(values))
    assert got.mean == pytest.approx(np.mean(values))
    assert got.stdev == pytest.approx(np.std(values), rel=1e-6, abs=1e-3 * max(values))
    for key, share, fewest in (("typical", 50, 1), ("p99", 99, 100), ("p99_9", 99.9, 1000)):
        wanted = np.percentile(values, share, method="inverted_cdf")
        assert getattr(got, key) == (None if len(values) < fewest else pytest.approx(wanted, rel=5e-4))


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(1, 500)), min_size=1, max_size=60))
def test_meter_agrees_with_the_arithmetic_of_perftest(gaps: list[tuple[int, int]]) -> None:
    """Posts and completions in order; the peak by its definition, over every pair of messages."""
    posted, completed, meter = [], [], Meter(1000)
    post = done = 0
    for gap, took in gaps:
        post += gap
        done = max(done, post) + took
        posted.append(post)
        completed.append(done)
    for time in posted:
        meter.posted(time)
    for time in completed:
        meter.completed(time)
    got = meter.summary()
    count = len(gaps)
    assert (got.messages, got.bytes) == (count, 1000 * count)
    assert got.average_bps == pytest.approx(8e12 * count / (completed[-1] - posted[0]))
    assert got.messages_per_s == pytest.approx(1e9 * count / (completed[-1] - posted[0]))
    best = max((j - i + 1) / (completed[j] - posted[i]) for i in range(count) for j in range(i, count))
    assert got.peak_bps == pytest.approx(8e12 * best)
    taken = [end - begin for begin, end in zip(posted, completed, strict=True)]
    assert got.completion_ns is not None
    assert (got.completion_ns.min, got.completion_ns.max) == (min(taken), max(taken))
    assert got.completion_ns.mean == pytest.approx(sum(taken) / count)


def test_a_meters_memory_is_bounded_and_its_peak_still_there() -> None:
    meter = Meter(500)
    now = 0
    for number in range(300_000):
        meter.posted(now)
        # The middle third is twice as fast.
        now += 500 if 100_000 <= number < 200_000 else 1000
        meter.completed(now)
    assert len(meter._posted) <= MARKS + 1
    assert len(meter._completed) <= MARKS + 1
    got = meter.summary()
    assert got.peak_bps == pytest.approx(8e9, rel=0.01)
    assert got.average_bps == pytest.approx(8e9 * 300 / 500, rel=0.01)


@given(
    count=st.integers(1, 4 * PERIOD),
    first=st.integers(0, 3 * PERIOD),
    wrong=st.dictionaries(st.integers(0, 4 * PERIOD), st.sampled_from([-1.0, 0.5, float("nan")]), max_size=5),
)
def test_elements_that_differ_from_a_repeated_period_are_counted(
    count: int, first: int, wrong: dict[int, float]
) -> None:
    """Against the definition, element by element."""
    one = period(3, 5)
    got = np.empty(count, np.float32)
    fill(got, one, first)
    assert got.tolist() == [one[(first + index) % PERIOD] for index in range(count)]
    wrong = {index: value for index, value in wrong.items() if index < count}
    for index, value in wrong.items():
        got[index] = value
    assert differing(got, one, first) == len(wrong)


def test_a_whole_vector_of_another_iteration_differs() -> None:
    """It repeats too."""
    got = np.empty(4 * PERIOD, np.float32)
    fill(got, period(3, 6))
    assert differing(got, period(3, 5)) == len(got)
    assert differing(got, period(3, 6)) == 0


@settings(max_examples=60, deadline=None)
@given(
    flows=st.lists(
        st.tuples(st.integers(0, 5), st.integers(0, 5), st.integers(1, 300)).filter(lambda flow: flow[0] != flow[1]),
        min_size=1,
        max_size=40,
    )
)
def test_flows_of_a_rank_do_not_share_bytes(flows: list[tuple[int, int, int]]) -> None:
    placed = placed_flows(6, tuple(flows))
    for rank in range(6):
        mine = sorted((each.offset, each.offset + each.bytes) for each in placed if rank in (each.source, each.target))
        assert all(before[1] <= after[0] for before, after in itertools.pairwise(mine))


def test_permutation_needs_memory_for_three_flows_at_most() -> None:
    """Two flows have bytes at a rank, and the ranks form a ring, in whatever order they are placed."""
    order = random.Random(1).sample(range(64), 64)
    flows = FlowsParameters(flows=[(rank, (rank + 1) % 64, 1 << 20) for rank in order])
    assert ConnectionMatrix.plan(64, flows) <= 3 << 20


def test_each_workload_says_what_it_is_in_one_sentence() -> None:
    """`mrclab list workloads` prints it; docstrings of some begin with their parameters."""
    titles = {name: vars(kind).get("title", "") for name, kind in WORKLOADS.items()}
    assert [name for name, title in titles.items() if not title or title.endswith(".") or "\n" in title] == []
    assert len(set(titles.values())) == len(titles)
    shown = {each.name: each.title for each in SECTIONS[ListedKind.WORKLOADS].found()}
    assert shown == titles
