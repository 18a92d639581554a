"""Three tiers: what networkx, closed forms and a calculation on links by name say of rates, and the same as two tiers
where there is one pod."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mrc_fluid import evs as ev_states
from mrc_fluid import kernels
from mrc_fluid.evs import Endpoints
from mrc_fluid.fabric import Fabric, FabricShape, Harm, UnknownElement
from mrc_fluid.grey import grey
from mrc_fluid.schema import CLASSES, EvSpec
from mrc_fluid.shares import LinkLoads, LinkPrices, Model
from mrc_fluid.shedding import Protocol, _State

#: Three pods of two T0s and two T1s, four T2s; the last pod has one T0.
SHAPE = FabricShape(
    planes=1, t0s=5, t1s=2, nics=10, per_t0=2, port_bps=100.0, fabric_bps=100.0, t0_per_pod=2, uplinks=2
)  # fmt: skip
#: Two links between a T1 and each of its T2s.
DOUBLE = replace(SHAPE, planes=2, uplinks=4, parallel=2)


def model(
    pool: ThreadPoolExecutor, pairs: Sequence[tuple[int, int]], shape: FabricShape = SHAPE, evs: int = 0
) -> Model:
    """Return queue pairs with all EVs active: one for each path between pods, if their number is not given."""
    src, dst = (np.array(each, np.int32) for each in zip(*pairs, strict=True))
    t0, made, size = Fabric(shape).t0_of, kernels.reference(), evs or shape.paths
    far = shape.pod_of[t0[src]] != shape.pod_of[t0[dst]]
    texts = [f"1/x/{number}/0/0" for number in range(len(pairs))]
    drawn = ev_states.draw(made, pool, texts, shape, EvSpec(size=size, active=size, min_active=1), far)
    return Model(shape, Endpoints(t0[src], t0[dst], src, dst), drawn, made, pool)


def named_links(shape: FabricShape, plane: int, src: int, dst: int, path: int) -> list[tuple[str, str]]:
    """Return the directed links from NIC to NIC on a path, as pairs of names: what `fabric` says in words."""
    ends = (src // shape.per_t0, dst // shape.per_t0)
    pods = [t0 // shape.t0_per_pod for t0 in ends]
    t0s = [f"p{plane}-t0.{t0}" for t0 in ends]
    if ends[0] == ends[1]:
        nodes = [t0s[0]]
    elif pods[0] == pods[1]:
        nodes = [t0s[0], f"p{plane}-t1.{pods[0] * shape.t1s + path}", t0s[1]]
    else:
        uplink = path - shape.t1s
        t1s = [f"p{plane}-t1.{pod * shape.t1s + uplink // shape.uplinks}" for pod in pods]
        # Of several links between a T1 and a T2 each has a T2 of its own here.
        t2 = f"p{plane}-t2.{uplink // shape.parallel}:{uplink % shape.parallel}"
        nodes = [t0s[0], t1s[0], t2, t1s[1], t0s[1]]
    return list(itertools.pairwise([f"h{src}:{plane}", *nodes, f"h{dst}:{plane}"]))


nic = st.integers(0, SHAPE.nics - 1)
some_pairs = st.lists(st.tuples(nic, nic).filter(lambda pair: pair[0] != pair[1]), min_size=1, max_size=8)


def elements(shape: FabricShape, kinds: Iterable[str] = CLASSES) -> list[str]:
    fabric = Fabric(shape)
    return [fabric.name(kind, number) for kind in kinds for number in range(fabric.count(kind))]


def broken(made: Model, names: Iterable[str], prices: LinkPrices) -> Fabric:
    fabric = Fabric(made.shape)
    for name in names:
        fabric.change(name, 1)
    made.set_dead(fabric.dead())
    prices.set_dead(fabric.dead())
    return fabric


@pytest.mark.parametrize("shape", [SHAPE, DOUBLE])
def test_each_element_has_one_name_and_is_back_after_its_repair(shape: FabricShape) -> None:
    fabric = Fabric(shape)
    names = elements(shape)
    assert len(set(names)) == len(names)
    for kind in CLASSES:
        for number in range(fabric.count(kind)):
            fabric.change(fabric.name(kind, number), 1)
            held = getattr(fabric, kind)
            assert held.sum() == 1
            if kind != "ports":  # which are numbered by NIC
                assert held.ravel()[number] == 1
            fabric.change(fabric.name(kind, number), -1)
    assert not any(part.any() for part in fabric.dead())


def test_links_between_pods_have_the_ends_that_their_names_say() -> None:
    fabric = Fabric(DOUBLE)
    fabric.change("p1-t1.3--p1-t2.2", 1)  # the second T1 of the second pod, and the first of its T2s
    assert np.argwhere(fabric.dead_upper()).tolist() == [[1, 1, 4], [1, 1, 5]]
    fabric.change("p1-t1.3--p1-t2.2", -1)
    fabric.change("p1-t1.3--p1-t2.2:1", 1)
    assert np.argwhere(fabric.dead_upper()).tolist() == [[1, 1, 5]]
    fabric.change("p0-t2.3", 1)
    assert np.argwhere(fabric.dead_upper()[0]).tolist() == [[pod, up] for pod in range(3) for up in (6, 7)]
    fabric.change("p0-t1.4", 1)
    assert np.argwhere(fabric.dead_links()).tolist() == [[0, 4, 0]]
    for name in ("p0-t1.3--p0-t2.1", "p0-t0.0--p0-t1.2", "p0-t1.6", "p0-t2.4", "p0-t1.3--p0-t2.2:2"):
        with pytest.raises(UnknownElement, match=r"the last of each kind: p1, p1-t0.4--p1-t1.5, p1-t1.5--p1-t2.3:1"):
            fabric.find(name)


@settings(max_examples=25, deadline=None)
@given(pairs=some_pairs, dead=st.sets(st.sampled_from(elements(SHAPE)), max_size=4), seed=st.integers(0, 99))
def test_each_link_carries_what_the_paths_across_it_do(pairs: list[tuple[int, int]], dead: set[str], seed: int) -> None:
    """Links by name, each EV by itself; within a pod nothing goes up to a T2."""
    with ThreadPoolExecutor(1) as pool:
        made, rng = model(pool, pairs), np.random.default_rng(seed)
        prices = LinkPrices(*(rng.uniform(1, 3, part.shape) for part in LinkPrices.fresh(SHAPE).each()))
        fabric = broken(made, dead, prices)
        rates = np.where(made.planes > 0, np.arange(1.0, len(pairs) + 1), 0.0)
        load = made.load(rates, prices)
    price = by_name(fabric, prices)
    carried: dict[tuple[str, str], float] = {}
    for number, (src, dst) in enumerate(pairs):
        ways = [named_links(SHAPE, 0, src, dst, int(path)) for path in made.evs.hop[0, number]]
        if src // 2 == dst // 2:
            ways = ways[:1]
        shares = [1 / np.prod([price.get(link, 1.0) for link in way]) for way in ways]
        for way, share in zip(ways, shares, strict=True):
            for link in way if rates[number] else []:
                carried[link] = carried.get(link, 0.0) + rates[number] * share / sum(shares)
    found = by_name(fabric, load.fabric(), (load.out, load.into))
    assert {link for link, value in found.items() if value} == {link for link, value in carried.items() if value}
    for link, value in carried.items():
        assert found[link] == pytest.approx(value)


def by_name(
    fabric: Fabric, values: LinkPrices, ports: tuple[np.ndarray, np.ndarray] | None = None
) -> dict[tuple[str, str], float]:
    """Return values of links by the names of their ends, in both directions."""
    found = {}
    for kind, ways in (("links", values.each()[:2]), ("upper_links", values.each()[2:])):
        for number in range(fabric.count(kind)):
            below, above = fabric.name(kind, number).split("--")
            above += ":0" if kind == "upper_links" and fabric.shape.parallel == 1 else ""
            found[below, above], found[above, below] = (float(part.ravel()[number]) for part in ways)
    if ports is not None:
        for number in range(fabric.shape.nics):
            for way, part in zip((1, -1), ports, strict=True):
                ends = (f"h{number}:0", f"p0-t0.{number // fabric.shape.per_t0}")[::way]
                found[ends[0], ends[1]] = float(part[0, number])
    return found


def filled(ways: list[dict[tuple[str, str], float]], wish: float, capacity: float) -> list[float]:
    """Return max-min fair rates on explicit links: raise all rates until a link is full, then keep those on it."""
    rates, going = [0.0] * len(ways), {number for number, way in enumerate(ways) if way}
    while going:
        steps = [(wish - rates[number], {number}) for number in going]
        for link in {link for number in going for link in ways[number]}:
            growth = sum(ways[number].get(link, 0.0) for number in going)
            used = sum(rate * way.get(link, 0.0) for rate, way in zip(rates, ways, strict=True))
            steps.append(((capacity - used) / growth, {number for number in going if link in ways[number]}))
        step = min(each[0] for each in steps)
        for number in going:
            rates[number] += step
        going -= set().union(*(who for size, who in steps if size <= step + 1e-9))
    return rates


@settings(max_examples=25, deadline=None)
@given(
    pairs=some_pairs, dead=st.sets(st.sampled_from(elements(SHAPE)), max_size=4), wish=st.sampled_from([30.0, 100.0])
)  # fmt: skip
def test_shares_are_those_of_filling_links_by_name(pairs: list[tuple[int, int]], dead: set[str], wish: float) -> None:
    with ThreadPoolExecutor(1) as pool:
        made, prices = model(pool, pairs), LinkPrices.fresh(SHAPE)
        fabric = broken(made, dead, prices)
        rates, _ = made.max_min(np.full(len(pairs), wish), prices, level=1e-9)
    live = by_name(
        fabric, LinkPrices.both_ways((~fabric.dead_links()).astype(float), (~fabric.dead_upper()).astype(float))
    )
    ways: list[dict[tuple[str, str], float]] = []
    for number, (src, dst) in enumerate(pairs):
        every = [named_links(SHAPE, 0, src, dst, int(path)) for path in made.evs.hop[0, number]]
        open_ways = [way for way in every if all(live.get(link, 1.0) for link in way)]
        reached = not fabric.dead_ports()[0, [src, dst]].any()
        ways.append({})
        for link in itertools.chain(*open_ways if reached else []):
            ways[-1][link] = ways[-1].get(link, 0.0) + 1 / len(open_ways)
    assert rates.tolist() == pytest.approx(filled(ways, wish, 100.0))


@settings(max_examples=20, deadline=None)
@given(
    dead=st.sets(st.sampled_from(elements(SHAPE, ("links", "upper_links", "t1s", "t2s"))), max_size=5),
    target=st.sampled_from([2, 4]),
)  # fmt: skip
def test_steering_finds_what_a_maximum_flow_finds(dead: set[str], target: int) -> None:
    """From both NICs of a T0 to those of another, in its pod and in another: all of the maximum flow of networkx."""
    pairs = [(0, target), (1, target + 1)]
    with ThreadPoolExecutor(1) as pool:
        made, prices = model(pool, pairs, evs=16), LinkPrices.fresh(SHAPE)
        fabric = broken(made, dead, prices)
        most = flow(fabric, [0], [target // 2])
        wanted = np.full(2, most / 2)
        if not most:
            assert (made.planes == 0).all()
            return
        made.steer(wanted, prices, 400, 1e-6)
        rates, _ = made.max_min(np.full(2, 1000.0), prices, level=1e-9)
    assert rates.sum() == pytest.approx(min(most, 200.0), rel=2e-3)


def flow(fabric: Fabric, sources: list[int], targets: list[int]) -> float:
    """Return the maximum flow from T0s to T0s, by networkx: packets go up, then down, and not up again."""
    graph = nx.DiGraph()
    for kind, dead in (("links", fabric.dead_links()), ("upper_links", fabric.dead_upper())):
        for number in np.flatnonzero(~dead):
            below, above = fabric.name(kind, int(number)).split("--")
            for ends in ((f"up {below}", f"up {above}"), (f"down {above}", f"down {below}")):
                graph.add_edge(*ends, capacity=fabric.shape.fabric_bps)
            graph.add_edge(f"up {above}", f"down {above}")
    graph.add_edges_from([("from", f"up p0-t0.{t0}") for t0 in sources])
    graph.add_edges_from([(f"down p0-t0.{t0}", "to") for t0 in targets])
    graph.add_nodes_from(["from", "to"])
    return float(nx.maximum_flow_value(graph, "from", "to"))


#: Four pods of four T0s: as many uplinks as NICs at each tier.
FULL = FabricShape(
    planes=1, t0s=16, t1s=4, nics=64, per_t0=4, port_bps=100.0, fabric_bps=100.0, t0_per_pod=4, uplinks=4
)  # fmt: skip


@pytest.mark.parametrize(("uplinks", "between", "inside"), [(4, 100.0, 100.0), (2, 50.0, 100.0), (1, 25.0, 100.0)])
def test_pods_get_what_the_uplinks_of_their_t1s_carry(uplinks: int, between: float, inside: float) -> None:
    """Full bisection: line rate; two T0s for each uplink: half of it, and all of it within a pod. A maximum flow says
    the same of a whole pod."""
    shape = replace(FULL, uplinks=uplinks)
    for pods, rate in ((1, between), (0, inside)):
        # Each NIC to the same place under the next T0, or in the next pod.
        away = 16 if pods else 4
        pairs = [(n, (n + away) % 64 if pods else n // 16 * 16 + (n + 4) % 16) for n in range(64)]
        with ThreadPoolExecutor(1) as pool:
            made, prices = model(pool, pairs, shape), LinkPrices.fresh(shape)
            rates, load = made.max_min(np.full(64, 1000.0), prices)
        assert rates == pytest.approx(rate)
        assert load.upper_up.any() == load.upper_dn.any() == bool(pods)
    most = flow(Fabric(shape), list(range(4)), list(range(4, 8)))
    assert most == pytest.approx(16 * between)


def test_an_all_to_all_between_pods_gets_the_maximum_flow_with_dead_links() -> None:
    """A pod that has lost a T1 and a T2: what it can send and receive is its cut."""
    pairs = [(a, b) for a in range(16) for b in range(16, 32)]
    with ThreadPoolExecutor(1) as pool:
        made, prices = model(pool, pairs, FULL), LinkPrices.fresh(FULL)
        fabric = broken(made, ["p0-t1.2", "p0-t2.0", "p0-t1.4--p0-t2.1"], prices)
        most = flow(fabric, list(range(4)), list(range(4, 8)))
        assert most == 100.0 * (4 + 4 + 2)  # of the first T1's four T2s one is dead, and one link in the second pod
        wanted = np.full(len(pairs), most / len(pairs))
        made.steer(wanted, prices, 300, 1e-6)
        rates, _ = made.max_min(np.full(len(pairs), 1000.0), prices)
    assert rates.sum() == pytest.approx(most, rel=5e-3)


def test_losses_and_rates_of_upper_elements_count_once_on_a_path() -> None:
    fabric = Fabric(DOUBLE)
    for by in (1, -1):
        fabric.change("p0-t2.1", by, harm=Harm(loss=0.19))
        fabric.change("p0-t1.0", by, harm=Harm(loss=0.36))
        fabric.change("p1-t2.0", by, harm=Harm(rate=0.5))
        losses, rates = fabric.losses(), fabric.rates()
        if by > 0:
            kept = DOUBLE.halves(1 - losses.links, 1 - losses.upper, np.multiply)[0]
            # Uplink 2 of a pod's first T1 leads to the second T2. Both pods have the T2 on their half.
            assert kept[0, 2 + 2] * kept[2, 2 + 2] == pytest.approx(0.64 * 0.81)
            assert kept[0, 2 + 0] * kept[2, 2 + 0] == pytest.approx(0.64)
            assert kept[0, 0] * kept[1, 0] == pytest.approx(0.64)
            assert rates is not None
            assert rates.upper[1, :, :2] == pytest.approx(0.5)
            assert rates.upper[1, :, 2:] == pytest.approx(1.0)
            assert rates.links == pytest.approx(1.0)
            fabric.change("p1", 1, harm=Harm(rate=0.25))
            slow = fabric.rates()
            assert slow is not None
            assert slow.upper[1] == pytest.approx(0.25 * rates.upper[1])
            assert slow.upper[0] == pytest.approx(1.0)
            fabric.change("p1", -1, harm=Harm(rate=0.25))
    assert not losses.links.any()
    assert not losses.upper.any()
    assert rates is None


def test_links_between_pods_that_are_slow_limit_those_that_cross_them() -> None:
    pairs = [(0, 4), (2, 6), (1, 3)]
    with ThreadPoolExecutor(1) as pool:
        made, prices = model(pool, pairs), LinkPrices.fresh(SHAPE)
        rates = LinkLoads.none(SHAPE, 100.0)
        rates.upper_up[0, 0] = 10.0
        made.set_rates(rates)
        found, _ = made.max_min(np.full(3, 1000.0), prices)
    # Two queue pairs share four uplinks of 10; the third stays in the pod.
    assert found == pytest.approx([20.0, 20.0, 100.0])


def test_a_t2_that_loses_packets_takes_its_part_of_what_crosses_pods() -> None:
    pairs = [(0, 4), (0, 2)]
    with ThreadPoolExecutor(1) as pool:
        made, prices = model(pool, pairs), LinkPrices.fresh(SHAPE)
        fabric = Fabric(SHAPE)
        fabric.change("p0-t2.1", 1, harm=Harm(loss=0.2))
        found = grey(made, fabric, prices)
        assert found is not None
        # One path of four between pods crosses it, and it loses once.
        assert found.loss[0] == pytest.approx([0.05, 0.0], abs=1e-12)
        assert not found.trapped.any()
        for t2 in (0, 2, 3):
            fabric.change(f"p0-t2.{t2}", 1, harm=Harm(loss=0.2))
        found = grey(made, fabric, prices)
        assert found is not None
        assert found.loss[0] == pytest.approx([0.2, 0.0], abs=1e-12)
        assert found.trapped[0].tolist() == [True, False]


def test_what_uplinks_trim_goes_on_as_headers() -> None:
    """The first T1 gets 100, of which 60 go up on an uplink of 30; T2 0 sends 60 to the second pod and 40 back."""
    protocol = Protocol(1.0, 1.0, 1.0, 1.0, 1e-9, 1.0, 0.1, 100.0, 1e9)
    with ThreadPoolExecutor(1) as pool:
        made, prices = model(pool, [(0, 4)]), LinkPrices.fresh(SHAPE)
        made.capacity.upper_up[0, 0, 0] = made.capacity.upper_dn[0, 1, 0] = 30.0
        state, offered = _State(made, prices, protocol), LinkLoads.none(SHAPE)
        offered.up[0, 0, 0] = 100.0
        offered.upper_up[0, 0, 0], offered.upper_dn[0, 1, 0], offered.upper_dn[0, 0, 0] = 60.0, 60.0, 40.0
        up, dn, arrives = state._across_t2s(offered, np.ones((1, 3, 2)), made.capacity)
    # x whole packets and headers of the others fill it: x + 0.1 (60 - x) = 30.
    passes = (30 - 6) / 0.9 / 60
    assert up[0][0, 0] == pytest.approx([passes, 1, 1, 1])
    # Headers go first.
    whole, headers = 60 * passes, 6 * (1 - passes)
    further = ((30 - headers) / whole - 0.1) / 0.9
    assert dn[0][0, 1] == pytest.approx([further, 1, 1, 1])
    assert arrives[0, 1] == pytest.approx([passes * further, 1])
    # 40 have stayed in the first pod, and 40 come back, of which some are whole.
    assert arrives[0, 0] == pytest.approx([(40 + 40 * passes) / 80, 1])
