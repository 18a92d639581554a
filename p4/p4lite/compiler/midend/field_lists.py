"""Field lists: what of a packet's user metadata a clone, a resubmission or a recirculation keeps."""

from __future__ import annotations

from p4lite.compiler import ast
from p4lite.compiler import types as t
from p4lite.compiler.midend import lir
from p4lite.compiler.midend.annotations import annotation_numbers
from p4lite.compiler.midend.exprs import ExpressionLowering
from p4lite.compiler.midend.lir import Field, FieldList
from p4lite.compiler.midend.places import Places
from p4lite.compiler.midend.report import unsupported
from p4lite.compiler.midend.values import Boolean, Data, Struct, Value, as_const


class FieldLists:
    """The lists of a program, by the index that `@field_list` gives them."""

    def __init__(self, code: Places, exprs: ExpressionLowering, decls: list[ast.Declaration]) -> None:
        self.code = code
        self.exprs = exprs
        self._decls = decls
        self._ids: dict[int, int] = {}
        self._empty: FieldList | None = None

    def declare(self, meta_type: t.Type, meta: Value) -> None:
        """Declare the field lists that `@field_list(n, ...)` puts on fields of the user metadata."""
        lists: dict[int, FieldList] = {}
        self._scan_field_lists(t.strip_newtypes(meta_type), meta, lists)
        for index, made in lists.items():
            self.code.out.field_lists.append(made)
            self._ids[index] = made.id

    def _scan_field_lists(self, ty: t.Type, value: Value, lists: dict[int, FieldList]) -> None:
        if not isinstance(ty, t.StructType) or not isinstance(value, Struct):
            return
        assert isinstance(ty.decl, ast.StructDecl)
        for decl in ty.decl.fields:
            member = value.fields[decl.name]
            annotation = decl.annotation("field_list")
            if annotation is None:
                self._scan_field_lists(t.strip_newtypes(ty.fields[decl.name]), member, lists)
                continue
            for index in annotation_numbers(annotation, self._decls):
                made = lists.setdefault(index, FieldList(f"field_list{index}", len(lists) + 1, []))
                made.elements.extend(self._listed(member, decl.pos))

    def _listed(self, member: Value, pos: ast.Pos) -> list[Field | lir.Const]:
        fields: list[Field | lir.Const] = []
        for leaf in self.code.leaves(member, pos):
            if isinstance(leaf, Data) and isinstance(leaf.expr, Field):
                fields.append(leaf.expr)
            elif isinstance(leaf, Boolean) and isinstance(leaf.place, Field):
                fields.append(leaf.place)
        return fields

    def empty(self) -> int:
        """Return the id of the empty list."""
        if self._empty is None:
            self._empty = FieldList("empty", len(self.code.out.field_lists) + 1, [])
            self.code.out.field_lists.append(self._empty)
        return self._empty.id

    def named(self, expr: ast.Expr) -> int:
        """Return the id of the list of a constant index; that of the empty list, with a warning, if no field has the
        index."""
        index = as_const(self.exprs.eval(expr))
        if index is None:
            raise unsupported(expr.pos, "a field list index that is not constant")
        if index not in self._ids:
            self.code.warn(expr.pos, f"no field of the user metadata is annotated with @field_list({index})")
            return self.empty()
        return self._ids[index]
