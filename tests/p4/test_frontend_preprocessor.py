"""The preprocessor keeps positions through includes and macros, and finds what it should find."""

from __future__ import annotations

from pathlib import Path

import pytest

from p4lite.compiler import ast, frontend
from p4lite.compiler.check.program import Checker
from p4lite.compiler.diagnostics import CompileError
from p4lite.compiler.position import Pos


def _names(path: str, **options: object) -> dict[str, Pos]:
    tree, _ = frontend.parse_file(path, **options)  # type: ignore[arg-type]
    return {d.name: d.pos for d in tree.decls}


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def write(name: str, text: str) -> str:
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return name


def test_positions_through_includes_and_comments() -> None:
    write("inc/b.p4", "/* two\n   lines */ const bit<8> b = 1;\n")
    write("a.p4", '// one\n#include "inc/b.p4"\n\n  /* x\n y */ const bit<8> a = 2;\n')
    names = _names("a.p4")
    assert names["b"] == Pos("inc/b.p4", 2, 26, 1)
    assert names["a"] == Pos("a.p4", 5, 20, 1)


def test_text_of_a_macro_is_where_it_is_used() -> None:
    write("a.p4", "#define DECL(n) const bit<8> n\n#define ONE 1\n\n  DECL(x) = ONE; const bit<8> y = 2;\n")
    names = _names("a.p4")
    assert (names["x"].line, names["x"].col) == (4, 3)
    assert names["y"].line == 4
    with pytest.raises(CompileError) as caught:
        frontend.parse_text("#define BAD 1 1\nconst bit<8> z =   BAD;\n", "m.p4")
    place = caught.value.diagnostics[0].pos
    assert (place.line, place.col) == (2, 20)


def test_lines_continue() -> None:
    write("a.p4", "#define TWO \\\n  2\nconst bit<8> \\\n  x = TWO;\nconst bit<8> y = 1;\n")
    names = _names("a.p4")
    assert (names["x"].line, names["x"].col) == (4, 3)
    assert names["y"].line == 5


def test_a_name_that_continues_on_another_line_is_one_name() -> None:
    text = "#define TW\\\nO(x) \\\n  x\nconst bit<8> lo\\\nng\\\ner = T\\\nWO(1\\\n2);\nconst bit<8> next = longer;\n"
    write("inc.p4", text)
    write("a.p4", '#include "inc.p4"\nconst bit<8> here = lon\\\nger; const bit<8> last = 1;\n')
    names = _names("a.p4")
    assert list(names) == ["longer", "next", "here", "last"]
    assert (names["next"].line, names["last"].line) == (9, 3)
    tree, _ = frontend.parse_file("a.p4")
    first = tree.decls[0]
    assert isinstance(first, ast.ConstDecl)
    assert getattr(first.value, "value", None) == 12


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("const bit<8> a = 1; // one \\\nconst bit<8> b = 2;\nconst bit<8> c = 3;\n", {"a": 1, "c": 3}),
        ("// one \\\n two \\\n three\nconst bit<8> a = 4;\n", {"a": 4}),
        ("const bit<8> a = 1; // one \\ \nconst bit<8> b = 2;\n", {"a": 1, "b": 2}),
        ("#define M const bit<8> a = 1; // one \\\n const bit<8> b = 2;\nM\nconst bit<8> c = 3;\n", {"a": 3, "c": 4}),
        ("const bit<8> a = 1; /\\\n/ one\nconst bit<8> b = 2;\n", {"a": 1, "b": 3}),
        ("/\\\n* one *\\\n\\\n/ const bit<8> a = 1;\nconst bit<8> b = 2;\n", {"a": 4, "b": 5}),
        ('@name("// no \\\n comment") const bit<8> a = 1;\nconst bit<8> b = 2;\n', {"a": 2, "b": 3}),
        ("/* // \\\n */ const bit<8> a = 1;\n", {"a": 2}),
    ],
)
def test_a_comment_goes_on_where_its_line_does(text: str, names: dict[str, int]) -> None:
    """As the language says of the preprocessor, and as p4c's does: lines are joined before comments are found."""
    write("a.p4", text)
    assert {name: place.line for name, place in _names("a.p4").items()} == names


