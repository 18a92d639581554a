"""Outcome of a scenario with one seed by a backend, and the quantities that follow from flows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mrc_fluid.validation.scenario import Backend, FlowSpec, Quantity
from mrc_topo.base.errors import MrclabError
from mrclab.results.performance import jain


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


def of_flows(flows: Sequence[FlowSpec], completion_us: Sequence[float]) -> dict[Quantity, float]:
    """Return goodput, quantiles of completion times and Jain's index of the flows' own rates.

    Goodput is all bytes over the time from the first start to the last end.
    """
    times = np.array(completion_us)
    starts = np.array([flow.start_ns / 1e3 for flow in flows])
    sizes = np.array([flow.bytes for flow in flows], dtype=float)
    lasts_us = float((starts + times).max() - starts.min())
    return {
        Quantity.GOODPUT: float(sizes.sum()) * 8 / lasts_us / 1e3,
        Quantity.P50: float(np.quantile(times, 0.5)),
        Quantity.P99: float(np.quantile(times, 0.99)),
        Quantity.JAIN: jain([float(each) for each in sizes / times]),
    }
