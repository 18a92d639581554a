"""The wire codec: vectors, field table against structs, round trips, truncation, trailing bytes, trimming."""

from __future__ import annotations

import dataclasses
import json
import pathlib
import random
import re
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mrc_host.proto.wire import codec as wire
from mrc_host.proto.wire import crc, encap, fields, framing, packet, reading
from mrc_host.proto.wire.encap import encapsulate
from mrc_host.proto.wire.fields import HEADERS, MRC_LAYOUTS, ROCE_LAYOUTS, Dscp, Opcode
from mrc_host.proto.wire.messages import NO_TIMESTAMP, Ack, Data
from mrc_host.proto.wire.packet import Drop, WireError
from support.proto import vectors

FILE = pathlib.Path(__file__).parents[2] / "vectors" / "mrc_wire.json"
PARTS: dict[str, Any] = {
    part.header.name: part for part in vars(fields).values() if isinstance(part, type) and hasattr(part, "header")
}
VECTORS: list[dict[str, Any]] = json.loads(FILE.read_text())["vectors"]


@pytest.mark.parametrize("vector", VECTORS, ids=lambda v: v["name"])
def test_vector_encodes_and_decodes_byte_for_byte(vector: dict[str, Any]) -> None:
    assert list(vectors.differences(vector)) == []
    wanted = bytes.fromhex(vector["hex"])
    assert packet.encode(packet.decode(wanted)) == wanted


def test_vectors_cover_every_opcode_with_and_without_srv6() -> None:
    assert {(v["kind"].upper(), "srv6_dst" in v) for v in VECTORS} == {
        (opcode.name, srv6) for opcode in Opcode for srv6 in (False, True)
    }


@pytest.mark.parametrize(
    ("change", "difference"),
    [
        ({"fields": VECTORS[7]["fields"] | {"mpr": VECTORS[7]["fields"]["mpr"] + 1}}, "decode: SETH.mpr is 179"),
        ({"hex": VECTORS[7]["hex"][:-2] + "00"}, "decode: icrc: mismatch"),
        ({"psn": VECTORS[7]["psn"] ^ 1}, "fast decode: psn"),
    ],
)
def test_vector_that_differs_is_noticed(change: dict[str, Any], difference: str) -> None:
    found = list(vectors.differences(VECTORS[7] | change))
    assert any(each.startswith(difference) for each in found)
    assert any(each.startswith("encode: ") for each in found)


# --- the field table ---

SIZES = {
    "IPV6": 40, "IPV4": 20, "SRH": 8, "UDP": 8, "BTH": 12, "METH": 4, "TSETH": 4, "RETH": 16, "IMMDT": 4,
    "AETH": 4, "SETH": 28, "CC_STATE": 8, "NETH": 20, "PETH": 16, "ERTH": 16, "EETH": 36,
    "ATOMICETH": 28, "ATOMICACKETH": 8,
}  # fmt: skip


def test_table_has_every_header_in_its_size_without_gaps() -> None:
    assert {name: header.size for name, header in HEADERS.items()} == SIZES
    for header in HEADERS.values():
        bit = 0
        for item in header.fields:
            assert item.bit == bit, (header.name, item.name)
            bit += item.width
        assert bit == header.size * 8
        assert len(header.by_name) == len(header.fields), f"{header.name} repeats a name"


def test_the_protocol_document_describes_these_headers() -> None:
    """`mrc-protocol.md §3` gives every header from BTH on with its size and the widths of its fields in order."""
    text = (FILE.parents[2] / "docs" / "reference" / "mrc-protocol.md").read_text(encoding="utf-8")
    section = re.search(r"^## 3\. .*?(?=^## )", text, re.M | re.S)
    assert section
    described = re.findall(r"^(?:\* )?\*\*(\w+), (\d+)(?: bytes)?\*\*.*?: (.*?)(?=^\* |\n\n)", section[0], re.M | re.S)
    assert [name.upper() for name, _, _ in described] == [header.name for header in fields.TRANSPORT]
    for name, size, body in described:
        header = HEADERS[name.upper()]
        assert header.size == int(size), name
        if name != "EETH":  # in words
            widths = re.findall(r"\((\d+)[,)]", re.split(r"\.\s", body)[0])
            assert [item.width for item in header.fields] == [int(width) for width in widths], name


