"""Order of evaluation: arguments as the call has them, by position or by name (language specification §6.8, §8.20)."""

from __future__ import annotations

import pytest

from support.p4.cases import INPUT, pack, run, run_on, switch, unpack

TICK = """
    bit<8> tick(inout bit<8> n) { n = n + 1; return n; }
    bit<8> minus(in bit<8> x, in bit<8> y) { return x - y; }
    bit<8> either<T>(in T x, in T y, in bit<8> z) { return z; }
    void two(out bit<8> x, out bit<8> y) { x = 1; y = 2; }
    void mixed(inout bit<8> x, in bit<8> y) { x = x + y; }
"""
COUNT = "bit<8> n = 0; "


@pytest.mark.parametrize(
    ("body", "a"),
    [
        ("hdr.h.a = minus(tick(n), tick(n));", -1),
        ("hdr.h.a = minus(x = tick(n), y = tick(n));", -1),
        ("hdr.h.a = minus(y = tick(n), x = tick(n));", 1),
        ("hdr.h.a = minus(y = minus(y = tick(n), x = tick(n)), x = tick(n));", 2),
        ("hdr.h.a = minus(y = n, x = tick(n));", 1),
        ("hdr.h.a = either<bit<8>>(z = n, y = tick(n), x = tick(n));", 0),
        ("two(x = hdr.h.a, y = hdr.h.a);", 2),
        ("two(y = hdr.h.a, x = hdr.h.a);", 1),
        ("n = 5; mixed(y = tick(n), x = n); hdr.h.a = n;", 12),
        ("n = 5; mixed(x = n, y = tick(n)); hdr.h.a = n;", 11),
    ],
)
def test_functions(body: str, a: int) -> None:
    assert run(top=TICK, body=COUNT + body) == INPUT | {"a": a % 256}


@pytest.mark.parametrize(("call", "a"), [("x = tick(n), y = tick(n)", -1), ("y = tick(n), x = tick(n)", 1)])
def test_actions_tables_controls_and_parsers(call: str, a: int) -> None:
    expected = INPUT | {"a": a % 256}
    action = "bit<8> n = 0; action set(in bit<8> x, in bit<8> y) { hdr.h.a = x - y; }"
    assert run(top=TICK, locals=action, body=f"set({call});") == expected
    table = f"{action} table t {{ actions = {{ set({call}); }} default_action = set({call}); }}"
    assert run(top=TICK, locals=table, body="t.apply();") == expected
    control = "control C(inout bit<8> r, in bit<8> x, in bit<8> y) { apply { r = x - y; } }"
    assert run(top=TICK + control, locals="C() c;", body=f"{COUNT} c.apply(r = hdr.h.a, {call});") == expected
    assert run(top=TICK + control, locals="C() c;", body=f"{COUNT} c.apply({call}, r = hdr.h.a);") == expected
    parser = "parser Q(inout bit<8> r, in bit<8> x, in bit<8> y) { state start { r = x - y; transition accept; } }"
    state = f"state start {{ pkt.extract(hdr.h); {COUNT} q.apply({call}, r = hdr.h.a); transition accept; }}"
    assert run(top=TICK + parser, parser_locals="Q() q;", parser=state) == expected


def test_comparing_a_name_with_itself_takes_both_values_in_order() -> None:
    """Equal text is one value only if nothing changes it in between."""
    for condition, a in (("n == n", 1), ("n <= n", 1), ("n != n", 0), ("n < n", 0)):
        assert run(body=f"{COUNT} hdr.h.a = {condition} ? 8w1 : 0;") == INPUT | {"a": a}
    changed = "bit<8> after(inout bit<8> n) { bit<8> old = n; n = n + 1; return old; }"
    for condition, a in (("n == after(n)", 1), ("after(n) == n", 0), ("tick(n) == tick(n)", 0), ("n != tick(n)", 1)):
        assert run(top=TICK + changed, body=f"{COUNT} hdr.h.a = {condition} ? 8w1 : 0;") == INPUT | {"a": a}


