"""What a run will take: its traffic, its CPU seconds by phase, its memory, and where this machine or the level ends."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass

import psutil

from mrc_lab import payloads
from mrc_lab.session import partition
from mrc_runs import precheck
from mrc_runs.experiment import Experiment
from mrc_studies.estimates import real
from mrc_studies.estimates.costs import Costs
from mrc_studies.estimates.traffic import Traffic, expected
from mrc_studies.estimates.work import PHASES, Work, work_of
from mrc_studies.estimates.yardstick import Pace
from mrc_topo.topology import Topology
from mrc_topo.units import format_rate, format_size

#: Of the CPU time, quantities that are named as what dominates.
DOMINANT = 4
#: The share of the available memory above which a run is in danger.
MEMORY_SHARE = 0.9
#: A run of a simulation that takes longer than this is named as long, s.
LONG_S = 3600.0
#: What each process of `--cores` takes: CPU seconds until it has started, its memory beside its hosts' as a share of a
#: whole command's, what exchanging packets adds to simulating, and what a round of exchanging costs (one busy run of
#: training-64 with two cores: a coarse value). A round is at least a look-ahead, the delay of a host's link.
PROCESS_ROUND_S = 130e-6
PROCESS_START_S, PROCESS_MEMORY, PROCESS_WORK = 0.6, 0.7, 0.15
#: The part of simulating that processes share; with all of it, n cores would take an nth of the time.
EFFICIENCY = 1.25
ASSUMPTIONS = (
    "traffic: the workload's own steps on links that lose nothing; MRC gets 96 % of them, RoCE 70 %",
    "failures of the schedule take their links' rates away; detection, repair and retransmissions are left out",
)


@dataclass(frozen=True)
class Machine:
    """This machine: cores that this process may use, memory, and its pace at present (`yardstick.Pace`)."""

    cores: int
    memory_available_bytes: int
    slowness: float
    waiting: float

    @classmethod
    def here(cls, pace: Pace) -> Machine:
        """Return this machine."""
        cores = len(os.sched_getaffinity(0))
        return cls(cores, psutil.virtual_memory().available, pace.slowness, pace.waiting)


@dataclass(frozen=True)
class Part:
    """A phase of a run and its CPU seconds."""

    name: str
    cpu_seconds: float


@dataclass(frozen=True)
class Share:
    """A quantity that takes a large share of a part's time: how many there are, and their CPU seconds."""

    part: str
    quantity: str
    count: float
    cpu_seconds: float


@dataclass(frozen=True)
class Estimate:
    """What a run will take.

    Attributes:
        name: of the experiment, workload or cluster.
        level: real clock, virtual clock or fluid.
        lab: its lab or cluster.
        hosts, switches: of the lab; `hosts` of a cluster are NICs.
        simulated_seconds: of the lab's clock.
        messages, data_packets, hops, payload_bytes: of the workload; `hops` are switches that data packets pass.
        goodput_bps: of all receivers together.
        extrapolated: the share of the traffic that was not replayed.
        parts: CPU seconds by phase; `cpu_seconds` is their sum.
        wall_seconds: where the machine is as busy as now.
        memory_bytes: the peak of the resident memory of all processes.
        cores: that the run keeps busy on average while the workload runs.
        dominates: what takes most of the time.
        fits: neither the memory nor the cores of this machine are too small for it.
        warnings: why it does not fit, or takes long, with a remedy.
        costs: where the costs come from.
        assumptions: in words.
    """

    name: str
    level: str
    lab: str
    hosts: int
    switches: int
    simulated_seconds: float
    messages: float
    data_packets: float
    hops: float
    payload_bytes: float
    goodput_bps: float
    extrapolated: float
    parts: list[Part]
    cpu_seconds: float
    wall_seconds: float
    memory_bytes: float
    cores: float
    dominates: list[Share]
    fits: bool
    warnings: list[str]
    costs: str
    assumptions: list[str]
    machine: Machine


@dataclass(frozen=True)
class _Found:
    """What follows from traffic and costs; the fields are those of `Estimate`."""

    parts: list[Part]
    wall: float
    memory: float
    cores: float
    dominates: list[Share]
    fits: bool
    warnings: list[str]
    costs: str


def estimate(experiment: Experiment, clock: str, costs: Costs, machine: Machine, cores: int = 1) -> Estimate:
    """Return what an experiment will take on a clock; nothing of it is run.

    Raises:
        LabError, ExperimentError, PayloadRefused: it could not be run either.
    """
    topology = precheck.requested_lab(experiment, trust_code=False).topology
    payloads.check(topology, clock, experiment.lab)
    precheck.check_steps(experiment, topology)
    fabric = topology.for_transport(experiment.transport)
    precheck.check_workload(
        experiment.workload,
        topology,
        experiment.transport,
        experiment.profiles,
        f"experiment {experiment.name}",
        memory=False,
    )
    traffic = expected(fabric, experiment.workload.spec(), experiment.transport, experiment.actions())
    work = work_of(experiment, fabric, traffic)
    if clock == "real":
        return _real(experiment, topology, traffic, work, costs, machine)
    return _virtual(experiment, topology, traffic, work, costs, machine, cores)


