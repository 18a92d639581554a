"""BMv2's simple_switch and psa_switch as processes, where they are installed.

    with ReferenceSwitch(shutil.which("simple_switch"), document) as switch:
        switch.control.table_add(...)
        switch.send(port, packet)

Packets go over a socket of nanomsg's protocol PAIR, which `--packet-in` names. A message holds what happens, the port,
the length and the packet (behavioral-model's `dev_mgr_packet_in.cpp`). Entries go over Thrift.
"""

from __future__ import annotations

import json
import socket
import struct
import subprocess
import tempfile
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from p4lite.switch.fabric.values import CloneSession, Replica
from p4lite.switch.program.entry import (
    ActionCall,
    EntryAction,
    Lpm,
    MatchValue,
    MemberRef,
    Optional,
    Range,
    Ternary,
)
from p4lite.switch.program.facts import ActionFacts, Facts, KeyFacts
from p4lite.switch.program.load import load_facts
from p4lite.switch.runtime.arrays import CounterValue, MeterConfig
from support.p4.thrift import CallRefused, Client, Kind, Value, i32, items, record, text

BMV2 = "simple_switch"
PSA = "psa_switch"
START_S = 20.0
ANSWER_S = 3.0
"""How long the switch may take to send a packet that is expected."""
QUIET_S = 0.02
"""How long the switch must be silent until a packet counts as done."""
PAIR = struct.pack(">4sHH", b"\x00SP\x00", 16, 0)
"""What both ends of a PAIR socket send first."""
PACKET_IN, PACKET_OUT = 3, 4
HEAD = struct.Struct("<iii")
FRAME = struct.Struct(">BQ")
EXACT, LPM, TERNARY, RANGE = 0, 1, 2, 4
"""Members of BmMatchParamType; the field of a BmMatchParam that holds its parameters is the next number but one."""
REPLICAS = 1 << 15
"""The group of a clone session's replicas has the session's number above this one, as simple_switch_grpc has it."""
CONTEXT = i32(0)


class SwitchFailed(Exception):
    """The switch does not start, or ends; the text has its last lines."""


