"""Errors and warnings of the compiler: `file:line:col: error: message`, the source line, a caret.

A pass reports through a `Reporter` and goes on where it can, so that one run shows many errors; `Reporter.check()`
raises `CompileError` when there were any. `CompileError` is the only exception that a user's program can cause.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from p4lite.compiler.position import NOWHERE, Pos
from p4lite.errors import P4liteError

MAX_ERRORS = 40
"""Errors after which a run gives up."""

MAX_SHOWN = 160
"""Characters of a source line that a message shows."""


@dataclass(frozen=True)
class Diagnostic:
    """One error or warning; `source` is the line of the program, "" when there is none to show."""

    pos: Pos
    severity: str
    message: str
    source: str = ""

    def __str__(self) -> str:
        where = f"{self.pos.file}:{self.pos.line}:{self.pos.col}" if self.pos.line else self.pos.file
        head = f"{where}: {self.severity}: {self.message}"
        if not self.source.strip() or not self.pos.line:
            return head
        source, start = self.source, self.pos.col - 1
        if len(source) > MAX_SHOWN:
            # A window around the place, for a generated line.
            left = max(0, min(start - MAX_SHOWN // 2, len(source) - MAX_SHOWN))
            source, start = source[left : left + MAX_SHOWN], start - left
        # Tabs stay as they are, so that the caret is under its column whatever the tab width.
        start = min(start, len(source))
        pad = "".join("\t" if c == "\t" else " " for c in source[:start])
        underline = "^" + "~" * (min(self.pos.length, len(source) - start) - 1)
        return f"{head}\n{source}\n{pad}{underline}"


class CompileError(P4liteError):
    """The program cannot be compiled; `diagnostics` has the errors, and the warnings that came before."""

    code = "bad_program"

    def __init__(self, diagnostics: list[Diagnostic]) -> None:
        super().__init__(diagnostics)
        self.diagnostics = diagnostics

    def __str__(self) -> str:
        return "\n".join(str(d) for d in self.diagnostics)


class Unsupported(Exception):
    """Raised by a pass for a construct that the compiler refuses by name; becomes a `CompileError` at its place."""

    def __init__(self, pos: Pos, what: str) -> None:
        super().__init__(what)
        self.pos = pos


@dataclass
class Reporter:
    """Collects diagnostics. `sources` maps a file name to its lines."""

    sources: dict[str, list[str]] = field(default_factory=dict)
    diagnostics: list[Diagnostic] = field(default_factory=list)
    _seen: set[tuple[str, int, int, str]] = field(default_factory=set)
    _errors: int = 0

    def _add(self, severity: str, pos: Pos, message: str) -> None:
        key = (pos.file, pos.line, pos.col, message)
        if key in self._seen:
            return
        self._seen.add(key)
        lines = self.sources.get(pos.file, [])
        source = lines[pos.line - 1] if 0 < pos.line <= len(lines) else ""
        self.diagnostics.append(Diagnostic(pos, severity, message, source.rstrip("\r\n")))

    def error(self, pos: Pos, message: str) -> None:
        """Report an error; raise `CompileError` when there are too many."""
        self._add("error", pos, message)
        self._errors += 1
        if self._errors >= MAX_ERRORS:
            self._add("error", Pos(pos.file, 0, 0), f"more than {MAX_ERRORS} errors: stopped here")
            self.check()

    def warning(self, pos: Pos, message: str) -> None:
        self._add("warning", pos, message)

    def fatal(self, pos: Pos, message: str) -> CompileError:
        """Report an error and return the exception to raise, for an error after which the run cannot continue."""
        self._add("error", pos, message)
        self._errors += 1
        return CompileError(self.diagnostics)

    @property
    def failed(self) -> bool:
        return self._errors > 0

    def check(self) -> None:
        """Raise `CompileError` if an error was reported."""
        if self.failed:
            raise CompileError(self.diagnostics)


def plain_error(file: str, message: str) -> CompileError:
    """Return an error about a whole file."""
    return CompileError([Diagnostic(Pos(file, 0, 0), "error", message)])


__all__ = ["MAX_ERRORS", "NOWHERE", "CompileError", "Diagnostic", "Reporter", "Unsupported", "plain_error"]
