"""A run on the virtual clock that measures itself: `python -m mrc_studies.estimates.child`, in a process of its own.

Its standard input is an `Order` as JSON, its standard output a `Spent`.
"""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from mrc_common import interruption
from mrc_common.errors import MrclabError
from mrc_common.plain import decode, encode
from mrc_studies.estimates.yardstick import Watch
from p4lite.scratch import scratch

#: A run of the calibration takes seconds.
PATIENCE_S = 600.0


class MeasureError(MrclabError):
    """A run that was to be measured failed; the text has its last line."""


@dataclass(frozen=True)
class Order:
    """The experiment to run, as its file has it, and the lab as a lab file's text; `turns`: end after this many."""

    experiment: Mapping[str, object]
    lab: str | None = None
    turns: int | None = None


@dataclass(frozen=True)
class Spent:
    """CPU seconds by phase (`mrc_studies.estimates.work`), the peak of the resident memory in bytes, and what was done:
    seconds of the lab's clock, data packets, messages, payload and iterations of the rank that has fewest.
    `slowness` is that of the machine meanwhile (`mrc_studies.estimates.yardstick`)."""

    cpu: dict[str, float]
    memory_bytes: int
    seconds: float
    packets: int
    messages: int
    payload_bytes: int
    iterations: int
    slowness: float = 1.0


def spent(order: Order) -> Spent:
    """Return what a run in a process of its own has spent.

    Raises:
        MeasureError: the run failed.
    """
    # It watches how busy the machine is meanwhile.
    watch = Watch()
    command = [sys.executable, "-P", "-m", "mrc_studies.estimates.child"]
    asked = json.dumps(encode(order))
    try:
        with watch:
            done = interruption.run(command, input=asked, timeout=PATIENCE_S)
    except subprocess.TimeoutExpired:
        raise MeasureError(f"a run that was to be measured took more than {PATIENCE_S:g} s; try again later") from None
    if done.returncode:
        last = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        raise MeasureError(f"a run that was to be measured failed: {last}")
    found = decode(Spent, json.loads(done.stdout.splitlines()[-1]))
    return dataclasses.replace(found, slowness=watch.slowness)


def command_seconds() -> float:
    """Return the CPU seconds of a command that runs next to nothing, imports included, on the reference machine.

    Raises:
        MeasureError: it failed.
    """
    code = "from mrc_cli.entry import main; main()"
    asked = ("run", "write_lat", "--lab", "tiny", "--clock", "virtual", "--set", "iterations=1", "--json")
    with scratch("plan") as folder, Watch() as watch:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        command = [sys.executable, "-P", "-c", code, *asked, "-o", f"{folder}/results"]
        done = interruption.run(command, timeout=PATIENCE_S)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise MeasureError(f"a run that was to be measured failed: {done.stderr.strip()}")
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return used / watch.slowness


def peak_bytes() -> int:
    """Return the peak of this process's resident memory since it was executed, in bytes."""
    # `ru_maxrss` would be the parent's where that was larger.
    for line in pathlib.Path("/proc/self/status").read_text(encoding="utf-8").splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise MeasureError("/proc/self/status: no VmHWM; memory is measured on Linux only")


class Stopwatch:
    """A view of a run that notes the CPU time at the end of each phase; it lets time pass as the session does."""

    def __init__(self, turns: int | None) -> None:
        self.at: dict[str, float] = {}
        self.turns = turns
        self._session: Any = None

    def note(self, phase: str) -> None:
        """Note that a phase has just ended."""
        self.at[phase] = time.process_time()

    def begin(self, session: Any, experiment: object, interrupted: Callable[[], object]) -> None:
        self._session = session
        self.note("start")

    def started(self, run: object) -> None:
        self.note("connect")

    def advance(self, seconds: float) -> None:
        self._session.advance(seconds)

    def observe(self, result: object) -> None:
        if self.turns is not None:
            self.turns -= 1
        self.note("simulate")

    def stop_asked(self) -> bool:
        return self.turns is not None and self.turns <= 0

    def closing(self) -> None:
        pass

    def end(self, judged: object) -> None:
        pass

    def phases(self) -> dict[str, float]:
        """Return the CPU seconds of each phase."""
        before, found = 0.0, {}
        for phase, until in self.at.items():
            found[phase], before = until - before, until
        return found


def _run(order: Order) -> Spent:
    from mrc_runs.execute import execute
    from mrc_runs.experiment import Experiment

    watch = Stopwatch(order.turns)
    with scratch("plan") as folder:
        document = dict(order.experiment)
        if order.lab is not None:
            place = pathlib.Path(folder) / "lab.yaml"
            place.write_text(order.lab, encoding="utf-8")
            document["lab"] = str(place)
        experiment = Experiment.model_validate(document)
        outcome = execute(
            experiment,
            "virtual",
            folder=pathlib.Path(folder) / "results",
            live=False,
            progress=lambda text: None if "imports" in watch.at else watch.note("imports"),
            view=watch,
        )
        watch.note("report")
    progress = outcome.result.progress.values()
    return Spent(
        watch.phases(),
        peak_bytes(),
        outcome.result.seconds,
        outcome.result.totals()["packets"],
        sum(each.requests_posted for each in progress),
        sum(each.bytes_sent for each in progress),
        outcome.result.achieved().least_iterations,
    )


def main() -> None:
    """Run what standard input orders."""
    print(json.dumps(encode(_run(decode(Order, json.load(sys.stdin))))), flush=True)
    # What is left to do is not measured.
    os._exit(0)


if __name__ == "__main__":
    main()
