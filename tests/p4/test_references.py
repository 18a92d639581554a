"""What the comparison with p4c and BMv2 does, also where neither is installed."""

from __future__ import annotations

import shutil

import pytest

from support.p4.differential import Comparison, References, run_seed
from support.p4.random_program import random_program
from support.p4.reference_compiler import P4C
from support.p4.reference_switch import BMV2

PROGRAMS, PACKETS = 4, 10
KNOWN = {
    Comparison.P4C,
    Comparison.P4C_JSON,
    Comparison.P4C_REFUSES,
    Comparison.P4C_CRASHES,
    Comparison.P4INFO_HERE,
    Comparison.P4INFO_THERE,
    Comparison.BMV2_ENDS,
}
"""Faults of the references, which docs/conformance.md lists."""


def test_portable_programs_have_nothing_that_p4c_refuses() -> None:
    whole = "".join(random_program(seed, 1, portable=True).root.text() for seed in range(30))
    for each in ("for (", " / ", " % ", "tuple<bit<8>, bit<3>>", "value_set<int"):
        assert each not in whole


@pytest.mark.skipif(shutil.which(P4C) is None, reason=f"{P4C} is not on PATH: it is not compared with p4lite")
def test_programs_compiled_by_p4c(seed: int) -> None:
    results = [run_seed(seed + i, PACKETS, 0, References(P4C), portable=True) for i in range(PROGRAMS)]
    assert {s: r.why for s, r in results if set(r.found) - KNOWN} == {}
    assert any(not r.found for _, r in results)


@pytest.mark.skipif(shutil.which(BMV2) is None, reason=f"{BMV2} is not on PATH: no program runs there")
def test_programs_on_simple_switch(seed: int) -> None:
    bmv2 = References(bmv2=shutil.which(BMV2))
    results = [run_seed(seed + i, PACKETS, 0, bmv2, portable=True) for i in range(PROGRAMS)]
    assert {s: r.why for s, r in results if set(r.found) - KNOWN} == {}
