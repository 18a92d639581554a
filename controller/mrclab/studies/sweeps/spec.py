"""Specification of a sweep: pydantic models, and the file with its lines for errors."""

from __future__ import annotations

import difflib
import pathlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import BeforeValidator, Field, ValidationError, field_validator, model_validator

from mrc_topo.base import document
from mrc_topo.base.document import Document, DocumentError, KeyPath, Model
from mrc_topo.units import parse_rate_bps, parse_size_bytes, parse_time_ns
from mrclab.runs.experiment import FOLDER, ExperimentError, Name, Title, check_trusted, find_file

EXAMPLE = (
    "a sweep is a mapping with name, title, experiment or comparison, and grid, cases or hypercube; see docs/sweeps.md"
)

#: More runs than this are a slip of the finger: no cluster that these runs are made for ends them in a day.
MAX_RUNS = 100_000
MAX_SEED = 2**63 - 1

M = TypeVar("M", bound=Model)


def quantity(value: Any) -> Any:
    """Return a number; also of a size, rate or time with its unit, in bytes, bits per second and nanoseconds. Anything
    else is returned as it is."""
    if isinstance(value, str):
        for parse in (parse_size_bytes, parse_rate_bps, parse_time_ns):
            try:
                return parse(value)
            except ValueError:
                continue
    return value


Quantity = Annotated[int | float, BeforeValidator(quantity)]


