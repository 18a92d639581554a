"""`python -m mrc_host.vectors FILE.json`: encode and decode every wire vector of a file, print each difference.

The format is that of tests/vectors/mrc_wire.json: a `vectors` list; each vector has `name`, `kind` (an opcode's
name in lower case), `src`, `dst`, `dscp`, `ecn`, `entropy`, `dest_qp`, `psn`, optionally `srv6_src`, `srv6_dst` and
`srv6_segments` (SRH), `fields` and the packet as `hex`. Both codecs, the readable and the fast one, are held
against it. Exit status: 0 all equal, 1 any difference, 2 the file cannot be used.
"""

from __future__ import annotations

import dataclasses
import inspect
import ipaddress
import sys
from collections.abc import Iterator
from typing import Any

from mrc_host.proto.wire import codec as wire
from mrc_host.proto.wire import packet as full
from mrc_host.proto.wire.encap import encapsulate
from mrc_host.proto.wire.fields import HEADERS, MRC_LAYOUTS, Bth, Ipv4, Ipv6, Opcode, Packet, Srh, Tseth, Udp
from mrc_host.proto.wire.messages import FLAG_ACK_REQ, FLAG_RTX, NO_TIMESTAMP, Data
from mrc_host.signatures import Signatures
from mrc_host.vector_file import VectorError, run

_BTH_FIELDS = ("rtx", "ack_req", "se", "migreq", "p_key")
_KEYS = {
    "name", "kind", "src", "dst", "dscp", "ecn", "entropy", "dest_qp", "psn", "fields", "hex",
    "srv6_src", "srv6_dst", "srv6_segments",
}  # fmt: skip


def _need(vector: dict[str, Any], key: str) -> Any:
    if key not in vector:
        raise VectorError(f"'{key}' is missing")
    return vector[key]


