"""The inner part of the reference interpreter of BMv2 JSON: expressions, primitives, checksums.

Written from behavioral-model's documentation and sources, for tests only: it is the oracle of what a JSON
document means. Values are unbounded integers and truncated where they are stored. There is no time: timestamps
are 0, queues are empty, meters are green.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

from support.p4.bmv2_hash import HASHES

DROP_PORT = 511
MAX_NODES = 100_000


class ParserError(Exception):
    """An error that the parser raises; `code` is its number in the document."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


@dataclass
class HeaderState:
    """A header instance of one packet."""

    fields: dict[str, int]
    valid: bool = False
    varbit_bits: int = 0


@dataclass
class Packet:
    """A packet on its way."""

    port: int
    payload: bytes
    headers: dict[str, HeaderState]
    next_index: dict[str, int]
    length: int = 0
    exited: bool = False
    clone: tuple[int, int] | None = None
    resubmit: int = 0
    recirculate: int = 0
    digest: int = 0
    truncate: int | None = None
    rid: int = 0
    messages: list[str] = field(default_factory=list)


class Machine:
    """What a document declares, and the state that outlives a packet."""

    def __init__(self, document: dict[str, Any], *, seed: int = 1) -> None:
        self.doc = document
        self.types = {t["name"]: t for t in document["header_types"]}
        self.headers = {h["name"]: h for h in document["headers"]}
        by_id = {h["id"]: h["name"] for h in document["headers"]}
        self.stacks = {s["name"]: [by_id[i] for i in s["header_ids"]] for s in document["header_stacks"]}
        self.union_members = {u["name"]: [by_id[i] for i in u["header_ids"]] for u in document["header_unions"]}
        union_by_id = {u["id"]: u["name"] for u in document["header_unions"]}
        self.union_types = {u["name"]: u for u in document["header_union_types"]}
        self.union_stacks = {
            s["name"]: [union_by_id[i] for i in s["header_union_ids"]] for s in document["header_union_stacks"]
        }
        self.union_stack_type = {s["name"]: s["union_type"] for s in document["header_union_stacks"]}
        self.union_of = {m: u for u, members in self.union_members.items() for m in members}
        self.errors = dict(document["errors"])
        self.actions = {a["id"]: a for a in document["actions"]}
        self.calculations = {c["name"]: c for c in document["calculations"]}
        self.registers = {r["name"]: [0] * r["size"] for r in document["register_arrays"]}
        self.register_width = {r["name"]: r["bitwidth"] for r in document["register_arrays"]}
        self.counters: dict[str, list[list[int]]] = {
            c["name"]: [[0, 0] for _ in range(c.get("size") or 0)] for c in document["counter_arrays"]
        }
        self.value_sets: dict[str, set[bytes]] = {v["name"]: set() for v in document["parse_vsets"]}
        self.messages: list[str] = []
        self.random = random.Random(seed)

    def _field_def(self, header: str, name: str) -> list[Any]:
        if name == "$valid$":
            return ["$valid$", 1, False]
        for field_def in self.types[self.headers[header]["header_type"]]["fields"]:
            if field_def[0] == name:
                found: list[Any] = field_def
                return found
        raise KeyError(f"{header}.{name}")

    def _header_bytes(self, packet: Packet, name: str) -> bytes:
        header, value, total = packet.headers[name], 0, 0
        for field_def in self.types[self.headers[name]["header_type"]]["fields"]:
            width = header.varbit_bits if field_def[1] == "*" else field_def[1]
            value = value << width | (header.fields[field_def[0]] & ((1 << width) - 1))
            total += width
        return value.to_bytes(total // 8, "big")

    def _standard(self, packet: Packet, **values: int) -> None:
        fields = packet.headers["standard_metadata"].fields
        for name, value in values.items():
            if name in fields:
                fields[name] = value

    # --- checksums and hashes ---

    def _checksum_holds(self, packet: Packet, checksum: dict[str, Any]) -> bool:
        if checksum["if_cond"] is not None and not self._truth(packet, checksum["if_cond"], []):
            return True
        header, name = checksum["target"]
        width = self._field_def(header, name)[1]
        want = self._calculate(packet, checksum["calculation"]) & ((1 << width) - 1)
        return packet.headers[header].fields[name] == want

    def _calculate(self, packet: Packet, name: str) -> int:
        calculation = self.calculations[name]
        value = bits = 0
        tail = b""
        for item in calculation["input"]:
            if item["type"] == "payload":
                tail = packet.payload[: packet.truncate]
                continue
            if item["type"] == "field":
                header, field_name = item["value"]
                if not packet.headers[header].valid:
                    continue
                width = self._field_def(header, field_name)[1]
                if width == "*":
                    width = packet.headers[header].varbit_bits
                part = packet.headers[header].fields[field_name] & ((1 << width) - 1)
            else:
                width, part = item["bitwidth"], int(item["value"], 16)
            value, bits = value << width | part, bits + width
        pad = -bits % 8
        data = (value << pad).to_bytes((bits + pad) // 8, "big") + tail
        return HASHES[calculation["algo"]](data)

    # --- actions ---

    def _run_action(self, packet: Packet, action: dict[str, Any], data: list[int]) -> None:
        primitives = action["primitives"]
        at, steps = 0, 0
        while at < len(primitives):
            steps += 1
            if steps > MAX_NODES:
                raise RuntimeError("the action does not end")
            op = primitives[at]
            at += 1
            if op["op"] == "_jump":
                at = self._argument(packet, op["parameters"][0], data)
            elif op["op"] == "_jump_if_zero":
                if self._argument(packet, op["parameters"][0], data) == 0:
                    at = self._argument(packet, op["parameters"][1], data)
            else:
                self._primitive(packet, op, data)

    def _primitive(self, packet: Packet, op: dict[str, Any], data: list[int]) -> None:
        method = getattr(self, "_do_" + op["op"], None)
        if method is None:
            raise NotImplementedError(f"primitive {op['op']}")
        method(packet, op["parameters"], data)

    def _do_assign(self, packet: Packet, params: list[Any], data: list[int]) -> None:
        self._store(packet, params[0], self._argument(packet, params[1], data), data)

    def _do_assign_VL(self, packet: Packet, params: list[Any], data: list[int]) -> None:  # noqa: N802
        self._assign_varbit(packet, params[0]["value"], params[1]["value"])

    def _is_varbit(self, place: list[str]) -> bool:
        return bool(self._field_def(*place)[1] == "*")

    def _assign_varbit(self, packet: Packet, target: list[str], source: list[str]) -> None:
        from_header = packet.headers[source[0]]
        to_header = packet.headers[target[0]]
        to_header.fields[target[1]] = from_header.fields[source[1]]
        to_header.varbit_bits = from_header.varbit_bits

    def _do_assign_header(self, packet: Packet, params: list[Any], data: list[int]) -> None:
        target, source = (self._header(packet, p, data) for p in params)
        self._copy_header(packet, target, source)

    def _copy_header(self, packet: Packet, target: str, source: str) -> None:
        if target == source:
            return
        src = packet.headers[source]
        if not src.valid:
            self._set_valid(packet, target, False)
            return
        packet.headers[target].fields = dict(src.fields)
        packet.headers[target].varbit_bits = src.varbit_bits
        self._set_valid(packet, target, True)

    def _do_assign_header_stack(self, packet: Packet, params: list[Any], data: list[int]) -> None:
        target, source = (p["value"] for p in params)
        packet.next_index[target] = packet.next_index[source]
        for a, b in zip(self.stacks[target], self.stacks[source], strict=True):
            self._copy_header(packet, a, b)

    def _do_assign_union(self, packet: Packet, params: list[Any], data: list[int]) -> None:
        for a, b in zip(self.union_members[params[0]["value"]], self.union_members[params[1]["value"]], strict=True):
            self._copy_header(packet, a, b)

    def _do_assign_union_stack(self, packet: Packet, params: list[Any], data: list[int]) -> None:
        target, source = (p["value"] for p in params)
        packet.next_index[target] = packet.next_index[source]
        for u, v in zip(self.union_stacks[target], self.union_stacks[source], strict=True):
            for a, b in zip(self.union_members[u], self.union_members[v], strict=True):
                self._copy_header(packet, a, b)

    def _set_valid(self, packet: Packet, name: str, valid: bool) -> None:
        if valid and name in self.union_of:
            for other in self.union_members[self.union_of[name]]:
                if other != name:
                    packet.headers[other].valid = False
        packet.headers[name].valid = valid

    def _do_add_header(self, packet: Packet, params: list[Any], data: list[int]) -> None:
        name = self._header(packet, params[0], data)
        header = packet.headers[name]
        if not header.valid:
            header.fields = dict.fromkeys(header.fields, 0)
            header.varbit_bits = 0
            self._set_valid(packet, name, True)
            packet.length += len(self._header_bytes(packet, name))

    def _do_remove_header(self, packet: Packet, params: list[Any], data: list[int]) -> None:
        name = self._header(packet, params[0], data)
        if packet.headers[name].valid:
            packet.length -= len(self._header_bytes(packet, name))
            self._set_valid(packet, name, False)

    def _shift(self, packet: Packet, params: list[Any], data: list[int], direction: int) -> None:
        name = params[0]["value"]
        amount = self._argument(packet, params[1], data)
        groups = (
            [[h] for h in self.stacks[name]]
            if params[0]["type"] == "header_stack"
            else [self.union_members[u] for u in self.union_stacks[name]]
        )
        size = len(groups)
        old = [[packet.headers[m] for m in g] for g in groups]
        spare = [HeaderState(dict.fromkeys(h.fields, 0)) for g in old for h in g]
        for i, group in enumerate(groups):
            source = i - direction * amount
            for j, member in enumerate(group):
                packet.headers[member] = old[source][j] if 0 <= source < size else spare[i * len(group) + j]
        following = packet.next_index[name] + direction * amount
        packet.next_index[name] = max(0, min(size, following))

    def _do_push(self, packet: Packet, params: list[Any], data: list[int]) -> None:
        self._shift(packet, params, data, 1)

    def _do_pop(self, packet: Packet, params: list[Any], data: list[int]) -> None:
        self._shift(packet, params, data, -1)

    def _do_exit(self, packet: Packet, params: list[Any], data: list[int]) -> None:
        packet.exited = True

    def _do_mark_to_drop(self, packet: Packet, params: list[Any], data: list[int]) -> None:
        packet.headers[params[0]["value"]].fields |= {"egress_spec": DROP_PORT, "mcast_grp": 0}

    def _do_modify_field_with_hash_based_offset(self, packet: Packet, params: list[Any], data: list[int]) -> None:
        base, size = self._argument(packet, params[1], data), self._argument(packet, params[3], data)
        value = base + self._calculate(packet, params[2]["value"]) % (size or 1)
        self._store(packet, params[0], value, data)

    def _do_modify_field_rng_uniform(self, packet: Packet, params: list[Any], data: list[int]) -> None:
        low, high = self._argument(packet, params[1], data), self._argument(packet, params[2], data)
        if low <= high:
            self._store(packet, params[0], self.random.randint(low, high), data)

    def _do_generate_digest(self, packet: Packet, params: list[Any], data: list[int]) -> None:
        packet.digest = self._argument(packet, params[1], data)

    def _do_clone_ingress_pkt_to_egress(self, packet: Packet, params: list[Any], data: list[int]) -> None:
        packet.clone = (self._argument(packet, params[0], data), self._argument(packet, params[1], data))

    _do_clone_egress_pkt_to_egress = _do_clone_ingress_pkt_to_egress

    def _do_resubmit(self, packet: Packet, params: list[Any], data: list[int]) -> None:
        packet.resubmit = self._argument(packet, params[0], data)

    def _do_recirculate(self, packet: Packet, params: list[Any], data: list[int]) -> None:
        packet.recirculate = self._argument(packet, params[0], data)

    def _do_truncate(self, packet: Packet, params: list[Any], data: list[int]) -> None:
        length = self._argument(packet, params[0], data)
        packet.truncate = length if packet.truncate is None else min(packet.truncate, length)

    def _do_register_read(self, packet: Packet, params: list[Any], data: list[int]) -> None:
        cells = self.registers[params[1]["value"]]
        index = self._argument(packet, params[2], data)
        if index < len(cells):
            self._store(packet, params[0], cells[index], data)

    def _do_register_write(self, packet: Packet, params: list[Any], data: list[int]) -> None:
        name = params[0]["value"]
        index = self._argument(packet, params[1], data)
        if index < len(self.registers[name]):
            value = self._argument(packet, params[2], data) & ((1 << self.register_width[name]) - 1)
            self.registers[name][index] = value

    def _do_count(self, packet: Packet, params: list[Any], data: list[int]) -> None:
        cells = self.counters[params[0]["value"]]
        index = self._argument(packet, params[1], data)
        if index < len(cells):
            cells[index][0] += 1
            cells[index][1] += packet.length

    def _do_execute_meter(self, packet: Packet, params: list[Any], data: list[int]) -> None:
        self._store(packet, params[2], 0, data)

    def _do_assert(self, packet: Packet, params: list[Any], data: list[int]) -> None:
        if self._argument(packet, params[0], data) == 0:
            raise AssertionError("assert or assume in the program")

    _do_assume = _do_assert

    def _do_log_msg(self, packet: Packet, params: list[Any], data: list[int]) -> None:
        text = params[0]["value"]
        for item in params[1]["value"]:
            text = text.replace("{}", str(self._argument(packet, item, data)), 1)
        self.messages.append(text)

    # --- expressions ---

    def _argument(self, packet: Packet, item: dict[str, Any], data: list[int]) -> int:
        """Return an argument of a primitive as data."""
        if item["type"] == "runtime_data":
            return data[item["value"]]
        if item["type"] == "expression" and "type" in item["value"]:
            return self._data(packet, item["value"], data)
        return self._data(packet, item, data)

    def _data(self, packet: Packet, item: dict[str, Any], data: list[int]) -> int:
        value = self._evaluate(packet, item, data)
        assert type(value) is int, f"{item} is not data"
        return value

    def _truth(self, packet: Packet, item: dict[str, Any], data: list[int]) -> bool:
        value = self._evaluate(packet, item, data)
        assert type(value) is bool, f"{item} is not a boolean"
        return value

    def _header(self, packet: Packet, item: dict[str, Any], data: list[int]) -> str:
        value = item["value"] if item["type"] == "header" else self._evaluate(packet, item["value"], data)
        assert isinstance(value, str)
        return value

    def _evaluate(self, packet: Packet, item: dict[str, Any], data: list[int]) -> int | bool | str:
        kind, value = item["type"], item["value"]
        if kind == "hexstr":
            return int(value, 16)
        if kind == "bool":
            return bool(value)
        if kind == "field":
            header, name = value
            state = packet.headers[header]
            return int(state.valid) if name == "$valid$" else state.fields[name]
        if kind == "local":
            return data[value]
        if kind == "stack_field":
            stack, name = value
            return packet.headers[self.stacks[stack][packet.next_index[stack] - 1]].fields[name]
        if kind == "header":
            return str(value)
        if kind == "expression" and "type" in value:
            return self._evaluate(packet, value, data)
        assert kind == "expression", kind
        return self._operate(packet, value, data)

    def _operate(self, packet: Packet, e: dict[str, Any], data: list[int]) -> int | bool | str:
        op = e["op"]
        if op == "?":
            side = "left" if self._truth(packet, e["cond"], data) else "right"
            return self._evaluate(packet, e[side], data)
        if op == "dereference_header_stack":
            elements = self.stacks[e["left"]["value"]]
            index = self._data(packet, e["right"], data)
            if not 0 <= index < len(elements):
                raise IndexError(f"stack {e['left']['value']} has no element {index}")
            return elements[index]
        if op == "access_field":
            name = self._evaluate(packet, e["left"], data)
            fields = self.types[self.headers[str(name)]["header_type"]]["fields"]
            return packet.headers[str(name)].fields[fields[e["right"]][0]]
        if op == "last_stack_index":
            return (packet.next_index[e["right"]["value"]] - 1) % (1 << 64)
        if op == "size_stack":
            return packet.next_index[e["right"]["value"]]
        if op == "valid":
            return packet.headers[str(self._evaluate(packet, e["right"], data))].valid
        if op == "valid_union":
            return any(packet.headers[m].valid for m in self.union_members[e["right"]["value"]])
        right = self._evaluate(packet, e["right"], data)
        if e["left"] is None:
            return _unary(op, right)
        left = self._evaluate(packet, e["left"], data)
        assert type(left) is type(right), f"operands of {op} of different kinds: {e}"
        if isinstance(left, str):
            assert op == "=="
            a, b = packet.headers[left], packet.headers[str(right)]
            return a.valid and b.valid and a.fields == b.fields and a.varbit_bits == b.varbit_bits
        assert not isinstance(right, str)
        return _binary(op, left, right)

    def _store(self, packet: Packet, place: dict[str, Any], value: int, data: list[int]) -> None:
        if place["type"] == "field":
            header, name = place["value"]
        else:
            access = place["value"]["value"] if "type" in place["value"] else place["value"]
            assert access["op"] == "access_field"
            header = str(self._evaluate(packet, access["left"], data))
            fields = self.types[self.headers[header]["header_type"]]["fields"]
            name = fields[access["right"]][0]
        field_def = self._field_def(header, name)
        signed = len(field_def) > 2 and bool(field_def[2])
        packet.headers[header].fields[name] = wrap(value, field_def[1], signed)


def wrap(value: int, width: int, signed: bool) -> int:
    value &= (1 << width) - 1
    return value - (1 << width) if signed and value >> (width - 1) else value


def _unary(op: str, value: int | bool | str) -> int | bool:
    if op == "d2b":
        assert type(value) is int
        return value != 0
    if op == "b2d":
        assert type(value) is bool
        return int(value)
    if op == "not":
        assert type(value) is bool
        return not value
    assert type(value) is int
    return {"~": ~value, "-": -value, "+": value}[op]


def _binary(op: str, a: int, b: int) -> int | bool:
    if op in ("and", "or"):
        return bool(a and b) if op == "and" else bool(a or b)
    if op in ("==", "!=", "<", "<=", ">", ">="):
        return {"==": a == b, "!=": a != b, "<": a < b, "<=": a <= b, ">": a > b, ">=": a >= b}[op]
    if op == "two_comp_mod":
        return wrap(a, b, True)
    if op == "usat_cast":
        return max(0, min(a, (1 << b) - 1))
    if op == "sat_cast":
        return max(-(1 << (b - 1)), min(a, (1 << (b - 1)) - 1))
    if op in ("<<", ">>"):
        assert 0 <= b < 100_000, "shift amount"
        return a << b if op == "<<" else a >> b
    if op in ("/", "%"):
        assert a >= 0
        assert b > 0, "division by zero or negative"
        return a // b if op == "/" else a % b
    return {"+": a + b, "-": a - b, "*": a * b, "&": a & b, "|": a | b, "^": a ^ b}[op]
