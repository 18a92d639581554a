"""Probes whose answers come late: identifiers, patience and load (`mrc-protocol.md §7`)."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mrc_host.proto.config import EvConfig, ReliabilityConfig, WireConfig
from mrc_host.proto.congestion.base import CcConfig
from mrc_host.proto.congestion.nscc import FixedConfig
from mrc_host.proto.events import EvState, ProbeResult, QpState
from mrc_host.proto.paths.ev import EvInput
from mrc_host.proto.paths.probing import COUNT, Nonces
from mrc_host.proto.wire import packet as wire
from mrc_host.proto.wire.fields import Opcode
from support.proto.net import Host, Net, NetConfig, opcode_of
from support.proto.story import WIDE, Story

MTU = 1024
MS = 1_000_000
INTERVAL = MS
TIMEOUT = 2 * MS
LATE = 60 * MS


def story(cc: CcConfig = WIDE, evs: int = 32) -> Story:
    return Story(
        NetConfig(trim_bytes=None, ecn=None),
        wire=WireConfig(mtu=MTU),
        cc=cc,
        reliability=ReliabilityConfig(timeout=17),
        ev=EvConfig(count=evs, active=evs // 2, probe_interval_ns=INTERVAL, probe_timeout_ns=TIMEOUT),
    )


def answers_are_late(net: Net, host: Host, port: int, path: int, packet: bytes) -> int | None:
    """Answers to probes wait in a long queue; SACKs of data overtake them."""
    if opcode_of(packet) != Opcode.SACK:
        return None
    seth = wire.decode(packet).seth
    return LATE if seth is not None and seth.pr else None


def all_but_one_look_bad(s: Story) -> None:
    """All EVs but one have failed once, so that they are probed."""
    for ev in list(s.qp.evs.order[0])[1:] + list(s.qp.evs.backup[0]):
        s.qp.evs.apply(ev, EvInput.LOSS)


@settings(max_examples=10)
@given(st.integers(0, 1 << 32))
def test_every_identifier_is_drawn_once_before_any_comes_again(seed: int) -> None:
    nonces = Nonces(random.Random(seed))
    first = [nonces.draw() for _ in range(COUNT)]
    assert sorted(first) == list(range(COUNT))
    assert [nonces.draw() for _ in range(5)] == first[:5]
    assert first != [other.draw() for other in (Nonces(random.Random(seed + 1)),) for _ in range(COUNT)]


def test_a_late_answer_is_not_taken_for_that_of_another_probe() -> None:
    """Hundreds of probes were on their way, a new one drew the number of one of them, and its answer told of less than
    had been acknowledged since: an honest peer "took back what it acknowledged"."""
    s = story(evs=256)
    s.net.rules.append(answers_are_late)
    all_but_one_look_bad(s)
    for _ in range(400):
        s.bench.post(s.connection, MTU)
        s.net.run(max_time_ns=MS)
    assert s.qp.state is QpState.RTS
    assert set(s.bench.statuses()) == {"SUCCESS"}
    assert s.counters.retransmissions == 0


def test_late_answers_teach_patience_and_revive() -> None:
    """With a timeout shorter than the way there and back every probe was given up and sent again, for ever."""
    s = story()
    s.net.rules.append(answers_are_late)
    all_but_one_look_bad(s)
    for _ in range(400):
        s.bench.post(s.connection, MTU)
        s.net.run(max_time_ns=MS)
    assert s.qp.evs.state.count(EvState.GOOD.value) == 32
    # As many as before the first answer, one per EV and `TIMEOUT`; then one per EV at a time.
    assert s.counters.probes_sent <= LATE // TIMEOUT * 31 + 4 * 31


def test_probes_shrink_with_the_window() -> None:
    """A burst of probes in each interval filled the links that the window had left."""
    narrow = FixedConfig(fixed_window_bytes=2 * MTU, base_rtt_ns=8_000)
    for cc, least, most in ((WIDE, 100, 10_000), (narrow, 10, 3 * 20)):
        s = story(cc)
        s.net.rules.append(answers_are_late)
        all_but_one_look_bad(s)
        s.net.run(max_time_ns=20 * INTERVAL)
        probes = s.packets(Opcode.PROBE, host=0)
        assert least <= len(probes) <= most


def test_an_answer_from_another_address_proves_nothing() -> None:
    s = story()
    core, other = s.connection.source.core, s.responder_host
    core.probe_ev(other.address, s.qp.evs.universe.values[0], 0, 0, timeout_ns=TIMEOUT)
    (probe,) = core.datagrams_to_send(0, 0, 9000)
    asked = wire.decode(probe)
    codec = core.context.codec
    for now, source in ((3_000, bytes(15) + b"\x77"), (4_000, other.address)):
        answer = codec.encode_endpoint_response(source + core.config.address, 5, 184, asked.bth.psn, 1, 0)
        core.receive_datagram(0, answer, now)
    results = [event for event in iter(core.next_event, None) if isinstance(event, ProbeResult)]
    assert [(each.peer, each.rtt_ns) for each in results] == [(other.address, 4_000)]


def test_every_ev_probe_of_a_controller_ends_at_its_own_time() -> None:
    s = story()
    core = s.connection.source.core
    s.net.set_path(False)
    asked = [core.probe_ev(s.responder_host.address, 5, 0, 0, timeout_ns=TIMEOUT * times) for times in (3, 1, 2)]
    ended = []
    for turn in (1, 2, 3):
        core.handle_timer(TIMEOUT * turn)
        while (event := core.next_event()) is not None:
            if isinstance(event, ProbeResult):
                ended.append((turn, event.token))
        due = core.next_timer()
        assert due is None or due > TIMEOUT * turn
    assert ended == [(1, asked[1]), (2, asked[2]), (3, asked[0])]
    assert due is None


def test_a_late_answer_to_another_ev_probe_of_a_controller_proves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    s = story()
    core, other = s.connection.source.core, s.responder_host
    monkeypatch.setattr(Nonces, "draw", lambda self: 7)  # the second probe has the number of the first one
    ev = s.qp.evs.universe.values[0]
    answers = []
    for now in (0, 3 * TIMEOUT):
        core.probe_ev(other.address, ev, 0, now, timeout_ns=TIMEOUT)
        (probe,) = core.datagrams_to_send(0, now, 9000)
        other.core.receive_datagram(0, probe, now)
        answers += other.core.datagrams_to_send(0, now, 9000)
        if now == 0:
            core.handle_timer(2 * TIMEOUT)
    results = []
    for answer, took in zip(answers, (4_000, 9_000), strict=True):
        core.receive_datagram(0, answer, 3 * TIMEOUT + took)
        while (event := core.next_event()) is not None:
            if isinstance(event, ProbeResult):
                results.append(event.rtt_ns)
    assert results == [None, 9_000]
