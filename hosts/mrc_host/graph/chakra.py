"""Reader of Chakra execution traces (mlcommons/chakra): `PREFIX.RANK.et` in protobuf, or `.json`.

Of the schema (`et_def.proto`) only what a run needs is declared. Its versions differ in the types of attributes and in
what nodes keep of tensors: any whole number is taken, and tensors are left alone. A node waits for its data and its
control dependencies. The latter are left out of a file in which they cannot hold (`_controls_hold`): Chakra's converter
makes data dependencies of PyTorch's call tree, and leaves the callers' numbers of before. What else is not used is in
the graph's notes. A rank has a unit for operations of the GPU and one for those of the CPU; without `is_cpu_op` an
operation is the GPU's. Collectives of one process group follow each other in the order of their node's numbers. A
collective of the CPU is the call that launches the GPU's. What the CPU does takes time and counts as no computation:
exposed communication is what the GPU waits for.
"""

from __future__ import annotations

import functools
import itertools
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from pathlib import Path
from typing import Any

import numpy as np

from mrc_host.graph.graph import (
    MAX_READ,
    Collective,
    CollectiveKind,
    Compute,
    Graph,
    GraphError,
    GraphProgram,
    Ints,
    Node,
    Receive,
    Send,
    at,
    one,
)

#: Bytes of all files of a trace.
MAX_BYTES = 1 << 28
GPU, CPU = 0, 1
WORLD = "world"


class NodeType(IntEnum):
    """Types of nodes, as the schema numbers them."""

    INVALID = 0
    METADATA = 1
    MEM_LOAD = 2
    MEM_STORE = 3
    COMP = 4
    SEND = 5
    RECEIVE = 6
    COLLECTIVE = 7


#: The schema's numbers of collectives; REDUCE_SCATTER_BLOCK is 8.
COLLECTIVES = (
    CollectiveKind.ALL_REDUCE, CollectiveKind.REDUCE, CollectiveKind.ALL_GATHER, CollectiveKind.GATHER,
    CollectiveKind.SCATTER, CollectiveKind.BROADCAST, CollectiveKind.ALL_TO_ALL, CollectiveKind.REDUCE_SCATTER,
    CollectiveKind.REDUCE_SCATTER, CollectiveKind.BARRIER,
)  # fmt: skip


#: What is read of a node's attributes, and of a node in JSON.
ATTRIBUTES = frozenset((
    "is_cpu_op", "num_ops", "comm_type", "comm_size", "comm_src", "comm_dst", "comm_tag", "involved_dim", "pg_name",
))  # fmt: skip
JSON_KEYS = ATTRIBUTES | {"Id", "Name", "NodeType", "data_deps", "ctrl_deps", "ctrlDeps", "runtime"}
#: Kinds of what a trace has and a run does not use that a note names.
MOST_UNUSED = 12


@dataclass(frozen=True)
class ChakraNode:
    """A node as it is in a file: `attributes` are whole numbers, texts and lists of bools.

    `after` are data dependencies, `controls` control dependencies; `unused` names what else the file says of it.
    """

    number: int
    name: str
    kind: NodeType
    after: Sequence[int]
    micros: int
    attributes: Mapping[str, Any] = field(default_factory=dict)
    values: str = ""
    controls: Sequence[int] = ()
    unused: Sequence[str] = field(default=(), compare=False)


