"""Running a job in confined processes, and what came of it: the facts, or why there are none.

One process simulates; where a lab names a learner's classes, another one has them (`player`). Each has a scratch folder
of its own and sees no other user's.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import pathlib
import pwd
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import psutil
from pydantic import ValidationError

from mrc_topo.base import interruption
from mrc_topo.shipped import shipped
from mrc_workshop.confined import NOT_ISOLATED, Confinement
from mrc_workshop.exercise import CodeLimits, WorkshopError
from mrc_workshop.idleness import IdleTime, use_of
from mrc_workshop.job import FACTS, JOB, MAX_FACTS_BYTES, CheckJob, Facts
from mrclab.lab import lifecycle
from mrclab.lab.processes.namespaces import Owner, lab_owner
from p4lite.files import FolderError
from p4lite.scratch import scratch
from p4lite.switch.native import build

#: The output that is kept of a submission, and the output at which it is ended.
KEPT_OUTPUT, MAX_OUTPUT = 16 << 10, 4 << 20
#: The size of the whole scratch folder at which a run is ended.
MAX_SCRATCH_BYTES = 1 << 30
LOOK_S = 0.5
#: The exit codes of a process that was ended by SIGKILL: by the limit of CPU time, or from outside.
KILLED = (128 + signal.SIGKILL, -signal.SIGKILL)
#: A job that computes, or waits for a core, may take this multiple of its time; beyond it the machine is too busy.
MOST_WAITING = 5
#: The time to end for the learner's process after the simulation.
GRACE_S = 5.0
KEPT_ENVIRONMENT = ("PATH", "LANG", "LC_ALL", "CC", "VIRTUAL_ENV", "PYTHONHASHSEED", "PYTHONPATH", "MRCLAB_PURE")
#: String hashes are equal in all runs, because results must not depend on them; a seed in the environment takes
#: precedence.
SAME = {"PYTHONHASHSEED": "0"}
#: The files of the machine that Python needs; of /etc, those that the loader, the C library and Debian's Python read.
SYSTEM: tuple[str, ...] = (
    "/usr",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/bin",
    "/sbin",
    "/proc",
    "/dev",
    "/sys",
    "/run",
)
SYSTEM += ("/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/ld.so.preload", "/etc/localtime")
SYSTEM += ("/etc/alternatives", "/etc/nsswitch.conf", f"/etc/python{sys.version_info.major}.{sys.version_info.minor}")
#: gRPC logs a message about every fork, even one that the kernel refuses.
QUIET = {"GRPC_ENABLE_FORK_SUPPORT": "0", "GRPC_VERBOSITY": "NONE"}


@dataclass(frozen=True)
class ConfinedOutcome:
    """The result of a confined process. `reason`: why it was ended, or ended without facts; empty if neither.
    `spent_s`: wall time. `not_graded`: why the result says nothing about the submission; empty if it does."""

    facts: Facts
    reason: str
    output: str
    spent_s: float
    isolation: dict[str, bool] = field(default_factory=dict)
    not_graded: str = ""


@dataclass(frozen=True)
class Scratch:
    """The folders of one job: one of the process that simulates, one of the process that has the learner's Python.
    Neither must see `hide`, which has the folders of all jobs."""

    perform: pathlib.Path
    play: pathlib.Path
    hide: pathlib.Path

    @property
    def out(self) -> pathlib.Path:
        """The folder of captures, reports and facts."""
        return self.perform / "out"

    def write(self, sources: Mapping[str, str]) -> None:
        """Write the learner's files where they are needed."""
        for name, text in sources.items():
            folder = self.play if name.endswith(".py") else self.perform
            (folder / "learner" / name).write_text(text, encoding="utf-8")


@contextlib.contextmanager
def scratch_folders() -> Iterator[Scratch]:
    """Create folders for one job, with what compiles quickly in them, and remove them at the end.

    Raises:
        WorkshopError: the place for them is not ours.
    """
    with contextlib.ExitStack() as stack:
        try:
            folder = stack.enter_context(scratch("workshop"))
            for part in ("perform/tmp", "perform/out", "perform/learner", "play/tmp", "play/learner"):
                (folder / part).mkdir(mode=0o700, parents=True)
            shutil.copytree(_warm_cache(), folder / "perform" / "cache")
            (folder / "perform" / "cache").chmod(0o700)
        except FolderError as error:
            raise WorkshopError(str(error)) from error
        except (OSError, shutil.Error) as error:
            # shutil names every file that it could not copy; one is enough, and the reason is the same.
            reason = error.args[0][0][2] if isinstance(error, shutil.Error) else error
            text = "make room there, or set TMPDIR to another folder"
            raise WorkshopError(f"{tempfile.gettempdir()}: cannot make temporary files: {reason}; {text}") from error
        yield Scratch(folder / "perform", folder / "play", folder.parent)


