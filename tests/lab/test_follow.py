"""`ChangeFollower` returns each change of a ledger of failures once, however seldom it is asked."""

from __future__ import annotations

import contextlib

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mrc_topo.labfile import load_lab
from mrclab.lab.faults.action import Action, FailureError
from mrclab.lab.faults.follow import ChangeFollower
from mrclab.lab.faults.ledger import KEPT, FaultLedger, LedgerChange, LedgerState, MemoryRecord, UnsettledError
from support.lab.fake_lab import BrokenOff, FakeLab
from support.lab.fault_cases import actions

TINY = load_lab("tiny")
CUT = Action("fail", "p0-t0.0--p0-t1.0", "link_down")
MENDED = Action("restore", CUT.target, CUT.kind)


def followed() -> tuple[FakeLab, FaultLedger, FaultLedger, ChangeFollower]:
    """Return a lab, a ledger that changes it, the ledger of another process, and the follower of that one."""
    fake, record = FakeLab(TINY), MemoryRecord()
    ledger, other = FaultLedger(TINY, fake.refill, record), FaultLedger(TINY, fake.refill, record)
    return fake, ledger, other, ChangeFollower(other)


def an_action(data: st.DataObject, ledger: FaultLedger) -> Action:
    """Draw a failure, or the restoration of a target that has one."""
    restores = [Action("restore", each.target) for each in ledger.causes]
    return data.draw(actions(TINY) | st.sampled_from(restores) if restores else actions(TINY), label="action")


@given(st.data())
@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large], deadline=None)
def test_follower_tells_every_change_once_and_what_is_in_force_after_it(data: st.DataObject) -> None:
    fake, ledger, other, follower = followed()
    made: list[LedgerChange] = []
    told: list[LedgerChange] = []
    causes: list[Action] = []
    for left in reversed(range(data.draw(st.integers(1, 12), label="steps"))):
        action = an_action(data, ledger)
        with contextlib.suppress(FailureError):
            made += ledger.perform(fake, action)
        if not left or data.draw(st.booleans(), label="look"):
            other.reload()
            for each in follower.take():
                told.append(each.change)
                causes = list(each.causes)
                assert (each.failure == each.change.action) == (each.failure in causes)
    assert told == made
    assert causes == list(ledger.causes)
    assert follower.take() == []


@given(st.data())
@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large], deadline=None)
def test_follower_agrees_with_the_ledger_when_changes_break_off(data: st.DataObject) -> None:
    fake, ledger, other, follower = followed()
    known: set[tuple[str, str]] = set()
    for _ in range(data.draw(st.integers(1, 8), label="steps")):
        fake.calls_left = data.draw(st.none() | st.integers(1, 12), label="calls that get through")
        action = an_action(data, ledger)
        with contextlib.suppress(FailureError, BrokenOff, UnsettledError):
            ledger.perform(fake, action)
        fake.heal()
        other.reload()
        for each in follower.take():
            told = each.change.action
            key = (told.target, told.kind)
            assert (told.verb == "fail") == (key not in known), "a failure comes and goes in turn"
            known ^= {key}
        assert known == {(each.target, each.kind) for each in other.causes}


def test_follower_tells_a_change_that_is_under_way_once() -> None:
    record = MemoryRecord()
    ledger = FaultLedger(TINY, lambda name: None, record, clock=lambda: 7)
    follower = ChangeFollower(ledger)
    record.state = LedgerState([CUT], {}, [CUT.target])
    ledger.reload()
    assert [each.change for each in follower.take()] == [LedgerChange(CUT, 7, 7)]
    record.state = LedgerState([CUT], {}, [], [LedgerChange(CUT, 5, 9, 1)])
    ledger.reload()
    assert follower.take() == []
    record.state = LedgerState([], {}, [], [LedgerChange(CUT, 5, 9, 1), LedgerChange(MENDED, 20, 21, 2)])
    ledger.reload()
    assert [each.change for each in follower.take()] == [LedgerChange(MENDED, 20, 21, 2)]


def test_follower_tells_what_is_in_force_even_after_more_changes_than_are_kept() -> None:
    fake, ledger, other, follower = followed()
    ledger.perform(fake, Action("fail", "h0:0", "port_down"))
    for _ in range(KEPT):
        ledger.perform(fake, CUT)
        ledger.perform(fake, MENDED)
    other.reload()
    told = [each.change.action for each in follower.take()]
    assert told[-1] == Action("fail", "h0:0", "port_down")
    assert told[:-1] == [CUT, MENDED] * (KEPT // 2)
    # The restore is told, too, when the records of the failure are no longer kept.
    ledger.perform(fake, Action("restore", "h0:0"))
    for _ in range(KEPT // 2):
        ledger.perform(fake, CUT)
        ledger.perform(fake, MENDED)
    other.reload()
    assert follower.take()[-1].change.action == Action("restore", "h0:0", "port_down")


def test_follower_of_a_view_that_begins_late_is_told_what_is_in_force() -> None:
    fake = FakeLab(TINY)
    ledger = FaultLedger(TINY, fake.refill)
    (made,) = ledger.perform(fake, CUT)
    (told,) = ChangeFollower(ledger, known=()).take()
    assert (told.change.action, told.change.done_ns) == (CUT, made.done_ns)
    assert ChangeFollower(ledger).take() == []
