"""The suite's plots as SVG: goodput, completion times, incasts and sprayers; the same bytes for the same numbers."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from mrc_fluid.validation import closed
from mrc_fluid.validation.outcome import ScenarioOutcome
from mrc_fluid.validation.scenario import Backend, Quantity, Scenario
from mrc_fluid.validation.suite import SuiteResult
from mrc_fluid.validation.variants import SCENARIOS, Part, VariantValue
from mrc_topo.units import Unit, shown
from mrclab.pages import paper
from mrclab.pages.chart import Axis, Chart, Line, Series
from mrclab.pages.paper import ink

#: Markers and dashes tell what colours do.
COLOURS = {Backend.PACKETS: ink("plane-0"), Backend.FLUID: ink("down"), Backend.HTSIM: ink("plane-2")}
DASHES = {Backend.PACKETS: "-", Backend.FLUID: "--", Backend.HTSIM: ":"}
MARKERS = {Backend.PACKETS: "o", Backend.FLUID: "s", Backend.HTSIM: "^"}
#: Scenarios whose distributions are drawn together.
SHOWN = ("incast-8-marked", "permutation", "on-off", "slow-t1")
#: A distribution is drawn by this many quantiles, so that thousands of flows take few bytes.
QUANTILES = 80
SENDERS = (2, 4, 8, 16, 32, 64)
_LONG = re.compile(r"(\d\.\d\d)\d+")
#: Of a scenario one of them: that of long flows is of the steady state.
_GOODPUT = (Quantity.GOODPUT, Quantity.STEADY)
#: So few scenarios are explained where they are drawn.
FEW = 6
GREY = {"color": "0.5", "linewidth": 0.8}


def svg(drawn: Any) -> str:
    """Return a figure as SVG whose coordinates have two decimals, a fiftieth of a pixel, in half of the bytes."""
    return _LONG.sub(r"\1", paper.inline(drawn))


def distribution(axes: Any, outcomes: Sequence[ScenarioOutcome], scenario: str) -> None:
    """Draw the distribution of completion times over all seeds, by backend."""
    shares = np.linspace(0, 1, QUANTILES + 1)
    for backend in Backend:
        own = [each for each in outcomes if each.scenario == scenario and each.backend is backend]
        times = [time for each in own for time in each.completion_us]
        if times:
            points = np.quantile(times, shares, method="inverted_cdf")
            style = {"color": COLOURS[backend], "linestyle": DASHES[backend], "label": backend.value}
            axes.step(points, shares, where="post", **style)
            axes.plot(points[QUANTILES // 2], 0.5, MARKERS[backend], color=COLOURS[backend], markersize=4)
    axes.set_xlabel("flow completion time, µs")
    axes.set_ylabel("share of flows")


def all_plots(made: SuiteResult) -> dict[str, str]:
    """Return the plots for which there are values, as SVG by name; none where matplotlib is not installed."""
    if importlib.util.find_spec("matplotlib") is None:
        return {}
    drawn: dict[str, Callable[[SuiteResult], str]] = {
        "goodput": _goodput, "completion": _completion, "incast": _incast, "sprayers": _sprayers,
    }  # fmt: skip
    found = {name: draw(made) for name, draw in drawn.items()}
    return {name: text for name, text in found.items() if text}


def _goodput(made: SuiteResult) -> str:
    """Draw goodput as a share of the maximum flow, with confidence intervals."""
    bounds = _bounds(made)
    if not bounds:
        return ""
    names = list(bounds)
    with paper.drawing(figsize=(6.6, 1.2 + 0.24 * len(names))) as (drawn, axes):
        for row, backend in enumerate(Backend):
            found = {
                each.scenario: each
                for each in made.values
                if each.backend is backend and each.quantity in _GOODPUT and each.scenario in bounds
            }
            if not found:
                continue
            at = [names.index(name) + (row - 1) * 0.22 for name in found]
            means = [each.mean / bounds[name] for name, each in found.items()]
            halves = [(each.half or 0.0) / bounds[name] for name, each in found.items()]
            axes.errorbar(
                means, at, xerr=halves, fmt=MARKERS[backend], color=COLOURS[backend], label=backend.value, markersize=4,
                linewidth=1, capsize=2,
            )  # fmt: skip
        axes.axvline(1.0, **GREY)
        axes.set_yticks(range(len(names)), names)
        axes.invert_yaxis()
        axes.set_xlim(0, 1.05)
        axes.set_xlabel("goodput, as a share of the maximum flow (mean of the seeds, 95 % interval)")
        drawn.legend(loc="outside upper center", ncols=3, fontsize=8)
        return svg(drawn)


def _bounds(made: SuiteResult) -> dict[str, float]:
    """Return the maximum flow of each scenario whose flows start together, Gb/s, as a mean over the seeds."""
    bounds = {}
    for scenario in made.plan.scenarios:
        flows = [scenario.flows(seed) for seed in made.plan.seeds]
        if not any(flow.start_ns for flow in flows[0]):
            rates = [closed.max_flow_bps(scenario, each) / 1e9 for each in flows]
            bounds[scenario.name] = float(np.mean(rates))
    return bounds


def _completion(made: SuiteResult) -> str:
    chosen = [each for each in made.plan.scenarios if each.name in SHOWN]
    if len(chosen) < len(SHOWN):
        return ""
    with paper.drawing(nrows=2, ncols=2, figsize=(6.6, 5.0)) as (drawn, axes):
        for each, place in zip(chosen, axes.flat, strict=True):
            distribution(place, made.outcomes, each.name)
            place.set_title(each.name, fontsize=9)
        drawn.legend(*axes.flat[0].get_legend_handles_labels(), loc="outside upper center", ncols=3, fontsize=8)
        return svg(drawn)


def _incast(made: SuiteResult) -> str:
    """Draw Jain's index and trims by the number of senders."""
    lines = (
        ("packets", "", Backend.PACKETS, {"color": COLOURS[Backend.PACKETS], "linestyle": "-", "marker": "o"}),
        (
            "packets, marks at the last hop", "-marked", Backend.PACKETS,
            {"color": ink("plane-3"), "linestyle": "--", "marker": "D"},
        ),
        ("htsim", "-marked", Backend.HTSIM, {"color": COLOURS[Backend.HTSIM], "linestyle": ":", "marker": "^"}),
    )  # fmt: skip
    needed = {f"incast-{count}{mark}" for count in SENDERS for mark in ("", "-marked")}
    if not needed <= {each.name for each in made.plan.scenarios}:
        return ""
    found = {(each.scenario, each.backend, each.quantity): each for each in made.values}
    with paper.drawing(ncols=2, figsize=(6.6, 3.0)) as (drawn, axes):
        for place, quantity in zip(axes, (Quantity.JAIN, Quantity.TRIMMED), strict=True):
            for label, suffix, backend, style in lines:
                own = [found.get((f"incast-{count}{suffix}", backend, quantity)) for count in SENDERS]
                values = [each for each in own if each is not None]
                if len(values) == len(SENDERS):
                    halves = [each.half or 0.0 for each in values]
                    means = [each.mean for each in values]
                    place.errorbar(
                        SENDERS, means, yerr=halves, label=label, markersize=4, linewidth=1, capsize=2, **style
                    )
            place.set_xscale("log", base=2)
            place.set_xticks(SENDERS, [str(each) for each in SENDERS])
            place.set_xlabel("senders")
            place.set_ylabel("Jain's index" if quantity is Quantity.JAIN else "trimmed, % of packets")
        drawn.legend(*axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=3, fontsize=8)
        return svg(drawn)


