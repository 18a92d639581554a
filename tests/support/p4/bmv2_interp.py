"""A reference interpreter of BMv2 JSON: simple_switch over plain Python integers, one packet at a time.

Written from behavioral-model's documentation and sources, for tests only: it is the oracle of what a JSON
document means. Values are unbounded integers and truncated where they are stored. There is no time: timestamps
are 0, queues are empty, meters are green.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any

from support.p4.bmv2_machine import DROP_PORT, MAX_NODES, HeaderState, Machine, Packet, ParserError, wrap

INSTANCE_CLONE_INGRESS, INSTANCE_CLONE_EGRESS, INSTANCE_RECIRCULATED = 1, 2, 4
INSTANCE_REPLICATED, INSTANCE_RESUBMITTED = 5, 6


@dataclass
class Entry:
    """A table entry: per key (value, mask-or-prefix-or-high)."""

    keys: list[tuple[int, int]]
    action_id: int
    data: list[int]
    priority: int = 0
    hits: int = 0
    hit_bytes: int = 0


class Switch(Machine):
    """One switch running a document. `process(port, data)` gives the (port, data) it sends."""

    def __init__(self, document: dict[str, Any], *, seed: int = 1) -> None:
        super().__init__(document, seed=seed)
        self.tables: dict[str, dict[str, Any]] = {}
        self.entries: dict[str, list[Entry]] = {}
        self.defaults: dict[str, tuple[int, list[int]] | None] = {}
        self.mirror: dict[int, list[tuple[int, int]]] = {}
        self.multicast: dict[int, list[tuple[int, int]]] = {}
        self.digests: list[tuple[str, list[int]]] = []
        for pipeline in document["pipelines"]:
            for table in pipeline["tables"]:
                self._load_table(table)

    # --- control plane ---

    def _load_table(self, table: dict[str, Any]) -> None:
        name = table["name"]
        self.tables[name] = table
        self.entries[name] = []
        default = table.get("default_entry")
        self.defaults[name] = None
        if default is not None:
            self.defaults[name] = (default["action_id"], [int(v, 16) for v in default["action_data"]])
        for item in table.get("entries", []):
            keys = []
            for key in item["match_key"]:
                kind = key["match_type"]
                if kind == "exact":
                    keys.append((int(key["key"], 16), 0))
                elif kind == "lpm":
                    keys.append((int(key["key"], 16), key["prefix_length"]))
                elif kind == "ternary":
                    keys.append((int(key["key"], 16), int(key["mask"], 16)))
                else:
                    keys.append((int(key["start"], 16), int(key["end"], 16)))
            action = item["action_entry"]
            data = [int(v, 16) for v in action["action_data"]]
            self.entries[name].append(Entry(keys, action["action_id"], data, item["priority"]))

    def action_id(self, table: str, action: str) -> int:
        """Return the id of an action of a table by its name, or the end of its name."""
        t = self.tables[table]
        for number, name in zip(t["action_ids"], t["actions"], strict=True):
            if name == action or name.endswith("." + action):
                return int(number)
        raise KeyError(f"{table}: no action {action}")

    def add(self, table: str, keys: list[tuple[int, int]], action: str, data: list[int], priority: int = 0) -> Entry:
        """Add an entry; keys are (value, 0), (value, prefix), (value, mask) or (low, high) by match type."""
        entry = Entry(keys, self.action_id(table, action), data, priority)
        self.entries[table].append(entry)
        return entry

    def set_default(self, table: str, action: str, data: list[int]) -> None:
        """Set the default action of a table."""
        self.defaults[table] = (self.action_id(table, action), data)

    # --- packets ---

    def _fresh(self, port: int, data: bytes) -> Packet:
        headers: dict[str, HeaderState] = {}
        for name, header in self.headers.items():
            fields = {f[0]: 0 for f in self.types[header["header_type"]]["fields"]}
            headers[name] = HeaderState(fields, valid=header["metadata"])
        packet = Packet(port, data, headers, dict.fromkeys((*self.stacks, *self.union_stacks), 0))
        packet.length = len(data)
        return packet

    def process(self, port: int, data: bytes) -> list[tuple[int, bytes]]:
        """Everything that is sent because of one packet, in order."""
        sent: list[tuple[int, bytes]] = []
        work: deque[tuple[Packet, bytes]] = deque()
        packet = self._fresh(port, data)
        self._standard(packet, ingress_port=port, packet_length=len(data))
        work.append((packet, data))
        rounds = 0
        while work:
            rounds += 1
            if rounds > 100:
                raise RuntimeError("packet does not leave the switch")
            packet, original = work.popleft()
            self._ingress(packet, original, work, sent)
        return sent

    def _ingress(
        self,
        packet: Packet,
        original: bytes,
        work: deque[tuple[Packet, bytes]],
        sent: list[tuple[int, bytes]],
    ) -> None:
        self._parse(packet, original)
        self._run_pipeline(packet, "ingress")
        fields = packet.headers["standard_metadata"].fields
        if packet.clone is not None:
            session, list_id = packet.clone
            for port, rid in self.mirror.get(session, []):
                copy = self._fresh(packet.port, original)
                self._standard(copy, ingress_port=packet.port, packet_length=len(original))
                self._parse(copy, original)
                self._preserve(packet, copy, list_id)
                self._standard(copy, instance_type=INSTANCE_CLONE_INGRESS)
                self._egress(copy, port, rid, work, sent)
        if packet.digest:
            self._digest(packet)
        group = fields.get("mcast_grp", 0)
        if packet.resubmit:
            again = self._fresh(packet.port, original)
            self._standard(again, ingress_port=packet.port, packet_length=len(original))
            self._preserve(packet, again, packet.resubmit)
            self._standard(again, instance_type=INSTANCE_RESUBMITTED)
            work.append((again, original))
        elif group:
            for port, rid in self.multicast.get(group, []):
                copy = self._copy(packet)
                self._standard(copy, instance_type=INSTANCE_REPLICATED)
                self._egress(copy, port, rid, work, sent)
        elif fields["egress_spec"] != DROP_PORT:
            self._standard(packet, instance_type=0)
            self._egress(packet, fields["egress_spec"], 0, work, sent)

    def _copy(self, packet: Packet) -> Packet:
        headers = {n: HeaderState(dict(h.fields), h.valid, h.varbit_bits) for n, h in packet.headers.items()}
        return Packet(packet.port, packet.payload, headers, dict(packet.next_index), packet.length)

    def _preserve(self, source: Packet, target: Packet, list_id: int) -> None:
        for listed in self.doc["field_lists"]:
            if listed["id"] == list_id:
                for element in listed["elements"]:
                    header, name = element["value"]
                    target.headers[header].fields[name] = source.headers[header].fields[name]

    def _digest(self, packet: Packet) -> None:
        for listed in self.doc["learn_lists"]:
            if listed["id"] == packet.digest:
                values = [self._data(packet, e, []) for e in listed["elements"]]
                self.digests.append((listed["name"], values))

    def _egress(
        self,
        packet: Packet,
        port: int,
        rid: int,
        work: deque[tuple[Packet, bytes]],
        sent: list[tuple[int, bytes]],
    ) -> None:
        packet.clone, packet.exited = None, False
        self._standard(packet, egress_port=port, egress_spec=0, egress_rid=rid, packet_length=packet.length)
        before = None
        self._run_pipeline(packet, "egress")
        fields = packet.headers["standard_metadata"].fields
        if packet.clone is not None:
            session, list_id = packet.clone
            for clone_port, clone_rid in self.mirror.get(session, []):
                before = self._copy(packet)
                for name, header in before.headers.items():
                    if self.headers[name]["metadata"]:
                        header.fields = dict.fromkeys(header.fields, 0)
                self._standard(before, ingress_port=packet.port, instance_type=INSTANCE_CLONE_EGRESS)
                self._preserve(packet, before, list_id)
                self._egress(before, clone_port, clone_rid, work, sent)
        if fields["egress_spec"] == DROP_PORT:
            return
        data = self._deparse(packet)
        if packet.recirculate:
            again = self._fresh(packet.port, data)
            self._standard(again, ingress_port=packet.port, packet_length=len(data))
            self._preserve(packet, again, packet.recirculate)
            self._standard(again, instance_type=INSTANCE_RECIRCULATED)
            work.append((again, data))
            return
        if packet.truncate is not None:
            data = data[: packet.truncate]
        sent.append((port, data))

    # --- parser and deparser ---

    def _parse(self, packet: Packet, data: bytes) -> None:
        parser = self.doc["parsers"][0]
        states = {s["name"]: s for s in parser["parse_states"]}
        name = parser["init_state"]
        cursor = 0
        error = self.errors.get("NoError", 0)
        try:
            for _ in range(MAX_NODES):
                if name is None:
                    break
                state = states[name]
                for op in state["parser_ops"]:
                    cursor = self._parser_op(packet, op, data, cursor)
                name = self._transition(packet, state, data, cursor)
        except ParserError as raised:
            error = raised.code
        packet.payload = data[cursor:]
        self._standard(packet, parser_error=error)
        wrong = any(not self._checksum_holds(packet, c) for c in self.doc["checksums"] if c["verify"])
        if any(c["verify"] for c in self.doc["checksums"]):
            self._standard(packet, checksum_error=int(wrong))

    def _fail(self, name: str) -> ParserError:
        return ParserError(self.errors[name])

    def _bits(self, data: bytes, cursor: int, offset: int, width: int) -> int:
        end = cursor * 8 + offset + width
        if end > len(data) * 8:
            raise self._fail("PacketTooShort")
        return int.from_bytes(data, "big") >> (len(data) * 8 - end) & ((1 << width) - 1)

    def _parser_op(self, packet: Packet, op: dict[str, Any], data: bytes, cursor: int) -> int:
        kind, params = op["op"], op["parameters"]
        if kind in ("extract", "extract_VL"):
            length = None if kind == "extract" else self._data(packet, params[1]["value"], [])
            return self._extract(packet, params[0], length, data, cursor)
        if kind == "set":
            target, source = params
            if source["type"] == "lookahead":
                value = self._bits(data, cursor, *source["value"])
            elif source["type"] == "field" and self._is_varbit(source["value"]):
                self._assign_varbit(packet, target["value"], source["value"])
                return cursor
            else:
                value = self._argument(packet, source, [])
            self._store(packet, target, value, [])
        elif kind == "verify":
            if not self._truth(packet, params[0], []):
                raise ParserError(self._data(packet, params[1], []))
        elif kind == "advance":
            bits = self._argument(packet, params[0], [])
            if bits % 8:
                raise self._fail("ParserInvalidArgument")
            if cursor + bits // 8 > len(data):
                raise self._fail("PacketTooShort")
            cursor += bits // 8
        else:
            self._primitive(packet, params[0], [])
        return cursor

    def _extract(self, packet: Packet, target: dict[str, Any], length: int | None, data: bytes, cursor: int) -> int:
        kind, value = target["type"], target["value"]
        stack = None
        if kind == "regular":
            name = value
        else:
            stack = value if kind == "stack" else value[0]
            elements = self.stacks[stack] if kind == "stack" else self.union_stacks[stack]
            if packet.next_index[stack] >= len(elements):
                raise self._fail("StackOutOfBounds")
            name = elements[packet.next_index[stack]]
            if kind == "union_stack":
                name = f"{name}.{value[1]}"
        made = self.types[self.headers[name]["header_type"]]
        fixed = sum(f[1] for f in made["fields"] if f[1] != "*")
        varbit = length or 0
        if varbit % 8:
            raise self._fail("ParserInvalidArgument")
        if cursor * 8 + fixed + varbit > len(data) * 8:
            raise self._fail("PacketTooShort")
        if length is not None and (fixed + varbit) // 8 > made["max_length"]:
            raise self._fail("HeaderTooShort")
        header, offset = packet.headers[name], 0
        for field_def in made["fields"]:
            width = varbit if field_def[1] == "*" else field_def[1]
            raw = self._bits(data, cursor, offset, width) if width else 0
            signed = len(field_def) > 2 and field_def[2]
            header.fields[field_def[0]] = wrap(raw, width, signed) if width else 0
            offset += width
        header.varbit_bits = varbit
        self._set_valid(packet, name, True)
        if stack is not None:
            packet.next_index[stack] += 1
        return cursor + offset // 8

    def _transition(self, packet: Packet, state: dict[str, Any], data: bytes, cursor: int) -> str | None:
        key = b""
        for part in state["transition_key"]:
            if part["type"] == "lookahead":
                width = part["value"][1]
                value = self._bits(data, cursor, *part["value"])
            else:
                value, width = self._data(packet, part, []), self._width_of(packet, part)
            key += (value & ((1 << width) - 1)).to_bytes((width + 7) // 8, "big")
        default = None
        for transition in state["transitions"]:
            following: str | None = transition["next_state"]
            if transition["type"] == "default":
                default = following
                continue
            if transition["type"] == "parse_vset":
                if key in self.value_sets[transition["value"]]:
                    return following
                continue
            want = bytes.fromhex(transition["value"][2:])
            assert len(want) == len(key), "transition value of the wrong width"
            mask = bytes.fromhex(transition["mask"][2:]) if transition["mask"] is not None else b"\xff" * len(key)
            if all(k & m == w & m for k, w, m in zip(key, want, mask, strict=True)):
                return following
        return default

    def _width_of(self, packet: Packet, part: dict[str, Any]) -> int:
        if part["type"] == "stack_field":
            stack, name = part["value"]
            header = self.stacks[stack][0]
        else:
            header, name = part["value"]
        return self._field_def(header, name)[1]

    def _deparse(self, packet: Packet) -> bytes:
        for checksum in self.doc["checksums"]:
            if checksum["update"] and self._truth(packet, checksum["if_cond"], []):
                value = self._calculate(packet, checksum["calculation"])
                self._store(packet, {"type": "field", "value": checksum["target"]}, value, [])
        deparser = self.doc["deparsers"][0]
        for op in deparser.get("primitives", []):
            self._primitive(packet, op, [])
        return (
            b"".join(self._header_bytes(packet, n) for n in deparser["order"] if packet.headers[n].valid)
            + packet.payload
        )

    # --- pipelines ---

    def _run_pipeline(self, packet: Packet, name: str) -> None:
        pipeline = next(p for p in self.doc["pipelines"] if p["name"] == name)
        tables = {t["name"]: t for t in pipeline["tables"]}
        conditionals = {c["name"]: c for c in pipeline["conditionals"]}
        node = pipeline["init_table"]
        for _ in range(MAX_NODES):
            if node is None or packet.exited:
                return
            if node in conditionals:
                holds = self._truth(packet, conditionals[node]["expression"], [])
                node = conditionals[node]["true_next" if holds else "false_next"]
            else:
                node = self._apply(packet, tables[node])
        raise RuntimeError("the pipeline does not end")

    def _apply(self, packet: Packet, table: dict[str, Any]) -> str | None:
        entry = self._lookup(packet, table)
        if entry is not None:
            entry.hits += 1
            entry.hit_bytes += packet.length
            chosen: tuple[int, list[int]] | None = (entry.action_id, entry.data)
        else:
            chosen = self.defaults[table["name"]]
        following = table["next_tables"]
        label = "__HIT__" if entry is not None else "__MISS__"
        if chosen is None:
            missed: str | None = following["__MISS__"] if "__MISS__" in following else table["base_default_next"]
            return missed
        action = self.actions[chosen[0]]
        self._run_action(packet, action, chosen[1])
        found: str | None = following[label] if label in following else following[action["name"]]
        return found

    def _lookup(self, packet: Packet, table: dict[str, Any]) -> Entry | None:
        if not table["key"]:
            return None
        values, widths = [], []
        for key in table["key"]:
            header, name = key["target"]
            width = self._field_def(header, name)[1]
            value = int(packet.headers[header].valid) if name == "$valid$" else packet.headers[header].fields[name]
            value &= (1 << width) - 1
            values.append(value & int(key["mask"], 16) if key["mask"] else value)
            widths.append(width)
        kinds = [k["match_type"] for k in table["key"]]
        best: tuple[tuple[int, int], Entry] | None = None
        for number, entry in enumerate(self.entries[table["name"]]):
            prefix = 0
            for value, width, kind, (first, second) in zip(values, widths, kinds, entry.keys, strict=True):
                if kind == "exact":
                    hit = value == first
                elif kind == "lpm":
                    shift = width - second
                    hit, prefix = value >> shift == first >> shift, second
                elif kind == "ternary":
                    hit = value & second == first & second
                else:
                    hit = first <= value <= second
                if not hit:
                    break
            else:
                rank = (-prefix, number) if table["match_type"] == "lpm" else (entry.priority, number)
                if best is None or rank < best[0]:
                    best = (rank, entry)
        return best[1] if best is not None else None
