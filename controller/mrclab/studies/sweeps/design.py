"""The points of a sweep: counted before any is made, then all combinations of grid, cases and hypercube."""

from __future__ import annotations

import itertools
import json
import math
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from mrc_topo.base import document
from mrc_topo.base.document import KeyPath, Model
from mrc_topo.schema import Lab
from mrclab.runs.compare import Comparison
from mrclab.runs.experiment import Experiment, ExperimentError, Tree
from mrclab.studies.sweeps.spec import MAX_RUNS, Hypercube, Source, nearest

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
