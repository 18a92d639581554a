"""Random P4 programs over bytes, and what they mean: an evaluator of the language's rules for calls and effects.

The evaluator works on the random tree itself, and knows nothing of the compiler: expressions from left to right with
short circuits, arguments copied in and, at the end of the call however it ends, copied out in the order of the call,
which gives them by position or by name.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from hypothesis import strategies as st

MASK = 0xFF
GLOBALS = ("hdr.h.a", "hdr.h.b", "hdr.h.c[7:0]", "hdr.h.c[15:8]", "hdr.h.d[27:20]", "x", "s.y", "s.inner.z")
"""Bytes that a program reads and writes: fields, slices, a variable, members of nested structs."""
SLICES = {"hdr.h.c[7:0]": ("c", 0), "hdr.h.c[15:8]": ("c", 8), "hdr.h.d[27:20]": ("d", 20)}
Place = tuple[dict[str, int], str]


class Return(Exception):
    """`return`, with a value in a function."""

    def __init__(self, value: int = 0) -> None:
        super().__init__(value)
        self.value = value


class Exit(Exception):
    """`exit`."""


class Scope:
    """Names to places; parameters and locals hide what is outside."""

    def __init__(self, variables: dict[str, int], outer: Scope | None = None) -> None:
        self.variables, self.outer = variables, outer

    def place(self, name: str) -> Place:
        scope: Scope | None = self
        while scope is not None:
            if name in scope.variables:
                return scope.variables, name
            scope = scope.outer
        raise KeyError(name)

    def get(self, name: str) -> int:
        variables, key = self.place(name)
        return variables[key]

    def set(self, name: str, value: int) -> None:
        variables, key = self.place(name)
        variables[key] = value & MASK


@dataclass
class Expr:
    """An expression: its text and its evaluation."""

    text: str
    run: Callable[[Scope], int]


@dataclass
class Stmt:
    """A statement: its text and its execution."""

    text: str
    run: Callable[[Scope], None]


@dataclass
class Callee:
    """A function or an action with directed parameters."""

    name: str
    params: list[tuple[str, str]]
    body: list[Stmt]
    is_function: bool
    local: bool = field(default=False)
    """Declared in the control: it sees the control's variables."""

    def declaration(self) -> str:
        params = ", ".join(f"{direction} bit<8> {name}" for direction, name in self.params)
        body = "\n".join(s.text for s in self.body)
        if self.is_function:
            return f"bit<8> {self.name}({params}) {{ {body} return 77; }}"
        return f"action {self.name}({params}) {{ {body} }}"

    def call(self, arguments: list[Expr | str], order: list[int], scope: Scope, control: Scope) -> int:
        """Evaluate and copy in from left to right, run, copy out from left to right.

        `arguments` are those of the parameters, `order` their indices as the call has them.
        """
        inner: dict[str, int] = {}
        outs: list[tuple[Place, str]] = []
        for i in order:
            (direction, name), argument = self.params[i], arguments[i]
            if isinstance(argument, str):
                place = scope.place(argument)
                inner[name] = 0 if direction == "out" else place[0][place[1]]
                outs.append((place, name))
            else:
                inner[name] = argument.run(scope)
        frame = Scope(inner, control if self.local else None)
        result = 77
        try:
            for stmt in self.body:
                stmt.run(frame)
        except Return as returned:
            result = returned.value
        finally:
            for (variables, key), name in outs:
                variables[key] = inner[name]
        return result


