"""Specification of a sweep: pydantic models, the file with its lines for errors, and the points."""

from __future__ import annotations

import difflib
import itertools
import json
import math
import pathlib
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import BeforeValidator, Field, ValidationError, field_validator, model_validator

from mrc_topo.base import document
from mrc_topo.base.document import Document, DocumentError, KeyPath, Model
from mrc_topo.schema import Lab
from mrc_topo.units import parse_rate_bps, parse_size_bytes, parse_time_ns
from mrclab.runs.compare import Comparison
from mrclab.runs.experiment import FOLDER, Experiment, ExperimentError, Name, Title, Tree, check_trusted, find_file

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


class SweepSpec(Model):
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

    sweep: SweepSpec
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
    sweep = _validated(SweepSpec, file, file.data, ())
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


#: What the first word of a key stands for.
ROOTS: Mapping[str, type[Model]] = {"lab": Lab, "experiment": Experiment, "comparison": Comparison}
CASE = "name"
#: Values by key, with the places in the sweep file where they stand.
Changes = dict[str, tuple[object, KeyPath]]


@dataclass(frozen=True)
class DesignPoint:
    """The values in which the runs of a point differ from the others, by key, and the case's name."""

    number: int
    case: str
    values: Tree
    #: Where in the sweep file each key stands.
    places: Mapping[str, KeyPath] = field(default_factory=dict)

    def text(self) -> str:
        """Describe the point for errors."""
        shown = [f"{key} {_short(value)}" for key, value in self.values.items()]
        return ", ".join([*([f"case {self.case}"] if self.case else []), *shown]) or "the only point"


