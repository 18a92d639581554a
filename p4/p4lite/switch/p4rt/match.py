"""FieldMatch and Action messages to match values and calls, and back (P4Runtime specification)."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from typing import Any

from p4lite.switch.p4rt.errors import invalid
from p4lite.switch.p4rt.info import FieldInfo, decode, encode
from p4lite.switch.p4rt.pipeline import Pipeline, TableBinding, exact_value
from p4lite.switch.program.entry import ActionCall, Exact, Lpm, MatchValue, Optional, Range, Ternary


def decode_match(binding: TableBinding, match: Iterable[Any]) -> tuple[MatchValue, ...]:
    """Return the values of every field in P4Info's order; the byte strings of `match` become canonical in place.

    P4RtError for what the specification forbids.
    """
    fields, by_id, kinds = binding.info.fields, binding.info.by_id, binding.kinds
    values: list[MatchValue | None] = list(binding.wildcards)
    given: set[int] = set()
    for item in match:
        ident = item.field_id
        position = by_id.get(ident)
        if position is None:
            raise invalid(f"table '{binding.info.name}' has no match field with id {ident}")
        if position in given:
            raise invalid(f"match field '{fields[position].name}' is given twice")
        given.add(position)
        values[position] = _decode_field(fields[position], item, kinds[position])
    if len(given) < len(fields):
        for field, value in zip(fields, values, strict=True):
            if value is None:
                raise invalid(f"match field '{field.name}' is exact and must be given")
    return tuple(values)  # type: ignore[arg-type]  # no None is left


def _number(message: Any, name: str, width: int, what: str) -> int:
    """Return the number in a byte string of a message, which becomes canonical."""
    data: bytes = getattr(message, name)
    value = decode(data, width, what)
    if len(data) > 1 and not data[0]:
        setattr(message, name, encode(value))
    return value


def _decode_field(field: FieldInfo, item: Any, target_kind: str) -> MatchValue:
    kind = item.WhichOneof("field_match_type")
    if kind != field.kind:
        raise invalid(f"match field '{field.name}' is {field.kind}, the request says {kind}")
    part = getattr(item, kind)
    what = f"match field '{field.name}'"
    if kind == "range":
        low, high = _number(part, "low", field.width, what), _number(part, "high", field.width, what)
        if low > high:
            raise invalid(f"{what}: the range's low {low} is above its high {high}")
        if low == 0 and high == (1 << field.width) - 1:
            raise invalid(f"{what}: the whole range (leave the field out to match everything)")
        return Range(low, high)
    value = _number(part, "value", field.width, what)
    if kind == "lpm":
        length = part.prefix_len
        if not 0 < length <= field.width:
            raise invalid(
                f"{what}: prefix length {length} is not from 1 to {field.width} "
                "(leave the field out to match everything)"
            )
        if value & ((1 << (field.width - length)) - 1):
            raise invalid(f"{what}: bits beyond the prefix must be 0")
        return Lpm(value, length)
    if kind == "ternary":
        mask = _number(part, "mask", field.width, what)
        if not mask:
            raise invalid(f"{what}: mask 0 (leave the field out to match everything)")
        if value & ~mask:
            raise invalid(f"{what}: bits outside the mask must be 0")
        return Ternary(value, mask)
    return exact_value(target_kind, value, field.width)


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
    ident = action.action_id
    if ident not in allowed:
        raise invalid(f"there is no action with id {ident} in '{where}'")
    binding = pipeline.actions[ident]
    known = binding.info.by_id
    values: dict[int, int] = {}
    for param in action.params:
        number = param.param_id
        info = known.get(number)
        if info is None:
            raise invalid(f"action '{binding.info.name}' has no parameter with id {number}")
        if number in values:
            raise invalid(f"parameter '{info.name}' is given twice")
        values[number] = _number(param, "value", info.width, f"parameter '{info.name}'")
    if len(values) != len(known):
        missing = next(info.name for number, info in known.items() if number not in values)
        raise invalid(f"action '{binding.info.name}' needs parameter '{missing}'")
    return binding.call(values)


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
