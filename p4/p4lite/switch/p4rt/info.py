"""P4Info as the server needs it: looked up by id, with widths and match kinds resolved.

Source: P4Runtime specification, "P4Info Objects", and p4info.proto.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from p4lite.messages import p4info_pb2
from p4lite.switch.p4rt.errors import OUT_OF_RANGE, UNIMPLEMENTED, P4RtError, invalid

KINDS = {
    p4info_pb2.MatchField.EXACT: "exact",
    p4info_pb2.MatchField.LPM: "lpm",
    p4info_pb2.MatchField.TERNARY: "ternary",
    p4info_pb2.MatchField.RANGE: "range",
    p4info_pb2.MatchField.OPTIONAL: "optional",
}
PRIORITY_KINDS = frozenset(("ternary", "range", "optional"))
_WITH_IDS = (
    "tables",
    "actions",
    "action_profiles",
    "counters",
    "direct_counters",
    "meters",
    "direct_meters",
    "value_sets",
    "registers",
    "digests",
)
TABLE_ONLY = p4info_pb2.ActionRef.TABLE_ONLY
DEFAULT_ONLY = p4info_pb2.ActionRef.DEFAULT_ONLY


@dataclass(frozen=True, slots=True)
class FieldInfo:
    """One match field: id, name, width in bits, and kind (exact, lpm, ternary, range, optional).

    `translated`: the width is the controller's (@p4runtime_translation); the data plane's may be smaller.
    """

    id: int
    name: str
    width: int
    kind: str
    translated: bool = False


@dataclass(frozen=True, slots=True)
class ParamInfo:
    """One action parameter or controller metadata field."""

    id: int
    name: str
    width: int
    translated: bool = False


@dataclass(frozen=True, slots=True)
class ActionInfo:
    """An action and its parameters in order."""

    id: int
    name: str
    params: tuple[ParamInfo, ...]
    by_id: dict[int, ParamInfo]


@dataclass(slots=True)
class TableInfo:
    """A table: its key, the scope of each of its actions, and what is attached to it."""

    id: int
    name: str
    fields: tuple[FieldInfo, ...]
    by_id: dict[int, int]  # field id -> position in `fields`
    scopes: dict[int, int]  # action id -> ActionRef.Scope
    size: int
    profile_id: int
    const_default: int
    is_const: bool
    idle_timeout: bool
    needs_priority: bool
    counter_id: int = 0
    meter_id: int = 0


@dataclass(slots=True)
class ProfileInfo:
    """An action profile or (with_selector) an action selector."""

    id: int
    name: str
    table_ids: tuple[int, ...]
    with_selector: bool
    size: int
    max_group_size: int
    sum_of_members: bool
    max_member_weight: int


@dataclass(frozen=True, slots=True)
class ArrayInfo:
    """An indirect counter, meter or register: `size` cells; `width` is a register's bits (else 0)."""

    id: int
    name: str
    size: int
    spec: Any


@dataclass(slots=True)
class Info:
    """A P4Info message, indexed. `message` is the original."""

    message: Any
    tables: dict[int, TableInfo] = field(default_factory=dict)
    actions: dict[int, ActionInfo] = field(default_factory=dict)
    profiles: dict[int, ProfileInfo] = field(default_factory=dict)
    counters: dict[int, ArrayInfo] = field(default_factory=dict)
    meters: dict[int, ArrayInfo] = field(default_factory=dict)
    direct_counters: dict[int, int] = field(default_factory=dict)  # id -> table id
    direct_meters: dict[int, int] = field(default_factory=dict)
    registers: dict[int, ArrayInfo] = field(default_factory=dict)
    value_sets: dict[int, tuple[str, tuple[FieldInfo, ...], int]] = field(default_factory=dict)
    digests: dict[int, tuple[str, Any]] = field(default_factory=dict)  # id -> name, type_spec
    packet_in: tuple[ParamInfo, ...] | None = None
    packet_out: tuple[ParamInfo, ...] | None = None


