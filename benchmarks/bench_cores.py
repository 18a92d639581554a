"""What `mrclab run --cores 2` gains: the experiment lossy-link with one and with two cores in turn, a process each.

`hosts` is the CPU of the thread in which the hosts are: no run is shorter than that, however many cores are free. Wall
time says something on a machine with two free cores only. Results must be equal.
"""

from __future__ import annotations

import json
import os
import time
from typing import Any

from benchmarks import scaled
from benchmarks.child import measured

EXPERIMENT, SECONDS, TURNS = "lossy-link", scaled(1.5, 0.01), scaled(2, 1)


def measure(cores: int) -> dict[str, Any]:
    """One run in this process; what is measured is while simulated time goes on."""
    from mrc_lab.session.base import closing
    from mrc_lab.session.virtual import VirtualSession
    from mrc_results.recording import Recording
    from mrc_runs.conduct import run_on
    from mrc_runs.experiment import load_experiment
    from mrc_topo.labfile import load_lab

    experiment = load_experiment(EXPERIMENT)
    workload = experiment.workload.model_copy(update={"duration": SECONDS})
    spent = {"wall": 0.0, "cpu": 0.0, "hosts": 0.0}
    clocks = (time.monotonic, time.process_time, time.thread_time)

    class Timed(VirtualSession):
        def advance(self, seconds: float) -> None:
            began = [clock() for clock in clocks]
            super().advance(seconds)
            for name, clock, before in zip(spent, clocks, began, strict=True):
                spent[name] += clock() - before

    session = Timed(load_lab(experiment.lab), experiment.transport, cores)
    with closing(session), Recording() as recording:
        result = run_on(session, experiment.model_copy(update={"workload": workload}), None, recording)
        document = result.document()
    return {**spent, "results": json.dumps([document["progress"], document["statistics"]], sort_keys=True, default=str)}


def run() -> None:
    """Print a line per run, and what follows."""
    hosts: dict[int, list[float]] = {1: [], 2: []}
    results = set()
    for _ in range(TURNS):
        for cores in hosts:
            found = measured("bench_cores", cores)
            hosts[cores].append(found["hosts"])
            results.add(found["results"])
            numbers = ", ".join(f"{name} {found[name]:.2f} s" for name in ("wall", "cpu", "hosts"))
            print(f"{cores} cores: {numbers}; load {os.getloadavg()[0]:.1f}")
    equal = "equal" if len(results) == 1 else "NOT EQUAL"
    print(f"results {equal}; at most {min(hosts[1]) / min(hosts[2]):.2f} times as fast with two free cores")
