"""A small P4Runtime client: arbitration, pipeline, table entries by name, counters.

It talks to any P4Runtime 1.3 server. Values are integers; widths and identifiers come from the P4Info.
"""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

import grpc
from google.protobuf import text_format

from mrclab.lab.switches.names import (
    KeyName,
    Match,
    P4InfoNames,
    P4RuntimeError,
    TableEntry,
    to_bytes,
)
from p4lite.messages import P4RuntimeStub, p4runtime_pb2

TIMEOUT_S = 20.0
#: How often a controller that takes the place of others raises its election id.
ELECTIONS = 4
#: A program may have to be compiled first, which takes minutes on an emulated machine.
PIPELINE_S = 600.0
BATCH = 500


@cache
def _config_field(p4info: str, bmv2_json: bytes) -> bytes:
    """Return the field `config` of a SetForwardingPipelineConfigRequest; all switches of a lab have the same."""
    request = p4runtime_pb2.SetForwardingPipelineConfigRequest()
    text_format.Parse(p4info, request.config.p4info)
    request.config.p4_device_config = bmv2_json
    return bytes(request.SerializeToString())


def write_entry(names: P4InfoNames, entry: TableEntry, message: Any) -> None:
    """Write an entry into an empty message of P4Runtime.

    Raises:
        P4RuntimeError: a name is unknown.
        ValueError: a value does not fit.
    """
    table = names.find("table", names.tables, entry.table)
    action = names.find("action", names.actions, entry.action)
    message.table_id = table.id
    if entry.priority:
        message.priority = entry.priority
    fields = {each.name: each for each in table.keys}
    for name, value in entry.match.items():
        if name not in fields:
            raise P4RuntimeError(f"table {entry.table} has no key '{name}'; it has: {', '.join(fields)}")
        _match(message.match.add(), fields[name], value)
    message.action.action.action_id = action.id
    params = {each.name: each for each in action.params}
    if set(params) != set(entry.params):
        raise P4RuntimeError(f"action {entry.action} takes ({', '.join(params)}), not ({', '.join(entry.params)})")
    for name, number in entry.params.items():
        param = message.action.action.params.add()
        param.param_id = params[name].id
        param.value = to_bytes(number, params[name].width)


def _match(message: Any, key: KeyName, value: Match) -> None:
    message.field_id = key.id
    width, kind = key.width, key.kind
    if isinstance(value, int):
        if kind == "OPTIONAL":
            message.optional.value = to_bytes(value, width)
        elif kind == "EXACT":
            message.exact.value = to_bytes(value, width)
        else:
            raise P4RuntimeError(f"key {key.name} is {kind}; give a pair of numbers, not {value}")
        return
    first, second = value
    if kind == "LPM":
        message.lpm.value, message.lpm.prefix_len = to_bytes(first, width), second
    elif kind == "TERNARY":
        message.ternary.value, message.ternary.mask = to_bytes(first & second, width), to_bytes(second, width)
    elif kind == "RANGE":
        message.range.low, message.range.high = to_bytes(first, width), to_bytes(second, width)
    else:
        raise P4RuntimeError(f"key {key.name} is {kind}; give one number, not {value}")