@pytest.mark.parametrize("name", HEADERS)
def test_dataclasses_have_the_fields_of_the_table(name: str) -> None:
    mine = {item.name for item in dataclasses.fields(PARTS[name])} - {"segments"}
    assert mine == {item.name for item in HEADERS[name].fields if not item.reserved}


@pytest.mark.parametrize(
    ("structure", "headers"),
    [
        (encap.OUTER, ("IPV6",)),
        (encap.SRH, ("SRH",)),
    ],
)
def test_struct_items_begin_where_fields_begin(structure: struct.Struct, headers: tuple[str, ...]) -> None:
    """Each item of a struct covers whole fields; wide ones (the two addresses in one) may cover several."""
    assert structure.size == sum(SIZES[name] for name in headers)
    starts, base = set(), 0
    for name in headers:
        starts |= {base + item.bit for item in HEADERS[name].fields if (base + item.bit) % 8 == 0}
        base += SIZES[name] * 8
    offset = 0
    for count, code in _items(structure.format):
        assert offset * 8 in starts or code == "x", (structure.format, offset)
        offset += struct.calcsize(f"!{count}{code}")


def _items(text: str) -> list[tuple[str, str]]:
    items, count = [], ""
    for char in text.lstrip("!"):
        if char.isdigit():
            count += char
        else:
            items.append((count, char))
            count = ""
    return items


# --- round trips ---


def numbers(header: fields.Header) -> st.SearchStrategy[dict[str, int]]:
    ranges = {
        item.name: st.integers(-(1 << item.width - 1), item.mask >> 1) if item.signed else st.integers(0, item.mask)
        for item in header.fields
    }
    return st.fixed_dictionaries(ranges)


@pytest.mark.parametrize("name", HEADERS)
@given(data=st.data())
def test_header_round_trip(name: str, data: st.DataObject) -> None:
    header = HEADERS[name]
    values = data.draw(numbers(header))
    packed = packet.pack(header, values)
    assert len(packed) == header.size
    assert packet.unpack(header, packed) == values
    assert packet.unpack(header, b"\xee" * 3 + packed, 3) == values
    bits = f"{int.from_bytes(packed, 'big'):0{header.size * 8}b}"
    for item in header.fields:
        assert int(bits[item.bit : item.bit + item.width], 2) == values[item.name] & item.mask


def test_pack_refuses_what_does_not_fit() -> None:
    with pytest.raises(ValueError, match=r"BTH\.psn: 16777216 is outside 0\.\.16777215"):
        packet.pack(fields.Bth.header, {"psn": 1 << 24})
    with pytest.raises(ValueError, match=r"SETH\.sack_offset: 32768 is outside -32768\.\.32767"):
        packet.pack(fields.Seth.header, {"sack_offset": 1 << 15})
    with pytest.raises(ValueError, match="METH has no field psn"):
        packet.pack(fields.Meth.header, {"psn": 1})


def drawn(name: str, draw: Any) -> Any:
    header = HEADERS[name]
    values = draw(numbers(header))
    return PARTS[name](**{f.name: values[f.name] for f in header.fields if not f.reserved})


