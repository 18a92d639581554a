"""Load and shares: what goes in comes out, no link carries more than it can, and nobody could have more without taking
it from one who has no more."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mrc_fluid import evs as ev_states
from mrc_fluid import kernels
from mrc_fluid.evs import Endpoints
from mrc_fluid.fabric import Fabric, FabricShape
from mrc_fluid.schema import EvSpec
from mrc_fluid.shares import LinkPrices, Model

SHAPE = FabricShape(planes=2, t0s=3, t1s=4, nics=9, per_t0=3, port_bps=100.0, fabric_bps=80.0)


def model(pool: ThreadPoolExecutor, pairs: list[tuple[int, int]], active: int = 4, shape: FabricShape = SHAPE) -> Model:
    src, dst = (np.array(each, np.int32) for each in zip(*pairs, strict=True))
    t0 = Fabric(shape).t0_of
    texts = [f"1/x/{number}/0/0" for number in range(len(pairs))]
    made = kernels.reference()
    spec = EvSpec(size=shape.planes * shape.t1s, active=active, min_active=1)
    evs = ev_states.draw(made, pool, texts, shape, spec)
    return Model(shape, Endpoints(t0[src], t0[dst], src, dst), evs, made, pool)


nic = st.integers(0, SHAPE.nics - 1)
pairs = st.lists(st.tuples(nic, nic).filter(lambda pair: pair[0] != pair[1]), min_size=1, max_size=12)
dead = st.sets(st.tuples(st.integers(0, 1), st.integers(0, 2), st.integers(0, 3)), max_size=5)


def broken(made: Model, links: set[tuple[int, int, int]], prices: LinkPrices) -> None:
    fabric = Fabric(SHAPE)
    for plane, t0, t1 in links:
        fabric.links[plane, t0, t1] += 1
    made.set_dead(fabric.dead())
    prices.set_dead(fabric.dead())


def test_a_path_across_two_full_links_keeps_as_much_as_across_one() -> None:
    """MRC passes over an EV once for a mark, wherever on the path that was set."""
    with ThreadPoolExecutor(1) as pool:
        made, prices = model(pool, [(0, 3)], active=8), LinkPrices.fresh(SHAPE)
        made.steering = 2.0
        prices.up[:, 0, 0] = prices.dn[:, 1, 0] = 2.0
        prices.up[:, 0, 1] = 2.0
        load = made.load(np.array([70.0]), prices)
    for plane in range(2):
        assert load.up[plane, 0] == pytest.approx([35 / 6, 35 / 6, 35 / 3, 35 / 3])


@settings(max_examples=30, deadline=None)
@given(pairs=pairs, links=dead, steps=st.integers(0, 5))
def test_what_is_sent_arrives(pairs: list[tuple[int, int]], links: set[tuple[int, int, int]], steps: int) -> None:
    with ThreadPoolExecutor(1) as pool:
        made, prices = model(pool, pairs), LinkPrices.fresh(SHAPE)
        broken(made, links, prices)
        rates = np.where(made.planes > 0, 7.0, 0.0)
        made.steer(rates, prices, steps)
        load = made.load(rates, prices)
    away = rates[made.ends.src != made.ends.dst].sum()
    assert np.isclose(load.out.sum(), rates.sum())
    assert np.isclose(load.into.sum(), rates.sum())
    assert np.isclose(load.up.sum(), away)
    assert np.isclose(load.dn.sum(), away)
    # A T1 passes on what it gets.
    assert np.allclose(load.up.sum(axis=1), load.dn.sum(axis=1))
    for plane, t0, t1 in links:
        assert load.up[plane, t0, t1] == load.dn[plane, t0, t1] == 0


def fractions(made: Model, prices: LinkPrices) -> np.ndarray:
    """Row by queue pair: what of its rate each link carries; and the capacities, in the same order."""
    rows = []
    for number in range(len(made.planes)):
        one = np.zeros(len(made.planes))
        one[number] = 1.0 if made.planes[number] else 0.0
        rows.append(np.concatenate([part.ravel() for part in made.load(one, prices).each()]))
    return np.array(rows)


@settings(max_examples=40, deadline=None)
@given(pairs=pairs, links=dead, wish=st.floats(1, 400))
def test_shares_are_max_min_fair(pairs: list[tuple[int, int]], links: set[tuple[int, int, int]], wish: float) -> None:
    """By the definition: who has less than it wants has a full link on which nobody has more."""
    with ThreadPoolExecutor(1) as pool:
        made, prices = model(pool, pairs), LinkPrices.fresh(SHAPE)
        broken(made, links, prices)
        rates, load = made.max_min(np.full(len(pairs), wish), prices, level=1e-9)
        part = fractions(made, prices)
    capacity = np.concatenate([each.ravel() for each in made.capacity.each()])
    carried = np.concatenate([each.ravel() for each in load.each()])
    assert (carried <= capacity * (1 + 1e-9)).all()
    assert np.allclose(rates @ part, carried)
    full = carried >= capacity * (1 - 1e-6)
    for number, rate in enumerate(rates):
        if made.planes[number] == 0:
            assert rate == 0
        elif rate < wish * (1 - 1e-6):
            mine = np.flatnonzero(full & (part[number] > 1e-9))
            assert any(rate >= rates[part[:, link] > 1e-9].max() * (1 - 1e-6) for link in mine)


@settings(max_examples=20, deadline=None)
@given(pairs=pairs, level=st.sampled_from([0.01, 0.1, 1.0]))
def test_levels_that_are_taken_as_one_overload_nothing(pairs: list[tuple[int, int]], level: float) -> None:
    with ThreadPoolExecutor(1) as pool:
        made, prices = model(pool, pairs), LinkPrices.fresh(SHAPE)
        made.set_dead(Fabric(SHAPE).dead())
        prices.set_dead(Fabric(SHAPE).dead())
        exact, _ = made.max_min(np.full(len(pairs), 400.0), prices, level=1e-9)
        rates, load = made.max_min(np.full(len(pairs), 400.0), prices, level=level)
    for part, whole in zip(load.each(), made.capacity.each(), strict=True):
        assert (part <= whole * (1 + 1e-9)).all()
    assert rates.min() >= exact.min() * (1 - 1e-9)


@settings(max_examples=15, deadline=None)
@given(links=dead)
def test_steering_finds_what_a_maximum_flow_finds(links: set[tuple[int, int, int]]) -> None:
    """With all T1s in use by every queue pair, no more than the maximum flow, and all of it once load has moved."""
    pairs = [(number, number + 3) for number in range(3)]
    with ThreadPoolExecutor(1) as pool:
        made, prices = model(pool, pairs, active=8), LinkPrices.fresh(SHAPE)
        broken(made, links, prices)
        most = []
        for plane in range(SHAPE.planes):
            graph = nx.DiGraph()
            for t1 in range(SHAPE.t1s):
                for tail, head, t0 in (("from", t1, 0), (t1, "to", 1)):
                    if (plane, t0, t1) not in links:
                        graph.add_edge(tail, head, capacity=SHAPE.fabric_bps)
            there = graph.has_node("from") and graph.has_node("to") and nx.has_path(graph, "from", "to")
            most.append(nx.maximum_flow_value(graph, "from", "to") if there else 0.0)
        living = [flow for flow in most if flow > 0]
        wanted = np.full(3, len(living) * min([*living, 300.0]) / 3)
        if not living:
            assert (made.planes == 0).all()
            return
        made.steer(wanted, prices, 300, 1e-6)
        rates, _ = made.max_min(wanted, prices, level=1e-9)
    assert rates.sum() <= sum(min(flow, 300.0) for flow in most) * (1 + 1e-9)
    assert np.allclose(rates, wanted, rtol=1e-3)
