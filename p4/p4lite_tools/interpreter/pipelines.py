"""The pipelines: tables, conditions and the actions between them."""

from __future__ import annotations

from dataclasses import dataclass

from p4lite.switch.bmv2.reader import JsonNode
from p4lite.switch.program.entry import ActionCall, GroupRef
from p4lite.switch.program.facts import Array, KeyFacts, TableFacts
from p4lite_tools.interpreter.events import (
    ConditionTested,
    Counted,
    Metered,
    NamedValue,
    PipelineEntered,
    Place,
    TableApplied,
    place_of,
)
from p4lite_tools.interpreter.expressions import Calculation, Truth
from p4lite_tools.interpreter.packet import Packet
from p4lite_tools.interpreter.primitives import PrimitiveCompiler, Step
from p4lite_tools.interpreter.tables import Row

MAX_NODES = 100_000
HIT, MISS = "__HIT__", "__MISS__"


@dataclass(frozen=True, slots=True)
class Condition:
    """An `if`, and the nodes that follow."""

    name: str
    where: Place | None
    test: Truth
    then: str | None
    other: str | None


@dataclass(frozen=True, slots=True)
class TableNode:
    """A table and what follows it: by label (hit, miss, an action's name), else `base`. `hidden`: of the compiler."""

    table: TableFacts
    where: Place | None
    following: dict[str, str | None]
    base: str | None
    hidden: bool


@dataclass(frozen=True, slots=True)
class ActionNode:
    """An action without a table, as old documents have it."""

    name: str
    action: int
    following: str | None


def _named(node: JsonNode, key: str) -> str | None:
    found = node.get(key)
    return None if found is None else found.str()


class PipelineCompiler:
    """Compiled pipelines of one switch."""

    def __init__(self, primitives: PrimitiveCompiler) -> None:
        self.primitives = primitives
        self.state = primitives.state
        program = self.state.program
        self.actions: dict[int, list[Step]] = {
            a.id: primitives.action(list(a.node.items("primitives"))) for a in program.actions.values()
        }
        self.selectors: dict[str, Calculation] = {}
        for profile in program.action_profiles.values():
            selector = profile.node.get("selector")
            if selector is not None:
                self.selectors[profile.name] = primitives.calculations.make(selector)
        self.meter_targets = {
            m.name: program.model.field_ref(m.node["result_target"])
            for m in program.meters.values()
            if m.direct and m.node.get("result_target") is not None
        }
        self.direct_counters = {c.table: c.name for c in program.counters.values() if c.direct and c.table}
        self.nodes: dict[str, dict[str, Condition | TableNode | ActionNode]] = {}
        self.starts: dict[str, str | None] = {}
        for name, node in program.pipelines.items():
            self.nodes[name] = self._nodes(node)
            self.starts[name] = _named(node, "init_table")

    def _nodes(self, node: JsonNode) -> dict[str, Condition | TableNode | ActionNode]:
        out: dict[str, Condition | TableNode | ActionNode] = {}
        for item in node.items("tables"):
            following = item["next_tables"]
            table = self.state.program.tables[item["name"].str()]
            fixed = table.const_default and not table.key and table.default_entry is not None
            out[table.name] = TableNode(
                table,
                place_of(item),
                {label: _named(following, label) for label in following.names()},
                _named(item, "base_default_next"),
                fixed and table.name.startswith("tbl_"),
            )
        for item in node.items("conditionals"):
            test = self.primitives.expr.truth(item["expression"])
            name = item["name"].str()
            out[name] = Condition(name, place_of(item), test, _named(item, "true_next"), _named(item, "false_next"))
        for item in node.items("action_calls"):
            name = item["name"].str()
            out[name] = ActionNode(name, item["action_id"].int(), _named(item, "next_node"))
        return out

    def run(self, packet: Packet, name: str, port: int) -> None:
        """Run `ingress` or `egress`."""
        packet.exited = False
        if name not in self.nodes:
            return
        watched = bool(self.state.observers)
        if watched:
            self.state.where = place_of(self.state.program.pipelines[name])
            self.state.emit(PipelineEntered(self.state.where, name, port))
        nodes, at = self.nodes[name], self.starts[name]
        for _ in range(MAX_NODES):
            if at is None or packet.exited:
                return
            node = nodes[at]
            if isinstance(node, Condition):
                self.state.where = node.where
                holds = node.test(packet, ())
                if watched:
                    self.state.emit(ConditionTested(node.where, node.name, holds))
                at = node.then if holds else node.other
            elif isinstance(node, ActionNode):
                self.primitives.run(self.actions[node.action], packet, ())
                at = node.following
            else:
                at = self._apply(packet, node)
        self.state.fault(f"pipeline '{name}' does not end")

    def _apply(self, packet: Packet, node: TableNode) -> str | None:
        table, state = node.table, self.state
        state.where = node.where
        values = [_key_value(packet, key) for key in table.key]
        found = state.lookup(table, values) if table.key else None
        handle, row = found if found is not None else (None, state.row(table.name, None))
        choose = None
        if table.action_profile is not None and isinstance(row.action, GroupRef):
            choose = self.selectors[table.action_profile](packet)
        call = state.resolve(table, row.action, choose)
        if state.observers:
            self._announce(node, values, handle, call)
        if table.direct_meter is not None and handle is not None:
            self._meter(packet, state.program.meters[table.direct_meter], row)
        self._hit(packet, table, row)
        if call is not None:
            self.primitives.run(self.actions[table.actions[call.name].id], packet, call.args)
        if HIT in node.following:
            return node.following.get(HIT if handle is not None else MISS)
        return node.base if call is None else node.following[call.name]

    def _announce(self, node: TableNode, values: list[int], handle: int | None, call: ActionCall | None) -> None:
        table = node.table
        arguments: tuple[NamedValue, ...] = ()
        if call is not None:
            params = table.actions[call.name].params
            arguments = tuple(NamedValue(p.name, v, p.width) for p, v in zip(params, call.args, strict=True))
        keys = tuple(NamedValue(k.name, v, k.width) for k, v in zip(table.key, values, strict=True))
        action = None if call is None else call.name
        self.state.emit(
            TableApplied(node.where, table.name, keys, handle is not None, handle, action, arguments, node.hidden)
        )

    def _hit(self, packet: Packet, table: TableFacts, row: Row) -> None:
        row.hit_ns = self.state.now_ns
        if table.with_counters:
            row.counter.count(packet.ingress_length)
            if self.state.observers:
                name = self.direct_counters.get(table.name, table.name)
                self.state.emit(Counted(self.state.where, name, None, row.counter.packets, row.counter.bytes))

    def _meter(self, packet: Packet, meter: Array, row: Row) -> None:
        colour = row.meter.execute(packet.ingress_length if meter.unit == "bytes" else 1, self.state.now_ns)
        if self.state.observers:
            self.state.emit(Metered(self.state.where, meter.name, None, colour))
        target = self.meter_targets[meter.name]
        self.primitives.set(packet, target.header.name, target.field, colour)


def _key_value(packet: Packet, key: KeyFacts) -> int:
    """Return what a packet brings for a key: 0 where its header is invalid."""
    header = packet.headers[key.target.header.name]
    if key.target.field.index < 0:
        return int(header.valid)
    value = header.fields[key.target.field.name] & ((1 << key.width) - 1) if header.valid else 0
    return value if key.mask is None else value & key.mask
