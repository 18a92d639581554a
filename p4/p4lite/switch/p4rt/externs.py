"""Indexed counters, meters and registers, and parser value sets.

Source: P4Runtime specification, "CounterEntry", "MeterEntry", "RegisterEntry", "ValueSetEntry".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from p4lite.messages import p4data_pb2, p4info_pb2, p4runtime_pb2
from p4lite.switch.p4rt.errors import (
    ALREADY_EXISTS,
    OUT_OF_RANGE,
    RESOURCE_EXHAUSTED,
    UNIMPLEMENTED,
    P4RtError,
    invalid,
)
from p4lite.switch.p4rt.info import ArrayInfo, decode, decode_signed, encode, encode_signed
from p4lite.switch.p4rt.pipeline import MODIFY, DeviceTarget, control
from p4lite.switch.runtime.loader import MeterConfig

_COLOURS = "meters do not count per colour"


def meter_config(message: Any, kind: int = p4info_pb2.MeterSpec.TWO_RATE_THREE_COLOR) -> MeterConfig:
    """Return the rates of a MeterConfig message, checked against the meter's type (MeterSpec.Type)."""
    if min(message.cir, message.cburst, message.pir, message.pburst, message.eburst) < 0:
        raise invalid("a meter's rates and bursts must not be negative")
    if kind != p4info_pb2.MeterSpec.TWO_RATE_THREE_COLOR and (message.pir, message.pburst) != (
        message.cir,
        message.cburst,
    ):
        raise invalid("a single-rate meter needs pir = cir and pburst = cburst")
    if message.eburst:
        if kind == p4info_pb2.MeterSpec.SINGLE_RATE_THREE_COLOR:
            raise P4RtError(UNIMPLEMENTED, "single-rate three-colour meters (eburst) are not supported")
        raise invalid("eburst is for single-rate three-colour meters only")
    if message.pir < message.cir:
        raise invalid(f"a meter's peak rate {message.pir} is below its committed rate {message.cir}")
    return MeterConfig(message.cir, message.cburst, message.pir, message.pburst)


def meter_message(config: MeterConfig, message: Any) -> None:
    """Fill a MeterConfig message."""
    message.cir, message.cburst = config.cir, config.cburst
    message.pir, message.pburst = config.pir, config.pburst
    message.SetInParent()


class Arrays:
    """Counters, meters and registers of one device under one pipeline."""

    def __init__(self, target: DeviceTarget) -> None:
        self._target = target
        self._info = target.pipeline.info
        self._sizes: dict[str, dict[str, int]] = {
            what: {name: array.size for name, array in getattr(target.pipeline.program, what).items()}
            for what in ("counters", "meters", "registers")
        }

    def _array(self, what: str, ident: int) -> ArrayInfo:
        found: ArrayInfo | None = getattr(self._info, what).get(ident)
        if found is None:
            raise invalid(f"there is no {what[:-1]} with id {ident}")
        return found

    def _indices(self, what: str, array: ArrayInfo, message: Any) -> range:
        size = self._sizes[what][array.name]
        if not message.HasField("index"):
            return range(size)
        index = message.index.index
        if index < 0:
            raise invalid(f"index {index} of '{array.name}' is negative")
        if index >= size:
            raise P4RtError(OUT_OF_RANGE, f"index {index} of '{array.name}' is not below its size {size}")
        return range(index, index + 1)

    def _asked(self, what: str, ident: int) -> list[ArrayInfo]:
        return [self._array(what, ident)] if ident else list(getattr(self._info, what).values())

    def _only_modify(self, kind: int, what: str) -> None:
        if kind != MODIFY:
            raise invalid(f"a {what} can only be modified")

    # -- counters ----------------------------------------------------------------------------------------

    def write_counter(self, kind: int, message: Any) -> None:
        """Apply a CounterEntry (MODIFY only); without index to every cell."""
        self._only_modify(kind, "counter")
        array = self._array("counters", message.counter_id)
        indices = self._indices("counters", array, message)
        if not message.HasField("data"):
            return
        with control():
            for index in indices:
                self._target.instance.counter_write(
                    array.name, index, message.data.packet_count, message.data.byte_count
                )

    def read_counters(self, query: Any) -> Iterator[Any]:
        """Yield every CounterEntry that a query asks for."""
        for array in self._asked("counters", query.counter_id):
            with control():
                if query.counter_id and query.HasField("index"):
                    index = self._indices("counters", array, query)[0]
                    values = [(index, self._target.instance.counter_read(array.name, index))]
                else:
                    values = list(enumerate(self._target.instance.counter_read_all(array.name)))
            for index, value in values:
                entry = p4runtime_pb2.CounterEntry(counter_id=array.id)
                entry.index.index = index
                entry.data.packet_count, entry.data.byte_count = value.packets, value.bytes
                entry.data.SetInParent()
                yield entry

    # -- meters ------------------------------------------------------------------------------------------

    def write_meter(self, kind: int, message: Any) -> None:
        """Apply a MeterEntry (MODIFY only); without config every packet is green, without index every cell."""
        self._only_modify(kind, "meter")
        array = self._array("meters", message.meter_id)
        if message.HasField("counter_data"):
            raise P4RtError(UNIMPLEMENTED, _COLOURS)
        config = meter_config(message.config, array.spec.type) if message.HasField("config") else None
        indices = self._indices("meters", array, message)
        with control():
            for index in indices:
                self._target.instance.meter_set(array.name, index, config)

    def read_meters(self, query: Any) -> Iterator[Any]:
        """Yield every MeterEntry that a query asks for; `config` is unset where none was written."""
        if query.HasField("counter_data"):
            raise P4RtError(UNIMPLEMENTED, _COLOURS)
        for array in self._asked("meters", query.meter_id):
            size = self._sizes["meters"][array.name]
            for index in self._indices("meters", array, query) if query.meter_id else range(size):
                with control():
                    config = self._target.instance.meter_config(array.name, index)
                entry = p4runtime_pb2.MeterEntry(meter_id=array.id)
                entry.index.index = index
                if config is not None:
                    meter_message(config, entry.config)
                yield entry

    # -- registers ---------------------------------------------------------------------------------------

    def _register_codec(self, array: ArrayInfo) -> tuple[Callable[[Any], int], Callable[[int], Any]]:
        width = self._target.pipeline.program.registers[array.name].width
        where = f"register '{array.name}'"
        make = p4data_pb2.P4Data
        signed = array.spec.WhichOneof("type_spec") == "bitstring" and array.spec.bitstring.HasField("int")
        boolean = array.spec.WhichOneof("type_spec") == "bool"

        def read(data: Any) -> int:
            which = data.WhichOneof("data")
            if which != ("bool" if boolean else "bitstring"):
                raise invalid(f"{where} holds a {'bool' if boolean else 'bit string'}, the request a {which}")
            if boolean:
                return int(data.bool)
            if signed:
                return decode_signed(data.bitstring, width, where) & ((1 << width) - 1)
            return decode(data.bitstring, width, where)

        def write(value: int) -> Any:
            if boolean:
                return make(bool=bool(value))
            if signed:
                return make(bitstring=encode_signed(value - (value >> (width - 1) << width)))
            return make(bitstring=encode(value))

        return read, write

    def write_register(self, kind: int, message: Any) -> None:
        """Apply a RegisterEntry (MODIFY only); without index to every cell."""
        self._only_modify(kind, "register")
        array = self._array("registers", message.register_id)
        indices = self._indices("registers", array, message)
        if not message.HasField("data"):
            raise invalid("a register needs data")
        value = self._register_codec(array)[0](message.data)
        with control():
            for index in indices:
                self._target.instance.register_write(array.name, index, value)

    def read_registers(self, query: Any) -> Iterator[Any]:
        """Yield every RegisterEntry that a query asks for."""
        for array in self._asked("registers", query.register_id):
            write = self._register_codec(array)[1]
            with control():
                if query.register_id and query.HasField("index"):
                    index = self._indices("registers", array, query)[0]
                    values = [(index, self._target.instance.register_read(array.name, index))]
                else:
                    values = list(enumerate(self._target.instance.register_read_all(array.name)))
            for index, value in values:
                entry = p4runtime_pb2.RegisterEntry(register_id=array.id, data=write(value))
                entry.index.index = index
                entry.index.SetInParent()
                yield entry


