"""How long a lab waits for a process that comes up slowly, and for one that never will."""

from __future__ import annotations

import itertools
import os
import pathlib
import shutil
import subprocess
from types import SimpleNamespace
from typing import Any

import pytest

from mrclab.lab import daemon
from mrclab.lab.daemon import Daemon, first_line
from mrclab.lab.processes import process
from mrclab.lab.processes.process import Process, ProgressTimeout, StoppedProcess
from mrclab.lab.records import rundir
from mrclab.lab.records.record import LabFolder, LabRecord
from mrclab.lab.records.rundir import LabDied, RunError
from mrclab.lab.switches import bmv2
from mrclab.lab.switches.bmv2 import Bmv2Switches, ThriftError

PERIOD_S = 0.1


class Work:
    """How much of a core everybody wants, and what happens after it was looked at so often."""

    def __init__(self, share: float = 0.5) -> None:
        self.share = share
        self.asked: list[int] = []
        self.after: tuple[int, Any] = (0, None)

    def wanted_s(self, pid: int) -> float:
        self.asked.append(pid)
        if len(self.asked) == self.after[0]:
            self.after[1]()
        return self.share * PERIOD_S * len(self.asked)


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> Work:
    made = Work()
    monkeypatch.setattr(process, "wanted_s", made.wanted_s)
    for module, name in ((rundir, "UP_S"), (daemon, "READY_S"), (bmv2, "READY_S")):
        monkeypatch.setattr(module, name, PERIOD_S)
    return made


class Slow:
    """A run directory whose lab is not up."""

    def __init__(self, *, frozen: bool = False) -> None:
        self.name = "slow"
        self.folder = LabFolder(pathlib.Path("/nowhere"))
        self.roles: dict[str, int] = {}
        self.stopped = frozen
        self.ended = False
        self.phase = "starting"

    def read(self) -> Any:
        return SimpleNamespace(
            first=Process.of("lab", os.getpid()),
            record=LabRecord(self.phase, roles=self.roles),
            ending=False,
            machines={},
        )

    def is_dead(self) -> bool:
        return False

    def exists(self) -> bool:
        return True

    def end(self) -> None:
        self.ended = True

    def processes(self) -> list[Process]:
        return []

    def frozen(self) -> list[StoppedProcess]:
        return [StoppedProcess("h1", None)] if self.stopped else []


def test_a_lab_that_works_is_waited_for(work: Work) -> None:
    run = Slow()
    work.after = (5, lambda: setattr(run, "phase", "up"))
    rundir.await_up(run, lambda text: None)  # type: ignore[arg-type]
    assert work.asked == [os.getpid()] * 5


@pytest.mark.parametrize(("share", "frozen", "asked"), [(0.1, False, 1), (0.5, True, 0), (0.5, False, 8)])
def test_a_lab_that_hangs_or_never_ends_its_work_is_not(work: Work, share: float, frozen: bool, asked: int) -> None:
    work.share = share
    run = Slow(frozen=frozen)
    with pytest.raises(LabDied, match=r"did not come up in \d+ s") as caught:
        rundir.await_up(run, lambda text: None)  # type: ignore[arg-type]
    assert run.ended
    assert ("h1" in str(caught.value)) is frozen
    assert len(work.asked) == asked
    assert asked < ProgressTimeout.PERIODS or "in 1 s" in str(caught.value)


def test_what_the_processes_of_a_lab_that_hangs_have_said_is_told(work: Work, tmp_path: pathlib.Path) -> None:
    """Its folder is gone when the command ends."""
    run, work.share = Slow(), 0.1
    run.folder = LabFolder(tmp_path)
    run.roles = {"labd": 1, "a": 2, "b": 3, "c": 4, "silent": 5, "d": 6}
    for role in ("labd", "a", "b", "c", "d"):
        run.folder.log(role).write_text(f"first\nlast of {role}\x1b\n")
    with pytest.raises(LabDied, match=r" s; b: last of b; c: last of c; d: last of d$"):
        rundir.await_up(run, lambda text: None)  # type: ignore[arg-type]


@pytest.mark.parametrize(("after", "share", "asked"), [(3, 0.5, 3), (0, 0.1, 1), (0, 0.5, 8)])
def test_a_fabrics_first_word(work: Work, after: int, share: float, asked: int) -> None:
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0) as silent:
        assert silent.stdin is not None
        work.share, work.after = share, (after, lambda: silent.stdin.write(b"ready 1\n"))
        assert first_line(silent, bool) == ("ready 1\n" if after else "")
        assert work.asked == [silent.pid] * asked
        silent.stdin.close()


@pytest.mark.parametrize(("share", "asked"), [(0.1, 1), (0.5, 8)])
def test_an_agent_that_never_answers(work: Work, share: float, asked: int) -> None:
    house = SimpleNamespace(check_alive=lambda role: bool, children={"h1": SimpleNamespace(pid=77)})
    check, work.share = Daemon._check_answers(house, "h1"), share  # type: ignore[arg-type]
    with pytest.raises(RunError, match=r"host h1: its agent does not answer in \d s"):
        any(check() for _ in itertools.count())
    assert work.asked == [77] * asked


@pytest.mark.parametrize(("share", "asked"), [(0.1, 1), (0.5, 8)])
def test_a_bmv2_that_never_answers(work: Work, share: float, asked: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(address: object) -> None:
        raise ThriftError("no Thrift server")

    monkeypatch.setattr(bmv2, "SimpleSwitch", refused)
    work.share = share
    house = SimpleNamespace(check_alive=lambda role: bool, record=SimpleNamespace(roles={"p0t0": 77}))
    with pytest.raises(RunError, match="switch p0t0: no Thrift server"):
        Bmv2Switches(house, "bmv2")._await(SimpleNamespace(name="p0t0", device_id=1))  # type: ignore[arg-type]
    assert work.asked == [77] * asked


def test_a_lab_that_died_on_a_full_disk_names_the_remedy(work: Work, monkeypatch: pytest.MonkeyPatch) -> None:
    """It could not even record why."""
    run = Slow()
    run.phase = "failed"
    run.deaths, run.log_file = lambda first: [], pathlib.Path("/nowhere")  # type: ignore[attr-defined]
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=0))
    with pytest.raises(LabDied, match=r"the disk of /nowhere is full; set MRCLAB_RUN"):
        rundir.await_up(run, lambda text: None)  # type: ignore[arg-type]
