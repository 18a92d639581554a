"""What `mrclab run --cores 2` gains: with one and with two cores in turn, a process each.

`lossy-link` has 8 hosts, which stay in one process; the permutation of 64 hosts at 100 Gb/s has two processes of 32.
`thread` is the CPU of the thread that conducts the run. Wall time says something on a machine with two free cores only.
Results must be equal.
"""

from __future__ import annotations

import json
import os
import time
from typing import Any

import psutil

from benchmarks import scaled
from benchmarks.child import measured

SECONDS, MESSAGES, TURNS = scaled(1.5, 0.01), scaled(10, 1), scaled(2, 1)
LAB = """
name: sixty-four
planes: 2
t0_per_plane: 8
t1_per_plane: 8
hosts: 64
hosts_per_t0: 8
max_oversubscription: 1
links:
  host: {rate: 100Gbps, delay: 1us}
  fabric: {rate: 100Gbps, delay: 1us}
path_mtu: 4096
ev: {size: 128, active: 64}
"""
CASES = ("lossy-link", "permutation of 64 hosts")


def measure(case: str, cores: int) -> dict[str, Any]:
    """One run in this process; what is measured is while simulated time goes on."""
    from mrc_lab.session.base import closing
    from mrc_lab.session.virtual import VirtualSession
    from mrc_results.recording import Recording
    from mrc_runs.conduct import run_on
    from mrc_runs.experiment import Experiment, Workload, load_experiment
    from mrc_topo.labfile import load_lab, parse_lab

    if case == CASES[0]:
        loaded = load_experiment(case)
        experiment = loaded.model_copy(update={"workload": loaded.workload.model_copy(update={"duration": SECONDS})})
        topology = load_lab(experiment.lab)
    else:
        workload = Workload(name="permutation", params={"message_bytes": 1 << 20, "iterations": MESSAGES})
        experiment = Experiment(name="permutation", title=case, lab="sixty-four", workload=workload)
        topology = parse_lab(LAB, "sixty-four")
    spent = {"wall": 0.0, "cpu": 0.0, "thread": 0.0}
    clocks = (time.monotonic, cpu_of_all, time.thread_time)

    class Timed(VirtualSession):
        def advance(self, seconds: float) -> None:
            began = [clock() for clock in clocks]
            super().advance(seconds)
            for name, clock, before in zip(spent, clocks, began, strict=True):
                spent[name] += clock() - before

    session = Timed(topology, experiment.transport, cores)
    with closing(session), Recording() as recording:
        result = run_on(session, experiment, None, recording)
        document = result.document()
    return {**spent, "results": json.dumps([document["progress"], document["statistics"]], sort_keys=True, default=str)}


def cpu_of_all() -> float:
    """Return the CPU seconds of this process and of those that it started and that run."""
    own = psutil.Process()
    return sum(sum(each.cpu_times()[:2]) for each in [own, *own.children()])


def run() -> None:
    """Print a line per run, and what follows."""
    for case in CASES:
        best: dict[int, dict[str, Any]] = {}
        results = set()
        for _ in range(TURNS):
            for cores in (1, 2):
                found = measured("bench_cores", case, cores)
                if cores not in best or found["wall"] < best[cores]["wall"]:
                    best[cores] = found
                results.add(found["results"])
                numbers = ", ".join(f"{name} {found[name]:.2f} s" for name in ("wall", "cpu", "thread"))
                print(f"{case}, {cores} cores: {numbers}; load {os.getloadavg()[0]:.1f}")
        equal = "equal" if len(results) == 1 else "NOT EQUAL"
        print(f"{case}: results {equal}; {best[1]['wall'] / best[2]['wall']:.2f} times as fast with two cores")
