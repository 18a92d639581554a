"""Identifiers of P4Info objects and of their fields (P4Runtime specification §6.3), and aliases."""

from __future__ import annotations

from collections.abc import Sequence

from p4lite.compiler import ast
from p4lite.compiler.diagnostics import Unsupported

PREFIX = {
    "action": 0x01,
    "table": 0x02,
    "value_set": 0x03,
    "controller_header": 0x04,
    "action_profile": 0x11,
    "counter": 0x12,
    "direct_counter": 0x13,
    "meter": 0x14,
    "direct_meter": 0x15,
    "register": 0x16,
    "digest": 0x17,
}
"""The upper 8 bits of an identifier, by kind of object."""

_LOW = 0xFFFFFF
_WORD = 0xFFFFFFFF


def hash24(name: str) -> int:
    """Return the lower 24 bits of Jenkins's one-at-a-time hash of a name."""
    value = 0
    for byte in name.encode():
        value = (value + byte) & _WORD
        value = (value + (value << 10)) & _WORD
        value ^= value >> 6
    value = (value + (value << 3)) & _WORD
    value ^= value >> 11
    return (value + (value << 15)) & _LOW


def chosen_id(annotations: Sequence[ast.Annotation]) -> int | None:
    """Return the number in `@id`; None without one."""
    for annotation in annotations:
        if annotation.name == "id" and annotation.args and isinstance(annotation.args[0], int):
            return annotation.args[0]
    return None


class Symbols:
    """Identifiers and aliases of all objects, by kind and control-plane name.

    Every object is added first; then `assign` is called, and identifiers and aliases are available.
    """

    def __init__(self) -> None:
        self._wanted: dict[str, dict[str, int | None]] = {}
        self._ids: dict[tuple[str, str], int] = {}
        self._used: set[int] = set()
        self._suffixes: dict[tuple[str, ...], int] = {}

    def add(self, kind: str, name: str, decl: ast.Declaration | None = None) -> None:
        """Note an object; its `@id`, if it has one, is on `decl`. A second of the same kind and name is the same."""
        names = self._wanted.setdefault(kind, {})
        if name in names:
            return
        chosen = chosen_id(decl.annotations) if decl is not None else None
        if chosen is not None and decl is not None:
            chosen = self._claim(kind, chosen, decl)
        if not any(name in others for others in self._wanted.values()):
            parts = name.split(".")
            for count in range(1, len(parts) + 1):
                suffix = tuple(parts[-count:])
                self._suffixes[suffix] = self._suffixes.get(suffix, 0) + 1
        names[name] = chosen

    def _claim(self, kind: str, chosen: int, decl: ast.Declaration) -> int:
        prefix = PREFIX[kind]
        if chosen >> 24 not in (0, prefix):
            raise Unsupported(
                decl.pos, f"@id({chosen:#x}): the upper 8 bits of the identifier of '{decl.name}' must be {prefix:#04x}"
            )
        chosen |= prefix << 24
        if chosen in self._used:
            raise Unsupported(decl.pos, f"@id({chosen:#x}) is used twice: give '{decl.name}' another one")
        self._used.add(chosen)
        return chosen

    def assign(self) -> None:
        """Give every object its identifier: the hash of its name, the next free number where two collide."""
        for kind in sorted(self._wanted, key=PREFIX.__getitem__):
            for name in sorted(self._wanted[kind], key=str.encode):
                number = self._wanted[kind][name]
                if number is None:
                    low = hash24(name)
                    while (PREFIX[kind] << 24 | low) in self._used:
                        low = (low + 1) & _LOW
                    number = PREFIX[kind] << 24 | low
                    self._used.add(number)
                self._ids[kind, name] = number

    def id(self, kind: str, name: str) -> int:
        """Return the identifier of an object that was added."""
        return self._ids[kind, name]

    def alias(self, name: str) -> str:
        """Return the shortest suffix of a name that no other name has; the whole name if there is none."""
        parts = name.split(".")
        for count in range(1, len(parts)):
            if self._suffixes[tuple(parts[-count:])] < 2:
                return ".".join(parts[-count:])
        return name


def field_ids(annotations: Sequence[Sequence[ast.Annotation]]) -> list[int]:
    """Assign field identifiers from annotations: `@id`, else the position from 1 on, or the next free one."""
    chosen = [chosen_id(each) for each in annotations]
    for each, number in zip(annotations, chosen, strict=True):
        if number is not None and chosen.count(number) > 1:
            raise Unsupported(each[0].pos, f"@id({number:#x}) is used twice")
    used = {number for number in chosen if number is not None}
    ids: list[int] = []
    index = 1
    for number in chosen:
        if number is not None:
            ids.append(number)
            index += 1
            continue
        while index in used:
            index += 1
        ids.append(index)
        used.add(index)
    return ids
