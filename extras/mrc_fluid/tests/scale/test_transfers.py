"""Transfers of a fluid: shares change when one begins or ends, a queue pair sends one after another, failures count."""

from __future__ import annotations

import json

import numpy as np
import pytest

from mrc_fluid import kernels, transfers
from mrc_fluid.clusterfile import Loaded, parse_cluster
from mrc_fluid.schema import EvSpec
from mrc_fluid.shares import LinkLoads
from mrc_fluid.transfers import Transfer

#: NICs of 1 Gb/s; all of a port can be used.
RATE = 1_000_000_000
EV = EvSpec(size=8, active=4, min_active=1)


def cluster(**more: object) -> Loaded:
    given = {
        "name": "transfers", "planes": 1, "radix": 8, "nics": 8, "nics_per_t0": 4, "t1_per_plane": 4,
        "port_rate": RATE, "base_rtt": "1us", "path_mtu": 4096, "duration": "10s", "bin": "1ms", "denylist": False,
        "ev": {"size": 1, "active": 1, "min_active": 1}, "jobs": [{"name": "x", "kind": "ring"}],
        "model": {"nic_share": 1.0, "fabric_share": 1.0},
    }  # fmt: skip
    return parse_cluster(json.dumps(given | more))


def ends(flows: list[Transfer], rates: LinkLoads | None = None, **more: object) -> list[float]:
    found = transfers.run(cluster(**more), kernels.reference(), flows, EV, 1.0, rates)
    return [round(float(end), 4) for end in found.ends_s[0]]


def test_two_transfers_to_one_port_share_it_until_one_ends() -> None:
    assert ends([Transfer(0, 4, 125_000_000), Transfer(1, 4, 250_000_000)]) == [2.0, 3.0]


def test_a_transfer_that_begins_later_slows_the_first() -> None:
    assert ends([Transfer(0, 4, 125_000_000), Transfer(1, 4, 125_000_000, 0.5)]) == [1.5, 2.0]


def test_transfers_of_a_queue_pair_follow_each_other() -> None:
    assert ends([Transfer(0, 4, 125_000_000), Transfer(0, 4, 125_000_000), Transfer(1, 5, 125_000_000)]) == [1, 2, 1]


def test_a_gap_without_transfers_passes() -> None:
    assert ends([Transfer(0, 4, 125_000_000), Transfer(0, 4, 125_000_000, 7.0)]) == [1.0, 8.0]


def test_a_link_has_the_rate_that_it_is_given() -> None:
    shape = cluster().shape
    rates = LinkLoads.none(shape, float(RATE))
    rates.into[0, 4] = RATE / 10
    assert ends([Transfer(0, 4, 12_500_000), Transfer(1, 5, 12_500_000)], rates) == [1.0, 0.1]


def test_a_dead_port_ends_nothing_until_it_is_repaired() -> None:
    flows = [Transfer(0, 4, 125_000_000)]
    down = {"at": "500ms", "fail": "h4:0"}
    assert ends(flows, failures=[down | {"for": "2s"}])[0] == pytest.approx(3.0, abs=0.01)
    assert ends(flows, failures=[down]) == [np.inf]


def test_dead_paths_are_found_at_the_price_of_packets() -> None:
    found = transfers.run(
        cluster(failures=[{"at": "100ms", "fail": "p0-t1.3"}]), kernels.reference(),
        [Transfer(0, 4, 125_000_000)], EV, 1.0,
    )  # fmt: skip
    assert found.lost > 0
    assert found.evs_bad == 2  # two of the four active EVs, and none of the backups that replace them


@pytest.mark.parametrize("floor", [1, 8])
def test_a_plane_that_dies_as_a_whole_costs_what_was_on_its_way(floor: int) -> None:
    planes = {"planes": 2, "ev": {"size": 2, "active": 2, "min_active": 2}}
    found = transfers.run(
        cluster(failures=[{"at": "100ms", "fail": "p0"}], **planes), kernels.reference(),
        [Transfer(0, 4, 125_000_000)], EvSpec(size=16, active=8, min_active=floor), 1.0,
    )  # fmt: skip
    assert found.lost > 0
    # A tenth of a second with both planes, the rest with one.
    assert found.ends_s[0, 0] == pytest.approx(0.9, rel=0.02)


