"""Expressions as deep as the compiler takes them go through documents, traces, copies and both switches."""

from __future__ import annotations

import copy
import json
import pickle
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

import p4lite
import p4lite.cli
from p4lite.compiler.diagnostics import CompileError
from p4lite.compiler.parser import MAX_DEPTH
from p4lite.recursion import deep_recursion
from p4lite.switch.bmv2.reader import read_document
from p4lite.switch.errors import ProgramError
from p4lite.switch.p4rt.pipeline import device_config
from p4lite.switch.source import load_source
from support.p4.cases import INPUT, pack, source, unpack

MOST = 385
"""Operands in one expression: nearly MAX_DEPTH, of whose levels some are outside of it."""
B, C = INPUT["b"], INPUT["c"]
BODIES = {
    "sum": ("hdr.h.c = hdr.h.c" + " + 1" * MOST + ";", {"c": C + MOST}),
    "differences": ("hdr.h.c = hdr.h.c" + " - (bit<16>)hdr.h.b" * MOST + ";", {"c": (C - B * MOST) % 65536}),
    "saturating": ("hdr.h.c = hdr.h.c" + " |+| (bit<16>)hdr.h.b" * MOST + ";", {"c": min(65535, C + B * MOST)}),
    "concatenation": ("hdr.h.c = (bit<16>)(hdr.h.b" + " ++ hdr.h.a" * 255 + ");", {"c": 0x1212}),
    "conjunction": ("if (hdr.h.a == 18" + " && hdr.h.b != 9" * MOST + ") { hdr.h.c = 1; }", {"c": 1}),
}


def deep(name: str = "sum") -> str:
    return source(body=BODIES[name][0])


@pytest.mark.parametrize("name", BODIES)
@pytest.mark.parametrize("backend", ["compiled", "interpreter"])
def test_both_backends_run_what_the_compiler_takes(name: str, backend: Any) -> None:
    before = sys.getrecursionlimit()
    with p4lite.Switch(p4lite.compile(deep(name)), backend=backend) as switch:
        ((_, data),) = switch.send(1, pack())
    assert unpack(data) == INPUT | BODIES[name][1]
    assert sys.getrecursionlimit() == before


def test_the_compiler_refuses_more() -> None:
    with pytest.raises(CompileError, match=f"nested deeper than {MAX_DEPTH} levels"):
        p4lite.compile(source(body="hdr.h.c = hdr.h.c" + " + 1" * (MAX_DEPTH + 10) + ";"))


def test_documents_are_written_and_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "deep.p4").write_text(deep(), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    assert p4lite.cli.main(["compile", "deep.p4", "-o", "deep.json"]) == 0

    with p4lite.Switch(p4lite.compile(tmp_path / "deep.json"), backend="interpreter") as switch:
        ((_, data),) = switch.send(1, pack())
    assert unpack(data)["c"] == INPUT["c"] + MOST
    config = load_source(tmp_path / "deep.p4").config()
    assert device_config(config.p4_device_config)["actions"]


def test_trace_shows_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "deep.p4"
    path.write_text(deep(), encoding="utf-8")
    assert p4lite.cli.main(["trace", str(path), "--packet", pack().hex()]) == 0
    assert f"h.c: 0x5678 -> {INPUT['c'] + MOST:#06x}" in capsys.readouterr().out


def test_program_is_copied() -> None:
    program = p4lite.compile(deep())
    for made in (copy.deepcopy(program), pickle.loads(pickle.dumps(program))):
        with p4lite.Switch(made, backend="interpreter") as switch:
            assert len(switch.send(1, pack())) == 1


def test_a_device_is_no_document() -> None:
    with pytest.raises(ProgramError, match="device"):
        read_document(Path("/dev/zero"))


def test_document_without_end_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    errors: list[str] = []

    def read() -> None:
        for text in ('{"a":' * 200_000, '{"a":' + "[" * 200_000):
            path.write_text(text, encoding="utf-8")
            with pytest.raises(ProgramError, match="not a BMv2 JSON") as refused:
                read_document(path)
            errors.append(str(refused.value))

    thread = threading.Thread(target=read)
    thread.start()
    thread.join()
    assert len(errors) == 2


def test_document_with_an_endless_expression_is_an_error() -> None:
    program = p4lite.compile(source(body="hdr.h.c = hdr.h.c + hdr.h.d[15:0];"))
    text = json.dumps(program.bmv2)
    leaf: Any = {"type": "hexstr", "value": "0x01"}
    for _ in range(4000):
        leaf = {"type": "expression", "value": {"op": "+", "left": leaf, "right": {"type": "hexstr", "value": "0x01"}}}
    document = json.loads(text)
    (action,) = [a for a in document["actions"] if any(p["op"] == "assign" for p in a["primitives"])][:1]
    assign = next(p for p in action["primitives"] if p["op"] == "assign")
    assign["parameters"][1] = leaf
    for backend in ("compiled", "interpreter"):
        with pytest.raises(ProgramError, match="nested"):
            p4lite.Switch(p4lite.Program("endless", document), backend=backend)


def test_limit_goes_back_when_the_last_thread_is_done() -> None:
    before = sys.getrecursionlimit()
    inside, leave = threading.Event(), threading.Event()

    def other() -> None:
        with deep_recursion(5000):
            inside.set()
            leave.wait(30)

    thread = threading.Thread(target=other)
    with deep_recursion(4000):
        assert sys.getrecursionlimit() == 4000
        thread.start()
        inside.wait(30)
    assert sys.getrecursionlimit() == 5000
    leave.set()
    thread.join()
    assert sys.getrecursionlimit() == before
