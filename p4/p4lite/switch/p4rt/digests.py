"""Digests: buffering into lists, acknowledgements, and their configuration.

Source: P4Runtime specification, "DigestEntry" and its pseudocode. Times are nanoseconds of one monotonic clock,
handed in as `now`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from p4lite.messages import p4data_pb2, p4runtime_pb2
from p4lite.switch.p4rt.errors import ALREADY_EXISTS, NOT_FOUND, P4RtError, invalid
from p4lite.switch.p4rt.info import encode, encode_signed
from p4lite.switch.p4rt.pipeline import DELETE, INSERT, Pipeline

#: Samples kept in a list when the controller sets no limit.
UNLIMITED_LIST = 4096
#: Lists that wait for an acknowledgement, per digest; the oldest is forgotten first.
MAX_UNACKNOWLEDGED = 1024


@dataclass(slots=True)
class _Digest:
    entry: bytes
    max_timeout_ns: int
    max_list_size: int
    ack_timeout_ns: int
    samples: dict[bytes, None] = field(default_factory=dict)
    first_ns: int = 0
    next_list: int = 1
    #: Lists sent and not acknowledged: id -> (when, samples); `cached` are all their samples.
    sent: dict[int, tuple[int, frozenset[bytes]]] = field(default_factory=dict)
    cached: dict[bytes, int] = field(default_factory=dict)


class Digests:
    """The digests of one device under one pipeline."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        self._digests: dict[int, _Digest] = {}

    # -- configuration -----------------------------------------------------------------------------------

    def write(self, kind: int, message: Any) -> None:
        """Apply a DigestEntry: INSERT turns a digest on, DELETE off."""
        ident = message.digest_id
        if ident not in self._pipeline.info.digests:
            raise invalid(f"there is no digest with id {ident}")
        if kind == INSERT and ident in self._digests:
            raise P4RtError(ALREADY_EXISTS, f"digest {ident} is on already")
        if kind != INSERT and ident not in self._digests:
            raise P4RtError(NOT_FOUND, f"digest {ident} is not on")
        if kind == DELETE:
            del self._digests[ident]
            return
        if not message.HasField("config"):
            raise invalid("a digest needs a config")
        config = message.config
        if min(config.max_timeout_ns, config.max_list_size, config.ack_timeout_ns) < 0:
            raise invalid("timeouts and list size of a digest must not be negative")
        digest = self._digests.get(ident) or _Digest(b"", 0, 0, 0)
        digest.entry = message.SerializeToString()
        digest.max_timeout_ns = config.max_timeout_ns
        digest.max_list_size = config.max_list_size
        digest.ack_timeout_ns = config.ack_timeout_ns
        self._digests[ident] = digest

    def read(self, query: Any) -> Iterator[Any]:
        """Yield every DigestEntry that a query selects (0: all)."""
        if query.digest_id:
            if query.digest_id not in self._pipeline.info.digests:
                raise invalid(f"there is no digest with id {query.digest_id}")
            if query.digest_id not in self._digests:
                raise P4RtError(NOT_FOUND, f"digest {query.digest_id} is not on")
        for ident in [query.digest_id] if query.digest_id else self._digests:
            yield p4runtime_pb2.DigestEntry.FromString(self._digests[ident].entry)

    # -- data --------------------------------------------------------------------------------------------

    def sample(self, target_id: int, data: bytes, now: int) -> Any:
        """Add one digest message of the data plane; return the DigestList to send now, or None."""
        ident = self._pipeline.digest_ids.get(target_id, 0)
        digest = self._digests.get(ident)
        if digest is None:
            return None
        self._expire(digest, now)
        if data in digest.cached or data in digest.samples:
            return None
        if not digest.samples:
            digest.first_ns = now
        digest.samples[data] = None
        limit = digest.max_list_size or UNLIMITED_LIST
        if len(digest.samples) >= limit or not digest.max_timeout_ns:
            return self._send(ident, digest, now)
        return None

    def due(self, now: int) -> list[Any]:
        """Return the DigestLists that are due."""
        return [
            self._send(ident, digest, now)
            for ident, digest in self._digests.items()
            if digest.samples and now - digest.first_ns >= digest.max_timeout_ns
        ]

    def next_due(self) -> int | None:
        """Return when `due` will have something by time alone; None for never."""
        times = [digest.first_ns + digest.max_timeout_ns for digest in self._digests.values() if digest.samples]
        return min(times, default=None)

    def acknowledge(self, message: Any) -> None:
        """Handle a DigestListAck: its samples may be sent again."""
        if message.digest_id not in self._pipeline.info.digests:
            raise invalid(f"there is no digest with id {message.digest_id}")
        digest = self._digests.get(message.digest_id)
        if digest is not None:
            self._forget(digest, message.list_id)

    def _send(self, ident: int, digest: _Digest, now: int) -> Any:
        name, spec = self._pipeline.info.digests[ident]
        split = self._pipeline.program.digests[name].split
        message = p4runtime_pb2.DigestList(digest_id=ident, list_id=digest.next_list, timestamp=time.time_ns())
        for data in digest.samples:
            message.data.append(p4_data(spec, self._pipeline.info.message.type_info, split(data)))
        if digest.ack_timeout_ns:
            digest.sent[digest.next_list] = (now, frozenset(digest.samples))
            for data in digest.samples:
                digest.cached[data] = digest.cached.get(data, 0) + 1
            while len(digest.sent) > MAX_UNACKNOWLEDGED:
                self._forget(digest, next(iter(digest.sent)))
        digest.next_list += 1
        digest.samples = {}
        return message

    def _expire(self, digest: _Digest, now: int) -> None:
        while digest.sent:
            oldest = next(iter(digest.sent))
            if now - digest.sent[oldest][0] < digest.ack_timeout_ns:
                return
            self._forget(digest, oldest)

    def _forget(self, digest: _Digest, list_id: int) -> None:
        _, samples = digest.sent.pop(list_id, (0, frozenset()))
        for data in samples:
            digest.cached[data] -= 1
            if not digest.cached[data]:
                del digest.cached[data]