def give(folder: pathlib.Path, owner: Owner) -> None:
    """Give all of a folder to another user without following links."""
    os.chown(folder, owner.uid, owner.gid)
    for parent, folders, files in os.walk(folder):
        for name in (*folders, *files):
            os.chown(os.path.join(parent, name), owner.uid, owner.gid, follow_symlinks=False)


#: A build of the shared cache takes seconds; one of this age is not under way any more.
_ABANDONED_S: Final = 3600.0


def _warm_cache() -> pathlib.Path:
    """Return the fabric's core and the parts that all compiled programs share, built once per version.

    Processes may build it at the same time: each builds in a folder of its own, and the first one to end gives its
    folder the shared name.
    """
    base = build.cache_dir() / "workshop"
    digest = hashlib.sha256()
    for path in sorted(build.CORE_DIR.rglob("*.[ch]")):
        digest.update(path.read_bytes())
    folder = base / digest.hexdigest()[:16]
    if folder.is_dir():
        return folder
    base.mkdir(parents=True, mode=0o700, exist_ok=True)
    for left in base.glob("*.*"):  # of processes that were killed meanwhile
        if time.time() - left.stat().st_mtime > _ABANDONED_S:
            shutil.rmtree(left, ignore_errors=True)
    made = pathlib.Path(tempfile.mkdtemp(prefix=f"{folder.name}.", dir=base))
    code = (
        "from p4lite.switch.fabric.fabric import Fabric\n"
        "from p4lite.switch.source import load_source\n"
        "from mrc_topo.shipped import shipped\n"
        "with Fabric('virtual') as fabric:\n"
        "    fabric.add_switch(1).load(load_source(shipped('programs') / 'fabric.p4').program())\n"
    )
    try:
        done = interruption.run([sys.executable, "-P", "-c", code], env={**os.environ, "MRCLAB_CACHE": str(made)})
        if done.returncode:
            last = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
            raise WorkshopError(f"the switch of the exercises cannot be built: {last.partition(': ')[2] or last}")
        made.rename(folder)
    except OSError:
        if not folder.is_dir():
            raise
    finally:
        shutil.rmtree(made, ignore_errors=True)
    return folder


class _Process:
    """A confined process of a job, from start to end."""

    def __init__(self, order: Confinement, pipe: socket.socket | None) -> None:
        self.scratch = pathlib.Path(order.scratch)
        self._kept = b""
        self._total = 0
        self.ended = False  # whether we ended it
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "mrc_workshop.confined"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=SAME | {key: os.environ[key] for key in KEPT_ENVIRONMENT if key in os.environ} | QUIET,
            start_new_session=True,
            pass_fds=() if pipe is None else (pipe.fileno(),),
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(order.line().encode())
            self._process.stdin.close()
        self._stdout = self._process.stdout

    @property
    def output(self) -> str:
        """The beginning of its output."""
        return self._kept.decode(errors="replace")

    def fileno(self) -> int:
        """Return the file descriptor of the process's standard output."""
        return self._stdout.fileno()

    def read(self) -> bool:
        """Read the process's output; return False when it has ended.

        Raises:
            _LimitExceeded: the output is too long.
        """
        data = os.read(self.fileno(), 1 << 16)
        self._total += len(data)
        self._kept += data[: KEPT_OUTPUT - len(self._kept)]
        if self._total > MAX_OUTPUT:
            raise _LimitExceeded(f"it printed more than {MAX_OUTPUT >> 20} MB")
        return bool(data)

    @property
    def pid(self) -> int:
        """The PID of its first process."""
        return self._process.pid

    def gone(self) -> bool:
        """Return whether the process has ended."""
        return self._process.poll() is not None

    def end(self) -> int:
        """End the process and all that it started; return its exit code."""
        if not self.gone():
            self.ended = True
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        code = self._process.wait()
        self._stdout.close()
        return code


