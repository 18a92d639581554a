"""The live view of a simulation, without browser and server: what it shows and what it does."""

from __future__ import annotations

import itertools
import json
import pathlib
from concurrent.futures import TimeoutError as Late

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mrclab.results.check import Verdict
from mrclab.results.expectation import Evidence
from mrclab.runs import execute
from mrclab.runs.experiment import Experiment, ExperimentStep, Workload
from mrclab.web.hub import CommandError, Hub
from mrclab.web.replay import Recorded, Replay
from mrclab.web.sampler import Sampler
from mrclab.web.state import ViewState
from mrclab.web.view import SampleRhythm, View
from p4lite.switch.fabric.values import SwitchState
from support.web import LINK, SHORT, Watching, simulating, watching


def link(view: Watching, state: ViewState, name: str) -> dict[str, object]:
    assert view.hub.layout is not None
    places = [each["name"] for each in view.hub.layout["links"]]
    return dict(state["links"][places.index(name)])


def texts(view: Watching) -> list[str]:
    return [row["text"] for row in view.hub.log.since(0)]


def test_a_link_is_broken_seen_found_and_restored() -> None:
    """Picture, log, truth and the hosts' findings agree; EVs of a pair change and come back."""
    with simulating(speed=0) as view:
        view.ask("start", workload="ring_all_reduce", params={"size_bytes": 65536})
        view.until(lambda state: state["goodput_bps"] > 10**6 and state["job"] and state["job"]["iterations"] > 2)
        view.hub.want(("h0", "h2"), 1)
        view.hub.want(("h1", "h2"), 1)
        answer = view.ask("fail", target=LINK)
        assert answer.text == f"link down {LINK}"
        state = view.until(lambda state: link(view, state, LINK)["state"] == "cut" and state["found"].get(LINK))
        assert [each["text"] for each in state["broken"]] == [f"link down {LINK}"]
        assert state["found"] == {LINK: "dead"}
        view.until(lambda state: state["hosts"][1]["ev"]["ASSUMED_BAD"] > 0)
        assert f"link down {LINK}" in texts(view)
        assert f"the hosts find {LINK} dead; the truth: link down {LINK}" in texts(view)
        assert any("ASSUMED_BAD" in text for text in texts(view))
        # Pairs are sampled at times of their own; it stays so while the link is down.
        view.until(lambda state: b'"ASSUMED_BAD"' in view.hub.pairs["h1", "h2"])
        view.ask("restore", target=LINK)
        view.until(
            lambda state: link(view, state, LINK)["state"] == "up" and not state["found"] and not state["broken"]
        )
        view.until(lambda state: state["hosts"][1]["ev"]["ASSUMED_BAD"] == 0)
        assert f"restored: link down {LINK}" in texts(view)
        view.ask("stop")
        state = view.until(lambda state: state["job"] and not state["job"]["running"])
        assert state["job"]["verdict"] == "passed"  # type: ignore[index]
        assert state["job"]["mismatches"] == 0  # type: ignore[index]


@given(st.lists(st.floats(0.0, 0.5), min_size=1, max_size=20))
def test_samples_of_which_some_wait_for_the_lab_are_still_ten_a_second(waits: list[float]) -> None:
    """Two of twenty wait so long."""
    rhythm, free, times = SampleRhythm(), 5.0, []
    for wait in (each for first in waits for each in (first, first, *[0.0] * 18)):
        now = max(rhythm.due_s, free)
        times.append(now)
        rhythm.sampled(now, 0.001)
        free = now + wait
    assert rhythm.due_s == pytest.approx(5.0 + 0.1 * len(times))
    assert min(after - before for before, after in itertools.pairwise(times)) > 0.0499


