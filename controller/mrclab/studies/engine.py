"""The engine of all studies: runs that are not kept yet are done here, by worker processes or by Dask, and kept.

A study has a `Task` for each run, an executor that does them in any order, and a store that keeps answers by the digest
of all that they depend on. `Study` has the rule for what is done again.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import json
import multiprocessing
import os
import pathlib
import secrets
import signal
import sys
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from typing import Any, Generic, TypeVar

from mrc_host.policy import PolicyError
from mrc_topo.base import interruption
from mrc_topo.base.errors import MrclabError, end_with_parent
from mrc_topo.base.files import write_whole
from mrc_topo.base.plain import DecodeError, decode, encode
from mrclab.lab.requested import LimitError
from mrclab.results.reading import FolderError, document_of
from p4lite import scratch
from p4lite.switch.errors import BuildError

T = TypeVar("T")
W = TypeVar("W")
RUNS = "runs"


class StudyCut(MrclabError):
    """The study cannot go on; finished runs are kept, and the same command continues it."""


class RunStatus(StrEnum):
    """The ending of a run.

    `GOOD`: as it should. `FAILED`: its workload failed, which is a result. `ERROR`: it could not be done: no result.
    `DIED`: each worker died that took it, or the machine lacked something. `STRANGER`: of a worker with other sources
    or files than the command's, of which no result may count.
    """

    GOOD = "good"
    FAILED = "failed"
    ERROR = "error"
    DIED = "died"
    STRANGER = "stranger"


@dataclass(frozen=True)
class Answer:
    """The outcome of a run: its ending, and why it is not good, in a line."""

    status: RunStatus
    failure: str

    @property
    def good(self) -> bool:
        """Return whether it is as it should be."""
        return self.status is RunStatus.GOOD


A = TypeVar("A", bound=Answer)


@dataclass(frozen=True)
class Task(Generic[W]):
    """A run to be done.

    Args:
        digest: of all that its answer depends on.
        name: as it is displayed.
        work: what an executor needs to do it.
        cost: seconds of one core that it takes, roughly, or any other measure that all tasks share.
    """

    digest: str
    name: str
    work: W
    cost: float = 1.0


@dataclass(frozen=True)
class Progress:
    """The progress of a study: runs that are done of all, those of them that are not good, seconds that the others may
    take (None: not yet known), and the name of the run that ended last."""

    done: int
    total: int
    bad: int
    left_s: float | None
    name: str = ""

    def __str__(self) -> str:
        bad = f", {self.bad} not good" if self.bad else ""
        left = "" if self.left_s is None else f", about {duration(self.left_s)} left"
        return f"{self.done} of {self.total} runs{bad}{left}{self.name and '; ' + self.name}"


Show = Callable[[Progress], object]


def duration(seconds: float) -> str:
    """Return an estimate as text, in seconds, minutes or hours."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


