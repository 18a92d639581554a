"""The lowered program: everything that BMv2 can say, before it is written as JSON.

The mid end turns a typed program into flat storage (headers, stacks, unions and the `scalars`
metadata header), side-effect-free expressions over it, and control-flow graphs of basic blocks
for the parser, the two pipelines and each action. Data expressions are exact: an expression of
type `bit<W>` or `int<W>` evaluates to a value of that type without help from the destination.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

from p4lite.compiler.midend.lexpr import (
    Arg,
    Bool,
    Const,
    ElemField,
    ElemRef,
    Expr,
    Field,
    HeaderRef,
    LastField,
    LastIndex,
    Lookahead,
    LoweredConditional,
    ObjectRef,
    Op,
    Ref,
    RuntimeParam,
    SameHeader,
    StackRef,
    StackSize,
    Text,
    UnionRef,
    UnionStackRef,
    Valid,
    Vector,
    children,
    is_bool,
)
from p4lite.compiler.position import Pos

DEFAULT_TABLE_SIZE = 1024
HIT, MISS = "__HIT__", "__MISS__"
"""Labels of what applying a table does; BMv2's."""


@dataclass(frozen=True, slots=True)
class SourceInfo:
    """Where a piece of the output comes from in the P4 source."""

    filename: str
    line: int
    column: int
    fragment: str = ""


# --- operations ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LoweredAssign:
    """Data assignment; the destination truncates to its width."""

    target: Field | ElemField
    value: Expr
    loc: SourceInfo | None = None


@dataclass(frozen=True, slots=True)
class Prim:
    """A primitive call by its BMv2 name.

    `result` is the argument that a method of an architecture's extern writes; it changes no other field.
    """

    op: str
    args: tuple[Arg, ...]
    loc: SourceInfo | None = None
    result: int | None = None


@dataclass(frozen=True, slots=True)
class Extract:
    """`kind` is regular, stack or union_stack; `length` the bits of the varbit field, if any."""

    kind: str
    target: str | tuple[str, str]
    length: Expr | None = None
    loc: SourceInfo | None = None


@dataclass(frozen=True, slots=True)
class Advance:
    """Skip bits of the packet."""

    bits: Const | Field
    loc: SourceInfo | None = None


@dataclass(frozen=True, slots=True)
class Verify:
    """`verify(cond, error)`."""

    cond: Expr
    error: Expr
    loc: SourceInfo | None = None


LOp: TypeAlias = LoweredAssign | Prim | Extract | Advance | Verify


# --- control flow -------------------------------------------------------------------------------


@dataclass(slots=True)
class Jump:
    """Go on with another block."""

    to: BasicBlock


@dataclass(slots=True)
class Branch:
    """Go on by a boolean."""

    cond: Expr
    then: BasicBlock
    other: BasicBlock
    loc: SourceInfo | None = None


@dataclass(slots=True)
class ApplyTable:
    """Apply a table; `targets` maps `HIT`, `MISS` or action names to blocks.

    `calls`: the places of the calls that lead here, the outermost first, and last that of apply() itself.
    """

    table: LoweredTable
    targets: dict[str, BasicBlock]
    default: BasicBlock
    calls: tuple[Pos, ...] = ()


@dataclass(slots=True)
class End:
    """The end of the action, the pipeline or (accept) the parser."""


@dataclass(slots=True)
class LoweredSelectCase:
    """One case of a select: per key a value and a mask (None: all bits), or a value set."""

    keys: list[tuple[int, int | None]]
    vset: str | None
    to: BasicBlock | None
    loc: SourceInfo | None = None


@dataclass(slots=True)
class LoweredSelect:
    """Parser transition on fields."""

    keys: list[Field | LastField]
    cases: list[LoweredSelectCase]


Terminator: TypeAlias = Jump | Branch | ApplyTable | End | LoweredSelect


@dataclass(slots=True, eq=False)
class BasicBlock:
    """Straight-line operations and what follows them; `loc` of a parser state."""

    ops: list[LOp] = field(default_factory=list)
    term: Terminator | None = None
    name: str | None = None
    loc: SourceInfo | None = None


def successors(term: Terminator | None) -> list[BasicBlock]:
    """Return the blocks a terminator can go to, each once, in order."""
    out: list[BasicBlock] = []
    if isinstance(term, Jump):
        out = [term.to]
    elif isinstance(term, Branch):
        out = [term.then, term.other]
    elif isinstance(term, ApplyTable):
        out = [*term.targets.values(), term.default]
    elif isinstance(term, LoweredSelect):
        out = [c.to for c in term.cases if c.to is not None]
    seen: set[int] = set()
    return [b for b in out if not (id(b) in seen or seen.add(id(b)))]  # type: ignore[func-returns-value]


