"""What `mkdocs.yml` asks of this project beyond docs/: pages made from the program, and pages that live elsewhere.

* Reference pages (`reference.py`) are generated at each build. The files of their names in `reference/` are for readers
  of a checkout, and say how to make the pages.
* READMEs of the workshop and the experiments, CONTRIBUTING.md and CHANGELOG.md are pages; their links, and those of
  docs/ to them, lead to where they are on the site. A file that a page links to comes along in `files/`.
* Flow charts in Mermaid become pictures by graphviz's `dot`, so that no script is fetched; without it they stay text.
"""

from __future__ import annotations

import html
import logging
import os
import pathlib
import re
import shutil
import subprocess
import sys
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent
sys.path.insert(0, str(HERE))

import reference  # type: ignore[import-not-found]  # noqa: E402 - beside this file, which mkdocs loads by its path

LOG = logging.getLogger("mkdocs.plugins.mrclab")
LINK = re.compile(r"(!?\[[^\]]*\]\()([^)\s]+)(\))")
# Code is left alone, but not a link whose text is code.
CODE_OR_LINK = re.compile(rf"{LINK.pattern}|^ *```.*?^ *```|`[^`\n]+`", re.M | re.S)


def outside() -> dict[str, pathlib.Path]:
    """Pages from outside docs/, by their place on the site."""
    found = {name: ROOT / name for name in ("CONTRIBUTING.md", "CHANGELOG.md")}
    for folder in ("workshop", "experiments"):
        for path in sorted(ROOT.glob(f"{folder}/README.md")) + sorted(ROOT.glob(f"{folder}/[!T]*/README.md")):
            relative = path.relative_to(ROOT)
            found[str(relative.with_name("index.md"))] = path
    return found


def title_of(path: pathlib.Path) -> str:
    """Return a page's first heading."""
    found = re.search(r"^# +(.+)$", path.read_text(encoding="utf-8"), re.M)
    return found[1].strip() if found else path.parent.name


def _pages(folder: str) -> list[dict[str, str]]:
    return [{title_of(path): place} for place, path in outside().items() if place.startswith(f"{folder}/")]


def generated() -> dict[str, tuple[str, str]]:
    """Pages made from the program: title and text by their place."""
    found = {f"reference/{name}.md": (title, make()) for name, (title, make) in reference.PAGES.items()}
    for title in reference.API:
        found[f"reference/{reference.file_name(title)}.md"] = (title, reference.api(title))
    return found


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Return the parts of the navigation that follow from what there is, a place for pages that it does not name, and
    pictures instead of scripts."""
    api = [{title: f"reference/{reference.file_name(title)}.md"} for title in reference.API]
    parts: dict[str, list[dict[str, str]]] = {
        "WORKSHOP": _pages("workshop"),
        "EXPERIMENTS": _pages("experiments"),
        "API": api,
    }
    config.nav = _filled(config.nav or [], parts)
    named = set(re.findall(r"[\w./-]+\.md", repr(config.nav)))
    rest = sorted(str(path.relative_to(HERE)) for path in HERE.rglob("*.md"))
    if more := [{title_of(HERE / place): place} for place in rest if place not in named]:
        config.nav.append({"More": more})
    fences = [{"name": "mermaid", "class": "chart", "format": chart}]
    config.mdx_configs.setdefault("pymdownx.superfences", {})["custom_fences"] = fences
    return config


def _filled(nav: list[Any], parts: dict[str, list[dict[str, str]]]) -> list[Any]:
    filled = []
    for entry in nav:
        ((title, what),) = entry.items()
        what = parts.get(what, what) if isinstance(what, str) else _filled(what, parts)
        if what:
            filled.append({title: what})
    return filled


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add the pages that are not in docs/, and what they link to."""
    for place, (_, text) in generated().items():
        if (standing_in := files.get_file_from_path(place)) is not None:
            files.remove(standing_in)
        files.append(File.generated(config, place, content=text))
    pages = outside()
    for place, path in pages.items():
        files.append(File.generated(config, place, content=path.read_text(encoding="utf-8")))
    sources = {file.src_uri: HERE / file.src_uri for file in files.documentation_pages() if not file.generated_by}
    for path in [*sources.values(), *pages.values()]:
        for match in LINK.finditer(path.read_text(encoding="utf-8")):
            target = _target(path, match[2])
            if target and target.is_file() and target.suffix != ".md" and not target.is_relative_to(HERE):
                place = f"files/{target.relative_to(ROOT)}"
                if files.get_file_from_path(place) is None:
                    files.append(File.generated(config, place, abs_src_path=str(target)))
    return files


