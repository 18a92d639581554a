"""Streams over a real connection: arbitration, packet-in and packet-out, digests, and controllers that vanish."""

from __future__ import annotations

import time
from typing import Any

import grpc
import pytest

from p4lite.messages import p4runtime_pb2
from support.switch.p4rt import (
    DELETE,
    INSERT,
    MODIFY,
    Bench,
    Controller,
    batch_codes,
    code_of,
    control_config,
    ethernet,
)

pb = p4runtime_pb2
MILLISECOND = 10**6
HOUR = 3600 * 10**9


def primary_entry(controller: Controller) -> Any:
    return controller.entry("l2", {"hdr.ethernet.dst": b"\2"}, "forward", [b"\3"])


# --- arbitration --------------------------------------------------------------------------------------------


def test_only_the_primary_writes(bench: Bench, primary: Controller) -> None:
    with Controller(bench.address, election_id=0) as backup:
        assert backup.arbitrate().status.code == 6  # ALREADY_EXISTS
        backup.info = primary.info
        assert code_of(lambda: backup.write((INSERT, primary_entry(backup)))) == "PERMISSION_DENIED"
        assert code_of(lambda: backup.set_pipeline(control_config())) == "PERMISSION_DENIED"
        assert len(backup.read(pb.Entity(table_entry=pb.TableEntry()))) == 2  # the program's own
        # It takes over; the old primary hears of it and may write no more.
        assert backup.arbitrate(9).status.code == 0
        assert primary.hear("arbitration").arbitration.status.code == 6
        assert code_of(lambda: primary.write((INSERT, primary_entry(primary)))) == "PERMISSION_DENIED"
        backup.write((INSERT, primary_entry(backup)))
    # It is gone: there is no primary until somebody has its id or a higher one.
    notice = primary.hear("arbitration").arbitration
    assert (notice.status.code, notice.election_id.low) == (5, 9)  # NOT_FOUND
    assert code_of(lambda: primary.write((DELETE, primary_entry(primary)))) == "PERMISSION_DENIED"
    assert primary.arbitrate(10).status.code == 0
    primary.write((DELETE, primary_entry(primary)))


def test_streams_that_break_the_rules_end(bench: Bench, primary: Controller) -> None:
    for device_id, election_id, code in ((99, 1, "NOT_FOUND"), (1, 1, "INVALID_ARGUMENT")):
        with Controller(bench.address, device_id, election_id) as controller:
            controller.open()
            arbitration = pb.MasterArbitrationUpdate(device_id=device_id)
            arbitration.election_id.low = election_id
            controller.say(pb.StreamMessageRequest(arbitration=arbitration))
            assert controller.stream_end() == code
    with Controller(bench.address) as rude:
        rude.open()
        rude.say(pb.StreamMessageRequest(packet=pb.PacketOut(payload=b"x")))
        assert rude.stream_end() == "FAILED_PRECONDITION"
    with Controller(bench.address, election_id=0) as mover:
        mover.arbitrate()
        mover.device_id = 2
        mover.say(pb.StreamMessageRequest(arbitration=pb.MasterArbitrationUpdate(device_id=2)))
        assert mover.stream_end() == "FAILED_PRECONDITION"
    primary.write((INSERT, primary_entry(primary)))


def test_a_controller_that_vanishes(bench: Bench, primary: Controller) -> None:
    for _ in range(3):
        gone = Controller(bench.address, election_id=5)
        gone.arbitrate()
        assert primary.hear("arbitration").arbitration.status.code == 6
        gone.hang_up()
        assert primary.hear("arbitration").arbitration.status.code == 5
    primary.arbitrate(6)
    primary.write((INSERT, primary_entry(primary)))
    assert bench.send(1, ethernet()) == [(3, ethernet())]


def test_requests_name_a_device_and_a_role(bench: Bench, primary: Controller) -> None:
    with Controller(bench.address, device_id=77) as lost:
        assert code_of(lambda: lost.write()) == "NOT_FOUND"
        assert code_of(lambda: lost.read()) == "NOT_FOUND"
        assert code_of(lambda: lost.set_pipeline(None)) == "NOT_FOUND"
        get = pb.GetForwardingPipelineConfigRequest(device_id=77)
        assert code_of(lambda: lost.stub.GetForwardingPipelineConfig(get)) == "NOT_FOUND"
    primary.role = "nobody"
    assert code_of(lambda: primary.write()) == "NOT_FOUND"


