"""Clusters of three tiers from their file to their tables: runs, other transports, a year, and messages."""

from __future__ import annotations

import json
import pathlib
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from mrc_fluid import baselines, kernels, queueing, year
from mrc_fluid.calibration import produce, report
from mrc_fluid.clusterfile import ClusterError, Loaded, load_cluster, parse_cluster
from mrc_fluid.fabric import DEAD, Fabric
from mrc_fluid.replays import fluid
from mrc_fluid.run import ClusterResult, ClusterRun, Interval
from mrc_fluid.schema import EvSpec
from mrc_fluid.shares import LinkLoads, LinkPrices
from mrc_fluid.shedding import MISTAKEN, Protocol, shed
from mrc_fluid.transfers import UNEQUAL, Transfer
from mrc_fluid.transfers import run as transfer
from mrc_topo.plan import plan

#: Four pods of four T0s with four NICs; two planes.
SMALL: dict[str, Any] = {
    "name": "pods", "tiers": 3, "radix": 8, "planes": 2, "nics": 64, "ev": {"size": 32, "active": 16}, "duration": "9s",
    "jobs": [{"name": "j", "group": 32, "placement": "random"}],
}  # fmt: skip


def pods(**changes: Any) -> Loaded:
    return parse_cluster(json.dumps({**SMALL, **changes}), "pods.yaml")


def run(**changes: Any) -> ClusterResult:
    return ClusterRun(pods(**changes), kernels.reference()).mrc()


@pytest.mark.parametrize("load", [0.7, 0.95, 1.5])
def test_a_path_between_pods_is_marked_as_often_as_one_within_a_pod_where_all_links_are_loaded_alike(
    load: float,
) -> None:
    cluster = ClusterRun(pods(), kernels.reference())
    shape = cluster.loaded.shape
    with ThreadPoolExecutor(1) as pool:
        model = cluster.model(pool, cluster.draw(pool, cluster.loaded.cluster.ev))
        until = Interval(
            np.ones(len(cluster.flows)), LinkPrices.fresh(shape), LinkLoads.none(shape, shape.fabric_bps * load)
        )
        taken = cluster.taken(model, until)
    ends = cluster.ends
    far, near = cluster.far, ~cluster.far & (ends.src != ends.dst)
    assert far.any()
    assert near.any()
    assert np.allclose(taken[:, far | near], taken[0, far][0])
    assert taken[0, far][0] < 1


WRONG = [
    ({"t1_per_plane": 4}, "t1_per_plane: is a key of two tiers; use t1_per_pod"),
    ({"tiers": 2, "radix": 16, "t0_per_pod": 4}, "t0_per_pod: is a key of three tiers; add 'tiers: 3', or remove it"),
    ({"t0_per_pod": 6}, "radix: a T1 needs 6 + 4 = 10 ports, the radix is 8; raise radix or lower t0_per_pod or t1_u"),
    (
        {"t1_per_pod": 6},
        "radix: a T0 needs 4 + 6 = 10 ports, the radix is 8; raise radix or lower nics_per_t0 or t1_per",
    ),
    ({"t2_per_plane": 6}, "cannot be spread equally over 6 T2s; use one of 4, 8, 16"),
    ({"t2_per_plane": 4}, "radix: a T2 needs 4 links to each of 4 pods = 16 ports, the radix is 8; raise t2_per_plane"),
    ({"nics": 160}, "radix: a T2 needs 1 links to each of 10 pods = 10 ports, the radix is 8; lower nics or pods, or"),
    ({"pods": 3}, "pods: 64 NICs need 4 pods; give pods or nics, not both"),
    ({"nics": None, "radix": 512, "pods": 99}, "radix: pods of this radix have 6488064 NICs, this model takes 1048576"),
    ({"radix": 512, "nics": 1 << 17}, "radix: 256 T1s with 256 uplinks each, this model takes 65536 paths of a plane"),
    ({"radix": 128, "planes": 16, "nics": 1 << 17}, "x 2048 T0s x 4160 paths, this model takes 33554432; lower nics"),
    ({"ev": {"size": 34, "active": 16}}, "34 EVs, but two NICs have 32 paths (2 planes x 4 T1s x 4 uplinks of each)"),
    ({"failures": [{"fail": "p0-t1.0--p0-t2.5"}]}, "failures.0.fail: nothing is called 'p0-t1.0--p0-t2.5'; the last"),
    ({"failures": [{"fail": "t2s", "count": 17}]}, "failures.0.fail: 17 t2s, the cluster has 16; lower count"),
]
FLAT: dict[str, Any] = {"tiers": 2, "radix": 16, "ev": {"size": 16, "active": 8}}
WRONG += [
    ({**FLAT, "failures": [{"fail": "t2s"}]}, "failures.0.fail: two tiers have no t2s; use tiers: 3, or another class"),
    (
        {**FLAT, "random": [{"fail": "upper_links", "between": "1s", "repair": "1s"}]},
        "random.0.fail: two tiers have no",
    ),
    ({**FLAT, "batches": [{"fail": "upper_links", "share": 0.1, "over": "1s"}]}, "batches.0.fail: two tiers have no"),
]


