"""Compiled programs against the reference interpreter: the same packets, the same entries, the same output."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from p4lite.compiler.backend import generate
from p4lite.compiler.frontend import load
from p4lite.switch.runtime.loader import LoadedProgram, load_program
from support.switch.differential import compare

ROOT = Path(__file__).parents[3]
PROGRAMS = sorted([*(Path(__file__).parents[1] / "programs").glob("*.p4"), ROOT / "p4/programs/fabric.p4"])


@cache
def compiled(path: Path) -> LoadedProgram:
    return load_program(generate(load(str(path))), name=path.stem)


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda p: p.stem)
@pytest.mark.parametrize("part", range(3))
def test_against_interpreter(path: Path, part: int, seed: int) -> None:
    compared, _ = compare(compiled(path), seed + part, 150)
    assert compared > 50
