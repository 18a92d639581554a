"""Tables of the interpreter of syntax trees: keys, constant entries, entries of the control plane, action profiles."""

from __future__ import annotations

from dataclasses import dataclass

from p4lite.compiler import ast
from p4lite.compiler import types as ty
from p4lite.compiler.types import Type
from support.p4.ast_machine import Machine
from support.p4.ast_values import Held, Undefined, Unset, packed, unpacked
from support.p4.bmv2_hash import hashed
from support.p4.control_plane import ControlItem, Member, MemberGroup, RuntimeEntry


@dataclass
class Buckets:
    """A two-rate three-colour marker (RFC 2698, colour-blind) while no time passes, so that no token arrives."""

    committed: int
    peak: int

    def colour(self, amount: int) -> int:
        """Take tokens; return 0 for green, 1 for yellow, 2 for red."""
        if self.peak < amount:
            return 2
        self.peak -= amount
        if self.committed < amount:
            return 1
        self.committed -= amount
        return 0


class Tables(Machine):
    """A machine with tables; `items` are what the control plane does."""

    def __init__(self, items: list[ControlItem]) -> None:
        super().__init__()
        self.entries: dict[str, list[RuntimeEntry]] = {}
        self.members: dict[tuple[str, int], Member] = {}
        self.groups: dict[tuple[str, int], MemberGroup] = {}
        for item in items:
            if isinstance(item, RuntimeEntry):
                self.entries.setdefault(item.table, []).append(item)
            elif isinstance(item, Member):
                self.members[item.profile, item.number] = item
            elif isinstance(item, MemberGroup):
                self.groups[item.profile, item.number] = item
        self.buckets = {e: Buckets(*e.bursts) for entries in self.entries.values() for e in entries if e.bursts}
        self.colour: int | None = None
        """Of the direct meter whose table's entry is executed."""

    def apply_table(self, e: ast.Call) -> tuple[bool, ast.ActionDecl | None]:
        table = e.target
        assert isinstance(table, ast.TableDecl)
        values = [self.value(k.expr) for k in table.keys or []]
        if any(isinstance(v, Unset) for v in values):
            raise Undefined("an undefined key")
        found = self._const_entry(table, values) if table.entries is not None else None
        if found is not None:
            self._run(found, {})
            return True, found.decl
        entry = self._entry(table, values)
        if entry is not None:
            does = self._chosen(table, entry, values)
            ref = next(r for r in table.actions or [] if r.decl is not None and r.decl.name == does.action)
            assert ref.decl is not None
            params = [p for p in ref.decl.params if not p.direction]
            data = {p.name: unpacked(d, p.type or ty.UNKNOWN) for p, d in zip(params, does.data, strict=True)}
            if table.property("meters") is not None:
                self.colour = self.buckets[entry].colour(1) if entry in self.buckets else 0
            try:
                self._run(ref, data)
            finally:
                self.colour = None
            return True, ref.decl
        default = table.default_action
        if default is not None:
            self._run(default, {})
        return False, default.decl if default is not None else None

    def _run(self, ref: ast.ActionRef, data: dict[str, Held]) -> None:
        assert ref.decl is not None
        self.invoke(ref.decl, ref.args or [], lambda action: self.stmt(action.body), data)

    def _chosen(self, table: ast.TableDecl, entry: RuntimeEntry, values: list[Held]) -> RuntimeEntry | Member:
        """Return what has the action of an entry: itself, or a member of the table's action profile."""
        if entry.member < 0 and entry.group < 0:
            return entry
        used = table.property("implementation")
        assert used is not None
        assert isinstance(used.value, ast.Name)
        assert isinstance(used.value.decl, ast.Instantiation)
        profile, instance = used.value.name, used.value.decl.instance
        if entry.member >= 0:
            return self.members[profile, entry.member]
        assert instance is not None
        algorithm = instance.args["algorithm"]
        assert isinstance(algorithm, ast.EnumValue)
        keys = [(v, k.expr) for v, k in zip(values, table.keys or [], strict=True) if k.match_kind.name == "selector"]
        chosen = hashed(algorithm.member, [packed(v, e.type or ty.UNKNOWN) for v, e in keys])
        # BMv2 takes the member at this place in the order of their handles.
        members = sorted(self.groups[profile, entry.group].members)
        return self.members[profile, members[chosen % len(members)]]

    def _const_entry(self, table: ast.TableDecl, values: list[Held]) -> ast.ActionRef | None:
        best: tuple[int, ast.ActionRef] | None = None
        for number, entry in enumerate(table.entries or []):
            keys = entry.keys
            if len(keys) == 1 and isinstance(keys[0], ast.DontCare):
                keys = keys * len(values)
            pairs = zip(keys, values, table.keys or [], strict=True)
            if not all(self.matches(k, v, element.expr.type) for k, v, element in pairs):
                continue
            rank = number
            for key, element in zip(keys, table.keys or [], strict=True):
                if element.match_kind.name == "lpm" and self._by_prefix(table):
                    mask = key.mask.const if isinstance(key, ast.Mask) else 0 if isinstance(key, ast.DontCare) else -1
                    assert isinstance(mask, int)
                    rank = -(mask % (1 << 200)).bit_count()
            if best is None or rank < best[0]:
                best = (rank, entry.action)
        return None if best is None else best[1]

    @staticmethod
    def _by_prefix(table: ast.TableDecl) -> bool:
        kinds = {k.match_kind.name for k in table.keys or []}
        return "lpm" in kinds and not kinds & {"ternary", "range", "optional"}

    def _entry(self, table: ast.TableDecl, values: list[Held]) -> RuntimeEntry | None:
        best: tuple[int, RuntimeEntry] | None = None
        matched = [(k, v) for k, v in zip(table.keys or [], values, strict=True) if k.match_kind.name != "selector"]
        elements = [k for k, _ in matched]
        numbers = [packed(v, k.expr.type or ty.UNKNOWN) for k, v in matched]
        for entry in self.entries.get(table.name, []):
            prefix = 0
            for (value, width), element, (first, second) in zip(numbers, elements, entry.keys, strict=True):
                kind = element.match_kind.name
                if kind == "exact":
                    hit = value == first
                elif kind == "lpm":
                    hit, prefix = value >> (width - second) == first >> (width - second), second
                elif kind == "range":
                    hit = first <= value <= second
                else:
                    hit = value & second == first & second
                if not hit:
                    break
            else:
                rank = -prefix if self._by_prefix(table) else entry.priority
                if best is None or rank < best[0]:
                    best = (rank, entry)
        return None if best is None else best[1]

    def matches(self, key: ast.Expr, value: Held, t: Type | None) -> bool:
        """Return whether a value is in the set of a keyset expression."""
        if isinstance(key, ast.DontCare | ast.DefaultExpr):
            return True
        if isinstance(value, Unset):
            raise Undefined("an undefined key")
        if isinstance(key, ast.Mask):
            mask = self.number(key.mask)
            return self._int(value) & mask == self.number(key.value) & mask
        if isinstance(key, ast.RangeExpr):
            return self.number(key.lo) <= self._int(value) <= self.number(key.hi)
        return self.value(key) == value