def _private() -> list[pathlib.Path]:
    """Return the folders of the machine that a learner must not read. Homes, temporary files and a checkout with its
    history are named, too, since they may lie below a folder that is needed."""
    places = [pathlib.Path("/"), pathlib.Path(tempfile.gettempdir()), pathlib.Path(os.path.expanduser("~"))]
    with contextlib.suppress(KeyError):
        places.append(pathlib.Path(pwd.getpwuid(os.geteuid()).pw_dir))
    checkout = shipped("workshop").parent
    return [*places, checkout] if (checkout / "pyproject.toml").is_file() else places


def _needed() -> list[pathlib.Path]:
    """Return the files that Python, our code and the system must be able to read."""
    return [pathlib.Path(each).resolve() for each in (sys.prefix, sys.base_prefix, *sys.path, *SYSTEM) if each]


def _covered(*folders: pathlib.Path) -> Iterator[pathlib.Path]:
    """Yield the folders to cover so that only the parts of these folders stay visible that Python, mrclab and the
    system need."""
    needed = _needed()
    waiting = [folder.resolve() for folder in folders]
    while waiting:
        path = waiting.pop()
        if not any(each.is_relative_to(path) for each in needed):
            yield path
        elif path not in needed:
            with contextlib.suppress(OSError):
                waiting += [each for each in path.iterdir() if not each.is_symlink()]


class _LimitExceeded(Exception):
    """A process that exceeded a limit; the text names the limit."""


class _NotGraded(Exception):
    """A process that could not show what it does; the text says why."""


def run(
    job: CheckJob,
    scratch: Scratch,
    allowed: CodeLimits,
    hide: Sequence[pathlib.Path] = (),
    plays: bool = True,
    stop: threading.Event | None = None,
    look: Callable[[float], object] = bool,
) -> ConfinedOutcome:
    """Run a job whose files are in the scratch folders; leave captures and report in `scratch.out`.

    Args:
        hide: folders that the processes must not see, beyond the scratch folders.
        plays: the learner has written classes.
        stop: once it is set, the processes are ended.
        look: called several times a second while they run.
    """
    (scratch.perform / JOB).write_text(job.model_dump_json(), encoding="utf-8")
    owner = lab_owner()
    folders = [scratch.perform, scratch.play] if plays else [scratch.perform]
    pipes: Sequence[socket.socket | None] = socket.socketpair() if plays else [None]
    if owner is not None:
        for folder in folders:
            give(folder, owner)
    begin = time.monotonic()
    running: list[_Process] = []
    reason = not_graded = ""
    idle = IdleTime(begin)
    try:
        for folder, pipe in zip(folders, pipes, strict=True):
            order = Confinement(
                scratch=str(folder),
                hide=[
                    str(each) for each in _covered(scratch.hide, *hide, *(_private() if folder is scratch.play else ()))
                ],
                cpu_s=allowed.cpu_s,
                memory_bytes=allowed.memory_mb << 20,
                owner=owner,
                trees=[] if owner is None else lifecycle.trees(),
                plays=folder is scratch.play,
                socket=-1 if pipe is None else pipe.fileno(),
                parent=os.getpid(),
                readable=[str(each) for each in _needed() if str(each) != "/run"],
            )
            running.append(_Process(order, pipe))
            if pipe is not None:
                pipe.close()  # so that each process reads the end of the other's stream
        _collect_output(running, begin, allowed, idle, stop, look)
    except _LimitExceeded as ended:
        reason = str(ended)
    except _NotGraded as ended:
        not_graded = str(ended)
    finally:
        codes = [process.end() for process in reversed(running)]
        for pipe in pipes:
            if pipe is not None:
                pipe.close()
    spent = time.monotonic() - begin
    if owner is not None:
        for folder in folders:
            give(folder, Owner(os.geteuid(), os.getegid()))
    # `isolation` reports this, too; the learner can do nothing about it.
    told = "".join(process.output for process in reversed(running)).splitlines(keepends=True)
    output = "".join(each for each in told if not each.startswith(NOT_ISOLATED))
    for process, code in zip(reversed(running), codes, strict=True):
        if process.ended:
            continue
        if code in KILLED and idle.cpu_s < allowed.cpu_s / 2:
            not_graded = not_graded or "a process of it was killed from outside; is the machine short of memory?"
        reason = reason or _limit(code, allowed)
    facts = _read(scratch.out / FACTS)
    if facts is None:
        facts, reason = Facts(), reason or _without_results(codes[-1], output)
    return ConfinedOutcome(facts, reason, output, spent, facts.isolation, not_graded)


