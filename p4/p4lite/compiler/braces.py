"""Finds the brace that a program leaves open, so that one missing `}` is one error and not an error for each line."""

from __future__ import annotations

from p4lite.compiler.lexer import Token


def unclosed(tokens: list[Token], at: int) -> tuple[Token, Token] | None:
    """Return the `{` before the syntax error at `tokens[at]` that lacks its `}`, and what the `}` must stand before.

    None if the error has other causes. Braces tell only that one is missing. Which one, the indentation tells: a `}`
    at the start of a line that stands further left than the line of its `{` closes what is around it, or else the
    line of the error does.
    """
    if _balance(tokens) <= 0:
        return None
    first: dict[tuple[str, int], Token] = {}
    for t in tokens:
        first.setdefault((t.pos.file, t.pos.line), t)
    stack: list[Token] = []
    for t in tokens[:at]:
        if t.type == "LBRACE":
            stack.append(t)
        elif t.type == "_RBRACE" and stack:
            opened = stack.pop()
            if first[t.pos.file, t.pos.line] is t and t.pos.col < first[opened.pos.file, opened.pos.line].pos.col:
                return opened, t
    if not stack:
        return None
    error, opened = tokens[at], stack[-1]
    if error.type == "$END" or error.pos.file != opened.pos.file:
        return opened, error
    if error.pos.line == opened.pos.line:
        here = [t for t in tokens if (t.pos.file, t.pos.line) == (error.pos.file, error.pos.line)]
        return (opened, error) if _balance(here) > 0 else None
    start, outside = first[error.pos.file, error.pos.line], first[opened.pos.file, opened.pos.line]
    return (opened, start) if start.pos.col <= outside.pos.col else None


def _balance(tokens: list[Token]) -> int:
    """Return how many braces are open after the tokens."""
    return sum((t.type == "LBRACE") - (t.type == "_RBRACE") for t in tokens)
