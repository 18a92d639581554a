"""From BMv2 JSON to `Facts`: everything a control plane can name, checked, with its place in the generated C.

What only the C needs (bodies of actions, parsers, edges of pipelines, const entries) is checked where the C is made.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from p4lite.recursion import deep_recursion
from p4lite.switch.bmv2.model import (
    MAX_FIELD_BITS,
    VALID_FIELD,
    Bmv2Architecture,
    FieldRef,
    Model,
    load_model,
    read_named,
)
from p4lite.switch.bmv2.reader import JsonNode
from p4lite.switch.errors import ProgramError
from p4lite.switch.program.entry import ActionCall
from p4lite.switch.program.facts import (
    ActionFacts,
    Array,
    Digest,
    Facts,
    KeyFacts,
    ParamFacts,
    Profile,
    TableFacts,
    ValueSetFacts,
)
from p4lite.switch.program.layout import arg_words, key_layout

KINDS = ("exact", "lpm", "ternary", "range")
MATCHES = {"exact", "lpm", "ternary", "range", "optional", "valid"}
MAX_KEY_BITS = 8192
METER_EXTERN = "Meter"
"""PSA's meter, which has no array of its own in the document."""
MAX_ARRAY = 1 << 26  # cells of a register, counter or meter array


def load_facts(data: dict[str, Any], *, source: str, name: str) -> Facts:
    """Return the declarations of a BMv2 JSON. Raises ProgramError with the place of the first fault."""
    try:
        with deep_recursion():
            return _load_facts(data, source, name)
    except RecursionError:
        raise ProgramError(f"{source}: nested too deeply") from None


def _load_facts(data: dict[str, Any], source: str, name: str) -> Facts:
    model = load_model(data, source)
    actions = _actions(model)
    tables = _Tables(model, actions)
    return Facts(
        name=name,
        model=model,
        pipelines=tables.pipelines,
        tables=tables.tables,
        actions=actions,
        action_profiles=tables.profiles(),
        counters=_counters(model),
        meters=tables.meters,
        registers=_registers(model),
        value_sets=_value_sets(model),
        learn_lists=_learn_lists(model),
        field_lists=_field_lists(model),
    )


def find_action(actions: dict[int, ActionFacts], node: JsonNode) -> ActionFacts:
    """Return the action whose id is in `node`."""
    action = actions.get(node.int())
    if action is None:
        node.fail(f"there is no action with id {node.value}")
    return action


def entry_action(
    node: JsonNode, actions: dict[int, ActionFacts], table: str, allowed: dict[str, ActionFacts]
) -> tuple[ActionFacts, ActionCall]:
    """Return the call of an entry of the JSON (`action_id`, `action_data`); only actions that the table lists are
    allowed."""
    action = find_action(actions, node["action_id"])
    if not any(action is other for other in allowed.values()):
        node["action_id"].fail(f"the table '{table}' does not list the action '{action.name}'")
    data = list(node["action_data"].items())
    if len(data) != len(action.params):
        node["action_data"].fail(f"the action '{action.name}' takes {len(action.params)} arguments, found {len(data)}")
    args = tuple(d.hex() & ((1 << width) - 1) for d, width in zip(data, action.widths, strict=True))
    return action, ActionCall(action.name, args)


def _actions(model: Model) -> dict[int, ActionFacts]:
    actions: dict[int, ActionFacts] = {}
    for node in model.root.items("actions"):
        id_ = node["id"].int()
        if id_ in actions:
            node.fail(f"the id {id_} is used twice")
        params = tuple(
            ParamFacts(p["name"].str(), p["bitwidth"].int(0, MAX_FIELD_BITS)) for p in node.items("runtime_data")
        )
        actions[id_] = ActionFacts(node["name"].str(), id_, len(actions), params, node)
    return actions


# --- arrays ---------------------------------------------------------------------------------------------------


