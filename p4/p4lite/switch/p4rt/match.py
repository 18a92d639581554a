"""FieldMatch messages to match values and back (P4Runtime specification, "Match Format").

Decoding also makes the message canonical in place, so that it can be kept as what reads return.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from p4lite.switch.p4rt.bytestrings import decode, encode
from p4lite.switch.p4rt.errors import invalid
from p4lite.switch.p4rt.info import FieldInfo
from p4lite.switch.p4rt.pipeline import TableBinding, exact_value
from p4lite.switch.program import Exact, Lpm, MatchValue, Optional, Range, Ternary

_ONEOF = "field_match_type"


def decode_match(
    table: str,
    fields: Sequence[FieldInfo],
    by_id: dict[int, int],
    match: Any,
    binding: TableBinding,
) -> list[MatchValue]:
    """The values of every field in P4Info's order; P4RtError for what the specification forbids."""
    values: list[MatchValue | None] = [None] * len(fields)
    kinds = binding.kinds
    for item in match:
        position = by_id.get(item.field_id)
        if position is None:
            raise invalid(f"table '{table}' has no match field with id {item.field_id}")
        if values[position] is not None:
            raise invalid(f"match field '{fields[position].name}' is given twice")
        values[position] = _decode_field(fields[position], item, kinds[position])
    for position, value in enumerate(values):
        if value is None:
            values[position] = binding.wildcards[position]
            if values[position] is None:
                raise invalid(f"match field '{fields[position].name}' is exact and must be given")
    return values  # type: ignore[return-value]  # no None is left


def _decode_field(field: FieldInfo, item: Any, target_kind: str) -> MatchValue:
    which = item.WhichOneof(_ONEOF)
    if which != field.kind:
        raise invalid(f"match field '{field.name}' is {field.kind}, the request says {which}")
    if which == "exact":
        return exact_value(target_kind, _canonical(item.exact, "value", field), field.width)
    if which == "optional":
        return exact_value(target_kind, _canonical(item.optional, "value", field), field.width)
    if which == "lpm":
        length = item.lpm.prefix_len
        value = _canonical(item.lpm, "value", field)
        if not 0 < length <= field.width:
            raise invalid(
                f"match field '{field.name}': prefix length {length} is not from 1 to {field.width} "
                "(leave the field out to match everything)"
            )
        if value & ((1 << (field.width - length)) - 1):
            raise invalid(f"match field '{field.name}': bits beyond the prefix must be 0")
        return Lpm(value, length)
    if which == "ternary":
        value, mask = _canonical(item.ternary, "value", field), _canonical(item.ternary, "mask", field)
        if not mask:
            raise invalid(f"match field '{field.name}': mask 0 (leave the field out to match everything)")
        if value & ~mask:
            raise invalid(f"match field '{field.name}': bits outside the mask must be 0")
        return Ternary(value, mask)
    low, high = _canonical(item.range, "low", field), _canonical(item.range, "high", field)
    if low > high:
        raise invalid(f"match field '{field.name}': the range's low {low} is above its high {high}")
    if low == 0 and high == (1 << field.width) - 1:
        raise invalid(f"match field '{field.name}': the whole range (leave the field out to match everything)")
    return Range(low, high)


def _canonical(part: Any, name: str, field: FieldInfo) -> int:
    data = getattr(part, name)
    value = decode(data, field.width, f"match field '{field.name}'")
    if data[0] == 0 and len(data) > 1:
        setattr(part, name, encode(value))
    return value


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
