"""Name resolution and type checking (language specification §§6-17): `check_program` makes a `TypedProgram`."""

from __future__ import annotations

from p4lite.compiler.check.program import TypedProgram, check_program

__all__ = ["TypedProgram", "check_program"]
