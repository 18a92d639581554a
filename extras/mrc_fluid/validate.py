"""Validation of the model by what can be proved or was published: a table whose every row holds or does not.

The published rows are of "Resilient AI Supercomputer Networking using MRC and SRv6" (arXiv 2605.04333; figures and
claims as `mrc-protocol.md` has them). Its figures 4, 5, 6 and 8 are of a production cluster whose numbers of
broken links no other source has: of these the shape is held against the paper, and the amounts against what follows
from the failures that are put in here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import yaml

from mrc_fluid import evs as ev_states
from mrc_fluid.clusterfile import Loaded, parse_cluster
from mrc_fluid.jobs import Flows
from mrc_fluid.kernels import Kernels, workers
from mrc_fluid.run import ClusterResult, ClusterRun
from mrc_fluid.shares import LinkPrices
from mrc_topo.plan import plan

# Rates that differ by 3 % are one level (`shares.LEVEL`): goodput is reported no finer.
PAPER = "the paper"
PROOF = "own formula"
#: Passes after which load moves no more.
STEERED = 1000


@dataclass(frozen=True)
class Row:
    """A number of the model beside its expected value, within `tolerance` (absolute)."""

    what: str
    source: str
    expected: float
    measured: float
    tolerance: float
    unit: str = ""

    @property
    def passed(self) -> bool:
        """Return whether the number is within the tolerance."""
        return bool(abs(self.measured - self.expected) <= self.tolerance)


def rows(kernels: Kernels, progress: Callable[[str], None] = lambda text: None) -> list[Row]:
    """Return all rows."""
    found: list[Row] = []
    for part in (_plan, _spraying, _touched, _capacity, _cold_start, _flaps, _transceiver, _reboot):
        progress(part.__name__.removeprefix("_").replace("_", " "))
        found += part(kernels)
    return found


def cluster(**changes: Any) -> Loaded:
    """Return a cluster of this module: small, but with the paper's T1s and EVs."""
    base = {
        "name": "validation", "planes": 8, "radix": 512, "nics": 2048, "ev": {"size": 256, "active": 128},
        "duration": "3s", "bin": "100ms", "model": {"nic_share": 1, "fabric_share": 1, "steering": 1000, "steps": 100},
        "jobs": [{"name": "job", "kind": "ring", "placement": "striped"}],
    }  # fmt: skip
    return parse_cluster(yaml.safe_dump({**base, **changes}), "<validation>")


def _plan(kernels: Kernels) -> Iterator[Row]:
    design = plan(512, 8)
    yield Row("switches of 131 072 NICs in 8 planes of two tiers", PAPER, 6144, design.multi_plane.total_switches, 0)
    yield Row("switches of as many in one plane of three tiers", PAPER, 10240, design.three_tier.total_switches, 0)
    slowed = 100 * float(design.three_tier.slowed["T0-T1 link"])
    yield Row("slower by a lost T0-T1 link, one plane of three tiers", PAPER, 3.0, slowed, 0.2, "%")


def _spraying(kernels: Kernels) -> Iterator[Row]:
    """Yield how unequal the load of uplinks is without steering: each queue pair takes some T1s of a plane, none
    twice."""
    loaded = cluster(nics=8192, jobs=[{"name": "job", "kind": "ring", "placement": "random"}])
    run = ClusterRun(loaded, kernels)
    shape = loaded.shape
    with ThreadPoolExecutor(workers()) as pool:
        model, _ = _model(run, kernels, pool)
        load = model.load(np.ones(len(run.flows)), LinkPrices.fresh(shape))
    share = loaded.cluster.ev.active / shape.planes / shape.t1s
    senders = float(np.count_nonzero(run.ends.src != run.ends.dst)) / shape.t0s
    expected = 100 * math.sqrt((1 - share) / (senders * share))
    poisson = 100 / math.sqrt(senders * share)
    for name, carried in (("up", load.up), ("down", load.dn)):
        deviation = 100 * float(carried.std() / carried.mean())
        yield Row(f"deviation of load {name}, T1s drawn without repetition", PROOF, expected, deviation, 0.5, "%")
        yield Row(f"deviation of load {name} against Poisson", PROOF, poisson, deviation, 1.2, "%")


