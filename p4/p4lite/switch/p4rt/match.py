"""FieldMatch and Action messages to match values and calls, and back (P4Runtime specification)."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from typing import Any

from p4lite.switch.p4rt.errors import invalid
from p4lite.switch.p4rt.info import FieldInfo, decode, encode
from p4lite.switch.p4rt.pipeline import Pipeline, TableBinding, exact_value
from p4lite.switch.program.entry import ActionCall, Exact, Lpm, MatchValue, Optional, Range, Ternary

#: A FieldMatch: field id, kind (None: not set), and its one or two values (mask, prefix length or high second).
MatchItem = tuple[int, str | None, bytes, bytes | int]


def match_items(match: Iterable[Any]) -> list[MatchItem]:
    """Return FieldMatch messages as items."""
    return [_item(message) for message in match]


def _item(message: Any) -> MatchItem:
    which = message.WhichOneof("field_match_type")
    if which == "exact":
        return message.field_id, which, message.exact.value, b""
    if which == "lpm":
        return message.field_id, which, message.lpm.value, message.lpm.prefix_len
    if which == "ternary":
        return message.field_id, which, message.ternary.value, message.ternary.mask
    if which == "range":
        return message.field_id, which, message.range.low, message.range.high
    if which == "optional":
        return message.field_id, which, message.optional.value, b""
    return message.field_id, which, b"", b""


def decode_match(binding: TableBinding, items: Iterable[MatchItem]) -> tuple[list[MatchValue], bool]:
    """Return the values of every field in P4Info's order, and whether all strings were canonical.

    P4RtError for what the specification forbids.
    """
    fields, by_id, kinds = binding.info.fields, binding.info.by_id, binding.kinds
    values: list[MatchValue | None] = [None] * len(fields)
    canonical = True
    for item in items:
        position = by_id.get(item[0])
        if position is None:
            raise invalid(f"table '{binding.info.name}' has no match field with id {item[0]}")
        if values[position] is not None:
            raise invalid(f"match field '{fields[position].name}' is given twice")
        values[position] = _decode_field(fields[position], item, kinds[position])
        canonical = canonical and is_canonical(item[2]) and (isinstance(item[3], int) or is_canonical(item[3]))
    for position, value in enumerate(values):
        if value is None:
            values[position] = binding.wildcards[position]
            if values[position] is None:
                raise invalid(f"match field '{fields[position].name}' is exact and must be given")
    return values, canonical  # type: ignore[return-value]  # no None is left


def is_canonical(data: bytes) -> bool:
    """Return whether a byte string has no byte too many."""
    return len(data) < 2 or data[0] != 0


def _decode_field(field: FieldInfo, item: MatchItem, target_kind: str) -> MatchValue:
    _, which, first, second = item
    if which != field.kind:
        raise invalid(f"match field '{field.name}' is {field.kind}, the request says {which}")
    what = f"match field '{field.name}'"
    value = decode(first, field.width, what)
    if which in ("exact", "optional"):
        return exact_value(target_kind, value, field.width)
    if isinstance(second, int):
        if not 0 < second <= field.width:
            raise invalid(
                f"{what}: prefix length {second} is not from 1 to {field.width} "
                "(leave the field out to match everything)"
            )
        if value & ((1 << (field.width - second)) - 1):
            raise invalid(f"{what}: bits beyond the prefix must be 0")
        return Lpm(value, second)
    other = decode(second, field.width, what)
    if which == "ternary":
        if not other:
            raise invalid(f"{what}: mask 0 (leave the field out to match everything)")
        if value & ~other:
            raise invalid(f"{what}: bits outside the mask must be 0")
        return Ternary(value, other)
    if value > other:
        raise invalid(f"{what}: the range's low {value} is above its high {other}")
    if value == 0 and other == (1 << field.width) - 1:
        raise invalid(f"{what}: the whole range (leave the field out to match everything)")
    return Range(value, other)


def encode_match(fields: Sequence[FieldInfo], values: Sequence[MatchValue], match: Any) -> None:
    """Append the FieldMatch messages of `values` (P4Info's order); don't-care fields are left out."""
    for field, value in zip(fields, values, strict=True):
        if isinstance(value, Exact):
            match.add(field_id=field.id).exact.value = encode(value.value)
        elif isinstance(value, Lpm):
            if value.prefix_len:
                item = match.add(field_id=field.id).lpm
                item.value, item.prefix_len = encode(value.value), value.prefix_len
        elif isinstance(value, Ternary):
            if not value.mask:
                continue
            if field.kind == "optional":
                match.add(field_id=field.id).optional.value = encode(value.value)
            else:
                ternary = match.add(field_id=field.id).ternary
                ternary.value, ternary.mask = encode(value.value), encode(value.mask)
        elif isinstance(value, Range):
            if value.low or value.high != (1 << field.width) - 1:
                bounds = match.add(field_id=field.id).range
                bounds.low, bounds.high = encode(value.low), encode(value.high)
        elif isinstance(value, Optional) and value.value is not None:
            match.add(field_id=field.id).optional.value = encode(value.value)


def action_call(pipeline: Pipeline, allowed: Container[int], action: Any, where: str) -> ActionCall:
    """Return the call in an Action message; its arguments become canonical in place."""
    params = [(param.param_id, param.value) for param in action.params]
    call, canonical = decode_action(pipeline, allowed, action.action_id, params, where)
    if not canonical:
        for param in action.params:
            param.value = encode(int.from_bytes(param.value, "big"))
    return call


def decode_action(
    pipeline: Pipeline, allowed: Container[int], ident: int, params: Iterable[tuple[int, bytes]], where: str
) -> tuple[ActionCall, bool]:
    """Return the call of an action by id with (parameter id, value), and whether all values were canonical."""
    if ident not in allowed:
        raise invalid(f"there is no action with id {ident} in '{where}'")
    binding = pipeline.actions[ident]
    known = binding.info.by_id
    values: dict[int, int] = {}
    canonical = True
    for number, data in params:
        info = known.get(number)
        if info is None:
            raise invalid(f"action '{binding.info.name}' has no parameter with id {number}")
        if number in values:
            raise invalid(f"parameter '{info.name}' is given twice")
        values[number] = decode(data, info.width, f"parameter '{info.name}'")
        canonical = canonical and is_canonical(data)
    if len(values) != len(known):
        missing = next(info.name for number, info in known.items() if number not in values)
        raise invalid(f"action '{binding.info.name}' needs parameter '{missing}'")
    return binding.call(values), canonical


def action_message(pipeline: Pipeline, binding: TableBinding, call: ActionCall, message: Any) -> None:
    """Fill an Action message from a call; ids are those of the table's action of that name."""
    for ident in binding.info.scopes:
        found = pipeline.actions[ident]
        if found.info.name == call.name:
            message.action_id = ident
            values = dict(zip(found.order, call.args, strict=True))
            for param in found.info.params:
                message.params.add(param_id=param.id, value=encode(values[param.id]))
            return
