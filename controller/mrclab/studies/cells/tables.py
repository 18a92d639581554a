"""Tables as files: CSV always, Parquet where pyarrow is."""

from __future__ import annotations

import csv
import importlib.util
import io
import pathlib
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any, NamedTuple

from mrc_topo.base.document import csv_cell
from mrc_topo.base.files import write_whole


class ColumnType(StrEnum):
    """The type of a column."""

    TEXT = "text"
    WHOLE = "whole"
    NUMBER = "number"
    TRUTH = "truth"


def has_parquet() -> bool:
    """Return whether pyarrow is installed."""
    return importlib.util.find_spec("pyarrow") is not None


def csv_of(heads: Iterable[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a table as CSV; None becomes an empty cell."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(heads)
    writer.writerows(["" if value is None else csv_cell(value) for value in row] for row in rows)
    return text.getvalue()


def parquet_of(columns: Mapping[str, tuple[ColumnType | None, Any]]) -> bytes:
    """Return a table as Parquet: values by column, with their type; None: as pyarrow takes them (NumPy arrays)."""
    import pyarrow as pa
    import pyarrow.parquet as parquet

    types = {
        None: None,
        ColumnType.TEXT: pa.string(),
        ColumnType.WHOLE: pa.int64(),
        ColumnType.NUMBER: pa.float64(),
        ColumnType.TRUTH: pa.bool_(),
    }
    arrays = {name: pa.array(values, types[kind]) for name, (kind, values) in columns.items()}
    sink = io.BytesIO()
    parquet.write_table(pa.table(arrays), sink)
    return sink.getvalue()


def write(
    folder: pathlib.Path, name: str, kind: type[NamedTuple], rows: Sequence[NamedTuple], kinds: Mapping[str, ColumnType]
) -> list[str]:
    """Write NAME.csv, and NAME.parquet where that can be; return the files' names.

    Args:
        kind: the class of a row, whose fields are the columns.
        kinds: types of columns that are not text.

    Raises:
        WriteError: one could not be written.
    """
    write_whole(folder / f"{name}.csv", csv_of(kind._fields, rows))
    if not has_parquet():
        return [f"{name}.csv"]
    columns = {head: (kinds.get(head, ColumnType.TEXT), [getattr(row, head) for row in rows]) for head in kind._fields}
    write_whole(folder / f"{name}.parquet", parquet_of(columns))
    return [f"{name}.csv", f"{name}.parquet"]
