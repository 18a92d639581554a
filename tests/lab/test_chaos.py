"""Chaos: schedules as data, every planted fault found and its schedule shrunk to what it takes, the same on replay."""

from __future__ import annotations

import pathlib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mrc_host.node.host import HostNode
from mrc_host.node.jobs import Job
from mrc_host.workloads.base import Workload
from mrc_topo.labfile import load_lab
from mrclab.cli.app import main
from mrclab.lab.faults import fabric, kinds
from mrclab.lab.faults.action import Action
from mrclab.lab.faults.ledger import FaultLedger
from mrclab.lab.session import virtual
from mrclab.runs.experiment import ExperimentError, parse
from mrclab.studies.chaos import run, schedule
from mrclab.studies.chaos.run import ChaosResult, ddmin, shrink
from mrclab.studies.chaos.schedule import ENDS, PARTS, ChaosStep, Schedule
from support.amount import LONG, examples, first
from support.namespaces import interfaces, left_behind


@pytest.fixture(autouse=True)
def run_directory(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MRCLAB_RUN", str(tmp_path / "run"))


def steps(*rows: dict[str, Any]) -> list[ChaosStep]:
    return [ChaosStep.model_validate(row) for row in rows]


def load(name: str, iterations: int = 3, **what: Any) -> dict[str, Any]:
    return {"name": name, "params": {"iterations": iterations, **what.pop("params", {})}, **what}


ALL_TO_ALL = load("all_to_all", params={"block_bytes": 5000})


# --- schedules -------------------------------------------------------------------------------------------------------


@settings(max_examples=examples(100))
@given(st.integers(0, 1 << 32), st.sampled_from(["tiny", "default", "spray"]))
def test_made_up_schedules_are_what_their_text_says(seed: int, lab: str) -> None:
    made = schedule.generate(lab, seed, 4.0)
    assert parse(Schedule, made.text(), "text", schedule.EXAMPLE) == made
    assert schedule.generate(lab, seed, 4.0) == made
    topology = load_lab(lab)
    for step in made.steps:
        if step.verb in ("fail", "restore"):
            kinds.check(topology, step.action())


BAD = {
    "steps: [{at: 1, fail: p0-t0.0, thaw: h1}]": "steps.0: a step has exactly one of",
    "steps: [{at: 1, freeze: h1, kind: stop}]": "kind belongs to fail, restore and end",
    "steps: [{at: 1, start: w1}]": "start, and nothing else, has a workload",
    "steps: [{at: 2, freeze: h1}, {at: 1, thaw: h1}]": "order of time",
    "steps: [{at: -1, freeze: h1}]": "steps.0.at",
    "step: []": "did you mean 'steps'?",
}


@pytest.mark.parametrize("text", BAD)
def test_parse_of_a_wrong_schedule_names_the_place(text: str) -> None:
    with pytest.raises(ExperimentError, match=r"bad\.yaml:1") as caught:
        parse(Schedule, text, "bad.yaml", schedule.EXAMPLE)
    assert BAD[text] in str(caught.value)


IMPOSSIBLE = {
    "{at: 1, freeze: h9}": "no such host",
    "{at: 1, enter: h1}": "no such switch",
    "{at: 1, fail: p9-t0.0}": "p9-t0.0",
    "{at: 1, fail: p0-t0.0, kind: port_down}": "needs a host port",
    "{at: 1, start: w, workload: {name: all_to_all, hosts: [h0, h7]}}": "no host 'h7'",
}


@pytest.mark.parametrize("step", IMPOSSIBLE)
def test_what_a_lab_cannot_do_is_refused_before_anything_starts(
    step: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "bad.yaml"
    file.write_text(f"steps: [{step}]")
    monkeypatch.setattr("mrclab.cli.chaos.play", lambda *_: pytest.fail("started"))
    assert command(monkeypatch, "--schedule", str(file)) == 2
    told = capsys.readouterr().err
    assert IMPOSSIBLE[step] in told
    assert str(file) in told


def command(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    monkeypatch.setattr("sys.argv", ["mrclab", "chaos", *words])
    with pytest.raises(SystemExit) as ended:
        main()
    return int(ended.value.code or 0)


# --- shrinking -------------------------------------------------------------------------------------------------------


@given(st.sets(st.integers(0, 39), min_size=1, max_size=5))
def test_ddmin_leaves_what_it_takes_and_nothing_else(needed: set[int]) -> None:
    assert ddmin(range(40), lambda part: needed <= set(part)) == sorted(needed)


@given(st.lists(st.booleans(), min_size=12, max_size=12))
def test_ddmin_leaves_nothing_that_can_be_left_out(parity: list[bool]) -> None:
    """Also where the failure is not of one set: here whenever an odd number of marked items is there."""

    def fails(part: list[int]) -> bool:
        return sum(parity[each] for each in part) % 2 == 1

    if fails(list(range(12))):
        left = ddmin(range(12), fails)
        assert fails(left)
        assert not any(fails(left[:place] + left[place + 1 :]) for place in range(len(left)))


# --- on the virtual clock --------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("number", first(range(1, 7), 2))
def test_play_of_any_schedule_in_simulated_time_breaks_no_invariant(number: int) -> None:
    played = run.play(schedule.generate("tiny", number, 8.0), "virtual")
    assert played.violation is None, played.log[-20:]
    assert played.counts["workloads done"]


@pytest.mark.slow
def test_a_replay_is_the_same_to_the_nanosecond() -> None:
    made = schedule.generate("tiny", 11, 6.0)
    first, second = (run.play(made, "virtual") for _ in range(2))
    assert first.log == second.log
    assert first.at == second.at


#: Long enough for everything to meet everything.
BUSY = [
    {"at": 0.1, "start": "w0", "workload": ALL_TO_ALL},
    {"at": 0.105, "fail": "h1:1", "kind": "port_down"},
    {"at": 0.11, "fail": "p0-t0.0--p0-t1.0", "kind": "link_down", "direction": "up"},
    {"at": 0.12, "fail": "p1-t1.1", "kind": "freeze"},
    {"at": 0.13, "freeze": "h2"},
    {"at": 0.14, "enter": "p0-t0.1"},
    {"at": 0.15, "thaw": "h2"},
    {"at": 0.16, "leave": "p0-t0.1"},
    {"at": 0.2, "fail": "p0-t0.0", "kind": "transceiver", "settings": {"first": 3, "count": 2}},
    {"at": 0.3, "restore": "h1:1"},
    {"at": 0.35, "restore": "p0-t0.0--p0-t1.0"},
    {"at": 0.4, "restore": "p0-t0.0"},
    {"at": 0.45, "restore": "p1-t1.1"},
    {"at": 0.5, "start": "w1", "workload": load("write_bw", hosts=["h0", "h3"], params={"message_bytes": 9000})},
]


def forget_a_cause(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a ledger restore a link when the first of its causes is removed."""
    change = FaultLedger._change

    def changed(self: FaultLedger, lab: Any, write: Any, gone: Any, come: Any) -> None:
        links = {name for name, _ in self._together(gone).cut}
        also = [
            each
            for each in self._causes
            if each not in gone and {link for link, _ in self._together([each]).cut} & links
        ]
        change(self, lab, write, [*gone, *also], come)

    monkeypatch.setattr(FaultLedger, "_change", changed)


def restore_the_wrong_port(monkeypatch: pytest.MonkeyPatch) -> None:
    """Carriers come back at the port beside."""

    def put_carrier(lab: Any, link: Any, up: bool) -> None:
        lab.set_carrier(link.low.node, link.low.port ^ int(up), up)

    monkeypatch.setattr(fabric, "put_carrier", put_carrier)


def drop_a_completion(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of every host that stood still."""
    thaw = virtual.VirtualSession.thaw_agent
    lame: set[str] = set()

    def thawed(self: Any, host: str) -> None:
        lame.add(host)
        thaw(self, host)

    original = HostNode._completed

    def completed(self: HostNode, completion: Any, now: int) -> None:
        if self.name in lame and completion.kind.value != "recv_imm":
            lame.remove(self.name)
            return
        original(self, completion, now)

    monkeypatch.setattr(virtual.VirtualSession, "thaw_agent", thawed)
    monkeypatch.setattr(HostNode, "_completed", completed)


def corrupt_a_byte(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of what lands at h3 from h0 alone."""
    check = Workload.check

    def checked(self: Workload[Any], got: Any, want: Any) -> None:
        if self.name == "write_bw":
            got = got.copy()
            got[7] ^= 1
        check(self, got, want)

    monkeypatch.setattr(Workload, "check", checked)


def keep_queue_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of workloads of two hosts."""
    close = Job.close
    monkeypatch.setattr(Job, "close", lambda self, now: None if len(self.names) == 2 else close(self, now))


def die_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail a queue pair as soon as a port goes down, whatever other ports there are."""
    carrier = virtual.VirtualSession.set_carrier

    def set_carrier(self: virtual.VirtualSession, host: str, port: int, up: bool) -> None:
        carrier(self, host, port, up)
        for job in self.nodes[host].jobs.values():
            for peer in [] if up else list(job.qps)[:1]:
                job.failed(peer, "retry counter exceeded", self.now_ns())

    monkeypatch.setattr(virtual.VirtualSession, "set_carrier", set_carrier)


LINK = "p0-t0.0--p0-t1.0"
#: What is planted, the rule that it breaks, and what that takes: all else is undone, and worked on, at the end anyway.
PLANTED = {
    "a cause": (forget_a_cause, "truth", [{"fail": LINK}, {"fail": "p0-t0.0"}, {"restore": LINK}]),
    "wrong port": (restore_the_wrong_port, "truth", [{"fail": "h1:1"}]),
    "completion": (drop_a_completion, "progress", [{"freeze": "h2"}]),
    "culprit": (die_for_nothing, "errors", [{"start": "w0"}, {"fail": "h1:1"}]),
}


@pytest.mark.slow
@pytest.mark.parametrize("planted", PLANTED)
def test_a_planted_fault_is_found(planted: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plant, rule, _ = PLANTED[planted]
    plant(monkeypatch)
    played = run.play(Schedule(lab="tiny", duration=0.6, steps=steps(*BUSY)), "virtual")
    assert played.violation is not None
    assert played.violation.rule == rule, played.violation


@pytest.mark.slow
@pytest.mark.parametrize("planted", first(["wrong port", *sorted({*PLANTED} - {"wrong port"})]))
def test_the_schedule_of_a_planted_fault_is_shrunk_to_what_it_takes(
    planted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant, rule, least = PLANTED[planted]
    # A few of the steps: each that could be left out costs a play.
    made = Schedule(lab="tiny", duration=0.6, steps=steps(*(BUSY if LONG else BUSY[:4])))
    plant(monkeypatch)
    played = run.play(made, "virtual")
    found, outcome, _ = shrink(made, played, lambda each: run.play(each, "virtual"))
    assert [{step.verb: step.target} for step in found.steps] == least
    assert outcome.violation is not None
    assert outcome.violation.rule == rule


def test_play_without_a_planted_fault_breaks_no_invariant() -> None:
    assert run.play(Schedule(lab="tiny", duration=0.6, steps=steps(*BUSY)), "virtual").violation is None


def test_play_that_leaves_queue_pairs_breaks_the_rule_left(monkeypatch: pytest.MonkeyPatch) -> None:
    keep_queue_pairs(monkeypatch)
    played = run.play(Schedule(lab="tiny", duration=0.6, steps=steps(BUSY[-1])), "virtual")
    assert played.violation is not None
    assert played.violation.rule == "left"


@pytest.mark.slow
def test_the_command_prints_a_schedule_that_does_it_again(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(
        "mrclab.cli.chaos.schedules.generate", lambda *_, **__: Schedule(duration=0.6, steps=steps(*BUSY))
    )
    corrupt_a_byte(monkeypatch)
    file = tmp_path / "least.yaml"
    assert command(monkeypatch, "--clock", "virtual", "--seed", "1", "-o", str(file)) == 1
    assert "wrong values at h3" in capsys.readouterr().out
    assert command(monkeypatch, "--clock", "virtual", "--schedule", str(file)) == 1
    assert "1 of 1 steps do it" in capsys.readouterr().out
    monkeypatch.undo()
    assert command(monkeypatch, "--clock", "virtual", "--schedule", str(file)) == 0


def test_a_killed_agent_is_named_by_whom_it_leaves() -> None:
    rows = [
        {"at": 0.1, "start": "w0", "workload": load("write_bw", 50, hosts=["h0", "h3"])},
        {"at": 0.2, "kill": "h3"},
        {"at": 0.3, "revive": "h3"},
        {"at": 0.4, "start": "w1", "workload": ALL_TO_ALL},
    ]
    played = run.play(Schedule(duration=0.5, steps=steps(*rows)), "virtual")
    assert played.violation is None, played.log
    assert any("w0 failed rank 0 to rank 1: h3: " in line for line in played.log), played.log
    assert played.counts["workloads done"] == 2


def test_an_agent_that_starts_again_is_another_to_its_peers() -> None:
    """Found by seed 6: else h0 takes the documents of h3's second life for old, and its port 0 for down."""
    work = load("all_to_all", 3000, hosts=["h3", "h0"], params={"block_bytes": 500})
    rows = [
        {"at": 0.1, "start": "w0", "workload": work},
        {"at": 0.2, "fail": "h3:0"},
        {"at": 0.3, "kill": "h3"},
        {"at": 0.4, "restore": "h3:0"},
        {"at": 0.5, "revive": "h3"},
        {"at": 0.6, "start": "w1", "workload": work},
        {"at": 0.7, "fail": "h0:1"},
        {"at": 6.5, "stop": "w1"},
    ]
    played = run.play(Schedule(duration=7.0, steps=steps(*rows)), "virtual")
    assert played.violation is None


@pytest.mark.parametrize("other", ["stop", "freeze"])
def test_a_switch_that_was_rebooted_stays_as_its_other_failure_wants_it(other: str) -> None:
    """Found by seed 7: a restart leaves a switch running."""
    rows = [
        {"at": 0.1, "fail": "p1-t0.1", "kind": other},
        {"at": 0.2, "fail": "p1-t0.1", "kind": "reboot"},
        {"at": 0.3, "restore": "p1-t0.1", "kind": "reboot"},
    ]
    assert run.play(Schedule(duration=0.4, steps=steps(*rows)), "virtual").violation is None


def test_a_switch_is_filled_again_whoever_is_its_primary() -> None:
    rows = [
        {"at": 0.1, "enter": "p0-t0.0"},
        {"at": 0.1, "fail": "p0-t0.0", "kind": "reboot"},
        {"at": 0.2, "restore": "p0-t0.0"},
        {"at": 0.2, "leave": "p0-t0.0"},
        {"at": 0.3, "fail": "p0-t0.0", "kind": "reboot"},
        {"at": 0.4, "restore": "p0-t0.0"},
        {"at": 0.4, "enter": "p0-t0.0"},
    ]
    played = run.play(Schedule(duration=0.5, steps=steps(*rows)), "virtual")
    assert played.violation is None
    assert played.counts["passed over"] == 0


@pytest.mark.slow
@pytest.mark.lab
def test_play_on_the_real_clock_breaks_no_invariant() -> None:
    """Everything once; a schedule's own randomness is on the virtual clock."""
    rows = [
        *BUSY[:8],
        {"at": 0.3, "kill": "h1"},
        {"at": 0.5, "revive": "h1"},
        *({**row, "at": float(str(row["at"])) + 1.0} for row in BUSY[8:]),
        {"at": 1.6, "fail": "p1-t0.1", "kind": "reboot"},
        {"at": 1.7, "restore": "p1-t0.1"},
        {"at": 1.8, "stop": "w1"},
    ]
    played = run.play(Schedule(lab="tiny", duration=2.0, steps=steps(*rows)), "real")
    assert played.violation is None, played.log
    wanted = {"fail": 5, "restore": 5, "freeze": 1, "thaw": 1, "kill": 1, "revive": 1, "enter": 1, "leave": 1}
    assert {key: played.counts[key] for key in wanted} == wanted


@pytest.mark.slow
@pytest.mark.lab
@pytest.mark.parametrize(
    ("part", "kind"), first([("fabric", "kill"), ("labd", "freeze"), ("fabric", "freeze"), ("labd", "kill")], 2)
)
def test_a_lab_that_is_ended_says_so_and_leaves_nothing(part: str, kind: str, tmp_path: pathlib.Path) -> None:
    before = interfaces()
    rows = [
        {"at": 0.1, "start": "w0", "workload": load("all_to_all", 3000, params={"block_bytes": 500})},
        {"at": 0.2, "fail": "p0-t0.0", "kind": "freeze"},
        {"at": 0.5, "end": part, "kind": kind},
        {"at": 0.6, "kill": "h0"},
    ]
    played = run.play(Schedule(lab="tiny", steps=steps(*rows)), "real")
    assert played.violation is None, played.log
    assert dict(played.counts) == {"start": 1, "fail": 1, "end": 1}
    assert left_behind(before, tmp_path) == []


@pytest.mark.slow
@pytest.mark.lab
@pytest.mark.parametrize("number", first(range(3)))
def test_play_of_random_schedules_on_the_real_clock_breaks_no_invariant(number: int, seed: int) -> None:
    """So many seconds and seeds as the suite has time for; `mrclab chaos` has more."""
    played = run.play(schedule.generate("tiny", seed + number, 8.0, ends=True), "real")
    assert played.violation is None, played.log


def test_the_end_of_a_lab_is_none_of_a_simulation() -> None:
    played = run.play(Schedule(steps=steps({"at": 0.1, "end": "fabric"})), "virtual")
    assert (played.violation, played.counts["passed over"], played.counts["end"]) == (None, 1, 0)
    made = [schedule.generate("tiny", each, 8.0, ends=True) for each in range(40)]
    ends = [step for each in made for step in each.steps if step.end is not None]
    assert {(step.end, step.kind) for step in ends} == {(part, kind) for part in PARTS for kind in ENDS}
    for each, plain in zip(made, [schedule.generate("tiny", each, 8.0) for each in range(40)], strict=True):
        assert [step for step in each.steps if step.end is None] == plain.steps


def test_the_log_of_a_play_tells_what_was_passed_over() -> None:
    rows = [{"at": 0.1, "restore": "p0-t0.0"}, {"at": 0.1, "thaw": "h0"}, {"at": 0.1, "stop": "w9"}]
    played: ChaosResult = run.play(Schedule(steps=steps(*rows)), "virtual")
    assert played.violation is None
    assert played.counts["passed over"] == 3


def test_a_step_is_an_action_as_experiments_have_them() -> None:
    step = ChaosStep(at=1, fail="h1:0", kind="impair", settings={"loss": 0.5})
    assert step.action() == Action("fail", "h1:0", "impair", settings={"loss": 0.5})
