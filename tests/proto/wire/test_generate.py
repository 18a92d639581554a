"""Encoders and decoders made from the table: any header, against the complete codec; and what they are made of."""

from __future__ import annotations

import dataclasses
import pathlib
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mrc_host import generate
from mrc_host.proto.wire import fields, packet, reading
from mrc_host.proto.wire.codec import ENCODERS
from mrc_host.proto.wire.fields import MRC_LAYOUTS, Layout, Opcode, bits, reserved
from mrc_host.proto.wire.messages import MESSAGES, Control
from mrc_host.signatures import encodes

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
        signed = width in (8, 16, 32) and draw(st.booleans())
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
    text = generate.FunctionText()
    given = {item.name: 0 for item in header.fields} | {
        name: value if name in constants and value >= 0 else name for name, value in values.items()
    }
    name, expressions = text.pack([header], given)
    text.add(
        0, f"def make({', '.join(values)}):", "    return struct.pack({}, {})".format(name, ", ".join(expressions))
    )
    raw = function(text, "make")(**values)
    assert raw == packet.pack(header, values)
    wanted = set(data.draw(st.lists(st.sampled_from(sorted(values)), unique=True)) if values else [])
    text = generate.FunctionText()
    place = data.draw(st.sampled_from(("2", "at")))
    text.add(0, "def read(packet, at):")
    if wanted:
        statements, found = text.unpack([header], wanted, place)
        text.add(1, *statements, f"return {{{', '.join(f'{name!r}: {found[name]}' for name in sorted(wanted))}}}")
        for compiled in (True, False):
            got = function(text, "read", compiled)(b"??" + raw, 2)
            assert got == {name: value for name, value in packet.unpack(header, raw).items() if name in wanted}


def function(text: generate.FunctionText, name: str, compiled: bool = True) -> Any:
    """Return a function of a text, which does what it does where it is compiled or not."""
    names = {"struct": struct, "Struct": struct.Struct, "COMPILED": compiled, **vars(reading)}
    forms = [f"{each} = {form}" for each, form in text.forms.items()]
    exec("\n".join([*forms, *text.lines]), names)
    return names[name]


@pytest.mark.parametrize("family", generate.FAMILIES, ids=lambda each: each.path)
def test_committed_modules_are_those_of_the_table(family: generate.CodecFamily) -> None:
    """A change of the table, or of a signature, needs `make codec`."""
    path = pathlib.Path(generate.__file__).parent / "proto" / family.path
    assert path.read_text() == generate.module_of(family)


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

    class ExampleSignatures:
        @encodes(Opcode.ACK)
        def encode_example(
            self, addresses: bytes, entropy: int, traffic_class: int, dest_qp: int, psn: int, colour: int, depth: int
        ) -> bytes:
            """Encode an example."""
            raise NotImplementedError

    try:
        names = [item.name for item in dataclasses.fields(Control)]
        shown_class = dataclasses.make_dataclass("Shown", [*names, "colour", "width", "depth"])
        family = dataclasses.replace(
            generate.FAMILIES[1],
            signatures=ExampleSignatures,
            layouts={Opcode.ACK: layout},
            messages={Opcode.ACK: shown_class},
            message="Shown",
            imports=generate.FAMILIES[1].imports[1:],
        )
        made_of: dict[str, Any] = {"Shown": shown_class}
        exec(generate.module_of(family), made_of)
        made = made_of["RoceEncoders"]().encode_example(bytes(32), 9, 184, 5, 6, 0xA, -2)
        assert made[60:-4] == packet.pack(Xeth.header, {"colour": 0xA, "depth": -2, "width": 7})
        assert packet.icrc(made[:40], made[40:-4]) == made[-4:]
        decoder = made_of["DECODERS"][Opcode.ACK]
        assert decoder.size == len(made)
        shown = decoder.parse(made, 0, 0, False, 0xD1, 5, 6, 0, 9, 0, 46, bytes(32), 0xFFFF, 28)
        assert (shown.colour, shown.width, shown.depth, shown.packet_entropy) == (0xA, 7, -2, 9)
    finally:
        del fields.HEADERS["XETH"]
