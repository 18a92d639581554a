"""Running a job in confined processes, and what came of it: the facts, or why there are none.

One process simulates; where a lab names a learner's classes, another one has them (`player`). Each has a scratch folder
of its own and sees nobody else's.
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
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import psutil
from pydantic import ValidationError

from mrc_control.lab import lifecycle
from mrc_control.lab.namespaces import Owner, owner_for_root
from mrc_control.workshop.confined import NOT_ISOLATED, Confinement
from mrc_control.workshop.exercise import Limits, WorkshopError
from mrc_control.workshop.job import FACTS, JOB, MAX_FACTS_BYTES, Facts, Job
from mrc_topo.shipped import shipped
from p4lite.folders import FolderError, make_private
from p4lite.switch.native import build

#: Of what a submission prints this much is kept, and with more than the second it is ended.
KEPT_OUTPUT, MAX_OUTPUT = 16 << 10, 4 << 20
#: All of the scratch folder; beyond it the run is ended.
MAX_SCRATCH_BYTES = 1 << 30
LOOK_S = 0.5
#: Who got so much of a core when his time was over is waited for, up to so many times of it.
LEAST_SHARE, MOST_WAITING = 0.03, 5
#: For the learner's process to end, when there is no more to play.
GRACE_S = 5.0
KEPT_ENVIRONMENT = ("PATH", "LANG", "LC_ALL", "CC", "VIRTUAL_ENV", "PYTHONHASHSEED", "PYTHONPATH", "MRCLAB_PURE")
#: What a learner's code does must not depend on Python's hashes of strings; who sets a seed gets that one.
SAME = {"PYTHONHASHSEED": "0"}
SYSTEM = ("/usr", "/lib", "/lib64", "/bin", "/sbin", "/etc", "/proc", "/dev", "/sys", "/run")
#: gRPC has something to say about every fork, even one that the kernel refuses.
QUIET = {"GRPC_ENABLE_FORK_SUPPORT": "0", "GRPC_VERBOSITY": "NONE"}


@dataclass(frozen=True)
class Outcome:
    """What a confined process left. `reason`: why it was ended, or ended by itself without facts; empty if it did not.
    `spent_s`: wall time."""

    facts: Facts
    reason: str
    output: str
    spent_s: float
    isolation: dict[str, bool] = field(default_factory=dict)


@dataclass(frozen=True)
class Scratch:
    """The folders of one job: of the process that simulates, and of the one that has the learner's Python. `hide` must
    be seen by neither: everybody's are in it."""

    perform: pathlib.Path
    play: pathlib.Path
    hide: pathlib.Path

    @property
    def out(self) -> pathlib.Path:
        """Captures, reports and facts."""
        return self.perform / "out"

    def write(self, sources: Mapping[str, str]) -> None:
        """The learner's files, each where it is needed."""
        for name, text in sources.items():
            folder = self.play if name.endswith(".py") else self.perform
            (folder / "learner" / name).write_text(text)


@contextlib.contextmanager
def scratch_folders() -> Iterator[Scratch]:
    """Folders for one job, with what compiles quickly in them; gone at the end.

    Raises:
        WorkshopError: the place for them is not ours.
    """
    try:
        base = make_private(pathlib.Path(tempfile.gettempdir()) / f"mrclab-workshop-{os.geteuid()}")
    except FolderError as error:
        raise WorkshopError(f"{error}; or choose another place with TMPDIR") from error
    folder = pathlib.Path(tempfile.mkdtemp(dir=base))
    try:
        for part in ("perform/tmp", "perform/out", "perform/learner", "play/tmp", "play/learner"):
            (folder / part).mkdir(mode=0o700, parents=True)
        shutil.copytree(_warm_cache(), folder / "perform" / "cache")
        (folder / "perform" / "cache").chmod(0o700)
        yield Scratch(folder / "perform", folder / "play", base)
    finally:
        # rm(1) also takes away folders that are deeper than Python's calls or names may be.
        subprocess.run(["rm", "-rf", "--", str(folder)], check=False, stdin=subprocess.DEVNULL)


def give(folder: pathlib.Path, owner: Owner) -> None:
    """Makes all of a folder somebody else's; links are not followed."""
    os.chown(folder, owner.uid, owner.gid)
    for parent, folders, files in os.walk(folder):
        for name in (*folders, *files):
            os.chown(os.path.join(parent, name), owner.uid, owner.gid, follow_symlinks=False)


