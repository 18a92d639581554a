"""Texts of others on the terminal: nothing in them controls it, is taken for markup, or ends a command."""

from __future__ import annotations

import ast
import io
import os
import pathlib
import subprocess
import sys
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.table import Table
from rich.text import Text

from mrclab.cli import errors
from mrclab.results.terminal import Terminal
from p4lite.terminal import PlainStream, harmless

ROOT = pathlib.Path(__file__).parents[2]
HOSTILE = "\x1b]0;owned\x07\x1b[2J\r[/bold]\u202eabc\x9b31m"
#: Modules that may write past the streams: the stream itself, and processes that have no stream of ours.
ALLOWED = {
    "controller/mrclab/results/terminal.py", "p4/p4lite/terminal.py", "controller/mrclab/lab/processes/launch.py",
    "extras/mrc_workshop/confined.py",
}  # fmt: skip


def controls(text: str) -> list[str]:
    return [each for each in text if unicodedata.category(each) in ("Cc", "Zl", "Zp") and each not in "\t\n"] + [
        each for each in text if unicodedata.bidirectional(each) in ("LRE", "RLE", "PDF", "LRO", "RLO", "LRI", "RLI")
    ]


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_a_stream_passes_no_control_character(text: str) -> None:
    behind = io.StringIO(newline="")
    PlainStream(behind).write(text)
    assert not controls(behind.getvalue())
    assert harmless(behind.getvalue()) == behind.getvalue()
    kept = "".join(each for each in text if each.isprintable() or each in "\t\n")
    assert all(each in behind.getvalue() for each in kept)


def test_a_console_shows_hostile_texts_as_they_are() -> None:
    shown = io.StringIO()
    console = Terminal(file=shown, width=300, force_terminal=True, color_system=None, highlight=False)
    table = Table(title=HOSTILE)
    table.add_column(HOSTILE, min_width=100)
    table.add_row(HOSTILE)
    table.add_row(Text(HOSTILE, "red"))
    console.print(table)
    console.print(HOSTILE, style="bold")
    text = shown.getvalue()
    assert text.count("[/bold]") == 5
    assert "\x1b[2J" not in text
    assert "\x1b]0" not in text
    assert "\u202e" not in text


def test_an_error_that_quotes_a_huge_value_stays_short(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        errors.end(f"no lab '{'x' * 100_000}{HOSTILE}'")
    shown = capsys.readouterr().err
    assert len(shown) < errors.LONGEST + 200
    assert not controls(shown)


@pytest.mark.parametrize("name", ["[bold]", "[/bold]", "\x1b[31m"])
def test_the_path_that_is_printed_is_the_one_that_was_written(name: str, tmp_path: pathlib.Path) -> None:
    folder = tmp_path / name / "o"
    folder.parent.mkdir(parents=True)
    done = subprocess.run(
        [sys.executable, "-m", "mrclab.cli", "run", "write_lat", "--lab", "tiny", "--clock", "virtual", "-o", folder],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "COLUMNS": "400"},
    )
    assert done.returncode == 0, done.stderr
    assert (folder / "report.html").is_file()
    assert harmless(str(folder / "report.html")) in done.stdout
    assert not controls(done.stdout + done.stderr)


def test_no_module_prints_past_the_streams() -> None:
    """Rich's own console and markup, the streams behind ours, and descriptors 1 and 2 are for `ALLOWED` alone."""
    found = []
    for path in [*ROOT.glob("controller/**/*.py"), *ROOT.glob("p4/p4lite/**/*.py")]:
        name = path.relative_to(ROOT).as_posix()
        if name in ALLOWED:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call | ast.Attribute | ast.ImportFrom):
                continue
            text = ast.unparse(node)
            past = text.startswith(("os.write(1,", "os.write(2,", "rich.print")) or text in (
                "sys.__stdout__", "sys.__stderr__", "sys.stdout.buffer", "sys.stderr.buffer",
            )  # fmt: skip
            if isinstance(node, ast.ImportFrom) and node.module in ("rich", "rich.console", "rich.markup"):
                past = bool({"print", "Console", "render"} & {each.name for each in node.names})
            if past:
                found.append(f"{name}:{node.lineno}: {text[:60]}")
    assert not found
