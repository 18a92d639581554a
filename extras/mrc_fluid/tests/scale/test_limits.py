"""The limits of the fluid model that a run names: those that its cluster comes near, with figures of the page."""

from __future__ import annotations

import pathlib

import pytest

from mrc_fluid import limits
from mrc_fluid.clusterfile import parse_cluster
from mrc_fluid.limits import ModelLimits

ROOT = pathlib.Path(__file__).parents[4]
CLUSTER = "name: c\nradix: 16\nplanes: 4\nnics: 64\nev: {size: 32, active: 16}\njobs: [{name: j}]\n"


def failing(text: str) -> tuple[str, str]:
    return ("jobs:", f"failures: [{{{text}}}]\njobs:")


@pytest.mark.parametrize("limit", ModelLimits)
def test_each_figure_is_on_the_page(limit: ModelLimits) -> None:
    page = " ".join((ROOT / limits.PAGE).read_text(encoding="utf-8").split())
    assert [each for each in limit.value.source if each not in page] == []


@pytest.mark.parametrize(
    ("changes", "wanted"),
    [
        ([], []),
        ([failing("fail: t1s")], []),
        ([failing("fail: p0-t1.0, loss: 0.5")], []),
        ([failing("fail: 'h1:0', loss: 0.5")], [ModelLimits.GREY_HEAVY]),
        ([failing("fail: p0, rate: 0.1")], []),
        ([failing("fail: p0-t1.0, rate: 0.1")], [ModelLimits.SLOW_T1]),
        ([("radix: 16", "radix: 16\ntiers: 3")], [ModelLimits.THREE_TIERS]),
    ],
)
def test_a_run_names_the_limits_that_it_comes_near(changes: list[tuple[str, str]], wanted: list[ModelLimits]) -> None:
    text = CLUSTER
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    loaded = parse_cluster(text)
    assert limits.limits_of(loaded) == [each.value.text for each in wanted]
    assert limits.note(loaded).count("\n") == 0
    assert bool(limits.note(loaded)) == bool(wanted)