@functools.cache
def _messages() -> tuple[Any, Any]:
    """Return the message classes of a trace's metadata and node."""
    # Only traces need protobuf, whose import takes a tenth of a second.
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    kinds = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(
        name="mrc_host/graph/chakra.proto", package="mrc_host.graph", syntax="proto3"
    )

    def message(name: str, *fields: tuple[str, int, int, bool, str]) -> None:
        made = file.message_type.add(name=name)
        for label, number, kind, many, of in fields:
            made.field.add(
                name=label, number=number, type=kind, type_name=f".mrc_host.graph.{of}" if of else None,
                label=kinds.LABEL_REPEATED if many else kinds.LABEL_OPTIONAL,
            )  # fmt: skip

    scalars = (
        ("int32", 7, kinds.TYPE_INT32), ("int64", 9, kinds.TYPE_INT64), ("uint32", 11, kinds.TYPE_UINT32),
        ("uint64", 13, kinds.TYPE_UINT64), ("sint32", 15, kinds.TYPE_SINT32), ("sint64", 17, kinds.TYPE_SINT64),
        ("fixed32", 19, kinds.TYPE_FIXED32), ("fixed64", 21, kinds.TYPE_FIXED64),
        ("sfixed32", 23, kinds.TYPE_SFIXED32), ("sfixed64", 25, kinds.TYPE_SFIXED64), ("bool", 27, kinds.TYPE_BOOL),
        ("string", 29, kinds.TYPE_STRING),
    )  # fmt: skip
    message("BoolList", ("values", 1, kinds.TYPE_BOOL, True, ""))
    message(
        "Attribute",
        ("name", 1, kinds.TYPE_STRING, False, ""),
        *((f"{name}_val", number, kind, False, "") for name, number, kind in scalars),
        ("bool_list", 28, kinds.TYPE_MESSAGE, False, "BoolList"),
    )
    # All values of an attribute are alternatives, which tells 0 from a value that is not there.
    attribute = file.message_type[-1]
    attribute.oneof_decl.add(name="value")
    for each in attribute.field[1:]:
        each.oneof_index = 0
    message("Metadata", ("version", 1, kinds.TYPE_STRING, False, ""))
    message("IOInfo", ("values", 1, kinds.TYPE_BYTES, False, ""))
    message(
        "Node",
        ("id", 1, kinds.TYPE_UINT64, False, ""),
        ("name", 2, kinds.TYPE_BYTES, False, ""),
        ("type", 3, kinds.TYPE_INT32, False, ""),
        ("ctrl_deps", 4, kinds.TYPE_UINT64, True, ""),
        ("data_deps", 5, kinds.TYPE_UINT64, True, ""),
        ("start_time_micros", 6, kinds.TYPE_UINT64, False, ""),
        ("duration_micros", 7, kinds.TYPE_UINT64, False, ""),
        ("inputs", 8, kinds.TYPE_BYTES, False, ""),
        ("outputs", 9, kinds.TYPE_BYTES, False, ""),
        ("attr", 10, kinds.TYPE_MESSAGE, True, "Attribute"),
    )
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    return (
        message_factory.GetMessageClass(pool.FindMessageTypeByName("mrc_host.graph.Node")),
        message_factory.GetMessageClass(pool.FindMessageTypeByName("mrc_host.graph.IOInfo")),
    )


def _frames(data: bytes, name: str) -> Iterator[tuple[int, bytes]]:
    """Yield each message of a file, which has its length before it, with the place where it begins."""
    here = 0
    while here < len(data):
        begin, length, shift = here, 0, 0
        while True:
            if here >= len(data) or shift > 28:
                raise at(f"{name}: byte {begin}", "no length of a message; the file is cut off or no Chakra trace")
            byte = data[here]
            here += 1
            length |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        if length > len(data) - here:
            text = f"a message of {length} bytes, of which the file has {len(data) - here}; it is cut off"
            raise at(f"{name}: byte {begin}", f"{text} or no Chakra trace")
        yield begin, data[here : here + length]
        here += length


def parse_protobuf(data: bytes, name: str) -> list[ChakraNode]:
    """Return the nodes of a trace of one rank.

    Raises:
        GraphError: it is none; names the byte.
    """
    from google.protobuf.message import DecodeError

    node_class, info_class = _messages()
    nodes: list[ChakraNode] = []
    for number, (place, frame) in enumerate(_frames(data, name)):
        if number == 0:
            continue  # the metadata: a version, and texts about where it is from
        if number > MAX_READ:
            raise GraphError(f"{name}: more than {MAX_READ} nodes; cut the trace to one step")
        try:
            read = node_class.FromString(frame)
            values = info_class.FromString(read.inputs).values if b"process_group" in read.name else b""
        except (DecodeError, UnicodeDecodeError) as error:
            reason = "a text that is not UTF-8" if isinstance(error, UnicodeDecodeError) else str(error)
            raise at(
                f"{name}: byte {place}", f"no node of a Chakra trace ({reason}); is the file of another format?"
            ) from None
        attributes = {}
        unused = [key for key in ("start_time_micros", "outputs") if getattr(read, key)]
        unused += ["inputs"] if read.inputs and not values else []
        for each in read.attr:
            which = each.WhichOneof("value")
            if which is not None:
                value = getattr(each, which)
                attributes[each.name] = list(value.values) if which == "bool_list" else value
            if which is None or each.name not in ATTRIBUTES:
                unused.append(each.name)
        nodes.append(
            ChakraNode(
                read.id, read.name.decode(errors="replace")[:120], _type(read.type, f"{name}: node {read.id}"),
                list(read.data_deps), read.duration_micros, attributes, values.decode(errors="replace"),
                list(read.ctrl_deps), unused,
            )
        )  # fmt: skip
    return nodes