def _registers(model: Model) -> dict[str, Array]:
    found: dict[str, Array] = {}

    def make(node: JsonNode) -> Array:
        width = node["bitwidth"].int(1, MAX_FIELD_BITS)
        size = node["size"].int(0, MAX_ARRAY)
        initial = node.get("initial_value")
        first = 0 if initial is None else initial.hex() & ((1 << width) - 1)
        return Array(node["name"].str(), node["id"].int(), len(found), size, node, width, initial=first)

    read_named(found, model.root, "register_arrays", make)
    return found


def _cells(node: JsonNode, index: int, unit: str = "") -> Array:
    """Return a counter or meter array."""
    direct = node.flag("is_direct")
    binding, size = node.get("binding"), node.get("size")
    if size is None and not direct:
        node.fail("the key 'size' is missing")
    return Array(
        node["name"].str(),
        node["id"].int(),
        index,
        size.int(0, MAX_ARRAY) if size else 0,
        node,
        unit=unit,
        direct=direct,
        table=binding.str() if direct and binding else None,
    )


def _counters(model: Model) -> dict[str, Array]:
    found: dict[str, Array] = {}
    read_named(found, model.root, "counter_arrays", lambda node: _cells(node, len(found)))
    return found


def _meters(model: Model) -> dict[str, Array]:
    found: dict[str, Array] = {}

    def make(node: JsonNode) -> Array:
        unit = node["type"].str()
        if unit not in ("bytes", "packets"):
            node["type"].fail(f"a meter counts 'bytes' or 'packets', not '{unit}'")
        rates = node.get("rate_count")
        if rates is not None and rates.int() != 2:
            rates.fail("only meters with two rates are supported")
        return _cells(node, len(found), unit)

    read_named(found, model.root, "meter_arrays", make)
    if model.architecture is Bmv2Architecture.PSA:
        for node in model.root.items("extern_instances"):
            if node["type"].value == METER_EXTERN:
                given = {a["name"].str(): a["value"] for a in node.items("attribute_values")}
                size, unit = given["n_meters"].hex(), given["type"].str()
                meter = Array(node["name"].str(), node["id"].int(), len(found), size, node, unit=unit)
                found[meter.name] = meter
    return found


# --- tables and profiles --------------------------------------------------------------------------------------


@dataclass
class _Profile:
    """An action profile while the tables that use it are being read."""

    node: JsonNode
    id: int
    index: int
    max_size: int
    tables: list[str] = field(default_factory=list)
    actions: dict[str, ActionFacts] = field(default_factory=dict)


