"""The parser as one C function: a label per state, a goto per transition.

Errors leave by `fail` with the error's number, as BMv2's parser exceptions do: what was extracted stays extracted
and the rest of the packet is payload.
"""

from __future__ import annotations

from p4lite.switch.bmv2.model import HeaderLayout
from p4lite.switch.bmv2.reader import JsonNode
from p4lite.switch.codegen.cexpr import CExpr, literal
from p4lite.switch.codegen.expr import MAX_BITS, BoundedExpr, ExprBuilder, ExprScope, field_expr, lookaheads
from p4lite.switch.codegen.headers import HeaderTarget
from p4lite.switch.codegen.packing import load_header
from p4lite.switch.codegen.phv import HeaderPlace, comment
from p4lite.switch.codegen.primitives import PrimitiveCodegen
from p4lite.switch.program.facts import Facts
from p4lite.switch.program.load import main_parser

SCOPE = ExprScope(parser=True)


class ParserCodegen:
    def __init__(self, facts: Facts, cx: CExpr, builder: ExprBuilder, primitives: PrimitiveCodegen):
        self.facts = facts
        self.model = facts.model
        self.cx = cx
        self.builder = builder
        self.primitives = primitives

    def function(self, verify: list[str]) -> list[str]:
        """Return C of the program's `parse`; `verify` are the statements for checksums."""
        out = [
            "static void parse(struct p4_instance *head, struct p4_phv *phv, const uint8_t *data, uint32_t len)",
            "{",
            "    struct p4_state *in P4_UNUSED = (struct p4_state *)(void *)head;",
            "    struct phv *p P4_UNUSED = (struct phv *)(void *)phv;",
            "    uint32_t at = 0, steps P4_UNUSED = 0, error;",
            "    uint64_t v P4_UNUSED;",
        ]
        chosen = main_parser(self.model)
        if chosen is not None and chosen.get("init_state") is not None:
            out += [f"    {line}" if not line.startswith("S") else line for line in self._states(chosen)]
        out += [
            f"    error = {self.model.error('NoError')};",
            "    goto done;",
            "fail: P4_UNUSED",
            "done: P4_UNUSED",
            "    p->head.parser_error = error;",
            "    p->head.payload_offset = at;",
            "    p->head.checksum_error = 0;",
        ]
        if verify:
            out += [
                "    const uint8_t *payload P4_UNUSED = data + at;",
                "    uint32_t payload_len P4_UNUSED = len - at;",
            ]
            out += verify
        return [*out, "    (void)data;", "    (void)len;", "}"]

    def fail(self, error: str) -> str:
        return f"{{ error = {self.model.error(error)}; goto fail; }}"

    def _need(self, count: str) -> str:
        return f"if (len - at < {count}) {self.fail('PacketTooShort')}" if count != "0" else ""

    def _states(self, parser: JsonNode) -> list[str]:
        names: dict[str, int] = {}
        states = list(parser["parse_states"].items())
        for i, state in enumerate(states):
            if state["name"].str() in names:
                state["name"].fail("the state is declared twice")
            names[state["name"].str()] = i
        looping = self._loops(states, names)
        out = [f"goto S{self._state(names, parser['init_state'])};"]
        for i, state in enumerate(states):
            out.append(f"S{i}: P4_UNUSED; /* {comment(state['name'].str())} */")
            if i in looping:
                stop = f"in->head.faults.parser_loop++; {self.fail('ParserTimeout')}"
                out.append(f"if (++steps > P4_MAX_PARSER_STEPS) {{ {stop} }}")
            for op in state.items("parser_ops"):
                out += self._operation(op)
            out += self._transitions(state, names)
        return out

    def _state(self, names: dict[str, int], node: JsonNode) -> int:
        if node.str() not in names:
            node.fail(f"there is no parser state '{node.value}'")
        return names[node.str()]

    def _loops(self, states: list[JsonNode], names: dict[str, int]) -> set[int]:
        """Return the states that can come back to themselves."""
        edges = {
            i: {self._state(names, t["next_state"]) for t in s.items("transitions") if t.get("next_state") is not None}
            for i, s in enumerate(states)
        }
        # Tarjan's strongly connected components, with a stack of our own: parsers may have thousands of states.
        index: dict[int, int] = {}
        low: dict[int, int] = {}
        path: list[int] = []
        on_path: set[int] = set()
        loops: set[int] = set()
        for start in edges:
            work = [] if start in index else [(start, iter(edges[start]))]
            for state, _ in work:
                index[state] = low[state] = len(index)
                path.append(state)
                on_path.add(state)
            while work:
                state, rest = work[-1]
                step = next(rest, None)
                if step is None:
                    work.pop()
                    if work:
                        low[work[-1][0]] = min(low[work[-1][0]], low[state])
                    if low[state] == index[state]:
                        members = [path.pop()]
                        while members[-1] != state:
                            members.append(path.pop())
                        if len(members) > 1 or state in edges[state]:
                            loops.update(members)
                        on_path.difference_update(members)
                elif step not in index:
                    index[step] = low[step] = len(index)
                    path.append(step)
                    on_path.add(step)
                    work.append((step, iter(edges[step])))
                elif step in on_path:
                    low[state] = min(low[state], index[step])
        return loops

    # --- operations ---------------------------------------------------------------------------------------
    def _operation(self, node: JsonNode) -> list[str]:
        op = node["op"].str()
        args = node["parameters"]
        if op == "extract":
            return self._extract(args[0], None)
        if op == "extract_VL":
            return self._extract(args[0], self.builder.data(self._inner(args[1]), SCOPE))
        if op == "set":
            return self._set(args)
        if op == "verify":
            return self._verify(args)
        if op == "shift":
            count = args[0].int(0, MAX_BITS)
            return [self._need(str(count)), f"at += {count};"]
        if op == "advance":
            return self._advance(args[0])
        if op == "primitive":
            return self.primitives.emit(args[0], SCOPE)
        raise node["op"].error(f"the parser operation '{op}' is not supported")

    @staticmethod
    def _inner(node: JsonNode) -> JsonNode:
        """Return the value of an `expression` wrapper around a type-value object."""
        value = node["value"]
        if node["type"].value == "expression" and isinstance(value.value, dict) and "op" not in value.value:
            return value
        return node

    def _guarded(self, e: BoundedExpr) -> list[str]:
        """Check that every lookahead in an expression lies within the packet."""
        return [self._need(str((offset + width + 7) // 8)) for offset, width in lookaheads(e)]

    def _extract(self, arg: JsonNode, length: BoundedExpr | None) -> list[str]:
        kind = arg["type"].str()
        if kind == "regular":
            header = self.model.find(self.model.headers, arg["value"], "header")
            if header.metadata:
                arg.fail(f"the metadata '{header.name}' cannot be extracted")
            return self._extract_to(self.primitives.headers.target(header), length, arg)
        if kind == "stack":
            stack = self.model.find(self.model.stacks, arg["value"], "header stack")
            state = f"p->hs[{stack.headers[0].slot} + n_]"
            place = HeaderPlace(stack.type, f"p->s{stack.slot}[n_]", state)
            return [
                f"{{ uint32_t n_ = p->next[{stack.slot}];",
                f"if (n_ >= {len(stack.headers)}) {self.fail('StackOutOfBounds')}",
                *self._extract_to(HeaderTarget(place, None), length, arg),
                f"p->next[{stack.slot}] = (uint8_t)(n_ + 1); }}",
            ]
        if kind == "union_stack":
            us = self.model.find(self.model.union_stacks, arg["value"][0], "header union stack")
            if arg["value"][1].str() not in us.members:
                arg["value"][1].fail(f"the union has no member '{arg['value'][1].value}'")
            member = us.members.index(arg["value"][1].str())
            out = [f"switch (p->next[{us.slot}]) {{"]
            for i, union in enumerate(us.unions):
                target = self.primitives.headers.target(union.headers[member])
                out += [f"case {i}: {{", *self._extract_to(target, length, arg), "break; }"]
            return [*out, f"default: {self.fail('StackOutOfBounds')}", "}", f"p->next[{us.slot}]++;"]
        raise arg["type"].error(f"'{kind}' cannot be extracted")

    def _extract_to(self, target: HeaderTarget, length: BoundedExpr | None, arg: JsonNode) -> list[str]:
        place = target.place
        type_: HeaderLayout = place.type
        fixed = type_.fixed_bits // 8
        valid = [*self.primitives.headers.mark_valid(target)]
        if type_.varbit is None:
            # a header without a varbit may come with extract_VL; its length does not matter then
            if fixed == 0:
                return valid
            return [self._need(str(fixed)), *load_header(place, "(data + at)", None), f"at += {fixed};", *valid]
        own = length
        out = [self._need(str(fixed))]
        if own is None:
            if type_.length_exp is None:
                arg.fail(f"header type '{type_.name}' has a variable-length field: it wants extract_VL")
            # fields before the varbit may be what the length depends on
            out += load_header(place, "(data + at)", "0")
            own = self.builder.data(self._inner(type_.length_exp), ExprScope(place=place))
        return [
            *out,
            *self._guarded(own),
            f"{{ uint64_t l_ = {self.cx.u64(own)};",
            f"if (l_ % 8) {self.fail('ParserInvalidArgument')}",
            f"if (l_ / 8 > len - at - {fixed}) {self.fail('PacketTooShort')}",
            f"if (l_ / 8 > {type_.varbit_max}) {self.fail('HeaderTooShort')}",
            *load_header(place, "(data + at)", "(uint32_t)(l_ / 8)"),
            f"at += {fixed} + (uint32_t)(l_ / 8); }}",
            *valid,
        ]

    def _set(self, args: JsonNode) -> list[str]:
        if args[0]["type"].value != "field":
            args[0]["type"].fail("the parser can set fields only")
        ref = self.model.field_ref(args[0]["value"])
        if ref.field.varbit:
            return self.primitives.emit(
                JsonNode({"op": "assign_VL", "parameters": [args[0].value, args[1].value]}, args.source, args.path),
                SCOPE,
            )
        e = self.builder.data(self._inner(args[1]), SCOPE)
        if ref.field.index < 0:
            return self._set_valid(args, e)
        return [*self._guarded(e), self.cx.store(self.cx.layout.place(ref.header), ref.field, e)]

    def _set_valid(self, args: JsonNode, e: BoundedExpr) -> list[str]:
        """Return C that sets `h.$valid$` in the parser, as p4c wrote setValid and setInvalid there until 2018."""
        header = JsonNode({"type": "header", "value": args[0]["value"][0].value}, args.source, args.path)
        headers = self.primitives.headers
        yes, no = (made([header], SCOPE) for made in (headers.add_header, headers.remove_header))
        test = f"if ({self.cx.u64(e)} & 1) {{"
        return [*self._guarded(e), test, *yes, "} else {", *no, "}"]

    def _verify(self, args: JsonNode) -> list[str]:
        condition = self.builder.boolean(self._inner(args[0]), SCOPE)
        if isinstance(args[1].value, int):
            error = str(args[1].int(0, 2**31 - 1))
        else:
            error = f"(uint32_t){self.cx.u64(self.builder.data(self._inner(args[1]), SCOPE))}"
        check = self.cx.boolean(condition)
        return [*self._guarded(condition), f"if (!{check}) {{ error = {error}; goto fail; }}"]

    def _advance(self, arg: JsonNode) -> list[str]:
        e = self.builder.data(self._inner(arg), SCOPE)
        return [
            *self._guarded(e),
            f"{{ uint64_t l_ = {self.cx.u64(e)};",
            f"if (l_ % 8) {self.fail('ParserInvalidArgument')}",
            f"if (l_ / 8 > len - at) {self.fail('PacketTooShort')}",
            "at += (uint32_t)(l_ / 8); }",
        ]

    # --- transitions --------------------------------------------------------------------------------------
    def _key(self, state: JsonNode) -> list[BoundedExpr]:
        out = []
        for part in state.items("transition_key"):
            kind = part["type"].str()
            if kind == "field":
                out.append(field_expr(self.model.field_ref(part["value"]), part))
            elif kind in ("stack_field", "union_stack_field", "lookahead"):
                out.append(self.builder.build(part, SCOPE))
            else:
                part["type"].fail(f"'{kind}' cannot be in a transition key")
        return out

    @staticmethod
    def _width(e: BoundedExpr) -> int:
        return max((e.hi - e.lo).bit_length(), 1)

    def _goto(self, node: JsonNode, names: dict[str, int]) -> str:
        following = node.get("next_state")
        if following is None:
            return f"{{ error = {self.model.error('NoError')}; goto done; }}"
        return f"goto S{self._state(names, following)};"

    def _transitions(self, state: JsonNode, names: dict[str, int]) -> list[str]:
        key = self._key(state)
        widths = [self._width(e) for e in key]
        size = sum((w + 7) // 8 for w in widths)
        default = f"{{ error = {self.model.error('NoError')}; goto done; }}"
        cases: list[tuple[JsonNode, str]] = []
        for t in state.items("transitions"):
            value = t.get("value")
            kind_node = t.get("type")
            kind = kind_node.str() if kind_node else "hexstr"
            if kind == "default" or (kind == "hexstr" and (value is None or value.value == "default")):
                default = self._goto(t, names)
            elif kind in ("hexstr", "parse_vset"):
                cases.append((t, kind))
            else:
                t["type"].fail(f"'{kind}' is not a type of transition")
        if not key or not cases:
            return [default]
        body: list[str] = []
        for e in key:
            body += self._guarded(e)
        has_set = any(kind == "parse_vset" for _, kind in cases)
        if has_set:  # the set holds the parts without padding between them
            body += self._key_bytes("ks", key, widths, widths)
        if size > 16:
            body += self._key_bytes("kb", key, widths, [8 * ((w + 7) // 8) for w in widths])
        if size <= 16:
            body.append(self._key_number(key, widths, 64 if size <= 8 else 128))
        for t, kind in cases:
            test = self._vset_test(t, widths) if kind == "parse_vset" else self._value_test(t, key, size)
            body.append(f"if ({test}) {self._goto(t, names)}")
        return ["{", *[f"    {line}" for line in body], "}", default]

    def _key_number(self, key: list[BoundedExpr], widths: list[int], bits: int) -> str:
        parts, shift = [], 8 * sum((w + 7) // 8 for w in widths)
        for e, width in zip(key, widths, strict=True):
            shift -= 8 * ((width + 7) // 8)
            code = self.cx.bits(e, bits)
            if e.lo < 0:
                code = f"({code} & {literal((1 << width) - 1, bits)})"
            parts.append(f"{code} << {shift}" if shift else code)
        return f"{self.cx.ctype(bits)} k P4_UNUSED = {' | '.join(parts)};"

    def _key_bytes(self, name: str, key: list[BoundedExpr], widths: list[int], room: list[int]) -> list[str]:
        """Return bytes of the key with each part right-aligned in its `room` bits, all right-aligned."""
        size = (sum(room) + 7) // 8
        out = [f"uint8_t {name}[{size}] = {{0}};"]
        at = 8 * size - sum(room)
        for e, width, bits in zip(key, widths, room, strict=True):
            start = at + bits - width
            if width <= 128:
                out.append(f"p4_put_bits128({name}, {start}, {width}, {self.cx.bits(e, 128)});")
            else:
                own = 64 * ((width + 63) // 64)
                code = self.cx.bits(e, own)
                out.append(f"{{ {self.cx.ctype(own)} w_ = {code}; p4w_put_bits({name}, {start}, {width}, w_.w); }}")
            at += bits
        return out

    def _sized(self, node: JsonNode, key: list[BoundedExpr], what: str) -> bytes:
        """Return the bytes of a value or mask, each part of the key in whole bytes."""
        widths = [self._width(e) for e in key]
        size = sum((w + 7) // 8 for w in widths)
        if node.str().startswith("-"):
            return self._negative(node, key, what)
        data = node.hex_bytes()
        if len(data) != size:
            node.fail(f"the {what} has {len(data)} bytes, the transition key has {size}")
        return data

    def _negative(self, node: JsonNode, key: list[BoundedExpr], what: str) -> bytes:
        """Return a value with a sign: p4c adds the parts up, shifted, with the constants of an int<W> as they are."""
        left: int = node.hex()
        parts: list[bytes] = []
        for i, e in reversed(list(enumerate(key))):
            width = self._width(e)
            room = 8 * ((width + 7) // 8)
            part = left
            if i > 0:
                part = left & ((1 << room) - 1)
                part -= (part >> (room - 1) << room) if e.lo < 0 else 0
            if not -(1 << width >> 1) <= part < 1 << width:
                node.fail(f"the {what} does not fit into the transition key")
            parts.insert(0, (part & ((1 << width) - 1)).to_bytes(room // 8, "big"))
            left = (left - part) >> room
        return b"".join(parts)

    def _value_test(self, t: JsonNode, key: list[BoundedExpr], size: int) -> str:
        value = self._sized(t["value"], key, "value")
        mask_node = t.get("mask")
        mask = self._sized(mask_node, key, "mask") if mask_node else b"\xff" * size
        masked = bytes(a & b for a, b in zip(value, mask, strict=True))
        if size <= 16:
            bits = 64 if size <= 8 else 128
            v, m = int.from_bytes(masked, "big"), int.from_bytes(mask, "big")
            if m == (1 << (8 * size)) - 1:
                return f"k == {literal(v, bits)}"
            return f"(k & {literal(m, bits)}) == {literal(v, bits)}"
        return f"p4_match_bytes(kb, {_bytes(masked)}, {_bytes(mask)}, {size})"

    def _vset_test(self, t: JsonNode, widths: list[int]) -> str:
        values = self.model.find(self.facts.value_sets, t["value"], "value set")
        if sum(widths) != values.width:
            t["value"].fail(f"the value set has {values.width} bits, the key {sum(widths)}")
        size = (sum(widths) + 7) // 8
        mask_node = t.get("mask")
        mask = "NULL"
        if mask_node:
            data = mask_node.hex_bytes()
            if len(data) != size:
                mask_node.fail(f"the mask has {len(data)} bytes, the value set {size}")
            mask = _bytes(data)
        return f"p4_vset_contains(&in->vsets[{values.index}], ks, {mask}, {size})"


def _bytes(data: bytes) -> str:
    return f"(const uint8_t[]){{{', '.join(str(b) for b in data)}}}"