def _touched(kernels: Kernels) -> Iterator[Row]:
    """Yield how many queue pairs have an active EV through a T1 that fails, with 64 EVs for the 256 T1s of a plane.

    Drawn by themselves they leave more queue pairs untouched than spread evenly: with fewer EVs both formulas agree.
    """
    for spread, source in (("random", PAPER), ("even", PROOF)):
        spec = {"size": 1024, "active": 512, "spread": spread}
        loaded = cluster(nics=4096, ev=spec, failures=[{"at": "1s", "fail": "p1-t1.3", "for": "1s"}])
        result = ClusterRun(loaded, kernels).mrc()
        step = next(each for each in result.steps if each.hit)
        evs, t1s = loaded.cluster.ev.active // 8, loaded.shape.t1s
        expected = 1 - (1 - 1 / t1s) ** evs if spread == "random" else evs / t1s
        scatter = 3 * math.sqrt(expected * (1 - expected) / len(result.flows))
        formula = "T1 of each EV drawn: 1-(1-1/T1s)^EVs" if spread == "random" else "EVs spread evenly: EVs/T1s"
        measured = 100 * step.hit / len(result.flows)
        yield Row(
            f"queue pairs that a T1 failure touches, {formula}", source, 100 * expected, measured, 100 * scatter, "%"
        )


def _capacity(kernels: Kernels) -> Iterator[Row]:
    """Yield what the loss of an element costs the slowest NIC when all send at full rate."""
    cases = [("T0-T1 link", "p0-t0.0--p0-t1.0", 100 / 256), ("NIC port", "h0:3", 12.5)]
    cases += [("T0", "p2-t0.0", 12.5), ("T1", "p4-t1.9", 100 / 256)]
    whole = _slowest(kernels, "")
    for what, name, expected in cases:
        lost = 100 * (1 - _slowest(kernels, name) / whole)
        yield Row(f"capacity lost with a {what}, 8 planes", PAPER, expected, lost, 0.04, "%")


def _slowest(kernels: Kernels, name: str) -> float:
    """Return the lowest rate of a NIC, all of two T0s sending to the other at full rate and steered to the end."""
    loaded = cluster(nics=512, nics_per_t0=256, jobs=[{"name": "job", "kind": "all_to_all", "peers": 1}])
    shape = loaded.shape
    nics = np.arange(shape.nics, dtype=np.int32)
    other = ((nics + shape.per_t0) % shape.nics).astype(np.int32)
    every = Flows(nics, other, np.zeros(shape.nics, np.int32), np.ones(shape.nics))
    run = ClusterRun(loaded, kernels, every=every)
    if name:
        run.fabric.change(name, 1)
    with ThreadPoolExecutor(workers()) as pool:
        model, evs = _model(run, kernels, pool)
        dead = run.fabric.dead_paths()
        for _ in range(8):
            ev_states.take_out(kernels, pool, evs, run.ends, (dead, dead), model.use, ev_states.ASSUMED_BAD)
        prices = LinkPrices.fresh(shape)
        model.set_dead(run.fabric.dead())
        prices.set_dead(run.fabric.dead())
        wanted = model.ports_only(np.full(len(every), shape.nic_bps))
        load = model.steer(wanted, prices, STEERED, 0.0)
        assert load is not None
        # Load that is still above a capacity cannot be steered away: its senders slow down by this factor.
        over = max(float(load.up.max()), float(load.dn.max()), shape.fabric_bps) / shape.fabric_bps
        return float(wanted.min()) / over


def _cold_start(kernels: Kernels) -> Iterator[Row]:
    """Compare Fig. 4: a job starts while links are dead."""
    share = 0.005
    dead = round(share * 8 * 8 * 256)
    failures = [{"at": 0, "fail": "links", "count": dead}]
    known, unknown = (
        ClusterRun(cluster(failures=failures, denylist=listed), kernels).mrc() for listed in (True, False)
    )
    loaded = unknown.loaded
    links = loaded.shape.links
    # A path crosses two links; the EV that replaces a dead one may be dead, too.
    path = 1 - (1 - dead / links) ** 2
    evs = len(unknown.flows) * loaded.cluster.ev.active * path / (1 - path)
    per_ev = 1.0 + _turns(loaded)
    expected = evs * per_ev
    first, later = unknown.steps[0].lost, sum(each.lost for each in unknown.steps[1:])
    yield Row("cold start without denylists: packets lost", PROOF, expected, first, 0.06 * expected)
    yield Row("cold start without denylists: packets lost after its first tenth of a second", PAPER, 0, later, 0)
    yield Row("cold start with denylists: packets lost", PAPER, 0, sum(each.lost for each in known.steps), 0)