def _sprayers(made: SuiteResult) -> str:
    """Draw goodput of each sprayer: mean, and the range over the seeds."""
    own = [
        each for each in made.variant_values
        if each.variant.part is Part.SPRAYER and each.quantity is Quantity.GOODPUT
    ]  # fmt: skip
    if not own:
        return ""
    names = list(dict.fromkeys(each.variant.name for each in own))
    with paper.drawing(ncols=3, sharey=True, figsize=(6.6, 2.6)) as (drawn, axes):
        for place, scenario in zip(axes, SCENARIOS[Part.SPRAYER], strict=True):
            _ranges(place, [each for each in own if each.scenario == scenario], names)
            place.set_title(scenario, fontsize=9)
        drawn.supxlabel("goodput, Gb/s: mean and range of the seeds", fontsize=9)
        return svg(drawn)


def _ranges(axes: Any, values: Sequence[VariantValue], names: Sequence[str]) -> None:
    means = [each.mean for each in values]
    spread = [[each.mean - each.low for each in values], [each.high - each.mean for each in values]]
    at = [names.index(each.variant.name) for each in values]
    axes.errorbar(means, at, xerr=spread, fmt="o", color=COLOURS[Backend.PACKETS], markersize=4, linewidth=1, capsize=2)
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.set_xlim(0, 1.08 * max(each.high for each in values))


