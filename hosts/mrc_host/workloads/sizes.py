"""Distributions of flow sizes for workload `load`: published ones, and those of CSV files."""

from __future__ import annotations

import bisect
import csv
import random
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from mrc_host.workloads.base import WorkloadError
from mrc_topo.base.document import DocumentError, printable, read_text
from mrc_topo.units import parse_size_bytes

COLUMNS = ("size", "share")
Points = tuple[tuple[int, float], ...]

#: By name, points (bytes, percentage of flows of at most so many), as the traffic generator of HPCC (SIGCOMM 2019,
#: github.com/alibaba-edu/High-Precision-Congestion-Control at 9f4be2a9, folder traffic_gen) has them; between points
#: it is linear, as there. `web_search`: queries of the DCTCP paper (SIGCOMM 2010), as HPCC has them; `hadoop`: Facebook
#: (Roy et al., SIGCOMM 2015), as HPCC has it; `ali_storage`: Alibaba's block storage, 2019; `google_rpc`: RPCs of
#: Google before 2008, of whose 843 points those are left without which the share above a size is off by 2 % at most
#: (the mean is 1 % higher).
PUBLISHED: dict[str, Points] = {
    "web_search": (
        (0, 0), (10_000, 15), (20_000, 20), (30_000, 30), (50_000, 40), (80_000, 53), (200_000, 60), (1_000_000, 70),
        (2_000_000, 80), (5_000_000, 90), (10_000_000, 97), (30_000_000, 100),
    ),
    "hadoop": (
        (0, 0), (100, 1), (200, 2), (300, 5), (350, 15), (400, 20), (500, 30), (600, 40), (700, 50), (1000, 60),
        (2000, 67), (7000, 70), (30_000, 72), (50_000, 82), (80_000, 87), (120_000, 90), (300_000, 95),
        (1_000_000, 97.5), (2_000_000, 99), (10_000_000, 100),
    ),
    "ali_storage": (
        (0, 0), (4000, 22.93), (8000, 69.21), (16_000, 80.61), (32_000, 90.47), (64_000, 93.53), (128_000, 96.77),
        (256_000, 97.53), (2_000_000, 100),
    ),
    "google_rpc": (
        (0, 0), (3, 6.48826), (64, 15.5271), (96, 28.6139), (171, 42.4737), (256, 49.7901), (313, 60.2272), (402,
        70.6643), (512, 78.4921), (717, 82.9652), (1024, 86.32), (1418, 88.8568), (2048, 90.8862), (2979, 92.517),
        (4455, 93.9689), (5906, 95.2946), (7936, 96.3362), (10663, 97.3756), (13709, 98.0716), (16699, 98.4909),
        (23156, 98.8033), (32768, 99.0402), (47600, 99.218), (68188, 99.3557), (88033, 99.5235), (112347, 99.6483),
        (135671, 99.7219), (181959, 99.787), (245500, 99.8363), (338464, 99.8924), (419979, 99.9239), (514206,
        99.9478), (586931, 99.9554), (771224, 99.9665), (1008790, 99.9748), (1300034, 99.9808), (1659327, 99.9854),
        (2155839, 99.9892), (2693059, 99.9917), (3363608, 99.9937), (3983524, 99.995), (4672430, 99.996), (5649438,
        99.997), (6309051, 99.9975), (7143054, 99.998), (8231141, 99.9985), (8909743, 99.9987), (9710291, 99.999),
        (10668901, 99.9992), (11837511, 99.9995), (13293619, 99.9997), (15158197, 100),
    ),
}  # fmt: skip


class SizeDistribution:
    """Sizes of flows, in bytes, by points of their cumulative share; between points it is linear.

    Args:
        points: sizes, and the percentage of flows that are at most so large: increasing, up to 100.
    """

    def __init__(self, points: Points) -> None:
        self._sizes = [size for size, _ in points]
        self._shares = [share for _, share in points]

    def mean_bytes(self) -> float:
        """Return the mean size."""
        total, (below, share) = 0.0, (self._sizes[0], 0.0)
        for size, until in zip(self._sizes, self._shares, strict=True):
            total += (below + size) / 2 * (until - share) / 100
            below, share = size, until
        return total

    def draw(self, rng: random.Random) -> int:
        """Return a size of at least one byte."""
        share = rng.random() * 100
        at = bisect.bisect_left(self._shares, share)
        if at == 0:
            return max(self._sizes[0], 1)
        low, high = self._shares[at - 1], self._shares[at]
        below, above = self._sizes[at - 1], self._sizes[at]
        return max(round(below + (above - below) * (share - low) / (high - low)), 1)


def checked(rows: Iterable[tuple[str, Sequence[Any]]], where: str) -> Points:
    """Return the points of rows of a size (which may have a unit) and a cumulative percentage, each with its place.

    Raises:
        WorkloadError: they are no distribution; the text names the place.
    """
    made: list[tuple[int, float]] = []
    for place, row in rows:
        try:
            size, share = row
            bare = isinstance(size, str) and size.strip().isdecimal()
            point = parse_size_bytes(int(size) if bare else size), float(share)
        except (ValueError, TypeError) as error:
            raise WorkloadError(f"{place}: {printable(str(error))[:100]}; give a size and a percentage") from None
        size, share = made[-1] if made else (-1, 0.0)
        if not (point[0] > size and share <= point[1] <= 100):
            raise WorkloadError(f"{place}: {point} after {(size, share)}; sizes must grow, and shares, up to 100 %")
        made.append(point)
    if not made or made[-1][1] != 100 or made[-1][0] < 1:
        end = f"ends at {made[-1][1]:g} %" if made else "is empty"
        raise WorkloadError(f"{where}: the distribution {end}; its last row must be the largest size with 100")
    return tuple(made)


def read_sizes(path: Path) -> Points:
    """Return the points of a CSV file with the columns `size` and `share` (cumulative, in percent).

    Raises:
        WorkloadError: the file has no distribution; the text names file and line.
    """
    name = printable(str(path))
    return checked(((f"{name}:{line}", row) for line, row in read_table(path, COLUMNS)), f"{name}:1")


def read_table(path: Path, columns: Sequence[str], least: int | None = None) -> list[tuple[int, list[str]]]:
    """Return the rows of a CSV file that has these columns, or the first `least` of them, each with its line.

    Raises:
        WorkloadError: it has others, or a row has more or fewer values; the text names the line.
    """
    try:
        reader = csv.reader(read_text(path, str(path)).splitlines())
    except DocumentError as error:
        raise WorkloadError(str(error)) from error
    head = [each.strip() for each in next(reader, [])]
    rows = [(reader.line_num, row) for row in reader if row]
    name, usage = printable(str(path)), f"give a CSV file with the columns {', '.join(columns)}"
    if head not in (list(columns), list(columns[:least])):
        raise WorkloadError(f"{name}:1: the columns are {printable(', '.join(head))!r}; {usage}")
    for line, row in rows:
        if len(row) != len(head):
            raise WorkloadError(f"{name}:{line}: {len(row)} values for {len(head)} columns; {usage}")
    return rows
