"""The history of a run: events of all hosts in the order of time, with the peers and paths that records lack."""

from __future__ import annotations

import json
import pathlib
import sys
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mrc_host.answers import MrcHostStatistics
from mrc_topo import addressing
from mrc_topo.labfile import load_lab, parse_lab
from mrc_topo.paths import Paths
from mrc_topo.topology import Topology
from mrclab.cli import app as cli
from mrclab.lab.faults.action import Action
from mrclab.lab.processes.process import ProcessExit
from mrclab.results import history
from mrclab.results.history import What
from mrclab.results.reading import completed
from mrclab.results.record import LabEvent, RunResult
from mrclab.results.recording import StoredRecording
from support.lab.results import plain

Run = Callable[..., tuple[int, str, str]]

TOPOLOGY = load_lab("tiny")
PATH = Paths(TOPOLOGY).path(0, 2, 1, 1)
EV = Paths(TOPOLOGY).ev_of_path(PATH)
START = 5_000_000_000


def ev_row(t_ms: int, qpn: int, old: str, new: str) -> dict[str, Any]:
    row = {"t_ns": START + t_ms * 10**6, "kind": "ev", "qpn": qpn, "ev": EV, "plane": 1}
    return {**row, "old": old, "new": new, "cause": f"cause {t_ms}", "losses": 1}


def made(topology: Topology = TOPOLOGY) -> RunResult:
    """Return a run of which h0's queue pair 1 was there at the end, and 2 had ended."""
    address = addressing.text(topology.host("h2").address)
    statistics = completed(MrcHostStatistics, {"qps": [{"qpn": 1, "peer": address}]})
    document = {"lab": topology.lab.name, "clock": "virtual", "seed": 1, "workload": "x", "params": {}}
    document |= {
        "ranks": ["h0", "h2"],
        "statistics": {"h0": statistics},
        "topology": topology.lab.model_dump(mode="json"),
    }
    result = RunResult.parse({**document, "started_ns": START, "finished_ns": START + 10**9})
    fail = Action("fail", "p1-t1.1", "switch_off")
    result.happenings = [LabEvent(START, START + 10_000_000, fail, 0.0, localised=["p1-t1.1"])]
    result.failures = ["h2 did not end"]
    result.deaths = [ProcessExit("h2", "was killed", START + 70_000_000, 0.0)]
    qp = {"t_ns": START, "kind": "qp", "qpn": 2, "peer": "h2", "old": "RTR", "new": "RTS", "reason": None}
    port = {"t_ns": START + 40_000_000, "kind": "port", "port": 1, "up": False, "peer": None}
    heard = {**port, "t_ns": START + 45_000_000, "peer": topology.host("h0").address.hex()}
    logged = {
        "h0": [qp, ev_row(30, 1, "GOOD", "ASSUMED_BAD"), port, ev_row(60, 2, "ASSUMED_BAD", "GOOD")],
        "h2": [ev_row(20, 9, "GOOD", "DENIED"), heard],
    }
    result.recording = StoredRecording.of({}, [], logged)
    return result


