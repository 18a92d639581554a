"""Links of pages, as readers of the checkout meet them: on GitHub or as plain Markdown, without the site."""

from __future__ import annotations

import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).parents[2]
FOLDERS = (".", "docs", "experiments", "workshop", "examples", "p4", "tests", "benchmarks", "setup", "vagrant")
PAGES = sorted({path for folder in FOLDERS for path in (ROOT / folder).glob("*.md" if folder == "." else "**/*.md")})
#: Code is left alone, but not a link whose text is code.
LINK_OR_CODE = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)|^ *```.*?^ *```|`[^`\n]+`", re.M | re.S)


def dead_links(page: pathlib.Path) -> list[str]:
    """Return the relative links of a page that lead to no file or folder."""
    links = [match[1] for match in LINK_OR_CODE.finditer(page.read_text(encoding="utf-8")) if match[1]]
    names = {link.partition("#")[0] for link in links if not re.match(r"[a-z]+:", link)}
    return sorted(name for name in names if name and not (page.parent / name).exists())


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_each_relative_link_leads_to_something_in_the_checkout(page: pathlib.Path) -> None:
    assert dead_links(page) == []


def test_a_dead_link_is_found_and_code_is_none(tmp_path: pathlib.Path) -> None:
    page = tmp_path / "page.md"
    (tmp_path / "there.md").touch()
    page.write_text(
        "[a](there.md#part) [`b`](gone.md) ![c](gone.svg) [d](https://example.org) [e](#here)\n"
        "`[f](code.md)`\n\n```text\n[g](block.md)\n```\n"
    )
    assert dead_links(page) == ["gone.md", "gone.svg"]
