"""Failures as data: checked against the topology, undone to exactly what was there, and what they cost."""

from __future__ import annotations

import json
import multiprocessing
import pathlib
import re
import time
from dataclasses import replace

import pytest

from mrc_topo.base.plain import decode, encode
from mrc_topo.labfile import load_lab
from mrc_topo.topology import UnknownElement
from mrclab.lab.faults import kinds
from mrclab.lab.faults.action import Action, FailureError, flapping
from mrclab.lab.faults.kinds import KINDS
from mrclab.lab.faults.ledger import KEPT, FaultLedger, LedgerState, MemoryRecord, UnsettledError
from mrclab.lab.records.record import LabState
from mrclab.lab.records.rundir import RunDir
from mrclab.lab.session.real import RunRecord
from mrclab.runs.experiment import ExperimentStep
from support.lab.fake_lab import BrokenOff, FakeLab
from support.lab.flap_links import flap_links

LINK, PORT, T1 = "p1-t0.0--p1-t1.0", "h3:2", "p0-t1.1"


@pytest.fixture
def fake() -> FakeLab:
    return FakeLab(load_lab("default"))


@pytest.fixture
def ledger(fake: FakeLab) -> FaultLedger:
    return FaultLedger(fake.topology, fake.refill)


@pytest.mark.parametrize(
    "action",
    [
        Action("fail", LINK, "link_down"),
        Action("fail", LINK, "link_down", "up"),
        Action("fail", LINK, "link_down", "down"),
        Action("fail", PORT, "port_down"),
        Action("fail", PORT, "link_down", "up"),
        Action("fail", LINK, "impair", settings={"loss": 0.2, "delay_ns": 5}),
        Action("fail", PORT, "impair", "down", {"rate_bps": 5000}),
        Action("fail", PORT, "pause_storm"),
        Action("fail", "p0-t0.1", "transceiver", settings={"first": 3, "count": 2}),
        Action("fail", T1, "stop"),
        Action("fail", "p2-t0.1", "stop"),
        Action("fail", T1, "freeze"),
        Action("fail", T1, "reboot"),
    ],
    ids=Action.describe,
)
def test_restore_puts_back_exactly_what_was_there(fake: FakeLab, action: Action) -> None:
    record = MemoryRecord()
    before = fake.state()
    FaultLedger(fake.topology, fake.refill, record).perform(fake, action)
    assert fake.state() != before
    gone = {port for port, up in fake.carriers.items() if not up}
    assert bool(gone) == (action.target in (PORT, "p2-t0.1") and action.kind in ("port_down", "stop"))
    # Another process restores it, from what this one wrote down.
    record.state = decode(LedgerState, json.loads(json.dumps(encode(record.state))))
    fake.log.clear()
    other = FaultLedger(fake.topology, fake.refill, record)
    assert other.broken == {action.target: action.describe()}
    other.perform(fake, Action("restore", action.target))
    assert fake.state() == before
    assert (f"refill {T1}" in fake.log) == (action.kind == "reboot")
    assert record.state == LedgerState([], {}, [])
    came, went = record.state.changes
    assert (came.action, went.action) == (action, Action("restore", action.target, action.kind))
    assert 0 < came.began_ns <= came.done_ns <= went.began_ns <= went.done_ns <= time.monotonic_ns()


def test_each_of_the_latest_changes_has_its_own_time(fake: FakeLab) -> None:
    """Who looks at a ledger only now and then sees several changes at once."""
    times = iter(range(10, 10_000, 10))
    ledger = FaultLedger(fake.topology, fake.refill, clock=lambda: next(times))
    cut, down = Action("fail", LINK, "link_down"), Action("fail", PORT, "port_down")
    for action in (cut, down, Action("restore", LINK)):
        ledger.perform(fake, action)
    other = FaultLedger(fake.topology, fake.refill, ledger.record, clock=lambda: 7)
    assert other.changed_ns(cut) == (10, 20)
    assert other.changed_ns(down) == (30, 40)
    assert (
        other.changed_ns(Action("restore", LINK)) == other.changed_ns(Action("restore", LINK, "link_down")) == (50, 60)
    )
    assert other.changed_ns(Action("restore", PORT)) == (7, 7), "this never happened"
    for _ in range(KEPT):
        ledger.perform(fake, Action("restore", PORT))
        ledger.perform(fake, down)
    changes = ledger.record.read().changes
    assert [each.number for each in changes] == list(range(KEPT + 4, 2 * KEPT + 4))
    assert ledger.changed_ns(down) == (changes[-1].began_ns, changes[-1].done_ns)