class Device:
    """A switch behind a P4Runtime server, of which this client is the primary controller.

    Args:
        channel: an open gRPC channel; several devices may share it.
        device_id: the server's number of the switch.
        name: for messages.
        p4info: P4Info text of the program.
        patient: the server is in this process, so its answers are awaited without a limit: their duration on a busy
            machine must not change a simulation.
    """

    def __init__(self, channel: grpc.Channel, device_id: int, name: str, p4info: str, *, patient: bool = False) -> None:
        self.device_id = device_id
        self._timeout_s = None if patient else TIMEOUT_S
        self._pipeline_s = None if patient else PIPELINE_S
        self._wait = patient
        self._elected = False
        self.name = name
        self.p4info_text = p4info
        self.names = P4InfoNames.of(p4info)
        self.stub = P4RuntimeStub(channel)
        # The stub's own method serialises the pipeline of every switch again.
        self._set_pipeline = channel.unary_unary(
            "/p4.v1.P4Runtime/SetForwardingPipelineConfig",
            request_serializer=bytes,
            response_deserializer=p4runtime_pb2.SetForwardingPipelineConfigResponse.FromString,
        )
        self.election = p4runtime_pb2.Uint128(high=0, low=1)
        self._requests: queue.Queue[Any] = queue.Queue()
        self._stream: Any = None
        self._answers: queue.Queue[Any] = queue.Queue()

    def become_primary(self, election_id: int = 1, *, over: bool = False) -> None:
        """Open the stream and become the primary controller. `over`: in place of any other, with a higher id if this
        one is too low, as after the machine's clock was set back.

        Raises:
            P4RuntimeError: another controller is primary, or there is no answer.
        """
        self._stream = self.stub.StreamChannel(iter(self._requests.get, None), wait_for_ready=self._wait)
        threading.Thread(target=self._read, name=f"p4rt-{self.name}", daemon=True).start()
        for _ in range(ELECTIONS if over else 1):
            self.election = p4runtime_pb2.Uint128(high=election_id >> 64, low=election_id & (1 << 64) - 1)
            request = p4runtime_pb2.StreamMessageRequest()
            request.arbitration.device_id = self.device_id
            request.arbitration.election_id.CopyFrom(self.election)
            self._requests.put(request)
            try:
                answer = self._answers.get(timeout=self._timeout_s)
            except queue.Empty:
                raise P4RuntimeError(f"switch {self.name}: no answer to arbitration in {TIMEOUT_S:.0f} s") from None
            if isinstance(answer, grpc.RpcError):
                raise self._error("arbitration", answer) from answer
            if answer.arbitration.status.code == grpc.StatusCode.OK.value[0]:
                self._elected = True
                return
            highest = answer.arbitration.election_id
            election_id = (highest.high << 64 | highest.low) + 1
        raise P4RuntimeError(f"switch {self.name}: another controller is primary; stop it first")

    def _read(self) -> None:
        try:
            for message in self._stream:
                # Later messages announce other controllers; they are discarded, because over days there are many.
                if not self._elected:
                    self._answers.put(message)
        except grpc.RpcError as error:
            self._answers.put(error)

    def _error(self, what: str, error: grpc.RpcError) -> P4RuntimeError:
        details = [error.details() or error.code().name]
        metadata: Any = error.trailing_metadata() or ()
        for key, value in metadata:
            if key == "grpc-status-details-bin":
                details += _batch_errors(value)
        return P4RuntimeError(f"switch {self.name}: {what}: {'; '.join(details[:4])}")

    def set_pipeline(self, bmv2_json: bytes) -> None:
        """Load the program; tables are empty afterwards.

        Raises:
            P4RuntimeError: the switch refuses it.
        """
        request = p4runtime_pb2.SetForwardingPipelineConfigRequest(
            device_id=self.device_id,
            election_id=self.election,
            action=p4runtime_pb2.SetForwardingPipelineConfigRequest.VERIFY_AND_COMMIT,
        )
        data = request.SerializeToString() + _config_field(self.p4info_text, bmv2_json)
        try:
            self._set_pipeline(data, timeout=self._pipeline_s, wait_for_ready=self._wait)
        except grpc.RpcError as error:
            raise self._error("set pipeline", error) from error

    def _write(self, updates: Sequence[Any], what: str) -> None:
        for first in range(0, len(updates), BATCH):
            request = p4runtime_pb2.WriteRequest(device_id=self.device_id, election_id=self.election)
            request.updates.extend(updates[first : first + BATCH])
            try:
                self.stub.Write(request, timeout=self._timeout_s, wait_for_ready=self._wait)
            except grpc.RpcError as error:
                raise self._error(what, error) from error

    def insert(self, entries: Iterable[TableEntry]) -> int:
        """Insert entries; return their number.

        Raises:
            P4RuntimeError: a name is unknown, a value does not fit, or the switch refuses.
        """
        updates = []
        for entry in entries:
            update = p4runtime_pb2.Update(type=p4runtime_pb2.Update.INSERT)
            write_entry(self.names, entry, update.entity.table_entry)
            updates.append(update)
        self._write(updates, "insert")
        return len(updates)

    def set_default(self, table: str, action: str, params: Mapping[str, int]) -> None:
        """Set a table's default action."""
        update = p4runtime_pb2.Update(type=p4runtime_pb2.Update.MODIFY)
        message = update.entity.table_entry
        write_entry(self.names, TableEntry(table, {}, action, params), message)
        message.is_default_action = True
        self._write([update], "set default")

    def _read_entities(self, entity: Any) -> Iterator[Any]:
        request = p4runtime_pb2.ReadRequest(device_id=self.device_id)
        request.entities.append(entity)
        try:
            for answer in self.stub.Read(request, timeout=self._timeout_s, wait_for_ready=self._wait):
                yield from answer.entities
        except grpc.RpcError as error:
            raise self._error("read", error) from error

    def count_entries(self) -> int:
        """Return the number of entries in all tables, without default actions."""
        entity = p4runtime_pb2.Entity()
        entity.table_entry.table_id = 0
        return sum(1 for each in self._read_entities(entity) if not each.table_entry.is_default_action)

    def counter(self, name: str) -> dict[int, tuple[int, int]]:
        """Return (packets, bytes) of the cells of a counter by index; cells that are zero may be left out.

        Cells of a direct counter are numbered from 0; the last one counts packets that no entry matched. If the switch
        refuses to read it, it is treated as missing.
        """
        if name in self.names.direct_counters:
            return dict(enumerate(self._direct_cells(self.names.direct_counters[name].table)))
        counter = self.names.find("counter", self.names.counters, name)
        entity = p4runtime_pb2.Entity()
        entity.counter_entry.counter_id = counter.id
        cells = {}
        for each in self._read_entities(entity):
            data = each.counter_entry.data
            if data.packet_count or data.byte_count:
                cells[each.counter_entry.index.index] = (data.packet_count, data.byte_count)
        return cells

    def _direct_cells(self, table_id: int) -> Iterator[tuple[int, int]]:
        entries, misses = p4runtime_pb2.Entity(), p4runtime_pb2.Entity()
        entries.direct_counter_entry.table_entry.table_id = table_id
        misses.direct_counter_entry.table_entry.table_id = table_id
        misses.direct_counter_entry.table_entry.is_default_action = True
        found = list(self._read_entities(entries))
        with contextlib.suppress(P4RuntimeError):
            found += self._read_entities(misses)
        for each in found:
            data = each.direct_counter_entry.data
            yield data.packet_count, data.byte_count

    def close(self) -> None:
        """Give up the primary role."""
        self._requests.put(None)
        if self._stream is not None:
            self._stream.cancel()


def _batch_errors(raw: bytes) -> list[str]:
    from p4lite.messages import status_pb2

    status = status_pb2.Status.FromString(raw)
    found = []
    for index, detail in enumerate(status.details):
        error = p4runtime_pb2.Error()
        if detail.Unpack(error) and error.canonical_code:
            found.append(f"update {index}: {error.message}")
    return found
