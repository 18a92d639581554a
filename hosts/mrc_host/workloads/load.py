"""An open-loop load: flows with sizes from a distribution, that begin whether or not earlier ones have ended.

The load is the payload that flows offer in the mean, as a share of what the links of all hosts together can carry in
one direction. All ranks make the same list of flows from the seed.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import lru_cache
from pathlib import Path
from typing import Any

from mrc_host.workloads.base import Parameters, Surroundings, WorkloadError
from mrc_host.workloads.flow_file import flow, read_flows
from mrc_host.workloads.flows import MAX_FLOWS, Flow, FlowList, Matrix, check_ranks, placed_flows
from mrc_host.workloads.sizes import PUBLISHED, SizeDistribution, checked, read_sizes, read_table
from mrc_topo.base.document import printable
from mrc_topo.units import format_time

_WHERE = "workload load"
#: Columns of a file of pairs.
PAIRS = ("source", "target", "weight")


class Arrivals(StrEnum):
    """When flows begin: at random (exponential gaps), at equal intervals, or `burst` of them at once at random."""

    POISSON = "poisson"
    DETERMINISTIC = "deterministic"
    BURSTY = "bursty"


class Pattern(StrEnum):
    """From where to where flows go."""

    UNIFORM = "uniform"
    PERMUTATION = "permutation"
    INCAST = "incast"
    RACK = "rack"
    HOT = "hot"


@dataclass(frozen=True)
class LoadParameters(Parameters):
    """Parameters of `Load`; those from `host_bps` on come from the lab."""

    load: float = 0.5
    time_ns: int = 10_000_000
    sizes: str | tuple[Any, ...] = "web_search"
    arrivals: str = Arrivals.POISSON.value
    burst: int = 8
    matrix: str | tuple[Any, ...] = Pattern.UNIFORM.value
    fan_in: int = 8
    local: float = 0.5
    hot: float = 0.5
    hot_hosts: int = 1
    all_to_all_bytes: int = 0
    trace: str | tuple[Any, ...] = ""
    seed: int | None = None
    host_bps: int = 0
    racks: Sequence[int] = ()
    length_only: int = 0


#: Returns the pairs of the flows that begin together.
Draw = Callable[[random.Random], list[tuple[int, int]]]


class Load(FlowList[LoadParameters]):
    """Flows arrive for `time_ns` at a `load` of the hosts' links, with `sizes` by name or file; all are awaited.

    `arrivals` and `matrix` are names of `Arrivals` and `Pattern`, or `matrix` has rows [source, target, weight],
    `sizes` rows [bytes, cumulative percentage]. `trace` has flows as workload `flows` has them, whose starts are
    stretched to the load; it replaces all these. `all_to_all_bytes` are written from every rank to every other at the
    begin, beside the load and not counted in it. `iterations` repeats the whole.
    """

    name = "load"
    title = "An open-loop load of flows: arrivals, sizes from published distributions, matrix of sources and targets"
    parameters = LoadParameters

    @classmethod
    def placed(cls, params: Mapping[str, Any], folder: Path) -> dict[str, Any]:
        """Return the parameters with the rows of the files that they name."""
        made = dict(params)
        for key, known, read in (("sizes", set(PUBLISHED), read_sizes), ("matrix", set(Pattern), _read_pairs)):
            if isinstance(made.get(key), str) and made[key] not in known:
                made[key] = [list(row) for row in _read(cls.name, key, made[key], known, folder, read)]
        if isinstance(made.get("trace"), str) and made["trace"]:
            made["trace"] = read_flows(folder / made["trace"])
        return made

    @classmethod
    def fitted(cls, params: Mapping[str, Any], lab: Surroundings) -> dict[str, Any]:
        seed = lab.seed if params.get("seed") is None else params["seed"]
        of_lab = {"host_bps": lab.host_bps, "racks": list(lab.racks), "length_only": int(lab.length_only)}
        return {**of_lab, **params, "seed": seed}

    @classmethod
    def complete(cls, params: object) -> LoadParameters:
        full = super().complete(params)
        for key in ("load", "local", "hot"):
            value = getattr(full, key)
            least = "above 0" if key == "load" else "from 0"
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
                raise WorkloadError(
                    f"{_WHERE}: {key} must be {least} to 1 (100 %), not {value!r:.60}; write 0.5 or 50%"
                )
        if full.load == 0:
            raise WorkloadError(f"{_WHERE}: load is 0, with which no flow arrives; give a share up to 1 (100 %)")
        for key in ("time_ns", "burst", "fan_in", "hot_hosts"):
            cls.whole_number(key, getattr(full, key), 1)
        if full.seed is not None:
            cls.whole_number("seed", full.seed)
        if full.arrivals not in set(Arrivals):
            raise WorkloadError(f"{_WHERE}: arrivals {full.arrivals!r:.60}; known: {', '.join(Arrivals)}")
        sizes, matrix, trace = full.sizes, full.matrix, full.trace
        # A text that is no name is a file's, of an experiment's file before `placed` has read it.
        if not isinstance(sizes, str):
            sizes = checked(((f"{_WHERE}: sizes, row {n}", row) for n, row in enumerate(sizes)), f"{_WHERE}: sizes")
        if not isinstance(matrix, str):
            matrix = tuple(_pair(f"{_WHERE}: matrix, row {number}", row) for number, row in enumerate(matrix))
            if not matrix:
                raise WorkloadError(f"{_WHERE}: matrix is empty; give rows of {', '.join(PAIRS)}")
        if not isinstance(trace, str):
            trace = tuple(tuple(flow(f"{_WHERE}: trace, flow {number}", row)) for number, row in enumerate(trace))
        return replace(full, sizes=sizes, matrix=matrix, trace=trace, racks=tuple(full.racks))

    @classmethod
    def listed(cls, size: int, params: LoadParameters) -> Matrix:
        return _listed(size, params)


def _read(name: str, key: str, text: str, known: set[Any], folder: Path, read: Callable[[Path], Any]) -> Any:
    if not (folder / text).exists():
        names = ", ".join(sorted(known))
        raise WorkloadError(f"workload {name}: {key}: '{printable(text)[:80]}' is no file, nor one of {names}")
    return read(folder / text)


def _read_pairs(path: Path) -> list[list[Any]]:
    """Return the rows of a file of pairs, each with its place in the file. Raises WorkloadError."""
    name = printable(str(path))
    rows = [[*row, f"{name}:{line}"] for line, row in read_table(path, PAIRS)]
    for row in rows:
        _pair(row[3], row)
    if not rows:
        raise WorkloadError(f"{name}:1: there is no pair; give rows of {', '.join(PAIRS)}")
    return rows


def _pair(place: str, row: Any) -> tuple[int, int, float, str]:
    """Return source, target, weight and place of a row, which may have its place. Raises WorkloadError."""
    try:
        source, target, weight = int(str(row[0])), int(str(row[1])), float(row[2])
        place = row[3] if len(row) == 4 else place
    except (TypeError, ValueError, LookupError):
        raise WorkloadError(f"{place}: {row[:3]!r:.60} is not source rank, target rank and weight") from None
    if source == target or source < 0 or target < 0 or not 0 < weight < math.inf:
        raise WorkloadError(f"{place}: a pair has two ranks and a weight above 0, not {(source, target, weight)}")
    return source, target, weight, str(place)


@lru_cache(maxsize=2)
def _listed(size: int, params: LoadParameters) -> Matrix:
    rows = _rows(size, params)
    if params.length_only:
        # Packets have no bytes, so all flows may share them, and a rank's region is no longer than the largest.
        return Matrix(size, [Flow(number, *row, 0) for number, row in enumerate(rows)])
    return Matrix(size, placed_flows(size, tuple(rows)))


def _rows(size: int, params: LoadParameters) -> list[tuple[int, int, int, int]]:
    """Return source, target, bytes and start (ns) of all flows.

    Raises:
        WorkloadError: the matrix does not fit the ranks, a host gets more than its links carry, or too few or too many
            flows arrive.
    """
    if not params.host_bps:
        raise WorkloadError(f"{_WHERE}: host_bps is 0; give the rate of a host's links, of which the load is a share")
    if size < 2:
        raise WorkloadError(f"{_WHERE}: a single rank has nobody to send to; give at least two hosts")
    block = params.all_to_all_bytes
    beside = [(a, b, block, 0) for a, b in itertools.permutations(range(size), 2)] if block else []
    offered_bps = params.load * size * params.host_bps
    if params.trace:
        return beside + _stretched(size, params, offered_bps)
    if isinstance(params.sizes, str) and params.sizes not in PUBLISHED:
        raise WorkloadError(f"{_WHERE}: sizes: no '{params.sizes[:60]}'; known: {', '.join(PUBLISHED)}, or a CSV file")
    rng = random.Random(f"load {params.seed}")
    draw, together = _draw_of(size, params, rng)
    sizes = SizeDistribution(
        PUBLISHED[params.sizes] if isinstance(params.sizes, str) else tuple[Any, ...](params.sizes)
    )
    burst = params.burst if params.arrivals == Arrivals.BURSTY else 1
    gap_ns = 8e9 * sizes.mean_bytes() * together * burst / offered_bps
    if params.time_ns / gap_ns * together * burst > MAX_FLOWS:
        raise WorkloadError(
            f"{_WHERE}: over {MAX_FLOWS} flows arrive in {format_time(params.time_ns)}; give less time or load"
        )
    made = beside
    at_ns = rng.random() * gap_ns if params.arrivals == Arrivals.DETERMINISTIC else rng.expovariate(1) * gap_ns
    while at_ns < params.time_ns:
        for _ in range(burst):
            made += [(source, target, sizes.draw(rng), int(at_ns)) for source, target in draw(rng)]
        at_ns += gap_ns if params.arrivals == Arrivals.DETERMINISTIC else rng.expovariate(1) * gap_ns
    if len(made) == (size * (size - 1) if block else 0):
        time, gap = format_time(params.time_ns), format_time(round(gap_ns))
        raise WorkloadError(f"{_WHERE}: no flow arrives in {time}, one in {gap}; give more time")
    return made


def _stretched(size: int, params: LoadParameters, offered_bps: float) -> list[tuple[int, int, int, int]]:
    """Return a trace's flows with starts at which they offer the load from the first start to the last."""
    flows = [(*row[:3], row[3] if len(row) > 3 else 0) for row in params.trace]
    check_ranks(Load.name, size, flows)
    first, last = min(row[3] for row in flows), max(row[3] for row in flows)
    if first == last:
        raise WorkloadError(f"{_WHERE}: all flows of the trace begin at once; that is no load, but workload flows")
    factor = sum(row[2] for row in flows) * 8e9 / offered_bps / (last - first)
    return [(*row[:3], round((row[3] - first) * factor)) for row in flows]


