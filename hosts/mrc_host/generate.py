"""Generation of the data path's encoders and decoders from the table of headers: `make codec` writes `fast.py` in
`proto/wire` and `proto/roce`, which are committed and run as they stand.

Each encoder is one function with one struct call, each decoder one class: constants, shifts and masks stand in their
text as numbers, so nothing is looked up per packet. Consecutive fields share a word where they must; bytes that are 0,
or not needed, are skipped.
"""

from __future__ import annotations

import dataclasses
import inspect
import pathlib
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from mrc_host.proto.roce.messages import ROCE_MESSAGES
from mrc_host.proto.wire.fields import MRC_LAYOUTS, ROCE_LAYOUTS, Bth, Header, Ipv6, Layout, Tseth, Udp
from mrc_host.proto.wire.messages import FLAG_ACK_REQ, FLAG_SE, FLAG_TS, MESSAGES, NO_TIMESTAMP
from mrc_host.proto.wire.words import (
    Word,
    grouped,
    items_of,
    moved,
    packed,
    read_of,
    struct_of,
    unpacked,
    variable_of,
    words_of,
)
from mrc_host.signatures import RoceSignatures, Signatures

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

_QUOTED: Final = r"'(\w[^']*)'"  # an annotation
#: From this many numbers on, the interpreter reads them faster by one call of a struct than by a call for each.
_MANY: Final = 5
#: The longest line.
WIDTH: Final = 120
ICRC_BYTES: Final = 4
HEAD_HEADERS: Final = (Ipv6.header, Udp.header, Bth.header)
HEAD_BYTES: Final = sum(header.size for header in HEAD_HEADERS)
SHORTEST_BYTES: Final = HEAD_BYTES + ICRC_BYTES
# The values of a message whose packet lacks the header.
_ABSENT = {"tx_timestamp": NO_TIMESTAMP}


class FunctionText:
    """The text of a function under construction, and the forms of heads that it names."""

    def __init__(self, prefix: str = "") -> None:
        self.lines: list[str] = []
        self.prefix = prefix
        self.forms: dict[str, str] = {}

    def add(self, depth: int, *lines: str) -> None:
        """Add lines at a depth."""
        self.lines += ["    " * depth + line for line in lines]

    def pack(self, headers: Sequence[Header], values: Mapping[str, str | int]) -> tuple[str, list[str]]:
        """Return the name of the form of headers, and the expressions of its values."""
        zero = {name for name, value in values.items() if value == 0}
        words = words_of(items_of(headers), zero, {name for name, value in values.items() if isinstance(value, str)})
        name = f"{self.prefix}FORM_{len(self.forms) + 1}"
        self.forms[name] = repr(struct_of(words).format.encode())
        return name, [packed(word, values) for word in words if word.items]

    def unpack(self, headers: Sequence[Header], wanted: Collection[str], at: str) -> tuple[list[str], dict[str, str]]:
        """Return the statements that read headers of `packet` at a place, and the expression of each item wanted."""
        items = items_of(headers)
        words = words_of(items, {item.name for item in items if item.name not in wanted}, wanted)
        statements: list[str] = []
        values: dict[str, str] = {}
        variables: list[str] = []
        offset = 0
        for word in words:
            if word.items:
                variable = variable_of(word)
                place = moved(at, offset)
                variables.append(variable)
                statements.append(f"{variable} = {read_of(word, place)}")
                values |= {item.name: unpacked(word, item.name, variable) for item in word.items if item.name in wanted}
            offset += word.size
        if len(variables) >= _MANY:
            called = f"{', '.join(variables)} = {self._form(words)}.unpack_from(packet, {at})"
            statements = ["if COMPILED:", *(f"    {line}" for line in statements), "else:", f"    {called}"]
        return statements, values

    def _form(self, words: Sequence[Word]) -> str:
        text = f"Struct({struct_of(words).format!r})"
        known = next((name for name, form in self.forms.items() if form == text), "")
        name = known or f"{self.prefix}FORM_{len(self.forms) + 1}"
        self.forms[name] = text
        return name