def _warm_cache() -> pathlib.Path:
    """The fabric's core and the parts of compiled programs that are the same for all, built once per version."""
    base = build.cache_dir() / "workshop"
    digest = hashlib.sha256()
    for path in sorted(build.CORE_DIR.rglob("*.[ch]")):
        digest.update(path.read_bytes())
    folder = base / digest.hexdigest()[:16]
    if (folder / "complete").is_file():
        return folder
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True, mode=0o700)
    code = (
        "from p4lite.switch.fabric.fabric import Fabric\n"
        "from p4lite.switch.source import load_source\n"
        "from mrc_topo.shipped import shipped\n"
        "with Fabric('virtual') as fabric:\n"
        "    fabric.add_switch(1).load(load_source(shipped('programs') / 'fabric.p4').program())\n"
    )
    subprocess.run(
        [sys.executable, "-P", "-c", code],
        env={**os.environ, "MRCLAB_CACHE": str(folder)},
        check=True,
        stdin=subprocess.DEVNULL,
    )
    (folder / "complete").touch()
    return folder


class _Process:
    """A confined process of a job, from its beginning to its end."""

    def __init__(self, order: Confinement, pipe: socket.socket | None) -> None:
        self.scratch = pathlib.Path(order.scratch)
        self._kept = b""
        self._total = 0
        self.ended = False  # by us
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "mrc_control.workshop.confined"],
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
        """The beginning of what it printed."""
        return self._kept.decode(errors="replace")

    def fileno(self) -> int:
        """Of what it prints."""
        return self._stdout.fileno()

    def read(self) -> bool:
        """Takes in what it printed; False when there will be no more.

        Raises:
            _Ended: that is too much.
        """
        data = os.read(self.fileno(), 1 << 16)
        self._total += len(data)
        self._kept += data[: KEPT_OUTPUT - len(self._kept)]
        if self._total > MAX_OUTPUT:
            raise _Ended(f"it printed more than {MAX_OUTPUT >> 20} MB")
        return bool(data)

    @property
    def pid(self) -> int:
        """Of its first process."""
        return self._process.pid

    def gone(self) -> bool:
        """Whether it has ended."""
        return self._process.poll() is not None

    def end(self) -> int:
        """Ends it, with all that it started; its exit code."""
        if not self.gone():
            self.ended = True
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        code = self._process.wait()
        self._stdout.close()
        return code


def _private() -> list[pathlib.Path]:
    """Where there may be what is no learner's business: the home, others' temporary files, a checkout with its past."""
    places = [pathlib.Path(tempfile.gettempdir()), pathlib.Path(os.path.expanduser("~"))]
    with contextlib.suppress(KeyError):
        places.append(pathlib.Path(pwd.getpwuid(os.geteuid()).pw_dir))
    checkout = shipped("workshop").parent
    return [*places, checkout] if (checkout / "pyproject.toml").is_file() else places


def _covered(*folders: pathlib.Path) -> Iterator[pathlib.Path]:
    """What must be covered so that nothing is seen of these folders but what Python, our code and the system need."""
    needed = [pathlib.Path(each).resolve() for each in (sys.prefix, sys.base_prefix, *sys.path, *SYSTEM) if each]
    waiting = [folder.resolve() for folder in folders]
    while waiting:
        path = waiting.pop()
        if not any(each.is_relative_to(path) for each in needed):
            yield path
        elif path not in needed:
            with contextlib.suppress(OSError):
                waiting += [each for each in path.iterdir() if not each.is_symlink()]


class _Ended(Exception):
    """A process that took more than it may, and what."""


