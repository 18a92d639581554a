"""Counters, meters, registers and parser value sets of an instance."""

from __future__ import annotations

import ctypes
from array import array
from collections.abc import Mapping
from dataclasses import dataclass

from p4lite.switch.codegen.calculations import Crc
from p4lite.switch.errors import AlreadyExists, InvalidArgument, NotFound, OutOfRange, ResourceExhausted
from p4lite.switch.program.facts import Array, TableFacts, ValueSetFacts
from p4lite.switch.runtime.abi import check64
from p4lite.switch.runtime.tables import TableControl


@dataclass(frozen=True, slots=True)
class CounterValue:
    packets: int
    bytes: int


@dataclass(frozen=True, slots=True)
class MeterConfig:
    """Two-rate three-colour marker (RFC 2698); rates per second, bursts in the meter's unit."""

    cir: int
    cburst: int
    pir: int
    pburst: int


def find_array(arrays: Mapping[str, Array], kind: str, name: str, index: int | None) -> Array:
    """Return an array with cells of its own that has this index (None: any).

    Raises:
        NotFound: there is none of this name.
        InvalidArgument: it is direct, or the index is not a number.
        OutOfRange: it has no such index.
    """
    array = arrays.get(name)
    if array is None:
        raise NotFound(f"there is no {kind} '{name}'")
    if array.direct:
        raise InvalidArgument(f"{kind} '{name}' is direct: its cells belong to entries of table '{array.table}'")
    if index is not None and not isinstance(index, int):
        raise InvalidArgument(f"{kind} '{name}': {index!r} is not an index: write an int from 0 to {array.size - 1}")
    if index is not None and not 0 <= index < array.size:
        raise OutOfRange(f"{kind} '{name}' has {array.size} cells, there is no index {index}")
    return array


def check_meter(where: str, config: MeterConfig | None) -> None:
    """Check what a meter shall be set to. Raises InvalidArgument or OutOfRange, which say what is allowed."""
    if config is None:
        return
    if not isinstance(config, MeterConfig):
        raise InvalidArgument(
            f"{where}: {config!r} is not a configuration; write MeterConfig(cir, cburst, pir, pburst), or None for a "
            "meter to which every packet is green"
        )
    check64(where, cir=config.cir, cburst=config.cburst, pir=config.pir, pburst=config.pburst)
    if config.cir > config.pir:
        raise InvalidArgument(f"{where}: the committed rate {config.cir} is above the peak rate {config.pir}")