class ValueSets:
    """Parser value sets of one device under one pipeline."""

    def __init__(self, target: DeviceTarget) -> None:
        self._target = target
        self._members: dict[int, bytes] = {}

    def write(self, kind: int, message: Any) -> None:
        """Replace the members of a value set (MODIFY only)."""
        if kind != MODIFY:
            raise invalid("a value set can only be modified")
        found = self._target.pipeline.info.value_sets.get(message.value_set_id)
        if found is None:
            raise invalid(f"there is no value set with id {message.value_set_id}")
        name, fields, size = found
        if size and len(message.members) > size:
            raise P4RtError(RESOURCE_EXHAUSTED, f"value set '{name}' holds {size} members")
        by_id = {field.id: position for position, field in enumerate(fields)}
        values: list[int] = []
        for member in message.members:
            parts: list[int | None] = [None] * len(fields)
            for item in member.match:
                position = by_id.get(item.field_id)
                if position is None:
                    raise invalid(f"value set '{name}' has no field with id {item.field_id}")
                if item.WhichOneof("field_match_type") != "exact":
                    raise P4RtError(UNIMPLEMENTED, f"value set '{name}': only exact members are supported")
                if parts[position] is not None:
                    raise invalid(f"value set '{name}': a member gives '{fields[position].name}' twice")
                value = decode(item.exact.value, fields[position].width, f"value set '{name}'")
                item.exact.value = encode(value)
                parts[position] = value
            total = 0
            for field, part in zip(fields, parts, strict=True):
                if part is None:
                    raise invalid(f"value set '{name}': a member lacks '{field.name}'")
                total = total << field.width | part
            if total in values:
                raise P4RtError(ALREADY_EXISTS, f"value set '{name}': a member is given twice")
            values.append(total)
        with control():
            self._target.instance.value_set_clear(name)
            for value in values:
                self._target.instance.value_set_add(name, value)
        self._members[message.value_set_id] = message.SerializeToString()

    def read(self, query: Any) -> Iterator[Any]:
        """Yield every ValueSetEntry that a query asks for (0: all)."""
        sets = self._target.pipeline.info.value_sets
        if query.value_set_id and query.value_set_id not in sets:
            raise invalid(f"there is no value set with id {query.value_set_id}")
        for ident in [query.value_set_id] if query.value_set_id else sets:
            stored = self._members.get(ident)
            if stored is None:
                yield p4runtime_pb2.ValueSetEntry(value_set_id=ident)
            else:
                yield p4runtime_pb2.ValueSetEntry.FromString(stored)
