"""What a kernel says by itself, on a veth pair inside a namespace of the test's own."""

from __future__ import annotations

import pathlib

import pytest

from support.inside import run_in_namespace

NAMESPACE = "mrclab-test-said"

BODY = """
import ctypes, os, pathlib, socket, subprocess, time
from mrc_host.drivers.netns import CLONE_NEWNET, KernelPackets, inside

def ip(*args):
    subprocess.run(["ip", *args], check=True)

def arrived():
    return int(pathlib.Path("/sys/class/net/b0/statistics/rx_packets").read_text())

def settled():
    while True:
        before = arrived(), kernel.sent(0)
        time.sleep(2.5)
        if before == (arrived(), kernel.sent(0)):
            assert visitor() == kernel.sent(0)
            return before

# What a process of another namespace counts, which was in this one for a moment as an agent is.
def visitor():
    out, given = os.pipe()
    if not (child := os.fork()):
        path = f"/proc/{os.getppid()}/ns/net"
        assert not ctypes.CDLL(None).unshare(CLONE_NEWNET)
        with inside(path):
            counts = KernelPackets(["a0"], path)
        os.write(given, str(counts.sent(0)).encode())
        os._exit(0)
    os.waitpid(child, 0)
    os.close(given)
    with open(out) as answer:
        return int(answer.read())

ip("link", "add", "a0", "type", "veth", "peer", "name", "b0")
pathlib.Path("/proc/sys/net/ipv6/conf/a0/disable_ipv6").write_text("0")
pathlib.Path("/proc/sys/net/ipv6/conf/b0/disable_ipv6").write_text("1")
kernel = KernelPackets(["a0"])
for name in ("b0", "a0"):
    ip("link", "set", name, "up")
seen, sent = settled()
assert seen == sent > 0, (seen, sent)

# Without carrier the kernel's reports of groups and an agent's frames end in the interface.
ip("link", "set", "b0", "down")
ip("address", "add", "fd00::2/128", "dev", "a0", "nodad")
with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as agent:
    agent.bind(("a0", 0x86DD))
    for _ in range(3):
        agent.send(bytes(64))
    frames = 3
    assert settled() == (seen, seen - frames)

    # With carrier again what is sent arrives. The agent counts its own.
    ip("link", "set", "b0", "up")
    agent.send(bytes(64))
    seen, sent = settled()
    assert seen == sent + frames + 1, (seen, sent)
print("counts ok")
"""


@pytest.mark.netns
def test_packets_of_the_kernel_are_those_that_left_the_interface(tmp_path: pathlib.Path) -> None:
    assert "counts ok" in run_in_namespace(NAMESPACE, BODY, tmp_path / "body.py")
