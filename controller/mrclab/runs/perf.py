"""Collectives over sizes, with the columns of nccl-tests: time, algorithm and bus bandwidth, wrong elements.

Bus bandwidth is what nccl-tests' `doc/PERFORMANCE.md` defines: algorithm bandwidth times what the operation moves over
each rank's link per byte of its size, so that it can be held against the rate of a host's links whatever the number of
ranks. Sizes are in bytes as there: of the whole vector, also where a rank sends or keeps one part of it only.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from mrc_host.workloads import WORKLOADS, WorkloadError
from mrclab.lab.session.base import Session
from mrclab.results.record import RunResult
from mrclab.runs.experiment import ExperimentError
from mrclab.runs.runner import WorkloadRun
from mrclab.runs.workload import WorkloadSpec

FLOAT_BYTES = 4
#: Of a size; more is a slip of the finger.
MOST = 1 << 40
#: A run that moves has no other limit than this (seconds of its clock); one that does not is ended as any other.
LIMIT_S = 1e6
SIZE = re.compile(r"(\d+)([KMGkmg]?)(?:i?[Bb])?")


@dataclass(frozen=True)
class Collective:
    """One operation: the workload that does it, with which parameters for (bytes, ranks); `divided`: a rank's count is
    its part of the size. `factor(ranks)` makes bus of algorithm bandwidth."""

    workload: str
    params: Callable[[int, int], dict[str, int]]
    factor: Callable[[int], float]
    redop: str = "none"
    root: int = -1
    divided: bool = False


def _whole(size: int, ranks: int) -> dict[str, int]:
    return {"size_bytes": size}


def _pieces(size: int, ranks: int) -> dict[str, int]:
    """Choose pieces: enough to keep all links of the chain busy, none hardly larger than its headers."""
    return {"size_bytes": size, "piece_bytes": min(max(-(-size // 16), 1 << 12), 1 << 20)}


def _part(ranks: int) -> float:
    return (ranks - 1) / ranks


def _one(ranks: int) -> float:
    return 1.0


COLLECTIVES = {
    "all_reduce": Collective("ring_all_reduce", _whole, lambda ranks: 2 * _part(ranks), "sum"),
    "all_gather": Collective("all_gather", _whole, _part, divided=True),
    "reduce_scatter": Collective("reduce_scatter", _whole, _part, "sum", divided=True),
    "all_to_all": Collective("all_to_all", lambda size, ranks: {"block_bytes": size // ranks}, _part, divided=True),
    "broadcast": Collective("broadcast", _pieces, _one, root=0),
    "sendrecv": Collective("permutation", lambda size, ranks: {"message_bytes": size}, _one),
}


@dataclass(frozen=True)
class Row:
    """One size: bytes, elements of a rank's part, seconds of an operation (infinite when it failed, with `failure`),
    wrong elements (None: packets had no payload to verify), and why its time is not valid (real clock)."""

    size: int
    count: int
    seconds: float
    wrong: int | None
    failure: str = ""
    doubt: str = ""

    @property
    def algbw(self) -> float:
        """GB/s."""
        return self.size / self.seconds / 1e9


def parse_size(option: str, text: str) -> int:
    """Parse a number of bytes as nccl-tests takes it: 8, 64K, 64M, 1G (of 1024).

    Raises:
        ExperimentError: it is not a size, 0, or beyond `MOST`; names the option.
    """
    found = SIZE.fullmatch(text.strip())
    value = int(found[1]) << {"": 0, "K": 10, "M": 20, "G": 30}[found[2].upper()] if found and len(text) < 20 else 0
    if not 0 < value <= MOST:
        raise ExperimentError(f"{option} is a size like 8, 64K, 16M or 1G, not '{text[:40]}'")
    return value


def sizes(first: int, last: int, factor: float) -> list[int]:
    """Return the sizes from `first` to `last`, each `factor` times as large as the one before.

    Raises:
        ExperimentError: these make none, or no end.
    """
    if last < first:
        raise ExperimentError(f"-e ({last} bytes) is less than -b ({first} bytes)")
    if not 1 < factor <= 1e6:
        raise ExperimentError(f"-f is a factor above 1, not {factor:g}")
    found = [first]
    while (following := max(math.floor(found[-1] * factor), found[-1] + 1)) <= last:
        found.append(following)
    return found


def rounded(collective: Collective, size: int, ranks: int) -> int:
    """Return the largest size, at most this, of whole float32 elements for every rank; 0 where there is none."""
    unit = FLOAT_BYTES * ranks if collective.divided else FLOAT_BYTES
    return size // unit * unit


def plan(name: str, wanted: Sequence[int], ranks: int) -> list[int]:
    """Return the sizes that can be run, each once.

    Raises:
        ExperimentError: none can, or one needs too much memory.
    """
    collective = COLLECTIVES[name]
    found = sorted({rounded(collective, size, ranks) for size in wanted} - {0})
    if not found:
        unit = FLOAT_BYTES * ranks if collective.divided else FLOAT_BYTES
        raise ExperimentError(f"{name} among {ranks} ranks takes {unit} bytes at least; give -e that or more")
    for size in found:
        try:
            kind = WORKLOADS[collective.workload]
            kind.plan(ranks, kind.complete(collective.params(size, ranks)))
        except WorkloadError as error:
            raise ExperimentError(f"{name} of {size} bytes: {error}; give a smaller -e") from error
    return found


def measure(
    session: Session, name: str, todo: Sequence[int], iterations: int, hosts: Sequence[str] | None, qps: int = 1
) -> Iterator[Row]:
    """Run this many operations of each size after one that is not measured; stop behind one that failed."""
    collective = COLLECTIVES[name]
    ranks = len(hosts or session.hosts)
    for size in todo:
        params = {**collective.params(size, ranks), "iterations": iterations + 1}
        named = None if hosts is None else list(hosts)
        spec = WorkloadSpec(collective.workload, params, named, limit_s=LIMIT_S, qps_per_peer=qps)
        row = judged(WorkloadRun(session, spec).go(), size, size // FLOAT_BYTES // (ranks if collective.divided else 1))
        yield row
        if row.failure:
            return


def judged(result: RunResult, size: int, count: int) -> Row:
    """Return the row of a size's run, timed from the last rank's first end to the last rank's last."""
    taking = [each for each in result.progress.values() if each.takes_part]
    wrong = None if result.fidelity.length_only else sum(each.mismatches for each in taking)
    if result.failures or not taking or not all(each.done and each.iterations > 1 for each in taking):
        return Row(size, count, math.inf, wrong, result.failures[0] if result.failures else "it did not end")
    begin, end = max(each.first_ns for each in taking), max(each.finished_ns for each in taking)
    seconds = (end - begin) / 1e9 / (min(each.iterations for each in taking) - 1)
    return Row(size, count, seconds, wrong, "", result.fidelity.doubt)