@st.composite
def packets(draw: Any, layouts: Any = MRC_LAYOUTS) -> fields.Packet:
    """Any packet that the encoder can make."""
    opcode = draw(st.sampled_from(sorted(layouts)))
    number = {n: st.integers(0, (1 << n) - 1) for n in (4, 6, 8, 16, 20, 24, 32, 128)}
    ip: fields.Ipv6 | fields.Ipv4
    if draw(st.booleans()):
        ip = fields.Ipv6(src=draw(number[128]), dst=draw(number[128]), flow_label=draw(number[16]))
        ip.hop_limit = draw(number[8])
    else:
        ip = fields.Ipv4(src=draw(number[32]), dst=draw(number[32]), identification=draw(number[16]))
        ip.ttl = draw(number[8])
    ip.dscp, ip.ecn = draw(st.sampled_from([0, 4, 8, 46])), draw(st.integers(0, 3))
    bth = fields.Bth(opcode=opcode, dest_qp=draw(number[24]), psn=draw(number[24]), p_key=draw(number[16]))
    bth.ack_req, bth.rtx, bth.se = draw(st.integers(0, 1)), draw(st.integers(0, 1)), draw(st.integers(0, 1))
    result = fields.Packet(ip, fields.Udp(src_port=draw(number[16]), checksum=draw(st.sampled_from([0, 0, 7]))), bth)
    for header in layouts[opcode].headers:
        if header is not fields.Tseth.header or draw(st.booleans()):
            setattr(result, header.name.lower(), drawn(header.name, draw))
    if layouts[opcode].payload:
        result.payload = draw(st.binary(max_size=70))
    if isinstance(ip, fields.Ipv6) and draw(st.booleans()):
        result.outer = fields.Ipv6(src=draw(number[128]), dst=draw(number[128]), ecn=draw(st.integers(0, 3)))
        segments = tuple(draw(st.lists(number[128], max_size=3)))
        if segments:
            result.srh = fields.Srh(segments_left=len(segments), last_entry=len(segments) - 1, segments=segments)
    return result


@given(packets())
def test_packet_round_trip(value: fields.Packet) -> None:
    made = packet.encode(value)
    back = packet.decode(made)
    assert vectors.flatten(back) == vectors.flatten(value)
    assert packet.encode(back) == made


@given(packets(ROCE_LAYOUTS))
def test_roce_round_trip(value: fields.Packet) -> None:
    made = packet.encode(value, ROCE_LAYOUTS)
    assert vectors.flatten(packet.decode(made, ROCE_LAYOUTS)) == vectors.flatten(value)
    with pytest.raises(WireError, match="opcode"):
        packet.decode(made)


@given(packets())
def test_both_codecs_decode_the_same(value: fields.Packet) -> None:
    made = packet.encode(value)
    got = vectors.light(made)
    assert got["dest_qp"] == value.bth.dest_qp
    assert got["psn"] == value.bth.psn
    assert got["p_key"] == value.bth.p_key
    assert got["ce"] == (value.ip.ecn == 3 or (value.outer is not None and value.outer.ecn == 3))
    assert got["entropy" if "va" in got else "packet_entropy"] == value.entropy
    for header in MRC_LAYOUTS[value.bth.opcode].headers:
        part = getattr(value, header.name.lower())
        if part is None:
            assert got["tx_timestamp"] == NO_TIMESTAMP
            continue
        for item in header.fields:
            if item.name in got and not item.reserved:
                assert got[item.name] == getattr(part, item.name), item.name
    if "payload" in got:
        assert got["payload"] == value.payload.hex()


@given(packets())
def test_both_codecs_encode_the_same(value: fields.Packet) -> None:
    """Where the data path has a choice at all: hop limit 64, no SE bit, checksum 0, timestamp format 1."""
    value.bth.se = 0
    value.udp.checksum = 0
    if isinstance(value.ip, fields.Ipv6):
        value.ip.hop_limit = 64
    else:
        value.ip.ttl, value.ip.identification = 64, 0
    for part in (value.tseth, value.peth, value.erth):
        if part is not None:
            part.tsr, part.ftype = 0, 1
    if value.outer is not None and isinstance(value.ip, fields.Ipv6):
        value.outer.dscp, value.outer.ecn = value.ip.dscp, value.ip.ecn
        value.outer.flow_label = value.ip.flow_label
    opcode = value.bth.opcode
    if opcode == Opcode.SACK and value.seth is not None:
        value.bth.psn = value.seth.cack_psn
    elif opcode == Opcode.NACK and value.neth is not None:
        value.bth.psn = value.neth.nack_psn
    if opcode not in (*range(0xC6, 0xCC), Opcode.SACK, Opcode.NACK):
        value.bth.ack_req = value.bth.rtx = 0
    assert vectors.encode_fast(value) == packet.encode(value)