class DocumentStore(Generic[T]):
    """Documents of type `kind` by digest; the folder is made with the first."""

    def __init__(self, folder: pathlib.Path, kind: type[T]) -> None:
        self.folder = folder / RUNS
        self.kind = kind

    def get(self, digest: str) -> T | None:
        """Return the document that was kept; None if there is none, or it cannot be read."""
        try:
            document = document_of(self.folder / f"{digest}.json")
            if document.pop("digest") != digest:
                return None
            return decode(self.kind, document, lenient=True)
        except (FolderError, KeyError, DecodeError, RecursionError):
            return None

    def put(self, digest: str, value: T) -> None:
        """Keep a document.

        Raises:
            WriteError: it could not be written; what was kept before stays.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        text = json.dumps({"digest": digest, **encode(value)}, sort_keys=True)
        write_whole(self.folder / f"{digest}.json", text + "\n")


#: Yields tasks with their answers, in any order.
Answers = Generator[tuple[Task[W], A], None, None]
Executor = Callable[[Sequence[Task[W]]], Answers[W, A]]


class Study(Generic[W, A]):
    """Runs and their store. `waiting` are to be done, and `bad` are done and not good, by digest.

    What its workers died of, or a machine lacked something for, is done again in any case: next time it may be
    otherwise.

    Args:
        get: of the store: returns the answer with a digest.
        keep: of the store: keeps an answer, unless it says nothing; returns it without what is kept apart.
        again: what was not good is done again, too.
    """

    def __init__(
        self,
        tasks: Iterable[Task[W]],
        get: Callable[[str], A | None],
        keep: Callable[[Task[W], A], A],
        *,
        again: bool = False,
    ) -> None:
        self._keep = keep
        self.bad: dict[str, A] = {}
        self.waiting: list[Task[W]] = []
        unique = {task.digest: task for task in tasks}
        self.total = len(unique)
        for digest, task in unique.items():
            answer = get(digest)
            if answer is None or answer.status is RunStatus.DIED or (again and not answer.good):
                self.waiting.append(task)
            elif not answer.good:
                self.bad[digest] = answer
        # The longest first, or one that is left to the end keeps the other cores waiting.
        self.waiting.sort(key=lambda task: -task.cost)

    def carry_out(self, executor: Executor[W, A], show: Show = lambda progress: None, at_once: int = 1) -> dict[str, A]:
        """Do what is to be done; return by digest all answers that are not good.

        Args:
            at_once: how many tasks are under way at a time, as far as that is known; they count as half done.

        Raises:
            WriteError: an answer could not be kept; those before it were.
            StudyCut: the scheduler is gone, or a worker is another version.
        """
        interruption.check()
        done, left = self.total - len(self.waiting), sum(task.cost for task in self.waiting)
        worth, begin = 0.0, time.monotonic()
        show(Progress(done, self.total, len(self.bad), None if self.waiting else 0.0))
        if not self.waiting:
            return self.bad
        with contextlib.closing(executor(self.waiting)) as answers:
            for number, (task, answer) in enumerate(answers, 1):
                if answer.status is RunStatus.STRANGER:
                    kept = f"{done} of {self.total} runs are kept, the same command goes on"
                    raise StudyCut(f"a worker cannot take part: {answer.failure}; {kept}")
                answer = self._keep(task, answer)
                if not answer.good:
                    self.bad[task.digest] = answer
                done, worth, left = done + 1, worth + task.cost, left - task.cost
                half = sum(each.cost for each in self.waiting[number : number + at_once - 1]) / 2
                left_s = max(left - half, 0.0) * (time.monotonic() - begin) / (worth + half)
                show(Progress(done, self.total, len(self.bad), left_s, task.name))
        return self.bad


def carry_out(tasks: Iterable[Task[W]], executor: Executor[W, A], show: Show, at_once: int = 1) -> list[A]:
    """Do tasks whose answers are not kept in files; return these in the order of the tasks; see `Study.carry_out`."""
    every = list(tasks)
    found: dict[str, A] = {}

    def keep(task: Task[W], answer: A) -> A:
        return found.setdefault(task.digest, answer)

    Study(every, found.get, keep).carry_out(executor, show, at_once)
    return [found[task.digest] for task in every]


#: Of the system's errors, those of a machine that lacks something, which it may have next time.
_SCARCE = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN}


def ending(error: BaseException) -> tuple[RunStatus, str]:
    """Return how a run ended that an error ended, and why in a line."""
    return RunStatus.DIED if _of_the_machine(error) else RunStatus.ERROR, (
        f"{type(error).__name__}: {error}".splitlines()[0][:500]
    )


def _of_the_machine(error: BaseException | None) -> bool:
    """Return whether an error, or one that it came of, is of the machine and not of the run."""
    while error is not None:
        if isinstance(error, (MemoryError, BuildError, LimitError)):
            return True
        if isinstance(error, OSError) and error.errno in _SCARCE:
            return True
        error = error.__cause__ or error.__context__
    return False


def here(perform: Callable[[W], A]) -> Executor[W, A]:
    """Return an executor that does tasks in this process, one after another."""

    def execute(tasks: Sequence[Task[W]]) -> Answers[W, A]:
        for task in tasks:
            answer = perform(task.work)
            # The terminal's signal also ends what a run has started, which is no result of it.
            interruption.check()
            yield task, answer

    return execute


@contextlib.contextmanager
def without_interrupt() -> Iterator[None]:
    """Block Ctrl-C in this thread and in what it starts.

    The terminal sends the signal to all processes, but it is meant for the command, which then ends the others.
    """
    # The start of Python's tracker of shared memory unblocks Ctrl-C, so it comes first.
    resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextlib.contextmanager
def _no_script() -> Iterator[None]:
    """Hide the script of this process from workers that start: they would run it, and what they do is in modules."""
    script = vars(sys.modules["__main__"])
    hidden = {name: script.get(name) for name in ("__spec__", "__file__")}
    script.update(dict.fromkeys(hidden))
    try:
        yield
    finally:
        script.update(hidden)


def _serve(line: Connection, parent: int, perform: Callable[[Any], Any]) -> None:
    """Run as a worker: do what comes until the connection is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    end_with_parent()  # it would finish its run first, which takes minutes
    if os.getppid() != parent:
        return
    while True:
        try:
            work = line.recv()
        except EOFError:
            return
        line.send(perform(work))


class _Worker(Generic[W]):
    """A process and the task that it does."""

    def __init__(self, perform: Callable[[Any], object]) -> None:
        context = multiprocessing.get_context("spawn")
        self.line, theirs = context.Pipe()
        self.process = context.Process(target=_serve, args=(theirs, os.getpid(), perform), daemon=True)
        with without_interrupt(), _no_script():
            self.process.start()
        theirs.close()
        self.at: Task[W] | None = None

    def give(self, task: Task[W], work: object) -> None:
        self.at = task
        with contextlib.suppress(ConnectionError):  # it died between two runs, which the next reading shows
            self.line.send(work)

    def end(self) -> None:
        self.line.close()
        self.process.terminate()
        self.process.join()


