"""Makes the encoders and decoders of the data path from the table of headers: as functions, or as the text of a module.

Each is one Python function with one struct call: constants, shifts and masks stand in its text as numbers, so nothing
is looked up per packet. Consecutive fields share a word of the struct where they must; bytes that are 0, or
not needed, are skipped by the struct itself. `function.source` is the text, and tracebacks show it.

`source` is the module of all that the MRC codec needs: `fast.py` runs it when it is imported, or, where the core is
compiled, has been made of it at the build.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import linecache
import re
import struct
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, TypeVar

from mypy_extensions import i64

from mrc_host.proto.wire.crc import crc32
from mrc_host.proto.wire.encap import to_ipv4
from mrc_host.proto.wire.fields import MRC_LAYOUTS, Bth, Header, Ipv6, Layout, Tseth, Udp
from mrc_host.proto.wire.messages import FLAG_ACK_REQ, FLAG_SE, FLAG_TS, NO_TIMESTAMP
from mrc_host.proto.wire.packet import Drop, WireError
from mrc_host.proto.wire.words import Word, bytewise_of, grouped, items_of, packed, struct_of, unpacked, words_of

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

F = TypeVar("F", bound=Callable[..., Any])
M = TypeVar("M", bound="DataclassInstance")

ICRC_BYTES: Final = 4
HEAD_HEADERS: Final = (Ipv6.header, Udp.header, Bth.header)
HEAD_BYTES: Final = sum(header.size for header in HEAD_HEADERS)
SHORTEST_BYTES: Final = HEAD_BYTES + ICRC_BYTES
PADS: Final = (b"", b"\0", b"\0\0", b"\0\0\0")
# The values of a message whose packet lacks the header.
_ABSENT = {"tx_timestamp": NO_TIMESTAMP}


class _Text:
    """The text of a function under construction, and the objects that it names; `structs` are formats and calls of
    structs.
    """

    def __init__(self, prefix: str = "") -> None:
        self.lines: list[str] = []
        self.prefix = prefix
        self.structs: dict[str, str] = {}
        self.names: dict[str, Any] = {
            "crc32": crc32, "to_ipv4": to_ipv4, "PADS": PADS, "WireError": WireError, "LENGTH": Drop.LENGTH,
        }  # fmt: skip

    def add(self, depth: int, *lines: str) -> None:
        self.lines += ["    " * depth + line for line in lines]

    def pack(self, headers: Sequence[Header], values: Mapping[str, str | int]) -> str:
        """Return the call that packs headers."""
        zero = {name for name, value in values.items() if value == 0}
        words = words_of(items_of(headers), zero, {name for name, value in values.items() if isinstance(value, str)})
        function = self._struct("pack", words)
        return f"{function}({', '.join(packed(word, values) for word in words if word.items)})"

    def unpack(self, headers: Sequence[Header], wanted: Collection[str], at: str) -> tuple[str, dict[str, str]]:
        """Return the statement that reads headers at a place, and the expression of each item wanted."""
        items = items_of(headers)
        words = words_of(items, {item.name for item in items if item.name not in wanted}, wanted)
        function = self._struct("unpack_from", words)
        read = [(f"w{number}", word) for number, word in enumerate(word for word in words if word.items)]
        values = {
            item.name: unpacked(word, item.name, variable)
            for variable, word in read
            for item in word.items
            if item.name in wanted
        }
        return f"({', '.join(variable for variable, _ in read)},) = {function}(packet, {at})", values

    def _struct(self, call: str, words: Sequence[Word]) -> str:
        """Return the name of a struct's call."""
        made, name = struct_of(words), f"{self.prefix}{call.partition('_')[0]}_{len(self.names)}"
        self.names[name] = getattr(made, call)
        self.structs[name] = f'struct.Struct("{made.format}").{call}'
        return name

    def typed(self, lines: list[str]) -> list[str]:
        """Return the lines after declarations of the variables that they unpack: integers."""
        found = sorted({name for line in lines for name in re.findall(r"\bw\d+\b", line)})
        return [*(f"    {name}: int" for name in found), *lines]

    def function(self, name: str) -> Any:
        """Compile it."""
        source = "\n".join(self.lines) + "\n"
        file = f"<{name} made from the table of headers>"
        linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
        exec(compile(source, file, "exec"), self.names)
        made = self.names[name]
        made.source = source
        return made


