"""Coverage of a program: the lines, branches, actions and entries that packets have reached, and its page in HTML."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any

from p4lite.api.program import Program
from p4lite.api.values import Control
from p4lite.errors import P4liteError
from p4lite.files import ReadError, read_text, write_whole
from p4lite_tools.commands import shown_action, shown_match
from p4lite_tools.interpreter import events as ev


def code_lines(program: Program) -> dict[str, set[int]]:
    """Return the lines, by file, of what is executed: parser operations, statements, conditions, tables, checksums."""
    found: dict[str, set[int]] = defaultdict(set)
    for item in _executed(program.bmv2):
        info = item.get("source_info")
        if info is not None:
            found[info["filename"]].add(info["line"])
    return dict(found)


def _executed(document: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for parser in document.get("parsers", []):
        for state in parser["parse_states"]:
            yield state
            for op in state["parser_ops"]:
                yield op
                if op["op"] == "primitive":
                    yield from op["parameters"]
    for pipeline in document.get("pipelines", []):
        yield from pipeline.get("tables", [])
        yield from pipeline.get("conditionals", [])
    for action in document.get("actions", []):
        yield from action["primitives"]
    for deparser in document.get("deparsers", []):
        yield from deparser.get("primitives", [])
    yield from document.get("checksums", [])


_EXECUTED = (ev.StateEntered, ev.StatementStarted, ev.ConditionTested, ev.TableApplied, ev.ChecksumTested)
#: What is counted besides lines, each by its name.
KINDS = ("transitions", "conditions", "actions", "entries")


class CoverageError(P4liteError):
    """A file of counts that is none, or is of another program."""

    code = "bad_coverage"


@dataclass(frozen=True, order=True)
class CoverageBranch:
    """One way on from a place: a transition of a state, an outcome of a condition, an action or an entry of a table."""

    kind: str
    file: str
    line: int
    at: str
    way: str


@dataclass
class Coverage:
    """Counts of one program: an observer of interpreted switches, whose counts add up.

    `coverage = Coverage(program)`, then `Switch(program, observers=[coverage])`, and `take_entries(switch.control)` at
    the end of each switch.
    """

    program: Program
    lines: Counter[tuple[str, int]] = field(default_factory=Counter)
    branches: Counter[CoverageBranch] = field(default_factory=Counter)
    _last: tuple[str, int] | None = None
    _handles: Counter[tuple[str, int]] = field(default_factory=Counter)
    _known: dict[tuple[str, str, str], CoverageBranch] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for file, numbers in code_lines(self.program).items():
            for number in numbers:
                self.lines[(file, number)] += 0
        for branch in _branches(self.program.bmv2):
            self._known[(branch.kind, branch.at, branch.way)] = branch
            self.branches[branch] += 0

    def __call__(self, event: ev.Event) -> None:
        """Count an event."""
        if event.where is not None and isinstance(event, _EXECUTED):
            place = (event.where.file, event.where.line)
            # The statements of one line count once.
            again = place == self._last and isinstance(event, ev.StatementStarted)
            if place in self.lines and not again:
                self.lines[place] += 1
            self._last = place
        if isinstance(event, ev.TransitionTaken):
            self._count("transitions", event.state, _way(event.number, event.to))
        elif isinstance(event, ev.ConditionTested):
            self._count("conditions", event.condition, "true" if event.holds else "false")
        elif isinstance(event, ev.TableApplied) and event.hidden:
            if event.called is not None:
                self._count("actions", event.table, f"call: {event.called}")
        elif isinstance(event, ev.TableApplied):
            self._count("actions", event.table, f"{'hit' if event.hit else 'miss'}: {event.action or 'nothing'}")
            if event.entry is not None:
                self._handles[(event.table, event.entry)] += 1

    def _count(self, kind: str, at: str, way: str) -> None:
        branch = self._known.get((kind, at, way))
        if branch is not None:
            self.branches[branch] += 1

    def take_entries(self, control: Control) -> None:
        """Count the entries of a switch that were hit; call it before they are deleted."""
        for table in control.program.tables.values():
            for entry in control.table_entries(table.name):
                key = " ".join(shown_match(m, k.width) for k, m in zip(table.key, entry.key, strict=True))
                way = f"{key} => {shown_action(table.actions, entry.action)}"
                file, line = _place(table.node.value)
                branch = CoverageBranch("entries", file, line, table.name, way)
                self.branches[branch] += self._handles.pop((table.name, entry.handle), 0)
        self._handles.clear()

    # --- counts in files ---

    def merge(self, path: Path) -> None:
        """Add the counts of a file that `save` has written. Raises CoverageError."""
        try:
            data = json.loads(read_text(path))
            lines = {(file, int(line)): int(n) for file, line, n in data["lines"]}
            branches = {CoverageBranch(*item[:-1]): int(item[-1]) for item in data["branches"]}
        except ReadError as error:
            raise CoverageError(str(error)) from None
        except (ValueError, KeyError, TypeError):
            raise CoverageError(f"{path}: not a file that --data has written; name another file") from None
        foreign = [place for place in lines if place not in self.lines]
        if foreign:
            file, line = foreign[0]
            raise CoverageError(f"{path}: counts of another program ({file}:{line} has no code here); delete the file")
        self.lines.update(lines)
        self.branches.update(branches)

    def save(self, path: Path) -> None:
        """Write the counts for `merge`. Raises OSError."""
        data = {
            "lines": [[file, line, n] for (file, line), n in sorted(self.lines.items())],
            "branches": [[b.kind, b.file, b.line, b.at, b.way, n] for b, n in sorted(self.branches.items())],
        }
        write_whole(path, json.dumps(data, indent=0) + "\n")

    # --- what it comes to ---

    def share(self, kind: str) -> tuple[int, int]:
        """Return how many are reached, and how many there are, of `lines` or one of KINDS."""
        if kind == "lines":
            counts = list(self.lines.values())
        else:
            counts = [n for branch, n in self.branches.items() if branch.kind == kind]
        return sum(n > 0 for n in counts), len(counts)

    def summary(self) -> list[str]:
        """Return a line for each kind."""
        out = []
        for kind in ("lines", *KINDS):
            reached, total = self.share(kind)
            if total:
                out.append(f"{kind:12} {reached:4} of {total:4}  {100 * reached / total:5.1f} %")
        return out

    def lcov(self) -> str:
        """Return the counts in the format of lcov's geninfo; its branches are those of all KINDS."""
        out: list[str] = []
        for file in sorted({file for file, _ in self.lines}):
            out += ["TN:", f"SF:{Path(file).absolute()}"]
            blocks: dict[tuple[str, str], int] = {}
            ways: Counter[tuple[str, str]] = Counter()
            tried: Counter[tuple[str, str]] = Counter()
            for branch, n in self.branches.items():
                tried[(branch.kind, branch.at)] += n
            found = hit = 0
            for branch, n in sorted(self.branches.items()):
                if branch.file != file:
                    continue
                at = (branch.kind, branch.at)
                block = blocks.setdefault(at, len(blocks))
                taken = n if tried[at] else "-"
                out.append(f"BRDA:{branch.line},{block},{ways[at]},{taken}")
                ways[at] += 1
                found, hit = found + 1, hit + (n > 0)
            out += [f"BRF:{found}", f"BRH:{hit}"]
            counts = [(line, n) for (name, line), n in sorted(self.lines.items()) if name == file]
            out += [f"DA:{line},{n}" for line, n in counts]
            out += [f"LF:{len(counts)}", f"LH:{sum(n > 0 for _, n in counts)}", "end_of_record"]
        return "\n".join(out) + "\n"


