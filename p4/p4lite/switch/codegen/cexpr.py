"""C for expressions.

`bits(e, W)` gives C of an unsigned type of W bits (uint64_t, u128, or a struct wN of N limbs) that holds `e` modulo
2**W in two's complement; ring and bit operations are computed in that width directly. `exact(e)` picks the smallest
W in which `e`'s interval fits, signed if it has negative values. Both follow BMv2's unbounded integers exactly.
"""

from __future__ import annotations

from p4lite.switch.bmv2.model import FieldType, Header, HeaderLayout, Stack, Union, UnionStack
from p4lite.switch.codegen.expr import COMPARISON, VARBIT, BoundedExpr, cast
from p4lite.switch.codegen.phv import HeaderPlace, Layout, c_type, limbs

MASK64 = (1 << 64) - 1


def width_for(bits: int) -> int:
    """Return the C width (64, 128, 192, ...) for a number of bits."""
    return 64 * max(limbs(bits), 1)


def rep(lo: int, hi: int) -> tuple[int, bool]:
    """Return the C width in bits and the signedness that hold every value of the interval."""
    if lo >= 0:
        width = width_for(hi.bit_length())
        if width <= 128:
            return width, False
        return width_for(hi.bit_length() + 1), True
    return width_for(max((~lo).bit_length(), hi.bit_length() if hi >= 0 else (~hi).bit_length()) + 1), True


