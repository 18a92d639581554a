"""The controller's interface, over an agent's control socket, with queue pairs of programs."""

from __future__ import annotations

import errno
import time
from collections.abc import Callable, Iterator

import pytest

from mrc_host import control_api
from mrc_host.control_api import EpRequest, EvState, NsccConfig, ProfileState
from mrc_host.verbs import VerbsError, WcStatus
from support.verbs.bed import Bed, bed, ends


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bed]:
    with bed(tmp_path_factory.mktemp("verbs")) as made:
        yield made


@pytest.fixture
def host(hosts: Bed) -> Iterator[control_api.Controller]:
    with control_api.open_controller(str(hosts.folder / "h0.sock")) as made:
        yield made


def test_device_and_ports_report_their_attributes(host: control_api.Controller) -> None:
    device = host.query_device()
    assert (device.phy_port_mask, device.algorithms) == (0b110, ["fixed", "nscc"])
    assert "STEV32" in device.ev_formats
    assert "ev_min_active" in device.modify_online["ev"]
    host.modify_port(2, enabled=False)
    assert host.query_port(2) == control_api.PortAttributes(enabled=False, carrier=True, up=False)
    host.modify_port(2, enabled=True)
    assert host.query_port(2).up
    with pytest.raises(VerbsError, match="no port 3"):
        host.query_port(3)
    with pytest.raises(VerbsError, match="no port 2; this host has 2, numbered from 0"):
        host.modify_port(3, enabled=True)


def test_profiles_are_busy_while_a_program_uses_them(hosts: Bed, host: control_api.Controller) -> None:
    nscc = NsccConfig(*(each for each in (True, 4096, 5000, 9000, 1.0, 2.0, 0.5, 0.7, 0.4, 1 << 20, 2, 7000, 3000)))  # type: ignore[arg-type]
    cc = control_api.CcProfile(host, "mine").create_nscc(nscc).online()
    assert len(nscc.settings()) == 13
    assert cc.query()["settings"]["max_wnd_bytes"] == 1 << 20
    ev = control_api.EvProfile(host, "few").create(count=8, active=4).online()
    with ends(hosts) as (a, b):
        again = type(a.qp)(a.domain, a.cq), type(b.qp)(b.domain, b.cq)
        again[0].modify(ev_profile="few", cc_profile="mine")
        mine = again[0].document()
        again[0].connect(again[1].document())
        again[1].connect(mine)
        again[0].post_write(a.region.sge(0, 100), *a.peer[:2])
        assert a.wait()[0].status is WcStatus.SUCCESS
        assert (ev.query()["qps"], cc.query()["qps"]) == (1, 1)
        with pytest.raises(VerbsError, match="is busy: 1 queue pairs use it") as caught:
            ev.modify(ProfileState.OFFLINE)
        assert caught.value.errno == errno.EBUSY
        ev.modify(ev_min_active=2)
        assert len(host.query_evs()[again[0].qp_num]) == 8
    until_unused(ev)
    for profile in (ev, cc):
        profile.modify(ProfileState.OFFLINE)
        profile.modify(ProfileState.INIT)
        profile.destroy()
    with pytest.raises(VerbsError, match="no ev profile 'few'"):
        ev.query()


def until_unused(profile: control_api.EvProfile) -> None:
    deadline = time.monotonic() + 30
    while profile.query()["qps"]:
        assert time.monotonic() < deadline


def test_ev_changes_are_queued_for_the_matching_event_queues(hosts: Bed, host: control_api.Controller) -> None:
    queue = host.create_ev_event_queue(2, [EvState.DENIED, EvState.GOOD])
    other = host.create_ev_event_queue(8, [EvState.ASSUMED_BAD])
    nobodys = host.create_ev_event_queue(8, [EvState.DENIED], ["no such profile"])
    with ends(hosts) as (a, _):
        evs = host.query_evs()[a.qp.qp_num]
        first = [entry.ev for entry in evs[:4]]
        host.modify_ev_state(first, EvState.DENIED, peer="fd00::2")
        told = queue.poll()
        assert [(each.ev, each.state, each.qp_num, each.drop_count) for each in told] == [
            (ev, EvState.DENIED, a.qp.qp_num, 0) for ev in first[:2]
        ]
        assert told[0].port == evs[0].port
        assert told[0].profile == "default"
        host.modify_ev_state(first[:1], EvState.GOOD, peer="fd00::2")
        assert [(each.ev, each.state, each.drop_count) for each in queue.poll()] == [(first[0], EvState.GOOD, 2)]
        assert (other.poll(), nobodys.poll()) == ([], [])
        states = {entry.ev: entry.state for entry in host.query_evs("fd00::2")[a.qp.qp_num]}
        assert [states[ev] for ev in first[1:]] == ["DENIED"] * 3
        assert host.replace_ev(evs[5].ev, 0x12345678) == 1, "all copies"
        assert 0x12345678 in {entry.ev for entry in host.query_evs()[a.qp.qp_num]}
        with pytest.raises(VerbsError, match="no queue pair and no EV profile has EV 00000001") as missing:
            host.replace_ev(1, 2)
        assert missing.value.errno == errno.ENOENT
        with pytest.raises(VerbsError, match="no queue pair to 'fd00::2' has EV 00000001") as missing:
            host.modify_ev_state([1], EvState.DENIED, peer="fd00::2")
        assert missing.value.errno == errno.ENOENT
        host.modify_ev_state(first, EvState.GOOD, peer="fd00::2")
    for each in (queue, other, nobodys):
        each.destroy()
    with pytest.raises(VerbsError, match="no queue 1 of EV events"):
        queue.poll()
    with pytest.raises(VerbsError, match="states are some of"):
        host.create_ev_event_queue(8, [])


def test_batch_of_probes_is_sent_with_its_traffic_class(
    hosts: Bed, host: control_api.Controller, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []
    for port in hosts.ends[0]:
        real = port.send

        def send(packets: list[bytes], real: Callable[[list[bytes]], int] = real) -> int:
            # Traffic class and BTH opcode of an IPv6 packet.
            seen.extend(int.from_bytes(each[:2], "big") >> 6 & 0x3F for each in packets if each[48] == 0xD8)
            return real(packets)

        monkeypatch.setattr(port, "send", send)
    requests = [EpRequest(100 + index, "fd00::2", 0x8000 + index, index % 2 + 1) for index in range(6)]
    answers = host.ep_batch_send_wait(requests, dscp=11)
    assert sorted(each.req_id for each in answers) == [each.req_id for each in requests]
    assert all(each.rtt > 0 and not each.adj_svc_time and each.port in (1, 2) for each in answers)
    assert seen == [11] * 6
    with pytest.raises(VerbsError, match="1 of 1 probes unanswered") as caught:
        host.ep_batch_send_wait([EpRequest(1, "fd00::99", 5, 1)], timeout_ns=50_000_000)
    assert caught.value.errno == errno.ETIMEDOUT
    with pytest.raises(VerbsError, match="dscp is 64; allowed: 0 to 63"):
        host.ep_batch_send_wait(requests, dscp=64)
    with pytest.raises(VerbsError, match="request ids must differ"):
        host.ep_batch_send_wait([requests[0], requests[0]])
