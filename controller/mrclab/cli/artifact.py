"""`mrclab artifact`: runs for reviewers and readers, who repeat them."""

from __future__ import annotations

import json
import pathlib
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from mrc_topo.base.document import printable
from mrc_topo.base.plain import encode
from mrc_topo.units import format_size
from mrclab.cli.common import TrustCode
from mrclab.cli.progress import steps
from mrclab.results.reading import RESULT, FolderError, recorded_in
from mrclab.results.terminal import Terminal
from mrclab.runs import artifact as artifacts
from mrclab.runs import execute
from mrclab.runs.artifact import Repeated
from mrclab.studies.sweeps.work import PLAN
from p4lite.scratch import scratch

app = typer.Typer(
    help="Pack runs with all that is needed to repeat them, and repeat the runs of such a file.",
    no_args_is_help=True,
    add_completion=False,
)
Json = Annotated[bool, typer.Option("--json", help="print JSON")]


@app.command()
def pack(
    runs: Annotated[list[pathlib.Path], typer.Argument(help="folders of results, as `mrclab run` writes them")],
    output: Annotated[pathlib.Path, typer.Option("-o", "--output", help="the file to write")] = pathlib.Path(
        "artifact.zip"
    ),
    as_json: Json = False,
) -> None:
    """Pack runs into one file, with their policies and programs, versions, and digests."""
    for folder in runs:
        _check_is_run(folder)
    made = artifacts.pack(runs, output)
    if as_json:
        typer.echo(json.dumps(encode(made), indent=1))
    else:
        count = len(made.runs)
        typer.echo(f"{output}: {count} run{'' if count == 1 else 's'}, {format_size(output.stat().st_size)}")


def _check_is_run(folder: pathlib.Path) -> None:
    """Check that a folder is that of a run.

    Raises:
        FolderError: it is not; of a sweep's folder names the way from it to runs that can be packed.
    """
    if not (folder / RESULT).is_file() and (folder / PLAN).is_file():
        shown = printable(str(folder))
        raise FolderError(
            f"{shown}: this is the folder of a sweep, which keeps the numbers of its runs and not what repeats them; "
            f"`mrclab sweep repeat {shown} RUN -o one` writes a run of it as files, `mrclab run one/experiment.yaml -o "
            "run` records it, and `mrclab artifact pack run` packs that"
        )
    recorded_in(folder)


@app.command()
def check(
    file: Annotated[pathlib.Path, typer.Argument(help="a file that `mrclab artifact pack` wrote")],
    trust_code: TrustCode = False,
    as_json: Json = False,
) -> None:
    """Repeat the runs of a file, and compare the results with those in it.

    In simulated time they must be the same bytes, on the real clock the same verdict. Exit with 1 if one differs.
    """
    rows: list[Repeated] = []
    with scratch("artifact") as folder, steps() as tell:
        place = pathlib.Path(folder, "unpacked")
        place.mkdir(mode=0o700)
        made = artifacts.unpack(file, place)
        rows += artifacts.check(made, place, pathlib.Path(folder, "repeated"), trust_code=trust_code, progress=tell)
        here = execute.software()
    if as_json:
        documents = [{**encode(row), "same": row.same} for row in rows]
        typer.echo(json.dumps({"same_sources": here == made.sources, "runs": documents}, indent=1))
    else:
        _show(rows)
        if here != made.sources:
            typer.echo(f"the sources differ: it was made by mrclab {printable(made.version)}, {made.sources[:12]}")
    raise SystemExit(0 if all(row.same for row in rows) else 1)


def _show(rows: list[Repeated]) -> None:
    table = Table(box=None)
    for column in ("run", "clock", "verdict then", "now", "results"):
        table.add_column(column)
    words = {True: "passed", False: "failed"}
    for row in rows:
        if row.results is None:
            results = "not compared, because no two runs on the real clock are the same"
        else:
            results = "other bytes in " + "; ".join(row.results) if row.results else "the same bytes"
        if row.contradictions:
            results += f"; the packed verdict is not that of the packed results ({', '.join(row.contradictions)})"
        colour = "green" if row.same else "red"
        verdicts = (words[row.passed_before], words[row.passed])
        table.add_row(printable(row.run.name), printable(row.run.clock), *verdicts, Text(results, colour))
    console = Terminal()
    console.print(table)
    for row in rows:
        for line in row.differences:
            console.print(f"{row.run.name}: {line}", highlight=False)
