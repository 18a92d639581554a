"""Signals at random moments: `PYTHONPATH=tests python -m support.lab.signals --moments 50`, seeded.

Each verb that takes long gets SIGINT or SIGTERM, by turns, at moments spread evenly over the time that it takes. It
must exit with 130 or 143, or have ended before; print no traceback; leave no process and no temporary file. A sweep
keeps no run that was interrupted, and the same command completes it.

Exit status: 0, 1 (something else happened), 2 (usage).
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import psutil

from mrclab.web import assets

COMMAND = [sys.executable, "-P", "-m", "mrclab.cli"]
#: A command that does not end within this time (s) after a signal has lost it.
PATIENCE_S = 300.0
#: Within this time (s) of a command's end its processes have ended, too.
LEAVE_S = 5.0
GENERATED = ("--set", "model=gpt3-6.7b", "--set", "data=64", "--set", "micro_batches=1")
RUN = ("write_bw", "--lab", "tiny", "--clock", "virtual", "--duration", "20")
#: Words of a verb, and the time (s) in which moments are; `OUT` stands for a folder, `PREPARED` for that of `PREPARE`.
VERBS: dict[str, tuple[tuple[str, ...], float]] = {
    "run": (("run", *RUN, "-o", "OUT"), 6.0),
    "sweep": (("sweep", "evs-failures", "-o", "OUT", "--workers", "0"), 10.0),
    "compare": (("compare", "mrc-vs-roce", "-o", "OUT"), 6.0),
    "figures": (("figures", "-o", "OUT"), 10.0),
    "validate": (("validate", "-o", "OUT"), 8.0),
    "scale": (("scale", "cluster-16k", "-o", "OUT"), 8.0),
    "chaos": (("chaos", "--clock", "virtual", "--lab", "tiny", "-o", "OUT"), 6.0),
    "perf": (("perf", "all_reduce", "--lab", "tiny", "--clock", "virtual"), 6.0),
    "conform": (("conform", "-o", "OUT"), 6.0),
    "replay": (("replay", "--lab", "training-64", *GENERATED, "-o", "OUT"), 2.5),
    "train": (("train", "--lab", "tiny", "--steps", "200", "-o", "OUT"), 25.0),
    "artifact": (("artifact", "check", "PREPARED/one.zip"), 6.0),
    "workshop": (("workshop", "check", "07", "PREPARED/exercise"), 11.0),
    "web": (("web", "--clock", "virtual", "--lab", "tiny", "--port", "0"), 6.0),
    "demo": (("demo", "--clock", "virtual", "-o", "OUT"), 6.0),
}
#: What a verb needs, made once by these commands.
PREPARE: dict[str, tuple[tuple[str, ...], ...]] = {
    "artifact": (
        ("run", *RUN, "-o", "PREPARED/one"),
        ("artifact", "pack", "PREPARED/one", "-o", "PREPARED/one.zip"),
    ),
    "workshop": (("workshop", "start", "07", "PREPARED/exercise"),),
}


def missing(verb: str) -> bool:
    """Return whether something that a verb needs is not installed."""
    needs = {"scale": ("numba", "pyarrow"), "train": ("torch",)}.get(verb, ())
    return (verb == "web" and bool(assets.missing())) or not all(map(importlib.util.find_spec, needs))


def prepare(verb: str, folder: pathlib.Path) -> tuple[str, ...]:
    """Make what a verb needs in a folder, and return the verb's words."""

    def placed(words: Sequence[str]) -> tuple[str, ...]:
        return tuple(word.replace("PREPARED", str(folder)) for word in words)

    for words in PREPARE.get(verb, ()):
        subprocess.run([*COMMAND, *placed(words)], check=True, capture_output=True)
    return placed(VERBS[verb][0])


@dataclass(frozen=True)
class Shot:
    """A signal to a command: when it came, how the command ended and how long (s) that took, and what was wrong."""

    at_s: float
    name: str
    code: int
    took_s: float
    wrong: str


def left_processes(session: int, temporary: pathlib.Path) -> list[str]:
    """Return the command lines of processes that outlive a command: those of its session, or with its temporary folder.

    Processes that are ending have LEAVE_S for it.
    """
    deadline = time.monotonic() + LEAVE_S
    while True:
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error, OSError):
                ours = os.getsid(process.pid) == session or process.environ().get("TMPDIR") == str(temporary)
                if ours and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(" ".join(process.cmdline())[:80])
        if not found or time.monotonic() > deadline:
            return found
        time.sleep(0.1)


