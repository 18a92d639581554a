"""The node controller's verbs, on a simulated lab and over an agent's unix socket."""

from __future__ import annotations

import dataclasses
import ipaddress
import json
import os
import pathlib
import random
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest

from mrc_host.node.host import CommandError, HostNode
from mrc_topo import addressing
from mrc_topo.labfile import parse_lab
from mrclab.lab import describe
from mrclab.lab.faults.action import Action
from mrclab.lab.hosts.hostclient import HostClient, HostError
from mrclab.lab.session.virtual import VirtualSession
from mrclab.results.record import RunResult
from mrclab.runs.runner import WorkloadRun
from mrclab.runs.workload import WorkloadSpec
from support.lab.results import plain

LAB = """
name: nodes
planes: 2
t0_per_plane: 2
t1_per_plane: 2
hosts: 4
hosts_per_t0: 2
path_mtu: 1024
ev: {size: 32, active: 16}
links: {host: {rate: 20Mbps, delay: 50us}, fabric: {rate: 20Mbps, delay: 50us}}
"""


@pytest.fixture(scope="module")
def topology() -> Any:
    return parse_lab(LAB)


@pytest.fixture
def node(topology: Any) -> HostNode:
    config = describe.host_config(topology, topology.hosts[0], "virtual")
    return HostNode(config, random.Random(1))


@pytest.fixture
def session(topology: Any) -> Iterator[VirtualSession]:
    made = VirtualSession(topology)
    try:
        yield made
    finally:
        made.close()


def command(node: HostNode, verb: str, **arguments: Any) -> dict[str, Any]:
    return node.command(verb, arguments, 0)


def refused(node: HostNode, hint: str, verb: str, **arguments: Any) -> None:
    with pytest.raises(CommandError, match=hint):
        node.command(verb, arguments, 0)


def to_state(host: Any, kind: str, name: str, *states: str) -> None:
    for state in states:
        assert host.request("profile_state", kind=kind, name=name, state=state)["state"] == state


def during(session: VirtualSession, actions: dict[float, Any], **spec: Any) -> RunResult:
    """Run write_bw from h0 to h2 for 0.8 s of simulated time and call each action once its time has come."""
    waiting = sorted(actions.items())

    def observe(result: RunResult) -> None:
        while waiting and session.now_ns() - result.started_ns >= waiting[0][0] * 1e9:
            waiting.pop(0)[1]()

    workload = WorkloadSpec(
        "write_bw", {"message_bytes": 1 << 16, "window": 4}, hosts=["h0", "h2"], duration_s=0.8, **spec
    )
    result = WorkloadRun(session, workload, (), observe).go()
    assert not result.failures
    assert not waiting
    return result


@pytest.mark.parametrize(("every", "least", "most"), [(1, 1.0, 1.1), (8, 0.11, 0.25)])
def test_sack_every_of_the_lab_sets_how_many_packets_share_a_sack(every: int, least: float, most: float) -> None:
    """What is held back waits as long as so many packets take on one link, so a stream's SACKs really are shared."""
    session = VirtualSession(parse_lab(f"{LAB}reliability: {{sack_every: {every}}}\n"))
    try:
        result = during(session, {})
        placed, sacks = (
            sum(qp["responder"][name] for qp in plain(result)["statistics"]["h2"]["qps"])
            for name in ("packets_placed", "sacks_sent")
        )
        assert placed > 1000
        assert least <= sacks / placed <= most
    finally:
        session.close()


