"""The same experiments on everything that can forward a lab: p4lite, BMv2 (with either compiler's program), the kernel.

Real clock, lab bmv2-tiny; what is not installed is left out. MRCLAB_BMV2 and MRCLAB_P4C name BMv2 and p4c. The table is
Markdown, as `docs/explanation/backends.md` has it.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

from benchmarks import scaled
from mrc_topo.labfile import load_lab
from mrc_topo.units import format_duration_ms
from mrclab.lab import lifecycle
from mrclab.lab.requested import LabRequest
from mrclab.lab.session.base import Session
from mrclab.lab.session.fidelity import processes
from mrclab.lab.switches import forwarders
from mrclab.results import verdict
from mrclab.results.check import Verdict
from mrclab.results.expectation import Evidence, Expectation
from mrclab.results.record import RunResult
from mrclab.runs.execute import run_on
from mrclab.runs.experiment import Experiment, ExperimentStep, Workload
from mrclab.runs.sessions import session_for

LAB = "bmv2-tiny"
CHOICES = (("p4lite", "p4lite"), ("p4lite", "p4c"), ("bmv2", "p4lite"), ("bmv2", "p4c"), ("kernel", "p4lite"))[
    : scaled(None, 1)
]
STREAM = {"message_bytes": 1 << 16, "window": 3, "shift": 1}
SETTLE_S = 2.0


def failure(target: str, kind: str) -> list[ExperimentStep]:
    """Two seconds of a failure."""
    evidence = Evidence(ports_down=1) if kind == "port_down" else Evidence(dropped=1, evs_lost=1)
    return [ExperimentStep(at=2.0, fail=target, kind=kind, evidence=evidence), ExperimentStep(at=4.0, restore=target)]


def one_t1() -> list[ExperimentStep]:
    """Four seconds without the second T1 of each plane: two hosts share an uplink, which marks."""
    links = [f"p{plane}-t0.{t0}--p{plane}-t1.1" for plane in range(2) for t0 in range(2)]
    broken = [
        ExperimentStep(at=2.0, fail=link, kind="link_down", evidence=Evidence(dropped=1, evs_lost=1)) for link in links
    ]
    return [*broken, *(ExperimentStep(at=6.0, restore=link) for link in links)]


EXPERIMENTS = {
    "all-to-all, 6 × 20 kB": (Workload(name="all_to_all", params={"block_bytes": 20_000, "iterations": 6}), []),
    "ring all-reduce, 256 KiB": (Workload(name="ring_all_reduce", params={"size_bytes": 1 << 18}, duration=5.0), []),
    "permutation, link down": (
        Workload(name="permutation", params=STREAM, duration=6.5),
        failure("p0-t0.0--p0-t1.0", "link_down"),
    ),
    "permutation, NIC port down": (
        Workload(name="permutation", params=STREAM, duration=6.5),
        failure("h1:1", "port_down"),
    ),
    "permutation, T1 frozen": (
        Workload(name="permutation", params=STREAM, duration=6.5),
        failure("p1-t1.0", "freeze"),
    ),
    "permutation across, one T1 left": (
        Workload(name="permutation", params=STREAM | {"shift": 2, "window": 8}, duration=8.5),
        one_t1(),
    ),
    "incast, 3 to 1": (Workload(name="incast", params={"message_bytes": 1 << 16, "target": 0}, duration=5.0), []),
}
COLUMNS = ("experiment", "switch", "compiler", "verified", "goodput", "sent again", "marks", "trims", "after failure")
COSTS = ("wires or fabric", "switches", "agents", "valid", "verdict")


def measure(session: Session, workload: Workload, schedule: list[ExperimentStep]) -> list[str]:
    """Return the columns of one run."""
    # Several failures at one moment have no recovery each.
    alone = len({step.at for step in schedule}) == len(schedule) > 0
    expect = Expectation(valid=False, recovery=2.0) if alone else Expectation(valid=False)
    experiment = Experiment(name="forwarders", title="t", workload=workload, schedule=schedule, expect=expect)
    before = session.program_counters()
    result = run_on(session, experiment)
    counted = {key: value - before[key] for key, value in session.program_counters().items()}
    judged = verdict.judge(result, session.topology, expect, experiment.claims())
    return row(session, result, judged, counted)


def row(session: Session, result: RunResult, judged: Verdict, counted: Mapping[str, int]) -> list[str]:
    """As text."""
    lab, sums, fidelity = session.topology.lab, result.totals(), result.fidelity
    verified = sum(each.bytes_verified for each in result.progress.values())
    broken = next((each for each in judged.recoveries if each.breaks), None)
    after = ""
    if broken is not None:
        after = f"{broken.after:.0%} after {format_duration_ms(broken.recovery_s)}"
    switches = sum(each.cpu_share for each in fidelity.switches.values())
    return [
        f"{verified / 1e6:.2f} MB",
        f"{verified * 8 / result.seconds / (len(result.ranks) * lab.host_rate_bps):.0%}",
        str(sums["retransmissions"]),
        str(counted["marked"]),
        str(counted["trimmed"]),
        after,
        f"{fidelity.fabric.cpu_share:.2f}" if fidelity.fabric else "",
        f"{switches:.2f}" if fidelity.switches else "",
        f"{sum(processes(fidelity.hosts).values()):.2f}",
        "yes" if judged.valid else f"no: {judged.reasons[0]}",
        judged.status if judged.passed else "; ".join(each.what for each in judged.checks if not each.passed),
    ]


def run() -> None:
    """Print the table."""
    problem = lifecycle.problem()
    if problem is not None:
        print(f"forwarders: not run: {problem}")
        return
    rows: dict[str, list[list[str]]] = {name: [] for name in EXPERIMENTS}
    for switch, compiler in CHOICES:
        missing = forwarders.problem(forwarders.chosen(load_lab(LAB), switch, compiler))
        if missing is not None:
            print(f"{switch} with {compiler}: not run: {missing}", flush=True)
            continue
        with session_for(LabRequest.of(LAB, switch=switch, compiler=compiler, clock="real")) as session:
            for name, (workload, schedule) in list(EXPERIMENTS.items())[: scaled(None, 1)]:
                time.sleep(SETTLE_S)
                rows[name].append([name, switch, compiler, *measure(session, workload, schedule)])
                print(f"{switch} with {compiler}: {name}: {rows[name][-1][-1]}", flush=True)
    print(f"\n| {' | '.join((*COLUMNS, *COSTS))} |\n{'|---' * len((*COLUMNS, *COSTS))}|")
    for name in EXPERIMENTS:
        for each in rows[name]:
            print(f"| {' | '.join(each)} |")
