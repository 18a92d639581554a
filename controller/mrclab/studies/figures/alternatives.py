"""Alternative policies of MRC's endpoints, as published, for figures that miss the paper's headline."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from mrclab.studies.cells.measure import Cell
from mrclab.studies.figures.model import Alternative


def _with(policies: Mapping[str, str]) -> Callable[[Cell], Cell]:
    def apply(cell: Cell) -> Cell:
        """Return the cell with the policies; RoCE's endpoints have neither EVs nor NSCC, so it stays as it is."""
        return cell if cell.experiment.transport == "roce" else replace(cell, policies=policies)

    return apply


#: By name: kind, `FILE.py:Class` in `experiments/sweeps/policies`, and where it is published.
PUBLISHED = (
    ("REPS", "ev", "reps.py:Reps", "arXiv 2407.21625"),
    ("bitmap", "ev", "bitmap.py:Bitmap", "uet-htsim, UecMpBitmap"),
    ("oblivious", "ev", "oblivious.py:Oblivious", "uet-htsim, UecMpOblivious"),
    ("flowlet", "ev", "flowlet.py:Flowlet", "Let It Flow, NSDI 2017"),
    ("ECMP", "ev", "ecmp.py:Ecmp", "RFC 2992"),
    ("NSCC of htsim", "congestion", "htsim_nscc.py:HtsimNscc", "uet-htsim, uec.cpp"),
    ("median NSCC", "congestion", "median_nscc.py:MedianNscc", "arXiv 2509.07907"),
)

POLICIES = tuple(Alternative(name, source, _with({kind: file})) for name, kind, file, source in PUBLISHED)