def literal(value: int, width: int) -> str:
    """Return `value` modulo 2**width as a C constant of that width."""
    value &= (1 << width) - 1
    if width == 64:
        return f"UINT64_C({value:#x})" if value > 9 else f"UINT64_C({value})"
    if width == 128:
        return f"P4_U128(UINT64_C({value >> 64:#x}), UINT64_C({value & MASK64:#x}))"
    words = ", ".join(f"UINT64_C({(value >> (64 * i)) & MASK64:#x})" for i in range(width // 64))
    return f"((w{width // 64}){{{{{words}}}}})"


class CExpr:
    """Generates C; collects the widths of wide integers and the types whose zero header is needed."""

    def __init__(self, layout: Layout):
        self.layout = layout
        self.wide: set[int] = set()
        self.zero_types: set[int] = set()
        self.param_words: dict[int, int] = {}

    def _w(self, width: int) -> str:
        self.wide.add(width // 64)
        return f"w{width // 64}"

    def ctype(self, width: int) -> str:
        return {64: "uint64_t", 128: "u128"}.get(width) or self._w(width)

    # --- conversions --------------------------------------------------------------------------------------
    def convert(self, code: str, source: int, signed: bool, target: int) -> str:
        """Return `code` of C width `source` at width `target`: cut, or extended by zero or sign."""
        if source == target:
            return code
        if source > 128 or target > 128:
            if source > 128 and target > 128:
                self._w(source)
                name = "P4W_RESIZE" if signed else "P4W_RESIZEU"
                return f"{name}({self._w(target)}, {self._w(source)}, {code})"
            if target > 128:
                return f"{self._w(target)}_from{'s' if signed else 'u'}{source}({code})"
            return f"{self._w(source)}_lo{target}({code})"
        if target == 64:
            return f"((uint64_t)({code}))"
        return f"((u128)(i128)(int64_t)({code}))" if signed else f"((u128)({code}))"

    def exact(self, e: BoundedExpr) -> tuple[str, int, bool]:
        width, signed = rep(e.lo, e.hi)
        return self.bits(e, width), width, signed

    def u64(self, e: BoundedExpr) -> str:
        return self.bits(e, 64)

    # --- numbers ------------------------------------------------------------------------------------------
    def bits(self, e: BoundedExpr, width: int) -> str:
        """Return C of `e` modulo 2**width."""
        op = e.op
        if op == "const":
            if width > 128:
                self._w(width)
            return literal(e.number, width)
        if op in ("+", "-", "*", "&", "|", "^"):
            a, b = self.bits(e.args[0], width), self.bits(e.args[1], width)
            if width > 128:
                name = {"+": "add", "-": "sub", "*": "mul", "&": "and", "|": "or", "^": "xor"}[op]
                return f"{self._w(width)}_{name}({a}, {b})"
            return f"({a} {op} {b})"
        if op == "~":
            a = self.bits(e.args[0], width)
            return f"{self._w(width)}_not({a})" if width > 128 else f"(~{a})"
        if op == "<<":
            return self._shift_left(e, width)
        if op == "?":
            cond, a, b = self.boolean(e.args[0]), self.bits(e.args[1], width), self.bits(e.args[2], width)
            return f"({cond} ? {a} : {b})"
        if op == "two_comp_mod":
            return self._sign_extend(e, width)
        code, own, signed = self._leaf(e)
        return self.convert(code, own, signed, width)

    def _shift_left(self, e: BoundedExpr, width: int) -> str:
        a, amount = self.bits(e.args[0], width), e.args[1]
        if amount.op == "const":
            n = amount.number & 0xFFFFFFFF
            if n >= width:
                return self.bits(BoundedExpr("data", "const", number=0, lo=0, hi=0), width)
            return f"{self._w(width)}_shl({a}, {n})" if width > 128 else f"({a} << {n})"
        s = self.bits(amount, 64)
        return f"{self._w(width)}_shl({a}, (uint32_t){s})" if width > 128 else f"p4_shl{width}({a}, (uint32_t){s})"

    def _sign_extend(self, e: BoundedExpr, width: int) -> str:
        n = e.number
        if width <= n:
            return self.bits(e.args[0], width)
        own = width_for(n)
        inner = self.bits(e.args[0], own)
        if own > 128:
            return self.convert(f"{self._w(own)}_sx({inner}, {n})", own, True, width)
        return self.convert(f"p4_sx{own}({inner}, {n})" if n < own else inner, own, True, width)

    def _leaf(self, e: BoundedExpr) -> tuple[str, int, bool]:
        """Return code, C width and signedness of an expression that is not a ring operation, in its exact width."""
        width, signed = rep(e.lo, e.hi)
        op = e.op
        if op == "field":
            place = self.layout.place(e.ref.header)
            if e.ref.field.index < 0:
                return f"(uint64_t){place.valid()}", 64, False
            return self.load(place, e.ref.field)
        if op == "place_field":
            return self.load(*e.ref)
        if op == "header_field":
            return self._header_field(e)
        if op == "b2d":
            return f"(uint64_t)({self.boolean(e.args[0])} != 0)", 64, False
        if op == "local":
            return self._local(e)
        if op == "register":
            return self._register(e)
        if op == "lookahead":
            return self._lookahead(e)
        if op == "last_stack_index":
            return f"((uint64_t)p->next[{e.ref.slot}] - 1)", 64, False
        if op == "size_stack":
            return f"(uint64_t)p->next[{e.ref.slot}]", 64, False
        if op == ">>":
            return self._shift_right(e)
        if op in "/%":
            return self._divide(e)
        if op in ("usat_cast", "sat_cast"):
            return self._saturate(e)
        if op == "data_code":  # code computed elsewhere
            return str(e.ref), width, signed
        raise AssertionError(op)

    def load(self, place: HeaderPlace, f: FieldType) -> tuple[str, int, bool]:
        """Return code of a field's value, its C width, and whether a wider value needs sign extension."""
        width = width_for(f.width)
        code = place.field(f)
        if f.width > 128:
            code = f"{self._w(width)}_load({code})"
            if f.signed:
                width2 = width_for(f.width + 1)
                code = self.convert(f"{self._w(width)}_sx({code}, {f.width})", width, True, width2)
                return code, width2, True
            return self.convert(code, width, False, width_for(f.width + 1)), width_for(f.width + 1), True
        code = f"(uint64_t){code}" if width == 64 else code
        if f.signed and f.width < width:
            code = f"p4_sx{width}({code}, {f.width})"
        return code, width, f.signed

    def _local(self, e: BoundedExpr) -> tuple[str, int, bool]:
        start = sum(max(limbs(p.width), 1) for p in e.ref[: e.number])
        bits = e.ref[e.number].width
        if bits <= 64:
            return f"a[{start}]", 64, False
        if bits <= 128:
            return f"P4_U128(a[{start + 1}], a[{start}])", 128, False
        own, width = width_for(bits), width_for(bits + 1)
        return self.convert(f"{self._w(own)}_load(a + {start})", own, False, width), width, True

    def _register(self, e: BoundedExpr) -> tuple[str, int, bool]:
        array, index = e.ref, self.bits(e.args[0], 64)
        own = width_for(array.width)
        if own <= 128:
            return f"p4_register_read{own}(&in->registers[{array.index}], {index}, &in->head.faults)", own, False
        width = width_for(array.width + 1)
        call = f"{self._w(own)}_load(p4_register_words(&in->registers[{array.index}], {index}, &in->head.faults))"
        return self.convert(call, own, False, width), width, True

    def _lookahead(self, e: BoundedExpr) -> tuple[str, int, bool]:
        offset, bits = e.ref
        own = width_for(bits)
        if own <= 128:
            return f"p4_get_bits{own}(data + at, {offset}, {bits})", own, False
        width = width_for(bits + 1)
        name = self._w(own)
        call = f"({{ {name} v_; p4w_get_bits(v_.w, {own // 64}, data + at, {offset}, {bits}); v_; }})"
        return self.convert(call, own, False, width), width, True

    def _shift_right(self, e: BoundedExpr) -> tuple[str, int, bool]:
        code, width, signed = self.exact(e.args[0])
        amount = e.args[1]
        target, target_signed = rep(e.lo, e.hi)
        if width > 128:
            shifted = f"{self._w(width)}_sar({code}, (uint32_t){self.bits(amount, 64)})"
        elif amount.op == "const":
            n = amount.number & 0xFFFFFFFF
            if signed:
                n = min(n, width - 1)
                shifted = (
                    f"((uint64_t)((int64_t)({code}) >> {n}))" if width == 64 else f"((u128)((i128)({code}) >> {n}))"
                )
            elif n >= width:
                shifted = literal(0, width)
            else:
                shifted = f"({code} >> {n})"
        else:
            name = "sar" if signed else "shr"
            shifted = f"p4_{name}{width}({code}, (uint32_t){self.bits(amount, 64)})"
        return self.convert(shifted, width, signed, target), target, target_signed

    def _divide(self, e: BoundedExpr) -> tuple[str, int, bool]:
        a, b = e.args
        width, signed = rep(min(a.lo, b.lo, e.lo), max(a.hi, b.hi, e.hi))
        ca, cb = self.bits(a, width), self.bits(b, width)
        target, target_signed = rep(e.lo, e.hi)
        name = "div" if e.op == "/" else "mod"
        if width > 128:
            code = f"{self._w(width)}_{name}({ca}, {cb}, &in->head.faults.division)"
        elif b.op == "const" and b.number > 0 and not signed:
            code = f"({ca} {e.op} {cb})"
        else:
            code = f"p4_{'s' if signed else 'u'}{name}{width}({ca}, {cb}, &in->head.faults.division)"
        return self.convert(code, width, signed, target), target, target_signed

    def _saturate(self, e: BoundedExpr) -> tuple[str, int, bool]:
        n = e.number
        lo, hi = (0, (1 << n) - 1) if e.op == "usat_cast" else (-(1 << (n - 1)), (1 << (n - 1)) - 1)
        inner = e.args[0]
        width, signed = rep(min(inner.lo, lo), max(inner.hi, hi))
        code = self.bits(inner, width)
        target, target_signed = rep(e.lo, e.hi)
        kind = "s" if signed else "u"
        if width > 128:
            low, high = literal(lo, width), literal(hi, width)
            code = f"{self._w(width)}_clamp({code}, {low}, {high})"
        else:
            code = f"p4_{kind}clamp{width}({code}, {literal(lo, width)}, {literal(hi, width)})"
        return self.convert(code, width, signed, target), target, target_signed

    # --- headers reached at run time ----------------------------------------------------------------------
    def header(self, e: BoundedExpr) -> HeaderPlace | None:
        """Return the place of a header known at compile time."""
        if e.op == "header":
            header: Header = e.ref
            return self.layout.place(header)
        if e.op == "member" and e.args[0].op == "union":
            union: Union = e.args[0].ref
            return self.layout.place(union.headers[e.number])
        if e.op == "element" and e.args[0].op == "const":
            stack: Stack = e.ref
            index = e.args[0].number
            if 0 <= index < len(stack.headers):
                return self.layout.place(stack.headers[index])
        return None

    def choices(self, e: BoundedExpr) -> tuple[str, list[HeaderPlace]]:
        """Return a header chosen at run time: C of the index (uint64_t) and the places it may select."""
        if e.op == "last":
            stack: Stack = e.ref
            return f"((uint64_t)p->next[{stack.slot}] - 1)", [self.layout.place(h) for h in stack.headers]
        if e.op == "element":
            s: Stack = e.ref
            return self.bits(e.args[0], 64), [self.layout.place(h) for h in s.headers]
        union = e.args[0]
        us: UnionStack = union.ref
        if union.op == "last_union":
            index = f"((uint64_t)p->next[{us.slot}] - 1)"
        else:
            index = self.bits(union.args[0], 64)
        return index, [self.layout.place(u.headers[e.number]) for u in us.unions]

    def element(self, e: BoundedExpr) -> tuple[str, HeaderPlace] | None:
        """Return C of the index and the place at index `i_` for a header chosen from a header stack, else None."""
        if e.op not in ("last", "element"):
            return None
        index, places = self.choices(e)
        stack: Stack = e.ref
        first = stack.headers[0].slot
        return index, HeaderPlace(places[0].type, f"p->s{stack.slot}[i_]", f"p->hs[{first} + i_]")

    def _header_field(self, e: BoundedExpr) -> tuple[str, int, bool]:
        header, f = e.args[0], e.ref
        fixed = self.header(header)
        if f.index < 0:
            return f"(uint64_t)({self.header_valid(header)} != 0)", 64, False
        if fixed is not None:
            return self.load(fixed, f)
        fault = "p4_fault(&in->head.faults.stack_index)"
        found = self.element(header)
        if found is not None:
            index, place = found
            code, width, signed = self.load(place, f)
            zero, count = self._zero(width), len(self.choices(header)[1])
            ctype = self.ctype(width)
            body = f"i_ < {count} ? {code} : ({fault}, {zero})"
            return f"({{ uint64_t i_ = {index}; {ctype} v_ = {body}; v_; }})", width, signed
        index, places = self.choices(header)
        loads = [self.load(place, f) for place in places]
        width, signed = loads[0][1], loads[0][2]
        cases = " : ".join(f"i_ == {i} ? {code}" for i, (code, _, _) in enumerate(loads))
        body = f"{cases} : ({fault}, {self._zero(width)})"
        return f"({{ uint64_t i_ = {index}; {self.ctype(width)} v_ = {body}; v_; }})", width, signed

    def _zero(self, width: int) -> str:
        if width > 128:
            self._w(width)
        return literal(0, width)

    def header_valid(self, e: BoundedExpr) -> str:
        fixed = self.header(e)
        if fixed is not None:
            return fixed.valid()
        index, places = self.choices(e)
        fault = "p4_fault(&in->head.faults.stack_index)"
        cases = " : ".join(f"i_ == {i} ? {place.valid()}" for i, place in enumerate(places))
        return f"({{ uint64_t i_ = {index}; int v_ = {cases} : ({fault}, 0); v_; }})"

    # --- booleans -----------------------------------------------------------------------------------------
    def boolean(self, e: BoundedExpr) -> str:
        """Return C of a boolean: zero or not."""
        op = e.op
        if op == "bool":
            return str(e.number)
        if op == "d2b":
            code, width, _ = self.exact(e.args[0])
            return f"(!{self._w(width)}_zero({code}))" if width > 128 else f"({code} != 0)"
        if op == "not":
            return f"(!{self.boolean(e.args[0])})"
        if op in ("and", "or"):
            join = "&&" if op == "and" else "||"
            return f"({self.boolean(e.args[0])} {join} {self.boolean(e.args[1])})"
        if op == "valid":
            return self.header_valid(e.args[0])
        if op == "valid_union":
            return self._union_valid(e.args[0])
        if op == "?":
            return f"({self.boolean(e.args[0])} ? {self.boolean(e.args[1])} : {self.boolean(e.args[2])})"
        if op in ("==", "!="):
            return self._equal(e)
        assert op in COMPARISON, op
        return self._compare(e)

    def _compare(self, e: BoundedExpr) -> str:
        a, b = e.args
        width, signed = rep(min(a.lo, b.lo), max(a.hi, b.hi))
        ca, cb = self.bits(a, width), self.bits(b, width)
        if width > 128:
            return f"({self._w(width)}_cmp({ca}, {cb}) {e.op} 0)"
        if signed:
            kind = "int64_t" if width == 64 else "i128"
            return f"(({kind}){ca} {e.op} ({kind}){cb})"
        return f"({ca} {e.op} {cb})"

    def _equal(self, e: BoundedExpr) -> str:
        a, b = e.args
        if a.kind == "data":
            width, _ = rep(min(a.lo, b.lo), max(a.hi, b.hi))
            ca, cb = self.bits(a, width), self.bits(b, width)
            if width > 128:
                return f"({self._w(width)}_cmp({ca}, {cb}) {e.op} 0)"
            return f"({ca} {e.op} {cb})"
        if a.kind == "bool":
            return f"(!{self.boolean(a)} {e.op} !{self.boolean(b)})"
        if a.kind == VARBIT:
            equal = self._varbits_equal(a, b)
        else:
            equal = self._headers_equal(a, b) if a.kind == "header" else self._unions_equal(a, b)
        return equal if e.op == "==" else f"(!{equal})"

    def _varbits_equal(self, a: BoundedExpr, b: BoundedExpr) -> str:
        """Return C that compares varbits as numbers, as BMv2 does: leading zeros do not count."""
        args = []
        for e in (a, b):
            place, f = self.layout.place(e.ref.header), e.ref.field
            args += [place.field(f), place.length(f)]
        return f"p4_varbits_equal({', '.join(args)})"

    def _fields_equal(self, x: HeaderPlace, y: HeaderPlace) -> str:
        parts = [f"({x.valid()} && {y.valid()})"]
        if x.type is not y.type:
            return "0"
        for f in x.type.fields:
            if f.varbit:
                same = f"!memcmp({x.field(f)}, {y.field(f)}, {x.length(f)})"
                parts.append(f"{x.length(f)} == {y.length(f)} && {same}")
            elif f.width > 128:
                parts.append(f"!memcmp({x.field(f)}, {y.field(f)}, sizeof {x.field(f)})")
            else:
                parts.append(f"{x.field(f)} == {y.field(f)}")
        return "(" + " && ".join(parts) + ")"

    def _each_place(self, e: BoundedExpr) -> list[tuple[str, HeaderPlace]]:
        """Return conditions and places of a header."""
        fixed = self.header(e)
        if fixed is not None:
            return [("1", fixed)]
        index, places = self.choices(e)
        return [(f"{index} == {i}", place) for i, place in enumerate(places)]

    def _headers_equal(self, a: BoundedExpr, b: BoundedExpr) -> str:
        pairs = [
            f"({ca} && {cb} && {self._fields_equal(x, y)})"
            for ca, x in self._each_place(a)
            for cb, y in self._each_place(b)
        ]
        return "(" + " || ".join(pairs) + ")"

    def _unions(self, e: BoundedExpr) -> list[tuple[str, Union]]:
        if e.op == "union":
            return [("1", e.ref)]
        stack: UnionStack = e.ref
        index = f"((uint64_t)p->next[{stack.slot}] - 1)" if e.op == "last_union" else self.bits(e.args[0], 64)
        return [(f"{index} == {i}", u) for i, u in enumerate(stack.unions)]

    def _union_valid(self, e: BoundedExpr) -> str:
        return "(" + " || ".join(f"({c} && p->un[{u.slot}] != 0)" for c, u in self._unions(e)) + ")"

    def _unions_equal(self, a: BoundedExpr, b: BoundedExpr) -> str:
        """Return the condition that both unions are valid with the same member, and these members are equal."""
        parts = []
        for ca, x in self._unions(a):
            for cb, y in self._unions(b):
                for i, (hx, hy) in enumerate(zip(x.headers, y.headers, strict=False)):
                    same = self._fields_equal(self.layout.place(hx), self.layout.place(hy))
                    parts.append(
                        f"({ca} && {cb} && p->un[{x.slot}] == {i + 1} && p->un[{y.slot}] == {i + 1} && {same})"
                    )
        return "(" + " || ".join(parts or ["0"]) + ")"

    # --- stores -------------------------------------------------------------------------------------------
    def store(self, place: HeaderPlace, f: FieldType, e: BoundedExpr) -> str:
        """Return the statement that assigns a number to a field, wrapped or saturated to its width."""
        if f.saturating:
            e = cast("sat_cast" if f.signed else "usat_cast", e, f.width)
        width = width_for(f.width)
        code = self.bits(e, width)
        target = place.field(f)
        if width > 128:
            return f"{self._w(width)}_store({target}, {code}, {f.width}); {place.touch()}"
        fits = e.lo >= 0 and e.hi < (1 << f.width)
        natural = f.width in (8, 16, 32, 64, 128)  # the narrowing assignment truncates
        if not fits and not natural:
            code = f"({code} & {literal((1 << f.width) - 1, width)})"
        ctype = c_type(f.width)
        return f"{target} = ({ctype})({code}); {place.touch()}"


def type_of(header_type: HeaderLayout) -> str:
    return f"struct t{header_type.index}"
