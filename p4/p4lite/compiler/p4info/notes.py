"""Annotations and documentation in P4Info messages (P4Runtime specification §6.1.2)."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any

from p4lite.compiler import ast

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
