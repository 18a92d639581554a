"""How well `mrclab plan` predicts: each run is planned, then done, in processes of their own.

A ratio is predicted by measured. What else the machine does while a run lasts no plan knows: `at its pace` is the ratio
of CPU time as if the plan had found the pace of the machine during the run. `python -m benchmarks plan` needs root for
the runs on the real clock, and leaves them out without.
"""

from __future__ import annotations

import ctypes
import importlib.util
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from typing import Any

import psutil

from benchmarks import scaled
from benchmarks.child import measured

#: What follows `mrclab plan` and `mrclab run`; a cluster has no option.
RUNS = scaled(
    (
        ("lossy-link",),
        ("incast-victim",),
        ("training-64",),
        ("thousand-ranks",),
        (
            "permutation",
            "--clock",
            "virtual",
            "--lab",
            "training-64",
            "--set",
            "message_bytes=262144",
            "--duration",
            "2",
        ),
        ("all_to_all", "--clock", "virtual", "--transport", "roce", "--set", "block_bytes=65536", "--duration", "3"),
        ("write_lat", "--clock", "virtual", "--lab", "eight-plane", "--duration", "20"),
        ("training-64", "--cores", "2"),
        ("lossy-link", "--clock", "real"),
        ("permutation", "--clock", "real", "--lab", "tiny", "--set", "message_bytes=262144", "--duration", "5"),
        ("cluster-131k",),
    ),
    (("write_lat", "--clock", "virtual", "--lab", "tiny", "--set", "iterations=2"),),
)
#: Turns of every run; the median counts.
TURNS = scaled(1, 1)
#: How often memory is looked at, s.
EVERY_S = 0.5
#: `prctl` option: orphans of this process become its children, so that their CPU time counts.
_SUBREAPER = 36


def measure(*arguments: str) -> dict[str, Any]:
    """Plan and do a run; return CPU seconds, wall seconds and bytes of both."""
    from mrc_studies.estimates.yardstick import Watch

    ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)
    planned = json.loads(_mrclab("plan", *arguments, "--json"))
    before, began = _cpu(), time.monotonic()
    with Peak() as peak, Watch() as watch, tempfile.TemporaryDirectory() as folder:
        _mrclab(*_run(arguments), "--json", "-o", f"{folder}/results")
        wall = time.monotonic() - began
        while True:
            try:
                os.wait()
            except ChildProcessError:
                break
    return {
        "predicted": {
            "cpu": planned["cpu_seconds"],
            "wall": planned["wall_seconds"],
            "memory": planned["memory_bytes"],
        },
        "measured": {"cpu": _cpu() - before, "wall": wall, "memory": peak.bytes},
        "slower": watch.slowness / planned["machine"]["slowness"],
    }


def _run(arguments: Sequence[str]) -> tuple[str, ...]:
    """Return the verb and arguments that do a run."""
    from mrc_scale.clusterfile import builtin_clusters

    return ("scale" if arguments[0] in builtin_clusters() else "run", *arguments)


def _mrclab(*arguments: str) -> str:
    """Return what a command prints; a run whose checks fail has run as well."""
    command = [sys.executable, "-c", "from mrc_cli.entry import main; main()", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 1) or not done.stdout:
        raise RuntimeError(done.stderr)
    return done.stdout


def _cpu() -> float:
    """Return the CPU seconds of all processes below this one that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


class Peak:
    """A context that looks at the memory of all processes below this one; `bytes` is the largest sum."""

    def __init__(self) -> None:
        self.bytes = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> Peak:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._over.wait(EVERY_S):
            total = 0
            for each in psutil.Process().children(recursive=True):
                try:
                    # What processes share counts once.
                    total += each.memory_full_info().pss
                except psutil.Error:
                    continue  # it has ended
            self.bytes = max(self.bytes, total)


def run() -> None:
    """Print a line per run."""
    has_scale = importlib.util.find_spec("numba") is not None
    columns = ("CPU s", "predicted", "at its pace", "wall s", "predicted", "MiB", "predicted")
    print(f"{'run':<86}" + "".join(f"{column:>13}" for column in columns))
    for arguments in RUNS:
        if ("real" in arguments and os.geteuid()) or (arguments[0] == "cluster-131k" and not has_scale):
            continue
        turns = [measured("bench_plan", *arguments) for _ in range(TURNS)]
        cells = []
        for what, scale in (("cpu", 1.0), ("wall", 1.0), ("memory", 2.0**-20)):
            middle = statistics.median(each["measured"][what] for each in turns)
            ratio = statistics.median(each["predicted"][what] / each["measured"][what] for each in turns)
            cells += [f"{scale * middle:.{0 if what == 'memory' else 1}f}", f"{ratio:.2f}"]
            if what == "cpu":
                ratios = [each["slower"] * each["predicted"][what] / each["measured"][what] for each in turns]
                cells.append(f"{statistics.median(ratios):.2f}")
        print(f"{' '.join(arguments):<86}" + "".join(f"{cell:>13}" for cell in cells), flush=True)
