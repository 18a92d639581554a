"""The pipelines section: tables, conditionals, and hidden tables for statements between them."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any

from p4lite.compiler.midend import lir
from p4lite.compiler.midend.lir import (
    Arg,
    BasicBlock,
    Const,
    EntryKey,
    Expr,
    Field,
    InitialEntry,
    LoweredAction,
    LoweredPipeline,
    LoweredTable,
    SourceInfo,
    reachable,
)

Json = dict[str, Any]


def hexstr(value: int, width: int = 0) -> str:
    """Return a number in hexadecimal, padded to the bytes of `width` bits; negative ones have a sign."""
    sign = "-" if value < 0 else ""
    digits = f"{abs(value):x}"
    return f"{sign}0x{digits.rjust((width + 7) // 8 * 2, '0')}"


def source_info(loc: SourceInfo | None) -> Json:
    """Return the `source_info` attribute, or nothing."""
    if loc is None:
        return {}
    info = {"filename": loc.filename, "line": loc.line, "column": loc.column, "source_fragment": loc.fragment}
    return {"source_info": info}


def _op(op: str, left: Json | None, right: Any, **more: Json) -> Json:
    return {"type": "expression", "value": {"op": op, "left": left, "right": right, **more}}


def _element(stack: str, index: Expr) -> Json:
    return _op("dereference_header_stack", {"type": "header_stack", "value": stack}, expression(index))


def expression(expr: Arg) -> Json:
    """Return an expression as it stands inside of another one."""
    if isinstance(expr, Const):
        return {"type": "hexstr", "value": hexstr(expr.value, expr.width)}
    if isinstance(expr, lir.Bool):
        return {"type": "bool", "value": expr.value}
    if isinstance(expr, Field):
        return {"type": "field", "value": [expr.header, expr.name]}
    if isinstance(expr, lir.RuntimeParam):
        return {"type": "local", "value": expr.index}
    if isinstance(expr, lir.Op):
        left = None if expr.left is None else expression(expr.left)
        return _op(expr.op, left, expression(expr.right))
    if isinstance(expr, lir.LoweredConditional):
        return _op("?", expression(expr.then), expression(expr.other), cond=expression(expr.cond))
    if isinstance(expr, lir.ElemField):
        return _op("access_field", _element(expr.stack, expr.index), expr.offset)
    if isinstance(expr, lir.LastField):
        return {"type": "stack_field", "value": [expr.stack, expr.name]}
    if isinstance(expr, lir.LastIndex):
        return _op("last_stack_index", None, {"type": "header_stack", "value": expr.stack})
    if isinstance(expr, lir.StackSize):
        return _op("size_stack", None, {"type": "header_stack", "value": expr.stack})
    if isinstance(expr, lir.Valid):
        return _valid(expr.target)
    if isinstance(expr, lir.SameHeader):
        return _op("==", expression(expr.left), expression(expr.right))
    if isinstance(expr, lir.ElemRef):
        return _element(expr.stack, expr.index)
    return reference(expr)


def _valid(target: lir.HeaderRef | lir.ElemRef | lir.UnionRef) -> Json:
    if isinstance(target, lir.HeaderRef):
        return _op("d2b", None, {"type": "field", "value": [target.name, "$valid$"]})
    if isinstance(target, lir.UnionRef):
        return _op("valid_union", None, reference(target))
    return _op("valid", None, _element(target.stack, target.index))


_REFERENCES = (
    (lir.HeaderRef, "header"),
    (lir.StackRef, "header_stack"),
    (lir.UnionRef, "header_union"),
    (lir.UnionStackRef, "header_union_stack"),
)


def reference(ref: Arg) -> Json:
    """Return a named object."""
    for kind, name in _REFERENCES:
        if isinstance(ref, kind):
            return {"type": name, "value": ref.name}
    if isinstance(ref, lir.ObjectRef):
        return {"type": ref.kind, "value": ref.name}
    raise TypeError(f"{type(ref).__name__} cannot be written as JSON here")


def argument(arg: Arg) -> Json:
    """Return an argument of a primitive; expressions are wrapped once more."""
    if isinstance(arg, lir.RuntimeParam):
        return {"type": "runtime_data", "value": arg.index}
    if isinstance(arg, lir.Text):
        return {"type": "string", "value": arg.value}
    if isinstance(arg, lir.Vector):
        return {"type": arg.kind, "value": [argument(item) for item in arg.items]}
    if isinstance(arg, (Const, Field)):
        return expression(arg)
    made = expression(arg)
    if made["type"] in ("expression", "stack_field", "bool"):
        return {"type": "expression", "value": made}
    return made


HIDDEN_TABLE_SIZE = 1024


@dataclass
class Ids:
    """Numbers and names that are unique in the whole document."""

    actions: dict[int, int] = field(default_factory=dict)
    hidden: list[LoweredAction] = field(default_factory=list)
    tables: int = 0
    conditionals: int = 0
    profiles: int = 0
    nodes: int = 0
    names: dict[str, int] = field(default_factory=dict)
    taken: set[str] = field(default_factory=set)

    def name(self, base: str) -> str:
        """Return `base`, `base_0`, `base_1`, ..."""
        n = self.names.get(base, -1)
        while True:
            name = base if n < 0 else f"{base}_{n}"
            n += 1
            if name not in self.taken:
                break
        self.names[base] = n
        self.taken.add(name)
        return name

    def add_hidden(self, body: BasicBlock, loc: lir.SourceInfo | None) -> LoweredAction:
        """Return a new action of the compiler's own."""
        action = LoweredAction(self.name(hidden_name(loc)), [], body, loc, hidden=True)
        self.actions[id(action)] = len(self.actions)
        self.hidden.append(action)
        return action


