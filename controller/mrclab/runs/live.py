"""The live view of a run: progress and remaining time, goodput, load of the planes, EV states, what happened last."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from types import TracebackType

from rich.console import Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from mrc_host.workloads import WORKLOADS
from mrc_topo.topology import Topology
from mrc_topo.units import format_rate
from mrclab.results.analysis import goodput_before
from mrclab.results.counted import achieved
from mrclab.results.record import RunResult
from mrclab.results.terminal import Terminal
from mrclab.runs.workload import WorkloadSpec

#: Seconds of a minute, and of an hour.
MINUTE, HOUR = 60, 3600


def duration_text(seconds: float) -> str:
    """Return a duration as text: `4.2 s`, `43 s`, `12 min`, `3.5 h`."""
    if seconds < 2 * MINUTE:
        return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"
    return f"{seconds / MINUTE:.0f} min" if seconds < 2 * HOUR else f"{seconds / HOUR:.1f} h"


class Remaining:
    """The remaining time of a run, from the share of its duration or of its iterations that has passed.

    Args:
        spec: the workload that runs.
        clock: returns seconds of wall time.
    """

    def __init__(self, spec: WorkloadSpec, clock: Callable[[], float] = time.monotonic) -> None:
        self._duration_s = spec.duration_s
        params = WORKLOADS[spec.workload].complete(spec.params)
        self._iterations = params.iterations
        self._clock = clock
        #: Wall time and share at the first observation: what came before, as connecting, is no part of the pace.
        self._first: tuple[float, float] | None = None
        #: The share that has passed, 0 to 1, and the seconds that remain (None: not known yet).
        self.share = 0.0
        self.seconds: float | None = None

    def observe(self, result: RunResult) -> None:
        """Take the result so far."""
        if self._duration_s is not None:
            last = result.recording.fabric.last
            elapsed = (last["t_ns"] - result.started_ns) / 1e9 if last else 0.0
            share = elapsed / self._duration_s if self._duration_s else 1.0
        else:
            done = achieved(result.progress.values()).least_iterations
            share = done / self._iterations
        self.share = min(max(share, 0.0), 1.0)
        now = self._clock()
        if self._first is None:
            self._first = (now, self.share)
        began, before = self._first
        gained = self.share - before
        self.seconds = (now - began) * (1 - self.share) / gained if gained > 0 else None

    def text(self) -> str:
        """Return both as text: `42 %, 12 s remain`."""
        if self.share >= 1:
            return "100 %, finishing"
        remains = "remaining time not known yet" if self.seconds is None else f"{duration_text(self.seconds)} remain"
        return f"{100 * self.share:.0f} %, {remains}"


BARS = " ▁▂▃▄▅▆▇█"
WIDTH = 60
EVENTS = 8
WINDOW_NS = 300_000_000


def bar(share: float, width: int = 30) -> str:
    """Return a horizontal bar."""
    full = min(max(share, 0.0), 1.0) * width
    return "█" * int(full) + (BARS[int(full % 1 * 8)] if full < width else "")


class LiveView:
    """Observes a run; a context manager. Where output is not a terminal it prints a line when something happens."""

    def __init__(self, topology: Topology, spec: WorkloadSpec, console: Terminal | None = None) -> None:
        self.topology = topology
        self.remaining = Remaining(spec)
        self.console = console or Terminal(stderr=True)
        self.history: deque[float] = deque(maxlen=WIDTH)
        self._shown = 0
        self._result: RunResult | None = None
        self._live = Live(console=self.console, refresh_per_second=8, transient=True, get_renderable=self._render)

    def __enter__(self) -> LiveView:
        if self.console.is_terminal:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.console.is_terminal:
            self._live.stop()

    def __call__(self, result: RunResult) -> None:
        """Take the result so far."""
        self._result = result
        self.remaining.observe(result)
        rate = self._rate(result, "delivered_bytes")
        self.history.append(rate)
        if not self.console.is_terminal:
            times = [result.since_start(each.done_ns) for each in result.happenings]
            for number, happening in enumerate(result.happenings[self._shown :], self._shown):
                before = goodput_before(result, times[: number + 1])
                was = "" if before is None else f"; goodput was {format_rate(before)}"
                self.console.print(f"{times[number]:6.2f} s  {happening.action.describe()}{was}")
            self._shown = len(result.happenings)

    @staticmethod
    def _rate(result: RunResult, column: str) -> float:
        """Return the rate over the last `WINDOW_NS` of samples, summed over hosts, bit/s."""
        total = 0.0
        for samples in result.recording.recent.values():
            if len(samples) < 2:
                continue
            last = samples[-1]
            first = next((each for each in reversed(samples) if last["t_ns"] - each["t_ns"] >= WINDOW_NS), samples[0])
            total += 8e9 * (last[column] - first[column]) / max(last["t_ns"] - first["t_ns"], 1)
        return total

    def _render(self) -> RenderableType:
        result = self._result
        if result is None:
            return Text("starting")
        lab = self.topology.lab
        capacity = lab.host_rate_bps * len(result.ranks)
        top = max([*self.history, 1.0])
        spark = "".join(BARS[min(int(value / top * 8), 8)] for value in self.history)
        fabric = result.recording.fabric.last
        elapsed = (fabric["t_ns"] - result.started_ns) / 1e9 if fabric else 0.0
        iterations = result.achieved().least_iterations
        head = Text(f"{elapsed:6.1f} s   goodput {format_rate(self.history[-1])}   iterations {iterations}\n")
        head.append(spark, style="green")
        planes = Table.grid(padding=(0, 1))
        share = capacity / lab.planes
        for plane in range(lab.planes):
            rate = self._rate(result, f"tx_bytes.{plane}")
            planes.add_row(f"plane {plane}", Text(bar(rate / share), style="blue"), format_rate(rate))
        states: dict[str, int] = {}
        for samples in result.recording.recent.values():
            for column, count in samples[-1].items():
                if column.startswith("ev."):
                    state = column.removeprefix("ev.")
                    states[state] = states.get(state, 0) + count
        evs = Text("EVs: " + "   ".join(f"{state} {count}" for state, count in states.items()))
        log = Text()
        for happening in result.happenings[-EVENTS:]:
            at = result.since_start(happening.done_ns)
            broke = happening.fails
            log.append(f"{at:6.2f} s  {happening.action.describe()}\n", style="red" if broke else "green")
        passed = Table.grid(padding=(0, 1))
        passed.add_row(ProgressBar(total=1.0, completed=self.remaining.share, width=30), self.remaining.text())
        return Panel(Group(passed, head, planes, evs, log), title=f"{lab.name}: {result.workload}")