class _Tables:
    """Reads the tables and action profiles of all pipelines."""

    def __init__(self, model: Model, actions: dict[int, ActionFacts]):
        self.model = model
        self.actions = actions
        self.meters = _meters(model)
        self.tables: dict[str, TableFacts] = {}
        self._profiles: dict[str, _Profile] = {}
        self.pipelines = {n["name"].str(): n for n in model.root["pipelines"].items()}
        if "ingress" not in self.pipelines:
            model.root["pipelines"].fail("there is no pipeline 'ingress'")
        for name, node in self.pipelines.items():
            for p in node.items("action_profiles"):
                self._profile(p)
            for t in node.items("tables"):
                self._table(t, name)

    def profiles(self) -> dict[str, Profile]:
        return {
            name: Profile(
                name=name,
                id=p.id,
                index=p.index,
                max_size=p.max_size,
                selector=p.node.get("selector") is not None,
                tables=tuple(p.tables),
                actions=p.actions,
                arg_words=max((self.tables[t].arg_words for t in p.tables), default=0),
                node=p.node,
            )
            for name, p in self._profiles.items()
        }

    def _profile(self, node: JsonNode) -> None:
        name = node["name"].str()
        if name in self._profiles:
            node["name"].fail("the action profile is declared twice")
        size = node.get("max_size")
        max_size = size.int(0, 1 << 30) if size else 1024
        self._profiles[name] = _Profile(node, node["id"].int(), len(self._profiles), max_size)

    def _table(self, node: JsonNode, pipeline: str) -> None:
        name = node["name"].str()
        if name in self.tables:
            node["name"].fail("the table is declared twice")
        kind, type_ = node["match_type"].str(), node["type"].str()
        if kind not in KINDS:
            node["match_type"].fail(f"'{kind}' is not a match type of a table")
        if type_ not in ("simple", "indirect", "indirect_ws"):
            node["type"].fail(f"'{type_}' is not a type of table")
        key, words = self._key(node)
        _check_kind(node, kind, key)
        entries = node.get("entries")
        size_node = node.get("max_size")
        if size_node is None and entries is None:
            node.fail("the key 'max_size' is missing")
        size = size_node.int(0, 1 << 30) if size_node else 0
        meter = self._direct_meter(node, name)
        default = node.get("default_entry")
        allowed = self._allowed(node)
        profile = self._table_profile(node, type_)
        self.tables[name] = TableFacts(
            name=name,
            id=node["id"].int(),
            index=len(self.tables),
            pipeline=pipeline,
            kind=kind,
            type=type_,
            key=key,
            key_words=words,
            actions=allowed,
            arg_words=max((arg_words(a.widths) for a in allowed.values()), default=0),
            max_size=max(size, len(entries) if entries else 0),
            with_counters=node.flag("with_counters"),
            direct_meter=meter,
            support_timeout=node.flag("support_timeout"),
            action_profile=profile,
            const_entries=entries is not None,
            const_default=bool(default and (default.flag("action_const") or default.flag("action_entry_const"))),
            default_entry=entry_action(default, self.actions, name, allowed)[1] if default else None,
            node=node,
        )
        if profile is not None:
            self._profiles[profile].tables.append(name)
            self._profiles[profile].actions.update(allowed)

    def _key(self, node: JsonNode) -> tuple[tuple[KeyFacts, ...], int]:
        raw: list[tuple[str, str, int, FieldRef, int | None]] = []
        for k in node.items("key"):
            match = k["match_type"].str()
            if match not in MATCHES:
                k["match_type"].fail(f"'{match}' is not a match type")
            if match == "valid":
                target = k["target"]
                named = target if isinstance(target.value, str) else target[0]
                ref = FieldRef(self.model.find(self.model.headers, named, "header"), VALID_FIELD)
            else:
                ref = self.model.field_ref(k["target"])
                if ref.field.varbit:
                    k["target"].fail("a variable-length field cannot be matched on")
            mask, name = k.get("mask"), k.get("name")
            label = name.str() if name else f"{ref.header.name}.{ref.field.name}"
            raw.append((label, match, ref.field.width, ref, mask.hex() if mask else None))
        if sum(r[2] for r in raw) > MAX_KEY_BITS:
            node["key"].fail(f"the key has more than {MAX_KEY_BITS} bits")
        if sum(r[1] == "lpm" for r in raw) > 1:
            node["key"].fail("a table may have one lpm key only")
        places, words = key_layout([r[2] for r in raw])
        key = (
            KeyFacts(label, match, width, place, ref, mask)
            for (label, match, width, ref, mask), place in zip(raw, places, strict=True)
        )
        return tuple(key), words

    def _direct_meter(self, node: JsonNode, table: str) -> str | None:
        named = node.get("direct_meters")
        if named is None:
            return None
        meter = self.model.find(self.meters, named, "meter array")
        self.meters[meter.name] = replace(meter, direct=True, table=table)
        if meter.node.get("result_target") is None:
            named.fail(f"the direct meter '{meter.name}' has no result_target")
        return meter.name

    def _allowed(self, node: JsonNode) -> dict[str, ActionFacts]:
        out: dict[str, ActionFacts] = {}
        if node.get("action_ids") is not None:
            for item in node.items("action_ids"):
                action = find_action(self.actions, item)
                out[action.name] = action
        else:
            by_name = {a.name: a for a in self.actions.values()}
            for item in node.items("actions"):
                out[item.str()] = self.model.find(by_name, item, "action")
        return out

    def _table_profile(self, node: JsonNode, type_: str) -> str | None:
        if type_ == "simple":
            return None
        ref = node.get("action_profile")
        if ref is not None:
            self.model.find(self._profiles, ref, "action profile")
            return ref.str()
        old = node["act_prof_name"].str()
        if old not in self._profiles:
            self._profiles[old] = _Profile(node, node["id"].int(), len(self._profiles), 1024)
        return old


