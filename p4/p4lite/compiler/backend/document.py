"""The document: all sections in the order in which p4c writes them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from p4lite.compiler.backend.pipelines import Ids, Json, PipelineWriter, argument, expression, hexstr, source_info
from p4lite.compiler.diagnostics import Unsupported
from p4lite.compiler.midend import arith, lir
from p4lite.compiler.midend.lir import (
    BasicBlock,
    Const,
    Field,
    LOp,
    LoweredAction,
    LoweredAssign,
    LoweredProgram,
    LoweredSelect,
    LoweredSelectCase,
    Prim,
)
from p4lite.compiler.midend.names import UniqueNames
from p4lite.compiler.position import Pos


def primitive(op: LOp) -> Json:
    """Return one primitive call."""
    if isinstance(op, LoweredAssign):
        return {
            "op": "assign",
            "parameters": [argument(op.target), argument(op.value)],
            **source_info(op.loc),
        }
    if isinstance(op, Prim):
        return {"op": op.op, "parameters": [argument(a) for a in op.args], **source_info(op.loc)}
    raise TypeError(f"{type(op).__name__} in an action")


def _order(entry: BasicBlock) -> list[BasicBlock]:
    """Return blocks in an order that lets most jumps fall through: reverse postorder, true side first."""
    order: list[BasicBlock] = []
    seen: set[int] = set()
    stack: list[tuple[BasicBlock, list[BasicBlock]]] = []

    def enter(block: BasicBlock) -> None:
        seen.add(id(block))
        # The side visited last comes first in reverse postorder.
        stack.append((block, list(reversed(lir.successors(block.term)))))

    enter(entry)
    while stack:
        block, rest = stack[-1]
        while rest and id(rest[0]) in seen:
            rest.pop(0)
        if rest:
            enter(rest.pop(0))
        else:
            order.append(block)
            stack.pop()
    order.reverse()
    return order


def linearise(entry: BasicBlock) -> list[Json]:
    """Return the primitives of an action's graph."""
    order = _order(entry)
    following = {id(b): order[i + 1] if i + 1 < len(order) else None for i, b in enumerate(order)}
    out: list[Json] = []
    starts: dict[int, int] = {}
    patches: list[tuple[int, BasicBlock | None]] = []

    def jump(op: str, arguments: list[Any], to: BasicBlock | None) -> None:
        patches.append((len(out), to))
        out.append({"op": op, "parameters": arguments})

    for block in order:
        starts[id(block)] = len(out)
        out.extend(primitive(op) for op in block.ops)
        term = block.term
        after = following[id(block)]
        if isinstance(term, lir.Jump):
            if term.to is not after:
                jump("_jump", [], term.to)
        elif isinstance(term, lir.Branch):
            jump("_jump_if_zero", [argument(arith.to_data(term.cond))], term.other)
            if term.then is not after:
                jump("_jump", [], term.then)
        elif after is not None:
            jump("_jump", [], None)
    for at, to in patches:
        target = len(out) if to is None else starts[id(to)]
        out[at]["parameters"].append({"type": "hexstr", "value": hexstr(target)})
    return out


def action_json(action: LoweredAction, number: int) -> Json:
    """Return one item of `actions`."""
    return {
        "name": action.name,
        "id": number,
        "runtime_data": [{"name": name, "bitwidth": width} for name, width in action.params],
        "primitives": linearise(action.body),
    }


def _operation(op: LOp) -> Json:
    return {**_placeless(op), **source_info(op.loc)}


def _placeless(op: LOp) -> Json:
    if isinstance(op, lir.Extract):
        target = list(op.target) if isinstance(op.target, tuple) else op.target
        parameters: list[Json] = [{"type": op.kind, "value": target}]
        if op.length is None:
            return {"op": "extract", "parameters": parameters}
        parameters.append({"type": "expression", "value": expression(op.length)})
        return {"op": "extract_VL", "parameters": parameters}
    if isinstance(op, lir.Advance):
        return {"op": "advance", "parameters": [argument(op.bits)]}
    if isinstance(op, lir.Verify):
        return {"op": "verify", "parameters": [expression(op.cond), expression(op.error)]}
    if isinstance(op, LoweredAssign) and isinstance(op.target, Field):
        value = op.value
        if isinstance(value, lir.Lookahead):
            source: Json = {"type": "lookahead", "value": [value.offset, value.width]}
        else:
            source = argument(value)
        return {"op": "set", "parameters": [expression(op.target), source]}
    return {"op": "primitive", "parameters": [primitive(op)]}