def _short(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= 40 else text[:37] + "..."


def labels(values: Sequence[object]) -> list[str]:
    """Return a short text for each of the values that a key has in a sweep.

    Of lists and mappings only what differs between them is in it: `at=0.5, loss=0.1`. A part that another has and this
    one lacks is left out.
    """
    parts = [dict(_leaves(value, ())) for value in values]
    paths = list(dict.fromkeys(path for each in parts for path in each))
    differing = [path for path in paths if len({_scalar(each.get(path)) for each in parts}) > 1]
    names = _names(differing)
    made = []
    for value, each in zip(values, parts, strict=True):
        if not isinstance(value, Mapping | list):
            made.append(_scalar(value))
            continue
        shown = [f"{names[path]}={_scalar(each[path])}" for path in differing if path in each]
        made.append(", ".join(shown) or ("nothing" if not value else "without the others' parts"))
    return made


def _leaves(value: object, path: KeyPath) -> Iterator[tuple[KeyPath, object]]:
    """Yield each part of a value that has no parts, with its place."""
    if not isinstance(value, Mapping | list):
        yield path, value
        return
    for key, each in value.items() if isinstance(value, Mapping) else enumerate(value):
        yield from _leaves(each, (*path, key))


def _names(paths: Sequence[KeyPath]) -> dict[KeyPath, str]:
    """Return the shortest ends of some paths by which they differ, one length for all."""
    for length in range(1, max(map(len, paths), default=0) + 1):
        names = {path: ".".join(map(str, path[-length:])) for path in paths}
        if len(set(names.values())) == len(paths):
            return names
    return {path: ".".join(map(str, path)) for path in paths}


def _scalar(value: object) -> str:
    if value is None:
        return "default"
    return f"{value:g}" if isinstance(value, float) else str(value)


def key_path(key: str) -> KeyPath:
    """Split a key such as `experiment.schedule.0.at` into its path; a number is a place in a list."""
    return tuple(int(part) if part.isdigit() else part for part in key.split("."))


def keys_of(source: Source) -> dict[str, KeyPath]:
    """Return all keys that differ between points, in the order of the file, with their places in it."""
    sweep = source.sweep
    places: dict[str, KeyPath] = {key: ("grid", key) for key in sweep.grid}
    for number, case in enumerate(sweep.cases):
        for key in case:
            if key != CASE:
                places.setdefault(key, ("cases", number, key))
    for key in sweep.hypercube.keys if sweep.hypercube else ():
        places.setdefault(key, ("hypercube", "keys", key))
    return places


def check_keys(source: Source) -> None:
    """Check that each key is one of a lab, an experiment or a comparison, and is changed in one place only.

    Raises:
        ExperimentError: one is not; names the file, the line and the nearest that there is.
    """
    sweep = source.sweep
    roots: dict[str, type[Model]] = {"lab": Lab, sweep.kind: ROOTS[sweep.kind]}
    given: list[tuple[str, KeyPath]] = [(key, ("set", key)) for key in sweep.set]
    given += [(key, ("grid", key)) for key in sweep.grid]
    given += [(key, ("cases", at, key)) for at, case in enumerate(sweep.cases) for key in case if key != CASE]
    given += [(key, ("hypercube", "keys", key)) for key in (sweep.hypercube.keys if sweep.hypercube else ())]
    problems = []
    first: dict[str, str] = {}
    for key, place in given:
        if wrong := _wrong(key, roots, sweep.kind):
            problems.append(str(source.problem(place, wrong)))
        elif first.setdefault(key, str(place[0])) != place[0]:
            problems.append(str(source.problem(place, f"is in {first[key]}, too; leave it in one of them")))
    for at, case in enumerate(sweep.cases):
        if not isinstance(case.get(CASE, ""), str):
            problems.append(str(source.problem(("cases", at, CASE), "a case's name is a text")))
    if problems:
        raise ExperimentError("\n".join(problems[:8]))


def _wrong(key: str, roots: Mapping[str, type[Model]], kind: str) -> str:
    """Return the error of a key; empty if there is none."""
    root, _, rest = key.partition(".")
    if key == "lab.seed":
        return "seeds are given by `seeds`"
    if root not in roots or not rest:
        every = {f"{name}.{each}": name for name, model in roots.items() for each in model.model_fields}
        mine = [name for name in every if name.partition(".")[2] == root]
        if mine:
            return f"unknown key; did you mean '{mine[0]}{'.' + rest if rest else ''}'?"
        return f"unknown key; it begins with {' or '.join(f'`{each}.`' for each in roots)}: {nearest(key, every)}"
    found = document.unknown_key(roots[root], key_path(rest))
    if found is None:
        return ""
    part, what = found
    return what if len(part) == len(key_path(rest)) else f"'{root}.{document.dotted(part)}': {what}"


def count(source: Source) -> int:
    """Return how many runs there are, without making them.

    Raises:
        ExperimentError: more than `MAX_RUNS`.
    """
    sweep = source.sweep
    factors: list[tuple[int, str]] = []
    for key, values in sweep.grid.items():
        many = source.ranges[key].steps if key in source.ranges else len(values)
        factors.append((many, f"{many} of {key}"))
    if sweep.cases:
        factors.append((len(sweep.cases), f"{len(sweep.cases)} cases"))
    if sweep.hypercube:
        factors.append((sweep.hypercube.points, f"{sweep.hypercube.points} points of the hypercube"))
    if sweep.seed_count > 1:
        factors.append((sweep.seed_count, f"{sweep.seed_count} seeds"))
    if sweep.repetitions > 1:
        factors.append((sweep.repetitions, f"{sweep.repetitions} repetitions"))
    total = math.prod(many for many, _ in factors)
    if total > MAX_RUNS:
        place: KeyPath = ("grid",) if sweep.grid else ("hypercube",) if sweep.hypercube else ("seeds",)
        product = " x ".join(text for _, text in factors)
        raise source.problem(
            place,
            f"{total} runs ({product}) are more than the {MAX_RUNS} of one sweep; take fewer values, or a "
            "hypercube of fewer points",
        )
    return total


def points(source: Source) -> list[DesignPoint]:
    """Return all points, in the order of the file: the first key changes slowest.

    Raises:
        ExperimentError: too many, a key that is none, or a value that is there twice.
    """
    check_keys(source)
    count(source)
    sweep = source.sweep
    axes: list[list[tuple[str, Changes]]] = []
    for key, given in sweep.grid.items():
        values = source.ranges[key].values() if key in source.ranges else given
        seen = [json.dumps(value, sort_keys=True) for value in values]
        if twice := next((each for at, each in enumerate(seen) if each in seen[:at]), None):
            raise source.problem(("grid", key), f"has {twice[:60]} twice; take fewer steps or name each once")
        axes.append([("", {key: (value, ("grid", key))}) for value in values])
    if sweep.cases:
        axes.append([_case(number, case) for number, case in enumerate(sweep.cases)])
        names = [name for name, _ in axes[-1]]
        if again := next((name for at, name in enumerate(names) if name in names[:at]), None):
            raise source.problem(("cases",), f"two cases are '{again}'; name each once")
    if sweep.hypercube:
        rows = latin_hypercube(sweep.hypercube)
        axes.append([("", {key: (value, ("hypercube", "keys", key)) for key, value in row.items()}) for row in rows])
    return [_point(number, chosen) for number, chosen in enumerate(itertools.product(*axes))]


def _case(number: int, case: Tree) -> tuple[str, Changes]:
    changes: Changes = {key: (value, ("cases", number, key)) for key, value in case.items() if key != CASE}
    text = ", ".join(f"{key.rpartition('.')[2]} {_short(value)}" for key, (value, _) in changes.items())
    return str(case.get(CASE, text)) or f"case {number + 1}", changes


def _point(number: int, chosen: tuple[tuple[str, Changes], ...]) -> DesignPoint:
    values: dict[str, object] = {}
    places: dict[str, KeyPath] = {}
    for _, changes in chosen:
        for key, (value, place) in changes.items():
            values[key], places[key] = value, place
    return DesignPoint(number, next((name for name, _ in chosen if name), ""), values, places)


def latin_hypercube(cube: Hypercube) -> Iterator[dict[str, int | float]]:
    """Yield the points of the cube, by key.

    `random.random` gives the same numbers for the same seed in all versions of Python, which is not promised of
    `shuffle`, nor of numpy's generators.
    """
    rng = random.Random(cube.seed)
    columns = {}
    for key, span in cube.keys.items():
        order = list(range(cube.points))
        for last in range(cube.points - 1, 0, -1):
            other = int(rng.random() * (last + 1))
            order[last], order[other] = order[other], order[last]
        columns[key] = [span.at((part + rng.random()) / cube.points) for part in order]
    for number in range(cube.points):
        yield {key: column[number] for key, column in columns.items()}


def changed(content: Tree, path: KeyPath, value: object) -> Tree:
    """Return a document with one value otherwise; mappings on the way there are made.

    Raises:
        ValueError: there is no such place in a list, or something on the way holds nothing.
    """
    return _with(content, path, value, ())


def _changed(here: object, path: KeyPath, value: object, done: KeyPath) -> object:
    if not path:
        return value
    if isinstance(here, list):
        part, rest = path[0], path[1:]
        if not isinstance(part, int) or part >= len(here):
            raise ValueError(f"'{document.dotted(done)}' has {len(here)} entries, none is '{part}'")
        return [_changed(each, rest, value, (*done, part)) if at == part else each for at, each in enumerate(here)]
    if here is not None and not isinstance(here, Mapping):
        raise ValueError(f"'{document.dotted(done)}' is {_short(here)}, which has no '{path[0]}'")
    return _with(here or {}, path, value, done)


def _with(here: Tree, path: KeyPath, value: object, done: KeyPath) -> Tree:
    key = str(path[0])
    return {**here, key: _changed(here.get(key), path[1:], value, (*done, path[0]))}
