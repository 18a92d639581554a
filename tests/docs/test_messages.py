"""Commands in the messages of the program: each can be typed."""

from __future__ import annotations

import ast
import functools
import pathlib
import re
from collections.abc import Iterator

from support import cli

ROOT = pathlib.Path(__file__).parents[2]


def text_of(node: ast.AST) -> str | None:
    """Return the text of a literal, an f-string or a sum of them, with `{}` for each value; None if it is none."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else None
    if isinstance(node, ast.JoinedStr):
        return "".join(text_of(part) or "{}" for part in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        left, right = text_of(node.left), text_of(node.right)
        return None if left is None and right is None else f"{left or '{}'}{right or '{}'}"
    return None


def texts(path: pathlib.Path) -> Iterator[tuple[int, str]]:
    """Yield every text of a file but docstrings, whole where it is put together."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        for child in ast.iter_child_nodes(node):
            if isinstance(node, ast.Expr | ast.JoinedStr | ast.BinOp) or not isinstance(child, ast.expr):
                continue
            if text := text_of(child):
                yield child.lineno, text


@functools.cache
def all_texts() -> list[tuple[pathlib.Path, int, str]]:
    """Return the texts of all files of the program."""
    return [
        (path.relative_to(ROOT), line, text)
        for part in ("controller", "extras", "hosts", "p4", "topologies")
        for path in sorted((ROOT / part).rglob("*.py"))
        if "__compiled__" not in path.parts
        for line, text in texts(path)
    ]


def _words(command: str) -> list[str]:
    """Return the words of a command in a message; a value of the program, such as `{}`, is a word."""
    return [word for word in command.replace("{}", "x").split() if word != "&"]


def test_every_command_that_a_message_names_can_be_typed() -> None:
    quoted = re.compile(r"`(mrclab [^`]+)`")
    named = {(str(path), line, command) for path, line, text in all_texts() for command in quoted.findall(text)}
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
    for path, line, text in all_texts():
        if "--clock virtual" not in text:
            continue
        verbs = re.findall(r"`?mrclab (\w+)", text)
        if not verbs:
            verbs = [path.stem if path.parent.name == "cli" else ""]
        if all(cli.problem(["mrclab", verb, "--clock", "virtual"], loosely=True) for verb in verbs):
            wrong.append(f"{path}:{line}: {text}")
    assert wrong == []
