"""Grades of a class: a hostile submission ends in a grade and a reason and harms nothing; nothing is done twice."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator

import psutil
import pytest

from mrc_topo.shipped import shipped
from mrc_workshop import exercise, grade, judge, learner
from mrc_workshop.exercise import Exercise, WorkshopError
from mrc_workshop.idleness import LONGEST_LOOK_S, CpuUse, IdleTime, use_of
from support.workshop import small
from support.workshop.small import POLITE

pytestmark = pytest.mark.slow

#: Files that everyone may read, and its own folder.
LOOKS_OUT = """
import errno, os
for path in ("SECRET", "/etc/passwd"):
    try:
        print(path, len(open(path).read()))
    except OSError as error:
        print(path, errno.errorcode[error.errno])
try:
    print("/tmp", os.listdir("/tmp"))
except OSError as error:
    print("/tmp", errno.errorcode[error.errno])
print("own", len(os.listdir(os.path.dirname(__file__))))
"""
#: As an ordinary user, and as the user without an account whom root's checks run as.
CLOSED = ("Read-only file system", "Permission denied", "No such file")
#: Before the class: what a hostile file does when it is imported. {home}, {others}: folders outside.
AT_IMPORT: dict[str, tuple[str, str | tuple[str, ...]]] = {
    "endless-loop": ("while True: pass", "is there an endless loop"),
    "memory-bomb": ("x = [bytearray(1 << 24) for _ in range(1 << 20)]", ("emory", "which is the limit")),
    "fork-bomb": ("import os\nwhile True: os.fork()", "Operation not permitted"),
    "other-program": (
        "import subprocess\nsubprocess.run(['touch', '{home}/touched'], check=True)",
        "Operation not permitted",
    ),
    "shell": ("import os\nassert os.system('touch {home}/touched') == 0, 'no shell'", "no shell"),
    "network": ("import socket\nsocket.create_connection(('192.0.2.1', 80), 5)", ("unreachable", "Permission denied")),
    "write-home": ("open('{home}/touched', 'w')", CLOSED),
    "delete": ("import shutil\nshutil.rmtree('{home}')", CLOSED),
    "read-home": ("raise RuntimeError(open('{home}/precious').read())", CLOSED[1:]),
    "fill-disk": (
        "with open('x', 'wb') as file:\n    while True: file.write(bytes(1 << 20))",
        "No space left on device",
    ),
    "read-others": ("print(open('{others}/polite/policy.py').read())", CLOSED),
    "read-solution": ("import os\nassert os.listdir('{workshop}'), 'nothing to see'", "nothing to see"),
    "print-1-gb": ("while True: print('x' * 1000000)", "it printed more than 4 MB"),
    "large-file": ("open('x', 'wb').truncate(1 << 40)", "File too large"),
    "exit": ("import os\nos._exit(0)", "policy.py: Mine: its process ended before it had answered"),
    "kill": ("import os\nos.kill(1, 9)", "Operation not permitted"),
    "fake-verdict": (
        "import os, json\n"
        "os.makedirs('out', exist_ok=True)\n"
        "open('out/facts.json', 'w').write(json.dumps({{'runs': []}}))\n"
        "print(json.dumps({{'passed': True}}))\n"
        "os._exit(0)",
        "policy.py: Mine: its process ended before it had answered",
    ),
    "shared-memory": (
        "import ctypes, os\n"
        "libc = ctypes.CDLL(None, use_errno=True)\n"
        "assert libc.shmget(4711, 1 << 20, 0o1600) >= 0, os.strerror(ctypes.get_errno())\n"
        "raise RuntimeError('it has shared memory')",
        "Operation not permitted",
    ),
    "memory-file": (
        "import os\nos.ftruncate(os.memfd_create('x'), 1 << 20)\nraise RuntimeError('it has a file in memory')",
        "Operation not permitted",
    ),
    "read-machine": (
        "import os\nfound = [each for each in ('/var', '/home', '/srv', '/opt', '/mnt') if os.path.isdir(each)]\n"
        "seen = [name for each in found for name in os.listdir(each)]\n"
        "raise RuntimeError(f'seen: {{seen}} {{open(\"/etc/passwd\").read()}}.')",
        ("seen: [] .", "Permission denied: '/var'"),
    ),
    "patched-judge": (
        "import mrc_workshop.job as job\n"
        "from mrc_workshop.kinds import catalogue\n"
        "catalogue.judge = lambda *each: catalogue.Finding(True, 'all fine')\n"
        "raise RuntimeError('now it passes')",
        "now it passes",
    ),
}


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Exercise:
    """Return a small exercise with a congestion controller."""
    return small.make(tmp_path_factory.mktemp("exercises") / "50-policy")


@pytest.fixture(scope="module")
def grades(one: Exercise, tmp_path_factory: pytest.TempPathFactory) -> dict[str, grade.Grade]:
    """Those of a class of hostile submissions and a polite one."""
    base = tmp_path_factory.mktemp("class")
    home, others = base / "home", base / "submissions"
    home.mkdir()
    (home / "precious").write_text("mine\n")
    for name, (code, _) in AT_IMPORT.items():
        (others / name).mkdir(parents=True)
        shown = code.format(home=home, others=others, workshop=shipped("workshop"))
        (others / name / "policy.py").write_text(textwrap.dedent(shown) + POLITE)
    (others / "polite").mkdir()
    (others / "polite" / "policy.py").write_text(POLITE)
    made = {each.submission: each for each in grade.grade(others, base / "grades.csv", only=one, jobs=2)}
    assert [path.name for path in home.iterdir()] == ["precious"]
    assert (home / "precious").read_text() == "mine\n"
    assert {path.name for path in others.iterdir()} == {*AT_IMPORT, "polite"}
    assert {each.submission: each for each in grade.read(base / "grades.csv")} == made
    return made


def _can_confine() -> bool:
    probe = [sys.executable, "-P", "-m", "mrclab.lab.processes.launch", "--probe"]
    return subprocess.run(probe, capture_output=True, check=False).returncode == 0


needs_namespaces = pytest.mark.skipif(not _can_confine(), reason="this machine gives no namespaces")


@needs_namespaces
@pytest.mark.parametrize("name", AT_IMPORT)
def test_hostile_submission_has_a_grade_and_a_reason(grades: dict[str, grade.Grade], name: str) -> None:
    found = grades[name]
    assert not found.passed
    assert found.grade is not None
    assert found.grade < 1
    wanted = AT_IMPORT[name][1]
    assert any(each in found.reason for each in ((wanted,) if isinstance(wanted, str) else wanted)), found


@needs_namespaces
def test_polite_submission_is_not_hurt_by_the_others(grades: dict[str, grade.Grade]) -> None:
    found = grades["polite"]
    assert (found.passed, found.grade, found.reason, found.isolated) == (True, 1.0, "", "yes")


@needs_namespaces
def test_what_is_graded_is_not_graded_again(
    one: Exercise, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    real = judge.check

    def counted(exercise: Exercise, folder: pathlib.Path, **more: object) -> judge.Report:
        calls.append(folder.name)
        return real(exercise, folder, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(judge, "check", counted)
    place, output = tmp_path / "class", tmp_path / "grades.csv"
    for name, code in (("ann", POLITE), ("bob", "=1 +"), ("eve", None)):
        (place / name).mkdir(parents=True)
        if code is not None:
            (place / name / "policy.py").write_text(code)
    first = grade.grade(place, output, only=one)
    assert sorted(calls) == ["ann", "bob", "eve"]
    assert [each.passed for each in first] == [True, False, False]
    assert first[1].reason.startswith("policy.py:1: SyntaxError: ")
    assert "is missing" in first[2].reason
    assert grade.grade(place, output, only=one) == first
    assert len(calls) == 3
    (place / "bob" / "policy.py").write_text(POLITE)
    again = grade.grade(place, output, only=one)
    assert calls[3:] == ["bob"]
    assert [each.passed for each in again] == [True, True, False]
    output.write_text("a,b\n1,2\n")
    with pytest.raises(WorkshopError, match="is not a file of grades"):
        grade.grade(place, output, only=one)


def test_a_class_without_submissions(tmp_path: pathlib.Path) -> None:
    with pytest.raises(WorkshopError, match="no submissions; each is a sub-folder"):
        list(grade.find(tmp_path, None))
    with pytest.raises(WorkshopError, match="cannot be read"):
        list(grade.find(tmp_path / "nowhere", None))


def test_what_holds_no_exercise_has_a_grade_and_a_reason(tmp_path: pathlib.Path) -> None:
    """Nothing of these is run: files that are links or devices, folders that are links, and folders without any."""
    place, output = tmp_path / "class", tmp_path / "grades.csv"
    (tmp_path / "elsewhere" / "01-usid").mkdir(parents=True)
    (tmp_path / "elsewhere" / "01-usid" / "usid.p4").write_text("secret\n")
    (place / "empty").mkdir(parents=True)
    (place / "linked").symlink_to(tmp_path / "elsewhere")
    (place / "inside").mkdir()
    (place / "inside" / "01-usid").symlink_to(tmp_path / "elsewhere" / "01-usid")
    for name, target in (("file", tmp_path / "elsewhere" / "01-usid" / "usid.p4"), ("device", "/dev/zero")):
        (place / name / "01-usid").mkdir(parents=True)
        (place / name / "01-usid" / "usid.p4").symlink_to(target)
        (place / name / ".mrclab-exercise").symlink_to("/dev/zero")
    (place / "pipe" / "01-usid").mkdir(parents=True)
    os.mkfifo(place / "pipe" / "01-usid" / "usid.p4")
    os.mkfifo(place / "pipe" / ".mrclab-exercise")
    for _ in range(2):
        made = {each.submission: each for each in grade.grade(place, output, jobs=1)}
        assert made == {each.submission: each for each in grade.read(output)}
        assert sorted(made) == ["device", "empty", "file", "inside", "linked", "pipe"]
        assert not any(each.passed for each in made.values())
        for name, reason in (
            ("linked", "it is a link, and links are not followed"),
            ("empty", "no folder of an exercise in it"),
            ("inside", "no folder of an exercise in it"),
            ("file", "usid.p4: is not a plain file"),
            ("device", "usid.p4: is not a plain file"),
            ("pipe", "usid.p4: is not a plain file"),
        ):
            assert reason in made[name].reason, made[name]


@needs_namespaces
def test_a_container_without_namespaces_checks_all_the_same(one: Exercise, tmp_path: pathlib.Path) -> None:
    (tmp_path / "mine").mkdir()
    secret = tmp_path / "secret"
    secret.write_text("mine\n")
    (tmp_path / "mine" / "policy.py").write_text(POLITE + LOOKS_OUT.replace("SECRET", str(secret)))
    check = [
        sys.executable,
        "-P",
        "-c",
        "from mrclab.cli import app as cli; cli.main()",
        "workshop",
        "check",
        str(one.folder),
    ]
    # The owner of a user namespace may forbid those below it.
    script = 'echo 0 > /proc/sys/user/max_user_namespaces && exec "$@"'
    done = subprocess.run(
        ["unshare", "-Ur", "sh", "-c", script, "sh", *check, str(tmp_path / "mine"), "--json"],
        env={**os.environ, "MRCLAB_WORKSHOP": str(tmp_path / "progress.json")},
        capture_output=True,
        text=True,
        check=False,
    )
    report = json.loads(done.stdout)
    assert (done.returncode, report["passed"]) == (0, True), report
    assert report["isolation"] == {
        "namespaces": False, "read-only files": False, "no rights": False, "no processes": True,
        "no other files": True,
    }  # fmt: skip
    assert set(report["output"].splitlines()) == {f"{secret} EACCES", "/etc/passwd EACCES", "/tmp EACCES", "own 1"}


@pytest.mark.parametrize(
    ("cpu", "waited", "held_up", "idle_s"),
    [(0.5, 0.0, False, 0.0), (0.01, 0.49, False, 0.0), (0.0, 0.0, True, 0.0), (0.01, 0.0, False, 98.0)],
    ids=["computes", "waits for a core", "stopped or behind others", "sleeps"],
)
def test_only_those_that_sleep_are_idle(cpu: float, waited: float, held_up: bool, idle_s: float) -> None:
    idle = IdleTime(0.0)
    for number in range(1, 201):
        idle.look(number * 0.5, CpuUse(number * cpu, number * waited, held_up))
    assert idle.seconds == pytest.approx(idle_s)
    # For an hour this process was kept from looking: that says nothing about the submission.
    idle.look(3700.0, CpuUse(200 * cpu, 200 * waited, held_up=False))
    assert idle.seconds <= idle_s + LONGEST_LOOK_S + 1e-6


def test_what_threads_use_is_read_from_the_kernel() -> None:
    before = use_of([os.getpid()])
    until = time.process_time() + 0.2
    while time.process_time() < until:
        pass
    after = use_of([os.getpid()])
    assert after.cpu_s - before.cpu_s >= 0.15
    assert after.held_up, "the thread that reads runs"


@contextlib.contextmanager
def _stopped_machine() -> Iterator[None]:
    """Meanwhile no confined process that is started gets a core."""
    over = threading.Event()

    def stop() -> None:
        while not over.is_set():
            for each in psutil.Process().children(recursive=True):
                with contextlib.suppress(psutil.Error):
                    if "mrc_workshop.confined" in each.cmdline() and each.status() != psutil.STATUS_STOPPED:
                        each.suspend()
            time.sleep(0.02)

    thread = threading.Thread(target=stop)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def test_on_a_busy_machine_nothing_is_graded_and_nothing_stored(one: Exercise, tmp_path: pathlib.Path) -> None:
    place, output = tmp_path / "class", tmp_path / "grades.csv"
    (place / "ann").mkdir(parents=True)
    (place / "ann" / "policy.py").write_text(POLITE)
    hasty = exercise.load(one.folder)
    limits = hasty.content.limits.model_copy(update={"wall_s": 1, "cpu_s": 1})
    hasty.content = hasty.content.model_copy(update={"limits": limits})
    with _stopped_machine():
        (found,) = grade.grade(place, output, only=hasty)
    assert (found.passed, found.grade, found.digest) == (False, None, "")
    assert found.reason.startswith("not graded: machine busy"), found
    assert grade.read(output) == [found]
    (again,) = grade.grade(place, output, only=one)
    assert (again.passed, again.grade) == (True, 1.0), again


def test_a_command_that_is_ended_leaves_no_submission_running(one: Exercise, tmp_path: pathlib.Path) -> None:
    (tmp_path / "class").mkdir()
    for name in ("ann", "bob"):
        (tmp_path / "class" / name).mkdir()
        (tmp_path / "class" / name / "policy.py").write_text("import time\ntime.sleep(3600)\n" + POLITE)
    command = [sys.executable, "-P", "-c", "from mrclab.cli.app import main; main()", "workshop", "grade"]
    command += [str(tmp_path / "class"), "-o", str(tmp_path / "g.csv"), "--exercise", str(one.folder), "--jobs", "2"]
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGKILL):
        started = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        theirs: list[psutil.Process] = []
        for _ in range(600):
            theirs = psutil.Process(started.pid).children(recursive=True)
            # Of two submissions each has two jobs, each of which has three processes by then.
            if len(theirs) >= 12 or started.poll() is not None:
                break
            time.sleep(0.1)
        assert len(theirs) >= 12, started.communicate()
        started.send_signal(number)
        _, told = started.communicate(timeout=300)
        assert started.returncode == (-9 if number == signal.SIGKILL else 128 + number), told
        assert "Traceback" not in told, told
        _, alive = psutil.wait_procs(theirs, timeout=10)
        assert not [each for each in alive if each.status() != psutil.STATUS_ZOMBIE], number


def test_parallel_checks_lose_nothing_of_each_other(tmp_path: pathlib.Path) -> None:
    code = (
        "import pathlib, sys\n"
        "from mrc_workshop.learner import Progress\n"
        "progress = Progress(pathlib.Path(sys.argv[1]))\n"
        "sys.stdin.read()\n"  # all have read what was there before
        "for _ in range(20): progress.checked(sys.argv[2], passed=True); progress.checked('both', passed=False)\n"
    )
    path = tmp_path / "p.json"
    words = [sys.executable, "-P", "-c", code, str(path)]
    running = [subprocess.Popen([*words, name], stdin=subprocess.PIPE) for name in ("a", "b", "c")]
    for each in running:
        each.communicate()
        assert each.returncode == 0
    found = learner.Progress(path)
    assert [(found.of(name).checks, found.of(name).passed) for name in "abc"] == [(20, True)] * 3
    assert found.of("both").checks == 60


@needs_namespaces
def test_who_sleeps_is_ended_though_the_machine_is_free(one: Exercise, tmp_path: pathlib.Path) -> None:
    sleepy = exercise.load(one.folder)
    limits = sleepy.content.limits.model_copy(update={"wall_s": 10})
    sleepy.content = sleepy.content.model_copy(update={"limits": limits})
    (tmp_path / "policy.py").write_text("import time\ntime.sleep(3600)\n")
    report = judge.check(sleepy, tmp_path, quick=True)
    assert (report.passed, report.lines[0].passed) == (False, False)
    assert "it waited for 10 s without computing" in report.reason
    assert report.spent_s < 3600
