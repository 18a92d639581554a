"""framing.c against framing.py: the same bytes, the same refusals, nothing read or written beside them."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from mrc_host import build, native
from mrc_host.proto.wire import crc, framing

FOLDER = native.PACKAGE / "proto" / "wire"
WARNINGS = ("-std=c11", "-Wall", "-Wextra", "-Werror")
SANITIZERS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-g")

pytestmark = pytest.mark.skipif(bool(build.lacking()), reason=build.lacking() or "there is a compiler")


def library(folder: Path, *flags: str) -> Path:
    """Compile the C of packets to a library without warnings."""
    path = folder / "framing.so"
    sources = [str(source) for source in sorted(FOLDER.glob("*.c"))]
    include = f"-I{sysconfig.get_path('include')}"
    command = [build.compiler(), *WARNINGS, "-O2", "-fPIC", "-shared", *flags, include, "-o", str(path), *sources]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return path


def compare(path: Path, count: int, seed: int, **environment: str) -> None:
    """Compare them in a process of their own."""
    command = [sys.executable, "-m", "support.proto.framing_in_c", str(path), str(count), str(seed)]
    paths = os.pathsep.join([str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        command, capture_output=True, text=True, env=os.environ | environment | {"PYTHONPATH": paths}, timeout=900
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]


def test_random_packets_are_alike(tmp_path: Path) -> None:
    compare(library(tmp_path), 8000, 1)


@pytest.mark.long
def test_a_million_random_packets_are_alike(tmp_path: Path) -> None:
    compare(library(tmp_path), 1_000_000, 2)


def test_nothing_is_read_or_written_beside_them(tmp_path: Path) -> None:
    """Sanitizers end the process at the first byte."""
    command = [build.compiler(), "-print-file-name=libasan.so"]
    runtime = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    if not os.path.isabs(runtime):
        pytest.skip("the C compiler has no libasan.so")
    options = {"ASAN_OPTIONS": "detect_leaks=0", "UBSAN_OPTIONS": "halt_on_error=1"}
    compare(library(tmp_path, *SANITIZERS), 3000, 3, LD_PRELOAD=runtime, PYTHONMALLOC="malloc", **options)


@pytest.mark.parametrize("size", [*range(20), 4076])
def test_the_constant_of_an_icrc_is_that_of_the_masked_packet(size: int) -> None:
    """Ones in the place of what switches change (IBTA 1.4, 7.8.1), by zlib over the whole packet."""
    addresses, udp_length = bytes(range(32)), 24 + size
    masked = b"\xff" * 8 + b"\x6f\xff\xff\xff" + udp_length.to_bytes(2, "big") + b"\x11\xff" + addresses
    body = bytearray(udp_length - 4)
    plain = crc.crc32(bytes(body))
    body[6:8], body[12] = b"\xff\xff", 0xFF
    assert (
        framing.icrc_constant(addresses, udp_length, udp_length - 4)
        == crc.crc32(bytes(body), crc.crc32(masked)) ^ plain
    )
