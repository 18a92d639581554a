"""Recording of a run to disk as it goes on, so that memory stays flat however long the run is.

`samples.npz` (`numpy.load` reads it) has, for every host (`hosts/NAME`) and for the fabric (`fabric`), the chunks of a
`Series`, the names of its `columns`, and an `index` of its chunks. `events.jsonl.gz` has one JSON object a line.
"""

from __future__ import annotations

import abc
import contextlib
import gzip
import itertools
import json
import os
import pathlib
import tempfile
import zipfile
from array import array
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import IO, Any, Protocol

import numpy as np
import numpy.typing as npt

from mrc_host.answers import Event, EvEvent
from mrc_host.proto.events import EvState
from mrc_topo.base.files import Archive, Bounded, WriteError, open_plain
from mrc_topo.base.plain import encode
from mrclab.results.reading import of_any_version, readable

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


SAMPLES, EVENTS = "samples.npz", "events.jsonl.gz"
#: Of each host, for a live view: half a second at the usual interval.
RECENT = 12
#: Events that are compressed together.
BATCH = 500
#: The most bytes of an array (a chunk of a series has some 1 MiB) and of all events, which are read into memory.
MAX_ARRAY, MAX_EVENTS = 64 << 20, 256 << 20
#: The run has its processor to share: most of the gain for a fraction of the time.
LEVEL = 1


class SpoolFile:
    """A file that is filled bit by bit and appears under its name when it is complete; of no folder, it never does.

    Raises:
        WriteError: it cannot be made.
    """

    def __init__(self, folder: pathlib.Path | None, name: str) -> None:
        self.path = None if folder is None else folder / name
        self._part = None if folder is None else folder / f".{name}.part"
        self.shown = self.path or name
        with self.guarded():
            self.file: IO[bytes] = (
                tempfile.TemporaryFile() if self._part is None else self._part.open("w+b")  # noqa: SIM115
            )

    @contextlib.contextmanager
    def guarded(self) -> Iterator[None]:
        """Name the file in every error of reading or writing it. Raises WriteError."""
        try:
            yield
        except OSError as error:
            raise error if isinstance(error, WriteError) else WriteError(self.shown, error) from error

    def sync(self) -> None:
        """Make sure that all of it is on the disk."""
        with self.guarded():
            self.file.flush()
            os.fsync(self.file.fileno())

    def keep(self) -> None:
        """Give the file its name; it can still be read."""
        with self.guarded():
            if self._part is not None and self.path is not None:
                os.replace(self._part, self.path)
                self._part = None

    def close(self) -> None:
        """Close the file; without `keep` it is gone."""
        with contextlib.suppress(OSError):  # what was not written yet does not fit: it is not wanted either
            self.file.close()
        if self._part is not None:
            with contextlib.suppress(OSError):
                self._part.unlink()


class _Archive(zipfile.ZipFile):
    """One that is collected writes nothing any more: what is not finished then is not wanted, and in a cycle of garbage
    its file may be closed before it."""

    def __del__(self) -> None:
        """Do nothing: the file closes itself."""


class ArrayFile:
    """The arrays of a `.npz` file, written one after another; each can be read at any time."""

    def __init__(self, spool: SpoolFile) -> None:
        self._spool = spool
        self._zip: zipfile.ZipFile = _Archive(spool.file, "w", zipfile.ZIP_DEFLATED, compresslevel=LEVEL)

    def put(self, name: str, chunk: npt.NDArray[Any]) -> None:
        """See `series.ChunkStore`."""
        with self._spool.guarded():
            with self._zip.open(f"{name}.npy", "w") as entry:
                np.lib.format.write_array(entry, np.ascontiguousarray(chunk), allow_pickle=False)
            self._spool.file.flush()

    def get(self, name: str) -> npt.NDArray[Any]:
        """See `series.ChunkStore`."""
        return _read(self._zip, name)

    def finish(self) -> None:
        """Write the directory of the archive."""
        with self._spool.guarded():
            self._zip.close()
            self._spool.file.flush()
        self._zip = zipfile.ZipFile(self._spool.file)

    def abandon(self) -> None:
        """Write nothing any more, not even when it is collected."""
        with contextlib.suppress(OSError, ValueError):
            self._zip.close()


