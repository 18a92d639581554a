"""Packets by name, without the clock, and as a switch changes them."""

from __future__ import annotations

import functools
from typing import Final

from mrc_host.proto.wire.fields import Opcode, RoceOpcode
from support.proto.net import DSCP_LASTHOP, DSCP_TRIMMED, TRIM_KEEP, TRIMMABLE, trim

_BTH: Final = 48  # behind IPv6 and UDP; the scenarios have no outer header
_LAST_MRC_DATA: Final = int(Opcode.WRITE_ONLY_IMM)
_MRC_DATA: Final = range(int(Opcode.WRITE_FIRST), _LAST_MRC_DATA + 1)
_ROCE_DATA: Final = range(int(RoceOpcode.WRITE_FIRST), int(RoceOpcode.WRITE_ONLY_IMM) + 1)
#: Where the time stamp of 16 bits lies, by opcode.
_STAMPS: Final = dict.fromkeys(_MRC_DATA, 64) | {
    int(Opcode.SACK): 88,
    int(Opcode.NACK): 78,
    int(Opcode.PROBE): 72,
    int(Opcode.ENDPOINT_REQUEST): 72,
    int(Opcode.ENDPOINT_RESPONSE): 88,
}
_ICRC_BYTES: Final = 4
_RTX: Final = 0x20  # of the byte behind the destination queue pair


def opcode_of(packet: bytes) -> int:
    """Return the opcode of a packet."""
    return packet[_BTH]


def is_data(packet: bytes) -> bool:
    """Return whether it is a packet of a request."""
    return opcode_of(packet) in _MRC_DATA or opcode_of(packet) in _ROCE_DATA


def dscp_of(packet: bytes) -> int:
    """Return the DSCP of a packet."""
    return packet[0] << 2 & 0x3C | packet[1] >> 6


@functools.lru_cache(maxsize=1 << 16)
def _parted(packet: bytes) -> tuple[bytes, int]:
    """Return a packet without its time stamp and ICRC, and the stamp (-1: none)."""
    at = _STAMPS.get(opcode_of(packet))
    whole = packet[:-_ICRC_BYTES] if dscp_of(packet) not in (DSCP_TRIMMED, DSCP_LASTHOP) else packet
    if at is None:
        return whole, -1
    return whole[:at] + whole[at + 2 :], packet[at] << 8 | packet[at + 1]


def timeless(packet: bytes, now: int) -> tuple[bytes, int]:
    """Return what a packet says, with the age of its time stamp in units of 128 ns.

    A stamp of 0 says that there is none: nothing leaves at a multiple of 2^23 ns in the short time of a run.
    """
    rest, stamp = _parted(packet)
    return rest, stamp if stamp <= 0 else ((now >> 7) - stamp) & 0xFFFF


def may_trim(packet: bytes) -> bool:
    """Return whether a switch may cut the payload of a packet."""
    return is_data(packet) and dscp_of(packet) in TRIMMABLE and len(packet) > TRIM_KEEP


def trimmed(packet: bytes, *, last_hop: bool) -> bytes:
    """Return what a switch leaves of a packet."""
    return trim(packet, DSCP_LASTHOP if last_hop else DSCP_TRIMMED)


def may_mark(packet: bytes) -> bool:
    """Return whether a switch may set ECN CE."""
    return is_data(packet) and packet[1] & 0x30 in (0x10, 0x20)


def marked(packet: bytes) -> bytes:
    """Return the packet with ECN CE."""
    return packet[:1] + bytes((packet[1] | 0x30,)) + packet[2:]


def _opcode_name(opcode: int) -> str:
    for kinds in (Opcode, RoceOpcode):
        try:
            return kinds(opcode).name
        except ValueError:
            continue
    return f"opcode {opcode:#x}"


@functools.lru_cache(maxsize=1 << 16)
def label(packet: bytes) -> str:
    """Name a packet, so that its name is the same in every run."""
    opcode = opcode_of(packet)
    psn = int.from_bytes(packet[_BTH + 9 : _BTH + 12], "big")
    text = f"{_opcode_name(opcode)} {psn}"
    if dscp_of(packet) in (DSCP_TRIMMED, DSCP_LASTHOP):
        text += " trimmed"
    if opcode == Opcode.SACK:
        # After SETH's flags: the PSN that triggered it, as an offset or as the identifier of a probe.
        head = int.from_bytes(packet[60:62], "big")
        trigger = int.from_bytes(packet[62:64], "big", signed=True)
        bitmap = int.from_bytes(packet[80:88], "big")
        what = f"probe {trigger & 0xFFFF}" if head & 2 else f"PSN {psn + trigger}"
        text += f" of {what}, bitmap {bitmap:b}"
    elif opcode in (Opcode.ACK, RoceOpcode.ACK):
        syndrome = packet[60]
        names = {0x00: "", 0x20: " RNR NAK", 0x60: f" NAK {syndrome & 0x1F}"}
        text += names.get(syndrome & 0x60, "") + f" MSN {int.from_bytes(packet[61:64], 'big')}"
    elif opcode in _MRC_DATA and packet[_BTH + 8] & _RTX:
        text += " again"
    elif opcode == Opcode.PROBE:
        text = f"PROBE {int.from_bytes(packet[64:66], 'big')}"
    return text
