"""Instructions for a data packet and its SACK in simulated time, by function, as callgrind counts them.

A permutation of 16 hosts, as in the benchmark `payload`. The numbers do not depend on what else the machine does, so
two versions can be compared by one run of each. Needs valgrind (Debian: valgrind), and takes a minute for each kind.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from benchmarks import scaled
from benchmarks.bench_payload import measure
from mrc_host import native

KINDS: Final = scaled(("length", "bytes"), ("length",))
#: What is counted: the driver while time advances. Functions of the compiled core begin so.
DRIVER, CORE = "CPyDef_virtual___VirtualDriver____go", "CPyDef_"
SHOWN: Final = 12


def rows(path: Path) -> Iterator[tuple[str, str, int]]:
    """Yield function, function that it calls or empty, and instructions from a file of callgrind."""
    names: dict[str, str] = {}

    def name(text: str) -> str:
        number, _, given = text.partition(" ")
        return names.setdefault(number, given)

    function = called = ""
    for line in path.read_text().splitlines():
        if line.startswith("fn="):
            function = name(line[3:])
        elif line.startswith("cfn="):
            called = name(line[4:])
        elif re.match(r"[-+*\d]\S* \d", line):
            yield function, called, int(line.split()[-1])
            called = ""


def costs(path: Path) -> tuple[int, Counter[str]]:
    """Return all instructions, and those of each function of the core, with what it calls of Python's and of C."""
    whole, found = 0, Counter[str]()
    for function, called, instructions in rows(path):
        if not called:
            whole += instructions
        if function.startswith(CORE) and not called.startswith(CORE):
            found[function.removeprefix(CORE)] += instructions
    return whole, found


def child(payload: str) -> None:
    """Run the permutation, and print how many data packets were sent."""
    print(measure(16, 4, 1, payload)["packets"])


def run() -> None:
    """Print a table per kind of payload."""
    valgrind = shutil.which("valgrind")
    if valgrind is None or not native.COMPILED:
        print(f"not run: {native.WHY_NOT or 'there is no valgrind (Debian: valgrind)'}")
        return
    for payload in KINDS:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "instructions"
            counting = [valgrind, "--tool=callgrind", f"--callgrind-out-file={path}", f"--toggle-collect={DRIVER}*"]
            script = f"from benchmarks.bench_instructions import child; child({payload!r})"
            done = subprocess.run([*counting, sys.executable, "-c", script], capture_output=True, text=True, check=True)
            packets = int(done.stdout.split()[-1])
            whole, found = costs(path)
        print(f"payload {payload}: {whole / packets:,.0f} instructions for a data packet and its SACK")
        for function, instructions in found.most_common(SHOWN):
            print(f"  {instructions / packets:7,.0f}  {function.replace('___', '.')}")


if __name__ == "__main__":
    run()