# --- malformed and oversized requests -----------------------------------------------------------------------


@pytest.mark.parametrize("method", ["Write", "Read", "SetForwardingPipelineConfig", "StreamChannel", "Capabilities"])
def test_bytes_that_are_no_message(bench: Bench, primary: Controller, method: str) -> None:
    with grpc.insecure_channel(bench.address) as channel:
        name = f"/p4.v1.P4Runtime/{method}"
        for data in (b"\xff\xff\xff\xff", b"\x0a\x7f", b"\x22\x05ab"):
            if method == "StreamChannel":
                code = code_of(lambda d=data, n=name: list(channel.stream_stream(n)(iter([d]))))  # type: ignore[call-arg]
            elif method == "Read":
                code = code_of(lambda d=data, n=name: list(channel.unary_stream(n)(d)))  # type: ignore[call-arg]
            else:
                code = code_of(lambda d=data, n=name: channel.unary_unary(n)(d))  # type: ignore[call-arg]
            assert code == "INVALID_ARGUMENT"
    primary.write((INSERT, primary_entry(primary)))


def test_a_request_that_is_too_large(bench: Bench, primary: Controller) -> None:
    huge = pb.SetForwardingPipelineConfigRequest(device_id=1)
    huge.election_id.low = 1
    huge.config.p4_device_config = bytes(70 << 20)
    assert code_of(lambda: primary.stub.SetForwardingPipelineConfig(huge)) == "RESOURCE_EXHAUSTED"
    primary.write((INSERT, primary_entry(primary)))


# --- packet-in and packet-out -------------------------------------------------------------------------------


def test_packet_in(bench: Bench, primary: Controller) -> None:
    primary.write((INSERT, primary.entry("l2", {"hdr.ethernet.dst": b"\2"}, "punt", [b"\x55"])))
    with Controller(bench.address, election_id=0) as backup:
        backup.arbitrate()
        bench.send(3, ethernet())
        packet = primary.hear("packet").packet
        assert packet.payload == ethernet()
        assert [(item.metadata_id, item.value) for item in packet.metadata] == [(1, b"\3"), (2, b"\x55")]
        assert backup.heard.empty()  # only the primary gets packets


def packet_out(*metadata: tuple[int, bytes], payload: bytes = b"") -> Any:
    message = pb.StreamMessageRequest()
    message.packet.payload = payload or ethernet()
    for ident, value in metadata:
        message.packet.metadata.add(metadata_id=ident, value=value)
    return message


def wait_out(bench: Bench, count: int) -> list[tuple[int, bytes]]:
    """Return the packets that come out, once `count` did (the stream's thread hands them in)."""
    out: list[tuple[int, bytes]] = []
    for _ in range(2000):
        out += bench.run(MILLISECOND)
        if len(out) >= count:
            return out
        time.sleep(0.005)
    return out


def test_packet_out(bench: Bench, primary: Controller) -> None:
    primary.say(packet_out((2, b"\0"), (1, b"\0\4")))
    assert wait_out(bench, 1) == [(4, ethernet())]


def test_refusals_of_packet_out(bench: Bench, primary: Controller) -> None:
    cases = [
        (packet_out((1, b"\4")), 3),  # a field is missing
        (packet_out((1, b"\4"), (2, b"\0"), (3, b"\0")), 3),  # one too many
        (packet_out((1, b"\4"), (1, b"\4"), (2, b"\0")), 3),  # one twice
        (packet_out((1, b"\4\0"), (2, b"\0")), 11),  # OUT_OF_RANGE
        (packet_out((1, b""), (2, b"\0")), 11),
        (packet_out((1, b"\4"), (2, b"\0"), payload=bytes(70000)), 9),  # FAILED_PRECONDITION
    ]
    for message, code in cases:
        primary.say(message)
        error = primary.hear("error").error
        assert (error.canonical_code, error.packet_out.packet_out) == (code, message.packet)
        assert error.message
    primary.say(pb.StreamMessageRequest())
    assert primary.hear("error").error.canonical_code == 3
    with Controller(bench.address, election_id=0) as backup:
        backup.arbitrate()
        backup.say(packet_out((1, b"\4"), (2, b"\0")))
        assert backup.hear("error").error.canonical_code == 7  # PERMISSION_DENIED
    assert bench.run(MILLISECOND) == []


