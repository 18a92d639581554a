"""The runs of a sweep, done: what is not there yet, here or by Dask's workers, each kept as soon as it comes."""

from __future__ import annotations

import contextlib
import itertools
import secrets
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from mrc_topo.base import interruption
from mrc_topo.base.errors import MrclabError
from mrc_topo.base.plain import decode, encode
from mrclab.studies.sweeps import measure
from mrclab.studies.sweeps.measure import RunAnswer, RunStatus
from mrclab.studies.sweeps.plan import SweepPlan, SweepRun
from mrclab.studies.sweeps.store import SweepStore

#: Runs that the scheduler knows at a time: enough to keep its workers busy while others join and leave.
LEAST_AHEAD, AHEAD = 64, 4

#: Does runs, in any order.
Answers = Generator[tuple[SweepRun, RunAnswer], None, None]
Executor = Callable[[SweepPlan, Sequence[SweepRun]], Answers]


class SweepCut(MrclabError):
    """The sweep cannot go on; finished runs are kept, and the same command continues it."""


@dataclass(frozen=True)
class SweepProgress:
    """The progress of a sweep.

    It has the runs that are done of all, those of them that are not good, and seconds that the others may take (None:
    not yet known).
    """

    done: int
    total: int
    bad: int
    left_s: float | None


def carry_out(
    store: SweepStore,
    executor: Executor,
    progress: Callable[[SweepProgress], None] = lambda each: None,
    *,
    again: bool = False,
) -> list[tuple[SweepRun, RunAnswer]]:
    """Do the runs of the store's plan that it does not have; return those that are not good, of all.

    Args:
        again: do those again that were not good.

    Raises:
        WriteError: a run could not be kept; those before it were.
        SweepCut: the scheduler is gone, or a worker is another version.
    """
    store.begin()
    waiting, bad = missing(store, again=again)
    total = len(store.plan.runs)
    done = before = total - len(waiting)
    begin = time.monotonic()
    progress(SweepProgress(done, total, len(bad), None if waiting else 0.0))
    with contextlib.closing(executor(store.plan, waiting)) as answers:
        for run, answer in answers:
            if answer.status is RunStatus.STRANGER:
                kept = f"{done} of {total} runs are kept, the same command goes on"
                raise SweepCut(f"a worker cannot take part: {answer.failure}; {kept}")
            store.put(run, answer)
            done += 1
            if not answer.good:
                bad[run.index] = (run, replace(answer, log=None))
            left = (time.monotonic() - begin) / (done - before) * (total - done)
            progress(SweepProgress(done, total, len(bad), left))
    store.finish()
    return [bad[index] for index in sorted(bad)]


def missing(store: SweepStore, *, again: bool = False) -> tuple[list[SweepRun], dict[int, tuple[SweepRun, RunAnswer]]]:
    """Return the runs that are to be done, and by their place those that are done and not good. What its workers died
    of, or a machine lacked something for, is done again in any case: next time it may be otherwise."""
    waiting, bad = [], {}
    for run in store.plan.runs:
        answer = store.get(run)
        if answer is None or answer.status is RunStatus.DIED or (again and not answer.good):
            waiting.append(run)
        elif not answer.good:
            bad[run.index] = (run, answer)
    return waiting, bad


def here(plan: SweepPlan, runs: Sequence[SweepRun]) -> Answers:
    """Do runs in this process, one after another."""
    for run in runs:
        answer = measure.perform(plan.task(run))
        # The terminal's signal also ends what a run has started, which is no result of it.
        interruption.check()
        yield run, answer


def on_dask(client: Any) -> Executor:
    """Return an executor that gives runs to the workers of a Dask cluster.

    A run whose worker died is done by another; a run that ends several workers is an error.
    """

    def execute(plan: SweepPlan, runs: Sequence[SweepRun]) -> Answers:
        from distributed import as_completed
        from distributed.scheduler import KilledWorker

        waiting = iter(runs)
        # Of this command alone: a scheduler may serve others, or remember an earlier one.
        mark = secrets.token_hex(4)
        at: dict[str, SweepRun] = {}

        def submit(run: SweepRun) -> Any:
            key = f"mrclab-{mark}-{run.digest}"
            at[key] = run
            return client.submit(measure.run_in_worker, encode(plan.task(run)), key=key, pure=False)

        ahead = max(LEAST_AHEAD, AHEAD * sum(client.nthreads().values()))
        first = [submit(run) for run in itertools.islice(waiting, ahead)]
        futures = as_completed(first, loop=client.loop)
        try:
            for future in _completed(futures):
                run = at.pop(future.key)
                try:
                    answer = decode(RunAnswer, future.result(), lenient=True)
                except KilledWorker as error:
                    answer = RunAnswer(RunStatus.DIED, "each worker died that took it", [], 0.0, str(error))
                except BaseException as error:
                    if not _lost(client, error):
                        raise
                    kept = "what is done is kept, the same command goes on"
                    raise SweepCut(f"the scheduler is gone ({type(error).__name__}); {kept}") from error
                future.release()
                following = next(waiting, None)
                if following is not None:
                    futures.add(submit(following))
                yield run, answer
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
