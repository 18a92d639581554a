"""Reading, writing, copying and comparing values of all types, field by field where BMv2 needs it."""

from __future__ import annotations

from collections.abc import Callable

from p4lite.compiler import types as t
from p4lite.compiler.midend import arith, lir
from p4lite.compiler.midend.arguments import unsupported
from p4lite.compiler.midend.emitter import Emitter, Frame
from p4lite.compiler.midend.lir import (
    Const,
    ElemField,
    ElemRef,
    Expr,
    Field,
    HeaderRef,
    LoweredAssign,
    LoweredConditional,
    Op,
    Prim,
    Valid,
)
from p4lite.compiler.midend.storage import boolean, data_shape
from p4lite.compiler.midend.values import (
    Boolean,
    Data,
    HeaderUnion,
    HeaderValue,
    IntConst,
    NextElement,
    Nothing,
    PlusSliceOf,
    SliceOf,
    StoredHeader,
    StoredStack,
    StoredUnionStack,
    Struct,
    UnionInvalid,
    Value,
    Varbit,
    may_overlap,
    roots,
)
from p4lite.compiler.position import Pos

Copy = Callable[[], None]


def _largest(expr: Expr) -> int:
    """Return an upper bound of a data expression."""
    if isinstance(expr, Const):
        return expr.value
    if isinstance(expr, (Field, lir.RuntimeParam)):
        return arith.mask(expr.width)
    if isinstance(expr, Op) and expr.op == "&":
        assert expr.left is not None
        return min(_largest(expr.left), _largest(expr.right))
    if isinstance(expr, LoweredConditional):
        return max(_largest(expr.then), _largest(expr.other))
    return arith.mask(64)


