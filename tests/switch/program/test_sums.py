"""Ones' complement sums of fields (RFC 1071), which are added up without writing the fields to bytes first."""

from __future__ import annotations

import random
import struct

import pytest

from support.switch.bmv2_json import Doc, extract, fld, hdr, prim
from support.switch.programs import running

LAYOUTS = {
    "IPv4": [4, 4, 8, 16, 16, 3, 13, 8, 8, 32, 32],
    "each number of bytes": [8, 16, 24, 32, 40, 48, 56, 64, 72, 128],
    "within words": [8, 24, 40, 56, 16, 128, 8, 64],
    "bits": [1, 7, 3, 21, 5, 11, 16],
    "a run of 64 bits": [1, 62, 1, 16],
    "a long field of odd size": [120, 8],
    "a run above 64 bits": [4, 72, 4],
    "odd": [16, 8],
    "one byte": [8],
}


def ones_complement(data: bytes) -> int:
    """Return the sum as RFC 1071 has it, word by word."""
    total = 0
    for (word,) in struct.iter_unpack(">H", data + bytes(len(data) % 2)):
        total += word
        total = (total & 0xFFFF) + (total >> 16)
    return total ^ 0xFFFF


def sum_of(widths: list[int], *, behind: bool, payload: bool) -> Doc:
    """Return a program that appends the sum of header h, of header `absent`, which is never valid, of header g if
    `behind`, and of the payload."""
    doc = Doc()
    doc.header("h", [(f"f{i}", width) for i, width in enumerate(widths)])
    doc.header("absent", [("x", 16)])
    doc.header("g", [("x", 16), ("y", 8)])
    doc.header("o", [("v", 16)])
    doc.state("start", [extract("h"), extract("g")])
    inputs = [fld("h", f"f{i}") for i in range(len(widths))] + [fld("absent", "x")]
    inputs += [fld("g", "x"), fld("g", "y")] if behind else []
    inputs += [{"type": "payload", "value": None}] if payload else []
    doc.extra["calculations"] = [{"name": "c", "id": 0, "algo": "csum16", "input": inputs}]
    doc.extra["checksums"] = [
        {
            "name": "k",
            "id": 0,
            "target": ["o", "v"],
            "type": "generic",
            "calculation": "c",
            "if_cond": None,
            "verify": False,
        }
    ]
    doc.run(prim("add_header", hdr("o")))
    return doc


@pytest.mark.parametrize("widths", LAYOUTS.values(), ids=LAYOUTS)
@pytest.mark.parametrize(("behind", "payload"), [(False, False), (True, False), (False, True), (True, True)])
def test_sum_of_fields(widths: list[int], behind: bool, payload: bool, seed: int) -> None:
    """As over the bytes, whatever the fields are: zero, all ones, or any."""
    rng = random.Random(seed)
    size = sum(widths) // 8
    with running(sum_of(widths, behind=behind, payload=payload)) as (_, runner):
        for rest in (0, 1, 2, 7, 40, 41):
            for head in (bytes(size), b"\xff" * size, *(rng.randbytes(size) for _ in range(20))):
                tail, data = rng.randbytes(3), rng.randbytes(rest)
                summed = head + (tail if behind else b"") + (data if payload else b"")
                out = runner.run(head + tail + data).data
                assert int.from_bytes(out[size + 3 : size + 5], "big") == ones_complement(summed), (head, tail, data)
