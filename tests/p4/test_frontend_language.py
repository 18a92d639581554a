"""The front end accepts P4_16, feature by feature, and gives each construct its meaning."""

from __future__ import annotations

import pytest

from p4lite.compiler import ast, frontend
from p4lite.compiler import types as ty
from p4lite.compiler.ast import CallKind, EnumValue, ErrorValue, ListValue, StructValue
from support.p4.source import constant, declarations, errors, program, warnings

ACCEPTED = {
    "typedef": program(top="typedef bit<48> mac_t; const mac_t m = 48w1;"),
    "newtype": program(
        top="type bit<9> port_t; const port_t p = (port_t)9w3;", apply="port_t p2 = (port_t)sm.egress_port;"
    ),
    "enum": program(
        top="enum color { red, green }", apply="color c = color.red; if (c == color.green) { meta.a = 1; }"
    ),
    "serializable enum": program(
        top="enum bit<16> etype { ip4 = 0x800, ip6 = 0x86dd }",
        states="""state start { pkt.extract(hdr.eth);
        transition select(hdr.eth.type) { etype.ip4: accept; etype.ip6: reject; _: accept; } }""",
        apply="if (hdr.eth.type == etype.ip4) { hdr.eth.type = etype.ip6; }",
    ),
    "error": program(top="error { Mine, Yours }", apply="if (sm.parser_error == error.Mine) { meta.a = 1; }"),
    "match_kind": program(top="match_kind { fuzzy }"),
    "header stack": program(
        states="""state start { pkt.extract(hdr.tags.next); transition select(hdr.tags.last.type) {
        16w0x8100: start; default: accept; } }""",
        apply="""hdr.tags.push_front(1); hdr.tags[0] = hdr.tags[1]; hdr.tags.pop_front(2);
        meta.a = (bit<8>)hdr.tags.size;""",
    ),
    "header union": program(
        states="state start { pkt.extract(hdr.addr.eth); transition accept; }",
        apply="if (hdr.addr.isValid()) { hdr.addr.alt.setValid(); }",
    ),
    "comparisons on both sides of an operator": program(
        top="bool both(in bool p, in bool q) { return p && q; }",
        apply="""bit<8> x = meta.a; bit<8> y = 2; bit<8> hi = 7;
        if (x < 3 || x > hi) { meta.a = 1; }
        if ((x < y) || (3 > y)) { meta.a = 2; }
        if (both(x < y, y > hi) || both(x < y, hi > (y))) { meta.a = 3; }""",
    ),
    "tuple": program(apply="tuple<bit<8>, bool> t = {meta.a, true}; meta.b = t[0]; if (t[1]) { meta.a = 0; }"),
    "struct initialiser": program(
        top="struct p_t { bit<8> x; bit<8> y; }", apply="p_t p = {x = 1, y = meta.a}; meta.b = p.y;"
    ),
    "default initialiser": program(
        top="struct p_t { bit<8> x; bool y; eth_t h; } const p_t z = ...; const p_t q = {1, ...};",
        apply="p_t p = {y = true, ...}; meta.b = p.x;",
    ),
    "invalid header": program(apply="eth_t e = {#}; e = hdr.eth; hdr.eth = (eth_t){#}; meta.flag = e.isValid();"),
    "varbit": program(
        states="state start { pkt.extract(hdr.opt, 32w16); transition accept; }", apply="hdr.opt.setInvalid();"
    ),
    "lookahead, advance, length": program(
        states="""state start { bit<8> k = pkt.lookahead<bit<8>>(); pkt.advance(8); bit<32> n = pkt.length();
        transition select(k, n) { (1, _): accept; (2 &&& 0xfe, 4 .. 9): next; default: reject; } }
        state next { verify(meta.a == 0, error.NoMatch); transition accept; }"""
    ),
    "value set": program(
        parser_locals="value_set<bit<16>>(4) known; @match(ternary) value_set<tuple<bit<16>, bit<48>>>(4) pairs;",
        states="""state start { pkt.extract(hdr.eth); transition select(hdr.eth.type, hdr.eth.dst) {
        pairs: accept; (known, _): accept; _: reject; } }""",
    ),
    "sub-parser": program(
        top="""parser Inner(packet_in p, out eth_t h)(bit<8> n) { state start { p.extract(h); transition accept; } }""",
        parser_locals="Inner(8w3) inner;",
        states="state start { inner.apply(pkt, hdr.eth); transition accept; }",
    ),
    "sub-control": program(
        top="""control Inner(inout bit<8> x)(bit<8> n, bool b) { register<bit<8>>((bit<32>)n) r;
        apply { if (b) { x = x + n; } r.write(0, x); } }""",
        locals="Inner(8w3, false) c1; Inner(n = 4, b = true) c2;",
        apply="c1.apply(meta.a); c2.apply(x = meta.b);",
    ),
    "direct application": program(
        top="control Inner(inout bit<8> x) { apply { x = 1; } }", apply="Inner.apply(meta.a); Inner.apply(meta.b);"
    ),
    "actions": program(
        locals="""action a(inout bit<8> x, in bit<8> y, bit<9> port) { x = y; sm.egress_spec = port; return; }
        action b() { exit; }
        table t { key = { hdr.eth.dst: exact @name("mac"); meta.a & 0x0f: ternary; hdr.eth.isValid(): exact; }
        actions = { a(meta.a, meta.b); @tableonly b; @defaultonly NoAction; } size = 32; const
        default_action = NoAction(); }""",
        apply="a(meta.a, 1, 9w2); t.apply();",
    ),
    "table results": program(
        locals="""action a() { } action b() { } table t { actions = { a; b; NoAction; } default_action = a; }""",
        apply="""if (t.apply().hit) { meta.a = 1; } if (t.apply().miss) { meta.a = 2; }
        switch (t.apply().action_run) { a: b: { meta.a = 3; } default: { meta.a = 4; } }""",
    ),
    "entries": program(
        locals="""action a(bit<8> v) { meta.a = v; }
        table t { key = { meta.w: lpm; meta.a: ternary; meta.b: range; sm.ingress_port: optional; hdr.eth.src: exact; }
        actions = { a; } default_action = a(0);
        const entries = { (0x1200 &&& 0xff00, 1 &&& 3, 1 .. 9, _, 5) : a(1); (_, _, _, 3, 7) : a(2) @name("two"); } }
        table u { key = { meta.a: ternary; } actions = { a; NoAction; }
        largest_priority_wins = false; priority_delta = 10;
        entries = { const priority = 10: 1 : a(1); priority = (5 + 15): _ : a(2); } }""",
        apply="t.apply(); u.apply();",
    ),
    "table properties": program(
        locals="""direct_counter(CounterType.packets) c; direct_meter<bit<2>>(MeterType.bytes) m;
        action_profile(32) ap; action_selector(HashAlgorithm.crc16, 32, 14) sel;
        action a() { bit<2> color; m.read(color); c.count(); }
        table t { key = { meta.a: exact; } actions = { a; NoAction; } counters = c; meters = m; }
        table u { key = { meta.a: exact; meta.b: selector; } actions = { NoAction; } implementation = sel; }
        table v { key = { meta.a: exact; } actions = { NoAction; } implementation = ap; support_timeout = true; }""",
        apply="t.apply(); u.apply(); v.apply();",
    ),
    "externs": program(
        locals="register<bit<32>>(16) r; counter(8, CounterType.bytes) c; meter(8, MeterType.packets) m;",
        apply="""bit<32> v; r.read(v, 3); r.write(3, v + 1); c.count(2); bit<2> color; m.execute_meter(1, color);
        hash(meta.w, HashAlgorithm.crc16, 16w0, {hdr.eth.src, meta.a}, 16w100); random(meta.a, 0, 255);
        digest(1, {hdr.eth.src, sm.ingress_port}); mark_to_drop(sm); clone(CloneType.I2E, 5);
        clone_preserving_field_list(CloneType.I2E, 5, 1); resubmit_preserving_field_list(2); truncate(64);
        assert(meta.a == 0); assume(meta.b != 1); log_msg("x = {}", {meta.a}); log_msg("plain");""",
    ),
    "switch on values": program(
        apply="switch (meta.a) { 1: 2: { meta.b = 1; } 8w0x10: { meta.b = 2; } default: { meta.b = 3; } }"
    ),
    "for loops": program(
        apply="""bit<8> n = 0; for (bit<8> i = 0; i < 4; i = i + 1) {
        n = n + i; if (n == 3) { break; } else { continue; } }
        for (bit<8> j in 1 .. 5) { n += j; } for (bit<8> k in (list<bit<8>>){1, 2, 3}) { n |+|= k; }
        for (bit<8> a = 0, bit<8> b = 1; a < 3; a += 1, b -= 1) { n = n + b; } meta.a = n;"""
    ),
    "compound assignment": program(
        apply="meta.a += 1; meta.a -= 1; meta.a *= 2; meta.a &= 0xf; meta.a |= 1; meta.a ^= 3; "
        "meta.a <<= 1; meta.a >>= 1; "
        "meta.a |-|= 3; meta.a[3:0] += 1;"
    ),
    "slices": program(
        apply="hdr.eth.dst[47:40] = meta.a; meta.a = hdr.eth.src[7:0]; meta.a[3:2] = 1; meta.b = meta.w[4+:8];"
    ),
    "generic functions": program(
        top="T pick<T>(in bool c, in T a, in T b) { return c ? a : b; }",
        apply="meta.a = pick(meta.flag, meta.a, meta.b); meta.w = pick<bit<16>>(true, 1, 2);",
    ),
    "generic structs": program(
        top="struct pair<A, B> { A first; B second; } header box<T> { T v; } typedef pair<bit<8>, bit<16>> p_t;",
        apply="p_t p = {1, 2}; pair<bit<8>, box<bit<8>>> q; q.second.setValid(); "
        "q.second.v = p.first; meta.a = q.second.v;",
    ),
    "default arguments": program(
        top="bit<8> add(in bit<8> a, in bit<8> b = 3) { return a + b; }", apply="meta.a = add(1) + add(b = 2, a = 4);"
    ),
    "overloading": program(
        top="bit<8> f(in bit<8> a) { return a; } bit<8> f(in bit<8> a, in bit<8> b) { return a + b; }",
        apply="meta.a = f(1) + f(1, 2);",
    ),
    "optional parameter": program(
        top="extern Ex { Ex(); void go(in bit<8> a, @optional in bit<8> b); }",
        locals="Ex() e;",
        apply="e.go(1); e.go(1, 2);",
    ),
    "abstract method": program(
        top="extern Virt { Virt(); abstract bit<8> f(in bit<8> x); void run(); }",
        locals="Virt() v = { bit<8> f(in bit<8> x) { return x + 1; } };",
        apply="v.run();",
    ),
    "list": program(top="extern Ls { Ls(list<bit<8>> l); } Ls({1, 2, 3}) items; Ls((list<bit<8>>){}) none;"),
    "annotations": program(
        top="""@brief("a thing") @mine[1, "two", true] @kv[a=1, b="x"] @free(any +- tokens (nested)) const bit<8> x = 1;
        @pragma old style pragma
        const bit<8> y = 2;""",
        apply="@atomic { meta.a = 1; } @hidden bit<8> v = 2; meta.b = v;",
    ),
    "static_assert": program(
        top='const bool ok = static_assert(1 + 1 == 2, "arithmetic"); const bool k2 = static_assert(true);'
    ),
    "absolute names": program(
        top="const bit<8> v = 7; typedef bit<8> byte;", apply="bit<8> v = 1; .byte w = .v; meta.a = w + v;"
    ),
    "soft keywords": program(
        top="struct k_t { bit<8> type; bit<8> key; bit<8> state; bit<8> apply; bit<8> priority; "
        "bit<8> entries; bit<8> actions; }",
        apply="k_t key = {1, 2, 3, 4, 5, 6, 7}; bit<8> priority = key.type + key.apply; "
        "meta.a = priority + key.entries;",
    ),
    "shadowing types": program(
        top="struct shape { bit<8> x; }",
        apply="bit<8> shape = 1; meta.a = shape + 1; if (shape < 3) { meta.b = shape; }",
    ),
    "less than or type arguments": program(
        top="bit<8> id<T>(in bit<8> x) { return x; }",
        apply="if (meta.a < meta.b && meta.b > (meta.a)) { meta.a = id<bit<8>>(3); } "
        "if (meta.a < (1 << 2) >> 1) { meta.b = 1; }",
    ),
    "nested type arguments": program(
        top="struct p<T> { T v; }", apply="p<tuple<bit<8>, p<bit<8>>>> x; x.v[1].v = 1; meta.a = x.v[1].v;"
    ),
    "exit and return": program(apply="if (meta.flag) { exit; } if (meta.a == 1) { return; } meta.a = 2;"),
    "size methods": program(
        apply="meta.w = (bit<16>)hdr.eth.minSizeInBits(); meta.a = (bit<8>)hdr.opt.maxSizeInBytes();"
    ),
    "empty select": program(states="state start { transition select() { default: accept; } }"),
    "package with type arguments": program(
        package="V1Switch<headers_t, meta_t>(p = MyParser(), vr = MyVerify(), ig = MyIngress(), eg = MyEgress(), "
        "ck = MyCompute(), dep = MyDeparser()) main;"
    ),
    "constants everywhere": program(
        top="const int n = 2; const bit<(n * 4)> w = 8w255; header hh { bit<(n + 6)> f; } typedef hh[n] st;"
    ),
    "conditional and concatenation": program(apply="meta.w = meta.flag ? meta.a ++ meta.b : 16w7; meta.s = -meta.s;"),
    "casts": program(
        apply="meta.flag = (bool)meta.a[0:0]; meta.s = (int<8>)meta.a; meta.a = (bit<8>)(bit<1>)meta.flag;"
    ),
    "strings": program(top='const string s = "a" ++ "b\\"c";'),
}


