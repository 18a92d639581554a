"""The back end: BMv2 JSON, as behavioral-model's JSON_format (version 2.23) defines it."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from p4lite.compiler import midend
from p4lite.compiler.backend.document import check_unique, write
from p4lite.recursion import deep_recursion

if TYPE_CHECKING:
    from p4lite.compiler.check import TypedProgram
    from p4lite.compiler.diagnostics import Reporter

__all__ = ["generate", "to_text"]


def generate(program: TypedProgram, reporter: Reporter | None = None) -> dict[str, Any]:
    """Return the BMv2 JSON of a typed program, as plain dicts and lists ready for `json.dump`.

    Warnings go to `reporter`.

    Raises:
        Unsupported: at the first construct that BMv2 cannot express.
    """
    document = write(midend.lower(program, reporter))
    check_unique(document, program.main.pos)
    return document


def to_text(bmv2: dict[str, Any]) -> str:
    """Return the JSON as text: indented, with an entry of a table on one line, as programs may have many thousands."""
    lists: list[str] = []

    def table(node: dict[str, Any]) -> dict[str, Any]:
        if not node.get("entries"):
            return node
        lists.append("[\n" + ",\n".join(f"            {json.dumps(e)}" for e in node["entries"]) + "\n          ]")
        # no string of a program has a NUL
        return {**node, "entries": f"\0{len(lists) - 1}"}

    pipelines = [{**p, "tables": [table(t) for t in p["tables"]]} for p in bmv2["pipelines"]]
    with deep_recursion():
        text = json.dumps({**bmv2, "pipelines": pipelines}, indent=2)
    return re.sub(r'"\\u0000(\d+)"', lambda m: lists[int(m[1])], text) + "\n"
