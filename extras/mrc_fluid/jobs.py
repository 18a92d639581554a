"""Jobs as queue pairs: who sends to whom at the same time, and how long a step of a job takes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mrc_fluid.fabric import FabricShape, Floats, Ints
from mrc_fluid.schema import JobSpec


@dataclass(frozen=True)
class Flows:
    """Queue pairs that send at the same time, by the T0 of their sender: NICs `src` and `dst`, the number of their job,
    and the bytes of one step."""

    src: NDArray[np.int32]
    dst: NDArray[np.int32]
    job: NDArray[np.int32]
    bytes: Floats

    def __len__(self) -> int:
        return len(self.src)


def wrong(job: JobSpec, nics: int) -> Iterator[tuple[str, str]]:
    """Yield key and text of what is impossible with this number of NICs."""
    group = job.group or nics
    if nics < 2:
        yield "nics", f"a job of {nics} NICs exchanges nothing; give it at least 2"
    elif group < 2 or nics % group:
        yield "group", f"{nics} NICs cannot be divided into groups of {group}; use a divisor of {nics} from 2 on"
    elif job.kind == "all_to_all" and job.peers >= group:
        yield "peers", f"{job.peers} peers at a time in groups of {group}; lower peers to {group - 1} at most"


def count(specs: Sequence[JobSpec], nics: int) -> int:
    """Return the number of queue pairs of all jobs."""
    taken = sum(job.nics or 0 for job in specs)
    total = 0
    for job in specs:
        own = job.nics or nics - taken
        group = job.group or own
        per_group = {"all_to_all": group * job.peers, "ring": group, "tree": 2 * (group - 1), "incast": group - 1}
        total += own // group * per_group[job.kind]
    return total


def flows(specs: Sequence[JobSpec], shape: FabricShape, seed: int) -> Flows:
    """Return the queue pairs of all jobs, ordered by sender."""
    rng = np.random.default_rng([seed, 1])
    taken = sum(job.nics or 0 for job in specs)
    free = np.arange(shape.nics)
    parts: list[tuple[Ints, Ints, int, float]] = []
    for number, job in enumerate(specs):
        own = job.nics or shape.nics - taken
        here, free = _place(job, free, own, shape, rng)
        src, dst = _pairs(job, here)
        parts.append((src, dst, number, float(job.message)))
    src = np.concatenate([each[0] for each in parts])
    dst = np.concatenate([each[1] for each in parts])
    jobs = np.concatenate([np.full(len(each[0]), each[2]) for each in parts])
    size = np.concatenate([np.full(len(each[0]), each[3]) for each in parts])
    order = np.argsort(src, kind="stable")
    return Flows(src[order].astype(np.int32), dst[order].astype(np.int32), jobs[order].astype(np.int32), size[order])


def _place(job: JobSpec, free: Ints, wanted: int, shape: FabricShape, rng: np.random.Generator) -> tuple[Ints, Ints]:
    """Return the NICs of a job in the order of its ranks, and those that are left."""
    if job.placement == "random":
        chosen = rng.permutation(free)[:wanted]
    elif job.placement == "striped":
        # Slot after slot: neighbouring ranks are below different T0s.
        chosen = free[np.lexsort((free // shape.per_t0, free % shape.per_t0))][:wanted]
    else:
        chosen = free[:wanted]
    return chosen, np.setdiff1d(free, chosen, assume_unique=True)


def _pairs(job: JobSpec, nics: Ints) -> tuple[Ints, Ints]:
    group = job.group or len(nics)
    ranks = nics.reshape(-1, group)
    if job.kind == "ring":
        return ranks.ravel(), np.roll(ranks, -1, axis=1).ravel()
    if job.kind == "incast":
        sender = ranks[:, 1:]
        return sender.ravel(), np.broadcast_to(ranks[:, :1], sender.shape).ravel()
    if job.kind == "tree":
        child = np.arange(1, group)
        low, high = ranks[:, child], ranks[:, (child - 1) // 2]
        return np.concatenate([low.ravel(), high.ravel()]), np.concatenate([high.ravel(), low.ravel()])
    # Of the group - 1 shifts of an all-to-all, those that are under way at one time: spread over the whole group.
    shifts = [1 + number * (group - 1) // job.peers for number in range(job.peers)]
    src = np.concatenate([ranks.ravel() for _ in shifts])
    dst = np.concatenate([np.roll(ranks, -shift, axis=1).ravel() for shift in shifts])
    return src, dst


def step_seconds(job: JobSpec, number: int, every: Flows, rates: Floats, payload: float) -> float:
    """Return how long a step of a job takes at these rates (bits per second): its slowest queue pair's time; inf:
    for ever."""
    mine = every.job == number
    slowest = float(np.min(rates[mine])) if mine.any() else 0.0
    with np.errstate(divide="ignore"):
        return job.compute / 1e9 + (job.message * 8 / (slowest * payload) if slowest > 0 else float("inf"))
