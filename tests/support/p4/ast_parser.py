"""The parser of the interpreter of syntax trees: states, select, extract and its relatives (specification §13)."""

from __future__ import annotations

from p4lite.compiler import ast
from p4lite.compiler import types as ty
from p4lite.compiler.ast import ErrorValue
from support.p4.ast_tables import Tables
from support.p4.ast_values import UNSET, Held, Stack, Undefined, packed, unpacked
from support.p4.control_plane import ControlItem, SetMember

MAX_STATES = 200


class ParserError(Exception):
    """An error that the parser raises."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


class Parsing(Tables):
    """A machine with a parser: `packet` is what it reads, `cursor` how many bytes of it were read."""

    def __init__(self, items: list[ControlItem]) -> None:
        super().__init__(items)
        self.packet, self.cursor = b"", 0
        self.sets: dict[str, set[int]] = {}
        for item in items:
            if isinstance(item, SetMember):
                self.sets.setdefault(item.value_set, set()).add(item.value)
        self.extern_calls |= {
            "extract": self._extract,
            "lookahead": self._lookahead,
            "advance": self._advance,
            "verify": self._verify,
        }

    def parse(self, parser: ast.ParserDecl) -> None:
        for local in parser.locals:
            if isinstance(local, ast.VarDecl):
                self.declare(local)
        state: ast.ParserState | None = next(s for s in parser.states or [] if s.name == "start")
        for _ in range(MAX_STATES):
            if state is ast.ACCEPT or state is ast.REJECT or state is None:
                return
            for s in state.stmts:
                self.stmt(s)
            transition = state.transition
            assert transition is not None
            state = transition.target if transition.select is None else self._select(transition.select)
        raise Undefined("the parser does not end")

    def _select(self, select: ast.Select) -> ast.ParserState | None:
        values = [self.value(e) for e in select.exprs]
        for case in select.cases:
            key = case.keys[0]
            if isinstance(key, ast.Name) and isinstance(key.decl, ast.ValueSetDecl):
                whole = 0
                for value, e in zip(values, select.exprs, strict=True):
                    part, width = packed(value, e.type or ty.UNKNOWN)
                    whole = whole << width | part
                if whole in self.sets.get(key.decl.name, set()):
                    return case.target
                continue
            if len(case.keys) == 1 and isinstance(case.keys[0], ast.DontCare):
                return case.target
            if all(self.matches(k, v, e.type) for k, v, e in zip(case.keys, values, select.exprs, strict=True)):
                return case.target
        raise ParserError("NoMatch")

    def _need(self, bits: int) -> int:
        """Return the next bits of the packet as a number. Raises ParserError."""
        size = (bits + 7) // 8
        if self.cursor * 8 + bits > len(self.packet) * 8:
            raise ParserError("PacketTooShort")
        return int.from_bytes(self.packet[self.cursor : self.cursor + size], "big") >> (size * 8 - bits)

    def _extract(self, e: ast.Call) -> Held:
        target, *lengths = self.given(e)
        stack: Held = UNSET
        if isinstance(target, ast.Member) and isinstance(target.expr.type, ty.StackType):
            stack = self.value(target.expr)
            assert isinstance(stack, Stack)
            if stack.following >= len(stack.items):
                raise ParserError("StackOutOfBounds")
        place, t = self.place(target), ty.strip_newtypes(target.type or ty.UNKNOWN)
        assert isinstance(t, ty.HeaderType)
        fixed, most = ty.min_width_bits(t), ty.max_width_bits(t)
        assert fixed is not None
        assert most is not None
        varbits = self.number(lengths[0]) if lengths else 0
        if varbits % 8:
            raise Undefined("a length that targets may refuse (specification, extract with two arguments)")
        found = self._need(fixed + varbits)
        if fixed + varbits > most:
            raise ParserError("HeaderTooShort")
        self.store(place, unpacked(found, t, varbits))
        self.cursor += (fixed + varbits) // 8
        if isinstance(stack, Stack):
            stack.following += 1
        return UNSET

    def _lookahead(self, e: ast.Call) -> Held:
        width = ty.max_width_bits(e.types[0])
        assert width is not None
        return unpacked(self._need(width), e.types[0])

    def _advance(self, e: ast.Call) -> Held:
        (amount,) = self.given(e)
        bits = self.number(amount)
        self._need(bits)
        self.cursor += bits // 8
        return UNSET

    def _verify(self, e: ast.Call) -> Held:
        cond, error = self.given(e)
        if not self.truth(cond):
            code = self.value(error)
            assert isinstance(code, ErrorValue)
            raise ParserError(code.member)
        return UNSET
