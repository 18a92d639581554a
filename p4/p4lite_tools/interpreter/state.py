"""State that outlives a packet: counters, meters, registers and value sets, with the control operations of
ProgramInstance.

The names, arguments and errors of the operations are those of `switch.runtime.loader.ProgramInstance`, so that a
controller can be put in front of either.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from p4lite.switch.errors import AlreadyExists, NotFound, OutOfRange, ResourceExhausted
from p4lite.switch.program.checks import Checks
from p4lite.switch.program.facts import Array, Facts
from p4lite.switch.runtime.abi import check64
from p4lite.switch.runtime.arrays import CounterValue, MeterConfig, check_meter, find_array
from p4lite_tools.interpreter.events import Event, Faulted, Observer, Place

GREEN, YELLOW, RED = 0, 1, 2
#: A unit of traffic costs this many tokens, so that rates per second and nanoseconds need no rounding.
SCALE = 10**9


class MeterCell:
    """A meter cell; without a configuration every packet is green."""

    def __init__(self) -> None:
        self.config: MeterConfig | None = None
        self._committed = self._peak = self._last_ns = 0

    def configure(self, config: MeterConfig | None, now_ns: int) -> None:
        """Set rates and bursts, and fill the buckets."""
        self.config, self._last_ns = config, now_ns
        if config is not None:
            self._committed, self._peak = config.cburst * SCALE, config.pburst * SCALE

    def execute(self, amount: int, now_ns: int) -> int:
        """Return the colour of `amount` bytes, or of one packet, at a time."""
        config = self.config
        if config is None:
            return GREEN
        elapsed = max(now_ns - self._last_ns, 0)
        self._last_ns = max(now_ns, self._last_ns)
        self._committed = min(self._committed + config.cir * elapsed, config.cburst * SCALE)
        self._peak = min(self._peak + config.pir * elapsed, config.pburst * SCALE)
        cost = amount * SCALE
        if self._peak < cost:
            return RED
        self._peak -= cost
        if self._committed < cost:
            return YELLOW
        self._committed -= cost
        return GREEN


_LIMIT64 = 1 << 64


class AssertionFailed(Exception):
    """An assert or assume of the program did not hold, or it did what P4 leaves undefined, and the switch is strict."""


@dataclass(slots=True)
class CounterCell:
    """A cell of a counter."""

    packets: int = 0
    bytes: int = 0

    def count(self, length: int) -> None:
        """Count a packet of `length` bytes."""
        self.packets += 1
        self.bytes += length


class InterpreterState(Checks):
    """The arrays of one switch, its clock, and those who watch it.

    `where` is the place in the source that is executed. `strict`: what P4 leaves undefined raises AssertionFailed.
    """

    def __init__(self, program: Facts, *, seed: int = 1, strict: bool = False) -> None:
        self.program = program
        self.strict = strict
        self.now_ns = 0
        self.where: Place | None = None
        self.observers: list[Observer] = []
        self.faults: list[str] = []
        self._random = seed % _LIMIT64
        self._counters = {
            c.name: [CounterCell() for _ in range(c.size)] for c in program.counters.values() if not c.direct
        }
        self._meters = {m.name: [MeterCell() for _ in range(m.size)] for m in program.meters.values() if not m.direct}
        self._registers = {r.name: [r.initial] * r.size for r in program.registers.values()}
        self._value_sets: dict[str, list[int]] = {v.name: [] for v in program.value_sets.values()}

    # --- for those who run and watch packets ---

    def emit(self, event: Event) -> None:
        """Tell the observers."""
        for observer in self.observers:
            observer(event)

    def fault(self, text: str) -> None:
        """Note what P4 leaves undefined. Raises AssertionFailed if the switch is strict."""
        self.faults.append(text)
        if self.observers:
            self.emit(Faulted(self.where, text))
        if self.strict:
            raise AssertionFailed(text)

    def random(self, low: int, high: int) -> int:
        """Return a number in low..high from the generator that the compiled switch has, too."""
        span = (high - low + 1) % _LIMIT64
        if span == 0:
            return self._next_random()
        least = -span % _LIMIT64 % span
        while True:
            product = self._next_random() * span
            if product % _LIMIT64 >= least:
                return low + (product >> 64)

    def _next_random(self) -> int:
        self._random = (self._random + 0x9E3779B97F4A7C15) % _LIMIT64
        z = self._random
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 % _LIMIT64
        z = (z ^ z >> 27) * 0x94D049BB133111EB % _LIMIT64
        return z ^ z >> 31

    def read_cell(self, array: Array, index: int) -> int | None:
        """Return a register's cell; None beyond its end."""
        index &= 0xFFFFFFFF
        if index >= array.size:
            self.fault(f"register '{array.name}' has {array.size} cells, there is no index {index}")
            return None
        return self._registers[array.name][index]

    def write_cell(self, array: Array, index: int, value: int) -> int | None:
        """Write a register's cell, return what it held; None beyond its end."""
        old = self.read_cell(array, index)
        if old is not None:
            self._registers[array.name][index & 0xFFFFFFFF] = value & ((1 << array.width) - 1)
        return old

    def count_cell(self, array: Array, index: int, length: int) -> CounterCell | None:
        """Count a packet, return the cell; None beyond the end."""
        index &= 0xFFFFFFFF
        if index >= array.size:
            self.fault(f"counter '{array.name}' has {array.size} cells, there is no index {index}")
            return None
        cell = self._counters[array.name][index]
        cell.count(length)
        return cell

    def execute_meter(self, array: Array, index: int, length: int) -> int | None:
        """Return the colour of a packet; None beyond the end."""
        index &= 0xFFFFFFFF
        if index >= array.size:
            self.fault(f"meter '{array.name}' has {array.size} cells, there is no index {index}")
            return None
        return self._meters[array.name][index].execute(length if array.unit == "bytes" else 1, self.now_ns)

    # --- control operations ---

    def counter_read(self, counter: str, index: int) -> CounterValue:
        """Return a cell of a counter."""
        find_array(self.program.counters, "counter", counter, index)
        cell = self._counters[counter][index]
        return CounterValue(cell.packets, cell.bytes)

    def counter_read_all(self, counter: str) -> list[CounterValue]:
        """Return all cells of a counter that is not direct."""
        array = find_array(self.program.counters, "counter", counter, None)
        return [self.counter_read(counter, index) for index in range(array.size)]

    def counter_write(self, counter: str, index: int, packets: int, bytes_: int) -> None:
        """Set a cell of a counter."""
        find_array(self.program.counters, "counter", counter, index)
        check64(f"counter '{counter}'", packets=packets, bytes=bytes_)
        self._counters[counter][index] = CounterCell(packets, bytes_)

    def counter_reset(self, counter: str) -> None:
        """Set all cells of a counter to 0."""
        array = find_array(self.program.counters, "counter", counter, None)
        self._counters[counter] = [CounterCell() for _ in range(array.size)]

    def meter_config(self, meter: str, index: int) -> MeterConfig | None:
        """Return a meter's rates and bursts; None if it is not configured, so that every packet is green."""
        find_array(self.program.meters, "meter", meter, index)
        return self._meters[meter][index].config

    def meter_set(self, meter: str, index: int, config: MeterConfig | None) -> None:
        """Configure a meter, whose buckets are full then."""
        find_array(self.program.meters, "meter", meter, index)
        check_meter(f"meter '{meter}'", config)
        self._meters[meter][index].configure(config, self.now_ns)

    def register_read(self, register: str, index: int) -> int:
        """Return a cell of a register."""
        find_array(self.program.registers, "register", register, index)
        return self._registers[register][index]

    def register_read_all(self, register: str) -> list[int]:
        """Return all cells of a register."""
        find_array(self.program.registers, "register", register, None)
        return list(self._registers[register])

    def register_write(self, register: str, index: int, value: int) -> None:
        """Set a cell of a register."""
        array = find_array(self.program.registers, "register", register, index)
        if not 0 <= value < (1 << array.width):
            raise OutOfRange(f"register '{register}': {value} does not fit into {array.width} bits")
        self._registers[register][index] = value

    def register_reset(self, register: str) -> None:
        """Set all cells of a register to its initial value, 0 unless the program says another."""
        array = find_array(self.program.registers, "register", register, None)
        self._registers[register] = [array.initial] * array.size

    def value_set_add(self, value_set: str, value: int) -> None:
        """Add a value: the parts of the key concatenated without padding, as wide as `ValueSetFacts.width`."""
        known = self._value_set(value_set, value)
        values = self._value_sets[value_set]
        if value in values:
            raise AlreadyExists(f"value set '{value_set}' has the value {value:#x}")
        if len(values) >= known.max_size:
            raise ResourceExhausted(f"value set '{value_set}' is full ({known.max_size} values)")
        values.append(value)

    def value_set_delete(self, value_set: str, value: int) -> None:
        """Remove a value from a set."""
        self._value_set(value_set, value)
        if value not in self._value_sets[value_set]:
            raise NotFound(f"value set '{value_set}' has no value {value:#x}")
        self._value_sets[value_set].remove(value)

    def value_set_values(self, value_set: str) -> list[int]:
        """Return the values of a set."""
        self._value_set(value_set)
        return list(self._value_sets[value_set])

    def value_set_iter(self, value_set: str) -> Iterator[int]:
        """Yield the values of a set, for the parser."""
        return iter(self._value_sets[value_set])
