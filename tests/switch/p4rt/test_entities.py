"""Everything P4Runtime programs beside table entries: action profiles, counters, meters, registers, value sets,
multicast groups, clone sessions. Each is written, read, seen in packets, and refused where the specification says."""

from __future__ import annotations

import functools
from typing import Any

from p4lite.messages import p4data_pb2, p4runtime_pb2
from support.switch.p4rt import DELETE, INSERT, MODIFY, Bench, Controller, batch_codes, ethernet, ipv4

pb = p4runtime_pb2


def codes(primary: Controller, *updates: tuple[int, Any]) -> list[str]:
    return batch_codes(lambda: primary.write(*updates))


# --- action profiles ----------------------------------------------------------------------------------------


def member(primary: Controller, ident: int, tos: bytes | None = b"\1", profile: str = "rewrites") -> Any:
    entity = pb.Entity()
    message = entity.action_profile_member
    message.action_profile_id, message.member_id = primary.ident("action_profiles", profile), ident
    if tos is not None:
        message.action.CopyFrom(primary.action("set_tos", [tos]))
    return entity


def tos_entry(primary: Controller, ident: int) -> Any:
    entity = primary.entry("tos", {"hdr.ipv4.protocol": b"\x11"})
    entity.table_entry.action.action_profile_member_id = ident
    return entity


def hop(primary: Controller, ident: int, port: int) -> Any:
    entity = member(primary, ident, None, "ecmp")
    entity.action_profile_member.action.CopyFrom(primary.action("next_hop", [b"\7", bytes([port])]))
    return entity


def group(primary: Controller, ident: int, members: dict[int, int], watch: dict[int, bytes] | None = None) -> Any:
    entity = pb.Entity()
    message = entity.action_profile_group
    message.action_profile_id, message.group_id = primary.ident("action_profiles", "ecmp"), ident
    for number, weight in members.items():
        message.members.add(member_id=number, weight=weight, watch_port=(watch or {}).get(number, b""))
    return entity


def route(primary: Controller, prefix: bytes = b"\x0a\0\0\0", **action: Any) -> Any:
    entity = primary.entry("routes", {"hdr.ipv4.dst": (prefix, 8)})
    entity.table_entry.action.CopyFrom(pb.TableAction(**action))
    return entity


def ports_used(bench: Bench, flows: int = 64) -> dict[int, int]:
    """How many of `flows` routed packets left through each port."""
    used: dict[int, int] = {}
    for flow in range(flows):
        for port, _ in bench.send(1, ipv4(src=0xC0000000 + flow * 7919)):
            used[port] = used.get(port, 0) + 1
    return used


def test_members_and_their_effect(bench: Bench, primary: Controller) -> None:
    primary.write((INSERT, member(primary, 5)))
    primary.write((INSERT, tos_entry(primary, 5)), (INSERT, hop(primary, 1, 3)))
    primary.write((INSERT, route(primary, action_profile_member_id=1)))
    ((port, packet),) = bench.send(1, ipv4())
    assert (port, packet[15]) == (3, 1)
    primary.write((MODIFY, member(primary, 5, b"\0\2")))
    ((_, packet),) = bench.send(1, ipv4())
    assert packet[15] == 2
    assert primary.read(member(primary, 5, None)) == [member(primary, 5, b"\2")]
    assert primary.read(tos_entry(primary, 5)) == [tos_entry(primary, 5)]
    both = primary.read(pb.Entity(action_profile_member=pb.ActionProfileMember()))
    assert both == [hop(primary, 1, 3), member(primary, 5, b"\2")] or both == [
        member(primary, 5, b"\2"),
        hop(primary, 1, 3),
    ]


