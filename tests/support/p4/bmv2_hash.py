"""BMv2's hash algorithms, from their definitions."""

from __future__ import annotations

import zlib
from collections.abc import Callable


def _crc16(data: bytes) -> int:
    """CRC-16/ARC: reflected 0x8005, initial value 0."""
    crc = 0
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ 0xA001 if crc & 1 else crc >> 1
    return crc


def _csum16(data: bytes) -> int:
    """Return the Internet checksum (RFC 1071)."""
    padded = data + b"\0" * (len(data) % 2)
    total = sum(int.from_bytes(padded[i : i + 2], "big") for i in range(0, len(padded), 2))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def _xor16(data: bytes) -> int:
    padded = data + b"\0" * (len(data) % 2)
    out = 0
    for i in range(0, len(padded), 2):
        out ^= int.from_bytes(padded[i : i + 2], "big")
    return out


def _identity(data: bytes) -> int:
    """Return the first eight bytes as a number."""
    return int.from_bytes(data[:8], "big")


HASHES: dict[str, Callable[[bytes], int]] = {
    "crc16": _crc16,
    "crc16_custom": _crc16,
    "crc32": zlib.crc32,
    "crc32_custom": zlib.crc32,
    "csum16": _csum16,
    "xor16": _xor16,
    "identity": _identity,
}


def hashed(algorithm: str, parts: list[tuple[int, int]]) -> int:
    """Return the hash of (value, width) in order, with zeros after the last one up to a whole byte."""
    value = width = 0
    for part, size in parts:
        value, width = value << size | part, width + size
    pad = -width % 8
    return HASHES[algorithm]((value << pad).to_bytes((width + pad) // 8, "big"))
