"""Chakra traces: what an encoder of our own writes is read, and what is wrong is named with file and node."""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mrc_host.graph import chakra
from mrc_host.graph.chakra import ChakraNode, NodeType
from mrc_host.graph.graph import Collective, CollectiveKind, Compute, GraphError, Receive, Send
from mrc_host.graph.schedule import lower
from mrc_host.graph.source import Source, load, schedule


def varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def number(field: int, value: int) -> bytes:
    return varint(field << 3) + varint(value)


def block(field: int, data: bytes) -> bytes:
    return varint(field << 3 | 2) + varint(len(data)) + data


def attribute(name: str, value: Any, field: int = 9) -> bytes:
    """Return an attribute as the schema has it; `field`: of the whole number."""
    if isinstance(value, bool):
        made = number(27, int(value))
    elif isinstance(value, str):
        made = block(29, value.encode())
    elif isinstance(value, list):
        made = block(28, block(1, bytes(map(int, value))))
    else:
        made = number(field, value)
    return block(1, name.encode()) + made


def encoded(node: ChakraNode, packed: bool = True, field: int = 9) -> bytes:
    after = block(5, b"".join(map(varint, node.after))) if packed else b"".join(number(5, each) for each in node.after)
    made = number(1, node.number) + block(2, node.name.encode()) + number(3, node.kind) + after
    made += block(4, b"".join(map(varint, node.controls))) if node.controls else b""
    made += number(6, 12345) + number(7, node.micros)
    if node.values:
        made += block(8, block(1, node.values.encode()))
    return made + b"".join(block(10, attribute(name, value, field)) for name, value in node.attributes.items())


def trace(nodes: Sequence[ChakraNode], **how: Any) -> bytes:
    frames = [block(1, b"0.0.4"), *(encoded(node, **how) for node in nodes)]
    return b"".join(varint(len(frame)) + frame for frame in frames)


VALUES = st.one_of(
    st.integers(0, 2**63 - 1), st.booleans(), st.text(max_size=8), st.lists(st.booleans(), min_size=1, max_size=4)
)
NODES = st.lists(
    st.builds(
        ChakraNode,
        st.integers(0, 2**64 - 1),
        st.text(max_size=20),
        st.sampled_from(NodeType),
        st.lists(st.integers(0, 2**64 - 1), max_size=5),
        st.integers(0, 2**40),
        st.dictionaries(st.text(min_size=1, max_size=8), VALUES, max_size=4),
        controls=st.lists(st.integers(0, 2**64 - 1), max_size=5),
    ),
    max_size=6,
)


@settings(max_examples=60, deadline=None)
@given(NODES, st.booleans())
def test_encoded_nodes_are_read_back(nodes: list[ChakraNode], packed: bool) -> None:
    found = chakra.parse_protobuf(trace(nodes, packed=packed), "x.0.et")
    assert found == nodes


@pytest.mark.parametrize("field", [7, 9, 11, 13, 19, 21])
def test_whole_numbers_of_every_type_are_read(field: int) -> None:
    node = ChakraNode(3, "n", NodeType.COLLECTIVE, [], 0, {"comm_size": 12})
    data = trace([node], field=field)
    if field in (19, 21):  # fixed32 and fixed64 have a wire type of their own
        wire = 5 if field == 19 else 1
        plain, fixed = number(field, 12), varint(field << 3 | wire) + (12).to_bytes(4 if field == 19 else 8, "little")
        inner = block(1, b"comm_size")
        body = encoded(ChakraNode(3, "n", NodeType.COLLECTIVE, [], 0)) + block(10, inner + fixed)
        assert plain not in body
        data = varint(7) + block(1, b"0.0.4") + varint(len(body)) + body
    assert chakra.parse_protobuf(data, "x.0.et")[0].attributes == {"comm_size": 12}


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=200), st.integers(0, 150))
def test_any_bytes_are_read_or_refused(data: bytes, cut: int) -> None:
    whole = trace([ChakraNode(1, "a", NodeType.COMP, [], 5, {"is_cpu_op": False})])
    for given_bytes in (data, whole[:cut], whole[:cut] + data):
        try:
            chakra.parse_protobuf(given_bytes, "x.0.et")
        except GraphError as error:
            assert str(error).startswith("x.0.et: ")  # noqa: PT017 - an error is one of two right answers