class Places(Emitter):
    """An emitter that also moves values to and from storage; all parts of the lowering emit code with it."""

    # --- reading ---

    def index_guard(self, stack: str, index: Expr) -> Expr | None:
        """Return the condition that a run-time index is inside its stack, or None when it always is."""
        size = self.out.stacks[stack].size
        if _largest(index) < size or isinstance(index, lir.LastIndex):
            return None
        return Op("<", index, Const(size, 32))

    def data(self, value: Value, pos: Pos, width: int | None = None) -> Expr:
        """Return the exact expression of a data value; a compile-time `int` needs `width`."""
        if isinstance(value, IntConst):
            return Const(value.value, width or max(value.value.bit_length(), 1))
        if isinstance(value, Boolean):
            return arith.to_data(value.expr)
        if not isinstance(value, Data):
            raise unsupported(pos, "a value of this type here")
        expr = value.expr
        if isinstance(expr, Field) and value.signed and not expr.signed:
            return arith.fit(expr, value.width, True)
        if isinstance(expr, ElemField):
            read: Expr = self._last_field(expr) if isinstance(expr.index, lir.LastIndex) else expr
            if value.signed and not expr.signed:
                read = arith.fit(read, value.width, True)
            guard = self.index_guard(expr.stack, expr.index)
            return read if guard is None else LoweredConditional(guard, read, Const(0, value.width))
        return expr

    def _last_field(self, elem: ElemField) -> lir.LastField:
        fields = self.out.header_types[self.out.stacks[elem.stack].type].fields
        return lir.LastField(elem.stack, fields[elem.offset].name, elem.width, elem.signed)

    def truth(self, value: Value, pos: Pos) -> Expr:
        """Return the boolean expression of a `bool`."""
        if isinstance(value, Boolean):
            return value.expr
        raise unsupported(pos, "a condition that is not a bool")

    def header_type_fields(self, ty: t.HeaderType) -> list[lir.FieldDef]:
        """Return the flattened fields of a header."""
        return self.out.header_types[self.storage.header_type(ty)].fields

    def header_field(self, header: StoredHeader, path: str, ty: t.Type, pos: Pos) -> Value:
        """Return the field of a header in storage; `path` is its flattened name."""
        ty = t.strip_newtypes(ty)
        if isinstance(ty, t.StructType):
            return Struct({n: self.header_field(header, f"{path}.{n}", f, pos) for n, f in ty.fields.items()})
        if isinstance(ty, t.VarbitType):
            if isinstance(header.ref, ElemRef):
                raise unsupported(pos, "a varbit field of a stack element with a run-time index")
            return Varbit(Field(header.ref.name, path, ty.max_width))
        shape = data_shape(ty)
        width, signed = shape if shape is not None else (1, False)
        signed = signed and width > 1
        if isinstance(header.ref, HeaderRef):
            field = Field(header.ref.name, path, width, signed)
            return boolean(field) if shape is None else Data(field, *shape)
        names = [f.name for f in self.header_type_fields(header.type)]
        elem = ElemField(header.ref.stack, header.ref.index, names.index(path), width, signed)
        if shape is not None:
            return Data(elem, *shape)
        guard = self.index_guard(elem.stack, elem.index)
        read = arith.to_bool(elem)
        return Boolean(read if guard is None else LoweredConditional(guard, read, lir.Bool(False)), elem)

    def header_fields(self, header: StoredHeader, pos: Pos) -> dict[str, Value]:
        """Return all fields of a header in storage, by their name in P4."""
        return {n: self.header_field(header, n, f, pos) for n, f in header.type.fields.items()}

    def is_valid(self, value: Value, pos: Pos) -> Expr:
        """Return `value.isValid()`."""
        if isinstance(value, StoredHeader):
            if isinstance(value.ref, ElemRef):
                guard = self.index_guard(value.ref.stack, value.ref.index)
                valid = Valid(value.ref)
                return valid if guard is None else LoweredConditional(guard, valid, lir.Bool(False))
            return Valid(value.ref)
        if isinstance(value, HeaderValue):
            return lir.Bool(value.fields is not None)
        if isinstance(value, HeaderUnion):
            return Valid(lir.UnionRef(value.name))
        if isinstance(value, UnionInvalid):
            return lir.Bool(False)
        raise unsupported(pos, "isValid() of this expression")

    def element(self, stack: StoredStack | StoredUnionStack, index: int) -> Value:
        """Return `stack[index]` for a constant index."""
        name = f"{stack.name}[{index}]"
        if isinstance(stack, StoredStack):
            return StoredHeader(HeaderRef(name), stack.element)
        return HeaderUnion(name, stack.element)

    def union_member(self, union: HeaderUnion, name: str) -> StoredHeader:
        """Return a member of a union in storage."""
        ty = union.type.fields[name]
        assert isinstance(ty, t.HeaderType)
        return StoredHeader(HeaderRef(f"{union.name}.{name}"), ty)

    def zero(self, ty: t.Type, pos: Pos) -> Value:
        """Return the default value of a type: 0, false, invalid."""
        ty = t.strip_newtypes(ty)
        shape = data_shape(ty)
        if shape is not None:
            return Data(Const(0, shape[0]), *shape)
        if isinstance(ty, t.BoolType):
            return Boolean(lir.Bool(False))
        if isinstance(ty, t.HeaderType):
            return HeaderValue(ty, None)
        if isinstance(ty, t.UnionType):
            return UnionInvalid(ty)
        if isinstance(ty, (t.StructType, t.AnonStructType)):
            return Struct({n: self.zero(f, pos) for n, f in ty.fields.items()})
        if isinstance(ty, t.TupleType):
            return Struct({str(i): self.zero(f, pos) for i, f in enumerate(ty.items)})
        if isinstance(ty, t.StackType):
            return Struct({str(i): self.zero(ty.element, pos) for i in range(ty.size)})
        raise unsupported(pos, f"the default value of {ty}")

    def leaves(self, value: Value, pos: Pos) -> list[Value]:
        """Return the scalars (and varbits) of a value in order."""
        if isinstance(value, Struct):
            return [leaf for v in value.fields.values() for leaf in self.leaves(v, pos)]
        if isinstance(value, StoredHeader):
            return [leaf for v in self.header_fields(value, pos).values() for leaf in self.leaves(v, pos)]
        if isinstance(value, HeaderValue) and value.fields is not None:
            return [leaf for v in value.fields.values() for leaf in self.leaves(v, pos)]
        if isinstance(value, (StoredStack, StoredUnionStack)):
            elements = [self.element(value, i) for i in range(value.type.size)]
            return [leaf for e in elements for leaf in self.leaves(e, pos)]
        if isinstance(value, HeaderUnion):
            members = [self.union_member(value, n) for n in value.type.fields]
            return [leaf for m in members for leaf in self.leaves(m, pos)]
        if isinstance(value, (Data, Boolean, Varbit)):
            return [value]
        raise unsupported(pos, "a value of this type in a list of fields")

    def readable(self, value: Value, pos: Pos) -> Value:
        """Return the present value of a destination."""
        if isinstance(value, SliceOf):
            base = value.base
            expr = arith.slice_bits(self.data(base, pos), value.high, value.low, base.width, base.signed)
            return Data(expr, value.high - value.low + 1)
        if isinstance(value, PlusSliceOf):
            base = value.base
            raw = arith.cast(self.data(base, pos), base.width, base.signed, base.width, False)
            shifted = arith.shift_right(raw, value.low, value.low_width, base.width, False)
            return Data(arith.cast(shifted, base.width, False, value.width, False), value.width)
        if isinstance(value, NextElement):
            raise unsupported(pos, "'.next' as an inout argument")
        return value

    # --- snapshots ---

    def snapshot(self, value: Value, pos: Pos) -> Value:
        """Return the present value in storage that nothing else writes (constants stay as they are)."""
        if isinstance(value, Data):
            if isinstance(value.expr, (Const, lir.RuntimeParam)):
                return value
            field = self.temp(value.width, value.signed)
            self.emit(LoweredAssign(field, self.data(value, pos)))
            return Data(field, value.width, value.signed)
        if isinstance(value, Boolean):
            if isinstance(value.expr, lir.Bool):
                return value
            target = self.temp_bool()
            assert target.place is not None
            self.emit(LoweredAssign(target.place, arith.to_data(value.expr)))
            return target
        if isinstance(value, Struct):
            return Struct({n: self.snapshot(v, pos) for n, v in value.fields.items()})
        if isinstance(value, HeaderValue):
            if value.fields is None:
                return value
            return HeaderValue(value.type, {n: self.snapshot(v, pos) for n, v in value.fields.items()})
        ty = self.value_type(value)
        if ty is None:
            return value
        made = self.storage.allocate(ty, "tmp", pos)
        self.copy(made, value, pos)
        return made

    def value_type(self, value: Value) -> t.Type | None:
        """Return the type of a value that lives in header storage."""
        if isinstance(value, (StoredHeader, HeaderUnion, StoredStack, StoredUnionStack)):
            return value.type
        if isinstance(value, Varbit):
            return t.VarbitType(value.field.width)
        return None

    # --- writing ---

    def copy(self, target: Value, source: Value, pos: Pos, loc: lir.SourceInfo | None = None) -> None:  # noqa: C901 - a branch per kind of type
        """Emit `target = source`. The source must not depend on what is written before it is read (`assign`)."""
        if target == source or isinstance(target, Nothing):
            return
        if isinstance(target, Data):
            self._store(target.expr, self.data(source, pos, target.width), pos, loc)
        elif isinstance(target, Boolean):
            if target.place is None:
                raise unsupported(pos, "assignment to this expression")
            self._store(target.place, arith.to_data(self.truth(source, pos)), pos, loc)
        elif isinstance(target, SliceOf):
            old = self.data(target.base, pos)
            value = self.data(source, pos, target.high - target.low + 1)
            value = arith.fit(value, target.high - target.low + 1, False) if _negative(source) else value
            base = target.base
            joined = arith.set_slice(old, target.high, target.low, value, base.width, base.signed)
            self._store(base.expr, joined, pos, loc)
        elif isinstance(target, PlusSliceOf):
            self._store_plus_slice(target, source, pos, loc)
        elif isinstance(target, Varbit):
            self._copy_varbit(target, source, pos, loc)
        elif isinstance(target, StoredHeader):
            self._copy_header(target, source, pos, loc)
        elif isinstance(target, Struct):
            if isinstance(source, (StoredStack, StoredUnionStack)):
                source = self._stack_items(source)
            if isinstance(source, StoredHeader):
                source = Struct(self.header_fields(source, pos))
            if not isinstance(source, Struct) or len(source.fields) != len(target.fields):
                raise unsupported(pos, "this assignment")
            for dst, src in zip(target.fields.values(), source.fields.values(), strict=True):
                self.copy(dst, src, pos, loc)
        elif isinstance(target, (StoredStack, StoredUnionStack)):
            self._copy_stack(target, source, pos, loc)
        elif isinstance(target, HeaderUnion):
            self._copy_union(target, source, pos, loc)
        else:
            raise unsupported(pos, "assignment to this expression")

    def _store(self, place: Expr, value: Expr, pos: Pos, loc: lir.SourceInfo | None) -> None:
        if isinstance(place, Field):
            if place != value:
                self.emit(LoweredAssign(place, value, loc))
        elif isinstance(place, ElemField):
            target = place
            self.guarded(
                self.index_guard(place.stack, place.index), lambda: self.emit(LoweredAssign(target, value, loc))
            )
        else:
            raise unsupported(pos, "assignment to this expression")

    def _store_plus_slice(self, target: PlusSliceOf, source: Value, pos: Pos, loc: lir.SourceInfo | None) -> None:
        base, width = target.base, target.base.width
        old = arith.cast(self.data(base, pos), width, base.signed, width, False)
        ones = arith.shift_left(Const(arith.mask(target.width), width), target.low, target.low_width, width, False)
        moved = arith.shift_left(self.data(source, pos, target.width), target.low, target.low_width, width, False)
        kept = arith.binary("&", old, arith.complement(ones, width, False), width, False)
        joined = arith.binary("|", kept, moved, width, False)
        self._store(base.expr, arith.cast(joined, width, False, width, base.signed), pos, loc)

    def _copy_varbit(self, target: Varbit, source: Value, pos: Pos, loc: lir.SourceInfo | None) -> None:
        if not isinstance(source, Varbit):
            raise unsupported(pos, "assignment to a varbit of anything but a varbit")
        self.emit(Prim("assign_VL", (target.field, source.field), loc))

    def _header_guard(self, header: StoredHeader) -> Expr | None:
        ref = header.ref
        return self.index_guard(ref.stack, ref.index) if isinstance(ref, ElemRef) else None

    def _copy_header(self, target: StoredHeader, source: Value, pos: Pos, loc: lir.SourceInfo | None) -> None:
        if isinstance(source, StoredHeader):
            src = source
            inside = self._header_guard(source)

            def both() -> None:
                self.guarded(inside, lambda: self.emit(Prim("assign_header", (target.ref, src.ref), loc)))

            self.guarded(self._header_guard(target), both)
        elif isinstance(source, HeaderValue) and source.fields is None:
            self.set_valid(target, False, loc)
        elif isinstance(source, (HeaderValue, Struct)):
            fields = source.fields
            assert fields is not None
            self.set_valid(target, True, loc)
            for dst, src_value in zip(self.header_fields(target, pos).values(), fields.values(), strict=True):
                self.copy(dst, src_value, pos, loc)
        else:
            raise unsupported(pos, "this assignment to a header")

    def set_valid(self, target: StoredHeader, valid: bool, loc: lir.SourceInfo | None = None) -> None:
        """Emit `target.setValid()` or `target.setInvalid()`."""
        op = "add_header" if valid else "remove_header"
        self.guarded(self._header_guard(target), lambda: self.emit(Prim(op, (target.ref,), loc)))

    def _stack_items(self, stack: StoredStack | StoredUnionStack) -> Struct:
        return Struct({str(i): self.element(stack, i) for i in range(stack.type.size)})

    def _copy_stack(
        self, target: StoredStack | StoredUnionStack, source: Value, pos: Pos, loc: lir.SourceInfo | None
    ) -> None:
        if isinstance(source, StoredStack):
            self.emit(Prim("assign_header_stack", (lir.StackRef(target.name), lir.StackRef(source.name)), loc))
        elif isinstance(source, StoredUnionStack):
            refs = (lir.UnionStackRef(target.name), lir.UnionStackRef(source.name))
            self.emit(Prim("assign_union_stack", refs, loc))
        else:
            self.copy(self._stack_items(target), source, pos, loc)

    def _copy_union(self, target: HeaderUnion, source: Value, pos: Pos, loc: lir.SourceInfo | None) -> None:
        if isinstance(source, HeaderUnion):
            self.emit(Prim("assign_union", (lir.UnionRef(target.name), lir.UnionRef(source.name)), loc))
        elif isinstance(source, UnionInvalid) or (isinstance(source, HeaderValue) and source.fields is None):
            for name in target.type.fields:
                self.set_valid(self.union_member(target, name), False, loc)
        else:
            raise unsupported(pos, "this assignment to a header union")

    def assign(self, target: Value, source: Value, pos: Pos, loc: lir.SourceInfo | None = None) -> None:
        """Emit `target = source` for any two values, also when the source reads parts of the target."""
        composite = isinstance(source, HeaderValue) or (
            isinstance(source, Struct) and not (isinstance(target, Struct) and _same_shape(target, source))
        )
        if isinstance(source, Struct) and source != target and may_overlap(roots(target), roots(source)):
            composite = True
        if composite and may_overlap(roots(target), roots(source)):
            source = self.snapshot(source, pos)
        self.copy(target, source, pos, loc)

    def initialise(self, target: Value, pos: Pos, *, zero: bool = True) -> None:
        """Give fresh storage its default: headers invalid, and scalars 0 if `zero`."""
        if isinstance(target, Data):
            if zero:
                self.copy(target, Data(Const(0, target.width), target.width, target.signed), pos)
        elif isinstance(target, Boolean):
            if zero:
                self.copy(target, Boolean(lir.Bool(False)), pos)
        elif isinstance(target, StoredHeader):
            self.set_valid(target, False)
        elif isinstance(target, Struct):
            for item in target.fields.values():
                self.initialise(item, pos, zero=zero)
        elif isinstance(target, (StoredStack, StoredUnionStack)):
            if isinstance(target, StoredUnionStack):
                self.initialise(self._stack_items(target), pos, zero=zero)
            self._pop_all(target)
        elif isinstance(target, HeaderUnion):
            for name in target.type.fields:
                self.set_valid(self.union_member(target, name), False)

    def _pop_all(self, target: StoredStack | StoredUnionStack) -> None:
        ref = lir.StackRef(target.name) if isinstance(target, StoredStack) else lir.UnionStackRef(target.name)
        self.emit(Prim("pop", (ref, Const(target.type.size, 32))))

    def copy_out(self, frame: Frame, pos: Pos) -> None:
        """Copy back the parameters of one call, in the order of its arguments."""
        for target, source in frame.copy_outs:
            if not isinstance(target, NextElement):
                self.assign(target, source, pos)

    # --- comparing ---

    def equal(self, left: Value, right: Value, pos: Pos) -> Expr:
        """Return `left == right` for two values of one type."""
        if isinstance(left, Boolean) and isinstance(right, Boolean):
            return arith.compare("==", left.expr, right.expr)
        if isinstance(left, (Data, IntConst)) and isinstance(right, (Data, IntConst)):
            width = left.width if isinstance(left, Data) else right.width if isinstance(right, Data) else None
            return arith.compare("==", self.data(left, pos, width), self.data(right, pos, width))
        if isinstance(left, Varbit) and isinstance(right, Varbit):
            return lir.SameHeader(self._alone(left, pos), self._alone(right, pos))
        if isinstance(left, (StoredHeader, HeaderValue)) or isinstance(right, (StoredHeader, HeaderValue)):
            return self._equal_headers(left, right, pos)
        if isinstance(left, (StoredStack, StoredUnionStack)):
            left = self._stack_items(left)
        if isinstance(right, (StoredStack, StoredUnionStack)):
            right = self._stack_items(right)
        if isinstance(left, HeaderUnion) and isinstance(right, HeaderUnion):
            left = Struct({n: self.union_member(left, n) for n in left.type.fields})
            right = Struct({n: self.union_member(right, n) for n in right.type.fields})
        if isinstance(left, (HeaderUnion, UnionInvalid)) and isinstance(right, (HeaderUnion, UnionInvalid)):
            return arith.logical_and(
                arith.logical_not(self.is_valid(left, pos)), arith.logical_not(self.is_valid(right, pos))
            )
        if isinstance(left, Struct) and isinstance(right, Struct):
            result: Expr = lir.Bool(True)
            for a, b in zip(left.fields.values(), right.fields.values(), strict=True):
                result = arith.logical_and(result, self.equal(a, b, pos))
            return result
        raise unsupported(pos, "comparison of values of this type")

    def _equal_headers(self, left: Value, right: Value, pos: Pos) -> Expr:
        """Return the condition that two headers are equal: both are invalid, or both are valid with equal fields."""
        valid_left, valid_right = self.is_valid(left, pos), self.is_valid(right, pos)
        if isinstance(left, StoredHeader) and isinstance(right, StoredHeader):
            guard_left, guard_right = self._header_guard(left), self._header_guard(right)
            varbit = any(f.varbit for f in self.header_type_fields(left.type))
            if varbit and guard_left is None and guard_right is None:
                invalid = arith.logical_not(Op("or", valid_left, valid_right))
                return arith.logical_or(invalid, lir.SameHeader(left.ref, right.ref))
        neither = arith.logical_and(arith.logical_not(valid_left), arith.logical_not(valid_right))
        fields_left = self._fields(left, pos)
        fields_right = self._fields(right, pos)
        if fields_left is None or fields_right is None:
            return neither
        same = self.equal(Struct(fields_left), Struct(fields_right), pos)
        both = arith.logical_and(arith.logical_and(valid_left, valid_right), same)
        return arith.logical_or(neither, both)

    def _alone(self, value: Varbit, pos: Pos) -> HeaderRef:
        """Return a header that holds only this varbit, with its present value."""
        if self.out.headers[value.field.header].metadata:
            return HeaderRef(value.field.header)
        made = self.snapshot(value, pos)
        assert isinstance(made, Varbit)
        return HeaderRef(made.field.header)

    def _fields(self, header: Value, pos: Pos) -> dict[str, Value] | None:
        if isinstance(header, StoredHeader):
            return self.header_fields(header, pos)
        if isinstance(header, HeaderValue):
            return header.fields
        raise unsupported(pos, "comparison of values of this type")


def _negative(value: Value) -> bool:
    return (isinstance(value, Data) and value.signed) or (isinstance(value, IntConst) and value.value < 0)


def _same_shape(a: Struct, b: Struct) -> bool:
    """Return whether two structs have the same fields in separate storage, so that each field can be copied on its
    own."""
    return list(a.fields) == list(b.fields) and not may_overlap(roots(a), roots(b))