def test_refusals_of_members(primary: Controller) -> None:
    primary.write((INSERT, member(primary, 5)))
    primary.write((INSERT, tos_entry(primary, 5)))
    wrong_action = member(primary, 6)
    wrong_action.action_profile_member.action.CopyFrom(primary.action("next_hop", [b"\1", b"\1"]))
    unknown = member(primary, 6)
    unknown.action_profile_member.action_profile_id = 17
    cases = [
        (INSERT, member(primary, 5), "ALREADY_EXISTS"),
        (INSERT, member(primary, 0), "INVALID_ARGUMENT"),
        (INSERT, member(primary, 6, None), "INVALID_ARGUMENT"),
        (INSERT, wrong_action, "INVALID_ARGUMENT"),
        (INSERT, unknown, "INVALID_ARGUMENT"),
        (MODIFY, member(primary, 6), "NOT_FOUND"),
        (DELETE, member(primary, 6), "NOT_FOUND"),
        (DELETE, member(primary, 5), "FAILED_PRECONDITION"),
    ]
    assert codes(primary, *((kind, entity) for kind, entity, _ in cases)) == [code for _, _, code in cases]
    full = codes(primary, *((INSERT, member(primary, number)) for number in range(10, 20)))
    assert full == ["OK"] * 7 + ["RESOURCE_EXHAUSTED"] * 3
    primary.write((DELETE, tos_entry(primary, 5)))
    primary.write((DELETE, member(primary, 5)))
    assert batch_codes(lambda: primary.read(member(primary, 5))) == ["NOT_FOUND"]


def test_groups_spread_flows(bench: Bench, primary: Controller) -> None:
    primary.write(*((INSERT, hop(primary, number, number)) for number in (2, 3, 4)))
    primary.write((INSERT, group(primary, 1, {2: 1, 3: 1})))
    primary.write((INSERT, route(primary, action_profile_group_id=1)))
    used = ports_used(bench)
    assert set(used) == {2, 3}
    assert sum(used.values()) == 64
    assert ports_used(bench) == used  # the same flows take the same ports
    primary.write((MODIFY, group(primary, 1, {4: 2, 3: 1})))
    assert set(ports_used(bench)) == {3, 4}
    assert primary.read(group(primary, 1, {})) == [group(primary, 1, {4: 2, 3: 1})]
    assert codes(primary, (DELETE, group(primary, 1, {}))) == ["FAILED_PRECONDITION"]
    assert codes(primary, (DELETE, hop(primary, 4, 4))) == ["FAILED_PRECONDITION"]


def test_a_watched_port_that_goes_down_leaves_the_group(bench: Bench, primary: Controller) -> None:
    primary.write(*((INSERT, hop(primary, number, number)) for number in (2, 3)))
    primary.write((INSERT, group(primary, 1, {2: 1, 3: 1}, {2: b"\2", 3: b"\3"})))
    primary.write((INSERT, route(primary, action_profile_group_id=1)))
    assert set(ports_used(bench)) == {2, 3}
    device = bench.server.service.device(1)
    bench.switch.port(2).set_up(False)
    device.ports_changed()
    assert set(ports_used(bench)) == {3}
    bench.switch.port(2).set_up(True)
    device.ports_changed()
    assert set(ports_used(bench)) == {2, 3}