def test_a_sample_that_is_very_late_or_costly_is_not_made_up_for() -> None:
    rhythm = SampleRhythm()
    for began, took, due in ((7.0, 0.001, 7.1), (7.12, 0.05, 7.27), (9.0, 0.001, 9.1)):
        rhythm.sampled(began, took)
        assert rhythm.due_s == pytest.approx(due)
    for began in (9.01, 9.02, 9.03):  # Each after a command; the next sample does not come later for them.
        rhythm.sample_now()
        assert rhythm.due_s == 0.0
        rhythm.sampled(began, 0.001)
    assert rhythm.due_s == pytest.approx(9.13)


@pytest.mark.parametrize("sample_s", [0.1, 60.0])
def test_the_log_has_the_times_that_the_record_of_the_run_has(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, sample_s: float
) -> None:
    """A sample sees a failure up to a tenth of a second after it was made, or only at the end of the run."""
    monkeypatch.setattr("mrclab.web.view.SAMPLE_S", sample_s)
    hub = Hub()
    experiment = Experiment(
        name="x",
        title="x",
        lab="tiny",
        workload=Workload(name="ring_all_reduce", params={"size_bytes": 1 << 16}, duration=1.0),
        schedule=[
            ExperimentStep(at=0.237, fail=LINK, evidence=Evidence(dropped=1)),
            ExperimentStep(at=0.641, restore=LINK),
        ],
    )
    outcome = execute.execute(experiment, "virtual", folder=tmp_path, live=False, view=View(hub, speed=0))
    assert hub.layout is not None
    began = hub.layout["began_ns"]
    shown = [row["t_ns"] for row in hub.log.since(0) if row["what"] in ("failure", "restore")]
    assert shown == [each.at_ns - began for each in outcome.result.happenings]
    assert len(shown) == 2
    done = [row["done_ns"] for row in hub.log.since(0) if row["what"] in ("failure", "restore")]
    assert done == [each.done_ns - began for each in outcome.result.happenings]
    achieved, state = outcome.result.achieved(), hub.state
    assert state is not None
    job = state["job"]
    assert job is not None
    assert (job["iterations"], job["bytes_verified"]) == (achieved.least_iterations, achieved.bytes_verified)
    names = {"h0", "h1", "h2", "h3"}
    evs = [(row, each) for row in hub.log.since(0) for each in row.get("evs", [])]
    assert evs
    assert {each["peer"] for _, each in evs} <= names
    assert all(each["peer"] not in row["text"].partition(":")[0] and shown[0] <= each["t_ns"] for row, each in evs)


def test_evs_of_a_pair_have_the_time_of_their_latest_change_also_of_before_the_pair_was_looked_at() -> None:
    with simulating(speed=0) as view:
        view.ask("start", workload="ring_all_reduce", params={"size_bytes": 65536})
        view.until(lambda state: state["job"] and state["job"]["iterations"] > 2)
        view.ask("fail", target=LINK)
        view.until(lambda state: state["hosts"][1]["ev"]["ASSUMED_BAD"] > 0)
        view.hub.want(("h1", "h2"), 1)
        while b'"ASSUMED_BAD"' not in view.hub.pairs.get(("h1", "h2"), b""):
            view.until(lambda state: True)
        # Pair and log are of one time only while time stands.
        view.ask("pause")
        before = view.hub.pairs
        view.until(lambda state: view.hub.pairs is not before)
        pair = json.loads(view.hub.pairs["h1", "h2"])
        bad = [(qp["qpn"], ev) for qp in pair["qps"] for ev in qp["evs"] if ev["state"] == "ASSUMED_BAD"]
        assert bad
        lost = {(qpn, ev["ev"]) for qpn, ev in bad}

        def becoming_bad() -> dict[tuple[int, int], int]:
            return {
                (each["qpn"], each["ev"]): each["t_ns"]
                for row in view.hub.log.since(0)
                if row["what"] == "ev" and row["text"].startswith("h1: ") and "→ ASSUMED_BAD" in row["text"]
                for each in row["evs"]
                if each["peer"] == "h2"
            }

        view.until(lambda state: lost <= becoming_bad().keys())
        logged = becoming_bad()
        for qpn, ev in bad:
            assert ev["since_ns"] == logged[qpn, ev["ev"]]
            assert ev["cause"]
        view.ask("restore", target=LINK)
        view.ask("resume")

        def mended() -> list[int]:
            pair = json.loads(view.hub.pairs["h1", "h2"])
            rows = [(qp["qpn"], ev) for qp in pair["qps"] for ev in qp["evs"]]
            return [ev["since_ns"] for qpn, ev in rows if (qpn, ev["ev"]) in lost and ev["state"] == "GOOD"]

        view.until(lambda state: len(mended()) == len(lost) and min(mended()) > max(logged.values()))


