"""Experiments and comparisons: whatever is valid stays valid; one thing wrong names its line and key."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mrc_host.workloads import WORKLOADS
from mrc_topo.base.document import Model
from mrclab.lab.faults import kinds
from mrclab.results.expectation import Evidence
from mrclab.runs import compare, experiment
from mrclab.runs.compare import Comparison
from mrclab.runs.experiment import Experiment, ExperimentError, ExperimentStep, Workload
from support.amount import examples
from support.schema_documents import LETTERS, Wrong, check_wrong, documents, dump, same, wrong

#: Below these any key may stand; what they may hold depends on more than the schema.
FREE = {"params", "settings", "impair"}
BROKEN = {"impair": {"loss": 0.1}, "evidence": {"lost": 1}}


@st.composite
def steps(draw: st.DrawFn) -> dict[str, Any]:
    """Of the three kinds of step, each with what it may have."""
    verb = draw(st.sampled_from(["fail", "restore", "flap"]))
    step = {"at": draw(st.integers(0, 100) | st.floats(0, 100)), verb: draw(st.sampled_from(["h3:2", "p0-t1.0"]))}
    if verb != "restore":
        step["evidence"] = draw(documents(Evidence, {}))
    known = {each for each in ExperimentStep.model_fields if each not in ("at", "fail", "restore", "flap", "settings")}
    known -= {"direction"} if verb == "restore" else set()
    values: dict[str, st.SearchStrategy[Any]] = {
        "kind": st.sampled_from(["", *kinds.KINDS]),
        "direction": st.sampled_from(["both", "up", "down"]),
        "loss": st.floats(0, 1) | st.none(),
        "period": st.floats(0.1, 9),
        "count": st.integers(1, 3),
    }
    for key in sorted(draw(st.sets(st.sampled_from(sorted(known & set(values)))))):
        step[key] = draw(values[key])
    return step


#: Parameters without which a workload is refused.
REQUIRED: dict[str, dict[str, Any]] = {"flows": {"flows": [[0, 1, 4096, 0]]}}


@st.composite
def workloads(draw: st.DrawFn) -> dict[str, Any]:
    """One of those that exist."""
    made: dict[str, Any] = {"name": draw(st.sampled_from(sorted(WORKLOADS)))}
    values: dict[str, st.SearchStrategy[Any]] = {
        "params": st.dictionaries(st.just("iterations"), st.integers(1, 100)),
        "hosts": st.none() | st.lists(LETTERS, min_size=1, max_size=3, unique=True),
        "duration": st.none() | st.floats(0.1, 1e6),
        "limit": st.integers(1, 10**6),
        "qps_per_peer": st.integers(1, 64),
        "ev_profile": st.just("few"),
    }
    assert set(values) | {"name", "cc_profile"} == set(Workload.model_fields)
    for key in sorted(draw(st.sets(st.sampled_from(sorted(values))))):
        made[key] = draw(values[key])
    if made["name"] in REQUIRED:
        made["params"] = {**REQUIRED[made["name"]], **made.get("params", {})}
    return made


@st.composite
def comparisons(draw: st.DrawFn) -> dict[str, Any]:
    """Return comparisons whose expectations name variants and conditions that exist."""
    variants = draw(st.lists(LETTERS, min_size=1, max_size=3, unique=True))
    conditions = draw(st.lists(LETTERS, min_size=1, max_size=2, unique=True))
    expect = []
    for _ in range(draw(st.integers(0, 2))):
        each: dict[str, Any] = {"at": draw(st.sampled_from(conditions))}
        if draw(st.booleans()):
            each |= {"faster": draw(st.sampled_from(variants)), "than": draw(st.sampled_from(variants)), "by": 1.5}
        else:
            each |= {"slowdown": draw(st.sampled_from(variants)), draw(st.sampled_from(["at_most", "at_least"])): 2}
        expect.append(each)
    return {
        "name": draw(st.from_regex(r"[a-z][a-z0-9.-]{0,9}", fullmatch=True)),
        "title": draw(LETTERS),
        "workload": draw(workloads()),
        "variants": [{"name": name, "qps_per_peer": draw(st.integers(1, 64))} for name in variants],
        "conditions": [{"name": name, **draw(st.sampled_from([{}, BROKEN]))} for name in conditions],
        "expect": expect,
    }


EXPERIMENTS = documents(Experiment, {"ExperimentStep": steps(), "Workload": workloads()})
KINDS: dict[type[Model], tuple[st.SearchStrategy[Any], str]] = {
    Experiment: (EXPERIMENTS, experiment.EXAMPLE),
    Comparison: (comparisons(), compare.EXAMPLE),
}


@pytest.mark.parametrize("model", KINDS)
@given(data=st.data())
@settings(max_examples=examples(40))
def test_valid_stays_valid(model: type[Model], data: st.DataObject) -> None:
    documents_of, example = KINDS[model]
    document = data.draw(documents_of)
    read = experiment.parse(model, dump(document), "some.yaml", example)
    assert same(read, model.model_validate(document))
    again = experiment.parse(model, dump(read.model_dump(mode="json")), "some.yaml", example)
    assert same(read, again)


@st.composite
def mutants(draw: st.DrawFn, model: type[Model]) -> Wrong:
    return draw(wrong(draw(KINDS[model][0]), FREE))


@pytest.mark.parametrize("model", KINDS)
@given(data=st.data())
@settings(max_examples=examples(80))
def test_one_thing_wrong_is_an_error_that_names_its_place(model: type[Model], data: st.DataObject) -> None:
    case = data.draw(mutants(model))
    with pytest.raises(ExperimentError) as caught:
        experiment.parse(model, case.text, "some.yaml", KINDS[model][1])
    check_wrong(str(caught.value).split("\n"), case, "some.yaml")


WORDS = ["name", "title", "workload", "schedule", "lab", "a", "0", "~", ".inf", "\n", "\n  ", " ", ",", "!!int", "<<"]
MARKS = ["[", "]", "{", "}", ":", "- ", "&a", "*a", "|", ">", "'", '"', "#", "%", "@", "---", "..."]


@given(st.lists(st.sampled_from([*WORDS, *MARKS]) | st.text(max_size=3), max_size=40).map("".join))
@settings(max_examples=examples(200))
def test_any_text_is_an_experiment_or_an_error(text: str) -> None:
    problems: list[str] = []
    try:
        experiment.parse(Experiment, text, "some.yaml", experiment.EXAMPLE)
    except ExperimentError as error:
        problems = str(error).split("\n")
    assert all(line.startswith("some.yaml") and line.isprintable() for line in problems)