def test_refusals_of_groups(primary: Controller) -> None:
    primary.write((INSERT, hop(primary, 1, 1)))
    primary.write((INSERT, group(primary, 1, {1: 1})))
    twice = group(primary, 2, {1: 1})
    twice.action_profile_group.members.add(member_id=1, weight=1)
    of_profile = group(primary, 2, {})
    of_profile.action_profile_group.action_profile_id = primary.ident("action_profiles", "rewrites")
    resized = group(primary, 1, {1: 1})
    resized.action_profile_group.max_size = 9
    small = group(primary, 2, {1: 5})
    small.action_profile_group.max_size = 4
    cases = [
        (INSERT, group(primary, 1, {}), "ALREADY_EXISTS"),
        (INSERT, group(primary, 0, {}), "INVALID_ARGUMENT"),
        (INSERT, group(primary, 2, {7: 1}), "NOT_FOUND"),
        (INSERT, group(primary, 2, {1: 0}), "INVALID_ARGUMENT"),
        (INSERT, group(primary, 2, {1: -1}), "INVALID_ARGUMENT"),
        (INSERT, group(primary, 2, {1: 1}, {1: b"\x77"}), "INVALID_ARGUMENT"),
        (INSERT, group(primary, 2, {1: 10**6}), "RESOURCE_EXHAUSTED"),
        (INSERT, twice, "INVALID_ARGUMENT"),
        (INSERT, of_profile, "INVALID_ARGUMENT"),
        (INSERT, small, "RESOURCE_EXHAUSTED"),
        (MODIFY, resized, "INVALID_ARGUMENT"),
        (MODIFY, group(primary, 2, {}), "NOT_FOUND"),
        (DELETE, group(primary, 2, {}), "NOT_FOUND"),
        (INSERT, route(primary, action_profile_group_id=9), "NOT_FOUND"),
    ]
    assert codes(primary, *((kind, entity) for kind, entity, _ in cases)) == [code for _, _, code in cases]


def oneshot(primary: Controller, ports: dict[int, int]) -> Any:
    message = pb.ActionProfileActionSet()
    for port, weight in ports.items():
        message.action_profile_actions.add(action=primary.action("next_hop", [b"\7", bytes([port])]), weight=weight)
    return message


def test_one_shots(bench: Bench, primary: Controller) -> None:
    entity = route(primary, action_profile_action_set=oneshot(primary, {2: 1, 3: 3}))
    primary.write((INSERT, entity))
    assert set(ports_used(bench)) == {2, 3}
    assert primary.read(entity) == [entity]
    assert primary.read(pb.Entity(action_profile_member=pb.ActionProfileMember())) == []
    assert primary.read(pb.Entity(action_profile_group=pb.ActionProfileGroup())) == []
    changed = route(primary, action_profile_action_set=oneshot(primary, {4: 1}))
    primary.write((MODIFY, changed))
    assert set(ports_used(bench)) == {4}
    assert primary.read(entity) == [changed]
    # One-shots and members cannot be mixed in one selector, nor a weight be 0.
    assert codes(primary, (INSERT, hop(primary, 1, 1))) == ["INVALID_ARGUMENT"]
    assert codes(primary, (INSERT, group(primary, 1, {}))) == ["INVALID_ARGUMENT"]
    weightless = route(primary, b"\x0b\0\0\0", action_profile_action_set=oneshot(primary, {4: 0}))
    assert codes(primary, (INSERT, weightless)) == ["INVALID_ARGUMENT"]
    assert codes(primary, (INSERT, entity)) == ["ALREADY_EXISTS"]
    primary.write((DELETE, entity))
    assert ports_used(bench) == {}
    # Nothing of the one-shot is left behind.
    assert list(bench.switch.instance.members("I.ecmp")) == []
    primary.write((INSERT, hop(primary, 1, 1)))
    assert codes(primary, (INSERT, entity)) == ["INVALID_ARGUMENT"]


# --- counters, meters, registers ----------------------------------------------------------------------------


def cell(kind: str, primary: Controller, name: str, index: int | None, **fields: Any) -> Any:
    entity = pb.Entity()
    message = getattr(entity, kind + "_entry")
    setattr(message, kind + "_id", primary.ident(kind + "s", name) if name else 0)
    if index is not None:
        message.index.index = index
        message.index.SetInParent()
    for key, value in fields.items():
        getattr(message, key).CopyFrom(value)
    message.SetInParent()
    return entity