# -- profiles ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "settings"),
    [("format", {"fmt": "stev32"}), ("ev", {"probe_interval_ns": 5_000_000}), ("cc", {"algorithm": "fixed"})],
)
def test_profile_goes_through_its_states_in_order_only(node: HostNode, kind: str, settings: dict[str, Any]) -> None:
    which = {"kind": kind, "name": "mine"}
    assert command(node, "profile_create", **which, settings=settings)["state"] == "INIT"
    refused(node, "exists", "profile_create", **which, settings=settings)
    refused(node, "is INIT and cannot go to ONLINE", "profile_state", **which, state="ONLINE")
    refused(node, "state is 'AWAKE'; expected: one of INIT, OFFLINE, ONLINE", "profile_state", **which, state="AWAKE")
    command(node, "profile_state", **which, state="OFFLINE")
    refused(node, "bring it to INIT first", "profile_delete", **which)
    command(node, "profile_state", **which, state="ONLINE")
    refused(node, "is ONLINE and cannot go to INIT", "profile_state", **which, state="INIT")
    listed = command(node, "profile_list")["profiles"]
    assert {"kind": kind, "name": "mine", "state": "ONLINE", "settings": settings, "qps": 0} in listed
    command(node, "profile_state", **which, state="OFFLINE")
    command(node, "profile_state", **which, state="INIT")
    assert command(node, "profile_delete", **which) == {}
    refused(node, f"no {kind} profile 'mine'; known: .*{kind} default", "profile_state", **which, state="OFFLINE")


@pytest.mark.parametrize(
    ("kind", "settings", "hint"),
    [
        ("ev", {"colour": 3}, "ev has no 'colour'"),
        ("ev", {"ev_min_active": 0}, "ev_min_active is 0; allowed: 1 to"),
        ("ev", {"mode": "secret"}, "known: explicit, generated, auto"),
        ("ev", {"format": "none"}, "no format profile 'none'"),
        ("cc", {"gamma": 2.0}, "cc.gamma is 2.0; allowed: 0.0 to 1.0"),
        ("format", {"fmt": "morse"}, "one setting, fmt: udp16, stev32"),
        ("format", {}, "one setting, fmt"),
        ("qos", {}, "kind is 'qos'; expected: one of format, ev, cc"),
    ],
)
def test_profile_with_invalid_settings_is_refused(
    node: HostNode, kind: str, settings: dict[str, Any], hint: str
) -> None:
    refused(node, hint, "profile_create", kind=kind, name="bad", settings=settings)
    assert len(command(node, "profile_list")["profiles"]) == 3


def test_only_few_settings_change_online(node: HostNode) -> None:
    which = {"kind": "ev", "name": "mine"}
    command(node, "profile_create", **which, settings={"active": 8})
    assert command(node, "profile_modify", **which, settings={"active": 12})["settings"] == {"active": 12}
    refused(node, "ev.active is 0", "profile_modify", **which, settings={"active": 0})
    for state in ("OFFLINE", "ONLINE"):
        command(node, "profile_state", **which, state=state)
    refused(node, "is ONLINE: active cannot change; these can: .*probe_timeout_ns", "profile_modify", **which,
            settings={"active": 4})  # fmt: skip
    changed = command(node, "profile_modify", **which, settings={"probe_timeout_ns": 7})
    assert changed["settings"] == {"active": 12, "probe_timeout_ns": 7}
    command(node, "profile_create", kind="cc", name="c", settings={})
    for state in ("OFFLINE", "ONLINE"):
        command(node, "profile_state", kind="cc", name="c", state=state)
    refused(node, "these can: none", "profile_modify", kind="cc", name="c", settings={"gamma": 0.5})


def test_an_ev_profile_takes_its_format_from_a_profile_that_is_online(node: HostNode) -> None:
    command(node, "profile_create", kind="format", name="short", settings={"fmt": "udp16"})
    settings = {"format": "short", "mode": "auto", "count": 16, "active": 8}
    refused(node, "'short' is INIT; bring it ONLINE first", "profile_create", kind="ev", name="e", settings=settings)
    for state in ("OFFLINE", "ONLINE"):
        command(node, "profile_state", kind="format", name="short", state=state)
    command(node, "profile_create", kind="ev", name="e", settings=settings)


