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
from typing import Any

import numpy as np

from mrc_lab import describe
from mrc_scale.clusterfile import Loaded, parse_cluster
from mrc_scale.kernels import Kernels
from mrc_scale.run import ClusterRun
from mrc_scale.schema import Calibration
from mrc_studies.calibration.beginning import Beginning
from mrc_studies.figures import measure
from mrc_studies.figures.model import Cell
from mrc_topo.topology import Topology

#: Seconds: what goes on before the failure, when goodput counts as settled after it, and until the end.
AT, SETTLED, LASTS = 0.8, 0.4, 2.4
#: A round trip holds 9 packets of a port; marks begin below NSCC's target delay, as they do in large fabrics.
QUEUES = {"limit": "96KiB", "ecn": {"kmin": "4KiB", "kmax": "16KiB"}, "trim": {"threshold": "64KiB"}}
PORT_BPS = 5_000_000
#: EVs of a queue pair in a plane.
EVS = 32
#: Errors that the model is meant to stay below.
GOODPUT, LOST = 0.05, 0.10


@dataclass(frozen=True)
class Scenario:
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
        """Whether NIC ports go down: nobody blames an EV for that."""
        return self.fail.startswith("h") or self.lanes is not None


SCENARIOS = (
    Scenario("no failure, half as many T1s again as needed", 6),
    Scenario("no failure, as many T1s as needed", 4),
    Scenario("a T0-T1 link is cut", 6, "p0-t0.0--p0-t1.1"),
    Scenario("a T0-T1 link is cut, no T1 to spare", 4, "p0-t0.0--p0-t1.1", overloaded=True),
    Scenario("a T1 stops, 8 EVs active", 6, "p1-t1.2", "stop", qps=4, active=2),
    Scenario("a NIC port goes down", 6, "h0:1"),
    Scenario("a transceiver of four NIC links", 6, "p0-t0.0", "transceiver", 4),
)
#: From which `nic_share` is: nothing fails, and T1s are not short.
LEARNED = Scenario("two planes, three NICs per T0, five T1s", 5, seeds=(11, 12), planes=2, per_t0=3)


@dataclass
class Compared:
    """A number of packets beside that of the model. `off`: by how much, relative where `relative`, where that does not
    follow from the two."""

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


@dataclass
class Calibrated:
    """All comparisons, and the largest error of a kind over all; `nic_share`: as measured on another fabric."""

    rows: list[Compared] = field(default_factory=list)
    scenarios: int = 0
    nic_share: float = math.nan

    def worst(self, kind: str) -> float:
        """The largest error of a kind of number."""
        return max((row.error for row in self.rows if row.kind == kind), default=math.nan)

    def document(self) -> str:
        """What runs repeat (`mrc_scale.caveat`)."""
        errors = {kind: round(self.worst(kind), 4) for kind in sorted({row.kind for row in self.rows} - {"elsewhere"})}
        rows = [{**asdict(row), "error": round(row.error, 4)} for row in self.rows]
        about = {"scenarios": self.scenarios, "nic_share": round(self.nic_share, 4)}
        return json.dumps({**about, **errors, "rows": rows}, indent=1) + "\n"


def calibrate(
    kernels: Kernels, show: Callable[[float, str], None] = lambda share, text: None,
    scenarios: Sequence[Scenario] = SCENARIOS, learned: Scenario = LEARNED,
) -> Calibrated:  # fmt: skip
    """Runs all scenarios both ways."""
    made = Calibrated(scenarios=len(scenarios))
    total = len(learned.seeds) + sum(len(each.seeds) for each in scenarios)
    done = 0
    shares = []
    for seed in learned.seeds:
        show(done / total, f"another fabric: {learned.name}, seed {seed}")
        shares.append(_nic_share(learned, seed))
        done += 1
    made.nic_share = float(np.mean(shares))
    for scenario in scenarios:
        found: list[dict[str, Any]] = []
        for seed in scenario.seeds:
            show(done / total, f"{scenario.name}, packet by packet, seed {seed}")
            found.append(_both(scenario, seed, kernels))
            done += 1
        made.rows += _rows(scenario, found)
    return made