class _Bytewise(_Text):
    """Reads byte by byte instead of by structs: compiled code does that without making objects."""

    def __init__(self, prefix: str = "") -> None:
        super().__init__(prefix)
        self.names["i64"] = i64
        self._long: set[str] = set()

    def unpack(self, headers: Sequence[Header], wanted: Collection[str], at: str) -> tuple[str, dict[str, str]]:
        items = items_of(headers)
        words = words_of(items, {item.name for item in items if item.name not in wanted}, wanted)
        statements: list[str] = []
        values: dict[str, str] = {}
        offset = 0
        for word in words:
            if word.items:
                variable = f"w{len(statements)}"
                statements.append(f"{variable} = {bytewise_of(word, int(at) + offset)}")
                if struct.calcsize(word.code) > 4:
                    self._long.add(variable)
                values |= {item.name: unpacked(word, item.name, variable) for item in word.items if item.name in wanted}
            offset += struct.calcsize("!" + word.code)
        return "; ".join(statements), values

    def typed(self, lines: list[str]) -> list[str]:
        """Declare the variables as machine words, except those that may need more than 63 bits."""
        found = sorted({name for line in lines for name in re.findall(r"\bw\d+\b", line)})
        return [*(f"    {name}: {'int' if name in self._long else 'i64'}" for name in found), *lines]


def encoder(*opcodes: int, layouts: Mapping[int, Layout] = MRC_LAYOUTS, **given: str) -> Callable[[F], F]:
    """Replace a method by the encoder of these opcodes with the same signature; of the method itself only that stays.

    Parameters are fields of the layout by name; fields that are no parameter get their default. `given` has the
    expression of a field that is not simply the parameter of its name. Besides, by name: `self` (with `udp_port`,
    `p_key` and the ICRC constants), `addresses`, `entropy` (`packet_entropy` where a header has an `entropy`),
    `traffic_class`, `opcode` where there are several, `payload`. TSETH is there unless `tx_timestamp` is NO_TIMESTAMP.
    """

    def make(method: F) -> F:
        signature = inspect.signature(method)
        bare = [each.replace(annotation=inspect.Parameter.empty) for each in signature.parameters.values()]
        text = _Text()
        text.add(0, f"def {method.__name__}{inspect.Signature(bare)}:")
        _encode(text, signature, [layouts[opcode] for opcode in opcodes], given)
        made = text.function(method.__name__)
        made.opcodes = opcodes
        return functools.wraps(method)(made)  # type: ignore[return-value]

    return make


