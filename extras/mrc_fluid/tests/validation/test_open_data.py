"""What the suite leaves for reviewers: tables with columns explained, a summary, plots, and a check against them."""

from __future__ import annotations

import dataclasses
import json
import pathlib
import random
import re
from typing import Any

import pytest
import yaml

from mrc_fluid.validation import check, plots, readme, report, summary, variants
from mrc_fluid.validation.check import ComparisonBasis
from mrc_fluid.validation.closed import ClosedForm
from mrc_fluid.validation.differences import Difference, values
from mrc_fluid.validation.outcome import ScenarioOutcome, of_flows
from mrc_fluid.validation.packets import Algorithm
from mrc_fluid.validation.scenario import OF_PACKETS, Backend, Quantity
from mrc_fluid.validation.scenarios import SCENARIOS, by_name
from mrc_fluid.validation.suite import Plan, SuiteResult
from mrc_fluid.validation.variants import VARIANTS, Part
from mrc_topo.base.errors import UsageError
from mrc_topo.shipped import shipped
from mrclab.cli.app import app

POLICIES = shipped("experiments") / "sweeps" / "policies"
SEEDS = (1, 2)


def outcome(name: str, backend: Backend, seed: int) -> ScenarioOutcome:
    """Return an outcome with times drawn at random."""
    flows = by_name()[name].flows(seed)
    rng = random.Random(f"{name}/{backend.value}/{seed}")
    times = [rng.uniform(100.0, 200.0) for _ in flows]
    shares = {} if backend is Backend.FLUID else {quantity: rng.uniform(0.0, 50.0) for quantity in OF_PACKETS}
    return ScenarioOutcome(name, backend, seed, of_flows(flows, times) | shares, times, {})


@pytest.fixture(scope="module")
def suite_result() -> SuiteResult:
    """Return a result of all scenarios, seeds and variants that nothing has run."""
    made = SuiteResult(Plan(SCENARIOS, SEEDS, Algorithm(), None, VARIANTS))
    made.outcomes = [
        outcome(each.name, backend, seed)
        for each in SCENARIOS
        for backend in Backend
        if backend is not Backend.HTSIM or each.htsim
        for seed in SEEDS
    ]
    made.values = values(made.outcomes)
    made.variant_outcomes = [
        (each, outcome(name, Backend.PACKETS, seed))
        for each in VARIANTS
        for name in variants.SCENARIOS[each.part]
        for seed in SEEDS
    ]
    made.variant_values = variants.values(made.variant_outcomes)
    return made


def test_variants_are_all_policies_that_there_are() -> None:
    assert {each.policy.partition(":")[0] for each in VARIANTS if each.policy} == {
        path.name for path in POLICIES.glob("*.py")
    }
    for part in Part:
        assert [each.policy for each in VARIANTS if each.part is part].count("") == 1, "MRC's own is beside them"


def test_one_sweep_has_all_variants() -> None:
    document = yaml.safe_load((POLICIES.parent / "algorithms.yaml").read_text())
    listed = {
        (key.removeprefix("lab.policies."), value.removeprefix("policies/"))
        for case in document["cases"]
        for key, value in case.items()
        if key.startswith("lab.policies.")
    }
    assert listed == {(each.part.value, each.policy) for each in VARIANTS if each.policy}
    assert document["seeds"] == 5


def test_range_of_a_variant_is_of_its_seeds(suite_result: SuiteResult) -> None:
    first = next(each for each in suite_result.variant_values if each.quantity is Quantity.GOODPUT)
    own = [
        each.values[Quantity.GOODPUT]
        for variant, each in suite_result.variant_outcomes
        if variant == first.variant and each.scenario == first.scenario
    ]
    assert (first.low, first.high, first.seeds) == (min(own), max(own), 2)
    assert first.mean == pytest.approx(sum(own) / 2)


def test_every_column_of_every_table_is_explained() -> None:
    rows: dict[str, Any] = {"flows": report.FlowRow, "values": report.ValueRow, "variants": report.VariantRow}
    assert {name: tuple(readme.COLUMNS[name]) for name in rows} == {name: row._fields for name, row in rows.items()}
    for name, kind, more in (("differences", Difference, "beyond"), ("closed-forms", ClosedForm, "holds")):
        assert set(readme.COLUMNS[name]) == {*kind.__annotations__, more}


def test_plots_are_small_the_same_each_time_and_without_colour_alone(suite_result: SuiteResult) -> None:
    pytest.importorskip("matplotlib")
    drawn = plots.all_plots(suite_result)
    assert list(drawn) == ["goodput", "completion", "incast", "sprayers"]
    assert {name: len(text) for name, text in drawn.items() if len(text) >= 66_000} == {}
    assert plots.all_plots(suite_result)["sprayers"] == drawn["sprayers"]
    for styles in (plots.COLOURS, plots.DASHES, plots.MARKERS):
        assert len(set(styles.values())) == len(Backend)


