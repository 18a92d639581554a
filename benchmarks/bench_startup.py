"""What commands take beside simulated time: the parts of `mrclab run lossy-link`, and whole commands.

Each figure is CPU seconds of a process of its own, the median of a few; `wall` is what a user waits. Only `clock` grows
with simulated time. Each command has run before, so that Python finds the bytecode of all modules; without it, imports
take twice as long. The lab on the real clock needs namespaces; it is left out of smoke runs and where one is up.
"""

from __future__ import annotations

import contextlib
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any, cast

from benchmarks import scaled, smoke
from benchmarks.child import measured

EXPERIMENT, LAB = "lossy-link", "default"
TURNS = scaled(5, 1)
#: Of simulated time; None: as long as the experiment says.
SECONDS: float | None = scaled(None, 0.01)
#: Commands that do nothing long: what they take is their start.
SHORT = (*(["--version"], ["--help"], ["run", "--help"], ["list", "running"], ["list"], ["topo", "validate", LAB]),)
#: The parts of a run in their order, and what each is.
PARTS = {
    "start": "the interpreter, and what it imports of the command line",
    "lab": "reading and checking the experiment and its lab",
    "build": "fabric, P4 program and nodes",
    "tables": "table entries",
    "run": "the workload's commands, samples and events",
    "clock": "simulated time",
    "verdict": "checks",
    "files": "result, samples and events",
    "report": "report.html",
    "rest": "what is printed, and the end",
}


class Parts:
    """CPU seconds of this process by part; a part that begins inside another interrupts it."""

    def __init__(self) -> None:
        self.spent = dict.fromkeys(PARTS, 0.0)
        self._inside = ["rest"]
        self._since = time.process_time()
        self.spent["start"] = self._since

    def to(self, now: float) -> None:
        """Count the time until `now` to the part that runs."""
        self.spent[self._inside[-1]] += now - self._since
        self._since = now

    @contextlib.contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Count what happens meanwhile to a part."""
        self.to(time.process_time())
        self._inside.append(name)
        try:
            yield
        finally:
            self.to(time.process_time())
            self._inside.pop()

    def wrapped(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that counts to a part."""

        def counted(*arguments: Any, **named: Any) -> Any:
            with self.part(name):
                return function(*arguments, **named)

        return counted


class Driven:
    """A driver whose `run_until` is counted; it may be compiled, and then nothing of it can be replaced."""

    def __init__(self, driver: Any, run_until: Callable[..., Any]) -> None:
        self._driver = driver
        self.run_until = run_until

    def __getattr__(self, name: str) -> Any:
        return getattr(self._driver, name)


def measure() -> dict[str, float]:
    """One run in this process: CPU seconds by part."""
    parts = Parts()
    with parts.part("start"):
        from mrclab.cli import entry

        entry.seek_cycles_seldom()
        from mrclab.cli import app, run  # noqa: F401  # what the command imports before it does anything
    _count(parts)
    with tempfile.TemporaryDirectory(prefix="mrclab-bench-") as folder:
        sys.argv[1:] = ["run", EXPERIMENT, "--clock", "virtual", "-o", f"{folder}/results"]
        with contextlib.suppress(SystemExit):
            app.main()
        written = os.path.exists(f"{folder}/results/report.html")
    parts.to(time.process_time())
    assert written, "the run did not come to its report"
    return parts.spent


def _count(parts: Parts) -> None:
    """Have the steps of a run counted, each where the one before it looks it up."""
    from mrclab.cli import run
    from mrclab.lab.session import virtual
    from mrclab.results import report, resultdir, verdict
    from mrclab.runs import execute, precheck

    # `Any`: what is replaced is the modules' own business, and not exported.
    command, driving = cast(Any, run), cast(Any, virtual)
    load = command.load_experiment

    def loaded(name: str) -> Any:
        experiment = load(name)
        if SECONDS is None:
            return experiment
        workload = experiment.workload.model_copy(update={"duration": SECONDS})
        return experiment.model_copy(update={"workload": workload})

    def driver(*arguments: Any) -> Any:
        made = make(*arguments)
        return Driven(made, parts.wrapped("clock", made.run_until))

    make = driving.VirtualDriver
    places: list[tuple[Any, str, str]] = [
        (precheck, "requested_lab", "lab"),
        (virtual.VirtualSession, "__init__", "build"),
        (virtual.VirtualSession, "_refill", "tables"),
        (execute, "run_on", "run"),
        (verdict, "judge", "verdict"),
        (resultdir, "write", "files"),
        (report, "render", "report"),
    ]
    for owner, name, part in places:
        setattr(owner, name, parts.wrapped(part, getattr(owner, name)))
    command.load_experiment = parts.wrapped("lab", loaded)
    driving.VirtualDriver = driver


def command(bytecode: dict[str, str], *words: str) -> tuple[float, float]:
    """Run `mrclab` with these words; return its CPU seconds and what passed on the wall's clock.

    Raises:
        RuntimeError: it failed; with what it said.
    """
    before, began = _children(), time.monotonic()
    line = [sys.executable, "-c", "from mrclab.cli.entry import main; main()", *words]
    done = subprocess.run(line, env=os.environ | bytecode, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr)
    return _children() - before, time.monotonic() - began


def _children() -> float:
    """CPU seconds of all processes that this one has waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def run() -> None:
    """Print the tables."""
    with tempfile.TemporaryDirectory(prefix="mrclab-bench-") as folder:
        # Both variables are set, because either may be set otherwise where the benchmark runs.
        _tables({"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": folder})


def _tables(bytecode: dict[str, str]) -> None:
    measured("bench_startup", **bytecode)
    found = [measured("bench_startup", **bytecode) for _ in range(TURNS)]
    print(f"mrclab run {EXPERIMENT} --clock virtual, CPU s, median of {TURNS}")
    middle = {name: statistics.median(each[name] for each in found) for name in PARTS}
    for name, what in PARTS.items():
        print(f"  {name:<8} {middle[name]:>6.2f}  {what}")
    whole = sum(middle.values())
    print(f"  {'whole':<8} {whole:>6.2f}; without `run` and `clock` {whole - middle['run'] - middle['clock']:.2f}")
    print(f"{'command':<32} {'CPU s':>6} {'wall s':>7}")
    for words in SHORT:
        command(bytecode, *words)
        _print(words, [command(bytecode, *words) for _ in range(TURNS)])
    if not smoke():
        _lab(bytecode)


def _print(words: list[str], took: list[tuple[float, float]]) -> None:
    cpu, wall = (statistics.median(column) for column in zip(*took, strict=True))
    print(f"{'mrclab ' + ' '.join(words):<32} {cpu:>6.2f} {wall:>7.2f}", flush=True)


def _lab(bytecode: dict[str, str]) -> None:
    """Measure `mrclab up` and `mrclab down`; CPU is of the command alone, not of the lab that it starts."""
    from mrclab.lab import lifecycle

    problem = lifecycle.problem()
    if problem is not None or any(row["name"] == LAB for row in lifecycle.listing()):
        print(f"mrclab up {LAB}: not run: {problem or 'a lab of this name is up'}")
        return
    up, down = [], []
    for _ in range(TURNS + 1):
        up.append(command(bytecode, "up", LAB))
        down.append(command(bytecode, "down", LAB))
    # The first of each wrote the bytecode.
    _print(["up", LAB], up[1:])
    _print(["down", LAB], down[1:])
