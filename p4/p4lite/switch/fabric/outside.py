"""Hosts outside a fabric on the virtual clock: what many of them send in one call, and what arrives at them."""

from __future__ import annotations

import ctypes
import sysconfig
import weakref
from array import array
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any

from p4lite.switch.errors import BuildError
from p4lite.switch.fabric.core import FabricCore
from p4lite.switch.fabric.port import Port
from p4lite.switch.fabric.values import MAX_TIME_NS, FabricError
from p4lite.switch.native.build import CORE_DIR, build

#: (time_ns, place, packet, missing): what left through the port at that place of `ExternalHosts`, without the port's
#: header, and how many bytes are missing before its last 4 (0: none).
Arrival = tuple[int, int, bytes, int]
#: A host's side of its link: rate in bit/s (0: none), bytes that a packet takes beside its own, capacity of its queue
#: in bytes (0: none), when it is free, and the fraction of a ns (times the rate) carried over to the next packet.
Transmitter = tuple[int, int, int, int, int]

SEND_WORDS = 4
_WORD_BYTES = 8
#: The word of a frame's length has in its upper half how many bytes are missing before its last 4 (`struct pf_send`).
MISSING_SHIFT = 32

#: Result, surprises, time then, up to when all arrivals are known, arrivals.
Found = tuple[int, int, int, int, list[Arrival]]


@cache
def ferries() -> ctypes.PyDLL | None:
    """Build and load `core/python/ferry.c`, which converts packets for the fabric at a third of the cost of ctypes.

    Returns None without Python's headers or a compiler; the caller then uses ctypes.
    """
    include = sysconfig.get_path("include")
    try:
        path = build("fabric-python", [CORE_DIR / "python" / "ferry.c"], flags=("-isystem", include))
        library = ctypes.PyDLL(str(path))
    except (BuildError, OSError):
        return None
    pointer, number, thing = ctypes.c_void_p, ctypes.c_uint64, ctypes.py_object
    library.ferry_new.restype = pointer
    library.ferry_new.argtypes = [pointer, pointer, pointer, number, number]
    library.ferry_free.restype = None
    library.ferry_free.argtypes = [pointer]
    library.ferry_exchange.restype = thing
    library.ferry_exchange.argtypes = [pointer, pointer, thing, thing, number, number]
    return library


def not_run(core: FabricCore, result: int, limit_ns: int) -> FabricError:
    """Return why the virtual clock did not advance."""
    failure = core.failure(result)
    if failure == "loop":
        return FabricError(f"at {core.now_ns} ns packets go round without any delay; give the links a delay or a rate")
    if failure == "range":
        return FabricError(f"cannot run until {limit_ns} ns: a time is between 0 and {MAX_TIME_NS} ns")
    if failure == "clock":
        return FabricError("run_until, advance and exchange need the virtual clock")
    return FabricError(f"cannot run until {limit_ns} ns: it is {core.now_ns} ns already")


def not_sent(core: FabricCore, result: int, port: Port, octets: int, at_ns: int) -> FabricError:
    """Return why a frame was refused."""
    reason = {
        "busy": "the port is not external (it has a link or an interface)",
        "past": f"{at_ns} ns is past",
        "range": f"{octets} bytes are more than 65536",
    }.get(core.failure(result), "out of memory")
    return FabricError(f"inject into {port.name}: {reason}")


def _of(each: Any) -> Transmitter:
    return each.rate_bps, each.overhead_bytes, each.host_queue_bytes, each.free_at_ns, each.rate_rest


