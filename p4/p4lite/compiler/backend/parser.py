"""The parser section: blocks as parse states."""

from __future__ import annotations

from p4lite.compiler.backend.actions import primitive
from p4lite.compiler.backend.expressions import Json, argument, expression, hexstr, source_info
from p4lite.compiler.midend import arith, lir
from p4lite.compiler.midend.lir import BasicBlock, Const, Field, LOp, LoweredAssign, LoweredSelect, LoweredSelectCase
from p4lite.compiler.midend.names import UniqueNames


def _operation(op: LOp) -> Json:
    return {**_placeless(op), **source_info(op.loc)}


def _placeless(op: LOp) -> Json:
    if isinstance(op, lir.Extract):
        target = list(op.target) if isinstance(op.target, tuple) else op.target
        parameters: list[Json] = [{"type": op.kind, "value": target}]
        if op.length is None:
            return {"op": "extract", "parameters": parameters}
        parameters.append({"type": "expression", "value": expression(op.length)})
        return {"op": "extract_VL", "parameters": parameters}
    if isinstance(op, lir.Advance):
        return {"op": "advance", "parameters": [argument(op.bits)]}
    if isinstance(op, lir.Verify):
        return {"op": "verify", "parameters": [expression(op.cond), expression(op.error)]}
    if isinstance(op, LoweredAssign) and isinstance(op.target, Field):
        value = op.value
        if isinstance(value, lir.Lookahead):
            source: Json = {"type": "lookahead", "value": [value.offset, value.width]}
        else:
            source = argument(value)
        return {"op": "set", "parameters": [expression(op.target), source]}
    return {"op": "primitive", "parameters": [primitive(op)]}


def _concatenate(parts: list[tuple[int, int]]) -> str:
    """Return values of the given widths, each padded to bytes, one after the other."""
    return "0x" + "".join(hexstr(value, width)[2:] for value, width in parts)


def _transition(case: LoweredSelectCase, keys: list[Field | lir.LastField], names: dict[int, str | None]) -> Json:
    return {**_case(case, keys, names), **source_info(case.loc)}


def _case(case: LoweredSelectCase, keys: list[Field | lir.LastField], names: dict[int, str | None]) -> Json:
    to = None if case.to is None else names[id(case.to)]
    if case.vset is not None:
        return {"type": "parse_vset", "value": case.vset, "mask": None, "next_state": to}
    masks = [0 if m == 0 else m for _, m in case.keys]
    if not case.keys or all(m == 0 for m in masks):
        return {"type": "default", "value": None, "mask": None, "next_state": to}
    widths = [k.width for k in keys]
    value = _concatenate([(v, w) for (v, _), w in zip(case.keys, widths, strict=True)])
    if all(m is None for m in masks):
        return {"type": "hexstr", "value": value, "mask": None, "next_state": to}
    full = [(arith.mask(w) if m is None else m, w) for m, w in zip(masks, widths, strict=True)]
    return {"type": "hexstr", "value": value, "mask": _concatenate(full), "next_state": to}


def _is_accept(block: BasicBlock) -> bool:
    return not block.ops and isinstance(block.term, lir.End) and block.name is None


def parser_json(parser: lir.LoweredParser, number: int) -> Json:
    """Return one item of `parsers`."""
    first = parser.entry
    while not first.ops and isinstance(first.term, lir.Jump) and first.name is None:
        first = first.term.to
    blocks = [b for b in lir.reachable(first) if b is first or not _is_accept(b)]
    names: dict[int, str | None] = {id(b): None for b in lir.reachable(first)}
    named = {b.name for b in blocks if b.name}
    unique = UniqueNames(*named)
    for block in blocks:
        hint = "start" if "start" not in named and block is first else "state"
        names[id(block)] = block.name or unique.take(hint)
    states = [_state(block, number, names) for number, block in enumerate(blocks)]
    return {"name": parser.name, "id": number, "init_state": names[id(first)], "parse_states": states}


def _state(block: BasicBlock, number: int, names: dict[int, str | None]) -> Json:
    term = block.term
    transitions: list[Json]
    keys: list[Json] = []
    if isinstance(term, LoweredSelect):
        transitions = [_transition(c, list(term.keys), names) for c in term.cases]
        keys = [expression(k) for k in term.keys]
    else:
        to = names[id(term.to)] if isinstance(term, lir.Jump) else None
        transitions = [{"type": "default", "value": None, "mask": None, "next_state": to}]
    return {
        "name": names[id(block)],
        "id": number,
        **source_info(block.loc),
        "parser_ops": [_operation(op) for op in block.ops],
        "transitions": transitions,
        "transition_key": keys,
    }


__all__ = ["Const", "parser_json"]
