"""Ports by AF_XDP: what goes through them, what is left of them when a process ends in whatever way, and refusals."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from p4lite.switch.fabric.fabric import Fabric, FabricError, Switch
from p4lite.switch.fabric.xdp import MAX_MTU, no_xdp
from support.namespaces import Hosts, run
from support.switch.hand_program import HandProgram, Op, packet
from switch.fabric.test_real import eventually, ping, send_frames

pytestmark = pytest.mark.root


@pytest.fixture(scope="module", autouse=True)
def _allowed() -> None:
    """Skip where the kernel or this machine's rights do not allow AF_XDP."""
    with Hosts("xa", count=1) as hosts, Fabric("real") as fabric:
        try:
            fabric.add_switch(1).add_port(1, interface=hosts.port(1), xdp=True)
        except FabricError as error:
            pytest.skip(str(error))


@contextmanager
def patched(hosts: Hosts) -> Iterator[tuple[Fabric, Switch]]:
    """Yield a running switch that joins hosts 1 and 2, which compute their checksums themselves."""
    with Fabric("real") as fabric:
        switch = fabric.add_switch(1)
        switch.load(HandProgram())  # type: ignore[arg-type]
        for k in (1, 2):
            hosts.on(k, "ethtool", "-K", "eth0", "tx", "off")
            switch.add_port(k, interface=hosts.port(k), xdp=True)
        fabric.start()
        yield fabric, switch


def has_program(interface: str) -> bool:
    return "prog/xdp" in run("ip", "link", "show", interface)


def test_packets_of_all_lengths_pass_both_ways() -> None:
    with Hosts("xp") as hosts, patched(hosts) as (_, switch):
        for size in (1, 18, 500, 1472):
            assert ping(hosts, size=size)
        assert ping(hosts, "fd09::2")
        for k in (1, 2):
            stats = switch.port(k).stats()
            assert stats.drops["device"] == stats.drops["rx_ring"] == 0


def test_a_page_of_mtu_passes() -> None:
    with Hosts("xm", mtu=MAX_MTU) as hosts, patched(hosts):
        assert ping(hosts, size=MAX_MTU - 28)


def test_more_packets_than_frames_pass() -> None:
    """The rings go round, and every frame is given back."""
    frames = [packet(Op.FORWARD, 2, size=60 + n % 1000, fill=n % 256) for n in range(4000)]
    with Hosts("xn") as hosts, patched(hosts) as (_, switch):
        send_frames(hosts, frames)
        assert eventually(lambda: switch.port(2).stats().tx_packets >= len(frames))
        assert switch.port(1).stats().drops["rx_ring"] == 0


@pytest.mark.parametrize("mtu", [1500, 9000])
def test_frames_that_the_interface_does_not_take_are_counted(mtu: int) -> None:
    """By AF_XDP for sending alone, which ports use where they can, as by sendmmsg."""
    with Hosts("xl", mtu=mtu) as hosts, Fabric("real") as fabric:
        switch = fabric.add_switch(1)
        switch.load(HandProgram())  # type: ignore[arg-type]
        port = switch.add_port(2, interface=hosts.port(2))
        source = switch.add_port(1)
        fabric.start()
        source.generate([packet(Op.FORWARD, 2, size=mtu + 14 + more) for more in (0, 1)], 2, interval_ns=1000)
        assert eventually(lambda: port.stats().drops["device"] == 1)
        assert port.stats().tx_packets == 2


def xdp_sockets() -> int:
    """Return how many AF_XDP sockets there are in this network namespace."""
    lines = Path("/proc/net/protocols").read_text().splitlines()
    return sum(int(line.split()[2]) for line in lines if line.startswith("XDP "))


@pytest.mark.parametrize(("mtu", "sockets"), [(1500, 1), (9000, 0)])
def test_ports_send_by_xdp_where_frames_fit(mtu: int, sockets: int) -> None:
    with Hosts("xs", count=1, mtu=mtu) as hosts, Fabric("real") as fabric:
        before = xdp_sockets()
        fabric.add_switch(1).add_port(1, interface=hosts.port(1))
        assert xdp_sockets() == before + sockets
        assert not has_program(hosts.port(1))


