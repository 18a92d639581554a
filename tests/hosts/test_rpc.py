"""Control sockets: verbs with typed requests and answers, errors with errno and code, and what cuts an exchange off."""

from __future__ import annotations

import errno
import json
import os
import pathlib
import signal
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pytest

from mrc_topo.base import rpc
from mrc_topo.base.errors import ErrorCode
from mrc_topo.base.plain import DecodeError
from mrclab.lab.hosts.hostclient import HostClient, HostError, ask_all


@dataclass(frozen=True)
class Sum:
    total: int


@dataclass(frozen=True)
class Add(rpc.Request[Sum], verb="add"):
    numbers: list[int]


@dataclass(frozen=True)
class Refuse(rpc.Request[rpc.Done], verb="refuse"):
    number: int


@dataclass(frozen=True)
class Fail(rpc.Request[rpc.Done], verb="fail"):
    pass


@dataclass(frozen=True)
class Wrong(rpc.Request[Sum], verb="wrong"):
    pass


def refuse(request: Refuse, now: int) -> rpc.Done:
    raise rpc.RefusedError("not now", request.number)


@pytest.fixture
def path(tmp_path: pathlib.Path) -> Iterator[pathlib.Path]:
    """Yield a server in a thread."""
    verbs, loop, ended = rpc.Verbs(), rpc.SelectLoop(), threading.Event()
    verbs.add(Add, lambda request, now: Sum(sum(request.numbers)))
    verbs.add(Refuse, refuse)
    verbs.add(Fail, lambda request, now: 1 / 0)
    verbs.add(Wrong, lambda request, now: {"total": "much"})
    server = rpc.Server(tmp_path / "s", loop, verbs, limit=1 << 16)

    def serve() -> None:
        while not ended.is_set():
            loop.run(0.02)

    thread = threading.Thread(target=serve)
    thread.start()
    yield tmp_path / "s"
    ended.set()
    thread.join()
    server.close()
    loop.close()
    assert not (tmp_path / "s").exists()


def test_requests_that_are_begun_are_answered_meanwhile_and_an_answer_that_nothing_took_is_dropped(
    path: pathlib.Path,
) -> None:
    one, other = rpc.Client(path), rpc.Client(path)
    one.begin(Add([1]))
    other.begin(Add([2]))
    assert (other.end(Add([2])), one.end(Add([1]))) == (Sum(2), Sum(1))
    one.begin(Refuse(errno.EBUSY))
    with pytest.raises(rpc.RefusedError, match="not now"):
        one.end(Refuse(errno.EBUSY))
    # What interrupts the caller between the two leaves an answer on its way.
    one.begin(Add([3]))
    assert one.ask(Add([4])) == Sum(4)
    one.close()
    other.close()


def test_hosts_that_are_asked_together_answer_or_give_their_error(path: pathlib.Path, tmp_path: pathlib.Path) -> None:
    hosts = {"h0": HostClient("h0", path), "h1": HostClient("h1", tmp_path / "nothing"), "h2": HostClient("h2", path)}
    asked: dict[str, rpc.Request[Sum]] = {"h0": Add([1]), "h1": Add([2]), "h2": Wrong()}
    with pytest.raises(DecodeError):
        ask_all(hosts, asked)
    found = ask_all(hosts, asked | {"h2": Add([3])})
    assert (found["h0"], found["h2"]) == (Sum(1), Sum(3))
    assert isinstance(found["h1"], HostError)
    assert "host h1: its agent does not answer" in str(found["h1"])
    for host in hosts.values():
        host.close()


def test_answers_are_of_the_class_that_the_request_names(path: pathlib.Path) -> None:
    client = rpc.Client(path)
    assert client.ask(Add([1, 2])) == Sum(3)
    assert client.call("add", {"numbers": [4]}) == {"total": 4}
    assert path.stat().st_mode & 0o777 == 0o600
    client.close()


@pytest.mark.parametrize(
    ("verb", "arguments", "text"),
    [
        ("subtract", {}, "no verb 'subtract'; known: add, fail, refuse, wrong"),
        ("add", {}, "add: key 'numbers' is missing"),
        ("add", {"numbers": [], "more": 1}, "add: unknown key 'more'; known: numbers"),
        ("add", {"numbers": ["1"]}, r"add: numbers\[0\] is '1'; expected: an integer"),
    ],
)
def test_wrong_requests_are_refused(path: pathlib.Path, verb: str, arguments: dict[str, object], text: str) -> None:
    client = rpc.Client(path)
    with pytest.raises(rpc.RefusedError, match=text) as caught:
        client.call(verb, arguments)
    assert (caught.value.number, caught.value.code) == (errno.EINVAL, ErrorCode.INVALID)
    assert client.ask(Add([])) == Sum(0)
    client.close()


