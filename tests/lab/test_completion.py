"""Candidates at the Tab key, by the hooks of typer's completion."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from mrclab.cli import common

MAIN = "from mrclab.cli.entry import main; main()"


def complete(line: str, program: str = MAIN) -> str:
    """Return what bash is answered for the last word of a line."""
    words = line.split(" ")
    asked = {"_MRCLAB_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1)}
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | asked,
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    return done.stdout


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("mrclab ru", ["run"]),
        ("mrclab run fabric-l", ["fabric-links"]),
        ("mrclab run all_to", ["all_to_all"]),
        ("mrclab run --cloc", ["--clock"]),
        ("mrclab run nonsense-", []),
        ("mrclab topo sh", ["show"]),
    ],
)
def test_verbs_options_and_names_are_completed(line: str, wanted: list[str]) -> None:
    assert complete(line).split() == wanted


def test_labs_that_are_up_are_completed(monkeypatch: pytest.MonkeyPatch) -> None:
    class Up:
        name = "mine"

    monkeypatch.setattr(common, "all_runs", lambda: [Up()])
    assert (common._running_labs("m"), common._running_labs("x")) == (["mine"], [])


def test_a_verb_is_completed_without_importing_any() -> None:
    program = f"import sys\ntry:\n    {MAIN}\nfinally:\n    assert 'mrclab.cli.run' not in sys.modules"
    assert complete("mrclab ru", program=program).split() == ["run"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_code_for_a_shell_is_printed(shell: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", MAIN],
        env={**os.environ, "_MRCLAB_COMPLETE": f"source_{shell}"},
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    assert "_MRCLAB_COMPLETE=complete_" in done.stdout
