"""The mrclab command: bad input in one clear line with the right exit code; interruptions leave nothing behind."""

from __future__ import annotations

import os
import pathlib
import random
import signal
import subprocess
import sys
import time

import pytest

from mrclab.lab.hosts.hostclient import HostClient
from mrclab.lab.processes.process import wait_dead
from mrclab.lab.records.rundir import RunDir
from support.lab.labs import lab_file
from support.mrclab import within
from support.namespaces import interfaces, left_behind

COMMAND = [sys.executable, "-c", "from mrclab.cli.app import main; main()"]
#: Fast to bring up: the interruptions are what is tested.
SMALL = {"planes": 2, "t0_per_plane": 1, "t1_per_plane": 0, "hosts": 2, "ev": {"size": 8, "active": 4}}


@pytest.fixture
def environment(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    monkeypatch.setenv("MRCLAB_RUN", str(tmp_path / "run"))
    return {**os.environ, "COLUMNS": "200"}


def mrclab(environment: dict[str, str], *words: str, timeout: float = 120) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *words], env=environment, capture_output=True, text=True, timeout=timeout, stdin=subprocess.DEVNULL
    )


def here(environment: dict[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    return within(*words, COLUMNS="200", MRCLAB_RUN=environment["MRCLAB_RUN"])


def small_lab(folder: pathlib.Path) -> str:
    return lab_file(folder, "tiny", **SMALL)


BAD = [
    (["up", "nowhere"], 2, "no lab of that name"),
    (["run", "nothing"], 2, "no experiment of that name"),
    (["run", "ring_all_reduce", "--lab", "tiny", "--clock", "slow"], 2, "clock is real or virtual"),
    (["run", "ring_all_reduce", "--lab", "tiny", "--clock", "virtual", "--set", "size_bytes=10"], 2, "multiple of 4"),
    (["run", "ring_all_reduce", "--lab", "tiny", "--clock", "virtual", "--set", "sizes=10"], 2, "no parameter 'sizes'"),
    (["run", "ring_all_reduce", "--lab", "tiny", "--clock", "virtual", "--set", "size_bytes"], 2, "name=value"),
    (["down"], 2, "no lab is up"),
    (["down", "ghost"], 2, "no lab 'ghost' is up"),
    (["fail", "h0:0"], 2, "no lab is up"),
    (["exec", "h0", "true"], 2, "no lab is up"),
    (["up", "--transport", "tcp"], 2, "mrc or roce"),
    (["unknown-verb"], 2, "No such command"),
]


@pytest.mark.parametrize(
    ("words", "code", "hint"), BAD, ids=lambda value: " ".join(value) if isinstance(value, list) else None
)
def test_bad_input(words: list[str], code: int, hint: str, environment: dict[str, str]) -> None:
    done = here(environment, *words)
    assert done.returncode == code, done.stderr
    assert hint in done.stderr
    assert "Traceback" not in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1, done.stderr


@pytest.mark.parametrize(
    ("changes", "hint"),
    [
        ({"links": {"host": {"rate": 0}}}, "links.host.rate"),
        ({"hosts": 5000}, "hosts"),
        ({"planet": 3}, "planet"),
    ],
)
def test_bad_lab_files(
    changes: dict[str, object], hint: str, environment: dict[str, str], tmp_path: pathlib.Path
) -> None:
    done = here(environment, "topo", "validate", lab_file(tmp_path, "tiny", **changes))
    assert done.returncode == 2
    assert hint in done.stderr
    assert "Traceback" not in done.stderr


def test_a_bad_experiment_names_file_and_key(environment: dict[str, str], tmp_path: pathlib.Path) -> None:
    path = tmp_path / "e.yaml"
    step = "{at: 1, fail: 'h9:0', evidence: {dropped: 1}}"
    path.write_text(f"name: x\ntitle: y\nlab: tiny\nworkload: {{name: write_bw}}\nschedule:\n  - {step}\n")
    done = here(environment, "run", str(path))
    assert done.returncode == 2
    assert "h9:0" in done.stderr
    path.write_text("name: x\ntitle: y\nworkload: {name: write_bw, speed: 3}\n")
    done = here(environment, "run", str(path))
    assert done.returncode == 2
    assert f"{path}:3: workload.speed: unknown key" in done.stderr


@pytest.mark.lab
@pytest.mark.slow
def test_interruptions_leave_nothing_behind(environment: dict[str, str], tmp_path: pathlib.Path, seed: int) -> None:
    """SIGINT and SIGKILL at random moments of `up` and `run`; `cleanup` or the next `up` takes all away.

    MRCLAB_INTERRUPTIONS sets how often (the soak test of CONTRIBUTING.md asks for 50).
    """
    rng = random.Random(seed)
    before = interfaces()
    lab = small_lab(tmp_path)
    for attempt in range(int(os.environ.get("MRCLAB_INTERRUPTIONS", "4"))):
        number = (signal.SIGINT, signal.SIGKILL)[attempt % 2]
        words = ["up", lab] if attempt % 3 else ["run", "write_bw", "--lab", lab, "--clock", "real", "--duration", "5"]
        process = subprocess.Popen(
            [*COMMAND, *words], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=tmp_path
        )
        time.sleep(rng.uniform(0.2, 5.0))
        process.send_signal(number)
        process.wait(60)
        if attempt % 4 == 3:
            again = mrclab(environment, "up", lab)
            if "in use" in again.stderr:
                assert mrclab(environment, "down", "tiny").returncode == 0
            else:
                assert again.returncode == 0, again.stderr
                assert mrclab(environment, "down").returncode == 0
        else:
            # A killed `mrclab up` leaves a lab that comes up by itself: that is not an orphan, `down` ends it.
            mrclab(environment, "down", "tiny")
            assert mrclab(environment, "cleanup").returncode == 0
        assert left_behind(before, tmp_path) == [], (attempt, words[0], number)
        assert not RunDir("tiny").exists()


@pytest.mark.lab
@pytest.mark.slow
def test_killed_parts_end_in_a_verdict_that_names_them(environment: dict[str, str], tmp_path: pathlib.Path) -> None:
    before = interfaces()
    lab = small_lab(tmp_path)
    assert mrclab(environment, "up", lab).returncode == 0
    try:
        again = mrclab(environment, "up", lab)
        assert again.returncode == 2
        assert "lab 'tiny' is in use" in again.stderr
        other = mrclab(environment, "run", "write_bw", "--seed", "5")
        assert other.returncode == 2
        assert "lab 'tiny' is up with seed 1, not 5; `mrclab down tiny` first" in other.stderr
        process = subprocess.Popen(
            [*COMMAND, "run", "write_bw", "--duration", "60", "--json", "-o", str(tmp_path / "result")],
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
        )
        client = HostClient("h1", RunDir("tiny").socket("h1"))
        deadline = time.monotonic() + 60
        while not client.request("summary")["received"] and time.monotonic() < deadline:
            time.sleep(0.1)
        client.close()
        agent = next(each for each in RunDir("tiny").processes() if each.role == "h1")
        agent.signal(signal.SIGKILL)
        output, _ = process.communicate(timeout=300)
        assert process.returncode == 1
        assert "host h1: its agent is gone" in output
        assert "retry counter exceeded" in output
        status = mrclab(environment, "status")
        assert "1 of 2 agents alive" in status.stdout
        # The daemon itself: everything it holds goes with it, and clean-up takes the rest.
        daemon = next(each for each in RunDir("tiny").processes() if each.role == "labd")
        daemon.signal(signal.SIGKILL)
        first = RunDir("tiny").read().first
        assert first is not None
        assert wait_dead(first, 60)
        assert "has died" in mrclab(environment, "status").stderr
        assert mrclab(environment, "cleanup").returncode == 0
    finally:
        mrclab(environment, "down", "tiny")
    assert left_behind(before, tmp_path) == []
