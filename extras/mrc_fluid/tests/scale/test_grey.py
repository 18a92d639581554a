"""Grey failures, slow elements, what fails together: what they cost queue pairs, and what a file may say of them."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from mrc_fluid import grey, kernels, timeline
from mrc_fluid.baselines import Usable, ecmp, fabrics
from mrc_fluid.clusterfile import ClusterError, Loaded, parse_cluster
from mrc_fluid.fabric import Fabric, FabricShape, Harm
from mrc_fluid.run import ClusterResult, ClusterRun
from mrc_fluid.schema import EvSpec, Repair
from mrc_fluid.sprayers import Sprayer, with_sprayer

SHAPE = FabricShape(planes=2, t0s=4, t1s=8, nics=16, per_t0=4, port_bps=1e11, fabric_bps=1e11)
#: Long enough for all revivals; NICs of half the fabric's rate, so that nothing is full.
BASE = {
    "name": "grey", "planes": 2, "radix": 16, "nics": 16, "nics_per_t0": 4, "t1_per_plane": 8,
    "port_rate": "100Gbps", "fabric_rate": "200Gbps", "base_rtt": "10us", "duration": "3s", "bin": "100ms",
    "ev": {"size": 16, "active": 8, "min_active": 1},
    "jobs": [{"name": "x", "kind": "ring", "placement": "striped"}],
    "model": {"nic_share": 1.0, "fabric_share": 1.0},
}  # fmt: skip


def cluster(**more: object) -> Loaded:
    return parse_cluster(json.dumps(BASE | more))


def run(**more: object) -> ClusterResult:
    return ClusterRun(cluster(**more), kernels.reference()).mrc()


def test_a_grey_link_costs_each_ev_across_it_a_packet_and_no_goodput() -> None:
    result = run(failures=[{"at": "1s", "fail": "p0-t0.0--p0-t1.3", "loss": 0.01}])
    before, then, later = result.steps
    # Each of the eight queue pairs from or to T0 0 has one EV of this T1 in a plane, in use or as a backup.
    assert 0 < then.evs["bad"] <= 8
    assert then.evs["bad"] <= then.lost < 3 * then.evs["bad"]
    assert then.goodput == pytest.approx(before.goodput, rel=1e-6)
    assert later.evs["bad"] == 0  # probes are answered, and the EVs are backups
    assert later.lost == later.grey == 0


def test_a_port_that_loses_much_carries_what_its_evs_allow() -> None:
    loss = 0.05
    result = run(failures=[{"at": "1s", "fail": "h5:1", "loss": loss}])
    every = ClusterRun(cluster(), kernels.reference())
    spec = EvSpec(**BASE["ev"])  # type: ignore[arg-type]
    back = float(grey.revival_s(np.array([loss]), spec, 10e-6)[0])
    allowed = 8 / (loss * back) * every.packet_bits  # eight EVs of the plane
    assert allowed < 1e11
    # Two queue pairs have that port: what h5 sends, and what it gets.
    lost = result.steps[0].goodput - result.steps[1].goodput
    assert lost == pytest.approx(2 * (1e11 - allowed * (1 - loss)) * every.payload, rel=1e-3)
    assert result.steps[1].grey == pytest.approx(2 * allowed * loss / every.packet_bits, rel=1e-3)
    assert result.steps[1].evs["bad"] == pytest.approx(16, abs=1)  # nearly all of them, most of the time


def test_a_port_that_loses_little_costs_what_it_loses() -> None:
    loss = 1e-5
    result = run(failures=[{"at": "1s", "fail": "h5:1", "loss": loss}])
    lost = result.steps[0].goodput - result.steps[1].goodput
    assert lost == pytest.approx(2 * 1e11 * loss * ClusterRun(cluster(), kernels.reference()).payload, rel=0.01)


def test_a_run_of_answers_takes_as_many_probes_as_the_theory_says() -> None:
    """Heads in a row: 2 + 4 tosses of a fair coin for two."""
    spec = EvSpec(probes_to_revive=2, probe_interval=1_000_000_000)
    assert grey.revival_s(np.array([1 - math.sqrt(0.5)]), spec, 0.0)[0] == pytest.approx(6.0)
    assert grey.revival_s(np.array([0.0]), spec, 0.0)[0] == pytest.approx(2.0)


@pytest.mark.parametrize(("loss", "window", "share"), [(0.0, 100, 1.0), (0.01, 1, 0.99), (0.01, 101, 0.99 / 2)])
def test_go_back_n_repeats_a_window_for_a_loss(loss: float, window: float, share: float) -> None:
    assert grey.go_back_n(np.array([loss]), np.array([window]))[0] == pytest.approx(share)


def test_roce_collapses_where_mrc_avoids_the_path() -> None:
    loaded = cluster()
    every = ClusterRun(loaded, kernels.reference())
    whole, failed = fabrics(loaded.shape, [("p0-t1.3", None, Harm(loss=0.01))])
    given = (loaded.shape, every.flows, every.ends, whole, failed, loaded.cluster.roce, every.kernels, 1.0)
    usable = Usable(in_flight=every.base_rtt / every.packet_bits)
    found = ecmp(*given, usable)
    assert found.after < found.before
    assert found.after == found.during  # routing does not see it
    assert ecmp(*given, Usable()).after > found.after  # with a window of one packet


def test_losses_of_elements_add_up_and_go_again() -> None:
    fabric = Fabric(SHAPE)
    for by in (1, -1):
        fabric.change("p0-t1.3", by, harm=Harm(loss=0.19))
        fabric.change("p0-t0.1--p0-t1.3", by, harm=Harm(loss=0.1))
        fabric.change("p1-t0.2", by, harm=Harm(loss=0.3))
        fabric.change("p1", by, harm=Harm(rate=0.25))
        links, _, ports = fabric.losses()
        if by > 0:
            assert links[0, 0, 3] == pytest.approx(0.1)  # half of the T1's: a path has two of its links
            assert links[0, 1, 3] == pytest.approx(1 - 0.9 * 0.9)
            assert ports[1, 8:12] == pytest.approx(0.3)
            rates = fabric.rates()
            assert rates is not None
            assert rates[0][1] == pytest.approx(0.25)
            assert rates[0][0] == pytest.approx(1.0)
            assert not fabric.dead_links().any()
    assert not links.any()
    assert not ports.any()
    assert fabric.rates() is None


def test_a_slow_plane_is_slow_until_it_is_repaired() -> None:
    result = run(failures=[{"at": "1s", "fail": "p1", "rate": 0.25, "for": "1s"}])
    before, then, later = result.steps
    assert then.goodput < 0.95 * before.goodput
    assert later.goodput == pytest.approx(before.goodput)


def test_a_domain_fails_as_one() -> None:
    domains = [{"name": "row", "elements": ["p0..1-t1.0..2", "h3:0"]}]
    loaded = cluster(domains=domains, failures=[{"at": "1s", "fail": "row", "for": "1s"}])
    failing = [event.name for event in loaded.events if event.by > 0]
    assert sorted(failing) == sorted([f"p{plane}-t1.{t1}" for plane in (0, 1) for t1 in (0, 1, 2)] + ["h3:0"])
    assert {event.at for event in loaded.events} == {1_000_000_000, 2_000_000_000}
    drawn = cluster(domains=domains, random=[{"fail": "domains", "between": "500ms", "repair": "1ms"}])
    assert len(drawn.events) % 7 == 0


@pytest.mark.parametrize(
    ("more", "text"),
    [
        ({"domains": [{"name": "row", "elements": ["p0-t1.6..8"]}]}, "nothing is called 'p0-t1.8'"),
        ({"domains": [{"name": "row", "elements": ["p0-t1.3..1"]}]}, "names 0 elements"),
        ({"domains": [{"name": "row", "elements": ["p0..9-t0.0..999--p0..999-t1.0"]}]}, "use 1 to"),
        ({"domains": [{"name": "links", "elements": ["p0-t1.0"]}]}, "names something else"),
        ({"random": [{"fail": "domains", "between": "1s", "repair": "1s"}]}, "has no domains"),
        ({"failures": [{"at": "1s", "fail": "p2", "rate": 0.5}]}, "nothing is called 'p2'"),
        ({"failures": [{"at": "1s", "fail": "p0", "loss": 1.0}]}, "loss"),
    ],
)
def test_a_file_that_cannot_be_says_why(more: dict[str, object], text: str) -> None:
    with pytest.raises(ClusterError) as caught:
        cluster(**more)
    assert text in "\n".join(caught.value.problems)


def test_a_batch_of_optics_fails_over_its_time() -> None:
    batch = {"fail": "links", "share": 0.25, "at": "1s", "over": "1s", "loss": 0.1, "repair": "300ms"}
    events = cluster(batches=[batch], bin="10ms").events
    failing = [event for event in events if event.by > 0]
    assert len(failing) == len({event.name for event in failing}) == 16
    assert all(1_000_000_000 <= event.at < 2_000_000_000 for event in failing)
    assert all(event.harm == Harm(loss=0.1) for event in events)


@pytest.mark.parametrize("kind", ["exponential", "lognormal", "fixed"])
def test_times_of_repair_have_their_mean(kind: Repair) -> None:
    rng = np.random.default_rng(1)
    drawn = np.array([timeline.repair(rng, 100.0, kind, 0.5) for _ in range(20_000)])
    assert drawn.mean() == pytest.approx(100.0, rel=0.03)
    # The deviation over the mean: 1 of exponential times, sqrt(exp(sigma^2) - 1) of lognormal ones.
    spread = {"exponential": 1.0, "lognormal": math.sqrt(math.exp(0.25) - 1), "fixed": 0.0}[kind]
    assert drawn.std() / 100.0 == pytest.approx(spread, abs=0.04)


def test_a_trace_may_have_losses() -> None:
    text = "at,element,for,loss\n1s,p0-t1.3,500ms,0.2\n2s,h1:0,,\n"
    events = timeline.read_trace(text, "t.csv", Fabric(SHAPE))
    assert [event.harm.loss for event in events] == [0.2, 0.2, 0.0]
    assert events[0].what == "loses 0.2 of packets: p0-t1.3"
    assert events[2].what == "fails: h1:0"


def test_what_sprayers_do_with_marks() -> None:
    """EVs drawn at random load links unequally: who does not move load waits for the fullest."""
    more = {"ev": {"size": 16, "active": 8, "spread": "random"}, "fabric_rate": "50Gbps"}
    goodput = {}
    for sprayer in (None, *Sprayer):
        loaded = cluster(**more) if sprayer is None else with_sprayer(cluster(**more), sprayer)
        goodput[sprayer] = ClusterRun(loaded, kernels.reference()).mrc().steps[0].goodput
    assert goodput[Sprayer.OBLIVIOUS] < 0.97 * goodput[None]
    assert goodput[None] <= goodput[Sprayer.REPS] * (1 + 1e-9)