def _lab(scenario: Scenario, seed: int) -> dict[str, Any]:
    link = {"rate": PORT_BPS, "delay": "2ms"}
    return {
        "name": "calibration", "planes": scenario.planes, "t0_per_plane": 2, "t1_per_plane": scenario.t1s,
        "hosts": 2 * scenario.per_t0, "hosts_per_t0": scenario.per_t0, "links": {"host": link, "fabric": link},
        "path_mtu": 2048, "queues": QUEUES,
        "ev": {"size": EVS * scenario.planes, "active": scenario.active * scenario.planes}, "clock": "virtual",
        "seed": seed,
    }  # fmt: skip


def cell(scenario: Scenario, seed: int) -> Cell:
    """The run of packets."""
    params = {"message_bytes": 1 << 20, "window": 4, "shift": scenario.per_t0}
    workload = {"name": "permutation", "params": params, "duration": LASTS, "qps_per_peer": scenario.qps}
    schedule = []
    if scenario.fail:
        claims = {"losses": 1} if scenario.of_port else {"losses": 1, "evs_lost": 1}
        step: dict[str, Any] = {"at": AT, "fail": scenario.fail, "evidence": claims}
        step |= {"kind": scenario.kind} if scenario.kind else {}
        step |= {"settings": {"count": scenario.lanes}} if scenario.lanes else {}
        schedule.append(step)
    return Cell("run", _lab(scenario, seed), {"workload": workload, "schedule": schedule}, watch=_uplinks(scenario))


def _uplinks(scenario: Scenario) -> list[str]:
    """Ports of the T0s towards the T1s, by plane, T0 and T1."""
    each = [(p, t, n) for p in range(scenario.planes) for t in range(2) for n in range(scenario.t1s)]
    return [f"p{p}-t0.{t}:{scenario.per_t0 + 1 + n}" for p, t, n in each]


def _nic_share(scenario: Scenario, seed: int) -> float:
    """What of the NICs' ports is used when all of them send and nothing else is short."""
    result = measure.measure(cell(scenario, seed))
    carried = _mean(result["series"], 0.3, LASTS - 0.1) / result["payload_share"]
    return float(carried / (PORT_BPS * scenario.planes * 2 * scenario.per_t0))


def _both(scenario: Scenario, seed: int, kernels: Kernels) -> dict[str, Any]:
    """Numbers of both ways, those of the model with `model ` in front."""
    run = cell(scenario, seed)
    topology, _ = measure.prepare(run)
    beginning = Beginning()
    packets = measure.measure(run, beginning.look)
    if packets["failures"]:
        raise RuntimeError(f"{scenario.name}: {packets['failures'][0]}")
    found = _packets(packets, scenario, topology, beginning)
    model = _model(scenario, seed, topology, packets["payload_share"], beginning, kernels)
    return found | {f"model {name}": value for name, value in model.items()}


def _mean(series: Sequence[Sequence[float]], begin: float, end: float) -> float:
    inside = [row[1] for row in series if begin <= row[0] < end]
    return float(np.mean(inside)) if inside else math.nan


def _packets(result: dict[str, Any], scenario: Scenario, topology: Topology, beginning: Beginning) -> dict[str, Any]:
    series = result["series"]
    end = LASTS - 0.1
    until = AT if scenario.fail else end
    loads = np.array([_mean(result["watched"][name], 0.3, until) for name in _uplinks(scenario)])
    found: dict[str, Any] = {"before": _mean(series, 0.3, until - 0.05), "load": float(loads.mean()), "links": loads}
    if not scenario.fail:
        return found
    found["after"] = _mean(series, AT + SETTLED, end)
    found["taken"] = float(next(each["measured"] for each in result["evidence"] if "took for lost" in each["what"]))
    if scenario.of_port:
        found["lost"] = float(beginning.lost_with_ports())
    else:
        lost, evs = beginning.lost_across(topology, scenario.fail)
        found |= {"lost": float(lost), "evs": float(evs), "found": result["found_s"]}
        found["hit"] = result["qps_hit"] / result["qps"]
    return found


