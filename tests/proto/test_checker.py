"""The model checker: a small bound explored as a whole, bugs of the past found again, and what its own parts promise.

The whole: `PYTHONPATH=tests python -m support.checker --minutes 10` (docs/explanation/model-checker.md).
"""

from __future__ import annotations

import dataclasses
import json
import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mrc_host.proto.completion import CompletionKind, CompletionStatus
from mrc_host.proto.events import QpState
from mrc_host.proto.timers import TimerKind
from support.amount import first
from support.checker import __main__ as command
from support.checker import ends, invariants, packets, world
from support.checker.ends import REQUESTOR, RESPONDER, Done, End
from support.checker.planted import PLANTED, Planted, by_name, find, plant
from support.checker.replay import Counterexample, Step, counterexample, replay, shorten, steps_of
from support.checker.scenario import KINDS, MRC, ROCE, FaultKind, Scenario
from support.checker.search import Ending, Search, explore
from support.checker.suite import explore_all
from support.checker.world import Event, EventKind, Model, World

DROP, LINK = FaultKind.DROP, FaultKind.LINK
SMALL = {
    MRC: Scenario(messages=("b70i",), faults=1),
    ROCE: Scenario(ROCE, ("2i",), 1, KINDS[ROCE], late_receives=True, selective=True),
}
BOTH = pytest.mark.parametrize("transport", [MRC, ROCE])


# --- what is explored ---


@BOTH
def test_every_order_with_one_fault_of_a_small_scenario_is_right(transport: str) -> None:
    result = explore(SMALL[transport])
    assert result.problem is None, result
    assert result.ending is Ending.EXHAUSTED
    assert result.states > 1_000
    assert result.transitions > result.states
    assert result.ends > 20


@BOTH
def test_two_queue_pairs_of_a_peer_and_both_directions_do_not_hinder_each_other(transport: str) -> None:
    for messages in (("1", "1@1"), ("1", "1<"), ("1i", "1i<@1")):
        result = explore(Scenario(transport, messages, 1, (DROP, FaultKind.LATE)))
        assert (result.ending, result.problem) == (Ending.EXHAUSTED, None), messages
        assert result.ends > 4


def test_outages_and_silence_end_with_the_error_that_names_them() -> None:
    result = explore(Scenario(messages=("1",), faults=1, kinds=(LINK, FaultKind.CUT, FaultKind.MUTE)))
    assert (result.ending, result.problem) == (Ending.EXHAUSTED, None)
    assert result.states > 500


def test_the_number_of_states_is_the_same_in_every_run() -> None:
    scenario = Scenario(messages=("1",), faults=1)
    first, second = explore(scenario), explore(scenario)
    assert (first.states, first.transitions, first.depth) == (second.states, second.transitions, second.depth)


def test_a_bound_of_time_or_states_ends_an_exploration() -> None:
    scenario = Scenario(messages=("2",), faults=2)
    assert explore(scenario, seconds=0.0).ending is Ending.OUT_OF_TIME
    assert explore(scenario, most_states=100).ending is Ending.OUT_OF_ROOM


def test_a_scenario_that_is_not_exhausted_is_not_explored_with_more_faults(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "support.checker.suite.explore", lambda scenario, seconds: Search(scenario, most_states=2_000).run()
    )
    results = explore_all([Scenario(messages=("1",)), Scenario(messages=("3",), faults=3)], 3, 60.0, lambda _: None)
    assert [(each.scenario.messages, each.scenario.faults, each.ending) for each in results] == [
        (("1",), 0, Ending.EXHAUSTED), (("3",), 0, Ending.EXHAUSTED), (("1",), 1, Ending.EXHAUSTED),
        (("3",), 1, Ending.OUT_OF_ROOM), (("1",), 2, Ending.OUT_OF_ROOM),
    ]  # fmt: skip


def ends_of(scenario: Scenario, *, reduced: bool) -> set[object]:
    """Return the states in which runs end."""
    model = Model(scenario, reduced=reduced)
    first, _ = model.first()
    seen, left = {model.key(first)}, [first]
    found: set[object] = set()
    while left:
        state = left.pop()
        if model.over(state):
            found.add(model.key(state._replace(stage=0)))
        for event in model.events(state):
            reached, problem = model.apply(state, event)
            assert problem is None
            if (key := model.key(reached)) not in seen:
                seen.add(key)
                left.append(reached)
    return found