def test_a_job_uses_the_profiles_it_names(session: VirtualSession) -> None:
    hosts = [session.hosts["h0"], session.hosts["h2"]]
    for host in hosts:
        host.request("profile_create", kind="ev", name="few", settings={"active": 4, "ev_min_active": 2})
        host.request("profile_create", kind="cc", name="still", settings={"algorithm": "fixed",
                                                                           "fixed_window_bytes": 33_333})  # fmt: skip
    during(session, {})
    with pytest.raises(HostError, match="'few' is INIT; a queue pair needs it ONLINE"):
        during(session, {}, ev_profile="few")
    for host in hosts:
        to_state(host, "ev", "few", "OFFLINE", "ONLINE")
        to_state(host, "cc", "still", "OFFLINE", "ONLINE")
    seen: dict[str, Any] = {}

    def look() -> None:
        seen.update(hosts[0].request("statistics"))
        with pytest.raises(HostError, match="ev profile 'few' is busy: 1 queue pairs use it"):
            hosts[0].request("profile_state", kind="ev", name="few", state="OFFLINE")
        hosts[0].request("profile_modify", kind="ev", name="few", settings={"ev_min_active": 1, "probes_to_revive": 9})
        (qp,) = next(iter(session.nodes["h0"].jobs.values())).qps[1]
        seen["floor"], seen["revive"] = qp.evs.floor, qp.evs.probes_to_revive  # type: ignore[attr-defined]

    during(session, {0.3: look}, ev_profile="few", cc_profile="still")
    assert seen["qps"][0]["ev_active"] == [2, 2]
    assert sum(seen["qps"][0]["ev_states"].values()) == 32 * 2 // 2
    # The peer was there before, with the host's own profile; the new queue pair's counts.
    assert [peer["cc"]["cwnd"] for peer in seen["peers"]] == [33_333]
    assert (seen["floor"], seen["revive"]) == (1, 9)
    to_state(hosts[0], "ev", "few", "OFFLINE", "INIT")


def test_roce_hosts_have_no_profiles(topology: Any) -> None:
    config = describe.host_config(topology, topology.hosts[0], "virtual", "roce")
    node = HostNode(config, random.Random(1))
    refused(node, "transport is roce", "prepare", job="j", workload="write_bw", params={}, rank=0, names=["h0", "h1"],
            addresses=["::1", "::2"], ev_profile="few")  # fmt: skip
    refused(node, "no verb 'ev_query'", "ev_query")


# -- EVs --------------------------------------------------------------------------------------------------------


def test_a_replaced_ev_stays_replaced_for_later_queue_pairs(session: VirtualSession) -> None:
    host = session.hosts["h0"]
    peer = str(ipaddress.IPv6Address(session.topology.hosts[2].address))
    values = session.nodes["h0"].config.profiles[peer]
    old, new = values[0][0], values[0][0] ^ 0x2000
    # Before there is a queue pair: OFFLINE profiles are filled so (`mrc_ctl.h`), and the host's own EVs follow.
    assert host.request("ev_replace", old=old, new=new, peer=peer) == {"changed": 0, "profiles": 1}
    found: list[set[int]] = []

    def look() -> None:
        (qp,) = host.request("ev_query", peer="h2")["qps"]
        found.append({each["ev"] for each in qp["evs"]})

    during(session, {0.3: look})
    during(session, {0.3: look})
    assert all(new in evs and old not in evs for evs in found)
    assert len(found) == 2


def test_replacing_fills_an_offline_profile(session: VirtualSession) -> None:
    host = session.hosts["h1"]
    values = [[1, 2], [3, 4]]
    host.request("profile_create", kind="ev", name="explicit", settings={"mode": "explicit", "values": values})
    to_state(host, "ev", "explicit", "OFFLINE")
    assert host.request("ev_replace", old=2, new=9, profile="explicit") == {"changed": 0, "profiles": 1}
    (row,) = [each for each in host.request("profile_list")["profiles"] if each["name"] == "explicit"]
    assert row["settings"]["values"] == [[1, 9], [3, 4]]
    with pytest.raises(HostError, match="neither EV profile 'explicit' nor a queue pair that uses it has EV 00000002"):
        host.request("ev_replace", old=2, new=10, profile="explicit")


