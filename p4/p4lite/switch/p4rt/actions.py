"""Action messages to calls and back (P4Runtime specification, "Action Specification")."""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import Any

from p4lite.switch.p4rt.bytestrings import decode, encode
from p4lite.switch.p4rt.errors import invalid
from p4lite.switch.p4rt.match import is_canonical
from p4lite.switch.p4rt.pipeline import Pipeline, TableBinding
from p4lite.switch.program.entry import ActionCall


def action_call(pipeline: Pipeline, allowed: Container[int], action: Any, where: str) -> ActionCall:
    """Return the call in an Action message; its arguments become canonical in place."""
    params = [(param.param_id, param.value) for param in action.params]
    call, canonical = decode_action(pipeline, allowed, action.action_id, params, where)
    if not canonical:
        for param in action.params:
            param.value = encode(int.from_bytes(param.value, "big"))
    return call


def decode_action(
    pipeline: Pipeline, allowed: Container[int], ident: int, params: Iterable[tuple[int, bytes]], where: str
) -> tuple[ActionCall, bool]:
    """Return the call of an action by id with (parameter id, value), and whether all values were canonical."""
    if ident not in allowed:
        raise invalid(f"there is no action with id {ident} in '{where}'")
    binding = pipeline.actions[ident]
    known = binding.info.by_id
    values: dict[int, int] = {}
    canonical = True
    for number, data in params:
        info = known.get(number)
        if info is None:
            raise invalid(f"action '{binding.info.name}' has no parameter with id {number}")
        if number in values:
            raise invalid(f"parameter '{info.name}' is given twice")
        values[number] = decode(data, info.width, f"parameter '{info.name}'")
        canonical = canonical and is_canonical(data)
    if len(values) != len(known):
        missing = next(info.name for number, info in known.items() if number not in values)
        raise invalid(f"action '{binding.info.name}' needs parameter '{missing}'")
    return binding.call(values), canonical


def action_message(pipeline: Pipeline, binding: TableBinding, call: ActionCall, message: Any) -> None:
    """Fill an Action message from a call; ids are those of the table's action of that name."""
    for ident in binding.info.scopes:
        found = pipeline.actions[ident]
        if found.info.name == call.name:
            message.action_id = ident
            values = dict(zip(found.order, call.args, strict=True))
            for param in found.info.params:
                message.params.add(param_id=param.id, value=encode(values[param.id]))
            return