def _draw_of(size: int, params: LoadParameters, rng: random.Random) -> tuple[Draw, int]:
    """Return how the pairs of flows that begin together are drawn, and how many these are.

    Raises:
        WorkloadError: the matrix does not fit the ranks, or a host gets more than its links carry.
    """
    if params.matrix == Pattern.INCAST:
        if params.fan_in >= size:
            raise WorkloadError(f"{_WHERE}: fan_in is {params.fan_in}, and a target has {size - 1} others; give fewer")

        def incast(rng: random.Random) -> list[tuple[int, int]]:
            target = rng.randrange(size)
            return [(each + (each >= target), target) for each in rng.sample(range(size - 1), params.fan_in)]

        return incast, params.fan_in
    weights = dict(_weights(size, params, rng))
    total = sum(weights.values())
    for end, what in ((0, "sends"), (1, "receives")):
        shares = [0.0] * size
        for pair, weight in weights.items():
            shares[pair[end]] += weight / total
        most = max(shares) * size
        if params.load * most > 1 + 1e-9:
            raise WorkloadError(
                f"{_WHERE}: at load {params.load:.0%} a host {what} {params.load * most:.0%} of what its links carry; "
                f"give a load of {1 / most:.1%} at most, or spread the matrix"
            )
    pairs, reached = list(weights), list(itertools.accumulate(weights.values()))
    return lambda rng: rng.choices(pairs, cum_weights=reached), 1