def _encode(text: _Text, signature: inspect.Signature, family: Sequence[Layout], given: Mapping[str, str]) -> None:
    """Write the body of the encoder of a family of layouts with this signature."""
    opcodes = [int(layout.opcode) for layout in family]
    entropy = "packet_entropy" if "packet_entropy" in signature.parameters else "entropy"
    payload = family[0].payload
    length: str | int = "udp_length"
    if not payload:
        length = HEAD_BYTES - Ipv6.header.size + sum(header.size for header in family[0].headers) + ICRC_BYTES

    def values_of(headers: Iterable[Header]) -> dict[str, str | int]:
        values: dict[str, str | int] = {item.name: item.default for item in items_of(headers)}
        values |= {name: name for name in values if name in signature.parameters}
        return values | {name: text for name, text in given.items() if name in values}

    def pack(headers: Sequence[Header], flags: str = "{}") -> str:
        """Return the call that packs the head and these extension headers."""
        values = values_of(HEAD_HEADERS) | {
            "flow_label": f"{entropy} >> 16",
            "payload_length": length,
            "src_port": f"{entropy} & 0xFFFF",
            "dst_port": "self.udp_port",
            "length": length,
            "opcode": "opcode" if len(opcodes) > 1 else int(opcodes[0]),
            "pad": "pad" if payload else 0,
            "p_key": "self.p_key",
        }
        if values["flags"] != 0:
            values["flags"] = flags.format(values["flags"])
        return text.pack((*HEAD_HEADERS, *headers), values | values_of(headers))

    if not payload:
        text.add(1, f"head = {pack(family[0].headers)}")
        text.add(1, f"constant = self._constants.get((addresses, {length}))")
        text.add(1, "if constant is None:", f"    constant = self._constant(addresses, {length})")
        text.add(1, 'packet = head + (crc32(head[40:]) ^ constant).to_bytes(4, "little")')
    else:
        every, some = _split(family)
        size = HEAD_BYTES - Ipv6.header.size + ICRC_BYTES
        size += sum(header.size for header in every if header is not Tseth.header)
        text.add(1, "size = len(payload)", "pad = -size & 3", f"udp_length = size + pad + {size}")
        for header, where in some:
            text.add(1, f"if opcode in {where}:", f"    udp_length += {header.size}")
        if Tseth.header in every:
            text.add(1, "if tx_timestamp >= 0:", f"    udp_length += {Tseth.header.size}")
            text.add(2, f"head = {pack(every, f'{{}} | {FLAG_TS}')}")
            without = [header for header in every if header is not Tseth.header]
            text.add(1, "else:", f"    head = {pack(without, f'{{}} & {~FLAG_TS}')}")
        else:
            text.add(1, f"head = {pack(every)}")
        for header, where in some:
            text.add(1, f"if opcode in {where}:", f"    head += {text.pack([header], values_of([header]))}")
        text.add(1, "constant = self._constants.get((addresses, udp_length))")
        text.add(1, "if constant is None:", "    constant = self._constant(addresses, udp_length)")
        text.add(1, "if self.length_only:")
        text.add(2, 'return head + (crc32(head[40:]) ^ constant).to_bytes(4, "little")')
        text.add(1, "crc = crc32(payload, crc32(head[40:]))")
        text.add(1, "if pad:", "    crc = crc32(PADS[pad], crc)")
        text.add(1, 'packet = b"".join((head, payload, PADS[pad], (crc ^ constant).to_bytes(4, "little")))')
    text.add(1, "return packet if len(addresses) == 32 else to_ipv4(packet)")


def _split(family: Sequence[Layout]) -> tuple[list[Header], list[tuple[Header, tuple[int, ...]]]]:
    """Return the headers that every layout begins with, and those after them with the opcodes that have them."""
    longest = max(family, key=lambda layout: len(layout.headers)).headers
    every = [header for header in longest if all(header in layout.headers for layout in family)]
    assert longest[: len(every)] == tuple(every), "headers of some opcodes come after those of all"
    some = [
        (header, tuple(int(layout.opcode) for layout in family if header in layout.headers))
        for header in longest[len(every) :]
    ]
    return every, some


def encodes(*opcodes: int, **given: str) -> Callable[[F], F]:
    """Declare a method of the class of signatures that `source` is given; for the parameters see `encoder`."""

    def declare(method: F) -> F:
        method.declared = opcodes, given  # type: ignore[attr-defined]
        return method

    return declare


class DecoderText(NamedTuple, Generic[M]):
    """The decoder of the part after the head, for one opcode.

    `size` is that of the whole packet, 0 with a payload; `parse` makes the message.
    """

    size: int
    parse: Callable[..., M]


