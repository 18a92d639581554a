"""P4Info: every kind of object, its identifier, name and alias; agreement with the BMv2 JSON."""

from __future__ import annotations

import pytest
from google.protobuf import text_format

from p4lite.compiler import compile_text
from p4lite.compiler.diagnostics import CompileError
from p4lite.compiler.p4info import PREFIX, hash24
from p4lite.messages import p4info_pb2

HEAD = """#include <core.p4>
#include <v1model.p4>
"""
TYPES = """
type bit<9> port_t;
@p4runtime_translation("example.com/vlan", bit<12>) type bit<16> vlan_t;
@p4runtime_translation("example.com/name", string) @kept type bit<32> label_t;
enum bit<8> proto_t { tcp = 6, udp = 17 }
enum colour_t { red, green }
header eth_t { bit<48> dst; bit<16> type; vlan_t vlan; }
header tag_t { bit<8> n; }
header_union either_t { eth_t eth; tag_t tag; }
struct headers { eth_t eth; tag_t[2] tags; }
struct inner_t { bit<7> x; bool flag; }
struct learnt_t { bit<48> mac; port_t port; inner_t inner; proto_t proto; }
struct meta_t { bit<8> a; bit<16> hash; bit<2> colour; vlan_t vlan; label_t label; @field_list(1) bit<8> kept; }
"""
PARSER = """
parser p(packet_in b, out headers h, inout meta_t m, inout standard_metadata_t s) {
    state start { b.extract(h.eth); transition accept; }
}
"""
TAIL = """
control vr(inout headers h, inout meta_t m) { apply { } }
control eg(inout headers h, inout meta_t m, inout standard_metadata_t s) { apply { } }
control ck(inout headers h, inout meta_t m) { apply { } }
control dep(packet_out b, in headers h) { apply { b.emit(h.eth); } }
V1Switch(p(), vr(), ig(), eg(), ck(), dep()) main;
"""
ARGS = "inout headers h, inout meta_t m, inout standard_metadata_t s"


def program(ingress: str, *, outside: str = "", parser: str = PARSER, tail: str = TAIL) -> str:
    return HEAD + TYPES + outside + parser + f"control ig({ARGS}) {{ {ingress} }}" + tail


def info(ingress: str, *, outside: str = "", parser: str = PARSER, tail: str = TAIL) -> p4info_pb2.P4Info:
    """Return the P4Info of a program with this ingress control; read back from its text."""
    text = compile_text(program(ingress, outside=outside, parser=parser, tail=tail)).p4info
    return text_format.Parse(text, p4info_pb2.P4Info())


def shown(message: object) -> str:
    return " ".join(text_format.MessageToString(message, as_one_line=True).split())  # type: ignore[arg-type]


# Jenkins's one-at-a-time hash, worked out by hand for "a": ((97 + (97 << 10)) ^ ... = 0xca2e9442.
@pytest.mark.parametrize(
    ("name", "low"),
    [
        ("a", 0xCA2E9442 & 0xFFFFFF),
        ("The quick brown fox jumps over the lazy dog", 0x519E91F5 & 0xFFFFFF),
        ("NoAction", 21257015 & 0xFFFFFF),
    ],
)
def test_hash_of_known_names(name: str, low: int) -> None:
    assert hash24(name) == low


def by_hand(name: str) -> int:
    """Return the same hash, step by step on a word of 32 bits that is cut only at the end of each step."""
    word = 0
    for character in name:
        word = (word + ord(character)) % 2**32
        word = (word * 1025) % 2**32
        word ^= word // 64
    word = (word * 9) % 2**32
    word ^= word // 2048
    return (word * 32769) % 2**24


