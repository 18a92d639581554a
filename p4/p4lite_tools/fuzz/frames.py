"""Packets that reach deep into a program's parser: random walks through its states.

A walk extracts headers as the parser would, filling them with random bits, and where a transition depends on a field
or on bits ahead, writes a value there that some transition asks for. What it cannot follow (expressions as keys) it
leaves to chance. For fuzzing and differential tests.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

from p4lite.switch.bmv2.model import HeaderLayout, Model
from p4lite.switch.program.facts import Facts

MAX_STEPS = 24
MAX_BITS = 1 << 14


@dataclass
class _Walk:
    bits: list[int] = field(default_factory=list)
    fixed: dict[int, int] = field(default_factory=dict)  # bits set before they are reached
    cursor: int = 0
    fields: dict[tuple[str, str], tuple[int, int]] = field(default_factory=dict)  # last extraction: offset, width
    next_index: dict[str, int] = field(default_factory=dict)


class FrameMaker:
    """`make()` gives a packet; the same seed gives the same packets."""

    def __init__(self, program: Facts, rng: random.Random):
        self.model: Model = program.model
        self.rng = rng
        parsers = self.model.root["parsers"].value
        self.parser: dict[str, Any] = parsers[0] if parsers else {"parse_states": [], "init_state": None}
        self.states = {s["name"]: s for s in self.parser["parse_states"]}

    def make(self, *, payload: int | None = None) -> bytes:
        walk = _Walk()
        name = self.parser.get("init_state")
        for _ in range(MAX_STEPS):
            if name not in self.states or walk.cursor > MAX_BITS:
                break
            state = self.states[name]
            for op in state.get("parser_ops", []):
                self._operation(walk, op)
            name = self._follow(walk, state)
        self._grow(walk, max([walk.cursor, *[b + 1 for b in walk.fixed]]))
        extra = self.rng.choice((0, 0, 1, 8, 46, 100)) if payload is None else payload
        self._grow(walk, (len(walk.bits) + 7) // 8 * 8)
        head = int("0" + "".join(map(str, walk.bits)), 2).to_bytes(len(walk.bits) // 8, "big") if walk.bits else b""
        return head + self.rng.randbytes(extra)

    def _grow(self, walk: _Walk, size: int) -> None:
        while len(walk.bits) < size:
            at = len(walk.bits)
            walk.bits.append(walk.fixed.pop(at) if at in walk.fixed else self.rng.getrandbits(1))

    def _set(self, walk: _Walk, offset: int, width: int, value: int) -> None:
        for i in range(width):
            bit = value >> (width - 1 - i) & 1
            if offset + i < len(walk.bits):
                walk.bits[offset + i] = bit
            else:
                walk.fixed[offset + i] = bit

    def _operation(self, walk: _Walk, op: dict[str, Any]) -> None:
        kind, args = op["op"], op["parameters"]
        if kind in ("extract", "extract_VL"):
            target = args[0]
            name, type_ = self._target(walk, target)
            if type_ is not None:
                self._extract(walk, name, target, type_)
        elif kind == "shift" and isinstance(args[0], int):
            walk.cursor += 8 * args[0]
        elif kind == "advance" and args[0]["type"] == "hexstr":
            walk.cursor += int(args[0]["value"], 16)
        self._grow(walk, min(walk.cursor, MAX_BITS))

    def _target(self, walk: _Walk, target: dict[str, Any]) -> tuple[str, HeaderLayout | None]:
        if target["type"] == "regular":
            return target["value"], self.model.headers[target["value"]].type
        if target["type"] == "stack":
            stack = self.model.stacks[target["value"]]
            index = walk.next_index.get(stack.name, 0)
            walk.next_index[stack.name] = index + 1
            header = stack.headers[min(index, len(stack.headers) - 1)]
            return header.name, stack.type
        union_stack = self.model.union_stacks[target["value"][0]]
        member = union_stack.members.index(target["value"][1])
        return "", union_stack.unions[0].headers[member].type

    def _extract(self, walk: _Walk, name: str, target: dict[str, Any], type_: HeaderLayout) -> None:
        for f in type_.fields:
            width = f.width if not f.varbit else 8 * self.rng.randint(0, min(type_.varbit_max, 12))
            place = (walk.cursor, width)
            walk.fields[(name, f.name)] = place
            if target["type"] != "regular":
                owner = target["value"] if target["type"] == "stack" else ".".join(target["value"])
                walk.fields[(owner, f.name)] = place
            walk.cursor += width
        self._grow(walk, walk.cursor)

    def _follow(self, walk: _Walk, state: dict[str, Any]) -> str | None:
        transitions = state.get("transitions", [])
        if not transitions:
            return None
        chosen = self.rng.choice(transitions)
        following: str | None = chosen.get("next_state")
        value = chosen.get("value")
        if chosen.get("type", "hexstr") != "hexstr" or value in (None, "default"):
            return following
        data = bytes.fromhex(value.removeprefix("0x"))
        mask_text = chosen.get("mask")
        mask = bytes.fromhex(mask_text.removeprefix("0x")) if mask_text else b"\xff" * len(data)
        noise = self.rng.randbytes(len(data))
        data = bytes(d & m | n & ~m & 0xFF for d, m, n in zip(data, mask, noise, strict=True))
        at = 0
        for part in state.get("transition_key", []):
            place = self._key_place(walk, part)
            width = place[1] if place else self._key_width(part)
            size = (width + 7) // 8
            if place is not None:
                self._set(walk, place[0], width, int.from_bytes(data[at : at + size], "big") & ((1 << width) - 1))
            at += size
        return following

    def _key_place(self, walk: _Walk, part: dict[str, Any]) -> tuple[int, int] | None:
        value = part["value"]
        if part["type"] == "lookahead":
            return walk.cursor + value[0], value[1]
        if part["type"] == "union_stack_field":
            return walk.fields.get((f"{value[0]}.{value[1]}", value[2]))
        return walk.fields.get((value[0], value[1]))

    def _key_width(self, part: dict[str, Any]) -> int:
        header = self.model.headers.get(part["value"][0])
        f = header.type.by_name.get(part["value"][1]) if header else None
        return f.width if f else 8
