"""The externs of PSA, whose methods are primitives named after type and method."""

from __future__ import annotations

from collections.abc import Callable

from p4lite.switch.bmv2.reader import JsonNode
from p4lite_tools.interpreter.expressions import Arguments, find_hash
from p4lite_tools.interpreter.packet import Packet
from p4lite_tools.interpreter.primitives import PrimitiveCompiler, Run

#: PSA's colours, by those of the meters: green, yellow, red.
COLOURS = (1, 2, 0)
WORD = 0xFFFF
Collect = Callable[[Packet], tuple[int, int]]


def _add(one: int, other: int) -> int:
    """Return the ones' complement sum of two words."""
    total = one + other
    return (total & WORD) + (total >> 16)


class PsaExternCompiler:
    """Compiles calls of methods."""

    def __init__(self, primitives: PrimitiveCompiler) -> None:
        self.primitives = primitives
        self.state = primitives.state
        self.expr = primitives.expr
        self.model = primitives.model
        self._attributes = {
            node["name"].str(): {a["name"].str(): a["value"] for a in node.items("attribute_values")}
            for node in self.model.root.items("extern_instances")
        }
        primitives.methods.update(
            {
                "_Counter_count": self._count,
                "_Meter_execute": self._meter,
                "_Hash_get_hash": self._hash,
                "_Hash_get_hash_mod": self._hash_mod,
                "_InternetChecksum_clear": self._clear,
                "_InternetChecksum_add": lambda args: self._sum(args, 0),
                "_InternetChecksum_subtract": lambda args: self._sum(args, WORD),
                "_InternetChecksum_get": lambda args: self._state(args, WORD),
                "_InternetChecksum_get_state": lambda args: self._state(args, 0),
                "_InternetChecksum_set_state": self._set_state,
                "_InternetChecksum_get_verify": self._verify,
                "_Checksum_clear": self._clear,
                "_Checksum_update": self._update,
                "_Checksum_get": self._checksum,
            }
        )

    # --- data ---

    def _data(self, node: JsonNode) -> Collect:
        """Return the function that gives the fields of a list as one number, with its width."""
        if node["type"].value != "field_list":
            node["type"].fail("expected a field_list")
        refs = [self.model.field_ref(item["value"]) for item in node["value"].items()]

        def collect(packet: Packet) -> tuple[int, int]:
            value = bits = 0
            for ref in refs:
                state = packet.headers[ref.header.name]
                width = state.varbit_bits if ref.field.varbit else ref.field.width
                value = value << width | (state.fields[ref.field.name] & ((1 << width) - 1))
                bits += width
            return value, bits

        return collect

    def _algorithm(self, instance: JsonNode, attribute: str) -> Callable[[bytes], int]:
        name = self._attributes.get(instance["value"].str(), {}).get(attribute)
        found = find_hash(name.str()) if name is not None else None
        if found is None:
            instance["value"].fail("its hash algorithm is not known to the interpreter")
        return found

    # --- counters and meters ---

    def _count(self, args: list[JsonNode]) -> Run:
        array = self.model.find(self.state.program.counters, args[0]["value"], "counter")
        return self.primitives.counting(array, args[1])

    def _meter(self, args: list[JsonNode]) -> Run:
        array = self.model.find(self.state.program.meters, args[0]["value"], "meter")
        return self.primitives.metering(array, args[1], args[2], COLOURS)

    # --- hashes ---

    def _digest(self, instance: JsonNode, data: JsonNode) -> Callable[[Packet], int]:
        algorithm, collect = self._algorithm(instance, "algo"), self._data(data)

        def compute(packet: Packet) -> int:
            value, bits = collect(packet)
            return algorithm(value.to_bytes((bits + 7) // 8, "big"))

        return compute

    def _hash(self, args: list[JsonNode]) -> Run:
        compute = self._digest(args[0], args[2])
        return self.primitives.store(self.expr.target(args[1]), lambda packet, arguments: compute(packet))

    def _hash_mod(self, args: list[JsonNode]) -> Run:
        compute = self._digest(args[0], args[3])
        base, size = self.expr.number(args[2]), self.expr.number(args[4])

        def value(packet: Packet, arguments: Arguments) -> int:
            many = size(packet, arguments)
            if many == 0:
                self.state.fault("get_hash() with a maximum of 0, taken as 1")
            return base(packet, arguments) + compute(packet) % (many or 1)

        return self.primitives.store(self.expr.target(args[1]), value)

    # --- checksums, whose state is the packet's ---

    def _clear(self, args: list[JsonNode]) -> Run:
        name = args[0]["value"].str()

        def run(packet: Packet, arguments: Arguments) -> None:
            packet.sums.pop(name, None)
            packet.summed.pop(name, None)

        return run

    def _sum(self, args: list[JsonNode], invert: int) -> Run:
        name, collect = args[0]["value"].str(), self._data(args[1])

        def run(packet: Packet, arguments: Arguments) -> None:
            value, bits = collect(packet)
            total = packet.sums.get(name, 0)
            for _ in range((bits + 15) // 16):
                total = _add(total, (value & WORD) ^ invert)
                value >>= 16
            packet.sums[name] = total

        return run

    def _state(self, args: list[JsonNode], invert: int) -> Run:
        name = args[0]["value"].str()
        target = self.expr.target(args[1])
        return self.primitives.store(target, lambda packet, arguments: packet.sums.get(name, 0) ^ invert)

    def _set_state(self, args: list[JsonNode]) -> Run:
        name, state = args[0]["value"].str(), self.expr.number(args[1])

        def run(packet: Packet, arguments: Arguments) -> None:
            packet.sums[name] = state(packet, arguments) & WORD

        return run

    def _verify(self, args: list[JsonNode]) -> Run:
        """Compare the checksum with a field, as p4c has `get() == field`."""
        name, wanted = args[0]["value"].str(), self.expr.number(args[2])

        def equal(packet: Packet, arguments: Arguments) -> int:
            return int(packet.sums.get(name, 0) ^ WORD == wanted(packet, arguments))

        return self.primitives.store(self.expr.target(args[1]), equal)

    def _update(self, args: list[JsonNode]) -> Run:
        name, collect = args[0]["value"].str(), self._data(args[1])

        def run(packet: Packet, arguments: Arguments) -> None:
            value, bits = collect(packet)
            before, length = packet.summed.get(name, (0, 0))
            packet.summed[name] = before << bits | value, length + bits

        return run

    def _checksum(self, args: list[JsonNode]) -> Run:
        name, algorithm = args[0]["value"].str(), self._algorithm(args[0], "hash")

        def value(packet: Packet, arguments: Arguments) -> int:
            data, bits = packet.summed.get(name, (0, 0))
            return algorithm(data.to_bytes((bits + 7) // 8, "big"))

        return self.primitives.store(self.expr.target(args[1]), value)
