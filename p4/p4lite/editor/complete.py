"""Completion at a place: members after a '.', names in scope, keywords."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from p4lite.compiler import ast
from p4lite.compiler.ast.base import walk
from p4lite.compiler.lexer import KEYWORDS
from p4lite.compiler.types import ApplyResultType, ErrorType, Type
from p4lite.editor.analysis import Analysis, element, member_of, plain
from p4lite.editor.describe import head, members

SOFT_KEYWORDS = ("apply", "actions", "key", "entries", "state", "type", "priority", "default_action", "size")
_CHAIN = re.compile(r"((?:[A-Za-z_]\w*(?:\[[^\]]*\])*\s*\.\s*)+)(\w*)$")
_PART = re.compile(r"([A-Za-z_]\w*)((?:\[[^\]]*\])*)")
_RESULT = re.compile(r"\.apply\s*\(\s*\)\s*\.\s*\w*$")


@dataclass(frozen=True)
class Proposal:
    """A word that can be typed; `decl` for a name, `note` what to show beside it."""

    word: str
    note: str
    decl: ast.Declaration | None = None


def proposals(analysis: Analysis, line: int, before: str) -> list[Proposal]:
    """Return what can follow `before`, the text of line `line` (from 1) up to the cursor."""
    if _RESULT.search(before):
        return [Proposal(word, "of the table's last apply") for word in ("hit", "miss", "action_run")]
    chain = _CHAIN.search(before)
    if chain is not None:
        return list(_members(analysis, line, chain[1]))
    if re.search(r"\.\s*\w*$", before):
        return []
    found: dict[str, Proposal] = {}
    for decl in visible(analysis, line):
        found.setdefault(decl.name, Proposal(decl.name, head(decl).split("\n")[0], decl))
    for word in (*KEYWORDS, *SOFT_KEYWORDS):
        if word != "_":
            found.setdefault(word, Proposal(word, "keyword"))
    return list(found.values())


def visible(analysis: Analysis, line: int) -> Iterator[ast.Declaration]:
    """Yield the declarations that can be named on a line, the closest first."""
    own = [d for d in analysis.own() if d.pos.line <= line]
    if own:
        yield from _inside(own[-1], line)
    for decl in analysis.decls:
        if decl.name and (decl.pos.file != analysis.path or decl.pos.line <= line):
            if isinstance(decl, ast.ErrorDecl | ast.MatchKindDecl):
                continue
            yield decl


def _inside(top: ast.Declaration, line: int) -> Iterator[ast.Declaration]:
    """Yield what is declared in a parser, control, action or function before a line; the innermost first."""
    if not isinstance(top, ast.ParserDecl | ast.ControlDecl | ast.ActionDecl | ast.FunctionDecl):
        return
    inner: list[ast.Declaration] = []
    if isinstance(top, ast.ControlDecl):
        inner = list(top.locals)
        body = top.body
        # In `apply`, no action's parameters; before it, those of the last action.
        nested = [d for d in inner if d.pos.line <= line and isinstance(d, ast.ActionDecl)]
        if body is not None and body.pos.line <= line:
            yield from _variables(body, line)
        elif nested:
            yield from _inside(nested[-1], line)
    elif isinstance(top, ast.ParserDecl):
        inner = [*top.locals, *(top.states or ())]
        states = [s for s in top.states or () if s.pos.line <= line]
        if states:
            yield from _variables(states[-1], line)
    elif top.body is not None:
        yield from _variables(top.body, line)
    yield from reversed(inner)
    yield from top.params


def _variables(node: ast.Node, line: int) -> Iterator[ast.Declaration]:
    found = [n for n in walk(node) if isinstance(n, ast.VarDecl | ast.ConstDecl) and n.pos.line <= line]
    yield from reversed(found)


def _members(analysis: Analysis, line: int, chain: str) -> Iterator[Proposal]:
    """Yield the members of what a chain such as `hdr.ipv4.` names."""
    parts = _PART.findall(chain)
    type_ = _first(analysis, line, parts[0][0])
    if isinstance(type_, ErrorType):
        for decl in analysis.decls:
            if isinstance(decl, ast.ErrorDecl):
                yield from (Proposal(m.name, "error", m) for m in decl.members)
        return
    for i, (name, indices) in enumerate(parts):
        if i:
            type_ = _member(type_, name)
        for _ in range(indices.count("[")):
            type_ = element(type_)
    for name, note in members(plain(type_)):
        yield Proposal(name, note, member_of(type_, name))


def _first(analysis: Analysis, line: int, name: str) -> Type | None:
    if name == "error":
        return ErrorType()
    for decl in visible(analysis, line):
        if decl.name == name:
            found: Type | None = getattr(decl, "type", None)
            return found
    return None


def _member(type_: Type | None, name: str) -> Type | None:
    bare = plain(type_)
    if name in ("next", "last") and element(bare) is not None:
        return element(bare)
    fields = getattr(bare, "fields", None)
    if fields is not None and not isinstance(bare, ApplyResultType):
        found: Type | None = fields.get(name)
        return found
    return None
