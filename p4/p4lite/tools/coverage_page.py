"""Coverage as one page of HTML without scripts, readable on light and dark screens."""

from __future__ import annotations

from html import escape

from p4lite.tools.coverage import KINDS, Coverage

_STYLE = """
:root { color-scheme: light dark; --hit: #d7f0d7; --missed: #f8d0d0; --part: #fbeec2; --dim: #666; }
@media (prefers-color-scheme: dark) { :root { --hit: #16381c; --missed: #521f22; --part: #4a3d10; --dim: #aaa; } }
body { font-family: sans-serif; margin: 1.5em; }
table { border-collapse: collapse; } td, th { padding: .1em .8em; text-align: left; }
td.number { text-align: right; color: var(--dim); }
pre { margin: 0; } .source td { padding: 0 .8em; }
.hit { background: var(--hit); } .missed { background: var(--missed); } .part { background: var(--part); }
"""


def page(coverage: Coverage) -> str:
    """Return the page: the shares, the annotated sources, and what was not reached by name."""
    name = escape(coverage.program.name)
    out = ["<!doctype html>", '<html lang="en"><head><meta charset="utf-8">', f"<title>Coverage of {name}</title>"]
    out += [f"<style>{_STYLE}</style></head><body>", f"<h1>Coverage of {name}</h1>", *_shares(coverage)]
    for file in sorted({file for file, _ in coverage.lines}):
        out += [f"<h2>{escape(file)}</h2>", *_source(coverage, file)]
    for kind in KINDS:
        out += _branches(coverage, kind)
    return "\n".join([*out, "</body></html>"]) + "\n"


def _shares(coverage: Coverage) -> list[str]:
    out = ["<table><tr><th></th><th>reached</th><th>of</th><th></th></tr>"]
    for kind in ("lines", *KINDS):
        reached, total = coverage.share(kind)
        if total:
            percent = f"{100 * reached / total:.1f} %"
            out.append(
                f'<tr><td>{kind}</td><td class="number">{reached}</td><td class="number">{total}</td>'
                f'<td class="number">{percent}</td></tr>'
            )
    return [*out, "</table>"]


def _source(coverage: Coverage, file: str) -> list[str]:
    out = ['<table class="source"><tr><th>line</th><th>times</th><th></th></tr>']
    unreached = {b.line for b, n in coverage.branches.items() if b.file == file and n == 0}
    for number, text in enumerate(coverage.program.lines(file), 1):
        count = coverage.lines.get((file, number))
        style = "" if count is None else "missed" if count == 0 else "part" if number in unreached else "hit"
        times = "" if count is None else str(count)
        out.append(
            f'<tr class="{style}"><td class="number">{number}</td><td class="number">{times}</td>'
            f"<td><pre>{escape(text)}</pre></td></tr>"
        )
    return [*out, "</table>"]


def _branches(coverage: Coverage, kind: str) -> list[str]:
    rows = [(branch, n) for branch, n in sorted(coverage.branches.items()) if branch.kind == kind]
    if not rows:
        return []
    out = [f"<h2>{kind.capitalize()}</h2>", "<table><tr><th>line</th><th>times</th><th></th><th></th></tr>"]
    for branch, n in rows:
        at = escape(branch.at if kind != "conditions" else _condition(coverage, branch.file, branch.line))
        out.append(
            f'<tr class="{"hit" if n else "missed"}"><td class="number">{branch.line}</td><td class="number">{n}</td>'
            f"<td>{at}</td><td>{escape(branch.way)}</td></tr>"
        )
    return [*out, "</table>"]


def _condition(coverage: Coverage, file: str, line: int) -> str:
    lines = coverage.program.lines(file)
    return lines[line - 1].strip() if 0 < line <= len(lines) else ""
