"""Whatever dies while a lab is used: the run ends with a verdict that names it, and nothing is left."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import time

import pytest

from mrc_topo.base.plain import DecodeError
from mrc_topo.labfile import load_lab
from mrclab.lab.daemon import Daemon, StartCancelled
from mrclab.lab.processes.process import LAST_WORD, WORDS, Process, ProcessExit, cause, record_daemon_exit, wait_dead
from mrclab.lab.records.record import LabFolder, LabRecord, LabState
from mrclab.lab.records.rundir import RunDir, RunError
from mrclab.lab.session.base import closing
from mrclab.lab.session.real import RealSession
from mrclab.results import resultdir
from mrclab.results.recording import Recording
from mrclab.results.verdict import judge
from mrclab.runs.execute import result_of_failed_start
from mrclab.runs.experiment import Experiment, Workload
from support.amount import only
from support.lab import users
from support.lab.labs import lab_file
from support.namespaces import interfaces, left_behind

SMALL = {"planes": 2, "t0_per_plane": 1, "t1_per_plane": 0, "hosts": 2, "ev": {"size": 8, "active": 4}}
#: What is done, and what the verdict then says.
ENDS = {
    "fabric": "the fabric's process was killed by SIGKILL",
    "labd": "the lab's daemon was killed by SIGKILL",
    "lab": "the lab died without a word: its first process was killed from outside",
    "h1": "h1 was killed by SIGKILL",
    "SIGTERM of labd": "the lab's daemon was told to end by SIGTERM",
    "mrclab down": "the lab was told to end (`mrclab down`)",
}
REMOVED = "ended and removed"
#: A run that ends later than that after its lab hangs; ten times what a busy machine needs.
HANGS_S = 120


@pytest.fixture(autouse=True)
def run_directory(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MRCLAB_RUN", str(tmp_path / "run"))


# -- what is known of a death ---------------------------------------------------------------------------------


def test_exit_status_is_described_by_signal_or_code() -> None:
    assert cause(-9) == "was killed by SIGKILL"
    assert cause(-200) == "was killed by signal 200"
    assert cause(3) == "ended by itself with exit code 3"


def test_a_death_says_when() -> None:
    death = ProcessExit("h1", "was killed by SIGKILL", 7_500_000_000, time.time())
    assert death.text(5_000_000_000).startswith("h1 was killed by SIGKILL (2.50 s after the start, at ")
    assert " after the start" not in death.text()
    assert " after the start" not in death.text(8_000_000_000)


@pytest.mark.parametrize("document", [{}, {"role": 1}, [], None, {"role": "a", "how": "b", "at_ns": "x", "at": 0}])
def test_a_record_of_deaths_is_not_trusted(document: object) -> None:
    with pytest.raises(DecodeError):
        LabRecord.parse({"deaths": [document]})


def test_words_of_a_death_can_be_printed() -> None:
    (death,) = LabRecord.parse(
        {"deaths": [dataclasses.asdict(ProcessExit("h0", "died\x1b[2J" + "x" * WORDS, 1, 2.0))]}
    ).deaths
    assert death == ProcessExit("h0", "died[2J" + "x" * (WORDS - 8), 1, 2.0)


def test_daemon_exit_is_recorded_only_when_it_was_not_requested(tmp_path: pathlib.Path) -> None:
    record_daemon_exit(tmp_path, 0)
    assert not (tmp_path / LAST_WORD).exists()
    record_daemon_exit(tmp_path / "nowhere", -9)
    record_daemon_exit(tmp_path, -9)
    word = LabFolder(tmp_path).last_word()
    assert word is not None
    assert (word.role, word.how) == ("labd", "was killed by SIGKILL")


@pytest.fixture
def recorded() -> RunDir:
    run = RunDir("tiny")
    run.create()
    run.write(LabState("tiny", first=Process.of("lab", os.getpid())))
    return run


def test_deaths_of_a_lab_that_lives(recorded: RunDir) -> None:
    first = recorded.read().first
    assert first is not None
    assert recorded.deaths(first) == []
    agent = ProcessExit.now("h1", "was killed by SIGKILL")
    recorded.folder.write(LabRecord(phase="up", deaths=[agent]))
    assert recorded.deaths(first) == [agent]
    # What dies after the lab was told to end is no news.
    recorded.ending_file.touch()
    os.utime(recorded.ending_file, (agent.at - 1, agent.at - 1))
    assert [each.how for each in recorded.deaths(first)] == ["was told to end (`mrclab down`)"]
    os.utime(recorded.ending_file, (agent.at + 1, agent.at + 1))
    assert [each.role for each in recorded.deaths(first)] == ["h1", "lab"]


def test_deaths_of_a_lab_that_is_gone(recorded: RunDir) -> None:
    child = subprocess.Popen(["sleep", "100"])
    first = Process.of("lab", child.pid)
    (other,) = recorded.deaths(first)
    assert REMOVED in other.how, "the directory is another lab's"
    recorded.write(LabState("tiny", first=first))
    child.kill()
    child.wait()
    assert "without a word" in recorded.deaths(first)[0].how
    record_daemon_exit(recorded.folder.path, -11)
    assert [(each.role, each.how) for each in recorded.deaths(first)] == [("labd", "was killed by SIGSEGV")]
    recorded.remove()
    assert REMOVED in recorded.deaths(first)[0].how


def test_a_session_on_a_lab_that_is_gone_says_of_what(recorded: RunDir, tmp_path: pathlib.Path) -> None:
    (recorded.path / "tiny.yaml").write_text(pathlib.Path(lab_file(tmp_path, "tiny", **SMALL)).read_text())
    first = recorded.read().first
    assert first is not None
    state = LabState("tiny", lab_file=str(recorded.lab_file), first=first)
    recorded.write(state)
    fabric = ProcessExit.now("fabric", "was killed by SIGKILL")
    recorded.folder.write(LabRecord(phase="ending", deaths=[fabric]))
    with pytest.raises(RunError, match=r"lab 'tiny' is ending: the fabric's process was killed by SIGKILL \(at "):
        RealSession("tiny")
    recorded.folder.write(LabRecord(phase="failed", error="no Mininet", deaths=[fabric]))
    with pytest.raises(RunError, match=r"lab 'tiny' is failed: no Mininet$"):
        RealSession("tiny")
    child = subprocess.Popen(["sleep", "100"])
    recorded.write(dataclasses.replace(state, first=Process.of("lab", child.pid)))
    child.kill()
    child.wait()
    record_daemon_exit(recorded.folder.path, -11)
    with pytest.raises(
        RunError, match=r"has died: the fabric's .* SIGKILL \(.*; the lab's daemon .* SIGSEGV \(.*; `mrclab"
    ):
        RealSession("tiny")


@pytest.mark.parametrize("row", [{"role": "../h1", "how": "", "at_ns": 1, "at": 1.0}, {"role": "h1"}, 7])
def test_a_bad_record_of_a_death_is_refused(row: object, recorded: RunDir) -> None:
    recorded.folder.record_file.write_text(json.dumps({"phase": "up", "deaths": [row]}))
    with pytest.raises(RunError, match="cleanup"):
        recorded.read()


# -- and what a run makes of it -------------------------------------------------------------------------------


def signal_process(end: str, moment_s: float) -> bool:
    """Strike after a delay from the start of the target; return whether there was something to strike."""
    role = {"SIGTERM of labd": "labd", "mrclab down": "lab"}.get(end, end)
    deadline = time.monotonic() + HANGS_S
    found = None
    while found is None and time.monotonic() < deadline:
        time.sleep(0.05)
        with contextlib.suppress(RunError, OSError):
            found = next((each for each in RunDir("tiny").processes() if each.role == role), None)
    assert found is not None, f"no process of {role}"
    time.sleep(moment_s)
    if not found.alive():
        return False
    if end == "mrclab down":
        subprocess.run([*users.MRCLAB, "down", "tiny"], capture_output=True, timeout=HANGS_S, check=False)
    else:
        found.signal(signal.SIGTERM if end.startswith("SIGTERM") else signal.SIGKILL)
    return True


def struck_run(end: str, moment_s: float, lab: str, folder: pathlib.Path) -> str:
    """Strike a run; return what its verdict says has failed."""
    output = folder / "result"
    command = [*users.MRCLAB, "run", "write_bw", "--lab", lab, "--clock", "real", "--duration", "600"]
    process = subprocess.Popen(
        [*command, "-o", str(output)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        assert signal_process(end, moment_s)
        said, _ = process.communicate(timeout=HANGS_S)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 1, said
    assert "Traceback" not in said, said
    verdict = json.loads((output / "verdict.json").read_text())
    assert not verdict["passed"]
    assert json.loads((output / "result.json").read_text())["failures"]
    assert (output / "report.html").read_text().startswith("<!doctype html>")
    for each in output.iterdir():
        each.unlink()
    failed = str(verdict["checks"][0]["measured"])
    if "did not come up" not in failed and "did not start" not in failed:
        assert any(each["how"] in failed for each in verdict["deaths"]), failed
    return failed


@pytest.mark.lab
@pytest.mark.slow
@pytest.mark.parametrize("end", only(ENDS, ("fabric", "lab", "h1", "mrclab down")))
def test_a_run_names_what_died(end: str, tmp_path: pathlib.Path, seed: int) -> None:
    """At random moments, from its start on: MRCLAB_DEATHS of each (1 if unset)."""
    rng = random.Random(f"{seed} {end}")
    before = interfaces()
    lab = lab_file(tmp_path, "tiny", **SMALL)
    for attempt in range(int(os.environ.get("MRCLAB_DEATHS", "1"))):
        moment_s = rng.uniform(0.0, 5.0)
        failed = struck_run(end, moment_s, lab, tmp_path)
        # A lab that is told to end while it starts may be gone before the run looks.
        expected = (ENDS[end], REMOVED) if end == "mrclab down" else (ENDS[end],)
        assert any(each in failed for each in expected), (attempt, moment_s, failed)
        assert not RunDir("tiny").exists(), (attempt, moment_s)
        assert left_behind(before, tmp_path) == [], (attempt, moment_s)


@pytest.mark.lab
@pytest.mark.slow
def test_a_damaged_lab_is_not_used(tmp_path: pathlib.Path) -> None:
    lab = lab_file(tmp_path, "tiny", **SMALL)
    subprocess.run([*users.MRCLAB, "up", lab], capture_output=True, timeout=HANGS_S, check=True)
    try:
        fabric = next(each for each in RunDir("tiny").processes() if each.role == "fabric")
        fabric.signal(signal.SIGKILL)
        assert wait_dead(fabric, 60)
        deadline = time.monotonic() + 60
        while not RunDir("tiny").read().record.deaths and time.monotonic() < deadline:
            time.sleep(0.05)
        command = [*users.MRCLAB, "run", "write_bw", "-o", str(tmp_path / "result")]
        done = subprocess.run(command, capture_output=True, text=True, timeout=HANGS_S, check=False)
        assert done.returncode == 2
        assert "lab 'tiny' is damaged: the fabric's process was killed by SIGKILL" in done.stderr
        assert "mrclab down tiny" in done.stderr
        # Whoever brought the lab up for a session has that session hear of what died in between.
        for fresh, roles in ((False, []), (True, ["fabric"])):
            with closing(RealSession("tiny", fresh=fresh)) as made:
                assert [death.role for death in made.deaths()] == roles
    finally:
        subprocess.run([*users.MRCLAB, "down", "tiny"], capture_output=True, timeout=HANGS_S, check=True)


def test_a_signal_ends_whoever_waits_for_it_at_any_moment(tmp_path: pathlib.Path) -> None:
    """Found by the test of deaths: a handler that sets an Event waits for ever when the main thread has its lock."""
    daemon = f"""
