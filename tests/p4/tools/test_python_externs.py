"""Externs that a program declares itself: what the compiler writes of them, and Python objects that do their work."""

from __future__ import annotations

from typing import Any

import pytest

import p4lite
from p4lite.compiler.diagnostics import CompileError
from p4lite.interpreter.events import ExternCalled
from p4lite.switch.errors import ControlError, ProgramError
from p4lite.tools.trace import Recorder
from support.p4.cases import INPUT, pack, source, unpack

EXTERN = """
extern Window {
    Window(bit<32> size);
    void put(in bit<8> key);
    void get(in bit<8> key, out bit<16> count, out bit<8> last);
}
"""
BODY = """
    w.put(hdr.h.a); w.put(hdr.h.a + 1); hdr.h.c = 7;
    w.get(hdr.h.a, hdr.h.c, hdr.h.b); hdr.h.d = (bit<32>)hdr.h.c;
"""


class Window:
    """Counts keys by the switch's clock."""

    def __init__(self) -> None:
        self.keys: list[int] = []

    def put(self, key: int) -> None:
        """Count a key."""
        self.keys.append(key)

    def get(self, key: int) -> tuple[int, int]:
        """Return how often a key came, and the last key."""
        return self.keys.count(key), self.keys[-1]


def program(body: str = BODY, extern: str = EXTERN) -> p4lite.Program:
    """Return a program with an extern."""
    return p4lite.compile(source(top=extern, locals="Window(16) w;", body=body))


def test_python_object_does_the_work_of_an_extern() -> None:
    window, recorder = Window(), Recorder()
    with p4lite.Switch(program(), externs={"Ig.w": window}, observers=[recorder]) as switch:
        assert switch.backend == "interpreter"
        for times in (1, 2, 3):
            ((_, data),) = switch.send(0, pack())
            assert unpack(data) == INPUT | {"b": INPUT["a"] + 1, "c": times, "d": times}
    calls = [e for e in recorder.take() if isinstance(e, ExternCalled)]
    assert [(e.method, e.arguments) for e in calls[:3]] == [("put", (0x12,)), ("put", (0x13,)), ("get", (0x12,))]
    assert all(e.where is not None for e in calls)


def test_document_lists_the_objects_as_p4c_does() -> None:
    document = program().bmv2
    (instance,) = document["extern_instances"]
    assert (instance["name"], instance["type"]) == ("Ig.w", "Window")
    assert instance["attribute_values"] == [{"name": "size", "type": "hexstr", "value": "0x00000010"}]
    calls = [p for a in document["actions"] for p in a["primitives"] if p["op"].startswith("_Window")]
    assert [c["op"] for c in calls] == ["_Window_put", "_Window_put", "_Window_get"]
    assert calls[0]["parameters"][0] == {"type": "extern", "value": "Ig.w"}


class Without(Window):
    """Lacks a method."""

    put = None  # type: ignore[assignment]


class Greedy(Window):
    """Takes too much."""

    def put(self, key: int, *, other: int = 0, third: int = 0) -> None:
        """Take three."""


@pytest.mark.parametrize(
    ("externs", "said"),
    [
        ({"Ig.v": Window()}, "no Python object is given for the extern 'Ig.w' \\(given: Ig.v\\)"),
        ({"Ig.w": Without()}, "Without, given for the extern 'Ig.w', has no method 'put'"),
        ({"Ig.w": Greedy()}, "Greedy.put takes 3 arguments, the program gives 1"),
    ],
)
def test_objects_that_do_not_fit_are_refused(externs: dict[str, Any], said: str) -> None:
    with pytest.raises(ProgramError, match=said):
        p4lite.Switch(program(), externs=externs)


def test_method_that_returns_too_little_is_refused() -> None:
    window = Window()
    window.get = lambda key: 1  # type: ignore[assignment, method-assign, return-value]
    with (
        p4lite.Switch(program(), externs={"Ig.w": window}) as switch,
        pytest.raises(ControlError, match="returned 1 val"),
    ):
        switch.send(0, pack())


def test_compiled_switch_names_the_interpreter() -> None:
    with pytest.raises(ProgramError, match="'Window_put' is of an extern of the program's own, which only the interp"):
        p4lite.Switch(program())


@pytest.mark.parametrize(
    ("extern", "body", "said"),
    [
        ("extern Window { Window(bit<32> s); void m(inout bit<8> x); }", "w.m(hdr.h.a);", "in parameters come first"),
        (
            "extern Window { Window(bit<32> s); void m(out bit<8> x, in bit<8> y); }",
            "w.m(hdr.h.a, 1);",
            "in parameters",
        ),
        ("extern Window { Window(bit<32> s); bit<8> m(); }", "hdr.h.a = w.m();", "which returns a value"),
    ],
)
def test_methods_that_cannot_be_given_in_python_are_refused(extern: str, body: str, said: str) -> None:
    with pytest.raises(CompileError, match=said):
        program(body, extern)