class ReferenceSwitch:
    """One switch that runs a document. A context manager.

    Args:
        binary: the program, named as its Thrift service is.

    Raises:
        SwitchFailed: it does not load the document.
    """

    def __init__(self, binary: str, document: dict[str, Any], *, quiet_s: float = QUIET_S) -> None:
        self._quiet_s = quiet_s
        self._service = Path(binary).name
        self.program: Facts = load_facts(document, source="<test>", name="test")
        self._folder = tempfile.TemporaryDirectory()
        folder = Path(self._folder.name)
        (folder / "program.json").write_text(json.dumps(document), encoding="utf-8")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self._log = folder / "log"
        command = [binary, "--device-id", str(port), "--thrift-port", str(port), "--log-level", "off"]
        command += ["--packet-in", f"ipc://{folder}/packets", "--notifications-addr", f"ipc://{folder}/notices"]
        with self._log.open("w", encoding="utf-8") as log:
            self._process = subprocess.Popen(
                [*command, str(folder / "program.json")], stdout=log, stderr=subprocess.STDOUT, cwd=folder
            )
        try:
            self._client = self._connected(port)
            self.control = ReferenceControl(self._client, self.program)
            self.replication = ReferenceReplication(self._client, self._service)
            self._packets = socket.socket(socket.AF_UNIX)
            self._packets.connect(str(folder / "packets"))
            self._packets.sendall(PAIR)
            self._receive(len(PAIR))
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> ReferenceSwitch:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """End the process."""
        for each in ("_client", "_packets"):
            if hasattr(self, each):
                getattr(self, each).close()
        self._process.kill()
        self._process.wait()
        self._folder.cleanup()

    def _connected(self, port: int) -> Client:
        # The server listens before it has its services, and before it reads packets.
        end = time.monotonic() + START_S
        while time.monotonic() < end and self._process.poll() is None:
            try:
                client = Client(port)
                client.call(self._service, "get_time_elapsed_us")
            except (OSError, CallRefused, struct.error):
                time.sleep(0.01)
            else:
                return client
        raise SwitchFailed(self._log.read_text(encoding="utf-8").strip() or f"exit code {self._process.poll()}")

    # --- packets ---

    def send(self, port: int, packet: bytes, expect: int = 0) -> list[tuple[int, bytes]]:
        """Send a packet; return what the switch sends until it is silent, but wait longer for `expect` packets."""
        body = HEAD.pack(PACKET_IN, port, len(packet)) + packet
        self._packets.sendall(FRAME.pack(1, len(body)) + body)
        sent: list[tuple[int, bytes]] = []
        while True:
            self._packets.settimeout(ANSWER_S if len(sent) < expect else self._quiet_s)
            try:
                _, length = FRAME.unpack(self._receive(FRAME.size))
            except TimeoutError:
                return sent
            body = self._receive(length)
            kind, out, size = HEAD.unpack_from(body)
            assert (kind, size) == (PACKET_OUT, len(body) - HEAD.size), (kind, size)
            sent.append((out, body[HEAD.size :]))

    def _receive(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            more = self._packets.recv(size - len(data))
            if not more:
                code = self._process.wait()
                raise SwitchFailed(f"exit code {code}: {self._log.read_text(encoding='utf-8').strip()}")
            data += more
        return data

    def advance(self, duration_ns: int) -> list[tuple[int, bytes]]:
        """Wait in real time; return nothing, because the switch was silent before."""
        time.sleep(duration_ns / 1e9)
        return []


class ReferenceControl:
    """The operations of `p4lite.api.values.Control` that the tests use, as calls over Thrift.

    The switch numbers members and groups itself, so callers that give numbers add members in ascending order: then a
    group has its members in the order that their numbers have.
    """

    def __init__(self, client: Client, program: Facts) -> None:
        self._client = client
        self.program = program
        self.rate_scale = 1.0
        """What rates of meters are multiplied by: little, where time must not fill a bucket."""
        self._members: dict[tuple[str, int], int] = {}
        self._groups: dict[tuple[str, int], int] = {}

    def _call(self, method: str, *arguments: Value) -> Any:
        return self._client.call("standard", method, CONTEXT, *arguments)

    def table_add(
        self, table: str, key: tuple[MatchValue, ...], action: EntryAction, *, priority: int = 0, **_: int
    ) -> int:
        """Add an entry; return its handle."""
        known = self.program.tables[table]
        matches = items([_match(k, value) for k, value in zip(known.key, key, strict=True)])
        options = record({1: i32(priority)} if known.needs_priority else {})
        if isinstance(action, ActionCall):
            what = (text(action.name), _data(known.actions[action.name], action))
            return int(self._call("bm_mt_add_entry", text(table), matches, *what, options))
        profile = known.action_profile or ""
        if isinstance(action, MemberRef):
            member = i32(self._members[profile, action.member])
            return int(self._call("bm_mt_indirect_add_entry", text(table), matches, member, options))
        group = i32(self._groups[profile, action.group])
        return int(self._call("bm_mt_indirect_ws_add_entry", text(table), matches, group, options))

    def table_set_default(self, table: str, action: ActionCall) -> None:
        """Set the default action."""
        data = _data(self.program.tables[table].actions[action.name], action)
        self._call("bm_mt_set_default_action", text(table), text(action.name), data)

    def value_set_add(self, value_set: str, value: int) -> None:
        """Add a member of a value set."""
        size = self.program.value_sets[value_set].bytes
        self._call("bm_parse_vset_add", text(value_set), text(value.to_bytes(size, "big")))

    def member_add(self, profile: str, action: ActionCall, member: int | None = None) -> int:
        """Add a member of a profile; return its number."""
        data = _data(self.program.action_profiles[profile].actions[action.name], action)
        handle = int(self._call("bm_mt_act_prof_add_member", text(profile), text(action.name), data))
        number = handle if member is None else member
        self._members[profile, number] = handle
        return number

    def group_add(self, profile: str, members: Iterable[int] = (), group: int | None = None) -> int:
        """Add a group of members; return its number."""
        handle = int(self._call("bm_mt_act_prof_create_group", text(profile)))
        for number in members:
            member = i32(self._members[profile, number])
            self._call("bm_mt_act_prof_add_member_to_group", text(profile), member, i32(handle))
        number = handle if group is None else group
        self._groups[profile, number] = handle
        return number

    def _rates(self, config: MeterConfig) -> Value:
        rates = ((config.cir, config.cburst), (config.pir, config.pburst))
        scale = self.rate_scale / 1e6
        return items([record({1: Value(Kind.DOUBLE, rate * scale), 2: i32(burst)}) for rate, burst in rates])

    def meter_set(self, meter: str, index: int, config: MeterConfig) -> None:
        """Configure a cell of a meter."""
        self._call("bm_meter_set_rates", text(meter), i32(index), self._rates(config))

    def meter_config(self, meter: str, index: int) -> Any:
        """Return what the switch says of a cell's rates."""
        return self._call("bm_meter_get_rates", text(meter), i32(index))

    def direct_meter_set(self, table: str, handle: int, config: MeterConfig) -> None:
        """Configure the meter of an entry."""
        self._call("bm_mt_set_meter_rates", text(table), i32(handle), self._rates(config))

    def register_read(self, register: str, index: int) -> int:
        """Return a cell of a register."""
        return int(self._call("bm_register_read", text(register), i32(index)))

    def register_read_all(self, register: str) -> list[int]:
        """Return the cells of a register."""
        return list(self._call("bm_register_read_all", text(register)))

    def register_write(self, register: str, index: int, value: int) -> None:
        """Write a cell of a register."""
        self._call("bm_register_write", text(register), i32(index), Value(Kind.I64, value))

    def register_reset(self, register: str) -> None:
        """Set a register to zero."""
        self._call("bm_register_reset", text(register))

    def counter_read(self, counter: str, index: int) -> CounterValue:
        """Return a cell of a counter."""
        found = self._call("bm_counter_read", text(counter), i32(index))
        return CounterValue(packets=found[2], bytes=found[1])

    def counter_read_all(self, counter: str) -> list[CounterValue]:
        """Return the cells of a counter."""
        return [self.counter_read(counter, index) for index in range(self.program.counters[counter].size)]


class ReferenceReplication:
    """Multicast groups and mirror sessions, as calls over Thrift."""

    def __init__(self, client: Client, service: str) -> None:
        self._client = client
        self._service = service
        self._groups: dict[int, int] = {}
        self._sessions: dict[int, CloneSession] = {}

    def _call(self, method: str, *arguments: Value) -> Any:
        return self._client.call("simple_pre_lag", method, CONTEXT, *arguments)

    def set_multicast_group(self, group: int, replicas: Sequence[Replica]) -> None:
        """Make a group, in place of the one that there may be."""
        if group in self._groups:
            self.delete_multicast_group(group)
        self._groups[group] = handle = self._call("bm_mc_mgrp_create", i32(group))
        for replica in replicas:
            ports = text("1" + "0" * replica.port)
            node = self._call("bm_mc_node_create", i32(replica.rid), ports, text(""))
            self._call("bm_mc_node_associate", i32(handle), i32(node))

    def delete_multicast_group(self, group: int) -> None:
        """Delete a group."""
        self._call("bm_mc_mgrp_destroy", i32(self._groups.pop(group)))

    def set_clone_session(self, session: int, config: CloneSession) -> None:
        """Make a session. One whose copies go nowhere is not made."""
        target: dict[int, Value] = {}
        if config.port is not None:
            target[1] = i32(config.port)
        if config.mcast_group is not None:
            target[2] = i32(config.mcast_group)
        if config.replicas:
            self.set_multicast_group(REPLICAS + session, config.replicas)
            target[2] = i32(REPLICAS + session)
        if target:
            self._client.call(self._service, "mirroring_session_add", i32(session), record(target))
        self._sessions[session] = config

    def clone_sessions(self) -> dict[int, CloneSession]:
        """Return the sessions."""
        return self._sessions

    def multicast_groups(self) -> dict[int, tuple[Replica, ...]]:
        """Refuse: the switch says its groups as a text."""
        raise NotImplementedError

    def delete_clone_session(self, session: int) -> None:
        """Delete a session."""
        self._client.call(self._service, "mirroring_session_delete", i32(session))
        del self._sessions[session]


def _bytes(value: int, width: int) -> Value:
    return text(value.to_bytes((width + 7) // 8, "big"))


def _data(action: ActionFacts, call: ActionCall) -> Value:
    return items([_bytes(value, width) for width, value in zip(action.widths, call.args, strict=True)])


def _match(key: KeyFacts, match: MatchValue) -> Value:
    """Return a BmMatchParam."""
    full = (1 << key.width) - 1
    if isinstance(match, Lpm):
        kind, inner = LPM, {1: _bytes(match.value, key.width), 2: i32(match.prefix_len)}
    elif isinstance(match, Ternary):
        kind, inner = TERNARY, {1: _bytes(match.value, key.width), 2: _bytes(match.mask, key.width)}
    elif isinstance(match, Optional):
        value, mask = (0, 0) if match.value is None else (match.value, full)
        kind, inner = TERNARY, {1: _bytes(value, key.width), 2: _bytes(mask, key.width)}
    elif isinstance(match, Range):
        kind, inner = RANGE, {1: _bytes(match.low, key.width), 2: _bytes(match.high, key.width)}
    else:
        kind, inner = EXACT, {1: _bytes(match.value, key.width)}
    return record({1: i32(kind), kind + 2: record(inner)})