def reachable(entry: BasicBlock) -> list[BasicBlock]:
    """Return all blocks that can be reached, in depth-first preorder."""
    order: list[BasicBlock] = []
    seen: set[int] = set()
    stack = [entry]
    while stack:
        block = stack.pop()
        if id(block) in seen:
            continue
        seen.add(id(block))
        order.append(block)
        stack.extend(reversed(successors(block.term)))
    return order


# --- objects ------------------------------------------------------------------------------------


@dataclass(slots=True)
class FieldDef:
    """A field of a header type; `width` is the maximum for a varbit."""

    name: str
    width: int
    signed: bool = False
    varbit: bool = False


@dataclass(slots=True)
class LoweredHeaderType:
    """A header or metadata type."""

    name: str
    fields: list[FieldDef] = field(default_factory=list)
    metadata: bool = False
    aliases: list[tuple[str, str]] = field(default_factory=list)


@dataclass(slots=True)
class HeaderInst:
    """A header or metadata instance."""

    name: str
    type: str
    metadata: bool = False


@dataclass(slots=True)
class StackInst:
    """A header stack; its elements are header instances `name[i]`."""

    name: str
    type: str
    size: int


@dataclass(slots=True)
class LoweredUnionType:
    """A header union type: (member name, header type) pairs."""

    name: str
    members: list[tuple[str, str]]


@dataclass(slots=True)
class UnionInst:
    """A header union; its members are header instances `name.member`."""

    name: str
    type: str


@dataclass(slots=True)
class UnionStackInst:
    """A stack of header unions `name[i]`."""

    name: str
    type: str
    size: int


@dataclass(slots=True, eq=False)
class LoweredAction:
    """An action; `params` are (name, width) of the run-time data."""

    name: str
    params: list[tuple[str, int]]
    body: BasicBlock
    loc: SourceInfo | None = None
    hidden: bool = False


@dataclass(slots=True)
class TableKey:
    """One key of a table; `target` may be a `$valid$` field."""

    match_type: str
    name: str | None
    target: Field
    mask: int | None = None


@dataclass(slots=True)
class EntryKey:
    """A key of an entry: exact (value), ternary (value, mask), lpm (value, prefix), range (low, high)."""

    match_type: str
    value: int
    extra: int
    width: int


@dataclass(slots=True)
class InitialEntry:
    """A const or initial entry."""

    keys: list[EntryKey]
    action: LoweredAction
    args: list[int]
    priority: int
    loc: SourceInfo | None = None


@dataclass(slots=True, eq=False)
class ActionProfile:
    """An action profile, or a selector when `algo` is set."""

    name: str
    size: int
    algo: str | None = None
    inputs: list[Field] = field(default_factory=list)
    loc: SourceInfo | None = None


@dataclass(slots=True, eq=False)
class LoweredTable:
    """A table as BMv2 sees it."""

    name: str
    keys: list[TableKey]
    actions: list[LoweredAction]
    size: int
    default: LoweredAction | None = None
    default_args: list[int] = field(default_factory=list)
    default_const: bool = False
    entries: list[InitialEntry] | None = None
    entries_const: bool = True
    profile: ActionProfile | None = None
    with_counters: bool = False
    support_timeout: bool = False
    direct_meter: str | None = None
    loc: SourceInfo | None = None


@dataclass(slots=True)
class LoweredCounter:
    """A counter array; `binding` is the table of a direct counter."""

    name: str
    size: int
    binding: str | None = None
    loc: SourceInfo | None = None


@dataclass(slots=True)
class LoweredMeter:
    """A meter array (`kind` bytes or packets); direct ones have a table and a result field."""

    name: str
    size: int
    kind: str
    binding: str | None = None
    result: Field | None = None
    loc: SourceInfo | None = None


@dataclass(slots=True)
class LoweredRegister:
    """A register array; all cells are `initial` at first."""

    name: str
    size: int
    width: int
    loc: SourceInfo | None = None
    initial: int = 0


@dataclass(slots=True)
class ExternObject:
    """An extern object that the target has by its type; `args` are the constructor's."""

    name: str
    kind: str
    args: list[tuple[str, Const | Text]]
    loc: SourceInfo | None = None


