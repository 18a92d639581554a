"""Verified goodput of labs on the real clock, by link rate: up to what the machine keeps up with, and beyond.

One ring all-reduce per rate on the default lab; a run counts when every byte was right and the run's own fidelity calls
it valid. Beside goodput stands what limits it: CPU of the agents and of the fabric's process, per data packet and in
cores. The last lines tell what is left of the goodput at twice the highest valid rate, and how the large lab does.
"""

from __future__ import annotations

import os
import pathlib
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass

import yaml

from benchmarks import scaled, smoke
from mrc_topo.labfile import at_rate, load_lab
from mrclab.lab import lifecycle
from mrclab.lab.requested import LabRequest
from mrclab.lab.session.fidelity import processes
from mrclab.lab.session.real import RealSession
from mrclab.results import verdict
from mrclab.results.expectation import Expectation
from mrclab.runs.execute import run_on
from mrclab.runs.experiment import Experiment, Workload
from mrclab.runs.sessions import session_for

RATES_MBPS = scaled((10, 20, 30, 35, 40, 45, 50, 60, 70, 80), (10,))
SECONDS = scaled(5.0, 1.0)
SIZE_BYTES = 4 << 20
LARGE_SECONDS = 10.0


@dataclass(frozen=True)
class Row:
    """One run: Mb/s of all hosts and of their links, CPU in cores, data packets per second, seconds to come up."""

    goodput: float
    capacity: float
    valid: bool
    reason: str
    fabric: float
    agents: float
    packets: float
    up_s: float
    host_bytes: float

    def text(self) -> str:
        """Its columns."""
        costs = [1e6 * cores / max(self.packets, 1) for cores in (self.agents, self.fabric)]
        load = os.getloadavg()[0]
        return (
            f"{self.goodput:>7.0f} Mb/s  {self.goodput / self.capacity:>11.0%}  "
            f"{self.agents:>6.2f}  {self.fabric:>6.2f}  {costs[0]:>9.1f}  {costs[1]:>9.1f}  {load:>5.2f}  "
            + ("yes" if self.valid else f"no: {self.reason}")
        )


def measure(lab: str, seconds: float, size_bytes: int) -> Row:
    """Measure a ring all-reduce on a lab that is brought up for it."""
    workload = Workload(name="ring_all_reduce", params={"size_bytes": size_bytes}, duration=seconds)
    experiment = Experiment(name="bench", title="bench", lab=lab, workload=workload, expect=Expectation())
    began = time.monotonic()
    with session_for(LabRequest.of(lab, clock="real")) as session:
        assert isinstance(session, RealSession)
        up_s = time.monotonic() - began
        result = run_on(session, experiment)
        memory = sum(agent.memory_bytes for agent in session.agents())
        judged = verdict.judge(result, session.topology, experiment.expect, experiment.claims())
        capacity = session.topology.lab.host_rate_bps * len(result.ranks) / 1e6
    edges = result.grid()
    # The first and the last moments are not steady.
    goodput = float(result.goodput_bps(edges)[5:-10].mean()) / 1e6
    missed = [check.what for check in judged.checks if not check.passed]
    hosts, fabric = result.fidelity.hosts, result.fidelity.fabric
    wall_s = max(host.wall_ns for host in hosts.values()) / 1e9
    sent = [qp.requestor["packets_sent"] for qp in result.queue_pairs().values()]
    return Row(
        goodput,
        capacity,
        not missed,
        judged.reasons[0] if judged.reasons else ", ".join(missed),
        0.0 if fabric is None else fabric.cpu_share,
        sum(processes(hosts).values()),
        sum(sent) / wall_s,
        up_s,
        memory / len(hosts),
    )


def series(at: Callable[[int], Row]) -> dict[int, Row]:
    """Rows by rate, each printed: all rates until three in a row are not valid, then twice the highest that was."""
    rows: dict[int, Row] = {}

    def add(rate: int) -> None:
        rows[rate] = at(rate)
        print(f"{rate:>9} Mb/s  {rows[rate].text()}", flush=True)

    failed = 0
    for rate in RATES_MBPS:
        add(rate)
        failed = 0 if rows[rate].valid else failed + 1
        if failed == 3:
            break
    valid = [rate for rate in rows if rows[rate].valid]
    if not valid:
        print("at no rate did this machine keep up")
        return rows
    highest = max(valid)
    if smoke():
        return rows
    if 2 * highest not in rows:
        add(2 * highest)
    kept = rows[2 * highest].goodput / rows[highest].goodput
    print(f"highest valid rate: {highest} Mb/s; at twice that {kept:.0%} of its goodput")
    return rows


def run() -> None:
    """Print the tables."""
    problem = lifecycle.problem()
    if problem is not None:
        print(f"lab: not run: {problem}")
        return
    lab = load_lab("default").lab
    print("default lab, ring all-reduce of 4 MiB on 8 hosts, real clock")
    print(f"{'':>14}  {'':>12}  {'':>11}  {'CPU, cores':>14}  {'µs a data packet':>20}  load of")
    print(
        f"{'rate of a link':>14}  {'goodput':>12}  {'of capacity':>11}  {'agents':>6}  {'fabric':>6}  {'agents':>9}  "
        f"{'fabric':>9}  {'1 min':>5}  valid"
    )
    with tempfile.TemporaryDirectory(prefix="mrclab-bench-") as folder:
        path = pathlib.Path(folder) / "default.yaml"

        def at(rate_mbps: int) -> Row:
            document = at_rate(lab, rate_mbps * 10**6)
            document["cc"]["max_wnd"] = None  # the lab's is for its own rate; without one it follows the rate
            path.write_text(yaml.safe_dump(document))
            return measure(str(path), SECONDS, SIZE_BYTES)

        series(at)
    if smoke():
        return
    large = load_lab("large")
    ranks = len(large.hosts)
    row = measure("large", LARGE_SECONDS, SIZE_BYTES // (4 * ranks) * 4 * ranks)
    took = f"up in {row.up_s:.1f} s, {row.host_bytes / 1e6:.0f} MB a host"
    print(f"large lab, {ranks} hosts, {large.lab.planes} planes: {took}")
    print(f"{large.lab.links.host.rate / 1e6:>9.0f} Mb/s  {row.text()}")
