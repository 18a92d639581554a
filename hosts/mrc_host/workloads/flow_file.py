"""Files of connection matrices for workload `flows`: htsim's (`.cm`) and CSV."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from mrc_host.workloads.base import WorkloadError
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
    try:
        text = read_text(path, str(path))
    except DocumentError as error:
        raise WorkloadError(str(error)) from error
    rows = _of_csv(text.splitlines()) if path.suffix == ".csv" else _of_htsim(text.splitlines())
    try:
        flows = list(rows)
    except WorkloadError as error:
        raise WorkloadError(f"{printable(str(path))}:{error}") from None
    if not flows:
        raise WorkloadError(f"{printable(str(path))}:1: there is no flow; {_USAGE}")
    return flows


_USAGE = "give lines `0->13 start 0 size 2000000` (.cm), or a CSV file with the columns " + ", ".join(COLUMNS)


def flow(number: int | str, row: Sequence[object]) -> list[int]:
    """Return a flow whose size and start may have units. Raises WorkloadError."""
    if len(row) not in (3, 4):
        raise WorkloadError(f"{number}: {len(row)} values; a flow is {', '.join(COLUMNS)}")
    try:
        numbers = [int(str(each)) for each in row[:2]]
        return [*numbers, parse_size_bytes(_whole(row[2])), *(parse_time_ns(_whole(each)) for each in row[3:])]
    except ValueError as error:
        raise WorkloadError(f"{number}: {printable(str(error))}; a flow is {', '.join(COLUMNS)}") from None


def _whole(value: object) -> object:
    return int(value) if isinstance(value, str) and re.fullmatch(r"\s*\d+\s*", value) else value


def _of_csv(lines: Sequence[str]) -> Iterator[list[int]]:
    rows = csv.reader(lines)
    head = [each.strip() for each in next(rows, [])]
    if head not in (list(COLUMNS), list(COLUMNS[:3])):
        raise WorkloadError(f"1: the columns are {printable(', '.join(head))!r}; give {', '.join(COLUMNS)}")
    for row in rows:
        if row:
            if len(row) != len(head):
                raise WorkloadError(f"{rows.line_num}: {len(row)} values for {len(head)} columns")
            yield flow(rows.line_num, row)


def _of_htsim(lines: Sequence[str]) -> Iterator[list[int]]:
    for number, line in enumerate(lines, 1):
        words = line.split()
        if not words or words[0].startswith("#") or words[0] in ("Nodes", "Connections", "Triggers", "Failures"):
            continue
        ends = _ENDS.match(words[0])
        if ends is None:
            raise WorkloadError(f"{number}: {printable(words[0])!r} is no connection; {_USAGE}")
        values = dict(zip(words[1::2], words[2::2], strict=False))
        unknown = [word for word in values if word not in _LABELS | {"start", "size"}]
        if unknown or len(words) % 2 == 0:
            what = printable(unknown[0]) if unknown else "a word without its value"
            raise WorkloadError(f"{number}: {what} is not read; flows begin at a time, not by triggers")
        if not {"start", "size"} <= values.keys():
            raise WorkloadError(f"{number}: start and size are needed; {_USAGE}")
        try:
            start_ns = round(float(values["start"]) * 1000)
        except (ValueError, OverflowError):
            raise WorkloadError(f"{number}: start {printable(values['start'])!r} is no number") from None
        yield [*flow(number, [ends[1], ends[2], values["size"]]), start_ns]