# The head as decoders read it: its words, and the places in them of the fields that decoders use.
_HEAD = grouped(
    HEAD_HEADERS,
    ("version", "traffic_class", "flow_label"), ("payload_length",), ("next_header",), ("hop_limit",), ("addresses",),
    ("src_port",), ("dst_port",), ("length",), ("checksum",),
    ("opcode",), ("se", "migreq", "pad", "tver"), ("p_key",), ("resv8a", "dest_qp"), ("flags", "psn"),
    skipped=("hop_limit",),
)  # fmt: skip
_AT: Final = {item.name: word.shift(item.name) for word in _HEAD for item in word.items}
HEAD: Final = struct_of(_HEAD)
ECN_AT: Final = _AT["traffic_class"]
DSCP_AT: Final = ECN_AT + Ipv6.header.by_name["ecn"].width
PAD_AT: Final = _AT["pad"]
PAD: Final = Bth.header.by_name["pad"].mask
PAD_BITS: Final = PAD << PAD_AT
SE_BITS: Final = 1 << _AT["se"]
FLAGS_AT: Final = _AT["flags"]
TVER: Final = Bth.header.by_name["tver"].mask
LOW_24: Final = (1 << _AT["resv8a"]) - 1

# For readers of the head; the module made by `source` has them, too, as numbers.
_CONSTANTS: Final = {
    "HEAD_BYTES": HEAD_BYTES, "SHORTEST_BYTES": SHORTEST_BYTES, "ECN_AT": ECN_AT, "DSCP_AT": DSCP_AT, "PAD_AT": PAD_AT,
    "PAD": PAD, "PAD_BITS": PAD_BITS, "TVER": TVER, "LOW_24": LOW_24,
    "SE_BITS": SE_BITS, "FLAGS_AT": FLAGS_AT,
}  # fmt: skip

# What a decoder is given of the head: `word` is the first one of the IP header, `flags_psn` the last one of BTH; `ecn`
# is 3 when any IP header is marked so, `dscp` is the outermost one's.
_HEAD_NAMES = (
    "opcode", "dest_qp", "flags_psn", "word", "source_port", "ecn", "dscp", "addresses", "p_key", "udp_length",
)  # fmt: skip
_TSETH_FOLLOWS = f"flags_psn & {FLAG_TS << _AT['flags']:#x}"
_ENTROPY = "(word & 0xFFFF) << 16 | source_port"
_HEAD_VALUES = {name: name for name in ("opcode", "dest_qp", "dscp", "addresses", "p_key")} | {
    "psn": f"flags_psn & {Bth.header.by_name['psn'].mask:#x}",
    "flags": f"flags_psn >> {_AT['flags']}",
    "entropy": _ENTROPY,
    "packet_entropy": _ENTROPY,
    "ce": "ecn == 3",
    "size": f"udp_length + {Ipv6.header.size}",
    "solicited": f"flags_psn & {FLAG_SE << _AT['flags']:#x} != 0",
    "ack_req": f"flags_psn & {FLAG_ACK_REQ << _AT['flags']:#x} != 0",
}


def _message(kind: type[DataclassInstance], values: Mapping[str, str]) -> str:
    """Return the call that makes a message; its last attributes may keep their default."""
    arguments = []
    for item in dataclasses.fields(kind):
        absent = None if item.default is not dataclasses.MISSING else str(_ABSENT.get(item.name, 0))
        value = values.get(item.name, _HEAD_VALUES.get(item.name, absent))
        if value is None:
            break
        arguments.append(value)
    return f"{kind.__name__}({', '.join(arguments)})"


def decoder(layout: Layout, kind: type[M]) -> DecoderText[M]:
    """Make the decoder of a layout; messages are of class `kind`, with attributes by the names of fields.

    `parse(packet, end, ...)`, with the values of the head, takes a memoryview and where its payload ends. It raises
    WireError, or struct.error when the packet is too short.
    """
    text = _Text()
    text.names[kind.__name__] = kind
    text.add(0, f"def parse(packet, end, {', '.join(_HEAD_NAMES)}):")
    return DecoderText(_decode(text, layout, kind), text.function("parse"))


