"""Plots for print: the same charts as in the page, with the same names, and the same bytes each time."""

from __future__ import annotations

import numpy as np
import pytest

from mrc_topo.units import Unit
from mrclab.pages import paper
from mrclab.pages.chart import Axis, Chart, Line, Mark, Series
from mrclab.pages.paper import Format

pytest.importorskip("matplotlib.pyplot")

X = np.array([16384.0, 65536.0, 1048576.0])
CURVE = Series("a", X, X * 2, "plane-0", 0, Line.POINTS, X, X * 3)
BELOW = Chart("", "", Axis("size", Unit.SIZE, log=True), Axis("difference", Unit.RATE), [CURVE], level=0.0)
CHART = Chart("c", "Finding", BELOW.x, Axis("goodput", Unit.RATE), [CURVE], marks=[Mark(20000.0, "m")], below=BELOW)


@pytest.mark.parametrize("kind", Format)
def test_print_of_a_chart_is_the_same_each_time(kind: Format) -> None:
    assert paper.printed(CHART, kind) == paper.printed(CHART, kind)


def test_print_has_the_names_and_units_of_the_page() -> None:
    text = paper.printed(CHART, Format.PGF).decode()
    for part in ("Finding", "goodput, Mb/s", "difference, Mb/s", "16 KiB", "1 MiB", "size"):
        assert part in text.replace("\\ ", " "), part