@pytest.fixture
def folder(tmp_path: pathlib.Path) -> pathlib.Path:
    """Return a folder with the run's results, in format 1, which has one file."""
    document = {**plain(made()), "samples": {}, "fabric": []}
    document.pop("format")
    (tmp_path / "result.json").write_text(json.dumps(document), encoding="utf-8")
    return tmp_path


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Types `mrclab events` with these words: exit code, output, errors."""

    def go(*words: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["mrclab", "events", *map(str, words)])
        with pytest.raises(SystemExit) as caught:
            cli.main()
        told = capsys.readouterr()
        return int(caught.value.code or 0), told.out, told.err

    return go


def test_events_of_all_hosts_and_of_the_lab_are_in_the_order_of_time() -> None:
    found = history.history(made(), TOPOLOGY)
    assert [(round(each.t_ms), each.what) for each in found] == [
        (0, What.FAIL),
        (0, What.QP),
        (20, What.EV),
        (30, What.EV),
        (30, What.DETECTED),
        (40, What.PORT),
        (45, What.PORT),
        (60, What.EV),
        (70, What.DEATH),
        (1000, What.PROBLEM),
    ]
    ports = [(each.host, each.peer, each.text) for each in found if each.what is What.PORT]
    assert ports == [("h0", "", "h0:1 is down"), ("h2", "h0", "h0:1 is down")]
    assert [each.host for each in found if each.what is What.DEATH] == ["h2"]


def test_a_failure_stands_before_what_it_did_while_it_was_made() -> None:
    """On the real clock an action takes a while: EVs were lost between its beginning and its end."""
    run = made()
    fail = run.happenings[0].action
    run.happenings = [LabEvent(START + 25_000_000, START + 35_000_000, fail, 0.0)]
    rows = [(each.what, round(each.t_ms), each.done_ms) for each in history.history(run, TOPOLOGY)]
    assert rows[1:4] == [(What.EV, 20, None), (What.FAIL, 25, 35.0), (What.EV, 30, None)]
    run.happenings = [LabEvent(START + 25_000_000, START + 25_000_000, fail, 0.0)]
    assert next(each for each in history.history(run, TOPOLOGY) if each.what is What.FAIL).done_ms is None


def test_an_ev_has_peer_path_and_cause_even_of_a_queue_pair_that_ended() -> None:
    of_unknown, of_first, of_ended = (each for each in history.history(made(), TOPOLOGY) if each.what is What.EV)
    for each, cause in ((of_first, "cause 30"), (of_ended, "cause 60")):
        assert (each.host, each.peer, each.plane, each.cause) == ("h0", "h2", 1, cause)
        assert each.path is not None
        assert each.path.switches == PATH.switches
        assert each.path.usids == tuple(f"{usid:04x}" for usid in PATH.usids)
    assert (of_unknown.peer, of_unknown.path) == ("", None)


def test_an_ev_has_no_path_where_switches_choose() -> None:
    lab = TOPOLOGY.lab.model_dump(mode="json", exclude_defaults=True) | {"routing": {"mode": "spray"}}
    sprayed = parse_lab(json.dumps(lab), "sprayed")
    changes = list(history.ev_changes(made(sprayed), made(sprayed).events, sprayed))
    assert [(each.peer, each.path) for each in changes] == [("", None), ("h2", None), ("h2", None)]


def test_verb_prints_a_line_for_each_event(folder: pathlib.Path, run: Run) -> None:
    code, out, told = run(folder)
    assert told == ""
    head, *lines = out.splitlines()
    assert code == 0
    assert head.split() == ["ms", "what", "host", "peer", "plane", "path", "event", "cause"]
    assert len(lines) == 10
    assert "switch off p1-t1.1, done at 10.0" in lines[0]
    assert lines[3].split("  ")[-1].strip() == "cause 30"
    assert all(word in lines[3] for word in ("30.0", "h0", "h2", " ".join(PATH.switches), "GOOD -> ASSUMED_BAD"))


def test_verb_leaves_the_events_of_one_host_and_of_the_lab(folder: pathlib.Path, run: Run) -> None:
    _, out, _ = run(folder / "result.json", "--host", "h2", "--json")
    rows = json.loads(out)
    assert [(row["what"], row["host"]) for row in rows] == [
        ("fail", ""),
        ("ev", "h2"),
        ("detected", "h0"),
        ("port", "h2"),
        ("death", "h2"),
        ("problem", ""),
    ]


def test_what_is_no_run_is_refused_with_a_remedy(folder: pathlib.Path, run: Run) -> None:
    code, _, told = run(folder / "nothing")
    assert code == 2
    assert "nothing: no recorded run: it has no result.json; `mrclab run NAME -o FOLDER` records one" in told
    code, _, told = run(folder, "--host", "h9")
    assert code == 2
    assert "--host: there is no 'h9' in this run; hosts: h0, h1, h2, h3" in told


NOTICES = st.lists(
    st.tuples(
        st.integers(0, 1000),
        st.sampled_from(["h0", "h2"]),
        st.sampled_from([("GOOD", "ASSUMED_BAD"), ("GOOD", "SKIP"), ("GOOD", "DENIED"), ("ASSUMED_BAD", "GOOD")]),
    ),
    max_size=12,
)


@given(NOTICES, st.integers(0, 400), st.integers(1, 500))
def test_a_failure_is_detected_when_a_host_first_noticed_it(
    logged: list[tuple[int, str, tuple[str, str]]], at_ms: int, lasts_ms: int
) -> None:
    """Injected <= detected < the next action, and at the time of a host's own event."""
    run = made()
    fail = run.happenings[0].action
    begin, end = (START + ms * 1_000_000 for ms in (at_ms, at_ms + lasts_ms))
    restore = Action("restore", fail.target, "")
    run.happenings = [LabEvent(begin, begin + 1, fail, 0.0), LabEvent(end, end + 5 * 10**8, restore, 0.0)]
    rows = {host: [ev_row(ms, 1, *change) for ms, of, change in sorted(logged) if of == host] for host in ("h0", "h2")}
    run.recording = StoredRecording.of({}, [], rows)
    found = [each for each in history.history(run, TOPOLOGY) if each.what is What.DETECTED]
    wanted = [(ms, host) for ms, host, (_, new) in logged if new == "ASSUMED_BAD" and at_ms <= ms < at_ms + lasts_ms]
    assert [(round(each.t_ms), each.host) for each in found] == ([min(wanted)] if wanted else [])
