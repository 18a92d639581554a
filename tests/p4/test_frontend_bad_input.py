"""Input that is not a program: files that cannot be read, endless nesting, broken directives. One clear line each."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from p4lite.cli import compile as cli
from p4lite.compiler import compile_program, compile_text
from p4lite.compiler.diagnostics import CompileError
from support.p4.source import program

HEAD = "#include <core.p4>\n#include <v1model.p4>\n"
DEEP = 10_000

NESTED = {
    "parentheses": "const bit<8> x = " + "(" * DEEP + "1" + ")" * DEEP + ";",
    "open parentheses": "const bit<8> x = " + "(" * DEEP,
    "a sum": "const bit<8> x = " + "+".join(["8w1"] * DEEP) + ";",
    "signs": "const bit<8> x = " + "~" * DEEP + "8w1;",
    "casts": "const bit<8> x = " + "(bit<8>)" * DEEP + "1;",
    "blocks": "action a() " + "{" * DEEP + "}" * DEEP,
    "ifs": "action a(inout bit<8> x) {" + "if (x == 1) " * DEEP + "x = 1; }",
    "else ifs": "action a(inout bit<8> x) {" + "if (x == 1) x = 1; else " * DEEP + "x = 1; }",
    "conditions": "const bit<8> x = " + "true ? 8w1 : " * DEEP + "8w1;",
    "members": "const bit<8> x = a" + ".b" * DEEP + ";",
    "indices": "const bit<8> x = a" + "[0]" * DEEP + ";",
    "calls": "const bit<8> x = a" + "()" * DEEP + ";",
    "types": "const " + "tuple<" * DEEP + "bit" + ">" * DEEP + " x = 1;",
    "stacks": "header h { } typedef h" + "[1]" * DEEP + " x;",
    "lists": "const bit<8> x = " + "{" * DEEP + "}" * DEEP + ";",
}


def one_error(text: str) -> str:
    """Return the first line of the error that a text causes."""
    with pytest.raises(CompileError) as caught:
        compile_text(text, "deep.p4")
    return str(caught.value).splitlines()[0]


@pytest.mark.parametrize("name", NESTED)
def test_deep_nesting(name: str) -> None:
    first = one_error(HEAD + NESTED[name])
    assert re.fullmatch(r"deep\.p4:3:\d+: error: nested deeper than \d+ levels.*", first), first


def test_nesting_within_the_limit_compiles() -> None:
    expression = "(" * 150 + "meta.a" + ")" * 150 + " + 1" * 300
    assert compile_text(program(apply=f"meta.a = {expression};")).bmv2["pipelines"]


DIRECTIVES = {
    "missing include": (
        '#include "nope.p4"',
        r"x\.p4:1:1: error: include file 'nope\.p4' not found; name its directory with -I",
    ),
    "other architecture": ("#include <dpdk/psa.p4>", r"unsupported architecture, p4lite compiles for v1model and psa"),
    "include nothing": ("#include", r'#include needs "FILE" or <FILE>'),
    "unclosed include": ("#include <abc", r"preprocessor: malformed #include"),
    "unterminated comment": ("const bit<8> x = 1; /* oops\n\n", r"x\.p4:1:21: error: unterminated comment"),
    "unterminated #if": ("#if 1\nconst bit<8> x = 1;", r"x\.p4:1:1: error: preprocessor: unterminated #if"),
    "#else alone": ("#else", r"misplaced #else"),
    "#endif alone": ("\n#endif", r"x\.p4:2:1: error: preprocessor: misplaced #endif"),
    "#ifdef nothing": ("#ifdef\n#endif", r"malformed directive"),
    "#define nothing": ("#define", r"malformed directive"),
    "#if nonsense": ("#if 1 +\n#endif", r"cannot evaluate the expression"),
    "#if division": ("#if 1 / 0\n#endif", r"cannot evaluate the expression"),
    "#error": ("#error not today", r"x\.p4:1:1: error: #error not today"),
    "unknown directive": ("  #inclde <core.p4>", r"x\.p4:1:3: error: unknown preprocessor directive #inclde"),
    "macro arguments": (
        "#define F(a, b) a\nconst int x = F(1);",
        r"x\.p4:2:\d+: error: preprocessor: macro F requires 2",
    ),
    "empty": ("", r"x\.p4: error: the program is empty"),
    "only comments": ("// nothing\n/* at all */", r"the program is empty"),
    "NUL": ("const\0", r"is a binary file"),
}


@pytest.mark.parametrize("name", DIRECTIVES)
def test_directives_and_odd_files(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text, message = DIRECTIVES[name]
    monkeypatch.chdir(tmp_path)
    Path("x.p4").write_text(text)
    with pytest.raises(CompileError) as caught:
        compile_program("x.p4")
    first = str(caught.value).splitlines()[0]
    assert re.search(message, first), first


def test_an_include_that_includes_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("x.p4").write_text('#include "x.p4"\n')
    with pytest.raises(CompileError, match="nested deeper than 64: does a file include itself"):
        compile_program("x.p4")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda p: p.write_bytes(bytes(range(256))), "is a binary file"),
        (lambda p: p.write_bytes(b"const bit<8> x = 1; // \xff\xfe"), "is not UTF-8 text .byte 0xff at offset 23"),
        (lambda p: p.mkdir(), "is a directory; give a P4 source file"),
        (lambda p: None, "cannot read the source file: No such file"),
    ],
)
def test_files_that_are_no_source(
    make: object, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "x.p4"
    make(path)  # type: ignore[operator]
    assert cli.run([str(path)]) == 1
    err = capsys.readouterr().err
    assert re.fullmatch(rf"{re.escape(str(path))}: error: {message}.*\n", err), err


def test_numbers_beyond_reason_are_refused() -> None:
    for text in (
        "const int x = 1 << 99999999;",
        "const int a = 1 << 60000; const int b = a * a * a;",
        "const int x = " + "9" * 100_000 + ";",
        "const bit<99999999999999999999> x = 1;",
        "header h { bit<8> x; } typedef h[1000000] s;",
    ):
        assert ": error: " in one_error(HEAD + text)
