"""The page of all figures: one HTML file that opens offline; plots and tables lie beside it.

Times that were measured are in `times.js` alone, so that the page is the same for the same results.
"""

from __future__ import annotations

import json
import math
import pathlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from mrc_topo.base.files import write_whole
from mrclab.runs.experiment import Tree
from mrclab.studies.cells import pages
from mrclab.studies.figures.model import FigureStatus, JudgedFigure, Measure

PAGE, TIMES, RESULTS = "index.html", "times.js", "figures.json"

STYLE = """
.figure { break-before: page; border-top: 3px solid var(--line); margin-top: 2.5rem; padding-top: .4rem }
.figure h2 { margin-top: .6rem } .figure img { display: block; width: 100%; max-width: 58rem; margin: .4rem 0 }
.claim { display: grid; grid-template-columns: 6rem 1fr; gap: .2rem .8rem; margin: .6rem 0 }
.claim dt { color: var(--muted); font-weight: 600 } .claim dd { margin: 0 }
table, code { font-size: 13px } .n { text-align: right; white-space: nowrap }
.state { border-radius: 6px; display: inline-block; font-weight: 600; padding: .05rem .5rem; white-space: nowrap }
.reproduced { background: var(--good-paper); color: var(--good) }
.not { background: var(--bad-paper); color: var(--bad) }
.differs, .could { background: var(--warn-paper); color: var(--warn) }
summary { cursor: pointer; color: var(--accent) }
@page { size: A4; margin: 14mm }
@media print {
  body { font-size: 10pt } .page { max-width: none; padding: 0 } table, code { font-size: 8pt }
  .figure { border-top: 0; margin-top: 0; padding-top: 0 } .figure h2 { margin-top: 0 }
  .figure img { max-height: 105mm; width: auto; max-width: 100% }
  .figure img.chart { max-height: 62mm }
  .files, .time, details:not([open]) { display: none } tr, img, .claim { break-inside: avoid }
  .state { border: 1px solid currentColor } a { color: inherit; text-decoration: none }
}
"""


def write(
    folder: pathlib.Path,
    figures: Sequence[JudgedFigure],
    files: Mapping[str, Sequence[str]],
    seconds: Mapping[str, float],
    options: str,
    notes: Sequence[str] = (),
) -> pathlib.Path:
    """Write the page, its times, and the results as JSON (`RESULTS`).

    Args:
        files: what lies beside it, by figure.
        options: of the command, `--full` say.
        seconds: how long the runs of each figure took, one after another.

    Raises:
        WriteError: one could not be written.
    """
    lines = "".join(
        f"document.getElementById({json.dumps('time-' + name)}).textContent = "
        f"{json.dumps(f'{value:.1f} s of one core')};\n"
        for name, value in seconds.items()
    )
    write_whole(folder / TIMES, lines)
    given = {"figures": figures, "files": files, "options": options, "notes": notes, "times": TIMES}
    write_whole(folder / PAGE, pages.render("figures.html", "mrclab: the paper's figures", STYLE, **given))
    write_whole(folder / RESULTS, json.dumps([_document(each) for each in figures], indent=1) + "\n")
    return folder / PAGE


def _document(judged: JudgedFigure) -> Tree:
    return {
        "figure": judged.figure.name,
        "title": judged.figure.title,
        "seeds": judged.seeds,
        "held": judged.held,
        "left_out": {str(seed): why for seed, why in judged.left_out.items()},
        "result": judged.status,
        "differs": judged.reason if judged.status is FigureStatus.DIFFERS else "",
        "failures": list(judged.failures),
        "not_run": list(judged.not_run),
        "measures": [_measure(each) for each in judged.measures],
        "alternatives": {name: _document(each) for name, each in judged.alternatives.items()},
    }


def _measure(measure: Measure) -> Tree:
    low, high = measure.interval
    row = {**asdict(measure), "values": list(measure.each), "least": low, "most": high}
    finite: Tree = _finite({**row, "held": measure.held, "passed": measure.passed})
    return finite


def _finite(value: Any) -> Any:
    """Return a value of JSON, which has no infinity and nothing that is not a number: None in their place."""
    if isinstance(value, dict):
        return {key: _finite(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
