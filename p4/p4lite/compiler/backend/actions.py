"""Actions: graphs of blocks in line, with BMv2's jumps between them."""

from __future__ import annotations

from typing import Any

from p4lite.compiler.backend.expressions import Json, argument, hexstr, source_info
from p4lite.compiler.midend import arith, lir
from p4lite.compiler.midend.lir import BasicBlock, LOp, LoweredAction, LoweredAssign, Prim


def primitive(op: LOp) -> Json:
    """Return one primitive call."""
    if isinstance(op, LoweredAssign):
        return {
            "op": "assign",
            "parameters": [argument(op.target), argument(op.value)],
            **source_info(op.loc),
        }
    if isinstance(op, Prim):
        return {"op": op.op, "parameters": [argument(a) for a in op.args], **source_info(op.loc)}
    raise TypeError(f"{type(op).__name__} in an action")


def _order(entry: BasicBlock) -> list[BasicBlock]:
    """Return blocks in an order that lets most jumps fall through: reverse postorder, true side first."""
    order: list[BasicBlock] = []
    seen: set[int] = set()
    stack: list[tuple[BasicBlock, list[BasicBlock]]] = []

    def enter(block: BasicBlock) -> None:
        seen.add(id(block))
        # The side visited last comes first in reverse postorder.
        stack.append((block, list(reversed(lir.successors(block.term)))))

    enter(entry)
    while stack:
        block, rest = stack[-1]
        while rest and id(rest[0]) in seen:
            rest.pop(0)
        if rest:
            enter(rest.pop(0))
        else:
            order.append(block)
            stack.pop()
    order.reverse()
    return order


def linearise(entry: BasicBlock) -> list[Json]:
    """Return the primitives of an action's graph."""
    order = _order(entry)
    following = {id(b): order[i + 1] if i + 1 < len(order) else None for i, b in enumerate(order)}
    out: list[Json] = []
    starts: dict[int, int] = {}
    patches: list[tuple[int, BasicBlock | None]] = []

    def jump(op: str, arguments: list[Any], to: BasicBlock | None) -> None:
        patches.append((len(out), to))
        out.append({"op": op, "parameters": arguments})

    for block in order:
        starts[id(block)] = len(out)
        out.extend(primitive(op) for op in block.ops)
        term = block.term
        after = following[id(block)]
        if isinstance(term, lir.Jump):
            if term.to is not after:
                jump("_jump", [], term.to)
        elif isinstance(term, lir.Branch):
            jump("_jump_if_zero", [argument(arith.to_data(term.cond))], term.other)
            if term.then is not after:
                jump("_jump", [], term.then)
        elif after is not None:
            jump("_jump", [], None)
    for at, to in patches:
        target = len(out) if to is None else starts[id(to)]
        out[at]["parameters"].append({"type": "hexstr", "value": hexstr(target)})
    return out


def action_json(action: LoweredAction, number: int) -> Json:
    """Return one item of `actions`."""
    return {
        "name": action.name,
        "id": number,
        "runtime_data": [{"name": name, "bitwidth": width} for name, width in action.params],
        "primitives": linearise(action.body),
    }
