"""Tables and their actions."""

from __future__ import annotations

from dataclasses import dataclass

from p4lite.compiler import ast
from p4lite.compiler.diagnostics import Unsupported
from p4lite.compiler.midend import arith, lir
from p4lite.compiler.midend.arguments import bindings, unsupported
from p4lite.compiler.midend.calls import CallLowering
from p4lite.compiler.midend.emitter import Env, Frame, can_exit
from p4lite.compiler.midend.exprs import ExpressionLowering
from p4lite.compiler.midend.lir import (
    DEFAULT_TABLE_SIZE,
    ActionProfile,
    ApplyTable,
    BasicBlock,
    Const,
    EntryKey,
    Field,
    InitialEntry,
    LoweredAction,
    LoweredTable,
    TableKey,
)
from p4lite.compiler.midend.names import annotation_numbers, control_plane_name, in_place_name, key_name, qualified
from p4lite.compiler.midend.objects import METER_KINDS, ExternInstance, Instances, int_argument
from p4lite.compiler.midend.places import Places
from p4lite.compiler.midend.stmts import StatementLowering
from p4lite.compiler.midend.storage import data_shape
from p4lite.compiler.midend.values import ENUM_WIDTH, Boolean, Data, Object, Value, as_const
from p4lite.compiler.position import Pos

MATCH_KINDS = frozenset({"exact", "lpm", "ternary", "range", "optional", "selector"})
PROPERTIES = frozenset({"size", "largest_priority_wins", "priority_delta"})
"""Properties of tables in every architecture."""
TIMEOUTS = (lir.Bool(True), Const(1, ENUM_WIDTH))
"""What asks for the timeout: true of v1model, and PSA's NOTIFY_CONTROL."""


@dataclass
class AppliedTable:
    """A table; per key the field matched directly, or the temporary that holds a computed key."""

    table: LoweredTable
    matched: list[Field | None]
    temporaries: list[Field | None]
    actions: dict[ast.ActionDecl, LoweredAction]


@dataclass
class EvaluatedKey:
    """An evaluated key: the field to match, or the value to put into a temporary, and a static mask."""

    field: Field | None
    value: lir.Expr
    width: int
    signed: bool
    mask: int | None = None


