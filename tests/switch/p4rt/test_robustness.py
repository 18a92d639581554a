"""Whatever a client sends, the server answers with a code that fits, and goes on: random and mutated requests,
and a controller that does not listen."""

from __future__ import annotations

import queue
import random
import time
from collections.abc import Callable, Iterator
from typing import Any

import grpc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from p4lite.messages import p4runtime_pb2
from p4lite.switch.p4rt import service
from p4lite.switch.p4rt.device import Forwarding
from p4lite.switch.p4rt.errors import INTERNAL, P4RtError
from support.amount import examples
from support.switch.p4rt import DELETE, INSERT, Bench, Controller, control_config, ethernet

pb = p4runtime_pb2
KINDS = [field.name for field in pb.Entity.DESCRIPTOR.fields]


@pytest.fixture(scope="module")
def forwarding() -> Iterator[Forwarding]:
    """Yield the entities of a device with control.p4."""
    made = Bench()
    with Controller(made.address) as controller:
        controller.arbitrate()
        controller.set_pipeline(control_config())
        found = made.server.service.device(1)._entities()
        yield found
    made.close()


def message_of(kind: Any, choices: random.Random, ids: list[int], depth: int = 0) -> Any:
    """Return a random message of a type: every field set or not, ids mostly ones that exist."""
    message = kind()
    for field in kind.DESCRIPTOR.fields:
        if choices.random() < 0.4 or (depth > 5 and field.message_type):
            continue
        # protobuf 5 has only `label`, protobuf 7 only `is_repeated`.
        repeated = field.is_repeated if hasattr(field, "is_repeated") else field.label == field.LABEL_REPEATED
        for _ in range(choices.randrange(3) if repeated else 1):
            if field.message_type is not None:
                if field.message_type.full_name.startswith("google."):
                    continue
                part = message_of(field.message_type._concrete_class, choices, ids, depth + 1)
                target = getattr(message, field.name)
                (target.add() if repeated else target).CopyFrom(part)
                continue
            value = scalar(field, choices, ids)
            if repeated:
                getattr(message, field.name).append(value)
            else:
                setattr(message, field.name, value)
    return message


def scalar(field: Any, choices: random.Random, ids: list[int]) -> Any:
    """Return a value of a scalar field."""
    if field.cpp_type == field.CPPTYPE_STRING:
        text = choices.choice([b"", b"\0", b"\1", b"\xff", b"\0\0\1", bytes(6), b"\x0a\0\0\1", choices.randbytes(9)])
        return text if field.type == field.TYPE_BYTES else text.decode("latin-1")
    if field.cpp_type == field.CPPTYPE_BOOL:
        return choices.random() < 0.2
    if field.cpp_type in (field.CPPTYPE_DOUBLE, field.CPPTYPE_FLOAT):
        return choices.random()
    if field.name.endswith("_id"):
        return choices.choice(ids)
    small = choices.choice([0, 1, 2, 3, 8, 32, 64])
    if field.cpp_type in (field.CPPTYPE_INT64, field.CPPTYPE_INT32):
        return choices.choice([small, small, -1, 2**31 - 1])
    return choices.choice([small, small, 2**31 - 1])


def attempt(step: Callable[[], Any]) -> P4RtError | None:
    """How the step is refused, None when it is not."""
    try:
        step()
    except P4RtError as error:
        return error
    return None


def check(step: Callable[[], Any]) -> None:
    """Check that the step succeeds, or is refused with a code and a reason; any other exception fails the test."""
    refusal = attempt(step)
    assert refusal is None or (refusal.code != INTERNAL and refusal.message), refusal


@settings(max_examples=examples(400))
@given(st.integers(0, 2**32), st.sampled_from(KINDS), st.sampled_from([0, 1, 2, 3]))
def test_random_entities_are_taken_or_refused(forwarding: Forwarding, seed: int, kind: str, update: int) -> None:
    """Neither writing nor reading any well-formed entity fails in a way that nobody foresaw."""
    choices = random.Random(seed)
    info = forwarding.pipeline.info
    ids = [0, 1, 2, 3, *info.tables, *info.actions, *info.profiles, *info.counters, *info.meters, *info.registers]
    ids += [*info.value_sets, *info.digests]
    entity = pb.Entity()
    getattr(entity, kind).CopyFrom(message_of(type(getattr(entity, kind)), choices, ids))
    for step in (
        lambda: forwarding.write(pb.Update(type=update, entity=entity)),
        lambda: [pb.Entity.FromString(data) for data in forwarding.read(entity)],
    ):
        check(step)


@settings(max_examples=examples(300))
@given(st.binary(max_size=200))
def test_random_bytes_are_parsed_or_called_malformed(data: bytes) -> None:
    for kind in (pb.WriteRequest, pb.ReadRequest, pb.SetForwardingPipelineConfigRequest, pb.StreamMessageRequest):
        parsed = service._parser(kind)(data)
        assert isinstance(parsed, kind | service.Malformed)