def parse_json(data: bytes, name: str) -> list[ChakraNode]:
    """Return the nodes of a trace of one rank in Chakra's JSON (`workload_graph`).

    Raises:
        GraphError: it is none; names the node.
    """
    try:
        document = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise at(name, f"no JSON ({error}); give a file that Chakra has written") from None
    rows = document.get("workload_graph") if isinstance(document, dict) else None
    if not isinstance(rows, list):
        raise at(name, "no list 'workload_graph'; this reader takes the JSON that Chakra's feeder reads")
    nodes = []
    for number, row in enumerate(rows):
        place = f"{name}: entry {number}"
        if not isinstance(row, dict):
            raise at(place, "a node is an object with Id, NodeType and data_deps")
        # The second spelling is that of protobuf's own JSON.
        lists = [row.get("data_deps", []), row.get("ctrl_deps", row.get("ctrlDeps", []))]
        whole = [row.get("Id"), row.get("NodeType"), row.get("runtime", 0)]
        for each in lists:
            whole += each if isinstance(each, list) else [None]
        if not all(isinstance(each, int) and each >= 0 for each in whole):
            raise at(place, "Id, NodeType, runtime, data_deps and ctrl_deps are whole numbers from 0")
        after, controls = lists
        label, kind = str(row.get("Name", ""))[:120], _type(row["NodeType"], place)
        unused = [key for key in row if key not in JSON_KEYS]
        nodes.append(ChakraNode(row["Id"], label, kind, after, whole[2], row, "", controls, unused))
    return nodes


def _type(value: int, place: str) -> NodeType:
    try:
        return NodeType(value)
    except ValueError:
        raise at(place, f"no type of node is {value}; known: 0 to {max(NodeType)}") from None


def read_groups(path: Path) -> dict[str, Ints]:
    """Return groups of ranks by name, from a JSON file such as `{"0": [0, 1], "1": [2, 3]}` (ASTRA-sim's).

    Raises:
        GraphError: it cannot be read or is none.
    """
    try:
        document = json.loads(read_bytes(path))
    except (ValueError, RecursionError) as error:
        raise at(str(path), f"no JSON ({error})") from None
    if not isinstance(document, dict) or not all(_is_group(row) for row in document.values()):
        raise at(str(path), 'groups are an object of lists of ranks, such as {"0": [0, 1]}')
    return {str(name): np.array([row], np.int64) for name, row in document.items()}


def _is_group(row: object) -> bool:
    return isinstance(row, list) and bool(row) and all(isinstance(each, int) and 0 <= each < 1 << 31 for each in row)


def read_bytes(path: Path, most: int = MAX_BYTES) -> bytes:
    """Return the contents of a regular file of bounded size.

    Raises:
        GraphError: it cannot be read.
    """
    try:
        if not path.is_file():
            raise at(str(path), "no such file")
        if path.stat().st_size > most:
            raise at(str(path), f"{path.stat().st_size} bytes, {most} at most; cut the trace to one step")
        return path.read_bytes()
    except OSError as error:
        raise at(str(path), f"cannot be read: {error.strerror}") from None


