"""The site of `make docs`: links and anchors lead somewhere, nothing is asked of the network, nothing is missing."""

from __future__ import annotations

import os
import pathlib
import re
import subprocess
import sys

import pytest
import yaml

ROOT = pathlib.Path(__file__).parents[2]
pytest.importorskip("mkdocs", reason="the extra `docs` is not installed: make docs")
# Without --quiet, which takes warnings from --strict, too.
MKDOCS = [sys.executable, "-m", "mkdocs", "build"]


def build(config: pathlib.Path, site: pathlib.Path) -> subprocess.CompletedProcess[str]:
    command = [*MKDOCS, "--config-file", str(config), "--site-dir", str(site)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300, check=False)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    folder = tmp_path_factory.mktemp("site")
    done = build(ROOT / "mkdocs.yml", folder)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.slow
def test_site_loads_nothing_from_the_network(site: pathlib.Path) -> None:
    loaded = re.compile(r'<(?:script|link|img|iframe|source)\b[^>]*?(?:src|href)="((?:https?:)?//[^"]+)"')
    styles = re.compile(r"url\(\s*['\"]?((?:https?:)?//[^)'\"]+)|@import[^;]*//")
    asked = {
        (str(path.relative_to(site)), found.group(0))
        for path in site.rglob("*")
        if path.suffix in (".html", ".css")
        for found in (loaded if path.suffix == ".html" else styles).finditer(path.read_text(encoding="utf-8"))
    }
    # Which page is the main one is told to search engines, not loaded.
    assert sorted(each for each in asked if 'rel="canonical"' not in each[1]) == []
    # The theme fetches a renderer for charts of this class.
    assert [path for path in site.rglob("*.html") if 'class="mermaid"' in path.read_text(encoding="utf-8")] == []


@pytest.mark.slow
def test_links_of_the_site_lead_to_files_without_a_server(site: pathlib.Path) -> None:
    for page in site.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        for link in re.findall(r'(?:href|src)="([^"#?]+)', text):
            if page.name == "404.html" or re.match(r"[a-z]+:", link) or link.startswith("//"):
                continue
            assert not link.startswith("/"), (page, link)
            assert (page.parent / link).is_file(), (page.relative_to(site), link)
    assert "iframe-worker.js" in (site / "index.html").read_text()
    assert (site / "search/search_index.js").read_text().startswith("var __index = {")


@pytest.mark.slow
def test_site_has_a_page_for_every_exercise_experiment_and_command(site: pathlib.Path) -> None:
    for folder in ("experiments", "workshop"):
        for path in [*ROOT.glob(f"{folder}/README.md"), *ROOT.glob(f"{folder}/[!T]*/README.md")]:
            assert (site / path.relative_to(ROOT).with_name("index.html")).is_file(), path
    commands = (site / "reference/cli.html").read_text()
    assert "mrclab topo plan" in commands
    assert "--allow-interface" in commands
    assert "qps_per_peer" in (site / "reference/experiment-file.html").read_text()
    api = (site / "reference/api-protocol.html").read_text()
    assert "InflightAccount" in api
    assert "Endpoint.receive_datagram" in api


def test_link_without_target_fails_the_build(tmp_path: pathlib.Path) -> None:
    wrong = ["[a](nothing.md)", "[b](page.md#nowhere)", "[c](/page.md)", "![d](nothing.svg)"]
    pages = tmp_path / "docs"
    pages.mkdir()
    (pages / "page.md").write_text("# A page\n\n" + "\n\n".join(wrong))
    config = tmp_path / "mkdocs.yml"
    plain = {"INHERIT": str(ROOT / "mkdocs.yml"), "docs_dir": "docs", "hooks": [], "plugins": [], "nav": ["page.md"]}
    config.write_text(yaml.safe_dump(plain))
    done = build(config, tmp_path / "site")
    assert done.returncode == 1
    assert all(said in done.stderr for said in ("'nothing.md'", "'page.md#nowhere'", "'/page.md'", "'nothing.svg'")), (
        done.stderr
    )
    (pages / "page.md").write_text("# A page\n\n[there](page.md#a-page)\n")
    assert build(config, tmp_path / "site").returncode == 0
