"""A wall clock that is set an hour forward and back while commands run: nothing may wait or be ordered by it."""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess
import sys

import pytest

from support.lab import users

SOURCE = pathlib.Path(users.__file__).with_name("stepped_clock.c")
pytestmark = pytest.mark.skipif(not shutil.which("cc"), reason="there is no C compiler")
WORDS = ("run", "write_bw", "--lab", "tiny", "--duration", "4")


@pytest.fixture
def stepped(tmp_path: pathlib.Path) -> dict[str, str]:
    """Return an environment with the clock, which steps every second."""
    library = tmp_path / "stepped.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, SOURCE], check=True)
    return {**os.environ, "LD_PRELOAD": str(library), "MRCLAB_RUN": str(tmp_path / "run")}


def check(words: tuple[str, ...], environment: dict[str, str]) -> None:
    done = subprocess.run([*users.MRCLAB, *words], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_clock_is_stepped(stepped: dict[str, str], tmp_path: pathlib.Path) -> None:
    """Without this the others would show nothing."""
    # The international atomic time is not stepped. Three seconds have both kinds of steps.
    code = """
import time
offsets, end = set(), time.monotonic() + 3.5
while len(offsets) < 3 and time.monotonic() < end:
    offsets.add(round((time.time() - time.clock_gettime(time.CLOCK_TAI)) / 3600))
print(sorted(offsets))
"""
    done = subprocess.run([sys.executable, "-c", code], env=stepped, capture_output=True, text=True, check=True)
    assert done.stdout == "[-1, 0, 1]\n"


@pytest.mark.long
def test_a_sweep_on_a_stepped_clock(stepped: dict[str, str], tmp_path: pathlib.Path) -> None:
    check(("sweep", "evs-failures", "--workers", "0", "-o", str(tmp_path / "out")), stepped)


@pytest.mark.lab
def test_a_run_on_a_stepped_clock(stepped: dict[str, str], tmp_path: pathlib.Path) -> None:
    check((*WORDS, "--clock", "real", "-o", str(tmp_path / "out")), stepped)
