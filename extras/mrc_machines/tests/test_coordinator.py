"""What a lab's keeper makes of machines that are silent, old, or speak nonsense: an error that names them."""

from __future__ import annotations

import json
import os
import pathlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import yaml

from mrc_machines import coordinator
from mrc_machines.clock import ClockOffset
from mrc_machines.coordinator import (
    CoordinatorOrder,
    LabCoordinator,
    MachineError,
    RemoteMachine,
    SliceReadiness,
)
from mrc_machines.sources import version
from mrc_machines.stream import GREETING, HEAD, MESSAGE
from mrclab.lab.records.record import LabRecord
from mrclab.lab.records.rundir import RunDir, RunError
from mrclab.lab.session.fidelity import ClockFidelity

WAIT_S = 120.0
NEVER: Callable[[], bool] = bool
LAB = {
    "name": "two",
    "planes": 1,
    "t0_per_plane": 2,
    "t1_per_plane": 1,
    "hosts": 2,
    "hosts_per_t0": 1,
    "machines": {
        "m1": {"ssh": "x", "address": "10.0.0.1", "hosts": ["h0"], "switches": ["p0-t0.0", "p0-t1.0"]},
        "m2": {"ssh": "y", "address": "10.0.0.2", "hosts": ["h1"], "switches": ["p0-t0.1"]},
    },
}


def speaking(folder: pathlib.Path, *messages: dict[str, Any]) -> list[str]:
    """Return a command that greets, says this, and then waits to be told to end."""
    path = folder / f"said{len(list(folder.iterdir()))}"
    frames = [HEAD.pack(MESSAGE, 0, len(text)) + text for text in (json.dumps(each).encode() for each in messages)]
    path.write_bytes(b"motd\n" + GREETING + b"".join(frames))
    return ["sh", "-c", 'cat "$0"; exec cat >/dev/null', str(path)]


@pytest.fixture
def posts() -> Iterator[Callable[[list[str]], RemoteMachine]]:
    made: list[RemoteMachine] = []

    def start(command: list[str]) -> RemoteMachine:
        made.append(RemoteMachine("m1", command))
        return made[-1]

    yield start
    for post in made:
        post.end(0.0)


def lost(post: RemoteMachine) -> str:
    deadline = time.monotonic() + WAIT_S
    while post.lost is None:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert post.lost.role == "machine.m1"
    return post.lost.text()


def test_a_silent_machine_is_lost(posts: Callable[[list[str]], RemoteMachine], tmp_path: pathlib.Path) -> None:
    post = posts(speaking(tmp_path, {"said": "progress", "text": "x"}))
    post.check()
    assert post.lost is None
    post.silence_s = 0.0
    with pytest.raises(MachineError, match="is lost: no word from it for 0 s"):
        post.answer("here", WAIT_S, NEVER)
    assert "machine m1 is lost" in lost(post)
    assert post.process.wait(WAIT_S) < 0


def test_what_leads_to_no_part_says_what_it_said(posts: Callable[[list[str]], RemoteMachine]) -> None:
    assert "it is not part of mrclab; it says: hello" in lost(posts(["echo", "hello"]))
    died = lost(posts(["sh", "-c", "echo 'no such host' >&2; exit 255"]))
    assert "`sh ...`, which leads there, ended by itself with exit code 255" in died
    assert died.count("no such host") == 1


RECORDS: list[Any] = [None, {"phase": 1, "roles": {"../x": 1}}, {"fabric": {"fabric": "x"}}, {"more": 1}]


@pytest.mark.parametrize("record", RECORDS)
def test_a_record_that_is_none_loses_the_machine(
    posts: Callable[[list[str]], RemoteMachine], tmp_path: pathlib.Path, record: Any
) -> None:
    post = posts(speaking(tmp_path, {"said": "record", "record": record, "alive": True}))
    assert "a message of it cannot be understood" in lost(post)
    assert post.record == LabRecord()


def test_a_refusal_is_the_answer(posts: Callable[[list[str]], RemoteMachine], tmp_path: pathlib.Path) -> None:
    post = posts(speaking(tmp_path, {"said": "here"}, {"said": "failed", "what": "prepare", "error": "no room"}))
    assert post.answer("here", WAIT_S, NEVER) == {"said": "here"}
    with pytest.raises(MachineError, match="no room"):
        post.answer("prepare", WAIT_S, NEVER)


