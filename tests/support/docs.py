"""What a page tells its reader to type: blocks, commands and the output that it prints for them.

A page is Markdown. Its blocks are fenced (```` ```yaml ````) or indented by four spaces; the language of one that names
none is guessed. Commands are

* every line of a block `sh`, or of an indented one whose lines begin with a program of `PROGRAMS`, comments left out;
* in a block `console`, the lines after `$ `; what follows up to the next one is what they print;
* code in running text that begins with such a program.

`<!-- not run: REASON -->` before a block says why no test runs its commands. In printed output a line `...` stands for
any lines, and `...` in a line for any text. `<!-- file: NAME -->` before a block says that the reader has saved it so.
"""

from __future__ import annotations

import ast
import dataclasses
import pathlib
import re
import shlex

import yaml

PROGRAMS = (
    *("mrclab", "p4lite", "python", "python3", "make", "pytest", "vagrant", "tshark"),
    *("pip", "git", "cd", "cp", "echo", "."),
)
"""What a command begins with, variables and `PREFIXES` before it left out."""
PREFIXES = ("sudo", "time")
LANGUAGES = {"bash": "sh", "shell": "sh", "yml": "yaml", "py": "python"}
_FENCE = re.compile(r"^( *)(`{3,}|~{3,}) *([\w+-]*)[^`]*$")
_MARK = re.compile(r"<!-- *not run: *(.*?) *-->", re.S)
_FILE = re.compile(r"<!-- *file: *([\w.-]+) *-->")
_ITEM = re.compile(r"^ {0,3}([*+-]|\d+[.)]) +")
_ASSIGNMENT = re.compile(r"([A-Z_][A-Z0-9_]*)=(.*)")
_OPERATORS = ("&&", "||", ";", "|", "&")
_PLACEHOLDER = re.compile(r"\.\.\.|[\[\]<>|]|(?<![\w$])[A-Z][A-Z_0-9]{2,}(?![\w=])|^[A-Z]$")


@dataclasses.dataclass(frozen=True)
class Block:
    """A code block: its first line's number (from 1), its text without fence and indentation, why it is not run."""

    path: pathlib.Path
    line: int
    language: str
    text: str
    reason: str | None = None
    file: str | None = None
    """The name under which the reader saves it."""

    @property
    def place(self) -> str:
        """`FILE:LINE`, for messages."""
        return f"{self.path.parent.name}/{self.path.name}:{self.line}"


@dataclasses.dataclass(frozen=True)
class Command:
    """A command line as the page has it, without its comment; several if joined by `&&`."""

    path: pathlib.Path
    line: int
    text: str
    reason: str | None = None
    inline: bool = False
    """It stands in running text."""
    output: tuple[str, ...] | None = None
    """What the page prints for it; None where it prints nothing."""

    @property
    def place(self) -> str:
        """`FILE:LINE`, for messages."""
        return f"{self.path.parent.name}/{self.path.name}:{self.line}"

    @property
    def is_synopsis(self) -> bool:
        """Return whether it has placeholders (`FILE`, `[LAB]`, `...`), so that it cannot be typed as it is."""
        return any(_PLACEHOLDER.search(word) for part in self.parts for word in [*part, *self.variables.values()])

    @property
    def parts(self) -> list[list[str]]:
        """The words of each simple command, without variables, redirections, `sudo` and `time`."""
        return [part for part, _ in self._split()]

    @property
    def variables(self) -> dict[str, str]:
        """The variables set before a command."""
        return {name: value for _, found in self._split() for name, value in found.items()}

    def _split(self) -> list[tuple[list[str], dict[str, str]]]:
        words = self.text.split() if self.inline else tokens(self.text)
        found: list[tuple[list[str], dict[str, str]]] = []
        part: list[str] = []
        skip = False
        for word in [*words, ";"]:
            if skip:
                skip = False
            elif word in _OPERATORS:
                if part:
                    found.append(_without_prefixes(part))
                part = []
            elif word in (">", ">>", "<", "2>"):
                skip = True
            else:
                part.append(word)
        return found


def _without_prefixes(words: list[str]) -> tuple[list[str], dict[str, str]]:
    variables: dict[str, str] = {}
    while words and (_ASSIGNMENT.fullmatch(words[0]) or words[0] in PREFIXES):
        if match := _ASSIGNMENT.fullmatch(words[0]):
            variables[match[1]] = match[2]
        words = words[1:]
    return words, variables


def tokens(line: str) -> list[str]:
    """Return the words and operators of a shell line without its comment."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    return list(lexer)


def without_comment(line: str) -> str:
    """Return the line up to a `#` that begins a word."""
    quote = ""
    for i, character in enumerate(line):
        if quote:
            quote = "" if character == quote else quote
        elif character in "'\"":
            quote = character
        elif character == "#" and (i == 0 or line[i - 1] == " "):
            return line[:i].rstrip()
    return line.rstrip()


def is_command(text: str) -> bool:
    """Return whether it begins with a program of ours or of a page's set-up."""
    words = _without_prefixes(text.split())[0]
    return bool(words) and (words[0] in PROGRAMS or words[0].endswith((".venv/bin/mrclab", ".venv/bin/p4lite")))


def language_of(text: str) -> str:
    """Return the language of a block that names none: sh, yaml, json, python, or text."""
    lines = [line for line in text.splitlines() if line.strip()]
    if lines and all(
        is_command(line) or line.lstrip().startswith(("#", "echo ")) for line in _joined(text) if line.strip()
    ):
        return "sh"
    if text.lstrip().startswith("{ ") or text.lstrip().startswith("{\n"):
        return "json"
    try:
        if isinstance(yaml.safe_load(text), dict) and re.match(r"[a-z_]+: ", text):
            return "yaml"
    except yaml.YAMLError:
        pass
    try:
        if any(not isinstance(node, ast.Expr) or isinstance(node.value, ast.Call) for node in ast.parse(text).body):
            return "python"
    except SyntaxError:
        pass
    return "text"