def test_encoder_refuses_a_packet_that_its_opcode_contradicts() -> None:
    whole = packet.decode(bytes.fromhex(VECTORS[0]["hex"]))
    for change, message in (
        ({"reth": None}, "WRITE First needs RETH"),
        ({"aeth": fields.Aeth(syndrome=0, msn=0)}, "WRITE First has no AETH"),
        ({"trimmed": True}, "made by trim"),
        ({"bth": dataclasses.replace(whole.bth, opcode=0xC0)}, "opcode 0xc0"),
        ({"bth": dataclasses.replace(whole.bth, opcode=Opcode.ACK)}, "carries no payload"),
    ):
        with pytest.raises(ValueError, match=message):
            packet.encode(dataclasses.replace(whole, **change))


# --- what must not decode ---


def reason(data: bytes) -> tuple[Drop, Drop]:
    """Return what each codec says about a packet that both must refuse."""
    with pytest.raises(WireError) as readable:
        packet.decode(data)
    with pytest.raises(WireError) as fast:
        wire.Codec().decode(data)
    return readable.value.reason, fast.value.reason


@pytest.mark.parametrize("vector", VECTORS, ids=lambda v: v["name"])
def test_truncated_or_extended_packet_is_refused(vector: dict[str, Any]) -> None:
    whole = bytes.fromhex(vector["hex"])
    for end in range(len(whole)):
        assert reason(whole[:end]) == (Drop.SHORT, Drop.SHORT), end
    for extra in (b"\0", b"\0" * 4, b"x" * 60):
        assert reason(whole + extra) == (Drop.TRAILING, Drop.TRAILING)


@pytest.mark.parametrize("vector", VECTORS, ids=lambda v: v["name"])
def test_shortened_packet_with_a_matching_ip_length_is_trimmed_or_refused(vector: dict[str, Any]) -> None:
    whole = bytes.fromhex(vector["hex"])
    inner = 40 if "srv6_dst" in vector else 0
    for end in range(40, len(whole)):
        cut = bytearray(whole[:end])
        cut[4:6] = (end - 40).to_bytes(2, "big")
        if "payload" in vector["fields"] and end >= inner + 60:
            message = wire.Codec().decode(bytes(cut))
            assert isinstance(message, Data)
            assert message.trimmed == 1
            assert packet.decode(bytes(cut)).trimmed
            assert (message.psn, message.dest_qp) == (vector["psn"], vector["dest_qp"])
            if end >= inner + 84 and "tx_timestamp" in vector["fields"]:
                assert message.tx_timestamp == vector["fields"]["tx_timestamp"]
                assert message.va == vector["fields"]["va"]
        else:
            expected = Drop.SHORT if end < inner + 60 else Drop.TRIMMED_CONTROL
            assert reason(bytes(cut)) == (expected, expected), end


@pytest.mark.parametrize("vector", VECTORS, ids=lambda v: v["name"])
def test_every_flipped_bit_is_noticed_or_is_a_variant_field(vector: dict[str, Any]) -> None:
    whole = bytes.fromhex(vector["hex"])
    base = 40 if "srv6_dst" in vector else 0
    codec = wire.Codec()
    # Outside the ICRC: the outer header, and of the inner one class, label and hop limit; UDP checksum, resv8a.
    free = set(range(base)) | {base, base + 1, base + 2, base + 3, base + 7, base + 46, base + 47, base + 52}
    for index in range(len(whole)):
        for bit in range(8):
            bad = bytearray(whole)
            bad[index] ^= 1 << bit
            try:
                message = codec.decode(bytes(bad))
            except WireError:
                continue
            trimmed = isinstance(message, Data) and message.trimmed
            assert index in free or (trimmed and index - base in (4, 5, 44, 45)), (index, bit)


