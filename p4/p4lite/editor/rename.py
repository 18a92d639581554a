"""Renaming a declaration of a file, if the program means the same afterwards."""

from __future__ import annotations

import re
from collections.abc import Sequence

from p4lite.compiler.lexer import KEYWORDS
from p4lite.editor.analysis import Analysis, Use, analyse, shipped
from p4lite.errors import P4liteError

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


class RenameError(P4liteError):
    """A name that cannot be changed, or not to the one given; says why."""

    code = "no_rename"


def rename(
    analysis: Analysis, line: int, col: int, name: str, include_dirs: Sequence[str] = (), defines: Sequence[str] = ()
) -> list[Use]:
    """Return the places to write `name` at, for the name at a place (from 1). Raises RenameError."""
    use = analysis.use_at(line, col)
    if use is None:
        raise RenameError("there is no name here that the program declares")
    old = use.decl.name
    if not _NAME.match(name) or name in KEYWORDS:
        raise RenameError(f"'{name}' is not a name: expected letters, digits and '_', and no keyword")
    if shipped(use.decl.pos):
        raise RenameError(f"'{old}' is declared by the architecture, in {use.decl.pos.file}")
    if analysis.failed:
        raise RenameError("the program has errors: correct them first, so that every use of the name is known")
    uses = analysis.uses_of(use.decl)
    others = sorted({each.pos.file for each in uses} - {analysis.path})
    if others:
        raise RenameError(f"'{old}' is also named in {', '.join(others)}: rename it there by hand")
    lines = analysis.text.split("\n")
    for each in uses:
        found = lines[each.pos.line - 1][each.pos.col - 1 :][: len(old)]
        if found != old:
            raise RenameError(f"line {each.pos.line}: '{old}' is named by a macro there: rename it by hand")
    changed = analyse(replaced(analysis.text, uses, name), analysis.path, include_dirs, defines)
    if changed.failed:
        first = next(d for d in changed.diagnostics if d.severity == "error" and d.pos.line)
        raise RenameError(f"'{name}' would be an error in line {first.pos.line}: {first.message}")
    if _meaning(analysis) != _meaning(changed):
        raise RenameError(f"'{name}' is declared already where '{old}' is used: choose another name")
    return uses


def replaced(text: str, uses: Sequence[Use], name: str) -> str:
    """Return the text with another name at these places."""
    lines = text.split("\n")
    for each in sorted(uses, key=lambda use: (use.pos.line, use.pos.col), reverse=True):
        line, at = lines[each.pos.line - 1], each.pos.col - 1
        lines[each.pos.line - 1] = line[:at] + name + line[at + len(each.decl.name) :]
    return "\n".join(lines)


def _meaning(analysis: Analysis) -> list[int]:
    """Return which declaration each use names: the number of its first use, in the order of the file."""
    own = sorted((u for u in analysis.uses if u.pos.file == analysis.path), key=lambda u: (u.pos.line, u.pos.col))
    order = {id(use.decl): i for i, use in reversed(list(enumerate(own)))}
    return [order[id(use.decl)] for use in own]
