"""Tries the tunnels of a lab before anything uses them: datagrams in both directions of each.

Both ends of a tunnel do this at the same time. A datagram says which end sent it, and whether that end has heard the
other; an end is content once it has heard that it was heard. The token is made for each `up` and is no secret: the
tunnels' own key is never sent through them.
"""

from __future__ import annotations

import contextlib
import select
import socket
import time
from collections.abc import Mapping

#: The seconds after which an end that has received nothing reports this: both slices are prepared, so only the network
#: can be the cause.
PROBE_S = 10.0
EVERY_S = 0.1
MAGIC = b"mrclab tunnel probe "
#: Datagrams larger than this are not probes.
LARGEST = 256
#: The number of answers that a satisfied end still sends, because its last one may be lost.
LAST_WORDS = 3


def _word(token: str, heard: bool) -> bytes:
    return MAGIC + token.encode() + (b" heard" if heard else b" silent")


def probe(sockets: Mapping[str, socket.socket], token: str, seconds: float = PROBE_S) -> list[str]:
    """Send probes through each tunnel, and receive those of the other end.

    Args:
        sockets: the tunnels' ends here, connected and non-blocking, by link.
        token: the same at both ends.
        seconds: the longest time of the test.

    Returns:
        The links through which nothing has come from the other end, in order.
    """
    heard: set[str] = set()
    content: set[str] = set()
    by_socket = {each.fileno(): link for link, each in sockets.items()}
    ends = time.monotonic() + seconds
    while len(content) < len(sockets) and time.monotonic() < ends:
        for link, each in sockets.items():
            _send(each, _word(token, link in heard))
        ready, _, _ = select.select(list(sockets.values()), [], [], EVERY_S)
        for each in ready:
            link = by_socket[each.fileno()]
            for datagram in _waiting(each):
                if datagram == _word(token, True):
                    content.add(link)
                    heard.add(link)
                elif datagram == _word(token, False):
                    heard.add(link)
        # It does not send again at once, because the answers are on their way.
        time.sleep(0.01)
    for _ in range(LAST_WORDS):
        for link, each in sockets.items():
            _send(each, _word(token, link in heard))
    return [link for link in sockets if link not in heard]


def drain(sockets: Mapping[str, socket.socket]) -> None:
    """Discard late probes, so that they do not reach a switch."""
    for each in sockets.values():
        _waiting(each)


def _send(each: socket.socket, word: bytes) -> None:
    # An earlier datagram was refused (ICMP), or there is no room in the kernel: the next one is sent all the same.
    with contextlib.suppress(OSError):
        each.send(word)


def _waiting(each: socket.socket) -> list[bytes]:
    """Return all datagrams that have arrived."""
    found = []
    refusals = 0
    while refusals < LAST_WORDS:
        try:
            found.append(each.recv(LARGEST))
        except BlockingIOError:
            break
        except OSError:
            refusals += 1  # each reports an error of the socket once
    return found
