"""AF_PACKET rings on a veth pair inside a namespace of the test's own."""

from __future__ import annotations

import pathlib

import pytest

from support.inside import run_in_namespace

NAMESPACE = "mrclab-test-ring"
A, B = b"\x02\x00\x00\x00\x00\x01", b"\x02\x00\x00\x00\x00\x02"

BODY = f"""
import select, socket, subprocess, sys, time
from mrc_host.drivers.packet_ring import PacketRing

def ip(*args):
    subprocess.run(["ip", *args], check=True)

def drain(ring, want, seconds=5.0):
    got, end = [], time.monotonic() + seconds
    while len(got) < want and time.monotonic() < end:
        select.select([ring], [], [], 0.2)
        ring.take(64, 3, taken := [])
        assert all(port == 3 and abs(time.time_ns() - stamp) < 60e9 for stamp, port, _ in taken)
        got += [packet for _, _, packet in taken]
    return got

ip("link", "add", "a0", "type", "veth", "peer", "name", "b0")
for name in ("a0", "b0"):
    ip("link", "set", name, "mtu", "9000", "up")
a = PacketRing("a0", {A!r}, {B!r}, packet_bytes=4020, rx_frames=64, tx_frames=32)
b = PacketRing("b0", {B!r}, {A!r}, packet_bytes=4020, rx_frames=64, tx_frames=32)
# The largest fits exactly, and blocks have room over.
packets = [bytes([0x60, i]) + bytes([i % 256]) * (58 + 40 * i) for i in range(100)]
for first in range(0, 100, 20):
    assert a.send(packets[first : first + 20]) == 20
    got = [p for p in drain(b, 20) if p[0] == 0x60 and p in packets]
    assert got == packets[first : first + 20], len(got)
assert a.send([bytes([0x60]) + bytes(9000)]) == 0 and a.oversize == 1

# More at once than the ring has frames, of either version of IP: each frame says of which.
assert a.tx_frames < 60 < b.rx_frames
mixed = [bytes([0x45 if i % 3 == 0 else 0x60]) + packet[1:] for i, packet in enumerate(packets[:60])]
with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3)) as sniffer:
    sniffer.bind(("b0", 3))
    sniffer.settimeout(5.0)
    assert a.send(mixed) == 60 and a.tx_errors == 0
    assert [p for p in drain(b, 60) if p in mixed] == mixed
    kinds = dict((frame[14:], frame[12:14]) for frame in (sniffer.recv(9000) for _ in range(60)))
    assert all(kinds[p] == (b"\\x08\\x00" if p[0] == 0x45 else b"\\x86\\xdd") for p in mixed if p in kinds)
    assert len(kinds.keys() & set(mixed)) > 50

# Down: nothing is sent, nothing raised; up again: only what is sent from then on arrives.
ip("link", "set", "a0", "down")
a.send([packets[1]] * 7)
assert a.tx_errors == 7, a.tx_errors
# What the kernel has noted on the socket meanwhile costs nothing that is sent later.
ip("link", "set", "a0", "up")
end = time.monotonic() + 120
while any(open(f"/sys/class/net/{{name}}/operstate").read() != "up\\n" for name in ("a0", "b0")):
    assert time.monotonic() < end, "links stay down"
    time.sleep(0.01)
a.send(packets[:5])
got = []
while len(got) < 5 and time.monotonic() < end:
    got += [p for p in drain(b, 1, 0.2) if p in packets]
got += [p for p in drain(b, 8, 1.0) if p in packets]
assert got == packets[:5], len(got)
ip("link", "del", "a0")
a.send(packets[:3])
a.take(8, 0, [])
a.close(); b.close()
print("ring ok")
"""


@pytest.mark.netns
def test_ring_carries_packets_and_survives_the_interface(tmp_path: pathlib.Path) -> None:
    assert "ring ok" in run_in_namespace(NAMESPACE, BODY, tmp_path / "body.py")
