"""The page of all figures: one HTML file that opens offline; plots and tables lie beside it.

Times that were measured are in `times.js` alone, so that the page is the same for the same results.
"""

from __future__ import annotations

import json
import math
import pathlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict

from mrc_common.files import write_whole
from mrc_runs.experiment import Tree
from mrc_studies.cells import pages
from mrc_studies.figures.model import JudgedFigure, Size, Status

PAGE, TIMES, RESULTS = "index.html", "times.js", "figures.json"

STYLE = """
img { width: 100%; max-width: 46rem } table, code { font-size: 13px }
.reproduced { color: var(--good) } .differs { color: var(--warn) } .not { color: var(--bad) }
.could { color: var(--warn) }
"""


def write(
    folder: pathlib.Path,
    figures: Sequence[JudgedFigure],
    files: Mapping[str, Sequence[str]],
    seconds: Mapping[str, float],
    size: Size,
    notes: Sequence[str] = (),
) -> pathlib.Path:
    """Write the page, its times, and the results as JSON (`RESULTS`).

    Args:
        files: what lies beside it, by figure.
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
    given = {"figures": figures, "files": files, "size": size, "notes": notes, "times": TIMES}
    write_whole(folder / PAGE, pages.render("figures.html", "mrclab: the paper's figures", STYLE, **given))
    write_whole(folder / RESULTS, json.dumps([_document(each) for each in figures], indent=1) + "\n")
    return folder / PAGE


def _document(judged: JudgedFigure) -> Tree:
    return {
        "figure": judged.figure.name,
        "title": judged.figure.title,
        "result": judged.status,
        "differs": judged.reason if judged.status is Status.DIFFERS else "",
        "failures": list(judged.failures),
        "not_run": list(judged.not_run),
        "measures": [
            # JSON has no infinity and no value that is not a number.
            {
                key: None if isinstance(value, float) and not math.isfinite(value) else value
                for key, value in row.items()
            }
            for row in ({**asdict(each), "passed": each.passed} for each in judged.measures)
        ],
    }
