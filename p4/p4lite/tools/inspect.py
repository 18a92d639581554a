"""Contents of a packet and a switch, by the names of the source."""

from __future__ import annotations

import re
from collections.abc import Iterator

from p4lite.api.switch import Switch
from p4lite.api.values import find, number
from p4lite.interpreter.machine import Interpreter
from p4lite.interpreter.packet import Packet
from p4lite.switch.bmv2.model import FieldType
from p4lite.switch.errors import InvalidArgument, NotFound
from p4lite.tools.commands import Commands
from p4lite.tools.trace import hexadecimal

_CELL = re.compile(r"([\w.]+)\[(\w+)\]")


class Inspector:
    """Finds fields, headers, tables and arrays of a switch that is interpreted."""

    def __init__(self, switch: Switch) -> None:
        control = switch.control
        if not isinstance(control, Interpreter):
            raise InvalidArgument("only an interpreted switch can be looked into")
        self.interpreter = control
        self.facts = control.program

    @property
    def packet(self) -> Packet:
        """The packet that is processed. Raises NotFound."""
        if self.interpreter.current is None:
            raise NotFound("there is no packet in the switch: `run` sends the next, `packet HEX [PORT]` one of yours")
        return self.interpreter.current

    def field(self, name: str) -> tuple[str, FieldType]:
        """Return the header and the field that a name means: `ip.ttl`, or `hdr.ip.ttl` as the source has it."""
        for wanted in (name, name.partition(".")[2], f"scalars.{name}"):
            header, _, last = wanted.rpartition(".")
            found = self.facts.headers.get(header)
            if found is not None and last in found.type.by_name:
                return header, found.type.by_name[last]
        ends = [
            (h.name, f)
            for h in self.facts.headers.values()
            for f in h.type.fields
            if f"{h.name}.{f.name}".endswith("." + name.rpartition(".")[2])
        ]
        exact = [(h, f) for h, f in ends if f"{h}.{f.name}".endswith(name)]
        if len(exact) == 1:
            return exact[0]
        near = ", ".join(f"{h}.{f.name}" for h, f in ends) or "none of that name"
        raise NotFound(f"there is no field '{name}'; there are: {near}")

    def set(self, name: str, text: str) -> None:
        """Give a field of the packet another value. Raises NotFound, InvalidArgument or OutOfRange."""
        header, field = self.field(name)
        value = number(text, field.width, f"{header}.{field.name}")
        self.packet.headers[header].fields[field.name] = value

    def header(self, name: str) -> list[str]:
        """Return the lines that describe a header of the packet."""
        state = self.packet.headers[name]
        lines = [f"{name} ({'valid' if state.valid else 'invalid'})"]
        for f in self.facts.headers[name].type.fields:
            if f.name.startswith("_padding"):
                continue
            width = state.varbit_bits if f.varbit else f.width
            lines.append(f"  {f.name} = {hexadecimal(state.fields[f.name] & ((1 << width) - 1), width)}")
        return lines

    def describe(self, name: str) -> Iterator[str]:
        """Yield lines about what a name means; without a name about all valid headers. Raises ControlError."""
        if not name:
            for header, state in self.packet.headers.items():
                if state.valid and state.fields:
                    yield from self.header(header)
            return
        whole = self._header(name)
        if whole is not None:
            yield from self.header(whole)
            return
        array = _CELL.fullmatch(name)
        known = list(self._stateful(array[1] if array else name, array[2] if array else None))
        if known:
            yield from known
            return
        found, field = self.field(name)
        value = self.packet.headers[found].fields[field.name]
        width = self.packet.headers[found].varbit_bits if field.varbit else field.width
        valid = "" if self.packet.headers[found].valid else f"   ({found} is invalid)"
        yield f"{found}.{field.name} = {hexadecimal(value & ((1 << width) - 1), width)}{valid}"

    def _header(self, name: str) -> str | None:
        return next((n for n in (name, name.partition(".")[2]) if n in self.facts.headers), None)

    def _stateful(self, name: str, index: str | None) -> Iterator[str]:
        """Yield what the commands print of a table, register, counter or meter."""
        facts, lines = self.facts, list[str]()
        commands = Commands(self.interpreter, self.interpreter, lines.append)
        for known, whole, cell in (
            (facts.tables, "table_dump", "table_dump_entry"),
            (facts.registers, "register_read", "register_read"),
            (facts.counters, "", "counter_read"),
            (facts.meters, "", "meter_get_rates"),
        ):
            try:
                full = find(name, known, "")
            except NotFound:
                continue
            if index is not None:
                commands.run(f"{cell} {full} {index}")
            elif whole:
                commands.run(f"{whole} {full}")
            else:
                size = (
                    len(self.interpreter.counter_read_all(full)) if known is facts.counters else facts.meters[full].size
                )
                for at in range(size):
                    commands.run(f"{cell} {full} {at}")
            yield from lines
            return

    def names(self) -> list[str]:
        """Return all names, for completion."""
        facts = self.facts
        fields = [f"{h.name}.{f.name}" for h in facts.headers.values() for f in h.type.fields]
        return [*facts.headers, *fields, *facts.tables, *facts.registers, *facts.counters, *facts.meters]