def test_packet_out_without_cpu_port(bench: Bench) -> None:
    bench.server.add_switch(2)
    with Controller(bench.address, device_id=2) as controller:
        controller.arbitrate()
        controller.set_pipeline(control_config())
        controller.say(packet_out((1, b"\4"), (2, b"\0")))
        error = controller.hear("error").error
        assert error.canonical_code == 9
        assert "CPU port" in error.message


# --- digests ------------------------------------------------------------------------------------------------


def digest(controller: Controller, **config: int) -> Any:
    entity = pb.Entity()
    entity.digest_entry.digest_id = controller.ident("digests", "learn_t")
    if config:
        entity.digest_entry.config.CopyFrom(pb.DigestEntry.Config(**config))
    return entity


def learnt(message: Any) -> list[tuple[bytes, bytes]]:
    return [tuple(member.bitstring for member in data.struct.members) for data in message.digest.data]


@pytest.fixture
def learning(primary: Controller) -> Controller:
    """Digests on: lists of two, acknowledged within an hour."""
    primary.write((INSERT, digest(primary, max_list_size=2, max_timeout_ns=HOUR, ack_timeout_ns=HOUR)))
    return primary


def test_digests_are_listed_and_acknowledged(bench: Bench, learning: Controller) -> None:
    for source in (5, 5, 6):
        bench.send(3, ethernet(src=source))
    first = learning.hear("digest")
    assert learnt(first) == [(b"\5", b"\3"), (b"\6", b"\3")]  # full, without the duplicate
    soon = digest(learning, max_list_size=2, max_timeout_ns=20 * MILLISECOND, ack_timeout_ns=HOUR)
    learning.write((MODIFY, soon))
    bench.send(3, ethernet(src=7))
    second = learning.hear("digest")  # by its timeout
    assert learnt(second) == [(b"\7", b"\3")]
    assert second.digest.list_id != first.digest.list_id
    bench.send(3, ethernet(src=5))  # not acknowledged yet: not sent again
    learning.say(
        pb.StreamMessageRequest(
            digest_ack=pb.DigestListAck(digest_id=first.digest.digest_id, list_id=first.digest.list_id)
        )
    )
    learning.arbitrate()  # its answer says that the acknowledgement was taken
    bench.send(3, ethernet(src=5))
    bench.send(3, ethernet(src=7))
    assert learnt(learning.hear("digest")) == [(b"\5", b"\3")]


def test_configuration_of_digests(bench: Bench, primary: Controller) -> None:
    punted = primary.entry("l2", {"hdr.ethernet.dst": b"\2"}, "punt", [b"\x55"])
    primary.write((INSERT, punted))
    bench.send(3, ethernet(src=5))
    primary.hear("packet")  # it comes after the packet's digest, which was kept or not by now
    primary.write((DELETE, punted))
    config = {"max_list_size": 1, "max_timeout_ns": 5, "ack_timeout_ns": 7}
    unknown = digest(primary, **config)
    unknown.digest_entry.digest_id = 3
    cases = [
        (MODIFY, digest(primary, **config), "NOT_FOUND"),
        (DELETE, digest(primary), "NOT_FOUND"),
        (INSERT, digest(primary), "INVALID_ARGUMENT"),
        (INSERT, digest(primary, max_list_size=-1), "INVALID_ARGUMENT"),
        (INSERT, unknown, "INVALID_ARGUMENT"),
        (INSERT, digest(primary, **config), "OK"),
        (INSERT, digest(primary, **config), "ALREADY_EXISTS"),
    ]
    got = batch_codes(lambda: primary.write(*((kind, entity) for kind, entity, _ in cases)))
    assert got == [code for _, _, code in cases]
    assert primary.read(digest(primary)) == [digest(primary, **config)]
    assert primary.read(pb.Entity(digest_entry=pb.DigestEntry())) == [digest(primary, **config)]
    assert primary.heard.empty()  # nothing was kept from before it was on
    bench.send(3, ethernet(src=5))
    assert learnt(primary.hear("digest")) == [(b"\5", b"\3")]
    primary.write((DELETE, digest(primary)))
    bench.send(3, ethernet(src=6))
    primary.arbitrate()
    assert batch_codes(lambda: primary.read(digest(primary))) == ["NOT_FOUND"]
    primary.say(pb.StreamMessageRequest(digest_ack=pb.DigestListAck(digest_id=3)))
    assert primary.hear("error").error.digest_list_ack.digest_list_ack.digest_id == 3