def test_errors_have_an_errno_and_a_code(path: pathlib.Path) -> None:
    client = rpc.Client(path)
    with pytest.raises(rpc.RefusedError, match="not now") as caught:
        client.ask(Refuse(errno.EBUSY))
    assert (caught.value.number, caught.value.code) == (errno.EBUSY, ErrorCode.BUSY)
    with pytest.raises(rpc.RefusedError, match="internal fault: ZeroDivisionError") as caught:
        client.ask(Fail())
    assert caught.value.code is ErrorCode.INTERNAL
    with pytest.raises(DecodeError, match=r"answer to wrong\.total is 'much'; expected: an integer"):
        client.ask(Wrong())
    client.close()


def test_a_request_that_is_too_long_ends_its_connection_only(path: pathlib.Path) -> None:
    client, other = rpc.Client(path), rpc.Client(path)
    assert other.ask(Add([5])) == Sum(5)
    with pytest.raises(rpc.UnreachableError):
        client.ask(Add([1] * 100_000))
    assert not client.connected
    assert other.ask(Add([6])) == Sum(6)
    assert client.ask(Add([7])) == Sum(7)  # by a new connection
    for each in (client, other):
        each.close()


def test_no_half_answer_is_left_for_the_next_request(tmp_path: pathlib.Path) -> None:
    listener = rpc.listen(tmp_path / "s")
    listener.setblocking(True)
    client = rpc.Client(tmp_path / "s", timeout_s=0.2)
    client.connect()
    first, _ = listener.accept()
    first.sendall(b'{"ok": true, "total"')
    with pytest.raises(rpc.UnreachableError, match="no answer within 0 s") as caught:
        client.ask(Add([1]))
    assert caught.value.code is ErrorCode.SILENT

    def answer() -> None:
        second, _ = listener.accept()
        assert json.loads(second.recv(1 << 16))["numbers"] == [2]
        second.sendall(b'{"ok": true, "total": 2}\n')
        second.close()

    thread = threading.Thread(target=answer)
    thread.start()
    assert client.ask(Add([2])) == Sum(2)
    thread.join()
    with pytest.raises(rpc.UnreachableError) as caught:
        client.ask(Add([3]))
    assert caught.value.code is ErrorCode.GONE
    listener.close()
    first.close()


def test_connect_fails_where_no_server_listens(tmp_path: pathlib.Path) -> None:
    asked: list[int] = []
    client = rpc.Client(tmp_path / "none")
    with pytest.raises(rpc.UnreachableError, match="No such file") as caught:
        client.connect(0.1, lambda: asked.append(1))
    assert caught.value.number == errno.ENOENT
    assert asked
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(tmp_path / "none"))
    server = rpc.Server(tmp_path / "none", rpc.SelectLoop(), rpc.Verbs())  # replaces a file that an earlier server left
    client.connect()
    client.close()
    server.close()


def test_errors_of_chosen_types_are_refusals() -> None:
    def fail(verb: str, arguments: Mapping[str, object], now: int) -> object:
        raise {"disk": OSError("full"), "empty": OSError(), "bug": ZeroDivisionError("x")}[verb]

    def told(verb: str) -> str:
        line = json.dumps({"verb": verb}).encode()
        return str(json.loads(rpc.answer_to(line, rpc.refusing(fail, (OSError,)), 0))["error"])

    assert [told("disk"), told("empty")] == ["full", "OSError"]
    assert told("bug") == "internal fault: ZeroDivisionError: x"


def test_signal_ends_the_wait_of_a_loop() -> None:
    loop, got = rpc.SelectLoop(), []
    before = signal.signal(signal.SIGUSR1, lambda number, _: got.append(number))
    loop.wake_on_signals()
    try:
        threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGUSR1)).start()
        began = time.monotonic()
        loop.run(60)
        assert got == [signal.SIGUSR1]
        assert time.monotonic() - began < 60
    finally:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGUSR1, before)
        loop.close()
