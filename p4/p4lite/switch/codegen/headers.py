"""C statements for validity, and for copying and shifting headers, stacks and unions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from p4lite.switch.bmv2.model import Header, Model, Stack, Union, UnionStack
from p4lite.switch.bmv2.reader import JsonNode
from p4lite.switch.codegen.cexpr import CExpr
from p4lite.switch.codegen.expr import HEADER, STACK, UNION, UNION_STACK, BoundedExpr, ExprBuilder, ExprScope
from p4lite.switch.codegen.packing import header_bytes
from p4lite.switch.codegen.phv import HeaderPlace


@dataclass(frozen=True)
class HeaderTarget:
    """A header that a statement works on; `header` is None for an element chosen by a run-time index."""

    place: HeaderPlace
    header: Header | None


class HeaderOps:
    def __init__(self, model: Model, cx: CExpr, builder: ExprBuilder):
        self.model = model
        self.cx = cx
        self.builder = builder

    # --- which header -------------------------------------------------------------------------------------
    def target(self, header: Header) -> HeaderTarget:
        return HeaderTarget(self.cx.layout.place(header), header)

    def each(self, e: BoundedExpr, index: str, emit: Callable[[HeaderTarget], list[str]]) -> list[str]:
        """Apply `emit` to a header expression; check the bounds in variable `index` if it is chosen at run time."""
        if e.op == "header":
            return emit(self.target(e.ref))
        fixed = self.cx.header(e)
        if fixed is not None:
            if e.op == "member":
                return emit(self.target(e.args[0].ref.headers[e.number]))
            return emit(self.target(e.ref.headers[e.args[0].number]))
        code, places = self.cx.choices(e)
        fault = "in->head.faults.stack_index++;"
        if e.op in ("last", "element"):
            stack: Stack = e.ref
            state = f"p->hs[{stack.headers[0].slot} + {index}]"
            place = HeaderPlace(stack.type, f"p->s{stack.slot}[{index}]", state)
            inner = emit(HeaderTarget(place, None))
            return [f"{{ uint64_t {index} = {code};", f"if ({index} < {len(places)}) {{", *inner, f"}} else {fault} }}"]
        us: UnionStack = e.args[0].ref
        out = [f"switch ({code}) {{"]
        for i, union in enumerate(us.unions):
            out += [f"case {i}: {{", *emit(self.target(union.headers[e.number])), "break; }"]
        return [*out, f"default: {fault}", "}"]

    def _header(self, node: JsonNode, scope: ExprScope) -> BoundedExpr:
        e = self.builder.build(node, scope)
        if e.kind != HEADER:
            node.fail(f"expected a header, found a {e.kind}")
        return e

    # --- validity -----------------------------------------------------------------------------------------
    def mark_valid(self, t: HeaderTarget) -> list[str]:
        if t.place.state is None:
            return []
        out = [f"{t.place.state} = 3;"]
        if t.header is not None and t.header.union is not None:
            union = t.header.union
            out.append(f"union_valid_{union.slot}(p, {t.header.union_index + 1});")
        return out

    def mark_invalid(self, t: HeaderTarget) -> list[str]:
        if t.place.state is None:
            return []
        out = [f"{t.place.state} &= 2;"]
        if t.header is not None and t.header.union is not None:
            union, which = t.header.union, t.header.union_index + 1
            out.append(f"if (p->un[{union.slot}] == {which}) p->un[{union.slot}] = 0;")
        return out

    def union_functions(self) -> list[str]:
        """Return C of `union_valid_N(p, which)`, which makes member `which` the valid one and invalidates another."""
        out: list[str] = []
        for u in self.model.unions.values():
            out.append(f"static P4_UNUSED void union_valid_{u.slot}(struct phv *p, uint8_t which)")
            out += ["{", f"    uint8_t old = p->un[{u.slot}];", "    if (old != which) {", "        switch (old) {"]
            for i, h in enumerate(u.headers):
                out.append(f"        case {i + 1}: p->hs[{h.slot}] &= 2; break;")
            out += ["        default: break;", "        }", "    }", f"    p->un[{u.slot}] = which;", "}"]
        return out

    def add_header(self, args: list[JsonNode], scope: ExprScope) -> list[str]:
        def emit(t: HeaderTarget) -> list[str]:
            if t.place.state is None:
                return []
            return [
                f"if (!{t.place.valid()}) {{",
                f"memset(&{t.place.struct}, 0, sizeof {t.place.struct});",
                *self.mark_valid(t),
                f"p->head.packet_length += {header_bytes(t.place)};",
                "}",
            ]

        return self.each(self._header(args[0], scope), "d_", emit)

    def add_header_fast(self, args: list[JsonNode], scope: ExprScope) -> list[str]:
        return self.each(self._header(args[0], scope), "d_", self.mark_valid)

    def remove_header(self, args: list[JsonNode], scope: ExprScope) -> list[str]:
        def emit(t: HeaderTarget) -> list[str]:
            if t.place.state is None:
                return []
            length = f"p->head.packet_length -= {header_bytes(t.place)};"
            return [f"if {t.place.valid()} {{", length, *self.mark_invalid(t), "}"]

        return self.each(self._header(args[0], scope), "d_", emit)

    # --- copies -------------------------------------------------------------------------------------------
    def copy(self, to: HeaderTarget, source: HeaderTarget, node: JsonNode) -> list[str]:
        if to.place.type is not source.place.type:
            node.fail(f"a header of type '{source.place.type.name}' does not fit into '{to.place.type.name}'")
        body = [*self.mark_valid(to), f"{to.place.struct} = {source.place.struct};"]
        if source.place.state is None:
            return body
        if to.place == source.place:
            return []
        return [f"if {source.place.valid()} {{", *body, "} else {", *self.mark_invalid(to), "}"]

    def assign_header(self, args: list[JsonNode], scope: ExprScope) -> list[str]:
        to, source = self._header(args[0], scope), self._header(args[1], scope)
        return self.each(source, "s_", lambda s: self.each(to, "d_", lambda d: self._copy_away(d, s, args[1])))

    def _copy_away(self, to: HeaderTarget, source: HeaderTarget, node: JsonNode) -> list[str]:
        """Return statements of a copy that also works within one union, or within one element."""
        shared = (
            to.header is not None
            and source.header is not None
            and to.header.union is not None
            and to.header.union is source.header.union
        )
        unknown = to.header is None and source.header is None
        if not shared and not unknown:
            return self.copy(to, source, node)
        name = f"struct t{source.place.type.index}"
        lines = self.copy(to, HeaderTarget(HeaderPlace(source.place.type, "c_", "v_"), None), node)
        return [f"{{ {name} c_ = {source.place.struct}; uint8_t v_ = {source.place.valid()};", *lines, "}"]

    def _unions(self, node: JsonNode, scope: ExprScope) -> Union:
        e = self.builder.build(node, scope)
        if e.kind != UNION:
            node.fail(f"expected a header union, found a {e.kind}")
        if e.op != "union":
            node.fail("a header union chosen at run time cannot be assigned as a whole")
        union: Union = e.ref
        return union

    def _copy_union(self, to: Union, source: Union, node: JsonNode) -> list[str]:
        if len(to.headers) != len(source.headers):
            node.fail("the unions are of different types")
        out: list[str] = []
        for d, s in zip(to.headers, source.headers, strict=True):
            out += self.copy(self.target(d), self.target(s), node)
        return out

    def assign_union(self, args: list[JsonNode], scope: ExprScope) -> list[str]:
        to, source = self._unions(args[0], scope), self._unions(args[1], scope)
        return self._copy_union(to, source, args[1])

    def _stack(self, node: JsonNode, scope: ExprScope) -> Stack | UnionStack:
        e = self.builder.build(node, scope)
        if e.kind not in (STACK, UNION_STACK):
            node.fail(f"expected a header stack, found a {e.kind}")
        stack: Stack | UnionStack = e.ref
        return stack

    def assign_stack(self, args: list[JsonNode], scope: ExprScope) -> list[str]:
        to, source = self._stack(args[0], scope), self._stack(args[1], scope)
        if not isinstance(to, Stack) or not isinstance(source, Stack) or len(to.headers) != len(source.headers):
            args[1].fail("the stacks are of different types or sizes")
        out = [f"p->next[{to.slot}] = p->next[{source.slot}];"]
        for d, s in zip(to.headers, source.headers, strict=True):
            out += self.copy(self.target(d), self.target(s), args[1])
        return out

    def assign_union_stack(self, args: list[JsonNode], scope: ExprScope) -> list[str]:
        to, source = self._stack(args[0], scope), self._stack(args[1], scope)
        if not isinstance(to, UnionStack) or not isinstance(source, UnionStack):
            args[1].fail("expected two header union stacks")
        if len(to.unions) != len(source.unions):
            args[1].fail("the stacks are of different sizes")
        out = [f"p->next[{to.slot}] = p->next[{source.slot}];"]
        for d, s in zip(to.unions, source.unions, strict=True):
            out += self._copy_union(d, s, args[1])
        return out

    # --- shifts of stacks ---------------------------------------------------------------------------------
    def push(self, args: list[JsonNode], scope: ExprScope) -> list[str]:
        return self._shift(args, scope, push=True)

    def pop(self, args: list[JsonNode], scope: ExprScope) -> list[str]:
        return self._shift(args, scope, push=False)

    def _shift(self, args: list[JsonNode], scope: ExprScope, *, push: bool) -> list[str]:
        stack = self._stack(args[0], scope)
        count = self.cx.u64(self.builder.data(args[1], scope))
        name = f"{'push' if push else 'pop'}_{stack.slot}"
        return [f"{name}(p, {count});"]

    def shift_functions(self) -> list[str]:
        """Return C of `push_N(p, n)` and `pop_N(p, n)` for every stack; they move elements and invalidate vacated ones.

        Unlike BMv2, vacated elements of a stack of unions become invalid too, as the language demands.
        """
        out: list[str] = []
        for s in self.model.stacks.values():
            size, first = len(s.headers), s.headers[0].slot
            swap = [
                f"struct t{s.type.index} x = p->s{s.slot}[i]; p->s{s.slot}[i] = p->s{s.slot}[j]; p->s{s.slot}[j] = x;",
                f"uint8_t b = p->hs[{first} + i]; p->hs[{first} + i] = p->hs[{first} + j]; p->hs[{first} + j] = b;",
            ]
            out += self._shift_function(s.slot, size, swap, [f"p->hs[{first} + i] &= 2;"])
        for us in self.model.union_stacks.values():
            swap, clear = self._union_moves(us)
            out += self._shift_function(us.slot, len(us.unions), swap, clear)
        return out

    def _union_moves(self, us: UnionStack) -> tuple[list[str], list[str]]:
        swap, clear = ["switch (i) {"], ["switch (i) {"]
        for i, u in enumerate(us.unions):
            clear.append(f"case {i}: p->un[{u.slot}] = 0;")
            clear += [f"p->hs[{h.slot}] &= 2;" for h in u.headers]
            clear.append("break;")
            swap.append(f"case {i}: switch (j) {{")
            for j, w in enumerate(us.unions):
                if i == j:
                    continue
                x, y = f"p->un[{u.slot}]", f"p->un[{w.slot}]"
                swap.append(f"case {j}: {{ uint8_t b = {x}; {x} = {y}; {y} = b; }}")
                for h, k in zip(u.headers, w.headers, strict=True):
                    a, b = self.cx.layout.place(h), self.cx.layout.place(k)
                    kind = f"struct t{h.type.index}"
                    swap.append(f"{{ {kind} v = {a.struct}; {a.struct} = {b.struct}; {b.struct} = v; }}")
                    swap.append(f"{{ uint8_t b = {a.state}; {a.state} = {b.state}; {b.state} = b; }}")
                swap.append("break;")
            swap.append("default: break; } break;")
        return [*swap, "default: break; }"], [*clear, "default: break; }"]

    @staticmethod
    def _shift_function(slot: int, size: int, swap: list[str], clear: list[str]) -> list[str]:
        return [
            f"static P4_UNUSED void push_{slot}(struct phv *p, uint64_t n)",
            "{",
            f"    if (n > {size})",
            f"        n = {size};",
            f"    p->next[{slot}] = p->next[{slot}] + n > {size} ? {size} : (uint8_t)(p->next[{slot}] + n);",
            f"    for (unsigned i = {size}; n && i-- > n;) {{",
            "        unsigned j = i - (unsigned)n;",
            *[f"        {line}" for line in swap],
            "    }",
            "    for (unsigned i = 0; i < n; i++) {",
            *[f"        {line}" for line in clear],
            "    }",
            "}",
            f"static P4_UNUSED void pop_{slot}(struct phv *p, uint64_t n)",
            "{",
            f"    if (n > {size})",
            f"        n = {size};",
            f"    p->next[{slot}] = p->next[{slot}] < n ? 0 : (uint8_t)(p->next[{slot}] - n);",
            f"    for (unsigned i = 0; n && i + n < {size}; i++) {{",
            "        unsigned j = i + (unsigned)n;",
            *[f"        {line}" for line in swap],
            "    }",
            f"    for (unsigned i = {size} - (unsigned)n; i < {size}; i++) {{",
            *[f"        {line}" for line in clear],
            "    }",
            "}",
        ]