@pytest.mark.parametrize("name", ["bad.p4", "./bad.p4", "../here/bad.p4", "sub/../bad.p4", "sub/bad.p4"])
def test_errors_show_their_line_however_the_file_is_named(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in ("here", "here/sub"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "bad.p4").write_text("const bit<8> a = NONE;\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path / "here")
    with pytest.raises(CompileError) as caught:
        frontend.load(name)
    assert "\nconst bit<8> a = NONE;\n                 ^~~~" in str(caught.value)


def test_directives_in_a_string_of_several_lines_leave_empty_lines() -> None:
    lines = [
        '@rule("',
        " a;",
        "  #ifdef NO",
        " no;",
        "#endif",
        "  EMPTY",
        "",
        " TWO  c;  ",
        "#define X",
        "  // d",
        ' ")',
    ]
    text = "\n".join(["#define EMPTY", "#define TWO b", *lines, "const bit<8> x = 1;", "const bit<8> y = z;", ""])
    tree, _ = frontend.parse_text(text, "a.p4")
    annotation = next(d for d in tree.decls if isinstance(d, ast.ConstDecl) and d.name == "x").annotations[0]
    assert annotation.args == ["\n a;\n\n\n\n\n\n b  c;\n\n  // d\n "]
    assert [d.pos.line for d in tree.decls if isinstance(d, ast.ConstDecl)] == [14, 15]


def test_an_error_in_an_include_names_the_include() -> None:
    write("lib/bad.p4", "const bit<8> x = 1\nconst bit<8> y = 2;\n")
    write("a.p4", '#include "lib/bad.p4"\n')
    with pytest.raises(CompileError) as caught:
        frontend.load("a.p4")
    first = str(caught.value).splitlines()
    assert first[0].startswith("lib/bad.p4:2:1: error: syntax error: unexpected 'const'")
    assert first[1] == "const bit<8> y = 2;"


def test_includes_are_relative_to_the_including_file_then_to_the_include_directories() -> None:
    write("lib/one.p4", '#include "two.p4"\n')
    write("lib/two.p4", "const bit<8> near = 1;\n")
    write("other/three.p4", "const bit<8> far = 1;\n")
    write("src/a.p4", '#include "../lib/one.p4"\n#include <three.p4>\n')
    assert set(_names("src/a.p4", include_dirs=["other"])) == {"near", "far"}
    with pytest.raises(CompileError, match=r"src/a\.p4:2:1: error: include file 'three\.p4' not found"):
        frontend.parse_file("src/a.p4")


def test_a_user_directory_comes_before_the_own_includes() -> None:
    write("mine/core.p4", "const bit<8> mine = 1;\n")
    write("a.p4", "#include <core.p4>\n")
    assert "mine" in _names("a.p4", include_dirs=["mine"])
    assert "NoAction" in _names("a.p4")


def test_include_guards_and_nested_conditions() -> None:
    write("g.p4", "#ifndef G\n#define G\nconst bit<8> g = 1;\n#endif\n")
    write(
        "a.p4",
        '#include "g.p4"\n#include "g.p4"\n#ifdef G\n'
        "#if 0\nnonsense\n#elif defined(G)\nconst bit<8> h = 1;\n#endif\n#endif\n",
    )
    assert set(_names("a.p4")) == {"g", "h"}


@pytest.mark.parametrize(
    ("defines", "value"),
    [([], 1), (["N=7"], 7), (["N=(1+2)"], 3), ({"N": "9"}, 9), (["N"], 1)],
)
def test_defines(defines: object, value: int) -> None:
    write("a.p4", "#ifndef N\n#define N 1\n#endif\nconst bit<8> n = 8w0 + N;\n")
    tree, reporter = frontend.parse_file("a.p4", defines=defines)  # type: ignore[arg-type]
    checker = Checker(reporter)
    checker.declaration(tree.decls[0])
    decl = tree.decls[0]
    assert isinstance(decl, ast.ConstDecl)
    assert decl.const == value


def test_a_define_that_is_no_name() -> None:
    write("a.p4", "const bit<8> n = 1;\n")
    with pytest.raises(CompileError, match="-D 3=x: not NAME or NAME=VALUE"):
        frontend.load("a.p4", defines=["3=x"])


def test_line_endings_and_byte_order_mark() -> None:
    Path("a.p4").write_bytes(b"\xef\xbb\xbfconst bit<8> a = 1;\r\n\r\nconst bit<8> b = 2;\r\n")
    names = _names("a.p4")
    assert names["a"] == Pos("a.p4", 1, 14, 1)
    assert names["b"].line == 3


def test_comment_marks_inside_strings_and_the_other_way_round() -> None:
    write("a.p4", '@name("/* no comment") const bit<8> a = 1; // "no string\n/* // */ const bit<8> b = 2;\n')
    assert set(_names("a.p4")) == {"a", "b"}


def test_warning_directive_is_a_warning() -> None:
    _, reporter = frontend.parse_text("#warning look here\nconst bit<8> a = 1;\n", "a.p4")
    assert [str(d).splitlines()[0] for d in reporter.diagnostics] == ["a.p4:1:1: warning: #warning look here"]


def _text_of_the_annotation(text: str) -> str:
    program, _ = frontend.parse_text(text, "x.p4")
    (found,) = [a.args[0] for d in program.decls for a in d.annotations if a.name == "note"]
    return str(found)


@pytest.mark.parametrize(
    ("written", "kept"),
    [
        ("http://x/y", "http://x/y"),
        ("a /* b */ c // d", "a /* b */ c // d"),
        ("\n  // only this, don't forget\n  http://x/y; /* z\n */ w\n", None),
        ("\n  /* not closed\n", None),
        ('\n  a \\" // b\n', '\n  a " // b\n'),
    ],
)
def test_comments_inside_strings_are_text(written: str, kept: str | None) -> None:
    text = f'/* " */ @note("{written}") // a " b\nconst bit<8> x = 1; /* c */\n// "\nconst bit<8> y = 2;'
    assert _text_of_the_annotation(text) == (written if kept is None else kept)
    names = {d.name: d.pos.line for d in frontend.parse_text(text, "x.p4")[0].decls}
    lines = written.count("\n")
    assert names == {"x": 2 + lines, "y": 4 + lines}


def test_macros_and_conditions_hold_in_a_string_over_lines_as_with_p4c() -> None:
    text = '#define KEY k\n@note("\nKEY // KEY\n#ifdef NOT\nno\n#endif\n")\nconst bit<8> x = 1;'
    assert _text_of_the_annotation(text).split() == ["k", "//", "KEY"]


def test_a_stray_quote_is_not_the_start_of_a_long_string() -> None:
    text = '#if 0\n 5" disk\n#endif\n// a "quoted" word\n#error' + " it's \"here\n"
    with pytest.raises(CompileError) as caught:
        frontend.parse_text(text + 'const bit<8> x = 1; // "\n', "x.p4")
    assert [d.message for d in caught.value.diagnostics] == ["#error it's \"here"]


@pytest.mark.parametrize("line", ["# a comment, isn't it", "#-------", "#!/usr/bin/p4", "  # 'tis \"quoted"])
def test_a_line_with_a_hash_that_is_no_directive(line: str) -> None:
    tree, reporter = frontend.parse_text(f"#\n{line}\nconst bit<8> x = 1;", "x.p4")
    assert [(d.name, d.pos.line) for d in tree.decls] == [("x", 3)]
    (warning,) = reporter.diagnostics
    assert warning.pos.line == 2
    assert "is not a preprocessor directive; it is ignored, as by p4c; a comment starts with //" in warning.message


@pytest.mark.parametrize(("wrong", "meant"), [("inclde <a>", "include"), ("endfi", "endif"), ("ifdfe X", "ifdef")])
def test_a_directive_that_is_misspelt_is_an_error(wrong: str, meant: str) -> None:
    with pytest.raises(CompileError) as caught:
        frontend.parse_text(f"#{wrong}\nconst bit<8> x = 1;", "x.p4")
    assert f"unknown preprocessor directive #{wrong.split()[0]}; did you mean #{meant}?" in str(caught.value)