def _concatenate(parts: list[tuple[int, int]]) -> str:
    """Return values of the given widths, each padded to bytes, one after the other."""
    return "0x" + "".join(hexstr(value, width)[2:] for value, width in parts)


def _transition(case: LoweredSelectCase, keys: list[Field | lir.LastField], names: dict[int, str | None]) -> Json:
    return {**_case(case, keys, names), **source_info(case.loc)}


def _case(case: LoweredSelectCase, keys: list[Field | lir.LastField], names: dict[int, str | None]) -> Json:
    to = None if case.to is None else names[id(case.to)]
    if case.vset is not None:
        return {"type": "parse_vset", "value": case.vset, "mask": None, "next_state": to}
    masks = [0 if m == 0 else m for _, m in case.keys]
    if not case.keys or all(m == 0 for m in masks):
        return {"type": "default", "value": None, "mask": None, "next_state": to}
    widths = [k.width for k in keys]
    value = _concatenate([(v, w) for (v, _), w in zip(case.keys, widths, strict=True)])
    if all(m is None for m in masks):
        return {"type": "hexstr", "value": value, "mask": None, "next_state": to}
    full = [(arith.mask(w) if m is None else m, w) for m, w in zip(masks, widths, strict=True)]
    return {"type": "hexstr", "value": value, "mask": _concatenate(full), "next_state": to}


def _is_accept(block: BasicBlock) -> bool:
    return not block.ops and isinstance(block.term, lir.End) and block.name is None


def parser_json(parser: lir.LoweredParser, number: int) -> Json:
    """Return one item of `parsers`."""
    first = parser.entry
    while not first.ops and isinstance(first.term, lir.Jump) and first.name is None:
        first = first.term.to
    blocks = [b for b in lir.reachable(first) if b is first or not _is_accept(b)]
    names: dict[int, str | None] = {id(b): None for b in lir.reachable(first)}
    named = {b.name for b in blocks if b.name}
    unique = UniqueNames(*named)
    for block in blocks:
        hint = "start" if "start" not in named and block is first else "state"
        names[id(block)] = block.name or unique.take(hint)
    states = [_state(block, number, names) for number, block in enumerate(blocks)]
    return {"name": parser.name, "id": number, "init_state": names[id(first)], "parse_states": states}


def _state(block: BasicBlock, number: int, names: dict[int, str | None]) -> Json:
    term = block.term
    transitions: list[Json]
    keys: list[Json] = []
    if isinstance(term, LoweredSelect):
        transitions = [_transition(c, list(term.keys), names) for c in term.cases]
        keys = [expression(k) for k in term.keys]
    else:
        to = names[id(term.to)] if isinstance(term, lir.Jump) else None
        transitions = [{"type": "default", "value": None, "mask": None, "next_state": to}]
    return {
        "name": names[id(block)],
        "id": number,
        **source_info(block.loc),
        "parser_ops": [_operation(op) for op in block.ops],
        "transitions": transitions,
        "transition_key": keys,
    }


__all__ = ["Const", "parser_json"]


VERSION = [2, 23]
COMPILER = "p4lite"