@pytest.mark.parametrize(
    "scenario",
    [
        Scenario(messages=("1",), faults=1, kinds=(FaultKind.DUPLICATE, FaultKind.LATE), linear=1, doubled=1),
        Scenario(messages=("1", "1"), faults=0, post_any_time=True, planes=2),
        Scenario(ROCE, ("1", "1"), 1, (FaultKind.LATE,), post_any_time=True),
    ],
    ids=["late", "planes", "roce"],
)
def test_the_reduction_leaves_no_end_of_a_run_out(scenario: Scenario) -> None:
    every, some = ends_of(scenario, reduced=False), ends_of(scenario, reduced=True)
    assert some == every
    assert len(some) > 2


def following(model: Model, state: World) -> set[tuple[str, object]]:
    """Return the events that may happen, each with the state that it leads to."""
    return {(str(event), model.key(model.apply(state, event)[0])) for event in model.events(state)}


@pytest.mark.parametrize(
    "scenario",
    [
        Scenario(messages=("1",), faults=1, kinds=(FaultKind.LATE, LINK), linear=1, doubled=1),
        Scenario(ROCE, ("1", "1i"), 0, late_receives=True, post_any_time=True, selective=True),
        Scenario(ROCE, ("1",), 1, (FaultKind.DUPLICATE, FaultKind.LATE)),
        Scenario(messages=("1", "1@1"), faults=1, kinds=(FaultKind.LATE,), window_bytes=1),
        Scenario(messages=("1", "1<"), faults=1, kinds=(FaultKind.LATE,)),
    ],
    ids=["mrc", "receives", "roce", "pairs", "directions"],
)
def test_states_with_equal_keys_go_on_alike(scenario: Scenario) -> None:
    """Without this, what is left out of a key would hide the runs of all but one of the states that it stands for."""
    model = Model(scenario)
    first, _ = model.first()
    seen, left, compared = {model.key(first): first}, [first], 0
    while left:
        state = left.pop()
        for event in model.events(state):
            reached, _ = model.apply(state, event)
            known = seen.setdefault(model.key(reached), reached)
            if known is reached:
                left.append(reached)
            elif known != reached:
                compared += 1
                assert following(model, known) == following(model, reached)
    assert compared > 5


# --- bugs of the past ---


@pytest.mark.parametrize("name", ["packet larger than the window", "early packet refused"])
def test_a_planted_bug_is_found(name: str) -> None:
    found = find(by_name(name), 30.0)
    assert found.problem is not None
    assert len(found.lines) == found.events > 0


@pytest.mark.long
@pytest.mark.parametrize("bug", PLANTED, ids=lambda bug: bug.name)
def test_every_planted_bug_is_found(bug: Planted) -> None:
    found = find(bug)
    assert found.problem is not None, f"{found.states} states in {found.seconds:.0f} s"


def test_the_sources_of_all_planted_bugs_are_as_they_were(tmp_path: Path) -> None:
    for number, bug in enumerate(PLANTED):
        plant(bug, tmp_path / str(number))
    assert len({bug.name for bug in PLANTED}) == len(PLANTED) >= 10


def test_a_planted_bug_that_no_longer_fits_the_source_is_named(tmp_path: Path) -> None:
    bug = PLANTED[0]
    other = dataclasses.replace(bug, changes=(dataclasses.replace(bug.changes[0], old="no such line"),))
    with pytest.raises(ValueError, match=rf"{bug.name}.*requestor.py has its text 0 times"):
        plant(other, tmp_path)
    with pytest.raises(ValueError, match="no planted bug 'moth'"):
        by_name("moth")


@pytest.mark.slow
@pytest.mark.parametrize("name", first([bug.name for bug in PLANTED], 6))
def test_the_scenario_of_a_planted_bug_is_right_without_it(name: str) -> None:
    bug = by_name(name)
    faults = min(bug.scenario.faults, 1)
    result = explore(dataclasses.replace(bug.scenario, faults=faults))
    assert (result.ending, result.problem) == (Ending.EXHAUSTED, None)


# --- states ---


def walk(scenario: Scenario, seed: int, *, disturb: bool) -> tuple[list[Event], list[object]]:
    """Return a random run and the keys of its states. `disturb`: all other events are tried before each one."""
    rng = random.Random(seed)
    model = Model(scenario)
    state, problem = model.first()
    trace: list[Event] = []
    keys: list[object] = []
    while problem is None and (events := model.events(state)) and len(trace) < 60:
        if disturb:
            for event in events:
                model.apply(state, event)
        event = rng.choice(events)
        state, problem = model.apply(state, event)
        trace.append(event)
        keys.append(model.key(state))
    assert problem is None
    return trace, keys


