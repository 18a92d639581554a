"""A P4 program loaded from BMv2 JSON: what it contains, by name, and how to make running instances of it.

`load_program(source)` reads and validates BMv2 JSON (ours, p4c's, or that of P4_14 programs) and gives a
`Program`: tables, actions, counters and so on as frozen dataclasses. `Program.build()` compiles it to a
shared object (cached); `Program.instance()` makes a `ProgramInstance` (see `instance.py`), the state of one switch.

Names are those of the JSON, which are those of P4Info (`MyIngress.ipv4_lpm`). Priorities are BMv2's: the
*lower* number wins (P4Runtime's are the other way round; convert at that boundary).
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from p4lite.switch.errors import (
    AlreadyExists,
    ControlError,
    InvalidArgument,
    NotFound,
    OutOfRange,
    PermissionDenied,
    ProgramError,
    ResourceExhausted,
)

if TYPE_CHECKING:
    from p4lite.switch.codegen.generate import Generator
    from p4lite.switch.runtime.instance import ProgramInstance

__all__ = [
    "ActionCall",
    "ActionInfo",
    "ActionProfileInfo",
    "AlreadyExists",
    "ArrayInfo",
    "ControlError",
    "DigestInfo",
    "Exact",
    "Field",
    "GroupRef",
    "HeaderInfo",
    "InvalidArgument",
    "KeyInfo",
    "Lpm",
    "MatchValue",
    "MemberRef",
    "MeterInfo",
    "NotFound",
    "Optional",
    "OutOfRange",
    "ParamInfo",
    "PermissionDenied",
    "Program",
    "ProgramError",
    "Range",
    "ResourceExhausted",
    "TableInfo",
    "Ternary",
    "ValueSetInfo",
    "load_program",
]


# --- match values -----------------------------------------------------------------------------------------
# All values are unsigned integers of the key's width; a value with bits beyond it is OutOfRange.


@dataclass(frozen=True, slots=True)
class Exact:
    """Match on equality; for match type `valid` 0 or 1."""

    value: int


@dataclass(frozen=True, slots=True)
class Lpm:
    """Longest prefix; bits of `value` beyond `prefix_len` must be 0; prefix_len 0 matches everything."""

    value: int
    prefix_len: int


@dataclass(frozen=True, slots=True)
class Ternary:
    """`key & mask == value`; bits of `value` outside `mask` must be 0; mask 0 matches everything."""

    value: int
    mask: int


@dataclass(frozen=True, slots=True)
class Range:
    """`low <= key <= high`, both inclusive."""

    low: int
    high: int


@dataclass(frozen=True, slots=True)
class Optional:
    """Equality, or anything when `value` is None."""

    value: int | None


MatchValue = Exact | Lpm | Ternary | Range | Optional


# --- what an entry does -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ActionCall:
    """An action with its arguments in declaration order, unsigned integers of the parameters' widths."""

    name: str
    args: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class MemberRef:
    """Member of the table's action profile (tables of type `indirect`, `indirect_ws`)."""

    member: int


@dataclass(frozen=True, slots=True)
class GroupRef:
    """Group of the table's action selector (tables of type `indirect_ws`)."""

    group: int


EntryAction = ActionCall | MemberRef | GroupRef


# --- contents of a program --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Field:
    """A field reference as the JSON has it. `width` in bits, 0 for a varbit."""

    header: str
    name: str
    width: int
    signed: bool = False


@dataclass(frozen=True, slots=True)
class ParamInfo:
    name: str
    width: int


@dataclass(frozen=True, slots=True)
class ActionInfo:
    """An action; several in one JSON may share a name (`NoAction`), their `id` differs."""

    name: str
    id: int
    params: tuple[ParamInfo, ...]


@dataclass(frozen=True, slots=True)
class KeyInfo:
    """One key of a table: `match` is exact, lpm, ternary, range, optional or valid."""

    name: str
    match: str
    width: int
    field: Field
    mask: int | None = None


@dataclass(frozen=True, slots=True)
class TableInfo:
    """A table. `kind` is the JSON's match_type: exact, lpm, ternary or range; the last two need priorities."""

    name: str
    id: int
    pipeline: str
    kind: str
    type: str  # simple, indirect, indirect_ws
    key: tuple[KeyInfo, ...]
    actions: dict[str, ActionInfo]
    max_size: int
    with_counters: bool
    direct_meter: str | None
    support_timeout: bool
    action_profile: str | None
    const_entries: bool
    const_default: bool  # neither action nor arguments of the default may change
    default_entry: ActionCall | None

    @property
    def needs_priority(self) -> bool:
        return self.kind in ("ternary", "range")


