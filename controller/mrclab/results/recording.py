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
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from mrc_host.answers import Event, EvEvent
from mrc_host.proto.events import EvState
from mrc_topo.base.archive import Archive
from mrc_topo.base.files import Bounded, WriteError, open_plain
from mrc_topo.base.plain import encode
from mrclab.results.reading import of_any_version, readable
from mrclab.results.series import Row, Series, flat

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
