"""AF_PACKET rings on a veth pair inside a namespace of the test's own."""

from __future__ import annotations

import pathlib

import pytest

from support.inside import run_in_namespace

NAMESPACE = "mrclab-test-ring"
A, B, C = (b"\x02\x00\x00\x00\x00" + bytes([last]) for last in (1, 2, 3))

BODY = f"""
import select, socket, subprocess, sys, time
from mrc_host.drivers.packet_ring import PacketRing, PacketSender

def ip(*args):
    subprocess.run(["ip", *args], check=True)

def drain(ring, want, seconds=5.0):
    got, end = [], time.monotonic() + seconds
    while len(got) < want and time.monotonic() < end:
        select.select([ring], [], [], 0.2)
        while stamp := ring.arrival():
            assert abs(time.time_ns() - stamp) < 60e9
            got.append(ring.take())
    return got

for name in ("0", "1"):
    ip("link", "add", "a" + name, "type", "veth", "peer", "name", "b" + name)
names = ("a0", "b0", "a1", "b1")
for name in names:
    ip("link", "set", name, "mtu", "4020", "up")
a = PacketRing("a0", packet_bytes=4020, rx_frames=64)
b, c = (PacketRing(name, packet_bytes=4020, rx_frames=128) for name in ("b0", "b1"))
sender = PacketSender(["a0", "a1"], [({A!r}, {B!r}), ({A!r}, {C!r})])
# The largest fits exactly, and blocks have room over; each packet leaves through its own port.
packets = [bytes([0x60, i]) + bytes([i % 256]) * (58 + 40 * i) for i in range(100)]
for first in range(0, 100, 20):
    sender.send([packets[first : first + 12], packets[first + 12 : first + 20]])
    for ring, sent in ((b, packets[first : first + 12]), (c, packets[first + 12 : first + 20])):
        got = [p for p in drain(ring, len(sent)) if p in packets]
        assert got == sent, len(got)
# A packet longer than the MTU is lost, those behind it are not.
sender.send([[bytes([0x60]) + bytes(9000), packets[3]], []])
assert sender.lost == 1 and packets[3] in drain(b, 1)
sender.lost = 0

# More at once than one system call takes, of either version of IP: each frame says of which.
mixed = [bytes([0x45 if i % 3 == 0 else 0x60]) + packet[1:200] for i, packet in enumerate(packets)]
with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3)) as sniffer:
    sniffer.bind(("b0", 3))
    sniffer.settimeout(5.0)
    sender.send([mixed, []])
    assert sender.lost == 0
    assert [p for p in drain(b, 100) if p in mixed] == mixed
    frames = [sniffer.recv(9000) for _ in range(100)]
    heads = dict((frame[14:], frame[:14]) for frame in frames)
    macs = {B!r} + {A!r}
    assert all(heads[p] == macs + (b"\\x08\\x00" if p[0] == 0x45 else b"\\x86\\xdd") for p in mixed if p in heads)
    assert len(heads.keys() & set(mixed)) > 90

# What is no IP packet is passed over.
with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0) as other:
    other.bind(("a0", 0))
    other.send({B!r} + {A!r} + b"\\x88\\xb5" + bytes(60))
    sender.send([[packets[2]], []])
    assert [p for p in drain(b, 1) if p in packets] == [packets[2]] and b.not_ip == 1

# Down: nothing is sent, nothing raised, other ports send; up again: only what is sent from then on arrives.
ip("link", "set", "a0", "down")
sender.send([[packets[1]] * 7, [packets[4]]])
assert sender.lost == 7, sender.lost
assert packets[4] in drain(c, 1)
poll = select.poll()
poll.register(a, select.POLLIN)
assert poll.poll(0) == [(a.fileno(), select.POLLERR)]
a.clear_error()
assert poll.poll(0) == []
ip("link", "set", "a0", "up")
end = time.monotonic() + 120
while any(open(f"/sys/class/net/{{name}}/operstate").read() != "up\\n" for name in names):
    assert time.monotonic() < end, "links stay down"
    time.sleep(0.01)
sender.send([packets[:5], []])
got = []
while len(got) < 5 and time.monotonic() < end:
    got += [p for p in drain(b, 1, 0.2) if p in packets]
got += [p for p in drain(b, 8, 1.0) if p in packets]
assert got == packets[:5], len(got)
ip("link", "del", "a0")
sender.send([packets[:3], []])
assert sender.lost == 10
for each in (a, b, c, sender):
    each.close()
try:
    b.arrival()
except ValueError:
    print("ring ok")
"""


@pytest.mark.netns
def test_ring_carries_packets_and_survives_the_interface(tmp_path: pathlib.Path) -> None:
    assert "ring ok" in run_in_namespace(NAMESPACE, BODY, tmp_path / "body.py")