BODY = "apply { t.apply(); }"
EVERYTHING = """
    counter(16, CounterType.packets_and_bytes) seen;
    direct_counter(CounterType.bytes) hits;
    meter(8, MeterType.packets) rate;
    direct_meter<bit<2>>(MeterType.bytes) pace;
    register<bit<24>>(32) state;
    @max_group_size(4) action_selector(HashAlgorithm.crc16, 64, 14) chooser;
    action forward(port_t port) { s.egress_spec = (bit<9>) port; }
    action mark() { digest<learnt_t>(1, { h.eth.dst, (port_t) 1, { 1, true }, proto_t.tcp }); }
    action slow() { pace.read(m.colour); }
    table t {
        key = { h.eth.dst : ternary; m.hash : selector; }
        actions = { forward; NoAction; }
        implementation = chooser;
    }
    table u { key = { m.a : exact; } actions = { mark; } counters = hits; }
    table w { key = { m.a : exact; } actions = { slow; } meters = pace; }
    apply {
        t.apply(); u.apply(); w.apply();
        seen.count(1); rate.execute_meter(1, m.a); state.write(1, 2);
    }
"""
PVS_PARSER = PARSER.replace("transition accept;", "transition select(h.eth.type) { vlans : accept; }").replace(
    "state start", "value_set<bit<16>>(4) vlans; state start"
)
PACKET_IN = '@controller_header("packet_in") header in_t { port_t port; @id(7) bit<7> pad; }'


@pytest.mark.parametrize(
    ("field", "kind", "name"),
    [
        ("tables", "table", "ig.t"),
        ("actions", "action", "ig.forward"),
        ("actions", "action", "NoAction"),
        ("action_profiles", "action_profile", "ig.chooser"),
        ("counters", "counter", "ig.seen"),
        ("direct_counters", "direct_counter", "ig.hits"),
        ("meters", "meter", "ig.rate"),
        ("direct_meters", "direct_meter", "ig.pace"),
        ("registers", "register", "ig.state"),
        ("digests", "digest", "learnt_t"),
        ("value_sets", "value_set", "p.vlans"),
    ],
)
def test_identifier_and_alias_of_every_kind(field: str, kind: str, name: str) -> None:
    message = info(EVERYTHING, outside=PACKET_IN, parser=PVS_PARSER)
    found = [each.preamble for each in getattr(message, field) if each.preamble.name == name]
    assert len(found) == 1
    assert found[0].id == PREFIX[kind] << 24 | by_hand(name)
    assert found[0].alias == name.rpartition(".")[2]


def test_contents_of_every_kind() -> None:
    message = info(EVERYTHING, outside=PACKET_IN, parser=PVS_PARSER)
    ids = {each.preamble.name: each.preamble.id for field in ("tables", "direct_counters", "direct_meters") for each in
           getattr(message, field)}  # fmt: skip
    profile = message.action_profiles[0]
    assert (profile.with_selector, profile.size, profile.max_group_size) == (True, 64, 4)
    assert list(profile.table_ids) == [ids["ig.t"]]
    assert message.tables[0].implementation_id == profile.preamble.id
    assert (message.counters[0].size, message.counters[0].spec.unit) == (16, p4info_pb2.CounterSpec.BOTH)
    assert (message.meters[0].size, message.meters[0].spec.unit) == (8, p4info_pb2.MeterSpec.PACKETS)
    assert message.direct_counters[0].direct_table_id == ids["ig.u"]
    assert list(message.tables[1].direct_resource_ids) == [ids["ig.hits"]]
    assert list(message.tables[2].direct_resource_ids) == [ids["ig.pace"]]
    assert shown(message.registers[0].type_spec) == "bitstring { bit { bitwidth: 24 } }"
    assert message.registers[0].size == 32
    assert shown(message.value_sets[0].match[0]) == "id: 1 bitwidth: 16 match_type: EXACT"
    assert message.value_sets[0].size == 4
    assert shown(message.digests[0].type_spec) == 'struct { name: "learnt_t" }'


def test_packet_io_header_is_named_by_its_annotation_but_numbered_by_its_type() -> None:
    header = info("apply { }", outside=PACKET_IN).controller_packet_metadata[0]
    assert header.preamble.id == PREFIX["controller_header"] << 24 | by_hand("in_t")
    assert (header.preamble.name, header.preamble.alias) == ("packet_in", "packet_in")
    assert list(header.preamble.annotations) == ['@controller_header("packet_in")']
    assert [(f.id, f.name, f.bitwidth) for f in header.metadata] == [(1, "port", 9), (7, "pad", 7)]
    assert header.metadata[0].type_name.name == "port_t"


