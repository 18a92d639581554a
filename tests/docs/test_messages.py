"""`docs/messages.py` finds the texts that users see, and those texts keep to the rules of the project."""

from __future__ import annotations

import ast
import importlib.util
import pathlib
import re
import sys
import types
from collections.abc import Iterator

import pytest

from support import cli

ROOT = pathlib.Path(__file__).parents[2]


def _module() -> types.ModuleType:
    spec = importlib.util.spec_from_file_location("docs_messages", ROOT / "docs" / "messages.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


messages = _module()
ALL = messages.messages()
#: What a reader must decode, and what to write instead.
RULES = {
    r"\bif left out\b|\bleft out:": "(default: ...)",
    r"\bis no (?!other\b|longer\b|more\b|room\b|lab up\b|such\b)\w+(?<!JSON)$": "is not a ...",
    r"\b(nobody|somebody|whoever|anew)\b": "the process, host or user",
    r"\bnone of ours\b": "what it is not, such as `not an opcode of this transport`",
}


def test_evs_are_written_in_one_form() -> None:
    """As eight hexadecimal digits (docs/glossary.md): `EV 0000cea2` and not `EV 0xcea2`."""
    form = re.compile(r"\b(?:EV|ev=|ev) ?\{[\w.]+:(?!08x)[^}]*x\}|EV (?:0x)?\$\{[^}]*toString\(16\)\}")
    sources = [
        path
        for part in ("controller", "extras", "hosts", "topologies")
        for suffix in ("py", "js")
        for path in (ROOT / part).rglob(f"*.{suffix}")
        if not {"__compiled__", "vendor"} & set(path.parts)
    ]
    found = [f"{path.name}: {each}" for path in sources for each in form.findall(path.read_text(encoding="utf-8"))]
    assert found == []


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("raise RunError('no lab is up')", [("RunError", "no lab is up")]),
        ("raise RunError(f'lab {name} is not up')", [("RunError", "lab {} is not up")]),
        ("typer.echo('a ' + name)", [("echo", "a {}")]),
        ("problems.append(Finding(False, 'no number', 'the file is empty'))", [("Finding", "no number")]),
        ("x = typer.Option(help='print JSON')", [("help", "print JSON")]),
        ("end('lost it' if lost else f'lost {n} of it')", [("end", "lost it | lost {} of it")]),
        ("compute('this is not shown')", []),
    ],
)
def test_messages_of_a_file_are_the_texts_that_its_calls_show(
    source: str, expected: list[tuple[str, str]], tmp_path: pathlib.Path
) -> None:
    file = tmp_path / "one.py"
    file.write_text(source + "\n")
    assert [(each.kind, each.text) for each in messages.messages_of(file)] == expected


def test_all_packages_have_messages() -> None:
    assert {each.path.partition("/")[0] for each in ALL} == set(messages.PACKAGES)
    assert len(ALL) > 2000


@pytest.mark.parametrize(("pattern", "remedy"), RULES.items())
def test_no_message_has_words_that_must_be_decoded(pattern: str, remedy: str) -> None:
    found = [f"{each.path}:{each.line}: {each.text}: write {remedy}" for each in ALL if re.search(pattern, each.text)]
    assert not found


def test_folder_lists_the_messages_of_its_files_and_a_missing_one_is_refused(
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = ROOT / "topologies" / "mrc_topo"
    assert messages.main([str(folder)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len([each for each in ALL if each.path.startswith("topologies/mrc_topo/")])
    assert messages.main(["no/such/folder"]) == 2
    assert "no/such/folder" in capsys.readouterr().err


def _texts(path: pathlib.Path) -> Iterator[tuple[int, str]]:
    """Yield every text of a file but docstrings, with `{}` for values, and whole where it is put together."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        for child in ast.iter_child_nodes(node):
            if isinstance(node, ast.Expr | ast.JoinedStr | ast.BinOp) or not isinstance(child, ast.expr):
                continue
            if text := messages.text_of(child):
                yield child.lineno, text


TEXTS = [
    (path.relative_to(ROOT), line, text)
    for part in messages.PACKAGES
    for path in sorted((ROOT / part).rglob("*.py"))
    if "__compiled__" not in path.parts
    for line, text in _texts(path)
]


def _words(command: str) -> list[str]:
    """Return the words of a command in a message; a value of the program, such as `{}`, is a word."""
    return [word for word in command.replace("{}", "x").split() if word != "&"]


def test_every_command_that_a_message_names_can_be_typed() -> None:
    quoted = re.compile(r"`(mrclab [^`]+)`")
    named = {(str(path), line, each) for path, line, text in TEXTS for each in quoted.findall(text)}
    assert len(named) > 30
    wrong = []
    for path, line, command in sorted(named):
        words = _words(command)
        # Such as `mrclab ...`, or a verb that the message computes.
        if words[1] in ("...", "x", "VERB"):
            continue
        if said := cli.problem(words, loosely=True):
            wrong.append(f"{path}:{line}: {command}: {said}")
    assert wrong == []


def test_a_remedy_names_the_clock_of_a_verb_that_has_one() -> None:
    """What `mrclab up` shows must not say `--clock virtual` alone: that verb has no such option."""
    wrong = []
    for path, line, text in TEXTS:
        if "--clock virtual" not in text:
            continue
        verbs = re.findall(r"`?mrclab (\w+)", text)
        if not verbs:
            verbs = [path.stem if path.parent.name == "mrclab.cli" else ""]
        if all(cli.problem(["mrclab", verb, "--clock", "virtual"], loosely=True) for verb in verbs):
            wrong.append(f"{path}:{line}: {text}")
    assert wrong == []
