"""Measure whether `mrclab demo` passes, idle and with a busy loop on every core, and how fair its incast is.

`MRCLAB_RUNS` (2) of each; 20 of each take half an hour.
"""

from __future__ import annotations

import multiprocessing
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

from benchmarks import scaled
from mrclab.lab import lifecycle

RUNS = int(os.environ.get("MRCLAB_RUNS", scaled("2", "0")))
LIMIT_S = 600
#: Jain's index of an incast that counts as fair.
FAIR = 0.95


def spin() -> None:
    """Take a core until it is ended."""
    while True:
        pass


def demo(folder: pathlib.Path) -> tuple[int, float, str, float | None]:
    """Run the demo into `folder`.

    Returns its exit code, its duration in seconds, the link rate that it chose (and whether it ran again), and the
    lowest of Jain's indices that it printed, if it printed one.
    """
    began = time.monotonic()
    command = [sys.executable, "-c", "from mrclab.cli.app import main; main()", "demo", "-o", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    rate = re.search(r"links of (\d+) Mb/s", done.stderr)
    again = ", again at half" if "once more" in done.stderr else ""
    simulated = ", then in simulated time" if "too busy" in done.stderr else ""
    indices = [float(index) for index in re.findall(r"Jain's index .*?: (\d\.\d+)", done.stdout + done.stderr)]
    fairness = min(indices) if indices else None
    return done.returncode, time.monotonic() - began, f"{rate[1] if rate else '?'} Mb/s{again}{simulated}", fairness


def run() -> None:
    """Print a row for every run, and how many were green."""
    problem = lifecycle.problem()
    if problem is not None:
        print(f"steadiness: not run: {problem}")
        return
    cores = os.cpu_count() or 1
    for load in scaled((0, cores), (0,)):
        loops = [multiprocessing.Process(target=spin, daemon=True) for _ in range(load)]
        for loop in loops:
            loop.start()
        green = fair = 0
        try:
            for number in range(RUNS):
                with tempfile.TemporaryDirectory(prefix="mrclab-steadiness-") as folder:
                    code, seconds, text, fairness = demo(pathlib.Path(folder) / "demo")
                green += code == 0
                fair += fairness is not None and fairness >= FAIR
                print(
                    f"{load} busy loops, run {number + 1}: exit code {code} after {seconds:.0f} s; {text}; "
                    f"Jain's index {'not printed' if fairness is None else f'{fairness:.3f}'}",
                    flush=True,
                )
        finally:
            for loop in loops:
                loop.terminate()
        print(
            f"{load} busy loops: {green} of {RUNS} green, {fair} of {RUNS} with a Jain index of at least {FAIR}",
            flush=True,
        )
