"""The document itself: unique numbers, names, defaults, entries; and what is refused, by name and place."""

from __future__ import annotations

import json
from typing import Any

import pytest

from p4lite.compiler import backend, frontend
from p4lite.compiler.backend.document import linearise
from p4lite.compiler.diagnostics import Unsupported
from p4lite.compiler.midend.lir import BasicBlock, Branch, Const, End, Field, Jump, LoweredAssign, Op
from p4lite.switch.errors import ProgramError
from support.p4.cases import INPUT, compile_text, run_on, source, switch
from support.p4.oracle import Switch

RICH = {
    "types": "header e_t { bit<8> v; } header_union u_t { e_t x; } enum Colour { red, green }",
    "headers": "e_t[2] s; u_t u;",
    "meta": "@field_list(1) bit<3> odd; bool flag; Colour c;",
    "top": "error { Mine }",
    "parser_locals": "value_set<bit<8>>(4) vs;",
    "parser": """state start { pkt.extract(hdr.h); transition select(hdr.h.a) { vs: more; 1 &&& 3: accept; } }
        state more { pkt.extract(hdr.s.next); transition accept; }""",
    "locals": """
        register<bit<12>>(5) r; counter(6, CounterType.packets) cnt; direct_counter(CounterType.bytes) dc;
        action set(bit<9> port, bit<8> v) { sm.egress_spec = port; hdr.h.a = v; }
        @name("renamed") action b() { hdr.h.b = 0; }
        @name(".absolute") table one { key = { hdr.h.b: exact; hdr.h.c: lpm @name("where"); }
            actions = { set; b; NoAction; } const default_action = set(3, 255); size = 12; counters = dc;
            support_timeout = true; }
        table two { key = { hdr.h.b: ternary; } actions = { b; @defaultonly NoAction; }
            const entries = { 1 &&& 0x0f: b(); _: b(); } }
    """,
    "body": "one.apply(); if (hdr.h.b == 1) { two.apply(); cnt.count(1); } r.write(0, 1); hdr.h.c = hdr.h.c + 1;",
    "update": "update_checksum(true, { hdr.h.a }, hdr.h.c, HashAlgorithm.csum16);",
    "emit": "pkt.emit(hdr.s); pkt.emit(hdr.u);",
}


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    return compile_text(source(**RICH))


def test_document_survives_a_json_round_trip(document: dict[str, Any]) -> None:
    assert json.loads(json.dumps(document)) == document
    assert document["__meta__"]["version"] == [2, 23]


def test_numbers_are_unique(document: dict[str, Any]) -> None:
    sections = [
        "header_types",
        "headers",
        "header_stacks",
        "header_union_types",
        "header_unions",
        "parse_vsets",
        "register_arrays",
        "counter_arrays",
        "calculations",
        "checksums",
        "field_lists",
        "actions",
    ]
    groups = [document[s] for s in sections] + [document["parsers"][0]["parse_states"]]
    groups.append([t for p in document["pipelines"] for t in p["tables"]])
    groups.append([c for p in document["pipelines"] for c in p["conditionals"]])
    for group in groups:
        assert group
        assert len({item["id"] for item in group}) == len(group)
        assert len({item["name"] for item in group}) == len(group)


def test_header_types_fill_whole_bytes(document: dict[str, Any]) -> None:
    for made in document["header_types"]:
        assert sum(f[1] for f in made["fields"]) % 8 == 0


def test_objects_in_the_json_have_their_control_plane_names(document: dict[str, Any]) -> None:
    tables = {t["name"] for p in document["pipelines"] for t in p["tables"]}
    assert {"absolute", "Ig.two"} <= tables
    assert {"Ig.set", "Ig.renamed", "NoAction"} <= {a["name"] for a in document["actions"]}
    assert [r["name"] for r in document["register_arrays"]] == ["Ig.r"]
    assert [v["name"] for v in document["parse_vsets"]] == ["P.vs"]
    scalars = next(t for t in document["header_types"] if t["name"].startswith("scalars"))
    assert ["userMetadata.odd", 3, False] in scalars["fields"]
    assert ["userMetadata.flag", 1, False] in scalars["fields"]
    assert document["deparsers"][0]["order"] == ["h", "s[0]", "s[1]", "u.x"]
    (listed,) = document["field_lists"]
    assert [e["value"] for e in listed["elements"]] == [["scalars", "userMetadata.odd"]]
    assert listed["id"] == 1