def blocks(path: pathlib.Path) -> list[Block]:
    """All code blocks of a page, in order."""
    return _scan(path)[0]


def commands(path: pathlib.Path) -> list[Command]:
    """All commands of a page, in order: those of its blocks, then those in its running text."""
    found, prose = _scan(path)
    every = [command for block in found for command in commands_of(block)]
    for match in re.finditer(r"(?<!`)`([^`]+)`(?!`)", prose):
        text = " ".join(match[1].replace("\\|", "|").split())
        if is_command(text) and len(_without_prefixes(text.split())[0]) > 1:
            every.append(Command(path, prose.count("\n", 0, match.start()) + 1, text, inline=True))
    return every


def commands_of(block: Block) -> list[Command]:
    """Return the commands of one block."""
    if block.language == "console":
        return _transcript(block)
    if block.language != "sh":
        return []
    found = []
    number = block.line
    for line in _joined(block.text):
        if text := without_comment(line.replace("\\\0", " ")).strip():
            found.append(Command(block.path, number, text, block.reason))
        number += line.count("\0") + 1
    return found


def _transcript(block: Block) -> list[Command]:
    found: list[tuple[int, str, list[str]]] = []
    for number, line in enumerate(block.text.splitlines(), block.line):
        if line.startswith("$ "):
            found.append((number, line[2:], []))
        elif not found:
            raise ValueError(f"{block.path.name}:{number}: a block `console` begins with a line `$ COMMAND`")
        elif found[-1][1].endswith("\\") and not found[-1][2]:
            found[-1] = (found[-1][0], found[-1][1][:-1] + line.lstrip(), [])
        else:
            found[-1][2].append(line)
    return [
        Command(block.path, number, without_comment(text), block.reason, output=tuple(printed))
        for number, text, printed in found
    ]


def _joined(text: str) -> list[str]:
    """Lines, those that end in a backslash with the next one (and the newline between)."""
    return text.replace("\\\n", "\\\0").splitlines()


def _scan(path: pathlib.Path) -> tuple[list[Block], str]:
    """Return the blocks of a page, and the page with all blocks blank, line by line."""
    lines = path.read_text(encoding="utf-8").splitlines()
    prose = list(lines)
    found: list[Block] = []
    marks: dict[str, str] = {}
    in_item = False
    i = 0
    while i < len(lines):
        line = lines[i]
        start = i
        fence = _FENCE.match(line)
        if fence and (in_item or len(fence[1]) < 4):
            in_item = in_item and bool(fence[1])
            i += 1
            while i < len(lines) and not re.fullmatch(rf" *{fence[2]}{fence[2][0]}* *", lines[i]):
                i += 1
            body = [each.removeprefix(fence[1]) for each in lines[start + 1 : i]]
            i += 1
            _add(found, path, start + 2, fence[3], body, marks)
        elif line.startswith("    ") and not in_item and (start == 0 or not lines[start - 1].strip()):
            while i < len(lines) and (lines[i].startswith("    ") or not lines[i].strip()):
                i += 1
            while not lines[i - 1].strip():
                i -= 1
            _add(found, path, start + 1, "", [each[4:] for each in lines[start:i]], marks)
        else:
            i += 1
            if "<!--" in line:
                while "-->" not in lines[i - 1] and i < len(lines):
                    i += 1
                text = "\n".join(lines[start:i])
                for name, pattern in (("reason", _MARK), ("file", _FILE)):
                    if match := pattern.search(text):
                        marks[name] = " ".join(match[1].split())
            elif line.strip():
                marks = {}
                in_item = bool(_ITEM.match(line)) or (in_item and line.startswith(" "))
            continue
        prose[start:i] = [""] * (i - start)
        marks = {}
    return found, "\n".join(prose)


def _add(
    found: list[Block], path: pathlib.Path, line: int, language: str, body: list[str], marks: dict[str, str]
) -> None:
    text = "".join(f"{each}\n" for each in body)
    language = LANGUAGES.get(language, language) or language_of(text)
    found.append(Block(path, line, language, text, **marks))


def difference(expected: tuple[str, ...] | list[str], printed: str) -> str | None:
    """Return the first line that a page prints and a command does not, or None if it prints what the page says.

    Empty lines at the end and spaces at the end of lines do not count.
    """
    have = [line.rstrip() for line in printed.rstrip().splitlines()]
    want = [line.rstrip() for line in "\n".join(expected).rstrip().splitlines()]
    reached = _match(want, have)
    if reached is None:
        return None
    line = want[reached] if reached < len(want) else "(nothing more)"
    return f"not printed as the page has it: {line!r}"


def _match(want: list[str], have: list[str]) -> int | None:
    """None if all lines match, else the index of the furthest wanted line that does not."""
    patterns = [None if line.strip() == "..." else _pattern(line) for line in want]
    # Positions in `have` that can be reached after each wanted line.
    reached = {0}
    for index, pattern in enumerate(patterns):
        if pattern is None:
            reached = set(range(min(reached), len(have) + 1))
        else:
            reached = {at + 1 for at in reached if at < len(have) and pattern.fullmatch(have[at])}
        if not reached:
            return index
    return None if len(have) in reached else len(want)


def _pattern(line: str) -> re.Pattern[str]:
    return re.compile(".*".join(re.escape(part) for part in line.split("...")))