WALKS = [
    Scenario(messages=("2", "1i"), faults=4, kinds=tuple(FaultKind)[:-2], planes=2, post_any_time=True, sack_every=2),
    Scenario(messages=("3",), faults=3, nscc=True),
    Scenario(ROCE, ("2", "1i"), 4, (*KINDS[ROCE], FaultKind.MARK, LINK), planes=2, selective=True, late_receives=True),
]


@pytest.mark.parametrize("scenario", WALKS, ids=lambda scenario: f"{scenario.transport}-{scenario.messages}")
def test_a_restored_state_goes_on_as_one_that_was_never_left(scenario: Scenario) -> None:
    for seed in range(12):
        assert walk(scenario, seed, disturb=True) == walk(scenario, seed, disturb=False)


@pytest.mark.parametrize("scenario", WALKS, ids=lambda scenario: f"{scenario.transport}-{scenario.messages}")
def test_states_at_different_times_are_equal(scenario: Scenario, monkeypatch: pytest.MonkeyPatch) -> None:
    before = [walk(scenario, seed, disturb=False)[1] for seed in range(6)]
    later = ends.START_NS + 128 * 12_345
    for module in (ends, world):
        monkeypatch.setattr(module, "START_NS", later)
    assert [walk(scenario, seed, disturb=False)[1] for seed in range(6)] == before


@BOTH
def test_states_that_differ_have_different_keys(transport: str) -> None:
    """Each single event changes the key: nothing that events change is left out."""
    scenario = dataclasses.replace(SMALL[transport], faults=2, kinds=(*KINDS[transport], LINK), post_any_time=True)
    model = Model(scenario)
    state, _ = model.first()
    for _ in range(12):
        events = model.events(state)
        reached = [model.apply(state, event)[0] for event in events]
        keys = {model.key(each) for each in [state, *reached]}
        assert len(keys) == len(events) + 1
        state = reached[-1]


def test_random_generators_draw_zeros_once_frozen() -> None:
    generator = ends.FrozenRandom(3)
    assert generator.getrandbits(32) != 0
    generator.freeze()
    assert (generator.getrandbits(32), generator.random(), generator.randint(-5, 5)) == (0, 0.0, -5)


# --- counterexamples ---


