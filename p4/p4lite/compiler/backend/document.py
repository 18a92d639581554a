"""The document: all sections in the order in which p4c writes them."""

from __future__ import annotations

from typing import Any

from p4lite.compiler.backend.actions import action_json, linearise
from p4lite.compiler.backend.expressions import Json, argument, expression, hexstr, source_info
from p4lite.compiler.backend.parser import parser_json
from p4lite.compiler.backend.pipelines import Ids, PipelineWriter
from p4lite.compiler.midend import lir
from p4lite.compiler.midend.lir import Const, Field, LoweredProgram

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
