"""Draw the figures of the slides again, by the charts of all pages: python docs/slide_figures.py

A run in simulated time gives the curves; the lab's picture gives fabric and failure. The files are in the repository.
"""

from __future__ import annotations

import pathlib
import random
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from mrc_topo import draw
from mrc_topo.base.files import write_whole
from mrc_topo.labfile import load_lab
from mrc_topo.units import Unit
from mrclab.pages import paper
from mrclab.pages.chart import Axis, Chart, Line, Series, style
from mrclab.pages.paper import Format, ink
from mrclab.results import charts, milestones
from mrclab.results.expectation import Evidence
from mrclab.results.record import RunResult
from mrclab.runs import execute
from mrclab.runs.experiment import Experiment, ExperimentStep, Workload
from p4lite.scratch import scratch

FOLDER: Final = pathlib.Path(__file__).resolve().parent / "assets" / "slides"
LINK: Final = "p0-t0.0--p0-t1.0"
WIDE: Final = 5.0
#: Packets of each of four flows, and the EVs of each when they are sprayed.
PACKETS, EVS = 256, 64


def curves() -> Iterator[Chart]:
    """Yield goodput and EVs of a run in which a link fails and comes back."""
    experiment = Experiment(
        name="slides",
        title="a link fails",
        lab="tiny",
        workload=Workload(name="ring_all_reduce", params={"size_bytes": 1 << 18}, duration=4.0),
        schedule=[
            ExperimentStep(at=1.5, fail=LINK, evidence=Evidence(dropped=1)),
            ExperimentStep(at=3.0, restore=LINK),
        ],
    )
    with scratch("slides") as folder:
        made = execute.execute(experiment, "virtual", folder=folder, live=False)
        result = RunResult.load(folder)
        readings = result.readings()
        marks = milestones.marks_of(result, readings)
        found = charts.charts_of(result, made.topology, readings, made.verdict.recoveries, marks)
        wanted = {each.name: each for each in found.all}
    yield replace(wanted["goodput"], name="recovery", title="Goodput falls when a link fails, and comes back by itself")
    yield replace(wanted["evs"], name="evs", title="EVs of the dead link go out of use, and return by probes")


def spray() -> Chart:
    """Return the load of four uplinks by four flows of one EV each, and of many."""
    rng = random.Random(1)
    series = []
    for at, (name, evs) in enumerate((("one path per flow", 1), ("a path per packet", EVS))):
        loads = [0] * 4
        for _ in range(4):
            uplinks = [rng.randrange(4) for _ in range(evs)]
            for packet in range(PACKETS):
                loads[uplinks[packet % evs]] += 1
        series.append(Series(name, range(4), [each / PACKETS for each in loads], *style(at), Line.DOTS))
    x = Axis("uplink", "", ticks=[f"T1 {number}" for number in range(4)])
    title = "Hashed flows share uplinks; sprayed packets load all alike"
    return Chart("spray", title, x, Axis("load, of one flow", Unit.SHARE, zero=True), series)


def states() -> str:
    """Return the states of an EV, and what leads from one to another, as SVG."""
    places = {"GOOD": (110, 150), "SKIP": (370, 50), "ASSUMED_BAD": (370, 150), "DENIED": (370, 250)}
    words = {"SKIP": "a mark or a trim", "ASSUMED_BAD": "a loss", "DENIED": "the denylist"}
    back = {"SKIP": "after one packet", "ASSUMED_BAD": "probes answered", "DENIED": "allowed again"}
    parts = []
    for name, (x, y) in places.items():
        colour = ink(f"ev-{name.lower().replace('_', '-')}")
        label = name.replace("_", " ").lower()
        box = f'<rect x="{x - 80}" y="{y - 22}" width="160" height="44" rx="8" fill="{colour}"/>'
        parts.append(
            f'{box}<text x="{x}" y="{y + 6}" fill="#fff" font-weight="600" text-anchor="middle">{label}</text>'
        )
    for name, there in words.items():
        x, y = places[name]
        for up, (one, other) in ((-7, (192, 288)), (9, (288, 192))):
            begin, end = (150 + (y - 150) * (0 if edge == 192 else 1) + up for edge in (one, other))
            parts.append(f'<path d="M{one} {begin}L{other} {end}" stroke="{ink("muted")}" marker-end="url(#end)"/>')
        parts.append(f'<text x="460" y="{y - 4}">by {there}</text><text x="460" y="{y + 16}">back: {back[name]}</text>')
    head = '<defs><marker id="end" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
    head += f'<path d="M0 0L8 4L0 8z" fill="{ink("muted")}"/></marker></defs>'
    return (
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 660 300" font-family="sans-serif" font-size="16" '
        f'role="img" aria-label="states of an EV">{head}{"".join(parts)}</svg>\n'
    )


def main() -> None:
    """Write all figures."""
    FOLDER.mkdir(exist_ok=True)
    for each in (*curves(), spray()):
        write_whole(FOLDER / f"{each.name}.svg", paper.printed(each, Format.SVG, WIDE))
    # A slide has a head of its own.
    lab = re.sub(r'<text class="title".*?</text>', "", draw.to_svg(load_lab("tiny")))
    write_whole(FOLDER / "fabric.svg", lab)
    rule = f"[data-name='{LINK}'] {{ opacity: 1; stroke: {ink('down')}; stroke-dasharray: 6 5; stroke-width: 4 }}"
    write_whole(FOLDER / "failure.svg", lab.replace("</svg>", f"<style>{rule}</style></svg>"))
    write_whole(FOLDER / "states.svg", states())


if __name__ == "__main__":
    main()
