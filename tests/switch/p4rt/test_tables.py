"""Table entries over P4Runtime: writing, reading, their effect on packets, and every refusal of the specification."""

from __future__ import annotations

from typing import Any

import pytest

from p4lite.messages import p4runtime_pb2
from support.switch.p4rt import DELETE, INSERT, MODIFY, Bench, Controller, batch_codes, code_of, ethernet, ipv4

MAC2, MAC3 = b"\2", b"\3"
Entry = p4runtime_pb2.TableEntry


def forward(primary: Controller, mac: bytes = MAC2, port: bytes = b"\1", **fields: Any) -> Any:
    return primary.entry("l2", {"hdr.ethernet.dst": mac}, "forward", [port], **fields)


def acl(primary: Controller, match: dict[str, Any], priority: int, action: str = "drop", args: Any = ()) -> Any:
    return primary.entry("acl", match, action, args, priority=priority)


def test_insert_modify_delete_and_their_effect(bench: Bench, primary: Controller) -> None:
    assert bench.send(1, ethernet()) == []
    primary.write((INSERT, forward(primary, port=b"\3")))
    assert bench.send(1, ethernet()) == [(3, ethernet())]
    primary.write((MODIFY, forward(primary, port=b"\4")))
    assert bench.send(1, ethernet()) == [(4, ethernet())]
    primary.write((DELETE, forward(primary)))
    assert bench.send(1, ethernet()) == []


def test_what_was_written_is_read(primary: Controller) -> None:
    written = [
        forward(primary, MAC2, metadata=b"cookie", controller_metadata=7),
        acl(primary, {"source": (b"\x0a\0\0\0", b"\xff\0\0\0"), "protocol": [b"\1", b"\x11"], "port": b"\1"}, 5),
        acl(primary, {"protocol": [b"\0", b"\1"]}, 2**31 - 1, "mirror", [b"\5"]),
        acl(primary, {}, 1),
    ]
    primary.write(*((INSERT, entity) for entity in written))
    for entity in written:
        query = p4runtime_pb2.Entity(table_entry=Entry(table_id=entity.table_entry.table_id))
        assert entity in primary.read(query)
        exact = Entry(
            table_id=entity.table_entry.table_id,
            match=entity.table_entry.match,
            priority=entity.table_entry.priority,
        )
        assert primary.read(p4runtime_pb2.Entity(table_entry=exact)) == [entity]


def test_strings_are_read_back_canonical(primary: Controller) -> None:
    primary.write((INSERT, forward(primary, b"\0\0\0\0\0\2", b"\0\3")))
    assert primary.read(forward(primary, MAC2)) == [forward(primary, MAC2, b"\3")]
    assert batch_codes(lambda: primary.write((INSERT, forward(primary, MAC2)))) == ["ALREADY_EXISTS"]


def test_filters_of_reads(primary: Controller) -> None:
    entries = [
        forward(primary, MAC2, metadata=b"a", controller_metadata=1),
        forward(primary, MAC3, metadata=b"b", controller_metadata=2),
        primary.entry("l2", {"hdr.ethernet.dst": b"\4"}, "punt", [b"\1"], metadata=b"a"),
    ]
    primary.write(*((INSERT, entity) for entity in entries))

    def found(**fields: Any) -> list[Any]:
        return primary.read(p4runtime_pb2.Entity(table_entry=Entry(table_id=primary.ident("tables", "l2"), **fields)))

    assert found() == entries
    assert found(metadata=b"a") == [entries[0], entries[2]]
    assert found(controller_metadata=2) == [entries[1]]
    by_action = p4runtime_pb2.TableAction(action=p4runtime_pb2.Action(action_id=primary.ident("actions", "punt")))
    assert found(action=by_action) == [entries[2]]
    everything = primary.read(p4runtime_pb2.Entity(table_entry=Entry()))
    assert [entity for entity in everything if entity in entries] == entries
    assert code_of(lambda: primary.read(p4runtime_pb2.Entity())) == "UNKNOWN"


