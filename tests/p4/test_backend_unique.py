"""Names and identifiers of the JSON and of the P4Info: no two objects share them, or the program is refused by name."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from p4lite.compiler import compile_text
from p4lite.compiler.backend.document import groups
from p4lite.compiler.diagnostics import CompileError
from support.amount import examples
from support.p4.cases import INPUT, run_on, source, switch

TABLE = (
    "action a() { hdr.h.a = hdr.h.a + 1; } table t { key = { hdr.h.b: exact; } actions = { a; } default_action = a(); }"
)
CONTROL = f"control C(inout headers hdr) {{ {TABLE} apply {{ t.apply(); }} }}"
PLAIN = "table {} {{ key = {{ hdr.h.b: exact; }} actions = {{ NoAction; }} }}"


def refusal(text: str) -> str:
    with pytest.raises(CompileError) as caught:
        compile_text(text, "case.p4")
    (only,) = [d for d in caught.value.diagnostics if d.severity == "error"]
    return str(only).split("\n")[0]


def test_a_control_with_a_table_called_twice_by_its_type() -> None:
    text = source(top=CONTROL, body="\nC.apply(hdr);\n C.apply(hdr);")
    assert refusal(text) == (
        "case.p4:20:2: error: a second instance with the control-plane name 'Ig.C' (the first is at case.p4:19:1): "
        "its table 'Ig.C.t' would be there twice; declare instances with names of their own, as in C() first; "
        "C() second;"
    )
    named = switch(top=CONTROL, locals="C() one; C() two;", body="one.apply(hdr); two.apply(hdr);")
    assert run_on(named, a=1) == INPUT | {"a": 3}
    once = switch(top=CONTROL, body="C.apply(hdr);")
    assert run_on(once, a=1) == INPUT | {"a": 2}


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        (
            {"top": CONTROL, "locals": '@name("x") C() one; @name("x") C() two;',
             "body": "one.apply(hdr); two.apply(hdr);"},
            "a second instance with the control-plane name 'Ig.x'",
        ),
        (
            {"top": CONTROL.replace("table t", '@name(".t") table t'), "locals": "C() one; C() two;",
             "body": "one.apply(hdr); two.apply(hdr);"},
            "a second table with the control-plane name 't'",
        ),
        (
            {"top": "control C(inout headers hdr) { register<bit<8>>(4) r; apply { r.write(0, hdr.h.a); } }",
             "body": "C.apply(hdr); C.apply(hdr);"},
            "its register 'Ig.C.r' would be there twice",
        ),
        (
            {"locals": '@name(".x")' + PLAIN.format("t"), "egress_locals": '@name(".x")' + PLAIN.format("t"),
             "body": "t.apply();", "egress": "t.apply();"},
            "a second table with the control-plane name 'x'; the first is at case.p4:",
        ),
        (
            {"locals": '@name(".x") register<bit<8>>(4) r; @name(".x") register<bit<8>>(4) s;',
             "body": "r.write(0, 1); s.write(0, 2);"},
            "a second register with the control-plane name 'x'; the first is at case.p4:",
        ),
        (
            {"locals": '@name(".x") action_profile(4) p; @name(".x") action_selector(HashAlgorithm.crc16, 4, 4) q;'
             + PLAIN.format("t").replace("{ key", "{ implementation = p; key")
             + PLAIN.format("u").replace("{ key", "{ implementation = q; key"), "body": "t.apply(); u.apply();"},
            "a second action profile with the control-plane name 'x'",
        ),
        (
            {"parser_locals": '@name(".v") value_set<bit<8>>(4) v; @name(".v") value_set<bit<8>>(4) w;',
             "parser": "state start { pkt.extract(hdr.h); transition select(hdr.h.a) { v: accept; w: more; } }"
             " state more { transition accept; }"},
            "a second value set with the control-plane name 'v'",
        ),
        (
            {"types": '@name("d") struct d1 { bit<8> a; } @name("d") struct d2 { bit<8> b; }',
             "body": "digest<d1>(1, { hdr.h.a }); digest<d2>(1, { hdr.h.b });"},
            "a second digest with the control-plane name 'd'",
        ),
    ],
)  # fmt: skip
def test_two_objects_of_one_name(parts: dict[str, str], message: str) -> None:
    assert message in refusal(source(**parts))


def test_two_fields_of_one_identifier() -> None:
    action = "action a(@id(1) bit<8> x, @id(1) bit<8> y) { hdr.h.a = x + y; }"
    table = "table t { key = { hdr.h.b: exact; } actions = { a; NoAction; } default_action = NoAction; }"
    text = source(locals=action + table, body="t.apply();")
    with pytest.raises(CompileError, match=r"@id\(0x1\) is used twice"):
        _ = compile_text(text, "case.p4").p4info


def test_names_of_the_compiler_give_way() -> None:
    """Tables that the compiler makes for calls of actions, and its actions for loops, are renamed."""
    locals_ = (
        'action a() { hdr.h.a = 1; } @name(".tbl_a")' + PLAIN.format("t") + ' @name(".node_2")' + PLAIN.format("u")
    )
    text = source(locals=locals_, body="a(); if (hdr.h.b == 1) { t.apply(); } else { u.apply(); }")
    tables = [t["name"] for t in compile_text(text, "case.p4").bmv2["pipelines"][0]["tables"]]
    assert {"tbl_a", "node_2"} <= set(tables)
    assert len(set(tables)) == len(tables)


def test_an_action_with_arguments_in_two_tables_keeps_its_name() -> None:
    locals_ = (
        "action a(inout bit<8> x) { x = x + 1; }"
        "table t { actions = { a(hdr.h.a); } default_action = a(hdr.h.a); }"
        "table u { actions = { a(hdr.h.b); } default_action = a(hdr.h.b); }"
    )
    assert run_on(switch(locals=locals_, body="t.apply(); u.apply();"), a=1, b=1) == INPUT | {"a": 2, "b": 2}


# --- random programs ---


@dataclass
class Part:
    """A control of a random program: what it declares, and the parts in it."""

    objects: list[tuple[str, str]] = field(default_factory=list)
    inner: list[tuple[str | None, int]] = field(default_factory=list)
    """(name given to the instance, None for an application by type; index of the control)."""


KINDS = ("table", "action", "register", "counter")
NAMES = ("", "x", "y", ".x", ".one.x", "one.x")
objects = st.lists(st.tuples(st.sampled_from(KINDS), st.sampled_from(NAMES)), max_size=3)


@st.composite
def controls(draw: st.DrawFn) -> list[Part]:
    """Return controls, each may apply those after it; the first is the ingress."""
    count = draw(st.integers(1, 3))
    return [
        Part(
            draw(objects),
            [
                (draw(st.sampled_from([None, "one", "two", ".x"])), draw(st.integers(i + 1, count - 1)))
                for _ in range(draw(st.integers(0, 2)) if i + 1 < count else 0)
            ],
        )
        for i in range(count)
    ]


def text_of(parts: list[Part], number: int) -> tuple[str, str]:
    """Return declarations and statements of a control."""
    part, declared, body = parts[number], [], []
    for i, (kind, name) in enumerate(part.objects):
        note = f'@name("{name}") ' if name else ""
        at = f"{kind[0]}{i}"
        if kind == "table":
            declared.append(note + PLAIN.format(at))
            body.append(f"{at}.apply();")
        elif kind == "action":
            declared.append(f"{note}action {at}() {{ hdr.h.a = hdr.h.a + 1; }}")
            body.append(f"{at}();")
        elif kind == "register":
            declared.append(f"{note}register<bit<8>>(4) {at};")
            body.append(f"{at}.write(0, 1);")
        else:
            declared.append(f"{note}counter(4, CounterType.packets) {at};")
            body.append(f"{at}.count(1);")
    for i, (given_name, inner) in enumerate(part.inner):
        if given_name is None:
            body.append(f"C{inner}.apply(hdr);")
        else:
            declared.append(f'@name("{given_name}") C{inner}() inst{i};')
            body.append(f"inst{i}.apply(hdr);")
    return " ".join(declared), " ".join(body)


def names_of(parts: list[Part], number: int, path: str) -> list[tuple[str, str]]:
    """All (kind, control-plane name) that the instance `path` of a control brings."""

    def under(name: str) -> str:
        return name[1:] if name.startswith(".") else f"{path}.{name}"

    found = [(kind, under(name or f"{kind[0]}{i}")) for i, (kind, name) in enumerate(parts[number].objects)]
    for name, inner in parts[number].inner:
        found += names_of(parts, inner, under(name or f"C{inner}"))
    return found


@settings(max_examples=examples(100), deadline=None)
@given(controls())
def test_random_programs_have_unique_names_or_are_refused(parts: list[Part]) -> None:
    top = ""
    for number in reversed(range(1, len(parts))):
        declared, body = text_of(parts, number)
        top += f"control C{number}(inout headers hdr) {{ {declared} apply {{ {body} }} }}\n"
    declared, body = text_of(parts, 0)
    text = source(top=top, locals=declared, body=body)
    names = names_of(parts, 0, "Ig")
    # Two objects of one control must differ even if nobody applies it.
    within = [names_of([Part(p.objects)], 0, "") for p in parts]
    if any(len(set(each)) < len(each) for each in [names, *within]):
        with pytest.raises(CompileError, match="control-plane name"):
            compile_text(text, "case.p4")
        return
    made = compile_text(text, "case.p4")
    for _, items in groups(made.bmv2):
        for key in ("name", "id"):
            assert len({item[key] for item in items}) == len(items)
    actions = made.bmv2["actions"]
    assert len({a["id"] for a in actions}) == len(actions)
    info = made.p4info_message
    lists = [value for kind, value in info.ListFields() if kind.name not in ("pkg_info", "type_info")]
    ids = [each.preamble.id for value in lists for each in value]
    assert len(set(ids)) == len(ids)
    for value in lists:
        assert len({each.preamble.name for each in value}) == len(value)
    of_tables = {(kind, name) for kind, name in names if kind == "table"}
    assert {("table", each.preamble.name) for each in info.tables} == of_tables
