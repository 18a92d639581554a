"""Lines of the source that a program's document has code for."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from p4lite.api.program import Program


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
