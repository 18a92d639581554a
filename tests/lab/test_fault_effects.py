"""What each failure does to the capacity of links, which calls put it into the fabric, and what chaos draws."""

from __future__ import annotations

import pathlib
import random
from typing import Any

import pytest

from mrc_topo.labfile import load_lab
from mrc_topo.topology import Topology
from mrclab.lab.faults.action import DOWN, UP, Action, Effects, FailureError, together
from mrclab.lab.faults.kinds import KINDS, LARGEST
from mrclab.lab.faults.ledger import FaultLedger, MemoryRecord, UnsettledError
from p4lite.switch.fabric.values import SwitchState
from support.lab.fake_lab import FakeLab
from support.lab.labs import lab_file

LINK, OTHER, PORT, T1 = "p1-t0.0--p1-t1.0", "p1-t0.0--p1-t1.1", "h3:2", "p0-t1.1"
RATE = 7


@pytest.fixture(scope="module")
def topology() -> Topology:
    return load_lab("default")


@pytest.mark.parametrize(
    ("settings", "rate"),
    [
        ({"blackhole": True}, 0),
        ({"blackhole": False}, None),
        ({"loss": 1}, 0),
        ({"corrupt": 1}, 0),
        ({"loss": 0.99, "corrupt": 0.99}, None),
        ({"rate_bps": 5000}, 5000),
        ({"rate_bps": 5000, "loss": 1}, 0),
        ({"delay_ns": 9}, None),
    ],
    ids=str,
)
def test_impaired_direction_keeps_its_rate_unless_it_delivers_nothing(
    settings: Any, rate: int | None, topology: Topology
) -> None:
    whole = topology.links[LINK].spec.rate
    assert Effects(settings={(LINK, UP): settings}).rates(topology) == {(LINK, UP): whole if rate is None else rate}


@pytest.mark.parametrize(("lossless", "expected"), [(True, {UP, DOWN}), (False, {UP})])
def test_pause_storm_stops_the_switch_only_where_it_obeys(
    lossless: bool, expected: set[str], tmp_path: pathlib.Path
) -> None:
    queues: dict[str, Any] = {"limit": "64KiB", "ecn": None, "trim": None}
    made = load_lab(lab_file(tmp_path, "tiny", queues={**queues, "pfc": {"xoff": "8KiB"}} if lossless else queues))
    rates = Effects(settings={("h0:0", UP): {"pause_storm_mac": 2}}).rates(made)
    assert rates == {
        ("h0:0", way): 0 if way == DOWN else made.links["h0:0"].spec.rate for way in (UP, DOWN) if way in expected
    }


def test_pause_outlasts_an_impairment_of_the_other_direction(tmp_path: pathlib.Path) -> None:
    queues = {"limit": "64KiB", "ecn": None, "trim": None, "pfc": {"xoff": "8KiB"}}
    made = load_lab(lab_file(tmp_path, "tiny", queues=queues))
    storm: Any = {("h0:0", UP): {"pause_storm_mac": 2}, ("h0:0", DOWN): {"rate_bps": RATE}}
    assert Effects(settings=storm).rates(made)["h0:0", DOWN] == 0


@pytest.mark.parametrize("state", [SwitchState.FROZEN, SwitchState.STOPPED])
def test_switch_that_does_not_run_takes_its_links(state: SwitchState, topology: Topology) -> None:
    links = topology.switch(T1).links.values()
    wanted = {(link.name, way): 0 for link in links for way in (UP, DOWN)}
    assert Effects(switches={T1: state}).rates(topology) == wanted
    assert Effects(switches={T1: SwitchState.RUNNING}).rates(topology) == {}


def test_cut_counts_before_settings(topology: Topology) -> None:
    both = Effects(cut=frozenset({(LINK, UP)}), settings={(LINK, UP): {"rate_bps": RATE}})
    assert both.rates(topology) == {(LINK, UP): 0}