def index_info(message: Any) -> Info:  # noqa: C901 - a branch per kind of entity
    """Index a P4Info; INVALID_ARGUMENT when ids repeat or point nowhere, UNIMPLEMENTED for what we lack."""
    info = Info(message)
    seen: dict[int, str] = {}
    for kind in _WITH_IDS:
        for entity in getattr(message, kind):
            ident, name = entity.preamble.id, entity.preamble.name
            if not ident:
                raise invalid(f"P4Info: {kind} '{name}' has no id")
            if ident in seen:
                raise invalid(f"P4Info: id {ident} of '{name}' is also that of '{seen[ident]}'")
            seen[ident] = name
    if message.externs:
        raise P4RtError(UNIMPLEMENTED, f"P4Info: extern '{message.externs[0].extern_type_name}'")
    for action in message.actions:
        params = tuple(ParamInfo(p.id, p.name, *_width(message, p, action.preamble.name)) for p in action.params)
        info.actions[action.preamble.id] = ActionInfo(
            action.preamble.id, action.preamble.name, params, {param.id: param for param in params}
        )
    for profile in message.action_profiles:
        members = profile.WhichOneof("selector_size_semantics") == "sum_of_members"
        info.profiles[profile.preamble.id] = ProfileInfo(
            profile.preamble.id,
            profile.preamble.name,
            tuple(profile.table_ids),
            profile.with_selector,
            profile.size,
            profile.max_group_size,
            members,
            profile.sum_of_members.max_member_weight if members else 0,
        )
    for table in message.tables:
        info.tables[table.preamble.id] = _table(info, table)
    for attribute in ("counters", "meters", "registers"):
        for entity in getattr(message, attribute):
            spec = entity.type_spec if attribute == "registers" else entity.spec
            getattr(info, attribute)[entity.preamble.id] = ArrayInfo(
                entity.preamble.id, entity.preamble.name, entity.size, spec
            )
    for attribute, slot in (("direct_counters", "counter_id"), ("direct_meters", "meter_id")):
        for entity in getattr(message, attribute):
            owner = info.tables.get(entity.direct_table_id)
            if owner is None:
                raise invalid(f"P4Info: '{entity.preamble.name}' belongs to no table")
            setattr(owner, slot, entity.preamble.id)
            getattr(info, attribute)[entity.preamble.id] = owner.id
    for value_set in message.value_sets:
        name = value_set.preamble.name
        info.value_sets[value_set.preamble.id] = (name, _fields(message, value_set.match, name), value_set.size)
    for digest in message.digests:
        info.digests[digest.preamble.id] = (digest.preamble.name, digest.type_spec)
    for packet in message.controller_packet_metadata:
        params = tuple(ParamInfo(m.id, m.name, *_width(message, m, packet.preamble.name)) for m in packet.metadata)
        if packet.preamble.name == "packet_in":
            info.packet_in = params
        elif packet.preamble.name == "packet_out":
            info.packet_out = params
        else:
            raise invalid(f"P4Info: controller_packet_metadata '{packet.preamble.name}' is neither in nor out")
    return info


def _width(message: Any, entity: Any, where: str) -> tuple[int, bool]:
    if entity.type_name.name:
        new_type = message.type_info.new_types.get(entity.type_name.name)
        if new_type is not None and new_type.WhichOneof("representation") == "translated_type":
            if new_type.translated_type.WhichOneof("sdn_type") == "sdn_string":
                raise P4RtError(
                    UNIMPLEMENTED,
                    f"P4Info: {where}, '{entity.name}': translation of '{entity.type_name.name}' to strings",
                )
            return int(new_type.translated_type.sdn_bitwidth), True
    if entity.bitwidth <= 0:
        raise invalid(f"P4Info: {where}, '{entity.name}' has no bit width")
    return int(entity.bitwidth), False


def _fields(message: Any, match: Any, where: str) -> tuple[FieldInfo, ...]:
    fields = []
    for entry in match:
        kind = KINDS.get(entry.match_type)
        if kind is None:
            other = entry.other_match_type or p4info_pb2.MatchField.MatchType.Name(entry.match_type)
            raise P4RtError(UNIMPLEMENTED, f"P4Info: {where}, '{entry.name}': match kind {other}")
        width, translated = _width(message, entry, where)
        fields.append(FieldInfo(entry.id, entry.name, width, kind, translated))
    return tuple(fields)


def _table(info: Info, table: Any) -> TableInfo:
    name = table.preamble.name
    fields = _fields(info.message, table.match_fields, name)
    by_id = {entry.id: position for position, entry in enumerate(fields)}
    if len(by_id) != len(fields):
        raise invalid(f"P4Info: table '{name}' repeats a match field id")
    for ref in table.action_refs:
        if ref.id not in info.actions:
            raise invalid(f"P4Info: table '{name}' refers to action id {ref.id}, which is nowhere")
    if table.implementation_id and table.implementation_id not in info.profiles:
        raise invalid(f"P4Info: table '{name}' refers to action profile id {table.implementation_id}")
    return TableInfo(
        id=table.preamble.id,
        name=name,
        fields=fields,
        by_id=by_id,
        scopes={ref.id: ref.scope for ref in table.action_refs},
        size=table.size,
        profile_id=table.implementation_id,
        const_default=table.const_default_action_id,
        is_const=table.is_const_table,
        idle_timeout=table.idle_timeout_behavior == p4info_pb2.Table.NOTIFY_CONTROL,
        needs_priority=any(entry.kind in PRIORITY_KINDS for entry in fields),
    )


def encode(value: int) -> bytes:
    """Return the canonical string of an unsigned value; 0 takes one byte."""
    return value.to_bytes((value.bit_length() + 7) // 8 or 1, "big")


def encode_signed(value: int) -> bytes:
    """Return the canonical two's-complement string of a signed value."""
    bits = (value if value >= 0 else ~value).bit_length() + 1
    return value.to_bytes((bits + 7) // 8, "big", signed=True)


def decode(data: bytes, width: int, what: str) -> int:
    """Return the value of a `bit<width>`; OUT_OF_RANGE when empty or too large."""
    if not data:
        raise P4RtError(OUT_OF_RANGE, f"{what}: an empty byte string is not a value")
    value = int.from_bytes(data, "big")
    if value >> width:
        raise P4RtError(OUT_OF_RANGE, f"{what}: 0x{value:x} does not fit in {width} bits")
    return value


def decode_signed(data: bytes, width: int, what: str) -> int:
    """Return the value of an `int<width>`; OUT_OF_RANGE when empty or too large."""
    if not data:
        raise P4RtError(OUT_OF_RANGE, f"{what}: an empty byte string is not a value")
    value = int.from_bytes(data, "big", signed=True)
    if not -(1 << (width - 1)) <= value < 1 << (width - 1):
        raise P4RtError(OUT_OF_RANGE, f"{what}: {value} does not fit in {width} signed bits")
    return value
