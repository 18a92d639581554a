"""Bytes of packets: heads, encapsulation, payload and ICRC put together, and the ICRC of a packet checked.

Compiled modules call `framing.c` in the place of `packet`, `sealed` and `append_words`; called from elsewhere, and
without a build, these functions run as they stand. Tests hold one against the other.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Final, TypeAlias

from mypy_extensions import i64

from mrc_host.proto.wire.crc import crc32

Buffer: TypeAlias = bytes | bytearray | memoryview

_FOUR: Final = struct.Struct("=4q")
_PADS: Final = (b"", b"\0", b"\0\0", b"\0\0\0")
# The constants are at most a few hundred per peer; more means forged addresses, so start again.
_MAX_CONSTANTS: Final = 2048
_constants: dict[tuple[bytes, int, int], int] = {}
_packs: dict[bytes, Callable[..., bytes]] = {}


def icrc_constant(addresses: bytes, udp_length: int, covered: int) -> int:
    """Return, and keep, the constant that turns a plain CRC into the ICRC for these addresses and this UDP length.

    The ICRC is the CRC-32 of eight bytes of ones, the IP header and UDP and BTH with their variant fields as
    ones, and the rest. CRC is linear, so with UDP checksum and BTH.resv8a sent as 0 it equals the plain
    CRC-32 from the UDP header on, XOR a value that depends only on the invariant IP fields, the length, and how
    many bytes behind the IP header are `covered`.
    """
    ip_version_6 = b"\x6f\xff\xff\xff" + udp_length.to_bytes(2, "big") + b"\x11\xff" + addresses
    ones = bytearray(covered)
    ones[6:8] = b"\xff\xff"  # UDP checksum
    ones[12] = 0xFF  # BTH.resv8a
    constant = crc32(ones, crc32(b"\xff" * 8 + ip_version_6)) ^ crc32(bytes(covered))
    if len(_constants) >= _MAX_CONSTANTS:
        _constants.clear()
    _constants[addresses, udp_length, covered] = constant
    return constant


def packet(
    form: bytes, outer: bytes, payload: Buffer | None, offset: int, size: int, absent: bool, *values: int | bytes
) -> bytes:
    """Return a packet: IPv6, UDP, BTH and what follows them, the payload with its padding, and the ICRC.

    Args:
        form: of the head, as `struct` has it, of at most 256 bytes.
        outer: what goes around the packet, IPv6 with or without an SRH; it gets the first word of the packet's own
            header and its length (mrc-protocol.md §2, §7).
        payload: `size` bytes of it from `offset` on are sent.
        absent: the payload and its padding are left out, while all lengths count them; the ICRC is that of the head.
        values: of the head. The third or fourth is the addresses, source and destination: 16 + 16 bytes, or 4 + 4 for
            what becomes an IPv4 packet.

    Raises:
        OverflowError: a value does not fit its field.
        ValueError: the payload ends before `offset + size`.
    """
    pack = _packs.get(form)
    if pack is None:
        pack = _packs[form] = struct.Struct(form.decode()).pack
    try:
        head = pack(*values)
    except struct.error as error:
        raise OverflowError(f"a value does not fit its field: {error}") from None
    udp_length = head[44] << 8 | head[45]
    addresses = head[8:40]
    absent = absent or not size
    covered = len(head) - 40 if absent else udp_length - 4
    constant = _constants.get((addresses, udp_length, covered))
    if constant is None:
        constant = icrc_constant(addresses, udp_length, covered)
    whole = head if not outer else b"".join((head[:4], (len(outer) + udp_length).to_bytes(2, "big"), outer[6:], head))
    crc = crc32(head[40:])
    if absent:
        return whole + (crc ^ constant).to_bytes(4, "little")
    assert payload is not None
    part = memoryview(payload)[offset : offset + size]
    if len(part) != size:
        raise ValueError("the payload is shorter than the packet says")
    crc = crc32(part, crc)
    padding = _PADS[-size & 3]
    if padding:
        crc = crc32(padding, crc)
    return b"".join((whole, part, padding, (crc ^ constant).to_bytes(4, "little")))


def sealed(packet: bytes, at: int, missing: int) -> bool:
    """Return whether the ICRC of the IPv6 packet from byte `at` on is right.

    Before its ICRC `missing` bytes are not there, and it is then that of the head. It does not cover the UDP checksum
    and BTH.resv8a, whose bytes are taken for 0. Raises ValueError when the packet is not as long as UDP says.
    """
    udp_length = packet[at + 44] << 8 | packet[at + 45] if len(packet) >= at + 64 else 0
    if at < 0 or not udp_length or udp_length != len(packet) - at + missing - 40:
        raise ValueError("not a whole packet with its ICRC")
    if packet[at + 46] or packet[at + 47] or packet[at + 52]:
        first = packet[at + 40 : at + 46] + b"\0\0" + packet[at + 48 : at + 52] + b"\0" + packet[at + 53 : at + 60]
        crc = crc32(memoryview(packet)[at + 60 : -4], crc32(first))
    else:
        crc = crc32(memoryview(packet)[at + 40 : -4])
    addresses = packet[at + 8 : at + 40]
    covered = udp_length - 4 - missing
    constant = _constants.get((addresses, udp_length, covered))
    if constant is None:
        constant = icrc_constant(addresses, udp_length, covered)
    return (crc ^ constant).to_bytes(4, "little") == packet[-4:]


def append_words(buffer: bytearray, first: i64, second: i64, third: i64, fourth: i64) -> None:
    """Append four numbers of 64 bits in the machine's order."""
    buffer += _FOUR.pack(first, second, third, fourth)
