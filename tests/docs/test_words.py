"""`docs/words.py`, the check of the language in `make lint`."""

from __future__ import annotations

import json
import pathlib
import re
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


def test_sentences_of_pages_contain_no_vague_word() -> None:
    """Code, tables and printed output are left out, as for the length of sentences."""
    vague = re.compile(r"\b(nobody|somebody|whoever|so many|is told|anew)\b", re.IGNORECASE)
    code = "import sys; sys.path.insert(0, 'docs'); import sentences, json; print(json.dumps({str(page): [' '.join("
    code += "words) for words in sentences.measure(page).sentences] for page in sentences.pages()}))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    pages: dict[str, list[str]] = json.loads(done.stdout)
    assert len(pages) > 80
    found = [(name, sentence) for name, page in pages.items() for sentence in page if vague.search(sentence)]
    assert found == []