def step(rank: int, ranks: int) -> list[ChakraNode]:
    """Return a rank that computes, passes a message on, and reduces."""
    gpu: dict[str, Any] = {"is_cpu_op": False}
    return [
        ChakraNode(10, "matmul", NodeType.COMP, [], 7, gpu),
        ChakraNode(11, "send", NodeType.SEND, [10], 0, {**gpu, "comm_dst": (rank + 1) % ranks, "comm_size": 100}),
        ChakraNode(12, "recv", NodeType.RECEIVE, [10], 0, {**gpu, "comm_src": (rank - 1) % ranks, "comm_size": 100}),
        ChakraNode(13, "reduce", NodeType.COLLECTIVE, [11, 12], 0, {**gpu, "comm_type": 0, "comm_size": 64}),
        ChakraNode(14, "launch", NodeType.COLLECTIVE, [], 3, {"is_cpu_op": True}),
    ]


def written(folder: pathlib.Path, rows: Sequence[Sequence[ChakraNode]]) -> Source:
    for rank, nodes in enumerate(rows):
        (folder / f"job.{rank}.et").write_bytes(trace(nodes))
    return Source(file=str(folder / "job"))


def test_trace_of_every_rank_becomes_a_graph(tmp_path: pathlib.Path) -> None:
    graph = load(written(tmp_path, [step(rank, 3) for rank in range(3)]))
    compute, send, receive, reduce, launch = graph.programs[1].nodes
    assert isinstance(compute, Compute)
    assert (compute.ns, compute.unit) == (7000, chakra.GPU)
    assert isinstance(send, Send)
    assert isinstance(receive, Receive)
    assert (send.peers.tolist(), receive.peers.tolist(), send.after) == ([2], [0], [0])
    assert isinstance(reduce, Collective)
    assert (reduce.kind, reduce.size, reduce.after) == (CollectiveKind.ALL_REDUCE, 64, [1, 2])
    assert isinstance(launch, Compute)
    assert launch.unit == chakra.CPU
    assert graph.groups["world"].tolist() == [[0, 1, 2]]
    made = lower(graph)
    assert made.work[made.sends].sum() == 3 * 100 + 3 * 2 * 64 * 2 / 3


def test_one_rank_is_followed_by_many_where_that_makes_sense(tmp_path: pathlib.Path) -> None:
    alike = [node for node in step(0, 2) if node.kind not in (NodeType.SEND, NodeType.RECEIVE)]
    alike = [
        ChakraNode(n.number, n.name, n.kind, [10] if n.number == 13 else [], n.micros, n.attributes) for n in alike
    ]
    source = written(tmp_path, [alike])
    one = Source(file=str(tmp_path / "job.0.et"), ranks=4)
    assert load(one).ranks == 4
    with pytest.raises(GraphError, match="give ranks=N to let N ranks follow it"):
        load(source)
    written(tmp_path, [step(0, 2)])
    with pytest.raises(GraphError, match="node 11: a message to a rank in a file that all ranks follow"):
        load(one)


def test_process_groups_of_pytorch_and_of_a_file(tmp_path: pathlib.Path) -> None:
    init = ChakraNode(
        1, "## process_group:init ##", NodeType.METADATA, [], 0, {},
        '[[{"pg_name": "7", "ranks": [2, 0]}, {"pg_name": "0", "ranks": []}]]',
    )  # fmt: skip
    reduce = {"is_cpu_op": False, "comm_type": 0, "comm_size": 4, "pg_name": "7"}
    rows = [
        [init, ChakraNode(2, "r", NodeType.COLLECTIVE, [], 0, reduce)],
        [init],
        [init, ChakraNode(2, "r", NodeType.COLLECTIVE, [], 0, reduce)],
    ]
    graph = load(written(tmp_path, rows))
    assert graph.groups["7"].tolist() == [[2, 0]]
    assert graph.groups["0"].tolist() == [[0, 1, 2]]
    lower(graph)
    source = written(tmp_path, [row[1:] or [ChakraNode(9, "", NodeType.COMP, [], 1)] for row in rows])
    with pytest.raises(GraphError, match="process group '7' is not defined; give groups=FILE"):
        load(source)
    (tmp_path / "groups.json").write_text('{"7": [0, 2]}')
    assert load(Source(file=source.file, groups=str(tmp_path / "groups.json"))).groups["7"].tolist() == [[0, 2]]


