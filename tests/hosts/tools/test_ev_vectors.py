"""Expansion of EVs against published vectors.

Each case has `format_widths` (width of each field in the format, most significant first), `fields` (what the profile
says of the first of them), `evs` (256 bits in hexadecimal, the generated or listed bits) and `expanded` (the formatted
value, left-aligned).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mrc_host.proto.config import EvField
from mrc_host.proto.paths.ev_profile import expand

EV_BITS = 256
CASES: list[dict[str, Any]] = json.loads((Path(__file__).parents[2] / "vectors" / "ev_expansion.json").read_text())[
    "cases"
]


def _number(value: int | str) -> int:
    return int(value, 0) if isinstance(value, str) else value


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_ev_expands_as_published(case: dict[str, Any]) -> None:
    numbers = [
        [_number(each.get(key, 0)) for key in ("width", "init", "min", "max", "mask")] for each in case["fields"]
    ]
    fields = [EvField(width, init, low, high, mask) for width, init, low, high, mask in numbers]
    widths = case["format_widths"]
    taken = sum(field.mask.bit_count() for field in fields)
    pad = EV_BITS - sum(widths[: len(fields)])
    evs = [int(text, 16) for text in case["evs"]]
    assert [ev & ((1 << (EV_BITS - taken)) - 1) for ev in evs] == [0] * len(evs)
    assert [f"{expand(fields, ev, EV_BITS, 0, widths) << pad:064x}" for ev in evs] == case["expanded"]


def test_cases_are_all_there() -> None:
    assert len(CASES) == 5
    assert all(case["evs"] for case in CASES)
