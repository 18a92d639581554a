"""Refusals: what the language has and BMv2 (or this compiler) has not."""

from __future__ import annotations

from p4lite.compiler.diagnostics import Unsupported
from p4lite.compiler.position import Pos


def unsupported(pos: Pos, what: str) -> Unsupported:
    """Return the exception that refuses a construct by name and place."""
    return Unsupported(pos, f"not supported for BMv2: {what}")