def _check_kind(node: JsonNode, kind: str, key: tuple[KeyFacts, ...]) -> None:
    """Refuse keys that a table of this match type cannot have."""
    if kind in ("exact", "lpm") and any(k.match in ("ternary", "range", "optional") for k in key):
        node["match_type"].fail(f"a table of type '{kind}' cannot have ternary, range or optional keys")
    if kind == "ternary" and any(k.match == "range" for k in key):
        node["match_type"].fail("a table with a range key must be of type 'range'")
    if kind == "exact" and any(k.match == "lpm" for k in key):
        node["match_type"].fail("a table with an lpm key must be of type 'lpm', 'ternary' or 'range'")


# --- value sets, learn and field lists -------------------------------------------------------------------------------


def main_parser(model: Model) -> JsonNode | None:
    """Return the parser that packets go through: the one called 'parser' if there are several."""
    parsers = list(model.root["parsers"].items())
    return next((n for n in parsers if n["name"].value == "parser"), parsers[0] if parsers else None)


def _value_sets(model: Model) -> dict[str, ValueSetFacts]:
    widths = _set_widths(model) if model.vsets else {}
    out: dict[str, ValueSetFacts] = {}
    for name, node in model.vsets.items():
        width, size = node["compressed_bitwidth"].int(1, 1 << 16), node.get("max_size")
        max_size = size.int(0, 1 << 24) if size else 1024
        out[name] = ValueSetFacts(name, node["id"].int(), len(out), width, widths.get(name) or (width,), max_size)
    return out


def _set_widths(model: Model) -> dict[str, tuple[int, ...]]:
    """Return the widths of the key's parts in the first state that asks a value set; what is wrong is refused with the
    C.
    """
    out: dict[str, tuple[int, ...]] = {}
    main = main_parser(model)
    others = [] if model.architecture is Bmv2Architecture.V1MODEL else list(model.root.items("parsers"))
    parsers = [main, *others] if main is not None else others
    for state in (state for parser in parsers for state in parser.items("parse_states")):
        for t in state.items("transitions"):
            kind = t.get("type")
            if kind is not None and kind.value == "parse_vset" and t["value"].str() not in out:
                out[t["value"].str()] = tuple(_part_width(model, part) for part in state.items("transition_key"))
    return out


def _part_width(model: Model, part: JsonNode) -> int:
    kind, value = part["type"].str(), part["value"]
    if kind == "field":
        width = model.field_ref(value).field.width
    elif kind == "stack_field":
        stack = model.find(model.stacks, value[0], "header stack")
        width = model.type_field(stack.type, value[1]).width
    elif kind == "union_stack_field":
        stack_of_unions, member = model.union_member(value)
        width = model.type_field(stack_of_unions.unions[0].headers[member].type, value[2]).width
    else:
        width = value[1].int() if kind == "lookahead" else 0
    return max(width, 1)


def _learn_lists(model: Model) -> tuple[Digest, ...]:
    lists = []
    for node in model.root.items("learn_lists"):
        fields = []
        for element in node["elements"].items():
            if element["type"].value != "field":
                element["type"].fail("a learn list holds fields")
            ref = model.field_ref(element["value"])
            if ref.field.varbit or ref.field.index < 0:
                element["value"].fail("this field cannot be in a digest")
            fields.append(ref)
        lists.append(Digest(node["name"].str(), node["id"].int(0, 65535), tuple(fields)))
    return tuple(lists)


def _field_lists(model: Model) -> dict[int, tuple[FieldRef, ...]]:
    lists: dict[int, tuple[FieldRef, ...]] = {}
    for node in model.root.items("field_lists"):
        id_ = node["id"].int(0, 2**31 - 1)
        if id_ in lists:
            node["id"].fail(f"the id {id_} is used twice")
        fields = []
        for item in node["elements"].items():
            if item["type"].value == "hexstr":
                continue
            if item["type"].value != "field":
                item["type"].fail("a field list holds fields")
            fields.append(model.field_ref(item["value"]))
        lists[id_] = tuple(fields)
    return lists
