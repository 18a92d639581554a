"""Measure a call path: the modules that it enters in order, and how often it returns to one that it had left.

A path that goes through each module once reads from top to bottom. Only the first call of each function counts, so that
loops and small helpers that several modules share do not.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from types import CodeType, FrameType

#: Modules of mrclab begin with one of these.
OURS = ("mrc_", "p4lite")


@dataclass(frozen=True)
class CallPath:
    """The functions that a call entered for the first time, in order, as module and qualified name."""

    functions: tuple[tuple[str, str], ...]

    @property
    def modules(self) -> list[str]:
        """Return the modules in the order in which the path enters them; one that it enters again is named again."""
        found: list[str] = []
        for module, _ in self.functions:
            if found[-1:] != [module]:
                found.append(module)
        return found

    @property
    def returns(self) -> int:
        """Return how often the path enters a module that it had left."""
        return len(self.modules) - len(set(self.modules))


def walked(call: Callable[[], object], packages: tuple[str, ...] = OURS) -> CallPath:
    """Make a call and return its path through modules whose names begin with one of `packages`, in this
    thread.

    Comprehensions, lambda expressions and module bodies belong to the function around them, and functions that
    `dataclasses` writes to none; both are left out.
    """
    seen: set[CodeType] = set()
    functions: list[tuple[str, str]] = []

    def note(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event != "call" or code in seen or code.co_name.startswith("<") or code.co_filename == "<string>":
            return
        seen.add(code)
        module = str(frame.f_globals.get("__name__", ""))
        if module.startswith(packages):
            functions.append((module, code.co_qualname))

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(before)
    return CallPath(tuple(functions))