def test_table_attributes(document: dict[str, Any]) -> None:
    tables = {t["name"]: t for p in document["pipelines"] for t in p["tables"]}
    one = tables["absolute"]
    assert (one["match_type"], one["max_size"], one["support_timeout"], one["with_counters"]) == ("lpm", 12, True, True)
    assert [k["name"] for k in one["key"]] == ["hdr.h.b", "where"]
    default = one["default_entry"]
    assert (default["action_const"], default["action_data"]) == (True, ["0x0003", "0xff"])
    two = tables["Ig.two"]
    assert [e["priority"] for e in two["entries"]] == [1, 2]
    assert two["entries"][1]["match_key"] == [{"match_type": "ternary", "key": "0x00", "mask": "0x00"}]
    assert set(two["next_tables"]) == set(two["actions"])


def test_every_node_is_there(document: dict[str, Any]) -> None:
    for pipeline in document["pipelines"]:
        names = {n["name"] for n in pipeline["tables"] + pipeline["conditionals"]} | {None}
        assert pipeline["init_table"] in names
        for table in pipeline["tables"]:
            assert set(table["next_tables"].values()) <= names
        for conditional in pipeline["conditionals"]:
            assert {conditional["true_next"], conditional["false_next"]} <= names


def test_json_lists_errors_and_enum_members_with_their_values(document: dict[str, Any]) -> None:
    codes = dict(document["errors"])
    assert codes["NoError"] == 0
    assert codes["Mine"] == len(codes) - 1
    assert {"name": "Colour", "entries": [["red", 0], ["green", 1]]} in document["enums"]


def test_compiling_twice_gives_the_same() -> None:
    texts = set()
    for _ in range(2):
        program = frontend.load_text(source(**RICH), "case.p4")
        texts.add(json.dumps(backend.generate(program, program.reporter)))
    assert len(texts) == 1


def test_source_information(document: dict[str, Any]) -> None:
    (conditional,) = document["pipelines"][0]["conditionals"]
    info = conditional["source_info"]
    assert info["filename"] == "case.p4"
    assert info["source_fragment"].startswith("hdr.h.b == 1")


def test_source_information_of_the_parser(document: dict[str, Any]) -> None:
    """Beyond what p4c writes: states, operations and the cases of a select."""
    lines = source(**RICH).splitlines()
    start = document["parsers"][0]["parse_states"][0]
    places = [start, *start["parser_ops"], *start["transitions"][:2]]
    texts = [lines[p["source_info"]["line"] - 1][p["source_info"]["column"] - 1 :] for p in places]
    wanted = ["start", "pkt.extract(hdr.h)", "vs: more", "1 &&& 3: accept"]
    assert [text[: len(want)] for text, want in zip(texts, wanted, strict=True)] == wanted


def test_temporaries_are_removed() -> None:
    """Copies that inlining makes leave nothing behind when nobody else can see them."""
    doc = compile_text(
        source(top="bit<8> f(in bit<8> x) { bit<8> y = x; return y; }", body="bit<8> z = 3; hdr.h.a = f(z);")
    )
    (act,) = [a for a in doc["actions"] if len(a["primitives"]) > 0]
    assert [p["op"] for p in act["primitives"]] == ["assign", "assign"]
    scalars = next(t for t in doc["header_types"] if t["name"].startswith("scalars"))
    assert scalars["fields"] == []


def test_statements_between_tables_share_an_action() -> None:
    doc = compile_text(source(body="hdr.h.a = 1; hdr.h.b = 2; hdr.h.c = 3;"))
    (table,) = doc["pipelines"][0]["tables"]
    assert table["name"].startswith("tbl_case")
    assert table["default_entry"]["action_const"]


X = Field("h", "a", 8)


def block(value: int) -> BasicBlock:
    return BasicBlock([LoweredAssign(X, Const(value, 8))])


def test_linearise_diamond_and_loop() -> None:
    """Jumps lead where the graph says, whatever the order of the blocks."""
    head, body, after = block(1), block(2), block(3)
    head.term = Branch(Op("==", X, Const(0, 8)), body, after)
    body.term = Jump(head)
    after.term = End()
    ops = linearise(head)
    assert [p["op"] for p in ops] == ["assign", "_jump_if_zero", "assign", "_jump", "assign"]
    assert int(ops[1]["parameters"][1]["value"], 16) == 4
    assert int(ops[3]["parameters"][0]["value"], 16) == 0


CALLS_MINE = """extern bit<8> mine(in bit<8> x);
    control Sub(inout h_t h) { apply { h.a = mine(h.b); } }"""
TWO_LPM = """action a() {}
    table t { key = { hdr.h.c: lpm; hdr.h.d: lpm; } actions = { a; } default_action = a; }"""
