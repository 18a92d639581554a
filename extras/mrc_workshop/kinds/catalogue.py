"""All kinds of checks by name: what there is, whether an exercise's check is right, and what it finds."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Mapping, Sequence

from pydantic import ValidationError

from mrc_topo.base.document import dotted, explain
from mrc_workshop.job import Document, Run
from mrc_workshop.kinds import (
    counters,
    load,
    loss,
    policies,
    ports,
    postmortem,
    prediction,
    queues,
    race,
    registry,
    storm,
    usid,
    verdicts,
)
from mrc_workshop.kinds.registry import CheckKind, Finding

#: The modules that register kinds when they are imported.
MODULES = (counters, load, loss, policies, ports, postmortem, prediction, queues, race, storm, usid, verdicts)


def all_kinds() -> dict[str, CheckKind]:
    """Return all kinds by name."""
    return dict(sorted(registry.KINDS.items()))


def problems(name: str, params: Document) -> list[str]:
    """Return what is wrong with a check of an exercise, a line each."""
    known = registry.KINDS
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


def judge(name: str, given: Document, runs: Sequence[Run], sources: Mapping[str, str]) -> Finding:
    """Return the finding of an exercise's check about its runs; `sources`: the learner's files."""
    found = registry.KINDS[name]
    params = found.params.model_validate(given)
    if "sources" in inspect.signature(found.judge).parameters:
        return found.judge(params, runs, sources)
    return found.judge(params, runs)
