"""Tables and actions in P4Info (P4Runtime specification §§6.4.1, 6.4.2)."""

from __future__ import annotations

from typing import Any

from p4lite.compiler import ast, constfold
from p4lite.compiler import types as t
from p4lite.compiler.architecture import Architecture
from p4lite.compiler.diagnostics import Unsupported
from p4lite.compiler.midend.names import control_plane_name, in_place_name, key_name, qualified
from p4lite.compiler.p4info.blocks import BlockInstance, BlockItem, Extern, make_extern
from p4lite.compiler.p4info.ids import Symbols, add_annotations, add_documentation, field_ids
from p4lite.compiler.p4info.typeinfo import TypeInfo, bytes_of, type_name, value_width
from p4lite.messages import p4info_pb2

DEFAULT_TABLE_SIZE = 1024
NO_ACTION = "NoAction"
MATCH_TYPES = {
    "exact": p4info_pb2.MatchField.EXACT,
    "lpm": p4info_pb2.MatchField.LPM,
    "ternary": p4info_pb2.MatchField.TERNARY,
    "range": p4info_pb2.MatchField.RANGE,
    "optional": p4info_pb2.MatchField.OPTIONAL,
}


def set_match_type(message: Any, kind: str) -> None:
    """Set the match kind of a `MatchField`."""
    if kind in MATCH_TYPES:
        message.match_type = MATCH_TYPES[kind]
    else:
        message.other_match_type = kind


def action_name(decl: ast.ActionDecl, home: BlockInstance | None) -> str:
    """Return the control-plane name of an action that a table of block `home` names."""
    name = control_plane_name(decl)
    if home is not None and any(decl is local for local in home.decl.locals):
        return qualified(home.path, name)
    return name.lstrip(".")