def test_first_in_first_out(fake: FakeLab, ledger: FaultLedger) -> None:
    """A cut link stays cut as long as one of two failures cuts it, whichever is restored first."""
    before = fake.state()
    ledger.fail(fake, Action("fail", "p0-t0.1--p0-t1.0", "link_down"))
    ledger.fail(fake, Action("fail", "p0-t0.1", "transceiver", settings={"first": 3, "count": 2}))
    ledger.restore(fake, "p0-t0.1--p0-t1.0")
    port = fake.switches[fake.topology.switch("p0-t0.1").device_id].ports[3]
    assert not port.up_outgoing
    assert not port.up_incoming
    ledger.restore(fake, "p0-t0.1")
    assert fake.state() == before


def test_a_port_stays_down_when_its_t0_comes_back(fake: FakeLab, ledger: FaultLedger) -> None:
    before = fake.state()
    ledger.fail(fake, Action("fail", "p2-t0.1", "stop"))
    ledger.fail(fake, Action("fail", PORT, "port_down"))
    ledger.restore(fake, "p2-t0.1")
    assert [port for port, up in fake.carriers.items() if not up] == [("h3", 2)]
    ledger.restore(fake, PORT)
    assert fake.state() == before


def test_several_kinds_at_one_target(fake: FakeLab, ledger: FaultLedger) -> None:
    before = fake.state()
    ledger.fail(fake, Action("fail", LINK, "impair", settings={"loss": 0.2}))
    lossy = fake.state()
    ledger.fail(fake, Action("fail", LINK, "link_down"))
    assert ledger.broken == {LINK: f"impair {LINK} loss=0.2, link down {LINK}"}
    with pytest.raises(FailureError, match=r"is broken already \(impair"):
        ledger.fail(fake, Action("fail", LINK, settings={"delay_ns": 5}))
    with pytest.raises(FailureError, match="is not broken by transceiver"):
        ledger.restore(fake, LINK, "transceiver")
    ledger.restore(fake, LINK, "link_down")
    assert fake.state() == lossy
    ledger.fail(fake, Action("fail", LINK, "link_down"))
    ledger.restore(fake, LINK)
    assert fake.state() == before


def test_what_breaks_off_midway_is_undone(fake: FakeLab, ledger: FaultLedger) -> None:
    before = fake.state()
    plain = fake.set_state

    def refuse(device_id: int, state: object) -> None:
        if state == "stopped" or getattr(state, "value", "") == "stopped":
            raise BrokenOff("no")
        plain(device_id, state)

    fake.set_state = refuse  # type: ignore[method-assign]
    ledger.fail(fake, Action("fail", LINK))
    down = fake.state()
    with pytest.raises(BrokenOff):
        ledger.fail(fake, Action("fail", T1, "stop"))
    assert (fake.state(), list(ledger.broken), ledger.unsettled) == (down, [LINK], [])
    ledger.restore(fake, LINK)
    assert fake.state() == before


@pytest.mark.parametrize("late", [False, True])
def test_what_cannot_be_undone_is_remembered(fake: FakeLab, ledger: FaultLedger, late: bool) -> None:
    before = fake.state()
    # Of a look, a cut and a carrier the second or third does not get through, nor does anything after it.
    for left in (2, 3):
        fake.calls_left, fake.late = left, late
        with pytest.raises(UnsettledError, match="h3:2 may be in any state"):
            ledger.fail(fake, Action("fail", PORT))
        assert (list(ledger.broken), ledger.unsettled) == ([PORT], [PORT])
        fake.heal()
        ledger.fail(fake, Action("fail", LINK))
        assert ledger.unsettled == []
        assert not fake.carriers["h3", 2]
        assert ledger.restore_all(fake) == [LINK, PORT]
        assert fake.state() == before


