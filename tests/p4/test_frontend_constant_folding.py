"""Random expressions: the compiler's constant folder against an evaluator over bit vectors."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from p4lite.compiler import ast
from support.amount import examples
from support.p4 import bit_vectors as bv
from support.p4.source import declarations

# Operators by precedence, loosest first, as the language specification (§8) lists them; written without parentheses
# where precedence and left associativity make them needless, so that parsing is under test too.
LEVEL = {
    op: i
    for i, ops in enumerate((("|",), ("^",), ("&",), ("<<", ">>"), ("+", "-", "++", "|+|", "|-|"), ("*", "/", "%")))
    for op in ops
}
UNARY = 10
ATOM = 11


@dataclass(frozen=True)
class Made:
    """An expression: its text, how tightly it binds, and the vector it stands for."""

    text: str
    level: int
    value: bv.Vector

    def at(self, level: int) -> str:
        return self.text if self.level >= level else f"({self.text})"


@st.composite
def literals(draw: st.DrawFn, width: int, signed: bool) -> Made:
    """Return a literal; a negative one has its minus."""
    raw = draw(st.integers(0, (1 << width) - 1))
    v = bv.from_int(raw, width, signed)
    number = bv.to_int(v)
    prefix = f"{width}{'s' if signed else 'w'}"
    if number < 0:
        # -(2^(W-1)) has no positive counterpart; its literal wraps to itself under minus.
        return Made(f"-{prefix}{-number}", UNARY, v) if -number < 1 << (width - 1) else Made(f"{prefix}{raw}", ATOM, v)
    form = draw(st.sampled_from(["{}", "0x{:x}", "0b{:b}", "0o{:o}"]))
    return Made(prefix + form.format(number), ATOM, v)


@st.composite
def expressions(draw: st.DrawFn, width: int, signed: bool, depth: int) -> Made:
    """Return an expression of type `bit<width>` or `int<width>`."""
    if depth == 0:
        return draw(literals(width, signed))
    kind = draw(
        st.sampled_from(["binary", "binary", "binary", "unary", "shift", "cast", "ternary", "slice", "concat", "leaf"])
    )
    if kind == "binary":
        ops = ["+", "-", "*", "&", "|", "^", "|+|", "|-|"] + ([] if signed else ["/", "%"])
        op = draw(st.sampled_from(ops))
        a, b = draw(expressions(width, signed, depth - 1)), draw(expressions(width, signed, depth - 1))
        if op in ("/", "%") and not any(b.value.bits):
            op = "+"
        text = f"{a.at(LEVEL[op])} {op} {b.at(LEVEL[op] + 1)}"
        return Made(text, LEVEL[op], bv.binary(op, a.value, b.value))
    if kind == "unary":
        op = draw(st.sampled_from("-~+"))
        a = draw(expressions(width, signed, depth - 1))
        return Made(f"{op} {a.at(UNARY)}", UNARY, bv.unary(op, a.value))
    if kind == "shift":
        op = draw(st.sampled_from(["<<", ">>"]))
        amount = draw(st.integers(0, width + 2))
        a = draw(expressions(width, signed, depth - 1))
        return Made(f"{a.at(LEVEL[op])} {op} {amount}", LEVEL[op], bv.shift(op, a.value, amount))
    if kind == "cast":
        other = draw(st.integers(1, 70))
        a = draw(expressions(other, signed, depth - 1))
        if draw(st.booleans()):
            a = draw(expressions(width, not signed, depth - 1))
        return Made(f"({'int' if signed else 'bit'}<{width}>){a.at(UNARY)}", UNARY, bv.cast(a.value, width, signed))
    if kind == "ternary":
        inner, op = draw(st.integers(1, 9)), draw(st.sampled_from(["<", "<=", ">", ">=", "==", "!="]))
        sign = draw(st.booleans())
        x, y = draw(expressions(inner, sign, depth - 1)), draw(expressions(inner, sign, depth - 1))
        a, b = draw(expressions(width, signed, depth - 1)), draw(expressions(width, signed, depth - 1))
        chosen = a if bv.compare(op, x.value, y.value) else b
        # & | ^ << + * bind tighter than comparisons in P4, so the sides need no parentheses.
        return Made(f"{x.at(0)} {op} {y.at(0)} ? {a.at(0)} : {b.at(0)}", -1, chosen.value)
    if kind == "slice" and not signed:
        lo, above = draw(st.integers(0, 9)), draw(st.integers(0, 9))
        a = draw(expressions(width + lo + above, draw(st.booleans()), depth - 1))
        return Made(f"{a.at(ATOM)}[{lo + width - 1}:{lo}]", ATOM, bv.slice_bits(a.value, lo + width - 1, lo))
    if kind == "concat" and width > 1:
        left = draw(st.integers(1, width - 1))
        a = draw(expressions(left, signed, depth - 1))
        b = draw(expressions(width - left, draw(st.booleans()), depth - 1))
        return Made(f"{a.at(LEVEL['++'])} ++ {b.at(LEVEL['++'] + 1)}", LEVEL["++"], bv.binary("++", a.value, b.value))
    return draw(literals(width, signed))


@st.composite
def programs(draw: st.DrawFn) -> list[tuple[str, Made]]:
    """Several constants of random types."""
    out = []
    for _ in range(draw(st.integers(1, 4))):
        width, signed = draw(st.integers(1, 70)), draw(st.booleans())
        made = draw(expressions(width, signed, draw(st.integers(1, 4))))
        out.append((f"{'int' if signed else 'bit'}<{width}>", made))
    return out


@settings(max_examples=examples(400))
@given(programs())
def test_folded_expressions_equal_the_bit_vector_evaluation(constants: list[tuple[str, Made]]) -> None:
    text = "\n".join(f"const {type_} c{i} = {made.text};" for i, (type_, made) in enumerate(constants))
    decls, _ = declarations(text)
    for i, (_, made) in enumerate(constants):
        decl = decls[f"c{i}"]
        assert isinstance(decl, ast.ConstDecl)
        assert decl.const == bv.to_int(made.value), text


@settings(max_examples=examples(200))
@given(st.integers(1, 64), st.booleans(), st.data())
def test_the_evaluator_itself_agrees_with_plain_arithmetic(width: int, signed: bool, data: st.DataObject) -> None:
    """The yardstick has a yardstick: where no wrapping happens both are ordinary integers."""
    bound = 1 << (width - 1)
    a = data.draw(st.integers(-bound if signed else 0, bound - 1))
    b = data.draw(st.integers(-bound if signed else 0, bound - 1))
    x, y = bv.from_int(a, width, signed), bv.from_int(b, width, signed)
    wide_x, wide_y = bv.cast(x, 2 * width + 2, signed), bv.cast(y, 2 * width + 2, signed)
    assert bv.to_int(bv.binary("+", wide_x, wide_y)) == a + b
    assert bv.to_int(bv.binary("*", wide_x, wide_y)) == a * b
    assert bv.compare("<", x, y) == (a < b)
    if not signed and b:
        assert bv.to_int(bv.binary("/", x, y)) == a // b
        assert bv.to_int(bv.binary("%", x, y)) == a % b
