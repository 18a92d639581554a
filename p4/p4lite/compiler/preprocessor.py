"""The C preprocessor in front of the P4 lexer (language specification §4.1), by pcpp, with exact positions.

`preprocess` gives the expanded text and a `SourceMap` from offsets in it back to file, line and column. Text that a
macro made is at the place where the macro was used.
"""

from __future__ import annotations

import difflib
import io
import os
import re
import tokenize
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pcpp

from p4lite.compiler.diagnostics import Reporter, plain_error
from p4lite.compiler.position import Pos
from p4lite.files import is_device

INCLUDE_DIR = Path(__file__).parent / "include"
"""Where core.p4, v1model.p4 and psa.p4 are."""

MAX_INCLUDE_DEPTH = 64
_SCAN = re.compile(
    r"(?P<line>//(?:[^\n]*\\\n)*[^\n]*)|/\*.*?\*/|(?P<message>^[ \t]*\#[ \t]*(?:error|warning)\b[^\n]*)"
    r'|(?P<string>"(?:\\.|[^"\\])*")|(?P<open>/\*)',
    re.S | re.M,
)
_BEFORE_STRING = tuple('([{,=+"')
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/|/\*", re.S)
# What the preprocessor must not see: a plane of private characters, which no token of C or P4 has.
_HIDDEN = 0xF0000
_QUOTED = _HIDDEN
_HIDE = {c: chr(_HIDDEN + c) for c in range(1, 128) if chr(c) not in '\n"'} | {ord('"'): chr(_QUOTED)}
_UNHIDE = {_HIDDEN + c: chr(c) for c in range(1, 128)} | {_QUOTED: '"'}
QUOTE = chr(_HIDDEN + ord('"'))
"""The quotes around a string of several lines, in preprocessed text."""
HIDDEN_CLASS = f"{chr(_HIDDEN)}-{chr(ord(QUOTE) - 1)}{chr(ord(QUOTE) + 1)}-{chr(_HIDDEN + 127)}"
"""Characters of hidden comments, for a class of a regular expression. Outside of strings they are white space."""
DIRECTIVES = (
    "define", "undef", "include", "if", "ifdef", "ifndef", "elif", "else", "endif", "error", "warning", "line", "pragma"
)  # fmt: skip
_ODD_LINE_ENDS = re.compile("[\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029]")
_IDENTIFIER = re.compile(r"[A-Za-z_]\w*")
_BROKEN = re.compile(r"(?<!\w)\w+(?:(?:\\\n)+\w+)+|/(?:\\\n)+[/*]|\*(?:\\\n)+/", re.ASCII)
_OTHER_ARCHITECTURES = re.compile(r"\b(psa|pna|tna|t2na|ubpf_model|ebpf_model|xdp_model|dpdk)\b")


def _scan(text: str) -> Iterator[re.Match[str]]:
    """Yield the comments, strings and messages of `text`. A stray quote opens no string of several lines."""
    at = 0
    while (m := _SCAN.search(text, at)) is not None:
        at = m.end()
        if (
            m.group("string")
            and "\n" in m.group()
            and text[max(m.start() - 1000, 0) : m.start()].rstrip()[-1:] not in _BEFORE_STRING
        ):
            at = m.start() + 1
            continue
        yield m


def hide_comments(text: str) -> str:
    """Return `text` with its strings of several lines, and what looks like a comment there, hidden from pcpp.

    pcpp accepts strings of one line only. It still expands macros and directives in such a string, as p4c does.
    """
    out: list[str] = []
    at = 0
    for m in _scan(text):
        if m.group("string") and "\n" in m.group():
            hidden = _COMMENT.sub(lambda comment: comment.group().translate(_HIDE), m.group()).replace('"', QUOTE)
            out += [text[at : m.start()], hidden]
            at = m.end()
    return "".join([*out, text[at:]])