def test_a_format_is_busy_while_an_ev_profile_of_it_is_online(session: VirtualSession) -> None:
    host = session.hosts["h1"]
    host.request("profile_create", kind="format", name="narrow", settings={"fmt": "udp16"})
    to_state(host, "format", "narrow", "OFFLINE", "ONLINE")
    host.request("profile_create", kind="ev", name="small", settings={"mode": "auto", "format": "narrow", "count": 8})
    to_state(host, "ev", "small", "OFFLINE", "ONLINE")
    with pytest.raises(HostError, match="format profile 'narrow' is busy: EV profile 'small' is ONLINE"):
        host.request("profile_state", kind="format", name="narrow", state="OFFLINE")
    to_state(host, "ev", "small", "OFFLINE")
    to_state(host, "format", "narrow", "OFFLINE")


def test_fields_of_an_online_profile_may_change_for_later_queue_pairs(session: VirtualSession) -> None:
    host = session.hosts["h1"]
    field = {"width": 16, "init": 0, "minimum": 0, "maximum": 0, "mask": 0xFFFF}
    settings = {"mode": "generated", "count": 8, "fields": [field, field]}
    host.request("profile_create", kind="ev", name="fields", settings=settings)
    to_state(host, "ev", "fields", "OFFLINE", "ONLINE")
    changed = [field, {**field, "mask": 0x0FFF}]
    answer = host.request("profile_modify", kind="ev", name="fields", settings={"fields": changed})
    assert answer["settings"]["fields"] == changed


def test_evs_are_queried_denied_and_replaced_during_a_run(session: VirtualSession) -> None:
    host = session.hosts["h0"]
    seen: dict[str, Any] = {}

    def query() -> dict[int, dict[str, Any]]:
        (qp,) = host.request("ev_query", peer="h2")["qps"]
        assert qp["peer"] == "h2"
        return {each["ev"]: each for each in qp["evs"]}

    def act() -> None:
        before = query()
        active = [ev for ev, each in before.items() if each["active"]]
        assert len(active) == 16
        assert {each["plane"] for each in before.values()} == {0, 1}
        chosen = active[:3]
        with pytest.raises(HostError, match="no queue pair to 'h2' has EV 00003039"):
            host.request("ev_set", evs=[*chosen, 12345], state="DENIED", peer="h2")  # the entries before count
        denied = query()
        assert all(denied[ev]["state"] == "DENIED" and not denied[ev]["active"] for ev in chosen)
        assert sum(each["active"] for each in denied.values()) == 16, "backups step in"
        assert host.request("ev_set", evs=chosen[:1], state="GOOD") == {"changed": 1}
        assert query()[chosen[0]]["state"] == "GOOD"
        with pytest.raises(HostError, match="DENIED or GOOD, not 'SKIP'"):
            host.request("ev_set", evs=chosen, state="SKIP")
        with pytest.raises(HostError, match="no queue pair to 'h3'"):
            host.request("ev_query", peer="h3")
        old, new = active[4], active[4] + 0x2000 if active[4] & 0xFFFF < 0xE000 else active[4] - 0x2000
        host.request("ev_replace", old=old, new=new, peer="h2")
        after = query()
        assert old not in after
        assert after[new] == {"ev": new, "plane": before[old]["plane"], "state": "GOOD",
                              "active": before[old]["active"], "losses": 0}  # fmt: skip
        with pytest.raises(HostError, match="no queue pair to 'h2' has EV"):
            host.request("ev_replace", old=old, new=new, peer="h2")
        with pytest.raises(HostError, match="already in the profile"):
            host.request("ev_replace", old=active[5], new=new, peer="h2")
        seen.update(chosen=chosen, new=new)

    result = during(session, {0.3: act})
    events = [each for each in plain(result)["events"]["h0"] if each["kind"] == "ev"]
    assert [(each["ev"], each["old"], each["new"]) for each in events[:4]] == [
        *((ev, "GOOD", "DENIED") for ev in seen["chosen"]),
        (seen["chosen"][0], "DENIED", "GOOD"),
    ]
    assert {each["cause"] for each in events} == {"controller denies", "controller allows"}


