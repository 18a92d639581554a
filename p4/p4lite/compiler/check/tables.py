"""Tables (specification §14.2): keys, actions, default action, entries, properties."""

from __future__ import annotations

from p4lite.compiler import ast
from p4lite.compiler import types as ty
from p4lite.compiler.architecture import ARCHITECTURES, PSA, V1MODEL
from p4lite.compiler.check import advice, typenames
from p4lite.compiler.check.calls import CallChecker
from p4lite.compiler.check.coerce import Coercion, show
from p4lite.compiler.check.constants import compile_time
from p4lite.compiler.check.expressions import ACTIONS, ExpressionChecker
from p4lite.compiler.check.scope import Run, closest
from p4lite.compiler.check.statements import StatementChecker
from p4lite.compiler.types import Type

_KINDS = {
    "implementation": ("action_profile", "action_selector"),
    "counters": ("direct_counter",),
    "meters": ("direct_meter",),
}
_EXTERN_PROPERTIES = {
    each.properties[what]: [name for name, extern in each.externs.items() if extern.kind in kinds]
    for each in ARCHITECTURES
    for what, kinds in _KINDS.items()
}
_NUMBER_PROPERTIES = ("size", "priority_delta")
_BOOL_PROPERTIES = ("largest_priority_wins", V1MODEL.properties["timeout"])
_ENUM_PROPERTIES = {PSA.properties["timeout"]: "PSA_IdleTimeout_t"}
_KNOWN = {
    *_EXTERN_PROPERTIES, *_NUMBER_PROPERTIES, *_BOOL_PROPERTIES, *_ENUM_PROPERTIES,
    "default_action", "key", "actions", "entries",
}  # fmt: skip