def join_lines(text: str) -> str:
    """Return `text` with each name, number, comment mark or comment that continues on another line in one piece.

    pcpp joins lines only between tokens. Names, numbers and marks come after the line's end; of a comment the lines
    that continue it are blank. The number of lines and of characters stays.
    """
    if "\\\n" not in text:
        return text
    text = _BROKEN.sub(lambda m: "\\\n" * m.group().count("\n") + m.group().replace("\\\n", ""), text)
    out: list[str] = []
    at = 0
    for m in _scan(text):
        if m.group("line") and "\n" in m.group():
            first, rest = m.group().split("\\\n", 1)
            out += [text[at : m.start()], first, " \n", re.sub(r"[^\n]", " ", rest)]
            at = m.end()
    return "".join([*out, text[at:]])


def unhide(text: str) -> str:
    """Restore what `hide_comments` hid."""
    return text.translate(_UNHIDE)


class SourceMap:
    """Positions of the preprocessed text."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._places: list[tuple[str, int, int]] = []

    def add(self, offset: int, file: str, line: int, col: int) -> None:
        """Record that the text from `offset` on comes from this place and continues there column by column."""
        self._starts.append(offset)
        self._places.append((file, line, col))

    def pos(self, offset: int, length: int = 1) -> Pos:
        """Return the place of the character at `offset`."""
        i = bisect_right(self._starts, offset) - 1
        if i < 0:
            return Pos("", 0, 0)
        file, line, col = self._places[i]
        return Pos(file, line, col + offset - self._starts[i], length)


def read_source(path: str) -> str:
    """Return the text of a source file. Raises `CompileError` for what is not a readable UTF-8 text file."""
    try:
        if is_device(path):
            raise plain_error(path, "is a device; give a P4 source file")
        data = Path(path).read_bytes()
    except IsADirectoryError:
        raise plain_error(path, "is a directory; give a P4 source file") from None
    except OSError as e:
        raise plain_error(path, f"cannot read the source file: {e.strerror or e}") from None
    except ValueError:
        raise plain_error(repr(path), "cannot read the source file: not a file name") from None
    return decode_source(path, data)


def decode_source(path: str, data: bytes) -> str:
    """Return the text of a source file's bytes. Raises `CompileError` for what is not a UTF-8 text."""
    if b"\0" in data:
        raise plain_error(path, "is a binary file (it has NUL bytes); give P4 source text")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as e:
        raise plain_error(path, f"is not UTF-8 text (byte 0x{data[e.start]:02x} at offset {e.start})") from None
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    return _ODD_LINE_ENDS.sub(" ", text)


