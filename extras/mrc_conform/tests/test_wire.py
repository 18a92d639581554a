"""The kit's packets against those of the endpoint's codecs, which share no code with them."""

from __future__ import annotations

import json
import pathlib
import random

import pytest

from mrc_conform import wire
from mrc_conform.wire import Damage, FormatError, Packet
from mrc_host.proto.wire import codec as fast
from mrc_host.proto.wire import packet as full
from mrc_host.proto.wire.fields import MRC_LAYOUTS
from mrc_host.proto.wire.fields import Packet as FullPacket

VECTORS = pathlib.Path(__file__).parents[3] / "tests" / "vectors/mrc_wire.json"
PARTS = ("bth", "meth", "tseth", "reth", "immdt", "aeth", "seth", "cc_state", "neth", "peth", "erth", "eeth")


def same(ours: Packet, theirs: FullPacket) -> None:
    """Compare every field that has a meaning."""
    assert ours.ev == theirs.entropy
    assert ours.payload == theirs.payload
    names = set()
    for part in PARTS:
        header = getattr(theirs, part)
        if header is not None:
            for item in header.header.fields:
                if not item.reserved:
                    assert ours.fields[f"{part}.{item.name}"] == getattr(header, item.name), item.name
                names.add(f"{part}.{item.name}")
    assert names == set(ours.fields)


def drawn(rng: random.Random) -> Packet:
    """Return a packet with random values in all fields that are not reserved."""
    layout = rng.choice(list(wire.wire_format().opcodes.values()))
    stamped = bool(layout.optional) and rng.random() < 0.7
    packet = wire.blank(layout.name, stamped=stamped)
    for header in (wire.wire_format().headers["BTH"], *layout.headers):
        for item in header.fields:
            name = f"{header.name.lower()}.{item.name}"
            if name not in packet.fields or item.reserved or name in ("bth.opcode", "bth.ts", "bth.pad", "bth.tver"):
                continue
            value = rng.getrandbits(item.bits)
            packet.fields[name] = value - (1 << item.bits) if item.signed and value >> item.bits - 1 else value
    packet.payload = rng.randbytes(rng.randrange(65)) if layout.payload else b""
    packet.source, packet.destination = rng.randbytes(16), rng.randbytes(16)
    packet.ev = rng.getrandbits(32)
    packet.dscp, packet.ecn = rng.choice((0, 4, 8, 46)), rng.randrange(4)
    return packet


@pytest.mark.parametrize("vector", json.loads(VECTORS.read_text())["vectors"], ids=lambda each: each["name"])
def test_vectors_are_read_as_the_endpoint_reads_them(vector: dict[str, str]) -> None:
    raw = bytes.fromhex(vector["hex"])
    packet = wire.decode(raw)
    same(packet, full.decode(raw))
    assert wire.encode(packet) == (raw if not packet.encapsulated else raw[40:])


def test_random_packets_are_the_same_in_both_codecs() -> None:
    rng = random.Random(7)
    codec = fast.Codec()
    for _ in range(3000):
        packet = drawn(rng)
        raw = wire.encode(packet)
        again = wire.decode(raw)
        assert again.fields == packet.fields | {"bth.pad": -len(packet.payload) % 4}
        if packet.fields["bth.migreq"] == 0:
            same(again, full.decode(raw, MRC_LAYOUTS))
        message = codec.decode(raw)
        assert (message.opcode, message.psn, message.dest_qp) == (raw[48], packet["psn"], packet["dest_qp"])


def test_trimmed_packets_are_cut_as_by_a_switch() -> None:
    rng = random.Random(3)
    for _ in range(300):
        packet = drawn(rng)
        if not packet.opcode.startswith("WRITE"):
            continue
        keep = rng.randrange(20, 60)
        whole = wire.encode(packet)
        cut = wire.encode(packet, damage=Damage(trim_to=keep))
        assert full.trim(whole, keep=40 + keep, dscp=packet.dscp) == cut
        assert wire.decode(cut).trimmed or len(whole) == len(cut)


@pytest.mark.parametrize(
    ("damage", "text"),
    [
        (Damage(icrc=True), "ICRC"),
        (Damage(cut=3), "bytes"),
        (Damage(tail=4), "UDP"),
        (Damage(code=0xC0), "opcode"),
        (Damage(udp_port=4000), "UDP port"),
        (Damage(pad=2), "padding is not zero"),
    ],
)
def test_malformed_packets_are_refused(damage: Damage, text: str) -> None:
    packet = wire.blank("WRITE_ONLY")
    packet.payload = b"\xff" * 8
    with pytest.raises(FormatError, match=text):
        wire.decode(wire.encode(packet, damage=damage))


def test_reserved_bits_of_an_answer_must_be_zero() -> None:
    packet = wire.blank("SACK").with_fields({"seth.seth_r3": 1})
    with pytest.raises(FormatError, match=r"seth\.seth_r3"):
        wire.decode(wire.encode(packet))


def test_the_description_is_the_endpoints_table_in_other_words() -> None:
    """Field by field: names, widths and places."""
    opcodes = wire.wire_format().opcodes
    assert {each.code for each in opcodes.values()} == {int(code) for code in MRC_LAYOUTS}
    for each in opcodes.values():
        theirs = MRC_LAYOUTS[each.code]
        assert [header.name for header in each.headers] == [header.name for header in theirs.headers]
        for ours, other in zip(each.headers, theirs.headers, strict=True):
            listed = [(item.name, item.bits, item.offset, item.signed, item.reserved) for item in ours.fields]
            assert listed == [(item.name, item.width, item.bit, item.signed, item.reserved) for item in other.fields]