def refuse_once(fake: FakeLab) -> None:
    """Let the next change of a link's settings break off, and no other."""
    plain = fake.set_port_link

    def refuse(*_: object, **__: object) -> None:
        fake.set_port_link = plain  # type: ignore[method-assign]
        raise BrokenOff

    fake.heal()
    fake.set_port_link = refuse  # type: ignore[method-assign]


def test_what_could_not_be_settled_is_put_as_a_whole(fake: FakeLab, ledger: FaultLedger) -> None:
    """A cut did not get through; the next failure of the link finds the fabric still refusing a call."""
    fake.calls_left = 2
    with pytest.raises(UnsettledError):
        ledger.fail(fake, Action("fail", LINK, "link_down", "up"))
    refuse_once(fake)
    ledger.fail(fake, Action("fail", LINK, settings={"loss": 0.2}))
    end = fake.topology.links[LINK].low
    port = fake.switches[fake.topology.switch(end.node).device_id].ports[end.port]
    assert (port.up_outgoing, port.up_incoming, port.outgoing.loss, ledger.unsettled) == (False, True, 0.2, [])


def test_an_element_stays_in_doubt_when_another_is_settled(fake: FakeLab, ledger: FaultLedger) -> None:
    fake.calls_left = 2
    with pytest.raises(UnsettledError):
        ledger.fail(fake, Action("fail", "p0-t0.1", "transceiver", settings={"first": 3, "count": 2}))
    first, _ = ledger.unsettled
    refuse_once(fake)
    ledger.fail(fake, Action("fail", LINK))
    assert ledger.unsettled == [first]


def test_restore_all_goes_on_where_one_cannot_be_restored(fake: FakeLab, ledger: FaultLedger) -> None:
    for action in (Action("fail", LINK), Action("fail", T1, "reboot"), Action("fail", PORT)):
        ledger.fail(fake, action)

    def refuse(name: str) -> None:
        raise BrokenOff(name)

    ledger.refill = refuse
    with pytest.raises(BrokenOff, match=T1):
        ledger.restore_all(fake)
    assert list(ledger.broken) == [T1]
    ledger.refill = fake.refill
    ledger.restore_all(fake)
    assert ledger.broken == {}
    assert T1 in fake.tables


def test_a_run_restores_its_own_failures_only(fake: FakeLab) -> None:
    record = MemoryRecord()
    by_hand, run = (FaultLedger(fake.topology, fake.refill, record) for _ in range(2))
    by_hand.fail(fake, Action("fail", LINK))
    run.fail(fake, Action("fail", PORT))
    by_hand.fail(fake, Action("fail", T1))
    assert run.restore_own(fake) == [PORT]
    assert list(run.broken) == [LINK, T1]


def test_several_processes_change_the_record(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MRCLAB_RUN", str(tmp_path))
    run = RunDir("shared")
    run.create()
    run.write(LabState("shared"))
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=flap_links, args=(number, "shared")) for number in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    assert [worker.exitcode for worker in workers] == [0, 0, 0]
    topology = load_lab("default")
    fake = FakeLab(topology)
    ledger = FaultLedger(topology, fake.refill, RunRecord(run))
    assert sorted(ledger.broken) == sorted(list(topology.links)[number * 4] for number in range(3))
    assert sorted(ledger.restore_all(fake)) == sorted(list(topology.links)[number * 4] for number in range(3))
    assert RunRecord(run).read() == LedgerState([], {}, [])


def test_directions_are_seen_from_the_host(fake: FakeLab, ledger: FaultLedger) -> None:
    for target, outgoing in ((LINK, False), (PORT, True)):
        ledger.fail(fake, Action("fail", target, "link_down", "up"))
        link = fake.topology.links[target]
        end = link.high if link.is_host_link else link.low
        port = fake.switches[fake.topology.switch(end.node).device_id].ports[end.port]
        assert (port.up_outgoing, port.up_incoming) == (outgoing, not outgoing)


