"""A lab in namespaces of its own: it has no right outside, nobody else has one inside, and nothing of it is left."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import pathlib
import platform
import pwd
import random
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from mrclab.lab import scheduling
from mrclab.lab.processes import namespaces
from mrclab.lab.processes.launch import LaunchOrder
from mrclab.lab.processes.namespaces import Owner, explain, is_machine_root, lab_owner
from mrclab.lab.processes.process import wait_dead
from mrclab.lab.records.rundir import RunDir
from mrclab.lab.switches.program import SOURCE
from support.amount import first
from support.lab import users
from support.lab.labs import lab_file
from support.lab.users import NOBODY, PATIENCE_S
from support.namespaces import HeldNamespaces, interfaces, lab_processes, left_behind

LAUNCH = [sys.executable, "-P", "-m", "mrclab.lab.processes.launch"]
SMALL = {"planes": 2, "t0_per_plane": 1, "t1_per_plane": 0, "hosts": 2, "ev": {"size": 8, "active": 4}}


def mrclab(*words: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    done = subprocess.run([*users.MRCLAB, *words], capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done


@pytest.fixture(scope="module")
def module_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[pathlib.Path]:
    folder = tmp_path_factory.mktemp("ns")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MRCLAB_RUN", str(folder / "run"))
        patch.setenv("COLUMNS", "200")
        yield folder


@pytest.fixture(scope="module")
def lab(module_folder: pathlib.Path) -> Iterator[RunDir]:
    """Yield a small lab that is up."""
    mrclab("up", lab_file(module_folder, "tiny", **SMALL))
    try:
        yield RunDir("tiny")
    finally:
        mrclab("down", "tiny")


# -- what is inside has no right outside -------------------------------------------------------------------------


def statuses(run: RunDir) -> list[dict[str, str]]:
    found = []
    for pid in lab_processes(run.path):
        text = pathlib.Path(f"/proc/{pid}/status").read_text()
        found.append(dict(line.split(":\t", 1) for line in text.splitlines() if ":\t" in line))
    return found


@pytest.mark.lab
def test_everything_of_a_lab_is_in_its_namespaces_and_nothing_is_root(lab: RunDir) -> None:
    assert not {name for name in interfaces() if name.startswith(("h0", "p0-"))}, "an interface on the machine"
    state = lab.read()
    assert state.first is not None
    owner = lab_owner()
    uid = os.geteuid() if owner is None else owner.uid
    rows = statuses(lab)
    # First process, daemon, fabric, Mininet's shells, two agents.
    assert len(rows) >= 7
    for row in rows:
        assert row["Uid"].split() == [str(uid)] * 4, row["Name"]
        assert not is_machine_root() or uid != 0
    for process in lab.processes():
        for kind in ("user", "net", "mnt", "pid"):
            assert os.readlink(f"/proc/{process.pid}/ns/{kind}") != os.readlink(f"/proc/self/ns/{kind}"), kind
        assert pathlib.Path(f"/proc/{process.pid}/uid_map").read_text().split() == ["0", str(uid), "1"]
    shells = {"h0.shell", "h1.shell"}
    assert {each.role for each in lab.processes()} == {"lab", "labd", "fabric", "h0", "h1"} | shells


@pytest.mark.lab
def test_inside_one_is_root_of_nothing_that_is_outside(lab: RunDir) -> None:
    done = mrclab("exec", "h0", "--", "sh", "-c", "id -u; ls /run; ls /sys/class/net; ps -o args= 1")
    assert done.stdout.split()[:6] == ["0", "cache", "lab", "h0-p0", "h0-p1", "lo"]
    assert "mrclab.lab.processes.launch tiny" in done.stdout, "there is no process but the lab's"
    for attempt in ("echo 1 > /proc/sys/kernel/sysrq", "mount -o remount,rw /proc/sys", "touch /etc/mrclab-was-here"):
        assert mrclab("exec", "h0", "--", "sh", "-c", f"{attempt} 2>/dev/null && echo done || echo refused").stdout == (
            "refused\n"
        ), attempt


@pytest.mark.lab
def test_nothing_of_a_lab_listens_on_tcp(lab: RunDir) -> None:
    for row in mrclab("exec", "h0", "--", "cat", "/proc/net/tcp", "/proc/net/tcp6").stdout.splitlines():
        assert row.split()[0] == "sl"
    state = lab.read()
    assert state.first is not None
    for name in ("tcp", "tcp6"):
        assert len(pathlib.Path(f"/proc/{state.first.pid}/net/{name}").read_text().splitlines()) == 1
    assert list(lab.folder.fabric(state.record)) == [f"unix:{lab.folder.socket('fabric')}"]
    for role in ("fabric", "h0", "h1"):
        assert stat.S_IMODE(lab.folder.socket(role).stat().st_mode) == 0o600


@pytest.mark.lab
def test_loopback_is_up_inside() -> None:
    command = [*LAUNCH, "--run", "cat", "/sys/class/net/lo/flags", "/sys/class/net/lo/ifindex"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=True)
    assert done.stdout == "0x9\n1\n"


@pytest.mark.lab
def test_programs_of_root_are_found_whatever_the_users_path() -> None:
    environment = os.environ | {"PATH": "/usr/bin:/bin"}
    command = [*LAUNCH, "--run", "sh", "-c", "command -v sysctl"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=True, env=environment)
    assert done.stdout == "/usr/sbin/sysctl\n"


@pytest.mark.lab
def test_exec_keeps_folder_and_exit_code_and_input(lab: RunDir, tmp_path: pathlib.Path) -> None:
    assert mrclab("exec", "h1", "--", "sh", "-c", "exit 7", code=7).stdout == ""
    done = subprocess.run([*users.MRCLAB, "exec", "h0", "pwd"], capture_output=True, text=True, cwd="/usr", check=True)
    assert done.stdout == "/usr\n"
    done = subprocess.run([*users.MRCLAB, "exec", "h0", "cat"], capture_output=True, text=True, input="x", check=True)
    assert done.stdout == "x"
    killed = subprocess.run([*users.MRCLAB, "exec", "h0", "--", "sh", "-c", "kill -USR1 $$"], check=False)
    assert killed.returncode == -signal.SIGUSR1
    # Nor does it ignore a signal that we do, or that Python does.
    words = ["env", "--default-signal", *users.MRCLAB, "exec", "h0", "--", "env", "--list-signal-handling", "true"]
    assert subprocess.run(words, capture_output=True, text=True, check=True).stderr == ""


@contextlib.contextmanager
def command(text: str) -> Iterator[subprocess.Popen[str]]:
    """Yield a shell in h0, ready, in a process group of its own; the group is killed in the end."""
    words = [*users.MRCLAB, "exec", "h0", "--", "sh", "-c", text]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            yield process
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


@pytest.mark.lab
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_command_does_not_outlive_its_exec(lab: RunDir, number: signal.Signals) -> None:
    with command("echo ready; exec sleep 4711") as process:
        assert "sleep 4711" in mrclab("exec", "h1", "ps", "-eo", "args").stdout
        process.send_signal(number)
        assert process.wait(60) == -number
        deadline = time.monotonic() + 120
        while "sleep 4711" in mrclab("exec", "h1", "ps", "-eo", "args").stdout:
            assert time.monotonic() < deadline


@pytest.mark.lab
def test_who_is_interrupted_ends_in_his_own_way(lab: RunDir) -> None:
    with command("trap 'sleep 1; echo ended; exit 3' INT; echo ready; while :; do sleep 1; done") as process:
        os.killpg(process.pid, signal.SIGINT)
        assert process.communicate(timeout=PATIENCE_S) == ("ended\n", None)
        assert process.returncode == 3


@pytest.mark.lab
def test_an_interrupted_command_of_the_prompt_does_not_end_the_prompt(lab: RunDir) -> None:
    with subprocess.Popen(
        [*users.MRCLAB, "sh"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write("h0 sh -c \"trap 'echo ended; exit' INT; echo ready; while :; do sleep 1; done\"\n")
        process.stdin.flush()
        while "ready" not in process.stdout.readline():
            assert process.poll() is None
        os.killpg(process.pid, signal.SIGINT)
        said, _ = process.communicate("h1 echo still here\n", timeout=PATIENCE_S)
        assert "ended" in said
        assert "still here" in said
        assert process.returncode == 0


@pytest.mark.lab
def test_list_and_fidelity_say_what_runs(lab: RunDir) -> None:
    (row,) = json.loads(mrclab("list", "running", "--json").stdout)["running"]
    assert (row["name"], row["phase"], row["hosts"], row["transport"]) == ("tiny", "up", 2, "mrc")
    assert "tiny" in mrclab("list").stdout
    measured = scheduling.measure(lab)
    assert measured.fabric.asked == "SCHED_RR"
    assert measured.fabric.granted in ("SCHED_RR", "SCHED_OTHER")
    assert measured.agents.granted in ("nice -15", f"nice {os.nice(0)}")
    # Beside other sessions the agents' niceness is worth what their session's is.
    assert measured.agents.session in (measured.agents.granted, "not grouped")
    # Where the kernel has slices of processes, tried in one of our own.
    tried = [sys.executable, "-c", "from mrclab.lab.scheduling import shorten_slice; print(shorten_slice())"]
    if subprocess.run(tried, capture_output=True, text=True, check=True).stdout == "True\n":
        agents = [each for each in lab.processes() if each.role in ("h0", "h1")]
        assert [scheduling.slice_ns(each.pid) for each in agents] == [scheduling.SLICE_NS] * 2
    around = scheduling.machine_activity(lab)
    assert set(vars(around)) == {"other_labs", "labs_of_others", "cores", "load_1min"}
    assert "tiny" not in str(around.other_labs)
    assert scheduling.machine_activity(RunDir("another")).other_labs == ["tiny"]


# -- and nothing of it is left -------------------------------------------------------------------------------------


@pytest.mark.lab
@pytest.mark.slow
def test_a_killed_lab_leaves_nothing(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """SIGKILL of each process of a lab, and of the command that brings it up, at random moments.

    MRCLAB_KILLS sets how often.
    """
    monkeypatch.setenv("MRCLAB_RUN", str(tmp_path / "run"))
    rng = random.Random(seed)
    before = interfaces()
    path = lab_file(tmp_path, "tiny", **SMALL)
    for attempt in range(int(os.environ.get("MRCLAB_KILLS", "2"))):
        role = ("up", "lab", "labd", "anything")[attempt % 4]
        command = subprocess.Popen(
            [*users.MRCLAB, "up", path], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL
        )
        time.sleep(rng.uniform(0.3, 6.0))
        if role == "up":
            command.kill()
        elif RunDir("tiny").exists():
            living = []
            with contextlib.suppress(Exception):
                living = [each for each in RunDir("tiny").processes() if role in (each.role, "anything")]
            if living:
                rng.choice(living).signal(signal.SIGKILL)
        command.wait(180)
        with contextlib.suppress(Exception):
            first = RunDir("tiny").read().first
            if first is not None and role in ("lab", "labd"):
                assert wait_dead(first, 60) or command.returncode == 0
        if RunDir("tiny").exists():
            mrclab("down", "tiny")
        assert left_behind(before, tmp_path) == [], (attempt, role)
        assert not RunDir("tiny").exists()


@pytest.mark.lab
@pytest.mark.parametrize("role", first(["lab", "labd"]))
def test_what_holds_a_lab_takes_all_of_it_along(
    role: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MRCLAB_RUN", str(tmp_path / "run"))
    before = interfaces()
    mrclab("up", lab_file(tmp_path, "tiny", **SMALL))
    run = RunDir("tiny")
    assert len(lab_processes(tmp_path)) >= 7
    first = run.read().first
    assert first is not None
    with HeldNamespaces(lab_processes(tmp_path)) as nets:
        assert len(nets) == 3
        next(each for each in run.processes() if each.role == role).signal(signal.SIGKILL)
        assert wait_dead(first, 60)
        assert left_behind(before, tmp_path) == []
        assert nets.processes() == set()
    assert "has died" in mrclab("status", code=2).stderr
    assert mrclab("cleanup").stdout == "lab tiny: removed\n"


@pytest.mark.lab
def test_a_lab_whose_run_directory_is_gone_ends(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MRCLAB_RUN", str(tmp_path / "run"))
    before = interfaces()
    mrclab("up", lab_file(tmp_path, "tiny", **SMALL))
    # The lab writes files while they are removed, so that one removal can find a folder filled again.
    deadline = time.monotonic() + 120
    while subprocess.run(["rm", "-rf", str(tmp_path / "run")], check=False).returncode != 0:
        assert time.monotonic() < deadline, "the run directory cannot be removed"
    assert left_behind(before, tmp_path) == []


@pytest.mark.lab
def test_nothing_starts_before_it_is_recorded(tmp_path: pathlib.Path) -> None:
    """The launcher's first process runs nothing without the word of the command that records it."""
    order = LaunchOrder(["touch", "/run/lab/started"], {"/run/lab": str(tmp_path)}, owner=None)
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("SUDO_UID", raising=False)
        process = subprocess.Popen([*LAUNCH, "x"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(order.line().encode())
        process.stdin.flush()
        answers = {process.stdout.readline().split()[0] for _ in range(2)}
        assert answers == {b"pid", b"ready"}
        process.stdin.close()
        assert process.stdout.read() == b""
        process.stdout.close()
        process.wait(60)
    assert not (tmp_path / "started").exists()


# -- where they are closed -------------------------------------------------------------------------------------


@pytest.mark.lab
@pytest.mark.parametrize(
    "words", [["up", "tiny"], ["run", "write_bw", "--lab", "tiny", "--clock", "real"], ["demo", "--clock", "real"]]
)
def test_a_machine_without_user_namespaces_names_the_setting(words: list[str], tmp_path: pathlib.Path) -> None:
    environment = {**os.environ, "MRCLAB_RUN": str(tmp_path / "run")}
    script = 'echo 0 > /proc/sys/user/max_user_namespaces && exec "$@"'
    command = [*LAUNCH, "--run", "sh", "-c", script, "sh", *users.MRCLAB, *words]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "user.max_user_namespaces = 0" in done.stderr
    assert "sudo mrclab" in done.stderr
    assert "--clock virtual" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert not (tmp_path / "run").exists()


SECCOMP = """
import ctypes, os, struct, sys
# Loads the number of the system call; clone, clone3 and unshare with any flags are refused with EPERM.
def filter(*rows): return b"".join(struct.pack("HBBI", *row) for row in rows)
program = filter((0x20, 0, 0, 0), (0x15, 0, 1, 272), (6, 0, 0, 0x50000 | 1), (6, 0, 0, 0x7FFF0000))
buffer = ctypes.create_string_buffer(program)
class Program(ctypes.Structure): _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_void_p)]
libc = ctypes.CDLL(None, use_errno=True)
assert libc.prctl(38, 1, 0, 0, 0) == 0
given = Program(len(program) // 8, ctypes.addressof(buffer))
assert libc.prctl(22, 2, ctypes.byref(given), 0, 0) == 0
os.execvp(sys.argv[1], sys.argv[1:])
"""


@pytest.mark.lab
@pytest.mark.skipif(platform.machine() != "x86_64", reason="the filter knows the numbers of x86_64")
def test_a_seccomp_filter_is_named(tmp_path: pathlib.Path) -> None:
    environment = {**os.environ, "MRCLAB_RUN": str(tmp_path / "run")}
    command = [sys.executable, "-c", SECCOMP, *users.MRCLAB, "up", "tiny"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "a seccomp filter (of a container?) forbids it" in done.stderr
    assert "--clock virtual" in done.stderr


@pytest.mark.parametrize(
    ("settings", "number", "step", "hint"),
    [
        ({"kernel.unprivileged_userns_clone": "0"}, errno.EPERM, "unshare", "kernel.unprivileged_userns_clone = 0"),
        ({"kernel.apparmor_restrict_unprivileged_userns": "1"}, errno.EACCES, "mapping the user",
         "kernel.apparmor_restrict_unprivileged_userns = 1"),
        ({"user.max_net_namespaces": "0"}, errno.ENOSPC, "unshare", "user.max_net_namespaces = 0"),
        ({"user.max_net_namespaces": "9"}, errno.ENOSPC, "unshare", "a limit is reached (user.max_mnt"),
        ({}, errno.EPERM, "mounting proc on /proc", "systempaths=unconfined"),
        ({}, errno.EINVAL, "unshare", "built without user namespaces"),
    ],
)  # fmt: skip
def test_refused_namespace_is_explained_by_the_machines_settings(
    settings: dict[str, str], number: int, step: str, hint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(namespaces, "_setting", settings.get)
    monkeypatch.setattr(namespaces, "is_machine_root", lambda: False)
    text = explain(step, number)
    assert hint in text
    assert step in text
    assert os.strerror(number) in text
    assert "sudo mrclab" in text
    assert "--clock virtual" in text
    assert ("sudo sysctl -w kernel." in text) == hint.startswith(("kernel.unprivileged", "kernel.apparmor"))
    monkeypatch.setattr(namespaces, "is_machine_root", lambda: True)
    assert "sudo" not in explain(step, number)


@pytest.mark.lab
def test_a_lab_in_a_user_namespace_that_has_one_user(tmp_path: pathlib.Path) -> None:
    """Root there is nobody's root, and there is nobody else to map the lab to."""
    environment = {**os.environ, "MRCLAB_RUN": str(tmp_path / "run")}
    path = lab_file(tmp_path, "tiny", **SMALL)
    script = f'"$@" up {path} && "$@" exec h0 ls /sys/class/net && "$@" down'
    command = [*LAUNCH, "--run", "sh", "-c", script, "sh", *users.MRCLAB]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "h0-p0\nh0-p1\nlo\n" in done.stdout


# -- root's labs, and other users ------------------------------------------------------------------------------


@pytest.mark.root
def test_whom_root_maps_to(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SUDO_UID", raising=False)
    found = lab_owner()
    assert found is not None
    assert found.uid in namespaces.LAB_UIDS
    assert found.groups == ()
    with pytest.raises(KeyError):
        pwd.getpwuid(found.uid)
    monkeypatch.setenv("SUDO_UID", str(NOBODY))
    behind = lab_owner()
    assert behind is not None
    assert behind.uid == NOBODY
    for value in ("0", "x", "4000000000"):
        monkeypatch.setenv("SUDO_UID", value)
        assert lab_owner() == found


def launched(order: LaunchOrder, tmp_path: pathlib.Path) -> str:
    """Return what a command of the launcher's writes to /run/lab/out."""
    process = subprocess.Popen([*LAUNCH, "x"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(order.line().encode())
    process.stdin.flush()
    answers = [process.stdout.readline().decode() for _ in range(2)]
    if any(each.startswith("error") for each in answers):
        process.communicate()
        return "".join(answers)
    process.stdin.write(b"go\n")
    process.communicate(timeout=300)
    out = tmp_path / "out"
    deadline = time.monotonic() + 120
    while not out.exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    time.sleep(0.1)
    return out.read_text()


@pytest.mark.root
def test_code_below_a_closed_folder_can_be_read_and_nothing_else_there(tmp_path: pathlib.Path) -> None:
    """A checkout in root's home: the lab's user reads it through a view of its own, and only it."""
    home = tmp_path / "home"
    code = home / "checkout" / "deep"
    code.mkdir(parents=True)
    (code / "program").write_text("text")
    (home / "secret").write_text("root's")
    home.chmod(0o700)
    owner = Owner(61183, 61183)
    place = tmp_path / "place"
    place.mkdir()
    os.chown(place, owner.uid, owner.gid)
    script = f"(cat {code}/program; cat {home}/secret; ls {home}; touch {code}/x; id -u) > /run/lab/o 2>/dev/null"
    order = LaunchOrder(
        ["sh", "-c", f"{script}; mv /run/lab/o /run/lab/out"], {"/run/lab": str(place)}, [str(home / "checkout")], owner
    )
    assert launched(order, place) == "textcheckout\n0\n"
    assert (home / "secret").read_text() == "root's"
    (home / "checkout").chmod(0o700)
    text = launched(order, place)
    assert text.startswith("error")
    assert f"chmod -R go+rX {home}/checkout" in text


@pytest.mark.root
@pytest.mark.parametrize("mount", [True, False])
def test_root_in_a_chroot_has_namespaces_too(mount: bool, tmp_path: pathlib.Path) -> None:
    """Though the kernel makes no user namespace in a chroot: whether its root is a mount or a folder of one."""
    place = tmp_path / "place"
    (place / "inner").mkdir(parents=True)
    chroot = place if mount else place / "inner"
    # A chroot whose root is not a mount gets each folder of the machine bound into it.
    script = f"""
set -e
if {str(mount).lower()}; then mount --rbind / {chroot}; else
  for each in $(ls /); do
    test -d /$each && [ $each != run ] || continue; mkdir -p {chroot}/$each; mount --rbind /$each {chroot}/$each; done
  mkdir -p {chroot}/run; fi
exec chroot {chroot} "$@"
"""
    command = ["unshare", "--mount", "sh", "-c", script, "sh"]
    plain = ["unshare", "--user", "true"]
    assert subprocess.run([*command, *plain], capture_output=True, check=False).returncode != 0
    done = subprocess.run(
        [*command, *LAUNCH, "--probe"], capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.root
@pytest.mark.lab
def test_another_user_reads_and_commands_nothing_of_a_lab(lab: RunDir, tmp_path: pathlib.Path) -> None:
    state = lab.read()
    assert state.first is not None
    socket_path = str(lab.folder.socket("fabric"))
    with users.home(NOBODY) as home:
        probe = f"""
import os, socket, signal
for pid in {[each.pid for each in lab.processes()]}:
    try: os.kill(pid, 0); print("killed", pid)
    except PermissionError: pass
    for name in ("environ", "mem", "root", "ns/net"):
        try: open(f"/proc/{{pid}}/{{name}}").read(1); print("read", pid, name)
        except OSError: pass
for path in ({socket_path!r}, {str(lab.folder.socket("h0"))!r}):
    try: socket.socket(socket.AF_UNIX).connect(path); print("connected", path)
    except OSError: pass
for path in ({str(lab.state_file)!r}, {str(lab.folder.log("h0"))!r}):
    try: open(path).read(1); print("read", path)
    except OSError: pass
"""
        done = users.run(NOBODY, home, sys.executable, "-c", probe)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
        enter = namespaces.enter(state.first.pid, ["true"])
        done = users.run(NOBODY, home, *enter)
        assert done.returncode != 0
        assert "ermission" in done.stderr or "not permitted" in done.stderr, done.stderr


@pytest.mark.root
@pytest.mark.lab
def test_roots_lab_reads_its_files_where_root_has_a_strict_umask(module_folder: pathlib.Path) -> None:
    """Its own program, and libmrc, which `exec` gives to every program by LD_PRELOAD."""
    program = module_folder / "own.p4"
    program.write_bytes(SOURCE.read_bytes())
    file = lab_file(module_folder, "tiny", name="own", program=program.name, **SMALL)
    before = os.umask(0o077)
    try:
        mrclab("up", file)
    finally:
        os.umask(before)
    try:
        assert mrclab("exec", "--lab", "own", "h0", "true").stderr == ""
    finally:
        mrclab("down", "own")


@pytest.mark.root
@pytest.mark.lab
@pytest.mark.slow
def test_two_labs_of_two_users_at_once() -> None:
    """Both of the same name, with the same interface names; both verified; neither sees the other's."""
    if not users.can_read_our_code(NOBODY):
        pytest.skip("other users cannot read our code")
    before = interfaces()
    with users.home(NOBODY) as first, users.home(61190) as second:
        folders = {NOBODY: first, 61190: second}
        words = [
            "run",
            "write_bw",
            "--lab",
            "tiny",
            "--clock",
            "real",
            "--set",
            "iterations=5",
            "--json",
            "-o",
            "result",
        ]
        # A lab of one that is up while the other's comes and goes.
        assert users.run(NOBODY, first, *users.MRCLAB, "up", "tiny").returncode == 0
        try:
            running = [users.popen(uid, folder, *users.MRCLAB, *words) for uid, folder in folders.items()]
            for process in running:
                output, errors = process.communicate(timeout=PATIENCE_S)
                assert process.returncode == 0, output + errors
                assert json.loads(output)["passed"]
            assert users.run(61190, second, *users.MRCLAB, "list", "running").stdout == "no lab is up\n"
            assert "tiny" in users.run(NOBODY, first, *users.MRCLAB, "list").stdout
            for folder in folders.values():
                result = json.loads((folder / "result" / "result.json").read_text())
                assert result["fidelity"]["scheduling"]["fabric"]["granted"] == "SCHED_OTHER"
        finally:
            assert users.run(NOBODY, first, *users.MRCLAB, "down").returncode == 0
        assert left_behind(before, first) == []
        assert left_behind(before, second) == []


# -- the sockets of a fabric process ---------------------------------------------------------------------------


def test_a_fabric_on_a_unix_socket_is_its_owners_from_the_first_moment(tmp_path: pathlib.Path) -> None:
    from p4lite.switch.server import FabricServer
    from p4lite.switch.targetapi.client import TargetClient

    path = tmp_path / "a b.sock"
    address = f"unix:{str(path).replace(' ', '%20')}"
    with FabricServer.from_description({"clock": "virtual", "grpc_server_addr": address}) as server:
        assert server.start() == address
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        with TargetClient(address) as target:
            assert target.info().switches == {}
