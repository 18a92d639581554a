"""BMv2's hash algorithms, from their definitions; the CRCs' parameters are those of the table of the code generator."""

from __future__ import annotations

import zlib
from collections.abc import Callable

from p4lite.switch.codegen.algorithms import CRCS, Crc, custom_crc

Hash = Callable[[bytes], int]
_MASK = (1 << 64) - 1
_P1, _P2, _P3 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
_P4, _P5 = 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5


def _words(data: bytes, size: int) -> list[int]:
    padded = data + b"\0" * (-len(data) % size)
    return [int.from_bytes(padded[i : i + size], "big") for i in range(0, len(padded), size)]


def csum16(data: bytes) -> int:
    """Return the Internet checksum (RFC 1071)."""
    total = sum(_words(data, 2))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def _xor(size: int) -> Hash:
    def xor(data: bytes) -> int:
        out = 0
        for word in _words(data, size):
            out ^= word
        return out

    return xor


def _identity(data: bytes) -> int:
    """Return the first eight bytes as a number."""
    return int.from_bytes(data[:8], "big")


def _reflect(value: int, width: int) -> int:
    return int(f"{value:0{width}b}"[::-1], 2)


def _crc(crc: Crc) -> Hash:
    """Return the CRC by long division, bit by bit."""
    top, mask = 1 << (crc.width - 1), (1 << crc.width) - 1

    def compute(data: bytes) -> int:
        rest = crc.initial
        for byte in data:
            rest ^= (_reflect(byte, 8) if crc.reflected else byte) << (crc.width - 8)
            for _ in range(8):
                rest = (rest << 1 ^ crc.polynomial if rest & top else rest << 1) & mask
        return (_reflect(rest, crc.width) if crc.reflected else rest) ^ crc.final_xor

    return compute


def _rotate(value: int, count: int) -> int:
    return (value << count | value >> (64 - count)) & _MASK


def _round(total: int, word: int) -> int:
    return _rotate((total + word * _P2) & _MASK, 31) * _P1 & _MASK


def _xxh64(data: bytes) -> int:
    """Return XXH64 with seed 0, after its specification."""
    at = 0
    if len(data) >= 32:
        lanes = [(_P1 + _P2) & _MASK, _P2, 0, -_P1 & _MASK]
        while at + 32 <= len(data):
            for i in range(4):
                lanes[i] = _round(lanes[i], int.from_bytes(data[at : at + 8], "little"))
                at += 8
        total = sum(_rotate(lane, count) for lane, count in zip(lanes, (1, 7, 12, 18), strict=True)) & _MASK
        for lane in lanes:
            total = ((total ^ _round(0, lane)) * _P1 + _P4) & _MASK
    else:
        total = _P5
    total = (total + len(data)) & _MASK
    while at + 8 <= len(data):
        total = (_rotate(total ^ _round(0, int.from_bytes(data[at : at + 8], "little")), 27) * _P1 + _P4) & _MASK
        at += 8
    if at + 4 <= len(data):
        word = int.from_bytes(data[at : at + 4], "little") * _P1 & _MASK
        total = (_rotate(total ^ word, 23) * _P2 + _P3) & _MASK
        at += 4
    for byte in data[at:]:
        total = _rotate(total ^ byte * _P5 & _MASK, 11) * _P1 & _MASK
    total = (total ^ total >> 33) * _P2 & _MASK
    total = (total ^ total >> 29) * _P3 & _MASK
    return total ^ total >> 32


HASHES: dict[str, Hash] = {
    "csum16": csum16,
    "cksum16": csum16,
    "xor16": _xor(2),
    "xor32": _xor(4),
    "identity": _identity,
    "xxh64": _xxh64,
    "crc32": zlib.crc32,
    "crc32_custom": zlib.crc32,
}


def find_hash(name: str) -> Hash | None:
    """Return a hash algorithm by its name in the document; None if it is unknown."""
    if name in HASHES:
        return HASHES[name]
    crc = CRCS.get(name) or custom_crc(name)
    return None if crc is None else _crc(crc)