def write(program: LoweredProgram) -> Json:
    """Return the BMv2 JSON of a lowered program."""
    ids = Ids()
    ids.taken.update(a.name for a in program.actions)
    for pipeline in program.pipelines:
        for block in lir.reachable(pipeline.entry):
            if isinstance(block.term, lir.ApplyTable):
                ids.taken.add(block.term.table.name)
    for action in program.actions:
        ids.actions[id(action)] = len(ids.actions)
    pipelines = [PipelineWriter(p, n, ids).json() for n, p in enumerate(program.pipelines)]
    actions = [action_json(a, ids.actions[id(a)]) for a in (*program.actions, *ids.hidden)]
    headers = _Headers(program)
    return {
        "header_types": headers.types(),
        "headers": headers.instances(),
        "header_stacks": headers.stacks(),
        "header_union_types": headers.union_types(),
        "header_unions": headers.unions(),
        "header_union_stacks": headers.union_stacks(),
        "field_lists": [_field_list(f) for f in program.field_lists],
        "errors": [[name, code] for name, code in program.errors],
        "enums": [
            {"name": name, "entries": [[member, value] for member, value in members]} for name, members in program.enums
        ],
        "parsers": [parser_json(p, n) for n, p in enumerate(program.parsers)],
        "parse_vsets": [
            {"name": v.name, "id": n, "compressed_bitwidth": v.width, "max_size": v.size}
            for n, v in enumerate(program.value_sets)
        ],
        "deparsers": [
            {
                "name": d.name,
                "id": n,
                **source_info(d.loc),
                "order": d.order,
                "primitives": linearise(d.body),
            }
            for n, d in enumerate(program.deparsers)
        ],
        "meter_arrays": [_meter(m, n) for n, m in enumerate(program.meters)],
        "counter_arrays": [_counter(c, n) for n, c in enumerate(program.counters)],
        "register_arrays": [
            {"name": r.name, "id": n, **source_info(r.loc), "size": r.size, "bitwidth": r.width}
            | ({"initial_value": hexstr(r.initial, r.width)} if r.initial else {})
            for n, r in enumerate(program.registers)
        ],
        "calculations": [_calculation(c, n) for n, c in enumerate(program.calculations)],
        "learn_lists": [_field_list(f) for f in program.learn_lists],
        "actions": actions,
        "pipelines": pipelines,
        "checksums": [_checksum(c, n) for n, c in enumerate(program.checksums)],
        "force_arith": [],
        "extern_instances": [_extern(e, n) for n, e in enumerate(program.externs)],
        "field_aliases": [[alias, [t.name, name]] for t in program.header_types.values() for alias, name in t.aliases],
        "program": program.program,
        "__meta__": {"version": VERSION, "compiler": COMPILER},
    }


def _extern(extern: lir.ExternObject, number: int) -> Json:
    return {
        "name": extern.name,
        "id": number,
        "type": extern.kind,
        **source_info(extern.loc),
        "attribute_values": [{"name": name, **argument(value)} for name, value in extern.args],
    }


def _field(item: Field | Const) -> Json:
    if isinstance(item, Const):
        return {"type": "hexstr", "value": hexstr(item.value, item.width), "bitwidth": item.width}
    return expression(item)


def _field_list(listed: lir.FieldList) -> Json:
    return {
        "id": listed.id,
        "name": listed.name,
        **source_info(listed.loc),
        "elements": [_field(e) for e in listed.elements],
    }


def _meter(meter: lir.LoweredMeter, number: int) -> Json:
    out: Json = {
        "name": meter.name,
        "id": number,
        **source_info(meter.loc),
        "is_direct": meter.binding is not None,
        "size": meter.size,
        "rate_count": 2,
        "type": meter.kind,
    }
    if meter.binding is not None and meter.result is not None:
        out["binding"] = meter.binding
        out["result_target"] = [meter.result.header, meter.result.name]
    return out


def _counter(counter: lir.LoweredCounter, number: int) -> Json:
    out: Json = {"name": counter.name, "id": number, **source_info(counter.loc)}
    if counter.binding is None:
        return out | {"size": counter.size, "is_direct": False}
    return out | {"is_direct": True, "binding": counter.binding}


def _calculation(calculation: lir.Calculation, number: int) -> Json:
    inputs = [_field(i) for i in calculation.inputs]
    if calculation.payload:
        inputs.append({"type": "payload", "value": None})
    return {"name": calculation.name, "id": number, "algo": calculation.algo, "input": inputs}


def _checksum(checksum: lir.Checksum, number: int) -> Json:
    return {
        "name": checksum.name,
        "id": number,
        **source_info(checksum.loc),
        "target": [checksum.target.header, checksum.target.name],
        "type": "generic",
        "calculation": checksum.calculation,
        "verify": checksum.verify,
        "update": not checksum.verify,
        "if_cond": expression(checksum.cond),
    }


