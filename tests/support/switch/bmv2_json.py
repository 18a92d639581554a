"""Small BMv2 JSON documents for tests, written tersely."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

Json = dict[str, Any]

STANDARD = [
    ("ingress_port", 9),
    ("egress_spec", 9),
    ("egress_port", 9),
    ("instance_type", 32),
    ("packet_length", 32),
    ("enq_timestamp", 32),
    ("enq_qdepth", 19),
    ("deq_timedelta", 32),
    ("deq_qdepth", 19),
    ("ingress_global_timestamp", 48),
    ("egress_global_timestamp", 48),
    ("mcast_grp", 16),
    ("egress_rid", 16),
    ("checksum_error", 1),
    ("parser_error", 32),
    ("priority", 3),
    ("_padding", 3),
]
ERRORS = (
    "NoError",
    "PacketTooShort",
    "NoMatch",
    "StackOutOfBounds",
    "HeaderTooShort",
    "ParserTimeout",
    "ParserInvalidArgument",
    "MyError",
)


def fld(header: str, name: str) -> Json:
    return {"type": "field", "value": [header, name]}


def num(value: int) -> Json:
    return {"type": "hexstr", "value": f"-0x{-value:x}" if value < 0 else f"0x{value:x}"}


def param(index: int) -> Json:
    return {"type": "runtime_data", "value": index}


def hdr(name: str) -> Json:
    return {"type": "header", "value": name}


def stack(name: str) -> Json:
    return {"type": "header_stack", "value": name}


def expr(op: str, left: Json | None, right: Any, cond: Json | None = None) -> Json:
    body: Json = {"op": op, "left": left, "right": right}
    if cond is not None:
        body["cond"] = cond
    return {"type": "expression", "value": body}


def prim(op: str, *parameters: Any) -> Json:
    return {"op": op, "parameters": list(parameters)}


def assign(target: Json, value: Json) -> Json:
    return prim("assign", target, value)


def extract(name: str, kind: str = "regular") -> Json:
    return prim("extract", {"type": kind, "value": name})


class Doc:
    """A program under construction; `json()` is the document."""

    def __init__(self) -> None:
        self.types: list[Json] = []
        self.headers: list[Json] = []
        self.stacks: list[Json] = []
        self.unions: list[Json] = []
        self.union_types: list[Json] = []
        self.union_stacks: list[Json] = []
        self.states: list[Json] = []
        self.order: list[str] = []
        self.actions: list[Json] = []
        self.pipelines: dict[str, Json] = {}
        self.extra: Json = {}
        self.init_state: str | None = None
        for i, name in enumerate(("ingress", "egress")):
            self.pipelines[name] = {
                "name": name,
                "id": i,
                "init_table": None,
                "tables": [],
                "action_profiles": [],
                "conditionals": [],
            }
        self.meta("standard_metadata", STANDARD)

    # --- headers ---
    def type(self, name: str, fields: Sequence[Sequence[Any]], max_length: int | None = None) -> str:
        made: Json = {"name": name, "id": len(self.types), "fields": [list(f) for f in fields]}
        if max_length is not None:
            made["max_length"] = max_length
        self.types.append(made)
        return name

    def _instance(self, name: str, type_: str, metadata: bool) -> int:
        id_ = len(self.headers)
        self.headers.append({"name": name, "id": id_, "header_type": type_, "metadata": metadata})
        return id_

    def meta(self, name: str, fields: Sequence[Sequence[Any]]) -> None:
        self._instance(name, self.type(f"{name}_t", fields), True)

    def header(self, name: str, fields: Sequence[Sequence[Any]] | str, *, max_length: int | None = None) -> None:
        """Add a header of a new type with these fields, or of the named type; deparsed in order of declaration."""
        type_ = fields if isinstance(fields, str) else self.type(f"{name}_t", fields, max_length)
        self._instance(name, type_, False)
        self.order.append(name)

    def stack(self, name: str, fields: Sequence[Sequence[Any]], size: int) -> None:
        type_ = self.type(f"{name}_t", fields)
        ids = [self._instance(f"{name}[{i}]", type_, False) for i in range(size)]
        self.order += [f"{name}[{i}]" for i in range(size)]
        self.stacks.append({"name": name, "id": len(self.stacks), "header_type": type_, "header_ids": ids})

    def union(self, name: str, members: dict[str, Sequence[Sequence[Any]]]) -> None:
        ids, listed = [], []
        for member, fields in members.items():
            type_ = self.type(f"{name}_{member}_t", fields)
            listed.append([member, type_])
            ids.append(self._instance(f"{name}.{member}", type_, False))
            self.order.append(f"{name}.{member}")
        self.union_types.append({"name": f"{name}_t", "id": len(self.union_types), "headers": listed})
        self.unions.append({"name": name, "id": len(self.unions), "union_type": f"{name}_t", "header_ids": ids})

    def union_stack(self, name: str, members: dict[str, Sequence[Sequence[Any]]], size: int) -> None:
        listed = [[member, self.type(f"{name}_{member}_t", fields)] for member, fields in members.items()]
        self.union_types.append({"name": f"{name}_t", "id": len(self.union_types), "headers": listed})
        unions = []
        for i in range(size):
            ids = [self._instance(f"{name}[{i}].{member}", type_, False) for member, type_ in listed]
            self.order += [f"{name}[{i}].{member}" for member, _ in listed]
            unions.append(len(self.unions))
            self.unions.append(
                {"name": f"{name}[{i}]", "id": len(self.unions), "union_type": f"{name}_t", "header_ids": ids}
            )
        self.union_stacks.append(
            {
                "name": name,
                "id": len(self.union_stacks),
                "union_type": f"{name}_t",
                "header_union_ids": unions,
            }
        )

    # --- parser ---
    def state(
        self,
        name: str,
        ops: Sequence[Json] = (),
        key: Sequence[Json] = (),
        transitions: Sequence[Sequence[Any]] = (),
        following: str | None = None,
    ) -> None:
        """Add a parser state; transitions are (value, next) or (value, mask, next) as hexstr; `following` the
        default.
        """
        rows = []
        for row in transitions:
            value, mask, target = row if len(row) == 3 else (row[0], None, row[1])
            rows.append({"type": "hexstr", "value": value, "mask": mask, "next_state": target})
        rows.append({"type": "default", "value": None, "mask": None, "next_state": following})
        self.states.append(
            {
                "name": name,
                "id": len(self.states),
                "parser_ops": list(ops),
                "transition_key": list(key),
                "transitions": rows,
            }
        )
        self.init_state = self.init_state or name

    # --- pipelines ---
    def action(self, name: str, params: Sequence[tuple[str, int]], *primitives: Json) -> int:
        id_ = len(self.actions)
        data = [{"name": n, "bitwidth": w} for n, w in params]
        self.actions.append({"name": name, "id": id_, "runtime_data": data, "primitives": list(primitives)})
        return id_

    def run(self, *primitives: Json, pipeline: str = "ingress", following: str | None = None) -> str:
        """Return a table without key that runs primitives; it comes last in the pipeline unless `following` is
        given.
        """
        name = f"run_{len(self.actions)}"
        action = self.action(name, [], *primitives)
        return self.table(f"tbl_{name}", [], [action], default=(action, []), pipeline=pipeline, following=following)

    def table(  # noqa: PLR0913 - the keys of a table in BMv2 JSON
        self,
        name: str,
        keys: Sequence[tuple[str, str, str]],
        actions: Sequence[int],
        *,
        default: tuple[int, list[int]] | None = None,
        pipeline: str = "ingress",
        following: str | None = None,
        next_tables: dict[str, str | None] | None = None,
        kind: str | None = None,
        size: int = 1024,
        masks: dict[str, str] | None = None,
        **more: Any,
    ) -> str:
        """Return a table on (match type, header, field) keys; tables are chained in the order they are made."""
        names = [self.actions[a]["name"] for a in actions]
        matches = [k[0] for k in keys]
        ranked = next((m for m in ("range", "ternary", "lpm") if m in matches), "exact")
        made: Json = {
            "name": name,
            "id": sum(len(p["tables"]) for p in self.pipelines.values()),
            "key": [
                {
                    "match_type": m,
                    "name": f"{h}.{n}",
                    "target": [h, n],
                    "mask": (masks or {}).get(n),
                }
                for m, h, n in keys
            ],
            "match_type": kind or ("ternary" if "optional" in matches and ranked == "exact" else ranked),
            "type": "simple",
            "max_size": size,
            "with_counters": False,
            "support_timeout": False,
            "direct_meters": None,
            "action_ids": list(actions),
            "actions": names,
            "base_default_next": following,
            "next_tables": next_tables or dict.fromkeys(names, following),
        }
        if default is not None:
            made["default_entry"] = {
                "action_id": default[0],
                "action_const": False,
                "action_data": [f"0x{v:x}" for v in default[1]],
                "action_entry_const": False,
            }
        made.update(more)
        tables = self.pipelines[pipeline]["tables"]
        if tables and following is None and next_tables is None:
            previous = tables[-1]
            if previous["base_default_next"] is None and previous.get("chained", True):
                previous["base_default_next"] = name
                previous["next_tables"] = {k: name if v is None else v for k, v in previous["next_tables"].items()}
        if self.pipelines[pipeline]["init_table"] is None:
            self.pipelines[pipeline]["init_table"] = name
        tables.append(made)
        return name

    def json(self) -> Json:
        aliases = [
            [f"queueing_metadata.{n}", ["standard_metadata", n]]
            for n in ("enq_timestamp", "enq_qdepth", "deq_timedelta", "deq_qdepth")
        ] + [
            [f"intrinsic_metadata.{n}", ["standard_metadata", n]]
            for n in (
                "ingress_global_timestamp",
                "egress_global_timestamp",
                "mcast_grp",
                "egress_rid",
                "priority",
            )
        ]
        base: Json = {
            "__meta__": {"version": [2, 23], "compiler": "tests"},
            "header_types": self.types,
            "headers": self.headers,
            "header_stacks": self.stacks,
            "header_union_types": self.union_types,
            "header_unions": self.unions,
            "header_union_stacks": self.union_stacks,
            "field_lists": [],
            "errors": [[name, i] for i, name in enumerate(ERRORS)],
            "enums": [],
            "parsers": [{"name": "parser", "id": 0, "init_state": self.init_state, "parse_states": self.states}],
            "parse_vsets": [],
            "deparsers": [{"name": "deparser", "id": 0, "order": self.order, "primitives": []}],
            "meter_arrays": [],
            "counter_arrays": [],
            "register_arrays": [],
            "calculations": [],
            "learn_lists": [],
            "actions": self.actions,
            "pipelines": list(self.pipelines.values()),
            "checksums": [],
            "force_arith": [],
            "extern_instances": [],
            "field_aliases": aliases,
        }
        return {**base, **self.extra}