def _turns(loaded: Loaded) -> float:
    """Return how many whole turns of an EV a NIC that sends all it can makes in the time of rule (c) of loss
    inference.
    """
    run, cluster = ClusterRun(loaded, _unused()), loaded.cluster
    packets = loaded.shape.nic_bps / run.packet_bits
    path = cluster.base_rtt / 1e9
    # Three queues of four are on the way, each with a quarter of what the window has more than the path.
    queue = 0.75 * (run.window / packets - path)
    # srtt + 4 rttvar, then the fastest answer; the deviation of three exponential queues is 0.448 of their mean.
    return math.floor((path + queue + 4 * 0.448 * queue + path) * packets / cluster.ev.active)


def _unused() -> Kernels:
    from mrc_fluid.kernels import reference

    return reference()


def _flaps(kernels: Kernels) -> Iterator[Row]:
    """Compare Fig. 5: many T0-T1 links flap."""
    failures = [{"at": "500ms", "fail": "links", "count": 30, "for": "200ms", "repeat": 4, "every": "500ms"}]
    goodput = ClusterRun(cluster(failures=failures), kernels).mrc().series()["goodput_bps"]
    yield Row("links flap: lowest goodput over that before", PAPER, 100, 100 * goodput.min() / goodput[0], 2, "%")
    yield Row("links flap: goodput afterwards over that before", PAPER, 100, 100 * goodput[-1] / goodput[0], 1, "%")


def _transceiver(kernels: Kernels) -> Iterator[Row]:
    """Compare Fig. 6: a transceiver of a T0 carries four NIC links, of NICs with four planes."""
    ring = [{"name": "ring", "kind": "ring", "placement": "striped", "message": "64MiB"}]
    failures = [{"at": "1s", "fail": "p0-t0.0", "lanes": 4, "for": "1s"}]
    loaded = cluster(planes=4, radix=64, nics=256, ev={"size": 128, "active": 64}, jobs=ring, failures=failures)
    result = ClusterRun(loaded, kernels).mrc()
    rates, broken = result.rates, result.worst_rates
    struck = result.flows.src < 4
    measured = 100 * float((broken[struck] / rates[struck]).mean() - 1)
    yield Row("transceiver of four NIC links flaps: these NICs", PAPER, -25, measured, 1.5, "%")
    after = 100 * result.series()["goodput_bps"][-1] / result.series()["goodput_bps"][0]
    yield Row("transceiver flaps: goodput afterwards over that before", PAPER, 100, after, 1, "%")


def _reboot(kernels: Kernels) -> Iterator[Row]:
    """Compare Fig. 8: a T1 goes down and comes back."""
    failures = [{"at": "1s", "fail": "p3-t1.20", "for": "1s"}]
    result: ClusterResult = ClusterRun(cluster(failures=failures), kernels).mrc()
    goodput = result.series()["goodput_bps"]
    yield Row("T1 reboot: lowest goodput over that before", PAPER, 100, 100 * goodput.min() / goodput[0], 1, "%")
    yield Row("T1 reboot: goodput afterwards over that before", PAPER, 100, 100 * goodput[-1] / goodput[0], 1, "%")
    back = next(each for each in result.steps if each.bin == 20)
    yield Row("T1 reboot: packets lost when it is back", PAPER, 0, back.lost, 0)


def _model(run: ClusterRun, kernels: Kernels, pool: ThreadPoolExecutor) -> tuple[Any, ev_states.Evs]:
    from mrc_fluid.shares import Model

    shape, evs = run.loaded.shape, run.draw(pool, run.loaded.cluster.ev)
    return Model(shape, run.ends, evs, kernels, pool), evs