import pathlib, signal
from mrclab.lab import daemon as module
from mrclab.lab.records.record import LabFolder
from mrc_topo.labfile import load_lab
module.WATCH_S = 0.0
for _ in range(20):
    made = module.Daemon(LabFolder(pathlib.Path({str(tmp_path)!r})), load_lab("tiny"), "mrc", "memory")
    made.write()
    made.record_exits = bool
    made.starting = False
    signal.signal(signal.SIGALRM, lambda got, _: made.end(got))
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    made.wait()
"""
    server = """
import os, signal
from p4lite.switch import server as module
module.SIGNAL_POLL_S = 0.0
class Server:
    tls = None
    def start(self):
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        return "unix:/nowhere"
    def stop(self):
        pass
signal.SIGTERM = signal.SIGALRM
for _ in range(20):
    module.serve_until_signal(Server(), "test")
"""
    for code in (daemon, server):
        subprocess.run([sys.executable, "-c", code], timeout=HANGS_S, check=True, stdout=subprocess.DEVNULL)


def test_a_signal_ends_a_lab_that_is_starting_after_its_step(tmp_path: pathlib.Path) -> None:
    made = Daemon(LabFolder(tmp_path), load_lab("tiny"), "mrc", "memory")
    made.check_ended()
    made.end(signal.SIGTERM)
    assert made.ended
    for step in (made.check_ended, lambda: made.net.batch([], [])):
        with pytest.raises(StartCancelled):
            step()
    with pytest.raises(StartCancelled):
        made.spawn("host", ["sleep", "600"])
    made.stop()
    assert made.children["host"].returncode == -signal.SIGTERM


def test_a_run_that_never_began_has_verdict_and_report(tmp_path: pathlib.Path) -> None:
    topology = load_lab(lab_file(tmp_path, "tiny", **SMALL))
    experiment = Experiment(name="x", title="x", lab="tiny", workload=Workload(name="write_bw"))
    with Recording(tmp_path) as recording:
        result = result_of_failed_start(topology, "real", experiment.workload.spec(), "it died", recording)
        result.program_counters = {}
        judged = judge(result, topology, experiment.expect, experiment.claims())
        resultdir.write(tmp_path, result, topology, judged, "x", recording)
    verdict = json.loads((tmp_path / "verdict.json").read_text())
    assert not verdict["passed"]
    assert verdict["checks"][0]["measured"] == "it died"
    assert "it died" in (tmp_path / "report.html").read_text()


def test_the_daemon_waits_for_the_death_that_silence_announces(tmp_path: pathlib.Path) -> None:
    daemon = Daemon(LabFolder(tmp_path), load_lab(lab_file(tmp_path, "tiny", **SMALL)), "mrc", "memory")
    daemon.children["fabric"] = subprocess.Popen(["sh", "-c", "sleep 0.5; exit 3"])
    daemon.record_exits()
    assert daemon.record.deaths == []
    daemon.await_exit(HANGS_S)
    assert [(each.role, each.how) for each in daemon.record.deaths] == [("fabric", "ended by itself with exit code 3")]
    assert LabFolder(tmp_path).read().deaths == daemon.record.deaths
    daemon.record_exits()
    assert len(daemon.record.deaths) == 1
    # The next process of that role is another.
    daemon.children["fabric"] = again = subprocess.Popen(["sh", "-c", "exit 3"])
    again.wait()
    daemon.record_exits()
    assert [each.role for each in daemon.record.deaths] == ["fabric", "fabric"]
