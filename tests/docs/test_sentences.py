"""`docs/sentences.py`, which measures the length of sentences in the documentation."""

from __future__ import annotations

import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[2]
MOST_WORDS = 20

PAGE = """# A heading does not count

One two `mrclab fail p0-t0.1 --set loss=0.2` four. [Five six](learn/mrc.md#a-packet "of a page") (e.g. seven eight).
A third one: with a colon; that ends nothing, at 0.95 of
the line.

| a table | does not count at all, however long its cells are |
|---|---|

    an indented block. Does not count. At all.

    nor its second part

* an item
  of two lines
* another one

```sh
mrclab down   # A fenced block. Neither.
```

<!-- A comment. Neither. -->
Is `--force` last? Yes!
"""


def measured(*arguments: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "docs/sentences.py", *arguments], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return done.stdout.splitlines()


def test_each_kind_of_text_is_counted_or_left_out(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "page.md"
    path.write_text(PAGE)
    _, summary, *longest = measured(str(path), "--longest", "9")
    assert [" ".join(line.split()) for line in longest] == [
        "14 A third one: with a colon; that ends nothing, at 0.95 of the line.",
        "5 Five six (e.g seven eight).",
        "5 an item of two lines",
        "4 One two code four.",
        "3 Is code last?",
        "2 another one",
        "1 Yes!",
    ]
    assert summary.split() == [f"{34 / 7:.1f}", "7", str(path)]


def test_page_without_sentences_has_average_zero(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "page.md"
    path.write_text("# A heading\n\n    code\n")
    assert measured(str(path))[1].split() == ["0.0", "0", str(path)]


@pytest.mark.parametrize("name", ["README.md", "docs/index.md", "workshop/01-usid/README.md"])
def test_pages_of_every_folder_are_measured_without_arguments(name: str) -> None:
    assert name in [line.split()[-1] for line in measured()]


def test_average_sentence_of_every_page_has_at_most_20_words() -> None:
    long = [line for line in measured()[1:] if float(line.split()[0]) > MOST_WORDS]
    assert long == [], "split the longest sentences; `python docs/sentences.py --longest 5 PAGE` prints them"
