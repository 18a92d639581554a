"""Finds the brace that a program leaves open, so that one missing `}` is one error and not an error for each line."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from p4lite.compiler.lexer import Token


@dataclass(frozen=True)
class _Opened:
    """A `{`, and the column of the line on which what it belongs to begins: the head may have several lines."""

    brace: Token
    column: int


def unclosed(tokens: list[Token], at: int) -> tuple[Token, Token] | None:
    """Return the `{` before the syntax error at `tokens[at]` that lacks its `}`, and what the `}` must stand before.

    None if the error has other causes. Braces tell only that one is missing. Which one, the indentation tells: a `}`
    at the start of a line that stands further left than the head of its `{` closes what is around it, or else the
    line of the error does.
    """
    if _balance(tokens) <= 0:
        return None
    first = _first_of_lines(tokens)
    stack: list[_Opened] = []
    for t, head in _with_heads(tokens[:at]):
        if t.type == "LBRACE":
            stack.append(_Opened(t, first[head.pos.file, head.pos.line].pos.col))
        elif t.type == "_RBRACE" and stack:
            opened = stack.pop()
            if first[t.pos.file, t.pos.line] is t and t.pos.col < opened.column:
                return opened.brace, t
    if not stack:
        return None
    error, last = tokens[at], stack[-1]
    if error.type == "$END" or error.pos.file != last.brace.pos.file:
        return last.brace, error
    if error.pos.line == last.brace.pos.line:
        here = [t for t in tokens if (t.pos.file, t.pos.line) == (error.pos.file, error.pos.line)]
        return (last.brace, error) if _balance(here) > 0 else None
    start = first[error.pos.file, error.pos.line]
    return (last.brace, start) if start.pos.col <= last.column else None


def early_brace(tokens: list[Token], at: int) -> tuple[Token, Token | None] | None:
    """Return the `}` at or before the syntax error at `tokens[at]` that is one too many, and the `{` that it closes.

    None if the error has other causes. The indentation tells: a `}` at the start of a line that stands further right
    than the head of its `{` belongs to something else.
    """
    if not superfluous_close(tokens):
        return None
    stack: list[_Opened] = []
    first = _first_of_lines(tokens)
    for t, head in _with_heads(tokens[: at + 1]):
        if t.type == "LBRACE":
            stack.append(_Opened(t, first[head.pos.file, head.pos.line].pos.col))
        elif t.type == "_RBRACE":
            if not stack:
                return t, None
            opened = stack.pop()
            if first[t.pos.file, t.pos.line] is t and t.pos.col > opened.column:
                return t, opened.brace
    return None


def superfluous_close(tokens: list[Token]) -> bool:
    """Return whether there are more `}` than `{`."""
    return _balance(tokens) < 0


def _first_of_lines(tokens: list[Token]) -> dict[tuple[str, int], Token]:
    first: dict[tuple[str, int], Token] = {}
    for t in tokens:
        first.setdefault((t.pos.file, t.pos.line), t)
    return first


def superfluous(tokens: list[Token], at: int) -> bool:
    """Return whether `tokens[at]` is a `{` that no `}` closes."""
    if tokens[at].type != "LBRACE":
        return False
    depth = 0
    for t in tokens[at:]:
        depth += (t.type == "LBRACE") - (t.type == "_RBRACE")
        if depth == 0:
            return False
    return True


def _with_heads(tokens: list[Token]) -> Iterator[tuple[Token, Token]]:
    """Yield each token with the first one of the declaration or statement that it is in, which begins behind a `;`,
    `{` or `}` that is not in parentheses."""
    head: Token | None = None
    depth = 0
    for t in tokens:
        if head is None:
            head = t
        yield t, head
        depth = max(0, depth + (t.type == "LPAREN") - (t.type == "_RPAREN"))
        if t.type in ("LBRACE", "_RBRACE"):
            depth, head = 0, None
        elif t.type == "_SEMI" and depth == 0:
            head = None


def _balance(tokens: list[Token]) -> int:
    """Return how many braces are open after the tokens."""
    return sum((t.type == "LBRACE") - (t.type == "_RBRACE") for t in tokens)
