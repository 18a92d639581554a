"""Advice about a program that is correct: what packets never reach, headers that are read without a test, drops that
are taken back, selects without a default, and tables that do nothing on a miss.

It is no part of `compile`, whose warnings are about what goes wrong: a program under construction, or one whose parts
are switched by macros, has such places for good reasons.
"""

from __future__ import annotations

from collections.abc import Iterator

from p4lite.compiler import ast
from p4lite.compiler import types as ty
from p4lite.compiler.check import TypedProgram
from p4lite.compiler.diagnostics import Diagnostic, Reporter
from p4lite.compiler.drops import check_drops
from p4lite.compiler.validity import check_validity


def lint(program: TypedProgram) -> list[Diagnostic]:
    """Return the compiler's warnings and the advice about a program, in order of their places."""
    reporter = Reporter(sources=program.reporter.sources)
    used = {id(node.target) for node in _nodes(program) if isinstance(node, ast.Call) and node.target is not None}
    used |= {id(node.decl) for node in _nodes(program) if isinstance(node, ast.ActionRef) and node.decl is not None}
    for decl in program.decls:
        if isinstance(decl, ast.ParserDecl) and decl.states is not None:
            _states(decl.states, reporter)
        elif isinstance(decl, ast.ControlDecl) and decl.body is not None:
            for local in decl.locals:
                if isinstance(local, ast.TableDecl):
                    _table(local, id(local) in used, reporter)
                elif isinstance(local, ast.ActionDecl) and id(local) not in used:
                    reporter.warning(local.pos, f"action '{local.name}' is in no table and never called")
    check_validity(program.main, reporter)
    warnings = [d for d in program.diagnostics if d.severity == "warning"]
    check_drops(program.main, {d.pos for d in warnings}, reporter)
    found = warnings + reporter.diagnostics
    return sorted(found, key=lambda d: (d.pos.file, d.pos.line, d.pos.col))


def _nodes(program: TypedProgram) -> Iterator[ast.Node]:
    for decl in program.decls:
        yield from ast.walk(decl)


def _states(states: list[ast.ParserState], reporter: Reporter) -> None:
    reached: set[int] = set()
    todo = [state for state in states if state.name == "start"]
    while todo:
        state = todo.pop()
        if id(state) in reached:
            continue
        reached.add(id(state))
        transition = state.transition
        if transition is None:
            continue
        targets = [transition.target]
        if transition.select is not None:
            targets = [case.target for case in transition.select.cases]
            if not _complete(transition.select):
                message = "select has no default: other values end the parser with the error NoMatch"
                reporter.warning(transition.select.pos, f"{message}; add default: accept or default: reject")
        todo += [target for target in targets if target is not None]
    for state in states:
        if id(state) not in reached:
            reporter.warning(state.pos, f"no transition from 'start' leads to state '{state.name}'")


def _complete(select: ast.Select) -> bool:
    """Return whether a select has a case for all values: a default, or all those of a few bits."""
    anything = (ast.DontCare, ast.DefaultExpr)
    for case in select.cases:
        if all(isinstance(key, anything) or (isinstance(key, ast.Mask) and key.mask.const == 0) for key in case.keys):
            return True
    values = {key.const for case in select.cases for key in case.keys if len(case.keys) == 1 and key.const is not None}
    kind = ty.strip_newtypes(select.exprs[0].type or ty.UNKNOWN)
    if len(select.exprs) != 1:
        return False
    if isinstance(kind, ty.EnumType):
        decl = ast.declaration_of(kind)
        return isinstance(decl, ast.EnumDecl) and len(values) == len(decl.members)
    width = 1 if isinstance(kind, ty.BoolType) else ty.max_width_bits(kind)
    return width is not None and width < 16 and len(values) == 1 << width


def _table(table: ast.TableDecl, applied: bool, reporter: Reporter) -> None:
    if not applied:
        reporter.warning(table.pos, f"table '{table.name}' is never applied")
    elif (table.keys and table.default_action is None) or (table.keys and table.default_implicit):
        message = f"table '{table.name}' has no default_action: a miss does nothing; if that is meant, write it"
        reporter.warning(table.pos, f"{message}: default_action = NoAction()")
