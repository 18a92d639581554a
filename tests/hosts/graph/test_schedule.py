"""Lowering: the bytes and steps of each collective, and the graphs that it refuses."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mrc_host.graph.graph import Collective, CollectiveKind, Compute, Graph, GraphError, GraphProgram
from mrc_host.graph.schedule import Op, Schedule, lower, message_count

KINDS = list(CollectiveKind)


def together(kind: CollectiveKind, ranks: int, size: int, groups: int = 1) -> Graph:
    """Return a collective of neighbouring ranks."""
    members = np.arange(ranks * groups).reshape(groups, ranks)
    nodes = [Compute(ns=5), Collective(after=[0], kind=kind, size=size, groups="g"), Compute(after=[1], ns=7)]
    return Graph(ranks * groups, [GraphProgram(np.arange(ranks * groups), nodes)], {"g": members}, "test")


def sent(made: Schedule) -> list[int]:
    """Return the bytes that each rank sends."""
    ops = made.sends
    return np.bincount(made.rank[ops], made.work[ops], made.ranks).astype(int).tolist()


@settings(max_examples=100, deadline=None)
@given(st.sampled_from(KINDS), st.integers(2, 9), st.integers(0, 1000), st.integers(1, 3))
def test_bytes_are_those_of_the_closed_forms(kind: CollectiveKind, ranks: int, size: int, groups: int) -> None:
    made = lower(together(kind, ranks, size, groups))
    total = sum(sent(made))
    others = ranks - 1
    expected = {
        CollectiveKind.ALL_REDUCE: 2 * others * size,
        CollectiveKind.REDUCE_SCATTER: others * size,
        CollectiveKind.ALL_GATHER: ranks * others * size,
        CollectiveKind.ALL_TO_ALL: others * size,
        CollectiveKind.BROADCAST: others * size,
        CollectiveKind.REDUCE: others * size,
        CollectiveKind.GATHER: others * size,
        CollectiveKind.SCATTER: size - -(-size // ranks),
        CollectiveKind.BARRIER: 0,
    }
    assert total == groups * expected[kind]
    assert (made.kind == Op.RECEIVE).sum() == len(made.sends)
    if kind in (CollectiveKind.ALL_REDUCE, CollectiveKind.ALL_GATHER):
        assert len(made.sends) == groups * ranks * others * (2 if kind is CollectiveKind.ALL_REDUCE else 1)
        assert max(sent(made)) - min(sent(made)) <= 2


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(KINDS), st.integers(2, 9), st.integers(0, 1000))
def test_phases_carry_the_same_bytes(kind: CollectiveKind, ranks: int, size: int) -> None:
    graph = together(kind, ranks, size)
    assert sent(lower(graph, 100.0)) == sent(lower(graph))


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(KINDS), st.integers(1, 8), st.booleans())
def test_no_rank_ends_a_collective_that_depends_on_another_before_it_has_begun(
    kind: CollectiveKind, ranks: int, phases: bool
) -> None:
    """Run with one late rank: all that need its data end later than it begins."""
    made = lower(together(kind, ranks, 80), 1.0 if phases else None)
    for late in range(ranks):
        begin = np.where(made.rank == late, 1000.0, 0.0)
        done = np.zeros(len(made))
        needs = made.needs.copy()
        work = list(np.flatnonzero(needs == 0))
        while work:
            op = work.pop()
            done[op] = max(done[op], begin[op])
            _, heads = made.after(np.array([op]))
            for head in heads.tolist():
                done[head] = max(done[head], done[op])
                needs[head] -= 1
                if not needs[head]:
                    work.append(head)
        ends = {rank: done[made.rank == rank].max() for rank in range(ranks)}
        from_root = kind in (CollectiveKind.BROADCAST, CollectiveKind.SCATTER)
        to_root = kind in (CollectiveKind.REDUCE, CollectiveKind.GATHER)
        if (not from_root and not to_root) or (from_root and late == 0):
            assert set(ends.values()) == {1000.0}
        elif to_root:
            assert ends[0] == 1000.0


def test_broadcast_reaches_members_by_a_binomial_tree() -> None:
    for ranks in range(2, 20):
        made = lower(together(CollectiveKind.BROADCAST, ranks, 10))
        depth = np.zeros(len(made), int)
        needs, work = made.needs.copy(), list(np.flatnonzero(made.needs == 0))
        while work:
            op = work.pop()
            _, heads = made.after(np.array([op]))
            for head in heads.tolist():
                depth[head] = max(depth[head], depth[op] + (made.kind[op] == Op.SEND and made.kind[head] == Op.RECEIVE))
                needs[head] -= 1
                if not needs[head]:
                    work.append(head)
        assert depth.max() == max(member.bit_count() for member in range(ranks))


def test_messages_are_counted_without_lowering() -> None:
    for kind in (CollectiveKind.ALL_REDUCE, CollectiveKind.ALL_GATHER, CollectiveKind.ALL_TO_ALL):
        graph = together(kind, 6, 600, 2)
        assert message_count(graph) == len(lower(graph).sends)


def test_tiny_file_with_a_huge_collective_takes_no_memory() -> None:
    graph = together(CollectiveKind.ALL_TO_ALL, 1 << 16, 1 << 20)
    with pytest.raises(GraphError, match="4294901760 messages in a step, 8388608 at most"):
        lower(graph)
    assert len(lower(together(CollectiveKind.ALL_REDUCE, 1 << 14, 1 << 20), 1.0).sends) == 1 << 14


def test_ranks_of_a_group_must_do_the_same() -> None:
    graph = together(CollectiveKind.ALL_REDUCE, 3, 10)
    other = [Collective(place="node 5", kind=CollectiveKind.ALL_REDUCE, size=11, groups="g")]
    programs = [GraphProgram(np.array([0, 1]), graph.programs[0].nodes), GraphProgram(np.array([2]), other)]
    with pytest.raises(GraphError, match=r"node 5: rank 2 has all_reduce of 11 bytes as number 0 in group 'g', rank 0"):
        lower(Graph(3, programs, graph.groups, "test"))
    with pytest.raises(GraphError, match="rank 3 takes part in 'g' and is in none of its groups"):
        lower(Graph(4, [GraphProgram(np.arange(4), graph.programs[0].nodes)], graph.groups, "test"))
    with pytest.raises(GraphError, match="no group 'h'; known: g"):
        lower(Graph(3, [GraphProgram(np.arange(3), [Collective(groups="h")])], graph.groups, "test"))
    with pytest.raises(GraphError, match="a rank is in it twice"):
        lower(Graph(3, graph.programs, {"g": np.array([[0, 1, 1]])}, "test"))


def test_collectives_in_another_order_are_a_circle() -> None:
    groups = {"a": np.array([[0, 1]]), "b": np.array([[0, 1]])}

    def rank(number: int, first: str, second: str) -> GraphProgram:
        return GraphProgram(
            np.array([number]), [Collective(size=8, groups=first), Collective(after=[0], size=8, groups=second)]
        )

    lower(Graph(2, [rank(0, "a", "b"), rank(1, "a", "b")], groups, "test"))
    with pytest.raises(GraphError, match="circle"):
        lower(Graph(2, [rank(0, "a", "b"), rank(1, "b", "a")], groups, "test"))