@pytest.mark.parametrize(
    ("key", "one", "other", "worse"),
    [("rate_bps", 5, 9, 5), ("loss", 0.1, 0.2, 0.2), ("delay_ns", 5, 9, 9), ("blackhole", False, True, True)],
)
def test_worse_of_two_values_holds_in_either_order(key: str, one: Any, other: Any, worse: Any) -> None:
    given: Any = {key: one}
    again: Any = {key: other}
    first, second = Effects(settings={(LINK, UP): given}), Effects(settings={(LINK, UP): again})
    assert together((first, second)).settings == together((second, first)).settings == {(LINK, UP): {key: worse}}


def test_settings_of_two_failures_join() -> None:
    first = Effects(settings={(LINK, UP): {"loss": 0.5}})
    second = Effects(settings={(LINK, UP): {"delay_ns": 3}, (LINK, DOWN): {"loss": 0.1}})
    assert (first | second).settings == {(LINK, UP): {"loss": 0.5, "delay_ns": 3}, (LINK, DOWN): {"loss": 0.1}}


@pytest.mark.parametrize(
    ("one", "other", "wins"),
    [
        (SwitchState.RUNNING, SwitchState.FROZEN, SwitchState.FROZEN),
        (SwitchState.STOPPED, SwitchState.FROZEN, SwitchState.STOPPED),
    ],
)
def test_switch_is_in_the_more_severe_state(one: SwitchState, other: SwitchState, wins: SwitchState) -> None:
    assert (Effects(switches={T1: one}) | Effects(switches={T1: other})).switches == {T1: wins}
    assert (Effects(switches={T1: other}) | Effects(switches={T1: one})).switches == {T1: wins}


def test_everything_that_an_effect_names_is_touched() -> None:
    effects = Effects(
        frozenset({(LINK, UP)}),
        {(OTHER, DOWN): {"loss": 1.0}},
        frozenset({PORT}),
        {T1: SwitchState.FROZEN},
        frozenset({"p2-t1.0"}),
    )
    assert effects.touched() == {LINK, OTHER, PORT, T1, "p2-t1.0"}


# -- calls ------------------------------------------------------------------------------------------------------


def calls(action: Action, *, lab: FakeLab | None = None) -> list[str]:
    """Return the calls with which a failure is put into a fabric, without the look at it."""
    fake = lab or FakeLab(load_lab("default"))
    fake.log.clear()
    FaultLedger(fake.topology, fake.refill).perform(fake, action)
    return [each for each in fake.log if each != "info"]


@pytest.mark.parametrize(
    ("target", "direction", "words"),
    [
        (LINK, "both", "both"),
        # Of the port at the T0: away from the hosts is outgoing between switches, and incoming from a host.
        (LINK, "up", "outgoing"),
        (LINK, "down", "incoming"),
        (PORT, "up", "incoming"),
        (PORT, "down", "outgoing"),
    ],
)
def test_cut_is_one_call_for_the_directions_that_change(target: str, direction: Any, words: str) -> None:
    (call,) = calls(Action("fail", target, "link_down", direction))
    assert call.endswith(f" {words} False")


def test_only_the_direction_that_is_not_cut_yet_is_turned() -> None:
    fake = FakeLab(load_lab("default"))
    ledger = FaultLedger(fake.topology, fake.refill)
    ledger.perform(fake, Action("fail", LINK, "link_down", "up"))
    switch = fake.topology.switch("p1-t0.0")
    port = next(number for number, link in switch.links.items() if link.name == LINK)
    for action, turned in (
        (Action("fail", switch.name, "transceiver", settings={"first": port, "count": 1}), "incoming False"),
        (Action("restore", switch.name), "incoming True"),
        (Action("restore", LINK), "outgoing True"),
    ):
        fake.log.clear()
        ledger.perform(fake, action)
        assert [each.split(" ", 2)[2] for each in fake.log if each.startswith("port")] == [turned]


