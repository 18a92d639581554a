"""GOAL schedules: what is written is read back, and what is wrong is named with its line."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mrc_host.graph import goal
from mrc_host.graph.graph import Compute, Graph, GraphError, GraphProgram, Node, Receive, Send, one
from mrc_host.graph.schedule import Op, lower

PAIR = """
num_ranks 2
rank 0 { // the sender
a: calc 100 cpu 1
b: send 8b to 1 tag 7 nic 0
b requires a
}
/* the
   receiver */
rank 1 {
c: recv 8b from 0 tag 7
calc 5
d: calc 3
d irequires c
}
"""


def test_schedule_is_read_as_it_is_written() -> None:
    graph = goal.parse(PAIR, "pair.goal")
    first, second = graph.programs
    compute, send = first.nodes
    assert compute == Compute([], [], "pair.goal: line 4", ns=100, unit=1)
    assert isinstance(send, Send)
    assert (send.after, send.place, send.peers.tolist(), send.size, send.tag) == ([0], "pair.goal: line 5", [1], 8, 7)
    assert [type(node) for node in second.nodes] == [Receive, Compute, Compute]
    assert second.nodes[2].after_start == [0]
    made = lower(graph)
    assert made.sent[made.kind == Op.RECEIVE].tolist() == made.sends.tolist()


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    """Return a graph of a few ranks in which operations wait for earlier ones of their rank only."""
    count = draw(st.integers(2, 4))
    rows: list[list[Node]] = [[] for _ in range(count)]

    def earlier(rank: int) -> list[int]:
        row = rows[rank]
        return draw(st.lists(st.integers(0, len(row) - 1), max_size=2, unique=True)) if row else []

    for _ in range(draw(st.integers(1, 12))):
        src = draw(st.integers(0, count - 1))
        if draw(st.booleans()):
            ns, unit = draw(st.integers(0, 10**9)), draw(st.integers(0, 3))
            rows[src].append(Compute(earlier(src), earlier(src), ns=ns, unit=unit))
        else:
            dst = draw(st.sampled_from([rank for rank in range(count) if rank != src]))
            size, tag = draw(st.integers(0, 10**6)), draw(st.integers(0, 3))
            rows[src].append(Send(earlier(src), earlier(src), peers=one(dst), size=size, tag=tag))
            rows[dst].append(Receive(earlier(dst), earlier(dst), peers=one(src), size=size, tag=tag))
    for row in rows:
        row.append(Compute(ns=1))
    return Graph(count, [GraphProgram(one(rank), row) for rank, row in enumerate(rows)], {}, "drawn")


def plain(graph: Graph) -> Any:
    """Return what a graph says, without places."""
    return [
        [
            (type(node).__name__, {key: _shown(value) for key, value in vars(node).items() if key != "place"})
            for node in program.nodes
        ]
        for program in graph.programs
    ]


def _shown(value: Any) -> Any:
    return value if isinstance(value, int | str | bool) else list(value)


@settings(max_examples=50, deadline=None)
@given(graphs())
def test_written_graph_is_read_back_and_can_run(graph: Graph) -> None:
    again = goal.parse(goal.write(graph), "drawn")
    assert plain(again) == plain(graph)
    assert lower(again).needs.tolist() == lower(graph).needs.tolist()


@given(st.text(alphabet="num_raksecvltorqi{}:0123456789-b/* \n", max_size=200) | st.text(max_size=80))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        goal.parse(text, "some.goal")
    except GraphError as error:
        assert str(error).startswith("some.goal: line ")  # noqa: PT017 - an error is one of two right answers


@pytest.mark.parametrize(
    ("old", "new", "line", "text"),
    [
        ("num_ranks 2", "", 3, "'rank': a schedule is 'num_ranks N'"),
        ("num_ranks 2", "num_ranks 1", 10, "num_ranks (1) is too small"),
        ("rank 1 {", "rank 0 {", 10, "rank 0 is there already"),
        ("a: calc 100", "b: calc 100", 5, "'b' is there already"),
        ("b requires a", "b requires x", 6, "no operation 'x' in this rank"),
        ("send 8b to 1", "send 8 to 1", 5, "'b' is expected, not 'to'"),
        ("send 8b to 1", "send 8b to 5", 5, "ranks are 0 to 1"),
        ("from 0 tag 7", "from -1 tag 7", 11, "depend on which rank is faster"),
        ("calc 5", "calc five", 12, "a time is a whole number, not 'five'"),
        ("calc 5", "calc 5 $", 12, "is not of GOAL"),
        ("calc 5", "calc 5 nic 2", 12, "'cpu' is expected"),
        ("d irequires c\n}", "d irequires c", 10, "the block of rank 1 has no end"),
    ],
)
def test_mistake_is_named_with_its_line(old: str, new: str, line: int, text: str) -> None:
    assert old in PAIR
    with pytest.raises(GraphError) as caught:
        goal.parse(PAIR.replace(old, new), "pair.goal")
    assert str(caught.value).startswith(f"pair.goal: line {line}: ")
    assert text in str(caught.value)


@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        ("tag 7 nic", "tag 6 nic", "line 5: a message from rank 0 to rank 1 with tag 6 is sent and not received"),
        ("c: recv 8b", "c: recv 4b", "line 11: receives 4 bytes, of which rank 0 sends 8"),
        ("c: recv 8b from 0 tag 7", "c: calc 1", "line 5: a message from rank 0 to rank 1 with tag 7 is sent and not"),
        ("b: send 8b to 1 tag 7 nic 0", "b: calc 1", "line 11: a message from rank 0 to rank 1 with tag 7 is received"),
        ("send 8b to 1", "send 8b to 0", "line 5: a rank sends to itself"),
        ("b requires a", "b requires a\na requires b", "rank 0 waits in a circle of dependencies"),
        ("num_ranks 2", "num_ranks 3", "rank 2 of 3 has no operations"),
    ],
)
def test_schedule_that_cannot_run_is_refused(old: str, new: str, text: str) -> None:
    assert old in PAIR
    with pytest.raises(GraphError) as caught:
        lower(goal.parse(PAIR.replace(old, new), "pair.goal"))
    assert text in str(caught.value)


def test_options_of_messages_that_are_not_used_are_noted_with_counts() -> None:
    (note,) = goal.parse(PAIR, "pair.goal").notes
    assert note.startswith("pair.goal: not used: nic of 1 message,")
    more = goal.parse(PAIR.replace("from 0 tag 7", "from 0 tag 7 cpu 1 nic 2"), "pair.goal").notes
    assert [each.partition(",")[0] for each in more] == [
        "pair.goal: not used: nic of 2 messages", "pair.goal: not used: cpu of 1 message",
    ]  # fmt: skip
    assert goal.parse(PAIR.replace(" nic 0", ""), "pair.goal").notes == []