KEYLESS = "action a() {} table t { actions = { a; } default_action = a; }"
REFUSED = [
    ({"body": "Sub.apply(hdr.h);", "top": CALLS_MINE}, "extern function 'mine'"),
    (
        {"types": "extern Thing { Thing(); bit<8> go(); }", "locals": "Thing() t;", "body": "hdr.h.a = t.go();"},
        "method 'go' of extern 'Thing'",
    ),
    ({"locals": "register<h_t>(2) r;", "body": "r.write(0, hdr.h);"}, "register of type h_t"),
    ({"types": "header odd_t { bit<7> x; }", "headers": "odd_t o;"}, "7 bits"),
    ({"update": "update_checksum(true, { hdr.h.a + 1 }, hdr.h.c, HashAlgorithm.csum16);"}, "computed value"),
    ({"body": "for (bit<8> i = 0; i < hdr.h.a; i = i + 1) { if (i == 3) return; }"}, "return in a loop"),
    ({"body": "hash(hdr.h.d, HashAlgorithm.crc32, 128w0, { hdr.h.a }, 32w5);"}, "128 bits"),
    ({"egress": "clone(CloneType.I2E, 3);"}, "clone(I2E) in egress"),
    ({"locals": TWO_LPM, "body": "t.apply();"}, "more than one lpm"),
    ({"locals": KEYLESS, "body": "t.apply(); t.apply();"}, "twice in a row"),
]  # fmt: skip


@pytest.mark.parametrize(("parts", "what"), REFUSED, ids=[r[1] for r in REFUSED])
def test_refused_by_name_and_place(parts: dict[str, str], what: str) -> None:
    program = frontend.load_text(source(**parts), "case.p4")
    with pytest.raises(Unsupported, match="not supported for BMv2") as caught:
        backend.generate(program, program.reporter)
    assert what in str(caught.value)
    assert caught.value.pos.file == "case.p4"
    assert caught.value.pos.line > 1


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("struct meta_t {  }", "header meta_t { bit<8> x; }", "user metadata of type meta_t, which is no struct"),
        ("struct meta_t {  }", "typedef bit<8> meta_t;", "user metadata of type bit<8>, which is no struct"),
        (
            "struct meta_t {  }",
            "struct s_t { } type bit<8> meta_t;",
            "user metadata of type bit<8>, which is no struct",
        ),
        (
            "struct headers { h_t h;  }",
            "header headers { bit<8> x; }",
            "headers of type headers, which is no struct",
        ),
    ],
)
def test_headers_and_metadata_are_structs_as_p4c_demands(old: str, new: str, said: str) -> None:
    text = source(parser="state start { transition accept; }").replace(" pkt.emit(hdr.h);", "")
    assert old in text
    program = frontend.load_text(text.replace(old, new), "case.p4")
    with pytest.raises(Unsupported, match=said) as caught:
        backend.generate(program, program.reporter)
    assert caught.value.pos.line > 1
    backend.generate(frontend.load_text(text, "case.p4"))


def test_other_architectures_are_refused() -> None:
    text = "#include <core.p4>\ncontrol c(); package top(c x); control d() { apply {} } top(d()) main;"
    program = frontend.load_text(text, "case.p4")
    with pytest.raises(Unsupported, match="package 'top'"):
        backend.generate(program, program.reporter)


@pytest.mark.parametrize(
    ("parts", "warning"),
    [
        ({"body": "resubmit_preserving_field_list(4);"}, "field_list(4)"),
        ({"parser": "state start { pkt.extract(hdr.h); transition reject; }"}, "rejected"),
    ],
)
def test_backend_warns_of_what_the_target_ignores(parts: dict[str, str], warning: str) -> None:
    program = frontend.load_text(source(**parts), "case.p4")
    backend.generate(program, program.reporter)
    assert any(warning in d.message for d in program.reporter.diagnostics)


def test_the_interpreter_refuses_what_it_does_not_know() -> None:
    """The oracle must not pass by ignoring things."""
    doc = json.loads(json.dumps(compile_text(source(body="hdr.h.a = 1;"))))
    doc["actions"][-1]["primitives"][0]["op"] = "unknown"
    with pytest.raises(ProgramError, match="the primitive 'unknown'"):
        Switch(doc)


def test_the_interpreter_sees_a_wrong_constant() -> None:
    doc = json.loads(json.dumps(compile_text(source(body="hdr.h.a = 1;"))))
    assignment = next(p for a in doc["actions"] for p in a["primitives"] if p["parameters"][0]["value"] == ["h", "a"])
    assignment["parameters"][1]["value"] = "0x02"
    assert run_on(Switch(doc)) == INPUT | {"a": 2}
    assert run_on(switch(body="hdr.h.a = 1;")) == INPUT | {"a": 1}