def test_reboot_empties_the_tables_and_keeps_the_controllers_connection() -> None:
    fake = FakeLab(load_lab("default"))
    ledger = FaultLedger(fake.topology, fake.refill)
    ledger.perform(fake, Action("fail", T1, "reboot"))
    ledger.perform(fake, Action("fail", T1, "freeze"))
    fake.log.clear()
    ledger.perform(fake, Action("restore", T1, "freeze"))
    assert fake.log == []  # It is off as before.
    ledger.perform(fake, Action("restore", T1))
    restarts = [each for each in fake.log if each.startswith("restart")]
    assert restarts == [f"restart {fake.topology.switch(T1).device_id}"]
    assert fake.log.index(restarts[0]) < fake.log.index(f"refill {T1}")


def test_element_left_in_doubt_is_broken_until_it_is_restored() -> None:
    fake = FakeLab(load_lab("default"))
    ledger = FaultLedger(fake.topology, fake.refill, MemoryRecord())
    before = fake.state()
    fake.calls_left, fake.late = 2, True
    with pytest.raises(UnsettledError, match=LINK):
        ledger.perform(fake, Action("fail", LINK, "link_down"))
    fake.heal()
    assert (ledger.unsettled, set(ledger.broken)) == ([LINK], {LINK})
    # The next failure of anything puts it where the record says that it is.
    ledger.perform(fake, Action("fail", OTHER, "link_down"))
    assert (ledger.unsettled, set(ledger.broken)) == ([], {LINK, OTHER})
    ledger.perform(fake, Action("restore", OTHER))
    ledger.perform(fake, Action("restore", LINK))
    assert fake.state() == before


# -- what chaos draws -----------------------------------------------------------------------------------------------


def drawn(kind: str, target: str, topology: Topology, seed: int) -> dict[str, Any]:
    """Return what a kind of failure draws for an element."""
    return dict(KINDS[kind].drawn(topology.element(target), random.Random(seed)))


def test_drawn_impairments_are_one_or_two_that_can_be_made(topology: Topology) -> None:
    seen: dict[str, set[Any]] = {}
    for seed in range(400):
        settings = drawn("impair", LINK, topology, seed)
        FaultLedger(topology, lambda name: None).check(Action("fail", LINK, "impair", settings=settings))
        assert ("reorder_extra_ns" in settings) == ("reorder" in settings)
        assert 1 <= len(settings.keys() - {"reorder_extra_ns"}) <= 2
        for key, value in settings.items():
            seen.setdefault(key, set()).add(value)
    assert seen == {
        "loss": {0.01, 0.1, 0.5, 1.0},
        "corrupt": {0.01, 0.1, 1.0},
        "duplicate": {0.01, 0.5},
        "reorder": {0.01, 0.5},
        "reorder_extra_ns": {100_000, 5_000_000},
        "delay_ns": {1_000_000, 20_000_000},
        "rate_bps": {100_000, 2_000_000},
        "blackhole": {True},
    }


def test_drawn_transceivers_have_one_or_two_ports_of_the_switch(topology: Topology) -> None:
    found = [drawn("transceiver", T1, topology, seed) for seed in range(50)]
    assert {each["count"] for each in found} == {1, 2}
    assert {each["first"] for each in found} == set(topology.switch(T1).links)


@pytest.mark.parametrize(
    ("settings", "good"),
    [
        ({"rate_bps": 1000}, True),
        ({"rate_bps": 999}, False),
        ({"rate_bps": LARGEST}, True),
        ({"rate_bps": LARGEST + 1}, False),
        ({"delay_ns": 0}, True),
        ({"delay_ns": -1}, False),
        ({"delay_ns": 10**15}, True),
        ({"delay_ns": 10**15 + 1}, False),
        ({"loss": 1.0}, True),
        ({"loss": 1.01}, False),
        ({"loss": -0.01}, False),
    ],
    ids=str,
)
def test_settings_are_refused_just_beyond_their_bounds(settings: Any, good: bool, topology: Topology) -> None:
    ledger = FaultLedger(topology, lambda name: None)
    if good:
        ledger.check(Action("fail", LINK, "impair", settings=settings))
    else:
        with pytest.raises(FailureError):
            ledger.check(Action("fail", LINK, "impair", settings=settings))
