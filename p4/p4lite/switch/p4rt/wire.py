"""WriteRequests read from the wire with a short cut for plain table entries, and pipelines parsed once.

Filling tables is what controllers do most, and protobuf in pure Python takes longer to parse and to serialise an entry
than all the rest together. So an INSERT of an entry that has nothing but a match, one action, a priority and metadata
is read straight from its bytes; the same bytes are then kept for reads. Whatever else there is, or is written in an
unusual way (fields twice, unknown fields), goes through protobuf. A controller sends every switch of a fabric the same
pipeline, whose P4Info is parsed for the first of them only.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from p4lite.messages import p4runtime_pb2
from p4lite.switch.p4rt.match import MatchItem

_INSERT = p4runtime_pb2.Update.INSERT
_CONFIG = p4runtime_pb2.SetForwardingPipelineConfigRequest.DESCRIPTOR.fields_by_name["config"].number
_UPDATES = p4runtime_pb2.WriteRequest.DESCRIPTOR.fields_by_name["updates"].number
_KINDS = {2: "exact", 3: "ternary", 4: "lpm", 6: "range", 7: "optional"}
_TABLE_ENTRY = 2  # of Entity
_TABLE_ID, _MATCH, _ACTION, _PRIORITY, _CONTROLLER_METADATA, _METADATA = 1, 2, 3, 4, 5, 11
_PLAIN = frozenset((_TABLE_ID, _MATCH, _ACTION, _PRIORITY, _CONTROLLER_METADATA, _METADATA))


class _NeedsProtobuf(Exception):
    """Raised for a message that only protobuf can read."""


@dataclass(slots=True)
class PlainInsert:
    """An INSERT of a plain TableEntry; `raw` are the entry's bytes."""

    table_id: int
    match: list[MatchItem]
    action_id: int
    params: list[tuple[int, bytes]]
    priority: int
    raw: bytes

    def update(self) -> Any:
        """Return the same as an Update message."""
        update = p4runtime_pb2.Update(type=_INSERT)
        update.entity.table_entry.ParseFromString(self.raw)
        return update


@dataclass(slots=True)
class WriteBatch:
    """A WriteRequest: `request` has all but its updates, which are PlainInsert or Update messages."""

    request: Any
    updates: list[Any]


@dataclass(slots=True)
class PipelineRequest:
    """A SetForwardingPipelineConfigRequest: `request` has all but the config, which is None if there is none. Requests
    with equal configs share the message, which must not be changed."""

    request: Any
    config: Any | None


def parse_pipeline(data: bytes) -> PipelineRequest:
    """Read a SetForwardingPipelineConfigRequest. Raises protobuf's error for invalid bytes."""
    head, configs, at = bytearray(), [], 0
    try:
        while at < len(data):
            start = at
            number, value, at = _field(data, at)
            if number == _CONFIG and isinstance(value, bytes):
                configs.append(value)
            else:
                head += data[start:at]
    except (_NeedsProtobuf, IndexError):
        configs = [b"", b""]
    if len(configs) > 1:  # protobuf merges them, and says what is wrong with bytes that are no request
        whole = p4runtime_pb2.SetForwardingPipelineConfigRequest.FromString(data)
        return PipelineRequest(whole, whole.config if whole.HasField("config") else None)
    request = p4runtime_pb2.SetForwardingPipelineConfigRequest.FromString(bytes(head))
    return PipelineRequest(request, _config(configs[0]) if configs else None)


@lru_cache(maxsize=1)
def _config(data: bytes) -> Any:
    return p4runtime_pb2.ForwardingPipelineConfig.FromString(data)


def parse_write(data: bytes) -> WriteBatch:
    """Read a WriteRequest. Raises protobuf's error for invalid bytes."""
    head, updates, at = bytearray(), [], 0
    try:
        while at < len(data):
            start = at
            number, value, at = _field(data, at)
            if number == _UPDATES and isinstance(value, bytes):
                updates.append(value)
            else:
                head += data[start:at]
    except (_NeedsProtobuf, IndexError):
        whole = p4runtime_pb2.WriteRequest.FromString(data)
        return WriteBatch(whole, list(whole.updates))
    request = p4runtime_pb2.WriteRequest.FromString(bytes(head))
    return WriteBatch(request, [_update(update) for update in updates])


