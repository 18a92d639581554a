"""The words of a P4 source as it is written: with comments, preprocessor lines and line breaks.

The compiler's lexer sees the text after preprocessing; an editor works on what is in the file.
"""

from __future__ import annotations

import re
from enum import Enum
from typing import NamedTuple

from p4lite.compiler.lexer import KEYWORDS, OPERATORS


class Kind(Enum):
    """What a word is."""

    NAME = "name"
    KEYWORD = "keyword"
    NUMBER = "number"
    STRING = "string"
    OPERATOR = "operator"
    LINE_COMMENT = "line comment"
    BLOCK_COMMENT = "block comment"
    DIRECTIVE = "directive"
    OTHER = "other"


COMMENTS = frozenset({Kind.LINE_COMMENT, Kind.BLOCK_COMMENT})


class Word(NamedTuple):
    """A word of the source; `offset` in characters, `breaks` line breaks and `spaces` other white space before it."""

    kind: Kind
    text: str
    offset: int
    breaks: int
    spaces: int

    @property
    def code(self) -> bool:
        """Whether the compiler sees it as a token."""
        return self.kind not in COMMENTS and self.kind is not Kind.DIRECTIVE


_OPERATOR = "|".join(re.escape(o) for o in sorted(OPERATORS, key=len, reverse=True))
_WORD = re.compile(
    rf"""
      (?P<space>\s+)
    | (?P<line_comment>//(?:[^\\\n]|\\(?:\r?\n)?)*)
    | (?P<block_comment>/\*.*?(?:\*/|\Z))
    | (?P<name>[A-Za-z_][A-Za-z0-9_]*)
    | (?P<number>[0-9][0-9a-zA-Z_]*)
    | (?P<string>"(?:[^"\\\n]|\\.)*(?:"|(?=\n)|\Z))
    | (?P<operator>{_OPERATOR})
    | (?P<other>.)
    """,
    re.X | re.S,
)
_DIRECTIVE = re.compile(r"[ \t]*#(?:/\*.*?\*/|[^\\\n]|\\(?:\r?\n)?)*", re.S)


def trimmed(text: str) -> str:
    """Return a directive or a line comment without white space at its end that means nothing.

    A backslash at the end of a line joins the next one; one that is followed by a space does not.
    """
    bare = text.rstrip()
    if not bare.endswith("\\"):
        return bare
    rest = text[len(bare) :]
    return bare + "\n" if not rest or rest[0] in "\r\n" else text


def scan(text: str) -> list[Word]:
    """Return the words of `text`; an unfinished string or comment ends with its line or the text."""
    words: list[Word] = []
    offset = breaks = spaces = 0
    fresh = True
    while offset < len(text):
        directive = _DIRECTIVE.match(text, offset) if fresh else None
        if directive is not None:
            start = offset + len(directive[0]) - len(directive[0].lstrip())
            words.append(Word(Kind.DIRECTIVE, trimmed(directive[0].lstrip()), start, breaks, spaces))
            offset, breaks, spaces, fresh = directive.end(), 0, 0, False
            continue
        m = _WORD.match(text, offset)
        assert m is not None, "the last alternative matches any character"
        value, group = m.group(), m.lastgroup
        if group == "space":
            newlines = value.count("\n")
            breaks += newlines
            spaces += len(value)
            offset = m.end()
            if newlines:
                # A '#' that begins a line begins a directive; what stands before it on the line is white space.
                offset = text.rfind("\n", 0, offset) + 1
                fresh = True
                blank = re.compile(r"[^\S\n]*").match(text, offset)
                if blank is not None and not text.startswith("#", blank.end()):
                    offset, fresh = blank.end(), False
            continue
        kind = Kind(str(group).replace("_", " "))
        if kind is Kind.NAME and value in KEYWORDS:
            kind = Kind.KEYWORD
        words.append(Word(kind, value, offset, breaks, spaces))
        offset, breaks, spaces, fresh = m.end(), 0, 0, False
    return words


def same_code(one: str, other: str) -> bool:
    """Return whether two sources differ in white space only: equal tokens, comments and preprocessor lines.

    White space inside comments and directives may differ at the ends of their lines and before continued ones.
    """
    return [(w.kind, _plain(w)) for w in scan(one)] == [(w.kind, _plain(w)) for w in scan(other)]


def _plain(word: Word) -> str:
    if word.kind in COMMENTS or word.kind is Kind.DIRECTIVE:
        return "\n".join(line.strip() for line in word.text.splitlines())
    return word.text
