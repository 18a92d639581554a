"""Description of a declaration for editors: its head as P4, its width, its annotations."""

from __future__ import annotations

from collections.abc import Sequence

from p4lite.compiler import ast, unparse
from p4lite.compiler.types import (
    BitType,
    BoolType,
    FieldsType,
    HeaderType,
    NewType,
    SerEnumType,
    StackType,
    Type,
    UnionType,
    VarbitType,
)

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
