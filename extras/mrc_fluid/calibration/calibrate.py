"""The model held against packets: the same scenarios on small fabrics, in simulated time by packets and as a fluid.

Both begin with the same EVs of the same queue pairs, as they are when something fails. Goodput, load per link, packets
lost, queue pairs that lost some and the time until that was over are put side by side, with what the model is off. What
the model takes from measurements is measured on other fabrics than those that it is held against (`LEARNED`).
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field

import numpy as np

from mrc_fluid import sources
from mrc_fluid.calibration.startup import StartupSampler
from mrc_fluid.clusterfile import Loaded, parse_cluster
from mrc_fluid.evs import Evs
from mrc_fluid.fabric import Floats
from mrc_fluid.jobs import Flows
from mrc_fluid.kernels import Kernels, workers
from mrc_fluid.run import ClusterRun
from mrc_fluid.schema import Calibration
from mrc_topo.base.errors import MrclabError
from mrc_topo.schema import Lab
from mrc_topo.topology import Topology
from mrclab.lab import describe
from mrclab.results.expectation import Evidence
from mrclab.results.verdict import LABELS
from mrclab.runs.experiment import ExperimentStep
from mrclab.studies.cells import measure
from mrclab.studies.cells.measure import Cell, Goodput, Measured, Rate, experiment
from mrclab.studies.engine import Answer, RunStatus, Show, Task, attempt, carry_out, processes

#: Seconds: what goes on before the failure, when goodput counts as settled after it, and until the end.
AT, SETTLED, LASTS = 0.8, 0.4, 2.4
#: A round trip holds 9 packets of a port; marks begin below NSCC's target delay, as they do in large fabrics.
QUEUES = {"limit": "96KiB", "ecn": {"kmin": "4KiB", "kmax": "16KiB"}, "trim": {"threshold": "64KiB"}}
PORT_BPS = 5_000_000
#: EVs of a queue pair in a plane.
EVS = 32
#: Errors that the model is meant to stay below.
GOODPUT, LOST = 0.05, 0.10


class CalibrationError(MrclabError):
    """A run of packets that says nothing; the text names scenario, seed and reason."""


@dataclass(frozen=True)
class CalibrationScenario:
    """A lab of two T0s with `per_t0` hosts each, of which each sends to one below the other T0, and what fails in it;
    `lanes` of a transceiver; `active` EVs in each plane of each of `qps` queue pairs per pair of hosts. `overloaded`:
    what is left is too little for all, so that packets are late enough to be taken for lost."""

    name: str
    t1s: int
    fail: str = ""
    kind: str = ""
    lanes: int | None = None
    qps: int = 1
    active: int = 16
    seeds: Sequence[int] = (1, 2, 3)
    planes: int = 4
    per_t0: int = 4
    overloaded: bool = False

    @property
    def of_port(self) -> bool:
        """Return whether NIC ports go down: no EV is blamed for that."""
        return self.fail.startswith("h") or self.lanes is not None


SCENARIOS = (
    CalibrationScenario("no failure, half as many T1s again as needed", 6),
    CalibrationScenario("no failure, as many T1s as needed", 4),
    CalibrationScenario("a T0-T1 link is cut", 6, "p0-t0.0--p0-t1.1"),
    CalibrationScenario("a T0-T1 link is cut, no T1 to spare", 4, "p0-t0.0--p0-t1.1", overloaded=True),
    CalibrationScenario("a T1 stops, 8 EVs active", 6, "p1-t1.2", "stop", qps=4, active=2),
    CalibrationScenario("a NIC port goes down", 6, "h0:1"),
    CalibrationScenario("a transceiver of four NIC links", 6, "p0-t0.0", "transceiver", 4),
)
#: From which `nic_share` is: nothing fails, and T1s are not short.
LEARNED = CalibrationScenario("two planes, three NICs per T0, five T1s", 5, seeds=(11, 12), planes=2, per_t0=3)


@dataclass
class ComparedValue:
    """A number of packets beside that of the model.

    `off`: the error, relative where `relative`, for numbers from which it does not follow.
    """

    scenario: str
    what: str
    packets: float
    model: float
    unit: str
    kind: str
    relative: bool = True
    off: float | None = None

    @property
    def error(self) -> float:
        """How far the model is off."""
        if self.off is not None:
            return self.off
        off = abs(self.model - self.packets)
        return off / abs(self.packets) if self.relative and self.packets else off


@dataclass(frozen=True)
class ScenarioResult:
    """What packets or the model say of a scenario with one seed. What does not apply is not a number.

    Goodput `before` and `after` the failure and `loads` of the uplinks are in bit/s. `lost`: packets lost to the
    failure; `taken`: all that were taken for lost; `evs`: found dead, the last after `found_s`; `hit`: share of the
    queue pairs that lost some.
    """

    before: float
    loads: Floats
    after: float = math.nan
    taken: float = math.nan
    lost: float = math.nan
    evs: float = math.nan
    found_s: float = math.nan
    hit: float = math.nan

    @property
    def load(self) -> float:
        """The load of an uplink on average."""
        return float(self.loads.mean())


@dataclass
class CalibrationResult:
    """All comparisons, and the largest error of a kind over all; `nic_share`: as measured on another fabric."""

    rows: list[ComparedValue] = field(default_factory=list)
    scenarios: int = 0
    nic_share: float = math.nan

    def worst(self, kind: str) -> float:
        """Return the largest error of a kind of number."""
        return max((row.error for row in self.rows if row.kind == kind), default=math.nan)

    def document(self) -> str:
        """Return what runs repeat (`mrc_fluid.caveat`)."""
        errors = {kind: round(self.worst(kind), 4) for kind in sorted({row.kind for row in self.rows} - {"elsewhere"})}
        rows = [{**asdict(row), "error": round(row.error, 4)} for row in self.rows]
        about = {
            "scenarios": self.scenarios, "nic_share": round(self.nic_share, 4),
            "sources": sources.digest(sources.STEADY),
        }  # fmt: skip
        return json.dumps({**about, **errors, "rows": rows}, indent=1) + "\n"


@dataclass(frozen=True)
class PacketsAnswer(Answer):
    """The outcome of a scenario with one seed by packets.

    Args:
        payload_share: of what links carry.
        used: share of the NIC ports' capacity that is used, where nothing else is a bottleneck.
        start: queue pairs and their EVs when something fails, from which the model begins.
    """

    result: ScenarioResult | None = None
    payload_share: float = math.nan
    used: float = math.nan
    start: tuple[Flows, Evs] | None = None


def calibrate(
    kernels: Kernels, show: Show = lambda progress: None,
    scenarios: Sequence[CalibrationScenario] = SCENARIOS, learned: CalibrationScenario = LEARNED,
) -> CalibrationResult:  # fmt: skip
    """Run all scenarios both ways, packets on all cores.

    Raises:
        CalibrationError: a run failed.
    """
    every = [(each, seed) for each in (learned, *scenarios) for seed in each.seeds]
    tasks = [Task(f"{each.name}, seed {seed}", f"{each.name}, seed {seed}", (each, seed)) for each, seed in every]
    done = carry_out(tasks, processes(perform, PacketsAnswer, workers()), show, workers())
    answers = dict(zip(every, done, strict=True))
    for (scenario, seed), answer in answers.items():
        if not answer.good:
            raise CalibrationError(f"{scenario.name}, seed {seed}: {answer.failure}")
    made = CalibrationResult(scenarios=len(scenarios))
    made.nic_share = float(np.mean([answers[learned, seed].used for seed in learned.seeds]))
    for scenario in scenarios:
        own = [(seed, answers[scenario, seed]) for seed in scenario.seeds]
        pairs = [(each.result, _model(scenario, seed, each, kernels)) for seed, each in own if each.result is not None]
        made.rows += _rows(scenario, pairs)
    return made


def _lab(scenario: CalibrationScenario, seed: int) -> Lab:
    link = {"rate": PORT_BPS, "delay": "2ms"}
    given = {
        "name": "calibration", "planes": scenario.planes, "t0_per_plane": 2, "t1_per_plane": scenario.t1s,
        "hosts": 2 * scenario.per_t0, "hosts_per_t0": scenario.per_t0, "links": {"host": link, "fabric": link},
        "path_mtu": 2048, "queues": QUEUES,
        "ev": {"size": EVS * scenario.planes, "active": scenario.active * scenario.planes}, "clock": "virtual",
        "seed": seed,
    }  # fmt: skip
    return Lab.model_validate(given)


def cell(scenario: CalibrationScenario, seed: int) -> Cell:
    """Return the run of packets."""
    params = {"message_bytes": 1 << 20, "window": 4, "shift": scenario.per_t0}
    workload = {"name": "permutation", "params": params, "duration": LASTS, "qps_per_peer": scenario.qps}
    schedule = []
    if scenario.fail:
        shown = Evidence(losses=1, evs_lost=None if scenario.of_port else 1)
        settings = {"count": scenario.lanes} if scenario.lanes else {}
        step = ExperimentStep(at=AT, fail=scenario.fail, kind=scenario.kind, settings=settings, evidence=shown)
        schedule.append(step)
    return Cell("run", _lab(scenario, seed), experiment(workload, schedule), watch=_uplinks(scenario))


def _uplinks(scenario: CalibrationScenario) -> list[str]:
    """Return the ports of the T0s towards the T1s, by plane, T0 and T1."""
    each = [(p, t, n) for p in range(scenario.planes) for t in range(2) for n in range(scenario.t1s)]
    return [f"p{p}-t0.{t}:{scenario.per_t0 + 1 + n}" for p, t, n in each]


def perform(work: tuple[CalibrationScenario, int]) -> PacketsAnswer:
    """Run a scenario with a seed by packets. Raises nothing except for a signal."""
    return attempt(lambda: _by_packets(*work), PacketsAnswer)


def _by_packets(scenario: CalibrationScenario, seed: int) -> PacketsAnswer:
    run = cell(scenario, seed)
    topology = measure.prepare(run)
    beginning = StartupSampler()
    packets = measure.measure(run, beginning.look)
    if packets.failures:
        return PacketsAnswer(RunStatus.FAILED, packets.failures[0])
    share = packets.payload_share or math.nan
    capacity = PORT_BPS * scenario.planes * 2 * scenario.per_t0
    used = float(_mean(packets.series, 0.3, LASTS - 0.1) / share / capacity)
    start = beginning.for_model(scenario.active, topology.lab.ev.min_active)
    return PacketsAnswer(RunStatus.GOOD, "", _packets(packets, scenario, topology, beginning), share, used, start)


def _mean(rows: Sequence[Goodput | Rate], begin: float, end: float) -> float:
    inside = [row.bps for row in rows if begin <= row.t_s < end]
    return float(np.mean(inside)) if inside else math.nan


def _packets(
    result: Measured, scenario: CalibrationScenario, topology: Topology, beginning: StartupSampler
) -> ScenarioResult:
    series = result.series
    end = LASTS - 0.1
    until = AT if scenario.fail else end
    loads = np.array([_mean(result.watched[name], 0.3, until) for name in _uplinks(scenario)])
    before = _mean(series, 0.3, until - 0.05)
    if not scenario.fail:
        return ScenarioResult(before, loads)
    after = _mean(series, AT + SETTLED, end)
    taken = float(next(each.measured for each in result.evidence if each.what.endswith(LABELS["losses"])))
    if scenario.of_port:
        return ScenarioResult(before, loads, after, taken, float(beginning.lost_with_ports()))
    lost, evs = beginning.lost_across(topology, scenario.fail)
    return ScenarioResult(
        before, loads, after, taken, float(lost), float(evs), result.found_s, result.qps_hit / result.qps
    )


def _cluster(scenario: CalibrationScenario, seed: int, topology: Topology) -> Loaded:
    rtt = describe.base_rtt_ns(topology, "virtual")
    planes = scenario.planes
    failure = {"at": "500ms", "fail": scenario.fail} | ({"lanes": scenario.lanes} if scenario.lanes else {})
    document = {
        "name": "calibration", "planes": planes, "radix": 16, "nics": 2 * scenario.per_t0,
        "nics_per_t0": scenario.per_t0, "t1_per_plane": scenario.t1s, "port_rate": PORT_BPS, "base_rtt": rtt,
        "path_mtu": 2048, "ev": {"size": planes, "active": planes, "min_active": planes}, "duration": "1s",
        "seed": seed, "jobs": [{"name": "permutation", "kind": "ring"}], "bin": "500ms",
        "model": {"trim_rtts": describe.trim_rtts(topology, PORT_BPS, rtt)},
        "failures": [failure] if scenario.fail else [],
    }  # fmt: skip
    return parse_cluster(json.dumps(document), "<calibration>")


def _model(scenario: CalibrationScenario, seed: int, packets: PacketsAnswer, kernels: Kernels) -> ScenarioResult:
    """Return what the model says, from where packets began."""
    assert packets.start is not None
    every, evs = packets.start
    loaded = _cluster(scenario, seed, measure.prepare(cell(scenario, seed)))
    run = ClusterRun(loaded, kernels, every=every, evs=evs)
    run.payload = packets.payload_share
    result = run.mrc()
    loads = result.first.up.ravel() * loaded.shape.fabric_bps
    before = result.steps[0]
    if not scenario.fail:
        return ScenarioResult(before.goodput, loads)
    after = result.steps[1]
    dead = float(after.evs["bad"] - before.evs["bad"])
    return ScenarioResult(
        before.goodput, loads, after.goodput,
        lost=after.lost, evs=dead, found_s=after.found_s, hit=after.hit / len(every),
    )  # fmt: skip


def _rows(scenario: CalibrationScenario, found: Sequence[tuple[ScenarioResult, ScenarioResult]]) -> list[ComparedValue]:
    """Return the means over the seeds."""

    def row(
        what: str,
        of: Callable[[ScenarioResult], float],
        unit: str,
        kind: str,
        scale: float = 1.0,
        relative: bool = True,
    ) -> ComparedValue:
        packets, model = (float(np.mean([of(way) for way in ways])) for ways in zip(*found, strict=True))
        return ComparedValue(scenario.name, what, packets * scale, model * scale, unit, kind, relative)

    if not scenario.fail:
        apart = float(np.mean([np.abs(one.loads - other.loads).mean() / one.load for one, other in found]))
        spread = [float(np.mean([way.loads.std() for way in ways])) / 1e6 for ways in zip(*found, strict=True)]
        name = "deviation of uplinks' loads; off: a link's load on average"
        return [
            row("goodput", lambda way: way.before, "Mb/s", "goodput", 1e-6),
            row("load of an uplink", lambda way: way.load, "Mb/s", "load", 1e-6),
            ComparedValue(scenario.name, name, spread[0], spread[1], "Mb/s", "links", True, apart),
        ]
    kind = ", overloaded" if scenario.overloaded else ""
    rows = [
        row("goodput before", lambda way: way.before, "Mb/s", "goodput", 1e-6),
        row("goodput settled after it", lambda way: way.after, "Mb/s", "goodput", 1e-6),
        row("data packets lost to it", lambda way: way.lost, "", f"lost{kind}"),
    ]
    if scenario.of_port:
        return rows
    others = float(np.mean([packets.taken - packets.lost for packets, _ in found]))
    return [
        *rows,
        row("EVs found dead", lambda way: way.evs, "", f"evs{kind}"),
        row("queue pairs that lost", lambda way: way.hit, "%", "hit", 100, False),
        row("until the last EV was found", lambda way: way.found_s, "ms", f"found{kind}", 1e3),
        ComparedValue(scenario.name, "packets taken for lost elsewhere meanwhile", others, 0.0, "", "elsewhere", False),
    ]


def in_use() -> float:
    """Return the share of a NIC's port that runs reckon with."""
    return Calibration().nic_share
