"""The real clock, and ports on interfaces: veth pairs into namespaces that the test makes."""

from __future__ import annotations

import json
import struct
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from p4lite.switch.fabric.fabric import Fabric, FabricError, FabricSwitch, LinkSettings
from p4lite.switch.fabric.values import NotificationKind, PfcSettings, QueueLimits
from support.namespaces import Hosts, run
from support.pcapng import packets
from support.switch.hand_program import HandProgram, Op, packet


def eventually(condition: Callable[[], bool], timeout_s: float = 60.0) -> bool:
    """Return whether the condition came true."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.02)
    return condition()


@contextmanager
def patched(hosts: Hosts, **options: LinkSettings) -> Iterator[tuple[Fabric, FabricSwitch]]:
    """Yield a running switch that joins hosts 1 and 2."""
    with Fabric("real") as fabric:
        switch = fabric.add_switch(1)
        switch.load(HandProgram())  # type: ignore[arg-type]
        for k in (1, 2):
            switch.add_port(k, interface=hosts.port(k), **options)  # type: ignore[arg-type]
        fabric.start()
        yield fabric, switch


def ping(hosts: Hosts, target: str = "10.9.0.2", count: int = 3, size: int = 56) -> bool:
    command = ["ping", "-c", str(count), "-i", "0.05", "-W", "2", "-M", "do", "-s", str(size), target]
    return f" {count} received" in hosts.on(1, *command, check=False)


@pytest.mark.parametrize("round_us", [0, 500])
def test_real_clock_keeps_rate_and_reports_its_lateness(round_us: int) -> None:
    """With rounds, too: what is late by half a round on average does not make a link slower."""
    with Fabric("real", seed=1, round_us=round_us) as fabric:
        switch = fabric.add_switch(1)
        switch.load(HandProgram())  # type: ignore[arg-type]
        source, sink = switch.add_port(1), switch.add_port(2)
        sink.collect(False)
        sink.set_link(outgoing=LinkSettings(rate_bps=8 * 10**6, delay_ns=100_000))
        sink.set_queue(QueueLimits(packets=0))
        fabric.start()
        with pytest.raises(FabricError, match="not yet running"):
            fabric.start()
        source.generate([packet(Op.FORWARD, 2, size=1000)], 200, interval_ns=10_000)
        assert eventually(lambda: sink.stats().tx_packets == 200)
        assert fabric.now_ns > 199 * 10**6  # 200 kB at one byte per µs
        lateness = fabric.lateness(reset=True)
        assert lateness.loop.count >= 400
        assert 0 < lateness.loop.p50_ns <= lateness.loop.p99_ns <= lateness.loop.max_ns
        assert 0 < lateness.cpu_share < 1
        assert sink.stats().service_lag.count == 199
        fabric.stop()
        fabric.stop()
        fabric.start()
        source.generate([packet(Op.FORWARD, 2)], 1, interval_ns=1)
        assert eventually(lambda: sink.stats().tx_packets == 201)


def test_control_plane_wakes_a_sleeping_loop() -> None:
    with Fabric("real") as fabric:
        switch = fabric.add_switch(1, cpu_port=9)
        switch.load(HandProgram())  # type: ignore[arg-type]
        fabric.start()
        assert fabric.notifications(timeout_s=0.05) == []
        for k in range(20):
            switch.packet_out(packet(Op.FORWARD, 9, fill=k))
            [note] = fabric.notifications(timeout_s=60)
            assert (note.kind, note.data[50]) == (NotificationKind.PACKET_IN, k)
        with fabric.lock(), fabric.lock():
            switch.packet_out(packet(Op.DROP))
        switch.set_state("frozen")
        switch.restart()


def test_port_on_a_missing_interface_is_refused() -> None:
    with Fabric("real") as fabric:
        switch = fabric.add_switch(1)
        for name, reason in (("nosuchif0", "no such interface"), ("x" * 40, "not an interface name")):
            with pytest.raises(FabricError, match=reason):
                switch.add_port(1, interface=name)
        assert switch.ports == {}
        switch.add_port(1)


@pytest.mark.netns
def test_ping_and_capture(tmp_path: Path) -> None:
    with Hosts("sp") as hosts, patched(hosts) as (fabric, switch):
        switch.port(1).capture(tmp_path / "p1.pcapng")
        assert ping(hosts)
        assert ping(hosts, "fd09::2")
        with pytest.raises(FabricError, match="another port uses this interface"):
            switch.add_port(3, interface=hosts.port(1))
        switch.port(2).set_link(outgoing=LinkSettings(delay_ns=30_000_000))
        took = json.loads(
            "[" + hosts.on(1, "ping", "-c", "1", "-W", "2", "10.9.0.2").split("time=")[1].split()[0] + "]"
        )
        assert took[0] >= 30.0
        switch.port(1).set_up(False, "outgoing")
        assert not ping(hosts, count=1)
        fabric.stop()
        decoded = run("tshark", "-r", str(tmp_path / "p1.pcapng"), "-Y", "icmp || icmpv6.type == 128")
        assert "Echo (ping) request" in decoded
        assert "Malformed" not in decoded


@pytest.mark.netns
def test_jumbo_frames() -> None:
    with Hosts("sj", mtu=9500) as hosts, patched(hosts) as (_, switch):
        for size in (9200, 9472, 2000, 1):
            assert ping(hosts, size=size)
        # an MTU raised after the port was made: frames longer than the ring's come another way
        assert switch.port(1).stats().drops["rx_ring"] == 0
        for k in (1, 2):
            run("ip", "link", "set", hosts.port(k), "mtu", "20000")
            hosts.on(k, "ip", "link", "set", "eth0", "mtu", "20000")
        assert ping(hosts, size=19000)


@pytest.mark.netns
@pytest.mark.slow
@pytest.mark.parametrize("arguments", [["-4"], ["-6"], ["-4", "-R"], ["-u", "-b", "50M"]])
def test_iperf3(arguments: list[str]) -> None:
    with Hosts("si") as hosts, patched(hosts) as (_, switch):
        server = subprocess.Popen(
            ["ip", "netns", "exec", hosts.name(2), "iperf3", "-s", "-1"], stdout=subprocess.DEVNULL
        )
        try:
            assert eventually(lambda: ":5201" in hosts.on(2, "ss", "-ltn"))
            target = "fd09::2" if "-6" in arguments else "10.9.0.2"
            command = ["iperf3", "-c", target, "-t", "1", "-J", *(a for a in arguments if a not in ("-4", "-6"))]
            result = json.loads(hosts.on(1, *command, timeout_s=30))
        finally:
            server.kill()
            server.wait()
        end = result["end"]
        total = end["sum"] if "-u" in arguments else end["sum_received"]
        assert total["bytes"] > 1_000_000
        for k in (1, 2):
            assert wrong_checksums(hosts.on(k, "cat", "/proc/net/snmp")) == {"Tcp": 0, "Udp": 0}
        # super-frames were cut to the size of the wire
        assert switch.port(1).stats().rx_bytes / switch.port(1).stats().rx_packets <= 1514


def wrong_checksums(snmp: str) -> dict[str, int]:
    """Return the segments and datagrams with a wrong checksum from `/proc/net/snmp`, pairs of lines: names, values."""
    lines = [line.split() for line in snmp.splitlines()]
    pairs = zip(lines[::2], lines[1::2], strict=True)
    tables = {names[0].rstrip(":"): dict(zip(names, values, strict=True)) for names, values in pairs}
    return {protocol: int(tables[protocol]["InCsumErrors"]) for protocol in ("Tcp", "Udp")}


@contextmanager
def running(namespace: str, program: str) -> Iterator[subprocess.Popen[str]]:
    """Run a Python program in a namespace, with pipes to it and from it, until the block ends."""
    command = ["ip", "netns", "exec", namespace, "python3", "-c", program]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def send_frames(hosts: Hosts, frames: list[bytes]) -> None:
    """Send raw frames from host 1."""
    sender = (
        "import socket,sys,time\n"
        "s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW); s.bind(('eth0', 0))\n"
        "for i, line in enumerate(sys.stdin):\n"
        "    s.send(bytes.fromhex(line))\n"
        "    if i % 50 == 0: time.sleep(0.01)\n"
    )
    subprocess.run(
        ["ip", "netns", "exec", hosts.name(1), "python3", "-c", sender],
        input="\n".join(f.hex() for f in frames),
        text=True,
        timeout=300,
        check=True,
    )


@pytest.mark.netns
def test_vlan_tags_survive(tmp_path: Path) -> None:
    """The kernel takes the outer tag out of a frame; the switch puts it back."""
    macs = bytes.fromhex("120000000002120000000001")
    tags = ("81002005", "88a80064", "88a8006481000005", "8100000081000000")
    frames = [macs + bytes.fromhex(tag) + b"\x88\xb5" + bytes(50) for tag in tags]
    with Hosts("sv") as hosts, patched(hosts) as (fabric, switch):
        for k in (1, 2):
            switch.port(k).capture(tmp_path / f"p{k}.pcapng")
        send_frames(hosts, frames)
        assert eventually(lambda: switch.port(2).stats().tx_packets >= len(frames))
        fabric.stop()
        for k in (1, 2):
            seen = packets((tmp_path / f"p{k}.pcapng").read_bytes())
            assert [frame for frame in seen if b"\x88\xb5" in frame] == frames


@pytest.mark.netns
def test_udp_super_frames_are_cut() -> None:
    """A sender that leaves segmentation to the device (UDP_SEGMENT), over IPv4 and IPv6."""
    script = (
        "import socket\n"
        "for family, target in ((socket.AF_INET, '10.9.0.2'), (socket.AF_INET6, 'fd09::2')):\n"
        "    s = socket.socket(family, socket.SOCK_DGRAM)\n"
        "    s.setsockopt(17, 103, 1000)\n"
        "    s.sendto(bytes(range(250)) * 20 + b'end', (target, 7000))\n"
    )
    receiver = (
        "import socket\n"
        "s = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM); s.bind(('::', 7000)); s.settimeout(10)\n"
        "print('ready', flush=True)\n"
        "print('\\n'.join([s.recv(4096).hex() for _ in range(12)]))\n"
    )
    with Hosts("su") as hosts, patched(hosts) as (_, switch):
        command = ["ip", "netns", "exec", hosts.name(2), "python3", "-c", receiver]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "ready\n"
            hosts.on(1, "python3", "-c", script)
            got = [bytes.fromhex(process.stdout.readline()) for _ in range(12)]
        finally:
            process.kill()
            process.wait()
        assert got == ([bytes(range(250)) * 4] * 5 + [b"end"]) * 2
        assert switch.port(1).stats().drops["device"] == 0


@pytest.mark.root
def test_a_real_time_loop_leaves_room_for_control() -> None:
    with Fabric("real", realtime=True) as fabric:
        switch = fabric.add_switch(1, cpu_port=9)
        switch.load(HandProgram())  # type: ignore[arg-type]
        source, sink = switch.add_port(1), switch.add_port(2)
        sink.collect(False)
        fabric.start()
        source.generate([packet(Op.FORWARD, 2)], 2_000_000, interval_ns=500)
        for k in range(200):
            switch.packet_out(packet(Op.FORWARD, 9))
            switch.set_multicast_group(1 + k, [])
        assert len(switch.multicast_groups()) == 200
        assert sink.stats().tx_packets > 0


@pytest.mark.netns
def test_interface_down_up_gone_and_back() -> None:
    with Hosts("sd") as hosts, patched(hosts) as (fabric, switch):
        name = hosts.port(1)
        assert ping(hosts)
        assert switch.port(1).is_up("outgoing")

        run("ip", "link", "set", name, "down")
        [note] = [n for n in fabric.notifications(timeout_s=60) if n.kind is NotificationKind.PORT_STATUS]
        assert (note.ident, note.up) == (1, False)
        assert not switch.port(1).is_up("outgoing")
        assert not ping(hosts, count=1)
        run("ip", "link", "set", name, "up")
        assert eventually(lambda: switch.port(1).is_up("outgoing"))
        assert eventually(lambda: ping(hosts, count=1))

        run("ip", "link", "del", name)
        assert eventually(lambda: not switch.port(1).is_up("outgoing"))
        hosts.on(2, "ping", "-c", "1", "-W", "1", "10.9.0.1", check=False)
        assert switch.stats().received > 0
        hosts.plug(1)
        assert eventually(lambda: switch.port(1).is_up("outgoing"))
        assert eventually(lambda: ping(hosts, count=1))
        switch.remove_port(1)
        switch.add_port(1, interface=name)
        assert ping(hosts)


@pytest.mark.netns
def test_every_length_goes_through_unchanged() -> None:
    with Hosts("sl") as hosts, patched(hosts):
        receiver = (
            "import socket,sys\n"
            "s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x88b5))\n"
            "s.bind(('eth0', 0x88b5)); s.settimeout(60); print('ready', flush=True)\n"
            "for _ in range(1455): print(s.recv(4096).hex(), flush=True)\n"
        )
        sender = (
            "import socket,sys\n"
            "s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW); s.bind(('eth0', 0))\n"
            "for line in sys.stdin: s.send(bytes.fromhex(line))\n"
        )
        head = bytes.fromhex("120000000002 120000000001 88b5".replace(" ", ""))
        frames = [head + struct.pack(">H", n) + bytes(n % 256 for n in range(n - 16)) for n in range(60, 1515)]
        got = []
        with running(hosts.name(2), receiver) as there, running(hosts.name(1), sender) as here:
            assert there.stdout is not None
            assert here.stdin is not None
            assert there.stdout.readline() == "ready\n"
            # No more at once than a socket holds, however long the receiver waits for a processor.
            for at in range(0, len(frames), 40):
                batch = frames[at : at + 40]
                here.stdin.writelines(f"{frame.hex()}\n" for frame in batch)
                here.stdin.flush()
                got += [bytes.fromhex(there.stdout.readline()) for _ in batch]
        assert got == frames


@pytest.mark.netns
def test_pause_frames_on_interfaces_are_real(tmp_path: Path) -> None:
    """A host that sends too much gets a pause frame, to the byte; one that it sends itself is obeyed, not forwarded."""
    receiver = (
        "import socket\n"
        "s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x8808))\n"
        "s.bind(('eth0', 0x8808)); s.settimeout(20); print('ready', flush=True)\n"
        "print(s.recv(4096).hex())\n"
    )
    head = bytes.fromhex("12000000000212000000000188b5")
    asked = bytes.fromhex("0180c20000011200000000018808010100010100").ljust(60, b"\0")
    wanted = bytes.fromhex("0180c2000001020000000007880801010001ffff").ljust(60, b"\0")
    with Hosts("sp") as hosts, patched(hosts, to_host=LinkSettings(rate_bps=80_000)) as (fabric, switch):
        switch.port(2).capture(tmp_path / "p2.pcapng")
        for k in (1, 2):
            switch.port(k).set_pfc(0, PfcSettings(2000, 1000, 10_000), 0x02_00_00_00_00_07)
        command = ["ip", "netns", "exec", hosts.name(1), "python3", "-c", receiver]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "ready\n"
            send_frames(hosts, [head + bytes(986)] * 8)
            assert bytes.fromhex(process.stdout.readline()) == wanted
        finally:
            process.kill()
            process.wait()
        assert eventually(lambda: switch.port(1).pfc_stats()[0].resumes_sent > 0)
        send_frames(hosts, [asked])
        assert eventually(lambda: switch.port(1).pfc_stats()[0].pauses_received == 1)
        assert switch.port(1).pfc_stats()[0].paused_ns > 0
        fabric.stop()
        assert not [frame for frame in packets((tmp_path / "p2.pcapng").read_bytes()) if frame[12:14] == b"\x88\x08"]