def test_a_slow_plane_delays_the_last_packet_and_not_all_of_them() -> None:
    planes = {"planes": 4, "base_rtt": "1ms", "ev": {"size": 4, "active": 4, "min_active": 4}}
    # Queues that trim early: the slow plane costs what it does not carry, and its own delay.
    shallow = {"nic_share": 1.0, "fabric_share": 1.0, "trim_rtts": 0.1}
    slow = [{"at": "0s", "fail": "p0", "rate": 0.1}]
    ev = EvSpec(size=16, active=16, min_active=1)

    def end(size: int = 500_000_000, **more: object) -> float:
        flows = [Transfer(nic, (nic + 4) % 8, size) for nic in range(8)]
        found = transfers.run(cluster(**planes, **more), kernels.reference(), flows, ev, 1.0)
        return float(found.ends_s.max())

    whole = end()
    assert whole == pytest.approx(1.0, rel=0.01)
    # Three planes and a tenth of one, for whole packets and headers; a window may hold that back a little.
    assert end(failures=slow, model=shallow) < 1.45 * whole
    # A tenth of a round trip at a full link's rate is one of 1 ms in the slow plane.
    assert end(4096, failures=slow, model=shallow) > end(4096) + 0.0009
    # Where all wait for the slow plane, windows differ.
    waits = end(failures=slow, model=shallow | {"trim_rtts": 100})
    assert waits == pytest.approx(10 * whole, rel=3 * transfers.UNEQUAL)


def test_no_transfer_is_refused() -> None:
    with pytest.raises(ValueError, match="name at least one"):
        transfers.run(cluster(), kernels.reference(), [], EV, 1.0)


def held(base_rtt: str = "1us", size: int = 12_500_000, draws: int = 400) -> tuple[np.ndarray, float]:
    """Return the ends of four flows that half as many uplinks hold back to half of what they want, and a round trip."""
    loaded = cluster(t1_per_plane=2, base_rtt=base_rtt)
    flows = [Transfer(nic, 4 + nic, size) for nic in range(4)]
    found = transfers.run(loaded, kernels.reference(), flows, EvSpec(size=4, active=4, min_active=1), 1.0, draws=draws)
    return found.ends_s, loaded.cluster.base_rtt / 1e9


def test_ends_differ_where_full_links_hold_flows_back() -> None:
    ends_s, rtt = held()
    mean = float(ends_s.mean())
    assert mean == pytest.approx(0.2, rel=0.02)
    assert (ends_s - rtt).std() / mean == pytest.approx(transfers.UNEQUAL, rel=0.1)
    # All of one seed are as they were.
    assert (held()[0] == ends_s).all()


def test_windows_of_short_flows_are_not_unequal_yet() -> None:
    """Half of the difference is there after some round trips."""
    size = 125_000
    body = size * 8 * 2 / RATE
    ends_s, _ = held(f"{body / transfers.SETTLES * 1e6:.0f}us", size)
    flows = (ends_s - ends_s.mean(axis=0)).std()
    alone, _ = held("1us", size)
    assert (alone - alone.mean(axis=0)).std() / body == pytest.approx(transfers.UNEQUAL, rel=0.1)
    # What waits in queues varies, too; it does so within a round trip.
    assert flows < 1.5 * transfers.UNEQUAL * body


def test_flows_that_nothing_holds_back_end_alike() -> None:
    found = transfers.run(cluster(), kernels.reference(), [Transfer(0, 4, 12_500_000)], EV, 1.0, draws=50)
    assert found.ends_s.std() / found.ends_s.mean() < 1e-3


def test_shares_follow_a_change_a_round_trip_later() -> None:
    """The second flow goes on at its half for a round trip after the first has ended."""
    given = cluster(base_rtt="100ms")
    flows = [Transfer(0, 4, 125_000_000), Transfer(1, 4, 250_000_000)]
    slow = transfers.run(given, kernels.reference(), flows, EV, 1.0).ends_s[0]
    assert slow[0] == pytest.approx(2.0, abs=0.3)
    fast = ends(flows)
    assert slow[1] - slow[0] > fast[1] - fast[0] - 0.3
