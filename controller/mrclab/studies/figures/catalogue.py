"""All figures, in the order of their page."""

from __future__ import annotations

from collections.abc import Sequence

from mrc_topo.base.document import printable
from mrclab.runs.experiment import ExperimentError
from mrclab.studies.figures import failures, shared, spreading, transports
from mrclab.studies.figures.model import Figure

FIGURES = {each.name: each for each in (*failures.FIGURES, *transports.FIGURES, *shared.FIGURES, *spreading.FIGURES)}


def chosen(names: Sequence[str]) -> list[Figure]:
    """Return the named figures, in the order of the page; all without names.

    Raises:
        ExperimentError: there is no figure of a given name.
    """
    for name in names:
        if name not in FIGURES:
            raise ExperimentError(f"no figure '{printable(name)[:60]}'; known: {', '.join(FIGURES)}")
    return [each for name, each in FIGURES.items() if not names or name in names]