class StoredArrays:
    """The arrays of a `.npz` file of an earlier run."""

    def __init__(self, path: pathlib.Path) -> None:
        self._zip = Archive(path)

    def put(self, name: str, chunk: npt.NDArray[Any]) -> None:
        """Refuse: results that are read are not written. Raises NotImplementedError."""
        raise NotImplementedError("results that are read are not written")

    def get(self, name: str) -> npt.NDArray[Any]:
        """See `series.ChunkStore`. Raises BadZipFile for an array that is too large."""
        with self._zip.member(self._zip.getinfo(f"{name}.npy"), MAX_ARRAY) as entry:
            return _array(entry)

    def hosts(self) -> list[str]:
        """Return the hosts that have a series."""
        parts = (name.split("/") for name in self._zip.namelist())
        return [part[1] for part in parts if part[0] == "hosts" and part[-1] == "columns.npy"]

    def series(self, name: str) -> Series:
        """Return a series, by the name it has in the file."""
        made = Series(name, self)
        falls = self.get(f"{name}/falls") if f"{name}/falls.npy" in self._zip.namelist() else None
        made.restore(self.get(f"{name}/columns").tolist(), self.get(f"{name}/index"), falls)
        return made


def _read(archive: zipfile.ZipFile, name: str) -> npt.NDArray[Any]:
    with archive.open(f"{name}.npy") as entry:
        return _array(entry)


def _array(entry: IO[bytes] | Bounded) -> npt.NDArray[Any]:
    found: npt.NDArray[Any] = np.lib.format.read_array(entry, allow_pickle=False)
    return found


@contextlib.contextmanager
def event_lines(folder: pathlib.Path) -> Iterator[Iterator[bytes]]:
    """Yield the lines of the events of an earlier run. Raises errors of `reading.DAMAGE` about what is in the file."""
    with open_plain(folder / EVENTS) as file, gzip.GzipFile(fileobj=file) as unpacked:
        yield Bounded(unpacked, MAX_EVENTS, EVENTS).lines()


class Events(Mapping[str, Iterator[Event]]):
    """The events of a run by host, oldest first."""

    @abc.abstractmethod
    def between(self, begin: int, end: int, kind: str = "") -> Iterator[tuple[str, Event]]:
        """Yield host and event of all that happened from `begin` to `end` (ns), or only those of a kind."""

    def bad_evs(self, begin: int = -(1 << 63), end: int = 1 << 63) -> Iterator[tuple[str, EvEvent]]:
        """Iterate over host and event of each time that an EV was taken for bad, from `begin` to `end` (ns)."""
        for host, event in self.between(begin, end, "ev"):
            if isinstance(event, EvEvent) and event.new == EvState.ASSUMED_BAD.name:
                yield host, event

    def __getitem__(self, host: str) -> Iterator[Event]:
        if host not in iter(self):
            raise KeyError(host)
        return (event for name, event in self.between(-(1 << 63), 1 << 63) if name == host)


class StoredEvents(Events):
    """The events of an earlier run, in memory."""

    def __init__(self, hosts: Mapping[str, Sequence[Event]]) -> None:
        self._hosts = hosts

    def between(self, begin: int, end: int, kind: str = "") -> Iterator[tuple[str, Event]]:
        """See `Events`."""
        for host, events in self._hosts.items():
            for event in events:
                if begin <= event.t_ns <= end and kind in ("", event.kind):
                    yield host, event

    def __iter__(self) -> Iterator[str]:
        return iter(self._hosts)

    def __len__(self) -> int:
        return len(self._hosts)


class SpooledEvents(Events):
    """The events of a run in progress, on disk; each access reads them again."""

    def __init__(self, spool: SpoolFile) -> None:
        self._spool = spool
        self._hosts: dict[str, None] = {}
        self._waiting: list[tuple[str, Event]] = []
        self._offsets, self._begins, self._ends = array("q"), array("q"), array("q")

    def extend(self, host: str, events: Iterable[Event]) -> None:
        """Add the next events of a host, which is known from then on even without events.

        Raises:
            WriteError: they could not be written.
        """
        self._hosts[host] = None
        self._waiting += ((host, event) for event in events)
        if len(self._waiting) >= BATCH:
            self.flush()

    def flush(self) -> None:
        """Write the events that are in memory only, as one member of the gzip file."""
        if not self._waiting:
            return
        text = "".join(f"{json.dumps({'host': host, **encode(event)})}\n" for host, event in self._waiting)
        times = [event.t_ns for _, event in self._waiting]
        with self._spool.guarded():
            file = self._spool.file
            file.seek(0, os.SEEK_END)
            self._offsets.append(file.tell())
            file.write(gzip.compress(text.encode(), LEVEL, mtime=0))
            file.flush()
        self._begins.append(min(times))
        self._ends.append(max(times))
        self._waiting.clear()

    def between(self, begin: int, end: int, kind: str = "") -> Iterator[tuple[str, Event]]:
        """See `Events`."""
        self.flush()
        file = self._spool.file
        bounds = itertools.pairwise([*self._offsets, file.seek(0, os.SEEK_END)])
        for (offset, after), first, last in zip(bounds, self._begins, self._ends, strict=True):
            if first > end or last < begin:
                continue
            file.seek(offset)
            for line in gzip.decompress(file.read(after - offset)).splitlines():
                row = json.loads(line)
                if begin <= row["t_ns"] <= end and kind in ("", row["kind"]):
                    host = row.pop("host")
                    yield host, event_of(row)

    def __iter__(self) -> Iterator[str]:
        return iter(self._hosts)

    def __len__(self) -> int:
        return len(self._hosts)


