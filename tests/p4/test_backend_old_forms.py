"""Forms of other times and compilers: taken with a warning, or refused with what to write instead."""

from __future__ import annotations

import pytest

from p4lite.compiler import compile_text
from p4lite.compiler.diagnostics import CompileError
from support.p4.cases import INPUT, run, source


def warnings_of(**parts: str) -> list[str]:
    return [d.message for d in compile_text(source(**parts), "case.p4").warnings]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (
            "clone3(CloneType.I2E, 5, { meta.k, hdr.h.a });",
            "annotate meta.k, hdr.h.a with @field_list(1) (fields outside of the user metadata: copies in it) and call "
            "clone_preserving_field_list(CloneType.I2E, 5, 1)",
        ),
        ("clone3(CloneType.I2E, 32w5, meta);", "annotate meta with @field_list(1)"),
        ("clone3<tuple<>>(CloneType.I2E, 5, {});", "clone_preserving_field_list(CloneType.I2E, 5, 1)"),
        ("resubmit({ meta.k });", "annotate meta.k with @field_list(1)"),
        ("resubmit(meta);", "call resubmit_preserving_field_list(1)"),
    ],
)
def test_the_rewrite_of_a_function_that_took_data(body: str, message: str) -> None:
    with pytest.raises(CompileError) as caught:
        compile_text(source(meta="bit<8> k;", body=body), "case.p4")
    assert message in str(caught.value)
    with pytest.raises(CompileError, match=r"call recirculate_preserving_field_list\(1\)"):
        compile_text(source(egress="recirculate({ sm.ingress_port });"), "case.p4")


def test_what_p4c_refuses_is_told() -> None:
    assert any("p4c refuses this form" in w for w in warnings_of(body="mark_to_drop();"))
    assert warnings_of(body="mark_to_drop(sm);") == []
    parts = {"types": "header e_t { bit<8> v; }", "headers": "e_t[2] s;"}
    for method in ("push_front", "pop_front"):
        parser = f"state start {{ pkt.extract(hdr.h); hdr.s.{method}(1); transition accept; }}"
        (warning,) = warnings_of(**parts, parser=parser)
        assert f"p4c refuses {method} in a parser for BMv2" in warning
        assert warnings_of(**parts, body=f"hdr.s.{method}(1);") == []


@pytest.mark.parametrize(
    ("body", "a"),
    [
        ("for (bit<8> i in 0..3) { i = i * 2; hdr.h.a = hdr.h.a + i; }", 0 + 2 + 4 + 6),
        ("for (bit<8> i in 1..2) { i += 1; hdr.h.a = hdr.h.a + i; }", 2 + 3),
        ("for (bit<8> i in 0..1) { i[3:2] = 1; hdr.h.a = hdr.h.a + i; }", 4 + 5),
        ("for (bit<8> i in 0..1) { twice(i); hdr.h.a = hdr.h.a + i; }", 0 + 2),
        ("for (bit<8> i in (list<bit<8>>){3, 4}) { i = i + 1; hdr.h.a = hdr.h.a + i; }", 4 + 5),
    ],
)
def test_the_variable_of_a_loop_may_be_written(body: str, a: int) -> None:
    top = "void twice(inout bit<8> x) { x = x + x; }"
    assert run(top=top, body="hdr.h.a = 0; " + body) == INPUT | {"a": a}