def _encode(
    text: FunctionText, signature: inspect.Signature, family: Sequence[Layout], given: Mapping[str, str]
) -> None:
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

    def call(headers: Sequence[Header], flags: str = "{}") -> str:
        """Return the call that makes the packet with these extension headers."""
        values = values_of(HEAD_HEADERS) | {
            "flow_label": f"{entropy} >> 16",
            "payload_length": length,
            "src_port": f"{entropy} & 0xFFFF",
            "dst_port": "self.udp_port",
            "length": length,
            "opcode": "opcode" if len(opcodes) > 1 else int(opcodes[0]),
            "pad": "-size & 3" if payload else 0,
            "p_key": "self.p_key",
        }
        if values["flags"] != 0:
            values["flags"] = flags.format(values["flags"])
        form, numbers = text.pack((*HEAD_HEADERS, *headers), values | values_of(headers))
        what = "payload, begin, size, self.length_only" if payload else "None, 0, 0, False"
        outer = "outer" if "outer" in signature.parameters else 'b""'
        return f"whole = packet({form}, {outer}, {what}, {', '.join(numbers)})"

    if not payload:
        text.add(1, call(family[0].headers))
    else:
        every, some = _split(family)
        size = HEAD_BYTES - Ipv6.header.size + ICRC_BYTES
        size += sum(header.size for header in every if header is not Tseth.header)
        text.add(1, "if size < 0:", "    size = len(payload) - begin", f"udp_length = size + (-size & 3) + {size}")
        cases = [("tx_timestamp >= 0", Tseth.header)] if Tseth.header in every else []
        cases += [(f"opcode in {where}", header) for header, where in some]

        def branch(depth: int, number: int, absent: list[Header], flags: str) -> None:
            """Write the packet for the cases from `number` on."""
            if number == len(cases):
                headers = [header for header in (*every, *(header for header, _ in some)) if header not in absent]
                text.add(depth, call(headers, flags))
                return
            condition, header = cases[number]
            stamped = header is Tseth.header
            text.add(depth, f"if {condition}:", f"    udp_length += {header.size}")
            branch(depth + 1, number + 1, absent, f"{{}} | {FLAG_TS}" if stamped else flags)
            text.add(depth, "else:")
            branch(depth + 1, number + 1, [*absent, header], f"{{}} & {~FLAG_TS}" if stamped else flags)

        branch(1, 0, [], "{}")
    text.add(1, "return whole if len(addresses) == 32 else to_ipv4(whole)")


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


# The head as decoders read it: its words, and the places in them of the fields that decoders use.
_HEAD = grouped(
    HEAD_HEADERS,
    ("version", "traffic_class", "flow_label"), ("payload_length",), ("next_header",), ("hop_limit",), ("addresses",),
    ("src_port",), ("dst_port",), ("length",), ("checksum",),
    ("opcode",), ("se", "migreq", "pad", "tver"), ("p_key",), ("resv8a", "dest_qp"), ("flags", "psn"),
    skipped=("hop_limit", "checksum"),
)  # fmt: skip
_AT: Final = {item.name: word.shift(item.name) for word in _HEAD for item in word.items}
ECN_AT: Final = _AT["traffic_class"]
DSCP_AT: Final = ECN_AT + Ipv6.header.by_name["ecn"].width
PAD_AT: Final = _AT["pad"]
PAD: Final = Bth.header.by_name["pad"].mask
PAD_BITS: Final = PAD << PAD_AT
SE_BITS: Final = 1 << _AT["se"]
FLAGS_AT: Final = _AT["flags"]
TVER: Final = Bth.header.by_name["tver"].mask
LOW_24: Final = (1 << _AT["resv8a"]) - 1

# For readers of the head, as numbers.
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


def _decode(text: FunctionText, layout: Layout, kind: type[DataclassInstance]) -> int:
    """Write the body of the decoder of a layout; return the size of the whole packet, 0 with a payload."""
    names = {item.name for item in dataclasses.fields(kind)}

    def read(depth: int, headers: Sequence[Header]) -> None:
        values: dict[str, str] = {}
        start = moved("at", HEAD_BYTES + sum(header.size for header in headers))
        if layout.payload:
            text.add(depth, f"if end < {start}:", '    raise WireError(LENGTH, "no room for the headers")')
        wanted = names & {item.name for item in items_of(headers)}
        if wanted:
            statements, values = text.unpack(headers, wanted, moved("at", HEAD_BYTES))
            text.add(depth, *statements)
        if layout.payload:
            values["payload"] = f"part(packet, {start}, end, absent)"
        text.add(depth, f"return {_message(kind, values)}")

    if Tseth.header in layout.headers:
        text.add(1, f"if {_TSETH_FOLLOWS}:")
        read(2, layout.headers)
        read(1, [header for header in layout.headers if header is not Tseth.header])
    else:
        read(1, layout.headers)
    return 0 if layout.payload else HEAD_BYTES + sum(header.size for header in layout.headers) + ICRC_BYTES


