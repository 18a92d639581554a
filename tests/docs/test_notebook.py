"""The workshop's notebook runs from top to bottom, and shows what its text says."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import json
import pathlib
import re
from typing import Any

import pytest

from support import cli, docs

FILE = pathlib.Path(__file__).parents[2] / "workshop" / "notebook.ipynb"
SCRIPT = FILE.parents[1] / "examples" / "lab.ipynb"


def cells(kind: str, file: pathlib.Path = FILE) -> list[str]:
    notebook = json.loads(file.read_text(encoding="utf-8"))
    return ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == kind]


def printed_by_jupyter(folder: pathlib.Path) -> str:
    """Return what the cells print in a kernel of Jupyter."""
    import nbclient
    import nbformat

    notebook = nbformat.read(FILE, as_version=4)
    nbclient.NotebookClient(notebook, timeout=600, resources={"metadata": {"path": str(folder)}}).execute()
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    assert any("image/png" in output.get("data", {}) for output in outputs)
    return "".join(output.text for output in outputs if output.output_type == "stream" and output.name == "stdout")


def printed_here(folder: pathlib.Path) -> str:
    """Return the same without Jupyter."""
    import matplotlib

    matplotlib.use("Agg")
    return run_cells(FILE, folder, {})


def run_cells(file: pathlib.Path, folder: pathlib.Path, names: dict[str, Any]) -> str:
    """Run the code of a notebook; return what it prints, with its variables in `names`."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.chdir(folder):
        for cell in cells("code", file):
            exec(compile(cell, str(file), "exec"), names)
    return said.getvalue()


@pytest.mark.slow
def test_the_notebook_of_a_lab_runs_and_shows_its_results(tmp_path: pathlib.Path) -> None:
    names: dict[str, Any] = {}
    printed = run_cells(SCRIPT, tmp_path, names)
    bad = [int(count) for count in re.findall(r"'ASSUMED_BAD': (\d+)", printed)]
    assert bad[0] > 0 == bad[1]
    result, found = names["result"], names["found"]
    assert result.passed
    assert f"goodput was back after {result.recovery('p0-t1.1') * 1000:.0f} ms" in printed
    assert f"<td>{result.goodput / 1e6:.2f} Mb/s</td>" in result._repr_html_()
    goodput = found.frame()["goodput_bps"]
    assert len(goodput) == 6
    (difference,) = found.differences
    assert difference.mean == pytest.approx(sum(goodput[3:]) / 3 - sum(goodput[:3]) / 3)
    assert f"{difference.mean / 1e6:+.1f}" in printed
    assert f"{difference.mean:+.4g}" in found._repr_html_()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_notebook_runs_and_shows_its_results(tmp_path: pathlib.Path) -> None:
    jupyter = all(importlib.util.find_spec(name) for name in ("nbclient", "ipykernel"))
    printed = (printed_by_jupyter if jupyter else printed_here)(tmp_path)
    # What the learner is to find out is neither computed nor printed.
    assert not re.search(r"0\.906|1\.266|0\.90625", printed + FILE.read_text(encoding="utf-8"))
    flows = re.findall(r"seed \d: uplinks \[([^]]*)\] of their mean, slowest flow ([\d.]+) Mb/s", printed)
    sprayed = re.findall(r"(\d+) EVs: uplinks \[([^]]*)\] of their mean, slowest flow ([\d.]+) Mb/s", printed)
    assert len(flows) == 3
    assert [evs for evs, _, _ in sprayed] == ["4", "16", "64"]
    # One EV is one path: some uplink has at least two flows, and another none.
    assert any(max(map(float, loads.split())) > 1.9 and min(map(float, loads.split())) < 0.1 for loads, _ in flows)
    last = [float(load) for load in sprayed[-1][1].split()]
    assert max(last) < 1.5
    assert min(last) > 0.5
    assert float(sprayed[-1][2]) > 1.5 * min(float(rate) for _, rate in flows)


@pytest.mark.parametrize("file", [FILE, SCRIPT], ids=lambda file: file.name)
def test_notebook_in_the_repository_has_no_results(file: pathlib.Path) -> None:
    """What a run leaves in it is not committed: it would go stale, and differ on every machine."""
    notebook = json.loads(file.read_text(encoding="utf-8"))
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert [cell for cell in code if cell["outputs"] or cell["execution_count"] is not None] == []
    assert notebook["nbformat"] == 4


def test_command_of_the_notebook_is_accepted_by_its_parser(tmp_path: pathlib.Path) -> None:
    page = tmp_path / "notebook.md"
    page.write_text("\n\n".join(cells("markdown")))
    found = docs.commands(page)
    assert len(found) >= 2
    wrong = [cli.problem(words, loosely=command.inline) for command in found for words in command.parts]
    assert [each for each in wrong if each and "workshop" not in each] == []
