"""Make the slides of `docs/teaching/slides`: decks of reveal.js that open from the file system, with speaker notes.

    python docs/slides.py FOLDER [--if-possible]

A part is a page: slides between lines of `---`, notes after a line `Note:`. A deck is a list of parts. reveal.js comes
from the npm registry once, by the hash in `slides.json`, into `build/slides`, as the live view's libraries do.
`--if-possible`: without it in a place that has no network, say so and go on.
"""

from __future__ import annotations

import argparse
import base64
import html
import os
import pathlib
import re
import shutil
import sys
from typing import Final

from mrc_topo.base.files import write_whole
from mrclab.web import assets

HERE: Final = pathlib.Path(__file__).resolve().parent
PARTS: Final = HERE / "teaching" / "slides"
LIST: Final = HERE / "slides.json"
LIBRARY: Final = HERE.parent / "build" / "slides"
#: The decks: title and parts, by file name.
DECKS: Final = {
    "90-minutes": ("MRC in 90 minutes", ("mrc", "demonstration", "usid", "spraying", "end")),
    "half-day": (
        "MRC in half a day",
        ("mrc", "demonstration", "usid", "spraying", "queues", "loss", "failures", "end"),
    ),
}
IMAGE = re.compile(r"\]\((\.\./[^)\s]+\.svg)\)")
LINK = re.compile(r"\]\((\.\.?/[^)\s#]+)(#[^)\s]*)?\)")
PAGE: Final = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="stylesheet" href="reveal/reset.css"><link rel="stylesheet" href="reveal/reveal.css">
<link rel="stylesheet" href="reveal/white.css">
<style>.reveal{{font-size:30px}}.reveal pre{{font-size:.62em;width:100%;box-shadow:none}}
.reveal table{{font-size:.75em;margin:0 auto}}.reveal ul,.reveal ol,.reveal pre{{text-align:left}}
.reveal ul,.reveal ol{{display:inline-block;max-width:90%}}.reveal img{{max-height:500px;width:90%;object-fit:contain}}
.reveal .slide-number{{bottom:.8rem;left:1rem;right:auto}}.reveal h2{{color:#0072b2}}.reveal{{color:#1c2733}}
.reveal pre code{{max-height:560px;padding:.6em;background:#f6f8fa}}.reveal h1,.reveal h2{{text-transform:none}}
</style></head>
<body><div class="reveal"><div class="slides">
{sections}
</div></div>
<script src="reveal/reveal.js"></script><script src="reveal/markdown.js"></script>
<script src="reveal/notes.js"></script>
<script>Reveal.initialize({{hash: true, slideNumber: "c/t", plugins: [RevealMarkdown, RevealNotes]}});</script>
</body></html>
"""


def slides(part: str) -> list[str]:
    """Return the slides of a part in Markdown; what stands before its first line of `---` is for readers of the
    site."""
    text = (PARTS / f"{part}.md").read_text(encoding="utf-8")
    return [each.strip() for each in re.split(r"^---$", text, flags=re.MULTILINE)[1:]]


def deck(name: str) -> str:
    """Return the page of a deck."""
    title, parts = DECKS[name]
    sections = [_section(f"# {title}\n\nKeys: `S` opens the speaker's view with notes, `?` lists the others.")]
    for part in parts:
        sections += ["<section>", *(_section(_linked(each)) for each in slides(part)), "</section>"]
    return PAGE.format(title=html.escape(title), sections="\n".join(sections))


def _section(text: str) -> str:
    # The text lies in the page, because a page from the file system may not read other files.
    return (
        '<section data-markdown data-separator-notes="^Note:"><textarea data-template>\n'
        f"{html.escape(text, quote=False)}\n</textarea></section>"
    )


def _linked(text: str) -> str:
    """Let links lead to the site's pages from the folder of the decks, `teaching/decks`."""

    def there(found: re.Match[str]) -> str:
        target = os.path.normpath(f"teaching/slides/{found[1]}")
        page = re.sub(r"(README)?\.md$", lambda end: "index.html" if end[1] else ".html", target)
        return f"]({os.path.relpath(page.removeprefix('../'), 'teaching/decks')}{found[2] or ''})"

    def inside(found: re.Match[str]) -> str:
        data = base64.b64encode((PARTS / found[1]).read_bytes()).decode()
        return f"](data:image/svg+xml;base64,{data})"

    # A deck is one file: its figures are in it.
    return LINK.sub(there, IMAGE.sub(inside, text))


def write(folder: pathlib.Path) -> list[pathlib.Path]:
    """Write all decks and the library into a folder; return the decks.

    Raises:
        AssetError: the library cannot be fetched.
        WriteError: a file cannot be written.
    """
    assets.fetch(listed=LIST, folder=LIBRARY)
    (folder / "reveal").mkdir(parents=True, exist_ok=True)
    for entry in assets.wanted(LIST).values():
        for file in entry.files.values():
            shutil.copyfile(LIBRARY / file, folder / "reveal" / file)
    made = []
    for name in DECKS:
        write_whole(folder / f"{name}.html", deck(name))
        made.append(folder / f"{name}.html")
    return made


def main() -> int:
    """Write the decks; return 1 if the library is missing and cannot be fetched."""
    parser = argparse.ArgumentParser(description="Make the slides for teaching.")
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--if-possible", action="store_true", help="go on without slides where there is no network")
    given = parser.parse_args()
    try:
        for path in write(given.folder):
            print(f"open {path}")
    except assets.AssetError as error:
        print(f"no slides: {error}", file=sys.stderr)
        return 0 if given.if_possible else 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
