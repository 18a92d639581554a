"""The formatter: one style for P4 programs, in which only white space changes.

Indentation is by four spaces for each brace; continued lines within parentheses start below what follows the
parenthesis. The author's line breaks stay, except that `{` and `else` join the line before them, and that a block of
several lines has its braces at line ends. At most one line is blank. Preprocessor lines stay as they are.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from p4lite.compiler.lexer import OPERATORS
from p4lite_tools.editor.scan import COMMENTS, Kind, Word, scan, trimmed

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


INDENT = 4
COMMENT_GAP = 2


@dataclass(slots=True)
class _Line:
    """A line of the result: the indices of its words, and blank lines before it."""

    words: list[int]
    blank: bool = False


@dataclass(slots=True)
class _Open:
    """An open bracket: the line and its indent where it was opened, and the indent of what is inside."""

    text: str
    line: int
    outer: int
    inner: int


@dataclass(slots=True)
class _State:
    """Where a line stands: open brackets, and the code word before it."""

    stack: list[_Open] = field(default_factory=list)
    last: int = -1
    #: The indent of the line on which the current statement or declaration began.
    begun: int = 0


def format_text(text: str) -> str:
    """Return the formatted source. Formatting it again changes nothing."""
    words = scan(text)
    if not words:
        return ""
    use = roles(words)
    pairs = _pairs(words)
    lines = _split(words, pairs)
    out = _Printer(words, use).print(lines)
    return "\n".join(out) + "\n"


def _pairs(words: list[Word]) -> dict[int, int]:
    """Return the partner of each bracket that has one."""
    partner: dict[int, int] = {}
    stack: list[int] = []
    opener = {")": "(", "]": "[", "}": "{"}
    for i, word in enumerate(words):
        if word.kind is not Kind.OPERATOR:
            continue
        if word.text in ("(", "[", "{"):
            stack.append(i)
        elif word.text in opener and stack and words[stack[-1]].text == opener[word.text]:
            partner[stack[-1]] = i
            partner[i] = stack.pop()
    return partner


def _split(words: list[Word], partner: dict[int, int]) -> list[_Line]:
    """Return the lines: the author's, with braces and `else` where the style has them."""
    starts = _author_breaks(words)
    # Which line a word is on decides whether a block is on one line; joining and breaking changes that once.
    number, at = [0] * len(words), 0
    for i in range(len(words)):
        at += i in starts
        number[i] = at
    ends_line = {Kind.LINE_COMMENT, Kind.DIRECTIVE}
    blocks = _blocks(words, partner)
    for i, _word in enumerate(words):
        if i in blocks and number[i] != number[partner[i]]:
            if i + 1 < len(words) and words[i + 1].kind not in COMMENTS:
                starts.add(i + 1)
            starts.add(partner[i])
    parens = 0
    braces: list[int] = []
    for i, word in enumerate(words):
        if word.kind is not Kind.OPERATOR:
            continue
        if word.text in ("(", "["):
            parens += 1
        elif word.text in (")", "]"):
            parens = max(0, parens - 1)
        elif word.text == "{":
            braces.append(i)
        elif word.text == "}" and braces:
            braces.pop()
        elif word.text == ";" and not parens and i + 1 < len(words) and words[i + 1].kind not in COMMENTS:
            inline = braces and braces[-1] in partner and number[braces[-1]] == number[partner[braces[-1]]]
            if not inline:
                starts.add(i + 1)
    # At the start of a line it would begin a directive.
    starts -= {i for i, word in enumerate(words) if word.kind is Kind.OTHER and word.text == "#"}
    lines: list[_Line] = []
    for i, word in enumerate(words):
        fresh = i in starts or word.kind is Kind.DIRECTIVE or (i > 0 and words[i - 1].kind in ends_line)
        if not lines or fresh:
            lines.append(_Line([i], blank=word.breaks > 1 and bool(lines)))
        else:
            lines[-1].words.append(i)
    return lines


