"""The page of all figures: one HTML file that opens offline; plots and tables lie beside it.

Times that were measured are in `times.js` alone, so that the page is the same for the same results.
"""

from __future__ import annotations

import html
import json
import math
import pathlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict

from mrc_common import look
from mrc_common.files import write_whole
from mrc_runs.experiment import Tree
from mrc_studies.figures.model import Judged, Size, Status

PAGE, TIMES, RESULTS = "index.html", "times.js", "figures.json"

STYLE = """
img { width: 100%; max-width: 46rem } table, code { font-size: 13px }
.reproduced { color: var(--good) } .differs { color: var(--warn) } .not { color: var(--bad) }
.could { color: var(--warn) }
"""


def write(
    folder: pathlib.Path,
    figures: Sequence[Judged],
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
    write_whole(folder / PAGE, _page(figures, files, size, notes))
    write_whole(folder / RESULTS, json.dumps([_document(each) for each in figures], indent=1) + "\n")
    return folder / PAGE


def _document(judged: Judged) -> Tree:
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


def _text(text: object) -> str:
    return html.escape(str(text))


def _page(figures: Sequence[Judged], files: Mapping[str, Sequence[str]], size: Size, notes: Sequence[str]) -> str:
    overview = "".join(
        f'<tr><td><a href="#{_text(each.figure.name)}">{_text(each.figure.name)}</a></td><td>{_text(each.figure.title)}'
        f"</td><td>{_status(each)}</td></tr>"
        for each in figures
    )
    told = "".join(f"<p>{_text(note)}</p>" for note in notes)
    parts = "".join(_figure(each, files.get(each.figure.name, ()), size) for each in figures)
    body = (
        "<h1>The paper's figures</h1>\n"
        f"<p>Size: {size}. All runs are in simulated time: the lab's switch program, tables, packets and protocol "
        "core, at rates and in fabrics that a small machine can simulate. Bounds are in the tables; a figure is "
        f"reproduced when its failures have shown and every number lies within its bounds.</p>{told}\n"
        f"<table><tr><th>figure</th><th></th><th>result</th></tr>{overview}</table>\n{parts}"
        f'<script src="{TIMES}"></script>\n'
    )
    return look.page("mrclab: the paper's figures", body, rules=STYLE)


def _status(judged: Judged) -> str:
    kind = judged.status.split()[0]
    reason = f" {_text(judged.reason)}" if kind == "differs" else ""
    return f'<span class="{kind}">{_text(judged.status)}{reason}</span>'


def _figure(judged: Judged, files: Sequence[str], size: Size) -> str:
    figure = judged.figure
    rows = "".join(
        f"<tr><td>{_text(each.what)}</td><td>{each.low:.3g} to {each.high:.3g} {_text(each.unit)}</td>"
        f"<td>{each.value:.4g} {_text(each.unit)}</td><td>{'good' if each.passed else 'missed'}</td>"
        f"<td>{'' if each.paper is None else f'{each.paper:.3g} {_text(each.unit)}'}</td></tr>"
        for each in judged.measures
    )
    rows += "".join(
        f"<tr><td>{_text(f'{run}: ' if len(judged.cells) > 1 else '')}{_text(each.what)}</td>"
        f"<td>{_text(each.expected)}</td><td>{_text(each.measured)}</td>"
        f"<td>{'good' if each.passed else 'missed'}</td></tr>"
        for run, each in judged.evidence
    )
    rows += "".join(
        f"<tr><td>failed</td><td>nothing</td><td>{_text(each)}</td><td>missed</td></tr>" for each in judged.failures
    )
    rows += "".join(
        f"<tr><td>could not run</td><td></td><td>{_text(each)}</td><td></td></tr>" for each in judged.not_run
    )
    plot = f"{figure.name}.svg"
    image = f'<p><img src="{plot}" alt="{_text(figure.title)}"></p>' if plot in files else ""
    links = ", ".join(f'<a href="{_text(each)}">{_text(each)}</a>' for each in files)
    seeds = sorted({cell.lab.seed for cell in judged.cells})
    return (
        f'<h2 id="{_text(figure.name)}">{_text(figure.name)}: {_text(figure.title)}</h2>\n<p>{_status(judged)}</p>'
        f"<table><tr><th>paper</th><td>{_text(figure.paper)}</td></tr><tr><th>here</th><td>{_text(figure.ours)}</td></tr>"
        f"<tr><th>headline</th><td>{_text(figure.headline)}</td></tr></table>\n{image}\n"
        f"<table><tr><th>what</th><th>expected</th><th>measured</th><th></th><th>paper</th></tr>{rows}</table>\n"
        f"<p>{links}</p><p>{len(judged.cells)} runs, seed {', '.join(map(str, seeds))}; "
        f"<code>mrclab figures {_text(figure.name)} --{size}</code>; "
        f'<span id="time-{_text(figure.name)}"></span></p>\n'
    )
