"""The stream between keeper and part: connections arrive whole, at once, and none disturbs another."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mrc_machines.stream import GREETING, HEAD, LARGEST, MESSAGE, OPEN, StreamBroken, StreamEnd

WAIT_S = 120.0


class Ends:
    """Two ends that are joined; `reached` are the sockets that connections lead to there, by role."""

    def __init__(self) -> None:
        self.heard: list[Mapping[str, Any]] = []
        self.came = threading.Condition()
        self.reached: dict[str, socket.socket] = {}
        there, here = os.pipe(), os.pipe()
        self.pipes = [*there, *here]
        self.keeper = StreamEnd(here[0], there[1], self.hear)
        self.part = StreamEnd(there[0], here[1], self.hear, self.opened)
        self.threads = [threading.Thread(target=each.listen, daemon=True) for each in (self.keeper, self.part)]
        for thread in self.threads:
            thread.start()

    def hear(self, message: Mapping[str, Any]) -> None:
        with self.came:
            self.heard.append(message)
            self.came.notify_all()

    def opened(self, role: str) -> socket.socket:
        if role.startswith("no"):
            raise FileNotFoundError(role)
        ours, theirs = socket.socketpair()
        ours.settimeout(WAIT_S)
        with self.came:
            self.reached[role] = ours
            self.came.notify_all()
        return theirs

    def connect(self, role: str) -> socket.socket:
        """Our end of a new connection."""
        ours, theirs = socket.socketpair()
        ours.settimeout(WAIT_S)
        self.keeper.connect(role, theirs)
        return ours

    def there(self, role: str) -> socket.socket:
        with self.came:
            assert self.came.wait_for(lambda: role in self.reached, WAIT_S)
            return self.reached[role]


@contextlib.contextmanager
def ends() -> Iterator[Ends]:
    made = Ends()
    try:
        yield made
    finally:
        made.keeper.shut()
        made.part.shut()
        for each in made.pipes[1::2]:
            os.close(each)
        for thread in made.threads:
            thread.join(WAIT_S)
        for each in made.pipes[::2]:
            os.close(each)


def read(connection: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        more = connection.recv(1 << 16)
        assert more
        data += more
    return data


def send(connection: socket.socket, data: bytes) -> threading.Thread:
    thread = threading.Thread(target=connection.sendall, args=(data,))
    thread.start()
    return thread


def test_messages_and_connections_go_both_ways() -> None:
    with ends() as both:
        both.keeper.send(do="this")
        both.part.send(said="that")
        ours = both.connect("h0")
        theirs = both.there("h0")
        big = os.urandom(3 << 20)
        for sender, receiver in ((ours, theirs), (theirs, ours)):
            thread = send(sender, big)
            assert read(receiver, len(big)) == big
            thread.join()
        with both.came:
            assert both.came.wait_for(lambda: len(both.heard) == 2, WAIT_S)
        assert sorted(map(str, both.heard)) == ["{'do': 'this'}", "{'said': 'that'}"]


@given(st.lists(st.tuples(st.integers(0, 3), st.booleans(), st.binary(min_size=1, max_size=300)), max_size=30))
@settings(max_examples=20)
def test_what_is_said_on_one_connection_arrives_there_in_order(steps: list[tuple[int, bool, bytes]]) -> None:
    with ends() as both:
        pairs = [(both.connect(f"h{index}"), both.there(f"h{index}")) for index in range(4)]
        for index, forth, data in steps:
            pairs[index][0 if forth else 1].sendall(data)
        for index, pair in enumerate(pairs):
            for way in (True, False):
                wanted = b"".join(data for at, forth, data in steps if (at, forth) == (index, way))
                assert read(pair[1 if way else 0], len(wanted)) == wanted
        for ours, theirs in pairs:
            ours.close()
            assert theirs.recv(1) == b""
            theirs.close()


def test_one_that_nobody_reads_holds_up_no_other() -> None:
    with ends() as both:
        deaf, other = both.connect("h0"), both.connect("h1")
        both.there("h0")
        thread = send(deaf, bytes(8 << 20))
        other.sendall(b"hello")
        assert read(both.there("h1"), 5) == b"hello"
        assert read(both.there("h0"), 8 << 20) == bytes(8 << 20)
        thread.join(WAIT_S)


def test_what_cannot_be_reached_and_what_goes_away_is_closed() -> None:
    with ends() as both:
        assert both.connect("nobody").recv(1) == b""
        ours = both.connect("h0")
        both.there("h0").sendall(b"last words")
        both.there("h0").close()
        assert read(ours, 10) == b"last words"
        assert ours.recv(1) == b""


def test_with_the_stream_its_connections_end() -> None:
    with ends() as both:
        ours = both.connect("h0")
        theirs = both.there("h0")
        both.part.shut()
        os.close(both.pipes[3])  # the part's way to the keeper
        assert ours.recv(1) == b""
        both.pipes[3] = os.open(os.devnull, os.O_WRONLY)
        theirs.close()


def said(data: bytes) -> StreamEnd:
    """Return the keeper's end of a stream on which exactly this was said."""
    source, sink = os.pipe()
    threading.Thread(target=lambda: (os.write(sink, data), os.close(sink)), daemon=True).start()
    return StreamEnd(source, os.open(os.devnull, os.O_WRONLY), lambda message: None)


def frame(kind: int, payload: bytes, length: int | None = None) -> bytes:
    return HEAD.pack(kind, 1, len(payload) if length is None else length) + payload


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (frame(9, b""), "not a stream"),
        (frame(MESSAGE, b"", LARGEST + 1), "not a stream"),
        (frame(MESSAGE, b"{"), "not JSON"),
        (frame(MESSAGE, b"[1]"), "not an object"),
        (frame(OPEN, b"h0"), "not its to do"),
        (b"Last login: today\r\n" * 3, "not a stream"),
    ],
)
def test_what_is_no_stream_is_said_to_be_none(data: bytes, words: str) -> None:
    with pytest.raises(StreamBroken, match=words):
        said(data).listen()


@given(st.binary(max_size=200))
@settings(max_examples=50)
def test_any_bytes_are_a_stream_or_none(data: bytes) -> None:
    with contextlib.suppress(StreamBroken):
        said(data).listen()


def test_what_a_login_says_is_skipped_and_what_is_no_part_is_told() -> None:
    line = said(b"Welcome!\n" + GREETING + frame(MESSAGE, b"{}"))
    line.await_greeting()
    line.listen()
    with pytest.raises(StreamBroken, match="it says: sh: 1: mrclab: not found"):
        said(b"sh: 1: mrclab: not found\n").await_greeting()
    with pytest.raises(StreamBroken, match=r"^$"):
        said(b"").await_greeting()