def _target(path: pathlib.Path, link: str) -> pathlib.Path | None:
    """Return the file of the repository that a link of a page leads to; None for a place in the page or on the
    network.
    """
    name = link.partition("#")[0]
    if not name or re.match(r"[a-z]+:", name):
        return None
    target = pathlib.Path(os.path.normpath(path.parent / name))
    if target.is_dir() and (target / "README.md").is_file():
        target /= "README.md"
    return target if target.is_relative_to(ROOT) else None


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Links lead to where things are on the site."""
    pages = outside()
    source = pages.get(page.file.src_uri, HERE / page.file.src_uri)
    places = {path: place for place, path in pages.items()} | {ROOT / "README.md": "index.md"}

    def link(match: re.Match[str]) -> str:
        target = _target(source, match[2])
        if target is None:
            return match[0]
        if target in places:
            place = places[target]
        elif target.is_relative_to(HERE):
            place = str(target.relative_to(HERE))
        else:
            place = f"files/{target.relative_to(ROOT)}"
        anchor = match[2].partition("#")[1:]
        there = os.path.relpath(place, pathlib.PurePosixPath(page.file.src_uri).parent)
        return f"{match[1]}{there}{''.join(anchor)}{match[3]}"

    return CODE_OR_LINK.sub(lambda match: match[0] if match[2] is None else link(match), markdown)


# --- charts -----------------------------------------------------------------------------------------------------


def chart(source: str, language: str, css_class: str, options: Any, md: Any, **_: Any) -> str:
    """Return a Mermaid flow chart as SVG."""
    program = shutil.which("dot")
    dot = to_dot(source)
    if program is None or dot is None:
        if dot is not None:
            LOG.info("no `dot` (Debian: graphviz): charts stay text")
        return f"<pre><code>{html.escape(source)}</code></pre>"
    done = subprocess.run([program, "-Tsvg"], input=dot, capture_output=True, text=True, check=True)
    return f'<div class="{css_class}">{done.stdout[done.stdout.index("<svg") :]}</div>'


def to_dot(source: str) -> str | None:
    """Return a flow chart of Mermaid (nodes `name["text"]`, `a --> b`, subgraphs) for graphviz; None for any other."""
    head, _, body = source.strip().partition("\n")
    if head.split()[:1] not in (["flowchart"], ["graph"]):
        return None
    direction = {"LR": "LR", "RL": "RL", "BT": "BT"}.get(head.split()[-1], "TB")
    lines = [f'digraph {{ rankdir={direction}; node [shape=box, style=rounded, fontname="sans-serif", fontsize=11];']
    for line in map(str.strip, body.splitlines()):
        if match := re.fullmatch(r"subgraph (\w+)", line):
            lines.append(f'subgraph cluster_{match[1]} {{ label="{match[1]}"; fontname="sans-serif"; color="#888888";')
        elif line == "end":
            lines.append("}")
        elif match := re.fullmatch(r'(\w+)\["([^"]*)"\]', line):
            lines.append(f'{match[1]} [label="{match[2]}"];')
        elif match := re.fullmatch(r"(\w+) --> (\w+)", line):
            lines.append(f"{match[1]} -> {match[2]};")
        elif line:
            return None
    return "\n".join([*lines, "}"])