@pytest.mark.parametrize("name", ACCEPTED)
def test_feature_of_the_language_compiles_without_error(name: str) -> None:
    assert errors(ACCEPTED[name]) == []


@pytest.mark.parametrize("name", ACCEPTED)
def test_every_expression_is_typed_and_every_name_resolved(name: str) -> None:
    typed = frontend.load_text(ACCEPTED[name], "test.p4")
    for decl in typed.decls:
        if isinstance(decl, ast.FunctionDecl) and decl.type_params:
            continue  # checked in its instances
        for node in ast.walk(decl):
            if isinstance(node, ast.Expr):
                assert node.type is not None, node
                assert not isinstance(node.type, ty.UnknownType), node
            if isinstance(node, ast.Name) and not isinstance(node.type, ty.MatchKindType):
                assert node.decl is not None, node
            if isinstance(node, ast.Call):
                assert node.kind is not None, node
            if isinstance(node, ast.Binary) and node.op not in ("<<", ">>", "++"):
                assert node.left.type == node.right.type, node


CONSTANTS = [
    ("8w0xff + 8w1", "bit<8>", 0),
    ("8s127 + 8s1", "int<8>", -128),
    ("8w200 |+| 8w100", "bit<8>", 255),
    ("8w3 |-| 8w9", "bit<8>", 0),
    ("8s100 |+| 8s100", "int<8>", 127),
    ("-8s100 |-| 8s100", "int<8>", -128),
    ("1 << 70", "int", 1 << 70),
    ("8w1 << 9", "bit<8>", 0),
    ("-8s128 >> 9", "int<8>", -1),
    ("7 / 2 + 7 % 2", "int", 4),
    ("8w0b1010 & 8w0b0110 | 8w1", "bit<8>", 3),
    ("~8w0", "bit<8>", 255),
    ("4w0xA ++ 4w0x5", "bit<8>", 0xA5),
    ("4s0b1111 ++ 4w0", "int<8>", -16),
    ("16w0x1234[11:4]", "bit<8>", 0x23),
    ("0x1234[7:0]", "bit<8>", 0x34),
    ("(bit<4>)300", "bit<4>", 12),
    ("(int<4>)4w15", "int<4>", -1),
    ("(bit<1>)true", "bit<1>", 1),
    ("2 + 3 * 4 - 6 / 2", "int", 11),
    ("1 < 2 && 3 >= 3 && !(4 == 5)", "bool", True),
    ("true ? 8w1 : 8w2", "bit<8>", 1),
    ("1 | 2 ^ 3 & 6", "bit<8>", 1 | (2 ^ (3 & 6))),
    ("1_000 + 0b1010_1010 + 0o17 + 0d9 + 0xF_F", "int", 1000 + 170 + 15 + 9 + 255),
    ("error.PacketTooShort", "error", ErrorValue("PacketTooShort")),
    ("{1, true}", "tuple<bit<8>, bool>", ListValue((1, True))),
    ("(8w5)[3:0]", "bit<4>", 5),
]