def _blocks(words: list[Word], partner: dict[int, int]) -> set[int]:
    """Return the `{` that are closed and stand in no parentheses; in these, they open lists."""
    found: set[int] = set()
    ends: list[int] = []
    for i, word in enumerate(words):
        while ends and i >= ends[-1]:
            ends.pop()
        if i in partner and partner[i] > i:
            if word.text in ("(", "["):
                ends.append(partner[i])
            elif not ends:
                found.add(i)
    return found


def _author_breaks(words: list[Word]) -> set[int]:
    """Return the words that begin a line in the source, without those that join the line before."""
    starts = {i for i, word in enumerate(words) if word.breaks}
    for i in sorted(starts):
        if i == 0 or words[i - 1].kind in COMMENTS or not words[i - 1].code:
            continue
        before = words[i - 1].text
        word = words[i]
        joins_brace = word.text == "{" and before not in (";", "{", "}", ":", ",", "(")
        if word.code and (joins_brace or (word.text == "else" and before == "}")):
            starts.discard(i)
    return starts


class _Printer:
    def __init__(self, words: list[Word], use: list[Role]) -> None:
        self.words = words
        self.use = use
        self.state = _State()
        #: The state at each open `#if`, which each of its branches starts with.
        self.branches: list[_State] = []

    def print(self, lines: list[_Line]) -> list[str]:
        """Return the text of the lines."""
        out: list[str] = []
        comments: list[tuple[int, str]] = []  # (index in `out`, trailing comment), of lines that follow each other
        for number, line in enumerate(lines):
            first = self.words[line.words[0]]
            if line.blank and out and not self._tight(lines, number):
                self._align(out, comments)
                out.append("")
            if first.kind is Kind.DIRECTIVE:
                self._align(out, comments)
                self._directive(first.text)
                out.append(first.text)
                continue
            indent = self._indent(line)
            text, trailing = self._line(number, line, indent)
            out.append(text)
            if trailing is None:
                self._align(out, comments)
            else:
                comments.append((len(out) - 1, trailing))
        self._align(out, comments)
        return out

    def _tight(self, lines: list[_Line], number: int) -> bool:
        """Return whether a blank line before this one would be the first or last in a block."""
        before, here = self.words[lines[number - 1].words[-1]], self.words[lines[number].words[0]]
        return (before.text == "{" and before.code) or (here.text == "}" and here.code)

    def _align(self, out: list[str], comments: list[tuple[int, str]]) -> None:
        """Put the comments that end lines below each other."""
        if comments:
            column = max(len(out[i].rpartition("\n")[2]) for i, _ in comments) + COMMENT_GAP
            for i, comment in comments:
                last = out[i].rpartition("\n")[2]
                out[i] += " " * (column - len(last)) + comment
            comments.clear()

    def _directive(self, text: str) -> None:
        name = text[1:].split(None, 1)
        word = "".join(c for c in name[0] if c.isalpha()) if name else ""
        if word in ("if", "ifdef", "ifndef"):
            self.branches.append(self._copy())
        elif word in ("else", "elif") and self.branches:
            self.state = self.branches[-1]
            self.branches[-1] = self._copy()
        elif word == "endif" and self.branches:
            self.branches.pop()

    def _copy(self) -> _State:
        return _State(list(self.state.stack), self.state.last, self.state.begun)

    def _indent(self, line: _Line) -> int:
        """Return the columns before a line."""
        first = self.words[line.words[0]]
        stack = self.state.stack
        if first.code and first.text in (")", "]", "}"):
            # A line of closing brackets stands below the line that opened the last of them.
            closing = 0
            for i in line.words:
                if self.words[i].text not in (")", "]", "}") or not self.words[i].code:
                    break
                closing += 1
            opened = stack[-min(closing, len(stack))] if stack else None
            outer = opened.outer if opened is not None else 0
            if first.text == "}":
                self.state.begun = outer
            return outer
        inner = stack[-1].inner if stack else 0
        indent = inner + (INDENT if self._continues(first) else 0)
        if first.code and self._begins():
            self.state.begun = indent
        return indent

    def _begins(self) -> bool:
        """Return whether the next code word is the first of a statement or declaration, or of a branch of `if`."""
        stack, last = self.state.stack, self.state.last
        if last < 0 or (stack and stack[-1].text != "{"):
            return last < 0
        return self.words[last].text in (";", "{", "}", ":", "else") or self.use[last].head or self.use[last].annotation

    def _continues(self, first: Word) -> bool:
        """Return whether a line goes on with the statement of the line before."""
        if self.state.last < 0 or (self.state.stack and self.state.stack[-1].text != "{"):
            return False
        last, use = self.words[self.state.last], self.use[self.state.last]
        if last.text in (";", "{", "}", ",", ":") or use.annotation:
            return False
        if first.kind in COMMENTS:
            return False
        if first.text == "{" or (last.kind is Kind.NAME and self._bare_annotation()):
            return False
        return not self._macro()

    def _bare_annotation(self) -> bool:
        """Return whether the last word is the name of an annotation without a body."""
        return self.state.last > 0 and self.words[self.state.last - 1].text == "@"

    def _macro(self) -> bool:
        """Return whether the line before is a macro's name in capitals, perhaps with arguments, and nothing else."""
        i, depth = self.state.last, 0
        while i > 0 and (depth or self.words[i].text == ")"):
            depth += (self.words[i].text == ")") - (self.words[i].text == "(")
            i -= 1
            if not depth:
                break
        word = self.words[i]
        begins = i == 0 or word.breaks > 0 or not self.words[i - 1].code
        return word.kind is Kind.NAME and word.text.isupper() and len(word.text) > 1 and begins

    def _line(self, number: int, line: _Line, indent: int) -> tuple[str, str | None]:
        """Return the text of a line without the comment that ends it, and that comment."""
        words, use = self.words, self.use
        text = " " * indent
        indices = list(line.words)
        trailing = None
        if len(indices) > 1 and words[indices[-1]].kind in COMMENTS and "\n" not in words[indices[-1]].text:
            trailing = trimmed(words[indices.pop()].text)
        previous = -1
        for position, i in enumerate(indices):
            word = words[i]
            if previous >= 0 and spaced(words[previous], use[previous], word, use[i]):
                text += " "
            last_of_line = position + 1 == len(indices)
            if word.code:
                self._bracket(word, number, indent, len(text) + 1, last_of_line)
                self.state.last = i
            if word.kind is Kind.BLOCK_COMMENT:
                text += self._comment(word.text, indent)
            else:
                text += trimmed(word.text) if word.kind is Kind.LINE_COMMENT else word.text
            previous = i
        return text, trailing

    def _bracket(self, word: Word, number: int, indent: int, after: int, last_of_line: bool) -> None:
        stack = self.state.stack
        if word.kind is not Kind.OPERATOR:
            return
        if word.text in (")", "]", "}"):
            if stack:
                stack.pop()
            return
        if word.text not in ("(", "[", "{"):
            return
        within = stack[-1] if stack else None
        if word.text == "{" and (within is None or within.text == "{"):
            # A block, whatever the column where the parameters before it end.
            outer = within.inner if within is not None and within.line == number else self.state.begun
            stack.append(_Open("{", number, outer, outer + INDENT))
            return
        base = within.inner if within is not None and within.line == number and within.text != "{" else indent
        column = after + 1 if word.text == "{" else after
        kind = "(" if word.text == "{" else word.text
        stack.append(_Open(kind, number, indent, base + INDENT if last_of_line else column))

    def _comment(self, text: str, indent: int) -> str:
        """Return a comment of several lines, of which those that begin with a star stand below the first star.

        A comment that is drawn as a box stays as it is.
        """
        lines = [line.rstrip() for line in text.split("\n")]
        if any(line.lstrip().startswith("**") for line in lines[1:]):
            return "\n".join(lines)
        for i in range(1, len(lines)):
            bare = lines[i].strip()
            lines[i] = " " * (indent + 1) + bare if bare.startswith("*") else lines[i]
        return "\n".join(lines)