def p4_data(spec: Any, types: Any, values: Sequence[int]) -> Any:
    """Return a P4Data message of type `spec` (P4DataTypeSpec) from the flat list of its fields' values."""
    rest = list(values)
    data = _data(spec, types, rest)
    if rest:
        raise invalid("the digest has more fields than its type in the P4Info")
    return data


def _take(rest: list[int]) -> int:
    if not rest:
        raise invalid("the digest has fewer fields than its type in the P4Info")
    return rest.pop(0)


def _data(spec: Any, types: Any, rest: list[int]) -> Any:
    which = spec.WhichOneof("type_spec")
    data = p4data_pb2.P4Data()
    if which == "bitstring":
        data.bitstring = _bits(spec.bitstring, _take(rest))
    elif which == "bool":
        data.bool = bool(_take(rest))
    elif which == "new_type":
        new_type = types.new_types[spec.new_type.name]
        if new_type.WhichOneof("representation") == "original_type":
            return _data(new_type.original_type, types, rest)
        data.bitstring = encode(_take(rest))
    elif which == "serializable_enum":
        data.enum_value = encode(_take(rest))
    elif which == "error":
        value = _take(rest)
        names = types.error.members
        data.error = names[value] if value < len(names) else str(value)
    elif which == "enum":
        value = _take(rest)
        members = types.enums[spec.enum.name].members
        data.enum = members[value].name if value < len(members) else str(value)
    elif which == "struct":
        for member in types.structs[spec.struct.name].members:
            data.struct.members.append(_data(member.type_spec, types, rest))
        data.struct.SetInParent()
    elif which == "tuple":
        for member in spec.tuple.members:
            data.tuple.members.append(_data(member, types, rest))
        data.tuple.SetInParent()
    elif which == "header":
        data.header.is_valid = True
        for member in types.headers[spec.header.name].members:
            data.header.bitstrings.append(_bits(member.type_spec, _take(rest)))
    else:
        raise invalid(f"digests of type {which} are not supported")
    return data


def _bits(spec: Any, value: int) -> bytes:
    if spec.WhichOneof("type_spec") == "int":
        width = spec.int.bitwidth
        return encode_signed(value - (value >> (width - 1) << width))
    return encode(value)