def _int(value: object, key: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise VectorError(f"'{key}' is {value!r}, not a whole number")
    return value


def _address(value: object, key: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    try:
        return ipaddress.ip_address(str(value))
    except ValueError:
        raise VectorError(f"'{key}' is {value!r}, not an IP address") from None


def packet_of(vector: dict[str, Any]) -> Packet:
    """Return the packet a vector describes. Raises VectorError."""
    unknown = vector.keys() - _KEYS
    if unknown:
        raise VectorError(f"unknown key {', '.join(sorted(unknown))}")
    try:
        opcode = Opcode[str(_need(vector, "kind")).upper()]
    except KeyError:
        kinds = ", ".join(item.name.lower() for item in Opcode)
        raise VectorError(f"unknown kind {vector['kind']!r}; known: {kinds}") from None
    values = dict(_need(vector, "fields"))
    payload = _hex(values.pop("payload", ""), "payload")
    source, destination = (_address(_need(vector, key), key) for key in ("src", "dst"))
    dscp, ecn = (_int(_need(vector, key), key) for key in ("dscp", "ecn"))
    ip: Ipv6 | Ipv4
    if source.version == 6:
        ip = Ipv6(src=int(source), dst=int(destination), dscp=dscp, ecn=ecn)
    else:
        ip = Ipv4(src=int(source), dst=int(destination), dscp=dscp, ecn=ecn)
    numbers = {key: _int(_need(vector, key), key) for key in ("dest_qp", "psn")}
    bth = Bth(opcode=opcode, **numbers)
    for key in _BTH_FIELDS:
        if key in values:
            setattr(bth, key, _int(values.pop(key), key))
    if "probe_id" in values and opcode == Opcode.SACK:  # travels where ack_psn_offset does
        values["ack_psn_offset"] = values.pop("probe_id")
    if values.get("pr") and values.get("ack_psn_offset", 0) > 0x7FFF:
        values["ack_psn_offset"] -= 0x10000
    packet = Packet(ip, Udp(), bth, payload=payload)
    packet.entropy = _int(_need(vector, "entropy"), "entropy")
    left = set(values)
    for part in MRC_LAYOUTS[opcode].parts:
        header = part.header
        names = {item.name for item in header.fields if not item.reserved}
        if part is Tseth and not names & values.keys():
            continue
        given = {name: _int(values[name], name) for name in names & values.keys()}
        left -= names
        for item in dataclasses.fields(part):
            if item.default is dataclasses.MISSING and item.name not in given:
                raise VectorError(f"{header.name}: '{item.name}' is missing")
        setattr(packet, header.name.lower(), part(**given))
    if left:
        raise VectorError(f"'{vector['kind']}' has no field {', '.join(sorted(left))}")
    if "srv6_dst" in vector and isinstance(ip, Ipv6):
        outer = Ipv6(dscp=dscp, ecn=ecn, flow_label=ip.flow_label)
        outer.src = int(_address(_need(vector, "srv6_src"), "srv6_src"))
        outer.dst = int(_address(vector["srv6_dst"], "srv6_dst"))
        packet.outer = outer
        segments = [int(_address(item, "srv6_segments")) for item in vector.get("srv6_segments", ())]
        if segments:
            count = len(segments)
            packet.srh = Srh(segments_left=count, last_entry=count - 1, segments=tuple(reversed(segments)))
    return packet


def _hex(value: object, key: str) -> bytes:
    try:
        return bytes.fromhex(str(value))
    except ValueError:
        raise VectorError(f"'{key}' is not hexadecimal") from None


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


def _short(value: object) -> str:
    text = "absent" if value is None else str(value)
    return text if len(text) <= 64 else f"{text[:32]}...({len(text)} characters)"


def light(packet: bytes) -> dict[str, object]:
    """Decode a packet by the data path codec, to a plain dictionary. Raises WireError."""
    message = wire.Codec().decode(packet)
    values = {name: getattr(message, name) for name in message.__dataclass_fields__}
    if isinstance(message, Data):
        values["payload"] = message.payload.hex()
    return values


def differences(vector: object) -> Iterator[str]:
    """Yield one line for each way in which the codecs and the vector disagree. Raises VectorError."""
    if not isinstance(vector, dict) or not isinstance(vector.get("fields"), dict):
        raise VectorError("needs an object with an object 'fields'")
    wanted = packet_of(vector)
    expected = _hex(_need(vector, "hex"), "hex")
    for label, encoder in (("encode", full.encode), ("fast encode", encode_fast)):
        try:
            made = encoder(wanted)
        except ValueError as problem:
            yield f"{label}: {problem}"
            continue
        if made != expected:
            at = next(
                (i for i, (a, b) in enumerate(zip(made, expected, strict=False)) if a != b),
                min(len(made), len(expected)),
            )
            yield (
                f"{label}: byte {at} of {len(made)} (vector: {len(expected)}): "
                f"{made[at : at + 8].hex() or 'end'} where {expected[at : at + 8].hex() or 'end'} should be"
            )
    try:
        got = flatten(full.decode(expected))
        fast = light(expected)
    except full.WireError as problem:
        yield f"decode: {problem}"
        return
    want = flatten(wanted)
    for key in sorted(want.keys() | got.keys()):
        if want.get(key) != got.get(key):
            yield f"decode: {key} is {_short(got.get(key))}, should be {_short(want.get(key))}"
    for key, value in vector["fields"].items():
        if key in fast and fast[key] != value and not (key == "ack_psn_offset" and vector["fields"].get("pr")):
            yield f"fast decode: {key} is {_short(fast[key])}, should be {_short(value)}"
    for key in ("dest_qp", "psn"):
        if fast[key] != vector[key]:
            yield f"fast decode: {key} is {fast[key]}, should be {vector[key]}"


def main(arguments: list[str]) -> int:
    """Run the command; see the module's docstring."""
    return run(arguments, "mrc_host.vectors", "vector", differences)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