def test_json_of_chakra_is_read(tmp_path: pathlib.Path) -> None:
    rows = [
        {"Id": 1, "Name": "a", "NodeType": 4, "runtime": 5, "data_deps": [], "is_cpu_op": False},
        {"Id": 2, "Name": "b", "NodeType": 7, "data_deps": [1], "is_cpu_op": False, "comm_type": 6, "comm_size": 80},
    ]
    (tmp_path / "x.0.json").write_text(json.dumps({"workload_graph": rows}))
    graph = load(Source(file=str(tmp_path / "x.0.json"), ranks=4))
    made = lower(graph)
    assert made.work[made.sends].tolist() == [20.0] * 12


#: A step of four ranks, ordered by data dependencies or by control dependencies: the same step.
STEPS = pathlib.Path(__file__).parents[2] / "vectors" / "chakra"


def test_control_dependencies_give_the_same_order_as_data_dependencies() -> None:
    by_data, by_control = (schedule(Source(file=str(STEPS / name))) for name in ("data", "ctrl"))
    assert by_control.first.tolist() == by_data.first.tolist()
    assert by_control.heads.tolist() == by_data.heads.tolist()
    assert len(by_data.heads) > 0
    for name, edges in (("data", "8 data and 0 control"), ("ctrl", "0 data and 8 control")):
        assert f"followed: {edges} dependencies; not followed: none" in load(Source(file=str(STEPS / name))).notes[0]


@pytest.mark.parametrize("key", ["ctrl_deps", "ctrlDeps"])
def test_control_dependencies_in_json_are_followed(tmp_path: pathlib.Path, key: str) -> None:
    rows = [{"Id": 1, "NodeType": 4, "runtime": 5}, {"Id": 2, "NodeType": 4, "runtime": 5, key: [1]}]
    (tmp_path / "x.0.json").write_text(json.dumps({"workload_graph": rows}))
    assert load(Source(file=str(tmp_path / "x.0.json"))).programs[0].nodes[1].after == [0]


@pytest.mark.parametrize(
    "controls",
    [{10: [77]}, {11: [11]}, {10: [13]}, {11: [12], 12: [11]}],
    ids=["not there", "itself", "a circle with data", "a circle"],
)
def test_control_dependencies_that_cannot_hold_are_counted_and_left_out(
    tmp_path: pathlib.Path, controls: dict[int, list[int]]
) -> None:
    rows = [step(rank, 2) for rank in range(2)]
    plain = schedule(written(tmp_path, rows))
    rows[1] = [dataclasses.replace(each, controls=[*controls.get(each.number, ()), 10][:1]) for each in rows[1]]
    rows[1][0] = dataclasses.replace(rows[1][0], controls=controls.get(10, []))
    source = written(tmp_path, rows)
    count = sum(len(each.controls) for each in rows[1])
    assert schedule(source).heads.tolist() == plain.heads.tolist()
    edges, note = load(source).notes[:2]
    assert edges.endswith(f"0 control dependencies; not followed: {count}")
    assert note.startswith(f"job.1.et: {count} control dependencies are not followed")


def test_what_a_run_does_not_use_of_a_trace_is_noted_once_with_counts(tmp_path: pathlib.Path) -> None:
    rows = [step(rank, 2) for rank in range(2)]
    more = {"comm_type": 5, "comm_size": 8, "root": 1, "is_cpu_op": False}
    for row in rows:
        row.append(ChakraNode(15, "broadcast", NodeType.COLLECTIVE, [13], 6, more))
    _, note = load(written(tmp_path, rows)).notes
    counts = dict(re.findall(r"([a-z_ ]+) \((\d+)\)", note.partition("have it:")[2]))
    assert {key.strip(): int(count) for key, count in counts.items()} == {
        "start_time_micros": 12, "root": 2, "durations of messages and collectives": 2,
    }  # fmt: skip