def test_who_is_told_to_end_waits_no_longer(posts: Callable[[list[str]], RemoteMachine]) -> None:
    over = threading.Event()
    threading.Timer(0.1, over.set).start()
    with pytest.raises(coordinator.BringUpCancelled):
        posts(["sleep", "60"]).answer("here", WAIT_S, over.is_set)


def test_a_clock_that_differs_is_set_where_that_can_be(posts: Callable[[list[str]], RemoteMachine]) -> None:
    post = posts(["sleep", "60"])
    for _ in range(coordinator.PINGS):
        post.clock.add(ClockOffset(7_000_000_000, 400_000, 800_000))
    with pytest.raises(MachineError, match=r"its monotonic clock is \+7.000 s from ours, .*CONFIG_TIME_NS"):
        post.measure(NEVER)
    post.facts = SliceReadiness(frame_bytes=9000, time_namespaces=True)
    post.measure(NEVER)
    assert post.ahead_ns == -7_000_000_000
    assert post.document().clock == ClockFidelity(
        off_ns=0, set_ns=-7_000_000_000, uncertainty_ns=400_000, rtt_ns=800_000, set_uncertainty_ns=400_000
    )
    near = posts(["sleep", "60"])
    for _ in range(coordinator.PINGS):
        near.clock.add(ClockOffset(900_000, 400_000, 800_000))
    near.measure(NEVER)
    assert near.ahead_ns == 0


def test_time_in_which_the_keeper_did_not_run_is_no_silence(
    posts: Callable[[list[str]], RemoteMachine], tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    post = posts(speaking(tmp_path, {"said": "here"}))
    post.answer("here", WAIT_S, NEVER)
    began = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: began + 3600.0)
    post.check()
    assert post.lost is None
    for second in range(int(coordinator.SILENCE_S) + 2):
        monkeypatch.setattr(time, "monotonic", lambda second=second: began + 3600.0 + second)
        post.check()
    monkeypatch.undo()
    assert "no word from it for 60 s" in lost(post)


def test_a_crowded_machine_is_given_more_time(
    posts: Callable[[list[str]], RemoteMachine], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "getloadavg", lambda: (47.0, 40.0, 30.0))
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    assert coordinator.processes_per_core() == 23.5
    post = posts(["sleep", "60"])
    over = threading.Event()
    threading.Timer(0.6, over.set).start()
    with pytest.raises(coordinator.BringUpCancelled):
        post.answer("here", 0.1, over.is_set)
    monkeypatch.setattr(os, "getloadavg", lambda: (0.0, 0.0, 0.0))
    with pytest.raises(MachineError, match="does not answer within 0 s"):
        post.answer("here", 0.1, NEVER)


def test_a_machine_with_other_sources_is_named(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = refused(tmp_path, monkeypatch, {"said": "here", "version": version(), "sources": "0123"})
    for name in ("m1", "m2"):
        assert f"machine {name}: there is mrclab {version()} of other sources (0123) than here (" in said


def test_every_machine_of_another_version_is_named(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = refused(tmp_path, monkeypatch, {"said": "here", "version": "0.0.1"})
    for name in ("m1", "m2"):
        assert f"machine {name}: there is mrclab 0.0.1, here " in said


def refused(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, here: dict[str, Any]) -> str:
    """Return what a keeper says to two machines that say this."""
    monkeypatch.setenv("MRCLAB_RUN", str(tmp_path / "run"))
    run = RunDir("two")
    run.create()
    run.lab_file.write_text(yaml.safe_dump(LAB))
    monkeypatch.setattr(coordinator, "END_S", 0.5)
    made = LabCoordinator(run, CoordinatorOrder({name: speaking(tmp_path, here) for name in ("m1", "m2")}, "mrc"))
    try:
        with pytest.raises(RunError) as caught:
            made.start()
    finally:
        made.end()
    assert all(post.process.returncode is not None for post in made.posts)
    return str(caught.value)
