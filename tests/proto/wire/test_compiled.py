"""The encoders and decoders made from the table: any header, against the readable codec; and what they are made of."""

from __future__ import annotations

import dataclasses
import traceback
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mrc_host import native
from mrc_host.proto.wire import compiled, fields, packet
from mrc_host.proto.wire.codec import ENCODERS, Codec
from mrc_host.proto.wire.fields import MRC_LAYOUTS, Layout, Opcode, bits, reserved
from mrc_host.proto.wire.messages import MESSAGES, Control

WIDTHS = st.lists(st.integers(1, 64), min_size=1, max_size=12)


@st.composite
def headers(draw: Any) -> fields.Header:
    """Any header of whole bytes whose fields can be put into words: never more than 64 bits between byte boundaries."""
    made, bit = [], 0
    for number, width in enumerate(draw(WIDTHS)):
        # Fill to a boundary where a field would cross too much of one.
        end = -(-bit // 8) * 8
        if bit % 8 and width + bit % 8 > 8:
            made.append(fields.Field(f"fill{number}", end - bit, "", bit, reserved=True))
            bit = end
        if width > 8 and width % 8:
            width = width // 8 * 8
        if width in (24, 40, 48, 56):
            made.append(fields.Field(f"pad{number}", {24: 8, 40: 24, 48: 16, 56: 8}[width], "", bit, reserved=True))
            bit += made[-1].width
        signed = width in (8, 16, 32, 64) and draw(st.booleans())
        made.append(fields.Field(f"f{number}", width, "", bit, signed=signed))
        bit += width
    if bit % 8:
        made.append(fields.Field("last", -bit % 8, "", bit, reserved=True))
        bit += -bit % 8
    return fields.Header("ANY", "Any", tuple(made), bit // 8, {item.name: item for item in made})


@given(headers(), st.data())
def test_any_header_packs_and_unpacks_as_the_readable_codec_does(header: fields.Header, data: st.DataObject) -> None:
    values = {}
    for item in header.fields:
        if not item.reserved:
            low, high = (-(1 << item.width - 1), item.mask >> 1) if item.signed else (0, item.mask)
            values[item.name] = data.draw(st.integers(low, high))
    constants = set(data.draw(st.lists(st.sampled_from(sorted(values)), unique=True)) if values else [])
    text = compiled._Text()
    given = {item.name: 0 for item in header.fields} | {
        name: value if name in constants and value >= 0 else name for name, value in values.items()
    }
    text.add(0, f"def make({', '.join(values)}):", f"    return {text.pack([header], given)}")
    raw = text.function("make")(**values)
    assert raw == packet.pack(header, values)
    wanted = set(data.draw(st.lists(st.sampled_from(sorted(values)), unique=True)) if values else [])
    text = data.draw(st.sampled_from((compiled._Text, compiled._Bytewise)))()
    text.add(0, "def read(packet):")
    if wanted:
        statement, found = text.unpack([header], wanted, "2")
        text.add(1, statement, f"return {{{', '.join(f'{name!r}: {found[name]}' for name in sorted(wanted))}}}")
        got = text.function("read")(b"??" + raw)
        assert got == {name: value for name, value in packet.unpack(header, raw).items() if name in wanted}


@pytest.mark.parametrize("opcode", MRC_LAYOUTS)
def test_every_opcode_has_an_encoder_and_a_message(opcode: int) -> None:
    assert opcode in ENCODERS
    assert opcode in MESSAGES


@pytest.mark.parametrize("opcode", [opcode for opcode, layout in MRC_LAYOUTS.items() if not layout.payload])
def test_messages_have_only_fields_of_their_headers(opcode: int) -> None:
    """A misspelt attribute would silently stay 0."""
    known = {item.name for part in MRC_LAYOUTS[opcode].parts for item in part.header.fields if not item.reserved}
    known |= {item.name for item in dataclasses.fields(Control)} | {"size"}
    assert {item.name for item in dataclasses.fields(MESSAGES[opcode])} <= known


@pytest.mark.skipif(native.COMPILED, reason="compiled code has lines, not their text")
def test_traceback_shows_the_generated_source() -> None:
    try:
        Codec().encode_ack(bytes(32), 0, 0, 1 << 40, 0, 0, 0)
    except Exception as problem:  # noqa: BLE001 - struct's own
        shown = "".join(traceback.format_exception(problem))
    assert "fast made from the table of headers" in shown
    assert "syndrome << 24 | msn" in shown


def test_a_new_header_needs_a_class_a_layout_and_a_signature() -> None:
    """What adding one takes: nothing of it stands in the codec."""

    @fields.header("XETH", "Example")
    class Xeth(fields.PacketHeader):
        colour: int = bits(4, "colour")
        gap: int = reserved(12)
        depth: int = bits(16, "depth", signed=True)
        width: int = bits(24, "width", default=7)
        low: int = bits(8, "low", default=0)

    layout = Layout(Opcode.ACK, "EXAMPLE", (Xeth,))
    try:

        class Example(Codec):
            __slots__ = ()

            @compiled.encoder(Opcode.ACK, layouts={Opcode.ACK: layout})
            def encode_example(
                self,
                addresses: bytes,
                entropy: int,
                traffic_class: int,
                dest_qp: int,
                psn: int,
                colour: int,
                depth: int,
            ) -> bytes:
                raise NotImplementedError

        names = [item.name for item in dataclasses.fields(Control)]
        shown_class = dataclasses.make_dataclass("Shown", [*names, "colour", "width", "depth"])
        made = Example().encode_example(bytes(32), 9, 184, 5, 6, 0xA, -2)
        assert made[60:-4] == packet.pack(Xeth.header, {"colour": 0xA, "depth": -2, "width": 7})
        assert packet.icrc(made[:40], made[40:-4]) == made[-4:]
        decoder: Any = compiled.decoder(layout, shown_class)
        assert decoder.size == len(made)
        shown = decoder.parse(made, 0, 0xD1, 5, 6, 0, 9, 0, 46, bytes(32), 0xFFFF, 28)
        assert (shown.colour, shown.width, shown.depth, shown.packet_entropy) == (0xA, 7, -2, 9)
    finally:
        del fields.HEADERS["XETH"]
