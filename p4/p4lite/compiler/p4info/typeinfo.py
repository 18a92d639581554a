"""Types in P4Info (P4Runtime specification §8.4, p4types.proto)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from p4lite.compiler import ast
from p4lite.compiler import types as t
from p4lite.compiler.lexer import parse_number
from p4lite.compiler.midend.names import control_plane_name
from p4lite.compiler.p4info.ids import add_annotations
from p4lite.messages import p4types_pb2

TRANSLATION = "p4runtime_translation"


@dataclass(frozen=True)
class Translation:
    """`@p4runtime_translation(uri, type)`: `bits` of the controller's values, None for strings."""

    uri: str
    bits: int | None


def translation(ty: t.Type) -> Translation | None:
    """Return the translation of a `type` declaration, None without one."""
    if not isinstance(ty, t.NewType):
        return None
    annotation = ast.declaration_of(ty).annotation(TRANSLATION)
    if annotation is None or not annotation.tokens:
        return None
    uri, rest = annotation.tokens[0][1:-1], annotation.tokens[2:]
    for token in rest:
        number = parse_number(token)
        if number is not None:
            return Translation(uri, number[0])
    return Translation(uri, None)


def value_width(ty: t.Type | None) -> int:
    """Return bits of a value as P4Runtime sends it; 0 where it has no width (strings, errors)."""
    if ty is None:
        return 0
    translated = translation(ty)
    if translated is not None:
        return translated.bits or 0
    return t.max_width_bits(ty) or 0


def type_name(ty: t.Type | None) -> str | None:
    """Return the name under which a value's type stands in `type_info`; None for a type without a name there."""
    return control_plane_name(ast.declaration_of(ty)).lstrip(".") if isinstance(ty, t.NewType) else None