def test_higher_priority_wins(bench: Bench, primary: Controller) -> None:
    primary.write(
        (INSERT, acl(primary, {"source": (b"\x0a\0\0\0", b"\xff\0\0\0")}, 10, "punt", [b"\1"])),
        (INSERT, acl(primary, {"source": (b"\x0a\0\0\2", b"\xff\xff\xff\xff")}, 20, "drop")),
    )
    bench.send(1, ipv4(src=0x0A000002))
    bench.send(1, ipv4(src=0x0A000003))
    assert primary.hear("packet").packet.payload == ipv4(src=0x0A000003)
    assert primary.heard.empty()
    primary.write((INSERT, acl(primary, {"port": b"\1"}, 30, "punt", [b"\2"])))
    bench.send(1, ipv4(src=0x0A000002))
    assert primary.hear("packet").packet.payload == ipv4(src=0x0A000002)


def test_entries_of_the_program(bench: Bench, primary: Controller) -> None:
    query = p4runtime_pb2.Entity(table_entry=Entry(table_id=primary.ident("tables", "fixed")))
    first, second = (entity.table_entry for entity in primary.read(query))
    assert (first.priority, second.priority) == (2, 1)
    assert first.is_const
    assert first.match[0].ternary.value == b"\x12\x34"
    assert second.match[0].ternary.mask == b"\xff\x00"
    assert second.action.action == primary.action("forward", [b"\x08"])
    new = primary.entry("fixed", {"hdr.ethernet.type": (b"\1", b"\1")}, "forward", [b"\1"], priority=3)
    known = primary.entry("fixed", {"hdr.ethernet.type": (b"\x12\x34", b"\xff\xff")}, "forward", [b"\1"], priority=2)
    for kind, entity in ((INSERT, new), (MODIFY, known), (DELETE, known), (DELETE, new)):
        assert batch_codes(lambda kind=kind, entity=entity: primary.write((kind, entity))) == ["PERMISSION_DENIED"]
    bench.switch.add_port(7)
    assert bench.send(1, ethernet(kind=0x1234)) == [(7, ethernet(kind=0x1234))]


def test_default_entry(bench: Bench, primary: Controller) -> None:
    def default(action: str | None = None, args: Any = (), table: str = "l2", **fields: Any) -> Any:
        return primary.entry(table, None, action, args, is_default_action=True, **fields)

    assert primary.read(default()) == [default("drop")]
    primary.write((MODIFY, default("forward", [b"\2"], metadata=b"m")))
    assert primary.read(default()) == [default("forward", [b"\2"], metadata=b"m")]
    assert bench.send(1, ethernet()) == [(2, ethernet())]
    primary.write((MODIFY, default()))
    assert primary.read(default()) == [default("drop")]
    assert bench.send(1, ethernet()) == []
    refused = [
        (INSERT, default("drop"), "INVALID_ARGUMENT"),
        (DELETE, default(), "INVALID_ARGUMENT"),
        (MODIFY, default("NoAction"), "PERMISSION_DENIED"),  # @tableonly
        (MODIFY, default("learn"), "INVALID_ARGUMENT"),  # not an action of the table
        (MODIFY, default("NoAction", table="smac"), "PERMISSION_DENIED"),  # const default action
        (MODIFY, default("drop", priority=1), "INVALID_ARGUMENT"),
        (MODIFY, default("drop", idle_timeout_ns=1), "INVALID_ARGUMENT"),
        (MODIFY, default("next_hop", [b"\1", b"\1"], table="routes"), "UNIMPLEMENTED"),
    ]
    codes = batch_codes(lambda: primary.write(*((kind, entity) for kind, entity, _ in refused)))
    assert codes == [code for _, _, code in refused]