@pytest.mark.parametrize(("changes", "said"), WRONG, ids=[each[1][:30] for each in WRONG])
def test_tiers_that_cannot_be_are_named_with_a_remedy(changes: dict[str, Any], said: str) -> None:
    pods()
    with pytest.raises(ClusterError) as error:
        pods(**changes)
    assert "pods.yaml:1: " in str(error.value)
    assert said in str(error.value)


#: For 60 NICs.
FEW: dict[str, Any] = {"ev": {"size": 16, "active": 8}, "jobs": [{"name": "j"}]}


@pytest.mark.parametrize(
    ("changes", "t0s", "all_t1s", "t2s", "parallel", "nics"),
    [
        ({}, 16, 16, 8, 2, 64),
        ({"nics": None}, 32, 32, 16, 1, 128),
        ({"nics": None, "pods": 2}, 8, 8, 4, 4, 32),
        ({"t1_uplinks": 2, "t0_per_pod": 5, "nics": 60, **FEW}, 15, 12, 4, 2, 60),
        ({"t2_per_plane": 16}, 16, 16, 16, 1, 64),
    ],
)  # fmt: skip
def test_sizes_follow_from_the_radix_unless_they_are_given(
    changes: dict[str, Any], t0s: int, all_t1s: int, t2s: int, parallel: int, nics: int
) -> None:
    shape = pods(**changes).shape
    assert (shape.t0s, shape.all_t1s, shape.t2s, shape.parallel, shape.nics) == (t0s, all_t1s, t2s, parallel, nics)
    # No switch has more ports than the radix.
    assert shape.pods * shape.parallel <= 8


def test_one_pod_is_a_fabric_of_two_tiers() -> None:
    failures = [
        {"at": "1s", "fail": "p1-t1.7", "for": "1s"}, {"at": "3s", "fail": "links", "count": 9, "for": "1s"},
        {"at": "5s", "fail": "h3:1", "loss": 0.02, "for": "1s"}, {"at": "7s", "fail": "p0", "rate": 0.25, "for": "1s"},
    ]  # fmt: skip
    both = {"radix": 16, "failures": failures, "ev": {"size": 16, "active": 8}}
    one, other = run(**both, pods=1), run(**both, tiers=2)
    assert one.loaded.shape.pods == 1
    assert [vars(step) for step in one.steps] == [vars(step) for step in other.steps]
    for part, same in zip(one.worst.each()[:4], other.worst.each()[:4], strict=True):
        assert (part == same).all()
    assert not one.worst.upper_up.any()
    every = [ClusterRun(each.loaded, kernels.reference()) for each in (one, other)]
    found = [_others(each, ["p1-t1.7", "p0-t0.0--p0-t1.3"]) for each in every]
    # The salt of a switch is its number, of which three tiers have more in a plane.
    assert found[0][1] == found[1][1]


def _others(every: ClusterRun, names: list[str]) -> tuple[baselines.Baseline, baselines.Baseline]:
    shape, spec = every.loaded.shape, every.loaded.cluster.roce
    whole, failed = baselines.fabrics(shape, [(name, None, DEAD) for name in names])
    given, fair = (shape, every.flows, every.ends, whole, failed), np.full(len(every.flows), shape.nic_bps)
    return baselines.ecmp(*given, spec, every.kernels, 1.0), baselines.adaptive(*given, fair, spec, 1.0)


