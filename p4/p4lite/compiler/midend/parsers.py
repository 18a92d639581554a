"""Parsers: states as blocks, selects on constant keysets, sub-parsers inlined."""

from __future__ import annotations

from itertools import product

from p4lite.compiler import ast
from p4lite.compiler import types as t
from p4lite.compiler.midend import arith, lir
from p4lite.compiler.midend.arguments import bindings, rebind, unsupported
from p4lite.compiler.midend.calls import CallLowering
from p4lite.compiler.midend.emitter import Frame
from p4lite.compiler.midend.exprs import ExpressionLowering
from p4lite.compiler.midend.lir import (
    BasicBlock,
    Const,
    Field,
    LastField,
    LoweredAssign,
    LoweredSelect,
    LoweredSelectCase,
    Verify,
)
from p4lite.compiler.midend.names import UniqueNames, control_plane_name, qualified
from p4lite.compiler.midend.objects import ParserInstance
from p4lite.compiler.midend.places import Places
from p4lite.compiler.midend.stmts import StatementLowering
from p4lite.compiler.midend.values import ENUM_WIDTH, Boolean, Data, Object, Struct, Value, as_const
from p4lite.compiler.position import Pos

KeySet = list[tuple[int, int | None]]
MAX_RANGE_CASES = 4096
"""Cases that the ranges of one select may be expanded to."""