def attempt(perform: Callable[[], A], kind: Callable[[RunStatus, str], A]) -> A:
    """Return the answer of a run, or one of this kind that says why there is none. A policy's mistake is no
    `Exception`, so that it ends the run in which it is made; other runs may have other policies."""
    try:
        return perform()
    except (Exception, PolicyError) as error:  # noqa: BLE001
        return kind(*ending(error))


def processes(
    perform: Callable[[Any], A],
    kind: Callable[[RunStatus, str], A],
    jobs: int,
    work: Callable[[W], object] = lambda work: work,
) -> Executor[W, A]:
    """Return an executor that gives tasks to worker processes on this machine.

    Args:
        perform: a function of a module, which the processes import.
        kind: the class of answers, for a run whose process died.
        jobs: how many processes, at most.
        work: returns what `perform` takes of a task's work.
    """

    def execute(tasks: Sequence[Task[W]]) -> Answers[W, A]:
        waiting = iter(tasks)
        workers: list[_Worker[W]] = []
        try:
            for task in itertools.islice(waiting, jobs):
                workers.append(_Worker(perform))
                workers[-1].give(task, work(task.work))
            while busy := {worker.line: worker for worker in workers if worker.at is not None}:
                interruption.check()
                for line in wait(list(busy), interruption.LOOK_S):
                    worker = busy[line]  # type: ignore[index]
                    task, worker.at = worker.at, None  # type: ignore[assignment]
                    try:
                        answer: A = worker.line.recv()
                    except (EOFError, ConnectionError):  # the latter if it had not read all that it was given
                        answer = kind(RunStatus.DIED, "its process died")
                        worker.end()
                        workers[workers.index(worker)] = worker = _Worker(perform)
                    if (following := next(waiting, None)) is not None:
                        worker.give(following, work(following.work))
                    yield task, answer
        finally:
            for worker in workers:
                worker.end()
            # A worker that was ended in a run has not removed its files.
            scratch.remove_abandoned()

    return execute


#: Runs that a scheduler knows at a time: enough to keep its workers busy while others join and leave.
LEAST_AHEAD, AHEAD = 64, 4


def dask(
    client: Any,
    perform: Callable[[object], object],
    plain: Callable[[W], object],
    kind: type[A],
    died: Callable[[str], A],
) -> Executor[W, A]:
    """Return an executor that gives tasks to the workers of a Dask cluster.

    A run whose worker died is done by another; a run that ends several workers died.

    Args:
        perform: does a run; both ways plain data, which a worker of another version can read, too.
        plain: returns a task's work as plain data.
        kind: the class of answers.
        died: the answer of a run that ended several workers, from what Dask says.
    """

    def execute(tasks: Sequence[Task[W]]) -> Answers[W, A]:
        from distributed import as_completed
        from distributed.scheduler import KilledWorker

        waiting = iter(tasks)
        # Of this command alone: a scheduler may serve others, or remember an earlier one.
        mark = secrets.token_hex(4)
        at: dict[str, Task[W]] = {}

        def submit(task: Task[W]) -> Any:
            key = f"mrclab-{mark}-{task.digest}"
            at[key] = task
            return client.submit(perform, plain(task.work), key=key, pure=False)

        ahead = max(LEAST_AHEAD, AHEAD * sum(client.nthreads().values()))
        futures = as_completed([submit(task) for task in itertools.islice(waiting, ahead)], loop=client.loop)
        try:
            for future in _completed(futures):
                task = at.pop(future.key)
                try:
                    answer = decode(kind, future.result(), lenient=True)
                except KilledWorker as error:
                    answer = died(str(error))
                except BaseException as error:
                    if not _lost(client, error):
                        raise
                    kept = "what is done is kept, the same command goes on"
                    raise StudyCut(f"the scheduler is gone ({type(error).__name__}); {kept}") from error
                future.release()
                if (following := next(waiting, None)) is not None:
                    futures.add(submit(following))
                yield task, answer
        finally:
            with contextlib.suppress(Exception):  # of a scheduler that may be gone
                client.cancel(list(futures.futures))

    return execute


def _completed(futures: Any) -> Iterator[Any]:
    """Yield the futures of Dask's `as_completed`, to which more may be added, and look for signals meanwhile."""
    while not futures.is_empty():
        interruption.check()
        if futures.has_ready():
            yield next(futures)
        else:
            interruption.sleep(interruption.LOOK_S / 5)


def _lost(client: Any, error: BaseException) -> bool:
    """Return whether a future ended because the scheduler no longer knows it."""
    from asyncio import CancelledError as Cancelled
    from concurrent.futures import CancelledError

    return isinstance(error, CancelledError | Cancelled | OSError) or client.status != "running"
