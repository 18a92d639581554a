"""Checks of the cost of loss: that loss was really there, and how much slower a transport was, against a prediction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated

from pydantic import Field

from mrc_topo.base.document import Model
from mrc_topo.units import format_rate
from mrc_workshop.job import Document, Run
from mrc_workshop.kinds.compared import missed_check, other_workload
from mrc_workshop.kinds.prediction import read_numbers
from mrc_workshop.kinds.registry import Finding, kind
from mrclab.results import performance


class Impaired(Model):
    """`setting` of links between switches must have this `value`; `workload`: its name and parameters."""

    setting: str
    value: float
    workload: Document = {}


@kind(Impaired)
def impaired(params: Impaired, runs: Sequence[Run]) -> Finding:
    """Check that a run's own schedule impairs links between switches as required, and that its evidence shows it."""
    wanted = f"{params.setting} {params.value:g}"
    for run in runs:
        experiment = run.order.experiment or {}
        if (finding := other_workload(run, params.workload)) is not None:
            return finding
        found = [
            (str(each.get("fail")), float(each.get("settings", {}).get(params.setting, 0)), float(each.get("at", 0)))
            for each in experiment.get("schedule", ())
            if each.get("fail")
        ]
        if not found:
            return Finding(False, "no failure", "schedule: nothing fails, so this is the run without loss", run=run)
        target, value, at = found[0]
        if ":" in target:
            return Finding(False, target, f"{target} is a host's port; impair the link between the switches", run=run)
        if abs(value - params.value) > 1e-9:
            text = f"{target} has {params.setting} {value:g}; one packet in {1 / params.value:.0f} is {params.value:g}"
            return Finding(False, f"{params.setting} {value:g}", text, run=run)
        if at > 0:
            text = f"{target} is impaired at {at:g} s; the transfer may be over by then: begin at 0"
            return Finding(False, f"at {at:g} s", text, run=run)
        if (finding := missed_check(run, wanted)) is not None:
            return finding
    return Finding(True, wanted)


class Slowdown(Model):
    """`pairs`: by the key in the learner's `file`, the run without and the run with loss; `within`: the factor by which
    a prediction of the cost of loss (the part beyond 1) may be off."""

    file: str
    within: Annotated[float, Field(gt=1)] = 1.5
    pairs: dict[str, Annotated[list[str], Field(min_length=2, max_length=2)]]


@kind(Slowdown)
def slowdown(params: Slowdown, runs: Sequence[Run], sources: Mapping[str, str]) -> Finding:
    """How many times slower each transport is with loss, against what the learner has written down."""
    numbers = read_numbers(params.file, sources)
    if isinstance(numbers, str):
        return Finding(False, "no numbers", numbers)
    missing = next((key for key in params.pairs if key not in numbers), None)
    if missing is not None:
        text = f"{params.file}: {missing} has no number yet: how many times slower is it with loss? (1: not at all)"
        return Finding(False, "no prediction", text)
    measured = {key: _ratio(runs, *names) for key, names in params.pairs.items()}
    shown = ", ".join(f"{key} {numbers[key]:g} predicted, {ratio:.2f} measured" for key, ratio in measured.items())
    evidence = [f"{run.label}: {format_rate(_rate(run))}" for run in runs]
    for key, ratio in measured.items():
        value = numbers[key]
        if value < 1:
            text = f"{params.file}: {key}: {value:g} would be faster with loss; 1 means that loss costs nothing"
            return Finding(False, shown, text, tuple(evidence))
        # The cost of loss, rounded to a useful precision.
        cost, told = ratio - 1 + 0.15, value - 1 + 0.15
        if not 1 / params.within <= told / cost <= params.within:
            side = "less" if told > cost else "more"
            text = (
                f"{params.file}: {key}: loss costs {side} than you predicted: {value:g}, but {ratio:.2f} times slower"
            )
            if side == "more":
                text += "; what is sent again for one lost packet is all that was on the way behind it, not that packet"
            else:
                text += "; only what is lost is sent again, and while the answer is under way other packets go on"
            return Finding(False, shown, text, tuple(evidence))
    return Finding(True, shown)


def _rate(run: Run) -> float:
    rates = performance.stream_rates(run.result, None, None)
    return sum(rates.values()) / len(rates) if rates else 0.0


def _ratio(runs: Sequence[Run], clean: str, lossy: str) -> float:
    """Return the ratio of the mean rates, clean to lossy, over all seeds; infinity if the lossy rate is 0."""
    means = []
    for name in (clean, lossy):
        rates = [_rate(run) for run in runs if run.facts.name == name]
        means.append(sum(rates) / len(rates))
    return means[0] / means[1] if means[1] else float("inf")
