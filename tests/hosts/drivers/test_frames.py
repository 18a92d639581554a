"""frames.c against frames.py: frames of a ring, and refusals."""

from __future__ import annotations

import ctypes
import random
import struct
import subprocess
import sysconfig
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mrc_host import build, native
from mrc_host.drivers import frames

FRAME_BYTES = 256
FRAMES = 400
FLAGS = ("-std=c11", "-Wall", "-Wextra", "-Werror", "-O2", "-fPIC", "-shared")


class InC:
    """The functions of a library made of frames.c, called as compiled modules do."""

    def __init__(self, path: Path) -> None:
        library = ctypes.PyDLL(str(path))
        library.mrc_arrival.restype = library.mrc_send.restype = ctypes.c_int64
        library.mrc_take.restype = ctypes.py_object
        self._library = library

    def arrival(self, ring: memoryview, at: int) -> int:
        return int(self._library.mrc_arrival(ctypes.py_object(ring), ctypes.c_int64(at)))

    def take(self, ring: memoryview, at: int) -> bytes:
        taken: bytes = self._library.mrc_take(ctypes.py_object(ring), ctypes.c_int64(at))
        return taken

    def send(self, descriptor: int, routes: list[bytes], packets: list[Any]) -> int:
        objects = (ctypes.py_object(routes), ctypes.py_object(packets))
        return int(self._library.mrc_send(ctypes.c_int64(descriptor), *objects))


@pytest.fixture(scope="module")
def in_c(tmp_path_factory: pytest.TempPathFactory) -> InC:
    """Compile it without warnings."""
    if lacks := build.lacking():
        pytest.skip(lacks)
    path = tmp_path_factory.mktemp("frames") / "frames.so"
    source = native.PACKAGE / "drivers" / "frames.c"
    command = [build.compiler(), *FLAGS, f"-I{sysconfig.get_path('include')}", "-o", str(path), str(source)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return InC(path)


def ring(seed: int) -> memoryview:
    """Return a ring of frames as the kernel leaves them: there or not, of any EtherType, from nothing on."""
    rng = random.Random(seed)
    memory = bytearray(rng.randbytes(FRAME_BYTES * FRAMES))
    for at in range(0, len(memory), FRAME_BYTES):
        captured = rng.choice((0, 13, 14, 15, 60, FRAME_BYTES - frames.RX_MAC_BYTES))
        status = rng.choice((0, 1, 0x31, 0x30, 0x80000001))
        head = struct.pack("=IIIHHII", status, captured, captured, 66, 80, rng.randrange(1 << 32), 999_999_999)
        memory[at : at + len(head)] = head
        kind = rng.choice((*frames.IP_TYPES, b"\x08\x06", b"\x00\x00"))
        memory[at + 78 : at + 80] = kind
    return memoryview(memory)


def test_rings_are_read_alike(in_c: InC) -> None:
    for seed in range(5):
        one, other = ring(seed), ring(seed)
        found = []
        for at in range(0, len(one), FRAME_BYTES):
            stamp = frames.arrival(one, at)
            assert in_c.arrival(other, at) == stamp
            found.append(stamp)
            if stamp:
                assert in_c.take(other, at) == frames.take(one, at)
                assert frames.arrival(one, at) == in_c.arrival(other, at) == 0
        assert one == other
        assert {0, frames.NOT_OURS} < set(found)


@pytest.mark.parametrize("place", [-1, FRAME_BYTES * FRAMES - 79, FRAME_BYTES * FRAMES, 1 << 40])
def test_there_is_no_frame_beside_a_ring(in_c: InC, place: int) -> None:
    read: list[Callable[[memoryview, int], object]] = [in_c.arrival, in_c.take]
    for call in read:
        with pytest.raises(ValueError, match="no frame"):
            call(ring(0), place)


def test_a_closed_ring_is_not_read(in_c: InC) -> None:
    closed = ring(0)
    closed.release()
    read: list[Callable[[memoryview, int], object]] = [in_c.arrival, in_c.take, frames.arrival, frames.take]
    for call in read:
        with pytest.raises(ValueError, match=r"released|open"):
            call(closed, 0)


def test_a_socket_that_cannot_send_is_an_error(in_c: InC) -> None:
    """Unlike an interface that does not take a packet."""
    way, packet = frames.route(1, bytes(6), bytes(6)), bytes([0x60])
    for send in (in_c.send, frames.send):
        with pytest.raises(OSError, match="Bad file descriptor"):
            send(-1, [way], [[packet]])


@pytest.mark.parametrize(
    ("routes", "packets"), [([], [[b"a"]]), ([b"short"], [[b"a"]]), ([bytes(32)], [[b""]]), ([bytes(32)], [["a"]])]
)
def test_what_are_no_packets_is_refused(in_c: InC, routes: list[bytes], packets: list[Any]) -> None:
    with pytest.raises(ValueError, match="packet"):
        in_c.send(-1, routes, packets)
