"""No packet, timer, completion or command ends a host; what went wrong is counted, told once, and named."""

from __future__ import annotations

import json
import pathlib
import random
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from mrc_host.node.config import load
from mrc_host.node.host import MAX_LOG, CommandError, HostNode
from mrc_host.proto.events import EvChanged, EvState, PortChanged, QpState, QpStateChanged
from mrc_host.proto.transport import TransportEndpoint
from mrc_host.proto.wire.codec import Codec
from mrc_host.proto.wire.fields import Opcode
from mrc_topo.base import rpc

OWN, PEER, STRANGER = "2001:db8::1", "2001:db8::2", "2001:db8::9"
PATHS = {PEER: {str(hop): ["2001:db8::1", f"5f00:0:{hop + 1:x}::"] for hop in range(4)}}


def node(**changes: Any) -> HostNode:
    document = {
        "name": "h0",
        "address": OWN,
        "ports": 2,
        "rate_bps": [10**9, 10**9],
        "settings": {"ev": {"mode": "explicit", "fmt": "srv6_usid128", "count": 16, "active": 8}},
        "profiles": {PEER: [[(plane + 2 * i % 4) << 16 | i for i in range(8)] for plane in range(2)]},
        "paths": PATHS,
    }
    return HostNode(load(document | changes), random.Random(1))


def prepared(host: HostNode) -> dict[str, Any]:
    return host.command(
        "prepare",
        {
            "job": "j", "workload": "write_bw", "params": {"message_bytes": 4096, "iterations": 2}, "rank": 0,
            "names": ["h0", "h1"], "addresses": [OWN, PEER],
        },
        0,
    )  # fmt: skip


def packed(text: str) -> bytes:
    return socket.inet_pton(socket.AF_INET6, text)


def test_request_from_an_address_without_a_path_is_dropped() -> None:
    """ENDPOINT REQUEST, right ICRC, from an inner source to which the lab's SRv6 table has no path."""
    host = node()
    packet = Codec().encode_endpoint_request(packed(STRANGER) + packed(OWN), 5, 184, 1, 1, 0, 5)
    assert packet[48] == Opcode.ENDPOINT_REQUEST
    host.datapath.receive(0, packet, 100)
    host.datapath.settle(100)
    statistics = host.command("statistics", {}, 200)
    assert statistics["drops"] == {"no_path": 1}
    assert (statistics["faults"], statistics["endpoint"]["faults"]) == (0, 0)


def test_refusals_of_the_endpoint_are_answers_not_faults() -> None:
    host = node()
    attributes = prepared(host)
    theirs = {"region": {"va": 0, "rkey": 1, "length": 8}, "qps": {"0": attributes["qps"]["1"]}}
    theirs["qps"]["0"][0] = theirs["qps"]["0"][0] | {"address": STRANGER}
    with pytest.raises(CommandError, match=r"connect: queue pair \d+: EV [0-9a-f]{8} of the profile has no path to"):
        host.command("connect", {"job": "j", "peers": {"1": theirs}}, 0)
    assert host.faults == 0


def boom(*_: object, **__: object) -> Any:
    raise LookupError("planted")


class Broken(TransportEndpoint):
    """What a sampler asks, and what cannot tell."""

    def statistics(self) -> Any:
        boom()


@dataclass(frozen=True)
class Bad(rpc.Request[rpc.Done], verb="bad"):
    pass


@dataclass(frozen=True)
class Odd(rpc.Request[rpc.Done], verb="odd"):
    pass


def test_a_fault_anywhere_leaves_the_host_alive(capsys: pytest.CaptureFixture[str]) -> None:
    host = node()
    host.verbs.add(Bad, boom)
    for _ in range(3):
        with pytest.raises(CommandError, match="bad: internal fault, see the event log"):
            host.command("bad", {}, 0)
    # Compiled, their methods cannot be replaced: what they work on is broken.
    host.sampler.source = Broken()
    host.mapper.tracks.clear()
    host.mapper.due = 0
    host.sampler.due = 10
    for now in (10, 20, 10**9):
        host.mapper.waiting = {0: 1}  # type: ignore[dict-item]
        host.datapath.handle_timer(now)
        assert host.datapath.to_send(0, now, 9_000) == []
    assert host.sampler.due > 10**9
    whole, host.datapath.endpoint = host.datapath.endpoint, TransportEndpoint()  # which can do nothing
    host.datapath.receive(0, b"", 30)
    host.datapath.endpoint = whole
    told = [row for row in host.command("events", {}, 2 * 10**9)["events"] if row["kind"] == "fault"]
    assert host.faults >= 8
    assert len({row["detail"] for row in told}) == len(told) >= 1
    errors = {row["error"].partition(":")[0] for row in told}
    assert errors == {"LookupError", "NotImplementedError", "TypeError", "ZeroDivisionError"}
    assert capsys.readouterr().err.count("internal fault") == len(told)


def test_the_event_log_keeps_the_newest_and_counts_the_rest() -> None:
    host = node()
    events = host.endpoint.context.events  # type: ignore[attr-defined]
    total = MAX_LOG + 500
    for number in range(total):
        events.append(EvChanged(1, number, 0, EvState.GOOD, EvState.ASSUMED_BAD, "test", 1))
        if number % 1000 == 0:
            host.datapath.settle(number)
    host.datapath.settle(total)
    answer = host.command("events", {}, total)
    assert (len(answer["events"]), answer["next"], answer["dropped"]) == (MAX_LOG, total, 500)
    assert [answer["events"][0]["ev"], answer["events"][-1]["ev"]] == [500, total - 1]
    events.append(PortChanged(1, False, None))
    host.datapath.settle(total)
    later = host.command("events", {"since": answer["next"]}, total)
    assert [row["kind"] for row in later["events"]] == ["port"]
    assert later["next"] == total + 1
    assert host.command("events", {"since": 3}, total)["events"][0]["ev"] == 501


