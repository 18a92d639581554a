"""Packets from capture files: pcap and pcapng, of Ethernet."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from p4lite.errors import P4liteError
from p4lite.files import ReadError, read_bytes

_PCAP = {0xA1B2C3D4: 1_000, 0xA1B23C4D: 1}  # nanoseconds of a fraction
_SECTION, _INTERFACE, _PACKET, _SIMPLE = 0x0A0D0D0A, 1, 6, 3


class CaptureError(P4liteError):
    """A file that is no capture, or is cut off."""

    code = "bad_capture"


@dataclass(frozen=True, slots=True)
class Captured:
    """A packet as it was captured; `time_ns` since 1970, 0 where the file does not say. `cut`: bytes are missing.

    `inbound` says whether the port received it, None where the file does not say.
    """

    data: bytes
    time_ns: int = 0
    cut: bool = False
    inbound: bool | None = None


def read_capture(path: Path, *, growing: bool = False) -> list[Captured]:
    """Return the packets of a file; `growing`: it is being written, so a packet that is cut off is still to come.

    Raises:
        CaptureError: it is no capture, or is cut off.
    """
    try:
        data = read_bytes(path)
    except ReadError as error:
        raise CaptureError(str(error)) from None
    found: list[Captured] = []
    try:
        # Those before the end are kept where it is cut off.
        for packet in _packets(data, path):
            found.append(packet)
    except struct.error:
        if not growing:
            raise CaptureError(f"{path}: the capture is cut off") from None
    return found


def _packets(data: bytes, path: Path) -> Iterator[Captured]:
    if data[:4] == b"\x0a\x0d\x0d\x0a":
        return _pcapng(data)
    for order in "<>":
        if len(data) >= 24 and struct.unpack_from(order + "I", data)[0] in _PCAP:
            return _pcap(data, order)
    raise CaptureError(f"{path}: not a capture: a pcap or pcapng file is expected")


def _pcap(data: bytes, order: str) -> Iterator[Captured]:
    fraction = _PCAP[struct.unpack_from(order + "I", data)[0]]
    at = 24
    while at < len(data):
        seconds, parts, length, original = struct.unpack_from(order + "4I", data, at)
        at += 16
        if at + length > len(data):
            raise struct.error
        yield Captured(data[at : at + length], seconds * 10**9 + parts * fraction, length < original)
        at += length


def _pcapng(data: bytes) -> Iterator[Captured]:
    at, order, resolutions = 0, "<", list[int]()
    while at < len(data):
        if struct.unpack_from("<I", data, at)[0] == _SECTION:
            order = "<" if data[at + 8 : at + 12] == b"\x4d\x3c\x2b\x1a" else ">"
            resolutions = []
        kind, size = struct.unpack_from(order + "II", data, at)
        if size < 12 or at + size > len(data):
            raise struct.error
        if kind == _INTERFACE:
            resolutions.append(_resolution(data[at + 16 : at + size - 4], order))
        elif kind == _PACKET:
            interface, high, low, length, original = struct.unpack_from(order + "5I", data, at + 8)
            time_ns = (high << 32 | low) * resolutions[interface] // 1_000
            options = data[at + 28 + (length + 3) // 4 * 4 : at + size - 4]
            inbound = _inbound(_option(options, order, 2), order)
            yield Captured(data[at + 28 : at + 28 + length], time_ns, length < original, inbound)
        elif kind == _SIMPLE:
            (original,) = struct.unpack_from(order + "I", data, at + 8)
            length = min(original, size - 16)
            yield Captured(data[at + 12 : at + 12 + length], 0, length < original)
        at += size


def _option(options: bytes, order: str, wanted: int) -> bytes | None:
    at = 0
    while at + 4 <= len(options):
        code, length = struct.unpack_from(order + "HH", options, at)
        if code == 0:
            return None
        if code == wanted:
            return options[at + 4 : at + 4 + length]
        at += 4 + (length + 3) // 4 * 4
    return None


def _inbound(flags: bytes | None, order: str) -> bool | None:
    """Return the direction in `epb_flags`: 1 inbound, 2 outbound."""
    if flags is None or len(flags) != 4:
        return None
    return {1: True, 2: False}.get(struct.unpack(order + "I", flags)[0] & 3)


def _resolution(options: bytes, order: str) -> int:
    """Return picoseconds of a unit of an interface's timestamps: microseconds unless `if_tsresol` says otherwise."""
    value = _option(options, order, 9)
    if value is None or len(value) != 1:
        return 1_000_000
    return 10**12 >> (value[0] & 127) if value[0] & 128 else 10 ** max(12 - value[0], 0)
