"""The HTML report of a run: one self-contained file with the verdict, charts, what every failure did, and the lab.

First all that the page shows is computed, part by part, as values (`view_of`). Then the template `report.html` makes
the page of them.
"""

from __future__ import annotations

import itertools
import pathlib
from collections.abc import Sequence
from dataclasses import dataclass

from mrc_topo import draw
from mrc_topo.base import look, templates
from mrc_topo.topology import Topology
from mrclab.results import charts, curves, moments, performance, sections, summary
from mrclab.results.charts import ActionMark
from mrclab.results.check import Verdict
from mrclab.results.curves import RunPlots
from mrclab.results.moments import Moments
from mrclab.results.performance import Table
from mrclab.results.record import RunResult
from mrclab.results.sections import Sections
from mrclab.results.summary import Top

FOLDER = pathlib.Path(__file__).parent / "templates"
#: Above this many, actions on the fabric are drawn as lines without numbers.
NUMBERED = 60


@dataclass(frozen=True)
class Report:
    """The contents of a report.

    `doubts`: why the figures are not to be trusted; None where they are. `measured`: the workload's measurements.
    `marks`: the actions on the fabric. `lab`: its picture, as SVG.
    """

    title: str
    doubts: Sequence[str] | None
    plots: RunPlots
    top: Top
    moments: Moments
    measured: Sequence[Table]
    sections: Sections
    marks: Sequence[ActionMark]
    seconds: float
    lab: str


def view_of(result: RunResult, topology: Topology, verdict: Verdict, title: str) -> Report:
    """Return what the report of a run's result shows."""
    readings = result.readings()
    return Report(
        title=title,
        doubts=None if verdict.valid else verdict.reasons,
        measured=performance.tables(result),
        plots=curves.plots_of(result, topology, readings),
        top=summary.top_of(result, topology, readings, verdict),
        moments=moments.moments_of(result, topology, readings, verdict.recoveries),
        sections=sections.sections_of(result, topology, readings, verdict),
        marks=[ActionMark(each.at_s, each.text, each.breaks) for each in readings.changes],
        seconds=result.seconds,
        lab=draw.to_svg(topology),
    )


def render(result: RunResult, topology: Topology, verdict: Verdict, title: str) -> str:
    """Return the report of a run's result as HTML."""
    view = view_of(result, topology, verdict, title)
    percents = [0, *(round(100 * level) for level in moments.LEVELS), 100]
    body = templates.fill(
        FOLDER,
        "report.html",
        report=view,
        tags=len(view.marks) <= NUMBERED,
        chart=charts.chart,
        explained=charts.explained,
        data=look.data,
        loads=list(itertools.pairwise(percents)),
    )
    return look.page(title, body, ("report.css",), ("report.js",))
