"""A controller's requests over an agent's control socket, with queue pairs of programs."""

from __future__ import annotations

import errno
import time
from collections.abc import Iterator
from itertools import chain

import pytest

from mrc_host import requests
from mrc_host.ctl_requests import (
    CreateEventQueue,
    CreateProfile,
    DeleteProfile,
    DestroyEventQueue,
    EvOnPlane,
    GetDevice,
    GetProbedEvs,
    ListProfiles,
    ModifyProfile,
    PollEventQueue,
    ProbedEv,
    ProbeEvs,
    ProfileKind,
    ProfileState,
    QueryEvs,
    ReplaceEv,
    SetEvs,
    SetProfileState,
)
from mrc_host.proto.events import EvState
from mrc_host.verbs import WcStatus
from mrc_topo.base.rpc import Client, RefusedError
from support.verbs.bed import Bed, bed, ends


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bed]:
    with bed(tmp_path_factory.mktemp("verbs")) as made:
        yield made


@pytest.fixture
def host(hosts: Bed) -> Iterator[Client]:
    client = Client(hosts.folder / "h0.sock")
    try:
        yield client
    finally:
        client.close()


def test_device_and_ports_report_their_attributes(host: Client) -> None:
    device = host.ask(GetDevice())
    assert (device.phy_port_mask, device.algorithms) == (0b110, ["fixed", "nscc"])
    assert "STEV32" in device.ev_formats
    assert "ev_min_active" in device.modify_online["ev"]
    host.ask(requests.SetPort(1, False))
    port = host.ask(GetDevice()).ports[1]
    assert (port.enabled, port.carrier, port.up) == (False, True, False)
    host.ask(requests.SetPort(1, True))
    assert host.ask(GetDevice()).ports[1].up
    with pytest.raises(RefusedError, match="no port 2; this host has 2, numbered from 0"):
        host.ask(requests.SetPort(2, True))


def uses(host: Client, kind: ProfileKind, name: str) -> int:
    """Return how many queue pairs use a profile."""
    return next(row.qps for row in host.ask(ListProfiles()).profiles if (row.kind, row.name) == (kind, name))


def test_profiles_are_busy_while_a_program_uses_them(hosts: Bed, host: Client) -> None:
    ev, cc = ProfileKind.EV, ProfileKind.CC
    host.ask(CreateProfile(cc, "mine", {"algorithm": "nscc", "max_wnd_bytes": 1 << 20}))
    host.ask(CreateProfile(ev, "few", {"count": 8, "active": 4}))
    for kind, name in ((cc, "mine"), (ev, "few")):
        for state in (ProfileState.OFFLINE, ProfileState.ONLINE):
            document = host.ask(SetProfileState(kind, name, state))
        assert document.state is ProfileState.ONLINE
    with ends(hosts) as (a, b):
        again = type(a.qp)(a.domain, a.cq), type(b.qp)(b.domain, b.cq)
        again[0].modify(ev_profile="few", cc_profile="mine")
        mine = again[0].document()
        again[0].connect(again[1].document())
        again[1].connect(mine)
        again[0].post_write(a.region.sge(0, 100), *a.peer[:2])
        assert a.wait()[0].status is WcStatus.SUCCESS
        assert (uses(host, ev, "few"), uses(host, cc, "mine")) == (1, 1)
        with pytest.raises(RefusedError, match="is busy: 1 queue pairs use it") as caught:
            host.ask(SetProfileState(ev, "few", ProfileState.OFFLINE))
        assert caught.value.number == errno.EBUSY
        host.ask(ModifyProfile(ev, "few", {"ev_min_active": 2}))
        assert len(evs_of(host, again[0].qp_num)) == 8
    deadline = time.monotonic() + 120
    while uses(host, ev, "few"):
        assert time.monotonic() < deadline
    for kind, name in ((ev, "few"), (cc, "mine")):
        host.ask(SetProfileState(kind, name, ProfileState.OFFLINE))
        host.ask(SetProfileState(kind, name, ProfileState.INIT))
        host.ask(DeleteProfile(kind, name))
    assert not {"few", "mine"} & {row.name for row in host.ask(ListProfiles()).profiles}


