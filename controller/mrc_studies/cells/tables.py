"""Tables as files: CSV always, Parquet where pyarrow is."""

from __future__ import annotations

import csv
import importlib.util
import io
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any

from mrc_common.document import csv_cell


class Kind(StrEnum):
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


def parquet_of(columns: Mapping[str, tuple[Kind | None, Any]]) -> bytes:
    """Return a table as Parquet: values by column, with their type; None: as pyarrow takes them (NumPy arrays)."""
    import pyarrow as pa
    import pyarrow.parquet as parquet

    types = {
        None: None,
        Kind.TEXT: pa.string(),
        Kind.WHOLE: pa.int64(),
        Kind.NUMBER: pa.float64(),
        Kind.TRUTH: pa.bool_(),
    }
    arrays = {name: pa.array(values, types[kind]) for name, (kind, values) in columns.items()}
    sink = io.BytesIO()
    parquet.write_table(pa.table(arrays), sink)
    return sink.getvalue()
