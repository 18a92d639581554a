"""The formatter: one style for P4 programs, in which only white space changes.

Indentation is by four spaces for each brace; continued lines within parentheses start below what follows the
parenthesis. The author's line breaks stay, except that `{` and `else` join the line before them, and that a block of
several lines has its braces at line ends. At most one line is blank. Preprocessor lines stay as they are.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from p4lite.editor.scan import COMMENTS, Kind, Word, scan, trimmed
from p4lite.editor.spacing import Role, roles, spaced

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