def test_a_port_whose_interface_is_down_was_not_cut(fake: FakeLab, ledger: FaultLedger) -> None:
    """Right after a carrier came back the port still reads as down; a failure then must not take that for its state."""
    switch = fake.switches[fake.topology.switch("p2-t0.1").device_id]
    port = fake.topology.links[PORT].high.port
    switch.ports[port] = replace(switch.ports[port], interface="p2t0x1", up_outgoing=False, up_incoming=False)
    ledger.fail(fake, Action("fail", PORT))
    ledger.restore(fake, PORT)
    assert switch.ports[port].up_outgoing
    assert switch.ports[port].up_incoming


@pytest.mark.parametrize("target", [LINK, PORT])
@pytest.mark.parametrize("interface", [None, "p2t0x1"])
def test_a_direction_that_was_cut_before_stays_cut(
    fake: FakeLab, ledger: FaultLedger, target: str, interface: str | None
) -> None:
    link = fake.topology.links[target]
    end = link.high if link.is_host_link else link.low
    ports = fake.switches[fake.topology.switch(end.node).device_id].ports
    ports[end.port] = replace(ports[end.port], interface=interface, up_outgoing=False)
    before = fake.state()
    for kind, settings in (("impair", {"loss": 0.2}), ("link_down", {})):
        ledger.fail(fake, Action("fail", target, kind, settings=settings))
        assert (ports[end.port].up_outgoing, ports[end.port].up_incoming) == (False, kind == "impair")
    ledger.restore(fake, target)
    assert fake.state() == before


@pytest.mark.parametrize(
    ("actions", "loss"),
    [
        ([Action("fail", PORT)], 0.25),
        ([Action("fail", PORT), Action("fail", LINK, settings={"loss": 0.5})], 0.25),
        ([Action("fail", PORT), Action("fail", "p2-t0.1", "stop")], 0.25),
        ([Action("fail", PORT), Action("fail", "p1-t0.1", "freeze")], 0.5),
        ([Action("fail", PORT, settings={"blackhole": True})], 0.25),
        ([Action("fail", PORT, "impair", "down", {"corrupt": 1})], 0.25),
        ([Action("fail", PORT, settings={"rate_bps": 10_000_000})], 0.125),
        ([Action("fail", PORT, settings={"rate_bps": 1000})], 0.25 * (1 - 1000 / 20e6)),
        ([Action("fail", PORT, settings={"rate_bps": 10**9})], 0.0),
        # Each T0 of the plane has an uplink left, but not to the same T1.
        ([Action("fail", "p0-t0.0--p0-t1.0"), Action("fail", "p0-t0.1--p0-t1.1")], 0.25),
    ],
)
def test_expected_loss(fake: FakeLab, ledger: FaultLedger, actions: list[Action], loss: float) -> None:
    assert ledger.expected_loss(causes=list(map(ledger.check, actions))) == pytest.approx(loss)
    for action in actions:
        ledger.fail(fake, action)
    assert ledger.expected_loss() == pytest.approx(loss)
    ledger.restore_all(fake)
    assert ledger.expected_loss() == 0


