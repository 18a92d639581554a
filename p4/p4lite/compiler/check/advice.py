"""Advice to the author of a wrong expression, to append to an error: `; ...`, or an empty text."""

from __future__ import annotations

from collections.abc import Sequence

from p4lite.compiler import ast
from p4lite.compiler import types as ty
from p4lite.compiler.check.scope import Scope, closest
from p4lite.compiler.lexer import number_of
from p4lite.compiler.unparse import expression

#: Words for kinds of match, beside the kinds themselves.
_MATCH_KINDS = {
    "lpm": ("longest", "prefix", "longest_prefix", "longest_prefix_match", "longest_match", "cidr"),
    "ternary": ("wildcard", "mask", "masked", "tcam", "any"),
    "exact": ("equal", "equals", "hash", "match"),
    "range": ("between", "interval", "ranges"),
}
_WORDS = {
    "True": "true", "TRUE": "true", "False": "false", "FALSE": "false", "drop": "mark_to_drop",
    "print": "log_msg", "printf": "log_msg",
}  # fmt: skip
_NOTHING = frozenset({"null", "NULL", "None", "nullptr", "nil"})
_CASTABLE = ty.BitType | ty.IntType | ty.SerEnumType | ty.NewType


def match_kind(name: str, known: Sequence[str]) -> str:
    """Return advice about a kind of match that is not declared."""
    lower = name.lower()
    meant = next((kind for kind, words in _MATCH_KINDS.items() if lower == kind or lower in words), None)
    return f"; did you mean '{meant}'?" if meant in known else closest(name, list(known))


def name(e: ast.Name, scope: Scope, wanted: tuple[type[ast.Declaration], ...]) -> str:
    """Return advice about a name that is not declared."""
    if e.name in _NOTHING:
        return "; P4 has no null: test a header with isValid()"
    metadata = _metadata(scope)
    if metadata is not None:
        if e.name == "standard_metadata":
            return f"; the parameter of type standard_metadata_t is called '{metadata.name}' here"
        if isinstance(metadata.type, ty.StructType) and e.name in metadata.type.fields:
            return f"; it is a field of standard_metadata_t: write {metadata.name}.{e.name}"
    if e.name in _WORDS and (_WORDS[e.name] in ("true", "false") or scope.lookup(_WORDS[e.name])):
        word = _WORDS[e.name]
        inside = f"({metadata.name})" if word == "mark_to_drop" and metadata is not None else ""
        return f"; P4 writes {word}{inside}"
    if e.name == "apply":
        return "; apply() is a method: write t.apply() for table t"
    return closest(e.name, scope.all_names(wanted))


def _metadata(scope: Scope | None) -> ast.Param | None:
    """Return the parameter with the standard metadata."""
    while scope is not None:
        for declarations in scope.names.values():
            for decl in declarations:
                if isinstance(decl, ast.Param) and str(decl.type) == "standard_metadata_t":
                    return decl
        scope = scope.parent
    return None


def text(*operands: ast.Expr) -> str:
    """Return advice about a string where a number is needed."""
    string = next((e for e in operands if isinstance(e, ast.StringLiteral)), None)
    if string is None:
        return ""
    number = number_of(string.value)
    if number is None and string.value.strip().isdecimal():
        number = string.value.strip()
    if number is not None:
        return f"; a string is no number: write {number}"
    return "; P4 has no values of text: write a number"


def comparison(e: ast.Binary) -> str:
    """Return advice about operands of `==` or `!=` that have different types."""
    hint = text(e.left, e.right)
    if hint:
        return hint
    for side, other in ((e.left, e.right), (e.right, e.left)):
        if isinstance(side.type, ty.BoolType) and isinstance(other.const, int) and other.const in (0, 1):
            whole = (other.const == 1) is (e.op == "==")
            shown = expression(side)
            return f"; a bool is a condition itself: write {shown if whole else f'!{shown}'}"
        if isinstance(side.type, ty.HeaderType | ty.StructType | ty.UnionType):
            return "; compare its fields"
    lt, rt = e.left.type, e.right.type
    if isinstance(lt, ty.NewType) or isinstance(rt, ty.NewType):
        which = lt if isinstance(lt, ty.NewType) else rt
        return f"; cast the number with ({which})"
    castable = isinstance(lt, _CASTABLE) and isinstance(rt, _CASTABLE)
    bit = {type(lt), type(rt)} == {ty.BoolType, ty.BitType}
    return "; cast one" if castable or bit else ""


def condition(e: ast.Expr) -> str:
    """Return advice about a condition that is not bool."""
    if isinstance(e.type, ty.HeaderType | ty.UnionType):
        return f"; write {expression(e)}.isValid()"
    if isinstance(e.type, ty.BitType | ty.IntType):
        return "; compare it, as with != 0"
    return ""


def method(kind: object, name: str) -> str:
    """Return advice about a method that is not there."""
    if isinstance(kind, ty.HeaderType | ty.UnionType):
        meant = {"valid": "isValid", "is_valid": "isValid", "exists": "isValid", "invalidate": "setInvalid"}
        methods = ("isValid", "setValid", "setInvalid")
        lower = {each.lower(): each for each in methods}
        near = meant.get(name.lower()) or lower.get(name.lower().replace("_", ""))
        return f"; did you mean '{near}'?" if near else closest(name, list(methods))
    return ""


def index(e: ast.Index) -> str:
    """Return advice about something that has no elements."""
    kind, shown = e.expr.type, expression(e.expr)
    if isinstance(kind, ty.ExternType) and kind.name == "register":
        return f"; write {shown}.read(x, i) and {shown}.write(i, x)"
    return ""


def without_result(call: ast.Call, params: Sequence[ast.Param]) -> str:
    """Return the error about a call that is used as a value, but returns nothing."""
    func = expression(call.func)
    outs = [param for param in params if param.direction == "out"]
    if not outs:
        return f"'{call.method or func}' returns nothing: call it as a statement"
    rest = [param.name for param in params if param is not outs[0]]
    if len(call.args) == len(rest):
        rest = [expression(arg.expr) for arg in call.args]
    given = ["x" if param is outs[0] else rest.pop(0) for param in params]
    return (
        f"'{call.method or func}' returns nothing; it writes to its argument '{outs[0].name}': "
        f"declare a variable x and write {func}({', '.join(given)});"
    )
