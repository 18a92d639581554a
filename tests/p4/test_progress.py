"""What a command says when it takes long, and the C compiler's level for large programs."""

from __future__ import annotations

import json
import re
import time
from dataclasses import replace
from pathlib import Path

import pytest

from p4lite import compiler, terminal
from p4lite.cli import compile as compile_verb
from p4lite.compiler import backend
from p4lite.switch.native import build
from p4lite.switch.runtime.loader import load_program

SOURCE = """
#include <core.p4>
#include <v1model.p4>
header h_t { bit<32> a; bit<32> b; }
struct headers { h_t h; }
struct meta_t {}
parser P(packet_in p, out headers hdr, inout meta_t m, inout standard_metadata_t s) {
    state start { p.extract(hdr.h); transition accept; }
}
control V(inout headers hdr, inout meta_t m) { apply {} }
control I(inout headers hdr, inout meta_t m, inout standard_metadata_t s) {
    action set(bit<32> v) { hdr.h.b = v; }
    table t { key = { hdr.h.a: KIND; } actions = { set; } const entries = { ENTRIES } }
    apply { t.apply(); }
}
control E(inout headers hdr, inout meta_t m, inout standard_metadata_t s) { apply {} }
control C(inout headers hdr, inout meta_t m) { apply {} }
control D(packet_out p, in headers hdr) { apply { p.emit(hdr); } }
V1Switch(P(), V(), I(), E(), C(), D()) main;
"""


def entries(n: int, kind: str = "exact", mask: str = "") -> str:
    """Return a program with a table of `n` entries."""
    rows = " ".join(f"{i}{mask}: set({7 * i});" for i in range(n))
    return SOURCE.replace("KIND", kind).replace("ENTRIES", rows)


def test_silent_when_quick(capsys: pytest.CaptureFixture[str]) -> None:
    with terminal.shown("cmd", after=60):
        terminal.step("one")
    terminal.step("outside")
    terminal.notice("outside")
    assert capsys.readouterr().err == ""


def test_a_line_after_a_while_and_at_every_later_step(capsys: pytest.CaptureFixture[str]) -> None:
    with terminal.shown("cmd", after=0.05):
        terminal.step("one")
        deadline = time.monotonic() + 120
        text = ""
        while not text and time.monotonic() < deadline:
            time.sleep(0.01)
            text = capsys.readouterr().err
        terminal.step("two")
    assert re.fullmatch(r"cmd: one \(\d+ s\)\n", text)
    assert re.fullmatch(r"cmd: two \(\d+ s\)\n", capsys.readouterr().err)


def test_compile_says_where_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(terminal, "AFTER_S", 0.0)
    program = tmp_path / "some.p4"
    program.write_text(entries(3))
    assert compile_verb.run([str(program), "-o", str(tmp_path / "out.json")]) == 0
    said = capsys.readouterr().err
    for what in ("preprocessing", "parsing", "checking", "generating BMv2 JSON", "writing"):
        assert re.search(rf"^p4lite compile: {re.escape(str(program))}: {what}", said, re.M), said


def test_json_has_an_entry_a_line() -> None:
    bmv2 = compiler.compile_text(entries(20)).bmv2
    text = backend.to_text(bmv2)
    assert json.loads(text) == bmv2
    rows = [line for line in text.splitlines() if '"action_entry"' in line]
    assert len(rows) == 20
    for row in rows:
        assert json.loads(row.rstrip(","))["match_key"]


@pytest.mark.parametrize("large", [False, True])
def test_large_programs_are_optimised_less(
    large: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    commands: list[list[str]] = []

    def run(command: list[str], what: str, folder: Path) -> None:
        commands.append(command)
        Path(command[command.index("-o") + 1]).touch()

    monkeypatch.setattr(build, "_run", run)
    monkeypatch.setenv("MRCLAB_CACHE", str(tmp_path))
    program = load_program(compiler.compile_text(entries(3)).bmv2, name="some")
    if large:
        program = replace(program, code=replace(program.code, size=build.LARGE + 1))
    with terminal.shown("cmd", after=60):
        program.build()
    levels = {next(w for w in c if w.endswith(".c")): [w for w in c if w.startswith("-O")] for c in commands[:-1]}
    for path, level in levels.items():
        assert level == (["-O1"] if large and path.endswith("program.c") else ["-O2"])
    said = capsys.readouterr().err
    assert said == ("cmd: some is large: optimised with -O1, its packets take longer\n" if large else "")


def test_entries_do_not_count_as_code() -> None:
    few, many = (load_program(compiler.compile_text(entries(n, "ternary", " &&& 0xffff")).bmv2).code for n in (2, 500))
    assert many.size == few.size
    assert len(many.text) > len(few.text)