def _decode_trimmed(text: FunctionText, layouts: Iterable[Layout], kind: type[DataclassInstance]) -> None:
    """Write the body of the decoder of trimmed packets: of the headers that every layout has, those that survived are
    set.
    """
    every, _ = _split(list(layouts))
    names = {item.name for item in dataclasses.fields(kind)}
    text.add(1, "total = len(packet)", f"at += {HEAD_BYTES}")
    found = []
    for header in every:
        wanted = [item.name for item in items_of([header]) if item.name in names]
        text.add(1, *(f"{name} = {_ABSENT.get(name, 0)}" for name in wanted))
        found += wanted
    for header in every:
        wanted = [item.name for item in items_of([header]) if item.name in names]
        condition = f"{_TSETH_FOLLOWS} and " if header is Tseth.header else ""
        text.add(1, f"if {condition}total >= at + {header.size}:")
        statements, values = text.unpack([header], wanted, "at")
        text.add(2, *statements, *(f"{name} = {values[name]}" for name in wanted if values[name] != name))
        text.add(2, f"at += {header.size}")
    values = {name: name for name in [*found, "trimmed"]} | {"payload": 'memoryview(b"")'}
    text.add(1, f"return {_message(kind, values)}")


@dataclass(frozen=True)
class CodecFamily:
    """A module of encoders and decoders: its place below `proto`, the signatures of its encoders, its layouts, and the
    class of messages of each opcode."""

    path: str
    title: str
    prefix: str
    signatures: type
    layouts: Mapping[int, Layout]
    messages: Mapping[int, type[DataclassInstance]]
    message: str
    imports: tuple[str, ...]
    base: str


FAMILIES: Final = (
    CodecFamily(
        path="wire/fast.py",
        title="Encoders and decoders of MRC's data path",
        prefix="",
        signatures=Signatures,
        layouts=MRC_LAYOUTS,
        messages=MESSAGES,
        message="Message",
        imports=(
            "from mrc_host.proto.wire.encap import to_ipv4",
            "from mrc_host.proto.wire.framing import Buffer, packet",
            "from mrc_host.proto.wire.icrc import Sealing",
            "from mrc_host.proto.wire.messages import {kinds}",
            "from mrc_host.proto.wire.packet import Drop, WireError",
        ),
        base="Sealing",
    ),
    CodecFamily(
        path="roce/fast.py",
        title="Encoders and decoders of RoCEv2's reliable connection",
        prefix="Roce",
        signatures=RoceSignatures,
        layouts=ROCE_LAYOUTS,
        messages=ROCE_MESSAGES,
        message="RoceMessage",
        imports=(
            "from mrc_host.proto.roce.messages import {kinds}",
            "from mrc_host.proto.wire.codec import Codec",
            "from mrc_host.proto.wire.encap import to_ipv4",
            "from mrc_host.proto.wire.framing import Buffer, packet",
            "from mrc_host.proto.wire.packet import Drop, WireError",
        ),
        base="Codec",
    ),
)

_HEADER = """\
\"\"\"{title}, made from the table of headers by `make codec`.\"\"\"

from __future__ import annotations

from collections.abc import Callable
{structs}from typing import Final

from mypy_extensions import i64, mypyc_attr

{imports}

LENGTH: Final = Drop.LENGTH
{constants}


class {prefix}Decoder:
    \"\"\"The decoder of one opcode: `size` of the whole packet, 0 with a payload; `parse` makes the message.\"\"\"

    __slots__ = ("size",)

    def __init__(self, size: int) -> None:
        self.size = size

    def parse(self, packet: bytes, at: i64, end: i64, absent: bool, {head}) -> {message}:
        \"\"\"Return the message behind the head, whose values are given.

        The IPv6 packet begins at `at`; its payload ends at `end`, and is not there if `absent`. Raises WireError, or
        IndexError when the packet is too short.
        \"\"\"
        raise NotImplementedError


@mypyc_attr(allow_interpreted_subclasses=True)
class {prefix}Encoders({base}):
    \"\"\"A method for each kind of packet; see `signatures.{signatures}`.\"\"\"

    __slots__ = ()
"""


