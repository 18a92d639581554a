"""A slow plane: endpoints send as much on it as on any other, and its queues decide who waits for it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from unittest import mock

import numpy as np
import pytest

from mrc_fluid import evs as ev_states
from mrc_fluid import kernels, queueing, shedding
from mrc_fluid.evs import Endpoints
from mrc_fluid.fabric import Fabric, FabricShape
from mrc_fluid.schema import EvSpec
from mrc_fluid.shares import LinkLoads, LinkPrices, Model
from mrc_fluid.shedding import Protocol, Shed, shed

SHAPE = FabricShape(planes=4, t0s=2, t1s=4, nics=8, per_t0=4, port_bps=100.0, fabric_bps=100.0)
#: Of plane 0; the window is large, and queues hold next to nothing when they trim.
SLOW = 0.1
SHALLOW = Protocol(
    window_bits=1e9, rtt=1.0, base_rtt=1.0, target=0.75, trim=0.1, packet_bits=1.0, header=0.0, link_bps=100.0,
    growth=1e9,
)  # fmt: skip


def model(pool: ThreadPoolExecutor, room: float | None = None) -> Model:
    src = np.arange(SHAPE.nics, dtype=np.int32)
    dst = (src + SHAPE.per_t0) % SHAPE.nics
    t0 = Fabric(SHAPE).t0_of
    made = kernels.reference()
    evs = ev_states.draw(made, pool, [f"1/x/{nic}/0/0" for nic in src], SHAPE, EvSpec(size=16, active=16, min_active=1))
    return Model(SHAPE, Endpoints(t0[src], t0[dst], src, dst), evs, made, pool, room=room)


def slow_plane(protocol: Protocol, wanted: float = 400.0) -> tuple[Shed | None, np.ndarray]:
    with ThreadPoolExecutor(1) as pool:
        made, prices = model(pool), LinkPrices.fresh(SHAPE)
        rates = LinkLoads.none(SHAPE, SHAPE.port_bps)
        rates.up[0] = rates.dn[0] = SLOW * SHAPE.fabric_bps
        made.set_rates(rates)
        made.set_dead(Fabric(SHAPE).dead())
        prices.set_dead(Fabric(SHAPE).dead())
        demand = np.full(SHAPE.nics, wanted)
        waits, _ = made.max_min(demand, prices)
        return shed(made, demand, waits, prices, protocol), waits


def test_a_plane_that_trims_early_costs_its_own_part_alone() -> None:
    found, waits = slow_plane(SHALLOW)
    assert found is not None
    assert waits == pytest.approx(4 * SLOW * 100.0)
    assert found.which.all()
    # Three planes carry all that is sent on them, the slow one a tenth of it.
    assert found.rates == pytest.approx(((3 + SLOW) / 4 - shedding.MISTAKEN) * 400.0)
    assert found.load.up[0] == pytest.approx(SLOW * 100.0)
    assert found.load.up[1:] == pytest.approx(100.0)


def test_headers_of_trimmed_packets_use_the_slow_plane() -> None:
    found, _ = slow_plane(Protocol(**{**vars(SHALLOW), "header": 0.04}))
    assert found is not None
    # x whole packets of a tenth, and headers of the rest: x + 0.04 (1 - x) = 0.1.
    assert found.rates == pytest.approx(((3 + (0.1 - 0.04) / 0.96) / 4 - shedding.MISTAKEN) * 400.0)


def test_deep_queues_hold_back_only_where_their_delay_is_told() -> None:
    """The queue of the slow plane holds more than NSCC's target times the planes before its switch trims."""
    deep = Protocol(**{**vars(SHALLOW), "trim": 10.0})
    found, _ = slow_plane(deep)
    assert found is not None
    with mock.patch.object(shedding._State, "_seen", lambda self, sent, halves: np.ones(halves.shape)):
        told, _ = slow_plane(deep)
    assert told is None


def test_the_largest_window_limits_what_is_sent() -> None:
    most = 200.0
    found, _ = slow_plane(Protocol(**{**vars(SHALLOW), "window_bits": most}))
    free, _ = slow_plane(SHALLOW)
    assert found is not None
    assert free is not None
    assert (found.sent < most).all()  # a window in a round trip without queues, of 1 s
    assert (found.sent < free.sent).all()


def test_a_window_stands_where_trims_take_as_much_as_growth_adds() -> None:
    growth = 60.0
    found, _ = slow_plane(Protocol(**{**vars(SHALLOW), "growth": growth}))
    free, _ = slow_plane(SHALLOW)
    assert found is not None
    assert free is not None
    assert (found.sent < free.sent).all()
    passed = found.rates / found.sent
    # A round trip without queues is 1 s; what waits makes it longer, and less is sent.
    assert (found.sent <= growth * passed / (1 - passed)).all()
    assert (found.sent > growth * passed / (1 - passed) / 1.5).all()


def test_the_last_packet_of_a_message_waits_for_the_slow_plane() -> None:
    found, _ = slow_plane(SHALLOW)
    assert found is not None
    # The link up is full: 0.1 s of a full link's rate at a tenth of it; the link down has what that lets through.
    assert (found.trims.late > 0.9).all()
    assert (found.trims.late < 2.0).all()


