"""Hosts outside a fabric on the virtual clock: what many of them send in one call, and what arrives at them."""

from __future__ import annotations

import ctypes
import sysconfig
import weakref
from array import array
from collections.abc import Callable, Sequence
from functools import cache, partial

from p4lite.switch.errors import BuildError
from p4lite.switch.fabric.core import Core
from p4lite.switch.fabric.port import Port
from p4lite.switch.fabric.values import FabricError
from p4lite.switch.native.build import CORE_DIR, build

#: (time_ns, place, packet): what left through the port at that place of `Outside`, without the port's header.
Arrival = tuple[int, int, bytes]
#: A host's side of its link: rate in bit/s (0: none), bytes that a packet takes beside its own, capacity of its queue
#: in bytes (0: none), when it is free, and the fraction of a ns (times the rate) carried over to the next packet.
Transmitter = tuple[int, int, int, int, int]

SEND_WORDS = 5

#: The fabric, words, parts, limit: result, surprises, time then, arrivals.
Ferry = Callable[[int, list[int], list[bytes], int], tuple[int, int, int, list[Arrival]]]


@cache
def ferries() -> ctypes.PyDLL | None:
    """`core/python/ferry.c`; None without Python's headers, where ctypes converts what goes to the fabric and comes
    back, at three times the cost."""
    include = sysconfig.get_path("include")
    try:
        path = build("fabric-python", [CORE_DIR / "python" / "ferry.c"], flags=("-isystem", include))
        library = ctypes.PyDLL(str(path))
    except (BuildError, OSError):
        return None
    pointer, number = ctypes.c_void_p, ctypes.c_uint64
    library.ferry_new.restype = pointer
    library.ferry_new.argtypes = [pointer, pointer, pointer, number, number]
    library.ferry_free.restype = None
    library.ferry_free.argtypes = [pointer]
    library.ferry_exchange.restype = ctypes.py_object
    library.ferry_exchange.argtypes = [pointer, pointer, ctypes.py_object, ctypes.py_object, number]
    return library


def not_run(core: Core, result: int, limit_ns: int) -> FabricError:
    """Why the virtual clock did not go on."""
    failure = core.failure(result)
    if failure == "loop":
        return FabricError(f"at {core.now_ns} ns packets go round without any delay; give the links a delay or a rate")
    if failure == "clock":
        return FabricError("run_until, advance and exchange need the virtual clock")
    return FabricError(f"cannot run until {limit_ns} ns: it is {core.now_ns} ns already")


def not_sent(core: Core, result: int, port: Port, octets: int, at_ns: int) -> FabricError:
    """Why a frame was not taken."""
    reason = {
        "busy": "the port is not external (it has a link or an interface)",
        "past": f"{at_ns} ns is past",
        "range": f"{octets} bytes are more than 65536",
    }.get(core.failure(result), "out of memory")
    return FabricError(f"inject into {port.name}: {reason}")


