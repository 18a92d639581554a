"""The loop of runs: actions at their times, failures that last as long as they shall, turns until a run is over."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mrc_topo.labfile import load_lab
from mrclab.lab.faults.action import Action, FailureError
from mrclab.lab.faults.ledger import FaultLedger, UnsettledError
from mrclab.results.record import LabEvent
from mrclab.runs.runner import LATE_S, Loop
from support.lab.fake_lab import FakeLab
from support.lab.scripted import Clock

SECOND = 1_000_000_000
DOWN, UP = Action("fail", "link", "link_down"), Action("restore", "link")


@dataclass
class Course:
    """A record, and turns that last as long as they may until `ends_s`; the first one takes `slow_s` longer."""

    clock: Clock
    ends_s: float
    slow_s: float = 0.0
    happenings: list[LabEvent] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    turns: list[float] = field(default_factory=list)

    def spend(self, seconds: float) -> None:
        self.turns.append(seconds)
        self.clock.now += round((seconds + self.slow_s) * SECOND)
        self.slow_s = 0.0

    def over(self) -> bool:
        return self.clock.now >= self.ends_s * SECOND


def course(ends_s: float, slow_s: float = 0.0) -> tuple[Loop, Course]:
    clock: Any = Clock()
    clock.now = 0
    made = Course(clock, ends_s, slow_s)
    return Loop(clock, [(0.75, UP), (0.25, DOWN)], made, 0.1, bool), made


def test_actions_are_done_at_their_times_and_nothing_before_the_beginning() -> None:
    loop, made = course(1.0)
    loop.go(made)
    assert made.happenings == []
    assert len(loop.waiting) == 2
    loop.begin(made.clock.now)
    made.ends_s = 2.0
    loop.go(made)
    assert [(each.at_ns, each.action) for each in made.happenings] == [(1.25 * SECOND, DOWN), (1.75 * SECOND, UP)]
    assert [each.broken for each in made.happenings] == [["link"], []]
    assert max(made.turns) == 0.1


@given(st.integers(1, SECOND - 1))
@example(100_000_001)  # a nanosecond after a turn has ended
def test_an_action_is_done_at_its_nanosecond(at_ns: int) -> None:
    clock: Any = Clock()
    clock.now = 0
    made = Course(clock, 1.1)
    loop = Loop(clock, [(at_ns / SECOND, DOWN)], made, 0.1, bool)
    loop.begin(0)
    loop.go(made)
    assert [each.at_ns for each in made.happenings] == [at_ns]


def test_loop_with_a_late_action_moves_those_that_follow() -> None:
    loop, made = course(3.0, slow_s=2 * LATE_S + 0.25)
    loop.begin(0)
    loop.go(made)
    down, up = made.happenings
    assert down.at_ns > 0.5 * SECOND
    assert (up.at_ns - down.at_ns) / SECOND == pytest.approx(0.5)


def test_each_late_action_moves_those_that_follow_by_its_own_delay(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each takes long: the second from when the first was done on, and the third likewise."""
    loop, made = course(9.0)
    loop.add(1.25, DOWN)
    performed = made.clock.failures.perform

    def slowly(*given: Any) -> Any:
        made.clock.now += SECOND
        return performed(*given)

    monkeypatch.setattr(made.clock.failures, "perform", slowly)
    loop.begin(0)
    loop.go(made)
    assert [each.at_ns / SECOND for each in made.happenings] == pytest.approx([0.25, 1.75, 3.25])


def test_a_stated_loss_counts_even_if_it_is_none_and_a_target_is_broken_once() -> None:
    fake = FakeLab(load_lab("tiny"))
    session: Any = Clock()
    session.failures = FaultLedger(fake.topology, fake.refill)
    session.fabric, session.set_carrier = fake, fake.set_carrier
    made = Course(session, 1.0)
    loop = Loop(session, [(0.0, Action("fail", "h0:0", "port_down", loss=0.0))], made, 0.1, bool)
    loop.add(0.0, Action("fail", "h0:0", "impair", settings={"loss": 0.1}))
    loop.finish()
    assert [each.expected_loss for each in made.happenings] == [0.0, pytest.approx(session.failures.expected_loss())]
    assert made.happenings[1].expected_loss > 0
    assert [each.broken for each in made.happenings] == [["h0:0"], ["h0:0"]]