class ArrayControl(TableControl):
    """The part of ProgramInstance that concerns counters, meters, registers and value sets."""

    # --- counters -----------------------------------------------------------------------------------------
    def _counter(self, name: str, index: int | None) -> Array:
        return find_array(self.program.counters, "counter", name, index)

    def _counter_cells(self, counter: Array, first: int, count: int) -> list[CounterValue]:
        cells = (self._cell * (count + 1))()
        self._c.p4c_counter_read(self.pointer, counter.index, first, count, cells)
        return [CounterValue(cells[i].packets, cells[i].bytes) for i in range(count)]

    def counter_read(self, counter: str, index: int) -> CounterValue:
        return self._counter_cells(self._counter(counter, index), index, 1)[0]

    def counter_read_all(self, counter: str) -> list[CounterValue]:
        """Return all cells; of a direct counter those of the table's entries, and at the end that of its misses."""
        array = self.program.counters.get(counter)
        if array is not None and array.table is not None:  # it is direct
            handles = (*self.table_handles(array.table), None)
            return [self.direct_counter_read(array.table, handle) for handle in handles]
        array = self._counter(counter, None)
        return self._counter_cells(array, 0, array.size)

    def counter_total(self, counter: str) -> CounterValue:
        """Return the sum of all cells, in little time."""
        found = self._counter(counter, None)
        cells = (self._cell * max(found.size, 1))()
        self._c.p4c_counter_read(self.pointer, found.index, 0, found.size, cells)
        words = array("Q", bytes(cells))
        step = ctypes.sizeof(self._cell) // words.itemsize
        packets, octets = (field.offset // words.itemsize for field in (self._cell.packets, self._cell.bytes))
        return CounterValue(sum(words[packets::step]), sum(words[octets::step]))

    def counter_write(self, counter: str, index: int, packets: int, bytes_: int) -> None:
        array = self._counter(counter, index)
        check64(f"counter '{counter}'", packets=packets, bytes=bytes_)
        self._c.p4c_counter_write(self.pointer, array.index, index, 1, packets, bytes_)

    def counter_reset(self, counter: str) -> None:
        array = self._counter(counter, None)
        self._c.p4c_counter_write(self.pointer, array.index, 0, array.size, 0, 0)

    def direct_counter_read(self, table: str, handle: int | None) -> CounterValue:
        """Return the counter of an entry, or of misses (None)."""
        t = self._with_counters(table)
        view = self._raw(t, -1)[0] if handle is None else self._handle(t, handle)
        return CounterValue(view.packets, view.bytes)

    def direct_counter_write(self, table: str, handle: int | None, packets: int, bytes_: int) -> None:
        t = self._with_counters(table)
        check64(f"direct counter of table '{table}'", packets=packets, bytes=bytes_)
        if handle is not None:
            self._handle(t, handle)
        self._c.p4c_direct_counter_write(self.pointer, t.index, -1 if handle is None else handle, packets, bytes_)

    # --- meters -------------------------------------------------------------------------------------------
    def _set_meter(self, table: int, array: int, index: int, config: MeterConfig | None) -> None:
        if config is None:
            self._c.p4c_meter_set(self.pointer, table, array, index, None)
            return
        values = (config.cir, config.cburst, config.pir, config.pburst)
        self._c.p4c_meter_set(self.pointer, table, array, index, (ctypes.c_uint64 * 4)(*values))

    def _get_meter(self, table: int, array: int, index: int) -> MeterConfig | None:
        values = (ctypes.c_uint64 * 4)()
        status = self._c.p4c_meter_get(self.pointer, table, array, index, values)
        return MeterConfig(*values) if status > 0 else None

    def meter_config(self, meter: str, index: int) -> MeterConfig | None:
        """Return a meter's rates and bursts; None if it is not configured, so that every packet is green."""
        array = find_array(self.program.meters, "meter", meter, index)
        return self._get_meter(-1, array.index, index)

    def meter_set(self, meter: str, index: int, config: MeterConfig | None) -> None:
        array = find_array(self.program.meters, "meter", meter, index)
        check_meter(f"meter '{meter}'", config)
        self._set_meter(-1, array.index, index, config)

    def _metered(self, table: str, handle: int | None) -> TableFacts:
        t = self._with_meter(table)
        if handle is not None:
            self._handle(t, handle)
        return t

    def direct_meter_config(self, table: str, handle: int | None) -> MeterConfig | None:
        t = self._metered(table, handle)
        return self._get_meter(t.index, 0, -1 if handle is None else handle)

    def direct_meter_set(self, table: str, handle: int | None, config: MeterConfig | None) -> None:
        """Configure the meter of an entry. That of the default entry (None) is stored but, as in BMv2, not run."""
        t = self._metered(table, handle)
        check_meter(f"direct meter of table '{table}'", config)
        self._set_meter(t.index, 0, -1 if handle is None else handle, config)

    # --- registers ----------------------------------------------------------------------------------------
    def _register(self, name: str, index: int | None) -> Array:
        return find_array(self.program.registers, "register", name, index)

    def _register_cells(self, register: Array, first: int, count: int) -> list[int]:
        words = (register.width + 63) // 64
        data = (ctypes.c_uint64 * (count * words + 1))()
        self._c.p4c_register_read(self.pointer, register.index, first, count, data)
        if words == 1:
            return list(data[:count])
        return [sum(data[i * words + j] << (64 * j) for j in range(words)) for i in range(count)]

    def register_read(self, register: str, index: int) -> int:
        return self._register_cells(self._register(register, index), index, 1)[0]

    def register_read_all(self, register: str) -> list[int]:
        array = self._register(register, None)
        return self._register_cells(array, 0, array.size)

    def register_write(self, register: str, index: int, value: int) -> None:
        array = self._register(register, index)
        if not 0 <= value < (1 << array.width):
            raise OutOfRange(f"register '{register}': {value} does not fit into {array.width} bits")
        self._write_register(array, index, 1, value)

    def _write_register(self, array: Array, first: int, count: int, value: int) -> None:
        words = (array.width + 63) // 64
        data = (ctypes.c_uint64 * words)(*[(value >> (64 * i)) & (2**64 - 1) for i in range(words)])
        self._c.p4c_register_write(self.pointer, array.index, first, count, data)

    def register_reset(self, register: str) -> None:
        array = self._register(register, None)
        self._write_register(array, 0, array.size, 0)

    def set_crc(self, name: str, crc: Crc) -> None:
        """Change the CRC of a calculation `crc16_custom` or `crc32_custom`."""
        index = self._custom_crc(name, crc.width)
        remainder = crc.reflected if crc.remainder is None else crc.remainder
        words = (ctypes.c_uint64 * 5)(crc.polynomial, crc.initial, crc.final_xor, crc.reflected, remainder)
        if self._c.p4c_crc_set(self.pointer, index, crc.width, words) != 0:
            raise ResourceExhausted(f"calculation '{name}': out of memory")

    # --- parser value sets --------------------------------------------------------------------------------
    def _set_values(self, value_set: ValueSetFacts, values: list[int]) -> None:
        data = b"".join(v.to_bytes(value_set.bytes, "big") for v in values)
        self._c.p4c_vset_set(self.pointer, value_set.index, len(values), data)

    def value_set_add(self, value_set: str, value: int) -> None:
        """Add a value: the parts of the key concatenated without padding, as wide as `ValueSetFacts.width`."""
        known = self._value_set(value_set, value)
        with self._mutex:
            values = self.value_set_values(value_set)
            if value in values:
                raise AlreadyExists(f"value set '{value_set}' has the value {value:#x}")
            if len(values) >= known.max_size:
                raise ResourceExhausted(f"value set '{value_set}' is full ({known.max_size} values)")
            self._set_values(known, [*values, value])

    def value_set_delete(self, value_set: str, value: int) -> None:
        known = self._value_set(value_set, value)
        with self._mutex:
            values = self.value_set_values(value_set)
            if value not in values:
                raise NotFound(f"value set '{value_set}' has no value {value:#x}")
            self._set_values(known, [v for v in values if v != value])

    def value_set_values(self, value_set: str) -> list[int]:
        known = self._value_set(value_set)
        size = known.bytes
        buffer = ctypes.create_string_buffer(size * known.max_size + 1)
        count = self._c.p4c_vset_get(self.pointer, known.index, buffer, known.max_size)
        raw = buffer.raw
        return [int.from_bytes(raw[i * size : (i + 1) * size], "big") for i in range(count)]

    def value_set_clear(self, value_set: str) -> None:
        self._set_values(self._value_set(value_set), [])