def evs_of(host: Client, qpn: int, peer: str | None = None) -> dict[int, EvState]:
    """Return the EVs of a queue pair with their states."""
    return {ev.ev: ev.state for row in host.ask(QueryEvs(peer)).qps if row.qpn == qpn for ev in row.evs}


def test_ev_changes_are_queued_for_the_matching_event_queues(hosts: Bed, host: Client) -> None:
    queue = host.ask(CreateEventQueue(2, [EvState.DENIED, EvState.GOOD])).queue
    other = host.ask(CreateEventQueue(8, [EvState.ASSUMED_BAD])).queue
    unconcerned = host.ask(CreateEventQueue(8, [EvState.DENIED], ["no such profile"])).queue
    with ends(hosts) as (a, _):
        evs = list(evs_of(host, a.qp.qp_num))
        first = evs[:4]
        host.ask(SetEvs(first, EvState.DENIED, "fd00::2"))
        told = host.ask(PollEventQueue(queue, 64)).events
        assert [(each.ev, each.state, each.qpn, each.drop_count) for each in told] == [
            (ev, EvState.DENIED, a.qp.qp_num, 0) for ev in first[:2]
        ]
        assert told[0].profile == "default"
        host.ask(SetEvs(first[:1], EvState.GOOD, "fd00::2"))
        told = host.ask(PollEventQueue(queue, 64)).events
        assert [(each.ev, each.state, each.drop_count) for each in told] == [(first[0], EvState.GOOD, 2)]
        for empty in (other, unconcerned):
            assert not host.ask(PollEventQueue(empty, 64)).events
        states = evs_of(host, a.qp.qp_num, "fd00::2")
        assert [states[ev] for ev in first[1:]] == [EvState.DENIED] * 3
        assert host.ask(ReplaceEv(evs[5], 0x12345678)).changed == 1, "all copies"
        assert 0x12345678 in evs_of(host, a.qp.qp_num)
        with pytest.raises(RefusedError, match="no queue pair and no EV profile has EV 00000001") as missing:
            host.ask(ReplaceEv(1, 2))
        assert missing.value.number == errno.ENOENT
        with pytest.raises(RefusedError, match="no queue pair to 'fd00::2' has EV 00000001") as missing:
            host.ask(SetEvs([1], EvState.DENIED, "fd00::2"))
        assert missing.value.number == errno.ENOENT
        host.ask(SetEvs(first, EvState.GOOD, "fd00::2"))
    for each in (queue, other, unconcerned):
        host.ask(DestroyEventQueue(each))
    with pytest.raises(RefusedError, match="no queue 1 of EV events"):
        host.ask(PollEventQueue(queue, 64))
    with pytest.raises(RefusedError, match="states are some of"):
        host.ask(CreateEventQueue(8, []))


def probed(host: Client, probes: ProbeEvs) -> list[ProbedEv]:
    """Send probes, and return what came of them once all have ended."""
    batch = host.ask(probes).batch
    deadline = time.monotonic() + 120
    while (answer := host.ask(GetProbedEvs(batch))).waiting:
        assert time.monotonic() < deadline
    return list(answer.results)


def test_batch_of_probes_is_sent_with_its_traffic_class(
    hosts: Bed, host: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []
    sender = hosts.stations[0].sender
    real = sender.send

    def send(packets: list[list[bytes]]) -> None:
        # Traffic class and BTH opcode of an IPv6 packet.
        seen.extend(int.from_bytes(each[:2], "big") >> 6 & 0x3F for each in chain(*packets) if each[48] == 0xD8)
        real(packets)

    monkeypatch.setattr(sender, "send", send)
    evs = [EvOnPlane(0x8000 + index, index % 2) for index in range(6)]
    answers = probed(host, ProbeEvs("fd00::2", evs, 1_000_000_000, 11))
    assert sorted(each.request for each in answers) == list(range(6))
    assert all(each.rtt_ns and each.port in (0, 1) for each in answers)
    assert seen == [11] * 6
    assert [each.rtt_ns for each in probed(host, ProbeEvs("fd00::99", evs[:1], 50_000_000))] == [None]
    with pytest.raises(RefusedError, match="dscp is 64; allowed: 0 to 63"):
        host.ask(ProbeEvs("fd00::2", evs, 1_000_000_000, 64))