def change(data: bytes, offset: int, new: bytes) -> bytes:
    return data[:offset] + new + data[offset + len(new) :]


def sealed(data: bytes, offset: int, new: bytes) -> bytes:
    """Return the changed packet with a correct ICRC."""
    bad = change(data, offset, new)
    return bad[:-4] + packet.icrc(bad[:40], bad[40:-4])


def test_damaged_packets_are_refused_with_the_right_reason() -> None:
    data, sack, last = (bytes.fromhex(VECTORS[i]["hex"]) for i in (0, 7, 2))
    srv6 = bytes.fromhex(VECTORS[12]["hex"])
    cases = [
        (b"", Drop.SHORT),
        (change(data, 0, b"\x50"), Drop.VERSION),
        (change(data, 6, b"\x06"), Drop.NEXT_HEADER),
        (change(data, 42, b"\x12\xb8"), Drop.PORT),
        (change(data, 44, b"\x00\x40"), Drop.LENGTH),
        (sealed(data, 49, b"\x01"), Drop.TVER),
        (sealed(data, 48, b"\xc5"), Drop.OPCODE),
        (sealed(data, 48, b"\x0a"), Drop.OPCODE),
        (sealed(data, 48, b"\xff"), Drop.OPCODE),
        (change(data, 90, b"\x00"), Drop.ICRC),
        (sealed(data, 48, b"\xdc"), Drop.LENGTH),
        (sealed(sack, 48, b"\xdd"), Drop.LENGTH),
        (sealed(sack, 49, b"\x10"), Drop.LENGTH),
        (sealed(sack, 48, b"\xdc")[:-4] + b"\0\0\0\0", Drop.ICRC),
        (change(sack, 0, b"\x63\x00"), Drop.TRIMMED_CONTROL),
        (change(srv6, 44, b"\x00\x01"), Drop.LENGTH),
        (change(srv6, 46, b"\x3b"), Drop.NEXT_HEADER),
        (change(srv6, 6, b"\x2b"), Drop.NEXT_HEADER),
        (change(srv6, 40, b"\x40"), Drop.VERSION),
    ]
    for number, (bad, expected) in enumerate(cases):
        got = reason(bad)
        if number == len(cases) - 1:  # IPv4 inside SRv6: the fast path sees no IPv6 header there
            assert got == (Drop.LENGTH, Drop.SHORT)
        else:
            assert got == (expected, expected), number
    short_payload = sealed(last, 49, b"\x30")
    assert packet.decode(short_payload).payload == bytes.fromhex(VECTORS[2]["fields"]["payload"])[:5]


def test_padding_without_payload_is_refused() -> None:
    codec = wire.Codec()
    empty = codec.encode_data(bytes(32), 1, 18, Opcode.WRITE_ONLY, 5, 1, 0, 0, 0, 3, 0, 1, 0, b"")
    message = codec.decode(empty)
    assert isinstance(message, Data)
    assert len(message.payload) == 0
    bad = sealed(empty, 49, b"\x10")
    assert reason(bad) == (Drop.LENGTH, Drop.LENGTH)


def test_fields_outside_the_icrc_may_change_on_the_way() -> None:
    data = bytes.fromhex(VECTORS[0]["hex"])
    moved = bytearray(data)
    moved[1] |= 0x30  # CE
    moved[7] = 3  # hop limit
    moved[46:48] = b"\x12\x34"  # UDP checksum
    moved[52] = 0x40  # resv8a, where RoCEv2 has FECN and BECN
    message = wire.Codec().decode(bytes(moved))
    assert isinstance(message, Data)
    assert message.ce
    assert message.dest_qp == VECTORS[0]["dest_qp"]
    moved[90] ^= 1
    assert reason(bytes(moved)) == (Drop.ICRC, Drop.ICRC)


