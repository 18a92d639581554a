"""Named calculations: a hash over fields and constants without padding, and the payload."""

from __future__ import annotations

from collections.abc import Callable

from p4lite.interpreter.hashes import csum16, find_hash
from p4lite.interpreter.packet import Packet, header_bytes
from p4lite.switch.bmv2.model import Model
from p4lite.switch.bmv2.reader import JsonNode

Calculation = Callable[[Packet], int]
#: Return (value, width), None for what an invalid header leaves out.
Part = Callable[[Packet], "tuple[int, int] | None"]


class CalculationCompiler:
    """Compiles calculations."""

    def __init__(self, model: Model) -> None:
        self.model = model

    def named(self, node: JsonNode) -> Calculation:
        """Return the calculation whose name is in `node`."""
        return self.make(self.model.find(self.model.calculations, node, "calculation"))

    def make(self, node: JsonNode) -> Calculation:
        """Return the function of an object with `algo` and `input`."""
        algorithm = find_hash(node["algo"].str())
        if algorithm is None:
            node["algo"].fail(f"the hash algorithm '{node['algo'].value}' is not supported")
        inputs = list(node["input"].items())
        payload = any(item["type"].value == "payload" for item in inputs)
        parts = [self._part(item) for item in inputs if item["type"].value != "payload"]

        def compute(packet: Packet) -> int:
            value = bits = 0
            for part in parts:
                found = part(packet)
                if found is not None:
                    value, bits = value << found[1] | found[0], bits + found[1]
            pad = -bits % 8
            data = (value << pad).to_bytes((bits + pad) // 8, "big")
            return algorithm(data + packet.payload[: packet.truncate] if payload else data)

        return compute

    def _part(self, item: JsonNode) -> Part:
        kind = item["type"].str()
        if kind == "hexstr":
            width = item["bitwidth"].int(1)
            value = item["value"].hex() & ((1 << width) - 1)
            return lambda packet: (value, width)
        if kind == "header":
            name = self.model.find(self.model.headers, item["value"], "header").name
            return lambda packet: self._whole(packet, name)
        if kind != "field":
            item["type"].fail(f"'{kind}' is not an input of a calculation")
        ref = self.model.field_ref(item["value"])
        header, field = ref.header.name, ref.field

        def part(packet: Packet) -> tuple[int, int] | None:
            state = packet.headers[header]
            if not state.valid:
                return None
            width = state.varbit_bits if field.varbit else field.width
            return state.fields[field.name] & ((1 << width) - 1), width

        return part

    def _whole(self, packet: Packet, name: str) -> tuple[int, int] | None:
        if not packet.headers[name].valid:
            return None
        data = header_bytes(self.model, packet, name)
        return int.from_bytes(data, "big"), 8 * len(data)

    def ipv4(self, header: str) -> Calculation:
        """Return the ones' complement sum of a header with bytes 10 and 11 taken as zero (old P4_14 programs)."""

        def compute(packet: Packet) -> int:
            data = bytearray(header_bytes(self.model, packet, header))
            data[10:12] = b"\0\0"
            return csum16(bytes(data))

        return compute