def _decode(text: _Text, layout: Layout, kind: type[DataclassInstance], view: str = "packet") -> int:
    """Write the body of the decoder of a layout; return the size of the whole packet, 0 with a payload, which is
    part of `view`."""
    names = {item.name for item in dataclasses.fields(kind)}

    def read(depth: int, headers: Sequence[Header]) -> None:
        values: dict[str, str] = {}
        start = HEAD_BYTES + sum(header.size for header in headers)
        if layout.payload:
            text.add(depth, f"if end < {start}:", '    raise WireError(LENGTH, "no room for the headers")')
        wanted = names & {item.name for item in items_of(headers)}
        if wanted:
            statement, values = text.unpack(headers, wanted, str(HEAD_BYTES))
            text.add(depth, statement)
        if layout.payload:
            values["payload"] = f"{view}[{start}:end]"
        text.add(depth, f"return {_message(kind, values)}")

    if Tseth.header in layout.headers:
        text.add(1, f"if {_TSETH_FOLLOWS}:")
        read(2, layout.headers)
        read(1, [header for header in layout.headers if header is not Tseth.header])
    else:
        read(1, layout.headers)
    return 0 if layout.payload else HEAD_BYTES + sum(header.size for header in layout.headers) + ICRC_BYTES


def _decode_trimmed(text: _Text, layouts: Iterable[Layout], kind: type[DataclassInstance]) -> None:
    """Write the body of the decoder of trimmed packets: of the headers that every layout has, those that survived are
    set.
    """
    every, _ = _split(list(layouts))
    names = {item.name for item in dataclasses.fields(kind)}
    text.add(1, f"total, at = len(packet), {HEAD_BYTES}")
    found = []
    for header in every:
        wanted = [item.name for item in items_of([header]) if item.name in names]
        text.add(1, *(f"{name} = {_ABSENT.get(name, 0)}" for name in wanted))
        found += wanted
    for header in every:
        wanted = [item.name for item in items_of([header]) if item.name in names]
        condition = f"{_TSETH_FOLLOWS} and " if header is Tseth.header else ""
        text.add(1, f"if {condition}total >= at + {header.size}:")
        statement, values = text.unpack([header], wanted, "at")
        text.add(2, statement, *(f"{name} = {values[name]}" for name in wanted), f"at += {header.size}")
    values = {name: name for name in [*found, "trimmed"]} | {"payload": 'memoryview(b"")'}
    text.add(1, f"return {_message(kind, values)}")


_HEADER = """\
\"\"\"Encoders and decoders of MRC, made from the table of headers by `compiled.source`.\"\"\"

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Final

from mypy_extensions import i64, mypyc_attr

from mrc_host.proto.wire.encap import to_ipv4
from mrc_host.proto.wire.icrc import Sealing, crc32
from mrc_host.proto.wire.messages import {kinds}, Message
from mrc_host.proto.wire.packet import Drop, WireError

Buffer = bytes | bytearray | memoryview
PADS: Final = {pads}
LENGTH: Final = Drop.LENGTH
{constants}


class Decoder:
    \"\"\"Of one opcode: `size` of the whole packet, 0 with a payload; `parse` makes the message behind the head.

    `view` is what the payload is part of, `end` where that ends. Raises WireError, or struct.error when the packet is
    too short.
    \"\"\"

    __slots__ = ("size",)

    def __init__(self, size: int) -> None:
        self.size = size

    def parse(self, packet: bytes, view: Any, end: int, {head}) -> Message:
        raise NotImplementedError


@mypyc_attr(allow_interpreted_subclasses=True)
class Encoders(Sealing):
    \"\"\"One method per kind of packet; see `signatures.Signatures`.\"\"\"

    __slots__ = ()
"""


