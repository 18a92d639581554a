"""Generated training: published parameters, groups, bytes and computation of a step; and placements."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mrc_host.graph.generate import MODELS, Parallelism, bubble, generate
from mrc_host.graph.graph import Collective, CollectiveKind, Compute, GraphError, Send
from mrc_host.graph.schedule import lower
from mrc_host.graph.source import PLACEMENTS, Source, load, place

#: Billions, as the sources state them.
PUBLISHED = {
    "gpt3-6.7b": 6.7, "gpt3-175b": 175, "llama3-8b": 8, "llama3-70b": 70, "llama3-405b": 405, "mixtral-8x7b": 47,
    "mixtral-8x22b": 141,
}  # fmt: skip


def test_models_have_their_published_size() -> None:
    assert set(PUBLISHED) == set(MODELS)
    for name, billions in PUBLISHED.items():
        assert MODELS[name].parameters / 1e9 == pytest.approx(billions, rel=0.03)


def test_step_computes_six_flops_per_parameter_and_token() -> None:
    plan = Parallelism("gpt3-175b", tensor=8, pipeline=8, data=2, micro_batches=4)
    graph = generate(plan)
    shape = plan.shape
    ns = sum(
        len(program.ranks) * node.ns
        for program in graph.programs
        for node in program.nodes
        if isinstance(node, Compute) and node.counts
    )
    flops = ns / 1e9 * plan.gpu_tflops * 1e12 * plan.utilisation_percent / 100
    tokens = plan.data * plan.micro_batches * shape.sequence
    exact = 3 * tokens * (shape.layers * shape.layer_flops(shape.sequence) + 2 * shape.embedding)
    assert flops == pytest.approx(exact, rel=1e-6)
    assert flops == pytest.approx(6 * shape.parameters * tokens, rel=0.1)


def test_gradients_and_activations_are_those_of_the_model() -> None:
    plan = Parallelism("llama3-70b", tensor=8, pipeline=4, data=2, micro_batches=6, buckets=3)
    graph = generate(plan)
    made = lower(graph)
    gradients = sum(
        len(program.ranks) * node.size
        for program in graph.programs
        for node in program.nodes
        if isinstance(node, Collective) and node.groups == "data"
    )
    assert gradients == pytest.approx(plan.shape.parameters * 2 * plan.data, rel=1e-6)
    transfers = [node for program in graph.programs for node in program.nodes if isinstance(node, Send)]
    # Forward and backward across three boundaries, each part its share of 8192 tokens of 8192 words of two bytes.
    assert len(transfers) == 2 * 3 * 6
    assert {node.size for node in transfers} == {8192 * 8192 * 2 // 8}
    assert made.ranks == 64


def test_experts_exchange_tokens_and_share_parameters() -> None:
    plan = Parallelism("mixtral-8x7b", data=8, experts=4, micro_batches=2)
    graph = generate(plan)
    nodes = [node for node in graph.programs[0].nodes if isinstance(node, Collective)]
    exchanges = [node for node in nodes if node.kind is CollectiveKind.ALL_TO_ALL]
    assert len(exchanges) == 32 * 2 * 2 * 2  # layers, before and after, forward and backward, micro batches
    assert {node.size for node in exchanges} == {8192 * 2 * 4096 * 2}
    assert graph.groups["experts"].tolist() == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert sorted(graph.groups["replicas"].tolist()) == [[0, 4], [1, 5], [2, 6], [3, 7]]
    of = {groups: sum(node.size for node in nodes if node.groups == groups) for groups in ("data", "replicas")}
    shape = plan.shape
    assert of["replicas"] == shape.layers * 8 * shape.expert * 2 // 4
    assert of["data"] + of["replicas"] * 4 == shape.parameters * 2


def test_gpus_that_share_a_nic_are_one_rank_with_their_bytes() -> None:
    each = lower(generate(Parallelism("gpt3-6.7b", tensor=8, pipeline=2, data=2)))
    shared = lower(generate(Parallelism("gpt3-6.7b", tensor=8, pipeline=2, data=2, gpus_per_nic=8)))
    assert (each.ranks, shared.ranks) == (32, 4)
    assert shared.work[shared.sends].sum() == pytest.approx(each.work[each.sends].sum(), rel=1e-6)


def test_tensors_over_the_fabric_are_messages_and_over_nvlink_time() -> None:
    inside = generate(Parallelism("llama3-8b", tensor=4, layers=2))
    labels = {node.label for node in inside.programs[0].nodes if isinstance(node, Compute)}
    assert labels == {"compute", "tensor_parallel"}
    assert len(lower(inside).sends) == 0
    outside = lower(generate(Parallelism("llama3-8b", tensor=4, layers=2, tensor_over="fabric", micro_batches=1)))
    # Two all-reduces a layer, forward and backward, of all tokens' activations, in a ring of four.
    assert outside.work[outside.sends].sum() == 2 * 2 * 2 * 2 * 3 * 8192 * 4096 * 2


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"model": "gpt-5"}, "no model 'gpt-5'"),
    ({"tensor": 7}, "7 parts of 32 attention heads"),
    ({"pipeline": 33}, "33 stages of 32 layers"),
    ({"data": 6, "experts": 4}, "4 ranks share 1 experts of 6 replicas"),
    ({"data": 4, "global_batch": 6}, "6 sequences cannot be divided"),
    ({"tensor": 4, "gpus_per_nic": 3}, "3 GPUs of groups of 4"),
    ({"micro_batches": 0}, "micro_batches must be at least 1"),
    ({"tensor_over": "air"}, "nvlink or fabric"),
    ({"utilisation_percent": 101}, "100 at most"),
    ({"file": "x"}, "one of them"),
    ({"bytes_divisor": 0}, "at least 1"),
]


@pytest.mark.parametrize(("changes", "text"), WRONG)
def test_parameters_that_make_no_step_are_refused(changes: dict[str, Any], text: str) -> None:
    with pytest.raises(GraphError) as caught:
        load(Source(**{"model": "llama3-8b", **changes}))
    assert text in str(caught.value)


def test_global_batch_is_divided_into_micro_batches() -> None:
    assert Parallelism("llama3-8b", data=4, global_batch=64, micro_batch=2).micros == 8
    assert bubble(1, 5) == 0
    assert bubble(4, 12) == pytest.approx(3 / 15)


@settings(max_examples=60)
@given(st.sampled_from(PLACEMENTS), st.integers(1, 40), st.integers(0, 20), st.integers(1, 8), st.integers(1, 4))
def test_every_rank_has_a_host_of_its_own(kind: str, ranks: int, more: int, per_rack: int, fragment: int) -> None:
    hosts = ranks + more
    found = place(kind, ranks, hosts, per_rack, fragment, 3)
    assert len(set(found.tolist())) == ranks
    assert 0 <= found.min() <= found.max() < hosts
    assert (place(kind, ranks, hosts, per_rack, fragment, 3) == found).all()


def test_placements_differ_in_how_many_racks_neighbours_share() -> None:
    """Of 64 ranks on 128 hosts, eight below a T0."""

    def apart(kind: str, fragment: int = 2) -> int:
        rack = place(kind, 64, 128, 8, fragment, 1) // 8
        return int(np.count_nonzero(np.diff(rack)))

    assert apart("rack") == 7
    assert apart("fragmented") == 31
    assert apart("random") > 50
    racks = place("fragmented", 64, 128, 8, 2, 1) // 8
    assert np.bincount(racks).tolist() == [4] * 16
    with pytest.raises(GraphError, match="9 ranks on 8 hosts"):
        place("rack", 9, 8, 2)
    with pytest.raises(GraphError, match="no placement 'here'"):
        place("here", 1, 8, 2)
    with pytest.raises(GraphError, match="rack_hosts"):
        place("fragmented", 1, 8, 0)