class ExternalHosts:
    """Hosts at external ports (made by `Fabric.outside`); a port's place is its index among them.

    The headers of all ports have equal lengths; they precede every frame that is sent, and are removed from those that
    arrive. `surprises`: frames since `transmitters` whose link became free at another time than predicted, because a
    caller has changed it. One thread uses it; others may change the fabric meanwhile.
    """

    def __init__(self, core: FabricCore, ports: Sequence[tuple[Port, bytes]]) -> None:
        self._core = core
        self._ports = [port for port, _ in ports]
        self.headers = [header for _, header in ports]
        self.header_bytes = len(self.headers[0]) if ports else 0
        if any(len(header) != self.header_bytes for header in self.headers):
            raise FabricError("headers of ports that are driven together are equally long")
        self._ports_freed = core.ports_freed
        self._pointers = (ctypes.c_void_p * max(1, len(ports)))(*(port.pointer for port in self._ports))
        self._places = {(port.device_id, port.number): place for place, port in enumerate(self._ports)}
        self._transmitters = core.array("pf_transmitter", len(ports))
        self._one, self._one_pointer = core.array("pf_transmitter", 1), (ctypes.c_void_p * 1)()
        self._lookahead = ctypes.c_uint64()
        self._told = ctypes.c_uint64()
        self._batch = core.new("pf_batch")
        self._told_by, self._batch_by = ctypes.byref(self._told), ctypes.byref(self._batch)
        self.now_ns = self.known_ns = core.now_ns
        self.surprises = 0
        self._ferry = self._made_ferry()

    def _made_ferry(self) -> Callable[[int, bytearray, list[bytes], int, int], Found] | None:
        """Return `ferry_exchange` of `core/python/ferry.c` for these hosts."""
        library = ferries()
        if library is None:
            return None
        # In order, as the ferry looks for them: the key of a port (`struct ferry_port`), its place.
        places = sorted((device_id << 32 | number, place) for (device_id, number), place in self._places.items())
        self._ferry_places = (ctypes.c_uint64 * (2 * len(places) + 1))(*(word for each in places for word in each))
        c = self._core.c
        calls = [ctypes.cast(call, ctypes.c_void_p) for call in (c.pf_lock, c.pf_unlock, c.pf_exchange, c.pf_returned)]
        count, skip = len(self._ports), self.header_bytes
        ferry = library.ferry_new((ctypes.c_void_p * 4)(*calls), self._pointers, self._ferry_places, count, skip)
        if not ferry:
            return None
        weakref.finalize(self, library.ferry_free, ferry)
        return partial(library.ferry_exchange, ferry)

    def _check_ports(self) -> None:
        """Raise FabricError if one of the ports is removed; C reads their memory."""
        if self._core.ports_freed != self._ports_freed:
            for port in self._ports:
                _ = port.pointer
            self._ports_freed = self._core.ports_freed

    def lookahead_ns(self) -> int:
        """Return how long after a host's packet no switch sees it, by the last call of `transmitters`."""
        return int(self._lookahead.value)

    def transmitters(self) -> list[Transmitter]:
        """Return the hosts' sides of their links, as they are now."""
        core = self._core
        self._check_ports()
        count = len(self._ports)
        core.c.pf_transmitters(core.pointer, self._pointers, count, self._transmitters, ctypes.byref(self._lookahead))
        self.now_ns = self.known_ns = core.now_ns
        self.surprises = 0
        return [_of(each) for each in self._transmitters[:count]]

    def transmitter(self, place: int) -> Transmitter:
        """Return the host's side of the link at one place; the others stay as `transmitters` found them."""
        core = self._core
        self._check_ports()
        self._one_pointer[0] = self._pointers[place]
        core.c.pf_transmitters(core.pointer, self._one_pointer, 1, self._one, ctypes.byref(ctypes.c_uint64()))
        return _of(self._one[0])

    def send(self, words: bytearray, parts: list[bytes]) -> None:
        """Put frames on the hosts' links.

        Args:
            words: `SEND_WORDS` per frame, of 64 bits in the machine's order: place, length with header, when it is
                sent, and when the link is free again. The frames of a place are in order of time. Packets that arrive
                at one instant are taken in order of the times at which they were sent, and then of their ports. The
                length may count bytes that are missing in `parts` before the frame's last 4; the upper half of its word
                is then their number (`MISSING_SHIFT`).
            parts: the frames' bytes in order, cut anywhere.

        Raises FabricError for a frame that is not taken; those before it are.
        """
        core = self._core
        self._check_ports()
        numbers, count, piece = self._packed(words, parts)
        result = core.c.pf_send(core.pointer, self._pointers, numbers, count, piece, self._told_by)
        if result != 0:
            raise self._refused(result, words)
        self.surprises += self._told.value

    def _packed(self, words: bytearray, parts: list[bytes]) -> tuple[bytes, int, Any]:
        """Return words, number and bytes of frames for C, and check what C relies on (as in `ferry.c`)."""
        numbers, octets = array("Q", bytes(words[: len(words) // _WORD_BYTES * _WORD_BYTES])), b"".join(parts)
        if len(words) % (SEND_WORDS * _WORD_BYTES):
            raise ValueError("a packet is some words short")
        self._check_packed(numbers, len(octets))
        self._octets = ctypes.c_char_p(octets)  # stays while C reads it
        piece = self._core.new("pf_piece", bytes=ctypes.cast(self._octets, ctypes.c_void_p), length=len(octets))
        return bytes(words), len(numbers) // SEND_WORDS, piece

    def exchange(self, words: bytearray, parts: list[bytes], limit_ns: int, foresee_ns: int = 0) -> list[Arrival]:
        """Do `send`, then `Fabric.advance`, and return the arrivals; `now_ns` is the fabric's time then.

        Args:
            words, parts: as `send` has them.
            limit_ns: how far the fabric goes at most.
            foresee_ns: what is on its way and certain to arrive by then is among the arrivals, too; `known_ns` says up
                to when they are all. Until then only packets of hosts may change the fabric.
        """
        core = self._core
        self._check_ports()
        if self._ferry is not None and core.pointer is not None:
            found = self._ferry(core.pointer, words, parts, limit_ns, foresee_ns)
            return self._taken(found, words, limit_ns)
        numbers, count, piece = self._packed(words, parts)
        with core.lock():
            result = core.c.pf_exchange(
                core.pointer, self._pointers, numbers, count, piece, limit_ns, foresee_ns, self._told_by, self._batch_by
            )
            found = self._read(result)
        return self._taken(found, words, limit_ns)

    def _check_packed(self, numbers: array[int], octets: int) -> None:
        """Check what C relies on (as in `ferry.c`)."""
        if len(numbers) % SEND_WORDS:
            raise ValueError("a packet is some words short")
        if max(numbers[::SEND_WORDS], default=-1) >= len(self._ports):
            raise IndexError("no such port")
        lengths = numbers[1::SEND_WORDS]
        wanted = sum(lengths)
        absurd = False
        if wanted >> MISSING_SHIFT:
            split = [(each & 0xFFFFFFFF, each >> MISSING_SHIFT) for each in lengths]
            absurd = any(0 < missing >= length for length, missing in split)
            wanted = sum(length - missing for length, missing in split)
        if absurd or wanted > octets:
            raise ValueError("the packets have fewer bytes than they say")

    def _read(self, result: int) -> Found:
        """Return the arrivals in the batch, read by ctypes."""
        batch, places, skip = self._batch, self._places, self.header_bytes
        arrivals = [
            (time_ns, places.get((device_id, port), -1), packet[skip:], missing)
            for time_ns, device_id, port, packet, missing in (self._core.deliveries(batch) if result == 0 else ())
        ]
        return result, self._told.value, batch.now_ns, batch.known_ns, arrivals

    def _taken(self, found: Found, words: bytearray, limit_ns: int) -> list[Arrival]:
        result, told, self.now_ns, self.known_ns, arrivals = found
        if result < 0:
            self._told.value = told
            self.now_ns = self._core.now_ns
            raise self._refused(result, words, limit_ns)
        self.surprises += told
        return arrivals

    def _refused(self, result: int, words: bytearray, limit_ns: int | None = None) -> FabricError:
        if words and self._core.failure(result) not in ("loop", "clock"):
            place, octets, at_ns = array("Q", bytes(words))[self._told.value * SEND_WORDS :][:3]
            return not_sent(self._core, result, self._ports[place], octets & 0xFFFFFFFF, at_ns)
        return not_run(self._core, result, self.now_ns if limit_ns is None else limit_ns)
