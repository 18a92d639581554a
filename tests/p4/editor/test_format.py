"""`p4lite format`: the style, and that only white space ever changes."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from p4lite.cli import main
from p4lite_tools.editor.format import format_text
from p4lite_tools.editor.scan import same_code, scan
from support.amount import examples

ROOT = Path(__file__).parents[3]
SHIPPED = sorted([*(ROOT / "p4/programs").rglob("*.p4"), *(ROOT / "p4/programs/include").rglob("*.p4")])

STYLE = [
    # (written, formatted)
    ("header   h_t{bit<8>a;bit < 16 >  b;}", "header h_t { bit<8> a; bit<16> b; }\n"),
    ("struct s_t{bit<8>a;int < 16 >  b;\n}", "struct s_t {\n    bit<8> a;\n    int<16> b;\n}\n"),
    ("header h_t { bit<8> a; }", "header h_t { bit<8> a; }\n"),
    ("control c()\n{\napply\n{\na=b;\n}\n}\n", "control c() {\n    apply {\n        a = b;\n    }\n}\n"),
    (
        "apply {\nif(a==1&&b<c){\nx=1;\n}\nelse  if (d) {\ny=- 1;\n}\nelse {\nz = (bit<8>) w;\n}\n}",
        "apply {\n    if (a == 1 && b < c) {\n        x = 1;\n    } else if (d) {\n        y = -1;\n    } else {\n"
        "        z = (bit<8>)w;\n    }\n}\n",
    ),
    (
        "parser P( packet_in p ,\nout headers h) {\nstate start{transition accept;}\n}\n",
        "parser P(packet_in p,\n         out headers h) {\n    state start { transition accept; }\n}\n",
    ),
    (
        "transition select(h.t){\n0x800 :ip;\n8w1..8w2:x;\n( 1 &&& 2 ,_ ) : y;\ndefault :accept;\n}",
        "transition select(h.t) {\n    0x800: ip;\n    8w1 .. 8w2: x;\n    (1 &&& 2, _): y;\n    default: accept;\n}\n",
    ),
    ("a=b?c:d;\nx[7 : 0]=y[ 3:2 ]++z;\nq = x[i +: 4];", "a = b ? c : d;\nx[7:0] = y[3:2] ++ z;\nq = x[i+:4];\n"),
    ("a = b>>2 ; c = b<<1;\nregister< bit<32> > ( 8 ) r;", "a = b >> 2;\nc = b << 1;\nregister<bit<32>>(8) r;\n"),
    ("register<bit<32> >(8) r;\nif (a<b) x = y;", "register<bit<32>>(8) r;\nif (a < b) x = y;\n"),
    ('@name( "x" )table t { }\nkey = { a : exact@name("n"); }',
     '@name("x") table t { }\nkey = { a: exact @name("n"); }\n'),
    ("a = .g + ! b;\nreturn(-x);\nx = 1 + + 2;", "a = .g + !b;\nreturn (-x);\nx = 1 + +2;\n"),
    ("bit<8> a; // one\nbit<16> bc;   // two\n\n\n\nbit<8> d; // three\n",
     "bit<8> a;    // one\nbit<16> bc;  // two\n\nbit<8> d;  // three\n"),
    ("apply {\n\n/* a\n * b */\nx = 1;\n\n}\n", "apply {\n    /* a\n     * b */\n    x = 1;\n}\n"),
    ("#ifdef A\n  control c() {\n#else\ncontrol d() {\n  #endif\napply { }\n}\n",
     "#ifdef A\ncontrol c() {\n#else\ncontrol d() {\n#endif\n    apply { }\n}\n"),
    ("#define M(x)  \\\n   x + 1\na = M(\n2);", "#define M(x)  \\\n   x + 1\na = M(\n    2);\n"),
    ("x = a +\nb;\nif (c)\ny = 1;\nelse\ny = 2;", "x = a +\n    b;\nif (c)\n    y = 1;\nelse\n    y = 2;\n"),
    ("f({ a,\nb },\nc);", "f({ a,\n    b },\n  c);\n"),
    ("@pragma x y\n@hidden\ntable t { }", "@pragma x y\n@hidden\ntable t { }\n"),
    ("@foo[a=1]\nstruct s { }\n@b[1, (2)] @c(3)\n  struct t { }",
     "@foo[a = 1]\nstruct s { }\n@b[1, (2)] @c(3)\nstruct t { }\n"),
]  # fmt: skip


@pytest.mark.parametrize(("written", "formatted"), STYLE)
def test_source_is_laid_out_in_the_style(written: str, formatted: str) -> None:
    assert format_text(written) == formatted


@pytest.mark.parametrize(("_written", "formatted"), STYLE)
def test_formatting_again_changes_nothing(_written: str, formatted: str) -> None:
    assert format_text(formatted) == formatted


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.name)
def test_shipped_program_keeps_its_code_and_is_stable(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    once = format_text(text)
    assert same_code(text, once)
    assert format_text(once) == once


_PLAIN = """a B bit int < > ( ) [ ] { } ; , . : ? = == + - ! ~ & && | ++ << >= .. ... &&& @ @name if else for switch
select return error apply state table const true 1 8w1 0x1F _ "s" "op\\"en" // /*x*/ \\ $ ` '"""
WORDS = st.sampled_from([*_PLAIN.split(), "#if\n", "#else\n", "#endif\n", "#define\\\n"])
SPACE = st.sampled_from(["", "", " ", "  ", "\t", "\n", "\n\n\n", " \n  ", " // c\n", "/* d\n * e */", "\r\n"])