def test_ev_events_report_losses_on_a_failed_link(session: VirtualSession) -> None:
    target = "p0-t0.0--p0-t1.0"
    result = during(
        session,
        {
            0.2: lambda: session.failures.perform(session, Action("fail", target, "link_down")),
            0.5: lambda: session.failures.perform(session, Action("restore", target)),
        },
    )
    events = [each for each in plain(result)["events"]["h0"] if each["kind"] == "ev"]
    bad = [each for each in events if each["new"] == "ASSUMED_BAD"]
    assert bad
    assert all(each["losses"] >= 1 and each["plane"] == 0 for each in bad)
    assert all(each["ev"] >> 16 & 0xFFF == 0 for each in bad), "EVs of the other T1 are not to blame"
    assert {each["ev"] for each in events if each["new"] == "GOOD"} == {each["ev"] for each in bad}


def test_batched_probes_measure_round_trips(session: VirtualSession) -> None:
    host = session.hosts["h0"]
    address = addressing.text(session.topology.host("h2").address)
    # One direction: the answers, which come back on an EV of h2's own choice, are not concerned.
    session.failures.perform(session, Action("fail", "p1-t0.0--p1-t1.1", "link_down", "up"))
    evs = [[plane << 28 | t1 << 16 | 0xC000 + salt, plane] for plane in (0, 1) for t1 in (0, 1) for salt in range(5)]
    batch = host.request("ev_probe", address=address, evs=evs, timeout_ns=20_000_000)["batch"]
    assert host.request("ev_probe_result", batch=batch)["waiting"] == len(evs)
    session.advance(0.01)
    assert host.request("ev_probe_result", batch=batch)["waiting"] == 5
    session.advance(0.02)
    answer = host.request("ev_probe_result", batch=batch)
    assert answer["waiting"] == 0
    dead = [each["ev"] for each in answer["results"] if each["rtt_ns"] is None]
    assert sorted(dead) == [ev for ev, plane in evs if plane == 1 and ev >> 16 & 0xFFF == 1]
    rtts = [each["rtt_ns"] for each in answer["results"] if each["rtt_ns"] is not None]
    # Four links of 50 us each way, and short frames at 20 Mb/s.
    assert all(400_000 < rtt < 2_000_000 for rtt in rtts)
    with pytest.raises(HostError, match=f"no batch {batch}"):
        host.request("ev_probe_result", batch=batch)


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        ({"address": "h2", "evs": []}, "h2"),
        ({"address": "fd4d:5248:1::1", "evs": [[0xC000, 7]]}, "no plane 7; this host has 2"),
        ({"address": "fd4d:5248:1::1", "evs": [[0xC000]]}, r"evs\[0\] is \[49152\]; expected: a list of ev, plane"),
        ({"address": "fd4d:5248:1::1", "evs": [[0x0FFFC000, 0]]}, "EV 0fffc000 has no path to fd4d:5248:1::1"),
        ({"address": "fd4d:5248:9::1", "evs": [[0xC000, 0]]}, "has no path to fd4d:5248:9::1"),
        ({"address": "fd4d:5248:1::1", "evs": [[0, 0]] * 5000}, "at most 4096"),
    ],
)
def test_invalid_probe_is_refused_and_not_sent(node: HostNode, arguments: dict[str, Any], hint: str) -> None:
    refused(node, hint, "ev_probe", **arguments)
    assert command(node, "summary")["sent"] == 0