class Span(Model):
    """From `low` to `high`; both whole make whole numbers, `multiple_of` those that it divides."""

    low: Quantity
    high: Quantity
    scale: Literal["linear", "log"] = "linear"
    multiple_of: Annotated[int, Field(ge=1)] | None = None

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if not self.low < self.high:
            raise ValueError(f"low ({self.low}) must be below high ({self.high})")
        if self.scale == "log" and self.low <= 0:
            raise ValueError(f"low ({self.low}) must be above 0 on a scale `log`")
        if self.multiple_of is not None and not self.whole:
            raise ValueError("multiple_of is of whole numbers; write low and high as such")
        return self

    @property
    def whole(self) -> bool:
        """Return whether its values are whole numbers."""
        return isinstance(self.low, int) and isinstance(self.high, int)

    def at(self, share: float) -> int | float:
        """Return the value that lies at this share (0 to 1) of the way."""
        low, high = float(self.low), float(self.high)
        value = low * (high / low) ** share if self.scale == "log" else low + (high - low) * share
        if not self.whole:
            return float(f"{value:.12g}")  # the same text on every machine, whatever its pow() does in the last bit
        step = self.multiple_of or 1
        least, most = -(-int(self.low) // step) * step, int(self.high) // step * step
        return min(max(round(value / step) * step, least), most)


class Range(Span):
    """A number of values of a grid, both ends among them."""

    steps: Annotated[int, Field(ge=2, le=10**9)]

    def values(self) -> list[int | float]:
        """Return all of them."""
        return [self.at(number / (self.steps - 1)) for number in range(self.steps)]


class Hypercube(Model):
    """A Latin hypercube: of each key's span every one of `points` equal parts is met once. `seed` chooses which parts
    meet."""

    points: Annotated[int, Field(ge=1, le=10**9)]
    seed: Annotated[int, Field(ge=0, le=MAX_SEED)] = 1
    keys: Annotated[dict[str, Span], Field(min_length=1)]


class PlotSpec(Model):
    """A chart of the report: the mean of measure `y` with its confidence interval over `x`, a curve for each value of
    the keys `by` (all other keys of the sweep if left out), of the rows that are as `where` says."""

    y: str
    x: str | None = None
    by: list[str] | None = None
    where: dict[str, str | int | float | bool | None] = {}
    scale: Literal["linear", "log"] = "linear"
    title: Annotated[str, Field(max_length=200)] = ""


class Sweep(Model):
    """A sweep of one experiment or one comparison: a name, a file beside this one, or its whole text.

    `lab` is instead of the one that it names. `set` changes keys for all runs, written as `lab.ev.active` or
    `experiment.workload.params.size_bytes`. `grid` has for each key its values, or a span with `steps`; `cases` is a
    list of changes that belong together, each with a `name` if you like; `hypercube` samples spans. What is given of
    the three is combined with each other, and every point runs with all `seeds` (a number of them from 1, or a list),
    `repetitions` times. `may_fail`: a run that fails is a result, not a fault of the sweep.
    """

    name: Name
    title: Title
    experiment: str | dict[str, Any] | None = None
    comparison: str | dict[str, Any] | None = None
    lab: str | dict[str, Any] | None = None
    set: dict[str, Any] = {}
    grid: dict[str, Any] = {}
    cases: Annotated[list[dict[str, Any]], Field(max_length=MAX_RUNS)] = []
    hypercube: Hypercube | None = None
    seeds: int | list[int] = 1
    repetitions: Annotated[int, Field(ge=1, le=10**9)] = 1
    may_fail: bool = False
    plots: Annotated[list[PlotSpec], Field(max_length=64)] = []

    @field_validator("experiment", "comparison", "lab", mode="before")
    @classmethod
    def _named(cls, value: Any) -> Any:
        if value is not None and not isinstance(value, str | dict):
            raise ValueError("a name, a file or a mapping belongs here")
        return value

    @field_validator("seeds", mode="before")
    @classmethod
    def _seeds(cls, value: Any) -> Any:
        several = value if isinstance(value, list) else [value]
        if not several or any(not isinstance(each, int) or isinstance(each, bool) for each in several):
            raise ValueError("must be a number of seeds (5: seeds 1 to 5) or a list of seeds ([7, 11])")
        if any(not 0 <= each <= MAX_SEED for each in several) or value == 0:
            raise ValueError(f"a seed is from 0 to {MAX_SEED}, and there is one at least")
        if len(set(several)) < len(several):
            raise ValueError("a seed is given twice; name each once")
        return value

    @model_validator(mode="after")
    def _one(self) -> Self:
        if (self.experiment is None) == (self.comparison is None):
            raise ValueError("a sweep has exactly one of experiment and comparison")
        # A comparison has variants; and several seeds or repetitions show how much results vary.
        alone = self.comparison is None and self.seed_count == self.repetitions == 1
        if alone and not self.grid and not self.cases and self.hypercube is None:
            raise ValueError("nothing is swept: give grid, cases, hypercube, or several seeds")
        return self

    @property
    def kind(self) -> Literal["experiment", "comparison"]:
        """What is run."""
        return "experiment" if self.comparison is None else "comparison"

    @property
    def seed_count(self) -> int:
        """How many seeds there are."""
        return self.seeds if isinstance(self.seeds, int) else len(self.seeds)

    @property
    def seed_list(self) -> list[int]:
        """All of them."""
        return list(range(1, self.seeds + 1)) if isinstance(self.seeds, int) else list(self.seeds)


@dataclass(frozen=True)
class Source:
    """A sweep with the file that it was read from; `ranges`: the grid's entries that are no lists, by key."""

    sweep: Sweep
    file: Document
    ranges: Mapping[str, Range]

    @property
    def folder(self) -> pathlib.Path:
        """Where files that it names may lie."""
        return pathlib.Path(self.file.name).absolute().parent

    def problem(self, path: KeyPath, message: str) -> ExperimentError:
        """Return an error about a key of the file, to be raised."""
        return ExperimentError(self.file.problem(path, message, "sweep"))


def known_sweeps() -> dict[str, pathlib.Path]:
    """Return the sweeps that come with the project, by name."""
    return {path.stem: path for path in sorted(FOLDER.glob("sweeps/*.yaml"))}


def load_sweep(name_or_path: str) -> Source:
    """Read a sweep by name or path.

    Raises:
        ExperimentError: there is no sweep of that name, or the file is not one; names file, line, key and remedy.
    """
    path = find_file(name_or_path, known_sweeps(), "sweep.yaml", "sweep")
    try:
        source = parse_sweep(document.read_text(path, str(path)), str(path))
        check_trusted(path, source.file.data)
        return source
    except DocumentError as error:
        raise ExperimentError(str(error)) from error


def parse_sweep(text: str, name: str) -> Source:
    """Return the sweep in YAML text; see `load_sweep`."""
    try:
        file = document.parse(text, name, EXAMPLE)
    except DocumentError as error:
        raise ExperimentError(str(error)) from error
    return source_of(file)


def source_of(file: Document) -> Source:
    """Return the sweep in a document; see `load_sweep`."""
    sweep = _validated(Sweep, file, file.data, ())
    ranges = {}
    for key, values in sweep.grid.items():
        if isinstance(values, dict):
            ranges[key] = _validated(Range, file, values, ("grid", key))
        elif not isinstance(values, list) or not values:
            raise ExperimentError(
                file.problem(("grid", key), "a list of values, or {low: , high: , steps: }, is needed")
            )
    return Source(sweep, file, ranges)


def _validated(model: type[M], file: Document, data: Any, path: KeyPath) -> M:
    try:
        return model.model_validate(data)
    except ValidationError as error:
        lines = [
            file.problem((*path, *each["loc"]), document.explain(model, each), "sweep") for each in error.errors()[:8]
        ]
        raise ExperimentError("\n".join(lines)) from error


def nearest(word: str, known: Iterable[str], show: Callable[[str], str] = str) -> str:
    """Return `did you mean 'x'?`, or what there is."""
    near = difflib.get_close_matches(word, list(known), 1)
    return f"did you mean '{show(near[0])}'?" if near else f"there is: {', '.join(known)}"
