"""The back end: BMv2 JSON, as behavioral-model's JSON_format (version 2.23) defines it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from p4lite.compiler import midend
from p4lite.compiler.backend.document import write
from p4lite.compiler.backend.unique import check_unique

if TYPE_CHECKING:
    from p4lite.compiler.check import TypedProgram
    from p4lite.compiler.diagnostics import Reporter

__all__ = ["generate"]


def generate(program: TypedProgram, reporter: Reporter | None = None) -> dict[str, Any]:
    """The BMv2 JSON of a typed program, as plain dicts and lists ready for `json.dump`.

    Warnings go to `reporter`.

    Raises:
        Unsupported: at the first construct that BMv2 cannot express.
    """
    document = write(midend.lower(program, reporter))
    check_unique(document, program.main.pos)
    return document