class _Preprocessor(pcpp.Preprocessor):  # type: ignore[misc]
    """pcpp with our diagnostics."""

    def __init__(self, reporter: Reporter) -> None:
        super().__init__()
        self.reporter = reporter
        self.line_directive = None
        self.depth = 0

    def name_of(self, path: str) -> str:
        """Return pcpp's name for a file: relative where it is below the working directory or a folder of includes."""
        whole = os.path.abspath(path)
        for pattern, replacement in self.rewrite_paths:
            name = re.sub(pattern, replacement, whole)
            if name != whole:
                return str(name)
        return whole

    def _directive_pos(self) -> Pos:
        d = self.lastdirective
        lines = self.reporter.sources.get(d.source, [])
        text = lines[d.lineno - 1] if 0 < d.lineno <= len(lines) else ""
        col = len(text) - len(text.lstrip()) + 1
        return Pos(d.source, d.lineno, col, max(1, len(text.strip())))

    def on_error(self, file: str, line: int, msg: str) -> None:
        if msg.startswith("Could not evaluate"):
            # pcpp puts the name of a Python exception here.
            msg = "Cannot evaluate the expression of this #if or #elif"
        self.reporter.error(Pos(file, line, 1), f"preprocessor: {msg[:1].lower()}{msg[1:]}".replace("\n", " "))

    def on_file_open(self, is_system_include: bool, includepath: str) -> io.StringIO:
        if not Path(includepath).is_file():
            raise FileNotFoundError(includepath)
        text = read_source(includepath)
        check_comments(self.name_of(includepath), text, self.reporter)
        return io.StringIO(hide_comments(join_lines(text)))

    def include(self, tokens: Any, original_line: Any) -> Iterable[Any]:
        if not tokens:
            self.reporter.error(self._directive_pos(), '#include needs "FILE" or <FILE>')
            return
        if self.depth >= MAX_INCLUDE_DEPTH:
            raise self.reporter.fatal(
                self._directive_pos(),
                f"#include nested deeper than {MAX_INCLUDE_DEPTH}: does a file include itself without a guard?",
            )
        self.depth += 1
        yield from super().include(tokens, original_line)
        self.depth -= 1

    def on_include_not_found(self, is_malformed: bool, is_system_include: bool, curdir: str, includepath: str) -> None:
        pos = self._directive_pos()
        if is_malformed:
            self.reporter.error(pos, '#include needs "FILE" or <FILE>')
        elif _OTHER_ARCHITECTURES.search(includepath):
            known = "p4lite compiles for v1model and psa (bmv2/psa.p4)"
            what = f"include file '{includepath}' not found: unsupported architecture, {known}"
            raise self.reporter.fatal(pos, what)
        else:
            raise self.reporter.fatal(pos, f"include file '{includepath}' not found; name its directory with -I DIR")
        raise pcpp.OutputDirective(pcpp.Action.IgnoreAndRemove)

    def on_directive_unknown(self, directive: Any, toks: Any, ifpassthru: bool, precedingtoks: Any) -> bool:
        name = directive.value
        if not _IDENTIFIER.fullmatch(name) and not name.isdigit():
            name = ""
        text = "".join(t.value for t in toks)
        if name == "error":
            self.reporter.error(self._directive_pos(), f"#error {text}")
        elif name == "warning":
            self.reporter.warning(self._directive_pos(), f"#warning {text}")
        elif name not in ("line", "pragma", "ident") and not name.isdigit():
            near = name and difflib.get_close_matches(name, DIRECTIVES, 1, 0.75)
            if near:
                hint = f"; did you mean #{near[0]}?"
                self.reporter.error(self._directive_pos(), f"unknown preprocessor directive #{name}{hint}")
            else:
                what = f"#{name} is not a preprocessor directive; it is ignored, as by p4c; a comment starts with //"
                self.reporter.warning(self._directive_pos(), what)
        return True


def check_comments(name: str, text: str, reporter: Reporter) -> None:
    """Remember the lines of a file for messages, and refuse an unterminated comment."""
    reporter.sources[name] = text.split("\n")
    text = join_lines(text)
    for m in _scan(text):
        if m.group("open"):
            line = text.count("\n", 0, m.start()) + 1
            col = m.start() - (text.rfind("\n", 0, m.start()) + 1) + 1
            raise reporter.fatal(Pos(name, line, col, 2), "unterminated comment: no '*/' after this '/*'")