def bad_entries(primary: Controller) -> list[tuple[str, int, Any, str]]:
    """Return (what, update type, entity, code): what the specification's sections on entries forbid."""
    good = forward(primary)
    unknown_field = forward(primary)
    unknown_field.table_entry.match[0].field_id = 99
    wrong_kind = forward(primary)
    wrong_kind.table_entry.match[0].ternary.value = b"\1"
    twice = forward(primary)
    twice.table_entry.match.add().CopyFrom(twice.table_entry.match[0])
    no_match = forward(primary)
    del no_match.table_entry.match[:]
    unknown_action = forward(primary)
    unknown_action.table_entry.action.action.action_id = 12345
    unknown_param = forward(primary)
    unknown_param.table_entry.action.action.params[0].param_id = 9
    missing_param = forward(primary)
    del missing_param.table_entry.action.action.params[:]
    extra_param = forward(primary)
    extra_param.table_entry.action.action.params.add(param_id=1, value=b"\1")
    member = forward(primary)
    member.table_entry.action.action_profile_member_id = 1
    meter = forward(primary, meter_config=p4runtime_pb2.MeterConfig(cir=1))
    unknown_table = forward(primary)
    unknown_table.table_entry.table_id = 1
    keyless = primary.entry("flag", {}, "drop")
    default_only = primary.entry("l2", {"hdr.ethernet.dst": MAC2}, "drop")
    member_missing = primary.entry("tos", {"hdr.ipv4.protocol": b"\1"})
    member_missing.table_entry.action.action_profile_member_id = 5
    direct_action = primary.entry("tos", {"hdr.ipv4.protocol": b"\1"}, "set_tos", [b"\1"])
    group_of_profile = primary.entry("tos", {"hdr.ipv4.protocol": b"\1"})
    group_of_profile.table_entry.action.action_profile_group_id = 5
    full_source = {"source": (b"\1", b"\1")}
    return [
        ("no entity", INSERT, p4runtime_pb2.Entity(), "INVALID_ARGUMENT"),
        ("no update type", 0, good, "INVALID_ARGUMENT"),
        ("extern entry", INSERT, p4runtime_pb2.Entity(extern_entry=p4runtime_pb2.ExternEntry()), "UNIMPLEMENTED"),
        ("unknown table", INSERT, unknown_table, "INVALID_ARGUMENT"),
        ("unknown match field", INSERT, unknown_field, "INVALID_ARGUMENT"),
        ("wrong match kind", INSERT, wrong_kind, "INVALID_ARGUMENT"),
        ("match field twice", INSERT, twice, "INVALID_ARGUMENT"),
        ("exact field left out", INSERT, no_match, "INVALID_ARGUMENT"),
        ("empty string", INSERT, forward(primary, b""), "OUT_OF_RANGE"),
        ("key too wide", INSERT, forward(primary, b"\1" + bytes(6)), "OUT_OF_RANGE"),
        ("argument too wide", INSERT, forward(primary, port=b"\2\0"), "OUT_OF_RANGE"),
        ("unknown action", INSERT, unknown_action, "INVALID_ARGUMENT"),
        ("unknown parameter", INSERT, unknown_param, "INVALID_ARGUMENT"),
        ("missing parameter", INSERT, missing_param, "INVALID_ARGUMENT"),
        ("parameter twice", INSERT, extra_param, "INVALID_ARGUMENT"),
        ("no action", INSERT, primary.entry("l2", {"hdr.ethernet.dst": MAC2}), "INVALID_ARGUMENT"),
        ("member of a direct table", INSERT, member, "INVALID_ARGUMENT"),
        ("action of an indirect table", INSERT, direct_action, "INVALID_ARGUMENT"),
        ("member that is not there", INSERT, member_missing, "NOT_FOUND"),
        ("group of a profile without selector", INSERT, group_of_profile, "INVALID_ARGUMENT"),
        ("meter of a table without", INSERT, meter, "INVALID_ARGUMENT"),
        ("idle timeout of a table without", INSERT, forward(primary, idle_timeout_ns=5), "INVALID_ARGUMENT"),
        ("priority of a table without", INSERT, forward(primary, priority=5), "INVALID_ARGUMENT"),
        ("is_const", INSERT, forward(primary, is_const=True), "INVALID_ARGUMENT"),
        ("keyless table", INSERT, keyless, "INVALID_ARGUMENT"),
        ("default-only action", INSERT, default_only, "PERMISSION_DENIED"),
        ("no priority", INSERT, acl(primary, full_source, 0), "INVALID_ARGUMENT"),
        ("negative priority", INSERT, acl(primary, full_source, -1), "INVALID_ARGUMENT"),
        ("ternary mask 0", INSERT, acl(primary, {"source": (b"\0", b"\0")}, 1), "INVALID_ARGUMENT"),
        ("ternary value outside mask", INSERT, acl(primary, {"source": (b"\3", b"\1")}, 1), "INVALID_ARGUMENT"),
        ("range upside down", INSERT, acl(primary, {"protocol": [b"\2", b"\1"]}, 1), "INVALID_ARGUMENT"),
        ("whole range", INSERT, acl(primary, {"protocol": [b"\0", b"\xff"]}, 1), "INVALID_ARGUMENT"),
        ("prefix of 0", INSERT, primary.entry("routes", {"hdr.ipv4.dst": (b"\0", 0)}, "drop"), "INVALID_ARGUMENT"),
        ("prefix too long", INSERT, primary.entry("routes", {"hdr.ipv4.dst": (b"\0", 33)}, "drop"), "INVALID_ARGUMENT"),
        (
            "bits beyond prefix",
            INSERT,
            primary.entry("routes", {"hdr.ipv4.dst": (b"\1", 8)}, "drop"),
            "INVALID_ARGUMENT",
        ),
        ("entry to modify is not there", MODIFY, good, "NOT_FOUND"),
        ("entry to delete is not there", DELETE, good, "NOT_FOUND"),
    ]