def _cluster(scenario: Scenario, seed: int, topology: Topology) -> Loaded:
    rtt = describe.base_rtt_ns(topology, "virtual")
    planes = scenario.planes
    document: dict[str, Any] = {
        "name": "calibration", "planes": planes, "radix": 16, "nics": 2 * scenario.per_t0,
        "nics_per_t0": scenario.per_t0, "t1_per_plane": scenario.t1s, "port_rate": PORT_BPS, "base_rtt": rtt,
        "path_mtu": 2048, "ev": {"size": planes, "active": planes, "min_active": planes}, "duration": "1s",
        "seed": seed, "jobs": [{"name": "permutation", "kind": "ring"}], "bin": "500ms",
    }  # fmt: skip
    if scenario.fail:
        step: dict[str, Any] = {"at": "500ms", "fail": scenario.fail}
        document["failures"] = [step | ({"lanes": scenario.lanes} if scenario.lanes else {})]
    return parse_cluster(json.dumps(document), "<calibration>")


def _model(
    scenario: Scenario, seed: int, topology: Topology, payload_share: float, beginning: Beginning, kernels: Kernels
) -> dict[str, Any]:
    loaded = _cluster(scenario, seed, topology)
    every, evs = beginning.for_model(scenario.active, topology.lab.ev.min_active)
    run = ClusterRun(loaded, kernels, every=every, evs=evs)
    run.payload = payload_share
    result = run.mrc()
    loads = result.first.up.ravel() * loaded.shape.fabric_bps
    found: dict[str, Any] = {"before": result.steps[0].goodput, "load": float(loads.mean()), "links": loads}
    if scenario.fail:
        after = result.steps[1]
        found |= {"after": after.goodput, "lost": after.lost, "hit": after.hit / len(every), "found": after.found_s}
        found["evs"] = float(after.evs["bad"] - result.steps[0].evs["bad"])
    return found


def _rows(scenario: Scenario, found: list[dict[str, Any]]) -> list[Compared]:
    """Means over the seeds."""

    def both(name: str) -> tuple[float, float]:
        return tuple(float(np.mean([each[key] for each in found])) for key in (name, f"model {name}"))  # type: ignore[return-value]

    def row(what: str, name: str, unit: str, kind: str, scale: float = 1.0, relative: bool = True) -> Compared:
        packets, model = both(name)
        return Compared(scenario.name, what, packets * scale, model * scale, unit, kind, relative)

    if not scenario.fail:
        apart = float(np.mean([np.abs(each["links"] - each["model links"]).mean() / each["load"] for each in found]))
        spread = [float(np.mean([each[key].std() for each in found])) / 1e6 for key in ("links", "model links")]
        name = "deviation of uplinks' loads; off: a link's load on average"
        return [
            row("goodput", "before", "Mb/s", "goodput", 1e-6),
            row("load of an uplink", "load", "Mb/s", "load", 1e-6),
            Compared(scenario.name, name, spread[0], spread[1], "Mb/s", "links", True, apart),
        ]
    kind = ", overloaded" if scenario.overloaded else ""
    rows = [
        row("goodput before", "before", "Mb/s", "goodput", 1e-6),
        row("goodput settled after it", "after", "Mb/s", "goodput", 1e-6),
        row("data packets lost to it", "lost", "", f"lost{kind}"),
    ]
    if scenario.of_port:
        return rows
    others = float(np.mean([each["taken"] - each["lost"] for each in found]))
    return [
        *rows,
        row("EVs found dead", "evs", "", f"evs{kind}"),
        row("queue pairs that lost", "hit", "%", "hit", 100, False),
        row("until the last EV was found", "found", "ms", f"found{kind}", 1e3),
        Compared(scenario.name, "packets taken for lost elsewhere meanwhile", others, 0.0, "", "elsewhere", False),
    ]


def in_use() -> float:
    """The share of a NIC's port that runs reckon with."""
    return Calibration().nic_share
