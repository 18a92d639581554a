"""EVs, their states and the load of links: as the endpoint and NumPy have them, in both versions of the kernels."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mrc_fluid import evs as ev_states
from mrc_fluid import kernels
from mrc_fluid.evs import Endpoints
from mrc_fluid.fabric import FabricShape
from mrc_fluid.kernels import Kernels
from mrc_fluid.schema import EvSpec
from mrc_host.proto.config import EvConfig, EvMode
from mrc_host.proto.paths.ev import ASSUMED_BAD, EvInput, EvSet
from mrc_host.proto.paths.ev_profile import EvUniverse
from mrc_topo.ev import hop_of
from mrc_topo.labfile import parse_lab
from mrc_topo.paths import Paths

LAB = """
name: small
planes: {planes}
t0_per_plane: 3
t1_per_plane: {t1s}
hosts: 6
hosts_per_t0: 2
max_oversubscription: 100
seed: {seed}
ev: {{size: {size}, active: {active}}}
"""


@pytest.fixture(scope="module", params=["plain", "compiled"])
def made(request: pytest.FixtureRequest) -> Kernels:
    if request.param == "plain":
        return kernels.reference()
    pytest.importorskip("numba", reason="the extra `scale` is not installed")
    return kernels.compiled()


def drawn(
    made: Kernels, texts: list[str], planes: int, t1s: int, size: int, active: int, floor: int = 4, even: bool = True
) -> Any:
    shape = FabricShape(planes, t0s=2, t1s=t1s, nics=2, per_t0=1, port_bps=1.0, fabric_bps=1.0)
    spec = EvSpec(size=size, active=active, min_active=floor, spread="even" if even else "random")
    with ThreadPoolExecutor(2) as pool:
        return ev_states.draw(made, pool, texts, shape, spec)


def endpoint(text: str, planes: int, t1s: int, profile: Any, active: int, floor: int = 4) -> EvSet:
    """Return the EVs of a queue pair as its endpoint has them."""
    config = EvConfig(mode=EvMode.EXPLICIT, values=profile, active=active, ev_min_active=floor)
    universe = EvUniverse(config, planes, random.Random(0))
    return EvSet(universe, random.Random(f"{text}/order"), lambda *_: None)


shapes = st.tuples(st.integers(1, 4), st.integers(1, 9), st.integers(1, 12), st.integers(0, 2**40))


@settings(max_examples=30, deadline=None)
@given(shape=shapes, source=st.integers(0, 5), target=st.integers(0, 5))
def test_evs_are_those_of_the_lab_and_of_the_endpoint(
    made: Kernels, shape: tuple[int, int, int, int], source: int, target: int
) -> None:
    planes, t1s, each, seed = shape
    size, active = planes * each, planes * max(1, each // 2)
    floor = min(4, active)
    lab = LAB.format(planes=planes, t1s=t1s, seed=seed, size=size, active=active)
    topology = parse_lab(lab.replace("active:", f"min_active: {floor}, active:"))
    profile = Paths(topology).profile(source, target)
    text = ev_states.text_of(seed, "small", source, target)
    found = drawn(made, [text, text + "x"], planes, t1s, size, active)
    wanted = endpoint(text, planes, t1s, profile, active)
    for plane in range(planes):
        values = [hop_of(wanted.universe.values[ev]) for ev in (*wanted.order[plane], *wanted.backup[plane])]
        assert found.hop[plane, 0].tolist() == values
        assert found.active[plane, 0] == len(wanted.order[plane])


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 2**40), each=st.integers(1, 24), uplinks=st.integers(1, 5), even=st.booleans())
def test_evs_between_pods_have_the_t1s_of_two_tiers_and_their_uplinks_equally(
    made: Kernels, seed: int, each: int, uplinks: int, even: bool
) -> None:
    shape = FabricShape(2, 5, 3, 10, 2, 1.0, 1.0, t0_per_pod=2, uplinks=uplinks)
    spec = EvSpec(size=2 * each, active=2, min_active=1, spread="even" if even else "random")
    texts = [f"{seed}/lab/{number}/9/0" for number in range(2)]
    with ThreadPoolExecutor(1) as pool:
        found = ev_states.draw(made, pool, texts, shape, spec, np.array([True, False])).hop
        plain = ev_states.draw(kernels.reference(), pool, texts, shape, spec, np.array([True, False])).hop
        flat = ev_states.draw(made, pool, texts, replace(shape, uplinks=0, t0_per_pod=0), spec).hop
    assert (found == plain).all()
    assert (found[:, 1] == flat[:, 1]).all()
    t1, uplink = np.divmod(found[:, 0].astype(int) - 3, uplinks)
    assert (np.sort(t1) == np.sort(flat[:, 0])).all()
    assert (t1 >= 0).all()
    for plane in range(2 if even else 0):
        for own in range(3):
            count = np.bincount(uplink[plane][t1[plane] == own], minlength=uplinks)
            assert count.max() - count.min() <= 1


@pytest.mark.parametrize(("planes", "each"), [(1, 4096), (2, 6), (1, 5), (1, 1400)])
def test_long_profiles_take_the_generator_on_as_sample_does(made: Kernels, planes: int, each: int) -> None:
    """`Random.sample` goes another way for a few and for many; what is drawn after it tells which one was gone."""
    text = "7/wide/1/2/0"
    found = drawn(made, [text], planes, 256, planes * each, planes)
    plain = drawn(kernels.reference(), [text], planes, 256, planes * each, planes)
    assert (found.hop == plain.hop).all()


def hops(evs: EvSet, members: Any) -> list[int]:
    return [hop_of(evs.universe.values[ev]) for ev in members]


@settings(max_examples=40, deadline=None)
@given(
    planes=st.integers(1, 3), each=st.integers(1, 6), share=st.integers(1, 6), floor=st.integers(1, 4),
    deaths=st.lists(st.tuples(st.booleans(), st.sets(st.integers(0, 5))), max_size=5),
)  # fmt: skip
def test_states_follow_the_endpoint(
    made: Kernels, planes: int, each: int, share: int, floor: int, deaths: list[tuple[bool, set[int]]]
) -> None:
    """What dies, dies in all planes; then all that is alive is probed. The endpoint is told of each EV by itself."""
    t1s, active = 6, planes * min(share, each)
    text, floor = "3/fail/0/1/0", min(floor, active)
    found = drawn(made, [text], planes, t1s, planes * each, active, floor)
    # The profile by the kernel's reference: that it is the lab's, the test above says.
    plain = drawn(kernels.reference(), [text], planes, t1s, planes * each, active, floor)
    profile = [
        [plane << 28 | int(hop) << 16 | 0xC000 + i for i, hop in enumerate(row)]
        for plane, row in enumerate(plain.hop[:, 0])
    ]
    wanted = endpoint(text, planes, t1s, profile, active, floor)
    for plane in range(planes):  # in the order that was drawn
        values = list(wanted.universe.by_plane[plane])
        wanted.order[plane][:] = values[: wanted.target]
        wanted.backup[plane][:] = values[wanted.target :]
    ends = Endpoints(*(np.array([number], np.int32) for number in (0, 1, 0, 1)))
    vague = False
    with ThreadPoolExecutor(1) as pool:
        for returns, dead in deaths:
            links = np.zeros((planes, 2, t1s), bool)
            links[:, 0, list(dead)] = True
            used = np.ones((planes, 1), bool)
            pair = (links, links)
            if returns:
                # Probes succeed in any order; here in that of the arrays. An EV is known by its T1.
                for plane in range(planes):
                    evs = {hop_of(wanted.universe.values[ev]): ev for ev in wanted.universe.by_plane[plane]}
                    for hop in found.hop[plane, 0].tolist():
                        if wanted.state[evs[hop]] == ASSUMED_BAD and hop not in dead:
                            wanted.apply(evs[hop], EvInput.REVIVED)
                ev_states.bring_back(made, pool, found, ends, pair, ASSUMED_BAD)
            else:
                hits = ev_states.take_out(made, pool, found, ends, pair, used, ASSUMED_BAD)
                told = 0
                for plane in range(planes):
                    order = list(wanted.order[plane])
                    struck = [ev for ev in order if hop_of(wanted.universe.values[ev]) in dead]
                    told += len(struck)
                    for ev in struck:
                        wanted.apply(ev, EvInput.LOSS)
                assert vague or hits.sum() == told
            bad = sum(state == ASSUMED_BAD for state in wanted.state)
            assert vague or found.counts()["bad"] == bad
            kept = any(wanted.state[ev] == ASSUMED_BAD for order in wanted.order for ev in order)
            vague = vague or kept  # which of several bad ones the floor keeps is left open
            if not vague:
                for plane in range(planes):
                    n, m = found.active[plane, 0], found.backup[plane, 0]
                    row = found.hop[plane, 0].tolist()
                    assert sorted(row[:n]) == sorted(hops(wanted, wanted.order[plane]))
                    assert sorted(row[n : n + m]) == sorted(hops(wanted, wanted.backup[plane]))


def test_denied_evs_leave_active_set_and_backups_and_come_back(made: Kernels) -> None:
    found = drawn(made, ["1/a/0/1/0"], 2, 8, 16, 8)
    ends = Endpoints(*(np.array([number], np.int32) for number in (0, 1, 0, 1)))
    links = np.zeros((2, 2, 8), bool)
    links[:, 1, 3] = True  # the receiver's side
    with ThreadPoolExecutor(1) as pool:
        before = found.counts()
        used = np.ones((2, 1), bool)
        ev_states.take_out(made, pool, found, ends, (links, links), used, ev_states.DENIED)
        assert found.counts()["denied"] == int((found.hop == 3).sum()) == 2
        for plane in range(2):
            n = found.active[plane, 0] + found.backup[plane, 0]
            assert 3 not in found.hop[plane, 0, :n]
        links[:] = False
        assert ev_states.bring_back(made, pool, found, ends, (links, links), ev_states.DENIED) == 2
        assert found.counts() == before


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_compiled_kernels_do_what_numpy_does(seed: int) -> None:
    pytest.importorskip("numba", reason="the extra `scale` is not installed")
    rng = np.random.default_rng(seed)
    count, t0s, t1s, each = 20, 4, 6, 5
    hop = rng.integers(0, t1s, (count, each)).astype(np.uint16)
    active = rng.integers(0, each + 1, count).astype(np.int32)
    src, dst = (rng.integers(0, t0s, count).astype(np.int32) for _ in range(2))
    value = rng.choice([0.0, 1.0, 2.5], count)
    weights = [np.where(rng.random((t0s, t1s)) < 0.2, 0.0, rng.uniform(0.3, 1, (t0s, t1s))) for _ in range(2)]
    values = [rng.uniform(0, 1, (t0s, t1s)) for _ in range(2)]
    wanted, lowest, add = rng.random(count) < 0.7, rng.choice([0.7, 0.25, 0.0]), bool(rng.random() < 0.5)
    results = []
    for made in (kernels.reference(), kernels.compiled()):
        up, dn, out = np.zeros((t0s, t1s)), np.zeros((t0s, t1s)), np.full(count, 0.9)
        made.spread(hop, active, src, dst, value, lowest, *weights, up, dn)  # type: ignore[call-arg]
        made.least(hop, active, src, dst, wanted, *weights, *values, out)  # type: ignore[call-arg]
        alive = np.zeros(count, np.int32)
        made.living(hop, active, src, dst, weights[0] == 0, weights[1] == 0, alive)
        weight = np.zeros(count)
        made.weigh(hop, active, src, dst, lowest, *weights, *values, add, weight)  # type: ignore[arg-type, call-arg]
        results.append((up, dn, out, alive, weight))
    for one, other in zip(*results, strict=True):
        assert np.allclose(one, other, rtol=1e-12)


@pytest.mark.parametrize(("even", "touched"), [(True, 0.25), (False, 1 - (1 - 1 / 256) ** 64)])
def test_the_share_of_queue_pairs_that_use_a_t1_follows_the_way_of_drawing(
    made: Kernels, even: bool, touched: float
) -> None:
    """With 64 EVs for 256 T1s the two ways differ: 25 % when they are spread evenly, 22.2 % when each is drawn."""
    texts = [f"1/lab/{number}/0/0" for number in range(400)]
    evs = drawn(made, texts, 1, 256, 64, 64, 1, even)
    share = np.mean([(evs.hop[0] == t1).any(axis=1).mean() for t1 in range(256)])
    assert share == pytest.approx(touched, abs=0.004)
    counts = [len(set(row)) for row in evs.hop[0].tolist()]
    assert (min(counts) == 64) is even


def test_both_kernels_draw_the_same_t1s_at_random() -> None:
    pytest.importorskip("numba", reason="the extra `scale` is not installed")
    texts = [f"7/lab/{number}/1/0" for number in range(20)]
    one, other = (drawn(each, texts, 2, 9, 12, 6, 1, False) for each in (kernels.reference(), kernels.compiled()))
    assert (one.hop == other.hop).all()
