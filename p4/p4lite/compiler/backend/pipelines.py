"""The pipelines section: tables, conditionals, and hidden tables for statements between them."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import PurePath

from p4lite.compiler.backend.expressions import Json, expression, hexstr, source_info
from p4lite.compiler.midend import lir
from p4lite.compiler.midend.lir import (
    BasicBlock,
    EntryKey,
    InitialEntry,
    LoweredAction,
    LoweredPipeline,
    LoweredTable,
    reachable,
)

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