class ParserLowering:
    """Parser states and transitions."""

    def __init__(
        self, code: Places, exprs: ExpressionLowering, statements: StatementLowering, calls: CallLowering
    ) -> None:
        self.code = code
        self.exprs = exprs
        self.statements = statements
        self.calls = calls
        self._reject = BasicBlock(term=lir.End())
        self._no_match: BasicBlock | None = None
        self._state_names = UniqueNames()
        self._value_sets: set[str] = set()

    def whole(self, decl: ast.ParserDecl) -> None:
        """Lower a parser of the package, whose states have names of their own."""
        self._reject, self._no_match, self._state_names = BasicBlock(term=lir.End()), None, UniqueNames()
        self.states(decl, BasicBlock(term=lir.End()), "")

    def states(self, decl: ast.ParserDecl, accept: BasicBlock, prefix: str) -> None:
        """Lower all states of a parser that can be reached from `start`; acceptance continues in the block `accept`."""
        self.calls.declare_locals(decl.locals)
        states = decl.states or []
        start = next(s for s in states if s.name == "start")
        blocks: dict[ast.ParserState, BasicBlock] = {ast.ACCEPT: accept, ast.REJECT: self._reject}
        todo: list[ast.ParserState] = []

        def block_of(state: ast.ParserState) -> BasicBlock:
            if state not in blocks:
                blocks[state] = BasicBlock(name=self._state_name(prefix, state.name), loc=self.code.loc(state))
                todo.append(state)
            return blocks[state]

        self.code.jump(block_of(start))
        while todo:
            state = todo.pop(0)
            self.code.start(blocks[state])
            self.statements.run(state.stmts)
            transition = state.transition
            if transition is None:
                self.code.jump(self._reject)
            elif transition.select is None:
                assert transition.target is not None
                if transition.target is ast.REJECT:
                    self.code.warn(transition.pos, "BMv2 gives a rejected packet to ingress, without a parser error")
                self.code.jump(block_of(transition.target))
            else:
                self._select(transition.select, block_of)

    def _state_name(self, prefix: str, name: str) -> str:
        full = f"{prefix}_{name}" if prefix else name
        return self._state_names.take(full)

    def call(self, call: ast.Call) -> None:
        """Inline the states of a sub-parser."""
        assert call.receiver is not None
        receiver = self.exprs.eval(call.receiver)
        instance = receiver.what if isinstance(receiver, Object) else None
        if not isinstance(instance, ParserInstance):
            raise unsupported(call.pos, "apply() of this expression")
        frame = Frame(self.code.frame, BasicBlock())
        bound = rebind(bindings(call.args), instance.decl.params)
        self.calls.bind_arguments(bound, instance.env, frame, set())
        prefix = instance.path.rpartition(".")[2]
        decl = instance.decl
        self.calls.inline(frame, instance.env, lambda: self.states(decl, frame.done, prefix), call.pos)

    # --- select ---

    def _select(self, select: ast.Select, block_of: object) -> None:
        assert callable(block_of)
        values = [
            leaf
            for value, expr in zip(self.exprs.eval_in_order(select.exprs), select.exprs, strict=True)
            for leaf in self._select_leaves(value, expr)
        ]
        keys = [self._select_key(v, select.pos) for v in values]
        cases: list[LoweredSelectCase] = []
        complete = False
        for case in select.cases:
            target = case.target
            assert target is not None
            to: BasicBlock = block_of(target)
            loc = self.code.loc(case)
            if len(case.keys) == 1 and isinstance(case.keys[0], (ast.DontCare, ast.DefaultExpr)):
                cases.append(LoweredSelectCase([], None, to, loc))
                complete = True
                break
            vset = self._value_set(case.keys)
            if vset is not None:
                if len(case.keys) > 1:
                    raise unsupported(case.pos, "a value set together with other keys in one case")
                cases.append(LoweredSelectCase([], vset, to, loc))
                continue
            keysets = self._keysets(case, values)
            if any(all(mask == 0 for _, mask in keyset) for keyset in keysets):
                cases.append(LoweredSelectCase([], None, to, loc))
                complete = True
                break
            cases.extend(LoweredSelectCase(keyset, None, to, loc) for keyset in keysets)
        if not complete:
            cases.append(LoweredSelectCase([], None, self._no_match_block(), self.code.loc(select)))
        if self.code.routine.current.term is None:
            self.code.routine.current.term = LoweredSelect(keys, cases)
        self.code.start(BasicBlock())

    def _select_leaves(self, value: Value, expr: ast.Expr) -> list[Value]:
        if isinstance(value, Struct):
            return [leaf for v in value.fields.values() for leaf in self._select_leaves(v, expr)]
        if isinstance(value, (Data, Boolean)):
            return [value]
        raise unsupported(expr.pos, f"a select on a value of type {expr.type}")

    def _select_key(self, value: Value, pos: Pos) -> Field | LastField:
        if isinstance(value, Boolean):
            raw, width, signed = arith.to_data(value.expr), 1, False
        else:
            assert isinstance(value, Data)
            raw = value.expr if isinstance(value.expr, Field) else self.code.data(value, pos)
            width, signed = value.width, value.signed
        if isinstance(raw, (Field, LastField)) and raw.width == width:
            return raw
        field = self.code.temp(width, signed, "select")
        self.code.emit(LoweredAssign(field, raw))
        return field

    def _value_set(self, keys: list[ast.Expr]) -> str | None:
        for key in keys:
            if isinstance(key, ast.Name) and isinstance(key.decl, ast.ValueSetDecl):
                return self._declare_value_set(key.decl)
        return None

    def _declare_value_set(self, decl: ast.ValueSetDecl) -> str:
        name = qualified(self.code.env.path, control_plane_name(decl))
        self.code.claims.claim("value set", name, (decl, self.code.home(decl)), decl.pos)
        if name not in self._value_sets:
            self._value_sets.add(name)
            element = decl.type.element if isinstance(decl.type, t.SetType) else decl.element.type
            width = t.max_width_bits(element) if element is not None else None
            size = as_const(self.exprs.eval(decl.size))
            if width is None or size is None:
                raise unsupported(decl.pos, f"value set '{decl.name}' of this type or size")
            self.code.out.value_sets.append(lir.ValueSet(name, width, size))
        return name

    def _keysets(self, case: ast.SelectCase, values: list[Value]) -> list[KeySet]:
        """Return the cases that one written case stands for: ranges become prefixes."""
        exprs = [leaf for key in case.keys for leaf in self._key_leaves(key)]
        if len(exprs) != len(values):
            raise unsupported(case.pos, "this keyset")
        choices: list[KeySet] = []
        count = 1
        for expr, value in zip(exprs, values, strict=True):
            width = value.width if isinstance(value, Data) else 1
            signed = isinstance(value, Data) and value.signed
            choices.append(self._choices(expr, width, signed))
            count *= len(choices[-1])
        if count > MAX_RANGE_CASES:
            raise unsupported(case.pos, f"ranges that need {count} cases")
        return [list(combination) for combination in product(*choices)]

    def _key_leaves(self, expr: ast.Expr) -> list[ast.Expr]:
        if isinstance(expr, ast.ListExpr):
            return [leaf for item in expr.items for leaf in self._key_leaves(item)]
        if isinstance(expr, ast.StructExpr):
            named = {f.name: f.expr for f in expr.fields}
            order = expr.type.fields if isinstance(expr.type, t.FieldsType) else named
            return [leaf for name in order for leaf in self._key_leaves(named[name])]
        return [expr]

    def _choices(self, expr: ast.Expr, width: int, signed: bool) -> KeySet:
        if isinstance(expr, (ast.DontCare, ast.DefaultExpr)):
            return [(0, 0)]
        if isinstance(expr, ast.Mask):
            return [(self._number(expr.value, width), self._number(expr.mask, width))]
        if isinstance(expr, ast.RangeExpr):
            low, high = self._signed_number(expr.lo), self._signed_number(expr.hi)
            offset = 1 << (width - 1) if signed else 0
            return [
                ((value ^ offset if mask & offset else value), mask)
                for value, mask in range_to_masks(low + offset, high + offset, width)
            ]
        return [(self._number(expr, width), None)]

    def _signed_number(self, expr: ast.Expr) -> int:
        number = as_const(self.exprs.eval(expr))
        if number is None:
            raise unsupported(expr.pos, "a keyset that is not constant")
        return number

    def _number(self, expr: ast.Expr, width: int) -> int:
        value = self.exprs.eval(expr)
        if isinstance(value, Boolean):
            value = Data(arith.to_data(value.expr), 1)
        number = as_const(value)
        if number is None:
            raise unsupported(expr.pos, "a keyset that is not constant")
        return number & arith.mask(width)

    def _no_match_block(self) -> BasicBlock:
        if self._no_match is None:
            code = Const(self.exprs.error_codes.get("NoMatch", 0), ENUM_WIDTH)
            self._no_match = BasicBlock([Verify(lir.Bool(False), code)], lir.End(), self._state_name("", "noMatch"))
        return self._no_match


def range_to_masks(low: int, high: int, width: int) -> list[tuple[int, int]]:
    """Return prefixes (value, mask) that together cover low..high exactly (unsigned, `width` bits)."""
    ones = arith.mask(width)
    out: list[tuple[int, int]] = []
    while low <= high:
        size = low & -low if low else 1 << width
        while size > high - low + 1:
            size >>= 1
        out.append((low, ones & ~(size - 1)))
        low += size
    return out


def selects_for_branches(entry: BasicBlock, field: Field) -> None:
    """Replace two-way branches of a parser by selects on a 1-bit field."""
    for block in lir.reachable(entry):
        term = block.term
        if isinstance(term, lir.Branch):
            block.ops.append(LoweredAssign(field, arith.to_data(term.cond)))
            block.term = LoweredSelect(
                [field], [LoweredSelectCase([(1, None)], None, term.then), LoweredSelectCase([], None, term.other)]
            )
