"""The encoders and decoders of MRC's data path. The build puts the text that is made here into this file's place."""

from __future__ import annotations

import linecache
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from mypy_extensions import i64

from mrc_host.proto.wire import compiled
from mrc_host.proto.wire.messages import MESSAGES, Data, Message
from mrc_host.proto.wire.signatures import Signatures

if TYPE_CHECKING:
    Encoders = Signatures

    class Decoder(Protocol):
        """The decoder of one opcode: `size` of the whole packet, 0 with a payload; `parse` makes the message."""

        size: int

        def parse(self, packet: bytes, view: bytes | memoryview, end: int, *head: Any) -> Message:
            """Parse the rest of a packet. `head`: the fields read up to BTH; `view`: the bytes that the payload is a
            slice of.
            """

    def read_head(packet: bytes) -> tuple[i64, i64, i64, bytes, i64, i64, i64, i64, i64, i64, i64, i64, i64]:
        """Return the words of `compiled.HEAD`."""

    HEAD_BYTES = SHORTEST_BYTES = ECN_AT = DSCP_AT = PAD_AT = PAD = PAD_BITS = TVER = LOW_24 = SE_BITS = FLAGS_AT = 0
    DECODERS: dict[int, Decoder]
    ENCODERS: dict[int, Callable[..., bytes]]
    parse_trimmed: Callable[..., Data]


def source(*, bytewise: bool = False) -> str:
    """Return the text of the module; `bytewise`: for the compiler."""
    return compiled.source(Signatures, MESSAGES, bytewise=bytewise)


_FILE = "<fast made from the table of headers>"
_TEXT = source()
linecache.cache[_FILE] = (len(_TEXT), None, _TEXT.splitlines(keepends=True), _FILE)
exec(compile(_TEXT, _FILE, "exec"), globals())