class PipelineWriter:
    """Writes one pipeline."""

    def __init__(self, pipeline: LoweredPipeline, number: int, ids: Ids) -> None:
        self.pipeline = pipeline
        self.number = number
        self.ids = ids
        self.blocks = list(reachable(pipeline.entry))
        self.entry_names: dict[int, str | None] = {}
        self.end_names: dict[int, str] = {}

    def json(self) -> Json:
        """Return the item of `pipelines`."""
        tables: list[Json] = []
        conditionals: list[Json] = []
        profiles: list[lir.ActionProfile] = []
        self._name_nodes()
        done: set[int] = set()
        for block in self.blocks:
            if block.ops:
                tables.append(self._hidden_table(block))
            term = block.term
            if isinstance(term, lir.Branch):
                conditionals.append(self._conditional(block, term))
            elif isinstance(term, lir.ApplyTable) and id(term.table) not in done:
                done.add(id(term.table))
                tables.append(self._table(term))
                profile = term.table.profile
                if profile is not None and profile not in profiles:
                    profiles.append(profile)
        return {
            "name": self.pipeline.name,
            "id": self.number,
            **source_info(self.pipeline.loc),
            "init_table": self._entry(self.pipeline.entry),
            "tables": tables,
            "action_profiles": [self._profile(p) for p in profiles],
            "conditionals": conditionals,
        }

    # --- names of nodes ---

    def _name_nodes(self) -> None:
        """Name the nodes of each block: a hidden table for its operations, then its condition or table."""
        for block in self.blocks:
            term = block.term
            if isinstance(term, lir.Branch):
                self.ids.nodes += 1
                self.end_names[id(block)] = self.ids.name(f"node_{self.ids.nodes}")
            elif isinstance(term, lir.ApplyTable):
                self.end_names[id(block)] = term.table.name
        for block in self.blocks:
            if block.ops:
                self.entry_names[id(block)] = self.ids.name("tbl_" + hidden_name(_location(block)))
            elif id(block) in self.end_names:
                self.entry_names[id(block)] = self.end_names[id(block)]

    def _entry(self, block: BasicBlock | None) -> str | None:
        """Return the name of the node that a block starts with; None for the end of the pipeline."""
        seen: set[int] = set()
        while block is not None and id(block) not in self.entry_names:
            if id(block) in seen or not isinstance(block.term, lir.Jump):
                return None
            seen.add(id(block))
            block = block.term.to
        return self.entry_names[id(block)] if block is not None else None

    # --- nodes ---

    def _hidden_table(self, block: BasicBlock) -> Json:
        loc = _location(block)
        action = self.ids.add_hidden(BasicBlock(block.ops, lir.End()), loc)
        if id(block) in self.end_names:
            following: str | None = self.end_names[id(block)]
        else:
            following = self._entry(block.term.to) if isinstance(block.term, lir.Jump) else None
        number = self.ids.actions[id(action)]
        self.ids.tables += 1
        name = self.entry_names[id(block)]
        return {
            "name": name,
            "id": self.ids.tables - 1,
            **source_info(loc),
            "key": [],
            "match_type": "exact",
            "type": "simple",
            "max_size": HIDDEN_TABLE_SIZE,
            "with_counters": False,
            "support_timeout": False,
            "direct_meters": None,
            "action_ids": [number],
            "actions": [action.name],
            "base_default_next": following,
            "next_tables": {action.name: following},
            "default_entry": {
                "action_id": number,
                "action_const": True,
                "action_data": [],
                "action_entry_const": True,
            },
        }

    def _conditional(self, block: BasicBlock, term: lir.Branch) -> Json:
        self.ids.conditionals += 1
        return {
            "name": self.end_names[id(block)],
            "id": self.ids.conditionals - 1,
            **source_info(term.loc),
            "expression": expression(term.cond),
            "true_next": self._entry(term.then),
            "false_next": self._entry(term.other),
        }

    def _table(self, term: lir.ApplyTable) -> Json:
        table = term.table
        self.ids.tables += 1
        out: Json = {
            "name": table.name,
            "id": self.ids.tables - 1,
            **source_info(table.loc),
            "key": [self._key(k) for k in table.keys],
            "match_type": _match_type(table),
        }
        if table.profile is None:
            out["type"] = "simple"
        else:
            out["type"] = "indirect" if table.profile.algo is None else "indirect_ws"
            out["action_profile"] = table.profile.name
        out |= {
            "max_size": table.size,
            "with_counters": table.with_counters,
            "support_timeout": table.support_timeout,
            "direct_meters": table.direct_meter,
            "action_ids": [self.ids.actions[id(a)] for a in table.actions],
            "actions": [a.name for a in table.actions],
        }
        if lir.HIT in term.targets or lir.MISS in term.targets:
            out["base_default_next"] = None
            out["next_tables"] = {
                label: self._entry(term.targets.get(label, term.default)) for label in (lir.HIT, lir.MISS)
            }
        else:
            out["base_default_next"] = self._entry(term.default)
            out["next_tables"] = {a.name: self._entry(term.targets.get(a.name, term.default)) for a in table.actions}
        if table.default is not None and table.profile is None:
            out["default_entry"] = {
                "action_id": self.ids.actions[id(table.default)],
                "action_const": table.default_const,
                "action_data": [
                    hexstr(v, w) for v, (_, w) in zip(table.default_args, table.default.params, strict=True)
                ],
                "action_entry_const": table.default_const,
            }
        if table.entries is not None:
            out["entries"] = [self._entry_json(e) for e in table.entries]
        return out

    def _key(self, key: lir.TableKey) -> Json:
        out: Json = {"match_type": key.match_type}
        if key.name is not None:
            out["name"] = key.name
        out["target"] = [key.target.header, key.target.name]
        out["mask"] = None if key.mask is None else hexstr(key.mask, key.target.width)
        return out

    def _entry_json(self, entry: InitialEntry) -> Json:
        args = [hexstr(v, w) for v, (_, w) in zip(entry.args, entry.action.params, strict=True)]
        return {
            **source_info(entry.loc),
            "match_key": [_entry_key(k) for k in entry.keys],
            "action_entry": {"action_id": self.ids.actions[id(entry.action)], "action_data": args},
            "priority": entry.priority,
        }

    def _profile(self, profile: lir.ActionProfile) -> Json:
        self.ids.profiles += 1
        out: Json = {
            "name": profile.name,
            "id": self.ids.profiles - 1,
            **source_info(profile.loc),
            "max_size": profile.size,
        }
        if profile.algo is not None:
            out["selector"] = {"algo": profile.algo, "input": [expression(f) for f in profile.inputs]}
        return out


def _location(block: BasicBlock) -> lir.SourceInfo | None:
    """Return where the first operation of a block that has a place comes from."""
    return next((op.loc for op in block.ops if isinstance(op, (lir.LoweredAssign, lir.Prim)) and op.loc), None)


def hidden_name(loc: lir.SourceInfo | None) -> str:
    """Return a name for statements in a control: the program's file and the line."""
    if loc is None:
        return "act"
    return re.sub(r"\W", "_", PurePath(loc.filename).stem) + str(loc.line)


def _match_type(table: LoweredTable) -> str:
    kinds = {k.match_type for k in table.keys}
    for kind in ("range", "ternary", "lpm"):
        if kind in kinds:
            return kind
    return "exact"


def _entry_key(key: EntryKey) -> Json:
    value = hexstr(key.value, key.width)
    if key.match_type == "exact":
        return {"match_type": "exact", "key": value}
    if key.match_type == "lpm":
        return {"match_type": "lpm", "key": value, "prefix_length": key.extra}
    if key.match_type == "ternary":
        return {"match_type": "ternary", "key": value, "mask": hexstr(key.extra, key.width)}
    return {"match_type": "range", "start": value, "end": hexstr(key.extra, key.width)}
