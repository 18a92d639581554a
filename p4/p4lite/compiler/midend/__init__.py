"""The mid end: from a typed program to flat storage and control-flow graphs (`lir`)."""

from __future__ import annotations

from p4lite.compiler.midend.program import lower

__all__ = ["lower"]