class _Headers:
    """Header types and instances; instances are numbered in order of declaration."""

    def __init__(self, program: LoweredProgram) -> None:
        self.program = program
        self.ids = {name: n for n, name in enumerate(program.headers)}
        self.union_ids = {name: n for n, name in enumerate(program.unions)}

    def types(self) -> list[Json]:
        out: list[Json] = []
        for number, made in enumerate(self.program.header_types.values()):
            fields: list[list[Any]] = [[f.name, "*"] if f.varbit else [f.name, f.width, f.signed] for f in made.fields]
            bits = sum(f.width for f in made.fields if not f.varbit)
            if bits % 8:
                fields.append(["_padding", 8 - bits % 8, False])
            item: Json = {"name": made.name, "id": number, "fields": fields}
            if any(f.varbit for f in made.fields):
                item["max_length"] = (sum(f.width for f in made.fields) + 7) // 8
            out.append(item)
        return out

    def instances(self) -> list[Json]:
        return [
            {"name": h.name, "id": self.ids[h.name], "header_type": h.type, "metadata": h.metadata, "pi_omit": True}
            for h in self.program.headers.values()
        ]

    def stacks(self) -> list[Json]:
        return [
            {
                "name": s.name,
                "id": n,
                "header_type": s.type,
                "size": s.size,
                "header_ids": [self.ids[f"{s.name}[{i}]"] for i in range(s.size)],
            }
            for n, s in enumerate(self.program.stacks.values())
        ]

    def union_types(self) -> list[Json]:
        return [
            {"name": u.name, "id": n, "headers": [list(m) for m in u.members]}
            for n, u in enumerate(self.program.union_types.values())
        ]

    def unions(self) -> list[Json]:
        return [
            {
                "name": u.name,
                "id": self.union_ids[u.name],
                "union_type": u.type,
                "header_ids": [self.ids[f"{u.name}.{m}"] for m, _ in self.program.union_types[u.type].members],
                "pi_omit": True,
            }
            for u in self.program.unions.values()
        ]

    def union_stacks(self) -> list[Json]:
        return [
            {
                "name": s.name,
                "id": n,
                "union_type": s.type,
                "size": s.size,
                "header_union_ids": [self.union_ids[f"{s.name}[{i}]"] for i in range(s.size)],
            }
            for n, s in enumerate(self.program.union_stacks.values())
        ]


SECTIONS = (
    "header_types", "headers", "header_stacks", "header_union_types", "header_unions", "header_union_stacks",
    "field_lists", "parsers", "parse_vsets", "deparsers", "meter_arrays", "counter_arrays", "register_arrays",
    "calculations", "learn_lists", "pipelines", "checksums",
)  # fmt: skip


def groups(document: Json) -> Iterator[tuple[str, list[Json]]]:
    """Yield the name of each kind of object and its objects, which must differ in `id` and `name`."""
    for section in SECTIONS:
        yield section, document[section]
    for parser in document["parsers"]:
        yield "parse_states", parser["parse_states"]
    pipelines = document["pipelines"]
    for kind in ("tables", "conditionals", "action_profiles"):
        yield kind, [item for p in pipelines for item in p[kind]]


def check_unique(document: Json, pos: Pos) -> None:
    """Raise `Unsupported` at `pos` for the first identifier or name that two objects share.

    Actions may share a name, not an identifier: one that a table lists with arguments is there once for each table.
    """
    for kind, items in groups(document):
        _differ(kind, "name", [item["name"] for item in items], pos)
        _differ(kind, "id", [item["id"] for item in items], pos)
    for pipeline in document["pipelines"]:
        nodes = [item["name"] for kind in ("tables", "conditionals") for item in pipeline[kind]]
        _differ("tables and conditionals", "name", nodes, pos)
    _differ("actions", "id", [action["id"] for action in document["actions"]], pos)
    for made in document["header_types"]:
        _differ(f"fields of {made['name']}", "name", [f[0] for f in made["fields"]], pos)


def _differ(kind: str, key: str, values: list[object], pos: Pos) -> None:
    seen: set[object] = set()
    for value in values:
        if value in seen:
            raise Unsupported(pos, f"two {kind} of the program have the {key} {value!r}: rename one with @name")
        seen.add(value)