def test_attribute_of_a_type_that_is_not_read_is_noted(tmp_path: pathlib.Path) -> None:
    listed = block(10, block(1, b"involved_dim") + block(10, block(1, b"\x01")))  # a list of int64
    body = encoded(ChakraNode(1, "reduce", NodeType.COLLECTIVE, [], 0, {"comm_type": 0, "comm_size": 8})) + listed
    (tmp_path / "x.0.et").write_bytes(varint(7) + block(1, b"0.0.4") + varint(len(body)) + body)
    _, note = load(Source(file=str(tmp_path / "x.0.et"), ranks=2)).notes
    assert "involved_dim (1)" in note


def changed(index: int, **changes: Any) -> list[list[ChakraNode]]:
    rows = [step(rank, 2) for rank in range(2)]
    rows[1][index] = ChakraNode(**{**vars(rows[1][index]), **changes})
    return rows


@pytest.mark.parametrize(
    ("rows", "text"),
    [
        (changed(0, after=[77]), "job.1.et: node 10: waits for node 77, which is not in the file"),
        (changed(0, number=11), "job.1.et: node 11: two nodes have this number"),
        (changed(0, after=[13]), "job.1.et: node 10: rank 1 waits in a circle of dependencies"),
        (changed(1, attributes={"comm_dst": 0}), "job.1.et: node 11: no comm_size"),
        (changed(1, attributes={"comm_dst": 0, "comm_size": 5, "comm_src": 0}), "comm_src is 0 in the file of rank 1"),
        (changed(2, attributes={"comm_src": 0, "comm_size": 5}), "receives 5 bytes, of which rank 0 sends 100"),
        (changed(3, attributes={"comm_type": 2, "comm_size": 64}), "they must be the same"),
        (changed(3, attributes={"comm_type": 12, "comm_size": 64}), "no collective has the number 12"),
        (
            changed(3, attributes={"comm_type": 0, "comm_size": 64, "involved_dim": [True, False]}),
            "some dimensions only",
        ),
        (changed(3, kind=NodeType.COMP), "rank 0 has 1 collectives, rank 1 has 0"),
        (changed(3, attributes={"comm_type": 0, "comm_size": 1 << 60}), "bytes: from 0 to"),
    ],
)
def test_mistake_is_named_with_file_and_node(tmp_path: pathlib.Path, rows: Any, text: str) -> None:
    with pytest.raises(GraphError) as caught:
        schedule(written(tmp_path, rows))
    assert text in str(caught.value)


def test_missing_rank_is_named(tmp_path: pathlib.Path) -> None:
    source = written(tmp_path, [step(rank, 3) for rank in range(3)])
    (tmp_path / "job.1.et").unlink()
    with pytest.raises(GraphError, match="rank 1 of 3 has no file"):
        load(source)
    with pytest.raises(GraphError, match=r"no such file, and no none.0.et beside it"):
        load(Source(file=str(tmp_path / "none")))


def test_changed_file_is_read_again(tmp_path: pathlib.Path) -> None:
    source = written(tmp_path, [step(rank, 2) for rank in range(2)])
    first = schedule(source)
    assert schedule(source) is first
    written(tmp_path, [step(rank, 2)[:4] for rank in range(2)])
    assert len(schedule(source)) == len(first) - 2


PUBLIC = os.environ.get("MRCLAB_CHAKRA", "")


@pytest.mark.skipif(not PUBLIC, reason="MRCLAB_CHAKRA names no PREFIX of a public Chakra trace")
def test_public_trace_is_read_and_can_run() -> None:
    graph = load(Source(file=PUBLIC))
    made = lower(graph)
    assert graph.ranks > 1
    assert len(made.sends) > 0
    assert np.all(made.work[made.sends] > 0)