class Maker:
    """Draws random programs."""

    def __init__(self, draw: st.DrawFn) -> None:
        self.draw = draw
        self.functions: list[Callee] = []
        self.actions: list[Callee] = []
        self.control = Scope(dict.fromkeys(GLOBALS, 0))
        self.fresh = 0

    def one_of(self, *choices: str) -> str:
        return self.draw(st.sampled_from(choices))

    # --- expressions ---

    def expr(self, names: list[str], writable: list[str], depth: int) -> Expr:
        """Return a random byte."""
        kind = self.one_of("const", "name", "name", "binary", "binary", "ternary", "call") if depth else "name"
        if kind == "const" or (kind == "name" and not names):
            value = self.draw(st.sampled_from([0, 1, 2, 3, 128, 255]))
            return Expr(f"8w{value}", lambda s: value)
        if kind == "name":
            name = self.draw(st.sampled_from(names))
            return Expr(name, lambda s: s.get(name))
        if kind == "ternary":
            cond = self.cond(names, writable, depth - 1)
            yes, no = self.expr(names, writable, depth - 1), self.expr(names, writable, depth - 1)
            return Expr(
                f"({cond.text} ? {yes.text} : {no.text})",
                lambda s: yes.run(s) if cond.run(s) else no.run(s),
            )
        callable_here = [f for f in self.functions if writable or all(d == "in" for d, _ in f.params)]
        if kind == "call" and callable_here:
            return self.call(self.draw(st.sampled_from(callable_here)), names, writable, depth)
        op = self.one_of("+", "-", "*", "&", "|", "^")
        left, right = self.expr(names, writable, depth - 1), self.expr(names, writable, depth - 1)
        compute: dict[str, Callable[[int, int], int]] = {
            "+": lambda a, b: a + b,
            "-": lambda a, b: a - b,
            "*": lambda a, b: a * b,
            "&": lambda a, b: a & b,
            "|": lambda a, b: a | b,
            "^": lambda a, b: a ^ b,
        }

        def run(s: Scope) -> int:
            a = left.run(s)
            return compute[op](a, right.run(s)) & MASK

        return Expr(f"({left.text} {op} {right.text})", run)

    def cond(self, names: list[str], writable: list[str], depth: int) -> Expr:
        """Return a random boolean."""
        if depth and self.one_of("compare", "logic") == "logic":
            op = self.one_of("&&", "||")
            left, right = self.cond(names, writable, depth - 1), self.cond(names, writable, depth - 1)
            return Expr(
                f"({left.text} {op} {right.text})",
                lambda s: (left.run(s) and right.run(s)) if op == "&&" else (left.run(s) or right.run(s)),
            )
        op = self.one_of("==", "<", "!=", ">=")
        a, b = self.expr(names, writable, depth), self.expr(names, writable, depth)
        compare: dict[str, Callable[[int, int], bool]] = {
            "==": lambda x, y: x == y,
            "<": lambda x, y: x < y,
            "!=": lambda x, y: x != y,
            ">=": lambda x, y: x >= y,
        }

        def run(s: Scope) -> int:
            x = a.run(s)
            return compare[op](x, b.run(s))

        return Expr(f"({a.text} {op} {b.text})", run)

    def call(self, callee: Callee, names: list[str], writable: list[str], depth: int) -> Expr:
        """Return a call with random arguments: any value for `in`, a variable otherwise."""
        arguments: list[Expr | str] = []
        texts = []
        for direction, _ in callee.params:
            if direction == "in":
                argument = self.expr(names, writable, max(depth - 1, 0))
                arguments.append(argument)
                texts.append(argument.text)
            else:
                target = self.draw(st.sampled_from(writable))
                arguments.append(target)
                texts.append(target)
        control = self.control
        order = list(range(len(texts)))
        if self.one_of("by name", "by place") == "by name":
            order = self.draw(st.permutations(order))
            texts = [f"{name} = {text}" for (_, name), text in zip(callee.params, texts, strict=True)]
        text = f"{callee.name}({', '.join(texts[i] for i in order)})"
        return Expr(text, lambda s: callee.call(arguments, order, s, control))

    # --- statements ---

    def stmts(self, names: list[str], writable: list[str], depth: int, kinds: tuple[str, ...]) -> list[Stmt]:
        return [self.stmt(names, writable, depth, kinds) for _ in range(self.draw(st.integers(1, 3)))]

    def stmt(self, names: list[str], writable: list[str], depth: int, kinds: tuple[str, ...]) -> Stmt:
        """Return a random statement of the kinds allowed here."""
        kind = self.one_of(*kinds)
        if kind == "if" and depth:
            cond = self.cond(names, writable, 1)
            yes = self.stmts(names, writable, depth - 1, kinds)
            no = self.stmts(names, writable, depth - 1, kinds)

            def run_if(s: Scope) -> None:
                for stmt in yes if cond.run(s) else no:
                    stmt.run(s)

            return Stmt(f"if {cond.text} {{ {_join(yes)} }} else {{ {_join(no)} }}", run_if)
        if kind == "return":
            return self._return_if(names, writable)
        if kind == "return value":
            value, cond = self.expr(names, writable, 1), self.cond(names, writable, 0)

            def run_return(s: Scope) -> None:
                if cond.run(s):
                    raise Return(value.run(s))

            return Stmt(f"if {cond.text} {{ return {value.text}; }}", run_return)
        if kind == "exit":
            cond = self.cond(names, writable, 0)

            def run_exit(s: Scope) -> None:
                if cond.run(s):
                    raise Exit

            return Stmt(f"if {cond.text} {{ exit; }}", run_exit)
        if kind == "action" and self.actions:
            call = self.call(self.draw(st.sampled_from(self.actions)), names, writable, 1)
            return Stmt(call.text + ";", lambda s: (call.run(s), None)[1])
        return self._assign(names, writable)

    def _return_if(self, names: list[str], writable: list[str]) -> Stmt:
        cond = self.cond(names, writable, 0)

        def run(s: Scope) -> None:
            if cond.run(s):
                raise Return

        return Stmt(f"if {cond.text} {{ return; }}", run)

    def _assign(self, names: list[str], writable: list[str]) -> Stmt:
        value = self.expr(names, writable, 2)
        if not writable:
            return Stmt("", lambda s: None)
        target = self.draw(st.sampled_from(writable))
        return Stmt(f"{target} = {value.text};", lambda s: s.set(target, value.run(s)))

    # --- programs ---

    def callee(self, name: str, is_function: bool) -> Callee:
        count = self.draw(st.integers(1, 3))
        params = [(self.one_of("in", "out", "inout"), f"{name}_p{i}") for i in range(count)]
        mine = [p for _, p in params]
        changeable = [p for d, p in params if d != "in"]
        # An out parameter may only be read once written: give it a value first.
        first = [Stmt(f"{p} = 5;", lambda s, p=p: s.set(p, 5)) for d, p in params if d == "out"]  # type: ignore[misc]
        if is_function:
            body = self.stmts(mine, changeable, 2, ("assign", "assign", "if", "return value"))
        else:
            everything = [*mine, *GLOBALS]
            kinds = ("assign", "assign", "if", "return", "exit", "action")
            body = self.stmts(everything, [*changeable, *GLOBALS], 2, kinds)
        return Callee(name, params, first + body, is_function, local=not is_function)

    def program(self) -> tuple[dict[str, str], Callable[[dict[str, int]], dict[str, int]]]:
        """Return the parts for the frame of `p4_cases`, and what the header is afterwards."""
        for i in range(self.draw(st.integers(0, 2))):
            self.functions.append(self.callee(f"fun{i}", True))
        for i in range(self.draw(st.integers(0, 2))):
            self.actions.append(self.callee(f"act{i}", False))
        names = list(GLOBALS)
        kinds = ("assign", "assign", "if", "action", "action", "exit", "return")
        body = [s for _ in range(2) for s in self.stmts(names, names, 2, kinds)]
        parts = {
            "top": "\n".join(f.declaration() for f in self.functions),
            "types": "struct inner_t { bit<8> z; } struct s_t { bit<8> y; inner_t inner; }",
            "locals": "bit<8> x = 1; s_t s = {2, {3}};\n" + "\n".join(a.declaration() for a in self.actions),
            "body": _join(body),
        }

        def run(fields: dict[str, int]) -> dict[str, int]:
            values = self.control.variables
            values.update({"hdr.h.a": fields["a"], "hdr.h.b": fields["b"], "x": 1, "s.y": 2, "s.inner.z": 3})
            values.update({place: fields[name] >> low & MASK for place, (name, low) in SLICES.items()})
            try:
                for stmt in body:
                    stmt.run(self.control)
            except (Return, Exit):
                pass
            out = fields | {"a": values["hdr.h.a"], "b": values["hdr.h.b"]}
            for place, (name, low) in SLICES.items():
                out[name] = out[name] & ~(MASK << low) | values[place] << low
            return out

        return parts, run


def _join(stmts: list[Stmt]) -> str:
    return "\n".join(s.text for s in stmts)


@st.composite
def programs(draw: st.DrawFn) -> tuple[dict[str, str], Callable[[dict[str, int]], dict[str, int]]]:
    """Return a random program and its meaning."""
    return Maker(draw).program()
