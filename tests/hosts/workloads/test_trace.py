"""The workload `trace`: graphs on ranks over an adversarial channel, its accounts of time, and what it refuses."""

from __future__ import annotations

import pathlib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mrc_host.workloads import WorkloadError
from mrc_host.workloads.trace import Trace
from support.toynet import ToyNet

STEP = {"model": "gpt3-6.7b", "layers": 4, "bytes_divisor": 2_000_000, "time_divisor": 10**9, "micro_batches": 3}
MIXES = st.sampled_from(
    [
        (8, {"data": 8}),
        (8, {"pipeline": 4, "data": 2}),
        (6, {"tensor": 2, "data": 3, "tensor_over": "fabric"}),
        (8, {"model": "mixtral-8x7b", "data": 4, "experts": 4, "pipeline": 2, "exchanges": 1}),
        (8, {"tensor": 4, "gpus_per_nic": 2, "pipeline": 2, "data": 2, "placement": "random"}),
    ]
)


@settings(max_examples=25, deadline=None)
@given(mix=MIXES, steps=st.integers(1, 4), seed=st.integers(0, 2**32))
def test_every_mix_ends_with_verified_data(mix: tuple[int, dict[str, Any]], steps: int, seed: int) -> None:
    size, params = mix
    net = ToyNet("trace", size, {**STEP, **params, "iterations": steps}, seed)
    net.run()
    sent = sum(rank.progress.bytes_sent for rank in net.ranks)
    assert sent == sum(rank.progress.bytes_verified for rank in net.ranks) > 0
    for rank in net.ranks:
        assert isinstance(rank, Trace)
        assert (rank.done, rank.progress.failure, rank.progress.mismatches) == (True, "", 0)
        training = rank.measured().training
        assert rank.progress.iterations == len(training.ends_ns) == training.exposed_ns.count == steps
        assert not rank._computing
        assert not rank.awaits()


def test_corrupted_byte_is_counted() -> None:
    net = ToyNet("trace", 4, {**STEP, "data": 4}, 3)
    assert isinstance(net.ranks[0], Trace)
    while not any(net.flows.values()):
        net.go(1)
    (source, _), queue = next((flow, queue) for flow, queue in net.flows.items() if queue)
    net.memories[source][queue[0][0]] ^= 1
    net.run()
    assert sum(rank.progress.mismatches for rank in net.ranks) > 0


SCHEDULE = """
num_ranks 2
rank 0 {
a: calc 1000
b: calc 500 cpu 1
c: calc 300
s: send 10b to 1 tag 0
s requires a
}
rank 1 {
r: recv 10b from 0 tag 0
d: calc 200
d requires r
}
"""


def test_units_compute_at_the_same_time_and_exposed_time_is_what_is_left(tmp_path: pathlib.Path) -> None:
    (tmp_path / "x.goal").write_text(SCHEDULE)
    net = ToyNet("trace", 2, {"file": str(tmp_path / "x.goal")}, 1)
    net.run()
    first, second = (rank.measured().training for rank in net.ranks)
    # Two computations of unit 0 follow each other, that of unit 1 runs beside them.
    assert 1300 <= first.computed_ns < 1400
    assert 200 <= second.computed_ns < 230
    assert second.exposed_ns.max >= 1000
    assert first.operations["send_recv"].count == 1
    assert "send_recv" not in second.operations


def test_alarms_do_not_multiply(tmp_path: pathlib.Path) -> None:
    """Each alarm once set another one for every other unit, which doubled their number with each computation. One of a
    unit that ended with another one's alarm may be left for a moment."""
    lines = "\n".join(f"a{n}: calc 7\nb{n}: calc 11 cpu 1" for n in range(40))
    waits = "\n".join(f"a{n + 1} requires a{n}\nb{n + 1} requires b{n}" for n in range(39))
    (tmp_path / "x.goal").write_text(
        f"num_ranks 2\nrank 0 {{\n{lines}\ns: send 1b to 1\n{waits}\n}}\nrank 1 {{\nrecv 1b from 0\n}}\n"
    )
    net = ToyNet("trace", 2, {"file": str(tmp_path / "x.goal")}, 1)
    most = 0
    while net.go(1):
        most = max(most, len(net.alarms))
    assert most <= 4
    assert all(rank.done for rank in net.ranks)


def test_what_is_no_graph_is_refused_before_anything_starts(tmp_path: pathlib.Path) -> None:
    with pytest.raises(WorkloadError, match="trace: give file=TRACE"):
        Trace.plan(2, Trace.complete({}))
    with pytest.raises(WorkloadError, match="file must be a text, not 5"):
        Trace.complete({"file": 5})
    with pytest.raises(WorkloadError, match="8 ranks on 4 hosts"):
        Trace.plan(4, Trace.complete({"model": "llama3-8b", "data": 8}))
    with pytest.raises(WorkloadError, match="raise bytes_divisor"):
        Trace.plan(8, Trace.complete({"model": "llama3-8b", "data": 8}))
    (tmp_path / "x.goal").write_text("num_ranks 2\nrank 0 {\nsend 1b\n}\n")
    with pytest.raises(WorkloadError, match=r"x.goal: line 3: 'to' is expected"):
        Trace.plan(2, Trace.complete({"file": str(tmp_path / "x.goal")}))
