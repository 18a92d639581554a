"""What hosts get in their namespaces."""

from __future__ import annotations

import errno
import socket
import subprocess
import sys

import pytest

from mrclab.lab import lifecycle
from mrclab.lab.hosts import hostnet

#: Configures the first host of a lab in a network namespace whose interfaces begin without IPv6, and asks its own
#: addresses for an answer.
WITHOUT_IPV6 = """
import os, pathlib, subprocess
from mrclab.lab.hosts.hostnet import HostNet
from mrc_topo import addressing
from mrc_topo.labfile import load_lab
net = HostNet(load_lab("tiny"))
net.pid = lambda host: os.getpid()
host, = net.hosts = net.hosts[:1]
for port in host.ports:
    subprocess.run(["ip", "link", "add", port.interface, "type", "veth", "peer", "name", f"x{port.plane}"], check=True)
    subprocess.run(["ip", "link", "set", f"x{port.plane}", "up"], check=True)
pathlib.Path("/proc/sys/net/ipv6/conf/all/disable_ipv6").write_text("1", encoding="utf-8")
net._configure_hosts()
for port in host.ports:
    address = addressing.text(port.address)
    # The kernel adds the route to itself in a work of its own. Without it a ping looks for a neighbour of this address.
    while not subprocess.run(["ip", "-6", "route", "show", "table", "local", address], capture_output=True).stdout:
        pass
    subprocess.run(["ping", "-c1", "-W5", address], check=True)
"""


@pytest.mark.netns
def test_host_has_ipv6_where_the_kernel_starts_interfaces_without_it() -> None:
    """As with `ipv6.disable_ipv6=1` on the kernel's command line."""
    command = ["unshare", "--net", sys.executable, "-c", WITHOUT_IPV6]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr


def test_kernel_without_ipv6_is_named_before_anything_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    class Refused(socket.socket):
        def __init__(self, *_: object) -> None:
            raise OSError(errno.EAFNOSUPPORT, "Address family not supported by protocol")

    monkeypatch.setattr(socket, "socket", Refused)
    assert lifecycle.problem() == hostnet.NO_IPV6