def test_digest_types_are_described() -> None:
    types = info(EVERYTHING).type_info
    learnt = {m.name: shown(m.type_spec) for m in types.structs["learnt_t"].members}
    assert learnt == {
        "mac": "bitstring { bit { bitwidth: 48 } }",
        "port": 'new_type { name: "port_t" }',
        "inner": 'struct { name: "inner_t" }',
        "proto": 'serializable_enum { name: "proto_t" }',
    }
    assert [m.name for m in types.structs["inner_t"].members] == ["x", "flag"]
    assert types.structs["inner_t"].members[1].type_spec.WhichOneof("type_spec") == "bool"
    assert [(m.name, m.value) for m in types.serializable_enums["proto_t"].members] == [
        ("tcp", b"\6"),
        ("udp", b"\x11"),
    ]
    assert shown(types.new_types["port_t"]) == "original_type { bitstring { bit { bitwidth: 9 } } }"


def test_translated_types_have_the_controllers_width() -> None:
    message = info(
        "action a(vlan_t v, label_t l) { m.vlan = v; m.label = l; }"
        "table t { key = { m.vlan : exact; m.label : exact; } actions = { a; } } " + BODY
    )
    assert [(f.bitwidth, f.type_name.name) for f in message.tables[0].match_fields] == [(12, "vlan_t"), (0, "label_t")]
    assert [(f.bitwidth, f.type_name.name) for f in message.actions[1].params] == [(12, "vlan_t"), (0, "label_t")]
    assert shown(message.type_info.new_types["vlan_t"].translated_type) == 'uri: "example.com/vlan" sdn_bitwidth: 12'
    label = message.type_info.new_types["label_t"]
    assert shown(label.translated_type) == 'uri: "example.com/name" sdn_string { }'
    assert list(label.annotations) == ["@kept"]


KINDS = ["exact", "lpm", "ternary", "range", "optional"]


@pytest.mark.parametrize("kind", KINDS)
def test_match_kinds(kind: str) -> None:
    table = info(f"table t {{ key = {{ m.hash : {kind}; }} actions = {{ NoAction; }} }} {BODY}").tables[0]
    assert table.match_fields[0].match_type == p4info_pb2.MatchField.MatchType.Value(kind.upper())


def test_key_names_numbers_and_widths() -> None:
    table = info(
        "action_selector(HashAlgorithm.identity, 8, 8) sel;"
        "table t { key = { h.eth.dst : exact; h.tags[1].n : exact; h.eth.isValid() : exact; m.hash : selector;"
        ' m.hash[7:4] : ternary; m.a + 1 : exact @name("sum") @id(9) @brief("a sum") @format(HEX);'
        " h.eth.type & 0xff0 : ternary; }"
        " actions = { NoAction; } implementation = sel; }" + BODY
    ).tables[0]
    assert [(f.id, f.name, f.bitwidth) for f in table.match_fields] == [
        (1, "h.eth.dst", 48),
        (2, "h.tags[1].n", 8),
        (3, "h.eth.$valid$", 1),
        (5, "m.hash[7:4]", 4),
        (9, "sum", 8),
        (6, "h.eth.type & 0xff0", 16),
    ]
    assert table.match_fields[4].doc.brief == "a sum"
    assert list(table.match_fields[4].annotations) == ["@format(HEX)"]


def test_a_table_without_default_action_has_no_action_for_that_only() -> None:
    message = info("action a() { } table t { key = { m.a : exact; } actions = { a; } }" + BODY)
    refs = message.tables[0].action_refs
    assert [a.preamble.name for a in message.actions] == ["NoAction", "ig.a"]
    assert [(r.id, r.scope, list(r.annotations)) for r in refs] == [
        (message.actions[1].preamble.id, p4info_pb2.ActionRef.TABLE_AND_DEFAULT, []),
        (message.actions[0].preamble.id, p4info_pb2.ActionRef.DEFAULT_ONLY, ["@defaultonly"]),
    ]
    assert message.tables[0].initial_default_action.action_id == message.actions[0].preamble.id
    assert message.tables[0].const_default_action_id == 0