class TableWriter:
    """Writes tables and actions into a message."""

    def __init__(self, info: Any, symbols: Symbols, types: TypeInfo, architecture: Architecture) -> None:
        self.info = info
        self.symbols = symbols
        self.types = types
        self.architecture = architecture

    def property_extern(self, item: BlockItem, what: str) -> tuple[Extern, bool] | None:
        """Return the extern object in a table's property, and whether it is constructed there."""
        assert isinstance(item.decl, ast.TableDecl)
        home = item.home
        prop = self.architecture.property(item.decl, what)
        if prop is None or home is None:
            return None
        value = prop.value
        if isinstance(value, ast.Name):
            found = home.extern(value.decl)
            return None if found is None else (found, False)
        if isinstance(value, ast.Call) and value.kind is ast.CallKind.CONSTRUCTOR:
            return make_extern(value, in_place_name(prop, item.name), prop, home.consts), True
        return None

    def action(self, item: BlockItem) -> None:
        """Describe an action with the parameters that the control plane gives."""
        decl = item.decl
        assert isinstance(decl, ast.ActionDecl)
        message = self.info.actions.add()
        self.preamble(message.preamble, "action", item.name, decl)
        # An action that only statements call gets all arguments from them.
        params = [] if item.inlined else [param for param in decl.params if not param.direction]
        for param, number in zip(params, field_ids([param.annotations for param in params]), strict=True):
            entry = message.params.add()
            entry.id = number
            entry.name = control_plane_name(param).lstrip(".")
            add_annotations(entry, param.annotations)
            add_documentation(entry, param.annotations)
            self.named_type(entry, param.type)
            if isinstance(param.type, t.EnumType):
                entry.type_name.name = control_plane_name(ast.declaration_of(param.type)).lstrip(".")

    def named_type(self, entry: Any, ty: t.Type | None) -> None:
        """Set the width of a parameter or field and, for a type with a name of its own, its type."""
        entry.bitwidth = value_width(ty)
        self.types.message.SetInParent()
        self.types.spec(ty)
        name = type_name(ty)
        if name is not None:
            entry.type_name.name = name

    def preamble(self, message: Any, kind: str, name: str, decl: ast.Declaration | None, skip: Any = ()) -> None:
        """Fill in identifier, names, annotations and documentation of an object."""
        message.id = self.symbols.id(kind, name)
        message.name = name
        message.alias = self.symbols.alias(name)
        if decl is not None:
            add_annotations(message, decl.annotations, skip)
            add_documentation(message, decl.annotations)

    def table(self, item: BlockItem) -> Any:
        """Return a table without its extern objects."""
        decl = item.decl
        assert isinstance(decl, ast.TableDecl)
        message = self.info.tables.add()
        self.preamble(message.preamble, "table", item.name, decl)
        self.types.message.SetInParent()
        message.size = self._size(item, decl)
        self._default(message, item, decl)
        self._actions(message, item, decl)
        self._keys(message, decl)
        message.is_const_table = decl.entries is not None and decl.entries_const
        message.has_initial_entries = bool(decl.entries)
        timeout = self.architecture.property(decl, "timeout")
        asked = timeout.value.const if timeout is not None else None
        if asked is True or (isinstance(asked, ast.EnumValue) and asked.member == "NOTIFY_CONTROL"):
            message.idle_timeout_behavior = p4info_pb2.Table.NOTIFY_CONTROL
        return message

    @staticmethod
    def _size(item: BlockItem, decl: ast.TableDecl) -> int:
        size = decl.property("size")
        value = item.home.constant(size.value) if size is not None and item.home is not None else None
        return int(value) if isinstance(value, int) and value else DEFAULT_TABLE_SIZE

    def _default(self, message: Any, item: BlockItem, decl: ast.TableDecl) -> None:
        reference = decl.default_action
        if reference is None or reference.decl is None:
            return
        ident = self.symbols.id("action", action_name(reference.decl, item.home))
        if decl.default_const:
            message.const_default_action_id = ident
        message.initial_default_action.action_id = ident
        params = [param for param in reference.decl.params if not param.direction]
        ids = dict(zip(params, field_ids([param.annotations for param in params]), strict=True))
        for arg in reference.args or []:
            param = arg.param
            if param not in ids or arg.expr is None:
                continue
            value = constfold.evaluate(arg.expr, item.home.consts if item.home is not None else None)
            base = t.strip_newtypes(param.type) if param.type is not None else None
            if isinstance(value, ast.EnumValue) and isinstance(base, t.SerEnumType):
                value = base.values[value.member]
            if isinstance(value, int):
                entry = message.initial_default_action.arguments.add()
                entry.param_id = ids[param]
                entry.value = bytes_of(int(value), value_width(param.type))

    def _actions(self, message: Any, item: BlockItem, decl: ast.TableDecl) -> None:
        for reference in decl.actions or []:
            if reference.decl is None:
                continue
            entry = message.action_refs.add()
            entry.id = self.symbols.id("action", action_name(reference.decl, item.home))
            add_annotations(entry, reference.annotations)
            kinds = {each.name for each in reference.annotations}
            if {"tableonly", "defaultonly"} <= kinds:
                raise Unsupported(
                    reference.pos, f"'{reference.action.name}' is both @tableonly and @defaultonly: keep one of them"
                )
            if "tableonly" in kinds:
                entry.scope = p4info_pb2.ActionRef.TABLE_ONLY
            elif "defaultonly" in kinds:
                entry.scope = p4info_pb2.ActionRef.DEFAULT_ONLY
        default = decl.default_action
        named = {reference.action.name for reference in decl.actions or []}
        if decl.default_implicit and default is not None and default.decl is not None and NO_ACTION not in named:
            entry = message.action_refs.add()
            entry.id = self.symbols.id("action", action_name(default.decl, item.home))
            entry.annotations.append("@defaultonly")
            entry.scope = p4info_pb2.ActionRef.DEFAULT_ONLY

    def _keys(self, message: Any, decl: ast.TableDecl) -> None:
        keys = decl.keys or []
        for key, number in zip(keys, field_ids([key.annotations for key in keys]), strict=True):
            kind = key.match_kind.name
            if kind == "selector":
                continue
            entry = message.match_fields.add()
            entry.id = number
            entry.name = key_name(key) or ""
            add_annotations(entry, key.annotations)
            add_documentation(entry, key.annotations)
            self.named_type(entry, key.expr.type)
            set_match_type(entry, kind)
