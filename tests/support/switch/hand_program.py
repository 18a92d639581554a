"""The hand-written program of `tests/support/switch/hand_program.c` as the fabric takes programs, and its packets."""

from __future__ import annotations

import ctypes
import enum
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from p4lite.switch.native.build import PROGRAM_DIR, build, sanitized
from p4lite.switch.native.description import read_description
from p4lite.switch.runtime.abi import OpenedProgram

HEADER = 40


class Op(enum.IntEnum):
    """What the program does with a packet (byte 0)."""

    FORWARD = 0
    DROP = 1
    MULTICAST = 2
    CLONE = 3
    EGRESS_CLONE = 4
    RESUBMIT = 5
    RECIRCULATE = 6
    DIGEST = 7
    TRUNCATE = 8
    EGRESS_DROP = 9
    RESUBMIT_FOREVER = 10
    RECIRCULATE_FOREVER = 11
    CLONE_FOREVER = 12
    CLONE_AND_DROP = 13
    SHRINK = 14
    GROW = 15
    ROUTED = 16


def packet(
    op: Op = Op.FORWARD,
    argument: int = 1,
    *,
    second: int = 0,
    priority: int = 0,
    stamp: bool = True,
    size: int = 100,
    fill: int = 0,
) -> bytes:
    """Return a packet of `size` bytes."""
    head = bytes([op, argument, priority, int(stamp), second]) + bytes(HEADER - 5)
    return head + bytes([fill]) * (size - HEADER)


def routed(*ports: int, priority: int = 0, size: int = 100) -> bytes:
    """Return a packet that leaves the first switch through the first port, the second one through the second."""
    head = bytes([Op.ROUTED, ports[0], priority, 0, 0]) + bytes(11) + bytes(ports[1:])
    return head.ljust(size, b"\0")


@dataclass(frozen=True)
class Stamp:
    """What egress wrote into a packet."""

    instance_type: int
    ingress_port: int
    egress_port: int
    egress_rid: int
    enq_qdepth: int
    deq_qdepth: int
    qid: int
    kept: int
    packet_length: int
    deq_timedelta: int
    enq_timestamp: int
    egress_spec: int
    rounds: int

    @classmethod
    def of(cls, frame: bytes) -> Stamp:
        """Return the stamp of a frame that came out."""

        def number(at: int, size: int) -> int:
            return int.from_bytes(frame[at : at + size], "big")

        return cls(
            frame[5],
            frame[6],
            frame[7],
            number(8, 2),
            number(10, 2),
            number(12, 2),
            frame[14],
            frame[15],
            number(16, 4),
            number(20, 4),
            number(24, 8),
            number(32, 2),
            number(34, 2),
        )


@cache
def _opened() -> OpenedProgram:
    source = Path(__file__).with_name("hand_program.c")
    sources = [source, PROGRAM_DIR / "describe.c"]
    lib = ctypes.CDLL(str(build("hand-program", sources, sanitize=sanitized())))
    lib.p4lite_program.restype = ctypes.c_void_p
    return OpenedProgram(lib, int(lib.p4lite_program()), read_description(lib, "p4lite_description"))


class HandInstance:
    """The instance of one switch."""

    def __init__(self, seed: int, drop_port: int, lock: int) -> None:
        opened = _opened()
        self._destroy = opened.function("destroy", None, ctypes.c_void_p)
        self._restart = opened.function("restart", None, ctypes.c_void_p)
        config = opened.about.structures["p4_config"](lock=lock, seed=seed, drop_port=drop_port)
        make = opened.function("create", ctypes.c_void_p, ctypes.c_void_p)
        self.pointer = int(make(ctypes.addressof(config)))
        self.restarts = 0
        self.closed = False

    def restart(self) -> None:
        """As ProgramInstance.restart."""
        self._restart(self.pointer)
        self.restarts += 1

    def close(self) -> None:
        """As ProgramInstance.close."""
        if not self.closed:
            self._destroy(self.pointer)
        self.closed = True


class HandProgram:
    """Stands in for p4lite.switch.runtime.loader.LoadedProgram."""

    name = "hand"
    tables: dict[str, object] = {}

    def instance(self, *, seed: int = 1, drop_port: int = 511, lock: int = 0, host: int = 0) -> HandInstance:
        """As Program.instance."""
        return HandInstance(seed, drop_port, lock)
