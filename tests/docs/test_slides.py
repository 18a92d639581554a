"""The slides for teaching: links lead to pages, and a browser shows them without a network."""

from __future__ import annotations

import html
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

from mrclab.web import assets

ROOT = pathlib.Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "docs"))

import slides  # type: ignore[import-not-found]  # noqa: E402 - beside the pages, as the build finds it

BROWSERS = ("chromium-headless-shell", "chromium")


@pytest.mark.parametrize("name", slides.DECKS)
def test_links_of_a_deck_lead_to_pages_of_the_site(name: str) -> None:
    links = re.findall(r"\]\((?!data:)([^)#]+)", html.unescape(slides.deck(name)))
    assert len(links) >= 5
    for link in links:
        place = (ROOT / "docs/teaching/decks" / link).resolve()
        page = pathlib.Path(str(place).replace("/docs/workshop/", "/workshop/")).with_suffix(".md")
        assert page.is_file() or page.with_name("README.md").is_file(), link


def test_without_the_library_it_says_so(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(slides, "LIBRARY", tmp_path / "none")
    monkeypatch.setenv("NPM_CONFIG_REGISTRY", "http://127.0.0.1:9")
    for more, code in (([], 1), (["--if-possible"], 0)):
        monkeypatch.setattr(sys, "argv", ["slides.py", str(tmp_path / "decks"), *more])
        assert slides.main() == code
        assert "no slides: reveal.js is not fetched: http://127.0.0.1:9/" in capsys.readouterr().err
    assert not (tmp_path / "decks").exists()


@pytest.mark.slow
def test_browser_shows_a_deck_from_the_file_system(tmp_path: pathlib.Path) -> None:
    browser = next((found for each in BROWSERS if (found := shutil.which(each))), None)
    if browser is None:
        pytest.skip("no Chromium: make setup-web")
    if assets.missing(slides.LIST, slides.LIBRARY):
        pytest.skip("reveal.js is not here: make docs")
    for path in slides.write(tmp_path):
        done = subprocess.run(
            [browser, "--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=5000", "--dump-dom",
             f"--user-data-dir={tmp_path / 'profile'}", "--host-resolver-rules=MAP * ~NOTFOUND", path.as_uri()],
            capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        number = sum(len(slides.slides(part)) for part in slides.DECKS[path.stem][1])
        assert done.stdout.count("<h2") == done.stdout.count('<aside class="notes"') == number, done.stderr[-500:]
        assert "mrclab workshop start 1" in done.stdout
