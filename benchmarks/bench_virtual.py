"""The virtual clock on the experiment lossy-link: CPU per data packet, of hosts and fabric; simulated s per CPU s.

Each figure is of a process of its own; interpreted and compiled (`python -m mrc_host.build`) take turns, and their
results must be equal to the byte. `hosts` is all that is neither the fabric's core nor the way to it: driver, nodes,
protocol, workloads. `whole` adds building the simulation, sampling, and imports, not the report.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable
from typing import Any

from benchmarks import scaled
from benchmarks.child import measured

EXPERIMENT = "lossy-link"
TURNS = scaled(2, 1)
#: Of simulated time; None: as long as the experiment says.
SECONDS: float | None = scaled(None, 0.01)


class Timed:
    """CPU seconds of this process in calls of a function, by every `each`-th one: to ask for the time costs, too."""

    def __init__(self, function: Callable[..., Any], each: int = 1) -> None:
        self.function = function
        self.each = each
        self.sampled = 0.0
        self.calls = 0

    def __call__(self, *arguments: Any) -> Any:
        self.calls += 1
        if self.calls % self.each:
            return self.function(*arguments)
        began = time.process_time()
        try:
            return self.function(*arguments)
        finally:
            self.sampled += time.process_time() - began

    @property
    def spent(self) -> float:
        """CPU seconds of all calls."""
        return self.sampled * self.each


def plain(value: Any) -> Any:
    """Return what JSON has no word for, as text that is equal for equal values."""
    return list(value) if isinstance(value, set | tuple) else repr(value)


def measure() -> dict[str, Any]:
    """One run in this process."""
    from mrclab.lab.requested import LabRequest
    from mrclab.lab.session.virtual import VirtualSession
    from mrclab.runs.execute import run_on
    from mrclab.runs.experiment import load_experiment
    from mrclab.runs.sessions import session_for

    experiment = load_experiment(EXPERIMENT)
    if SECONDS is not None:
        workload = experiment.workload.model_copy(update={"duration": SECONDS})
        experiment = experiment.model_copy(update={"workload": workload})
    with session_for(LabRequest.of(experiment.lab, experiment.transport, clock="virtual")) as session:
        assert isinstance(session, VirtualSession)
        driver = session.driver
        exchange = Timed(driver.fabric.exchange, each=37)
        driver.fabric.exchange = exchange  # type: ignore[method-assign, assignment]
        run = Timed(driver.run_until)
        session.driver = Driven(driver, run)  # type: ignore[assignment]
        result = run_on(session, experiment)
        simulated = session.now_ns() / 1e9
    assert not result.failures, result.failures
    document: dict[str, Any] = json.loads(json.dumps(result.document()))
    seen = json.dumps(
        [document[key] for key in ("happenings", "progress", "statistics")], default=plain, sort_keys=True
    )
    return {
        "packets": sum(
            qp["requestor"]["packets_sent"] for host in document["statistics"].values() for qp in host["qps"]
        ),
        "simulated": simulated,
        "clock": run.spent,
        "fabric": exchange.spent,
        "calls": exchange.calls,
        "whole": time.process_time(),
        "digest": hashlib.sha256(seen.encode()).hexdigest(),
    }


class Driven:
    """A driver whose `run_until` is timed; it may be compiled, and then nothing of it can be replaced."""

    def __init__(self, driver: Any, run_until: Timed) -> None:
        self._driver = driver
        self.run_until = run_until

    def __getattr__(self, name: str) -> Any:
        return getattr(self._driver, name)


def run() -> None:
    """Print the table."""
    from mrc_host import native

    kinds = {"interpreted": True} | ({"compiled": False} if native.COMPILED else {})
    runs: dict[str, list[dict[str, Any]]] = {kind: [] for kind in kinds}
    for _ in range(TURNS):
        for kind, pure in kinds.items():
            runs[kind].append(measured("bench_virtual", MRCLAB_PURE="1" if pure else "0"))
    best = {kind: min(found, key=lambda each: float(each["clock"])) for kind, found in runs.items()}
    print(f"{EXPERIMENT}, CPU, best of {TURNS} runs in turn")
    columns = ("data packets", "µs/packet", "hosts", "fabric", "calls to it", "simulated s / CPU s", "whole s")
    print(f"{'':<12}" + "".join(f"{column:>21}" for column in columns))
    for kind, each in best.items():
        per = 1e6 / each["packets"]
        cells = (
            f"{each['packets']}",
            f"{each['clock'] * per:.1f}",
            f"{(each['clock'] - each['fabric']) * per:.1f}",
            f"{each['fabric'] * per:.1f}",
            f"{each['calls']}",
            f"{each['simulated'] / each['clock']:.2f}",
            f"{each['whole']:.2f}",
        )
        print(f"{kind:<12}" + "".join(f"{cell:>21}" for cell in cells))
    if len(best) == 2:
        print(f"interpreted / compiled: {best['interpreted']['clock'] / best['compiled']['clock']:.2f}")
    else:
        print(f"not compiled: {native.WHY_NOT}")
    digests = {each["digest"] for found in runs.values() for each in found}
    print("results are equal" if len(digests) == 1 else f"RESULTS DIFFER: {digests}")
