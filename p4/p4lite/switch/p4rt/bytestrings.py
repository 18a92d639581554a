"""P4Runtime byte strings (specification, section "Bytestrings").

Out go canonical strings only (the shortest that hold the value); in come strings of any length, checked
against the width of the field.
"""

from __future__ import annotations

from p4lite.switch.p4rt.errors import OUT_OF_RANGE, P4RtError


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