def test_nothing_is_shed_where_all_planes_are_alike() -> None:
    with ThreadPoolExecutor(1) as pool:
        made, prices = model(pool), LinkPrices.fresh(SHAPE)
        made.set_dead(Fabric(SHAPE).dead())
        prices.set_dead(Fabric(SHAPE).dead())
        demand = np.full(SHAPE.nics, 400.0)
        assert shed(made, demand, made.max_min(demand, prices)[0], prices, SHALLOW) is None


def test_links_that_idle_one_behind_the_other_cost_both() -> None:
    room = 20.0
    with ThreadPoolExecutor(1) as pool:
        made, prices = model(pool, room), LinkPrices.fresh(SHAPE)
        made.set_dead(Fabric(SHAPE).dead())
        prices.set_dead(Fabric(SHAPE).dead())
        wanted = np.full(SHAPE.nics, 400.0)
        rates, _ = made.idle(wanted, *made.max_min(wanted, prices), prices)
    # All links are brought just what they carry.
    assert rates == pytest.approx(400.0 * (room / (room + 1)) ** 2, rel=1e-3)


def test_the_fewer_planes_are_full_the_more_packets_wait_there() -> None:
    room = 20.0
    with ThreadPoolExecutor(1) as pool:
        made, prices = model(pool, room), LinkPrices.fresh(SHAPE)
        links = LinkLoads.none(SHAPE, SHAPE.port_bps)
        links.up[0] = links.dn[0] = 50.0
        made.set_rates(links)
        made.set_dead(Fabric(SHAPE).dead())
        prices.set_dead(Fabric(SHAPE).dead())
        wanted = np.full(SHAPE.nics, 204.0)
        rates, _ = made.idle(wanted, *made.max_min(wanted, prices), prices)
    # The links of a plane are brought 2 % more than they carry; those of the others, half of their rate.
    one = float(queueing.used(np.array(1.02), 4 * room)) ** 2
    assert 0.9 < one < 1
    assert rates == pytest.approx(200.0 * (3 + one) / 4, rel=1e-3)


def test_links_that_are_brought_far_more_than_they_carry_never_idle() -> None:
    room = 20.0
    with ThreadPoolExecutor(1) as pool:
        made, prices = model(pool, room), LinkPrices.fresh(SHAPE)
        links = LinkLoads.none(SHAPE, SHAPE.port_bps)
        links.up[:] = links.dn[:] = 50.0
        made.set_rates(links)
        made.set_dead(Fabric(SHAPE).dead())
        prices.set_dead(Fabric(SHAPE).dead())
        wanted = np.full(SHAPE.nics, 400.0)
        rates, _ = made.idle(wanted, *made.max_min(wanted, prices), prices)
    assert rates == pytest.approx(200.0, rel=1e-3)


def test_windows_grow_less_where_samples_of_the_slow_plane_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sample that is late tells NSCC to add less than what arrives on the fastest plane does."""
    grown: list[shedding._State] = []
    monkeypatch.setattr(shedding._State, "window", lambda self: grown.append(self) or np.full(8, 1e9))
    slow_plane(SHALLOW)
    state = grown[-1]
    passed, wait, halves = state.by_plane
    seen = passed * state._seen(np.full(8, 300.0), halves)
    assert (seen[0] > 0).all()
    assert ((wait[0] - wait[1]) / SHALLOW.target > 1).all()
    # Samples from the slow plane let windows grow by nothing.
    assert (state.grows < state.passed).all()
    assert (state.grows > passed[1:].sum(axis=0) / 4).all()


def test_few_packets_are_late_where_few_are_trimmed() -> None:
    with ThreadPoolExecutor(1) as pool:
        state = shedding._State(model(pool), LinkPrices.fresh(SHAPE), SHALLOW)
    state.passed = np.array([1.0, 0.997, 0.5])
    assert state.arrived == pytest.approx([1.0, 0.996, 0.5 - shedding.MISTAKEN])


def test_what_the_last_packets_meet_in_the_slow_plane() -> None:
    found, _ = slow_plane(SHALLOW)
    assert found is not None
    trims = found.trims
    assert trims.trimmed == pytest.approx(1 - (3 + SLOW) / 4)
    assert trims.slow == pytest.approx(SLOW / (3 + SLOW))
    assert trims.gap == pytest.approx(1 / found.sent)
    # A round trip, and half of a packet that is under way on each of two links of a tenth of the rate, and back.
    assert trims.again == pytest.approx(1.0 + 2 * 2 * 0.5 / (SLOW * 100.0), rel=1e-3)


@pytest.mark.parametrize(
    ("load", "places", "waiting"), [(0.5, 1000, 0.5), (1.0, 10, 5.0), (20.0, 10, 10 - 0.5 / 19), (0.0, 10, 0.0)]
)
def test_a_queue_holds_what_the_theory_says(load: float, places: float, waiting: float) -> None:
    """Half of M/M/1 below its rate, half of its places at it, and all but a few beyond."""
    assert queueing.queued(np.array([load]), places)[0] == pytest.approx(waiting, rel=1e-3)
