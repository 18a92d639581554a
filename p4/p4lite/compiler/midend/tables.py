"""Tables and their actions."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from p4lite.compiler import ast
from p4lite.compiler import types as t
from p4lite.compiler.midend import arith, lir
from p4lite.compiler.midend.base import Env, Frame, Routine, as_const, bindings, can_exit
from p4lite.compiler.midend.externs import METER_KINDS, Externs
from p4lite.compiler.midend.instances import ExternInstance, int_argument
from p4lite.compiler.midend.lir import (
    Action,
    ActionProfile,
    ApplyTable,
    Block,
    Const,
    Entry,
    EntryKey,
    Field,
    Table,
    TableKey,
)
from p4lite.compiler.midend.names import UniqueNames, control_plane_name, in_place_name, key_name, qualified
from p4lite.compiler.midend.report import unsupported
from p4lite.compiler.midend.storage import data_shape
from p4lite.compiler.midend.values import Boolean, Data, Object, Value

DEFAULT_TABLE_SIZE = 1024
MATCH_KINDS = frozenset({"exact", "lpm", "ternary", "range", "optional", "selector"})
PROPERTIES = frozenset(
    {"size", "implementation", "counters", "meters", "support_timeout", "largest_priority_wins", "priority_delta"}
)


@dataclass
class TableInfo:
    """A table; per key the field matched directly, or the temporary that holds a computed key."""

    table: Table
    matched: list[Field | None]
    temporaries: list[Field | None]
    actions: dict[ast.ActionDecl, Action]


@dataclass
class Key:
    """An evaluated key: the field to match, or the value to put into a temporary, and a static mask."""

    field: Field | None
    value: lir.Expr
    width: int
    signed: bool
    mask: int | None = None


class Tables(Externs):
    """Applying tables."""

    def __init__(self, program_name: str) -> None:
        super().__init__(program_name)
        self._table_names = UniqueNames()
        self.hidden: list[Table | Action] = []
        """Tables and actions that are not the program's."""

    # --- applying ---

    def apply_table(self, call: ast.Call, result: str) -> Boolean:
        """Apply a table; `result` is "hit" or "miss" to get that as a boolean, or ""."""
        table = self._prepare(call)
        after = Block()
        outcome = Boolean(lir.Bool(True))
        if result == "":
            self._terminate(ApplyTable(table, {}, after), call)
        else:
            outcome = self.temp_bool(result)
            hit, miss = Block(), Block()
            self._terminate(ApplyTable(table, {"__HIT__": hit, "__MISS__": miss}, after), call)
            for block, is_hit in ((hit, True), (miss, False)):
                self.start(block)
                self.copy(outcome, Boolean(lir.Bool(is_hit == (result == "hit"))), call.pos)
                self.jump(after)
        self.start(after)
        return outcome

    def _terminate(self, term: ApplyTable, call: ast.Call) -> None:
        """Apply the table here. Where calls around it copy out, an action that exits only sets a flag."""
        flag = self._home(call.target).exit_flag if call.target is not None else None
        leave = Block()
        if flag is not None:
            cond = arith.to_bool(flag)
            term.targets = {label: Block(term=lir.Branch(cond, leave, block)) for label, block in term.targets.items()}
            term.default = Block(term=lir.Branch(cond, leave, term.default))
        if self.routine.current.term is None:
            self.routine.current.term = term
        self.start(Block())
        if flag is not None:
            self.start(leave)
            self.exit(call.pos)

    def action_node(self, decl: ast.ActionDecl, call: ast.Call) -> None:
        """A call of an action without parameters: a table of its own with nothing but that action."""
        home = self._home(decl)
        saved = self.env
        action = self._action(ast.ActionRef(call.pos, ast.Name(call.pos, decl.name), decl=decl), home)
        self.env = saved
        self._call_node(action, self.loc(call))

    def in_action(self, node: ast.Node, body: Callable[[], None]) -> None:
        """Run `body` as an action of its own, called here."""
        loc = self.loc(node)
        made = Action(self._hidden_name(f"loop{node.pos.line}"), [], Block(), loc)
        self.hidden.append(made)
        outside = self.routine
        self.routine = Routine("action", made.body, made.body, outside.region)
        body()
        self.end()
        self.routine = outside
        self.out.actions.append(made)
        self._call_node(made, loc)

    def _call_node(self, action: Action, loc: lir.SourceInfo | None) -> None:
        short = action.name.rpartition(".")[2]
        table = Table(
            self._hidden_name(f"tbl_{short}"),
            [],
            [action],
            DEFAULT_TABLE_SIZE,
            default=action,
            default_const=True,
            loc=loc,
        )
        self.hidden.append(table)
        after = Block()
        if self.routine.current.term is None:
            self.routine.current.term = ApplyTable(table, {}, after)
        self.start(after)

    def rename_hidden(self) -> None:
        """Takes the names of the compiler's own tables and actions back where the program has them."""
        self._table_names.reserve(self.claims.taken("table", "action"))
        wanted = self.claims.taken("table", "action")
        for item in self.hidden:
            if item.name in wanted:
                item.name = self._hidden_name(item.name)

    def _hidden_name(self, base: str) -> str:
        return self._table_names.take(base)

    def table_condition(self, cond: ast.Expr, then: Block, other: Block) -> bool:
        """Branch on `t.apply().hit` (or miss, or their negations) without a temporary."""
        while isinstance(cond, ast.Unary) and cond.op == "!":
            cond, then, other = cond.expr, other, then
        if not isinstance(cond, ast.Member) or cond.name not in ("hit", "miss"):
            return False
        call = cond.expr
        if not isinstance(call, ast.Call) or call.kind is not ast.CallKind.TABLE_APPLY:
            return False
        table = self._prepare(call)
        hit, miss = (then, other) if cond.name == "hit" else (other, then)
        self._terminate(ApplyTable(table, {"__HIT__": hit, "__MISS__": miss}, miss), call)
        return True

    def apply_switch(self, stmt: ast.Switch, call: ast.Call) -> None:
        """`switch (t.apply().action_run)`."""
        table = self._prepare(call)
        info = self._info(call)
        after = Block()
        blocks = self.case_blocks(stmt)
        targets: dict[str, Block] = {}
        default = after
        for case, block in zip(stmt.cases, blocks, strict=True):
            if case.is_default or case.label is None:
                default = block
                continue
            decl = case.label.decl if isinstance(case.label, ast.Name) else None
            action = info.actions.get(decl) if isinstance(decl, ast.ActionDecl) else None
            if action is None:
                raise unsupported(case.pos, "this label of a switch on action_run")
            targets[action.name] = block
        self._terminate(ApplyTable(table, targets, default), call)
        self.fill_cases(stmt, blocks, after)
        self.start(after)

    def _info(self, call: ast.Call) -> TableInfo:
        decl = call.target
        assert isinstance(decl, ast.TableDecl)
        home = self._home(decl)
        info = home.tables.get(decl)
        assert isinstance(info, TableInfo)
        return info

    def _prepare(self, call: ast.Call) -> Table:
        """Evaluate the keys; the table is made when it is first applied."""
        if self.routine.kind != "control":
            raise unsupported(call.pos, f"applying a table in {self.routine.kind}")
        decl = call.target
        assert isinstance(decl, ast.TableDecl)
        home = self._home(decl)
        saved = self.env
        self.env = home
        keys = [self._key(element, value) for element, value in self._key_values(decl)]
        self._prepare_exit(decl, home, call)
        if decl not in home.tables:
            home.tables[decl] = self._make(decl, home, keys)
        info = home.tables[decl]
        assert isinstance(info, TableInfo)
        for key, matched, temporary in zip(keys, info.matched, info.temporaries, strict=True):
            if temporary is not None:
                self.emit(lir.Assign(temporary, key.value, self.loc(call)))
            elif matched != key.field:
                raise unsupported(call.pos, f"applying table '{decl.name}' in two places with different keys")
        self.env = saved
        return info.table

    def _prepare_exit(self, decl: ast.TableDecl, home: Env, call: ast.Call) -> None:
        """Choose how actions of a table exit: by BMv2's primitive, or by a flag when calls around copy out."""
        exiting = [r.decl for r in decl.actions or [] if r.decl is not None and can_exit(r.decl)]
        if not exiting or not self.copies_out() or home.exit_flag is not None:
            return
        if decl in home.tables or any(self._home(d) is not home or d in home.actions for d in exiting):
            raise unsupported(call.pos, f"exit in an action of '{decl.name}', applied in calls that copy out")
        home.exit_flag = self.temp(1, hint="exits")

    # --- keys ---

    def _key_values(self, decl: ast.TableDecl) -> list[tuple[ast.KeyElement, Value]]:
        elements = decl.keys or []
        exprs: list[ast.Expr] = []
        for element in elements:
            masked = self._masked(element.expr)
            exprs.append(masked[0] if masked else element.expr)
        return list(zip(elements, self.eval_in_order(exprs), strict=True))

    def _masked(self, expr: ast.Expr) -> tuple[ast.Expr, int] | None:
        """`field & constant` as key."""
        if isinstance(expr, ast.Binary) and expr.op == "&":
            for side, other in ((expr.left, expr.right), (expr.right, expr.left)):
                if isinstance(other.const, int) and not isinstance(other.const, bool) and other.const > 0:
                    return side, other.const
        return None

    def _key(self, element: ast.KeyElement, value: Value) -> Key:
        pos = element.pos
        masked = self._masked(element.expr)
        mask = masked[1] if masked else None
        if isinstance(value, Boolean):
            expr = value.expr
            if isinstance(expr, lir.Valid) and isinstance(expr.target, lir.HeaderRef):
                return Key(Field(expr.target.name, "$valid$", 1), expr, 1, False)
            raw = arith.to_data(expr)
            return Key(raw if isinstance(raw, Field) else None, raw, 1, False)
        shape = (value.width, value.signed) if isinstance(value, Data) else None
        if shape is None:
            raise unsupported(pos, f"a table key of type {element.expr.type}")
        raw = value.expr if isinstance(value, Data) and isinstance(value.expr, Field) else self.data(value, pos)
        if isinstance(raw, Field) and raw.width == shape[0]:
            return Key(raw, raw, *shape, mask)
        if mask is not None:
            raw = arith.binary("&", raw, Const(mask, shape[0]), shape[0], False)
        return Key(None, raw, *shape)

    def _make(self, decl: ast.TableDecl, home: Env, keys: list[Key]) -> TableInfo:
        name = qualified(home.path, control_plane_name(decl))
        self.claims.claim("table", name, (decl, home), decl.pos)
        table = Table(name, [], [], DEFAULT_TABLE_SIZE, loc=self.loc(decl))
        info = TableInfo(table, [], [], {})
        home.tables[decl] = info
        selected: list[Field] = []
        for element, key in zip(decl.keys or [], keys, strict=True):
            kind = element.match_kind.name
            if kind not in MATCH_KINDS:
                raise unsupported(element.pos, f"match kind '{kind}'")
            field = key.field
            temporary = None
            if field is None:
                field = temporary = self.temp(key.width, key.signed, "key")
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

    def _fill(self, decl: ast.TableDecl, home: Env, info: TableInfo, selected: list[Field]) -> None:
        table = info.table
        for ref in decl.actions or []:
            assert ref.decl is not None
            action = self._action(ref, home)
            info.actions[ref.decl] = action
            table.actions.append(action)
        for prop in decl.properties:
            if prop.name not in PROPERTIES:
                self.warn(prop.pos, f"table property '{prop.name}' is not known and ignored")
        size = decl.property("size")
        if size is not None:
            table.size = as_const(self.eval(size.value)) or DEFAULT_TABLE_SIZE
        timeout = decl.property("support_timeout")
        if timeout is not None:
            table.support_timeout = self.eval_truth(timeout.value) == lir.Bool(True)
        self._implementation(decl, home, table, selected)
        self._default_action(decl, home, info)
        if decl.entries is not None:
            self._entries(decl, info)
        self._direct_objects(decl, home, table)

    def _property_instance(self, prop: ast.TableProperty, table: Table, home: Env) -> ExternInstance:
        if isinstance(prop.value, ast.Call):
            name = in_place_name(prop, table.name)
            made = self.construct(prop.value, name, None, home, absolute=True)
        else:
            value = self.eval(prop.value)
            if not isinstance(value, Object):
                raise unsupported(prop.pos, f"this value of property '{prop.name}'")
            made = value
        if not isinstance(made.what, ExternInstance):
            raise unsupported(prop.pos, f"this value of property '{prop.name}'")
        return made.what

    def _implementation(self, decl: ast.TableDecl, home: Env, table: Table, selected: list[Field]) -> None:
        prop = decl.property("implementation")
        if prop is None:
            if selected:
                self.warn(decl.pos, f"the selector keys of '{decl.name}', which has no action selector, are ignored")
            return
        instance = self._property_instance(prop, table, home)
        known = next((u for u in instance.users if isinstance(u, ActionProfile)), None)
        if instance.kind == "action_profile":
            profile = known or ActionProfile(instance.name, int_argument(instance, "size"), loc=self.loc(instance.node))
        elif instance.kind == "action_selector":
            algo = self._hash_names()[int_argument(instance, "algorithm")]
            profile = known or ActionProfile(
                instance.name, int_argument(instance, "size"), algo, selected, self.loc(instance.node)
            )
            if profile.inputs != selected:
                raise unsupported(prop.pos, f"tables with different selector keys sharing '{instance.name}'")
        else:
            raise unsupported(prop.pos, f"'{instance.kind}' as implementation of a table")
        instance.users[:] = [profile]
        table.profile = profile

    def _hash_names(self) -> tuple[str, ...]:
        for decl in self.program_decls:
            if isinstance(decl, ast.EnumDecl) and decl.name == "HashAlgorithm":
                return tuple(m.name for m in decl.members)
        return ()

    def _default_action(self, decl: ast.TableDecl, home: Env, info: TableInfo) -> None:
        ref, table = decl.default_action, info.table
        if ref is None:
            return
        assert ref.decl is not None
        if ref.decl not in info.actions:
            action = self._action(ref, home)
            info.actions[ref.decl] = action
            table.actions.append(action)
        if table.profile is not None:
            if not decl.default_implicit:
                self.warn(ref.pos, f"BMv2 ignores the default action of '{decl.name}', which has an action profile")
            return
        table.default = info.actions[ref.decl]
        table.default_args = self._action_data(ref)
        table.default_const = decl.default_const

    def _action_data(self, ref: ast.ActionRef) -> list[int]:
        data: list[int] = []
        for param, expr, _ in bindings(ref.args):
            if param.direction != "" or expr is None:
                continue
            value = self.eval(expr)
            if isinstance(value, Boolean):
                value = Data(arith.to_data(value.expr), 1)
            number = as_const(value)
            if number is None:
                raise unsupported(expr.pos, "an action argument that is not constant")
            shape = data_shape(param.type) if param.type is not None else None
            data.append(number & arith.mask(shape[0]) if shape else number)
        return data

    def _direct_objects(self, decl: ast.TableDecl, home: Env, table: Table) -> None:
        counters = decl.property("counters")
        if counters is not None:
            instance = self._property_instance(counters, table, home)
            if instance.kind != "direct_counter":
                raise unsupported(counters.pos, f"'{instance.kind}' as counters of a table")
            if instance.users:
                raise unsupported(counters.pos, f"direct counter '{instance.name}' for several tables")
            instance.users.append(table.name)
            table.with_counters = True
            self.out.counters.append(lir.Counter(instance.name, table.size, table.name, self.loc(instance.node)))
        meters = decl.property("meters")
        if meters is not None:
            instance = self._property_instance(meters, table, home)
            if instance.kind != "direct_meter":
                raise unsupported(meters.pos, f"'{instance.kind}' as meters of a table")
            if not instance.users or not isinstance(instance.users[0], Field):
                raise unsupported(meters.pos, f"direct meter '{instance.name}', which no action of the table reads")
            table.direct_meter = instance.name
            kind = METER_KINDS[int_argument(instance, "type")]
            self.out.meters.append(
                lir.Meter(instance.name, table.size, kind, table.name, instance.users[0], self.loc(instance.node))
            )

    # --- actions ---

    def _action(self, ref: ast.ActionRef, home: Env) -> Action:
        """The BMv2 action for an entry of an action list; shared between tables when it binds no arguments."""
        decl = ref.decl
        assert decl is not None
        self.env = home
        scope = self._home(decl)
        directed = [b for b in bindings(ref.args) if b.param.direction != ""]
        key: object = ref if directed else decl
        known = scope.actions.get(key)
        if isinstance(known, Action):
            return known
        name = control_plane_name(decl)
        path = scope.path if scope is not self.globals else ""
        made = Action(qualified(path, name), [], Block(), self.loc(decl))
        self.claims.claim("action", made.name, (decl, scope), decl.pos)
        scope.actions[key] = made
        self.out.actions.append(made)
        saved = self.routine, self.frame, self.env
        self.routine = Routine("action", made.body, made.body, self.routine.region, scope.exit_flag)
        self.frame = Frame(None, Block())
        env = Env(scope)
        self._bind_arguments(directed, env, self.frame, self._captured(decl, scope))
        for param in decl.params:
            if param.direction == "":
                env.bind(param, self._data_parameter(param, made))
        frame = self.frame
        self._inline(frame, env, lambda: self.statements(decl.body.stmts), decl.pos)
        self.end()
        self.routine, self.frame, self.env = saved
        return made

    def _data_parameter(self, param: ast.Param, action: Action) -> Value:
        assert param.type is not None
        index = len(action.params)
        name = control_plane_name(param)
        if isinstance(t.strip_newtypes(param.type), t.BoolType):
            action.params.append((name, 1))
            return Boolean(arith.to_bool(lir.Param(index, 1)))
        shape = data_shape(param.type)
        if shape is None:
            raise unsupported(param.pos, f"action parameter '{param.name}' of type {param.type}")
        action.params.append((name, shape[0]))
        raw = lir.Param(index, shape[0])
        return Data(arith.fit(raw, *shape) if shape[1] else raw, *shape)

    # --- entries ---

    def _entries(self, decl: ast.TableDecl, info: TableInfo) -> None:
        table = info.table
        if table.profile is not None:
            raise unsupported(decl.pos, f"entries of table '{decl.name}', which has an action profile")
        if not decl.entries_const:
            self.warn(decl.pos, f"BMv2 keeps the entries of '{decl.name}' as they are, as if they were const")
        entries = decl.entries or []
        priorities = self._priorities(decl, entries)
        table.entries, table.entries_const = [], decl.entries_const
        table.size = len(entries) if decl.entries_const else max(table.size, len(entries))
        kinds = [e.match_kind.name for e in decl.keys or []]
        for entry, priority in zip(entries, priorities, strict=True):
            keys = [
                self._entry_key(k, kind, target.target.width)
                for k, kind, target in zip(self._expand(entry.keys, len(kinds)), kinds, table.keys, strict=True)
            ]
            action = info.actions.get(entry.action.decl) if entry.action.decl is not None else None
            if action is None:
                raise unsupported(entry.pos, "an entry with an action that is not in the table's list")
            args = self._action_data(entry.action)
            table.entries.append(Entry(keys, action, args, priority, self.loc(entry)))

    def _expand(self, keys: list[ast.Expr], count: int) -> list[ast.Expr]:
        if len(keys) == 1 and count > 1 and isinstance(keys[0], ast.DontCare):
            return keys * count
        return keys

    def _priorities(self, decl: ast.TableDecl, entries: list[ast.Entry]) -> list[int]:
        """BMv2's priorities (the lowest number wins) for entries in order."""
        annotated = [next((a for a in e.annotations if a.name == "priority"), None) for e in entries]
        if any(a is not None for a in annotated):
            return [i + 1 if a is None else self.annotation_numbers(a)[0] for i, a in enumerate(annotated)]
        if all(e.priority is None for e in entries):
            return list(range(1, len(entries) + 1))
        largest = decl.property("largest_priority_wins")
        largest_wins = largest is None or self.eval_truth(largest.value) == lir.Bool(True)
        delta_property = decl.property("priority_delta")
        delta = (as_const(self.eval(delta_property.value)) or 1) if delta_property is not None else 1
        numbers: list[int] = []
        for entry in entries:
            if entry.priority is not None:
                numbers.append(as_const(self.eval(entry.priority)) or 0)
            elif numbers:
                numbers.append(numbers[-1] - delta if largest_wins else numbers[-1] + delta)
            else:
                numbers.append((len(entries) - 1) * delta + 1 if largest_wins else 1)
        order = sorted(set(numbers), reverse=largest_wins)
        return [order.index(n) + 1 for n in numbers]

    def annotation_numbers(self, annotation: ast.Annotation) -> list[int]:
        """Numbers in an annotation: literals, constants, members of serializable enums."""
        if annotation.exprs:
            found = [e.const for e in annotation.exprs]
        else:
            found = [self._named_number(item) for item in "".join(annotation.tokens).split(",")]
        numbers = [n for n in found if isinstance(n, int)]
        if not numbers or len(numbers) != len(found):
            raise unsupported(annotation.pos, f"@{annotation.name} of anything but constant numbers")
        return numbers

    def _named_number(self, text: str) -> int | None:
        name, dot, member = text.partition(".")
        for decl in self.program_decls:
            if decl.name != name:
                continue
            if dot and isinstance(decl, ast.EnumDecl) and isinstance(decl.type, t.SerEnumType):
                return decl.type.values.get(member)
            if not dot and isinstance(decl, ast.ConstDecl) and isinstance(decl.const, int):
                return decl.const
        literal = re.fullmatch(r"(?:\d+[ws])?(0[xXbBoO])?([0-9a-fA-F_]+)", text)
        if literal is None:
            return None
        base = {"0x": 16, "0b": 2, "0o": 8}.get((literal[1] or "").lower(), 10)
        try:
            return int(literal[2].replace("_", ""), base)
        except ValueError:
            return None

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
        if isinstance(key, ast.Range):
            return EntryKey("range", self._key_number(key.lo, width), self._key_number(key.hi, width), width)
        number = self._key_number(key, width)
        return EntryKey("range", number, number, width)

    def _key_number(self, expr: ast.Expr, width: int) -> int:
        value = self.eval(expr)
        if isinstance(value, Boolean):
            value = Data(arith.to_data(value.expr), 1)
        number = as_const(value)
        if number is None:
            raise unsupported(expr.pos, "a key of an entry that is not constant")
        return number & arith.mask(width)

    program_decls: list[ast.Declaration]
