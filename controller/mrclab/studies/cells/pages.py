"""Pages and tables of studies, and means over seeds with their confidence intervals."""

from __future__ import annotations

import csv
import importlib.util
import io
import math
import pathlib
import typing
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

from mrc_topo.base import look
from mrc_topo.base.document import csv_cell
from mrc_topo.base.files import write_whole
from mrc_topo.units import digits

if TYPE_CHECKING:
    import jinja2


T = TypeVar("T")
FOLDER = pathlib.Path(__file__).parent / "templates"


def number(value: object) -> str:
    """Return a value as pages show it: a number with four digits, nothing for None, all else as it is."""
    if isinstance(value, float):
        return digits(value)
    return "" if value is None else str(value)


@cache
def _templates() -> jinja2.Environment:
    made = look.environment(FOLDER)
    made.filters["number"] = number
    return made


def fill(template: str, **values: object) -> str:
    """Return a template with values."""
    return _templates().get_template(template).render(values)


def render(template: str, title: str, rules: str, **values: object) -> str:
    """Return a page that opens offline: a template with values, in the frame that all pages have.

    Args:
        rules: of this page alone, as CSS.
    """
    return look.page(title, fill(template, **values), rules=rules)


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
    folder: pathlib.Path, name: str, kind: type[T], rows: Sequence[T], heads: Iterable[str] | None = None
) -> list[str]:
    """Write NAME.csv, and NAME.parquet where that can be; return the files' names.

    Args:
        kind: the class of a row, whose annotations are the types of columns.
        heads: the columns, fields or properties of a row; by default all fields.

    Raises:
        WriteError: one could not be written.
    """
    hints = typing.get_type_hints(kind)
    columns = {head: [getattr(row, head) for row in rows] for head in (hints if heads is None else heads)}
    write_whole(folder / f"{name}.csv", csv_of(columns, zip(*columns.values(), strict=True)))
    if not has_parquet():
        return [f"{name}.csv"]
    types = {head: hints.get(head) or typing.get_type_hints(getattr(kind, head).fget)["return"] for head in columns}
    typed = {head: (_type(types[head]), values) for head, values in columns.items()}
    write_whole(folder / f"{name}.parquet", parquet_of(typed))
    return [f"{name}.csv", f"{name}.parquet"]


def _type(hint: Any) -> ColumnType:
    """Return the type of a column from the annotation of its values, which may be None."""
    kinds = {bool: ColumnType.TRUTH, int: ColumnType.WHOLE, float: ColumnType.NUMBER}
    return next((kinds[part] for part in (hint, *typing.get_args(hint)) if part in kinds), ColumnType.TEXT)


#: Two-sided 95 % quantiles of Student's t distribution for 1 to 30 degrees of freedom.
STUDENT = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228),
    *(2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086),
    *(2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042),
)
NORMAL = 1.95996


def student(degrees: int) -> float:
    """Return the 97.5 % quantile of Student's t; beyond the table by Cornish-Fisher, which is right to 1e-3 there."""
    if degrees <= len(STUDENT):
        return STUDENT[degrees - 1]
    z = NORMAL
    return z + (z**3 + z) / (4 * degrees) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * degrees**2)


def interval(values: Sequence[float]) -> tuple[float | None, float | None]:
    """Return the mean, and half of the width of its 95 % confidence interval; None where there are too few values.

    Student's t: values are taken for independent and about normal.
    """
    if not values:
        return None, None
    mean = math.fsum(values) / len(values)
    if len(values) < 2:
        return mean, None
    variance = math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1)
    return mean, student(len(values) - 1) * math.sqrt(variance / len(values))
