"""A packet on its way: its headers and metadata, and what the program has asked the target to do with it."""

from __future__ import annotations

from dataclasses import dataclass, field

from p4lite.switch.bmv2.model import Model


class ParserFailure(Exception):
    """An error that the parser raises; `code` is its number in the document."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


@dataclass(slots=True)
class HeaderState:
    """A header instance of one packet; `varbit_bits` is the present length of its varbit."""

    fields: dict[str, int]
    valid: bool = False
    varbit_bits: int = 0

    def copy(self) -> HeaderState:
        """Return a copy."""
        return HeaderState(dict(self.fields), self.valid, self.varbit_bits)


@dataclass(slots=True)
class Packet:
    """`data` are the bytes that were parsed, `payload` those behind the headers.

    `length` follows the validity of headers (simple_switch's register 0), `ingress_length` is what counters count.
    Flags: `clone` is (session, field list), 0 of the others means not asked for. `sums` and `summed` are the states of
    PSA's checksums: a sum, or the data so far with its width.
    """

    port: int
    data: bytes
    headers: dict[str, HeaderState]
    next_index: dict[str, int]
    payload: bytes = b""
    cursor: int = 0
    length: int = 0
    ingress_length: int = 0
    parser_error: int = 0
    checksum_error: bool = False
    exited: bool = False
    clone: tuple[int, int] | None = None
    digest: int = 0
    resubmit: int = 0
    recirculate: int = 0
    truncate: int | None = None
    loops: int = 0
    messages: list[str] = field(default_factory=list)
    sums: dict[str, int] = field(default_factory=dict)
    summed: dict[str, tuple[int, int]] = field(default_factory=dict)

    def copy(self) -> Packet:
        """Return a copy with the headers and metadata, without the flags."""
        return Packet(
            self.port,
            self.data,
            {name: state.copy() for name, state in self.headers.items()},
            dict(self.next_index),
            payload=self.payload,
            cursor=self.cursor,
            length=self.length,
            ingress_length=self.ingress_length,
            loops=self.loops,
        )


def fresh_packet(model: Model, port: int, data: bytes) -> Packet:
    """Return a packet whose headers are invalid and whose metadata are 0."""
    headers = {h.name: HeaderState({f.name: 0 for f in h.type.fields}, h.metadata) for h in model.headers.values()}
    stacks = dict.fromkeys((*model.stacks, *model.union_stacks), 0)
    return Packet(port, data, headers, stacks, length=len(data), ingress_length=len(data))


def header_bits(model: Model, packet: Packet, name: str) -> int:
    """Return the length of a header, with its varbit."""
    return model.headers[name].type.fixed_bits + packet.headers[name].varbit_bits


def header_bytes(model: Model, packet: Packet, name: str) -> bytes:
    """Return a header as it is on the wire."""
    state, value, total = packet.headers[name], 0, 0
    for f in model.headers[name].type.fields:
        width = state.varbit_bits if f.varbit else f.width
        value = value << width | (state.fields[f.name] & ((1 << width) - 1))
        total += width
    return value.to_bytes((total + 7) // 8, "big")


def wrap(value: int, width: int, signed: bool) -> int:
    """Return `value` cut to `width` bits, as two's complement if `signed`."""
    value &= (1 << width) - 1
    return value - (1 << width) if signed and width and value >> (width - 1) else value