def test_plots_without_values_are_left_out() -> None:
    assert plots.all_plots(SuiteResult(Plan([by_name()["on-off"]], SEEDS, Algorithm()))) == {}


def test_summary_is_read_back_as_it_was_written(suite_result: SuiteResult, tmp_path: pathlib.Path) -> None:
    made = summary.summary(suite_result, "mrclab validate -o FOLDER")
    (tmp_path / summary.SUMMARY).write_text(made.model_dump_json())
    assert summary.read(tmp_path) == made
    assert len(made.runs) == len(suite_result.outcomes)
    text = readme.text(suite_result, made, "mrclab validate -o FOLDER")
    assert made.software.sources in text
    assert f"| Python | {made.software.python} |" in text
    assert "| `completion_us` | from its start until all of it is acknowledged, µs |" in text


@pytest.mark.parametrize(
    ("text", "said"), [(None, "cannot be read"), ("{", "no summary of this version"), ('{"format": 2}', "no summary")]
)
def test_a_folder_without_a_usable_summary_is_refused(text: str | None, said: str, tmp_path: pathlib.Path) -> None:
    if text is not None:
        (tmp_path / summary.SUMMARY).write_text(text)
    with pytest.raises(UsageError, match=said):
        app(["validate", "--check", str(tmp_path)], standalone_mode=False)


def test_the_same_sources_must_give_equal_values(suite_result: SuiteResult) -> None:
    theirs = summary.summary(suite_result, "x")
    assert check.basis(theirs, theirs.software.sources) is ComparisonBasis.RUNS
    assert check.basis(theirs, "other") is ComparisonBasis.MEANS
    first = suite_result.outcomes[0]
    assert all(each.agrees for each in check.compare(theirs, [first], ComparisonBasis.RUNS))
    goodput = first.values[Quantity.GOODPUT]
    changed = dataclasses.replace(first, values=first.values | {Quantity.GOODPUT: goodput * 1.00001})
    bad = [each for each in check.compare(theirs, [changed], ComparisonBasis.RUNS) if not each.agrees]
    assert [(each.quantity, each.seed) for each in bad] == [(Quantity.GOODPUT, 1)]


@pytest.mark.parametrize(("factor", "agrees"), [(1.04, True), (0.96, True), (1.06, False), (0.94, False)])
def test_other_sources_may_move_a_mean_by_the_bound(factor: float, agrees: bool, suite_result: SuiteResult) -> None:
    theirs = summary.summary(suite_result, "x")
    first = suite_result.outcomes[0]
    changed = dataclasses.replace(first, values={Quantity.P99: first.values[Quantity.P99] * factor})
    (found,) = check.compare(theirs, [changed], ComparisonBasis.MEANS)
    assert (found.seed, found.agrees) == (None, agrees)


def test_a_run_that_is_missing_is_said(suite_result: SuiteResult) -> None:
    theirs = summary.summary(suite_result, "x")
    own = [each for each in suite_result.outcomes if each.scenario == "on-off" and each.seed == 1]
    assert check.missing(theirs, own, ["on-off"], [1]) == []
    lines = check.missing(theirs, own, ["on-off"], [1, 2])
    assert lines[0] == "on-off, packets, seed 2: the folder has it, this run has not"
    assert len(lines) == 3


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """Return a folder that the command wrote: one scenario, two seeds."""
    made = tmp_path_factory.mktemp("published")
    app(["validate", "incast-2", "--seeds", "2", "--jobs", "1", "--json", "-o", str(made)], standalone_mode=False)
    return made


def test_a_folder_agrees_with_itself_and_not_with_another_value(
    folder: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["validate", "--check", str(folder), "incast-2", "--seeds", "1", "--jobs", "1", "--json"]
    app(command, standalone_mode=False)
    document = json.loads(capsys.readouterr().out)
    assert document["passed"]
    assert {each["seed"] for each in document["values"]} == {1}
    path = folder / summary.SUMMARY
    text = path.read_text()
    changed = re.sub(r'("FCT P99, us": )([\d.]+)', lambda found: f"{found[1]}{float(found[2]) + 1}", text, count=1)
    assert changed != text
    path.write_text(changed)
    with pytest.raises(SystemExit) as ended:
        app(command, standalone_mode=False)
    assert ended.value.code == 1
    bad = [each for each in json.loads(capsys.readouterr().out)["values"] if not each["agrees"]]
    assert [(each["backend"], each["quantity"]) for each in bad] == [("packets", "FCT P99, us")]
    path.write_text(text)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["incast-4"], "has no scenario 'incast-4'; it has incast-2"),
        (["--policy", "ev={policy}:Reps"], "with the policies that it was made with"),
    ],
)
def test_a_check_of_what_a_folder_has_not_is_refused(words: list[str], said: str, folder: pathlib.Path) -> None:
    given = [word.format(policy=POLICIES / "reps.py") for word in words]
    with pytest.raises(UsageError, match=said):
        app(["validate", "--check", str(folder), *given], standalone_mode=False)