def plain_update(choices: random.Random, forwarding: Forwarding) -> Any:
    """Return an INSERT such as controllers send: mostly right, sometimes with something more."""
    table = choices.choice(list(forwarding.pipeline.info.tables.values()))
    update = pb.Update(type=INSERT if choices.random() < 0.9 else choices.randrange(4))
    entry = update.entity.table_entry
    entry.table_id, entry.priority = table.id, 7 if table.needs_priority else 0
    if choices.random() < 0.1:
        entry.priority = choices.choice([0, 1, -1, 2**31 - 1])
    for field in choices.sample(table.fields, len(table.fields)):
        item = entry.match.add(field_id=field.id)
        value = choices.choice([b"\1"] * 6 + [b"\0\2", b"\x0a\0\0\0", b"", b"\0"])
        if field.kind == "lpm":
            item.lpm.value, item.lpm.prefix_len = value, choices.choice([32, 32, 8, 0, -1])
        elif field.kind == "ternary":
            item.ternary.value, item.ternary.mask = value, choices.choice([b"\xff", b"\xff\xff\xff\xff", b""])
        elif field.kind == "range":
            item.range.low, item.range.high = value, b"\x11"
        else:
            getattr(item, field.kind).value = value
    action = forwarding.pipeline.info.actions[choices.choice(list(table.scopes))]
    entry.action.action.action_id = action.id
    for param in action.params:
        entry.action.action.params.add(param_id=param.id, value=choices.choice([b"\1"] * 6 + [b"\0\1", b""]))
    if choices.random() < 0.2:
        entry.metadata, entry.controller_metadata = b"m", 2**63
    return update


def canonical(entry: Any) -> Any:
    """Return a TableEntry as a read gives it: no byte string of match or action begins with a zero too many."""
    kept = pb.TableEntry.FromString(entry.SerializeToString())
    parts = [getattr(item, str(item.WhichOneof("field_match_type"))) for item in kept.match]
    for part in (*parts, *kept.action.action.params):
        for field, value in part.ListFields():
            if field.type == field.TYPE_BYTES:
                setattr(part, field.name, value.lstrip(b"\0") or b"\0")
    return kept


@settings(max_examples=examples(300))
@given(st.integers(0, 2**32))
def test_an_entry_that_is_taken_is_read_as_it_was_written(forwarding: Forwarding, seed: int) -> None:
    """Entries such as controllers send keep their match in its order, their metadata and the rest."""
    update = plain_update(random.Random(seed), forwarding)
    written = update.entity.table_entry
    query = pb.Entity(table_entry=pb.TableEntry(table_id=written.table_id, priority=written.priority))
    query.table_entry.match.extend(written.match)
    expected = canonical(written)
    refusal = attempt(lambda: forwarding.write(update))
    if refusal is not None:
        assert refusal.code != INTERNAL
        assert refusal.message
    elif update.type == INSERT:
        (read,) = [pb.Entity.FromString(data).table_entry for data in forwarding.read(query)]
        assert read == expected
        forwarding.write(pb.Update(type=DELETE, entity=query))
        assert list(forwarding.read(query)) == []


@pytest.mark.parametrize("data", [b"\x2a\x05abc", b"\x2a\x02\xff\xff", b"\xff"])
def test_bytes_that_are_no_request_for_a_pipeline_are_malformed(data: bytes) -> None:
    assert isinstance(service._parser(pb.SetForwardingPipelineConfigRequest)(data), service.Malformed)


@settings(max_examples=examples(100))
@given(st.integers(0, 2**32))
def test_mutated_bytes_of_a_real_request(forwarding: Forwarding, seed: int) -> None:
    """Flipped, cut and repeated bytes of a batch that would be valid."""
    choices = random.Random(seed)
    request = pb.WriteRequest(device_id=1)
    info = forwarding.pipeline.info
    table = next(table for table in info.tables.values() if table.name == "I.l2")
    forward = next(action for action in info.actions.values() if action.name == "I.forward")
    entry = request.updates.add(type=INSERT).entity.table_entry
    entry.table_id = table.id
    entry.match.add(field_id=1).exact.value = b"\1\2"
    entry.action.action.action_id = forward.id
    entry.action.action.params.add(param_id=1, value=b"\1")
    data = bytearray(request.SerializeToString())
    for _ in range(choices.randrange(1, 4)):
        at = choices.randrange(len(data))
        data[at : at + choices.randrange(2)] = choices.randbytes(choices.randrange(3))
    parsed = service._parser(pb.WriteRequest)(bytes(data))
    if isinstance(parsed, service.Malformed):
        assert parsed.reason
        return
    for update in parsed.updates:
        check(lambda update=update: forwarding.write(update))  # type: ignore[misc]


def test_a_controller_that_does_not_listen(bench: Bench, primary: Controller, monkeypatch: pytest.MonkeyPatch) -> None:
    """Packets for it are dropped and counted once its queue is full; others are served meanwhile."""
    monkeypatch.setattr(service, "STREAM_LIMIT", 200)
    primary.write((INSERT, primary.entry("l2", {"hdr.ethernet.dst": b"\2"}, "punt", [b"\1"])))
    request = pb.StreamMessageRequest()
    request.arbitration.device_id = 1
    request.arbitration.election_id.low = 5
    said: queue.Queue[Any] = queue.Queue()
    said.put(request)
    with grpc.insecure_channel(bench.address) as channel:
        stream = channel.stream_stream(
            "/p4.v1.P4Runtime/StreamChannel", pb.StreamMessageRequest.SerializeToString, None
        )(iter(said.get, None))
        next(stream)  # type: ignore[call-overload]  # its arbitration; it never looks again
        device = bench.server.service.device(1)
        for _ in range(3000):
            bench.send(3, ethernet(payload=bytes(1400)), after_ns=0)
            if device.stream_drops:
                break
        for _ in range(1000):
            if device.stream_drops:
                break
            time.sleep(0.01)
        assert device.stream_drops > 0
        with Controller(bench.address, election_id=0) as other:
            other.arbitrate()
            other.info = primary.info
            assert len(other.read(other.entry("l2"))) == 1
        said.put(None)
        stream.cancel()
    assert primary.hear("arbitration").arbitration.status.code == 6
    assert primary.hear("arbitration").arbitration.status.code == 5