def test_a_run_that_comes_back_to_an_earlier_state_has_no_end() -> None:
    search = Search(Scenario(messages=("1",), faults=0))
    assert search.run().ending is Ending.EXHAUSTED
    assert search._loop() is None
    last = len(search._after) - 1
    search._after[last].append(1)
    assert search._loop() is not None


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let one more thing be wrong: a SACK that shows an early packet."""
    right = invariants.of_end

    def of_end(end: End) -> str | None:
        early = end.scenario.transport == MRC and end.qps[0].responder.ooo
        return f"{early} packets are early" if early else right(end)

    monkeypatch.setattr(invariants, "of_end", of_end)


@pytest.mark.usefixtures("hasty")
def test_a_counterexample_is_written_replayed_and_no_longer_than_it_must_be(tmp_path: Path) -> None:
    result = explore(Scenario(messages=("3",), faults=1, kinds=(DROP,)))
    assert result.ending is Ending.FOUND
    found = counterexample(result)
    assert found.problem == "1 packets are early"
    assert [step.kind for step in found.steps] == [EventKind.TIME, EventKind.DELIVER]
    path = tmp_path / "found.json"
    found.write(path)
    assert Counterexample.read(path) == found
    run = replay(found.scenario, found.steps)
    assert run.problem == found.problem
    assert run.lines()[1].endswith("deliver WRITE_MIDDLE 11 to the responder on port 0")


@pytest.mark.usefixtures("hasty")
def test_events_that_are_not_needed_are_left_out() -> None:
    scenario = Scenario(messages=("3",), faults=3, kinds=(DROP, FaultKind.DUPLICATE))
    model = Model(scenario)
    state, problem = model.first()
    trace: list[Event] = []
    for kind, name in (
        ("time", ""),
        ("drop", "MIDDLE"),
        ("duplicate", "LAST"),
        ("deliver", "FIRST"),
        ("deliver", "LAST"),
    ):
        event = next(
            each
            for each in model.events(state)
            if each.kind.value == kind and (not name or name in packets.label(each.packet))
        )
        state, problem = model.apply(state, event)
        trace.append(event)
    assert problem is not None
    short = shorten(Counterexample(scenario, problem, steps_of(scenario, trace)))
    assert [step.kind.value for step in short.steps] == ["time", "deliver"]


def test_a_replay_of_something_that_cannot_happen_says_so(tmp_path: Path) -> None:
    scenario = Scenario(messages=("1",))
    with pytest.raises(ValueError, match="event 1 cannot happen"):
        replay(scenario, (Step(EventKind.DELIVER, RESPONDER, 0, "ACK 3 MSN 1"),))
    assert replay(scenario, (Step(EventKind.POST, 0, -1, ""),), strict=False).events == ()
    path = tmp_path / "other.json"
    path.write_text(json.dumps({"format": "mrclab-counterexample/0"}))
    with pytest.raises(ValueError, match="no file of format"):
        Counterexample.read(path)
    with pytest.raises(ValueError, match=r"does not happen in a run without snapshots"):
        steps_of(scenario, [Event(EventKind.CUT)])


# --- scenarios and packets ---


def first_packet(transport: str) -> bytes:
    state, _ = Model(Scenario(transport, ("2",), 0)).first()
    return state.flying[0].packet


def test_a_packet_without_its_clock_is_the_same_at_any_time(monkeypatch: pytest.MonkeyPatch) -> None:
    early = first_packet(MRC)
    later = ends.START_NS + 128 * 77
    for module in (ends, world):
        monkeypatch.setattr(module, "START_NS", later)
    late = first_packet(MRC)
    assert early != late
    assert packets.timeless(early, later - 128 * 77) == packets.timeless(late, later)
    assert packets.timeless(early, later)[1] == 77
    assert packets.timeless(first_packet(ROCE), 0)[1] == -1


def test_packets_are_trimmed_and_marked_where_switches_may() -> None:
    mrc, roce = first_packet(MRC), first_packet(ROCE)
    assert packets.may_trim(mrc)
    assert not packets.may_trim(roce)
    assert packets.label(packets.trimmed(mrc, last_hop=True)) == "WRITE_FIRST 10 trimmed"
    assert packets.may_mark(mrc)
    assert packets.may_mark(roce)
    assert not packets.may_mark(packets.marked(mrc))


# --- what must hold, each broken once ---


def _write(status: CompletionStatus, number: int = 0) -> Done:
    return Done(CompletionKind.WRITE, number, status, None)


def _received(immediate: int | None, number: int = 0) -> Done:
    return Done(CompletionKind.RECV_IMM, number, CompletionStatus.SUCCESS, immediate)


SUCCESS, FLUSHED, RETRIES = CompletionStatus.SUCCESS, CompletionStatus.WR_FLUSH_ERR, CompletionStatus.RETRY_EXC_ERR
TAKEN: list[tuple[str, str, Callable[[End], object]]] = [
    (MRC, "and was not posted", lambda end: end.record.done.append(_received(101, 5))),
    (MRC, "receives completed", lambda end: [_receive(end, 101), _receive(end, 101)]),
    (MRC, "immediates arrived as", lambda end: _receive(end, 7)),
    (MRC, "before message 0 was complete", lambda end: _receive(end, 101)),
]
AT_RESPONDER = [damage for *_, damage in TAKEN]
BROKEN: list[tuple[str, str, Callable[[End], object]]] = [
    (MRC, "completed in the order", lambda end: end.record.done.extend([_write(SUCCESS)] * 2)),
    (MRC, "completed in the order", lambda end: end.record.done.append(_write(SUCCESS, 1))),
    (MRC, "success after one with an error", lambda end: end.record.done.extend([_write(RETRIES), _write(SUCCESS, 1)])),
    (MRC, "first error is a flush", lambda end: end.record.done.append(_write(FLUSHED))),
    (MRC, "only the first one has", lambda end: end.record.done.extend([_write(RETRIES), _write(RETRIES, 1)])),
    *TAKEN,
    (MRC, "message 1 has wrong bytes", lambda end: end.targets[1].__setitem__(0, 0xFF)),
    (MRC, "packets wait on port 0", lambda end: _wait(end.core.port_states()[0])),
    (MRC, "nothing under a timer", lambda end: end.core.context.timers.cancel_owner(end.qps[0].requestor.recovery)),
    (MRC, "-1 bytes in flight", lambda end: setattr(end.qps[0].qpcc.cc, "inflight", -1)),
    (MRC, "on the accounts of all", lambda end: setattr(end.qps[0].qpcc.cc, "inflight", 5)),
    (MRC, "smaller than a packet", lambda end: setattr(end.qps[0].qpcc.cc, "cwnd", 5)),
    (MRC, "limit", lambda end: setattr(end.qps[0].requestor, "limit", 3)),
    (MRC, "immediates in flight", lambda end: setattr(end.qps[0].requestor.work, "wimm_in_flight", -1)),
    (MRC, "immediates in flight", lambda end: setattr(end.qps[0].responder, "ooo", 1)),
    (MRC, "packets placed", lambda end: setattr(end.qps[0].responder.counters, "packets_placed", 9)),
    (MRC, "before the newest packet", lambda end: setattr(end.qps[0].requestor.board, "newest_ns", 1 << 40)),
    (MRC, "requests have completed", lambda end: setattr(end.qps[0], "state", QpState.ERROR)),
    (ROCE, "an ACK waits", lambda end: _owe(end)),
    (ROCE, "una", lambda end: setattr(end.qps[0], "sent_psn", 3)),
    (ROCE, "no timer", lambda end: end.core._timers.cancel(TimerKind.PAIR, end.qps[0])),
]  # fmt: skip


def _receive(end: End, immediate: int) -> None:
    end.record.receives = 1
    end.record.done.append(_received(immediate))


def _wait(port: Any) -> None:
    port.up = False
    port.control.append(b"SACK")


def _owe(end: End) -> None:
    end.core.port_states()[0].up = False
    end.core._lanes[0].acks[end.qps[0].number] = None


@pytest.mark.parametrize(("transport", "text", "damage"), BROKEN, ids=[f"{each[0]}-{each[1]}" for each in BROKEN])
def test_every_invariant_can_fail(transport: str, text: str, damage: Callable[[End], object]) -> None:
    model = Model(Scenario(transport, ("1", "1i"), 0))
    model.first()
    end = model.ends[RESPONDER if damage in AT_RESPONDER else REQUESTOR]
    assert invariants.of_end(end) is None
    damage(end)
    problem = invariants.of_end(end)
    assert problem is not None
    assert text in problem


@BOTH
def test_a_queue_pair_in_error_is_quiet(transport: str) -> None:
    model = Model(Scenario(transport, ("1",), 1, (FaultKind.CUT,)))
    state, problem = model.first()
    while state.ends[REQUESTOR].state is not QpState.ERROR:
        events = model.events(state)
        event = next((each for each in events if each.kind is EventKind.CUT), events[-1])
        state, problem = model.apply(state, event)
    assert problem is None
    end = model.ends[REQUESTOR]
    assert invariants.of_end(end) is None
    if transport == MRC:
        end.core.context.timers.arm(TimerKind.TAIL, end.qps[0].requestor.recovery, 1 << 40)
    else:
        end.qps[0].deadline = 1 << 40
    assert "in ERROR" in str(invariants.of_end(end))


def altered(before: World, end: int, **changes: Any) -> World:
    """Return a state whose end looks otherwise."""
    local = before.ends[end]
    for name, value in changes.items():
        setattr(local, name, value)
    return before


def test_what_both_ends_must_agree_on_is_judged() -> None:
    done = (Done(CompletionKind.WRITE, 0, SUCCESS, None), Done(CompletionKind.WRITE_IMM, 1, SUCCESS, None))

    def fresh() -> tuple[Model, World]:
        model = Model(Scenario(messages=("1", "1i"), faults=0))
        return model, model.first()[0]

    model, state = fresh()
    assert model._judge(state) is None
    assert "bytes are not at the responder" in str(model._judge(altered(state, REQUESTOR, done=done)))
    altered(state, RESPONDER, placed=(True, True))
    assert "0 immediates were delivered" in str(model._judge(state))
    model, state = fresh()
    assert "failed: no reason" in str(model._judge(altered(state, RESPONDER, state=QpState.ERROR)))
    model, state = fresh()
    assert "nothing is left" in str(model.stuck(state._replace(flying=()), []))
    assert "nothing has completed in 401" in str(model._too_long(state._replace(waits=401)))
    late = state._replace(silent=EventKind.CUT, silent_ns=0, now=1 << 40)
    assert "after the network fell silent" in str(model._too_long(late))


# --- the command ---


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["support.checker", *arguments])
    return command.main()


def test_the_command_explores_what_it_is_given(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, "--messages", "1", "--faults", "1", "--kinds", "drop", "cut") == 0
    out = capsys.readouterr().out
    assert "1 faults" in out
    assert "0 counterexamples" in out


@pytest.mark.usefixtures("hasty")
def test_the_command_writes_a_counterexample_and_replays_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert run(monkeypatch, "--messages", "2", "--faults", "0", "--out", str(tmp_path)) == 1
    assert "1 packets are early" in capsys.readouterr().out
    assert run(monkeypatch, "--replay", str(tmp_path / "mrc-1.json")) == 1
    assert capsys.readouterr().out.endswith("1 packets are early\n")