def to_graph(
    files: Sequence[tuple[str, Sequence[ChakraNode]]],
    ranks: int,
    groups: Mapping[str, Ints],
    ops_per_ns: float,
    name: str,
) -> Graph:
    """Return the graph of a trace: a file per rank, or one file that `ranks` ranks do alike.

    `ops_per_ns`: how fast nodes without a duration compute what their `num_ops` say.

    Raises:
        GraphError: a node refers to one that is not there, or lacks what its type needs; names file and node.
    """
    sets = {WORLD: np.arange(ranks)[None, :], **groups}
    alike = len(files) == 1 and ranks > 1
    programs = []
    dropped: dict[str, int] = {}
    for rank, (file, nodes) in enumerate(files):
        own = np.arange(ranks) if alike else one(rank)
        for node in nodes:
            for group, members in _process_groups(node, ranks, f"{file}: node {node.number}"):
                if not np.array_equal(sets.setdefault(group, members), members):
                    raise at(f"{file}: node {node.number}", f"process group '{group}' has other ranks than before")
        if not _controls_hold(nodes):
            dropped[file] = sum(len(node.controls) for node in nodes)
            nodes = [replace(node, controls=()) for node in nodes]
        programs.append(GraphProgram(own, _nodes(nodes, file, own, sets, ops_per_ns)))
    return Graph(ranks, programs, sets, name, list(_notes(files, dropped, name)))


def _controls_hold(nodes: Iterable[ChakraNode]) -> bool:
    """Return whether all control dependencies of a file can hold: each names another node of the file, and no circle is
    made with the data dependencies."""
    waits = {node.number: {*node.after, *node.controls} for node in nodes}
    for node in nodes:
        if any(each == node.number or each not in waits for each in node.controls):
            return False
    followers: dict[int, list[int]] = {}
    for number, others in waits.items():
        for other in others:
            followers.setdefault(other, []).append(number)
    left = {number: len(others) for number, others in waits.items()}
    ready = [number for number, count in left.items() if not count]
    while ready:
        number = ready.pop()
        del left[number]
        for follower in followers.get(number, ()):
            left[follower] -= 1
            if not left[follower]:
                ready.append(follower)
    return not left or not any(node.controls for node in nodes)


def _notes(files: Sequence[tuple[str, Sequence[ChakraNode]]], dropped: Mapping[str, int], name: str) -> Iterator[str]:
    """Yield which dependencies a run follows, and what it does not use of a trace, with counts. `dropped`: control
    dependencies not followed, by file."""
    data = sum(len(node.after) for _, nodes in files for node in nodes)
    control, left = sum(len(node.controls) for _, nodes in files for node in nodes), sum(dropped.values())
    yield f"{name}: followed: {data} data and {control - left} control dependencies; not followed: {left or 'none'}"
    if dropped:
        where = next(iter(dropped)) + (f" and {len(dropped) - 1} other files" if len(dropped) > 1 else "")
        yield (
            f"{where}: {left} control dependencies are not followed: some name the node itself or one that is not "
            "there, or close a circle, as Chakra's converter leaves them"
        )
    counts: Counter[str] = Counter()
    for _, nodes in files:
        for node in nodes:
            counts.update(node.unused)
            if node.micros and node.kind in (NodeType.SEND, NodeType.RECEIVE, NodeType.COLLECTIVE):
                counts["durations of messages and collectives"] += not node.attributes.get("is_cpu_op", False)
    if found := +counts:
        most = ", ".join(f"{key[:40]} ({count})" for key, count in found.most_common(MOST_UNUSED))
        rest = f" and {len(found) - MOST_UNUSED} more kinds" if len(found) > MOST_UNUSED else ""
        yield f"{name}: not used, with the number of nodes that have it: {most}{rest}"


def _process_groups(node: ChakraNode, ranks: int, place: str) -> Iterator[tuple[str, Ints]]:
    """Yield the groups that a node of a PyTorch trace defines; one without ranks is of all."""
    if "process_group:init" not in node.name or not node.values:
        return
    text = node.values.strip()
    begin, end = text.find("[{"), text.rfind("}]")
    try:
        rows = json.loads(text[begin : end + 2].replace('\\"', '"')) if begin >= 0 else []
    except (ValueError, RecursionError):
        raise at(place, "process groups that are no JSON") from None
    for row in rows:
        members = row.get("ranks") if isinstance(row, dict) else None
        if not isinstance(members, list) or "pg_name" not in row or (members and not _is_group(members)):
            raise at(place, "a process group has pg_name and ranks")
        yield str(row["pg_name"]), np.array([members or list(range(ranks))], np.int64)


