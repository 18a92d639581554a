"""Quantities with units in experiments and comparisons; settings that a failure does not take, with their line."""

from __future__ import annotations

import decimal
import math
import pathlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mrc_topo.units import parse_share, with_quantities
from mrclab.runs import compare, experiment
from mrclab.runs.compare import Comparison
from mrclab.runs.experiment import Experiment, ExperimentError, load_experiment

WITH_UNITS = """\
name: own
title: a link loses packets
lab: tiny
workload: {name: incast, params: {message_bytes: 64KiB}, duration: 900ms, limit: 1s}
schedule:
  - {at: 20ms, fail: h0:0, kind: impair, settings: {loss: 5%, rate: 20Mbps, delay: 2ms}, loss: 2.5%,
     evidence: {dropped: 1, carried: 90%, paused: 3us}}
expect:
  recovery: 300ms
  min_share: 90%
  max_dip: 50%
  goodput_share: 10%
  max_goodput_share: 120%
  spurious: 1%
  plane_spread: 7%
  streams: [{at_least: 20%, jain: 0.9}, {at_most: 30%}]
  steps: [{of: p50, at_most: 2ms, at_least: 1us}]
"""
IN_NUMBERS = """\
name: own
title: a link loses packets
lab: tiny
workload: {name: incast, params: {message_bytes: 65536}, duration: 0.9, limit: 1}
schedule:
  - {at: 0.02, fail: h0:0, kind: impair, settings: {loss: 0.05, rate_bps: 20000000, delay_ns: 2000000}, loss: 0.025,
     evidence: {dropped: 1, carried: 0.9, paused: 0.000003}}
expect:
  recovery: 0.3
  min_share: 0.9
  max_dip: 0.5
  goodput_share: 0.1
  max_goodput_share: 1.2
  spurious: 0.01
  plane_spread: 0.07
  streams: [{at_least: 0.2, jain: 0.9}, {at_most: 0.3}]
  steps: [{of: p50, at_most: 0.002, at_least: 0.000001}]
"""


def read(text: str) -> Experiment:
    return experiment.parse(Experiment, text, "own.yaml", experiment.EXAMPLE)


def test_quantities_and_numbers_are_the_same_experiment() -> None:
    given_units, numbers = read(WITH_UNITS).model_dump(), read(IN_NUMBERS).model_dump()
    assert given_units == numbers


def test_impairments_of_a_comparison_take_units() -> None:
    text = (
        "name: own\ntitle: t\nlab: tiny\nworkload: {name: write_bw, params: {message_bytes: 4KiB}}\n"
        "variants: [{name: a, transport: mrc}]\n"
        "conditions: [{name: whole}, {name: lossy, impair: {loss: 1%, delay: 1ms}, evidence: {lost: 1}}]\n"
    )
    made = experiment.parse(Comparison, text, "own.yaml", compare.EXAMPLE)
    assert made.conditions[1].impair == {"loss": 0.01, "delay_ns": 1_000_000}
    assert made.workload.params == {"message_bytes": 4096}


@pytest.mark.parametrize(
    ("old", "new", "line", "said"),
    [
        ("loss: 5%,", "loss: 150%,", 6, "schedule.0: impair h0:0: loss must be a probability from 0 to 1, not 1.5"),
        ("loss: 5%,", "los: 5%,", 6, "schedule.0: impair takes no 'los'; it takes: blackhole, corrupt, "),
        ("loss: 5%,", "loss: five,", 6, "schedule.0: impair h0:0: loss must be a probability from 0 to 1, not 'five'"),
        ("rate: 20Mbps", "rate: 20Mbps, rate_bps: 1", 6, "schedule.0.settings: 'rate_bps' is given twice; keep one"),
        ("rate: 20Mbps", "rate_bps: 20ms", 6, "schedule.0.settings: 'rate_bps' takes a rate such as 20Mbps"),
        ("kind: impair", "kind: impare", 6, "schedule.0.kind: no failure 'impare'; known: link_down, "),
        ("64KiB", "64ms", 4, "workload: 'message_bytes' takes a size such as 64KiB"),
        ("64KiB", "0.3B", 4, "workload: '0.3B' is not a whole number of b"),
        ("recovery: 300ms", "recovery: 300Mbps", 9, "expect.recovery: '300Mbps' is not a time"),
        ("min_share: 90%", "min_share: many%", 10, "expect.min_share: "),
    ],
)  # fmt: skip
def test_a_wrong_quantity_is_told_with_its_line(old: str, new: str, line: int, said: str) -> None:
    assert old in WITH_UNITS
    with pytest.raises(ExperimentError) as error:
        read(WITH_UNITS.replace(old, new, 1))
    assert f"own.yaml:{line}: {said}" in str(error.value), str(error.value)


def test_texts_of_a_workload_are_no_quantities(tmp_path: pathlib.Path) -> None:
    (tmp_path / "own.yaml").write_text("name: own\ntitle: t\nworkload: {name: trace, params: {file: 5ms}}\n")
    assert load_experiment(str(tmp_path / "own.yaml")).workload.params == {"file": str(tmp_path / "5ms")}


@given(st.decimals(0, 1000, places=3))
def test_a_percentage_is_a_hundredth(number: decimal.Decimal) -> None:
    found = parse_share(f"{number:f}%")
    assert isinstance(found, float)
    assert math.isclose(found, float(number) / 100)
    assert parse_share(number) == number


@pytest.mark.parametrize("text", ["nan%", "inf%", "-1%", "1e3%", "%", "9" * 400 + "%", "1%%"])
def test_what_is_no_percentage_is_refused(text: str) -> None:
    assert parse_share(text) == text
    with pytest.raises(ExperimentError, match=r"own.yaml:10: expect.min_share: "):
        read(WITH_UNITS.replace("min_share: 90%", f"min_share: '{text}'"))


NO_UNIT = st.integers() | st.booleans() | st.none() | st.lists(st.integers()) | st.text("abc:/.", max_size=8)


@given(st.dictionaries(st.text(max_size=8) | st.integers(), NO_UNIT))
def test_what_has_no_unit_stays_as_it_is(settings: dict[str, object]) -> None:
    assert with_quantities(settings) == settings


@given(st.dictionaries(st.integers(), st.sampled_from(["5ms", "5%", "5KiB"]), min_size=1))
def test_a_number_is_no_name_of_a_setting(settings: dict[str, object]) -> None:
    assert with_quantities(settings) == settings
    with pytest.raises(ExperimentError, match=r"own.yaml:6: schedule.0"):
        read(WITH_UNITS.replace("settings: {loss: 5%,", f"settings: {{{next(iter(settings))}: 5%,"))
