"""P4Runtime byte strings: the specification's tables of valid and invalid encodings, and round trips."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from p4lite.messages import code_pb2, p4runtime_pb2
from p4lite.switch.p4rt.errors import MAX_STATUS_BYTES, P4RtError, batch_status
from p4lite.switch.p4rt.info import decode, decode_signed, encode, encode_signed

# P4Runtime specification, "Examples of Valid Bytestring Encoding": type, value, string, canonical?
VALID = [
    ("bit", 8, 99, "63", True),
    ("bit", 16, 99, "0063", False),
    ("bit", 16, 99, "63", True),
    ("bit", 16, 12388, "3064", True),
    ("bit", 16, 12388, "003064", False),
    ("bit", 12, 99, "0063", False),
    ("bit", 12, 99, "63", True),
    ("bit", 12, 99, "000063", False),
    ("int", 8, 99, "63", True),
    ("int", 8, -99, "9d", True),
    ("int", 8, -99, "ff9d", False),
    ("int", 12, -739, "fd1d", True),
    ("int", 16, 0, "0000", False),
    ("int", 16, 0, "00", True),
]
# "Examples of Invalid Bytestring Encoding"
INVALID = [
    ("bit", 8, "0163"),
    ("bit", 8, ""),
    ("bit", 16, "010063"),
    ("bit", 12, "1063"),
    ("bit", 12, "010063"),
    ("bit", 12, "004063"),
    ("int", 8, "009d"),
    ("int", 12, "8d1d"),
    ("int", 16, ""),
]
DECODE = {"bit": decode, "int": decode_signed}
ENCODE = {"bit": encode, "int": encode_signed}


@pytest.mark.parametrize(("kind", "width", "value", "text", "canonical"), VALID)
def test_byte_string_decodes_to_its_value_and_encodes_canonically(
    kind: str, width: int, value: int, text: str, canonical: bool
) -> None:
    assert DECODE[kind](bytes.fromhex(text), width, "x") == value
    assert (ENCODE[kind](value).hex() == text) is canonical


@pytest.mark.parametrize(("kind", "width", "text"), INVALID)
def test_byte_string_too_wide_for_its_field_is_refused(kind: str, width: int, text: str) -> None:
    with pytest.raises(P4RtError) as caught:
        DECODE[kind](bytes.fromhex(text), width, "field 'x'")
    assert caught.value.status == code_pb2.OUT_OF_RANGE
    assert "field 'x'" in caught.value.message


@given(st.integers(1, 300), st.data())
def test_round_trip_unsigned(width: int, data: st.DataObject) -> None:
    value = data.draw(st.integers(0, (1 << width) - 1))
    coded = encode(value)
    assert decode(coded, width, "x") == value
    assert decode(b"\0\0" + coded, width, "x") == value
    assert len(coded) == 1 or coded[0]


@given(st.integers(1, 300), st.data())
def test_round_trip_signed(width: int, data: st.DataObject) -> None:
    value = data.draw(st.integers(-(1 << (width - 1)), (1 << (width - 1)) - 1))
    coded = encode_signed(value)
    assert decode_signed(coded, width, "x") == value
    extension = b"\xff" if value < 0 else b"\0"
    assert decode_signed(extension + coded, width, "x") == value


@pytest.mark.parametrize(("count", "texts", "elements"), [(3, True, 3), (150, False, 150), (5000, False, 0)])
def test_the_status_of_a_batch_fits_in_grpc_metadata(count: int, texts: bool, elements: int) -> None:
    errors = [None, *(P4RtError(code_pb2.NOT_FOUND, "there is no such entry in the table") for _ in range(count - 1))]
    status = batch_status(errors, "Write")
    assert status.ByteSize() <= MAX_STATUS_BYTES + 100
    assert len(status.details) == elements
    assert status.message.startswith(f"Write: {count - 1} of {count} failed; the first is #1: NOT_FOUND: there is no")
    for error, packed in zip(errors, status.details, strict=False):
        detail = p4runtime_pb2.Error()
        assert packed.Unpack(detail)
        assert detail.canonical_code == (0 if error is None else code_pb2.NOT_FOUND)
        assert bool(detail.message) == (texts and error is not None)