def refused_cells(kind: str, primary: Controller, name: str, size: int, **data: Any) -> None:
    unknown = cell(kind, primary, name, 0, **data)
    setattr(getattr(unknown, kind + "_entry"), kind + "_id", 4711)
    cases = [
        (INSERT, cell(kind, primary, name, 0, **data), "INVALID_ARGUMENT"),
        (DELETE, cell(kind, primary, name, 0, **data), "INVALID_ARGUMENT"),
        (MODIFY, cell(kind, primary, name, -1, **data), "INVALID_ARGUMENT"),
        (MODIFY, cell(kind, primary, name, size, **data), "OUT_OF_RANGE"),
        (MODIFY, unknown, "INVALID_ARGUMENT"),
    ]
    assert codes(primary, *((update, entity) for update, entity, _ in cases)) == [code for _, _, code in cases]
    queries = [cell(kind, primary, name, size), cell(kind, primary, name, -1), unknown]
    got = batch_codes(lambda: primary.read(*queries))
    assert got == ["OUT_OF_RANGE", "INVALID_ARGUMENT", "INVALID_ARGUMENT"]


def test_counters(bench: Bench, primary: Controller) -> None:
    data = pb.CounterData(packet_count=5, byte_count=500)
    primary.write((MODIFY, cell("counter", primary, "port_count", 1, data=data)))
    bench.send(1, ethernet())
    (entity,) = primary.read(cell("counter", primary, "port_count", 1))
    assert entity.counter_entry.data == pb.CounterData(packet_count=6, byte_count=500 + len(ethernet()))
    assert len(primary.read(cell("counter", primary, "port_count", None))) == 16
    assert len(primary.read(cell("counter", primary, "", None))) == 16
    primary.write((MODIFY, cell("counter", primary, "port_count", 1)))  # no data: unchanged
    assert primary.read(cell("counter", primary, "port_count", 1)) == [entity]
    primary.write((MODIFY, cell("counter", primary, "port_count", None, data=data)))
    assert {found.counter_entry.data.packet_count for found in primary.read(cell("counter", primary, "", None))} == {5}
    refused_cells("counter", primary, "port_count", 16, data=data)


def test_meters(bench: Bench, primary: Controller) -> None:
    primary.write((INSERT, primary.entry("l2", {"hdr.ethernet.dst": b"\2"}, "forward", [b"\2"])))
    assert len(bench.send(1, ethernet())) == 1
    config = pb.MeterConfig(cir=1, cburst=1, pir=1, pburst=2)
    primary.write((MODIFY, cell("meter", primary, "port_meter", 1, config=config)))
    passed = sum(len(bench.send(1, ethernet(), after_ns=0)) for _ in range(10))
    assert passed == 2  # bursts of one green and one yellow packet; the program drops red
    (entity,) = primary.read(cell("meter", primary, "port_meter", 1))
    assert entity.meter_entry.config == config
    assert len(primary.read(cell("meter", primary, "port_meter", None))) == 8
    (other,) = primary.read(cell("meter", primary, "port_meter", 0))
    assert not other.meter_entry.HasField("config")
    primary.write((MODIFY, cell("meter", primary, "port_meter", 1)))  # no config: green again
    assert len(bench.send(1, ethernet())) == 1
    refused_cells("meter", primary, "port_meter", 8, config=config)
    cases = [
        (pb.MeterConfig(cir=-1), "INVALID_ARGUMENT"),
        (pb.MeterConfig(cir=2, pir=1), "INVALID_ARGUMENT"),
        (pb.MeterConfig(cir=1, pir=1, eburst=1), "INVALID_ARGUMENT"),
    ]
    updates = [(MODIFY, cell("meter", primary, "port_meter", 1, config=wrong)) for wrong, _ in cases]
    assert codes(primary, *updates) == [code for _, code in cases]
    coloured = cell("meter", primary, "port_meter", 1, counter_data=pb.MeterCounterData())
    assert codes(primary, (MODIFY, coloured)) == ["UNIMPLEMENTED"]