def test_const_default_with_arguments_scopes_sizes_entries_and_timeout() -> None:
    message = info(
        "action a(bit<9> x, @id(5) bool y, bit<16> z) { s.egress_spec = x; }"
        "table t { key = { m.a : exact; } actions = { a; @tableonly NoAction; }"
        " const default_action = a(3, true, 0x102); size = 7; support_timeout = true; }"
        "table u { key = { m.a : exact; } actions = { a; @defaultonly NoAction; } default_action = NoAction;"
        " const entries = { 1 : a(1, false, 2); } }"
        "apply { t.apply(); u.apply(); }"
    )
    t, u = message.tables
    action = next(a for a in message.actions if a.preamble.name == "ig.a")
    assert [(p.id, p.name, p.bitwidth) for p in action.params] == [(1, "x", 9), (5, "y", 1), (2, "z", 16)]
    assert t.const_default_action_id == t.initial_default_action.action_id == action.preamble.id
    assert [(a.param_id, a.value) for a in t.initial_default_action.arguments] == [
        (1, b"\0\3"), (5, b"\1"), (2, b"\1\2"),
    ]  # fmt: skip
    assert (t.size, t.idle_timeout_behavior) == (7, p4info_pb2.Table.NOTIFY_CONTROL)
    assert [r.scope for r in t.action_refs] == [0, p4info_pb2.ActionRef.TABLE_ONLY]
    assert (u.size, u.is_const_table, u.has_initial_entries) == (1024, True, True)
    assert [r.scope for r in u.action_refs] == [0, p4info_pb2.ActionRef.DEFAULT_ONLY]
    assert (t.is_const_table, t.has_initial_entries) == (False, False)


def test_annotations_and_documentation_of_objects() -> None:
    message = info(
        '@brief("short") @description("long") @mine @other(1 + x, "s") @id(0x1234) @name("other.name")'
        ' @pairs[a=1, b="c", d=true]'
        " @list[1 + 1, false] table t { key = { m.a : exact; } actions = { @mine NoAction; } }" + BODY
    )
    preamble = message.tables[0].preamble
    assert (preamble.id, preamble.name, preamble.alias) == (0x02001234, "ig.other.name", "name")
    assert (preamble.doc.brief, preamble.doc.description) == ("short", "long")
    assert list(preamble.annotations) == ["@mine", '@other(1 + x , "s")']
    pairs, values = preamble.structured_annotations
    assert [(p.key, p.value.WhichOneof("value")) for p in pairs.kv_pair_list.kv_pairs] == [
        ("a", "int64_value"), ("b", "string_value"), ("d", "bool_value"),
    ]  # fmt: skip
    assert [shown(e) for e in values.expression_list.expressions] == ["int64_value: 2", "bool_value: false"]
    assert list(message.tables[0].action_refs[0].annotations) == ["@mine"]


def test_package_information() -> None:
    tail = TAIL.replace(
        "V1Switch(",
        '@pkginfo(name="fabric", version="1.2", contact="me", organization="us", url="here")'
        ' @platform_property[multicast_group_table_size=9] @brief("a program") @seen V1Switch(',
    )
    package = info("apply { }", tail=tail).pkg_info
    assert (package.name, package.version, package.contact, package.organization, package.url, package.arch) == (
        "fabric", "1.2", "me", "us", "here", "v1model",
    )  # fmt: skip
    assert package.doc.brief == "a program"
    assert list(package.annotations) == ["@seen"]
    assert package.platform_properties.multicast_group_table_size == 9


def test_hidden_objects_keep_their_names_reserved() -> None:
    message = info(
        "@hidden table hid { key = { m.a : exact; } actions = { NoAction; } }"
        "table t { key = { m.a : exact; } actions = { NoAction; } } apply { t.apply(); hid.apply(); }"
    )
    assert [t.preamble.name for t in message.tables] == ["ig.t"]


