"""Calls of Thrift's binary protocol to BMv2, as far as the tests need them: arguments with their types, any answer.

Sources: the Thrift binary protocol, and behavioral-model's `standard.thrift`, `simple_pre_lag.thrift` and
`simple_switch.thrift` for what is called.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

VERSION = 0x80010000
CALL, EXCEPTION = 1, 3
TIMEOUT_S = 10.0


class Kind(IntEnum):
    """Types of the binary protocol."""

    STOP = 0
    BOOL = 2
    BYTE = 3
    DOUBLE = 4
    I16 = 6
    I32 = 8
    I64 = 10
    STRING = 11
    STRUCT = 12
    MAP = 13
    LIST = 15


FORMS = {Kind.BOOL: ">?", Kind.BYTE: ">b", Kind.DOUBLE: ">d", Kind.I16: ">h", Kind.I32: ">i", Kind.I64: ">q"}


class CallRefused(Exception):
    """The server refused a call; the text has the call, and the exception's fields."""


@dataclass(frozen=True)
class Value:
    """A value with its type: of a STRUCT the values by number of field, of a LIST the values, which have one type."""

    kind: Kind
    value: Any

    def encoded(self) -> bytes:
        """Return the bytes of the value, without its type."""
        if self.kind is Kind.STRING:
            return struct.pack(">i", len(self.value)) + bytes(self.value)
        if self.kind is Kind.STRUCT:
            return fields(self.value)
        if self.kind is Kind.LIST:
            inner = self.value[0].kind if self.value else Kind.STRING
            return struct.pack(">bi", inner, len(self.value)) + b"".join(each.encoded() for each in self.value)
        return struct.pack(FORMS[self.kind], self.value)


def fields(values: dict[int, Value]) -> bytes:
    """Return the fields of a struct."""
    head = (struct.pack(">bh", value.kind, number) + value.encoded() for number, value in values.items())
    return b"".join(head) + bytes([Kind.STOP])


def i32(value: int) -> Value:
    """Return a number of 32 bits."""
    return Value(Kind.I32, value)


def text(value: str | bytes) -> Value:
    """Return a string, or bytes."""
    return Value(Kind.STRING, value.encode() if isinstance(value, str) else value)


def record(values: dict[int, Value]) -> Value:
    """Return a struct."""
    return Value(Kind.STRUCT, values)


def items(values: Sequence[Value]) -> Value:
    """Return a list."""
    return Value(Kind.LIST, list(values))


class Client:
    """A connection to a server that multiplexes services."""

    def __init__(self, port: int) -> None:
        self._number = 0
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_S)
        self._answer = self._socket.makefile("rb")

    def close(self) -> None:
        """Close the connection."""
        self._answer.close()
        self._socket.close()

    def call(self, service: str, method: str, *arguments: Value) -> Any:
        """Call a method; return its result, structs as dicts by number of field. Raises CallRefused."""
        self._number += 1
        name = f"{service}:{method}".encode()
        head = struct.pack(">Ii", VERSION | CALL, len(name)) + name + struct.pack(">i", self._number)
        self._socket.sendall(head + fields(dict(enumerate(arguments, 1))))
        (version,) = self._unpacked(">I")
        self._read(Kind.STRING)
        self._unpacked(">i")
        result = self._read(Kind.STRUCT)
        if version & 0xFF == EXCEPTION or any(result.get(number) is not None for number in result if number):
            raise CallRefused(f"{service}:{method}: {result}")
        return result.get(0)

    def _unpacked(self, form: str) -> tuple[Any, ...]:
        return struct.unpack(form, self._answer.read(struct.calcsize(form)))

    def _read(self, kind: Kind) -> Any:
        if kind in FORMS:
            return self._unpacked(FORMS[kind])[0]
        if kind is Kind.STRING:
            return self._answer.read(self._unpacked(">i")[0])
        if kind is Kind.STRUCT:
            found = {}
            while (inner := Kind(self._unpacked(">b")[0])) is not Kind.STOP:
                (number,) = self._unpacked(">h")
                found[number] = self._read(inner)
            return found
        if kind is Kind.LIST:
            inner_kind, count = self._unpacked(">bi")
            return [self._read(Kind(inner_kind)) for _ in range(count)]
        raise CallRefused(f"an answer of the type {kind.name}, which no call of the tests has")
