"""How a kind of check is made and found.

A kind is a function `(params, runs) -> Finding`, or with `sources` as third parameter, which gets the texts of the
learner's files (a written prediction, say). It judges recorded facts only (`job.Run`) and is never in the learner's
process. What it says of a failure names the mistake, and shows the packet or event.
"""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from pydantic import ValidationError

from mrc_control.workshop.job import Run
from mrc_control.workshop.trace import Seen
from mrc_topo.document import Model, dotted, explain


class NoParams(Model):
    """For kinds that take none."""


@dataclass(frozen=True)
class Finding:
    """What a check found. `measured` in a few words; if it failed: `mistake`, what is wrong and probably why;
    `evidence`, decoded lines of what shows it; `packets`, for the small capture; `run`, in which it was."""

    passed: bool
    measured: str
    mistake: str = ""
    evidence: tuple[str, ...] = ()
    packets: tuple[Seen, ...] = ()
    run: Run | None = None
    #: For exercises that are ranked: higher is better.
    score: float | None = None
    details: dict[str, Any] = field(default_factory=dict)


Judge = Callable[..., Finding]
J = TypeVar("J", bound=Judge)


@dataclass(frozen=True)
class Kind:
    """A registered kind: its function, the model of its parameters, and what it is (the function's first line)."""

    name: str
    judge: Judge
    params: type[Model]
    about: str


KINDS: dict[str, Kind] = {}


def kind(params: type[Model]) -> Callable[[J], J]:
    """Registers a function under its name."""

    def register(function: J) -> J:
        name = function.__name__
        about = (inspect.getdoc(function) or "").partition("\n")[0]
        KINDS[name] = Kind(name, function, params, about)
        return function

    return register


def _loaded() -> dict[str, Kind]:
    from mrc_control.workshop import kinds

    assert kinds.MODULES
    return KINDS


def all_kinds() -> dict[str, Kind]:
    """All kinds by name."""
    return dict(sorted(_loaded().items()))


def problems(name: str, params: Mapping[str, Any]) -> list[str]:
    """What is wrong with a check of an exercise, a line each."""
    known = _loaded()
    if name not in known:
        near = difflib.get_close_matches(name, known, 1)
        hint = f"did you mean '{near[0]}'?" if near else f"known: {', '.join(sorted(known))}"
        return [f"kind: no kind of check '{name}'; {hint}"]
    model = known[name].params
    try:
        model.model_validate(params)
    except ValidationError as error:
        return [f"params.{dotted(tuple(each['loc']))}: {explain(model, each)}" for each in error.errors()]
    return []


def judge(name: str, given: Mapping[str, Any], runs: Sequence[Run], sources: Mapping[str, str]) -> Finding:
    """What a check of an exercise finds in the runs that it is about; `sources`: the learner's files."""
    found = _loaded()[name]
    params = found.params.model_validate(given)
    if "sources" in inspect.signature(found.judge).parameters:
        return found.judge(params, runs, sources)
    return found.judge(params, runs)