def test_loop_at_its_end_does_what_is_left_and_notes_what_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    loop, made = course(0.5)
    loop.begin(0)
    loop.go(made)
    assert [each.action for each in made.happenings] == [DOWN]

    def refuse(action: Action) -> Action:
        raise ValueError("no such link")

    monkeypatch.setattr(made.clock.failures, "check", refuse)
    loop.finish()
    assert loop.waiting == []
    assert made.failures == ["restore link: no such link"]
    assert made.happenings[-1].error == made.failures[0]
    with pytest.raises(ValueError, match="no such link"):
        loop.click(DOWN)
    assert len(made.happenings) == 2


def test_what_is_done_from_elsewhere_is_recorded_beside_the_schedule(monkeypatch: pytest.MonkeyPatch) -> None:
    """`mrclab fail` and `mrclab restore` in another shell change the ledger of a lab on the real clock."""
    loop, made = course(1.0)
    clock: Any = made.clock
    failures = made.clock.failures
    cut, mended = Action("fail", "other", "link_down"), Action("restore", "other", "link_down")
    # The second cut comes and goes between two turns of the loop.
    elsewhere = [(cut, 0.4), (mended, 0.8), (cut, 0.91), (mended, 0.92)]

    def reload() -> None:
        while elsewhere and made.clock.now >= elsewhere[0][1] * SECOND:
            action, at = elsewhere.pop(0)
            failures.change(action, round(at * SECOND) - 2, round(at * SECOND))

    monkeypatch.setattr(failures, "reload", reload)
    loop.begin(0)
    loop.go(made)
    assert [each.action for each in made.happenings] == [DOWN, UP]
    clock.now, made.happenings, clock.clock = 0, [], "real"
    loop.go(made)
    # When the loop has seen it says nothing of when it was done.
    assert [
        (each.action.verb, each.action.target, each.clicked, each.at_ns, each.done_ns) for each in made.happenings
    ] == [
        ("fail", "other", True, 4 * SECOND // 10 - 2, 4 * SECOND // 10),
        ("restore", "other", True, 8 * SECOND // 10 - 2, 8 * SECOND // 10),
        ("fail", "other", True, 91 * SECOND // 100 - 2, 91 * SECOND // 100),
        ("restore", "other", True, 92 * SECOND // 100 - 2, 92 * SECOND // 100),
    ]
    assert [each.broken for each in made.happenings] == [["other"], [], ["other"], []]
    assert made.failures == []


def test_an_action_that_cannot_be_undone_is_recorded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its failure stays in the ledger without a change; `mrclab fail` of another one came before it."""
    loop, made = course(1.0)
    clock: Any = made.clock
    clock.clock = "real"
    failures = clock.failures

    def break_off(session: object, action: Action) -> None:
        failures.change(Action("fail", "other", "link_down"), 1, 2)
        failures.by_target[action.target] = action
        raise UnsettledError("the fabric has died")

    monkeypatch.setattr(failures, "perform", break_off)
    monkeypatch.setattr(failures, "changed_ns", lambda action: (3, 3), raising=False)
    loop.waiting = [(0.25, DOWN)]
    loop.begin(0)
    loop.go(made)
    assert [(each.action.target, each.clicked, bool(each.error)) for each in made.happenings] == [
        ("other", True, False),
        ("link", False, True),
    ]


def test_what_another_did_just_before_the_same_action_is_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    loop, made = course(1.0)
    clock: Any = made.clock
    failures = clock.failures

    def refuse(session: object, action: Action) -> None:
        failures.change(Action("restore", "link", "link_down"), 1, 2)
        raise FailureError("link is not broken")

    loop.waiting = [(0.25, DOWN), (0.5, UP)]
    loop.begin(0)
    performs = iter([failures.perform, refuse])
    monkeypatch.setattr(failures, "perform", lambda session, action: next(performs)(session, action))
    loop.go(made)
    assert [(each.action.verb, each.clicked, bool(each.error)) for each in made.happenings] == [
        ("fail", False, False),
        ("restore", True, False),
        ("restore", False, True),
    ]