def _place(item: dict[str, Any]) -> tuple[str, int]:
    info = item.get("source_info") or {}
    return str(info.get("filename", "")), int(info.get("line", 0))


def _way(number: int | None, to: str | None) -> str:
    return f"{'none' if number is None else number}: {to or 'accept'}"


def _branches(document: dict[str, Any]) -> Iterator[CoverageBranch]:
    for parser in document.get("parsers", []):
        for state in parser["parse_states"]:
            for number, transition in enumerate(state["transitions"]):
                file, line = _place(transition) if "source_info" in transition else _place(state)
                yield CoverageBranch("transitions", file, line, state["name"], _way(number, transition["next_state"]))
    for pipeline in document.get("pipelines", []):
        for condition in pipeline.get("conditionals", []):
            for way in ("true", "false"):
                yield CoverageBranch("conditions", *_place(condition), condition["name"], way)
        for table in pipeline.get("tables", []):
            yield from _actions(table)


def _actions(table: dict[str, Any]) -> Iterator[CoverageBranch]:
    """Yield the program's actions of a table: on a hit, and the default one on a miss; or the action that the program
    calls here without a table."""
    default = table.get("default_entry")
    names = dict(zip(table["action_ids"], table["actions"], strict=True))
    if not table["key"] and default is not None and default.get("action_const") and table["name"].startswith("tbl_"):
        called = names[default["action_id"]]
        if ev.is_of_program(called):
            yield CoverageBranch("actions", *_place(table), table["name"], f"call: {called}")
        return
    if table["key"]:
        for name in table["actions"]:
            if name != "NoAction":
                yield CoverageBranch("actions", *_place(table), table["name"], f"hit: {name}")
    missed = "nothing" if default is None else names[default["action_id"]]
    yield CoverageBranch("actions", *_place(table), table["name"], f"miss: {missed}")


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
        out += _branch_cells(coverage, kind)
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


def _branch_cells(coverage: Coverage, kind: str) -> list[str]:
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
