"""What a queue pair waits for, and how one is given up whose own state is damaged."""

from __future__ import annotations

from typing import Any

import pytest

from mrc_host.proto import faults as contained
from mrc_host.proto.config import ReliabilityConfig, WireConfig
from mrc_host.proto.events import ErrorReason, Fault, QpState, QpStateChanged
from mrc_host.proto.faults import Faults
from mrc_host.proto.reliability.stall import waits_for
from support.proto.net import NetConfig
from support.proto.story import WIDE, Story

MTU = 1024


def story(**changes: Any) -> Story:
    settings: dict[str, Any] = {"wire": WireConfig(mtu=MTU), "cc": WIDE}
    return Story(NetConfig(planes=2, trim_bytes=None, ecn=None), **(settings | changes))


def test_a_queue_pair_without_work_waits_for_nothing() -> None:
    s = story()
    assert waits_for(s.qp, 0) is None
    s.bench.post(s.connection, MTU)
    assert waits_for(s.qp, 0) is not None
    s.until(lambda: s.bench.outstanding == 0)
    assert waits_for(s.qp, s.net.now) is None
    s.bench.post(s.connection, MTU)
    s.connection.source.core.modify(s.qp, QpState.ERROR, s.net.now)
    assert waits_for(s.qp, s.net.now) is None


def test_packets_on_their_way_are_waited_for_by_number_and_plane() -> None:
    s = story()
    s.lose(lambda packet: packet.psn == 4 and not packet.rtx)
    s.bench.post(s.connection, MTU)
    s.until(lambda: s.bench.outstanding == 0)
    s.sent.clear()
    s.bench.post(s.connection, 8 * MTU)
    posted = s.net.now
    s.until(lambda: len(s.data()) == 8)
    found = waits_for(s.qp, s.net.now)
    assert found is not None
    assert (found.psn, found.sent, found.packets, found.planes) == (2, 1, 8, (0, 1))
    assert found.since_ns == posted
    assert found.patience_ns == s.qp.attributes.patience_ns()
    s.until(lambda: bool(s.data(4)[1:]))
    again = waits_for(s.qp, s.net.now)
    assert again is not None
    assert (again.psn, again.sent, again.packets) == (4, 2, 1)
    assert again.since_ns > posted


def test_a_packet_that_has_no_plane_or_no_room_is_named_without_any_on_the_way() -> None:
    s = story(reliability=ReliabilityConfig(mpr=1, timeout=12))
    s.lose(lambda packet: not packet.is_data)
    s.bench.post(s.connection, 200 * MTU)
    s.until(lambda: len(s.data()) == 128)
    for port in (0, 1):
        s.connection.source.core.set_port_state(port, False, s.net.now)
    found = waits_for(s.qp, s.net.now)
    assert found is not None
    assert (found.psn, found.packets, found.planes) == (1, 0, ())
    assert "none" in found.what  # no own port is up


def test_a_queue_pair_that_is_given_up_is_in_error_and_does_nothing_more() -> None:
    s = story()
    s.bench.post(s.connection, 1 << 20)
    s.until(lambda: len(s.data()) > 20)
    core, before = s.connection.source.core, len(s.data())
    s.qp.abandon(s.net.now)
    assert (s.qp.state, s.qp.error) == (QpState.ERROR, ErrorReason.INTERNAL)
    assert [core.datagrams_to_send(port, s.net.now, 1 << 16) for port in (0, 1)] == [[], []]
    s.net.touch(s.requestor_host)
    s.net.run(max_time_ns=s.net.now + 50_000_000)
    assert len(s.data()) == before
    changed = [event for _, event in s.events(QpStateChanged) if event.new is QpState.ERROR]
    assert [(event.qpn, event.old, event.reason) for event in changed] == [
        (s.qp.number, QpState.RTS, ErrorReason.INTERNAL)
    ]
    s.qp.abandon(s.net.now)
    assert [event.new for _, event in s.events(QpStateChanged)].count(QpState.ERROR) == 1


def raised(number: int) -> Exception:
    """Return an exception that was raised, of a line of its own for each number."""
    try:
        exec(compile("\n" * number + "raise ValueError", "user.py", "exec"))
    except ValueError as error:
        return error
    raise AssertionError


def test_kinds_of_faults_are_told_once_and_up_to_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    s = story()
    s.bench.post(s.connection, 1 << 16)
    s.until(lambda: len(s.data()) > 4)
    core = s.connection.source.core
    most = contained._MAX_FAULTS
    faults = Faults(core.context)
    for number in [*range(most + 5), *range(3)]:
        faults.contain("somewhere", raised(number), None, s.net.now)
    told = [event for event in iter(core.next_event, None) if isinstance(event, Fault)]
    assert len(told) == most
    assert core.context.counters.faults == most + 8
    assert s.qp.state is QpState.RTS
    faults.contain("somewhere", raised(0), s.qp.peer, s.net.now)
    assert s.qp.state is QpState.ERROR


@pytest.mark.parametrize(("count", "for_ever"), [(24, False), (25, True)])
def test_retries_end_unless_they_are_for_ever(count: int, for_ever: bool) -> None:
    s = story(reliability=ReliabilityConfig(exp_cnt=count))
    assert (s.qp.attributes.patience_ns() is None) is for_ever


def test_an_end_sends_no_more_than_the_other_keeps() -> None:
    s = story()
    ends = s.connection.source.core, s.connection.target.core
    settings = ReliabilityConfig(mpr=9, max_wimm=50), ReliabilityConfig(mpr_dest=3, max_wimm_dest=7)
    pairs = [end.create_qp(end.create_cq(), reliability=each) for end, each in zip(ends, settings, strict=True)]
    documents = [end.local_attributes(pair) for end, pair in zip(ends, pairs, strict=True)]
    for end, pair, document in zip(ends, pairs, documents[::-1], strict=True):
        end.connect(pair, document, 0)
    assert (pairs[0].attributes.mpr, pairs[0].attributes.max_wimm) == (3, 7)
    assert (pairs[1].attributes.mpr_dest, pairs[1].attributes.max_wimm_dest) == (3, 7)
