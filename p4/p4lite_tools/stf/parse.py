"""Reads the STF language: one statement a line, keywords in any case, `#` starts a comment.

A line that starts with no keyword continues the line before it. The grammar is that of p4c's STF and of
its BMv2 runner, which hands `mirroring_*`, `mc_*`, `counter_*`, `register_*` and `meter_*` through to the
switch's command line.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from p4lite.errors import P4liteError
from p4lite_tools.commands import parse_number

COMMANDS = frozenset(
    (
        "mirroring_add",
        "mirroring_add_mc",
        "mirroring_delete",
        "mirroring_get",
        "mc_mgrp_create",
        "mc_mgrp_destroy",
        "mc_node_create",
        "mc_node_update",
        "mc_node_associate",
        "mc_node_dissociate",
        "mc_node_destroy",
        "counter_read",
        "counter_write",
        "counter_reset",
        "register_read",
        "register_write",
        "register_reset",
        "meter_get_rates",
        "meter_set_rates",
        "meter_array_set_rates",
    )
)
KEYWORDS = COMMANDS | frozenset(
    ("add", "check_counter", "expect", "no_packet", "packet", "remove", "setdefault", "wait", "bytes", "packets")
)
NUMBER = r"0[xX][0-9a-fA-F*]+|0[bB][01*]+|0[oO][0-7*]+|[0-9]+"
NAME = r"[A-Za-z_$][A-Za-z_$0-9]*(?:\[[0-9]+\])?(?:\.[A-Za-z_$0-9]+(?:\[[0-9]+\])?)*"
_TOKEN = re.compile(
    rf'\s*(?:(?P<str>"[^"]+")|(?P<num>{NUMBER})|(?P<name>{NAME})'
    r"|(?P<op>==|!=|<=|>=|&&&|->|[:,()/=<>.\[\]-]))"
)
_WORD = re.compile(r"\s*([A-Za-z_]+)")
Args = tuple[tuple[str, str], ...]


class StfError(P4liteError):
    """A statement that cannot be read or used; the text starts with `file:line:`."""

    code = "bad_test"


@dataclass(frozen=True, slots=True)
class StfPacket:
    """`packet PORT hex…`: inject `data` on `port`."""

    line: int
    port: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Expect:
    """`expect PORT [pattern[$]]`: the next packet of `port`.

    `pattern` is hex digits with `*` for any nibble, or None for any content; `exact` asks for its length too.
    """

    line: int
    port: int
    pattern: str | None
    exact: bool


@dataclass(frozen=True, slots=True)
class NoPacket:
    """`no_packet`: the packets injected since the last check came out nowhere."""

    line: int


@dataclass(frozen=True, slots=True)
class Add:
    """`add TABLE [priority] key:value… action(arg:value, …) [= id]`."""

    line: int
    table: str
    priority: int | None
    keys: Args
    action: str
    args: Args
    ident: str | None


@dataclass(frozen=True, slots=True)
class SetDefault:
    """`setdefault TABLE action(arg:value, …)`."""

    line: int
    table: str
    action: str
    args: Args


@dataclass(frozen=True, slots=True)
class Remove:
    """`remove all` (ident None) or `remove id`: take entries out of the tables."""

    line: int
    ident: str | None


@dataclass(frozen=True, slots=True)
class CheckCounter:
    """`check_counter NAME(index or id) [packets|bytes op number]`."""

    line: int
    counter: str
    index: str
    kind: str | None
    op: str
    number: int


@dataclass(frozen=True, slots=True)
class Wait:
    """`wait`: let a second of virtual time pass."""

    line: int


@dataclass(frozen=True, slots=True)
class Command:
    """A statement in the words of BMv2's command line, such as `mc_mgrp_create 1`."""

    line: int
    verb: str
    args: tuple[str, ...]


Statement = StfPacket | Expect | NoPacket | Add | SetDefault | Remove | CheckCounter | Wait | Command


def parse_stf(text: str, filename: str = "<stf>") -> list[Statement]:
    """Return the statements of an STF text, in order; raises StfError with `filename:line: what`."""
    return [_Line(line, body, filename).statement() for line, body in _logical_lines(text, filename)]


def _logical_lines(text: str, filename: str) -> list[tuple[int, str]]:
    lines: list[tuple[int, str]] = []
    for number, raw in enumerate(text.splitlines(), 1):
        body = raw.split("#", 1)[0].rstrip()
        if not body.strip():
            continue
        word = _WORD.match(body)
        if word and word[1].lower() in KEYWORDS:
            lines.append((number, body))
        elif lines:
            lines[-1] = (lines[-1][0], lines[-1][1] + " " + body)
        else:
            raise StfError(
                f"{filename}:{number}: '{body.split()[0]}' starts no STF statement; known: "
                + ", ".join(sorted(KEYWORDS - {"bytes", "packets"}))
            )
    return lines


