"""Work and size grow linearly with a program, and no C function grows without bound.

Work is counted in lines that the interpreter runs within p4lite and the parsers that it uses (a loop counts every
round), so the numbers are the same on every machine. Growth is that from n to 2n against that from 2n to 4n.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from p4lite import compiler
from p4lite.switch.runtime.loader import LoadedProgram, load_program
from support.amount import only

HEAD = """
#include <core.p4>
#include <v1model.p4>
header h_t { bit<32> a; bit<32> b; bit<32> c; bit<32> d; }
struct meta_t { bit<32> x; }
bit<32> pick(in bit<32> x, in bit<32> y) { bit<32> r = x; if (y > 3) { r = r + y; } return r; }
control Part(inout bit<32> x) {
    action set(bit<32> v) { x = v; }
    table t { key = { x: exact; } actions = { set; } }
    apply { t.apply(); }
}
"""
TAIL = """
control V(inout headers hdr, inout meta_t m) { apply {} }
control E(inout headers hdr, inout meta_t m, inout standard_metadata_t s) { apply {} }
control C(inout headers hdr, inout meta_t m) { apply {} }
control D(packet_out p, in headers hdr) { apply { p.emit(hdr); } }
V1Switch(P(), V(), I(), E(), C(), D()) main;
"""
FIELDS = "abcd"


def field(i: int) -> str:
    return f"hdr.h.{FIELDS[i % 4]}"


def program(
    declarations: str = "", body: str = "", states: str = "state start { transition last; }", n: int = 0
) -> str:
    more = " ".join(f"h_t g{i};" for i in range(n))
    return (
        f"{HEAD} struct headers {{ h_t h; {more} }}\n"
        "parser P(packet_in p, out headers hdr, inout meta_t m, inout standard_metadata_t s) {\n"
        f"{states}\nstate last {{ p.extract(hdr.h); transition accept; }} }}\n"
        "control I(inout headers hdr, inout meta_t m, inout standard_metadata_t s) {\n"
        f"action set(bit<32> v) {{ hdr.h.a = v; }}\n{declarations}\napply {{\n{body}\n}} }}\n{TAIL}"
    )


def lines(n: int, line: Callable[[int], str]) -> str:
    return "\n".join(map(line, range(n)))


def states(n: int) -> str:
    chain = lines(
        n,
        lambda i: f"state s{i} {{ m.x = m.x + {i}; transition select(m.x) {{ {i}: last; default: s{i + 1}; }} }}",
    )
    return f"state start {{ transition s0; }}\n{chain}\nstate s{n} {{ transition last; }}"


def branches(n: int) -> str:
    return lines(n, lambda i: f"if ({field(i)} == {i}) {{ {field(i + 1)} = {i}; }} else {{ m.x = {i}; }}")


def entries(n: int, kind: str, key: Callable[[int], str]) -> str:
    rows = lines(n, lambda i: f"{key(i)}: set({7 * i});")
    return program(
        f"table t {{ key = {{ hdr.h.a: {kind}; }} actions = {{ set; }} const entries = {{ {rows} }} }}", "t.apply();"
    )


PROGRAMS: dict[str, Callable[[int], str]] = {
    "tables": lambda n: program(
        lines(n, lambda i: f"table t{i} {{ key = {{ {field(i)}: exact; }} actions = {{ set; }} }}"),
        lines(n, lambda i: f"t{i}.apply();"),
    ),
    "exact entries": lambda n: entries(n, "exact", str),
    "ternary entries": lambda n: entries(n, "ternary", lambda i: f"{i} &&& 0xffff"),
    "range entries": lambda n: entries(n, "range", lambda i: f"{i} .. {i + 9}"),
    "statements of an action": lambda n: program(
        f"action big() {{ {lines(n, lambda i: f'{field(i)} = {field(i + 1)} + {i};')} }}", "big();"
    ),
    "branches of an action": lambda n: program(f"action big() {{ {branches(n)} }}", "big();"),
    "branches": lambda n: program(body=branches(n)),
    "variables": lambda n: program(
        body=lines(n, lambda i: f"bit<32> v{i} = hdr.h.a + {i};") + lines(n, lambda i: f"hdr.h.b = hdr.h.b ^ v{i};")
    ),
    "calls of a function": lambda n: program(body=lines(n, lambda i: f"hdr.h.a = pick(hdr.h.b, {i});")),
    "instances of a control": lambda n: program(
        lines(n, lambda i: f"Part() k{i};"), lines(n, lambda i: f"k{i}.apply({field(i)});")
    ),
    "actions": lambda n: program(
        lines(n, lambda i: f"action a{i}(bit<32> v) {{ hdr.h.a = v + {i}; }}")
        + f"table t {{ key = {{ hdr.h.a: exact; }} actions = {{ {lines(n, lambda i: f'a{i};')} }} }}",
        "t.apply();",
    ),
    "parser states": lambda n: program(states=states(n)),
    "headers": lambda n: program(body=lines(n, lambda i: f"hdr.g{i}.setValid();"), n=n),
    "a macro of macros": lambda n: program(
        body="#define S(i) hdr.h.a = hdr.h.a + i;\n#define ID(x) x\n"
        f"#define ALL {' '.join(f'S({i})' for i in range(n))}\nID(ALL)"
    ),
}
MANY = 600
COUNTED = re.compile(r"p4lite|pcpp|lark")


def work(source: str) -> tuple[int, LoadedProgram]:
    """Lines run from the source to the C."""
    count = 0
    counted: dict[str, bool] = {}

    def trace(frame: FrameType, event: str, arg: Any) -> Any:
        name = frame.f_code.co_filename
        wanted = counted.get(name)
        if wanted is None:
            wanted = counted[name] = bool(COUNTED.search(name))
        return line if wanted else None

    def line(frame: FrameType, event: str, arg: Any) -> Any:
        nonlocal count
        count += 1
        return line

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        loaded = load_program(compiler.compile_text(source).bmv2)
    finally:
        sys.settrace(before)
    return count, loaded


@pytest.mark.slow
@pytest.mark.parametrize("name", only(PROGRAMS, ("tables", "parser states", "branches")))
def test_work_and_size_are_linear(name: str) -> None:
    make = PROGRAMS[name]
    compiler.compile_text(make(1))  # what is made once
    counts, sizes = [], []
    for n in (60, 120, 240):
        lines_run, loaded = work(make(n))
        counts.append(lines_run)
        sizes.append(len(loaded.code.text))
    for values in (counts, sizes):
        small, large = values[1] - values[0], values[2] - values[1]
        assert small > 0
        assert large < 2.1 * small, values


def functions(c: str) -> list[int]:
    """Lines of each function."""
    return [m.group().count("\n") for m in re.finditer(r"^\{\n.*?^\}", c, re.M | re.S)]


@pytest.mark.parametrize("name", PROGRAMS)
def test_functions_of_a_long_program_stay_short(name: str) -> None:
    """C compilers need more than linear time for a function."""
    loaded = load_program(compiler.compile_text(PROGRAMS[name](MANY)).bmv2)
    longest = max(functions(loaded.code.text))
    if name in ("headers", "parser states"):  # a line or three for each: still one function
        assert longest < 10 * MANY
    else:
        assert longest < 1500