@dataclass(frozen=True, slots=True)
class ActionProfileInfo:
    """An action profile (`selector` False) or action selector; `tables` that use it, `actions` they allow."""

    name: str
    id: int
    max_size: int
    selector: bool
    tables: tuple[str, ...]
    actions: dict[str, ActionInfo]


@dataclass(frozen=True, slots=True)
class ArrayInfo:
    """A counter or register array. `width` is bits of a register, 0 for counters; `table` if direct."""

    name: str
    id: int
    size: int
    width: int = 0
    table: str | None = None


@dataclass(frozen=True, slots=True)
class MeterInfo:
    """A meter array; `unit` is bytes or packets; two rates, three colours."""

    name: str
    id: int
    size: int
    unit: str
    rates: int
    table: str | None = None


@dataclass(frozen=True, slots=True)
class ValueSetInfo:
    """A parser value set; `widths` are the key's parts in bits, most significant first."""

    name: str
    id: int
    width: int
    widths: tuple[int, ...]
    max_size: int


@dataclass(frozen=True, slots=True)
class DigestInfo:
    """A learn list: one message is its fields, big-endian, each padded to whole bytes, concatenated."""

    name: str
    id: int
    widths: tuple[int, ...]

    def split(self, sample: bytes) -> tuple[int, ...]:
        """The field values of one serialised sample."""
        values, at = [], 0
        for width in self.widths:
            size = (width + 7) // 8
            values.append(int.from_bytes(sample[at : at + size], "big"))
            at += size
        return tuple(values)


@dataclass(frozen=True, slots=True)
class HeaderInfo:
    """A header or metadata instance."""

    name: str
    id: int
    type: str
    metadata: bool
    fields: tuple[Field, ...]


@dataclass(frozen=True, slots=True)
class Program:
    """A validated BMv2 JSON. Dictionaries are keyed by name, in the order of the JSON."""

    name: str
    source: str  # path of the JSON, or "<memory>"
    json: dict[str, Any] = field(repr=False)
    tables: dict[str, TableInfo]
    actions: tuple[ActionInfo, ...]
    action_profiles: dict[str, ActionProfileInfo]
    counters: dict[str, ArrayInfo]
    meters: dict[str, MeterInfo]
    registers: dict[str, ArrayInfo]
    value_sets: dict[str, ValueSetInfo]
    digests: dict[str, DigestInfo]
    headers: dict[str, HeaderInfo]
    errors: dict[str, int]
    field_lists: dict[int, tuple[Field, ...]]
    generator: Generator = field(repr=False, compare=False)

    def build(self, *, sanitize: bool = False) -> Path:
        """Compiles to a shared object (or finds it in the cache) and gives its path. Raises BuildError."""
        from p4lite.switch.runtime.loader import build_program

        return build_program(self, sanitize=sanitize)

    def instance(self, *, seed: int = 1, drop_port: int = 511, lock: int = 0, host: int = 0) -> ProgramInstance:
        """A fresh switch state with the initial entries of the program.

        `lock` and `host` are addresses of a `struct p4_lock` and a `struct p4_host` (pipeline.h), 0 for none;
        the fabric core hands them in.
        """
        from p4lite.switch.runtime.instance import ProgramInstance

        return ProgramInstance(self, seed=seed, drop_port=drop_port, lock=lock, host=host)


def load_program(source: str | Path | dict[str, Any], *, name: str | None = None) -> Program:
    """Reads and validates BMv2 JSON from a file or a dictionary.

    Raises ProgramError with the file and the place in the JSON: not a JSON, not BMv2's, a wrong version, a
    dangling reference, an unknown primitive, and so on.
    """
    from p4lite.switch.program.load import validate

    if isinstance(source, dict):
        return validate(source, source="<memory>", name=name or "program")
    path = Path(source)
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ProgramError(f"{path}: cannot read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ProgramError(f"{path}: not a BMv2 JSON: the file is binary") from None
    try:
        data = json.loads(text)
    except (json.JSONDecodeError, RecursionError) as error:
        raise ProgramError(f"{path}: not a BMv2 JSON: {error}") from None
    if not isinstance(data, dict):
        raise ProgramError(f"{path}: not a BMv2 JSON: the top level is no object")
    return validate(data, source=str(path), name=name or path.stem)
