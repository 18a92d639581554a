"""The fabric's program for all tests of this folder, by each compiler that is here."""

from __future__ import annotations

import pytest

from p4lite.switch.runtime.loader import LoadedProgram
from support.p4.fabric_bed import COMPILERS, program


@pytest.fixture(params=COMPILERS)
def fabric_p4(request: pytest.FixtureRequest) -> LoadedProgram:
    found = program(request.param)
    if found is None:
        pytest.skip(f"{request.param} is not installed")
    return found