def _update(data: bytes) -> Any:
    try:
        plain = _plain_insert(data)
    except (_NeedsProtobuf, IndexError):
        plain = None
    return p4runtime_pb2.Update.FromString(data) if plain is None else plain


def _plain_insert(data: bytes) -> PlainInsert | None:
    update = _once(data)
    entity = update.get(2)
    if update.get(1) != _INSERT or not isinstance(entity, bytes) or len(update) != 2:
        return None
    content = _once(entity)
    raw = content.get(_TABLE_ENTRY)
    if len(content) != 1 or not isinstance(raw, bytes):
        return None
    match: list[MatchItem] = []
    single: dict[int, int | bytes] = {}
    at = 0
    while at < len(raw):
        number, value, at = _field(raw, at)
        if number == _MATCH:
            match.append(_match(value))
        elif number in single or number not in _PLAIN:
            return None
        else:
            single[number] = value
    action_id, params = _action(single.get(_ACTION))
    table_id, priority = single.get(_TABLE_ID, 0), single.get(_PRIORITY, 0)
    if not isinstance(table_id, int) or not isinstance(priority, int) or max(table_id, priority) >= 1 << 31:
        return None
    if not isinstance(single.get(_METADATA, b""), bytes) or not isinstance(single.get(_CONTROLLER_METADATA, 0), int):
        return None
    return PlainInsert(table_id, match, action_id, params, priority, raw)


def _match(data: int | bytes) -> MatchItem:
    item = _once(data)
    ident = item.pop(1, 0)
    if not isinstance(ident, int) or len(item) != 1:
        raise _NeedsProtobuf
    number, body = item.popitem()
    parts = _once(body)
    kind = _KINDS.get(number)
    if kind is None:
        raise _NeedsProtobuf
    first = parts.pop(1, b"")
    second: int | bytes = parts.pop(2, 0 if kind == "lpm" else b"")
    wanted = int if kind == "lpm" else bytes
    if parts or not isinstance(first, bytes) or not isinstance(second, wanted):
        raise _NeedsProtobuf
    if kind == "lpm" and isinstance(second, int) and second >= 1 << 31:
        raise _NeedsProtobuf
    return ident, kind, first, second


def _action(data: int | bytes | None) -> tuple[int, list[tuple[int, bytes]]]:
    body = _once(b"" if data is None else data)
    if len(body) != 1 or not isinstance(body.get(1), bytes):
        raise _NeedsProtobuf
    call = body[1]
    assert isinstance(call, bytes)
    action_id: int | bytes = 0
    params: list[tuple[int, bytes]] = []
    seen = False
    at = 0
    while at < len(call):
        number, value, at = _field(call, at)
        if number == 4:
            param = _once(value)
            ident, content = param.pop(2, 0), param.pop(3, b"")
            if param or not isinstance(ident, int) or not isinstance(content, bytes):
                raise _NeedsProtobuf
            params.append((ident, content))
        elif number == 1 and not seen:
            action_id, seen = value, True
        else:
            raise _NeedsProtobuf
    if not isinstance(action_id, int):
        raise _NeedsProtobuf
    return action_id, params


def _once(data: int | bytes) -> dict[int, int | bytes]:
    """Return the fields of a message none of which may come twice."""
    if not isinstance(data, bytes):
        raise _NeedsProtobuf
    fields: dict[int, int | bytes] = {}
    at = 0
    while at < len(data):
        number, value, at = _field(data, at)
        if number in fields:
            raise _NeedsProtobuf
        fields[number] = value
    return fields


def _field(data: bytes, at: int) -> tuple[int, int | bytes, int]:
    """Return number and value of the field at `at`, and where the next begins."""
    tag = data[at]
    at += 1
    if tag > 0x7F:
        tag, at = _varint(data, at, tag)
    value = data[at]
    at += 1
    if value > 0x7F:
        value, at = _varint(data, at, value)
    if tag & 7 == 0:
        return tag >> 3, value, at
    end = at + value
    if tag & 7 != 2 or end > len(data):
        raise _NeedsProtobuf
    return tag >> 3, data[at:end], end


def _varint(data: bytes, at: int, first: int) -> tuple[int, int]:
    """Return the rest of a varint whose first byte was `first`."""
    value, shift = first & 0x7F, 7
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
        if shift > 63:
            raise _NeedsProtobuf