FAILURES = [
    {"at": "1s", "fail": "p0-t2.3", "for": "1s"},
    {"at": "3s", "fail": "p0-t1.4--p0-t2.0", "loss": 0.01, "for": "1s"},
    {"at": "5s", "fail": "t2s", "count": 2, "rate": 0.5, "for": "1s"},
    {"at": "7s", "fail": "row", "for": "1s"},
]


@pytest.fixture(scope="module")
def made() -> Any:
    domains = [{"name": "row", "elements": ["p0-t2.0..1", "p1-t1.0--p1-t2.0"]}]
    batches = [{"fail": "upper_links", "share": 0.05, "at": "8500ms", "over": "200ms", "loss": 0.05}]
    return produce.run(
        pods(failures=FAILURES, domains=domains, batches=batches, year={}), kernels.reference()
    )  # fmt: skip


def test_elements_above_pods_fail_as_others_do(made: Any) -> None:
    result: ClusterResult = made.result
    by_bin = {step.bin: step for step in result.steps}
    shape, src, dst = result.loaded.shape, result.flows.src, result.flows.dst
    far = int((shape.pod_of[src // 4] != shape.pod_of[dst // 4]).sum())
    # A T2 of sixteen in two planes: at most those between pods have an EV there.
    assert 0 < by_bin[10].hit <= far
    assert by_bin[20].evs["bad"] == by_bin[40].evs["bad"] == 0
    assert 0 < by_bin[30].lost < 200  # a packet for each EV across a grey link
    assert by_bin[50].lost == 0
    assert by_bin[50].goodput < by_bin[40].goodput  # two of sixteen T2s at half of their rate
    assert by_bin[70].lost > 0
    assert all(step.cut == 0 for step in result.steps)


def test_tables_and_the_report_have_the_links_between_t1s_and_t2s(made: Any, tmp_path: pathlib.Path) -> None:
    pytest.importorskip("pyarrow", reason="the extra `scale` is not installed")
    import pyarrow.parquet as parquet

    files = produce.write(made, tmp_path)
    assert "upper_links.parquet" in files
    links, upper = (parquet.read_table(tmp_path / f"{name}.parquet").to_pydict() for name in ("links", "upper_links"))
    shape, result = made.result.loaded.shape, made.result
    fabric = Fabric(shape)
    for table, kind, ends in ((links, "links", ("t0", "t1")), (upper, "upper_links", ("t1", "t2"))):
        assert len(table["plane"]) == fabric.count(kind)
        for number in (0, 7, fabric.count(kind) - 1):
            plane, low, high = (table[name][number] for name in ("plane", *ends))
            name = f"p{plane}-{ends[0]}.{low}--p{plane}-{ends[1]}.{high}"
            assert fabric.name(kind, number).split(":")[0] == name
    pod = shape.pod_of[result.flows.src // 4] != shape.pod_of[result.flows.dst // 4]
    carried = sum(upper["first_up"]) * shape.fabric_bps
    # What is trimmed on its way is of the load, and not of the rates.
    assert carried == pytest.approx(float(result.rates[pod].sum()), rel=0.02)
    assert sum(upper["first_down"]) * shape.fabric_bps == pytest.approx(carried, rel=0.01)
    page = report.render(made, result.series())
    held = json.loads(re.search(r'id="maps">(.*?)</script>', page)[1])  # type: ignore[index]
    assert [len(each["data"]) for each in held["maps"]] == [2, 2]
    assert "T1-T2 links" in page


def test_a_pod_that_is_cut_off_is_heard_of_by_others_alone() -> None:
    """All uplinks of a pod are dead in both planes: what stays in a pod goes on."""
    cut = [f"p{plane}-t1.{t1}--p{plane}-t2.{t1 * 2 + n}" for plane in range(2) for t1 in range(4) for n in range(2)]
    result = run(failures=[{"at": "1s", "fail": name} for name in cut])
    shape, last = result.loaded.shape, result.steps[-1]
    of = [shape.pod_of[nics // 4] for nics in (result.flows.src, result.flows.dst)]
    gone = (of[0] != of[1]) & ((of[0] == 0) | (of[1] == 0))
    assert last.cut == gone.sum() > 0
    assert (result.worst_rates[gone] == 0).all()
    assert (result.worst_rates[~gone] > 0).all()
    ecmp, adaptive = _others(ClusterRun(result.loaded, kernels.reference()), cut)
    assert ecmp.stalled == 2 * gone.sum()
    assert ecmp.broken == adaptive.broken == 0
    assert adaptive.during <= adaptive.after < adaptive.before


@pytest.mark.parametrize(("t1s", "uplinks", "share"), [(4, 4, 1.0), (4, 2, 0.5), (4, 1, 0.25), (2, 8, 0.5)])
def test_other_transports_get_what_uplinks_carry(t1s: int, uplinks: int, share: float) -> None:
    """All NICs send to another pod: adaptive routing gets the share of closed form, and hashing no more."""
    sizes = {"radix": 16, "nics_per_t0": 4, "t0_per_pod": 4, "t1_per_pod": t1s, "t1_uplinks": uplinks}
    loaded = pods(**sizes, ev={"size": 8, "active": 8})
    every = ClusterRun(loaded, kernels.reference())
    src = np.arange(64, dtype=np.int32)
    flows = replace(every.flows, src=src, dst=(src + 16) % 64)
    every = ClusterRun(loaded, kernels.reference(), every=flows)
    ecmp, adaptive = _others(every, ["p0-t2.1"])
    line = 64 * loaded.shape.nic_bps
    assert adaptive.before == pytest.approx(share * line)
    assert adaptive.after < adaptive.before
    assert adaptive.stalled == 64  # of two planes in one
    assert 0.2 * share * line < ecmp.before <= share * line * (1 + 1e-9)
    assert ecmp.stalled > 0
    assert 0 < ecmp.after <= share * line


def test_hashes_choose_uplinks_that_t1s_of_the_path_have() -> None:
    shape = pods().shape
    hashes = np.random.default_rng(1).integers(0, 1 << 32, 4000, dtype=np.uint32)
    far = np.arange(4000) % 2 == 0
    found = baselines._chosen(shape, hashes, far).astype(int)
    assert (found[~far] < shape.t1s).all()
    count = np.bincount(found[far] - shape.t1s, minlength=16)
    assert len(count) == 16
    # Sixteen paths, each about as often: T1 and uplink do not depend on each other.
    assert count.min() > 90


#: The window is large, and queues hold next to nothing when they trim.
SHALLOW = Protocol(1e15, 1e-5, 1e-5, 7.5e-6, 1e-9, 1.0, 0.0, 1e11, 1e15)


def test_uplinks_of_a_plane_that_trim_cost_what_crosses_them_alone() -> None:
    loaded = pods(ev={"size": 32, "active": 32}, model={"nic_share": 1})
    src = np.array([0, 4], np.int32)
    every = ClusterRun(loaded, kernels.reference())
    # One queue pair to another pod, one within its pod.
    every = ClusterRun(loaded, kernels.reference(), every=replace(
        every.flows, src=src, dst=np.array([20, 8], np.int32), job=src * 0, bytes=np.ones(2)
    ))  # fmt: skip
    shape = loaded.shape
    for part in ("upper_up", "upper_dn"):
        with ThreadPoolExecutor(1) as pool:
            model, prices = every.model(pool, every.draw(pool, EvSpec(size=32, active=32))), LinkPrices.fresh(shape)
            rates = LinkLoads.none(shape, shape.port_bps)
            getattr(rates, part)[0] = 0.1 * shape.fabric_bps / 16
            model.set_rates(rates)
            model.set_dead(Fabric(shape).dead())
            prices.set_dead(Fabric(shape).dead())
            wanted = np.full(2, shape.nic_bps)
            waits, _ = model.max_min(wanted, prices)
            found = shed(model, wanted, waits, prices, SHALLOW)
        assert found is not None
        assert found.which.tolist() == [True, False]
        # One plane carries all that is sent on it, the other a tenth.
        arriving = 1.1 / 2 - MISTAKEN
        assert found.rates == pytest.approx([arriving * shape.nic_bps, shape.nic_bps], rel=0.02)


def test_a_full_fabric_of_pods_has_the_sizes_of_the_plan() -> None:
    """`mrclab topo plan` and a cluster file say the same of three tiers, and so does a year."""
    shape = load_cluster("pods-65k").shape
    design = plan(512, 8, 65536).three_tier
    assert year._Sizes.of_shape(shape) == year._Sizes.of_design(design)
    assert (shape.planes, shape.paths) == (design.planes, design.paths_per_pair)
    assert load_cluster("planes-65k").shape.nics == shape.nics


def test_a_year_of_three_tiers_ends_jobs_by_ports_and_counts_what_is_above_pods(made: Any) -> None:
    # Of two planes of three tiers there is no plan, and so none of RoCE.
    assert [each.name for each in made.year] == ["MRC, three tiers of 2 planes"]
    one = pods(planes=1, ev={"size": 16, "active": 8}, year={"ports": {"per_year": 9, "hours": 24}})
    assert one.cluster.year is not None
    found = year.outcomes(one.cluster, one.shape, None, one.cluster.year)
    # With one plane a port that fails ends a job of either, and RoCE's also stands still.
    assert [each.interruptions > 300 for each in found] == [True, True]
    assert [each.name for each in found] == ["MRC, three tiers of 1 plane", "RoCE, one plane, three tiers"]
    assert found[0].stalled_h == 0 < found[1].stalled_h
    assert found[0].slower_h < 1  # the job has gone on without the NIC
    more = one.cluster.year.model_copy(update={"t1s": one.cluster.year.t1s.model_copy(update={"per_year": 500.0})})
    worse = year.outcomes(one.cluster, one.shape, None, more)
    assert all(b.slower_h > a.slower_h for a, b in zip(found, worse, strict=True))
    # 16 T1s and 8 T2s, 500 times a year each.
    for before, after in zip(found, worse, strict=True):
        assert after.failures - before.failures == pytest.approx((16 + 8) * 500, rel=0.05)


def test_elements_of_two_classes_that_are_drawn_together_have_their_own_numbers() -> None:
    given = year._Intervals(np.array([0, 5, 3, 4]), np.arange(4.0), np.arange(4.0) + 1)
    first, second = year._split(given, 4)
    assert (first.element.tolist(), first.begin.tolist()) == ([0, 3], [0.0, 2.0])
    assert (second.element.tolist(), second.end.tolist()) == ([1, 0], [2.0, 4.0])


def test_packets_across_a_t2_wait_in_two_queues_more() -> None:
    every = ClusterRun(pods(), kernels.reference())
    # So slow that a window is far more than the path holds, and still below the target delay.
    wait = every.waiting(np.full(len(every.flows), 2.2e11))
    assert 0 < wait.max() < every.target
    assert every.far.any()
    assert wait[every.far] / wait[~every.far].mean() == pytest.approx((5 / 6) / (3 / 4))
    given = np.full(len(every.flows), 1e-5)
    found = queueing.detection(given, 1e-5, every.queues)
    # The sum of more queues varies less, so four of its deviations are over sooner.
    assert found[every.far].max() < found[~every.far].min()


def test_messages_between_pods_take_the_links_of_their_paths() -> None:
    loaded = pods(ev={"size": 16, "active": 16}, model={"nic_share": 1, "fabric_share": 1})
    bed = fluid.bed_of_cluster(loaded)
    src = np.zeros(4, np.int64)
    latency = fluid._latency(bed, src, np.array([1, 4, 16, 63]))
    half = loaded.cluster.base_rtt / 2
    assert latency.out.tolist() == pytest.approx([half / 3, half * 2 / 3, half, half])
    assert latency.back.tolist() == latency.out.tolist()
    # All NICs of a pod to those of another, on all paths.
    size = 10_000_000
    for uplinks, share in ((4, 1.0), (1, 0.25)):
        evs = {"size": 8 * uplinks, "active": 8 * uplinks}
        loaded = pods(t1_uplinks=uplinks, ev=evs, model={"nic_share": 1, "fabric_share": 1})
        moved = [Transfer(n, 16 + n, size) for n in range(16)]
        found = transfer(loaded, kernels.reference(), moved, loaded.cluster.ev, 1.0)
        taken = found.ends_s[0] - loaded.cluster.base_rtt / 1e9
        # Windows differ where links are full.
        assert taken.mean() == pytest.approx(size * 8 / (loaded.shape.nic_bps * share), rel=0.03)
        assert taken.std() <= 1.5 * UNEQUAL * taken.mean()