def test_another_mtu_holds_at_once() -> None:
    """A port that sends by AF_XDP goes back to sendmmsg when frames do not fit any more."""
    with Hosts("xc") as hosts, Fabric("real") as fabric:
        switch = fabric.add_switch(1)
        switch.load(HandProgram())  # type: ignore[arg-type]
        for k in (1, 2):
            switch.add_port(k, interface=hosts.port(k))
        fabric.start()
        for mtu in (1900, 9000, 1500):
            for k in (1, 2):
                run("ip", "link", "set", hosts.port(k), "mtu", str(mtu))
                hosts.on(k, "ip", "link", "set", "eth0", "mtu", str(mtu))
            assert eventually(partial(ping, hosts, size=mtu - 28))


def test_interface_down_up_gone_and_back() -> None:
    with Hosts("xd") as hosts, patched(hosts) as (_, switch):
        name = hosts.port(1)
        assert ping(hosts)
        run("ip", "link", "set", name, "down")
        assert eventually(lambda: not switch.port(1).is_up("outgoing"))
        assert not ping(hosts, count=1)
        run("ip", "link", "set", name, "up")
        assert eventually(lambda: ping(hosts, count=1))
        run("ip", "link", "del", name)
        assert eventually(lambda: not switch.port(1).is_up("outgoing"))
        hosts.on(2, "ping", "-c", "1", "-W", "1", "10.9.0.1", check=False)
        hosts.plug(1)
        hosts.on(1, "ethtool", "-K", "eth0", "tx", "off")
        assert eventually(lambda: ping(hosts, count=1))
        assert has_program(name)


def test_nothing_is_left_on_the_interface() -> None:
    with Hosts("xr") as hosts:
        with patched(hosts) as (_, switch):
            assert has_program(hosts.port(1))
            switch.remove_port(1)
            assert not has_program(hosts.port(1))
            assert has_program(hosts.port(2))
        assert not has_program(hosts.port(2))


def test_nothing_is_left_of_a_killed_process() -> None:
    child = (
        "import sys, time\n"
        "from p4lite.switch.fabric.fabric import Fabric\n"
        "fabric = Fabric('real')\n"
        "fabric.add_switch(1).add_port(1, interface=sys.argv[1], xdp=True)\n"
        "fabric.start(); print('ready', flush=True); time.sleep(60)\n"
    )
    with Hosts("xk", count=1) as hosts:
        process = subprocess.Popen([sys.executable, "-c", child, hosts.port(1)], stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "ready\n"
            assert has_program(hosts.port(1))
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait()
        assert eventually(lambda: not has_program(hosts.port(1)))


def test_refusals_name_the_remedy() -> None:
    with Hosts("xf", mtu=MAX_MTU + 1) as hosts, Fabric("real") as one, Fabric("real") as other:
        first, second = one.add_switch(1), other.add_switch(1)
        with pytest.raises(FabricError, match=f"ip link set {hosts.port(1)} mtu {MAX_MTU}"):
            first.add_port(1, interface=hosts.port(1), xdp=True)
        assert first.ports == {}
        for k in (1, 2):
            run("ip", "link", "set", hosts.port(k), "mtu", "1500")
        first.add_port(1, interface=hosts.port(1), xdp=True)
        with pytest.raises(FabricError, match="another AF_XDP socket uses the interface"):
            second.add_port(1, interface=hosts.port(1), xdp=True)
        second.add_port(1, interface=hosts.port(1))


def test_missing_rights_are_named() -> None:
    child = (
        "import sys\n"
        "from p4lite.switch.fabric.fabric import Fabric, FabricError\n"
        "try:\n"
        "    Fabric('real').add_switch(1).add_port(1, interface=sys.argv[1], xdp=True)\n"
        "except FabricError as error:\n"
        "    print(error)\n"
    )
    with Hosts("xg", count=1) as hosts:
        command = ["setpriv", "--bounding-set=-bpf,-sys_admin,-net_admin", sys.executable, "-c", child, hosts.port(1)]
        said = run(*command)
    assert "CAP_BPF" in said
    assert "or use the interface without AF_XDP" in said


def test_every_step_has_a_reason() -> None:
    for step in ("xdp_socket", "xdp_memory", "xdp_program", "xdp_bind", "xdp_attach"):
        for code in range(1, 134):
            assert no_xdp(step, code, "eth7")
        assert os.strerror(5) in no_xdp(step, 5, "eth7")
    assert "ethtool -L eth7 combined 1" in no_xdp("xdp_queues", 0, "eth7")