def run(job: Job, scratch: Scratch, allowed: Limits, hide: Sequence[pathlib.Path] = (), plays: bool = True) -> Outcome:
    """Runs a job whose files are in the scratch folders; leaves captures and reports in `scratch.out`.

    Args:
        hide: folders that the processes must not see, beyond the scratch folders.
        plays: there are classes of the learner's.
    """
    (scratch.perform / JOB).write_text(job.model_dump_json())
    owner = owner_for_root()
    folders = [scratch.perform, scratch.play] if plays else [scratch.perform]
    pipes: Sequence[socket.socket | None] = socket.socketpair() if plays else [None]
    if owner is not None:
        for folder in folders:
            give(folder, owner)
    begin = time.monotonic()
    running: list[_Process] = []
    reason = ""
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
            )
            running.append(_Process(order, pipe))
            if pipe is not None:
                pipe.close()  # so that each sees the other's end
        _attend(running, begin, allowed.wall_s)
    except _Ended as ended:
        reason = str(ended)
    except TimeoutError:
        reason = f"it ran for {allowed.wall_s} s without an end, which is the limit; is there an endless loop?"
    finally:
        codes = [process.end() for process in reversed(running)]
        for pipe in pipes:
            if pipe is not None:
                pipe.close()
    spent = time.monotonic() - begin
    if owner is not None:
        for folder in folders:
            give(folder, Owner(os.geteuid(), os.getegid()))
    # `isolation` says it, too; the learner can do nothing about it.
    told = "".join(process.output for process in reversed(running)).splitlines(keepends=True)
    output = "".join(each for each in told if not each.startswith(NOT_ISOLATED))
    for process, code in zip(reversed(running), codes, strict=True):
        reason = reason or ("" if process.ended else _limit(code, allowed))
    facts = _read(scratch.out / FACTS)
    if facts is None:
        facts = Facts()
        if not reason:
            last = next((each for each in reversed(output.splitlines()) if each.strip()), "")
            reason = f"its process ended with code {codes[-1]} before there were results" + (
                f": {last}" if last else ""
            )
    return Outcome(facts, reason, output, spent, facts.isolation)


def _limit(code: int, allowed: Limits) -> str:
    """The limit by which a process ended, by its exit code; empty: none."""
    if code in (128 + signal.SIGXCPU, 128 + signal.SIGKILL, -signal.SIGXCPU, -signal.SIGKILL):
        return f"it took {allowed.cpu_s} s of CPU time, which is the limit; is there an endless loop?"
    if code in (128 + signal.SIGXFSZ, -signal.SIGXFSZ):
        return "it wrote a file of more than 512 MB"
    return ""


def waits_for_a_core(spent_s: float, lately_s: float, cpu_s: float, wall_s: float) -> bool:
    """Whether who has used up his wall time did so because the machine had others to serve: lately, too, he computed,
    in what was left to him, and he is not beyond `MOST_WAITING` times of it."""
    return cpu_s >= LEAST_SHARE * lately_s and spent_s < MOST_WAITING * wall_s


def _cpu_s(running: Sequence[_Process]) -> float:
    """CPU time of processes and of what they started, s."""
    total = 0.0
    for each in running:
        with contextlib.suppress(psutil.Error):
            process = psutil.Process(each.pid)
            for one in (process, *process.children(recursive=True)):
                with contextlib.suppress(psutil.Error):
                    times = one.cpu_times()
                    total += times.user + times.system
    return total


def _attend(running: Sequence[_Process], begin: float, wall_s: float) -> None:
    """Reads what is printed until the first process ends, and then a while for the others.

    Args:
        begin: of the run (`time.monotonic`), which may take `wall_s`.

    Raises:
        TimeoutError: it does not end.
        _Ended: one of them takes more than it may.
    """
    first = running[0]
    until = begin + wall_s
    lately: tuple[float, float] | None = None  # a while before that: when, and CPU time until then
    printing = list(running)
    looked = time.monotonic()
    over: float | None = None
    while printing:
        now = time.monotonic()
        if lately is None and now > until - wall_s / 10:
            lately = now, _cpu_s(running)
        if now > until and lately is not None:
            then, used = lately
            lately = now, _cpu_s(running)
            if not waits_for_a_core(now - begin, now - then, lately[1] - used, wall_s):
                raise TimeoutError
            until = now + wall_s / 10
        if over is None and first.gone():
            over = now + GRACE_S
        if over is not None and now > over:
            return
        if now - looked > LOOK_S:
            looked = now
            for process in running:
                if _size(process.scratch) > MAX_SCRATCH_BYTES:
                    raise _Ended("it wrote more than 1 GB of files")
        ready, _, _ = select.select(printing, [], [], min(LOOK_S / 5, max(until - now, 0.0)))
        for process in ready:
            if not process.read():
                printing.remove(process)
    while not all(process.gone() for process in running):
        if time.monotonic() > min(until, over or time.monotonic() + GRACE_S):
            return
        time.sleep(0.01)


def _size(folder: pathlib.Path) -> int:
    """What is used of the disk; every entry counts for a block at least."""
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
    """The facts that a process left; None if it left none, or something else."""
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