def _virtual(
    experiment: Experiment,
    topology: Topology,
    traffic: Traffic,
    work: Work,
    costs: Costs,
    machine: Machine,
    cores: int,
) -> Estimate:
    rows = {phase: costs.seconds(phase, work) for phase in PHASES}
    parts = [Part(phase, machine.slowness * sum(rows[phase].values())) for phase in PHASES]
    cpu = sum(part.cpu_seconds for part in parts)
    simulating = next(part.cpu_seconds for part in parts if part.name == "simulate")
    resident = costs.resident_bytes(work)
    memory = sum(resident.values())
    beside = 0.0
    processes = partition.processes(topology.lab, cores)
    if processes > 1:
        rounds = min(1e9 * traffic.seconds / topology.lab.links.host.delay, 2 * (traffic.packets + traffic.messages))
        each = PROCESS_START_S + PROCESS_ROUND_S * rounds
        more = machine.slowness * processes * each + PROCESS_WORK * simulating
        parts.append(Part("processes", more))
        # The fabric runs beside the hosts' processes, and no more than all cores are busy.
        share = EFFICIENCY / min(processes, machine.cores)
        beside = (simulating + more) * (1 - share) if share < 1 else 0.0
        cpu += more
        memory += processes * (PROCESS_MEMORY * resident["run"]) + resident["probe_targets"] * (processes - 1)
    warnings = memory_warnings(memory, machine, "use fewer hosts, smaller messages or fewer --cores")
    fits = not warnings
    if simulating > LONG_S:
        text = f"simulating takes {simulating / 3600:.1f} h of one core"
        warnings.append(
            f"{text}; shorten the run, or use the fluid model (mrclab scale) for what packets do not decide"
        )
    found = _Found(
        parts=parts,
        wall=(cpu - beside) * machine.waiting,
        memory=memory,
        cores=cpu / (cpu - beside),
        dominates=dominant(rows, work, machine.slowness),
        fits=fits,
        warnings=warnings,
        costs=costs.source,
    )
    return _made(experiment, topology, "virtual clock", traffic, found, machine)


def _real(
    experiment: Experiment, topology: Topology, traffic: Traffic, work: Work, costs: Costs, machine: Machine
) -> Estimate:
    needed = real.needs(topology, traffic, work, machine.slowness)
    report = machine.slowness * sum(costs.seconds("report", work).values())
    imports = machine.slowness * sum(costs.seconds("imports", work).values())
    parts = [
        Part("imports", imports),
        Part("start", needed.start_s),
        Part("agents", needed.agents_s),
        Part("fabric", needed.fabric_s),
        Part("report", report),
    ]
    warnings = memory_warnings(needed.memory_bytes, machine, "use fewer hosts, or --clock virtual")
    if needed.cores > real.FULL * machine.cores:
        most = needed.goodput_bps(topology) * real.FULL * machine.cores / needed.cores
        warnings.append(
            f"the real clock needs {needed.cores:.1f} cores for this rate and this machine has {machine.cores}: the "
            f"run will probably not be valid above some {format_rate(most)} of goodput; --clock virtual has no such "
            "limit"
        )
    found = _Found(
        parts=parts,
        wall=imports + needed.start_s + traffic.seconds + report * machine.waiting,
        memory=needed.memory_bytes,
        cores=needed.cores,
        dominates=[
            Share("agents", "packets", traffic.packets, needed.agents_s),
            Share("fabric", "packets", traffic.packets, needed.fabric_s),
        ],
        fits=not warnings,
        warnings=warnings,
        costs="rates of docs/measurements.md, scaled to this machine; CPU of the real clock is a coarse estimate",
    )
    return _made(experiment, topology, "real clock", traffic, found, machine)


def _made(
    experiment: Experiment, topology: Topology, level: str, traffic: Traffic, found: _Found, machine: Machine
) -> Estimate:
    return Estimate(
        name=experiment.name,
        level=level,
        lab=topology.lab.name,
        hosts=topology.lab.hosts,
        switches=len(topology.switches),
        simulated_seconds=traffic.seconds,
        messages=traffic.messages,
        data_packets=traffic.packets,
        hops=traffic.hops,
        payload_bytes=traffic.payload_bytes,
        goodput_bps=8 * traffic.payload_bytes / traffic.seconds if traffic.seconds else 0.0,
        extrapolated=traffic.extrapolated,
        parts=found.parts,
        cpu_seconds=sum(part.cpu_seconds for part in found.parts),
        wall_seconds=found.wall,
        memory_bytes=found.memory,
        cores=found.cores,
        dominates=found.dominates,
        fits=found.fits,
        warnings=found.warnings,
        costs=found.costs,
        assumptions=list(ASSUMPTIONS),
        machine=machine,
    )


def memory_warnings(needed: float, machine: Machine, remedy: str) -> list[str]:
    """Return a warning if a run needs more memory than this machine has available."""
    free = machine.memory_available_bytes
    if needed <= MEMORY_SHARE * free:
        return []
    return [f"the run needs {format_size(math.ceil(needed))}, this machine has {format_size(free)} available; {remedy}"]


def dominant(rows: dict[str, dict[str, float]], work: Work, slowness: float) -> list[Share]:
    """Return the quantities that take most of the time, the largest first."""
    shares = [
        Share(phase, name, float(getattr(work, name)), slowness * seconds)
        for phase, each in rows.items()
        for name, seconds in each.items()
        if name != "run"
    ]
    return sorted(shares, key=lambda each: -each.cpu_seconds)[:DOMINANT]