def _weights(size: int, params: LoadParameters, rng: random.Random) -> Iterator[tuple[tuple[int, int], float]]:
    """Yield pairs of source and target with how often flows go there. Raises WorkloadError."""
    ranks, matrix = range(size), params.matrix
    if not isinstance(matrix, str):
        for source, target, weight, place in matrix:
            if (rank := max(source, target)) >= size:
                raise WorkloadError(f"{place}: there is no rank {rank}; ranks are 0 to {size - 1}, or give more hosts")
            yield (source, target), weight
    elif matrix == Pattern.PERMUTATION:
        order = rng.sample(ranks, size)
        yield from ((pair, 1) for pair in zip(order, [*order[1:], order[0]], strict=True))
    elif matrix in set(Pattern):
        hot = set(rng.sample(ranks, min(params.hot_hosts, size - 1)))
        if matrix == Pattern.RACK and len(params.racks) != size:
            raise WorkloadError(f"{_WHERE}: racks name {len(params.racks)} ranks of {size}; leave them out")
        for rank in ranks:
            others = {each for each in ranks if each != rank}
            near, share = set[int](), 0.0
            if matrix == Pattern.HOT:
                near, share = others & hot, params.hot if others & hot else 0
            elif matrix == Pattern.RACK:
                near, share = {each for each in others if params.racks[each] == params.racks[rank]}, params.local
            for targets, part in ((near, share), (others - near, 1 - share)):
                if part and not targets:
                    inside = "in its rack" if targets is near else "in other racks"
                    raise WorkloadError(f"{_WHERE}: rank {rank} has nobody {inside}; change `local`, or the hosts")
                yield from (((rank, each), part / len(targets)) for each in sorted(targets))
    else:
        raise WorkloadError(f"{_WHERE}: matrix: no '{matrix[:60]}'; known: {', '.join(Pattern)}, or a CSV file")
