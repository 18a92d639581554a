"""The space between two words on one line of a P4 program, and which `<` and `(` are which.

The rules need no declarations, so a program formats without its includes and while it is half written.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from p4lite.compiler.lexer import OPERATORS
from p4lite.editor.scan import COMMENTS, Kind, Word

TYPE_KEYWORDS = frozenset({"bit", "int", "varbit", "tuple", "value_set", "list"})
BASE_TYPES = frozenset({"bit", "int", "varbit", "bool", "error"})
SPACED_BEFORE_PAREN = frozenset(
    {"if", "for", "switch", "return", "in", "out", "inout", "else", "transition", "const", "exit", "_"}
)
UNARY = frozenset({"-", "+", "!", "~"})
_ALLOWED_IN_ANGLE = frozenset({",", ".", "[", "]", "<", ">", "(", ")", "+", "-", "*", "/"})
_ENDED = COMMENTS | {Kind.STRING}
_LONGEST = sorted(OPERATORS, key=len, reverse=True)
_FIRST = re.compile(
    r"[A-Za-z_][A-Za-z0-9_]*|[0-9][0-9a-zA-Z_]*|//|/\*|" + "|".join(re.escape(o) for o in _LONGEST) + r"|.", re.S
)


@dataclass(slots=True)
class Role:
    """What a word is for: an angle bracket of types, a unary operator, a bracket's opener, a colon of `? :`."""

    angle: bool = False
    unary: bool = False
    #: Of a closing parenthesis: the next word is the operand of a cast, or the statement of an `if`.
    cast: bool = False
    head: bool = False
    annotation: bool = False
    ternary: bool = False
    slice: bool = False
    global_name: bool = False


def roles(words: Sequence[Word]) -> list[Role]:
    """Return the role of each word."""
    found = [Role() for _ in words]
    code = [i for i, word in enumerate(words) if word.code]
    stack: list[tuple[str, int]] = []  # bracket, index in `code`
    pending: list[int] = [0]  # open '?' at each level of brackets
    for at, i in enumerate(code):
        text, role = words[i].text, found[i]
        previous = words[code[at - 1]] if at else None
        if text == "<" and _opens_types(words, code, at):
            role.angle = True
            stack.append(("<", at))
        elif text == ">" and stack and stack[-1][0] == "<":
            role.angle = True
            stack.pop()
        elif text in ("(", "[", "{"):
            stack.append((text, at))
            pending.append(0)
        elif text in (")", "]", "}"):
            while stack and stack[-1][0] == "<":
                stack.pop()
            opened = stack.pop() if stack else None
            if len(pending) > 1:
                pending.pop()
            if opened is not None:
                _close(words, code, opened[1], at, found)
        elif text == "pragma" and previous is not None and previous.text == "@":
            _pragma(words, code, at, found)
        elif text == "?":
            pending[-1] += 1
        elif text == ":":
            if pending[-1]:
                pending[-1] -= 1
                role.ternary = True
            role.slice = bool(stack) and stack[-1][0] == "["
        elif text == ";":
            while stack and stack[-1][0] == "<":
                stack.pop()
            pending[-1] = 0
        role.unary = text in UNARY and not _operand(previous, found[code[at - 1]] if at else None)
        role.global_name = text == "." and not _operand(previous, found[code[at - 1]] if at else None)
    return found


def _operand(word: Word | None, role: Role | None) -> bool:
    """Return whether an operand ends with this word, so that an operator after it is binary."""
    if word is None or role is None:
        return False
    if word.kind in (Kind.NAME, Kind.NUMBER, Kind.STRING) or word.text in ("true", "false", "this", "error", "_"):
        return True
    return (word.text == ")" and not role.cast and not role.head) or word.text in ("]", "}") or role.angle