def test_extern_functions_and_methods() -> None:
    register = "register<bit<8>>(8) r;"
    write = COUNT + "r.write(value = tick(n), index = (bit<32>)tick(n)); r.read(hdr.h.a, 2);"
    assert run(top=TICK, locals=register, body=write) == INPUT | {"a": 1}
    read = "bit<8> n = 1; r.write(3, 9); r.read(index = (bit<32>)tick(n) + 1, result = hdr.h.a);"
    assert run(top=TICK, locals=register, body=read) == INPUT | {"a": 9}
    # crc16 modulo 1 is 0: the result is the base
    hashed = "hash(max = tick(n), data = { 8w7 }, result = hdr.h.a, algo = HashAlgorithm.crc16, base = tick(n));"
    assert run(top=TICK, body=COUNT + hashed) == INPUT | {"a": 2}
    drawn = "n = 4; random(hi = tick(n), lo = n, result = hdr.h.a);"
    assert run(top=TICK, body=COUNT + drawn) == INPUT | {"a": 5}


def test_the_place_of_a_result_is_fixed_before_later_arguments() -> None:
    parts = {
        "types": "header e_t { bit<8> v; }",
        "headers": "e_t[2] s;",
        "top": TICK,
        "parser": "state start { pkt.extract(hdr.h); pkt.extract(hdr.s.next); pkt.extract(hdr.s.next);"
        " transition accept; }",
        "locals": "register<bit<8>>(4) r;",
        "emit": "pkt.emit(hdr.s);",
    }
    for call, place in (
        ("r.read(hdr.s[n].v, (bit<32>)tick(n))", 0),
        ("r.read(index = (bit<32>)tick(n), result = hdr.s[n].v)", 1),
        ("hash(hdr.s[n].v, HashAlgorithm.crc16, 8w7, { tick(n) }, 8w1)", 0),
        ("random(hdr.s[n].v, 8w7, tick(n) + 6)", 0),
    ):
        target = switch(**parts, body=f"r.write(1, 7); bit<8> n = 0; {call};")
        ((_, sent),) = target.process(0, pack() + b"\x01\x02")
        assert list(sent[-2:]) == [7 if place == i else i + 1 for i in range(2)], call


def test_the_fields_of_a_struct_are_evaluated_as_written() -> None:
    types = "struct s_t { bit<8> x; bit<8> y; } header g_t { bit<8> x; bit<8> y; }"
    for kind in ("s_t", "g_t"):
        body = COUNT + f"{kind} s = {{ y = tick(n), x = tick(n) }}; hdr.h.a = s.x; hdr.h.b = s.y;"
        assert run(types=types, top=TICK, body=body) == INPUT | {"a": 2, "b": 1}
    nested = COUNT + "s_t s; s = { y = minus(y = tick(n), x = tick(n)), x = n }; hdr.h.a = s.x; hdr.h.b = s.y;"
    assert run(types=types, top=TICK, body=nested) == INPUT | {"a": 2, "b": 1}


def test_constant_structs_do_not_depend_on_the_order_of_their_text() -> None:
    parts = {
        "types": "struct s_t { bit<8> x; bit<8> y; }",
        "top": "const s_t one = { y = 2, x = 1 }; const s_t two = { x = 1, y = 2 };",
        "parser": """state start { pkt.extract(hdr.h); transition select(hdr.h.a, hdr.h.b) {
            (one.x, one.y): first; default: accept; } }
            state first { hdr.h.c = 0xbeef; transition accept; }""",
        "body": "s_t s = { y = 4, x = hdr.h.a }; if (one == two && s == { y = 4, x = hdr.h.a }) { hdr.h.d = 5; }",
    }
    target = switch(**parts)
    assert run_on(target, a=1, b=2) == INPUT | {"a": 1, "b": 2, "c": 0xBEEF, "d": 5}
    ((_, sent),) = target.process(0, pack(a=2, b=1))
    assert unpack(sent)["c"] == INPUT["c"]