@dataclass(slots=True)
class Calculation:
    """A named calculation over fields, headers and constants, optionally with the payload."""

    name: str
    algo: str
    inputs: list[Field | Const]
    payload: bool = False


@dataclass(slots=True)
class Checksum:
    """A checksum to verify after parsing or to update before deparsing."""

    name: str
    target: Field
    calculation: str
    verify: bool
    cond: Expr
    loc: SourceInfo | None = None


@dataclass(slots=True)
class FieldList:
    """Fields kept over clone, resubmit and recirculate, or learnt by a digest."""

    name: str
    id: int
    elements: list[Field | Const]
    loc: SourceInfo | None = None


@dataclass(slots=True)
class ValueSet:
    """A parser value set; `width` in bits without padding."""

    name: str
    width: int
    size: int


@dataclass(slots=True)
class LoweredPipeline:
    """An ingress or egress pipeline."""

    name: str
    entry: BasicBlock
    loc: SourceInfo | None = None


@dataclass(slots=True)
class LoweredParser:
    """A parser."""

    name: str
    entry: BasicBlock


@dataclass(slots=True)
class LoweredDeparser:
    """A deparser: what it computes first, then the headers that it emits."""

    name: str
    order: list[str]
    body: BasicBlock
    loc: SourceInfo | None = None


@dataclass(slots=True)
class LoweredProgram:
    """All that the back end writes; order is the order of the output."""

    program: str = ""
    header_types: dict[str, LoweredHeaderType] = field(default_factory=dict)
    headers: dict[str, HeaderInst] = field(default_factory=dict)
    stacks: dict[str, StackInst] = field(default_factory=dict)
    union_types: dict[str, LoweredUnionType] = field(default_factory=dict)
    unions: dict[str, UnionInst] = field(default_factory=dict)
    union_stacks: dict[str, UnionStackInst] = field(default_factory=dict)
    errors: list[tuple[str, int]] = field(default_factory=list)
    enums: list[tuple[str, list[tuple[str, int]]]] = field(default_factory=list)
    value_sets: list[ValueSet] = field(default_factory=list)
    parsers: list[LoweredParser] = field(default_factory=list)
    pipelines: list[LoweredPipeline] = field(default_factory=list)
    deparsers: list[LoweredDeparser] = field(default_factory=list)
    actions: list[LoweredAction] = field(default_factory=list)
    counters: list[LoweredCounter] = field(default_factory=list)
    meters: list[LoweredMeter] = field(default_factory=list)
    registers: list[LoweredRegister] = field(default_factory=list)
    externs: list[ExternObject] = field(default_factory=list)
    calculations: list[Calculation] = field(default_factory=list)
    checksums: list[Checksum] = field(default_factory=list)
    field_lists: list[FieldList] = field(default_factory=list)
    learn_lists: list[FieldList] = field(default_factory=list)


__all__ = [
    "ActionProfile",
    "Advance",
    "ApplyTable",
    "Arg",
    "BasicBlock",
    "Bool",
    "Branch",
    "Calculation",
    "Checksum",
    "Const",
    "ElemField",
    "ElemRef",
    "End",
    "EntryKey",
    "Expr",
    "ExternObject",
    "Extract",
    "Field",
    "FieldDef",
    "FieldList",
    "HeaderInst",
    "HeaderRef",
    "InitialEntry",
    "Jump",
    "LOp",
    "LastField",
    "LastIndex",
    "Lookahead",
    "LoweredAction",
    "LoweredAssign",
    "LoweredConditional",
    "LoweredCounter",
    "LoweredDeparser",
    "LoweredHeaderType",
    "LoweredMeter",
    "LoweredParser",
    "LoweredPipeline",
    "LoweredProgram",
    "LoweredRegister",
    "LoweredSelect",
    "LoweredSelectCase",
    "LoweredTable",
    "LoweredUnionType",
    "ObjectRef",
    "Op",
    "Prim",
    "Ref",
    "RuntimeParam",
    "SameHeader",
    "SourceInfo",
    "StackInst",
    "StackRef",
    "StackSize",
    "TableKey",
    "Terminator",
    "Text",
    "UnionInst",
    "UnionRef",
    "UnionStackInst",
    "UnionStackRef",
    "Valid",
    "ValueSet",
    "Vector",
    "Verify",
    "children",
    "is_bool",
    "reachable",
    "successors",
]