SUB = """
control sub(inout headers h, inout meta_t m)(bit<32> n, bool extra) {
    counter(n, CounterType.bytes) seen;
    action act(bit<8> v) { m.a = v; }
    table t { key = { m.a : exact; } actions = { act; } size = 3 * 5; }
    table more { key = { m.a : exact; } actions = { act; } }
    apply { seen.count(0); t.apply(); if (extra) { more.apply(); } }
}
"""


def test_objects_of_sub_controls_are_named_by_instance_and_stand_where_it_was_declared() -> None:
    message = info(
        "table first { key = { m.a : exact; } actions = { NoAction; } }"
        "sub(4, false) one; sub(8, true) two; sub(16, true) unused;"
        "table last { key = { m.a : exact; } actions = { NoAction; } }"
        "apply { last.apply(); first.apply(); one.apply(h, m); two.apply(h, m); }",
        outside=SUB,
    )
    assert [t.preamble.name for t in message.tables] == [
        "ig.first", "ig.one.t", "ig.two.t", "ig.two.more", "ig.last",
    ]  # fmt: skip
    assert [t.preamble.alias for t in message.tables] == ["first", "one.t", "two.t", "more", "last"]
    assert [(c.preamble.name, c.size) for c in message.counters] == [("ig.one.seen", 4), ("ig.two.seen", 8)]
    assert [a.preamble.name for a in message.actions] == ["NoAction", "ig.one.act", "ig.two.act"]
    assert message.tables[1].size == 15


def test_what_nobody_uses_is_left_out_but_externs_stay() -> None:
    message = info(
        "counter(2, CounterType.bytes) idle; action never() { } action once(bit<8> x) { m.a = x; } action inner() { }"
        "action outer() { inner(); }"
        "table dead { key = { m.a : exact; } actions = { never; } }"
        "table t { key = { m.a : exact; } actions = { NoAction; } }"
        "apply { once(3); outer(); if (false) { dead.apply(); } t.apply(); }"
    )
    assert [t.preamble.name for t in message.tables] == ["ig.t"]
    assert [c.preamble.name for c in message.counters] == ["ig.idle"]
    assert [a.preamble.name for a in message.actions] == ["NoAction", "ig.once", "ig.outer"]
    assert not message.actions[1].params, "its arguments are given in the program"


def test_objects_in_table_properties() -> None:
    text = program(
        'table t { key = { m.a : exact; } actions = { NoAction; } @name("mine") implementation = action_profile(32); }'
        "table u { key = { m.a : exact; } actions = { NoAction; } implementation = action_profile(16);"
        " counters = direct_counter(CounterType.packets); }"
        "apply { t.apply(); u.apply(); }"
    )
    compiled = compile_text(text)
    message = compiled.p4info_message
    assert [(p.preamble.name, p.size) for p in message.action_profiles] == [("mine", 32), ("ig.u.implementation", 16)]
    assert [c.preamble.name for c in message.direct_counters] == ["ig.u.counters"]
    in_json = [p["name"] for pipeline in compiled.bmv2["pipelines"] for p in pipeline["action_profiles"]]
    assert in_json == ["mine", "ig.u.implementation"]
    assert "ig.u.counters" in [c["name"] for c in compiled.bmv2["counter_arrays"]]


def test_colliding_hashes_take_the_next_number_in_the_order_of_names() -> None:
    # A chosen identifier stands where the hash of "ig.t" falls.
    taken = by_hand("ig.t")
    message = info(
        f"@id({taken}) table a {{ key = {{ m.a : exact; }} actions = {{ NoAction; }} }}"
        "table t { key = { m.a : exact; } actions = { NoAction; } } apply { t.apply(); a.apply(); }"
    )
    assert [t.preamble.id & 0xFFFFFF for t in message.tables] == [taken, taken + 1]


