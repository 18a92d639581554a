"""Flat storage: where variables of P4 live in BMv2's headers, stacks, unions and the `scalars` header."""

from __future__ import annotations

from p4lite.compiler import ast
from p4lite.compiler import types as t
from p4lite.compiler.midend.arguments import unsupported
from p4lite.compiler.midend.lir import (
    Field,
    FieldDef,
    HeaderInst,
    HeaderRef,
    LoweredHeaderType,
    LoweredProgram,
    LoweredUnionType,
    StackInst,
    UnionInst,
    UnionStackInst,
)
from p4lite.compiler.midend.names import UniqueNames, control_plane_name, field_name
from p4lite.compiler.midend.values import (
    ENUM_WIDTH,
    Boolean,
    Data,
    HeaderUnion,
    StoredHeader,
    StoredStack,
    StoredUnionStack,
    Struct,
    Value,
    Varbit,
)
from p4lite.compiler.position import Pos

SCALARS = "scalars"
SCALARS_TYPE = "scalars_0"


def data_shape(ty: t.Type) -> tuple[int, bool] | None:
    """Return (width, signed) of a type that is data in BMv2 (not bool), or None."""
    ty = t.strip_newtypes(ty)
    bits = t.underlying_bits(ty)
    if bits is not None:
        return bits.width, bits.signed
    if isinstance(ty, (t.ErrorType, t.EnumType, t.ActionEnumType)):
        return ENUM_WIDTH, False
    return None