class TableLowering:
    """Lowers applications of tables; a table is created when it is first applied."""

    def __init__(
        self,
        code: Places,
        exprs: ExpressionLowering,
        instances: Instances,
        statements: StatementLowering,
        calls: CallLowering,
        decls: list[ast.Declaration],
    ) -> None:
        self.code = code
        self.exprs = exprs
        self.instances = instances
        self.statements = statements
        self.calls = calls
        self._decls = decls

    # --- applying ---

    def call(self, call: ast.Call) -> None:
        """Apply a table, whatever its outcome."""
        after = BasicBlock()
        self.apply(call, {}, after)
        self.code.start(after)

    def apply(self, call: ast.Call, targets: dict[str | ast.ActionDecl, BasicBlock], default: BasicBlock) -> None:
        """Apply a table; continue by hit or miss or by the action that ran, else in `default`."""
        info = self._prepare(call)
        named: dict[str, BasicBlock] = {}
        for target, block in targets.items():
            if isinstance(target, ast.ActionDecl):
                if target not in info.actions:
                    raise unsupported(call.pos, f"a switch on action '{target.name}', which this table has not")
                target = info.actions[target].name
            named[target] = block
        self._terminate(ApplyTable(info.table, named, default, self._way(call)), call)

    def _way(self, call: ast.Call) -> tuple[Pos, ...]:
        """Return the places of the calls around, and of this one."""
        places = [call.pos]
        frame: Frame | None = self.code.frame
        while frame is not None:
            places += [] if frame.call is None else [frame.call]
            frame = frame.parent
        return tuple(reversed(places))

    def _terminate(self, term: ApplyTable, call: ast.Call) -> None:
        """Apply the table here. Where calls around it copy out, an action that exits only sets a flag."""
        flag = self.code.home(call.target).exit_flag if call.target is not None else None
        leave = BasicBlock()
        if flag is not None:
            cond = arith.to_bool(flag)
            term.targets = {
                label: BasicBlock(term=lir.Branch(cond, leave, block)) for label, block in term.targets.items()
            }
            term.default = BasicBlock(term=lir.Branch(cond, leave, term.default))
        if self.code.routine.current.term is None:
            self.code.routine.current.term = term
        self.code.start(BasicBlock())
        if flag is not None:
            self.code.start(leave)
            self.statements.exit(call.pos)

    def _prepare(self, call: ast.Call) -> AppliedTable:
        """Evaluate the keys; the table is made when it is first applied."""
        if self.code.routine.kind != "control":
            raise unsupported(call.pos, f"applying a table in {self.code.routine.kind}")
        decl = call.target
        assert isinstance(decl, ast.TableDecl)
        home = self.code.home(decl)
        saved = self.code.env
        self.code.env = home
        keys = [self._key(element, value) for element, value in self._key_values(decl)]
        self._prepare_exit(decl, home, call)
        if decl not in home.tables:
            home.tables[decl] = self._make(decl, home, keys)
        info = home.tables[decl]
        assert isinstance(info, AppliedTable)
        for key, matched, temporary in zip(keys, info.matched, info.temporaries, strict=True):
            if temporary is not None:
                self.code.emit(lir.LoweredAssign(temporary, key.value, self.code.loc(call)))
            elif matched != key.field:
                raise unsupported(call.pos, f"applying table '{decl.name}' in two places with different keys")
        self.code.env = saved
        return info

    def _prepare_exit(self, decl: ast.TableDecl, home: Env, call: ast.Call) -> None:
        """Choose how actions of a table exit: by BMv2's primitive, or by a flag when calls around copy out."""
        exiting = [r.decl for r in decl.actions or [] if r.decl is not None and can_exit(r.decl)]
        if not exiting or not self.code.copies_out() or home.exit_flag is not None:
            return
        if decl in home.tables or any(self.code.home(d) is not home or d in home.actions for d in exiting):
            raise unsupported(call.pos, f"exit in an action of '{decl.name}', applied in calls that copy out")
        home.exit_flag = self.code.temp(1, hint="exits")

    # --- keys ---

    def _key_values(self, decl: ast.TableDecl) -> list[tuple[ast.KeyElement, Value]]:
        elements = decl.keys or []
        exprs: list[ast.Expr] = []
        for element in elements:
            masked = self._masked(element)
            exprs.append(masked[0] if masked else element.expr)
        return list(zip(elements, self.exprs.eval_in_order(exprs), strict=True))

    def _masked(self, element: ast.KeyElement) -> tuple[ast.Expr, int] | None:
        """Return the field and the mask of a key `field & constant`, else None; inputs of selectors have no masks."""
        expr = element.expr
        if isinstance(expr, ast.Binary) and expr.op == "&" and element.match_kind.name != "selector":
            for side, other in ((expr.left, expr.right), (expr.right, expr.left)):
                if isinstance(other.const, int) and not isinstance(other.const, bool) and other.const > 0:
                    return side, other.const
        return None

    def _key(self, element: ast.KeyElement, value: Value) -> EvaluatedKey:
        pos = element.pos
        masked = self._masked(element)
        mask = masked[1] if masked else None
        if isinstance(value, Boolean):
            expr = value.expr
            if isinstance(expr, lir.Valid) and isinstance(expr.target, lir.HeaderRef):
                return EvaluatedKey(Field(expr.target.name, "$valid$", 1), expr, 1, False)
            raw = arith.to_data(expr)
            return EvaluatedKey(raw if isinstance(raw, Field) else None, raw, 1, False)
        shape = (value.width, value.signed) if isinstance(value, Data) else None
        if shape is None:
            raise unsupported(pos, f"a table key of type {element.expr.type}")
        raw = value.expr if isinstance(value, Data) and isinstance(value.expr, Field) else self.code.data(value, pos)
        if isinstance(raw, Field) and raw.width == shape[0]:
            return EvaluatedKey(raw, raw, *shape, mask)
        if mask is not None:
            raw = arith.binary("&", raw, Const(mask, shape[0]), shape[0], False)
        return EvaluatedKey(None, raw, *shape)

    def _make(self, decl: ast.TableDecl, home: Env, keys: list[EvaluatedKey]) -> AppliedTable:
        name = qualified(home.path, control_plane_name(decl))
        self.code.claims.claim("table", name, (decl, home), decl.pos)
        table = LoweredTable(name, [], [], DEFAULT_TABLE_SIZE, loc=self.code.loc(decl))
        info = AppliedTable(table, [], [], {})
        home.tables[decl] = info
        selected: list[Field] = []
        for element, key in zip(decl.keys or [], keys, strict=True):
            kind = element.match_kind.name
            if kind not in MATCH_KINDS:
                raise unsupported(element.pos, f"match kind '{kind}'")
            field = key.field
            temporary = None
            if field is None:
                field = temporary = self.code.temp(key.width, key.signed, "key")
            info.temporaries.append(temporary)
            info.matched.append(key.field)
            if kind == "selector":
                selected.append(field)
                continue
            match_type = "ternary" if kind == "optional" else kind
            table.keys.append(TableKey(match_type, key_name(element), field, key.mask if key.field else None))
        if sum(k.match_type == "lpm" for k in table.keys) > 1:
            raise unsupported(decl.pos, f"more than one lpm key in table '{decl.name}'")
        self._fill(decl, home, info, selected)
        return info

    # --- properties ---

    def _fill(self, decl: ast.TableDecl, home: Env, info: AppliedTable, selected: list[Field]) -> None:
        table = info.table
        for ref in decl.actions or []:
            assert ref.decl is not None
            action = self.calls.action(ref, home)
            info.actions[ref.decl] = action
            table.actions.append(action)
        for prop in decl.properties:
            if prop.name not in PROPERTIES and prop.name not in self.code.architecture.properties.values():
                self.code.warn(prop.pos, f"table property '{prop.name}' is not known and ignored")
        size = decl.property("size")
        if size is not None:
            table.size = as_const(self.exprs.eval(size.value)) or DEFAULT_TABLE_SIZE
        timeout = self.code.architecture.property(decl, "timeout")
        if timeout is not None:
            asked = self.exprs.eval(timeout.value)
            table.support_timeout = isinstance(asked, (Boolean, Data)) and asked.expr in TIMEOUTS
        self._implementation(decl, home, table, selected)
        self._default_action(decl, home, info)
        if decl.entries is not None:
            self._entries(decl, info)
        self._direct_objects(decl, home, table)

    def _property_instance(self, prop: ast.TableProperty, table: LoweredTable, home: Env) -> ExternInstance:
        if isinstance(prop.value, ast.Call):
            name = in_place_name(prop, table.name)
            made = self.instances.construct(prop.value, name, None, home, absolute=True)
        else:
            value = self.exprs.eval(prop.value)
            if not isinstance(value, Object):
                raise unsupported(prop.pos, f"this value of property '{prop.name}'")
            made = value
        if not isinstance(made.what, ExternInstance):
            raise unsupported(prop.pos, f"this value of property '{prop.name}'")
        return made.what

    def _implementation(self, decl: ast.TableDecl, home: Env, table: LoweredTable, selected: list[Field]) -> None:
        prop = self.code.architecture.property(decl, "implementation")
        if prop is None:
            if selected:
                self.code.warn(
                    decl.pos, f"the selector keys of '{decl.name}', which has no action selector, are ignored"
                )
            return
        instance = self._property_instance(prop, table, home)
        known = next((u for u in instance.users if isinstance(u, ActionProfile)), None)
        kind = self.code.architecture.kind(instance.kind)
        if kind == "action_profile":
            profile = known or ActionProfile(
                instance.name, int_argument(instance, "size"), loc=self.code.loc(instance.node)
            )
        elif kind == "action_selector":
            algo = self._algorithm(instance)
            profile = known or ActionProfile(
                instance.name, int_argument(instance, "size"), algo, selected, self.code.loc(instance.node)
            )
            if profile.inputs != selected:
                raise unsupported(prop.pos, f"tables with different selector keys sharing '{instance.name}'")
        else:
            raise unsupported(prop.pos, f"'{instance.kind}' as implementation of a table")
        instance.users[:] = [profile]
        table.profile = profile

    def _algorithm(self, selector: ExternInstance) -> str:
        """Return BMv2's name of an action selector's algorithm."""
        architecture = self.code.architecture
        number = int_argument(selector, architecture.externs[selector.kind].algorithm)
        for decl in self._decls:
            if isinstance(decl, ast.EnumDecl) and decl.name == architecture.hash_enum:
                found = architecture.algorithm(decl.members[number].name)
                if found is not None:
                    return found
        raise unsupported(selector.node.pos, f"the algorithm of '{selector.name}'")

    def _default_action(self, decl: ast.TableDecl, home: Env, info: AppliedTable) -> None:
        ref, table = decl.default_action, info.table
        if ref is None:
            return
        assert ref.decl is not None
        if ref.decl not in info.actions:
            action = self.calls.action(ref, home)
            info.actions[ref.decl] = action
            table.actions.append(action)
        if table.profile is not None:
            if not decl.default_implicit:
                self.code.warn(
                    ref.pos, f"BMv2 ignores the default action of '{decl.name}', which has an action profile"
                )
            return
        table.default = info.actions[ref.decl]
        table.default_args = self._action_data(ref)
        table.default_const = decl.default_const

    def _action_data(self, ref: ast.ActionRef) -> list[int]:
        data: list[int] = []
        for param, expr, _ in bindings(ref.args):
            if param.direction != "" or expr is None:
                continue
            value = self.exprs.eval(expr)
            if isinstance(value, Boolean):
                value = Data(arith.to_data(value.expr), 1)
            number = as_const(value)
            if number is None:
                raise unsupported(expr.pos, "an action argument that is not constant")
            shape = data_shape(param.type) if param.type is not None else None
            data.append(number & arith.mask(shape[0]) if shape else number)
        return data

    def _direct_objects(self, decl: ast.TableDecl, home: Env, table: LoweredTable) -> None:
        counters = self.code.architecture.property(decl, "counters")
        if counters is not None:
            instance = self._property_instance(counters, table, home)
            if self.code.architecture.kind(instance.kind) != "direct_counter":
                raise unsupported(counters.pos, f"'{instance.kind}' as counters of a table")
            if instance.users:
                raise unsupported(counters.pos, f"direct counter '{instance.name}' for several tables")
            instance.users.append(table.name)
            table.with_counters = True
            self.code.out.counters.append(
                lir.LoweredCounter(instance.name, table.size, table.name, self.code.loc(instance.node))
            )
        meters = self.code.architecture.property(decl, "meters")
        if meters is not None:
            instance = self._property_instance(meters, table, home)
            if self.code.architecture.kind(instance.kind) != "direct_meter":
                raise unsupported(meters.pos, f"'{instance.kind}' as meters of a table")
            if not instance.users or not isinstance(instance.users[0], Field):
                raise unsupported(meters.pos, f"direct meter '{instance.name}', which no action of the table reads")
            table.direct_meter = instance.name
            kind = METER_KINDS[int_argument(instance, "type")]
            self.code.out.meters.append(
                lir.LoweredMeter(
                    instance.name, table.size, kind, table.name, instance.users[0], self.code.loc(instance.node)
                )
            )

    # --- entries ---

    def _entries(self, decl: ast.TableDecl, info: AppliedTable) -> None:
        table = info.table
        if table.profile is not None:
            raise unsupported(decl.pos, f"entries of table '{decl.name}', which has an action profile")
        if not decl.entries_const:
            self.code.warn(decl.pos, f"BMv2 keeps the entries of '{decl.name}' as they are, as if they were const")
        entries = decl.entries or []
        priorities = self._priorities(decl, entries)
        table.entries, table.entries_const = [], decl.entries_const
        table.size = len(entries) if decl.entries_const else max(table.size, len(entries))
        kinds = [e.match_kind.name for e in decl.keys or []]
        seen: dict[tuple[object, ...], ast.EntryDecl] = {}
        for entry, priority in zip(entries, priorities, strict=True):
            keys = [
                self._entry_key(k, kind, target.target.width)
                for k, kind, target in zip(self._expand(entry.keys, len(kinds)), kinds, table.keys, strict=True)
            ]
            # BMv2 compares priorities, too, where entries have one.
            identity = (*map(matched, keys), priority if {"ternary", "range", "optional"} & set(kinds) else 0)
            first = seen.setdefault(identity, entry)
            if first is not entry:
                same = f"the entry at {first.pos} of table '{decl.name}' has the same key and priority"
                raise Unsupported(entry.pos, f"{same}: BMv2 would not load the program; remove one of them")
            action = info.actions.get(entry.action.decl) if entry.action.decl is not None else None
            if action is None:
                raise unsupported(entry.pos, "an entry with an action that is not in the table's list")
            args = self._action_data(entry.action)
            table.entries.append(InitialEntry(keys, action, args, priority, self.code.loc(entry)))

    def _expand(self, keys: list[ast.Expr], count: int) -> list[ast.Expr]:
        if len(keys) == 1 and count > 1 and isinstance(keys[0], ast.DontCare):
            return keys * count
        return keys

    def _priorities(self, decl: ast.TableDecl, entries: list[ast.EntryDecl]) -> list[int]:
        """Return BMv2's priorities (the lowest number wins) for entries in order."""
        annotated = [next((a for a in e.annotations if a.name == "priority"), None) for e in entries]
        if any(a is not None for a in annotated):
            return [i + 1 if a is None else annotation_numbers(a, self._decls)[0] for i, a in enumerate(annotated)]
        if all(e.priority is None for e in entries):
            return list(range(1, len(entries) + 1))
        largest = decl.property("largest_priority_wins")
        largest_wins = largest is None or self.exprs.eval_truth(largest.value) == lir.Bool(True)
        delta_property = decl.property("priority_delta")
        delta = (as_const(self.exprs.eval(delta_property.value)) or 1) if delta_property is not None else 1
        numbers: list[int] = []
        for entry in entries:
            if entry.priority is not None:
                numbers.append(as_const(self.exprs.eval(entry.priority)) or 0)
            elif numbers:
                numbers.append(numbers[-1] - delta if largest_wins else numbers[-1] + delta)
            else:
                numbers.append((len(entries) - 1) * delta + 1 if largest_wins else 1)
        order = sorted(set(numbers), reverse=largest_wins)
        return [order.index(n) + 1 for n in numbers]

    def _entry_key(self, key: ast.Expr, kind: str, width: int) -> EntryKey:
        ones = arith.mask(width)
        any_value = isinstance(key, (ast.DontCare, ast.DefaultExpr))
        if kind == "exact":
            if any_value:
                raise unsupported(key.pos, "a wildcard for an exact key")
            return EntryKey("exact", self._key_number(key, width), 0, width)
        if kind in ("ternary", "optional"):
            if any_value:
                return EntryKey("ternary", 0, 0, width)
            if isinstance(key, ast.Mask):
                return EntryKey("ternary", self._key_number(key.value, width), self._key_number(key.mask, width), width)
            return EntryKey("ternary", self._key_number(key, width), ones, width)
        if kind == "lpm":
            if any_value:
                return EntryKey("lpm", 0, 0, width)
            if isinstance(key, ast.Mask):
                mask = self._key_number(key.mask, width)
                prefix = bin(mask).count("1")
                if mask != ones ^ arith.mask(width - prefix):
                    raise unsupported(key.pos, "a mask for an lpm key that is not a prefix")
                return EntryKey("lpm", self._key_number(key.value, width), prefix, width)
            return EntryKey("lpm", self._key_number(key, width), width, width)
        if any_value:
            return EntryKey("range", 0, ones, width)
        if isinstance(key, ast.RangeExpr):
            return EntryKey("range", self._key_number(key.lo, width), self._key_number(key.hi, width), width)
        number = self._key_number(key, width)
        return EntryKey("range", number, number, width)

    def _key_number(self, expr: ast.Expr, width: int) -> int:
        value = self.exprs.eval(expr)
        if isinstance(value, Boolean):
            value = Data(arith.to_data(value.expr), 1)
        number = as_const(value)
        if number is None:
            raise unsupported(expr.pos, "a key of an entry that is not constant")
        return number & arith.mask(width)


def matched(key: EntryKey) -> tuple[int, int]:
    """Return what a key matches, without the bits that it ignores."""
    if key.match_type == "lpm":
        return key.value >> (key.width - key.extra), key.extra
    return (key.value & key.extra if key.match_type == "ternary" else key.value), key.extra
