"""Descriptions of names, completions, and the words of a program around a place."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from p4lite.compiler import ast, unparse
from p4lite.compiler.ast import walk
from p4lite.compiler.lexer import KEYWORDS
from p4lite.compiler.types import (
    ApplyResultType,
    BitType,
    BoolType,
    ErrorType,
    FieldsType,
    HeaderType,
    NewType,
    SerEnumType,
    StackType,
    Type,
    UnionType,
    VarbitType,
)
from p4lite_tools.editor.analysis import Analysis, element, member_of, plain

SHOWN_FIELDS = 24


def width(type_: Type | None) -> int | None:
    """Return the bits of a value of a type; of a varbit its most; None where a type has no width."""
    match type_:
        case BitType():
            return type_.width
        case VarbitType():
            return type_.max_width
        case BoolType():
            return 1
        case SerEnumType() | NewType():
            return width(type_.base)
        case StackType():
            one = width(type_.element)
            return None if one is None else one * type_.size
        case UnionType():
            return None
        case FieldsType():
            widths = [width(each) for each in type_.fields.values()]
            known = [each for each in widths if each is not None]
            return sum(known) if len(known) == len(widths) else None
    return None


def hover(decl: ast.Declaration) -> str:
    """Return a declaration as Markdown."""
    lines = ["```p4", *_annotations(decl), head(decl), "```"]
    bits = width(getattr(decl, "type", None))
    if bits is not None and not isinstance(decl, ast.ConstDecl):
        lines.append(f"{bits} bits" if bits % 8 else f"{bits} bits ({bits // 8} bytes)")
    return "\n".join(lines)


def head(decl: ast.Declaration) -> str:
    """Return a declaration without its body."""
    match decl:
        case ast.FieldDecl() | ast.VarDecl() | ast.Instantiation():
            return f"{_written(decl.type_node, decl.type)} {decl.name}"
        case ast.ConstDecl():
            return f"const {_written(decl.type_node, decl.type)} {decl.name} = {unparse.expression(decl.value)}"
        case ast.Param():
            return " ".join(filter(None, [decl.direction, _written(decl.type_node, decl.type), decl.name]))
        case ast.StructDecl():
            fields = [f"    {head(each)};" for each in decl.fields[:SHOWN_FIELDS]]
            more = ["    ..."] if len(decl.fields) > SHOWN_FIELDS else []
            return "\n".join([f"{decl.kind} {decl.name} {{", *fields, *more, "}"])
        case ast.EnumDecl():
            return f"enum {decl.name} {{ {', '.join(m.name for m in decl.members)} }}"
        case ast.TypedefDecl():
            return f"{'type' if decl.distinct else 'typedef'} {decl.target.type} {decl.name}"
        case ast.ActionDecl():
            return f"action {decl.name}({_params(decl.params)})"
        case ast.FunctionDecl() | ast.Method():
            result = "" if decl.result is None else f"{_type(decl.result)} "
            return f"{result}{decl.name}{_type_params(decl.type_params)}({_params(decl.params)})"
        case ast.TableDecl():
            return _table(decl)
        case ast.ControlDecl() | ast.ParserDecl():
            kind = "control" if isinstance(decl, ast.ControlDecl) else "parser"
            return f"{kind} {decl.name}{_type_params(decl.type_params)}({_params(decl.params)})"
        case ast.PackageDecl():
            return f"package {decl.name}{_type_params(decl.type_params)}({_params(decl.params)})"
        case ast.ExternDecl():
            return f"extern {decl.name}{_type_params(decl.type_params)}"
        case ast.ParserState():
            return f"state {decl.name}"
    return decl.name


def _written(node: ast.TypeNode, type_: Type | None) -> str:
    """Return a type as the program names it, and what it stands for where that is another."""
    named = _type(node)
    if type_ is None or named == str(type_) or isinstance(type_, FieldsType | StackType):
        return named
    return f"{named} /* {type_} */"


def _type(node: ast.TypeNode | None) -> str:
    match node:
        case None:
            return ""
        case ast.NamedTypeNode():
            return node.name + (f"<{', '.join(map(_type, node.args))}>" if node.args else "")
        case ast.StackTypeNode():
            return f"{_type(node.element)}[{unparse.expression(node.size)}]"
        case ast.BaseTypeNode():
            return node.name if node.width is None else f"{node.name}<{unparse.expression(node.width)}>"
    return str(node.type) if node.type is not None else "?"


def _params(params: Sequence[ast.Param]) -> str:
    return ", ".join(" ".join(filter(None, [p.direction, _type(p.type_node), p.name])) for p in params)


def _type_params(params: Sequence[ast.TypeParam]) -> str:
    return f"<{', '.join(p.name for p in params)}>" if params else ""


def _table(decl: ast.TableDecl) -> str:
    keys = [f"{unparse.expression(k.expr)}: {k.match_kind.name}" for k in decl.keys or ()]
    actions = [a.action.name for a in decl.actions or ()]
    return f"table {decl.name} {{\n    key: {'; '.join(keys) or 'none'}\n    actions: {', '.join(actions)}\n}}"


def _annotations(decl: ast.Declaration) -> list[str]:
    return [f"@{a.name}" + ("" if a.text is None else f"({a.text})") for a in decl.annotations]


def members(type_: Type | None) -> list[tuple[str, str]]:
    """Return what can follow a '.' behind a value of a type, each with a note."""
    found: list[tuple[str, str]] = []
    if isinstance(type_, FieldsType):
        found += [(name, str(each)) for name, each in type_.fields.items()]
    if isinstance(type_, HeaderType | UnionType):
        found.append(("isValid", "bool isValid()"))
    if isinstance(type_, HeaderType):
        found += [("setValid", "void setValid()"), ("setInvalid", "void setInvalid()")]
    if isinstance(type_, HeaderType | FieldsType):
        found += [("minSizeInBits", "int minSizeInBits()"), ("minSizeInBytes", "int minSizeInBytes()")]
    if isinstance(type_, StackType):
        one = str(type_.element)
        found += [("next", one), ("last", one), ("lastIndex", "bit<32>"), ("size", "bit<32>")]
        found += [("push_front", "void push_front(int count)"), ("pop_front", "void pop_front(int count)")]
    decl = getattr(type_, "decl", None)
    if isinstance(decl, ast.ExternDecl):
        found += [(m.name, head(m)) for m in decl.methods if m.name != decl.name]
    if isinstance(decl, ast.EnumDecl):
        found += [(m.name, decl.name) for m in decl.members]
    if isinstance(decl, ast.TableDecl | ast.ControlDecl | ast.ParserDecl):
        found.append(("apply", f"{decl.name}.apply(...)"))
    return found


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
