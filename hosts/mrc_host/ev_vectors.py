"""`python -m mrc_host.ev_vectors FILE.json`: expand the EVs of every case of a file, print each difference.

The format is that of tests/vectors/ev_expansion.json: a `cases` list; each case has `name`, `format_widths` (width of
each field in the format, most significant first), `fields` (what the profile says of the first of them: `width`,
`init`, `min`, `max`, `mask`), `evs` (256 bits in hexadecimal, most significant bit first: the generated or listed
bits) and `expanded` (256 bits: the formatted value, left-aligned); `format` and `mode` are for the reader. Exit
status: 0 all equal, 1 any difference, 2 the file cannot be used.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from mrc_host.proto.config import EvField
from mrc_host.proto.limits import ConfigError
from mrc_host.proto.paths.ev_profile import expand
from mrc_host.vector_file import VectorError, run

EV_BITS = 256
_KEYS = {"name", "format", "mode", "format_widths", "fields", "evs", "expanded"}
_FIELD_KEYS = {"width", "init", "min", "max", "mask"}


def _number(value: object, where: str) -> int:
    try:
        if isinstance(value, str):
            return int(value, 0)
        if isinstance(value, int) and not isinstance(value, bool):
            return value
    except ValueError:
        pass
    raise VectorError(f"{where} is {value!r}, not a whole number")


def _list(case: dict[str, Any], key: str) -> list[Any]:
    value = case.get(key)
    if not isinstance(value, list) or not value:
        raise VectorError(f"'{key}' must be a list that is not empty")
    return value


def _wide(value: object, where: str) -> int:
    """Parse 256 bits that are written as 64 hexadecimal digits. Raises VectorError."""
    if not isinstance(value, str) or len(value) != EV_BITS // 4:
        raise VectorError(f"{where} is not {EV_BITS // 4} hexadecimal digits")
    try:
        return int.from_bytes(bytes.fromhex(value), "big")
    except ValueError:
        raise VectorError(f"{where} is not hexadecimal") from None


def _field(value: object, where: str) -> EvField:
    if not isinstance(value, dict):
        raise VectorError(f"{where} is not an object")
    unknown = value.keys() - _FIELD_KEYS
    if unknown:
        raise VectorError(f"{where} has no '{min(unknown)}'; known: {', '.join(sorted(_FIELD_KEYS))}")
    if "width" not in value:
        raise VectorError(f"{where} lacks 'width'")
    numbers = {key: _number(value.get(key, 0), f"{where}.{key}") for key in _FIELD_KEYS}
    try:
        return EvField(numbers["width"], numbers["init"], numbers["min"], numbers["max"], numbers["mask"])
    except ConfigError as problem:
        raise VectorError(f"{where}: {problem}") from None


def differences(case: object) -> Iterator[str]:
    """Yield one line for each EV of a case that comes out otherwise. Raises VectorError."""
    if not isinstance(case, dict):
        raise VectorError("not an object")
    unknown = case.keys() - _KEYS
    if unknown:
        raise VectorError(f"unknown key '{min(unknown)}'; known: {', '.join(sorted(_KEYS))}")
    fields = [_field(value, f"fields[{i}]") for i, value in enumerate(_list(case, "fields"))]
    widths = [_number(value, f"format_widths[{i}]") for i, value in enumerate(_list(case, "format_widths"))]
    if len(fields) > len(widths):
        raise VectorError(f"{len(fields)} fields, and {len(widths)} widths in the format")
    for i, (field, width) in enumerate(zip(fields, widths, strict=False)):
        if field.width > width:
            raise VectorError(f"fields[{i}] is {field.width} bits wide; the format has {width}")
    if sum(widths) > EV_BITS:
        raise VectorError(f"the format is {sum(widths)} bits wide; an EV has at most {EV_BITS}")
    taken = sum(field.mask.bit_count() for field in fields)
    if taken > EV_BITS:
        raise VectorError(f"the masks take {taken} EV bits; an EV has at most {EV_BITS}")
    evs, expanded = _list(case, "evs"), _list(case, "expanded")
    if len(evs) != len(expanded):
        raise VectorError(f"{len(evs)} evs, and {len(expanded)} expanded")
    pad = EV_BITS - sum(widths[: len(fields)])
    for i, (ev_text, want_text) in enumerate(zip(evs, expanded, strict=True)):
        ev, want = _wide(ev_text, f"evs[{i}]"), _wide(want_text, f"expanded[{i}]")
        if ev & ((1 << (EV_BITS - taken)) - 1):
            yield f"evs[{i}]: has bits set beyond the {taken} that the masks take"
        got = expand(fields, ev, EV_BITS, 0, widths) << pad
        if got != want:
            yield f"evs[{i}]: expands to {got:064x}, should be {want:064x}"


def main(arguments: list[str]) -> int:
    """Run the command; see the module's docstring."""
    return run(arguments, "mrc_host.ev_vectors", "case", differences)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
