"""`docs/words.py`, the check of the language in `make lint`."""

from __future__ import annotations

import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[2]


def checked(*arguments: str) -> tuple[int, list[str]]:
    done = subprocess.run(
        [sys.executable, "docs/words.py", *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout.splitlines()


def test_product_files_contain_no_vague_word() -> None:
    assert checked() == (0, [])


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("#: Nobody waits.", "nobody"),
        ('"""A peer that is  told."""', "is told"),
        ("#: So many bytes.", "so many"),
        ("x = 'begins anew'", "anew"),
    ],
)
def test_vague_word_is_reported_with_its_place(tmp_path: pathlib.Path, text: str, word: str) -> None:
    (tmp_path / "module.py").write_text(f"import os\n{text}\n")
    code, lines = checked(str(tmp_path))
    assert code == 1
    assert [line.partition(" is vague")[0] for line in lines] == [f"{tmp_path}/module.py:2: '{word}'"]


def test_vague_word_inside_another_word_is_not_reported(tmp_path: pathlib.Path) -> None:
    (tmp_path / "module.py").write_text("CANEWT = 1\n# this told, so manyfold\n")
    assert checked(str(tmp_path)) == (0, [])
