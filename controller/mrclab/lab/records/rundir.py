"""Run folders: all that is known of running labs, one folder each, which only its owner can open.

    BASE/NAME/state.json    written by commands: the lab's first process, what is denied (`LabState`)
    BASE/NAME/faults.json   written by commands: what is broken (`faults.ledger.LedgerState`)
    BASE/NAME/NAME.yaml     the lab file as it was when the lab came up
    BASE/NAME/lab/          seen inside the lab as /run/lab, and all that it can write (`LabFolder`)

A lab is a PID namespace: when its first process ends, the kernel ends all others and takes interfaces and namespaces
away, so that process is all that need be recorded. It is recorded with its start time (a PID alone may have been given
to another user) before anything runs in it. A lab that root started runs as another user; what is in its folder is
therefore read as data and never trusted with a path or a process.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pathlib
import re
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from mrc_topo.base import interruption
from mrc_topo.base.errors import ExitCode, UsageError
from mrc_topo.base.files import write_whole
from mrc_topo.base.plain import DecodeError, decode, encode
from mrc_topo.shipped import CHECKOUT, shipped
from mrclab.lab.processes.process import (
    FEW,
    KILL_AFTER_S,
    WORDS,
    Process,
    ProcessExit,
    ProgressTimeout,
    StoppedProcess,
    end_process,
    frozen,
    several,
)
from mrclab.lab.records.record import FORMAT, PROGRAM, LabFolder, LabState, last_line
from p4lite.files import FolderError, check_code_file, check_private

#: The folder below the run directories for slices of labs whose coordinator is elsewhere, by machine name.
PARTS = ".parts"
#: The variable that names the machine whose slice of a lab a command means, on that machine.
PART_VARIABLE = "MRCLAB_PART"
NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,30}\Z")
MODE = 0o700
#: The limit of Linux for the path of a unix socket, in bytes without the NUL.
SOCKET_PATH_BYTES = 107
#: A file in a run directory that is locked while the lab is started.
STARTING = "starting"
#: On a disk with fewer free bytes no lab can write its record.
LEAST_FREE = 1 << 16
#: The time in which a lab must come up, granted again as long as it works; and the time in which it must end.
UP_S = 180.0
DOWN_S = 20.0

Progress = Callable[[str], None]


class RunError(UsageError):
    """A lab that cannot be started, found or removed; the text says what to do."""


class LabDied(RunError):
    """A lab that died while a command used it."""

    exit_code = ExitCode.FAILED


def base() -> pathlib.Path:
    """Return the folder of run directories; with `MRCLAB_PART`, that of the machine's slices whose coordinator is
    elsewhere.

    Raises:
        RunError: the variable does not name a machine.
    """
    part = os.environ.get(PART_VARIABLE)
    if not part:
        return _base()
    if not NAME.match(part):
        raise RunError(
            f"{PART_VARIABLE}: '{part}' is not the name of a machine; it is the key below `machines` in a lab file"
        )
    return _base() / PARTS / part


def in_part() -> bool:
    """Return whether commands mean a slice whose coordinator is elsewhere."""
    return base().parent.name == PARTS


def _base() -> pathlib.Path:
    """Return MRCLAB_RUN, /run/mrclab for root, else the user's runtime directory."""
    override = os.environ.get("MRCLAB_RUN")
    if override:
        return pathlib.Path(os.path.abspath(override))
    uid = os.geteuid()
    if uid == 0:
        return pathlib.Path("/run/mrclab")
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    if runtime:
        return pathlib.Path(os.path.abspath(runtime)) / "mrclab"
    usual = pathlib.Path(f"/run/user/{uid}")
    with contextlib.suppress(OSError):
        if usual.stat().st_uid == uid:
            return usual / "mrclab"
    return pathlib.Path(f"/tmp/mrclab-{uid}")


def check_ours(path: pathlib.Path) -> bool:
    """Return whether a folder exists that no other user can open, change or replace.

    Returns:
        False when there is no such folder.

    Raises:
        RunError: it is a link, another user's, open to others, or below a folder where others can rename it.
    """
    try:
        check_private(path, closed=True)
    except FileNotFoundError:
        return False
    except FolderError as error:
        raise RunError(f"run directory {error}; remove it, or set MRCLAB_RUN to a folder of yours") from None
    return True


