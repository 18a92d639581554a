"""Files that a check keeps: a small capture of what shows the mistake, a page of the outcome, and a report."""

from __future__ import annotations

import html
import pathlib
import shutil
from collections.abc import Sequence
from typing import Any, Protocol

from mrc_topo.base import look
from mrc_topo.base.files import WriteError, write_whole
from mrc_workshop import trace
from mrc_workshop.exercise import Exercise
from mrc_workshop.job import Document
from mrc_workshop.trace import CapturedPacket
from p4lite.files import check_links

CAPTURE, PAGE, REPORT = "evidence.pcapng", "check.html", "report.html"
#: The limit of a capture for a first look; the whole capture comes from a run of the lab.
MAX_PACKETS = 500
STYLE = "pre{background:var(--panel);padding:.7em;overflow-x:auto}.ok{color:var(--good)}.no{color:var(--bad)}"


class _Line(Protocol):
    what: str
    passed: bool | None
    measured: str
    mistake: str
    evidence: tuple[str, ...]
    where: str
    packets: tuple[CapturedPacket, ...]


def keep(
    document: Document, exercise: Exercise, lines: Sequence[Any], out: pathlib.Path, folder: pathlib.Path
) -> list[str]:
    """Write the files into a folder of this user, over those of an earlier check; return their names.

    Raises:
        WriteError: they cannot be written.
    """
    folder.mkdir(exist_ok=True)
    try:
        check_links(folder)
    except OSError as error:
        raise WriteError(folder, error) from error
    for name in (CAPTURE, PAGE, REPORT):
        (folder / name).unlink(missing_ok=True)
    packets = [packet for line in lines for packet in line.packets][:MAX_PACKETS]
    written = []
    if packets:
        trace.write(folder / CAPTURE, packets)
        written.append(CAPTURE)
    report = next((path for path in sorted(out.glob(f"*/{REPORT}")) if path.is_file() and not path.is_symlink()), None)
    if report is not None:
        shutil.copyfile(report, folder / REPORT)
        written.append(REPORT)
    write_whole(folder / PAGE, _page(exercise, lines, written))
    return [str(folder / name) for name in (PAGE, *written)]


def _page(exercise: Exercise, lines: Sequence[_Line], others: Sequence[str]) -> str:
    def text(value: str) -> str:
        return html.escape(value)

    rows = []
    for line in lines:
        word, style = {True: ("ok", "ok"), False: ("failed", "no"), None: ("not judged", "")}[line.passed]
        measured = f": {text(line.measured)}" if line.measured else ""
        rows.append(f'<h3 class="{style}">{word}: {text(line.what)}{measured}</h3>')
        if line.mistake:
            rows.append(f"<p>{text(line.mistake)}{f' (run {text(line.where)})' if line.where else ''}</p>")
        if line.evidence:
            rows.append(f"<pre>{text(chr(10).join(line.evidence))}</pre>")
    links = "".join(f'<li><a href="{text(each)}">{text(each)}</a></li>' for each in others)
    title = f"{exercise.name}: {exercise.content.title}"
    return look.page(title, f"<h1>{text(title)}</h1>{''.join(rows)}<ul>{links}</ul>\n", rules=STYLE)
