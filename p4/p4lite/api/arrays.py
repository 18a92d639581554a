"""Registers, counters, meters and value sets of a switch as sequences and sets."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Generic, TypeVar

from p4lite.api.control import Control
from p4lite.api.values import Scalar, find, number
from p4lite.switch.errors import InvalidArgument
from p4lite.switch.program.facts import Array
from p4lite.switch.runtime.arrays import CounterValue, MeterConfig

T = TypeVar("T")
F = TypeVar("F")


class NamedObjects(Mapping[str, T], Generic[T, F]):
    """Objects by name: the full name, or the end of it after a dot where only one has that."""

    def __init__(self, what: str, facts: Mapping[str, F], make: Callable[[F], T]) -> None:
        self._what, self._facts, self._make = what, facts, make

    def __getitem__(self, name: str) -> T:
        return self._make(self._facts[find(name, self._facts, self._what)])

    def __iter__(self) -> Iterator[str]:
        return iter(self._facts)

    def __len__(self) -> int:
        return len(self._facts)


class Register:
    """A register: `register[3]`, `register[3] = 7`, `list(register)`."""

    def __init__(self, control: Control, array: Array) -> None:
        self._control, self._array, self.name, self.width = control, array, array.name, array.width

    def __len__(self) -> int:
        return self._array.size

    def __iter__(self) -> Iterator[int]:
        return iter(self._control.register_read_all(self.name))

    def __getitem__(self, index: int) -> int:
        return self._control.register_read(self.name, index)

    def __setitem__(self, index: int, value: Scalar) -> None:
        self._control.register_write(self.name, index, number(value, self.width, f"register '{self.name}'"))

    def clear(self) -> None:
        """Set all cells to 0."""
        self._control.register_reset(self.name)


class Counter:
    """A counter: `counter[3].packets`, `counter[3] = CounterValue(0, 0)`, `list(counter)`."""

    def __init__(self, control: Control, array: Array) -> None:
        self._control, self._array, self.name = control, array, array.name

    def __len__(self) -> int:
        return self._array.size

    def __iter__(self) -> Iterator[CounterValue]:
        return iter(self._control.counter_read_all(self.name))

    def __getitem__(self, index: int) -> CounterValue:
        return self._control.counter_read(self.name, index)

    def __setitem__(self, index: int, value: CounterValue) -> None:
        if not isinstance(value, CounterValue):
            raise InvalidArgument(
                f"counter '{self.name}': {value!r} is no value of it; write CounterValue(packets, bytes)"
            )
        self._control.counter_write(self.name, index, value.packets, value.bytes)

    def clear(self) -> None:
        """Set all cells to 0."""
        self._control.counter_reset(self.name)


class MeterArray:
    """A meter: `meter[3] = MeterConfig(cir, cburst, pir, pburst)`, rates per second; None: every packet is green."""

    def __init__(self, control: Control, array: Array) -> None:
        self._control, self._array, self.name = control, array, array.name

    def __len__(self) -> int:
        return self._array.size

    def __getitem__(self, index: int) -> MeterConfig | None:
        return self._control.meter_config(self.name, index)

    def __setitem__(self, index: int, value: MeterConfig | None) -> None:
        self._control.meter_set(self.name, index, value)