def _without_results(code: int, output: str) -> str:
    """Describe how a process ended that left no facts, with the last line of its output."""
    last = next((each for each in reversed(output.splitlines()) if each.strip()), "")
    return f"its process ended with code {code} before there were results" + (f": {last}" if last else "")


def _limit(code: int, allowed: CodeLimits) -> str:
    """Return the limit by which a process ended, from its exit code; empty if none did."""
    if code in (128 + signal.SIGXCPU, -signal.SIGXCPU, *KILLED):
        return f"it took {allowed.cpu_s} s of CPU time, which is the limit; is there an endless loop?"
    if code in (128 + signal.SIGXFSZ, -signal.SIGXFSZ):
        return "it wrote a file of more than 512 MB"
    return ""


def _pids(running: Sequence[_Process]) -> list[int]:
    """Return the PIDs of the processes and of all that they started."""
    found = []
    for each in running:
        with contextlib.suppress(psutil.Error):
            process = psutil.Process(each.pid)
            found += [one.pid for one in (process, *process.children(recursive=True))]
    return found


def _collect_output(
    running: Sequence[_Process],
    begin: float,
    allowed: CodeLimits,
    idle: IdleTime,
    stop: threading.Event | None,
    look: Callable[[float], object],
) -> None:
    """Collect the output until the first process ends, and then wait a while for the others.

    Args:
        begin: the start of the run (`time.monotonic`).
        allowed: the processes may be idle for `wall_s` of it.
        idle: adds up how long they are.
        stop: ends the wait once it is set.
        look: is given the CPU time so far, s, whenever the processes are looked at.

    Raises:
        _LimitExceeded: a process exceeds a limit.
        _NotGraded: the machine has too much other work, or `stop` was set.
    """
    first = running[0]
    printing = list(running)
    looked = time.monotonic()
    over: float | None = None
    while printing:
        now = time.monotonic()
        _check_stop(stop)
        if over is None and first.gone():
            over = now + GRACE_S
        if over is not None and now > over:
            return
        if now - looked > LOOK_S:
            looked = now
            idle.look(now, use_of(_pids(running)))
            look(idle.cpu_s)
            _check_time(now - begin, allowed, idle)
            for process in running:
                if _size(process.scratch) > MAX_SCRATCH_BYTES:
                    raise _LimitExceeded("it wrote more than 1 GB of files")
        ready, _, _ = select.select(printing, [], [], LOOK_S / 5)
        for process in ready:
            if not process.read():
                printing.remove(process)
    while not all(process.gone() for process in running):
        _check_stop(stop)
        if over is None and first.gone():
            over = time.monotonic() + GRACE_S
        now = time.monotonic()
        if over is not None and now > over:
            return
        if now - looked > LOOK_S:
            looked = now
            idle.look(now, use_of(_pids(running)))
            _check_time(now - begin, allowed, idle)
        time.sleep(0.01)


def _check_stop(stop: threading.Event | None) -> None:
    interruption.check()
    if stop is not None and stop.is_set():
        raise _NotGraded("interrupted")


def _check_time(spent_s: float, allowed: CodeLimits, idle: IdleTime) -> None:
    if idle.seconds > allowed.wall_s:
        raise _LimitExceeded(
            f"it waited for {allowed.wall_s} s without computing, which is the limit; does it sleep, or wait for what "
            "never comes?"
        )
    # Both processes together may compute for twice the limit of one; on an idle machine that limit ends them first.
    if spent_s > MOST_WAITING * max(allowed.wall_s, 2 * allowed.cpu_s):
        raise _NotGraded(
            f"machine busy: in {spent_s:.0f} s it got {idle.cpu_s:.0f} s of CPU time; check it again on a free machine"
        )


def _size(folder: pathlib.Path) -> int:
    """Return the bytes used on the disk; every entry counts as a block at least."""
    total, waiting = 0, [str(folder)]
    while waiting and total <= MAX_SCRATCH_BYTES:
        with contextlib.suppress(OSError), os.scandir(waiting.pop()) as entries:
            for entry in entries:
                with contextlib.suppress(OSError):
                    total += max(entry.stat(follow_symlinks=False).st_blocks * 512, 4096)
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
    return total


def _read(path: pathlib.Path) -> Facts | None:
    """Return the facts of a process; None if it left none, or an invalid file."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    with os.fdopen(handle, "rb") as file:
        data = file.read(MAX_FACTS_BYTES + 1)
    try:
        return Facts.model_validate(json.loads(data)) if len(data) <= MAX_FACTS_BYTES else None
    except (ValueError, ValidationError, RecursionError):
        return None