@dataclass(frozen=True)
class _StateHeader:
    """The keys that state.json has in every version."""

    first: Process | None = None
    format: int = 1


class RunDir:
    """The run directory of one lab; `folder`: its parent, if that is not `base()`.

    Raises:
        RunError: the name cannot be that of a directory, or the directory may be changed by others.
    """

    def __init__(self, name: str, folder: pathlib.Path | None = None) -> None:
        if not NAME.match(name):
            raise RunError(
                f"'{name}' is not a lab name: small letters, digits, - and _, at most 31, a letter or digit first"
            )
        self.name = name
        self.path = (base() if folder is None else folder) / name
        self.state_file = self.path / "state.json"
        self.lab_file = self.path / f"{name}.yaml"
        self.log_file = self.path / "labd.log"
        #: The switches' program, if another compiler than ours made it.
        self.program_file = self.path / PROGRAM
        #: This file exists once a command has asked the lab to end; creating it needs no lock.
        self.ending_file = self.path / "ending"
        self.folder = LabFolder(self.path / "lab")

    def create(self, uid: int = -1, gid: int = -1) -> None:
        """Create the directory and the folder that the lab can write to, which belongs to `uid` and `gid` (-1: this
        user).

        Raises:
            RunError: the name is in use.
        """
        parent = self.path.parent
        if not check_ours(parent):
            parent.mkdir(parents=True, exist_ok=True, mode=MODE)
            check_ours(parent)
        try:
            self.path.mkdir(mode=MODE)
        except FileExistsError:
            raise RunError(f"lab '{self.name}' is in use; `mrclab down {self.name}` ends it") from None
        self.folder.path.mkdir(mode=MODE)
        if uid >= 0:
            os.chown(self.folder.path, uid, gid)

    def check_socket(self, role: str) -> None:
        """Check that the socket of a role can be reached.

        Raises:
            RunError: the path is too long.
        """
        length = len(os.fsencode(self.folder.socket(role)))
        if length > SOCKET_PATH_BYTES:
            raise RunError(
                f"run directory {self.path}: the path of a unix socket in it has {length} bytes, more than the "
                f"{SOCKET_PATH_BYTES} that Linux takes; set MRCLAB_RUN to a shorter one"
            )

    def exists(self) -> bool:
        """Return whether there is such a lab, alive or not."""
        return check_ours(self.path)

    def _recorded(self) -> object:
        """Return the contents of state.json; errors as `read`."""
        if not check_ours(self.path):
            running = ", ".join(each.name for each in all_runs()) or "none"
            raise RunError(f"no lab '{self.name}' is up; up: {running}")
        try:
            return json.loads(self.state_file.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise RunError(f"{self.state_file}: {error}; `mrclab cleanup` removes it") from error

    def first(self) -> Process | None:
        """Return the lab's first process, whichever version of mrclab recorded it; None if it has none yet.

        Raises:
            RunError: there is no such lab, or its record cannot be read.
        """
        return self._basics(self._recorded()).first

    def _basics(self, document: object) -> _StateHeader:
        try:
            return decode(_StateHeader, document, lenient=True)
        except DecodeError as error:
            raise RunError(f"{self.state_file}: {error}; `mrclab cleanup` removes it") from error

    def read(self) -> LabState:
        """Return the lab's state.

        Raises:
            RunError: there is no such lab, or its record cannot be read or is of another version.
        """
        document = self._recorded()
        version = self._basics(document).format
        if version != FORMAT:
            raise RunError(
                f"lab '{self.name}' was brought up by another version of mrclab (its record has format {version}, this "
                f"version reads {FORMAT}); `mrclab down {self.name}` ends it"
            )
        try:
            state = decode(LabState, document)
            state.record = self.folder.read()
        except FileNotFoundError:
            pass
        except (OSError, ValueError, DecodeError) as error:
            raise RunError(f"{self.state_file}: {error}; `mrclab cleanup` removes it") from error
        state.ending = self.ending_file.exists()
        return state

    def write(self, state: LabState) -> None:
        """Record the state, whole or not at all."""
        document = encode(state)
        del document["record"], document["ending"]
        write_whole(self.state_file, json.dumps(document, indent=1))

    @contextlib.contextmanager
    def exclusive(self) -> Iterator[None]:
        """Let one process at a time change the lab's records."""
        with locked(self.path / "lock"):
            yield

    @contextlib.contextmanager
    def change(self) -> Iterator[LabState]:
        """Read the state, yield it for changes, and record it, one writer at a time."""
        with self.exclusive():
            state = self.read()
            yield state
            self.write(state)

    def socket(self, role: str) -> pathlib.Path:
        """Return the socket of a process of the lab."""
        return self.folder.socket(role)

    def processes(self) -> list[Process]:
        """Return the lab's living processes by role, with their PIDs outside the lab.

        A process that runs several hosts is listed once for each.
        """
        import psutil

        state = self.read()
        if state.first is None or not state.first.alive():
            return []
        roles: dict[int, list[str]] = {}
        for role, pid in state.record.roles.items():
            roles.setdefault(pid, []).append(role)
        found = [state.first]
        for each in psutil.Process(state.first.pid).children(recursive=True):
            with contextlib.suppress(OSError, StopIteration, psutil.Error):
                status = pathlib.Path(f"/proc/{each.pid}/status").read_text(encoding="utf-8").splitlines()
                inner = next(int(line.split()[-1]) for line in status if line.startswith("NSpid:"))
                found += [Process.of(role, each.pid) for role in roles.get(inner, ())]
        return found

    def is_dead(self) -> bool:
        """Return whether no process holds the lab any more: its first process is dead, or does not exist and is not
        being started."""
        if is_locked(self.path / STARTING):
            return False
        try:
            first = self.first()
        except RunError:
            return True
        return first is None or not first.alive()

    def started(self, pid: int) -> None:
        """Record the lab's first process, before it runs anything.

        Raises:
            ProcessLookupError: the process is dead.
        """
        with self.change() as state:
            state.first = Process.of("lab", pid)

    def agents(self) -> dict[Process, list[str]]:
        """Return the living agents' processes, each with the hosts that it runs."""
        found: dict[Process, list[str]] = {}
        hosts = self.read().record.hosts
        for each in self.processes():
            if each.role in hosts:
                one = next((known for known in found if known.pid == each.pid), each)
                found.setdefault(one, []).append(each.role)
        return found

    def deaths(self, first: Process) -> list[ProcessExit]:
        """Return the exits in the lab with this first process, oldest first; the last entry says whether the whole lab
        is dead.

        By now the directory may be gone, or belong to another lab of the same name.
        """
        try:
            state = self.read()
        except (RunError, OSError):
            state = None
        if state is None or state.first != first:
            return [ProcessExit.now("lab", "was ended and removed (`mrclab down` or `cleanup`)")]
        found = list(state.record.deaths)
        if state.ending:
            # The request to end is the cause of all later exits.
            with contextlib.suppress(OSError):
                at = self.ending_file.stat().st_mtime
                told = ProcessExit.then("lab", "was told to end (`mrclab down`)", at)
                return [*(each for each in found if each.at < at and each.role != "labd"), told]
        if not first.alive() and not any(each.role == "labd" for each in found):
            # This message was written before the first process died; a record read before that may lack the newest
            # exits.
            word = self.folder.last_word()
            found.append(
                word or ProcessExit.now("lab", "died without a word: its first process was killed from outside")
            )
        return found

    def frozen(self) -> list[StoppedProcess]:
        """Return the lab's processes that a signal has stopped."""
        import psutil

        try:
            record = self.read().record
            stopped = [each.role for each in self.processes() if each.role not in record.held and frozen(each.pid)]
            return [StoppedProcess(role, record.frozen.get(role)) for role in stopped]
        except (RunError, OSError, psutil.Error):
            return []

    def end(self, grace_s: float = DOWN_S) -> list[str]:
        """Ask the lab to end, and remove it; see `remove`."""
        with contextlib.suppress(OSError):
            self.ending_file.touch()
        return self.remove(grace_s)

    def remove(self, grace_s: float = KILL_AFTER_S) -> list[str]:
        """End all processes and remove the directory; return what had to be ended."""
        ended: list[str] = []
        with contextlib.suppress(RunError):
            first = self.first()
            if first is not None and end_process(first, grace_s):
                ended.append(f"{first.role} (pid {first.pid})")
        shutil.rmtree(self.path, ignore_errors=True)
        return ended


def down(name: str) -> list[str]:
    """End a lab; return the processes and folders that were removed.

    Raises:
        RunError: there is no lab of this name.
    """
    run = RunDir(name)
    if not run.exists():
        run.read()
    return run.end()


@contextlib.contextmanager
def locked(path: pathlib.Path) -> Iterator[IO[str]]:
    """Hold the lock of a file, one process at a time."""
    with path.open("w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield lock


def is_locked(path: pathlib.Path) -> bool:
    """Return whether a process holds the lock of a file."""
    try:
        with path.open(encoding="utf-8") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


def all_runs(folder: pathlib.Path | None = None) -> list[RunDir]:
    """Return every lab that has a run directory in `folder` (None: `base()`).

    Raises:
        RunError: other users can change the folder.
    """
    where = base() if folder is None else folder
    if not check_ours(where):
        return []
    names = sorted(each.name for each in where.iterdir() if NAME.match(each.name) and not each.is_symlink())
    return [RunDir(name, folder) for name in names]


def all_parts() -> list[RunDir]:
    """Return every slice whose coordinator is elsewhere. Raises as `all_runs`."""
    if not check_ours(base()) or not check_ours(base() / PARTS):
        return []
    return [run for each in sorted((base() / PARTS).iterdir()) if each.is_dir() for run in all_runs(each)]


@contextlib.contextmanager
def base_lock() -> Iterator[None]:
    """Let one command at a time create or remove run directories."""
    if not check_ours(base()):
        base().mkdir(parents=True, exist_ok=True, mode=MODE)
        check_ours(base())
    with locked(base() / ".lock"):
        yield


@contextlib.contextmanager
def claimed(state: LabState, roles: Sequence[str], progress: Progress) -> Iterator[RunDir]:
    """Create a lab's run directory with its record, locked while the lab is started; remove it if that fails.

    The remains of a dead lab of that name are removed before.

    Args:
        roles: the roles whose sockets must fit into the directory.

    Raises:
        RunError: the name is in use, or a socket's path would be too long.
        LabDied: another command removed it meanwhile.
    """
    run = RunDir(state.name)
    state.lab_file = str(run.lab_file)
    with contextlib.ExitStack() as stack:
        with base_lock():
            if run.exists() and run.is_dead():
                progress(f"removing what the last run of {run.name} left")
                run.remove()
            for role in roles:
                run.check_socket(role)
            run.create(state.uid, state.gid)
            stack.enter_context(locked(run.path / STARTING))
        try:
            run.write(state)
            yield run
        except FileNotFoundError:
            if run.exists():
                raise
            raise LabDied(f"lab '{run.name}' did not start: it was ended and removed before") from None
        except BaseException:
            _give_up(run)
            raise


def _full(folder: pathlib.Path) -> str:
    """Return the remedy where a folder's disk is full, for the lab itself could not write there why it ended."""
    with contextlib.suppress(OSError):
        if shutil.disk_usage(folder).free < LEAST_FREE:
            return f"; the disk of {folder} is full; set MRCLAB_RUN to a folder elsewhere"
    return ""


def await_up(run: RunDir, progress: Progress) -> list[Process]:
    """Wait until a lab that was started is up, and return its processes (`RunDir.processes`); end a lab that does not
    come up.

    Raises:
        LabDied: the lab died while starting.
        RunError: it takes too long.
    """
    try:
        _await_up(run, progress)
    except BaseException:
        _give_up(run)
        raise
    return run.processes()


def _give_up(run: RunDir) -> None:
    """End a lab that did not come up, unless another command has done so."""
    with contextlib.suppress(RunError):
        if run.exists():
            run.end()


def _await_up(run: RunDir, progress: Progress) -> None:
    seen = 0
    state = run.read()
    first = state.first
    assert first is not None
    # Work on other machines is not visible here; their coordinator checks their progress.
    patience = ProgressTimeout(first.pid, UP_S * (ProgressTimeout.PERIODS if state.machines else 1))
    while True:
        dead = run.is_dead()
        try:
            state = run.read()
        except RunError:
            if run.exists():
                raise
            raise LabDied(f"lab '{run.name}' did not come up: it was ended and removed before") from None
        record = state.record
        if len(record.roles) > seen:
            seen = len(record.roles)
            progress(f"starting: {list(record.roles)[-1]}")
        if record.phase == "up":
            return
        if record.phase == "failed" or state.ending or dead:
            deaths = several(run.deaths(first))
            # If the daemon could not record why it ended, the last line of its log may say so.
            words = last_line(run.log_file)
            told = deaths if words in deaths else "; ".join(filter(None, (deaths, words)))
            reason = record.error or told or "it died"
            raise LabDied(f"lab '{run.name}' did not come up: {reason}{_full(run.folder.path)}")
        if time.monotonic() > patience.ends:
            frozen = "; ".join(each.text() for each in run.frozen())
            if frozen or patience.over():
                raise LabDied(
                    f"lab '{run.name}' did not come up in {patience.ends - patience.began:.0f} s"
                    f"{frozen and f' ({frozen})'}{_log_tails(run, state)}"
                )
        interruption.sleep(0.05)


def _log_tails(run: RunDir, state: LabState) -> str:
    """Return the ends of the logs of the processes started last, because their logs are removed with the lab."""
    said = [(role, last_line(run.folder.log(role))) for role in state.record.roles]
    return "".join(f"; {role}: {words[:WORDS]}" for role, words in [each for each in said if each[1]][-FEW:])


#: The keys of labs, experiments, comparisons and sweeps whose values name code.
KEYS: Final = ("policies", "program")


def names_code(document: object) -> bool:
    """Return whether a document of a lab, experiment, comparison or sweep names a policy or a P4 program."""
    if isinstance(document, Mapping):
        return any(
            (bool(value) and not set(KEYS).isdisjoint(str(key).split("."))) or names_code(value)
            for key, value in document.items()
        )
    return isinstance(document, list) and any(names_code(each) for each in document)


def check(path: Path) -> None:
    """Check that only this user and root can change a file, unless it comes with the project.

    A file of the project is as trustworthy as the running program, wherever that is installed.

    Raises:
        FolderError: another user can change it; the text names the cause and the remedy.
    """
    real = path.resolve()
    if any(real.is_relative_to(shipped(kind).resolve()) for kind in CHECKOUT):
        return
    try:
        check_code_file(path)
    except FileNotFoundError:
        raise FolderError(f"{path}: no such file") from None
    except FolderError as error:
        raise FolderError(f"{error} (it names or holds code that would run as you; docs/security.md)") from None


#: The variable with the name of the lab that commands use if they name none; `mrclab up` prints it.
VARIABLE: Final = "MRCLAB_LAB"
#: The programs that may stand between a shell and a command that it runs.
BETWEEN: Final = frozenset(("sudo", "doas", "su", "pkexec", "env", "time", "timeout", "nice", "mrclab"))


def _identity(pid: int) -> str:
    """Return a text that identifies a process, even if its PID is used again."""
    import psutil

    try:
        return f"{pid} {psutil.Process(pid).create_time():.2f}"
    except psutil.Error:
        return f"{pid} gone"


def here() -> list[str]:
    """Return the identity of this command's shell: its session, and the nearest ancestor that is not a wrapper.

    sudo starts each command in a new session, and the commands of a script share a session, but not a parent.
    """
    import psutil

    found = [f"session {_identity(os.getsid(0))}"]
    with contextlib.suppress(psutil.Error):
        parent = next((each for each in psutil.Process().parents() if each.name() not in BETWEEN), None)
        if parent is not None and parent.pid > 1:
            found.append(f"shell {_identity(parent.pid)}")
    return found


def is_here(shell: list[str]) -> bool:
    """Return whether the result of `here` for another command means this command's shell."""
    return not set(shell).isdisjoint(here())