@pytest.mark.parametrize(
    ("action", "hint"),
    [
        (Action("fail", LINK, "melt"), "no failure 'melt'; known: link_down"),
        (Action("fail", LINK, "stop"), "needs a switch like p0-t1.0"),
        (Action("fail", T1, "link_down"), "needs a link"),
        (Action("fail", LINK, "port_down"), "needs a host port"),
        (Action("fail", LINK, "impair"), "at least one of"),
        (Action("fail", LINK, "impair", settings={"loss": 2}), "probability"),
        (Action("fail", LINK, "impair", settings={"rate_bps": 0}), "at least 1000"),
        (Action("fail", LINK, "impair", settings={"rate_bps": 10**16}), "at least 1000"),
        (Action("fail", LINK, "impair", settings={"delay_ns": True}), "whole number"),
        (Action("fail", LINK, "impair", settings={"lag": 1}), "takes no 'lag'"),
        (Action("fail", LINK, "link_down", "left"), "not 'left'"),  # type: ignore[arg-type]
        (Action("fail", T1, "stop", "up"), "stop takes no direction"),
        (Action("fail", T1, "transceiver", settings={"first": 90}), "has no ports 90 to 91"),
        (Action("fail", T1, settings={"loss": 0.5}), "impair needs a link"),
        (Action("restore", LINK), "is not broken; broken: nothing is"),
        (Action("restore", LINK, "melt"), "no failure 'melt'"),
        (Action("fail", "h3"), "h3:0"),
        (Action("restore", "h3"), "h3:0"),
    ],
)
def test_refused_failure_leaves_the_lab_unchanged(
    fake: FakeLab, ledger: FaultLedger, action: Action, hint: str
) -> None:
    before = fake.state()
    with pytest.raises(FailureError, match=hint):
        ledger.perform(fake, action)
    assert fake.state() == before


def test_unknown_targets(ledger: FaultLedger) -> None:
    with pytest.raises(UnknownElement, match=r"p0-t1\.0"):
        ledger.check(Action("fail", "p0-t1.9", "stop"))


def test_default_kinds(fake: FakeLab) -> None:
    def kind(target: str, **settings: float) -> str:
        return kinds.resolved(fake.topology, Action("fail", target, settings=settings)).kind

    assert [kind(name) for name in (LINK, PORT, T1)] == ["link_down", "port_down", "stop"]
    assert [kind(name, loss=0.5) for name in (LINK, PORT)] == ["impair", "impair"]
    # A link may be called from its other end, everywhere.
    swapped = kinds.resolved(fake.topology, Action("fail", "p1-t1.0--p1-t0.0"))
    assert swapped == Action("fail", LINK, "link_down")


def test_flapping() -> None:
    what = {"flap": PORT, "kind": "impair", "direction": "up", "settings": {"loss": 0.5}}
    step = ExperimentStep.model_validate({"at": 1.0, "period": 0.5, "count": 2, "evidence": {"dropped": 1}, **what})
    fail = Action("fail", PORT, "impair", "up", {"loss": 0.5})
    mend = Action("restore", PORT, "impair")
    assert step.actions() == [(1.0, fail), (1.25, mend), (1.5, fail), (1.75, mend)]
    assert flapping(fail, 1.0, 0.5, 2) == step.actions()
    assert [at for at, _ in flapping(fail, 1.0, 2.0, 2, duty=0.25)] == [1.0, 1.5, 3.0, 3.5]


def test_the_documentation_has_a_row_for_every_kind_with_its_targets_and_settings() -> None:
    """The reference page is what a user of `mrclab fail` reads; targets and settings are tried on a topology."""
    elements = {"link": LINK, "host port": PORT, "switch": T1}
    text = (pathlib.Path(__file__).parents[2] / "docs" / "reference" / "experiments.md").read_text()
    rows = dict(re.findall(r"^\| `(\w+)` \| (.*) \|$", text.partition("## Failures")[2], re.M))
    topology = load_lab("default")
    for kind in KINDS.values():
        targets, what = rows[kind.name].split(" | ", 1)
        fitting = {word for word, name in elements.items() if kind.fits(topology.element(name))}
        assert set(targets.split(", ")) == fitting, kind.name
        assert kind.takes <= set(re.findall(r"`(\w+)`", what)), kind.name


def test_what_cannot_be_broken_is_refused_before_anything_is_touched(fake: FakeLab) -> None:
    def ready(action: Action) -> None:
        raise FailureError(f"{action.target} is dead")

    ledger = FaultLedger(fake.topology, fake.refill, ready=ready)
    with pytest.raises(FailureError, match=r"p0-t1\.0 is dead"):
        ledger.fail(fake, Action("fail", "p0-t1.0", "freeze"))
    assert (ledger.broken, ledger.unsettled) == ({}, [])
    assert fake.log == []
