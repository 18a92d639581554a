"""The model held against packets: the same scenarios on small fabrics, in simulated time by packets and as a fluid.

The queue pairs of both have the same universes of EVs. Goodput, load per link, packets lost, queue pairs that lost
some and the time until that was over are put side by side, with what the model is off.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from mrc_control.figures import measure
from mrc_control.figures.model import Cell
from mrc_control.lab import describe
from mrc_scale import evs as ev_states
from mrc_scale.clusterfile import Loaded, parse_cluster
from mrc_scale.jobs import Flows
from mrc_scale.kernels import Kernels
from mrc_scale.run import Run
from mrc_topo.topology import Topology

#: Evidence by what it says (`results.evidence.LABELS`).
TOLD = {"lost": "took for lost", "evs": "taken for bad"}
#: Seconds: what goes on before the failure, when goodput counts as settled after it, and until the end.
AT, SETTLED, LASTS = 0.8, 0.4, 2.4
#: A round trip holds 20 packets of a port; marks begin below NSCC's target delay, as they do in large fabrics.
QUEUES = {"limit": "96KiB", "ecn": {"kmin": "4KiB", "kmax": "16KiB"}, "trim": {"threshold": "64KiB"}}
#: Errors that the model is meant to stay below.
GOODPUT, LOST = 0.05, 0.10


@dataclass(frozen=True)
class Scenario:
    """A lab and what fails in it; `lanes` of a transceiver; `active` EVs of each of `qps` queue pairs per pair;
    `losses`: whether only the failure makes packets get lost."""

    name: str
    t1s: int
    fail: str = ""
    kind: str = ""
    lanes: int | None = None
    qps: int = 1
    active: int = 64
    losses: bool = True
    seeds: Sequence[int] = (1,)

    @property
    def of_port(self) -> bool:
        """Whether NIC ports go down: nobody blames an EV for that."""
        return self.fail.startswith("h") or self.lanes is not None


SCENARIOS = (
    Scenario("no failure, half as many T1s again as needed", 6),
    Scenario("no failure, as many T1s as needed", 4),
    Scenario("a T0-T1 link is cut", 6, "p0-t0.0--p0-t1.1", seeds=(1, 2, 3)),
    # Here packets are also lost because what is left is too little for all: that has nothing to do with detection.
    Scenario("a T0-T1 link is cut, no T1 to spare", 4, "p0-t0.0--p0-t1.1", losses=False),
    Scenario("a T1 stops, 8 EVs active", 6, "p1-t1.2", "stop", qps=4, active=8, seeds=(1, 2, 3)),
    Scenario("a NIC port goes down", 6, "h0:1"),
    Scenario("a transceiver of four NIC links", 6, "p0-t0.0", "transceiver", 4),
)


@dataclass
class Compared:
    """A number of packets beside that of the model; `error` is relative where `relative`."""

    scenario: str
    what: str
    packets: float
    model: float
    unit: str
    kind: str
    relative: bool = True

    @property
    def error(self) -> float:
        """How far the model is off."""
        off = abs(self.model - self.packets)
        return off / abs(self.packets) if self.relative and self.packets else off


@dataclass
class Calibrated:
    """All comparisons, and the largest error of a kind over all scenarios."""

    rows: list[Compared] = field(default_factory=list)
    scenarios: int = 0

    def worst(self, kind: str) -> float:
        """The largest error of a kind of number."""
        return max((row.error for row in self.rows if row.kind == kind), default=math.nan)

    def document(self) -> str:
        """What runs repeat (`mrc_scale.caveat`)."""
        errors = {kind: round(self.worst(kind), 4) for kind in ("goodput", "lost", "evs", "each", "hit", "load")}
        rows = [{**asdict(row), "error": round(row.error, 4)} for row in self.rows]
        return json.dumps({"scenarios": self.scenarios, **errors, "rows": rows}, indent=1) + "\n"


def calibrate(
    kernels: Kernels, show: Callable[[float, str], None] = lambda share, text: None,
    scenarios: Sequence[Scenario] = SCENARIOS,
) -> Calibrated:  # fmt: skip
    """Runs all scenarios both ways."""
    made = Calibrated(scenarios=len(scenarios))
    for number, scenario in enumerate(scenarios):
        found: list[dict[str, float]] = []
        for seed in scenario.seeds:
            show(number / len(scenarios), f"{scenario.name}, packet by packet, seed {seed}")
            found.append(_both(scenario, seed, kernels))
        made.rows += _rows(scenario, found)
    return made


def _lab(scenario: Scenario, seed: int) -> dict[str, Any]:
    link = {"rate": "5Mbps", "delay": "2ms"}
    return {
        "name": "calibration", "planes": 4, "t0_per_plane": 2, "t1_per_plane": scenario.t1s, "hosts": 8,
        "hosts_per_t0": 4, "links": {"host": link, "fabric": link}, "path_mtu": 2048, "queues": QUEUES,
        "ev": {"size": 128, "active": scenario.active}, "clock": "virtual", "seed": seed,
    }  # fmt: skip


def cell(scenario: Scenario, seed: int) -> Cell:
    """The run of packets."""
    workload = {
        "name": "permutation", "params": {"message_bytes": 1 << 20, "window": 4, "shift": 4}, "duration": LASTS,
        "qps_per_peer": scenario.qps,
    }  # fmt: skip
    schedule = []
    if scenario.fail:
        claims = {"losses": 1} if scenario.of_port else {"losses": 1, "evs_lost": 1}
        step: dict[str, Any] = {"at": AT, "fail": scenario.fail, "evidence": claims}
        step |= {"kind": scenario.kind} if scenario.kind else {}
        step |= {"settings": {"count": scenario.lanes}} if scenario.lanes else {}
        schedule.append(step)
    watch = [f"p{p}-t0.{t}:{5 + n}" for p in range(4) for t in range(2) for n in range(scenario.t1s)]
    return Cell("run", _lab(scenario, seed), {"workload": workload, "schedule": schedule}, watch=watch)


def _both(scenario: Scenario, seed: int, kernels: Kernels) -> dict[str, float]:
    """Numbers of both ways, those of the model with `model ` in front."""
    run = cell(scenario, seed)
    topology, _ = measure.prepare(run)
    packets = measure.measure(run)
    if packets["failures"]:
        raise RuntimeError(f"{scenario.name}: {packets['failures'][0]}")
    found = _packets(packets, scenario)
    found |= {f"model {name}": value for name, value in _model(scenario, seed, topology, packets, kernels).items()}
    return found


def _mean(series: Sequence[Sequence[float]], begin: float, end: float) -> float:
    inside = [row[1] for row in series if begin <= row[0] < end]
    return float(np.mean(inside)) if inside else math.nan


def _packets(result: dict[str, Any], scenario: Scenario) -> dict[str, float]:
    series = result["series"]
    end = LASTS - 0.1
    until = AT if scenario.fail else end
    loads = [_mean(result["watched"][name], 0.3, until) for name in sorted(result["watched"])]
    found = {
        "before": _mean(series, 0.3, until - 0.05),
        "load": float(np.mean(loads)),
        "deviation": float(np.std(loads)),
    }
    if scenario.fail:
        shown = {
            key: float(each["measured"]) for each in result["evidence"] for key in TOLD if TOLD[key] in each["what"]
        }
        found |= {"after": _mean(series, AT + SETTLED, end), **shown}
        if "evs" in shown:
            found["each"] = shown["lost"] / shown["evs"]
        found |= {"hit": result["qps_hit"] / result["qps"], "glitch": result["segments"][0]["glitch_s"]}
    return found


def _cluster(scenario: Scenario, seed: int, topology: Topology) -> Loaded:
    rtt = describe.base_rtt_ns(topology, "virtual")
    document: dict[str, Any] = {
        "name": "calibration", "planes": 4, "radix": 16, "nics": 8, "nics_per_t0": 4, "t1_per_plane": scenario.t1s,
        "port_rate": "5Mbps", "base_rtt": rtt, "path_mtu": 2048, "ev": {"size": 4, "active": 4}, "duration": "1s",
        "seed": seed, "jobs": [{"name": "permutation", "kind": "ring"}], "bin": "500ms",
    }  # fmt: skip
    if scenario.fail:
        step: dict[str, Any] = {"at": "500ms", "fail": scenario.fail}
        document["failures"] = [step | ({"lanes": scenario.lanes} if scenario.lanes else {})]
    loaded = parse_cluster(json.dumps(document), "<calibration>")
    # In a lab several EVs may share a path.
    spec = loaded.cluster.ev.model_copy(update={"size": 128, "active": scenario.active})
    return Loaded(loaded.cluster.model_copy(update={"ev": spec}), loaded.shape, loaded.events, loaded.name)


def _model(
    scenario: Scenario, seed: int, topology: Topology, packets: dict[str, Any], kernels: Kernels
) -> dict[str, float]:
    loaded = _cluster(scenario, seed, topology)
    nics = np.repeat(np.arange(8, dtype=np.int32), scenario.qps)
    every = Flows(nics, ((nics + 4) % 8).astype(np.int32), nics * 0, np.full(len(nics), float(1 << 20)))
    run = Run(loaded, kernels, texts=lambda s, d: ev_states.text_of(seed, "calibration", s, d), every=every)
    run.payload = packets["payload_share"]
    result = run.mrc()
    loads = result.first.up * loaded.shape.fabric_bps
    before = result.steps[0]
    found = {"before": before.goodput, "load": float(loads.mean()), "deviation": float(loads.std())}
    if scenario.fail:
        after = result.steps[1]
        found |= {"after": after.goodput, "lost": after.lost, "hit": after.hit / len(every), "glitch": after.found_s}
        if after.evs["bad"]:
            found |= {"evs": float(after.evs["bad"]), "each": after.lost / after.evs["bad"]}
    return found


def _ev_rows(row: Callable[..., Compared]) -> list[Compared]:
    """Of failures for which EVs are blamed. Which of a universe's EVs are active differs, so numbers of EVs scatter."""
    return [
        row("EVs found dead", "evs", "", "evs"),
        row("data packets lost for each", "each", "", "each"),
        row("queue pairs that lost", "hit", "%", "hit", 100, False),
    ]


def _rows(scenario: Scenario, found: list[dict[str, float]]) -> list[Compared]:
    """Sums and means over the seeds."""

    def both(name: str) -> tuple[float, float]:
        return tuple(float(np.mean([each[key] for each in found])) for key in (name, f"model {name}"))  # type: ignore[return-value]

    def row(what: str, name: str, unit: str, kind: str, scale: float = 1.0, relative: bool = True) -> Compared:
        packets, model = both(name)
        return Compared(scenario.name, what, packets * scale, model * scale, unit, kind, relative)

    if not scenario.fail:
        return [
            row("goodput", "before", "Mb/s", "goodput", 1e-6),
            row("load of an uplink", "load", "Mb/s", "load", 1e-6),
            row("deviation of uplinks' loads", "deviation", "Mb/s", "deviation", 1e-6, False),
        ]
    return [
        row("goodput before", "before", "Mb/s", "goodput", 1e-6),
        row("goodput settled after it", "after", "Mb/s", "goodput", 1e-6),
        row("data packets lost", "lost", "", "lost" if scenario.losses else "overload"),
        *([] if scenario.of_port else _ev_rows(row)),
        row("time until it was over", "glitch", "ms", "glitch", 1e3, False),
    ]
