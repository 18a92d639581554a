"""The headers of a BMv2 JSON with their references resolved: types, instances, stacks, unions, aliases, errors.

JSON_format.md of behavioral-model is the reference. What a control plane can name (tables, actions, arrays) is in
`program/facts.py`; parsers, actions' bodies and expressions stay JSON (`JsonNode`). `Model` answers questions by name.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, TypeVar

from p4lite.switch.bmv2.reader import JsonNode

MAX_DEPTH = 1600
"""Levels of an expression: the compiler takes 400 of a program, and writes at most three for one of them."""
MAX_FIELD_BITS = 1 << 16
CORE_ERRORS = (
    "NoError",
    "PacketTooShort",
    "NoMatch",
    "StackOutOfBounds",
    "HeaderTooShort",
    "ParserTimeout",
    "ParserInvalidArgument",
)
CUSTOM_CRCS = {"crc16_custom": 16, "crc32_custom": 32}
"""Algorithms whose parameters a controller may change, and their widths."""
T = TypeVar("T")


class Bmv2Architecture(StrEnum):
    """What a document's program expects around it."""

    V1MODEL = "v1model"
    PSA = "psa"


@dataclass(frozen=True)
class FieldType:
    name: str
    width: int  # bits; of a varbit 0
    offset: int  # bits from the start of the header, as if a varbit before it were empty
    signed: bool = False
    saturating: bool = False
    varbit: bool = False
    index: int = 0


