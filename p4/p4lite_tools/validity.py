"""Advice about headers that the parser extracts on some paths only, and that a control reads without a test.

It errs towards silence. A condition on anything that the parser selects on or writes may stand for a test, and what a
called control, an action or an extern may make valid counts as valid afterwards. Stacks and unions are left out, and
so are packets that end in a parser error.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from p4lite.compiler import ast
from p4lite.compiler import types as ty
from p4lite.compiler.architecture import find_architecture
from p4lite.compiler.diagnostics import Reporter

#: Headers by their place below the parameter that holds all headers, such as `inner.ipv4`.
Headers = frozenset[str]
NONE: Headers = frozenset()


@dataclass(frozen=True)
class Parsed:
    """What a parser leaves: headers valid on every path, those valid on some only, and the fields that tell which path
    was taken (declaration of the struct or header, name)."""

    surely: Headers
    sometimes: Headers
    telling: frozenset[tuple[str, str]]


def place(e: ast.Expr | None, root: ast.Declaration) -> str | None:
    """Return the place of an expression below `root`: "" for itself, None for another or one with an index."""
    if isinstance(e, ast.Name):
        return "" if e.decl is root else None
    if isinstance(e, ast.Member) and isinstance(_type(e.expr), ty.StructType | ty.HeaderType):
        base = place(e.expr, root)
        return None if base is None else f"{base}.{e.name}".lstrip(".")
    return None


def below(where: str, headers: Headers) -> Headers:
    """Return the headers at a place or inside it."""
    return frozenset(h for h in headers if not where or h == where or h.startswith(f"{where}."))


def parsed(parser: ast.ParserDecl) -> Parsed:
    """Follow all paths from start to accept."""
    root = parser.params[1]
    entered: dict[int, Headers] = {}
    accepted: list[Headers] = []
    ever: set[str] = set()
    telling: set[tuple[str, str]] = set()
    todo = [(state, NONE) for state in parser.states or [] if state.name == "start"]
    while todo:
        state, headers = todo.pop()
        if state.name == ast.ACCEPT.name:
            accepted.append(headers)
            continue
        if state.name == ast.REJECT.name:
            continue
        known = entered.get(id(state))
        if known is not None and known <= headers:
            continue
        entered[id(state)] = headers if known is None else known & headers
        here = entered[id(state)]
        for node in (node for stmt in state.stmts for node in ast.walk(stmt)):
            here |= _made_valid(node, root)
            telling |= _written(node)
        ever |= here
        transition = state.transition
        if transition is None:
            continue
        if transition.select is not None:
            telling |= {field for e in transition.select.exprs for field in _fields(e)}
            todo += [(case.target, here) for case in transition.select.cases if case.target is not None]
        elif transition.target is not None:
            todo.append((transition.target, here))
    surely = frozenset.intersection(*accepted) if accepted else NONE
    return Parsed(surely, frozenset(ever) - surely, frozenset(telling))


def _type(e: ast.Expr) -> ty.Type:
    return ty.strip_newtypes(e.type or ty.UNKNOWN)


def _fields(e: ast.Node) -> Iterator[tuple[str, str]]:
    """Yield the fields of bits and the like that an expression reads, not the headers and structs that hold them."""
    for node in ast.walk(e):
        if isinstance(node, ast.Member) and not isinstance(_type(node), ty.StructType | ty.HeaderType):
            yield str(_type(node.expr)), node.name


def _written(node: ast.Node) -> set[tuple[str, str]]:
    """Return the fields that a node writes, by assignment or as an argument."""
    targets: list[ast.Expr | None] = []
    if isinstance(node, ast.Assign):
        targets = [node.target]
    elif isinstance(node, ast.Call):
        targets = [a.expr for a in node.args if a.param is not None and a.param.direction in ("out", "inout")]
    return {field for target in targets if target is not None for field in _fields(target)}


def _made_valid(node: ast.Node, root: ast.Declaration) -> set[str]:
    """Return the places below `root` that a node makes valid, or may."""
    targets: list[ast.Expr | None] = []
    if isinstance(node, ast.Assign):
        targets = [node.target]
    elif isinstance(node, ast.Call) and node.method == "setValid":
        targets = [node.receiver]
    elif isinstance(node, ast.Call):
        targets = [a.expr for a in node.args if a.param is not None and a.param.direction in ("out", "inout")]
    found = {(place(t, root), t) for t in targets if t is not None and isinstance(_type(t), ty.HeaderType)}
    return {where for where, _ in found if where}


class Validity:
    """Walks the controls of a pipeline with what the parser leaves."""

    def __init__(self, left: Parsed, reporter: Reporter) -> None:
        self.left = left
        self.reporter = reporter
        self._root: ast.Declaration
        self._told: set[tuple[int, str]] = set()
        self._walked: set[tuple[int, Headers]] = set()

    def control(self, decl: ast.ControlDecl, surely: Headers) -> Headers:
        """Walk a control whose first parameter holds the headers; return those that are surely valid after it."""
        self._root = decl.params[0]
        assert decl.body is not None
        after = self._stmts(decl.body.stmts, surely)
        return (surely if after is None else after) | self._may_make(decl)

    def _may_make(self, node: ast.Node) -> Headers:
        """Return the headers that anything inside a node may make valid."""
        root = node.params[0] if isinstance(node, ast.ControlDecl) and node.params else self._root
        return frozenset(where for each in ast.walk(node) for where in _made_valid(each, root))

    # -- statements: each returns what is surely valid afterwards, None if nothing comes afterwards

    def _stmts(self, stmts: Iterable[ast.Stmt], surely: Headers) -> Headers | None:
        now: Headers | None = surely
        for stmt in stmts:
            if now is None:
                return None
            now = self._stmt(stmt, now)
        return now

    def _stmt(self, s: ast.Stmt, surely: Headers) -> Headers | None:
        if isinstance(s, ast.Block):
            return self._stmts(s.stmts, surely)
        if isinstance(s, ast.If):
            self._reads(s.cond, surely)
            yes, no = self._split(s.cond, surely)
            then = self._stmt(s.then, yes)
            other = no if s.other is None else self._stmt(s.other, no)
            return _both(then, other)
        if isinstance(s, ast.SwitchStmt):
            self._reads(s.expr, surely)
            surely |= self._called(s.expr)
            ends = [self._stmt(case.body, surely) for case in s.cases if case.body is not None]
            for end in ends:
                surely = _both(surely, end) or surely
            return surely
        if isinstance(s, ast.Return | ast.Exit | ast.Break | ast.Continue):
            for child in ast.children(s):
                self._reads(child, surely)
            return None
        if isinstance(s, ast.For | ast.ForIn):
            # A loop may run any number of times; what it makes valid counts within it.
            inside = surely | self._may_make(s)
            self._stmt(s.body, inside)
            return surely
        if isinstance(s, ast.Assign):
            self._reads(s.value, surely)
            if s.op is not None:
                self._reads(s.target, surely)
            return surely | _made_valid(s, self._root)
        self._reads(s, surely)
        return surely | _made_valid_in(s, self._root) | self._called(s)

    def _called(self, node: ast.Node) -> Headers:
        """Return what the actions, tables and controls called in a node may make valid."""
        found: Headers = NONE
        for call in ast.walk(node):
            if isinstance(call, ast.Call) and isinstance(call.target, ast.TableDecl):
                for ref in call.target.actions or []:
                    found |= NONE if ref.decl is None else self._may_make(ref.decl)
            elif isinstance(call, ast.Call) and isinstance(call.target, ast.ActionDecl | ast.ControlDecl):
                found |= self._may_make(call.target)
        return found

    # -- conditions

    def _split(self, cond: ast.Expr, surely: Headers) -> tuple[Headers, Headers]:
        """Return what is surely valid where a condition holds, and where it does not."""
        if isinstance(cond, ast.Unary) and cond.op == "!":
            no, yes = self._split(cond.expr, surely)
            return yes, no
        if isinstance(cond, ast.Binary) and cond.op in ("&&", "||"):
            left, right = self._split(cond.left, surely), self._split(cond.right, surely)
            if cond.op == "&&":
                return left[0] | right[0], left[1] & right[1]
            return left[0] & right[0], left[1] | right[1]
        if isinstance(cond, ast.Call) and cond.method == "isValid":
            where = place(cond.receiver, self._root)
            return (surely if where is None else surely | {where}), surely
        everything = surely | self.left.sometimes
        if isinstance(cond.const, bool):
            # What never happens says everything.
            return (surely, everything) if cond.const else (everything, surely)
        if isinstance(cond, ast.ConditionalExpr):
            yes, no = self._split(cond.cond, surely)
            then, other = self._split(cond.then, yes), self._split(cond.other, no)
            return then[0] & other[0], then[1] & other[1]
        if isinstance(cond, ast.Call | ast.Member) or set(_fields(cond)) & self.left.telling:
            # It may be a flag or a result that stands for a test.
            return everything, everything
        return surely, surely

    # -- reads

    def _reads(self, node: ast.Node, surely: Headers) -> None:
        """Report fields of headers that are read here and may be invalid."""
        if isinstance(node, ast.Binary) and node.op in ("&&", "||"):
            self._reads(node.left, surely)
            self._reads(node.right, self._split(node.left, surely)[0 if node.op == "&&" else 1])
            return
        if isinstance(node, ast.ConditionalExpr):
            self._reads(node.cond, surely)
            yes, no = self._split(node.cond, surely)
            self._reads(node.then, yes)
            self._reads(node.other, no)
            return
        if isinstance(node, ast.Call):
            self._call(node, surely)
            return
        if isinstance(node, ast.Member) and isinstance(_type(node.expr), ty.HeaderType):
            self._read(node, surely)
        for child in ast.children(node):
            self._reads(child, surely)

    def _read(self, e: ast.Member, surely: Headers) -> None:
        where = place(e.expr, self._root)
        if where in self.left.sometimes and where not in surely and (id(self._root), where) not in self._told:
            self._told.add((id(self._root), where))
            name = f"{self._root.name}.{where}"
            self.reporter.warning(
                e.pos, f"{name} is not valid on every path of the parser, and is read without {name}.isValid()"
            )

    def _call(self, call: ast.Call, surely: Headers) -> None:
        for arg in call.args:
            if arg.expr is not None and (arg.param is None or arg.param.direction != "out"):
                self._reads(arg.expr, surely)
        if isinstance(call.target, ast.TableDecl):
            self._table(call.target, surely)
        elif isinstance(call.target, ast.ActionDecl):
            self._action(call.target, surely)

    def _table(self, table: ast.TableDecl, surely: Headers) -> None:
        keys = table.keys or []
        for key in keys:
            if isinstance(key.expr, ast.Call) and key.expr.method == "isValid":
                where = place(key.expr.receiver, self._root)
                surely |= NONE if where is None else {where}
        for key in keys:
            # An entry of a ternary or optional key need not look at it.
            if key.match_kind.name not in ("ternary", "optional"):
                self._reads(key.expr, surely)
            else:
                surely |= {where for e in ast.walk(key.expr) if (where := self._header_of(e)) is not None}
        for ref in table.actions or []:
            if ref.decl is not None:
                self._action(ref.decl, surely)

    def _header_of(self, node: ast.Node) -> str | None:
        read = isinstance(node, ast.Member) and isinstance(_type(node.expr), ty.HeaderType)
        return place(node.expr, self._root) if read and isinstance(node, ast.Member) else None

    def _action(self, action: ast.ActionDecl, surely: Headers) -> None:
        if (id(action), surely) not in self._walked:
            self._walked.add((id(action), surely))
            self._stmts(action.body.stmts, surely)


def _both(one: Headers | None, other: Headers | None) -> Headers | None:
    """Return what is surely valid where two ways meet."""
    if one is None or other is None:
        return other if one is None else one
    return one & other


def _made_valid_in(node: ast.Node, root: ast.Declaration) -> Headers:
    return frozenset(where for each in ast.walk(node) for where in _made_valid(each, root))


def check_validity(main: ast.Instance, reporter: Reporter) -> None:
    """Advise about the controls with tables, each after its parser."""
    architecture = find_architecture(main)
    if architecture is None:
        return
    blocks = {name: instance.decl for name, instance in architecture.instances(main)}
    for parser, names in architecture.pipelines:
        _pipeline(blocks.get(parser), [blocks.get(name) for name in names], reporter)


def _pipeline(parser: ast.Declaration | None, controls: list[ast.Declaration | None], reporter: Reporter) -> None:
    if not isinstance(parser, ast.ParserDecl) or len(parser.params) < 2:
        return
    left = parsed(parser)
    surely = left.surely
    walk = Validity(left, reporter)
    for control in controls:
        if isinstance(control, ast.ControlDecl) and control.params:
            surely = walk.control(control, surely)
