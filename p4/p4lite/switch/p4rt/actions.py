"""Action messages to calls and back (P4Runtime specification, "Action Specification")."""

from __future__ import annotations

from collections.abc import Container
from typing import Any

from p4lite.switch.p4rt.bytestrings import decode, encode
from p4lite.switch.p4rt.errors import invalid
from p4lite.switch.p4rt.pipeline import Pipeline, TableBinding
from p4lite.switch.program import ActionCall


def action_call(pipeline: Pipeline, allowed: Container[int], action: Any, where: str) -> ActionCall:
    """The call an Action message means; its arguments become canonical in place."""
    ident = action.action_id
    if ident not in allowed:
        raise invalid(f"there is no action with id {ident} in '{where}'")
    binding = pipeline.actions[ident]
    params = binding.info.by_id
    values: dict[int, int] = {}
    for param in action.params:
        info = params.get(param.param_id)
        if info is None:
            raise invalid(f"action '{binding.info.name}' has no parameter with id {param.param_id}")
        if param.param_id in values:
            raise invalid(f"parameter '{info.name}' is given twice")
        data = param.value
        value = decode(data, info.width, f"parameter '{info.name}'")
        if data[0] == 0 and len(data) > 1:
            param.value = encode(value)
        values[param.param_id] = value
    if len(values) != len(params):
        missing = next(info.name for ident, info in params.items() if ident not in values)
        raise invalid(f"action '{binding.info.name}' needs parameter '{missing}'")
    return binding.call(values)


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
