"""Wire vectors (`tests/vectors/mrc_wire.json`) held against both codecs, the readable and the fast one.

Each vector has `name`, `kind` (an opcode's name in lower case), `src`, `dst`, `dscp`, `ecn`, `entropy`, `dest_qp`,
`psn`, optionally `srv6_src`, `srv6_dst` and `srv6_segments` (SRH), `fields` and the packet as `hex`.
"""

from __future__ import annotations

import inspect
import ipaddress
from collections.abc import Iterator
from typing import Any

from mrc_host.proto.wire import codec as wire
from mrc_host.proto.wire import packet as full
from mrc_host.proto.wire.encap import encapsulate
from mrc_host.proto.wire.fields import HEADERS, MRC_LAYOUTS, Bth, Ipv4, Ipv6, Opcode, Packet, Srh, Tseth, Udp
from mrc_host.proto.wire.messages import FLAG_ACK_REQ, FLAG_RTX, NO_TIMESTAMP, Data
from mrc_host.signatures import Signatures

_BTH_FIELDS = ("rtx", "ack_req", "se", "migreq", "p_key")


def packet_of(vector: dict[str, Any]) -> Packet:
    """Return the packet that a vector describes; its `fields` must be those of its kind."""
    opcode = Opcode[vector["kind"].upper()]
    values = dict(vector["fields"])
    payload = bytes.fromhex(values.pop("payload", ""))
    source, destination = (ipaddress.ip_address(vector[key]) for key in ("src", "dst"))
    header = Ipv6 if source.version == 6 else Ipv4
    ip = header(src=int(source), dst=int(destination), dscp=vector["dscp"], ecn=vector["ecn"])
    bth = Bth(opcode=opcode, dest_qp=vector["dest_qp"], psn=vector["psn"])
    for key in _BTH_FIELDS:
        if key in values:
            setattr(bth, key, values.pop(key))
    if "probe_id" in values and opcode == Opcode.SACK:  # travels where ack_psn_offset does
        values["ack_psn_offset"] = values.pop("probe_id")
    if values.get("pr") and values.get("ack_psn_offset", 0) > 0x7FFF:
        values["ack_psn_offset"] -= 0x10000
    packet = Packet(ip, Udp(), bth, payload=payload)
    packet.entropy = vector["entropy"]
    for part in MRC_LAYOUTS[opcode].parts:
        names = {item.name for item in part.header.fields if not item.reserved} & values.keys()
        if part is not Tseth or names:
            setattr(packet, part.header.name.lower(), part(**{name: values.pop(name) for name in names}))
    assert not values, f"'{vector['kind']}' has no field {', '.join(sorted(values))}"
    if "srv6_dst" in vector and isinstance(ip, Ipv6):
        outer = Ipv6(dscp=ip.dscp, ecn=ip.ecn, flow_label=ip.flow_label)
        outer.src, outer.dst = (int(ipaddress.ip_address(vector[key])) for key in ("srv6_src", "srv6_dst"))
        packet.outer = outer
        if segments := [int(ipaddress.ip_address(item)) for item in vector.get("srv6_segments", ())]:
            count = len(segments)
            packet.srh = Srh(segments_left=count, last_entry=count - 1, segments=tuple(reversed(segments)))
    return packet


def encode_fast(packet: Packet) -> bytes:
    """Encode the same packet by the data path codec. Raises ValueError on bits that it never sends."""
    ip, bth = packet.ip, packet.bth
    width = 4 if isinstance(ip, Ipv4) else 16
    addresses = ip.src.to_bytes(width, "big") + ip.dst.to_bytes(width, "big")
    traffic_class = ip.dscp << 2 | ip.ecn
    if bth.se or bth.migreq:
        raise ValueError("the data path sends no SE and no M bit")
    values: dict[str, Any] = {
        "addresses": addresses,
        "entropy": packet.entropy,
        "traffic_class": traffic_class,
        "opcode": bth.opcode,
        "dest_qp": bth.dest_qp,
        "psn": bth.psn,
        "flags": bth.ack_req * FLAG_ACK_REQ | bth.rtx * FLAG_RTX,
        "tx_timestamp": NO_TIMESTAMP,
        "payload": packet.payload,
    }
    for part in MRC_LAYOUTS[bth.opcode].parts:
        found = getattr(packet, part.header.name.lower())
        if found is not None:
            values |= {item.name: getattr(found, item.name) for item in part.header.fields if not item.reserved}
    values |= {"packet_entropy": packet.entropy, "request_id": bth.psn}
    encode = wire.ENCODERS[bth.opcode]
    wanted = inspect.signature(getattr(Signatures, encode.__name__)).parameters.keys() & values.keys()
    data = encode(wire.Codec(p_key=bth.p_key), **{name: values[name] for name in wanted})
    if packet.outer is None:
        return data
    segments = () if packet.srh is None else tuple(s.to_bytes(16, "big") for s in reversed(packet.srh.segments))
    return encapsulate(data, packet.outer.src.to_bytes(16, "big"), packet.outer.dst.to_bytes(16, "big"), segments)


def flatten(packet: Packet) -> dict[str, object]:
    """Return every field of a packet as `HEADER.field`, except those that an encoder computes (lengths, checksums)."""
    flat: dict[str, object] = {"entropy": packet.entropy, "payload": packet.payload.hex()}
    parts = [("IPV4" if isinstance(packet.ip, Ipv4) else "IPV6", packet.ip), ("OUTER", packet.outer)]
    parts += [(name, getattr(packet, name.lower(), None)) for name in HEADERS if not name.startswith("IPV")]
    computed = {"payload_length", "total_length", "next_header", "length", "checksum", "pad", "ts", "hdr_ext_len"}
    for name, part in parts:
        if part is not None:
            for key in part.__dataclass_fields__:
                if key not in computed:
                    flat[f"{name}.{key}"] = getattr(part, key)
    return flat


def light(packet: bytes) -> dict[str, object]:
    """Decode a packet by the data path codec, to a plain dictionary. Raises WireError."""
    message = wire.Codec().decode(packet)
    values = {name: getattr(message, name) for name in message.__dataclass_fields__}
    if isinstance(message, Data):
        values["payload"] = message.payload.hex()
    return values


def differences(vector: dict[str, Any]) -> Iterator[str]:
    """Yield one line for each way in which the codecs and the vector disagree."""
    wanted, expected = packet_of(vector), bytes.fromhex(vector["hex"])
    for label, encoder in (("encode", full.encode), ("fast encode", encode_fast)):
        made = encoder(wanted)
        if made != expected:
            yield f"{label}: {made.hex()} where {expected.hex()} should be"
    try:
        got, fast = flatten(full.decode(expected)), light(expected)
    except full.WireError as problem:
        yield f"decode: {problem}"
        return
    want = flatten(wanted)
    for key in sorted(want.keys() | got.keys()):
        if want.get(key) != got.get(key):
            yield f"decode: {key} is {got.get(key)}, should be {want.get(key)}"
    for key, value in {**vector["fields"], "dest_qp": vector["dest_qp"], "psn": vector["psn"]}.items():
        if key in fast and fast[key] != value and not (key == "ack_psn_offset" and vector["fields"].get("pr")):
            yield f"fast decode: {key} is {fast[key]}, should be {value}"