HEADS = (
    ("size", "count", "type", "redop", "root", "time", "algbw", "busbw", "#wrong"),
    ("(B)", "(elements)", "", "", "", "(us)", "(GB/s)", "(GB/s)", ""),
)
WIDTHS = (12, 12, 8, 8, 6, 12, 10, 10, 8)


def head() -> list[str]:
    """Return the lines above the rows."""
    return ["#" + "".join(f"{cell:>{width}}" for cell, width in zip(line, WIDTHS, strict=True)) for line in HEADS]


def line(name: str, row: Row, ranks: int) -> str:
    """Return a row, as nccl-tests has it; bandwidths with four digits, because labs are slow."""
    collective = COLLECTIVES[name]
    failed = math.isinf(row.seconds)
    algbw = 0.0 if failed else row.algbw
    cells = (
        *(str(row.size), str(row.count), "float", collective.redop, str(collective.root)),
        "failed" if failed else f"{row.seconds * 1e6:.2f}",
        *("-" if failed else f"{each:.4g}" for each in (algbw, algbw * collective.factor(ranks))),
        "N/A" if row.wrong is None else str(row.wrong),
    )
    return " " + "".join(f"{cell:>{width}}" for cell, width in zip(cells, WIDTHS, strict=True))


def document(name: str, row: Row, ranks: int) -> dict[str, float | int | str | None]:
    """Return the same as JSON, which has no infinity."""
    failed = math.isinf(row.seconds)
    collective = COLLECTIVES[name]
    return {
        "size": row.size, "count": row.count, "type": "float", "redop": collective.redop, "root": collective.root,
        "time_us": None if failed else row.seconds * 1e6, "algbw": None if failed else row.algbw,
        "busbw": None if failed else row.algbw * collective.factor(ranks), "wrong": row.wrong,
        "failure": row.failure, "not_valid": row.doubt,
    }  # fmt: skip