def test_a_pair_without_a_queue_pair_names_the_peers_that_there_are() -> None:
    with simulating(speed=0) as view:
        view.hub.want(("h0", "h2"), 1)
        none = b'"h0 has no queue pair to h2 at present; it has none at all; a workload or a program makes them"'
        view.until(lambda state: none in view.hub.pairs.get(("h0", "h2"), b""))
        view.ask("start", workload="ring_all_reduce", params={"size_bytes": 65536})
        some = b'"h0 has no queue pair to h2 at present; it has some to h1, h3"'
        view.until(lambda state: some in view.hub.pairs.get(("h0", "h2"), b""))


def test_the_ways_of_evs_are_those_of_the_paths() -> None:
    with simulating(speed=0) as view:
        view.ask("start", workload="ring_all_reduce", params={"size_bytes": 65536})
        view.hub.want(("h1", "h2"), 1)
        while not (seen := view.hub.pairs.get(("h1", "h2"))) or b'"qps":[]' in seen:
            view.until(lambda state: True)
        pair = json.loads(seen)
        assert view.hub.layout is not None
        names = [each["name"] for each in view.hub.layout["links"]]
        for ev in pair["qps"][0]["evs"]:
            way = [names[at] for at in ev["links"]]
            assert way[0] == f"h1:{ev['plane']}"
            assert way[-1] == f"h2:{ev['plane']}"
            assert len(way) == 4


def test_every_kind_of_failure_can_be_done_and_undone() -> None:
    with simulating(paused=True) as view:
        view.until(lambda state: state["phase"] == "paused")
        for target, kind, settings in (
            (LINK, "impair", {"loss": 0.5, "blackhole": False, "delay_ns": 1000}),
            ("h0:0", "port_down", {}),
            ("h0:1", "pause_storm", {}),
            ("p0-t1.0", "transceiver", {"first": 1, "count": 1}),
            ("p0-t1.1", "freeze", {}),
            ("p1-t1.0", "stop", {}),
            ("p1-t1.1", "reboot", {}),
        ):
            view.ask("fail", target=target, kind=kind, settings=settings)
        state = view.until(lambda state: len(state["broken"]) == 7 and state["switches"][-1]["state"] == "stopped")
        assert link(view, state, LINK)["impaired"]
        assert link(view, state, "h0:0")["state"] == "cut"
        states = {each["state"] for each in state["switches"]}
        assert states == {each.value for each in SwitchState}
        view.ask("restore")
        state = view.until(lambda state: not state["broken"] and state["switches"][-1]["state"] == "running")
        assert {each["state"] for each in state["switches"]} == {"running"}