def _nodes(
    nodes: Sequence[ChakraNode], file: str, own: Ints, sets: Mapping[str, Ints], ops_per_ns: float
) -> list[Node]:
    ordered = sorted(nodes, key=lambda node: node.number)
    numbers = {node.number: index for index, node in enumerate(ordered)}
    if len(numbers) < len(ordered):
        again = next(a.number for a, b in itertools.pairwise(ordered) if a.number == b.number)
        raise at(f"{file}: node {again}", "two nodes have this number; a trace has each once")
    made = []
    for node in ordered:
        place = f"{file}: node {node.number}"
        after = [*node.after, *node.controls]
        missing = [each for each in after if each not in numbers]
        if missing:
            raise at(place, f"waits for node {missing[0]}, which is not in the file; is the trace complete?")
        made.append(_node(node, [numbers[each] for each in after], place, own, sets, ops_per_ns))
    return made


def _node(
    node: ChakraNode, after: list[int], place: str, own: Ints, sets: Mapping[str, Ints], ops_per_ns: float
) -> Node:
    attributes = node.attributes
    cpu = bool(attributes.get("is_cpu_op", False))
    if node.kind in (NodeType.SEND, NodeType.RECEIVE) and not cpu:
        return _message(node, after, place, own)
    if node.kind is NodeType.COLLECTIVE and not cpu:
        kind = _whole(attributes, "comm_type", place)
        if kind >= len(COLLECTIVES):
            raise at(place, f"no collective has the number {kind}; known: 0 to {len(COLLECTIVES) - 1}")
        what = COLLECTIVES[kind]
        size = _whole(attributes, "comm_size", place, 0 if what is CollectiveKind.BARRIER else None)
        dims = attributes.get("involved_dim", [])
        group = str(attributes.get("pg_name", "")) or WORLD
        if group not in sets:
            raise at(place, f"process group '{group}' is not defined; give groups=FILE with its ranks")
        if group == WORLD and isinstance(dims, list) and not all(dims):
            raise at(
                place, "a collective of some dimensions only (involved_dim); give its ranks by pg_name and groups=FILE"
            )
        return Collective(after=after, place=place, kind=what, size=size, groups=group)
    ns = node.micros * 1000
    if not ns and node.kind is NodeType.COMP:
        ns = round(_whole(attributes, "num_ops", place, 0) / ops_per_ns)
    memory = node.kind in (NodeType.MEM_LOAD, NodeType.MEM_STORE)
    label = "host" if cpu else "memory" if memory else "compute"
    return Compute(after=after, place=place, ns=ns, unit=CPU if cpu else GPU, label=label, counts=label == "compute")


def _message(node: ChakraNode, after: list[int], place: str, own: Ints) -> Node:
    if len(own) > 1:
        raise at(place, "a message to a rank in a file that all ranks follow; give a file for each rank")
    sends = node.kind is NodeType.SEND
    key, other = ("comm_dst", "comm_src") if sends else ("comm_src", "comm_dst")
    peer = _whole(node.attributes, key, place)
    mine = _whole(node.attributes, other, place, int(own[0]))
    if mine != own[0]:
        raise at(place, f"{other} is {mine} in the file of rank {own[0]}; rename the file or correct the node")
    size, tag = _whole(node.attributes, "comm_size", place), _whole(node.attributes, "comm_tag", place, 0)
    made = Send if sends else Receive
    return made(after=after, place=place, peers=one(peer), size=size, tag=tag)


def _whole(attributes: Mapping[str, Any], key: str, place: str, default: int | None = None) -> int:
    value = attributes.get(key, default)
    if value is None:
        raise at(place, f"no {key}, which this type of node needs")
    if not isinstance(value, int) or not 0 <= value < 1 << 62:
        raise at(place, f"{key} is a whole number from 0, not {value!r:.40}")
    return value
