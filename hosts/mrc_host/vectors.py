"""`python -m mrc_host.vectors FILE.json`: encode and decode every wire vector of a file, print each difference.

The format is that of tests/vectors/mrc_wire.json: a `vectors` list; each vector has `name`, `kind` (an opcode's
name in lower case), `src`, `dst`, `dscp`, `ecn`, `entropy`, `dest_qp`, `psn`, optionally `srv6_src`, `srv6_dst` and
`srv6_segments` (SRH), `fields` and the packet as `hex`. Both codecs, the readable and the fast one, are held
against it. Exit status: 0 all equal, 1 any difference, 2 the file cannot be used.
"""

from __future__ import annotations

import ipaddress
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mrc_host.proto.wire import codec as wire
from mrc_host.proto.wire import packet as full
from mrc_host.proto.wire.fields import HEADERS, MRC_LAYOUTS, TSETH, Opcode
from mrc_host.proto.wire.packet import Bth, Ipv4, Ipv6, Packet, Srh, Udp

_BTH_FIELDS = ("rtx", "ack_req", "se", "migreq", "p_key")
_KEYS = {
    "name", "kind", "src", "dst", "dscp", "ecn", "entropy", "dest_qp", "psn", "fields", "hex",
    "srv6_src", "srv6_dst", "srv6_segments",
}  # fmt: skip


class VectorError(Exception):
    """The file or a vector in it is not in the format; the text names the place."""


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
    """The packet a vector describes. Raises VectorError."""
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
    bth = Bth(opcode, _int(_need(vector, "dest_qp"), "dest_qp"), _int(_need(vector, "psn"), "psn"))
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
    for header in MRC_LAYOUTS[opcode].headers:
        names = {item.name for item in header.fields if not item.reserved}
        if header is TSETH and not names & values.keys():
            continue
        given = {name: _int(values[name], name) for name in names & values.keys()}
        left -= names
        try:
            setattr(packet, header.name.lower(), full.CLASSES[header.name](**given))
        except TypeError as problem:
            raise VectorError(f"{header.name}: {str(problem).split('() ')[-1]}") from None
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
            packet.srh = Srh(count, count - 1, segments=tuple(reversed(segments)))
    return packet


def _hex(value: object, key: str) -> bytes:
    try:
        return bytes.fromhex(str(value))
    except ValueError:
        raise VectorError(f"'{key}' is not hexadecimal") from None


