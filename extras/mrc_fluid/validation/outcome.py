"""Outcome of a scenario with one seed by a backend, and the quantities that follow from flows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mrc_fluid.validation.scenario import LONG_BYTES, Backend, FlowSpec, Quantity
from mrc_topo.base.errors import MrclabError
from mrclab.results.performance import jain
from mrclab.studies.cells.pages import interval

#: Fewer seeds than this have no confidence interval.
LEAST_SEEDS = 5


class ScenarioError(MrclabError):
    """A run of a scenario that says nothing about it; the text names scenario, seed and reason."""


@dataclass(frozen=True)
class ScenarioOutcome:
    """The quantities of one run, those that the backend has; times of flows in us, in the order of the flows.

    `facts`: what closed forms are compared with, by name.
    """

    scenario: str
    backend: Backend
    seed: int
    values: dict[Quantity, float]
    completion_us: list[float]
    facts: dict[str, float]


def interval_of(values: Sequence[float]) -> tuple[float, float | None]:
    """Return the mean over seeds, and half of the width of its 95 % confidence interval; None of fewer than five, of
    which an interval would say more than they do."""
    mean, half = interval(values)
    return mean or 0.0, half if len(values) >= LEAST_SEEDS else None


def of_flows(flows: Sequence[FlowSpec], completion_us: Sequence[float]) -> dict[Quantity, float]:
    """Return goodput, quantiles of completion times and Jain's index of the flows' own rates.

    Goodput is all bytes over the time from the first start to the last end. Where all flows are long, it is that of the
    steady state instead: the sum of the flows' own rates, which no late flow decides.
    """
    times = np.array(completion_us)
    starts = np.array([flow.start_ns / 1e3 for flow in flows])
    sizes = np.array([flow.bytes for flow in flows], dtype=float)
    lasts_us = float((starts + times).max() - starts.min())
    goodput = {Quantity.GOODPUT: float(sizes.sum()) * 8 / lasts_us / 1e3}
    if sizes.min() >= LONG_BYTES:
        goodput = {Quantity.STEADY: float((sizes / times).sum()) * 8 / 1e3}
    return goodput | {
        Quantity.P50: float(np.quantile(times, 0.5)),
        Quantity.P99: float(np.quantile(times, 0.99)),
        Quantity.JAIN: jain([float(each) for each in sizes / times]),
    }
