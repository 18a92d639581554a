"""Files of connection matrices for workload `flows`: htsim's (`.cm`) and CSV."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from mrc_host.workloads.base import WorkloadError
from mrc_host.workloads.sizes import read_table
from mrc_topo.base.document import DocumentError, printable, read_text
from mrc_topo.units import parse_size_bytes, parse_time_ns

#: Columns of a CSV file; the last may be left out.
COLUMNS = ("source", "target", "bytes", "start")
#: What htsim's lines have after their ends, and a run takes no notice of.
_LABELS = {"id", "msg", "prio"}
_ENDS = re.compile(r"(\d{1,9})->(\d{1,9})\Z")


def read_flows(path: Path) -> list[list[int]]:
    """Return the flows of a file: source and target rank, bytes, start in ns.

    In a CSV file sizes and times may have units (`2MB`, `1ms`). In htsim's format `start` is in microseconds, as the
    simulator of Ultra Ethernet reads it.

    Raises:
        WorkloadError: the file is none of these; the text names the line.
    """
    name = printable(str(path))
    if path.suffix == ".csv":
        flows = [flow(f"{name}:{line}", row) for line, row in read_table(path, COLUMNS, least=3)]
    else:
        try:
            flows = list(_of_htsim(name, read_text(path, str(path)).splitlines()))
        except DocumentError as error:
            raise WorkloadError(str(error)) from error
    if not flows:
        raise WorkloadError(f"{name}:1: there is no flow; {_USAGE}")
    return flows


_USAGE = "give lines `0->13 start 0 size 2000000` (.cm), or a CSV file with the columns " + ", ".join(COLUMNS)


def flow(place: str, row: Sequence[object]) -> list[int]:
    """Return a flow whose size and start may have units. Raises WorkloadError, which names the place."""
    if len(row) not in (3, 4):
        raise WorkloadError(f"{place}: {len(row)} values; a flow is {', '.join(COLUMNS)}")
    try:
        numbers = [int(str(each)) for each in row[:2]]
        return [*numbers, parse_size_bytes(_whole(row[2])), *(parse_time_ns(_whole(each)) for each in row[3:])]
    except ValueError as error:
        raise WorkloadError(f"{place}: {printable(str(error))}; a flow is {', '.join(COLUMNS)}") from None


def _whole(value: object) -> object:
    return int(value) if isinstance(value, str) and re.fullmatch(r"\s*\d+\s*", value) else value


def _of_htsim(name: str, lines: Sequence[str]) -> Iterator[list[int]]:
    for number, line in enumerate(lines, 1):
        words, place = line.split(), f"{name}:{number}"
        if not words or words[0].startswith("#") or words[0] in ("Nodes", "Connections", "Triggers", "Failures"):
            continue
        ends = _ENDS.match(words[0])
        if ends is None:
            raise WorkloadError(f"{place}: {printable(words[0])!r} is no connection; {_USAGE}")
        values = dict(zip(words[1::2], words[2::2], strict=False))
        unknown = [word for word in values if word not in _LABELS | {"start", "size"}]
        if unknown or len(words) % 2 == 0:
            what = printable(unknown[0]) if unknown else "a word without its value"
            raise WorkloadError(f"{place}: {what} is not read; flows begin at a time, not by triggers")
        if not {"start", "size"} <= values.keys():
            raise WorkloadError(f"{place}: start and size are needed; {_USAGE}")
        try:
            start_ns = round(float(values["start"]) * 1000)
        except (ValueError, OverflowError):
            raise WorkloadError(f"{place}: start {printable(values['start'])!r} is no number") from None
        yield [*flow(place, [ends[1], ends[2], values["size"]]), start_ns]