@given(st.lists(st.tuples(WORDS, SPACE), max_size=40))
@settings(max_examples=examples(150), deadline=None)
def test_any_text_keeps_its_code_and_is_stable(pieces: list[tuple[str, str]]) -> None:
    text = "".join(word + space for word, space in pieces)
    once = format_text(text)
    assert same_code(text, once)
    assert format_text(once) == once


def test_scanner_returns_every_character_but_white_space() -> None:
    text = 'a /* b */ // c\n#if d \\\n e\n"f g" $'
    assert "".join(word.text for word in scan(text)) == 'a/* b */// c#if d \\\n e"f g"$'


def test_check_prints_what_would_change_and_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good, bad = tmp_path / "good.p4", tmp_path / "bad.p4"
    good.write_text("a = b;\n", encoding="utf-8")
    bad.write_text("a=b;", encoding="utf-8")
    assert main(["format", "--check", str(good)]) == 0
    assert capsys.readouterr().out == ""
    assert main(["format", "--check", str(good), str(bad)]) == 1
    assert capsys.readouterr().out.splitlines()[-2:] == ["-a=b;", "+a = b;"]
    assert bad.read_text(encoding="utf-8") == "a=b;"


def test_write_changes_only_files_that_need_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good, bad = tmp_path / "good.p4", tmp_path / "bad.p4"
    good.write_text("a = b;\n", encoding="utf-8")
    bad.write_text("a=b;", encoding="utf-8")
    assert main(["format", "--write", str(good), str(bad)]) == 0
    assert bad.read_text(encoding="utf-8") == "a = b;\n"
    assert capsys.readouterr().err == f"{bad}: formatted\n"


def test_standard_input_is_formatted(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(b"a=b;")))
    assert main(["format", "-"]) == 0
    assert capsys.readouterr().out == "a = b;\n"


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["a.p4", "b.p4"], 2, "several programs need --write or --check"),
        (["--write", "-"], 2, "--write needs files"),
        (["no-such.p4"], 1, "no-such.p4: error: cannot read the source file"),
    ],
)
def test_wrong_use_says_what_is_wrong(
    arguments: list[str], code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["format", *arguments]) == code
    assert said in capsys.readouterr().err