def shoot(words: Sequence[str], at_s: float, number: int, folder: pathlib.Path) -> Shot:
    """Run a command, send it a signal at a moment, and return what came of it; files go to the folder."""
    temporary = folder / "tmp"
    temporary.mkdir(parents=True, exist_ok=True)
    command = [*COMMAND, *(str(folder / "out") if word == "OUT" else word for word in words)]
    environment = {**os.environ, "TMPDIR": str(temporary)}
    with (folder / "said").open("w+", encoding="utf-8") as said:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=said, stderr=said, env=environment, start_new_session=True
        )
        try:
            process.wait(at_s)
        except subprocess.TimeoutExpired:
            process.send_signal(number)
        begin, wrong = time.monotonic(), ""
        try:
            code = process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            code, wrong = process.wait(), f"did not end in {PATIENCE_S:g} s"
        took = time.monotonic() - begin
        alive = left_processes(process.pid, temporary)
        said.seek(0)
        text = said.read()
    # What ends while Python itself starts, before any module of ours, ends in Python's own way.
    early = "Traceback" in text and not any(f"/{name}" in text for name in ("mrc", "p4lite"))
    if not wrong and "Traceback" in text and not early:
        wrong = f"a traceback: {text[-300:]}"
    # Python itself does not handle SIGTERM, and a command that has begun nothing ends by it.
    if not wrong and not early and code not in (128 + number, -number, 0):
        wrong = f"exit {code}: {text[-300:]}"
    if not wrong and (left := [str(path) for path in temporary.rglob("*") if path.is_file() and path.name != ".lock"]):
        wrong = f"left {left[:3]}"
    if not wrong and alive:
        wrong = f"left processes {alive[:3]}"
    return Shot(at_s, signal.Signals(number).name, code, took, wrong)


def interrupted_runs(folder: pathlib.Path) -> list[str]:
    """Return the runs of a folder of sweeps or figures that are kept and tell of a signal."""
    found = sorted((folder / "runs").glob("*.json"))
    return [path.name for path in found if "interrupted by" in path.read_text(encoding="utf-8")]


def campaign(verb: str, moments: int, rng: random.Random) -> list[Shot]:
    """Return what came of signals to a verb at so many moments, the sweep's in one folder as a user has it."""
    span, shots = VERBS[verb][1], []
    with tempfile.TemporaryDirectory(prefix="mrclab-signals-") as name:
        words = prepare(verb, pathlib.Path(name))
        for number in range(moments):
            at = span * (number + rng.random()) / moments
            folder = pathlib.Path(name) if verb == "sweep" else pathlib.Path(name, str(number))
            shot = shoot(words, at, (signal.SIGINT, signal.SIGTERM)[number % 2], folder)
            if kept := interrupted_runs(folder / "out"):
                shot = Shot(shot.at_s, shot.name, shot.code, shot.took_s, f"kept {kept}")
            shots.append(shot)
    return shots


def main(arguments: Sequence[str]) -> int:
    """Run as the entry point; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m support.lab.signals")
    parser.add_argument("verbs", nargs="*", choices=[[], *VERBS], metavar="VERB", help=f"of {', '.join(VERBS)}")
    parser.add_argument("--moments", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args(arguments)
    # A shell lets what it starts in the background ignore SIGINT, and commands would inherit that until they begin.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    bad = False
    for verb in given.verbs or VERBS:
        if missing(verb):
            print(f"{verb}: not tried, because what it needs is not installed")
            continue
        shots = campaign(verb, given.moments, random.Random(f"{given.seed} {verb}"))
        codes = Counter(shot.code for shot in shots)
        slowest = max(shot.took_s for shot in shots if shot.code) if any(shot.code for shot in shots) else 0.0
        told = ", ".join(f"{count} times exit {code}" for code, count in sorted(codes.items()))
        print(f"{verb}: {told}; the slowest ended after {slowest:.1f} s", flush=True)
        for shot in shots:
            if shot.wrong:
                bad = True
                print(f"  {shot.name} at {shot.at_s:.2f} s: {shot.wrong}", flush=True)
    return int(bad)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