def test_icrc_check_can_be_switched_off() -> None:
    bad = change(bytes.fromhex(VECTORS[0]["hex"]), 90, b"\x00")
    message = wire.Codec(check_icrc=False).decode(bad)
    assert message.psn == VECTORS[0]["psn"]


# --- encapsulation ---


def test_srv6_packet_decodes_with_and_without_srh() -> None:
    inner = bytes.fromhex(VECTORS[0]["hex"])
    source, carrier, one, two = (bytes([n]) * 16 for n in (1, 2, 3, 4))
    plain = packet.decode(encapsulate(inner, source, carrier))
    assert plain.outer is not None
    assert plain.srh is None
    assert (plain.outer.dscp, plain.outer.ecn, plain.outer.flow_label) == (8, 2, VECTORS[0]["entropy"] >> 16)
    wrapped = encapsulate(inner, source, carrier, (one, two))
    routed = packet.decode(wrapped)
    assert routed.srh is not None
    assert routed.srh.segments == (int.from_bytes(two, "big"), int.from_bytes(one, "big"))
    assert (routed.srh.segments_left, routed.srh.last_entry, routed.srh.hdr_ext_len) == (2, 1, 4)
    assert packet.encode(routed) == wrapped
    assert wrapped.endswith(inner)
    message = wire.Codec().decode(wrapped)
    assert message.addresses == inner[8:40]
    for end in range(len(wrapped)):
        assert reason(wrapped[:end]) == (Drop.SHORT, Drop.SHORT)


def test_congestion_mark_on_either_header_counts() -> None:
    inner = bytes.fromhex(VECTORS[0]["hex"])
    wrapped = encapsulate(inner, bytes(16), bytes(16))
    assert not wire.Codec().decode(wrapped).ce
    for marked in (1, 41):  # a switch may have marked it before it got its outer header
        either = bytearray(wrapped)
        either[marked] |= 0x30
        assert wire.Codec().decode(bytes(either)).ce


def test_ipv4_carries_the_low_half_of_the_ev() -> None:
    codec = wire.Codec()
    addresses = bytes([10, 0, 0, 1, 10, 0, 0, 2])
    made = codec.encode_data(addresses, 0xABCD1234, 18, Opcode.WRITE_ONLY_IMM, 5, 77, 0x80, 1, 2, 3, 4, 5, 3, b"abc", 9)
    message = codec.decode(made)
    assert isinstance(message, Data)
    assert (message.entropy, message.addresses, message.immediate) == (0x1234, addresses, 9)
    assert bytes(message.payload) == b"abc"
    assert packet.decode(made).ip.dscp == 4
    ack = codec.decode(codec.encode_ack(addresses, 0xABCD1234, 184, 5, 77, 31, 2))
    assert isinstance(ack, Ack)
    assert (ack.packet_entropy, ack.syndrome, ack.msn) == (0x1234, 31, 2)
    for end in range(len(made)):
        assert reason(made[:end]) == (Drop.SHORT, Drop.SHORT)
    assert reason(change(made, 8, b"\x01")) == (Drop.IP_CHECKSUM, Drop.IP_CHECKSUM)


# --- trimming ---