@pytest.mark.parametrize(
    ("name", "arguments", "reason"),
    [
        ("fail", {"target": "h0"}, "h0 is a host; name one of its ports"),
        ("fail", {"target": "nothing"}, "nothing in lab tiny is called 'nothing'"),
        ("fail", {"target": LINK, "kind": "melt"}, "no failure 'melt'"),
        ("fail", {"target": LINK, "kind": "impair", "settings": {"loss": 7}}, "loss must be a probability"),
        ("fail", {"target": LINK, "settings": {"loss": "x"}}, "settings"),
        ("fail", {}, "target"),
        ("fail", {"target": LINK, "shell": "rm"}, "shell"),
        ("fail", {"target": "x" * 1000}, "target"),
        ("restore", {"target": LINK}, "is not broken"),
        ("restore", {"kind": "stop"}, "a kind needs the target"),
        ("deny", {"elements": ["h0"]}, "h0 is a host"),
        ("allow", {"elements": [LINK]}, "is not denied"),
        ("capture", {"port": "../x"}, "names no port"),
        ("capture", {"port": "h0:9"}, "h0 has ports 0 to 1"),
        ("capture", {"port": "h0:0", "on": False}, "is not captured"),
        ("start", {"workload": "nothing"}, "no workload"),
        ("start", {"workload": "ring_all_reduce", "params": {"wings": 2}}, "no parameter 'wings'"),
        ("start", {"workload": "ring_all_reduce", "hosts": ["h77"]}, "no host 'h77'"),
        ("run", {"name": "/etc/passwd"}, "no experiment"),
        ("stop", {}, "no workload of this page runs"),
        ("save", {}, "nothing to save yet"),
        ("speed", {"speed": -1}, "speed"),
        ("step", {"seconds": 1e9}, "seconds"),
        ("seek", {"seconds": 1}, "seek is not possible here"),
        ("erase", {}, "no command"),
        ("fail", [], "fail"),
    ],
)
def test_a_command_that_cannot_be_done_says_why(
    standing: Watching, name: str, arguments: dict[str, object], reason: str
) -> None:
    with pytest.raises(CommandError) as caught:
        standing.hub.submit(name, arguments).result(30)
    assert reason in str(caught.value)
    assert standing.error is None


@pytest.fixture(scope="module")
def standing() -> object:
    with simulating(paused=True) as view:
        view.until(lambda state: state["phase"] == "paused")
        yield view


def test_time_stands_steps_and_goes_on() -> None:
    with simulating(paused=True) as view:
        before = view.until(lambda state: state["phase"] == "paused" and state["number"] > 3)
        assert before["t_ns"] == 0
        view.ask("step", seconds=0.01)
        state = view.until(lambda state: state["t_ns"] >= 10_000_000)
        assert state["t_ns"] == 10_000_000
        with pytest.raises((Late, AssertionError)):
            view.until(lambda state: state["t_ns"] > 10_000_000, 0.5)
        view.ask("speed", speed=0)
        view.ask("resume")
        view.until(lambda state: state["t_ns"] > 500_000_000 and state["phase"] == "running" and state["speed"] > 0)
        view.ask("pause")
        view.until(lambda state: state["phase"] == "paused" and state["speed"] == 0)


def test_deny_and_allow_and_a_capture(tmp_path: pathlib.Path) -> None:
    with simulating(speed=0) as view:
        view.ask("start", workload="ring_all_reduce", params={"size_bytes": 65536})
        view.until(lambda state: state["job"] and state["job"]["iterations"] > 0)
        view.ask("capture", port="h1:0")
        view.ask("deny", elements=[LINK])
        state = view.until(lambda state: link(view, state, LINK)["denied"])
        assert state["denied"] == [LINK]
        assert state["captures"] == ["h1:0"]
        view.until(lambda state: state["hosts"][1]["ev"]["DENIED"] > 0)
        view.ask("allow")
        view.until(lambda state: not state["denied"] and state["hosts"][1]["ev"]["DENIED"] == 0)
        view.ask("capture", port="h1:0", on=False)
        with pytest.raises(CommandError, match="a workload runs; stop it first"):
            view.ask("start", workload="ring_all_reduce")


def test_a_workload_started_after_allow_uses_all_evs() -> None:
    """Its queue pairs are made by hosts that had EVs denied until their last workload had ended."""
    with simulating(speed=0) as view:
        view.ask("start", workload="ring_all_reduce", params={"size_bytes": 65536})
        view.until(lambda state: state["job"] and state["job"]["iterations"] > 0)
        view.ask("fail", target="h2:1")
        view.ask("deny", elements=["h2:1"])
        view.ask("stop")
        view.until(lambda state: state["job"] and not state["job"]["running"])
        view.until(lambda state: sum(host["denied_evs"] > 0 for host in state["hosts"]) >= 3)
        view.ask("allow")
        view.ask("restore", target="h2:1")
        view.until(lambda state: not any(host["denied_evs"] for host in state["hosts"]))
        before = link(view, view.until(lambda state: True), "h2:1")["down_bytes"]
        assert isinstance(before, int)
        view.ask("start", workload="ring_all_reduce", params={"size_bytes": 65536})
        state = view.until(lambda state: link(view, state, "h2:1")["down_bytes"] > before + 10**6)  # type: ignore[operator]
        assert all(host["ev"].get("DENIED", 0) == 0 for host in state["hosts"])