@pytest.mark.parametrize(("expression", "type_", "value"), CONSTANTS)
def test_constants(expression: str, type_: str, value: object) -> None:
    assert constant(expression, type_, "#include <core.p4>") == value


def test_constants_of_named_types() -> None:
    decls, _ = declarations(
        """enum e_t { a, b } enum bit<4> s_t { x = 3, y = s_t.x + 1 } struct p_t { bit<8> f; bool g; }
        const e_t e = e_t.b; const s_t s = s_t.y; const p_t p = {g = true, f = 3};
        const bit<8> f = p.f + (bit<8>)(bit<4>)s;
        const s_t z = ...; const bit<4> n = s_t.y;"""
    )
    values = {n: d.const for n, d in decls.items() if isinstance(d, ast.ConstDecl)}
    assert values["e"] == EnumValue("e_t", "b")
    assert values["s"] == 4
    assert values["n"] == 4
    assert values["p"] == StructValue((("f", 3), ("g", True)))
    assert values["f"] == 7
    assert values["z"] == 0


def test_main_has_the_bound_blocks_and_constructor_arguments() -> None:
    typed = frontend.load_text(ACCEPTED["sub-control"], "test.p4")
    assert typed.main.decl.name == "V1Switch"
    ingress = typed.main.args["ig"]
    assert isinstance(ingress, ast.Instance)
    assert isinstance(ingress.decl, ast.ControlDecl)
    c2 = next(d for d in ingress.decl.locals if d.name == "c2")
    assert isinstance(c2, ast.Instantiation)
    assert c2.instance is not None
    assert c2.instance.args == {"n": 4, "b": True}