@pytest.mark.parametrize("lasthop", [False, True])
@pytest.mark.parametrize("form", ["ipv6", "srv6", "srh", "ipv4"])
def test_trimmed_packet_keeps_the_headers_that_survive(form: str, lasthop: bool) -> None:
    dscp = Dscp.TRIMMED_LASTHOP if lasthop else Dscp.TRIMMED
    codec = wire.Codec()
    addresses = bytes(range(8)) if form == "ipv4" else bytes(range(32))
    data = codec.encode_data(
        addresses, 0x12345678, 18, Opcode.WRITE_MIDDLE, 5, 77, 0x80, 1, 2, 333, 4, 5, 6, bytes(1000)
    )
    if form.startswith("sr"):
        data = encapsulate(data, bytes(16), bytes(16), (bytes(16),) if form == "srh" else ())
    cut = packet.trim(data, keep=84, dscp=dscp)
    assert len(cut) == {"ipv6": 84, "srv6": 124, "srh": 148, "ipv4": 84}[form]
    message = codec.decode(cut)
    assert isinstance(message, Data)
    assert message.trimmed == (2 if lasthop else 1)
    assert (message.psn, message.dest_qp, message.tx_timestamp) == (77, 5, 333)
    assert message.entropy == (0x5678 if form == "ipv4" else 0x12345678)
    assert message.size == 1000 + 48 + 40
    assert len(message.payload) == 0
    assert packet.decode(cut).trimmed
    with pytest.raises(ValueError, match="trim"):
        packet.encode(packet.decode(cut))


def test_trimmed_packet_without_a_timestamp_has_none_whatever_follows() -> None:
    codec = wire.Codec()
    address = 0xDEAD_BEEF_0000_0000
    data = codec.encode_data(bytes(32), 1, 18, Opcode.WRITE_ONLY, 5, 7, 0, 0, 0, -1, address, 1, 1000, bytes(1000))
    message = codec.decode(packet.trim(data, keep=84, dscp=Dscp.TRIMMED))
    assert isinstance(message, Data)
    assert (message.trimmed, message.tx_timestamp) == (1, NO_TIMESTAMP)


def test_trim_class_alone_makes_a_packet_trimmed() -> None:
    """A payload smaller than what a switch keeps is not shortened; the DSCP says it all the same."""
    codec = wire.Codec()
    data = codec.encode_data(bytes(32), 1, 18, Opcode.WRITE_ONLY, 5, 7, 0, 0, 0, 3, 0, 1, 4, b"four")
    same = packet.trim(data, keep=128, dscp=Dscp.TRIMMED_LASTHOP)
    assert len(same) == len(data)
    message = codec.decode(same)
    assert isinstance(message, Data)
    assert message.trimmed == 2


# --- ICRC ---


@given(st.binary(min_size=32, max_size=32), st.integers(20, 400), st.integers(0, 1 << 32))
def test_icrc_constant_equals_the_masked_computation(addresses: bytes, size: int, start: int) -> None:
    rest = bytearray(random.Random(start).randbytes(size))
    rest[6:8] = b"\0\0"
    rest[12] = 0
    length = size + 4
    ip = b"\x61\x23\x45\x67" + length.to_bytes(2, "big") + b"\x11\x40" + addresses
    quick = crc.crc32(bytes(rest)) ^ framing.icrc_constant(addresses, length, size)
    assert quick.to_bytes(4, "little") == packet.icrc(ip, bytes(rest))


def test_constants_kept_are_bounded() -> None:
    for number in range(3000):
        framing.icrc_constant(number.to_bytes(32, "big"), 24, 20)
    assert len(framing._constants) <= 2048


@given(st.binary(max_size=300))
def test_random_bytes_raise_nothing_but_wire_error(noise: bytes) -> None:
    for decoder in (wire.Codec().decode, packet.decode):
        with pytest.raises(WireError):
            decoder(noise)


@pytest.mark.parametrize(("read", "size"), [(reading.i8, 1), (reading.i16, 2), (reading.i32, 4)])
def test_a_number_may_end_where_its_packet_ends_and_not_later(read: Any, size: int) -> None:
    """Compiled, these read by `framing.h`."""
    data = b"\x7f\xed\xcb\xa9\x87\x65"
    for at in range(len(data) - size + 1):
        assert read(data, at) == int.from_bytes(data[at : at + size], "big", signed=True)
    for at in range(len(data) - size + 1, len(data) + 2):
        with pytest.raises(IndexError):
            read(data, at)