def test_registers(bench: Bench, primary: Controller) -> None:
    def value(data: bytes) -> Any:
        return p4data_pb2.P4Data(bitstring=data)

    primary.write((MODIFY, cell("register", primary, "seen", 1, data=value(b"\0\x01\xff"))))
    bench.send(1, ethernet())
    assert primary.read(cell("register", primary, "seen", 1)) == [
        cell("register", primary, "seen", 1, data=value(b"\2\0"))
    ]
    primary.write((MODIFY, cell("register", primary, "seen", None, data=value(b"\7"))))
    found = primary.read(cell("register", primary, "seen", None))
    assert found == [cell("register", primary, "seen", index, data=value(b"\7")) for index in range(8)]
    refused_cells("register", primary, "seen", 8, data=value(b"\1"))
    cases = [
        (cell("register", primary, "seen", 0), "INVALID_ARGUMENT"),
        (cell("register", primary, "seen", 0, data=value(b"\1\0\0\0\0")), "OUT_OF_RANGE"),
        (cell("register", primary, "seen", 0, data=value(b"")), "OUT_OF_RANGE"),
        (cell("register", primary, "seen", 0, data=p4data_pb2.P4Data(bool=True)), "INVALID_ARGUMENT"),
    ]
    assert codes(primary, *((MODIFY, entity) for entity, _ in cases)) == [code for _, code in cases]


# --- value sets ---------------------------------------------------------------------------------------------


def value_set(primary: Controller, *values: bytes) -> Any:
    entity = pb.Entity()
    entity.value_set_entry.value_set_id = primary.ident("value_sets", "other_types")
    for value in values:
        entity.value_set_entry.members.add().match.add(field_id=1).exact.value = value
    return entity


def test_value_sets(bench: Bench, primary: Controller) -> None:
    primary.write((INSERT, hop(primary, 1, 3)))
    primary.write((INSERT, route(primary, action_profile_member_id=1)))
    assert bench.send(1, ipv4(kind=0x1111)) == []
    primary.write((MODIFY, value_set(primary, b"\0\x22", b"\x11\x11")))
    assert [port for port, _ in bench.send(1, ipv4(kind=0x1111))] == [3]
    assert primary.read(value_set(primary)) == [value_set(primary, b"\x22", b"\x11\x11")]
    assert primary.read(pb.Entity(value_set_entry=pb.ValueSetEntry())) == [value_set(primary, b"\x22", b"\x11\x11")]
    ternary = value_set(primary, b"\1")
    ternary.value_set_entry.members[0].match[0].ternary.mask = b"\1"
    empty = value_set(primary)
    empty.value_set_entry.members.add()
    wrong_field = value_set(primary, b"\1")
    wrong_field.value_set_entry.members[0].match[0].field_id = 2
    unknown = value_set(primary)
    unknown.value_set_entry.value_set_id = 5
    cases = [
        (INSERT, value_set(primary), "INVALID_ARGUMENT"),
        (DELETE, value_set(primary), "INVALID_ARGUMENT"),
        (MODIFY, value_set(primary, *(bytes([number]) for number in range(1, 6))), "RESOURCE_EXHAUSTED"),
        (MODIFY, value_set(primary, b"\1", b"\0\1"), "ALREADY_EXISTS"),
        (MODIFY, value_set(primary, b"\1\0\0"), "OUT_OF_RANGE"),
        (MODIFY, ternary, "UNIMPLEMENTED"),
        (MODIFY, empty, "INVALID_ARGUMENT"),
        (MODIFY, wrong_field, "INVALID_ARGUMENT"),
        (MODIFY, unknown, "INVALID_ARGUMENT"),
    ]
    assert codes(primary, *((kind, entity) for kind, entity, _ in cases)) == [code for _, _, code in cases]
    assert [port for port, _ in bench.send(1, ipv4(kind=0x1111))] == [3]
    primary.write((MODIFY, value_set(primary)))
    assert bench.send(1, ipv4(kind=0x1111)) == []


# --- replication --------------------------------------------------------------------------------------------


def replicated(entry: str, key: str, ident: int, *replicas: tuple[bytes, int], **fields: Any) -> Any:
    entity = pb.Entity()
    message = getattr(entity.packet_replication_engine_entry, entry)
    setattr(message, key, ident)
    for port, instance in replicas:
        message.replicas.add(port=port, instance=instance)
    for name, value in fields.items():
        setattr(message, name, value)
    message.SetInParent()
    return entity


