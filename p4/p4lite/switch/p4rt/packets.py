"""Packet-in and packet-out: PacketMetadata to the header of @controller_header and back.

Source: P4Runtime specification, "Packet I/O" and "ControllerPacketMetadata". The header leads the packet on the
CPU port, its fields in the order of the P4Info, most significant bit first.
"""

from __future__ import annotations

from typing import Any

from p4.v1 import p4runtime_pb2

from p4lite.switch.p4rt.bytestrings import decode, encode
from p4lite.switch.p4rt.errors import invalid
from p4lite.switch.p4rt.info import Info, ParamInfo


def packet_in(info: Info, frame: bytes) -> Any:
    """Return the PacketIn of a packet that left through the CPU port."""
    message = p4runtime_pb2.PacketIn()
    fields = info.packet_in or ()
    size = _header_bytes(fields)
    if not fields or len(frame) < size:
        message.payload = frame
        return message
    header = int.from_bytes(frame[:size], "big")
    left = size * 8
    for field in fields:
        left -= field.width
        value = header >> left & ((1 << field.width) - 1)
        message.metadata.add(metadata_id=field.id, value=encode(value))
    message.payload = frame[size:]
    return message


def packet_out(info: Info, message: Any) -> bytes:
    """Return the packet to receive on the CPU port; INVALID_ARGUMENT when its metadata is not that of the P4Info."""
    fields = info.packet_out or ()
    given: dict[int, bytes] = {}
    known = {field.id for field in fields}
    for metadata in message.metadata:
        if metadata.metadata_id not in known:
            raise invalid(f"packet-out has no metadata field with id {metadata.metadata_id}")
        if metadata.metadata_id in given:
            raise invalid(f"packet-out metadata {metadata.metadata_id} is given twice")
        given[metadata.metadata_id] = metadata.value
    header = 0
    for field in fields:
        if field.id not in given:
            raise invalid(f"packet-out lacks metadata '{field.name}' (id {field.id})")
        header = header << field.width | decode(given[field.id], field.width, f"metadata '{field.name}'")
    size = _header_bytes(fields)
    header <<= size * 8 - sum(field.width for field in fields)
    return header.to_bytes(size, "big") + bytes(message.payload)


def _header_bytes(fields: tuple[ParamInfo, ...]) -> int:
    return (sum(field.width for field in fields) + 7) // 8