@dataclass
class HeaderLayout:
    name: str
    index: int
    fields: list[FieldType]
    by_name: dict[str, FieldType]
    max_length: int  # bytes, with the varbit
    length_exp: JsonNode | None

    @property
    def fixed_bits(self) -> int:
        return sum(f.width for f in self.fields)

    @property
    def varbit(self) -> FieldType | None:
        return next((f for f in self.fields if f.varbit), None)

    @property
    def varbit_max(self) -> int:
        """Most bytes the varbit can hold."""
        return max(self.max_length - self.fixed_bits // 8, 0) if self.varbit else 0


@dataclass
class Header:
    name: str
    id: int
    type: HeaderLayout
    metadata: bool
    slot: int = -1  # index of its state byte; elements of a stack are consecutive
    stack: Stack | None = None
    stack_index: int = 0
    union: Union | None = None
    union_index: int = 0

    @property
    def fields(self) -> list[FieldType]:
        return self.type.fields


@dataclass
class Stack:
    name: str
    id: int
    type: HeaderLayout
    headers: list[Header]
    slot: int = -1  # index of its `next` counter


@dataclass
class Union:
    name: str
    id: int
    members: list[str]
    headers: list[Header]
    slot: int = -1


@dataclass
class UnionStack:
    name: str
    id: int
    members: list[str]
    unions: list[Union]
    slot: int = -1


@dataclass
class FieldRef:
    header: Header
    field: FieldType


@dataclass
class Model:
    root: JsonNode
    header_types: dict[str, HeaderLayout] = field(default_factory=dict)
    headers: dict[str, Header] = field(default_factory=dict)
    headers_by_id: dict[int, Header] = field(default_factory=dict)
    stacks: dict[str, Stack] = field(default_factory=dict)
    unions: dict[str, Union] = field(default_factory=dict)
    union_stacks: dict[str, UnionStack] = field(default_factory=dict)
    aliases: dict[str, FieldRef] = field(default_factory=dict)
    errors: dict[str, int] = field(default_factory=dict)
    enums: dict[str, dict[str, int]] = field(default_factory=dict)
    calculations: dict[str, JsonNode] = field(default_factory=dict)
    #: The calculations whose CRC a controller may change, each with the width, in a fixed order.
    custom_crcs: dict[str, int] = field(default_factory=dict)
    vsets: dict[str, JsonNode] = field(default_factory=dict)

    @property
    def architecture(self) -> Bmv2Architecture:
        """What is around the program: PSA parses a packet at ingress and at egress."""
        names = {node["name"].value for node in self.root.items("parsers")}
        return Bmv2Architecture.PSA if "ingress_parser" in names else Bmv2Architecture.V1MODEL

    def find(self, table: dict[str, T], node: JsonNode, what: str) -> T:
        """Return the object that `node` (a string) names."""
        found = table.get(node.str())
        if found is None:
            node.fail(f"there is no {what} '{node.value}'")
        return found

    def field_ref(self, node: JsonNode) -> FieldRef:
        """Return the field of `[header, field]`, through field_aliases; `$valid$` gives one of width 1 and index -1."""
        if len(node) != 2:
            node.fail(f"a field is [header, field], found {len(node)} items")
        name = f"{node[0].str()}.{node[1].str()}"
        if name in self.aliases:
            return self.aliases[name]
        header = self.find(self.headers, node[0], "header")
        if node[1].value == "$valid$":
            return FieldRef(header, VALID_FIELD)
        found = header.type.by_name.get(node[1].str())
        if found is None:
            node.fail(f"header '{header.name}' (type '{header.type.name}') has no field '{node[1].value}'")
        return FieldRef(header, found)

    def type_field(self, type_: HeaderLayout, node: JsonNode) -> FieldType:
        if node.value == "$valid$":
            return VALID_FIELD
        found = type_.by_name.get(node.str())
        if found is None:
            node.fail(f"header type '{type_.name}' has no field '{node.value}'")
        return found

    def union_member(self, node: JsonNode) -> tuple[UnionStack, int]:
        """Return the stack of unions and the member's number for `[stack, member, field]`."""
        stack = self.find(self.union_stacks, node[0], "header union stack")
        if node[1].str() not in stack.members:
            node[1].fail(f"the union has no member '{node[1].value}'")
        return stack, stack.members.index(node[1].str())

    def error(self, name: str) -> int:
        return self.errors[name]


VALID_FIELD = FieldType("$valid$", 1, 0, index=-1)


def load_model(data: dict[str, Any], source: str) -> Model:
    """Read all declarations. Raises ProgramError."""
    root = JsonNode(data, source)
    if "header_types" not in data or "parsers" not in data or "pipelines" not in data:
        root.fail("this is not BMv2 JSON: it needs 'header_types', 'parsers' and 'pipelines'")
    _check_version(root)
    m = Model(root)
    _load_types(m)
    _load_headers(m)
    _load_unions(m)
    _assign_slots(m)
    for alias in root.items("field_aliases"):
        name, target = alias[0].str(), alias[1]
        m.aliases[name] = m.field_ref(target)
    _load_errors(m)
    read_named(m.calculations, root, "calculations", lambda n: n)
    algorithms = {name: node["algo"].str() for name, node in m.calculations.items()}
    m.custom_crcs = {name: CUSTOM_CRCS[algo] for name, algo in algorithms.items() if algo in CUSTOM_CRCS}
    read_named(m.vsets, root, "parse_vsets", lambda n: n)
    return m


def _check_version(root: JsonNode) -> None:
    meta = root.get("__meta__")
    version = meta.get("version") if meta else None
    if version is not None and version[0].int() != 2:
        version.fail(f"BMv2 JSON of major version {version[0].value} is not supported, only version 2")


def read_named(into: dict[str, T], root: JsonNode, key: str, make: Callable[[JsonNode], T]) -> None:
    """Read the objects of the array `key` into a dictionary by name; fail on a repeated name or id."""
    ids: set[int] = set()
    for node in root.items(key):
        name, id_ = node["name"].str(), node["id"].int()
        if name in into:
            node.fail(f"the name '{name}' is used twice")
        if id_ in ids:
            node.fail(f"the id {id_} is used twice")
        ids.add(id_)
        into[name] = make(node)


def _load_types(m: Model) -> None:
    def make(node: JsonNode) -> HeaderLayout:
        fields: list[FieldType] = []
        by_name: dict[str, FieldType] = {}
        offset = 0
        for item in node["fields"].items():
            name = item[0].str()
            varbit = item[1].value == "*"
            width = 0 if varbit else item[1].int(0, MAX_FIELD_BITS)
            # p4c writes the number 0 for the sign of a bool field.
            signed = len(item) > 2 and item[2].value != 0 and item[2].bool()
            saturating = item[3].bool() if len(item) > 3 else False
            if name in by_name:
                item.fail(f"the field '{name}' is declared twice")
            f = FieldType(name, width, offset, signed, saturating, varbit, len(fields))
            fields.append(f)
            by_name[name] = f
            offset += width
        if sum(f.varbit for f in fields) > 1:
            node.fail("a header type may have one variable-length field only")
        max_length = node.get("max_length")
        return HeaderLayout(
            node["name"].str(),
            len(m.header_types),
            fields,
            by_name,
            max_length.int(0, 1 << 16) if max_length else 2048,
            node.get("length_exp"),
        )

    read_named(m.header_types, m.root, "header_types", make)


def _load_headers(m: Model) -> None:
    def make(node: JsonNode) -> Header:
        type_ = m.find(m.header_types, node["header_type"], "header type")
        header = Header(node["name"].str(), node["id"].int(), type_, node["metadata"].bool())
        if not header.metadata and type_.fixed_bits % 8:
            node.fail(f"header type '{type_.name}' has {type_.fixed_bits} bits, which is not a whole number of bytes")
        m.headers_by_id[header.id] = header
        return header

    read_named(m.headers, m.root, "headers", make)

    def make_stack(node: JsonNode) -> Stack:
        type_ = m.find(m.header_types, node["header_type"], "header type")
        stack = Stack(node["name"].str(), node["id"].int(), type_, [])
        for i, item in enumerate(node["header_ids"].items()):
            header = _header_by_id(m, item)
            if header.type is not type_:
                item.fail(f"header '{header.name}' is not of the stack's type '{type_.name}'")
            if header.stack is not None or header.metadata:
                item.fail(f"header '{header.name}' cannot be an element of this stack")
            header.stack, header.stack_index = stack, i
            stack.headers.append(header)
        if not 0 < len(stack.headers) < 256:
            node.fail("a header stack has 1 to 255 elements")
        return stack

    read_named(m.stacks, m.root, "header_stacks", make_stack)


def _header_by_id(m: Model, node: JsonNode) -> Header:
    header = m.headers_by_id.get(node.int())
    if header is None:
        node.fail(f"there is no header with id {node.value}")
    return header


def _load_unions(m: Model) -> None:
    types: dict[str, list[str]] = {}
    read_named(types, m.root, "header_union_types", lambda n: [item[0].str() for item in n["headers"].items()])
    by_id: dict[int, Union] = {}

    def make(node: JsonNode) -> Union:
        members = m.find(types, node["union_type"], "header union type")
        union = Union(node["name"].str(), node["id"].int(), members, [])
        for i, item in enumerate(node["header_ids"].items()):
            header = _header_by_id(m, item)
            header.union, header.union_index = union, i
            union.headers.append(header)
        if len(union.headers) != len(members):
            node.fail(f"the union has {len(union.headers)} headers, its type {len(members)}")
        by_id[union.id] = union
        return union

    read_named(m.unions, m.root, "header_unions", make)

    def make_stack(node: JsonNode) -> UnionStack:
        members = m.find(types, node["union_type"], "header union type")
        unions = []
        for item in node["header_union_ids"].items():
            union = by_id.get(item.int())
            if union is None:
                item.fail(f"there is no header union with id {item.value}")
            unions.append(union)
        if not 0 < len(unions) < 256:
            node.fail("a header union stack has 1 to 255 elements")
        return UnionStack(node["name"].str(), node["id"].int(), members, unions)

    read_named(m.union_stacks, m.root, "header_union_stacks", make_stack)


def _assign_slots(m: Model) -> None:
    slot = 0
    for stack in m.stacks.values():
        for header in stack.headers:
            header.slot = slot
            slot += 1
    for header in m.headers.values():
        if header.slot < 0 and not header.metadata:
            header.slot = slot
            slot += 1
    for i, stack in enumerate(m.stacks.values()):
        stack.slot = i
    for i, union_stack in enumerate(m.union_stacks.values()):
        union_stack.slot = len(m.stacks) + i
    for i, union in enumerate(m.unions.values()):
        union.slot = i


def _load_errors(m: Model) -> None:
    for item in m.root.items("errors"):
        m.errors[item[0].str()] = item[1].int(0, 2**31 - 1)
    following = max(m.errors.values(), default=-1) + 1
    for name in CORE_ERRORS:
        if name not in m.errors:
            m.errors[name] = following
            following += 1
    for item in m.root.items("enums"):
        m.enums[item["name"].str()] = {e[0].str(): e[1].int() for e in item["entries"].items()}