def encode_fast(packet: Packet) -> bytes:
    """What the data path codec makes of the same packet. Raises ValueError on bits that it never sends."""
    ip, bth = packet.ip, packet.bth
    width = 4 if isinstance(ip, Ipv4) else 16
    addresses = ip.src.to_bytes(width, "big") + ip.dst.to_bytes(width, "big")
    traffic_class = ip.dscp << 2 | ip.ecn
    codec = wire.Codec(p_key=bth.p_key)
    flags = bth.ack_req << 7 | bth.rtx << 5
    start = (addresses, packet.entropy, traffic_class)
    if bth.se or bth.migreq:
        raise ValueError("the data path sends no SE and no M bit")
    if packet.meth is not None and packet.reth is not None:
        stamp = wire.NO_TIMESTAMP if packet.tseth is None else packet.tseth.tx_timestamp
        m, r = packet.meth, packet.reth
        immediate = 0 if packet.immdt is None else packet.immdt.immediate
        data = codec.encode_data(
            *start, bth.opcode, bth.dest_qp, bth.psn, flags, m.rqmsn, m.msn, stamp, r.va, r.rkey,
            r.dma_length, packet.payload, immediate,
        )  # fmt: skip
    elif packet.seth is not None and packet.cc_state is not None:
        s, c = packet.seth, packet.cc_state
        data = codec.encode_sack(
            *start, bth.dest_qp, flags, s.m, s.pr, s.ack_psn_offset, s.entropy, s.spdcid, s.dpdcid, s.cack_psn,
            s.cc_type, s.cc_flags, s.mpr, s.sack_offset, s.sack_bitmap, c.tx_timestamp, c.ooo_count,
            c.restore_cwnd, c.rcv_cwnd_pen, c.rcvd_bytes,
        )  # fmt: skip
    elif packet.neth is not None:
        n = packet.neth
        data = codec.encode_nack(
            *start, bth.dest_qp, n.nack_psn, n.nack_reason, n.entropy, n.spdcid, n.dpdcid, n.tx_timestamp,
            flags=flags, vendor_info=n.vendor_info, cc_type=n.cc_type, cc_flags=n.cc_flags,
        )  # fmt: skip
    elif packet.aeth is not None:
        data = codec.encode_ack(*start, bth.dest_qp, bth.psn, packet.aeth.syndrome, packet.aeth.msn)
    elif packet.peth is not None:
        p = packet.peth
        data = codec.encode_probe(
            *start, bth.dest_qp, p.probe_id, p.spdcid, p.dpdcid, p.tx_timestamp,
            psn=bth.psn, vendor_info=p.vendor_info,
        )  # fmt: skip
    elif packet.erth is not None:
        r2 = packet.erth
        data = codec.encode_endpoint_request(
            *start, bth.psn, r2.op, r2.port_status_mask, r2.tx_timestamp,
            dest_qp=bth.dest_qp, vendor_info=r2.vendor_info,
        )  # fmt: skip
    else:
        assert packet.eeth is not None
        e = packet.eeth
        data = codec.encode_endpoint_response(*start, bth.psn, e.op, e.tx_timestamp, dest_qp=bth.dest_qp)
    if packet.outer is None:
        return data
    segments = () if packet.srh is None else tuple(s.to_bytes(16, "big") for s in reversed(packet.srh.segments))
    return wire.encapsulate(data, packet.outer.src.to_bytes(16, "big"), packet.outer.dst.to_bytes(16, "big"), segments)


def flatten(packet: Packet) -> dict[str, object]:
    """Every field of a packet as `HEADER.field`, except those that an encoder computes (lengths, pad, checksums)."""
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
    """What the data path codec decodes, as a plain dictionary. Raises WireError."""
    message = wire.Codec().decode(packet)
    values = {name: getattr(message, name) for name in message.__dataclass_fields__}
    if isinstance(message, wire.Data):
        values["payload"] = message.payload.hex()
    return values


def differences(vector: dict[str, Any]) -> Iterator[str]:
    """One line for each way in which the codecs and the vector disagree. Raises VectorError."""
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
    """The command; see the module's docstring."""
    if len(arguments) != 1 or arguments[0].startswith("-"):
        print("usage: python -m mrc_host.vectors FILE.json", file=sys.stderr)
        return 2
    path = Path(arguments[0])
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except OSError as problem:
        print(f"{path}: {problem.strerror}", file=sys.stderr)
        return 2
    except ValueError as problem:
        print(f"{path}: not JSON: {problem}", file=sys.stderr)
        return 2
    vectors = document.get("vectors") if isinstance(document, dict) else None
    if not isinstance(vectors, list) or not vectors:
        print(f"{path}: needs an object with a non-empty list 'vectors'", file=sys.stderr)
        return 2
    bad = 0
    for number, vector in enumerate(vectors):
        name = vector.get("name", "?") if isinstance(vector, dict) else "?"
        try:
            if not isinstance(vector, dict) or not isinstance(vector.get("fields"), dict):
                raise VectorError("needs an object with an object 'fields'")
            lines = list(differences(vector))
        except VectorError as problem:
            print(f"{path}: vector {number} ({name}): {problem}", file=sys.stderr)
            return 2
        bad += bool(lines)
        for line in lines:
            print(f"vector {number} ({name}): {line}")
    print(f"{len(vectors)} vectors, {len(vectors) - bad} equal, {bad} different")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
