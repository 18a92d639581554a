"""Advice about a program that is correct: unreachable code, headers read without a test, drops taken back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from p4lite.compiler import ast
from p4lite.compiler import types as ty
from p4lite.compiler.architecture import DROP_PORT, find_architecture
from p4lite.compiler.ast import CallKind
from p4lite.compiler.check import TypedProgram
from p4lite.compiler.diagnostics import Diagnostic, Reporter
from p4lite.compiler.position import Pos
from p4lite_tools.validity import check_validity

Known = dict[str, bool]
"""Conditions, as text, that hold (True) or do not."""


@dataclass(frozen=True)
class Drop:
    """A drop: what dropped the packet and where, what is known of such packets, the places that were set with it, and
    all that may tell such packets from others."""

    what: str
    pos: Pos
    known: Known
    beside: frozenset[str] = frozenset()
    telling: frozenset[str] = frozenset()


@dataclass
class Path:
    """What is known at a place of every packet that comes there, and the drops that some of them had, by place.

    `assigned`: the places that the action at hand has set to constants.
    """

    known: Known = field(default_factory=dict)
    drops: dict[tuple[Pos, str], Drop] = field(default_factory=dict)
    assigned: frozenset[str] = frozenset()

    def copy(self) -> Path:
        return Path(dict(self.known), dict(self.drops), self.assigned)

    def tells_apart(self, drop: Drop, place: str) -> bool:
        """Return whether a place has a value that says whether the drop happened."""
        if is_fate(place):
            return True
        facts = {text for text in drop.known if text == place or text.startswith(f"{place} == ")}
        return place in drop.beside and not facts <= self.known.keys()


def joined(paths: Iterable[Path | None]) -> Path | None:
    """Return what holds where paths meet, None if no path leads there."""
    some = [path for path in paths if path is not None]
    if len(some) < 2:
        return some[0] if some else None
    drops: dict[tuple[Pos, str], Drop] = {}
    for path in some:
        for key, drop in path.drops.items():
            other = drops.get(key)
            if other is not None:
                drop = replace(
                    drop,
                    known=common(other.known, drop.known),
                    beside=other.beside | drop.beside,
                    telling=other.telling | drop.telling,
                )
            drops[key] = drop
    known = some[0].known
    for path in some[1:]:
        known = common(known, path.known)
    return Path(dict(known), drops, frozenset[str]().union(*(path.assigned for path in some)))


def common(one: Known, other: Known) -> Known:
    return {text: holds for text, holds in one.items() if other.get(text) is holds}


def overlap(one: str, other: str) -> bool:
    """Return whether two places have bits in common: one is the other or inside of it."""
    return one == other or one.startswith(f"{other}.") or other.startswith(f"{one}.")


def is_fate(place: str) -> bool:
    """Return whether a place says itself that a packet was dropped."""
    return place.endswith((".egress_spec", ".mcast_grp", ".drop"))


MAX_STEPS = 100_000
"""Statements that are walked; of a longer way through a program nothing more is said."""
MAX_DROPS = 16
"""Places of drops that are remembered at once."""

_PSA_OUTPUT = ("psa_ingress_output_metadata_t", "psa_egress_output_metadata_t")
_COMPARED = {
    "==": int.__eq__, "!=": int.__ne__, "<": int.__lt__, ">": int.__gt__, "<=": int.__le__, ">=": int.__ge__,
}  # fmt: skip


class _TooLong(Exception):
    """The walk takes too long."""


class Drops:
    """Walks the controls of one pipeline. `fields`: the fields of standard_metadata whose writing takes back a drop."""

    def __init__(self, fields: Sequence[str], told: set[Pos], reporter: Reporter) -> None:
        self.fields = fields
        self.told = told
        self.reporter = reporter
        self._alias: dict[int, str] = {}
        self._reads: dict[str, frozenset[str]] = {}
        self._comparison: dict[str, tuple[str, str, int]] = {}
        self._leaving: list[list[Path]] = []
        self._site: tuple[Pos, str] | None = None
        self._found: dict[Pos, tuple[list[str], list[Drop]]] = {}
        self._left = MAX_STEPS
        self._branches = 0
        """Conditions, loops and tables around the place in the control at hand."""

    def control(self, decl: ast.ControlDecl) -> None:
        """Walk a control of the package, and report."""
        try:
            assert decl.body is not None
            self._body(decl.body.stmts, Path())
        except _TooLong:
            pass
        for pos, (writers, drops) in self._found.items():
            first = min(drops, key=lambda drop: (drop.pos.file != pos.file, drop.pos))
            where = f"line {first.pos.line}" if first.pos.file == pos.file else str(first.pos)
            more = f" and {len(drops) - 1} more" if len(drops) > 1 else ""
            verb = "take" if len(writers) > 1 else "takes"
            self.reporter.warning(
                pos,
                f"{' and '.join(writers)} {verb} back the drop of {first.what} ({where}{more}): put 'exit;' behind the "
                "drop, or do this only where the packet was not dropped",
            )

    # -- statements: each returns the path behind it, None if nothing comes behind it

    def _body(self, stmts: Sequence[ast.Stmt], path: Path) -> Path | None:
        """Walk the body of a control, action or function, which a `return` leaves."""
        self._leaving.append([])
        end = self._stmts(stmts, path)
        return joined([end, *self._leaving.pop()])

    def _stmts(self, stmts: Iterable[ast.Stmt], path: Path | None) -> Path | None:
        for stmt in stmts:
            if path is None:
                return None
            self._left -= 1
            if self._left < 0:
                raise _TooLong
            path = self._stmt(stmt, path)
        return path

    def _stmt(self, s: ast.Stmt, path: Path) -> Path | None:
        if isinstance(s, ast.Block):
            return self._stmts(s.stmts, path)
        if isinstance(s, ast.Assign):
            return self._assign(s, path)
        if isinstance(s, ast.VarDecl):
            return self._declare(s, path)
        if isinstance(s, ast.CallStmt):
            return self._call(s.call, path)
        if isinstance(s, ast.If | ast.SwitchStmt | ast.For | ast.ForIn):
            self._branches += 1
            after = self._branch(s, path)
            self._branches -= 1
            return after
        if isinstance(s, ast.Return | ast.Break | ast.Continue):
            after = self._calls(s, path)
            if after is not None:
                self._leaving[-1].append(after)
            return None
        return None if isinstance(s, ast.Exit) else path

    def _branch(self, s: ast.If | ast.SwitchStmt | ast.For | ast.ForIn, path: Path) -> Path | None:
        if isinstance(s, ast.SwitchStmt):
            return self._switch(s, path)
        if isinstance(s, ast.For | ast.ForIn):
            return self._loop(s, path)
        yes, no = self._split(s.cond, path)
        then = None if yes is None else self._stmt(s.then, yes)
        return joined([then, no if s.other is None or no is None else self._stmt(s.other, no)])

    def _assign(self, s: ast.Assign, path: Path) -> Path | None:
        after = self._value(s.value, self._place(s.target), path)
        if after is None:
            return None
        self._set(s.target, None if s.op else s.value, after)
        return after

    def _declare(self, s: ast.VarDecl, path: Path) -> Path | None:
        place = f"{s.name}#{id(s)}"
        after = path if s.init is None else self._value(s.init, place, path)
        if after is not None:
            self._write(place, s.init, after)
        return after

    def _value(self, value: ast.Expr, place: str, path: Path) -> Path | None:
        """Walk a value that is assigned; the result of a table may say which action ran."""
        after = self._calls(value, path)
        if after is not None:
            for call in _applied(value):
                self._tell(after, call, [place])
        return after

    def _loop(self, s: ast.For | ast.ForIn, path: Path) -> Path | None:
        start = self._stmts(s.init, path) if isinstance(s, ast.For) else path
        if start is None:
            return None
        for place in self._written(s):
            # A later turn knows nothing of what an earlier one wrote.
            self._write(place, None, start)
        for _ in range(2):
            self._leaving.append([])
            end = self._stmt(s.body, start.copy())
            end = joined([end, *self._leaving.pop()])
            if end is not None and isinstance(s, ast.For):
                end = self._stmts(s.update, end)
            start = joined([start, end]) or start
        return start

    def _switch(self, s: ast.SwitchStmt, path: Path) -> Path | None:
        call = s.expr.expr if isinstance(s.expr, ast.Member) and s.expr.name == "action_run" else None
        if isinstance(call, ast.Call) and isinstance(call.target, ast.TableDecl):
            runs: list[tuple[ast.Declaration | None, Path]] = [
                (action, end) for _, action, end in self._apply(call, call.target, path)
            ]
        else:
            start = self._calls(s.expr, path)
            if start is None:
                return None
            # Packets are told apart by a value: what is known of dropped ones is not compared with it.
            self._forget_drops(start, self._places(s.expr))
            runs = [(None, start)]
            call = None
        labelled = {label.decl for case in s.cases if isinstance(label := case.label, ast.Name)}
        ends: list[Path | None] = []
        waiting: list[ast.SwitchCase] = []
        for case in s.cases:
            waiting.append(case)
            if case.body is None:
                continue
            ours = [
                end.copy()
                for action, end in runs
                if call is None
                or any(
                    action is each.label.decl if isinstance(each.label, ast.Name) else action not in labelled
                    for each in waiting
                )
            ]
            start = joined(ours)
            ends.append(None if start is None else self._stmt(case.body, start))
            waiting = []
        taken = any(case.is_default for case in s.cases)
        ends += [end for action, end in runs if not taken and (call is None or action not in labelled)]
        return joined(ends)

    # -- conditions

    def _split(self, cond: ast.Expr, path: Path) -> tuple[Path | None, Path | None]:
        """Return the paths on which a condition holds and does not."""
        if isinstance(cond, ast.Unary) and cond.op == "!":
            no, yes = self._split(cond.expr, path)
            return yes, no
        if isinstance(cond, ast.Binary) and cond.op in ("&&", "||"):
            yes, no = self._split(cond.left, path)
            goes_on, other = (yes, no) if cond.op == "&&" else (no, yes)
            right = (None, None) if goes_on is None else self._split(cond.right, goes_on)
            if cond.op == "&&":
                return right[0], joined([other, right[1]])
            return joined([other, right[0]]), right[1]
        if isinstance(cond.const, bool):
            return (path, None) if cond.const else (None, path)
        call = cond.expr if isinstance(cond, ast.Member) and cond.name in ("hit", "miss") else None
        if isinstance(call, ast.Call) and isinstance(call.target, ast.TableDecl):
            assert isinstance(cond, ast.Member)
            runs = self._apply(call, call.target, path)
            hits, misses = (joined(end for hit, _, end in runs if hit is wanted) for wanted in (True, False))
            return (hits, misses) if cond.name == "hit" else (misses, hits)
        after = self._calls(cond, path)
        if after is None:
            return None, None
        if any(isinstance(node, ast.Call) and node.method != "isValid" for node in ast.walk(cond)):
            for call in _applied(cond):
                self._tell(after, call, None)
            return after, after.copy()
        text, reads = self._text(cond), self._places(cond)
        self._reads[text] = reads
        self._note_comparison(text, cond)
        return self._assume(after, text, True), self._assume(after, text, False)

    def _assume(self, path: Path, text: str, holds: bool) -> Path | None:
        """Return the path on which a condition holds (or does not), with the drops that can come there."""
        if path.known.get(text, holds) is not holds or self._contradicts(path.known, text, holds):
            return None
        drops = {}
        reads = self._reads[text]
        for key, drop in path.drops.items():
            known = drop.known.get(text)
            if known is not None:
                if known is holds:
                    drops[key] = drop
                continue
            if self._tells(drop, text, reads) or self._contradicts(drop.known, text, holds):
                continue
            drops[key] = replace(drop, known={**drop.known, text: holds})
        return Path({**path.known, text: holds}, drops, path.assigned)

    def _tells(self, drop: Drop, text: str, reads: frozenset[str]) -> bool:
        """Return whether a condition may be one that tells these dropped packets from others."""
        if any(is_fate(place) or any(overlap(place, other) for other in drop.telling) for place in reads):
            return True
        simple = self._comparison.get(text)
        for other in drop.known:
            if simple is not None and other in self._comparison and self._comparison[other][0] == simple[0]:
                continue  # these are compared by their values
            if any(overlap(one, two) for one in reads for two in self._reads[other]):
                return True
        return False

    def _contradicts(self, known: Known, text: str, holds: bool) -> bool:
        """Return whether no value of the compared place meets a comparison and all known ones."""
        if text not in self._comparison:
            return False
        place = self._comparison[text][0]
        tests = [(*self._comparison[text][1:], holds)]
        for other, held in known.items():
            if other in self._comparison and self._comparison[other][0] == place:
                tests.append((*self._comparison[other][1:], held))
        values = {0} | {max(number + step, 0) for _, number, _ in tests for step in (-1, 0, 1)}
        return not any(all(_COMPARED[op](value, number) is held for op, number, held in tests) for value in values)

    def _note_comparison(self, text: str, cond: ast.Expr) -> None:
        if isinstance(cond, ast.Binary) and cond.op in _COMPARED:
            number = cond.right.const
            if isinstance(number, int) and not isinstance(number, bool):
                self._comparison[text] = self._text(cond.left), cond.op, number

    # -- calls

    def _calls(self, node: ast.Node, path: Path) -> Path | None:
        """Walk what the calls inside of an expression do."""
        after: Path | None = path
        for call in ast.walk(node):
            if isinstance(call, ast.Call) and after is not None:
                after = self._call(call, after)
        return after

    def _call(self, call: ast.Call, path: Path) -> Path | None:
        target = call.target
        if isinstance(target, ast.TableDecl):
            return joined(end for _, _, end in self._apply(call, target, path))
        if isinstance(target, ast.ControlDecl) and target.body is not None:
            self._bind(call.args)
            around = self._site, self._branches
            self._site, self._branches = None, 0
            after = self._body(target.body.stmts, path)
            self._site, self._branches = around
            return after
        if isinstance(target, ast.ActionDecl | ast.FunctionDecl) and target.body is not None:
            return self._routine(target, call.args, path, call.pos)
        if call.method == "mark_to_drop" and call.kind is CallKind.EXTERN_FUNCTION:
            self._drop(path, call.pos, "mark_to_drop()")
        elif call.kind is CallKind.STACK_METHOD:
            self._write(self._text(call.receiver), None, path)
        elif call.kind is CallKind.HEADER_METHOD and call.method in ("setValid", "setInvalid"):
            place = f"{self._text(call.receiver)}.isValid"
            self._write(place, None, path)
            self._reads[place] = frozenset({place})
            for known in (path.known, *(drop.known for drop in path.drops.values())):
                known[place] = call.method == "setValid"
        self._outputs(call.args, path)
        return path

    def _outputs(self, args: Sequence[ast.Arg], path: Path) -> None:
        for target in _written_arguments(args):
            self._set(target, None, path)

    def _routine(
        self, decl: ast.ActionDecl | ast.FunctionDecl, args: Sequence[ast.Arg], path: Path, pos: Pos
    ) -> Path | None:
        """Walk an action or a function; what it does to the packet is reported where the control calls it."""
        self._bind(args)
        site, assigned = self._site, path.assigned
        self._site, path.assigned = site or (pos, f"{decl.name}()"), frozenset()
        for param in decl.params:
            if not param.direction:
                self._write(f"{param.name}#{id(param)}", None, path)
        assert decl.body is not None
        after = self._body(decl.body.stmts, path)
        self._site = site
        if after is not None:
            after.assigned |= assigned
            self._outputs(args, after)
        return after

    def _bind(self, args: Sequence[ast.Arg]) -> None:
        """Let parameters stand for the arguments."""
        for arg in args:
            if arg.expr is not None and arg.param is not None and arg.param.direction:
                self._alias[id(arg.param)] = self._text(arg.expr)

    def _apply(
        self, call: ast.Call, table: ast.TableDecl, path: Path
    ) -> list[tuple[bool, ast.ActionDecl | None, Path]]:
        """Return the ends of a table: whether it was hit, the action that ran, and the path behind it."""
        keys = frozenset[str]().union(*(self._places(key.expr) for key in table.keys or []))
        spared = {key: drop for key, drop in path.drops.items() if any(path.tells_apart(drop, place) for place in keys)}
        listed = [(ref, ref.decl) for ref in table.actions or [] if ref.decl is not None]
        used = {entry.action.decl for entry in table.entries or []} if table.entries_const else None
        runs: list[tuple[bool, ast.ActionRef, ast.ActionDecl]] = []
        if table.keys:
            runs += [
                (True, ref, decl)
                for ref, decl in listed
                if (used is None or decl in used) and not any(a.name == "defaultonly" for a in ref.annotations)
            ]
        default = table.default_action.decl if table.default_action is not None else None
        runs += [(False, ref, decl) for ref, decl in listed if decl is default]
        before = set(path.drops)
        ends: list[tuple[bool, ast.ActionDecl | None, Path]] = []
        if default is None or not any(decl is default for _, decl in listed):
            ends.append((False, default, path.copy()))
        for hit, ref, decl in runs:
            start = path.copy()
            for key in spared:
                del start.drops[key]
            site = self._site
            self._site = (call.pos, f"{decl.name}()")
            self._branches += 1
            end = self._routine(decl, ref.args or [], start, call.pos)
            self._branches -= 1
            self._site = site
            if end is not None:
                end.drops |= spared
                ends.append((hit, decl, end))
        written = [place for _, decl in listed for place in self._written(decl.body)]
        for _, _, end in ends:
            for key in set(end.drops) - before:
                drop = end.drops[key]
                end.drops[key] = replace(drop, telling=drop.telling.union(written))
        return ends

    # -- what happens to the packet

    def _drop(self, path: Path, pos: Pos, what: str) -> None:
        pos, what = self._site or (pos, what)
        if self._branches and len(path.drops) < MAX_DROPS:
            path.drops[pos, what] = Drop(what, pos, dict(path.known), path.assigned)

    def _set(self, target: ast.Expr, value: ast.Expr | None, path: Path) -> None:
        """Record a write of a place: what it does to the packet, and what is known of the place then."""
        number = None if value is None else value.const
        if isinstance(target, ast.Member):
            kind = ty.strip_newtypes(target.expr.type or ty.UNKNOWN)
            name = kind.name if isinstance(kind, ty.StructType) else ""
            if name == "standard_metadata_t" and target.name in self.fields:
                if number != (0 if target.name == "mcast_grp" else DROP_PORT):
                    self._take_back(path, target)
            elif name in _PSA_OUTPUT and target.name == "drop":
                if number is True:
                    self._drop(path, target.pos, "drop = true")
                else:
                    self._take_back(path, target)
        self._write(self._place(target), value if self._place(target) == self._text(target) else None, path)

    def _take_back(self, path: Path, target: ast.Member) -> None:
        pos, writer = self._site or (target.pos, f"writing {target.name}")
        if path.drops and target.pos not in self.told:
            writers, drops = self._found.setdefault(pos, ([], []))
            writers += [writer] if writer not in writers else []
            drops += [drop for key, drop in path.drops.items() if key not in {(each.pos, each.what) for each in drops}]
        path.drops.clear()

    def _write(self, place: str, value: ast.Expr | None, path: Path) -> None:
        """Forget what is known of a place, and note its new value if that is a constant."""
        for known in (path.known, *(drop.known for drop in path.drops.values())):
            for text in [text for text in known if any(overlap(place, read) for read in self._reads[text])]:
                del known[text]
        if value is None or not isinstance(value.const, int):
            return
        text = place
        if not isinstance(value.const, bool):
            text = f"{place} == {value.const}"
            self._comparison[text] = place, "==", value.const
        self._reads[text] = frozenset({place})
        holds = value.const if isinstance(value.const, bool) else True
        path.known[text] = holds
        path.assigned |= {place}
        for key, drop in path.drops.items():
            path.drops[key] = replace(drop, known={**drop.known, text: holds}, beside=drop.beside | {place})

    def _tell(self, path: Path, call: ast.Call, places: list[str] | None) -> None:
        """Note that places tell which action of a table ran; without places, forget the drops of that table."""
        for key, drop in list(path.drops.items()):
            if drop.pos == call.pos and places is None:
                del path.drops[key]
            elif drop.pos == call.pos:
                path.drops[key] = replace(drop, telling=drop.telling.union(places or []))

    def _forget_drops(self, path: Path, reads: frozenset[str]) -> None:
        for key, drop in list(path.drops.items()):
            if any(path.tells_apart(drop, place) for place in reads) or self._tells(drop, "", reads):
                del path.drops[key]

    # -- places

    def _text(self, e: ast.Node | None) -> str:
        """Return an expression as text, with the arguments in the place of parameters."""
        if isinstance(e, ast.Name):
            return self._alias.get(id(e.decl), f"{e.name}#{id(e.decl)}")
        if isinstance(e, ast.Member):
            return f"{self._text(e.expr)}.{e.name}"
        if isinstance(e, ast.Index) and e.index.const is not None:
            return f"{self._text(e.expr)}.{e.index.const}"
        if isinstance(e, ast.Cast) and e.implicit:
            return self._text(e.expr)
        if isinstance(e, ast.Expr) and e.const is not None and not isinstance(e, ast.Call):
            return str(e.const)
        if isinstance(e, ast.Call) and e.method == "isValid":
            return f"{self._text(e.receiver)}.isValid"
        if isinstance(e, ast.Binary):
            return f"{self._text(e.left)} {e.op} {self._text(e.right)}"
        if e is None:
            return ""
        return f"{type(e).__name__}{getattr(e, 'op', '')}({', '.join(self._text(child) for child in ast.children(e))})"

    def _place(self, e: ast.Expr) -> str:
        """Return the place that a write changes: of a part, that of the whole."""
        while isinstance(e, ast.Slice | ast.PlusSlice) or (isinstance(e, ast.Index) and e.index.const is None):
            e = e.expr
        return self._text(e)

    def _places(self, e: ast.Node) -> frozenset[str]:
        """Return the places that an expression reads."""
        if isinstance(e, ast.Expr) and e.const is not None and not isinstance(e, ast.Call):
            return frozenset()
        if isinstance(e, ast.Call) and e.method == "isValid":
            return frozenset({self._text(e)})
        if isinstance(e, ast.Name | ast.Member) or (isinstance(e, ast.Index) and e.index.const is not None):
            return frozenset({self._text(e)})
        return frozenset[str]().union(*(self._places(child) for child in ast.children(e)))

    def _written(self, node: ast.Node) -> list[str]:
        """Return the places that statements write."""
        places = []
        for each in ast.walk(node):
            if isinstance(each, ast.Assign):
                places.append(self._place(each.target))
            elif isinstance(each, ast.Call) and each.method in ("setValid", "setInvalid"):
                places.append(f"{self._text(each.receiver)}.isValid")
            elif isinstance(each, ast.Call):
                places += [self._place(target) for target in _written_arguments(each.args)]
        return places


def _written_arguments(args: Sequence[ast.Arg]) -> list[ast.Expr]:
    """Return the arguments that a call writes; of whole structs it is not known which fields."""
    return [
        arg.expr
        for arg in args
        if arg.expr is not None
        and arg.param is not None
        and arg.param.direction in ("out", "inout")
        and not isinstance(ty.strip_newtypes(arg.expr.type or ty.UNKNOWN), ty.StructType)
    ]


def _applied(e: ast.Node) -> list[ast.Call]:
    """Return the applications of tables in an expression."""
    return [node for node in ast.walk(e) if isinstance(node, ast.Call) and isinstance(node.target, ast.TableDecl)]


def check_drops(main: ast.Instance, told: set[Pos], reporter: Reporter) -> None:
    """Advise about the controls with tables of all pipelines, except where a warning was `told` already."""
    architecture = find_architecture(main)
    if architecture is None:
        return
    blocks = {name: instance.decl for name, instance in architecture.instances(main)}
    for _, names in architecture.pipelines:
        for name in names:
            decl = blocks.get(name)
            if isinstance(decl, ast.ControlDecl) and decl.body is not None:
                fields = ("egress_spec", "mcast_grp") if name == "ingress" else ("egress_spec",)
                Drops(fields, told, reporter).control(decl)


def lint(program: TypedProgram) -> list[Diagnostic]:
    """Return the compiler's warnings and the advice about a program, in order of their places."""
    reporter = Reporter(sources=program.reporter.sources)
    used = {id(node.target) for node in _nodes(program) if isinstance(node, ast.Call) and node.target is not None}
    used |= {id(node.decl) for node in _nodes(program) if isinstance(node, ast.ActionRef) and node.decl is not None}
    for decl in program.decls:
        if isinstance(decl, ast.ParserDecl) and decl.states is not None:
            _states(decl.states, reporter)
        elif isinstance(decl, ast.ControlDecl) and decl.body is not None:
            for local in decl.locals:
                if isinstance(local, ast.TableDecl):
                    _table(local, id(local) in used, reporter)
                elif isinstance(local, ast.ActionDecl) and id(local) not in used:
                    reporter.warning(local.pos, f"action '{local.name}' is in no table and never called")
    check_validity(program.main, reporter)
    warnings = [d for d in program.diagnostics if d.severity == "warning"]
    check_drops(program.main, {d.pos for d in warnings}, reporter)
    found = warnings + reporter.diagnostics
    return sorted(found, key=lambda d: (d.pos.file, d.pos.line, d.pos.col))


