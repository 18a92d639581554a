"""Identifiers of P4Info objects and of their fields (P4Runtime specification §6.3), aliases, and annotations."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any

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


_ELSEWHERE = frozenset({"name", "id", "brief", "description"})
_INT64 = 1 << 63


def add_annotations(message: Any, annotations: Sequence[ast.Annotation], skip: Collection[str] = ()) -> None:
    """Copy annotations: structured ones always, others unless P4Info has a field for them or `skip` names them."""
    for each in annotations:
        if each.structured:
            _structured(message.structured_annotations.add(), each)
        elif each.name not in _ELSEWHERE and each.name not in skip:
            message.annotations.append(f"@{each.name}" + (f"({each.text})" if each.text else ""))


def add_documentation(message: Any, annotations: Sequence[ast.Annotation]) -> None:
    """Fill `doc` from `@brief` and `@description`."""
    for each in annotations:
        if each.name in ("brief", "description") and each.args:
            setattr(message.doc, each.name, str(each.args[0]))


def _structured(message: Any, annotation: ast.Annotation) -> None:
    message.name = annotation.name
    if annotation.pairs:
        for pair in annotation.pairs:
            entry = message.kv_pair_list.kv_pairs.add()
            entry.key = pair.name
            _value(entry.value, pair.expr.const)
    else:
        for expr in annotation.exprs:
            _value(message.expression_list.expressions.add(), expr.const)


def _value(message: Any, value: ast.Value | None) -> None:
    if isinstance(value, bool):
        message.bool_value = value
    elif isinstance(value, int):
        # Longer numbers have no place in a P4Info expression; saturated, they are still recognisable as too long.
        message.int64_value = max(-_INT64, min(value, _INT64 - 1))
    else:
        message.string_value = str(value)


def pairs_of(annotation: ast.Annotation) -> Iterator[tuple[str, str | int | bool]]:
    """Yield the pairs of `@a[key=value, ...]` or `@a(key=value, ...)`."""
    for pair in annotation.pairs:
        if isinstance(pair.expr.const, str | int):
            yield pair.name, pair.expr.const
    tokens = annotation.tokens
    for i, token in enumerate(tokens):
        if token == "=" and 0 < i < len(tokens) - 1:
            text = tokens[i + 1]
            if text.startswith('"'):
                yield tokens[i - 1], text[1:-1].replace('\\"', '"').replace("\\\\", "\\")
            elif text.isdigit():
                yield tokens[i - 1], int(text)


def is_hidden(annotations: Sequence[ast.Annotation]) -> bool:
    """Return whether `@hidden` keeps an object from the control plane."""
    return any(each.name == "hidden" for each in annotations)
