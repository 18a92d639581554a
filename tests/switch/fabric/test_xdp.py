"""Ports that send by AF_XDP: where they do so, and what goes through them."""

from __future__ import annotations

import socket
from functools import partial
from pathlib import Path

import pytest

from p4lite.switch.fabric.fabric import Fabric, FabricError
from support.namespaces import Hosts, run
from support.switch.hand_program import HandProgram, Op, packet
from switch.fabric.test_real import eventually, ping

pytestmark = pytest.mark.root


@pytest.fixture(scope="module", autouse=True)
def _known() -> None:
    """Skip where the kernel has no such sockets."""
    try:
        socket.socket(44, socket.SOCK_RAW).close()  # AF_XDP, which Python has no name for
    except OSError as error:
        pytest.skip(f"no AF_XDP: {error}")


@pytest.mark.parametrize(("mtu", "round_us"), [(1500, 0), (9000, 0), (9000, 500)])
def test_frames_that_the_interface_does_not_take_are_counted(mtu: int, round_us: int) -> None:
    """By AF_XDP as by sendmmsg, where the others of the same call are sent."""
    with Hosts("xl", mtu=mtu) as hosts, Fabric("real", round_us=round_us) as fabric:
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


@pytest.mark.parametrize(("mtu", "round_us", "sockets"), [(1500, 0, 1), (9000, 0, 0), (1500, 500, 0)])
def test_ports_send_by_xdp_where_frames_fit(mtu: int, round_us: int, sockets: int) -> None:
    """A round has few frames for a port, and sends those for all by one call."""
    with Hosts("xs", count=1, mtu=mtu) as hosts, Fabric("real", round_us=round_us) as fabric:
        before = xdp_sockets()
        fabric.add_switch(1).add_port(1, interface=hosts.port(1))
        assert xdp_sockets() == before + sockets


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


def test_rounds_carry_frames_of_any_length_through_interfaces_that_were_opened_at_once() -> None:
    with Hosts("xr", mtu=9000) as hosts, Fabric("real", round_us=500) as fabric:
        fabric.open_interfaces([hosts.port(1), hosts.port(2), "nosuchif0"])
        switch = fabric.add_switch(1)
        switch.load(HandProgram())  # type: ignore[arg-type]
        with pytest.raises(FabricError, match="no such interface"):
            switch.add_port(3, interface="nosuchif0")
        for k in (1, 2):
            switch.add_port(k, interface=hosts.port(k))
        fabric.start()
        # The first piece of a frame is what its last page is not full of, but 64 bytes at least.
        for size in (56, 4082, 4090, 4140, 8300):
            assert ping(hosts, size=size), size
