"""What the front end refuses: each with the message and, where the mark is, the place."""

from __future__ import annotations

import pickle
import re
from pathlib import Path
from typing import Any

import pytest

from p4lite.compiler import compile_program, parser
from p4lite.compiler.diagnostics import CompileError
from support.p4.source import MARK, errors, marked, program

ROOT = Path(__file__).parents[2]
BOUND = "action a(inout bit<8> x, bit<8> v) { x = v; } table t { key = { meta.a: exact; } actions = { a(meta.b); } "
TABLE_FRAME = "action a(bit<8> v) { meta.a = v; } "

REFUSED = {
    "unknown type": (program(locals="/*!*/Foo x;"), "unknown type 'Foo'"),
    "unknown name": (program(apply="meta.a = /*!*/nope;"), "'nope' is not declared"),
    "near name": (program(apply="meta.a = /*!*/mata;"), "did you mean 'meta'"),
    "unknown field": (program(apply="meta./*!*/q = 1;"), "has no field 'q'"),
    "wrong width": (program(apply="meta.a = /*!*/meta.w;"), r"cannot convert bit<16> to bit<8>; cast with \(bit<8>\)"),
    "wrong width of operands": (
        program(apply="meta.a = /*!*/meta.a + meta.w;"),
        "different widths: bit<8> and bit<16>",
    ),
    "wrong width of a type": (program(top="typedef /*!*/int<0> z;"), "wrong width 0"),
    "negative width": (program(top="typedef /*!*/bit<(-1)> z;"), "wrong width -1"),
    "signedness": (program(apply="meta.a = /*!*/meta.a + meta.s;"), "have types bit<8> and int<8>"),
    "condition": (program(apply="if (/*!*/meta.a) { }"), "must be bool, not bit<8>"),
    "recursive header": (program(top="header h { /*!*/h x; }"), "recursive type: 'h' cannot contain itself"),
    "recursive struct": (program(top="struct s { /*!*/s[2] x; }"), "recursive type"),
    "recursive function": (program(top="bit<8> f(in bit<8> x) { return /*!*/f(x); }"), "recursion: 'f'"),
    "recursive action": (program(locals="action a() { /*!*/a(); }"), "recursion: 'a'"),
    "recursive control": (program(top="control C() { /*!*/C() c; apply { } }"), "recursion: 'C'"),
    "duplicate state": (
        program(states="state start { transition accept; } state /*!*/start { transition accept; }"),
        r"duplicate state 'start' in parser 'MyParser' \(first at test.p4:\d+:\d+\)",
    ),
    "missing start": (program(states="state begin { transition accept; }"), "has no state 'start'"),
    "unknown state": (
        program(states="state start { transition /*!*/strat; }"),
        "no state 'strat'.*did you mean 'start'",
    ),
    "reserved state": (program(states="state start { } state /*!*/accept { }"), "built in"),
    "table without actions": (program(locals="table /*!*/t { key = { meta.a: exact; } }"), "table 't' has no actions"),
    "duplicate declaration": (program(locals="bit<8> x = 0; bit<8> /*!*/x = 1;"), "'x' is already declared at"),
    "duplicate field": (program(top="struct s { bit<8> a; bit<8> /*!*/a; }"), "second field 'a'"),
    "duplicate enum member": (program(top="enum e { a, /*!*/a }"), "second member 'a'"),
    "duplicate error": (program(top="error { /*!*/NoMatch }"), "error 'NoMatch' is already declared"),
    "duplicate property": (program(locals="table t { actions = { } /*!*/actions = { } }"), "second property 'actions'"),
    "duplicate action": (program(locals="action a() { } table t { actions = { a; /*!*/a; } }"), "listed twice"),
    "assign to in": (program(top="action a(in bit<8> x) { /*!*/x = 1; }"), "cannot assign to 'in' parameter 'x'"),
    "assign to action data": (program(top="action a(bit<8> x) { /*!*/x = 1; }"), "cannot assign to parameter 'x'"),
    "assign to constant": (program(top="const bit<8> k = 1;", apply="/*!*/k = 2;"), "cannot assign to constant 'k'"),
    "out argument": (
        program(top="action a(out bit<8> x) { x = 1; }", apply="a(/*!*/3);"),
        "must be something to write to",
    ),
    "out argument type": (program(top="action a(out bit<8> x) { x = 1; }", apply="a(/*!*/meta.w);"), "not bit<8>"),
    "too many arguments": (program(top="action a() { }", apply="/*!*/a(1);"), "takes 0 arguments, not 1"),
    "missing argument": (program(top="action a(in bit<8> x) { }", apply="/*!*/a();"), "no argument for parameter 'x'"),
    "unknown named argument": (program(top="action a(in bit<8> x) { }", apply="a(/*!*/y = 1);"), "no parameter 'y'"),
    "mixed arguments": (
        program(top="action a(in bit<8> x, in bit<8> y) { }", apply="/*!*/a(1, y = 1);"),
        "all by name",
    ),
    "missing struct field": (
        program(top="struct p { bit<8> x; bit<8> y; } const p v = /*!*/{x = 1};"),
        "no value for field 'y'",
    ),
    "list too short": (
        program(top="struct p { bit<8> x; bit<8> y; } const p v = /*!*/{1};"),
        "1 values for the 2 of p",
    ),
    "division by zero": (program(top="const bit<8> x = /*!*/8w1 / 0;"), "division by zero"),
    "modulo by zero": (program(top="const int x = /*!*/5 % 0;"), "modulo by zero"),
    "negative shift": (program(top="const bit<8> x = /*!*/8w1 << -1;"), "negative amount"),
    "shift of a bare number": (program(apply="meta.a = /*!*/1 << meta.b;"), "give it a width"),
    "signed shift amount": (program(apply="meta.a = meta.a << /*!*/meta.s;"), "must be unsigned"),
    "signed division": (program(apply="meta.s = /*!*/meta.s / meta.s;"), "not defined on signed"),
    "complement of bool": (program(apply="meta.flag = /*!*/~meta.flag;"), "operator ~ is not defined on bool"),
    "not of a number": (program(apply="meta.a = /*!*/!meta.a;"), "operator ! is not defined on bit<8>"),
    "slice outside": (program(apply="meta.a = /*!*/meta.a[8:1];"), r"slice \[8:1\] is outside of bit<8>"),
    "slice order": (program(apply="meta.a[1:0] = /*!*/meta.a[0:1];"), "the high bit comes first"),
    "slice of a header": (program(apply="meta.a = /*!*/hdr.eth[1:0];"), "only bit<> and int<> can be sliced"),
    "index outside": (program(apply="hdr.tags[/*!*/3].setValid();"), r"index 3 is outside of eth_t\[3\]"),
    "index of a field": (program(apply="/*!*/meta.a[1].x = 1;"), "cannot be indexed"),
    "concatenation without width": (program(apply="meta.w = /*!*/1 ++ meta.a;"), "need a width"),
    "cast": (program(apply="meta.flag = /*!*/(bool)meta.a;"), "cannot cast bit<8> to bool"),
    "cast of a header": (program(apply="meta.a = /*!*/(bit<8>)hdr.eth;"), "cannot cast eth_t to bit<8>"),
    "comparison": (program(apply="meta.flag = /*!*/hdr.eth == hdr.opt;"), "have types eth_t and opt_t"),
    "newtype arithmetic": (
        program(top="type bit<8> n_t;", apply="n_t x = (n_t)8w1; x = /*!*/x + x;"),
        r"operator \+ is not defined on n_t",
    ),
    "variable of int": (program(apply="int /*!*/x = 3;"), "a variable cannot have type int"),
    "header in a header": (program(top="header g { eth_t /*!*/x; }"), "a field of a header cannot have type eth_t"),
    "number in a union": (program(top="header_union u { bit<8> /*!*/x; }"), "header_union cannot have type bit<8>"),
    "two varbits": (program(top="header v { varbit<8> a; varbit<8> /*!*/b; }"), "more than one varbit"),
    "enum value out of range": (program(top="enum bit<2> e { a = /*!*/4 }"), "does not fit in bit<2>"),
    "enum without value": (program(top="enum bit<2> e { /*!*/a }"), "needs a value"),
    "enum member": (
        program(top="enum e { abc }", apply="meta.flag = e./*!*/abb == e.abc;"),
        "has no member 'abb'; did you mean 'abc'",
    ),
    "constant": (program(apply="const bit<8> k = /*!*/meta.a;"), "is not a compile-time constant"),
    "type argument": (program(top="extern void pick<T>();", apply="/*!*/pick();"), "cannot infer type T of 'pick'"),
    "wrong type argument": (
        program(apply="random<bit<16>>(/*!*/meta.a, 0, 9);"),
        r"argument 'result' of 'random' is a bit<8>, not bit<16>",
    ),
    "int as a type argument": (program(apply="random<int>(/*!*/meta.a, 0, 9);"), r"is a bit<8>, not int"),
    "generic without arguments": (program(top="struct g<T> { T x; } typedef /*!*/g h;"), r"needs type arguments: g<T>"),
    "number of type arguments": (program(top="struct g<T> { T x; } typedef /*!*/g<bit<8>, bit<8>> h;"), "takes 1 type"),
    "width of an argument": (
        program(apply="hash(meta.w, HashAlgorithm.crc16, /*!*/0, {meta.a}, 16w1);"),
        "argument 'base' of 'hash' has no width",
    ),
    "extern method": (
        program(locals="register<bit<8>>(4) r;", apply="r./*!*/wirte(0, 1);"),
        "no method 'wirte'; did you mean 'write'",
    ),
    "constructor argument": (program(locals="register<bit<8>>(/*!*/meta) r;"), "argument 'size'"),
    "action in a parser": (
        program(top="action a() { }", states="state start { /*!*/a(); transition accept; }"),
        "in controls",
    ),
    "table in an action": (
        program(locals="table t { actions = { NoAction; } } action a() { /*!*/t.apply(); }"),
        "can be applied in the apply block",
    ),
    "return in a parser": (
        program(states="state start { /*!*/return; transition accept; }"),
        "not allowed in a parser",
    ),
    "exit in a function": (program(top="bit<8> f() { /*!*/exit; return 1; }"), "'exit' is not allowed in a function"),
    "missing return": (program(top="bit<8> /*!*/f(in bool b) { if (b) { return 1; } }"), "can end without a 'return'"),
    "break outside": (program(apply="/*!*/break;"), "'break' outside of a loop"),
    "verify in a control": (program(apply="/*!*/verify(true, error.NoMatch);"), "in parsers only"),
    "next in a control": (program(apply="hdr.tags./*!*/next.setValid();"), "for parsers only"),
    "match kind": (program(locals="table t { key = { meta.a: /*!*/exct; } actions = { } }"), "did you mean 'exact'"),
    "key without name": (program(locals="table t { key = { /*!*/meta.a + 1: exact; } actions = { } }"), "needs a name"),
    "default action not listed": (
        program(locals="action b() { } table t { actions = { } default_action = /*!*/b; }"),
        "not in the list",
    ),
    "entries without key": (
        program(
            locals=TABLE_FRAME + "table /*!*/t { actions = { a; } default_action = a(1); const entries = { 1: a(2); } }"
        ),
        "entries but no key",
    ),
    "entry keys": (
        program(
            locals=TABLE_FRAME
            + "table t { key = { meta.a: exact; meta.b: exact; } actions = { a; } default_action = a(1); "
            "const entries = { (/*!*/1, 2, 3): a(2); } }"
        ),
        "3 keys for the 2",
    ),
    "entry mask": (
        program(
            locals=TABLE_FRAME + "table t { key = { meta.a: exact; } actions = { a; } default_action = a(1); "
            "const entries = { /*!*/1 &&& 1: a(2); } }"
        ),
        "a mask for a key that matches exact",
    ),
    "lpm mask": (
        program(
            locals=TABLE_FRAME + "table t { key = { meta.a: lpm; } actions = { a; } default_action = a(1); "
            "const entries = { /*!*/1 &&& 5: a(2); } }"
        ),
        "must be a prefix",
    ),
    "action data from the packet": (
        program(locals=TABLE_FRAME + "table t { actions = { a; } default_action = a(/*!*/meta.b); }"),
        "must be a compile-time constant",
    ),
    "implementation": (program(locals="table t { actions = { } implementation = /*!*/3; }"), "takes an instance"),
    "switch label": (program(apply="switch (meta.a) { /*!*/meta.b: { } }"), "must be a compile-time constant"),
    "switch label twice": (program(apply="switch (meta.a) { 1: { } /*!*/1: { } }"), "given twice"),
    "switch action": (
        program(locals="table t { actions = { NoAction; } }", apply="switch (t.apply().action_run) { /*!*/b: { } }"),
        "'b' is not an action of table 't'",
    ),
    "emit of a number": (
        program(top="control D(packet_out p, in bit<8> x) { apply { p.emit(/*!*/x); } }"),
        "only headers can be emitted, not a bit<8>",
    ),
    "extract of a struct": (
        program(states="state start { pkt.extract(/*!*/hdr); transition accept; }"),
        "only a header can be extracted, not a headers_t",
    ),
    "extract of varbit without length": (
        program(states="state start { pkt.extract(/*!*/hdr.opt); transition accept; }"),
        "extract it with its length",
    ),
    "select keys": (
        program(states="state start { transition select(meta.a, meta.b) { /*!*/1: accept; } }"),
        "1 keys for the 2 of the select",
    ),
    "select key type": (
        program(states="state start { transition select(meta.a) { /*!*/true: accept; } }"),
        "select key: cannot convert bool to bit<8>",
    ),
    "static_assert": (program(top='const bool b = /*!*/static_assert(1 > 2, "order");'), "static_assert failed: order"),
    "abstract method": (
        program(top="extern V { V(); abstract void f(); } V() /*!*/v;"),
        "'f' of 'V' is not implemented",
    ),
    "wrong block for the package": (
        program(
            package="V1Switch(/*!*/MyIngress(), MyVerify(), MyIngress(), MyEgress(), MyCompute(), MyDeparser()) main;"
        ),
        "argument 'p' of the constructor of 'V1Switch'",
    ),
    "control at the top": (program(top="control C() { apply { } } C() /*!*/c;"), "outside of a parser or control"),
    "no main": (program(package="const bit<8> x = 1;"), "no package instance 'main'"),
    "missing semicolon": (
        program(apply="meta.a = 1 /*!*/meta.b = 2;"),
        "syntax error: unexpected 'meta', expected .*';'",
    ),
    "comparison of a type parameter": (
        program(top="bool f<T>(in T a, in T b) { return /*!*/a == b; }", apply="if (f(meta.a, meta.b)) { }"),
        "'a' has type T, a type parameter, and cannot be compared",
    ),
    "bound argument left out of an entry": (
        program(locals=BOUND + "const entries = { 1: /*!*/a(3); } }", apply="t.apply();"),
        r"action 'a' takes 2 arguments here, not 1: repeat 'x' as in the list of actions of table 't'",
    ),
    "bound argument left out of the default": (
        program(locals=BOUND + "default_action = /*!*/a(v = 3); }", apply="t.apply();"),
        "action 'a' takes 2 arguments here",
    ),
    "a table of below in an action": (
        program(
            top="header ipv4_t { bit<8> x; }", locals="action go() { /*!*/ipv4.apply(); } table ipv4 { actions = { } }"
        ),
        "^table 'ipv4' can be applied in the apply block of a control only$",
    ),
    "an action of below": (
        program(locals="table t { actions = { /*!*/go; } } action go() { }"),
        r"'go' is not declared before test.p4:\d+:\d+: move its declaration up",
    ),
    "near value, not type": (
        program(top="header ipv4_t { bit<8> x; }", apply="meta.a = /*!*/ipv4;"),
        "^'ipv4' is not declared$",
    ),
    "near action, not type": (
        program(top="header drop_t { bit<8> x; }", locals="action dropp() { } table t { actions = { /*!*/drop_; } }"),
        "did you mean 'dropp'",
    ),
    "near type, not value": (program(locals="bit<8> etx_t; /*!*/etx_t2 x;"), r"unknown type 'etx_t2'; .* 'eth_t'"),
    "missing parenthesis": (program(apply="meta.a = (1 + 2/*!*/;"), r"unexpected ';', expected .*'\)'"),
    "keyword as a name": (program(apply="bit<8> /*!*/table = 1;"), "unexpected 'table', expected a name"),
    "half a declaration": (program(top="header h { bit<8> /*!*/; }"), "unexpected ';', expected a name"),
    "type as a value": (program(apply="meta.a = eth_t/*!*/;"), "'eth_t' is the name of a type"),
    "unterminated string": (program(top='const string s = /*!*/"abc;\n'), "unterminated string"),
    "strange character": (program(apply="meta.a = /*!*/` 1;"), "unexpected character '`'"),
    "malformed number": (program(apply="meta.a = /*!*/0x;"), "malformed number '0x'"),
    "number too wide": (program(top="const /*!*/bit<70000> x = 1;"), "wrong width 70000"),
    "division by a negative": (program(apply="meta.a = /*!*/meta.b / -1;"), "not defined on negative numbers"),
    "bool of a number": (program(top="const bool b = /*!*/(bool)2;"), "only 0 and 1 can be cast to bool"),
    "priority without need": (
        program(
            locals=TABLE_FRAME + "table t { key = { meta.a: exact; } actions = { a; } default_action = a(1); "
            "entries = { priority = 3: /*!*/1: a(2); } }"
        ),
        "whose keys need none",
    ),
    "priority after one without": (
        program(
            locals=TABLE_FRAME + "table t { key = { meta.a: ternary; } actions = { a; } default_action = a(1); "
            "entries = { /*!*/1: a(2); priority = 3: 2: a(2); } }"
        ),
        "first entry of table 't' has no priority",
    ),
    "one name for two tables": (
        program(locals='table t { actions = { } } @name("t") table /*!*/u { actions = { } }'),
        "control-plane name 't' is already that of 't'",
    ),
    "entries before key": (
        program(
            locals=TABLE_FRAME
            + "table t { const entries = { 1: a(2); } /*!*/key = { meta.a: exact; } actions = { a; } }"
        ),
        "key must come before entries",
    ),
    "control without apply": (program(top="control /*!*/C() { }"), "control 'C' has no apply block"),
    "annotation": (program(top="@name(/*!*/3) const bit<8> x = 1;".replace(MARK, "")), "takes one string"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_with_message_and_place(name: str) -> None:
    source, message = REFUSED[name]
    text, place = marked(source)
    found = errors(text)
    assert found, "accepted"
    first = found[0]
    assert re.search(message, first.message), first.message
    assert "\n" not in first.message
    if place is not None:
        assert (first.pos.line, first.pos.col) == place, str(first)


def test_many_errors_in_one_run() -> None:
    found = errors(program(apply="meta.a = nope; meta.q = 1; meta.a = meta.w; unknown(); meta.b = true;"))
    assert len(found) == 5
    assert len({d.pos.col for d in found}) == 5


def test_many_syntax_errors_in_one_run() -> None:
    text = program(
        top="header { bit<8> x; }\nstruct s { bit<8> 1; bit<9> ok; }",
        apply="meta.a = ; meta.b = 1; if ( { } meta.a + 1;",
    )
    found = errors(text)
    assert len(found) >= 4
    assert all(d.message.startswith("syntax error") for d in found)


UNCLOSED = {
    "header": (program(top="header h /*!*/{ bit<8> a;\nheader g { bit<8> a; }"), "before 'header'"),
    "action": (program(locals="action a() /*!*/{\n    meta.a = 1;\ntable t { actions = { a; } }"), "before 'table'"),
    "key": (program(locals="table t { key = /*!*/{ meta.a: exact; actions = { } }"), "before '='"),
    "if": (program(apply="    if (meta.a == 1) /*!*/{\n        meta.b = 1;\n    meta.b = 2;"), "before '}'"),
    "else": (program(apply="if (meta.a == 1) /*!*/{ meta.b = 1; else { meta.b = 2; }"), "before 'else'"),
    "state": (
        program(states="state start /*!*/{\n    transition next;\nstate next { transition accept; }"),
        "before 'state'",
    ),
    "at the end": ("control C() /*!*/{ apply { }", "before end of file"),
}


@pytest.mark.parametrize("name", UNCLOSED)
def test_a_missing_brace_is_one_error_at_the_brace_that_is_open(name: str) -> None:
    text, place = marked(UNCLOSED[name][0])
    (found,) = errors(text)
    assert (found.pos.line, found.pos.col) == place
    assert found.message.startswith("syntax error: this '{' is not closed: add its '}' " + UNCLOSED[name][1])


def test_each_missing_brace_is_found_also_below_heads_of_several_lines() -> None:
    """Of a program whose parser has its parameters on several lines: take out one closing brace after the other."""
    text = (ROOT / "workshop/01-usid/solution/usid.p4").read_text(encoding="utf-8")
    lines = text.splitlines()
    of: dict[int, tuple[int, int]] = {}
    stack: list[tuple[int, int]] = []
    for number, line in enumerate(lines, 1):
        for column, character in enumerate(line.partition("//")[0], 1):
            if character == "{":
                stack.append((number, column))
            elif character == "}":
                of[number] = stack.pop()
    alone = [number for number, line in enumerate(lines, 1) if line.strip() == "}"]
    assert len(alone) > 20
    for number in alone:
        (found,) = errors("\n".join((*lines[: number - 1], *lines[number:])))
        assert (found.pos.line, found.pos.col) == of[number], f"without the }} of line {number}"


def test_a_superfluous_brace_at_the_end_is_reported_itself() -> None:
    parameters = "packet_in pkt,\n    out headers_t hdr, inout"
    text, place = marked(program().replace("packet_in pkt, out headers_t hdr, inout", parameters) + "/*!*/{\n")
    (found,) = errors(text)
    assert (found.pos.line, found.pos.col) == place
    assert found.message.endswith("; no '}' closes it: remove it")


def test_a_missing_brace_does_not_hide_errors_before_it() -> None:
    text = program(top="struct s { bit<8> 1; }\nheader h { bit<8> a;\nheader g { bit<8> a; }")
    assert ["unexpected '1'" in d.message for d in errors(text)] == [True, False]


def test_an_error_does_not_cause_others() -> None:
    assert len(errors(program(locals="Foo x; Foo y;", apply="x.a = y.b + 1; if (x == y) { x = y; }"))) == 2


def test_too_many_errors_stop_the_run() -> None:
    found = errors(program(apply="".join(f"nope{i} = 1;" for i in range(100))))
    assert len(found) == 41
    assert found[-1].message == "more than 40 errors: stopped here"


def test_the_message_shows_line_and_caret() -> None:
    text, _ = marked(program(apply="\tmeta.a = /*!*/meta.w;"))
    shown = str(errors(text)[0]).splitlines()
    assert shown[0].startswith("test.p4:")
    assert shown[1] == "\tmeta.a = meta.w;"
    assert shown[2].startswith("\t         ^")


def test_line_and_caret_are_shown_of_an_absolute_path_below_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "folder" / "own.p4"
    source.parent.mkdir()
    source.write_text(program(apply="meta.a = nope"))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(CompileError) as caught:
        compile_program(source)
    shown = str(caught.value).splitlines()
    assert re.match(r"folder/own\.p4:\d+:\d+: error: syntax error: ", shown[0])
    assert shown[2].strip() == "^"


def test_a_long_line_is_cut_around_the_place() -> None:
    text = program(apply=" " * 5000 + "meta.a = nope;" + " " * 5000)
    shown = str(errors(text)[0]).splitlines()
    assert len(shown[1]) <= 160
    assert shown[1][shown[2].index("^") :].startswith("nope")


def test_damaged_or_unwritable_grammar_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert set(parser.load_tables()) == {"data", "memo"}
    (kept,) = (tmp_path / "p4lite").iterdir()
    size = kept.stat().st_size
    for damage in (b"", b"\x80\x04nonsense", b"garbage"):
        kept.write_bytes(damage)
        assert set(parser.load_tables()) == {"data", "memo"}
        assert kept.stat().st_size > size // 2
    monkeypatch.setenv("XDG_CACHE_HOME", "/dev/null/nowhere")
    assert set(parser.load_tables()) == {"data", "memo"}


class _Trap:
    """A pickle of it makes a file when it is loaded."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.path,)


@pytest.mark.parametrize("mode", [0o777, 0o1777])
def test_a_grammar_cache_that_others_can_write_to_is_not_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: int
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    parser.load_tables()
    (kept,) = (tmp_path / "p4lite").iterdir()
    kept.write_bytes(pickle.dumps(_Trap(tmp_path / "sprung")))
    kept.parent.chmod(mode)
    assert set(parser.load_tables()) == {"data", "memo"}
    assert not (tmp_path / "sprung").exists()
