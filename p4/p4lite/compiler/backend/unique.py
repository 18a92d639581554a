"""Identifiers and names of a finished document: no two objects of a section may share them."""

from __future__ import annotations

from collections.abc import Iterator

from p4lite.compiler import ast
from p4lite.compiler.backend.expressions import Json
from p4lite.compiler.diagnostics import Unsupported

SECTIONS = (
    "header_types", "headers", "header_stacks", "header_union_types", "header_unions", "header_union_stacks",
    "field_lists", "parsers", "parse_vsets", "deparsers", "meter_arrays", "counter_arrays", "register_arrays",
    "calculations", "learn_lists", "pipelines", "checksums",
)  # fmt: skip


def groups(document: Json) -> Iterator[tuple[str, list[Json]]]:
    """Yield the name of each kind of object and its objects, which must differ in `id` and `name`."""
    for section in SECTIONS:
        yield section, document[section]
    for parser in document["parsers"]:
        yield "parse_states", parser["parse_states"]
    pipelines = document["pipelines"]
    for kind in ("tables", "conditionals", "action_profiles"):
        yield kind, [item for p in pipelines for item in p[kind]]


def check_unique(document: Json, pos: ast.Pos) -> None:
    """Raise `Unsupported` at `pos` for the first identifier or name that two objects share.

    Actions may share a name, not an identifier: one that a table lists with arguments is there once for each table.
    """
    for kind, items in groups(document):
        _differ(kind, "name", [item["name"] for item in items], pos)
        _differ(kind, "id", [item["id"] for item in items], pos)
    for pipeline in document["pipelines"]:
        nodes = [item["name"] for kind in ("tables", "conditionals") for item in pipeline[kind]]
        _differ("tables and conditionals", "name", nodes, pos)
    _differ("actions", "id", [action["id"] for action in document["actions"]], pos)
    for made in document["header_types"]:
        _differ(f"fields of {made['name']}", "name", [f[0] for f in made["fields"]], pos)


def _differ(kind: str, key: str, values: list[object], pos: ast.Pos) -> None:
    seen: set[object] = set()
    for value in values:
        if value in seen:
            raise Unsupported(pos, f"two {kind} of the program have the {key} {value!r}: rename one with @name")
        seen.add(value)