def test_every_refusal_in_one_batch(bench: Bench, primary: Controller) -> None:
    cases = bad_entries(primary)
    codes = batch_codes(lambda: primary.write(*((kind, entity) for _, kind, entity, _ in cases)))
    got = {what: code for (what, _, _, _), code in zip(cases, codes, strict=True)}
    assert got == {what: code for what, _, _, code in cases}
    # None of it changed anything, and the switch goes on.
    assert primary.read(p4runtime_pb2.Entity(table_entry=Entry(table_id=primary.ident("tables", "l2")))) == []
    primary.write((INSERT, forward(primary, port=b"\3")))
    assert bench.send(1, ethernet()) == [(3, ethernet())]


def test_a_batch_goes_on_after_an_error(primary: Controller) -> None:
    codes = batch_codes(
        lambda: primary.write(
            (INSERT, forward(primary, MAC2)), (INSERT, forward(primary, MAC2)), (INSERT, forward(primary, MAC3))
        )
    )
    assert codes == ["OK", "ALREADY_EXISTS", "OK"]
    query = p4runtime_pb2.Entity(table_entry=Entry(table_id=primary.ident("tables", "l2")))
    assert len(primary.read(query)) == 2


def test_atomic_batches_are_refused(primary: Controller) -> None:
    for atomicity in (p4runtime_pb2.WriteRequest.ROLLBACK_ON_ERROR, p4runtime_pb2.WriteRequest.DATAPLANE_ATOMIC):
        entity = forward(primary)
        assert code_of(lambda a=atomicity, e=entity: primary.write((INSERT, e), atomicity=a)) == "UNIMPLEMENTED"


def test_a_full_table(primary: Controller) -> None:
    entities = [forward(primary, bytes([number])) for number in range(1, 6)]
    codes = batch_codes(lambda: primary.write(*((INSERT, entity) for entity in entities)))
    assert codes == ["OK"] * 4 + ["RESOURCE_EXHAUSTED"]