multicast = functools.partial(replicated, "multicast_group_entry", "multicast_group_id")
session = functools.partial(replicated, "clone_session_entry", "session_id")


def test_multicast_groups(bench: Bench, primary: Controller) -> None:
    primary.write((INSERT, primary.entry("l2", {"hdr.ethernet.dst": b"\2"}, "flood", [b"\5"])))
    assert bench.send(1, ethernet()) == []
    written = multicast(5, (b"\0\2", 1), (b"\3", 1), (b"\3", 2), metadata=b"m")
    canonical = multicast(5, (b"\2", 1), (b"\3", 1), (b"\3", 2), metadata=b"m")
    primary.write((INSERT, written))
    assert sorted(port for port, _ in bench.send(1, ethernet())) == [2, 3, 3]
    assert primary.read(multicast(5)) == primary.read(multicast(0)) == [canonical]
    primary.write((MODIFY, multicast(5, (b"\4", 1))))
    assert [port for port, _ in bench.send(1, ethernet())] == [4]
    cases = [
        (INSERT, multicast(5), "ALREADY_EXISTS"),
        (INSERT, multicast(0), "INVALID_ARGUMENT"),
        (INSERT, multicast(65536), "INVALID_ARGUMENT"),
        (INSERT, multicast(6, (b"\1", 1), (b"\1", 1)), "INVALID_ARGUMENT"),
        (INSERT, multicast(6, (b"\1", 65536)), "INVALID_ARGUMENT"),
        (INSERT, multicast(6, (b"\1\0\0", 1)), "INVALID_ARGUMENT"),
        (INSERT, multicast(6, (b"", 1)), "OUT_OF_RANGE"),
        (MODIFY, multicast(6), "NOT_FOUND"),
        (DELETE, multicast(6), "NOT_FOUND"),
        (INSERT, pb.Entity(packet_replication_engine_entry=pb.PacketReplicationEngineEntry()), "INVALID_ARGUMENT"),
    ]
    assert codes(primary, *((kind, entity) for kind, entity, _ in cases)) == [code for _, _, code in cases]
    primary.write((DELETE, multicast(5)))
    assert bench.send(1, ethernet()) == []
    assert batch_codes(lambda: primary.read(multicast(5))) == ["NOT_FOUND"]


def test_clone_sessions(bench: Bench, primary: Controller) -> None:
    primary.write((INSERT, hop(primary, 1, 4)))
    primary.write((INSERT, route(primary, action_profile_member_id=1)))
    primary.write((INSERT, primary.entry("acl", {}, "mirror", [b"\7"], priority=1)))
    assert [port for port, _ in bench.send(1, ipv4())] == [4]
    entity = session(7, (b"\2", 1), (b"\3", 1), packet_length_bytes=20)
    primary.write((INSERT, entity))
    out = dict(bench.send(1, ipv4()))
    assert sorted(out) == [2, 3, 4]
    assert out[2] == ipv4()[:20]
    assert len(out[4]) == len(ipv4())
    assert primary.read(session(7)) == primary.read(session(0)) == [entity]
    cases = [
        (INSERT, session(7), "ALREADY_EXISTS"),
        (INSERT, session(0), "INVALID_ARGUMENT"),
        (INSERT, session(32768), "INVALID_ARGUMENT"),
        (INSERT, session(8, (b"\1", 1), class_of_service=1), "UNIMPLEMENTED"),
        (INSERT, session(8, (b"\1", 1), packet_length_bytes=-1), "INVALID_ARGUMENT"),
        (MODIFY, session(8), "NOT_FOUND"),
        (DELETE, session(8), "NOT_FOUND"),
    ]
    assert codes(primary, *((kind, found) for kind, found, _ in cases)) == [code for _, _, code in cases]
    primary.write((DELETE, session(7)))
    assert [port for port, _ in bench.send(1, ipv4())] == [4]
