"""Measure the length of sentences in the documentation.

    python docs/sentences.py [PAGE ...]    prints words per sentence of each page, the longest average first
    python docs/sentences.py --longest N   also prints the N longest sentences of each page

Without pages all Markdown pages of the repository are measured. Code blocks, tables, headings, comments and the targets
of links do not count. Code in running text counts as one word. An item of a list is at least one sentence. A sentence
ends at `.`, `!` or `?` before a space and an upper-case letter, or at the end of its paragraph, but not at a colon or a
semicolon.
"""

from __future__ import annotations

import argparse
import dataclasses
import pathlib
import re
import sys

from mrclab.cli.errors import report_errors

ROOT = pathlib.Path(__file__).parents[1]
PATTERNS = ("*.md", "docs/**/*.md", "experiments/**/*.md", "examples/*.md", "workshop/**/*.md")

_FENCED = re.compile(r"^ *(```|~~~).*?^ *\1 *$", re.M | re.S)
_COMMENT = re.compile(r"<!--.*?-->", re.S)
_ITEM = re.compile(r"^ *(?:[*+-]|\d+[.)]) +")
_ABBREVIATIONS = re.compile(r"\b(e\.g|i\.e|et al|vs|cf|Fig|No)\.(?= )")
_END = re.compile(r"(?<=[.!?])[\"')*_]*\s+(?=[\"'(*_]*[A-Z0-9\x00])")
CODE = "\x00"
"""What stands for code in running text while a page is measured."""


@dataclasses.dataclass(frozen=True)
class Page:
    """A page and its sentences in order, each as its words; code is the word `code`."""

    path: pathlib.Path
    sentences: tuple[tuple[str, ...], ...]

    @property
    def average(self) -> float:
        """Words per sentence; 0 for a page without sentences."""
        return sum(map(len, self.sentences)) / len(self.sentences) if self.sentences else 0.0


def sentences(text: str) -> list[tuple[str, ...]]:
    """Return the words of each sentence of a page's Markdown."""
    found = []
    for paragraph in _paragraphs(text):
        for sentence in _END.split(_ABBREVIATIONS.sub(r"\1", paragraph)):
            words = tuple("code" if CODE in word else word for word in sentence.split() if re.search(r"\w|\x00", word))
            if words:
                found.append(words)
    return found


def _paragraphs(text: str) -> list[str]:
    """Return paragraphs and items of lists, each on one line, without what does not count."""
    text = _COMMENT.sub("", _FENCED.sub("\n", text))
    found: list[list[str]] = [[]]
    in_item = False
    for line in text.splitlines():
        if not line.strip():
            found.append([])
            continue
        if _ITEM.match(line):
            in_item = True
            found.append([_ITEM.sub("", line)])
        elif line.startswith("    ") and not in_item and not found[-1]:
            # An indented block of code: its other lines follow an empty paragraph, too.
            continue
        elif line.lstrip().startswith(("#", "|", "![")):
            found.append([])
        else:
            in_item = in_item and line.startswith(" ")
            found[-1].append(line.strip())
    return [_plain(" ".join(lines)) for lines in found if lines]


def _plain(text: str) -> str:
    """Return a paragraph with links as their text and each piece of code as one character."""
    text = re.sub(r"`+[^`]+`+", CODE, text)
    return re.sub(r"!?\[([^\]]*)\](?:\([^)]*\)|\[[^\]]*\])?", r"\1", text)


def measure(path: pathlib.Path) -> Page:
    """Measure one page."""
    return Page(path, tuple(sentences(path.read_text(encoding="utf-8"))))


def pages() -> list[pathlib.Path]:
    """Return all pages of the repository."""
    return sorted({path for pattern in PATTERNS for path in ROOT.glob(pattern)})


def main(arguments: list[str]) -> int:
    """Print a line for each page: average, number of sentences, name."""
    parser = argparse.ArgumentParser(description="Measure the length of sentences in the documentation.")
    parser.add_argument("page", nargs="*", type=pathlib.Path, help="a Markdown file (default: all pages)")
    parser.add_argument(
        "--longest", type=int, default=0, metavar="N", help="also print the N longest sentences of each"
    )
    chosen = parser.parse_args(arguments)
    measured = sorted(map(measure, chosen.page or pages()), key=lambda page: -page.average)
    print("words  sentences  page")
    for page in measured:
        name = page.path.relative_to(ROOT) if page.path.is_relative_to(ROOT) else page.path
        print(f"{page.average:5.1f}  {len(page.sentences):9}  {name}")
        for sentence in sorted(page.sentences, key=len, reverse=True)[: chosen.longest]:
            print(f"       {len(sentence):9}  {' '.join(sentence)}")
    return 0


if __name__ == "__main__":
    with report_errors():
        code = main(sys.argv[1:])
        sys.stdout.flush()
    sys.exit(code)