def test_disabled_port_carries_nothing_until_it_is_enabled(session: VirtualSession) -> None:
    host, peer = session.hosts["h0"], session.hosts["h2"]
    seen: list[tuple[int, int]] = []

    def sent() -> tuple[int, int]:
        first, second = (port["sent_bytes"] for port in host.request("statistics")["ports"])
        return first, second

    def down() -> None:
        host.request("port", port=1, up=False)
        seen.append(sent())

    result = during(
        session,
        {0.2: down, 0.4: lambda: seen.append(sent()), 0.5: lambda: host.request("port", port=1, up=True)},
    )
    assert seen[0][1] == seen[1][1] > 0, "nothing leaves a port that is administratively down"
    assert seen[1][0] > seen[0][0]
    assert sent()[1] > seen[1][1]
    ups = [(each["port"], each["up"]) for each in plain(result)["events"]["h2"] if each["kind"] == "port"]
    assert ups == [(1, False), (1, True)], "the peer is told"
    assert peer.request("summary")["ports_up"] == 2
    with pytest.raises(HostError, match="no port 2; this host has 2"):
        host.request("port", port=2, up=False)


# -- the socket -------------------------------------------------------------------------------------------------


@pytest.mark.netns
def test_controller_verbs_work_over_the_socket_of_a_real_agent(topology: Any, tmp_path: pathlib.Path) -> None:
    """A real agent on two veth ends: the same verbs, as JSON lines over a socket that only its owner can open."""
    made = describe.host_config(topology, topology.hosts[0], "real")
    names = [f"mlt{os.getpid() % 10**5}{end}{port}" for port in "01" for end in "ab"]
    made = dataclasses.replace(made, interfaces=names[::2])
    config, path = tmp_path / "h0.json", tmp_path / "h0.sock"
    config.write_text(json.dumps(dataclasses.asdict(made)))
    try:
        for near, far in zip(names[::2], names[1::2], strict=True):
            subprocess.run(["ip", "link", "add", near, "mtu", "2000", "type", "veth", "peer", "name", far], check=True)
            for each in (near, far):
                subprocess.run(["ip", "link", "set", each, "up"], check=True)
        agent = subprocess.Popen([sys.executable, "-m", "mrc_host.agent", str(config), str(path)])
        try:
            client = HostClient("h0", path)
            client.connect(wait_s=20)
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
            assert client.request("hello")["name"] == "h0"
            client.request("profile_create", kind="cc", name="mine", settings={"gamma": 0.5})
            to_state(client, "cc", "mine", "OFFLINE", "ONLINE")
            assert len(client.request("profile_list")["profiles"]) == 4
            with pytest.raises(HostError, match="host h0: profile_delete: cc profile 'mine' is ONLINE"):
                client.request("profile_delete", kind="cc", name="mine")
            batch = client.request("ev_probe", address="fd4d:5248:1::1", evs=[[0xC000, 0]], timeout_ns=1_000_000)
            deadline = time.monotonic() + 60
            while (answer := client.request("ev_probe_result", **batch))["waiting"]:
                assert time.monotonic() < deadline
            nobody = {"rtt_ns": None, "port": None, "request": 0}
            assert answer["results"] == [{"ev": 0xC000, "plane": 0, **nobody}], "nobody is there to answer"
            with socket.socket(socket.AF_UNIX) as raw:
                raw.connect(str(path))
                for line in (b"no json\n", b"[]\n", b'{"words": 1}\n'):
                    raw.sendall(line)
                    answer = json.loads(raw.recv(1 << 16))
                    assert not answer["ok"]
                    assert "one JSON object" in answer["error"]
            client.close()
        finally:
            agent.terminate()
            assert agent.wait(60) == 0
        assert not path.exists()
    finally:
        for near in names[::2]:
            subprocess.run(["ip", "link", "del", near], check=False, capture_output=True)