class Storage:
    """Creates header types and instances in the lowered program; names are unique and stable."""

    def __init__(self, out: LoweredProgram) -> None:
        self.out = out
        self._names = UniqueNames(SCALARS)
        self._scalar_names = UniqueNames()
        self._scalars = LoweredHeaderType(SCALARS_TYPE, metadata=True)
        out.header_types[SCALARS_TYPE] = self._scalars
        out.headers[SCALARS] = HeaderInst(SCALARS, SCALARS_TYPE, metadata=True)
        self._types: dict[t.Type, str] = {}

    def unique(self, hint: str, *, scalar: bool = False) -> str:
        """Take and return `hint`, or `hint_0`, `hint_1`, ... when it is taken."""
        return (self._scalar_names if scalar else self._names).take(hint)

    def scalar(self, hint: str, width: int, signed: bool = False) -> Field:
        """Return a new field of `scalars`."""
        name = self.unique(hint, scalar=True)
        self._scalars.fields.append(FieldDef(name, width, signed and width > 1))
        return Field(SCALARS, name, width, signed and width > 1)

    def header_type(self, ty: t.HeaderType) -> str:
        """Return the BMv2 header type of a P4 header type (structs inside are flattened)."""
        known = self._types.get(ty)
        if known is not None:
            return known
        name = self.unique(control_plane_name(ast.declaration_of(ty), str(ty)))
        made = LoweredHeaderType(name)
        self._types[ty] = name
        self._flatten_fields(made, ty, "")
        bits = sum(f.width for f in made.fields)
        if bits % 8 != 0:
            raise unsupported(
                ty.decl.pos,
                f"header '{ty.name}' has {bits} bits; BMv2 supports only headers of a multiple of 8 bits",
            )
        if sum(f.varbit for f in made.fields) > 1:
            raise unsupported(ty.decl.pos, f"header '{ty.name}' has more than one varbit field")
        self.out.header_types[name] = made
        return name

    def _flatten_fields(self, made: LoweredHeaderType, ty: t.FieldsType, prefix: str) -> None:
        for name, field_type in ty.fields.items():
            inner = t.strip_newtypes(field_type)
            full = prefix + name
            shape = data_shape(inner)
            if shape is not None:
                made.fields.append(FieldDef(full, shape[0], shape[1] and shape[0] > 1))
            elif isinstance(inner, t.BoolType):
                made.fields.append(FieldDef(full, 1))
            elif isinstance(inner, t.VarbitType):
                made.fields.append(FieldDef(full, inner.max_width, varbit=True))
            elif isinstance(inner, t.StructType):
                self._flatten_fields(made, inner, full + ".")
            else:
                raise unsupported(ty.decl.pos, f"field '{name}' of type {field_type} in a header")

    def union_type(self, ty: t.UnionType) -> str:
        """Return the BMv2 header union type."""
        known = self._types.get(ty)
        if known is not None:
            return known
        name = self.unique(control_plane_name(ast.declaration_of(ty), str(ty)))
        self._types[ty] = name
        members = []
        for member, header in ty.fields.items():
            assert isinstance(header, t.HeaderType)
            members.append((member, self.header_type(header)))
        self.out.union_types[name] = LoweredUnionType(name, members)
        return name

    def _add_header(self, name: str, ty: t.HeaderType) -> None:
        self.out.headers[name] = HeaderInst(name, self.header_type(ty))

    def _add_union(self, name: str, ty: t.UnionType) -> None:
        type_name = self.union_type(ty)
        for member, header in ty.fields.items():
            assert isinstance(header, t.HeaderType)
            self._add_header(f"{name}.{member}", header)
        self.out.unions[name] = UnionInst(name, type_name)

    def allocate(self, ty: t.Type, hint: str, pos: Pos) -> Value:
        """Return new storage for a variable of type `ty`."""
        ty = t.strip_newtypes(ty)
        shape = data_shape(ty)
        if shape is not None:
            field = self.scalar(hint, *shape)
            return Data(field, *shape)
        if isinstance(ty, t.BoolType):
            return boolean(self.scalar(hint, 1))
        if isinstance(ty, t.VarbitType):
            return self._varbit(ty, hint)
        if isinstance(ty, t.HeaderType):
            name = self.unique(hint)
            self._add_header(name, ty)
            return StoredHeader(HeaderRef(name), ty)
        if isinstance(ty, t.UnionType):
            name = self.unique(hint)
            self._add_union(name, ty)
            return HeaderUnion(name, ty)
        if isinstance(ty, t.StackType):
            return self._stack(ty, hint, pos)
        if isinstance(ty, (t.StructType, t.AnonStructType)):
            return Struct(
                {n: self.allocate(f, _join(hint, field_name(ty, n).lstrip(".")), pos) for n, f in ty.fields.items()}
            )
        if isinstance(ty, t.TupleType):
            return Struct({str(i): self.allocate(f, f"{hint}.{i}", pos) for i, f in enumerate(ty.items)})
        raise unsupported(pos, f"a variable of type {ty}")

    def _varbit(self, ty: t.VarbitType, hint: str) -> Value:
        type_name = f"$varbit{ty.max_width}"
        if type_name not in self.out.header_types:
            made = LoweredHeaderType(type_name, [FieldDef("field", ty.max_width, varbit=True)], metadata=True)
            self.out.header_types[type_name] = made
        name = self.unique(hint)
        self.out.headers[name] = HeaderInst(name, type_name, metadata=True)
        return Varbit(Field(name, "field", ty.max_width))

    def _stack(self, ty: t.StackType, hint: str, pos: Pos) -> Value:
        if isinstance(ty.element, t.HeaderType):
            name = self.unique(hint)
            for i in range(ty.size):
                self._add_header(f"{name}[{i}]", ty.element)
            self.out.stacks[name] = StackInst(name, self.header_type(ty.element), ty.size)
            return StoredStack(name, ty, ty.element)
        if isinstance(ty.element, t.UnionType):
            name = self.unique(hint)
            for i in range(ty.size):
                self._add_union(f"{name}[{i}]", ty.element)
            self.out.union_stacks[name] = UnionStackInst(name, self.union_type(ty.element), ty.size)
            return StoredUnionStack(name, ty, ty.element)
        return Struct({str(i): self.allocate(ty.element, f"{hint}[{i}]", pos) for i in range(ty.size)})

    def intrinsic_metadata(self, ty: t.StructType, name: str, type_name: str = "") -> Struct:
        """Return the metadata instance `name` of a struct of the architecture, with its field aliases."""
        made = LoweredHeaderType(type_name or name, metadata=True)
        fields: dict[str, Value] = {}
        decl = ty.decl
        assert isinstance(decl, ast.StructDecl)
        for f in decl.fields:
            inner = t.strip_newtypes(ty.fields[f.name])
            shape = data_shape(inner)
            if shape is not None:
                fields[f.name] = Data(Field(name, f.name, *shape), *shape)
            elif isinstance(inner, t.BoolType):
                shape = 1, False
                fields[f.name] = boolean(Field(name, f.name, 1))
            else:
                raise unsupported(f.pos, f"field '{f.name}' of type {ty.fields[f.name]} in {ty.name}")
            made.fields.append(FieldDef(f.name, *shape))
            alias = f.annotation("alias")
            if alias is not None and alias.args:
                made.aliases.append((str(alias.args[0]), f.name))
        self.out.header_types[made.name] = made
        self.out.headers[name] = HeaderInst(name, made.name, metadata=True)
        self._names.take(name)
        return Struct(fields)


def boolean(field: Field) -> Boolean:
    """Return the boolean that a 1-bit field holds."""
    from p4lite.compiler.midend.arith import to_bool

    return Boolean(to_bool(field), field)


def _join(prefix: str, name: str) -> str:
    return f"{prefix}.{name}" if prefix else name
