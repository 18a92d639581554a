"""The CRC of the ICRC is the same whichever library computes it, and the one that was asked for runs."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mrc_host.proto.wire import crc


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
