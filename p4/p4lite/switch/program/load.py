"""From BMv2 JSON to `Program`: reads it, generates its C (which checks every reference), and lists what it contains."""

from __future__ import annotations

from typing import Any

from p4lite.switch.bmv2.model import Action, Model, load_model
from p4lite.switch.codegen.generate import Generator
from p4lite.switch.codegen.pipelines import Table
from p4lite.switch.program.facts import (
    ActionCall,
    ActionInfo,
    ActionProfileInfo,
    ArrayInfo,
    DigestInfo,
    Field,
    HeaderInfo,
    KeyInfo,
    MeterInfo,
    ParamInfo,
    Program,
    TableInfo,
    ValueSetInfo,
)


def validate(data: dict[str, Any], *, source: str, name: str) -> Program:
    """Raises ProgramError with the place of the first fault."""
    model = load_model(data, source)
    generator = Generator(model, name)
    actions = {a.id: _action(a) for a in model.actions.values()}
    tables = {t.name: _table(t, actions) for t in generator.pipelines.tables.values()}
    counters = {
        c.name: ArrayInfo(c.name, c.id, c.size, table=c.table if c.direct else None) for c in model.counters.values()
    }
    return Program(
        name=name,
        source=source,
        json=data,
        tables=tables,
        actions=tuple(actions.values()),
        action_profiles={
            p.name: ActionProfileInfo(
                p.name,
                p.id,
                p.max_size,
                p.selector is not None,
                tuple(p.tables),
                {n: actions[a.id] for n, a in p.actions.items()},
            )
            for p in generator.pipelines.profiles.values()
        },
        counters=counters,
        meters={
            m.name: MeterInfo(m.name, m.id, m.size, m.unit, m.rates, m.table if m.direct else None)
            for m in model.meters.values()
        },
        registers={r.name: ArrayInfo(r.name, r.id, r.size, r.width) for r in model.registers.values()},
        value_sets={
            n: ValueSetInfo(
                n,
                v["id"].int(),
                v["compressed_bitwidth"].int(),
                generator.vset_widths(n),
                generator.vset_size(n),
            )
            for n, v in model.vsets.items()
        },
        digests=_digests(model),
        headers={
            h.name: HeaderInfo(
                h.name,
                h.id,
                h.type.name,
                h.metadata,
                tuple(Field(h.name, f.name, f.width, f.signed) for f in h.type.fields),
            )
            for h in model.headers.values()
        },
        errors=dict(model.errors),
        field_lists=_field_lists(model),
        generator=generator,
    )


def _action(action: Action) -> ActionInfo:
    return ActionInfo(action.name, action.id, tuple(ParamInfo(n, w) for n, w in action.params))


def _table(t: Table, actions: dict[int, ActionInfo]) -> TableInfo:
    default = t.node.get("default_entry")
    call = None
    if default is not None:
        action = actions[default["action_id"].int()]
        args = tuple(
            d.hex() & ((1 << p.width) - 1) for d, p in zip(default["action_data"].items(), action.params, strict=True)
        )
        call = ActionCall(action.name, args)
    return TableInfo(
        name=t.name,
        id=t.id,
        pipeline=t.pipeline,
        kind=t.kind,
        type=t.type,
        key=tuple(
            KeyInfo(k.name, k.match, k.width, Field(k.header.name, k.field.name, k.field.width), k.mask) for k in t.keys
        ),
        actions={n: actions[a.id] for n, a in t.actions.items()},
        max_size=t.max_size,
        with_counters=t.counters,
        direct_meter=t.meter.name if t.meter else None,
        support_timeout=t.timeout,
        action_profile=t.profile.name if t.profile else None,
        const_entries=t.node.get("entries") is not None,
        const_default=t.const_default,
        default_entry=call,
    )


def _digests(model: Model) -> dict[str, DigestInfo]:
    out = {}
    for node in model.root.items("learn_lists"):
        widths = tuple(model.field_ref(e["value"]).field.width for e in node["elements"].items())
        out[node["name"].str()] = DigestInfo(node["name"].str(), node["id"].int(), widths)
    return out


def _field_lists(model: Model) -> dict[int, tuple[Field, ...]]:
    out = {}
    for node in model.root.items("field_lists"):
        refs = [model.field_ref(e["value"]) for e in node["elements"].items() if e["type"].value == "field"]
        out[node["id"].int()] = tuple(Field(r.header.name, r.field.name, r.field.width) for r in refs)
    return out
