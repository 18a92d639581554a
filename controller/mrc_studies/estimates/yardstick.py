"""How fast this machine computes at present: the CPU time of a small piece of plain Python.

Other load makes the same work take up to twice the CPU time, as caches and cores are shared. So costs are kept for one
speed, and scaled by this when a run is planned.
"""

from __future__ import annotations

import statistics
import struct
import threading
import time
from dataclasses import dataclass
from types import TracebackType

#: CPU seconds of a `look` on the machine on which the default costs were measured, while it had nothing else to do.
REFERENCE_S = 0.00093
#: CPU seconds that `pace` takes.
LOOK_S = 0.4
#: How often a watch looks while a run is measured; a look is a hundredth of it.
EVERY_S = 0.3
_WORDS = struct.Struct("!QIIH")


def piece() -> float:
    """Do a fixed piece of work; return the CPU seconds that it took this thread."""
    began = time.thread_time()
    table: dict[int, tuple[int, int]] = {}
    data, numbers = bytearray(4096), []
    for number in range(2500):
        table[number & 511] = (number, number + 1)
        packed = _WORDS.pack(number, number & 255, number, 7)
        data[0:18] = packed
        numbers.append(_WORDS.unpack_from(data)[0] + table[number & 255][0] if number & 255 in table else number)
        if number % 64 == 0:
            numbers.append(sum(memoryview(data)[:64]) + len(bytes(data)))
    numbers.sort()
    return time.thread_time() - began


def look() -> float:
    """Return the CPU seconds of a piece of work, once caches have what it needs."""
    piece()
    return min(piece(), piece())


@dataclass(frozen=True)
class Pace:
    """The machine's pace at present: `slowness` is how many times longer work takes than on the reference machine, in
    CPU time, and `waiting` how many seconds pass for a second of CPU time."""

    slowness: float
    waiting: float


def pace(seconds: float = LOOK_S) -> Pace:
    """Return the pace of this machine, from this much CPU time."""
    found, cpu, wall = [look()], time.thread_time(), time.monotonic()
    while time.thread_time() < cpu + seconds:
        found.append(look())
    spent = time.thread_time() - cpu
    return Pace(statistics.median(found) / REFERENCE_S, max((time.monotonic() - wall) / spent, 1.0))


class Watch:
    """A context that looks in a thread while another process is measured; `slowness` is their median."""

    def __init__(self) -> None:
        self._looks: list[float] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._take, name="yardstick", daemon=True)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()

    def _take(self) -> None:
        while True:
            self._looks.append(look())
            if self._over.wait(EVERY_S):
                return

    @property
    def slowness(self) -> float:
        """How many times longer work took than on the reference machine."""
        return statistics.median(self._looks) / REFERENCE_S