def _calls(text: str) -> dict[str, ast.Call]:
    typed = frontend.load_text(text, "test.p4")
    user = [d for d in typed.decls if d.pos.file == "test.p4"]
    return {n.method: n for d in user for n in ast.walk(d) if isinstance(n, ast.Call)}


@pytest.mark.parametrize(
    ("feature", "method", "kind"),
    [
        ("externs", "read", CallKind.EXTERN_METHOD),
        ("externs", "hash", CallKind.EXTERN_FUNCTION),
        ("actions", "a", CallKind.ACTION),
        ("default arguments", "add", CallKind.FUNCTION),
        ("sub-control", "apply", CallKind.CONTROL_APPLY),
        ("sub-parser", "apply", CallKind.PARSER_APPLY),
        ("table results", "apply", CallKind.TABLE_APPLY),
        ("header union", "setValid", CallKind.HEADER_METHOD),
        ("header stack", "push_front", CallKind.STACK_METHOD),
        ("size methods", "minSizeInBits", CallKind.SIZE_METHOD),
    ],
)
def test_calls_are_resolved(feature: str, method: str, kind: CallKind) -> None:
    assert _calls(ACCEPTED[feature])[method].kind is kind


def test_arguments_are_in_parameter_order_with_defaults() -> None:
    call = _calls(ACCEPTED["default arguments"])["add"]
    names = [a.param.name for a in call.args if a.param is not None]
    assert names == ["a", "b"]
    values = [a.expr.const for a in call.args if a.expr is not None]
    assert values in ([1, 3], [4, 2])


