"""A figure's numbers as tables: CSV always, Parquet where pyarrow is. `docs/figures.md` has the schema."""

from __future__ import annotations

import csv
import importlib.util
import io
import pathlib
from collections.abc import Sequence
from typing import Any

from mrc_common.document import csv_cell
from mrc_common.files import write_whole
from mrc_studies.figures.model import Judged

POINTS = ("figure", "run", "series", "x", "x_is", "y", "y_is")
CHECKS = ("figure", "kind", "run", "what", "expected", "measured", "low", "high", "passed")


def points(judged: Judged) -> list[tuple[Any, ...]]:
    """Rows of `POINTS`."""
    if len(judged.results) < len(judged.cells):
        return []
    figure, axes = judged.figure, judged.figure.axes
    return [
        (figure.name, each.cell, each.series, round(each.x, 6), axes.x, round(each.y, 6), axes.y)
        for each in figure.points(judged.results)
    ]


def checks(judged: Judged) -> list[tuple[Any, ...]]:
    """Rows of `CHECKS`."""
    name = judged.figure.name
    rows: list[tuple[Any, ...]] = [
        (name, "evidence", run, each["what"], each["expected"], each["measured"], None, None, each["passed"])
        for run, each in judged.evidence
    ]
    for each in judged.measures:
        expected = f"{each.low:.3g} to {each.high:.3g}"
        rows.append((name, "headline", "", each.what, expected, f"{each.value:.6g}", each.low, each.high, each.passed))
    rows += [(name, "failure", "", text, "none", "", None, None, False) for text in judged.failures]
    return rows


def has_parquet() -> bool:
    """Whether pyarrow is installed."""
    return importlib.util.find_spec("pyarrow") is not None


def write(folder: pathlib.Path, name: str, heads: Sequence[str], rows: Sequence[Sequence[Any]]) -> list[str]:
    """Writes NAME.csv, and NAME.parquet where that can be; returns the files' names.

    Raises:
        WriteError: one could not be written.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(heads)
    writer.writerows(["" if value is None else csv_cell(value) for value in row] for row in rows)
    write_whole(folder / f"{name}.csv", text.getvalue())
    made = [f"{name}.csv"]
    if has_parquet():
        write_whole(folder / f"{name}.parquet", _parquet(heads, rows))
        made.append(f"{name}.parquet")
    return made


def _parquet(heads: Sequence[str], rows: Sequence[Sequence[Any]]) -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as parquet

    types = {"x": pa.float64(), "y": pa.float64(), "low": pa.float64(), "high": pa.float64(), "passed": pa.bool_()}
    schema = pa.schema([(head, types.get(head, pa.string())) for head in heads])
    table = pa.Table.from_pylist([dict(zip(heads, row, strict=True)) for row in rows], schema)
    sink = io.BytesIO()
    parquet.write_table(table, sink)
    return sink.getvalue()