@pytest.mark.parametrize(
    ("tables", "said"),
    [
        ("@id(0x05000001) table t { key = { m.a : exact; } actions = { NoAction; } }", "must be 0x02"),
        (
            "@id(1) table t { key = { m.a : exact; } actions = { NoAction; } }"
            "@id(1) table u { key = { m.a : exact; } actions = { NoAction; } }",
            "used twice",
        ),
        (
            "table t { key = { m.a : exact; } actions = { @tableonly @defaultonly NoAction; } }",
            "both @tableonly and @defaultonly",
        ),
    ],
)
def test_impossible_annotations_are_errors_with_a_place(tables: str, said: str) -> None:
    apply = "apply { t.apply(); " + ("u.apply(); " if "table u" in tables else "") + "}"
    with pytest.raises(CompileError, match=said) as caught:
        info(tables + apply)
    assert caught.value.diagnostics[-1].pos.line > 0


def test_the_text_is_the_same_in_every_run() -> None:
    text = program(EVERYTHING, outside=PACKET_IN, parser=PVS_PARSER)
    assert compile_text(text).p4info == compile_text(text).p4info


def test_names_agree_with_the_json() -> None:
    compiled = compile_text(program(EVERYTHING, outside=PACKET_IN, parser=PVS_PARSER))
    message, bmv2 = compiled.p4info_message, compiled.bmv2
    tables = {t["name"]: t for pipeline in bmv2["pipelines"] for t in pipeline["tables"]}
    names = {a.preamble.id: a.preamble.name for a in message.actions}
    for table in message.tables:
        ours = tables[table.preamble.name]
        assert [k["name"] for k in ours["key"]] == [f.name for f in table.match_fields]
        assert ours["actions"] == [names[r.id] for r in table.action_refs]
    for field, section in (
        ("counters", "counter_arrays"), ("direct_counters", "counter_arrays"), ("meters", "meter_arrays"),
        ("direct_meters", "meter_arrays"), ("registers", "register_arrays"), ("value_sets", "parse_vsets"),
        ("digests", "learn_lists"),
    ):  # fmt: skip
        in_json = {each["name"] for each in bmv2[section]}
        assert {each.preamble.name for each in getattr(message, field)} <= in_json


def test_the_text_of_a_long_annotation_is_kept() -> None:
    """As SONiC's @entry_restriction: comments and addresses in a string of several lines are its text."""
    note = "\n      // see http://example.org/x\n      dst != 0 /* all */ && type == 0x0800;\n    "
    table = f'@entry_restriction("{note}") table t {{ key = {{ h.eth.dst: exact; }} actions = {{ NoAction; }} }}'
    (made,) = info(f"{table} apply {{ t.apply(); }}").tables
    assert list(made.preamble.annotations) == [f'@entry_restriction("{note}")']


@pytest.mark.parametrize(
    "dead",
    [
        "return; t.apply(); f();",
        "exit; t.apply(); f();",
        "if (h.eth.type == 1) { return; } else { exit; } t.apply(); f();",
        "{ return; } t.apply(); f();",
        "if ((h.tags[0].n >> 8) == 9) { t.apply(); f(); }",
        "if (false) { t.apply(); f(); }",
        "if (h.eth.dst == h.eth.dst) { return; } t.apply(); f();",
        "if (m.a != m.a || m.a < m.a) { t.apply(); f(); }",
    ],
)
def test_what_no_packet_reaches_is_in_neither_document(dead: str) -> None:
    declared = "direct_counter(CounterType.packets) n; action f() { n.count(); } action g() { m.a = 1; } "
    declared += "table t { key = { m.a: exact; } actions = { f; } counters = n; } "
    declared += "table live { key = { m.a: exact; } actions = { g; } } "
    made = compile_text(program(declared.replace("n.count();", "m.a = 2;") + f"apply {{ live.apply(); {dead} }}"))
    tables = [table["name"] for pipeline in made.bmv2["pipelines"] for table in pipeline["tables"]]
    assert tables == ["ig.live"]
    assert [table.preamble.name for table in made.p4info_message.tables] == tables
    assert not made.p4info_message.direct_counters