def test_type_arguments_are_inferred() -> None:
    calls = _calls(ACCEPTED["externs"])
    assert calls["hash"].types[0] == ty.bit(16)
    assert calls["hash"].types[2] == ty.TupleType((ty.bit(48), ty.bit(8)))
    assert calls["random"].types == (ty.bit(8),)


def test_generic_functions_are_instantiated_once_for_each_type() -> None:
    typed = frontend.load_text(ACCEPTED["generic functions"], "test.p4")
    targets = [n.target for d in typed.decls for n in ast.walk(d) if isinstance(n, ast.Call) and n.method == "pick"]
    assert len(set(targets)) == 2
    results = {t.result.type for t in targets if isinstance(t, ast.FunctionDecl)}
    assert results == {ty.bit(8), ty.bit(16)}


def test_v1model_versions() -> None:
    text = program(
        locals="register<bit<32>, bit<4>>(16) r; counter<bit<3>>(8, CounterType.bytes) c;", apply="c.count(1);"
    )
    assert errors(text)
    assert errors("#define V1MODEL_VERSION 20200408\n" + text) == []
    assert "V1MODEL_VERSION must be" in errors("#define V1MODEL_VERSION 19990101\n" + text)[0].message


def test_accepted_features_give_no_warnings_but_the_known_ones() -> None:
    noisy = {name: found for name, text in ACCEPTED.items() if (found := warnings(text))}
    assert set(noisy) <= {"lookahead, advance, length", "invalid header"}
