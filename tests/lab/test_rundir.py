"""Run directories: what is recorded can be taken away, nobody else's processes are touched, nobody else gets in."""

from __future__ import annotations

import json
import os
import pathlib
import signal
import subprocess
import sys

import pytest

from mrclab.lab import lifecycle
from mrclab.lab.processes.process import Process
from mrclab.lab.records import rundir
from mrclab.lab.records.record import LabFolder, LabRecord, LabState, last_line, read_untrusted
from mrclab.lab.records.rundir import RunDir, RunError, all_runs, base, locked

COMMAND = [sys.executable, "-c", "from mrclab.cli.app import main; main()"]


@pytest.fixture(autouse=True)
def folder(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    monkeypatch.setenv("MRCLAB_RUN", str(tmp_path / "run"))
    return tmp_path / "run"


def sleeper(*, stubborn: bool = False) -> subprocess.Popen[bytes]:
    code = "import signal, time; print(1, flush=True)\n"
    if stubborn:
        code = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(1, flush=True)\n"
    process = subprocess.Popen([sys.executable, "-c", code + "time.sleep(60)"], stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    return process


def made(name: str, **fields: object) -> RunDir:
    run = RunDir(name)
    run.create()
    run.write(LabState(name, **fields))  # type: ignore[arg-type]
    return run


def test_state_survives_a_round_trip_and_names_are_checked() -> None:
    run = made("one", lab_file="x.yaml", first=Process("lab", 1, 2))
    with run.change() as state:
        state.denied = ["h0:0"]
    assert run.read() == LabState("one", "x.yaml", first=Process("lab", 1, 2), denied=["h0:0"])
    for path in (run.path, run.folder.path, base()):
        assert (path.stat().st_mode & 0o777) == 0o700
    with pytest.raises(RunError, match="in use"):
        RunDir("one").create()
    with pytest.raises(RunError, match="not a lab name"):
        RunDir("../etc")
    with pytest.raises(RunError, match="no lab 'two' is up; up: one"):
        RunDir("two").read()


def test_what_the_lab_says_of_itself_is_part_of_its_state() -> None:
    run = made("one")
    run.folder.write(LabRecord("up", "", {"labd": 2, "h0": 7}, fabric={"p0-t0.0": [3]}, hosts={"h0": 5}))
    state = run.read()
    assert (state.record.phase, state.record.roles) == ("up", {"labd": 2, "h0": 7})
    assert run.folder.fabric(state.record) == {f"unix:{run.path}/lab/p0-t0.0.sock": [3]}
    assert state.record.hosts == {"h0": 5}
    # It stays the lab's own: commands do not write it.
    run.write(state)
    assert "p0-t0.0" not in run.state_file.read_text()


def test_a_lab_of_another_version_is_left_alone_and_can_be_ended() -> None:
    process = sleeper()
    first = Process.of("lab", process.pid)
    run = made("one", first=first)
    old = {"name": "one", "broken": {}, "first": {"role": "lab", "pid": first.pid, "started": first.started}}
    run.state_file.write_text(json.dumps(old))
    with pytest.raises(RunError, match=r"another version of mrclab .* format 1, .* reads 2.*`mrclab down one`"):
        run.read()
    assert not run.is_dead()
    heard: list[str] = []
    assert lifecycle.cleanup(heard.append) == {}
    assert len(heard) == 1
    assert "left alone" in heard[0]
    assert rundir.down("one") == [f"lab (pid {process.pid})"]
    assert process.wait(60) == -signal.SIGTERM


@pytest.mark.parametrize(
    "text",
    ['{"roles": {"../../etc/x": 1}}', '{"fabric": {"/dev/zero": [1]}}', '{"hosts": {"h0": "all"}}', '{"owner": 0}',
     "[]", '{"hosts": []}', "{"],
)  # fmt: skip
def test_a_lab_cannot_tell_commands_outside_where_to_go(text: str) -> None:
    run = made("one")
    run.folder.record_file.write_text(text)
    with pytest.raises(RunError, match="cleanup"):
        run.read()


def test_files_of_a_lab_are_read_as_a_strangers(tmp_path: pathlib.Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("root's\n")
    link, pipe = tmp_path / "h0.log", tmp_path / "h1.log"
    link.symlink_to(secret)
    os.mkfifo(pipe)
    for path in (link, pipe, tmp_path / "none", pathlib.Path("/dev/zero"), tmp_path):
        with pytest.raises(OSError):
            read_untrusted(path)
        assert last_line(path) == ""
    plain = tmp_path / "h2.log"
    plain.write_bytes(b"x" * 100 + b"\nbad \x1b[31mnews\n\n")
    assert last_line(plain) == "bad [31mnews"
    assert read_untrusted(plain, 3) == b"s\n\n"


@pytest.mark.parametrize("stubborn", [False, True])
def test_removal_ends_the_first_process(stubborn: bool) -> None:
    process = sleeper(stubborn=stubborn)
    run = made("one", first=Process.of("sleeper", process.pid))
    assert run.remove(grace_s=0.3) == [f"sleeper (pid {process.pid})"]
    assert process.wait(60) in (-signal.SIGTERM, -signal.SIGKILL)
    assert not run.exists()


def test_a_recycled_pid_is_left_alone() -> None:
    process = sleeper()
    try:
        record = Process.of("sleeper", process.pid)
        run = made("one", first=Process("sleeper", record.pid, record.started - 100))
        assert run.remove() == []
        assert process.poll() is None
    finally:
        process.kill()
        process.wait()


def test_cleanup_removes_only_what_nobody_holds() -> None:
    dead = sleeper()
    dead_record = Process.of("lab", dead.pid)
    dead.kill()
    dead.wait()
    made("alive", first=Process.of("lab", os.getpid()))
    made("dead", first=dead_record)
    made("never")
    RunDir("broken").create()
    RunDir("broken").state_file.write_text("{")
    starting = made("starting")
    heard: list[str] = []
    with locked(starting.path / "starting"):
        assert sorted(lifecycle.cleanup(heard.append)) == ["broken", "dead", "never"]
    assert [run.name for run in all_runs()] == ["alive", "starting"]
    assert heard == ["lab alive: is up; `mrclab down alive` ends it", "lab starting: is being started; left alone"]


def test_cleanup_waits_for_a_lab_that_is_ending_and_says_so() -> None:
    process = sleeper(stubborn=True)
    made("slow", first=Process.of("lab", process.pid)).ending_file.touch()
    cleanup = subprocess.Popen([*COMMAND, "cleanup"], stdout=subprocess.PIPE, text=True)
    assert cleanup.stdout is not None
    try:
        assert cleanup.stdout.readline() == "lab slow: is ending; waiting for it\n"
        with pytest.raises(subprocess.TimeoutExpired):
            cleanup.wait(0.5)
    finally:
        process.kill()
        process.wait()
    assert cleanup.communicate(timeout=300)[0] == "lab slow: removed\n"
    assert cleanup.returncode == 0
    assert not RunDir("slow").exists()


# -- who may be in the way -------------------------------------------------------------------------------------


def refused(*words: str) -> str:
    done = subprocess.run([*COMMAND, *words], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 2, done.stdout + done.stderr
    assert len(done.stderr.strip().splitlines()) == 1, done.stderr
    return done.stderr


@pytest.mark.parametrize("words", [["list", "running"], ["status", "tiny"], ["cleanup"], ["exec", "h0", "true"]])
def test_a_run_directory_that_is_a_link_is_refused(words: list[str], folder: pathlib.Path) -> None:
    elsewhere = folder.with_name("elsewhere")
    elsewhere.mkdir(mode=0o700)
    folder.symlink_to(elsewhere)
    assert "is a link" in refused(*words)


def test_a_lab_that_is_a_link_is_refused(folder: pathlib.Path) -> None:
    folder.mkdir(mode=0o700)
    (folder.parent / "elsewhere").mkdir(mode=0o700)
    (folder / "tiny").symlink_to(folder.parent / "elsewhere")
    assert "is a link" in refused("status", "tiny")
    assert all_runs() == []


def test_a_run_directory_open_to_others_is_refused(folder: pathlib.Path) -> None:
    folder.mkdir(mode=0o700)
    folder.chmod(0o750)
    assert f"open to others; `chmod 700 {folder}`" in refused("list", "running")


def test_a_run_directory_where_others_can_rename_it_is_refused(
    folder: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = folder.with_name("shared")
    shared.mkdir()
    shared.chmod(0o777)
    monkeypatch.setenv("MRCLAB_RUN", str(shared / "run"))
    assert f"others can write to {shared}" in refused("list", "running")
    shared.chmod(0o1777)
    assert all_runs() == []


@pytest.mark.root
def test_a_run_directory_of_somebody_else_is_refused(folder: pathlib.Path) -> None:
    folder.mkdir(mode=0o700)
    os.chown(folder, 65534, 65534)
    assert "belongs to user 65534" in refused("list", "running")
    os.chown(folder.parent, 65534, 65534)
    assert "belongs to user 65534" in refused("list", "running")


def test_a_path_too_long_for_sockets_is_refused(folder: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MRCLAB_RUN", str(folder / ("x" * 100)))
    with pytest.raises(RunError, match="set MRCLAB_RUN to a shorter one"):
        RunDir("tiny").check_socket("fabric")


def test_addresses_are_quoted(tmp_path: pathlib.Path) -> None:
    assert LabFolder(tmp_path / "a b%").address("fabric") == f"unix:{tmp_path}/a%20b%25/fabric.sock"


@pytest.mark.lab
def test_root_by_whatever_number_may_own_what_is_above(folder: pathlib.Path) -> None:
    """Also in a user namespace, where the machine's root has the number of nobody; a link of root's is followed."""
    shown = [
        "sh",
        "-c",
        'MRCLAB_RUN=/run/mrclab-test/run; export MRCLAB_RUN; exec "$@"',
        "sh",
        *COMMAND,
        "list",
        "running",
    ]
    inside = [sys.executable, "-P", "-m", "mrclab.lab.processes.launch", "--run"]
    for command in (shown, [*inside, *shown]):
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
        assert (done.returncode, done.stdout) == (0, "no lab is up\n"), done.stderr
    linked = pathlib.Path("/var/run")
    if linked.is_symlink():
        environment = {**os.environ, "MRCLAB_RUN": str(linked / "mrclab-test" / "run")}
        done = subprocess.run(
            [*COMMAND, "list", "running"], env=environment, capture_output=True, text=True, check=False
        )
        assert (done.returncode, done.stdout) == (0, "no lab is up\n"), done.stderr
