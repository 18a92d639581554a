"""The stream of states: a reader that is slow finds the newest one, not a queue of old ones."""

from __future__ import annotations

import json
import socket
import time

from mrc_topo.labfile import load_lab
from mrclab.web.hub import Hub
from mrclab.web.server import Serving
from mrclab.web.state import calm, layout_of
from support.web import served

MANY = 600
#: Each state; all of them are more than the kernel keeps for a connection.
PADDING = "x" * 20_000


def connect(serving: Serving, buffer: int) -> socket.socket:
    """Return a connection that has asked for the stream."""
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
    made.connect(("127.0.0.1", serving.port))
    made.sendall(
        f"GET /api/stream HTTP/1.1\r\nHost: 127.0.0.1:{serving.port}\r\n"
        f"Authorization: Bearer {serving.token}\r\n\r\n".encode()
    )
    return made


def numbers(data: bytes) -> list[int]:
    """Of the states in a stream."""
    found = []
    for part in data.split(b"event: state\ndata: ")[1:]:
        found.append(json.loads(part.split(b"\n", 1)[0])["number"])
    return found


def test_a_slow_reader_gets_the_newest_state_and_holds_nobody_back() -> None:
    hub = Hub()
    layout = layout_of(load_lab("tiny"), "lab", clock="real", transport="mrc", began_ns=0, can=[])
    hub.show(layout)
    with served(hub) as serving, connect(serving, 4096) as slow:
        began = time.monotonic()
        for number in range(1, MANY + 1):
            hub.publish({**calm(layout, number), "problem": PADDING})
            time.sleep(0.001)
        assert time.monotonic() - began < 60  # whoever publishes waits for nobody
        slow.settimeout(30)
        data = b""
        while f'"number":{MANY},'.encode() not in data[-30_000:]:
            more = slow.recv(1 << 20)
            assert more
            data += more
    # The last one may be cut off.
    seen = numbers(data.rpartition(b"event: ")[0])
    assert seen == sorted(seen)
    assert 0 < len(seen) < MANY // 2, len(seen)
    assert len(data) < MANY * len(PADDING) / 2
