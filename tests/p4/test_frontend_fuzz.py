"""Whatever the input, the compiler answers with a program or with its own error type."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from p4lite.compiler import compile_text, frontend
from p4lite.compiler.diagnostics import CompileError
from p4lite.compiler.lexer import KEYWORDS, OPERATORS
from p4lite.compiler.preprocessor import decode_source
from support.amount import examples
from support.p4.source import program

SNIPPETS = [
    *KEYWORDS, *OPERATORS, "apply", "key", "actions", "entries", "state", "priority", "type", "list", "x", "y",
    "hdr", "meta",
    "T", "eth_t", "headers_t", "8w255", "0x1F", "4s7", "1", "3", '"text"', "@name", '@name("a")', "@a[1]", "// c\n",
    "/* c */",
    "#define X 1\n", "\n#if 1\n", "\n#endif\n", "bit<8>", "tuple<bit>", "a.b", "(", ")", "{", "}", "<", ">", ";",
    "\n", "é", "\\",
    "struct s { bit<8> x; }", "const bit<8> c = 1;", "f(x)", "isValid()", ".apply()", "mark_to_drop(sm);", "select(x)",
]  # fmt: skip

VALID = [
    program(),
    program(
        top="struct p<T> { T v; } enum bit<8> e { a = 1 } bit<8> f(in bit<8> x) { return x + 1; }",
        states="state start { pkt.extract(hdr.eth); "
        "transition select(hdr.eth.type) { 0x800 &&& 0xff00: next; _: accept; } } "
        "state next { pkt.extract(hdr.tags.next); transition next; }",
        locals="action a(inout bit<8> x, bit<8> v) { x = v; } table t { key = { meta.a: ternary; hdr.eth.dst: exact; } "
        "actions = { a(meta.b); NoAction; } const entries = { (1 &&& 3, 5): a(7); } } register<bit<8>>(4) r;",
        apply="if (t.apply().hit) { meta.a = f(meta.b); } switch (meta.a) { 1: { exit; } default: { } } "
        "for (bit<8> i in 1 .. 3) { meta.a += i; } r.read(meta.b, 1); hdr.eth.dst[7:0] = meta.a; "
        "meta.w = meta.flag ? meta.a ++ meta.b : 16w3; p<bit<8>> q = {v = 1}; meta.b = q.v;",
    ),
]


def attempt(text: str, *, whole: bool = True) -> None:
    """Compile; anything but success or `CompileError` fails the test by itself."""
    found = []
    try:
        if whole:
            compile_text(text, "fuzz.p4")
        else:
            frontend.load_text(text, "fuzz.p4")
    except CompileError as e:
        found = e.diagnostics
        assert_errors = True
    else:
        assert_errors = False
    assert any(d.severity == "error" for d in found) == assert_errors
    assert all("\n" not in d.message for d in found)


@settings(max_examples=examples(250))
@given(st.lists(st.sampled_from(SNIPPETS), max_size=60))
def test_random_tokens_end_in_diagnostics_not_exceptions(parts: list[str]) -> None:
    attempt(" ".join(parts))


@settings(max_examples=examples(150))
@given(
    st.lists(st.sampled_from(SNIPPETS), max_size=12),
    st.sampled_from(["top", "locals", "apply", "states", "parser_locals"]),
)
def test_token_soup_inside_a_program(parts: list[str], hole: str) -> None:
    attempt(program(**{hole: " ".join(parts)}))


@settings(max_examples=examples(150))
@given(st.text(max_size=200))
def test_random_text(text: str) -> None:
    attempt(text, whole=False)


@settings(max_examples=examples(150))
@given(st.binary(max_size=200))
def test_random_bytes(data: bytes) -> None:
    try:
        text = decode_source("fuzz.p4", data)
    except CompileError:
        return
    attempt(text, whole=False)


def mutate(text: str, rng: random.Random) -> str:
    """Return the program with a few words dropped, doubled, swapped or replaced."""
    words = (
        text.replace(";", " ; ")
        .replace("(", " ( ")
        .replace(")", " ) ")
        .replace("{", " { ")
        .replace("}", " } ")
        .split(" ")
    )
    for _ in range(rng.randint(1, 3)):
        i, j = rng.randrange(len(words)), rng.randrange(len(words))
        action = rng.randrange(5)
        if action == 0:
            del words[i]
        elif action == 1:
            words.insert(i, words[i])
        elif action == 2:
            words[i], words[j] = words[j], words[i]
        elif action == 3:
            words[i] = rng.choice(SNIPPETS)
        else:
            words.insert(i, rng.choice(SNIPPETS))
    return " ".join(words)


@pytest.mark.parametrize("part", range(4))
def test_mutated_programs(part: int, seed: int) -> None:
    rng = random.Random(seed + part)
    for _ in range(60):
        attempt(mutate(rng.choice(VALID), rng))