def preprocess(
    path: str,
    text: str,
    include_dirs: Sequence[str],
    defines: Sequence[str],
    reporter: Reporter,
    *,
    absolute: bool = False,
) -> tuple[str, SourceMap]:
    """Expand `text`, the content of `path`. `defines` are NAME or NAME=VALUE. Raises `CompileError`.

    `absolute`: positions have absolute paths, and not such that people like to read.
    """
    cpp = _Preprocessor(reporter)
    # "FILE" is searched beside the including file first; pcpp does not know the folder of the top file.
    cpp.temp_path.insert(0, os.path.dirname(os.path.abspath(path)))
    for d in include_dirs:
        cpp.add_path(os.path.abspath(d))
    cpp.add_path(str(INCLUDE_DIR))
    if absolute:
        cpp.rewrite_paths.clear()
    # Messages look up a file's lines by pcpp's name for it; by another name they would show neither line nor caret.
    path = cpp.name_of(path)
    check_comments(path, text, reporter)
    for define in defines:
        name, eq, value = define.partition("=")
        if not _IDENTIFIER.fullmatch(name):
            raise plain_error(path, f"-D {define}: not NAME or NAME=VALUE")
        cpp.define(f"{name} {value if eq else 1}")
    out: list[str] = []
    smap = SourceMap()
    try:
        cpp.parse(hide_comments(join_lines(text)), path)
        _collect(cpp, reporter, out, smap)
    except RecursionError:
        raise reporter.fatal(Pos(path, 0, 0), "preprocessor: macros or #if expressions nested too deeply") from None
    except (
        IndexError,
        AttributeError,
        TypeError,
        KeyError,
        ValueError,
        ArithmeticError,
        SyntaxError,
        tokenize.TokenError,
    ):
        # pcpp indexes into a directive's arguments without checking that there are any.
        directive = getattr(cpp, "lastdirective", None)
        pos = cpp._directive_pos() if directive is not None else Pos(path, 0, 0)
        raise reporter.fatal(pos, "preprocessor: malformed directive") from None
    reporter.check()
    return "".join(out), smap


class _LongString:
    """The white space of a string of several lines, which may hold directives and macros.

    As in p4c's preprocessed text, a line of a directive and a skipped line are empty, and no line ends in white space:
    who counts lines in an annotation, as p4-constraints does, finds them at the same place.
    """

    def __init__(self) -> None:
        self.inside = False
        self.source = ""
        self.line = 0
        self.held = ""

    def before(self, value: str, source: str, line: int) -> str | None:
        """Return what comes before a token in the text, or None for white space that waits for the next token."""
        if not self.inside:
            self._pass(value, source, line)
            return ""
        if value.isspace() and "\n" not in value:
            self.held += value
            return None
        missing = max(0, line - self.line) if source == self.source else 0
        before = "\n" * missing + ("" if value.isspace() else self.held)
        self.held = ""
        self._pass(value, source, line)
        return before

    def _pass(self, value: str, source: str, line: int) -> None:
        self.inside ^= value.count(QUOTE) % 2 == 1
        self.source, self.line = source, line + value.count("\n")


def _collect(cpp: Any, reporter: Reporter, out: list[str], smap: SourceMap) -> None:
    offset = 0
    line_starts: dict[str, list[int]] = {}
    file, line, next_col = "", 0, 1
    run_end = -1
    long_string = _LongString()
    for tok in cpp.parser:
        value = str(tok.value)
        if not value:
            continue
        if tok.type == "CPP_LINECONT":
            value = "\n"
        if long_string.inside or QUOTE in value:
            before = long_string.before(value, tok.source, tok.lineno)
            if before is None:
                run_end = -1
                continue
            if before:
                out.append(before)
                offset += len(before)
                run_end = -1
        if tok.source != file:
            # Tokens of two files never touch.
            out.append("\n")
            offset += 1
            file, line, run_end = tok.source, 0, -1
            if file not in line_starts:
                starts = [0]
                for text_line in reporter.sources.get(file, []):
                    # pcpp strips the end of every line before it counts positions.
                    starts.append(starts[-1] + len(text_line.rstrip()) + 1)
                line_starts[file] = starts
        if tok.lineno != line:
            line, next_col, run_end = tok.lineno, 1, -1
        if getattr(tok, "expanded_from", None):
            smap.add(offset, file, line, next_col)
            run_end = -1
        else:
            starts = line_starts[file]
            col = tok.lexpos - starts[line - 1] + 1 if 0 < line <= len(starts) else next_col
            if col < 1:
                col = next_col
            # One entry for a run of tokens that stand in the output as they stand in the source.
            if run_end != offset or col != next_col:
                smap.add(offset, file, line, col)
            next_col = col + len(value)
            run_end = offset + len(value)
        out.append(value)
        offset += len(value)
        if value == "\n":
            line = 0
    out.append("\n")
