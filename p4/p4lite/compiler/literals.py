"""Values of the tokens of literals and annotations."""

from __future__ import annotations

from p4lite.compiler import ast
from p4lite.compiler.integers import parse_number
from p4lite.compiler.lexer import Token


def unquote(text: str) -> str:
    """Return the value of a string literal: without quotes, `\\"` and `\\\\` resolved."""
    return text[1:-1].replace('\\"', '"').replace("\\\\", "\\") if "\\" in text else text[1:-1]


def annotation_of(token: Token) -> ast.Annotation:
    """Return the annotation of an ANNO token."""
    if token.body is None:
        return ast.Annotation(token.pos, token.value)
    texts = [t.value for t in token.body]
    args: list[str | int] = []
    for t in token.body:
        if t.type == "STRING":
            args.append(unquote(t.value))
        elif t.type == "INT":
            number = parse_number(t.value)
            args.append(number[0] if number else 0)
        elif t.type != "_COMMA":
            args = []
            break
    return ast.Annotation(token.pos, token.value, " ".join(texts), tokens=texts, args=args)
