"""Table entries from files: commands of simple_switch_CLI, or the runtime JSON of p4lang/tutorials."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from p4lite.api.control import Control
from p4lite.api.tables import action_call, match_key
from p4lite.api.values import find
from p4lite.files import ReadError, read_text
from p4lite.switch.bmv2.reader import JsonNode
from p4lite.switch.errors import ControlError, ProgramError
from p4lite.switch.fabric.values import CloneSession, FabricError, Replica
from p4lite.switch.multicast import Replication
from p4lite.tools.commands import CommandError, Commands


def load_entries(path: Path, control: Control, replication: Replication) -> None:
    """Apply a file to a switch: a `.json` in the form of sX-runtime.json, else commands. Raises CommandError.

    The message has file and line, or file and place. What came before it has been applied.
    """
    try:
        text = read_text(path)
    except ReadError as error:
        raise CommandError(str(error)) from None
    if path.suffix == ".json":
        try:
            document = JsonNode(json.loads(text), str(path))
            _runtime(document, control, replication)
        except (ValueError, ProgramError) as error:
            raise CommandError(str(error) if isinstance(error, ProgramError) else f"{path}: {error}") from None
        return
    commands = Commands(control, replication, write=lambda line: None)
    for number, line in enumerate(text.splitlines(), 1):
        try:
            commands.run(line)
        except CommandError as error:
            raise CommandError(f"{path}:{number}: {error}") from None


def _runtime(document: JsonNode, control: Control, replication: Replication) -> None:
    for node in document.items("table_entries"):
        _applied(node, lambda n: _entry(n, control))
    for node in document.items("multicast_group_entries"):
        _applied(node, lambda n: replication.set_multicast_group(n["multicast_group_id"].int(), _replicas(n)))
    for node in document.items("clone_session_entries"):
        _applied(node, lambda n: replication.set_clone_session(n["clone_session_id"].int(), _session(n)))


def _applied(node: JsonNode, apply: Any) -> None:
    try:
        apply(node)
    except (ControlError, FabricError) as error:
        node.fail(str(error))


def _replicas(node: JsonNode) -> tuple[Replica, ...]:
    replicas = []
    for item in node["replicas"].items():
        instance = item.get("instance")
        replicas.append(Replica(item["egress_port"].int(), instance.int() if instance is not None else 0))
    return tuple(replicas)


def _session(node: JsonNode) -> CloneSession:
    length = node.get("packet_length_bytes")
    return CloneSession(replicas=_replicas(node), truncate_bytes=length.int() if length is not None else 0)


def _entry(node: JsonNode, control: Control) -> None:
    # Takes gRPC with it, which no file of commands needs.
    from p4lite.switch.p4rt.tables import PRIORITY_PIVOT

    tables = control.program.tables
    table = tables[find(node["table"].str(), tables, "table")]
    arguments = node.get("action_params")
    given: Mapping[str, Any] = arguments.value if arguments is not None else {}
    call = action_call(table.actions, (node["action_name"].str(), given), f"table '{table.name}'")
    matched = node.get("match")
    if node.flag("default_action") or (matched is None and not table.key):
        control.table_set_default(table.name, call)
        return
    # Pairs of JSON are lists: a prefix with its length, a value with its mask, the ends of a range.
    values = {name: tuple(v) if isinstance(v, list) else v for name, v in (matched.value if matched else {}).items()}
    priority = node.get("priority")
    # The file has P4Runtime's priorities, of which the higher wins; the switch has BMv2's, of which the lower wins.
    own = PRIORITY_PIVOT - (priority.int() if priority is not None else 0) if table.needs_priority else 0
    control.table_add(table.name, match_key(table, values), call, priority=own)