def bytes_of(value: int, width: int) -> bytes:
    """Return a number as P4Runtime's reference implementation writes it: as many bytes as the width needs."""
    width = max(width, 1)
    return (value & ((1 << width) - 1)).to_bytes((width + 7) // 8, "big")


def flat_fields(ty: t.FieldsType) -> Iterator[tuple[str, t.Type, list[ast.Annotation]]]:
    """Yield fields of a header with nested structs opened: the dotted name, type and annotations of each."""
    declared = {f.name: f for f in ty.decl.fields} if isinstance(ty.decl, ast.StructDecl) else {}
    nested = any(isinstance(t.strip_newtypes(each), t.StructType) for each in ty.fields.values())
    for name, each in ty.fields.items():
        field = declared.get(name)
        notes = field.annotations if field is not None else []
        inner = t.strip_newtypes(each)
        if isinstance(inner, t.StructType):
            for below, below_type, below_notes in flat_fields(inner):
                own = {a.name for a in below_notes}
                yield f".{name}{_dotted(below)}", below_type, below_notes + [a for a in notes if a.name not in own]
        elif nested:
            yield f".{name}", each, notes
        else:
            yield (control_plane_name(field).lstrip(".") if field is not None else name), each, notes


def _dotted(name: str) -> str:
    return name if name.startswith(".") else f".{name}"


class TypeInfo:
    """Makes `P4DataTypeSpec` messages and enters named types into `P4TypeInfo` (`message`)."""

    def __init__(self, message: Any, errors: Sequence[str]) -> None:
        self.message = message
        self._errors = errors

    def spec(self, ty: t.Type | None) -> Any:
        """Return how P4Runtime describes a type."""
        spec = p4types_pb2.P4DataTypeSpec()
        if isinstance(ty, t.NewType):
            spec.new_type.name = self._new_type(ty)
        elif isinstance(ty, t.SerEnumType):
            spec.serializable_enum.name = self._serializable_enum(ty)
        elif isinstance(ty, t.EnumType):
            spec.enum.name = self._enum(ty)
        elif isinstance(ty, t.HeaderType):
            spec.header.name = self._header(ty)
        elif isinstance(ty, t.UnionType):
            spec.header_union.name = self._union(ty)
        elif isinstance(ty, t.StructType):
            spec.struct.name = self._struct(ty)
        elif isinstance(ty, t.StackType):
            self._stack(ty, spec)
        elif isinstance(ty, t.TupleType):
            spec.tuple.SetInParent()
            for each in ty.items:
                spec.tuple.members.add().CopyFrom(self.spec(each))
        elif isinstance(ty, t.BoolType):
            spec.bool.SetInParent()
        elif isinstance(ty, t.ErrorType):
            spec.error.SetInParent()
            if not self.message.HasField("error"):
                self.message.error.members.extend(self._errors)
        else:
            _bitstring(ty, spec.bitstring)
        return spec

    def _new_type(self, ty: t.NewType) -> str:
        name = type_name(ty) or ty.name
        if name not in self.message.new_types:
            entry = self.message.new_types[name]
            translated = translation(ty)
            original = self.spec(t.strip_newtypes(ty))
            if translated is None:
                entry.original_type.CopyFrom(original)
            else:
                entry.translated_type.uri = translated.uri
                if translated.bits is None:
                    entry.translated_type.sdn_string.SetInParent()
                else:
                    entry.translated_type.sdn_bitwidth = translated.bits
            add_annotations(entry, ast.declaration_of(ty).annotations, {TRANSLATION})
        return name

    def _serializable_enum(self, ty: t.SerEnumType) -> str:
        name = _name(ty)
        if name not in self.message.serializable_enums:
            entry = self.message.serializable_enums[name]
            entry.underlying_type.bitwidth = ty.base.width
            for member, value in ty.values.items():
                made = entry.members.add()
                made.name = _member_name(ty, member)
                made.value = bytes_of(value, ty.base.width)
        return name

    def _enum(self, ty: t.EnumType) -> str:
        name = _name(ty)
        if name not in self.message.enums:
            for member in ty.members:
                self.message.enums[name].members.add().name = _member_name(ty, member)
        return name

    def _struct(self, ty: t.StructType) -> str:
        name = _name(ty)
        if name not in self.message.structs:
            entry = p4types_pb2.P4StructTypeSpec()
            for field, each in ty.fields.items():
                member = entry.members.add()
                member.name = _member_name(ty, field)
                member.type_spec.CopyFrom(self.spec(each))
            self.message.structs[name].CopyFrom(entry)
        return name

    def _header(self, ty: t.HeaderType) -> str:
        name = _name(ty)
        if name not in self.message.headers:
            self.message.headers[name].SetInParent()
            for field, each, _ in flat_fields(ty):
                member = self.message.headers[name].members.add()
                member.name = field.lstrip(".")
                _bitstring(each, member.type_spec)
        return name

    def _union(self, ty: t.UnionType) -> str:
        name = _name(ty)
        if name not in self.message.header_unions:
            entry = p4types_pb2.P4HeaderUnionTypeSpec()
            for field, each in ty.fields.items():
                member = entry.members.add()
                member.name = _member_name(ty, field)
                member.header.CopyFrom(self.spec(each).header)
            self.message.header_unions[name].CopyFrom(entry)
        return name

    def _stack(self, ty: t.StackType, spec: Any) -> None:
        element = self.spec(ty.element)
        if isinstance(ty.element, t.UnionType):
            spec.header_union_stack.header_union.CopyFrom(element.header_union)
            spec.header_union_stack.size = ty.size
        else:
            spec.header_stack.header.CopyFrom(element.header)
            spec.header_stack.size = ty.size


def _name(ty: t.Nominal) -> str:
    return control_plane_name(ast.declaration_of(ty)).lstrip(".")


def _member_name(ty: t.Nominal, name: str) -> str:
    members: Sequence[ast.Declaration] = ()
    if isinstance(ty.decl, ast.StructDecl):
        members = ty.decl.fields
    elif isinstance(ty.decl, ast.EnumDecl):
        members = ty.decl.members
    return next((control_plane_name(m).lstrip(".") for m in members if m.name == name), name)


def _bitstring(ty: t.Type | None, spec: Any) -> None:
    """Fill in a `P4BitstringLikeTypeSpec`: of a bit, int or varbit type, or the bits of another one."""
    base = t.strip_newtypes(ty) if ty is not None else None
    if isinstance(base, t.VarbitType):
        spec.varbit.max_bitwidth = base.max_width
        return
    bits = t.underlying_bits(base) if base is not None else None
    if bits is not None and bits.signed:
        spec.int.bitwidth = bits.width
    elif base is not None:
        spec.bit.bitwidth = t.max_width_bits(base) or 0