class Recording:
    """Samples of hosts and fabric, and events, of one run; a context manager, at whose end it is gone unless kept.

    Args:
        folder: where `keep` puts the files; without one they have no name and last as long as the recording.

    Raises:
        WriteError: the files cannot be made.
    """

    def __init__(self, folder: pathlib.Path | None = None) -> None:
        self.folder = folder
        self._spools = [SpoolFile(folder, SAMPLES)]
        try:
            self._spools.append(SpoolFile(folder, EVENTS))
        except WriteError:
            self._spools[0].close()
            raise
        self._arrays = ArrayFile(self._spools[0])
        self.samples: dict[str, Series] = {}
        self.fabric = Series("fabric", self._arrays)
        self.events = SpooledEvents(self._spools[1])
        #: The latest samples of each host, in columns.
        self.recent: dict[str, deque[Mapping[str, int]]] = {}

    def sample(self, host: str, row: Row) -> None:
        """Add a sample of a host, newer than those before.

        Raises:
            WriteError: the disk is full, say.
        """
        if host not in self.samples:
            self.samples[host] = Series(f"hosts/{host}", self._arrays)
            self.recent[host] = deque(maxlen=RECENT)
        self.samples[host].append(columns := flat(row))
        self.recent[host].append(columns)

    def fabric_sample(self, row: Row) -> None:
        """Add the counters of the fabric; errors as `sample`."""
        self.fabric.append(flat(row))

    def keep(self) -> None:
        """Complete the files and give them their names; they can still be read.

        Raises:
            WriteError: they do not fit; neither is there then.
        """
        for series in (*self.samples.values(), self.fabric):
            series.flush()
            self._arrays.put(f"{series.name}/columns", np.array(list(series.columns)))
            self._arrays.put(f"{series.name}/index", series.index())
            self._arrays.put(f"{series.name}/falls", series.falls())
        self._arrays.finish()
        self.events.flush()
        for spool in self._spools:
            spool.sync()
        for spool in self._spools:
            spool.keep()

    def __enter__(self) -> Recording:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the files; without `keep` they are gone."""
        self._arrays.abandon()
        for spool in self._spools:
            spool.close()


@dataclass(frozen=True)
class StoredRecording:
    """Samples of hosts and fabric, and events, of an earlier run."""

    samples: Mapping[str, Series]
    fabric: Series
    events: StoredEvents
    recent: Mapping[str, deque[Mapping[str, int]]] = field(default_factory=dict)

    @classmethod
    def of(
        cls, samples: Mapping[str, Sequence[Row]], fabric: Sequence[Row], events: Mapping[str, Iterable[object]]
    ) -> StoredRecording:
        """Return a recording of nested rows (results of format 1)."""
        hosts = {name: Series.of(rows) for name, rows in samples.items()}
        known = {host: [event_of(row) for row in rows] for host, rows in events.items()}
        return cls(hosts, Series.of(fabric), StoredEvents(known))

    @classmethod
    def load(cls, folder: pathlib.Path) -> StoredRecording:
        """Return the recording in the folder of an earlier run.

        Raises:
            FolderError: a file is damaged or missing; names the file.
        """
        with readable(folder / SAMPLES):
            arrays = StoredArrays(folder / SAMPLES)
            samples = {name: arrays.series(f"hosts/{name}") for name in arrays.hosts()}
            fabric = arrays.series("fabric")
        events: dict[str, list[Event]] = {}
        with readable(folder / EVENTS), event_lines(folder) as lines:
            for line in lines:
                row = json.loads(line)
                events.setdefault(row.pop("host"), []).append(event_of(row))
        return cls(samples, fabric, StoredEvents(events))


def event_of(row: object) -> Event:
    """Return an event from JSON.

    Raises:
        DecodeError: it is of no known kind, or a value of another type.
    """
    # mypy takes no union for a type.
    return of_any_version(Event, row, "event")  # type: ignore[arg-type]
