"""Packets without their payload are read as whole ones are: each bit of their headers that is wrong is refused
for the same reason, or accepted with the same values.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable
from typing import Any

import pytest

from mrc_host.proto.roce import messages as roce
from mrc_host.proto.roce.codec import RoceCodec
from mrc_host.proto.wire.codec import Codec
from mrc_host.proto.wire.encap import encapsulate
from mrc_host.proto.wire.fields import Opcode
from mrc_host.proto.wire.icrc import wire_length
from mrc_host.proto.wire.messages import NO_TIMESTAMP
from mrc_host.proto.wire.packet import Drop, WireError

ADDRESSES = bytes(range(32))
WHOLE, LENGTH = Codec(), Codec(length_only=True)
ROCE_WHOLE, ROCE_LENGTH = RoceCodec(), RoceCodec(length_only=True)
PAYLOAD = random.Random(1).randbytes(4096)
SIZES = (1, 2, 64, 1024, 4096)
FIRST, SECOND = bytes(range(100, 116)), bytes(range(60, 76))
WRAPPINGS: dict[str, Callable[[bytes], bytes]] = {
    "none": lambda packet: packet,
    "uSID": lambda packet: encapsulate(packet, FIRST, SECOND),
    "SRH": lambda packet: encapsulate(packet, FIRST, SECOND, (FIRST, SECOND)),
}


def mrc(codec: Codec, size: int, stamp: int = 77, opcode: int = Opcode.WRITE_ONLY_IMM) -> bytes:
    return codec.encode_data(
        ADDRESSES, 0x12345678, 18, opcode, 99, 1234, 0, 3, 4, stamp, 1 << 40, 5, size, PAYLOAD[:size], 0xABCD
    )


def read(decode: Callable[..., Any], packet: bytes, missing: int) -> object:
    """Return what a codec makes of a packet: the values, with the length of the payload, or why it is refused."""
    try:
        message = decode(packet, missing)
    except WireError as error:
        return error.reason
    values = {each.name: getattr(message, each.name) for each in dataclasses.fields(message)}
    if "payload" in values:
        values["payload"] = len(values["payload"])
    return values


def compare(decode: Callable[..., Any], whole: bytes, stored: bytes) -> set[object]:
    """Flip every stored bit in both kinds of packet; return what was made of it."""
    missing = len(whole) - len(stored)
    assert wire_length(stored) == len(whole)
    assert whole.startswith(stored[:-4])
    assert isinstance(read(decode, stored, missing), dict)
    seen: set[object] = set()
    for bit in range(-1, len(stored) * 8):
        one, other = bytearray(whole), bytearray(stored)
        if bit >= 0:
            at, mask = bit // 8, 0x80 >> bit % 8
            one[at if at < len(stored) - 4 else at + missing] ^= mask
            other[at] ^= mask
        expected = read(decode, bytes(one), 0)
        assert read(decode, bytes(other), missing) == expected, f"bit {bit}"
        seen.add(expected if not isinstance(expected, dict) else "accepted")
    return seen


@pytest.mark.parametrize("wrapping", WRAPPINGS)
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("stamp", [77, NO_TIMESTAMP])
def test_each_wrong_bit_is_taken_alike(wrapping: str, size: int, stamp: int) -> None:
    wrap = WRAPPINGS[wrapping]
    whole, stored = wrap(mrc(WHOLE, size, stamp)), wrap(mrc(LENGTH, size, stamp))
    seen = compare(LENGTH.decode, whole, stored)
    assert len(seen) >= 5, "bits of all kinds"


@pytest.mark.parametrize("size", SIZES)
def test_each_wrong_bit_of_roce_is_taken_alike(size: int) -> None:
    def made(codec: RoceCodec) -> bytes:
        return codec.encode_write(
            ADDRESSES, 0x1234, 2, roce.ONLY_IMM, 99, 1234, True, 1 << 40, 5, size, 0xABCD, PAYLOAD[:size]
        )

    compare(ROCE_LENGTH.decode_roce, made(ROCE_WHOLE), made(ROCE_LENGTH))


def test_a_notification_of_congestion_is_taken_alike() -> None:
    whole, stored = (each.encode_cnp(ADDRESSES, 0x1234, 2, 99) for each in (ROCE_WHOLE, ROCE_LENGTH))
    compare(ROCE_LENGTH.decode_roce, whole, stored)


def test_a_checksum_that_is_not_zero_hides_no_other_wrong_bit() -> None:
    whole, stored = mrc(WHOLE, 1024), mrc(LENGTH, 1024)
    assert isinstance(read(LENGTH.decode, stored[:46] + b"\1" + stored[47:], 1024), dict)
    for at in range(60, len(stored)):
        results = []
        for packet, place in ((whole, at if at < len(stored) - 4 else at + 1024), (stored, at)):
            wrong = bytearray(packet)
            wrong[46] ^= 1
            wrong[place] ^= 1
            results.append(read(LENGTH.decode, bytes(wrong), 1024 if packet is stored else 0))
        assert results == [Drop.ICRC, Drop.ICRC]


@pytest.mark.parametrize("wrapping", WRAPPINGS)
def test_a_payload_that_lacks_more_than_itself_is_refused(wrapping: str) -> None:
    stored = WRAPPINGS[wrapping](mrc(LENGTH, 4096))
    for cut in range(40, len(stored)):
        with pytest.raises(WireError):
            LENGTH.decode(stored[:cut], 4096 + len(stored) - cut)


@pytest.mark.parametrize("stamp", [77, NO_TIMESTAMP])
@pytest.mark.parametrize("opcode", [Opcode.WRITE_FIRST, Opcode.WRITE_ONLY, Opcode.WRITE_ONLY_IMM])
def test_headers_that_are_cut_short_are_refused_without_an_icrc_too(opcode: int, stamp: int) -> None:
    stored = mrc(LENGTH, 4096, stamp, opcode)
    unchecked = Codec(length_only=True, check_icrc=False)
    for cut in range(64, len(stored) - 4):
        with pytest.raises(WireError):
            unchecked.decode(stored[:cut], 4096 + len(stored) - cut)
