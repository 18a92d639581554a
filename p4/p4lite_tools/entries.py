"""Table entries and packets from files: commands of simple_switch_CLI, runtime JSON, pcap and pcapng."""

from __future__ import annotations

import json
import struct
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from p4lite.api.tables import action_call, match_key
from p4lite.api.values import Control, find
from p4lite.errors import P4liteError
from p4lite.files import ReadError, read_bytes, read_text
from p4lite.switch.bmv2.reader import JsonNode
from p4lite.switch.errors import ControlError, ProgramError
from p4lite.switch.fabric.values import CloneSession, FabricError, Replica
from p4lite.switch.multicast import Replication
from p4lite_tools.commands import CommandError, Commands, UnknownCommandError


def _warn(text: str) -> None:
    print(f"warning: {text}", file=sys.stderr)


def load_entries(path: Path, control: Control, replication: Replication, report: Callable[[str], None] = _warn) -> None:
    """Apply a file to a switch: a `.json` in the form of sX-runtime.json, else commands. Raises CommandError.

    The message has file and line, or file and place. What came before it has been applied. A line that is no command
    is reported and left out.
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
        except UnknownCommandError as error:
            report(f"{path}:{number}: {error}")
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
    # A list of one is the one, as in the tutorials.
    given_key: Mapping[str, Any] = matched.value if matched is not None else {}
    values = {
        name: v if not isinstance(v, list) else v[0] if len(v) == 1 else tuple(v) for name, v in given_key.items()
    }
    priority = node.get("priority")
    # The file has P4Runtime's priorities, of which the higher wins; the switch has BMv2's, of which the lower wins.
    own = PRIORITY_PIVOT - (priority.int() if priority is not None else 0) if table.needs_priority else 0
    control.table_add(table.name, match_key(table, values), call, priority=own)


_PCAP = {0xA1B2C3D4: 1_000, 0xA1B23C4D: 1}  # nanoseconds of a fraction
_SECTION, _INTERFACE, _PACKET, _SIMPLE = 0x0A0D0D0A, 1, 6, 3


class CaptureError(P4liteError):
    """A file that is no capture, or is cut off."""

    code = "bad_capture"


@dataclass(frozen=True, slots=True)
class Captured:
    """A packet as it was captured; `time_ns` since 1970, 0 where the file does not say. `cut`: bytes are missing.

    `inbound` says whether the port received it, None where the file does not say.
    """

    data: bytes
    time_ns: int = 0
    cut: bool = False
    inbound: bool | None = None


def read_capture(path: Path, *, growing: bool = False) -> list[Captured]:
    """Return the packets of a file; `growing`: it is being written, so a packet that is cut off is still to come.

    Raises:
        CaptureError: it is no capture, or is cut off.
    """
    try:
        data = read_bytes(path)
    except ReadError as error:
        raise CaptureError(str(error)) from None
    found: list[Captured] = []
    try:
        # Those before the end are kept where it is cut off.
        for packet in _packets(data, path):
            found.append(packet)
    except struct.error:
        if not growing:
            raise CaptureError(f"{path}: the capture is cut off") from None
    return found


def _packets(data: bytes, path: Path) -> Iterator[Captured]:
    if data[:4] == b"\x0a\x0d\x0d\x0a":
        return _pcapng(data)
    for order in "<>":
        if len(data) >= 24 and struct.unpack_from(order + "I", data)[0] in _PCAP:
            return _pcap(data, order)
    raise CaptureError(f"{path}: not a capture: a pcap or pcapng file is expected")


def _pcap(data: bytes, order: str) -> Iterator[Captured]:
    fraction = _PCAP[struct.unpack_from(order + "I", data)[0]]
    at = 24
    while at < len(data):
        seconds, parts, length, original = struct.unpack_from(order + "4I", data, at)
        at += 16
        if at + length > len(data):
            raise struct.error
        yield Captured(data[at : at + length], seconds * 10**9 + parts * fraction, length < original)
        at += length


def _pcapng(data: bytes) -> Iterator[Captured]:
    at, order, resolutions = 0, "<", list[int]()
    while at < len(data):
        if struct.unpack_from("<I", data, at)[0] == _SECTION:
            order = "<" if data[at + 8 : at + 12] == b"\x4d\x3c\x2b\x1a" else ">"
            resolutions = []
        kind, size = struct.unpack_from(order + "II", data, at)
        if size < 12 or at + size > len(data):
            raise struct.error
        if kind == _INTERFACE:
            resolutions.append(_resolution(data[at + 16 : at + size - 4], order))
        elif kind == _PACKET:
            interface, high, low, length, original = struct.unpack_from(order + "5I", data, at + 8)
            time_ns = (high << 32 | low) * resolutions[interface] // 1_000
            options = data[at + 28 + (length + 3) // 4 * 4 : at + size - 4]
            inbound = _inbound(_option(options, order, 2), order)
            yield Captured(data[at + 28 : at + 28 + length], time_ns, length < original, inbound)
        elif kind == _SIMPLE:
            (original,) = struct.unpack_from(order + "I", data, at + 8)
            length = min(original, size - 16)
            yield Captured(data[at + 12 : at + 12 + length], 0, length < original)
        at += size


def _option(options: bytes, order: str, wanted: int) -> bytes | None:
    at = 0
    while at + 4 <= len(options):
        code, length = struct.unpack_from(order + "HH", options, at)
        if code == 0:
            return None
        if code == wanted:
            return options[at + 4 : at + 4 + length]
        at += 4 + (length + 3) // 4 * 4
    return None


def _inbound(flags: bytes | None, order: str) -> bool | None:
    """Return the direction in `epb_flags`: 1 inbound, 2 outbound."""
    if flags is None or len(flags) != 4:
        return None
    return {1: True, 2: False}.get(struct.unpack(order + "I", flags)[0] & 3)


def _resolution(options: bytes, order: str) -> int:
    """Return picoseconds of a unit of an interface's timestamps: microseconds unless `if_tsresol` says otherwise."""
    value = _option(options, order, 9)
    if value is None or len(value) != 1:
        return 1_000_000
    return 10**12 >> (value[0] & 127) if value[0] & 128 else 10 ** max(12 - value[0], 0)