def source(signatures: type, kinds: Mapping[int, type[DataclassInstance]], *, bytewise: bool = False) -> str:
    """Return the module with the encoders that `signatures` declares (`encodes`) and the decoders of all MRC opcodes.

    It has a class `Encoders`, `ENCODERS` (its methods by opcode), `read_head`, `DECODERS` (a `DecoderText` for each
    opcode), and `parse_trimmed`. `bytewise`: as what will be compiled reads best.
    """
    number = "i64" if bytewise else "int"
    reader = _Bytewise if bytewise else _Text
    head = ", ".join(f"{name}: {'bytes' if name == 'addresses' else number}" for name in _HEAD_NAMES)
    names = ", ".join(sorted({kind.__name__ for kind in kinds.values()}))
    constants = "\n".join(f"{name}: Final = {value}" for name, value in _CONSTANTS.items())
    lines = [_HEADER.format(kinds=names, pads=PADS, head=head, constants=constants)]
    structs: dict[str, str] = {}
    encoders: dict[int, str] = {}
    for name, method in vars(signatures).items():
        if hasattr(method, "declared"):
            opcodes, given = method.declared
            text = _Text(f"_{name}_")
            signature = inspect.signature(method)
            text.add(0, f"def {name}{str(signature).replace(chr(39), '')}:")
            _encode(text, signature, [MRC_LAYOUTS[opcode] for opcode in opcodes], given)
            lines += ["    " + line for line in [*text.lines, ""]]
            structs |= text.structs
            encoders |= {int(opcode): f"Encoders.{name}" for opcode in opcodes}
    lines += ["", f"def parse_trimmed(packet: bytes, trimmed: int, {head}) -> Data:"]
    writes = [opcode for opcode, layout in MRC_LAYOUTS.items() if layout.payload]
    text = _Text("_trimmed_")
    _decode_trimmed(text, [MRC_LAYOUTS[opcode] for opcode in writes], kinds[writes[0]])
    lines += [*text.typed(text.lines), ""]
    structs |= text.structs
    lines += _read_head(bytewise)
    decoders = []
    for opcode, layout in MRC_LAYOUTS.items():
        kind, name = kinds[opcode], f"_Decoder{int(opcode):02X}"
        text = reader(f"_{int(opcode):02x}_")
        size = _decode(text, layout, kind, "view")
        lines += ["", f"class {name}(Decoder):", "    __slots__ = ()", ""]
        lines += [f"    def parse(self, packet: bytes, view: Any, end: int, {head}) -> {kind.__name__}:"]
        lines += ["    " + line for line in [*text.typed(text.lines), ""]]
        structs |= text.structs
        decoders.append(f"    {int(opcode):#x}: {name}({size}),")
    lines += ["", *(f"{name}: Final = {call}" for name, call in structs.items())]
    lines += ["DECODERS: Final[dict[int, Decoder]] = {", *decoders, "}"]
    lines += ["ENCODERS: Final[dict[int, Callable[..., Any]]] = {"]
    lines += [*(f"    {opcode:#x}: {name}," for opcode, name in encoders.items()), "}"]
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _read_head(bytewise: bool) -> list[str]:
    """Generate `read_head(packet)`, which returns the words of `HEAD`; the packet is at least that long."""
    if not bytewise:
        return ["", f'read_head: Final = struct.Struct("{HEAD.format}").unpack_from', ""]
    kinds, values, offset = [], [], 0
    for word in _HEAD:
        if not word.code.endswith("x"):
            kinds.append("bytes" if word.code.endswith("s") else "i64")
            values.append(bytewise_of(word, offset))
        offset += struct.calcsize("!" + word.code)
    lines = ["", f"def read_head(packet: bytes) -> tuple[{', '.join(kinds)}]:", "    return ("]
    return [*lines, *(f"        {value}," for value in values), "    )", ""]