class _Line:
    """A recursive-descent reader over one logical line."""

    def __init__(self, line: int, body: str, filename: str) -> None:
        self.line, self.filename = line, filename
        word = _WORD.match(body)
        assert word is not None
        self.keyword = word[1].lower()
        self.rest = body[word.end() :]
        self.tokens: list[tuple[str, str]] = []
        self.at = 0

    def fail(self, what: str) -> StfError:
        return StfError(f"{self.filename}:{self.line}: {self.keyword}: {what}")

    def statement(self) -> Statement:
        if self.keyword in ("packet", "expect"):
            return self.packet_or_expect()
        if self.keyword in COMMANDS:
            return Command(self.line, self.keyword, tuple(re.sub(r"\s*:\s*", ":", self.rest).split()))
        self.tokenize()
        methods: dict[str, Callable[[], Statement]] = {
            "add": self.add,
            "setdefault": self.setdefault,
            "remove": self.remove,
            "check_counter": self.check_counter,
            "wait": self.wait,
            "no_packet": self.no_packet,
        }
        method = methods.get(self.keyword)
        if method is None:
            raise self.fail("starts no statement")
        result = method()
        if self.at < len(self.tokens):
            raise self.fail(f"'{self.tokens[self.at][1]}' is left over at the end")
        return result

    # -- packets -----------------------------------------------------------------------------------------

    def packet_or_expect(self) -> StfPacket | Expect:
        words = self.rest.split()
        if not words or not words[0].isdigit():
            raise self.fail("needs a port number first")
        port = int(words[0])
        data = "".join(words[1:]).upper()
        allowed = "0123456789ABCDEF" if self.keyword == "packet" else "0123456789ABCDEF*$"
        for char in data:
            if char not in allowed:
                raise self.fail(f"'{char}' is not a hex digit" + (" or wildcard" if "*" in allowed else ""))
        if self.keyword == "packet":
            if len(data) % 2:
                raise self.fail(f"{len(data)} hex digits make no whole number of bytes")
            return StfPacket(self.line, port, bytes.fromhex(data))
        exact = data.endswith("$")
        data = data.removesuffix("$")
        if "$" in data:
            raise self.fail("'$' stands only at the end")
        return Expect(self.line, port, data if data or exact else None, exact)

    # -- tokens ------------------------------------------------------------------------------------------

    def tokenize(self) -> None:
        at = 0
        text = self.rest.rstrip()
        while at < len(text):
            found = _TOKEN.match(text, at)
            if not found:
                raise self.fail(f"cannot read '{text[at:].strip()}'")
            kind = str(found.lastgroup)
            value = found[kind]
            self.tokens.append(("name", value[1:-1]) if kind == "str" else (kind, value))
            at = found.end()

    def peek(self, offset: int = 0) -> tuple[str, str]:
        where = self.at + offset
        return self.tokens[where] if where < len(self.tokens) else ("end", "end of line")

    def take(self, kind: str, what: str, value: str | None = None) -> str:
        got = self.peek()
        if got[0] != kind or (value is not None and got[1] != value):
            raise self.fail(f"expected {what}, got '{got[1]}'")
        self.at += 1
        return got[1]

    def qualified(self) -> str:
        return self.take("name", "a name")

    # -- statements --------------------------------------------------------------------------------------

    def add(self) -> Add:
        table = self.qualified()
        priority = int(self.take("num", "a priority")) if self.peek()[0] == "num" else None
        keys: list[tuple[str, str]] = []
        while self.peek(1)[1] == ":":
            name = self.qualified()
            self.take("op", "':'", ":")
            keys.append((name, self.key_value()))
        action, args = self.action()
        ident = None
        if self.peek() == ("op", "="):
            self.at += 1
            ident = self.qualified()
        return Add(self.line, table, priority, tuple(keys), action, args, ident)

    def key_value(self) -> str:
        value = self.take("num", "a key value")
        if self.peek()[1] in ("/", "&&&", "->"):
            value += self.take("op", "an operator") + self.take("num", "a number")
        return value

    def action(self) -> tuple[str, Args]:
        name = self.qualified()
        self.take("op", "'('", "(")
        args: list[tuple[str, str]] = []
        while self.peek()[1] != ")":
            if args:
                self.take("op", "',' or ')'", ",")
            arg = self.qualified()
            self.take("op", "':'", ":")
            args.append((arg, self.take("num", "a number")))
        self.at += 1
        return name, tuple(args)

    def setdefault(self) -> SetDefault:
        table = self.qualified()
        action, args = self.action()
        return SetDefault(self.line, table, action, args)

    def remove(self) -> Remove:
        ident = self.take("name", "'all' or the id of an entry")
        return Remove(self.line, None if ident.lower() == "all" else ident)

    def check_counter(self) -> CheckCounter:
        counter = self.qualified()
        self.take("op", "'('", "(")
        kind, index = self.peek()
        if kind not in ("num", "name"):
            raise self.fail(f"expected an index or an entry's id, got '{index}'")
        self.at += 1
        self.take("op", "')'", ")")
        if self.peek()[0] == "end":
            return CheckCounter(self.line, counter, index, None, "==", 0)
        unit = self.take("name", "'packets' or 'bytes'").lower()
        if unit not in ("packets", "bytes"):
            raise self.fail(f"expected 'packets' or 'bytes', got '{unit}'")
        operator = self.take("op", "a comparison")
        if operator not in ("==", "!=", "<", "<=", ">", ">="):
            raise self.fail(f"'{operator}' is not a comparison")
        number = parse_number(self.take("num", "a number"))
        return CheckCounter(self.line, counter, index, unit, operator, number)

    def wait(self) -> Wait:
        return Wait(self.line)

    def no_packet(self) -> NoPacket:
        return NoPacket(self.line)
