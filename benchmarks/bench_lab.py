"""Verified goodput of the default lab on the real clock, by link rate, until the machine no longer keeps up.

One ring all-reduce per rate; a run counts when every byte was right and the run's own fidelity calls it
valid. The last columns say what limits it: the CPU of the fabric process and of the eight agents, in cores.
"""

from __future__ import annotations

import pathlib
import tempfile

import yaml

from mrc_control.lab import lifecycle
from mrc_control.results import analysis, verdict
from mrc_control.results.expectation import Expectation
from mrc_control.runs.execute import run_on, session_for
from mrc_control.runs.experiment import Experiment, Workload
from mrc_control.session.fidelity import processes
from mrc_topo.labfile import builtin_labs

RATES_MBPS = (10, 15, 20, 25, 30, 40)
SECONDS = 6.0
SIZE_BYTES = 4 << 20


def measure(folder: pathlib.Path, rate_mbps: int) -> tuple[float, float, bool, str, float, float]:
    """Goodput and capacity in Mb/s, whether the run is valid and why not, cores of the fabric and of all agents."""
    document = yaml.safe_load(builtin_labs()["default"].read_text())
    for kind in ("host", "fabric"):
        document["links"][kind]["rate"] = f"{rate_mbps}Mbps"
    path = folder / "default.yaml"
    path.write_text(yaml.safe_dump(document))
    workload = Workload(name="ring_all_reduce", params={"size_bytes": SIZE_BYTES}, duration=SECONDS)
    experiment = Experiment(name="bench", title="bench", lab=str(path), workload=workload, expect=Expectation())
    with session_for(str(path), "real", "mrc") as session:
        result = run_on(session, experiment).document()
        judged = verdict.judge(result, session.topology, experiment.expect, experiment.claims())
        capacity = session.topology.lab.host_rate_bps * len(result["ranks"]) / 1e6
    edges = analysis.grid(result)
    # The first and the last moments are not steady.
    goodput = float(analysis.goodput_bps(result, edges)[5:-10].mean()) / 1e6
    missed = [check.what for check in judged.checks if not check.passed]
    fidelity = result["fidelity"]
    agents = sum(processes(fidelity["hosts"]).values())
    reason = judged.reasons[0] if judged.reasons else ", ".join(missed)
    return goodput, capacity, not missed, reason, fidelity["fabric"]["cpu_share"], agents


def run() -> None:
    """Prints the table; stops two rates after the last valid one."""
    problem = lifecycle.problem()
    if problem is not None:
        print(f"lab: not run: {problem}")
        return
    print("default lab, ring all-reduce of 4 MiB on 8 hosts, real clock")
    print(f"{'rate of a link':>14}  {'goodput':>12}  {'of capacity':>11}  {'fabric':>6}  {'agents':>6}  valid")
    failed = 0
    with tempfile.TemporaryDirectory(prefix="mrclab-bench-") as folder:
        for rate in RATES_MBPS:
            goodput, capacity, valid, reason, fabric, agents = measure(pathlib.Path(folder), rate)
            print(
                f"{rate:>9} Mb/s  {goodput:>7.0f} Mb/s  {goodput / capacity:>11.0%}  {fabric:>6.2f}  {agents:>6.2f}  "
                + ("yes" if valid else f"no: {reason}"),
                flush=True,
            )
            failed += not valid
            if failed == 2:
                break
