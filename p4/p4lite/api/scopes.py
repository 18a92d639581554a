"""Scopes of the actions of a table: P4Info says where they may stand, BMv2's JSON does not."""

from __future__ import annotations

import enum
from typing import Any

#: For each table its actions that may not stand everywhere.
Scopes = dict[str, dict[str, "ActionScope"]]


class ActionScope(enum.Enum):
    """What an annotation of an action in a table says."""

    ENTRIES_ONLY = "tableonly"
    DEFAULT_ONLY = "defaultonly"


def scopes_of(p4info: Any) -> Scopes:
    """Return the scopes in a P4Info message."""
    from p4.config.v1 import p4info_pb2

    kinds = {
        p4info_pb2.ActionRef.TABLE_ONLY: ActionScope.ENTRIES_ONLY,
        p4info_pb2.ActionRef.DEFAULT_ONLY: ActionScope.DEFAULT_ONLY,
    }
    names = {action.preamble.id: action.preamble.name for action in p4info.actions}
    found: Scopes = {}
    for table in p4info.tables:
        limited = {names[ref.id]: kinds[ref.scope] for ref in table.action_refs if ref.scope in kinds}
        if limited:
            found[table.preamble.name] = limited
    return found
