"""The CRC of the ICRC is the same whichever library computes it, and the one that was asked for runs."""

from __future__ import annotations

import ctypes
import importlib.util
import os
import platform
import subprocess
import sys
import zlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mrc_host.proto.wire import crc

SOURCE = Path(crc.__file__).with_name("crc32.c")
#: Each way of crc32.c, from how many bytes on, in steps of how many, and how many products its processor has.
WAYS = (("by_tables", 0, 1, 0), ("by_products", 64, 16, 1), ("by_wide_products", 256, 16, 2))
HARNESS = """
#include "crc32.c"
uint32_t run_WAY(uint32_t crc, const uint8_t *data, size_t length) { return WAY(crc, data, length); }
#if defined(__x86_64__)
int ways(void) { return products(); }
#else
int ways(void) { return 0; }
#endif
"""


@pytest.mark.parametrize(("way", "least", "step", "needed"), WAYS, ids=[way for way, *_ in WAYS])
def test_each_way_in_c_is_that_of_zlib(way: str, least: int, step: int, needed: int, tmp_path: Path) -> None:
    if needed and platform.machine() != "x86_64":
        pytest.skip("products are for x86_64")
    (tmp_path / "harness.c").write_text(HARNESS.replace("WAY", way))
    flags = ["-shared", "-fPIC", "-O2", "-Wno-unused-function", f"-I{SOURCE.parent}"]
    built = [os.environ.get("CC", "cc"), *flags, "-o", str(tmp_path / "harness.so"), str(tmp_path / "harness.c")]
    subprocess.run(built, check=True)
    library = ctypes.CDLL(str(tmp_path / "harness.so"))
    if library.ways() < needed:
        pytest.skip(f"the processor has no instruction for {way}")
    run = getattr(library, f"run_{way}")
    run.restype, run.argtypes = ctypes.c_uint32, (ctypes.c_uint32, ctypes.c_char_p, ctypes.c_size_t)
    data = bytes(at * at * 31 + at >> 3 & 0xFF for at in range(5000))
    for length in (*range(least, 1100, step), *range(4000, 4400, step)):
        for before in (0, 0xFFFFFFFF, 0x12345678):
            found = run(~before & 0xFFFFFFFF, data, length)
            assert ~found & 0xFFFFFFFF == zlib.crc32(data[:length], before)


@given(st.binary(max_size=5000), st.integers(0, 0xFFFFFFFF), st.sampled_from((bytes, bytearray, memoryview)))
def test_both_libraries_agree(data: bytes, value: int, kind: type) -> None:
    assert crc.crc32(kind(data), value) == zlib.crc32(data, value)
    assert crc.crc32(data) == zlib.crc32(data)


@pytest.mark.parametrize("lacking", [False, True])
def test_zlib_computes_where_isal_is_not(lacking: bool) -> None:
    code = "from mrc_host.proto.wire import crc; print(crc.LIBRARY, crc.crc32.__module__)"
    if lacking:
        code = f"import sys; sys.modules['isal'] = None; {code}"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    there = importlib.util.find_spec("isal") is not None and not lacking
    assert said == (["isal", "isal.isal_zlib"] if there else ["zlib", "zlib"])