def test_direct_counters(bench: Bench, primary: Controller) -> None:
    data = p4runtime_pb2.CounterData
    primary.write((INSERT, forward(primary, counter_data=data(packet_count=10, byte_count=1000))))
    bench.send(1, ethernet())
    total = data(packet_count=11, byte_count=1000 + len(ethernet()))
    query = forward(primary, counter_data=data())
    query.table_entry.ClearField("action")
    assert primary.read(query)[0].table_entry.counter_data == total
    plain = forward(primary)
    plain.table_entry.ClearField("action")
    assert not primary.read(plain)[0].table_entry.HasField("counter_data")
    direct = p4runtime_pb2.Entity()
    direct.direct_counter_entry.table_entry.CopyFrom(query.table_entry)
    direct.direct_counter_entry.table_entry.ClearField("counter_data")
    assert primary.read(direct)[0].direct_counter_entry.data == total
    direct.direct_counter_entry.data.SetInParent()
    primary.write((MODIFY, direct))
    assert primary.read(direct)[0].direct_counter_entry.data == data()
    primary.write((MODIFY, forward(primary)))  # counter_data unset: the count stays
    assert batch_codes(lambda: primary.write((INSERT, direct))) == ["INVALID_ARGUMENT"]
    direct.direct_counter_entry.table_entry.match[0].exact.value = b"\x09"
    assert batch_codes(lambda: primary.write((MODIFY, direct))) == ["NOT_FOUND"]
    assert batch_codes(lambda: primary.read(direct)) == ["NOT_FOUND"]
    direct.direct_counter_entry.table_entry.table_id = primary.ident("tables", "acl")
    assert batch_codes(lambda: primary.write((MODIFY, direct))) == ["INVALID_ARGUMENT"]
    default = primary.entry("l2", None, None, is_default_action=True, counter_data=data())
    bench.send(1, ethernet(dst=77))
    assert primary.read(default)[0].table_entry.counter_data.packet_count == 1


def test_direct_meters(bench: Bench, primary: Controller) -> None:
    config = p4runtime_pb2.MeterConfig(cir=1, cburst=1, pir=1, pburst=2)
    entity = acl(primary, {"port": b"\1"}, 1, "police")
    entity.table_entry.meter_config.CopyFrom(config)
    primary.write((INSERT, entity))
    query = acl(primary, {"port": b"\1"}, 1, None)  # type: ignore[arg-type]
    query.table_entry.meter_config.SetInParent()
    assert primary.read(query)[0].table_entry.meter_config == config
    direct = p4runtime_pb2.Entity()
    direct.direct_meter_entry.table_entry.CopyFrom(acl(primary, {"port": b"\1"}, 1, None).table_entry)  # type: ignore[arg-type]
    assert primary.read(direct)[0].direct_meter_entry.config == config
    primary.write((MODIFY, direct))  # no config: green for all
    assert not primary.read(direct)[0].direct_meter_entry.HasField("config")
    assert not primary.read(query)[0].table_entry.HasField("meter_config")
    direct.direct_meter_entry.config.cir = -1
    assert batch_codes(lambda: primary.write((MODIFY, direct))) == ["INVALID_ARGUMENT"]
    direct.direct_meter_entry.counter_data.SetInParent()
    assert batch_codes(lambda: primary.write((MODIFY, direct))) == ["UNIMPLEMENTED"]


def test_idle_timeouts(bench: Bench, primary: Controller) -> None:
    second = 10**9
    entity = primary.entry(
        "smac", {"hdr.ethernet.src": b"\1"}, "NoAction", idle_timeout_ns=3 * second, metadata=b"host 1"
    )
    primary.write((INSERT, entity))
    assert primary.read(entity) == [entity]
    bench.run(2 * second)
    bench.send(1, ethernet())  # a hit: the timeout starts anew
    bench.run(2 * second)
    query = primary.entry("smac", {"hdr.ethernet.src": b"\1"}, None)
    query.table_entry.time_since_last_hit.SetInParent()
    idle = primary.read(query)[0].table_entry.time_since_last_hit.elapsed_ns
    assert 2 * second <= idle < 3 * second
    assert primary.heard.empty()
    bench.run(2 * second)
    (expired,) = primary.hear("idle_timeout_notification").idle_timeout_notification.table_entry
    entity.table_entry.ClearField("action")
    assert expired == entity.table_entry


@pytest.mark.parametrize("count", [1000])
def test_many_entries_in_one_read(primary: Controller, count: int) -> None:
    """More entities than fit in one ReadResponse."""
    indices = [
        p4runtime_pb2.Entity(register_entry=p4runtime_pb2.RegisterEntry(register_id=primary.ident("registers", "seen")))
    ] * (count // 8)
    assert len(primary.read(*indices)) == count
