"""Time series in columns: whole numbers over time, in chunks that leave memory as soon as they are full.

A chunk is an int64 array of shape (columns, rows), stored as the differences along its rows:
`np.cumsum(chunk, axis=1)` gives it back. Columns are only ever added; a chunk from before a column came has fewer of
them, and zeros are meant. Column 0 is `t_ns`, which never falls.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.int64]

#: A sample: numbers, lists of numbers, and such rows.
Row = Mapping[str, "int | Sequence[int] | Row"]

CHUNK_BYTES = 1 << 20
LEAST_ROWS, MOST_ROWS = 64, 4096
TIME = "t_ns"


class ChunkStore(Protocol):
    """The place where chunks are stored."""

    def put(self, name: str, chunk: npt.NDArray[Any]) -> None:
        """Keep an array under a new name."""

    def get(self, name: str) -> npt.NDArray[Any]:
        """Return an array that was put."""


class MemoryStore:
    """A store that keeps chunks in memory."""

    def __init__(self) -> None:
        self._chunks: dict[str, npt.NDArray[Any]] = {}

    def put(self, name: str, chunk: npt.NDArray[Any]) -> None:
        """See `ChunkStore`."""
        self._chunks[name] = chunk

    def get(self, name: str) -> npt.NDArray[Any]:
        """See `ChunkStore`."""
        return self._chunks[name]


def flat(row: Row, prefix: str = "") -> dict[str, int]:
    """Return a row of nested mappings and lists as columns: `{"cc": {"cwnd": 1}, "tx": [2]}` is `cc.cwnd` and
    `tx.0`.
    """
    found: dict[str, int] = {}
    for key, value in row.items():
        if isinstance(value, Mapping):
            found |= flat(value, f"{prefix}{key}.")
        elif isinstance(value, Sequence):
            found |= {f"{prefix}{key}.{number}": int(each) for number, each in enumerate(value)}
        else:
            found[prefix + key] = int(value)
    return found


def grown(values: Numbers) -> Numbers:
    """Return the growth of a cumulative counter since its first value: where it falls, its process began again at 0."""
    steps = np.diff(values, prepend=values[:1])
    return np.cumsum(np.where(steps < 0, values, steps))


def _fallen(values: Numbers) -> int:
    """Return the sum of the values that a counter fell from."""
    return int(values[:-1][np.diff(values) < 0].sum())


class Series:
    """The series of one element; rows come in by `append` and are read by column and time.

    Args:
        name: what its chunks are stored under, `NAME/000000` and so on.
        store: where full chunks go.
    """

    def __init__(self, name: str, store: ChunkStore) -> None:
        self.name = name
        self.store = store
        self.columns: dict[str, int] = {TIME: 0}
        self.first: dict[str, int] = {}
        self.last: dict[str, int] = {}
        #: By column, the sum of the values that it fell from; None of a series that was read, until it is needed.
        self._fallen: dict[str, int] | None = {}
        self._begins, self._ends, self._rows = array("q"), array("q"), array("q")
        self._open: Numbers = np.empty((1, 0), np.int64)
        self._filled = 0

    @classmethod
    def of(cls, rows: Sequence[Row]) -> Series:
        """Create a series in memory from nested rows (the results format 1)."""
        made = cls("", MemoryStore())
        for row in rows:
            made.append(flat(row))
        return made

    def append(self, row: Mapping[str, int]) -> None:
        """Append one row of `flat`; a column that it lacks is 0.

        Raises:
            OSError: a full chunk could not be stored.
        """
        fresh = [key for key in row if key not in self.columns]
        if fresh:
            self.flush()
            self.columns |= {key: len(self.columns) + number for number, key in enumerate(fresh)}
        if self._filled == self._open.shape[1]:
            self.flush()
        if fresh or not self._open.shape[1]:
            rows = min(max(CHUNK_BYTES // (8 * len(self.columns)), LEAST_ROWS), MOST_ROWS)
            self._open = np.empty((len(self.columns), rows), np.int64)
        self._open[:, self._filled] = [row.get(key, 0) for key in self.columns]
        self._filled += 1
        for name, value in self.last.items():
            if row.get(name, 0) < value and self._fallen is not None:
                self._fallen[name] = self._fallen.get(name, 0) + value
        self.first = self.first or dict(row)
        self.last = dict(row)

    def flush(self) -> None:
        """Store the rows that are in memory only."""
        if not self._filled:
            return
        rows = self._open[:, : self._filled]
        self.store.put(f"{self.name}/{len(self._begins):06d}", np.diff(rows, axis=1, prepend=0))
        for index, value in ((self._begins, rows[0, 0]), (self._ends, rows[0, -1]), (self._rows, self._filled)):
            index.append(int(value))
        self._filled = 0

    def index(self) -> Numbers:
        """Return the first time, last time and number of rows of every stored chunk, in three rows."""
        return np.array([self._begins, self._ends, self._rows], np.int64)

    def falls(self) -> Numbers:
        """Return for each column the sum of the values that it fell from."""
        fallen = self._falls()
        return np.array([fallen.get(name, 0) for name in self.columns], np.int64)

    def restore(self, columns: Sequence[str], index: Numbers, falls: Numbers | None = None) -> None:
        """Load the index of the chunks that are already stored; `falls` is missing in files of earlier versions."""
        self.columns = {name: number for number, name in enumerate(columns)}
        self._fallen = None if falls is None else dict(zip(columns, falls.tolist(), strict=True))
        self._begins, self._ends, self._rows = (array("q", row.tolist()) for row in index)
        if len(self._begins):
            self.first = self._row(self._chunk(0), 0)
            self.last = self._row(self._chunk(len(self._begins) - 1), -1)

    def __len__(self) -> int:
        return sum(self._rows) + self._filled

    def _chunk(self, number: int) -> Numbers:
        if number == len(self._begins):
            return self._open[:, : self._filled]
        stored = self.store.get(f"{self.name}/{number:06d}")
        return np.cumsum(stored, axis=1, dtype=np.int64)

    def _row(self, chunk: Numbers, at: int) -> dict[str, int]:
        values = chunk[:, at].tolist()
        return dict(zip(self.columns, values + [0] * (len(self.columns) - len(values)), strict=True))

    def chunks(self, begin: int | None = None, end: int | None = None) -> Iterator[Numbers]:
        """Yield chunks in order, one in memory at a time; of those within `begin` to `end` (ns), and the row before
        and the one after."""
        count = len(self._begins) + (1 if self._filled else 0)
        low = 0 if begin is None else bisect_left(self._ends, begin)
        high = count if end is None else bisect_right(self._begins, end)
        # A time between two chunks needs both.
        for number in range(max(low - 1, 0), min(high + 1, count)):
            yield self._chunk(number)

    def take(self, names: Sequence[str], begin: int | None = None, end: int | None = None) -> list[Numbers]:
        """Return the values of some columns, from `chunks(begin, end)`.

        Raises:
            KeyError: there is no such column.
        """
        wanted = [self.columns[name] for name in names]
        parts: list[list[Numbers]] = [[] for _ in wanted]
        for chunk in self.chunks(begin, end):
            for part, column in zip(parts, wanted, strict=True):
                part.append(chunk[column].copy() if column < len(chunk) else np.zeros(chunk.shape[1], np.int64))
        return [np.concatenate(part) if part else np.zeros(0, np.int64) for part in parts]

    def rates(self, name: str, start_ns: int, edges: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Return the rate per second of a cumulative counter in the bins between some edges.

        Args:
            edges: seconds after `start_ns`, in order.

        Returns:
            One number per bin; 0 without such a column, or with less than two rows.
        """
        if len(self) < 2 or name not in self.columns:
            return np.zeros(len(edges) - 1)
        begin, end = (start_ns + round(float(each) * 1e9) for each in (edges[0], edges[-1]))
        times, totals = self.take([TIME, name], begin, end)
        return np.diff(np.interp(edges, (times - start_ns) / 1e9, grown(totals))) / np.diff(edges)

    def growth(self, names: Iterable[str]) -> dict[str, int]:
        """Return how much each of some cumulative counters has grown from the first to the last row; 0 of one that
        there is not."""
        fallen = self._falls()
        return {name: self.last.get(name, 0) - self.first.get(name, 0) + fallen.get(name, 0) for name in names}

    def growth_until(self, time_ns: int, names: Iterable[str]) -> dict[str, int]:
        """Return `growth` until the last row at or before a time; 0 before the first row."""
        row, fallen = self.at(time_ns) or self.first, self._falls()
        found = {name: row.get(name, 0) - self.first.get(name, 0) for name in names}
        if fell := [name for name in found if fallen.get(name)]:
            times, *columns = self.take([TIME, *fell], None, time_ns)
            for name, values in zip(fell, columns, strict=True):
                found[name] = int(grown(values[times <= time_ns])[-1]) if times[0] <= time_ns else 0
        return found

    def _falls(self) -> Mapping[str, int]:
        """Return by column what counters fell from, all falls together."""
        if self._fallen is None:
            known = [name for name in self.columns if name != TIME]
            self._fallen = {name: _fallen(values) for name, values in zip(known, self.take(known), strict=True)}
        return self._fallen

    def at(self, time_ns: int) -> dict[str, int] | None:
        """Return the last row at or before a time; None if there is none."""
        number = bisect_right(self._begins, time_ns) - 1
        if self._filled and self._open[0, 0] <= time_ns:
            number = len(self._begins)
        if number < 0:
            return None
        chunk = self._chunk(number)
        return self._row(chunk, int(np.searchsorted(chunk[0], time_ns, side="right")) - 1)