def _close(words: Sequence[Word], code: Sequence[int], opened: int, at: int, found: list[Role]) -> None:
    """Say what a closing bracket ends: an annotation, the head of a statement, a cast's type."""
    role = found[code[at]]
    if words[code[at]].text in (")", "]") and opened >= 2 and words[code[opened - 2]].text == "@":
        role.annotation = True
        return
    if words[code[at]].text != ")":
        return
    before = words[code[opened - 1]] if opened else None
    if before is not None and before.text in ("if", "for", "switch"):
        role.head = True
        return
    starts = before is None or not (
        before.kind in (Kind.NAME, Kind.NUMBER)
        or before.text in (")", "]", "}", "apply", "select")
        or found[code[opened - 1]].angle
        or (before.kind is Kind.KEYWORD and before.text not in SPACED_BEFORE_PAREN)
    )
    inside = [words[i] for i in code[opened + 1 : at]]
    if starts and inside and at + 1 < len(code):
        following = words[code[at + 1]]
        named = all(w.kind is Kind.NAME or w.text in (".", "<", ">", ",") or w.kind is Kind.NUMBER for w in inside)
        value = following.kind in (Kind.NAME, Kind.NUMBER, Kind.STRING) or following.text in ("(", "{", "true", "false")
        role.cast = inside[0].text in BASE_TYPES or (named and inside[0].kind is Kind.NAME and value)


def _pragma(words: Sequence[Word], code: Sequence[int], at: int, found: list[Role]) -> None:
    """Mark the last word of a pragma, which reaches to the end of its line."""
    while at + 1 < len(code) and not words[code[at + 1]].breaks:
        at += 1
    found[code[at]].annotation = True


def _opens_types(words: Sequence[Word], code: Sequence[int], at: int) -> bool:
    """Return whether `<` begins type arguments or parameters, or a width."""
    if not at:
        return False
    before, sign = words[code[at - 1]], words[code[at]]
    if before.text in TYPE_KEYWORDS:
        return True
    if before.kind is not Kind.NAME or sign.breaks or sign.spaces:
        return False
    depth = 0
    for j in range(at, min(len(code), at + 200)):
        word = words[code[j]]
        if word.text == "<":
            depth += 1
        elif word.text == ">":
            depth -= 1
            if not depth:
                following = words[code[j + 1]] if j + 1 < len(code) else None
                return (
                    following is None
                    or following.text in ("(", "{", ",", ")", ">", ";", ".", "[")
                    or (following.kind is Kind.NAME and following.breaks + following.spaces > 0)
                )
        elif word.kind is Kind.STRING or (word.kind is Kind.OPERATOR and word.text not in _ALLOWED_IN_ANGLE):
            return False
    return False


def glues(left: str, right: str) -> bool:
    """Return whether two words without a space between them would be read as others."""
    m = _FIRST.match(left + right[:4])
    return m is None or m.group() != left


def spaced(left: Word, left_role: Role, right: Word, right_role: Role) -> bool:
    """Return whether a space belongs between two words of one line."""
    if left.text == ">" and right.text == ">" and not right_role.angle:
        return bool(right.spaces)  # a shift is two words that touch
    wanted = _wanted(left, left_role, right, right_role)
    return wanted or (left.kind not in _ENDED and glues(left.text, right.text))


def _wanted(left: Word, left_role: Role, right: Word, right_role: Role) -> bool:
    a, b = left.text, right.text
    if left.kind is Kind.OTHER or right.kind is Kind.OTHER:
        return bool(right.spaces)
    if left.kind in COMMENTS or right.kind in COMMENTS:
        return not (a in ("(", "[") and right.kind in COMMENTS) or bool(right.spaces)
    if b in (",", ";") or (b in (")", "]") and a not in ("{",)):
        return False
    if a in ("(", "[", "@") or (a == "." and b != "{"):
        return False
    if a == "{" or b == "}":
        return True
    if b == ".":
        return right_role.global_name and not left_role.unary and not (left_role.angle and a == "<")
    if left_role.unary or (left_role.angle and a == "<"):
        return False
    if right_role.angle:
        return False
    if b == ":":
        return right_role.ternary and not right_role.slice
    if a == ":":
        return not (left_role.slice and not left_role.ternary)
    if "+:" in (a, b):
        return False
    if b == "[":
        return not (_ends_value(left, left_role))
    if b == "(":
        return not _calls(left, left_role)
    if a == ")" and left_role.cast:
        return b == "="
    return True


def _ends_value(word: Word, role: Role) -> bool:
    return word.kind in (Kind.NAME, Kind.NUMBER) or word.text in (")", "]", "}", "this") or role.angle


def _calls(word: Word, role: Role) -> bool:
    """Return whether a parenthesis touches the word before it: a call, a declaration's parameters, a cast."""
    if word.kind is Kind.KEYWORD:
        return word.text not in SPACED_BEFORE_PAREN
    if word.text == ")":
        return not role.head and not role.annotation
    return word.kind is Kind.NAME or (word.text == "]" and not role.annotation) or role.angle