def module_of(family: CodecFamily) -> str:
    """Return the text of a family's module.

    It has a class of encoders, `ENCODERS` (its methods by opcode), `DECODERS` (a decoder for each opcode), and that of
    MRC `read_head` and `parse_trimmed`.
    """
    of_mrc = family.layouts is MRC_LAYOUTS
    head = ", ".join(f"{name}: {'bytes' if name == 'addresses' else 'i64'}" for name in _HEAD_NAMES)
    forms: dict[str, str] = {}
    encoders: dict[int, str] = {}
    lines: list[str] = []
    for name, method in vars(family.signatures).items():
        if hasattr(method, "declared"):
            opcodes, given = method.declared
            text = FunctionText(f"{name.lstrip('_').upper()}_")
            signature = inspect.signature(method)
            text.add(0, f"def {name}{re.sub(_QUOTED, lambda quoted: quoted[1], str(signature))}:")
            text.add(1, f'"""{inspect.getdoc(method)}"""')
            _encode(text, signature, [family.layouts[opcode] for opcode in opcodes], given)
            lines += ["    " + line for line in [*text.lines, ""]]
            forms |= text.forms
            encoders |= {int(opcode): f"{family.prefix}Encoders.{name}" for opcode in opcodes}
    if of_mrc:
        lines += ["", f"def parse_trimmed(packet: bytes, at: i64, trimmed: int, {head}) -> Data:"]
        lines += ['    """Return the message of a packet that a switch trimmed, with the headers that survived."""']
        writes = [opcode for opcode, layout in MRC_LAYOUTS.items() if layout.payload]
        text = FunctionText()
        _decode_trimmed(text, [MRC_LAYOUTS[opcode] for opcode in writes], family.messages[writes[0]])
        lines += [*text.lines, "", *_read_head()]
        forms["HEAD_FORM"] = f"Struct({struct_of(_HEAD).format!r})"
    decoders = []
    read: dict[str, str] = {}
    for opcode, layout in family.layouts.items():
        kind, name = family.messages[opcode], f"_Decoder{int(opcode):02X}"
        text = FunctionText("DECODE_")
        text.forms = read
        size = _decode(text, layout, kind)
        lines += ["", f"class {name}({family.prefix}Decoder):", "    __slots__ = ()", ""]
        lines += [f"    def parse(self, packet: bytes, at: i64, end: i64, absent: bool, {head}) -> {kind.__name__}:"]
        lines += ["    " + line for line in [*text.lines, ""]]
        decoders.append(f"    {int(opcode):#x}: {name}({size}),  # {layout.title}")
    lines += ["", f"DECODERS: Final[dict[int, {family.prefix}Decoder]] = {{", *decoders, "}"]
    lines += ["ENCODERS: Final[dict[int, Callable[..., bytes]]] = {"]
    lines += [*(f"    {opcode:#x}: {name}," for opcode, name in encoders.items()), "}"]
    body = "\n".join(line.rstrip() for line in lines)
    reads = [name for name in _READS if f"{name}(packet" in body]
    imports = [each.format(kinds=", ".join(sorted({family.message, *(k.__name__ for k in family.messages.values())})))
               for each in family.imports]  # fmt: skip
    imports.append(f"from mrc_host.proto.wire.reading import {', '.join(reads)}")
    constants = [f"{name}: Final = {value}" for name, value in _CONSTANTS.items()] if of_mrc else []
    if read:
        forms |= read | {"COMPILED": f"not isinstance({reads[-1]}, FunctionType)"}
    constants += [f"{name}: Final = {form}" for name, form in forms.items()]
    begin = _HEADER.format(
        structs="from struct import Struct\nfrom types import FunctionType\n" if read else "",
        title=family.title, imports="\n".join(sorted(imports)), head=head, constants="\n".join(constants),
        prefix=family.prefix, message=family.message, base=family.base, signatures=family.signatures.__name__,
    )  # fmt: skip
    return "\n".join(map(_wrapped, f"{begin}\n{body}\n".split("\n")))


def _wrapped(line: str) -> str:
    """Return a line, broken between the arguments of its first parentheses if it is too long."""
    if len(line) <= WIDTH or "#" in line:
        return line
    if line.startswith("from "):
        line = line.replace(" import ", " import (") + ")"
    indent = " " * (len(line) - len(line.lstrip()))
    begin, end = line.index("(") + 1, line.rindex(")")
    rows, argument = [f"{indent}   "], ""
    for piece in re.split(r"(?<=,) ", line[begin:end]):
        argument += f" {piece}"
        if sum(map(argument.count, "([")) > sum(map(argument.count, ")]")):
            continue  # This comma is within brackets.
        if len(rows[-1]) + len(argument) <= WIDTH:
            rows[-1] += argument
        else:
            rows.append(f"{indent}   {argument}")
        argument = ""
    return "\n".join([line[:begin], *rows, f"{indent}{line[end:]}"])


_READS: Final = ("i8", "i16", "i32", "part", "u8", "u16", "u32", "u64")


def _read_head() -> list[str]:
    """Return the text of `read_head(packet, at)`, which gives the words of `_HEAD` from a place on."""
    kinds, values, offset = [], [], 0
    for word in _HEAD:
        if word.read:
            kinds.append("bytes" if word.code.endswith("s") else "i64")
            values.append(f"{read_of(word, moved('at', offset))},  # {', '.join(item.name for item in word.items)}")
        offset += word.size
    lines = ["", f"def read_head(packet: bytes, at: i64) -> tuple[{', '.join(kinds)}]:"]
    lines += [
        '    """Return the words of the IPv6, UDP and BTH headers that begin at a place; all of them are there."""',
        "    if not COMPILED:",
        "        return HEAD_FORM.unpack_from(packet, at)",
        "    return (",
    ]
    return [*lines, *(f"        {value}" for value in values), "    )", ""]


def main() -> None:
    """Write the modules."""
    folder = pathlib.Path(__file__).resolve().parent / "proto"
    for family in FAMILIES:
        (folder / family.path).write_text(module_of(family), encoding="utf-8")


if __name__ == "__main__":
    main()
