"""Calls to BMv2's Thrift interface, which alone sets its queues: Thrift's binary protocol, as far as these need it.

Method names, arguments and the multiplexed service are those of behavioral-model's `simple_switch.thrift`.
"""

from __future__ import annotations

import socket
import struct

SERVICE = "simple_switch"
VERSION = 0x80010000
CALL, REPLY = 1, 2
STOP, I32, I64, STRING = 0, 8, 10, 11
NAME_BYTES = 1 << 12
TIMEOUT_S = 10.0


class ThriftError(Exception):
    """A switch that does not answer, or refuses a call; the text names the call."""


class SimpleSwitch:
    """The Thrift client of one simple_switch. A context manager.

    Args:
        address: host and port.

    Raises:
        ThriftError: no server listens.
    """

    def __init__(self, address: tuple[str, int]) -> None:
        self._number = 0
        try:
            self._socket = socket.create_connection(address, timeout=TIMEOUT_S)
        except OSError as error:
            raise ThriftError(f"no Thrift server at {address[0]}:{address[1]}: {error.strerror}") from error
        self._answer = self._socket.makefile("rb")

    def __enter__(self) -> SimpleSwitch:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self._answer.close()
        self._socket.close()

    def set_queue_rate(self, port: int, priority: int, packets_per_s: int) -> None:
        """Limit the packets per second that leave one queue of a port (0: no limit)."""
        fields = ((I32, port), (I32, priority), (I64, packets_per_s))
        self._set("set_egress_priority_queue_rate", *fields)

    def set_queue_depth(self, port: int, packets: int) -> None:
        """Limit the packets that each queue of a port holds."""
        self._set("set_egress_queue_depth", (I32, port), (I32, packets))

    def _set(self, method: str, *fields: tuple[int, int]) -> None:
        answer = self.call(method, *fields)
        if answer != 0:
            raise ThriftError(f"{method}: the switch answers {answer}")

    def call(self, method: str, *fields: tuple[int, int]) -> int:
        """Call a method that takes integers, (type, value) by position, and return one.

        Raises:
            ThriftError: it is refused, or the connection breaks.
        """
        self._number += 1
        name = f"{SERVICE}:{method}".encode()
        message = struct.pack(">II", VERSION | CALL, len(name)) + name + struct.pack(">I", self._number)
        for number, (kind, value) in enumerate(fields, 1):
            message += struct.pack(">BHi" if kind == I32 else ">BHq", kind, number, value)
        try:
            self._socket.sendall(message + bytes([STOP]))
            return self._result(method)
        except (OSError, struct.error) as error:
            raise ThriftError(f"{method}: the switch does not answer ({error})") from error

    def _read(self, form: str) -> tuple[int, ...]:
        size = struct.calcsize(form)
        return struct.unpack(form, self._answer.read(size))

    def _result(self, method: str) -> int:
        version, length = self._read(">II")
        if version & 0xFFFF0000 != VERSION or length > NAME_BYTES:
            raise ThriftError(f"{method}: no answer of Thrift's binary protocol")
        self._answer.read(length)
        (number,) = self._read(">I")
        if number != self._number:
            raise ThriftError(f"{method}: the answer to another call")
        found: int | None = None
        text = ""
        while (kind := self._read(">B")[0]) != STOP:
            (field,) = self._read(">H")
            if kind == I32:
                (value,) = self._read(">i")
                found = value if field == 0 else found
            elif kind == I64:
                (value,) = self._read(">q")
                found = value if field == 0 else found
            elif kind == STRING:
                text = self._answer.read(self._read(">I")[0]).decode(errors="replace")
            else:
                raise ThriftError(f"{method}: an answer of type {kind}, which no call here has")
        if version & 0xFF != REPLY or found is None:
            raise ThriftError(f"{method}: {text or 'refused'}")
        return found