class Outside:
    """Hosts at external ports (made by `Fabric.outside`); a port's place is its index among them.

    Headers of all ports are equally long; they stand before what is sent, and as much is taken off what arrives.
    `surprises`: frames since `transmitters` whose link became free at another time than said, because somebody has
    changed it.
    """

    def __init__(self, core: Core, ports: Sequence[tuple[Port, bytes]]) -> None:
        self._core = core
        self._ports = [port for port, _ in ports]
        self.headers = [header for _, header in ports]
        self.header_bytes = len(self.headers[0]) if ports else 0
        if any(len(header) != self.header_bytes for header in self.headers):
            raise FabricError("headers of ports that are driven together are equally long")
        self._pointers = (ctypes.c_void_p * max(1, len(ports)))(*(port.pointer for port in self._ports))
        self._places = {(port.device_id, port.number): place for place, port in enumerate(self._ports)}
        self._transmitters = core.array("pf_transmitter", len(ports))
        self._lookahead = ctypes.c_uint64()
        self._told = ctypes.c_uint64()
        self._batch = core.new("pf_batch")
        self._told_by, self._batch_by = ctypes.byref(self._told), ctypes.byref(self._batch)
        self.now_ns = core.now_ns
        self.surprises = 0
        self._ferry = self._made_ferry()

    def _made_ferry(self) -> Ferry | None:
        library = ferries()
        if library is None:
            return None
        # In order, as the ferry looks for them: the key of a port (`struct ferry_port`), its place.
        places = sorted((device_id << 32 | number, place) for (device_id, number), place in self._places.items())
        self._ferry_places = (ctypes.c_uint64 * (2 * len(places) + 1))(*(word for each in places for word in each))
        exchange = ctypes.cast(self._core.c.pf_exchange, ctypes.c_void_p)
        count, skip = len(self._ports), self.header_bytes
        ferry = library.ferry_new(exchange, self._pointers, self._ferry_places, count, skip)
        if not ferry:
            return None
        weakref.finalize(self, library.ferry_free, ferry)
        return partial(library.ferry_exchange, ferry)

    def lookahead_ns(self) -> int:
        """How long after a host's packet no switch sees it, as `transmitters` last found it."""
        return int(self._lookahead.value)

    def transmitters(self) -> list[Transmitter]:
        """The hosts' sides of their links, as they are now."""
        core = self._core
        count = len(self._ports)
        core.c.pf_transmitters(core.pointer, self._pointers, count, self._transmitters, ctypes.byref(self._lookahead))
        self.now_ns = core.now_ns
        self.surprises = 0
        return [
            (each.rate_bps, each.overhead_bytes, each.host_queue_bytes, each.free_at_ns, each.rate_rest)
            for each in self._transmitters[:count]
        ]

    def send(self, words: list[int], parts: list[bytes]) -> None:
        """Puts frames on the hosts' links.

        Args:
            words: `SEND_WORDS` per frame: place, length with header, when it is sent, the time up to which the fabric
                had run when that was decided (packets that meet at one instant are ordered by it), and when the
                link is free again.
            parts: the frames' bytes in order, cut anywhere.

        Raises FabricError for a frame that is not taken; those before it are.
        """
        core = self._core
        count = len(words) // SEND_WORDS
        result = core.c.pf_send(
            core.pointer, self._pointers, array("Q", words).tobytes(), count, b"".join(parts), self._told_by
        )
        if result != 0:
            raise self._refused(result, words)
        self.surprises += self._told.value

    def exchange(self, words: list[int], parts: list[bytes], limit_ns: int) -> list[Arrival]:
        """`send`, then `Fabric.advance`; `now_ns` is the fabric's time then."""
        core, batch = self._core, self._batch
        if self._ferry is not None and core.pointer is not None:
            result, told, self.now_ns, arrivals = self._ferry(core.pointer, words, parts, limit_ns)
            if result < 0:
                self._told.value = told
                self.now_ns = core.now_ns
                raise self._refused(result, words, limit_ns)
            self.surprises += told
            return arrivals
        if words:
            count = len(words) // SEND_WORDS
            result = core.c.pf_exchange(
                core.pointer,
                self._pointers,
                array("Q", words).tobytes(),
                count,
                b"".join(parts),
                limit_ns,
                self._told_by,
                self._batch_by,
            )
        else:
            count = 0
            result = core.c.pf_run(core.pointer, limit_ns, 1, self._batch_by)
        if result != 0:
            raise self._refused(result, words, limit_ns)
        if count:
            self.surprises += self._told.value
        self.now_ns = batch.now_ns
        arrived = batch.count
        if not arrived:
            return []
        delivery, places, skip = core.delivery, self._places, self.header_bytes
        records = ctypes.string_at(batch.records, arrived * delivery.size)
        data = ctypes.string_at(batch.bytes, batch.size)
        return [
            (time_ns, places.get((device_id, port), -1), data[offset + skip : offset + length])
            for time_ns, device_id, port, offset, length in delivery.iter_unpack(records)
        ]

    def _refused(self, result: int, words: list[int], limit_ns: int | None = None) -> FabricError:
        if words and self._core.failure(result) not in ("loop", "clock"):
            place, octets, at_ns = words[self._told.value * SEND_WORDS :][:3]
            return not_sent(self._core, result, self._ports[place], octets, at_ns)
        return not_run(self._core, result, self.now_ns if limit_ns is None else limit_ns)