def _nodes(program: TypedProgram) -> Iterator[ast.Node]:
    for decl in program.decls:
        yield from ast.walk(decl)


def _states(states: list[ast.ParserState], reporter: Reporter) -> None:
    reached: set[int] = set()
    todo = [state for state in states if state.name == "start"]
    while todo:
        state = todo.pop()
        if id(state) in reached:
            continue
        reached.add(id(state))
        transition = state.transition
        if transition is None:
            continue
        targets = [transition.target]
        if transition.select is not None:
            targets = [case.target for case in transition.select.cases]
            if not _complete(transition.select):
                message = "select has no default: other values end the parser with the error NoMatch"
                reporter.warning(transition.select.pos, f"{message}; add default: accept or default: reject")
        todo += [target for target in targets if target is not None]
    for state in states:
        if id(state) not in reached:
            reporter.warning(state.pos, f"no transition from 'start' leads to state '{state.name}'")


def _complete(select: ast.Select) -> bool:
    """Return whether a select has a case for all values: a default, or all those of a few bits."""
    anything = (ast.DontCare, ast.DefaultExpr)
    for case in select.cases:
        if all(isinstance(key, anything) or (isinstance(key, ast.Mask) and key.mask.const == 0) for key in case.keys):
            return True
    values = {key.const for case in select.cases for key in case.keys if len(case.keys) == 1 and key.const is not None}
    kind = ty.strip_newtypes(select.exprs[0].type or ty.UNKNOWN)
    if len(select.exprs) != 1:
        return False
    if isinstance(kind, ty.EnumType):
        decl = ast.declaration_of(kind)
        return isinstance(decl, ast.EnumDecl) and len(values) == len(decl.members)
    width = 1 if isinstance(kind, ty.BoolType) else ty.max_width_bits(kind)
    return width is not None and width < 16 and len(values) == 1 << width


def _table(table: ast.TableDecl, applied: bool, reporter: Reporter) -> None:
    if not applied:
        reporter.warning(table.pos, f"table '{table.name}' is never applied")
    elif (table.keys and table.default_action is None) or (table.keys and table.default_implicit):
        message = f"table '{table.name}' has no default_action: a miss does nothing; if that is meant, write it"
        reporter.warning(table.pos, f"{message}: default_action = NoAction()")
