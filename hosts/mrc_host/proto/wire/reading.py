"""Parts of a packet: whole numbers, most significant byte first, and the payload.

Reading a number raises IndexError where the packet ends before it. Places are not negative.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64


def u8(packet: bytes, at: i64) -> i64:
    """Read an unsigned number of 8 bits."""
    return packet[at]


def u16(packet: bytes, at: i64) -> i64:
    """Read an unsigned number of 16 bits."""
    # Declared for the compiler: machine words. An index of one makes no object.
    first: i64 = packet[at]
    last: i64 = packet[at + 1]
    return first << 8 | last


def u32(packet: bytes, at: i64) -> i64:
    """Read an unsigned number of 32 bits."""
    first: i64 = packet[at]
    second: i64 = packet[at + 1]
    third: i64 = packet[at + 2]
    last: i64 = packet[at + 3]
    return first << 24 | second << 16 | third << 8 | last


def u64(packet: bytes, at: i64) -> int:
    """Read an unsigned number of 64 bits, which a machine word may not hold."""
    high: int = u32(packet, at)
    low: int = u32(packet, at + 4)
    return high << 32 | low


def i8(packet: bytes, at: i64) -> i64:
    """Read a signed number of 8 bits."""
    return (u8(packet, at) ^ 0x80) - 0x80


def i16(packet: bytes, at: i64) -> i64:
    """Read a signed number of 16 bits."""
    return (u16(packet, at) ^ 0x8000) - 0x8000


def i32(packet: bytes, at: i64) -> i64:
    """Read a signed number of 32 bits."""
    return (u32(packet, at) ^ 0x8000_0000) - 0x8000_0000


def part(packet: bytes, start: i64, end: i64, absent: bool) -> memoryview:
    """Return the payload between two places; zeros of its length if it is `absent`."""
    if absent:
        return _zeros(end - start)
    return _VIEW(packet)[start:end]


def _zeros(size: int) -> memoryview:
    """Return `size` zeros, the same for the same size."""
    zeros = _ZEROS[size]
    if zeros is None:
        zeros = _ZEROS[size] = memoryview(bytes(size))
    return zeros


# The compiler looks a name of this module up faster than one of the builtins.
_VIEW: Final = memoryview
#: By size, in the place of payloads that are not there: their length counts, their content never.
_ZEROS: Final[list[memoryview | None]] = [None] * (1 << 16)