def test_a_workload_that_the_denylist_refuses_is_told_and_the_view_goes_on() -> None:
    with simulating(speed=0) as view:
        view.ask("deny", elements=["h0:0", "h0:1"])
        view.ask("start", workload="ring_all_reduce", params={"size_bytes": 65536, "iterations": 2})
        view.until(lambda state: any("no EV is left" in text for text in texts(view)))
        view.ask("allow")
        view.ask("start", workload="ring_all_reduce", params={"size_bytes": 65536, "iterations": 2})
        state = view.until(lambda state: state["job"] and not state["job"]["running"])
        assert state["job"]["verdict"] == "passed"  # type: ignore[index]


def test_the_verdict_is_shown_although_hosts_are_not_sampled_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The budget of samples may let the hosts' next one wait; the last one has the job, which ran."""
    judged = View._judged

    def without_further_samples(self: View, verdict: Verdict) -> None:
        assert self.sampler is not None
        assert self.sampler._jobs
        monkeypatch.setattr(Sampler, "_sample_hosts", lambda self: None)
        judged(self, verdict)

    monkeypatch.setattr(View, "_judged", without_further_samples)
    with simulating(speed=0) as view:
        view.ask("run", name="short")
        state = view.until(lambda state: state["job"] and not state["job"]["running"])
        assert state["job"]["verdict"] == "passed"  # type: ignore[index]


def test_an_experiment_is_run_and_replayed(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its schedule is on the time axis; the folder that it leaves is what a replay shows."""
    monkeypatch.chdir(tmp_path)
    with simulating(speed=0) as view:
        view.until(lambda state: True)
        view.ask("run", name="short")
        state = view.until(lambda state: state["job"] and not state["job"]["running"])
        assert state["job"] is not None
        assert state["job"]["name"] == "short"
        assert [each["breaks"] for each in state["job"]["schedule"]][:1] == [True]
        assert view.hub.layout is not None
        assert view.hub.layout["lab"] == SHORT.lab
        assert state["job"]["verdict"] == "passed"
        view.until(lambda state: any("results:" in text for text in texts(view)))
    (folder,) = (tmp_path / "results").iterdir()
    hub = Hub()
    replay = Replay(hub, Recorded(folder), 1.0)
    with watching(hub, replay.go) as again:
        again.ask("pause")
        happening = replay.result.happenings[0]
        at = (happening.done_ns - replay.began_ns) / 1e9
        again.ask("seek", seconds=at - 0.05)
        state = again.until(lambda state: state["phase"] == "paused" and abs(state["t_ns"] / 1e9 - at + 0.05) < 1e-6)
        assert not state["broken"]
        assert state["goodput_bps"] > 0
        again.ask("seek", seconds=at + 0.1)
        state = again.until(lambda state: state["t_ns"] / 1e9 > at + 0.09)
        assert [each["text"] for each in state["broken"]] == [happening.action.describe()]
        assert link(again, state, happening.action.target)["impaired"]
        assert happening.action.describe() in texts(again)
        whole = hub.whole
        assert whole is not None
        assert max(row[1] for row in whole) > 0
        again.ask("seek", seconds=1e5)
        state = again.until(lambda state: state["phase"] == "ended")
        assert state["t_ns"] == replay.length_ns
        assert state["job"] is not None
        assert state["job"]["verdict"] == "passed"
        with pytest.raises(CommandError, match="this is a recorded run"):
            again.ask("fail", target=LINK)