def test_a_job_hears_of_a_dead_queue_pair_however_full_the_log_is(monkeypatch: pytest.MonkeyPatch) -> None:
    host = node()
    attributes = prepared(host)
    number = attributes["qps"]["1"][0]["qpn"]
    events = host.endpoint.context.events  # type: ignore[attr-defined]
    for _ in range(MAX_LOG + 1):
        events.append(PortChanged(1, False, None))
    heard: list[str] = []
    monkeypatch.setattr(host.jobs["j"], "failed", lambda peer, reason, now: heard.append(reason))
    from mrc_host.proto.events import ErrorReason

    events.append(QpStateChanged(number, QpState.RTS, QpState.ERROR, ErrorReason.RETRY_EXCEEDED))
    host.datapath.settle(5)
    assert heard == ["retry counter exceeded"]


def test_evs_denied_before_any_queue_pair_exists() -> None:
    host = node()
    first = int(next(iter(host.config.profiles.values()))[0][0])
    assert host.command("ev_set", {"evs": [first], "state": "DENIED"}, 0) == {"changed": 0}
    attributes = prepared(host)
    theirs = {"region": {"va": 0, "rkey": 1, "length": 8}, "qps": {"0": attributes["qps"]["1"]}}
    theirs["qps"]["0"][0] = theirs["qps"]["0"][0] | {"address": PEER}
    host.command("connect", {"job": "j", "peers": {"1": theirs}}, 0)
    (qp,) = host.command("ev_query", {}, 0)["qps"]
    assert {row["ev"]: row["state"] for row in qp["evs"]}[first] == "DENIED"


class Loop:
    """The part of a driver's loop that the control socket needs."""

    def __init__(self) -> None:
        self.readers: dict[int, Callable[[int], None]] = {}

    def watch(self, fd: int, ready: Callable[[int], None]) -> None:
        self.readers[fd] = ready

    def unwatch(self, fd: int) -> None:
        del self.readers[fd]


@pytest.fixture
def served(tmp_path: pathlib.Path) -> Iterator[Callable[[bytes], dict[str, Any]]]:
    host, loop = node(), Loop()
    host.verbs.add(Odd, lambda request, now: {"answer": {1, 2}})  # no JSON
    host.verbs.add(Bad, boom)
    server = rpc.Server(tmp_path / "s", loop, host.command)
    client = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    client.connect(str(tmp_path / "s"))
    client.settimeout(300)
    for ready in list(loop.readers.values()):
        ready(0)

    def ask(line: bytes) -> dict[str, Any]:
        client.sendall(line + b"\n")
        answer = b""
        while not answer.endswith(b"\n"):
            for ready in list(loop.readers.values()):
                ready(0)
            answer += client.recv(1 << 20)
        return dict(json.loads(answer))

    yield ask
    client.close()
    server.close()


@pytest.mark.parametrize(
    "line",
    [
        b"", b"null", b"[]", b"{}", b"\xff\xfe", b'{"verb": []}', b'{"verb": {}}', b'{"verb": null}', b'{"verb": "no"}',
        b'{"verb": "odd"}', b'{"verb": "bad"}', b'{"verb": "hello", "now": 1}',
        b'{"verb": "port", "port": "x", "up": 1}',
        b'{"verb": "port", "port": 1e400, "up": true}', b'{"verb": "ev_probe", "address": 5, "evs": 3}',
        b'{"verb": "connect", "job": "j", "peers": 7}', b"[" * 50_000,
    ],
)  # fmt: skip
def test_no_command_ends_an_agent(served: Callable[[bytes], dict[str, Any]], line: bytes) -> None:
    answer = served(line)
    assert answer["ok"] is False
    assert answer["error"]
    assert served(b'{"verb": "hello"}')["name"] == "h0"


def test_client_that_reads_no_answer_does_not_delay_others(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its answer waits in a thread; the loop, and with it packets and other clients, goes on at once.

    A loop that waited would give the client up after a minute, and hang up.
    """
    monkeypatch.setattr(rpc, "SEND_S", 60.0)
    loop = Loop()
    large = "x" * (8 << 20)
    server = rpc.Server(tmp_path / "s", loop, lambda verb, given, now: {"text": large if verb == "large" else "small"})

    def turn() -> None:
        for ready in list(loop.readers.values()):
            ready(0)

    slow, other = (socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) for _ in range(2))
    for client in (slow, other):
        client.connect(str(tmp_path / "s"))
        client.settimeout(5)
        turn()
    slow.sendall(b'{"verb": "large"}\n{"verb": "small"}\n')
    turn()
    other.sendall(b'{"verb": "small"}\n')
    turn()
    assert json.loads(other.recv(1 << 16)) == {"ok": True, "text": "small"}
    # When it reads at last, it gets all, in order.
    answers = b""
    while answers.count(b"\n") < 2:
        turn()
        part = slow.recv(1 << 20)
        assert part, "the agent hung up"
        answers += part
    assert [len(json.loads(line)["text"]) for line in answers.splitlines()] == [len(large), len("small")]
    for client in (slow, other):
        client.close()
    server.close()
    assert not loop.readers
