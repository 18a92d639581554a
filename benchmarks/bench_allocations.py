"""Blocks of memory that Python allocates for a data packet and its SACK, compiled; it fails when there are more.

Two endpoints in one process, as in the benchmark `endpoint`. The number does not depend on the machine's speed. What
Python takes from its lists of free tuples, lists and floats is not counted.
"""

from __future__ import annotations

import ctypes
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

from benchmarks import scaled, smoke
from benchmarks.bench_endpoint import CASES, MESSAGE_BYTES, transfer
from mrc_host import build, native
from mrc_host.proto.config import WireConfig

SHORT, LONG = scaled((8_000_000, 24_000_000), (1_000_000, 2_000_000))
PACKETS = (LONG - SHORT) // MESSAGE_BYTES * -(-MESSAGE_BYTES // WireConfig().mtu)
#: Allocations for a data packet and its SACK; more than these by the margin is a failure.
MOST = {"as a lab: SRv6, batches": 18.5, "SRv6, one packet at a time": 40.0}
MARGIN = 0.2


def counter() -> ctypes.PyDLL:
    """Compile and load allocations.c."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "allocations.so"
        source = Path(__file__).with_name("allocations.c")
        include = f"-I{sysconfig.get_path('include')}"
        subprocess.run([build.compiler(), "-O2", "-fPIC", "-shared", include, "-o", str(path), str(source)], check=True)
        library = ctypes.PyDLL(str(path))
    library.end.restype = ctypes.c_ulonglong
    return library


def allocations(counted: ctypes.PyDLL, case: str) -> float:
    """Return the allocations for a data packet and its SACK: those of a long transfer less those of a short one."""
    found = []
    for size in (SHORT, LONG):
        counted.begin()
        transfer(size, **CASES[case])
        found.append(int(counted.end()))
    return (found[1] - found[0]) / PACKETS


def run() -> None:
    """Print a line per case; exit with 1 if one allocates more than it did."""
    if not native.COMPILED:
        print(f"not compiled: {native.WHY_NOT}")
        return
    counted = counter()
    grown = False
    for case, most in MOST.items():
        now = allocations(counted, case)
        print(f"{case}: {now:.1f} allocations for a data packet and its SACK (at most {most:.1f})")
        grown |= now > most + MARGIN
    if grown and not smoke():
        sys.exit("allocations per packet have grown: find what is made for each packet, or say why in MOST")
