"""Externs that a program declares itself: what the compiler writes of them, and Python objects that do their work."""

from __future__ import annotations

from typing import Any

import pytest

import p4lite
from p4lite.compiler.diagnostics import CompileError
from p4lite.switch.errors import ControlError, ProgramError
from p4lite_tools.interpreter.events import ExternCalled
from p4lite_tools.trace import Recorder
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
        ({"Ig.v": 1}, "write p4lite.Switch\\(program, externs={'Ig.w': OBJECT}\\)"),
        ({"Ig.w": Window}, "the class Window is given for the extern 'Ig.w': give an object of it, as Window\\(\\)"),
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
        pytest.raises(
            ControlError, match="takes 1 value and returned 1 value, but the program's call has 3 parameters"
        ),
    ):
        switch.send(0, pack())


def test_method_that_takes_too_little_is_refused() -> None:
    window = Window()
    window.put = lambda: None  # type: ignore[assignment, method-assign, misc]
    with (
        p4lite.Switch(program("w.put(hdr.h.a);"), externs={"Ig.w": window}) as switch,
        pytest.raises(ControlError, match=r"Window.put takes 0 values and returned 0 values, but .* has 1 parameters"),
    ):
        switch.send(0, pack())
    with pytest.raises(
        ProgramError, match=r"Window.put takes 0 values, but the program's call has more 'in' parameters"
    ):
        p4lite.Switch(program("w.put(hdr.h.a + 1);"), externs={"Ig.w": window})


WIDTHS = """
extern Window { Window(bit<32> size); void get(out bit<8> count, out int<8> last, out bit<1> odd, out bit<32> wide); }
"""
CALL = "int<8> i; bit<1> b; w.get(hdr.h.a, i, b, hdr.h.d); hdr.h.b = (bit<8>)i; if (b == 1) { hdr.h.c = 1; }"


@pytest.mark.parametrize(
    ("result", "said"),
    [
        ((1.5, 0, 0, 0), "returned 1.5, which is no bit<8>: an int is wanted"),
        (("1", 0, 0, 0), "returned '1', which is no bit<8>: an int is wanted"),
        ((None, 0, 0, 0), "returned None, which is no bit<8>: an int is wanted"),
        ((256, 0, 0, 0), "returned 256, which is no bit<8>: an int from 0 to 255 is wanted"),
        ((-5, 0, 0, 0), "returned -5, which is no bit<8>"),
        ((0, 128, 0, 0), "returned 128, which is no int<8>: an int from -128 to 127 is wanted"),
        ((0, -129, 0, 0), "returned -129, which is no int<8>"),
        ((0, 0, 2, 0), "returned 2, which is no bit<1>: an int from 0 to 1"),
        ((0, 0, 0, 2**40), "returned 1099511627776, which is no bit<32>: an int from 0 to 4294967295"),
    ],
)
def test_results_that_do_not_fit_are_refused(result: tuple[Any, ...], said: str) -> None:
    window = Window()
    window.get = lambda: result  # type: ignore[assignment, method-assign, misc]
    with (
        p4lite.Switch(program(CALL, WIDTHS), externs={"Ig.w": window}) as switch,
        pytest.raises(ControlError, match=said),
    ):
        switch.send(0, pack())


def test_results_at_their_limits_are_stored() -> None:
    window = Window()
    window.get = lambda: (255, -128, True, 0xFFFFFFFF)  # type: ignore[assignment, method-assign, misc]
    with p4lite.Switch(program(CALL, WIDTHS), externs={"Ig.w": window}) as switch:
        ((_, data),) = switch.send(0, pack())
    assert unpack(data) == {"a": 255, "b": 128, "c": 1, "d": 0xFFFFFFFF}


def test_compiled_switch_names_the_interpreter() -> None:
    with pytest.raises(
        ProgramError, match="'Window_put' is of an extern of the program's own, which only the interp"
    ) as refused:
        p4lite.Switch(program())
    assert str(refused.value).endswith("p4lite.Switch(program, externs={'Ig.w': OBJECT})")


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