class TableChecker:
    """`table` checks a table."""

    def __init__(
        self, run: Run, exprs: ExpressionChecker, coercion: Coercion, calls: CallChecker, statements: StatementChecker
    ) -> None:
        self.run = run
        self.exprs = exprs
        self.coercion = coercion
        self.calls = calls
        self.statements = statements
        self.types = exprs.types

    def table(self, t: ast.TableDecl) -> None:
        t.type = ty.TableType(t)
        with self.run.inner("table"):
            self._keys(t)
            self._actions(t)
            self._default(t)
            self._entries(t)
            for prop in t.properties:
                self._property(t, prop)
        self.run.declare(t)

    def _keys(self, t: ast.TableDecl) -> None:
        for k in t.keys or []:
            k.expr = self.exprs.value(k.expr)
            kind = k.match_kind
            if kind.name not in self.run.match_kinds:
                hint = advice.match_kind(kind.name, list(self.run.match_kinds))
                self.run.error(kind.pos, f"no match_kind '{kind.name}' is declared{hint}")
            kind.type, kind.const = ty.MATCH_KIND, ast.EnumValue("match_kind", kind.name)
            kt = ty.strip_newtypes(k.expr.type or ty.UNKNOWN)
            named = any(a.name == "name" for a in k.annotations)
            if not named and typenames.needs_name(k.expr) and not isinstance(kt, ty.UnknownType):
                self.run.error(
                    k.expr.pos, 'a key that is not a plain field needs a name: add @name("...") before the ;'
                )
            if isinstance(kt, ty.IntType):
                self.run.error(k.expr.pos, "a key needs a width: give the number one, as in 8w1")
            elif isinstance(
                kt, ty.FieldsType | ty.TupleType | ty.StackType | ty.VarbitType | ty.ExternType | ty.StringType
            ):
                self.run.error(k.expr.pos, f"a key cannot have type {show(k.expr.type)}")

    def _actions(self, t: ast.TableDecl) -> None:
        if t.actions is None:
            self.run.error(t.pos, f"table '{t.name}' has no actions: add actions = {{ ... }}")
            return
        seen: set[str] = set()
        for ref in t.actions:
            decl = self._action_of(ref)
            if decl is None:
                continue
            if decl.name in seen:
                self.run.error(ref.pos, f"action '{decl.name}' is listed twice")
            seen.add(decl.name)
            directed = [p for p in decl.params if p.direction]
            if ref.args is None and not directed:
                ref.args = []
                continue
            self._bind(ref, directed, decl)

    def _action_of(self, ref: ast.ActionRef) -> ast.ActionDecl | None:
        name = self.exprs.named(ref.action, ACTIONS)
        assert isinstance(name, ast.Name)
        ref.action = name
        if isinstance(name.type, ty.UnknownType):
            return None
        if not isinstance(name.decl, ast.ActionDecl):
            self.run.error(ref.pos, f"'{name.name}' is not an action")
            return None
        ref.decl = name.decl
        return ref.decl

    def _bind(
        self, ref: ast.ActionRef, params: list[ast.Param], decl: ast.ActionDecl, *, constants: bool = False
    ) -> bool:
        call = ast.Call(ref.pos, ref.action, ref.args or [])
        ok = self.calls.bind(call, params, f"action '{decl.name}'", {}, constants=constants)
        ref.args = call.args
        return ok

    def _default(self, t: ast.TableDecl) -> None:
        if t.default_action is None:
            found = self.run.scope.root().lookup("NoAction")
            action = found[0] if found else None
            if isinstance(action, ast.ActionDecl):
                name = ast.Name(t.pos, "NoAction", type=action.type, decl=action)
                t.default_action = ast.ActionRef(t.pos, name, [], decl=action)
                t.default_implicit = True
            return
        self._use(t, t.default_action, "default_action")

    def _use(self, t: ast.TableDecl, ref: ast.ActionRef, what: str) -> None:
        """Check a use of an action: it must be in the table's list, and its arguments must fit."""
        decl = self._action_of(ref)
        if decl is None:
            return
        listed = next((r for r in t.actions or [] if r.decl is decl), None)
        if listed is None:
            self.run.error(ref.pos, f"'{decl.name}' is not in the list of actions of table '{t.name}'")
            return
        if what != "default_action" and listed_only(listed, "defaultonly"):
            self.run.error(ref.pos, f"action '{decl.name}' is @defaultonly: no entry can use it")
        if what == "default_action" and listed_only(listed, "tableonly"):
            self.run.error(ref.pos, f"action '{decl.name}' is @tableonly: it cannot be the default action")
        directed = [p for p in decl.params if p.direction]
        # Directed arguments are repeated here; they are those of the list of actions.
        if directed:
            if len(ref.args or []) < len(decl.params):
                names = ", ".join(f"'{p.name}'" for p in directed)
                what = f"action '{decl.name}' takes {len(decl.params)} arguments here, not {len(ref.args or [])}"
                self.run.error(ref.pos, f"{what}: repeat {names} as in the list of actions of table '{t.name}'")
                return
            if not self._bind(ref, decl.params, decl):
                return
            for a in ref.args or []:
                if a.param is not None and not a.param.direction and a.expr is not None and not compile_time(a.expr):
                    self.run.error(a.pos, f"argument '{a.param.name}' must be a compile-time constant")
            for a, b in zip(ref.args or [], listed.args or [], strict=False):
                if a.expr is not None and b.expr is not None and not same_expr(a.expr, b.expr):
                    self.run.error(a.pos, f"argument differs from the one in the list of actions of table '{t.name}'")
            return
        self._bind(ref, decl.params, decl, constants=True)

    def _entries(self, t: ast.TableDecl) -> None:
        if t.entries is None:
            return
        kinds: list[Type] = [k.expr.type or ty.UNKNOWN for k in t.keys or []]
        if not kinds and t.entries:
            self.run.error(t.pos, f"table '{t.name}' has entries but no key: add key = {{ ... }}")
            return
        self._priorities(t, t.entries)
        for entry in t.entries:
            if entry.priority is not None:
                entry.priority, _ = self.exprs.constant(entry.priority, "the priority of an entry")
            entry.keys = self.statements.keys(entry.keys, kinds, f"table '{t.name}'")
            self._match_kinds(t, entry)
            self._use(t, entry.action, "entry")

    def _priorities(self, t: ast.TableDecl, entries: list[ast.EntryDecl]) -> None:
        """Check that priorities stand only where entries may overlap, and that the first entry has one if any has."""
        given = [e for e in entries if e.priority is not None]
        ordered = any(k.match_kind.name in ("ternary", "range", "optional") for k in t.keys or [])
        if given and not ordered:
            self.run.error(given[0].pos, f"a priority in table '{t.name}', whose keys need none")
        elif given and entries[0].priority is None:
            self.run.error(entries[0].pos, f"the first entry of table '{t.name}' has no priority, but a later one has")

    def _match_kinds(self, t: ast.TableDecl, entry: ast.EntryDecl) -> None:
        if len(entry.keys) != len(t.keys or []):
            return
        for key, k in zip(entry.keys, t.keys or [], strict=True):
            kind = k.match_kind.name
            if isinstance(key, ast.RangeExpr) and kind != "range":
                self.run.error(key.pos, f"a range for a key that matches {kind}")
            elif isinstance(key, ast.Mask) and kind not in ("ternary", "lpm"):
                self.run.error(key.pos, f"a mask for a key that matches {kind}")
            elif isinstance(key, ast.Mask) and kind == "lpm":
                width = ty.max_width_bits(k.expr.type or ty.UNKNOWN)
                if width and isinstance(key.mask.const, int) and not typenames.prefix_mask(key.mask.const, width):
                    self.run.error(key.pos, "the mask of a key that matches lpm must be a prefix: ones, then zeros")
            elif isinstance(key, ast.DontCare) and kind == "exact":
                self.run.error(key.pos, "'_' for a key that matches exact")

    def _property(self, t: ast.TableDecl, prop: ast.TableProperty) -> None:
        if prop.name in _EXTERN_PROPERTIES:
            prop.value = self.exprs.expr(prop.value)
            kind = prop.value.type
            if isinstance(kind, ty.UnknownType):
                return
            if not isinstance(kind, ty.ExternType):
                self.run.error(
                    prop.value.pos, f"property '{prop.name}' takes an instance of an extern, not {show(kind)}"
                )
            elif kind.name not in _EXTERN_PROPERTIES[prop.name]:
                self.run.error(prop.value.pos, f"property '{prop.name}' cannot be a {kind.name}")
        elif prop.name in _NUMBER_PROPERTIES:
            prop.value = self.exprs.value(prop.value)
            if not isinstance(prop.value.type, ty.UnknownType | ty.IntType | ty.BitType):
                self.run.error(prop.value.pos, f"property '{prop.name}' must be a number, such as 1024")
            elif not compile_time(prop.value):
                self.run.error(prop.value.pos, f"property '{prop.name}' must be a compile-time constant")
        elif prop.name in _BOOL_PROPERTIES:
            prop.value = self.exprs.bool_expr(prop.value, f"property '{prop.name}'")
        elif prop.name in _ENUM_PROPERTIES:
            prop.value = self.exprs.value(prop.value)
            given, wanted = prop.value.type or ty.UNKNOWN, _ENUM_PROPERTIES[prop.name]
            if not isinstance(given, ty.UnknownType) and not (isinstance(given, ty.EnumType) and given.name == wanted):
                self.run.error(prop.value.pos, f"property '{prop.name}' must be a member of {wanted}")
        else:
            prop.value = self.exprs.expr(prop.value)
            near = closest(prop.name, sorted(_KNOWN))
            self.run.warn(prop.pos, f"unknown table property '{prop.name}' has no effect{near}")


def listed_only(ref: ast.ActionRef, name: str) -> bool:
    """Return whether an action in a table's list has the annotation."""
    return any(a.name == name for a in ref.annotations)


def same_expr(a: ast.Node, b: ast.Node) -> bool:
    """Return whether two checked expressions have the same text."""
    if type(a) is not type(b):
        return False
    if isinstance(a, ast.Expr) and isinstance(b, ast.Expr) and a.const is not None and not isinstance(a, ast.Call):
        return a.const == b.const and a.type == b.type
    if isinstance(a, ast.Expr) and isinstance(b, ast.Expr) and a.type != b.type:
        return False
    if isinstance(a, ast.Arg) and isinstance(b, ast.Arg) and a.place != b.place:
        return False
    if isinstance(a, ast.Name) and isinstance(b, ast.Name):
        return a.decl is b.decl
    if isinstance(a, ast.Member) and isinstance(b, ast.Member) and a.name != b.name:
        return False
    if isinstance(a, ast.Binary | ast.Unary) and isinstance(b, ast.Binary | ast.Unary) and a.op != b.op:
        return False
    ca, cb = list(ast.children(a)), list(ast.children(b))
    return len(ca) == len(cb) and all(same_expr(x, y) for x, y in zip(ca, cb, strict=True))
