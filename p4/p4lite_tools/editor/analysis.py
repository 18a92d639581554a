"""Analysis of a program for editors: its diagnostics, its declarations, and where each is used.

A text that is half typed is analysed as far as it goes: constructs with syntax errors are left out.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from p4lite.compiler import ast
from p4lite.compiler.ast import walk
from p4lite.compiler.check import check_program
from p4lite.compiler.diagnostics import CompileError, Diagnostic, Reporter, Unsupported
from p4lite.compiler.parser import parse_what_can_be
from p4lite.compiler.position import Pos
from p4lite.compiler.preprocessor import INCLUDE_DIR, preprocess
from p4lite.compiler.types import FieldsType, Nominal, StackType, Type, TypeType
from p4lite.recursion import deep_recursion
from p4lite_tools.editor.scan import Word, scan


@dataclass(frozen=True)
class Use:
    """A place where a declaration is named; `declares`: in the declaration itself."""

    pos: Pos
    decl: ast.Declaration
    declares: bool = False


@dataclass
class Analysis:
    """A program as far as it was understood. Positions of the file itself have `path` as their file."""

    path: str
    text: str
    diagnostics: list[Diagnostic] = field(default_factory=list)
    decls: list[ast.Declaration] = field(default_factory=list)
    uses: list[Use] = field(default_factory=list)

    @property
    def failed(self) -> bool:
        """Whether there is an error at a place; a file without `main` may be one that others include."""
        return any(d.severity == "error" and d.pos.line for d in self.diagnostics)

    def own(self) -> list[ast.Declaration]:
        """Return the declarations at the top level of the file itself."""
        return [d for d in self.decls if d.pos.file == self.path]

    def use_at(self, line: int, col: int) -> Use | None:
        """Return what is named at a place of the file (both from 1); the end of a name counts."""
        for use in self.uses:
            at = use.pos
            if at.file == self.path and at.line == line and at.col <= col <= at.col + len(use.decl.name):
                return use
        return None

    def uses_of(self, decl: ast.Declaration) -> list[Use]:
        """Return the places of a declaration in all files, in their order."""
        found = [use for use in self.uses if use.decl is decl]
        return sorted(found, key=lambda use: (use.pos.file, use.pos.line, use.pos.col))


def analyse(text: str, path: str, include_dirs: Sequence[str] = (), defines: Sequence[str] = ()) -> Analysis:
    """Analyse `text`, the content of `path`, whether or not it was saved. Raises nothing that a program can cause."""
    # The compiler shortens names below the working directory, where an editor starts its servers.
    path = os.path.abspath(path)
    found = Analysis(path, text)
    reporter = Reporter()
    program: ast.SourceProgram | None = None
    with deep_recursion():
        try:
            expanded, smap = preprocess(path, text, list(include_dirs), list(defines), reporter, absolute=True)
            program = parse_what_can_be(expanded, smap, reporter)
        except CompileError:
            pass
        except (Unsupported, RecursionError) as error:
            reporter.fatal(error.pos if isinstance(error, Unsupported) else Pos(path, 1, 1), str(error))
        found.diagnostics = list(reporter.diagnostics)
        if program is not None:
            # What a left out construct would have declared is missing: only the first kind of errors is shown.
            checked = Reporter(reporter.sources) if reporter.failed else reporter
            _check(program, path, checked)
            if not found.failed:
                found.diagnostics = list(reporter.diagnostics)
            found.decls = program.decls
            found.uses = list(_uses(program, _Places(scan(text), path, text)))
    return found


def _check(program: ast.SourceProgram, path: str, reporter: Reporter) -> None:
    """Give the nodes their types and declarations, as far as they have them."""
    try:
        check_program(program, path, reporter)
    except CompileError:
        return
    except Unsupported as error:
        reporter.fatal(error.pos, str(error))
    except RecursionError:
        reporter.fatal(Pos(path, 1, 1), "the program is nested too deeply: simplify it")
    except (AttributeError, AssertionError, KeyError, IndexError, TypeError, ValueError):
        # The checker's passes rely on a complete tree, which this one is not after a syntax error.
        return


def shipped(pos: Pos) -> bool:
    """Return whether a place is in core.p4, v1model.p4 or another file of the compiler."""
    return os.path.abspath(pos.file).startswith(f"{INCLUDE_DIR}{os.sep}")


def plain(type_: Type | None) -> Type | None:
    """Return the type that an expression's type names, if it names one (`E` in `E.A`)."""
    return type_.of if isinstance(type_, TypeType) else type_


def member_of(type_: Type | None, name: str) -> ast.Declaration | None:
    """Return the declaration of a field, a method or an enum's member."""
    bare = plain(type_)
    decl = bare.decl if isinstance(bare, Nominal) else None
    if isinstance(bare, FieldsType) and isinstance(decl, ast.StructDecl):
        return next((f for f in decl.fields if f.name == name), None)
    if isinstance(decl, ast.ExternDecl):
        return next((m for m in decl.methods if m.name == name), None)
    if isinstance(decl, ast.EnumDecl):
        return next((m for m in decl.members if m.name == name), None)
    return None


def element(type_: Type | None) -> Type | None:
    """Return the type of an element of a header stack."""
    return type_.element if isinstance(type_, StackType) else None


def _uses(program: ast.SourceProgram, places: _Places) -> Iterator[Use]:
    for top in program.decls:
        states: dict[str, ast.ParserState] = {}
        for node in walk(top):
            if isinstance(node, ast.ParserDecl):
                states = {state.name: state for state in node.states or ()}
            if isinstance(node, ast.Declaration) and node.name and not isinstance(node, ast.TableProperty):
                yield Use(node.pos, node, declares=True)
            elif isinstance(node, ast.Name | ast.NamedTypeNode):
                if isinstance(node.decl, ast.Declaration):
                    yield Use(node.pos, node.decl)
            elif isinstance(node, ast.Member):
                decl = member_of(node.expr.type, node.name)
                if decl is not None:
                    yield Use(node.name_pos, decl)
            elif isinstance(node, ast.SelectCase | ast.Transition) and node.state in states:
                at = places.state(node.pos, node.state or "", after_colon=isinstance(node, ast.SelectCase))
                if at is not None:
                    yield Use(at, states[node.state or ""])


class _Places:
    """Finds names for which the syntax tree has no place of their own."""

    def __init__(self, words: Sequence[Word], path: str, text: str) -> None:
        self.path = path
        self.words = [word for word in words if word.code]
        self.at = {word.offset: i for i, word in enumerate(self.words)}
        #: Offsets where the lines begin, and the end.
        self.lines = [0]
        for line in text.split("\n"):
            self.lines.append(self.lines[-1] + len(line) + 1)

    def state(self, pos: Pos, name: str, *, after_colon: bool) -> Pos | None:
        """Return where a state is named that a transition or a case at `pos` goes to."""
        if pos.file != self.path or not 0 < pos.line < len(self.lines):
            return None
        i = self.at.get(self.lines[pos.line - 1] + pos.col - 1, -1)
        depth = 0
        seen = not after_colon
        while 0 <= i < len(self.words) and self.words[i].text not in (";", "}"):
            word = self.words[i]
            depth += (word.text in ("(", "{", "[")) - (word.text in (")", "]"))
            seen = seen or (word.text == ":" and depth == 0)
            if seen and word.text == name:
                line = next(n for n in range(pos.line, len(self.lines)) if self.lines[n] > word.offset)
                return Pos(self.path, line, word.offset - self.lines[line - 1] + 1, len(name))
            i += 1
        return None