#: Colour and dash of each backend in charts of a page.
STYLES = {Backend.PACKETS: ("plane-0", 0), Backend.FLUID: ("down", 1), Backend.HTSIM: ("plane-2", 2)}


def completions(scenario: Scenario, made: SuiteResult) -> Chart:
    """Return the distribution of completion times of one scenario, over all seeds, by backend."""
    shares = np.linspace(0, 1, QUANTILES + 1)
    pooled: dict[Backend, list[float]] = {}
    for each in made.outcomes:
        if each.scenario == scenario.name and len(each.completion_us):
            pooled.setdefault(each.backend, []).extend(time / 1e6 for time in each.completion_us)
    every = [time for times in pooled.values() for time in times] or [0.0]
    room = 0.03 * (max(every) - min(every)) or 0.03 * max(every)
    series = []
    for backend, times in pooled.items():
        points = np.quantile(times, shares, method="inverted_cdf")
        # Of flows that end together the last share counts; each curve begins with none and ends with all.
        x, last = np.unique(points[::-1], return_index=True)
        x = np.concatenate([[min(every) - room], x, [max(every) + room]])
        y = np.concatenate([[0.0], shares[::-1][last], [1.0]])
        series.append(Series(backend.label, x, y, *STYLES[backend], Line.STEPS))
    medians = [
        f"{shown(each.mean / 1e6, Unit.TIME)} ({each.backend.label})"
        for each in made.values if each.scenario == scenario.name and each.quantity is Quantity.P50
    ]  # fmt: skip
    title = f"{scenario.name}: the median is {', '.join(medians)}"
    axes = Axis("flow completion time", Unit.TIME), Axis("share of flows that have ended", Unit.SHARE, zero=True)
    about = f"{scenario.title}. The curves have the flows of all seeds; the medians are means over the seeds."
    return Chart(f"fct-{scenario.name}", title, *axes, series, about)


def overview_charts(made: SuiteResult, intervals: bool) -> list[Chart]:
    """Return goodput of all scenarios as a share of the maximum flow by backend, with `intervals` or without."""
    bounds = _bounds(made)
    names = list(bounds)
    series = []
    there = [backend for backend in Backend if any(each.backend is backend for each in made.values)]
    for at, backend in enumerate(there):
        found = [
            each for each in made.values
            if each.backend is backend and each.quantity is Quantity.GOODPUT and each.scenario in bounds
        ]  # fmt: skip
        x = [names.index(each.scenario) + (at - (len(there) - 1) / 2) * 0.22 for each in found]
        y = np.array([each.mean / bounds[each.scenario] for each in found])
        half = np.array([(each.half or 0.0) * intervals / bounds[each.scenario] for each in found])
        if found:
            series.append(Series(backend.label, x, y, *STYLES[backend], Line.DOTS, y - half, y + half))
    apart = [abs(each.off) for each in made.differences if each.quantity is Quantity.GOODPUT]
    title = f"Goodput differs from that of packets by {100 * max(apart, default=0.0):.1f} % at most"
    axes = Axis("scenario", "", ticks=names), Axis("goodput, of the maximum flow", Unit.SHARE, zero=True)
    about = "100 %: the most that the network can carry (maximum flow). Means of the seeds" + (
        " with their 95 % intervals." if intervals else "."
    )
    if len(names) <= FEW:
        about += f" {'; '.join(f'{each.name}: {each.title}' for each in made.plan.scenarios if each.name in bounds)}."
    return [Chart("goodput", title, *axes, series, about, level=1.0)] if series else []
