"""Named calculations, selectors' hashes, and checksums as C functions.

The input of a calculation is the concatenation of its fields without padding; fields of invalid headers are left
out. The last byte is padded with zeros on the right. `payload` appends the unparsed rest of the packet.
"""

from __future__ import annotations

from dataclasses import dataclass

from p4lite.switch.bmv2.model import Header, Model
from p4lite.switch.bmv2.reader import JsonNode
from p4lite.switch.codegen.cexpr import CExpr
from p4lite.switch.codegen.expr import BoundedExpr, ExprBuilder
from p4lite.switch.codegen.packing import (
    PackedItem,
    header_bytes,
    header_items,
    put_at,
    store,
    store_header,
    sum_terms,
    total,
)
from p4lite.switch.codegen.phv import HeaderPlace, comment

FUNCTIONS = {
    "csum16": "p4_hash_csum16",
    "cksum16": "p4_hash_csum16",
    "xor16": "p4_hash_xor16",
    "xor32": "p4_hash_xor32",
    "identity": "p4_hash_identity",
    "xxh64": "p4_hash_xxh64",
}
SUMS = frozenset({"csum16", "cksum16"})
"""Those that are a ones' complement sum of 16-bit words (RFC 1071)."""


@dataclass(frozen=True)
class Crc:
    """Polynomial without its top bit; `reflected` goes for data and remainder alike unless `remainder` differs."""

    width: int
    polynomial: int
    initial: int
    final_xor: int
    reflected: bool
    remainder: bool | None = None


CRCS = {
    "crc16": Crc(16, 0x8005, 0, 0, True),
    "crc32": Crc(32, 0x04C11DB7, 0xFFFFFFFF, 0xFFFFFFFF, True),
    "crcCCITT": Crc(16, 0x1021, 0xFFFF, 0, False),
    "crc8_custom": Crc(8, 0x07, 0, 0, False),
    "crc16_custom": Crc(16, 0x8005, 0, 0, True),
    "crc32_custom": Crc(32, 0x04C11DB7, 0xFFFFFFFF, 0xFFFFFFFF, True),
    "crc64_custom": Crc(64, 0x1B, 0, 0, True),
    "crc_8": Crc(8, 0x07, 0, 0, False),
    "crc_8_darc": Crc(8, 0x39, 0, 0, True),
    "crc_8_i_code": Crc(8, 0x1D, 0xFD, 0, False),
    "crc_8_itu": Crc(8, 0x07, 0, 0x55, False),
    "crc_8_maxim": Crc(8, 0x31, 0, 0, True),
    "crc_8_rohc": Crc(8, 0x07, 0xFF, 0, True),
    "crc_8_wcdma": Crc(8, 0x9B, 0, 0, True),
    "crc_16": Crc(16, 0x8005, 0, 0, True),
    "crc_16_buypass": Crc(16, 0x8005, 0, 0, False),
    "crc_16_dds_110": Crc(16, 0x8005, 0x800D, 0, False),
    "crc_16_dect": Crc(16, 0x0589, 0, 0x0001, False),
    "crc_16_dnp": Crc(16, 0x3D65, 0, 0xFFFF, True),
    "crc_16_en_13757": Crc(16, 0x3D65, 0, 0xFFFF, False),
    "crc_16_genibus": Crc(16, 0x1021, 0xFFFF, 0xFFFF, False),
    "crc_16_maxim": Crc(16, 0x8005, 0, 0xFFFF, True),
    "crc_16_mcrf4xx": Crc(16, 0x1021, 0xFFFF, 0, True),
    "crc_16_riello": Crc(16, 0x1021, 0xB2AA, 0, True),
    "crc_16_t10_dif": Crc(16, 0x8BB7, 0, 0, False),
    "crc_16_teledisk": Crc(16, 0xA097, 0, 0, False),
    "crc_16_usb": Crc(16, 0x8005, 0xFFFF, 0xFFFF, True),
    "x_25": Crc(16, 0x1021, 0xFFFF, 0xFFFF, True),
    "xmodem": Crc(16, 0x1021, 0, 0, False),
    "modbus": Crc(16, 0x8005, 0xFFFF, 0, True),
    "kermit": Crc(16, 0x1021, 0, 0, True),
    "crc_ccitt_false": Crc(16, 0x1021, 0xFFFF, 0, False),
    "crc_aug_ccitt": Crc(16, 0x1021, 0x1D0F, 0, False),
    "crc_32": Crc(32, 0x04C11DB7, 0xFFFFFFFF, 0xFFFFFFFF, True),
    "crc_32_bzip2": Crc(32, 0x04C11DB7, 0xFFFFFFFF, 0xFFFFFFFF, False),
    "crc_32c": Crc(32, 0x1EDC6F41, 0xFFFFFFFF, 0xFFFFFFFF, True),
    "crc_32d": Crc(32, 0xA833982B, 0xFFFFFFFF, 0xFFFFFFFF, True),
    "crc_32_mpeg": Crc(32, 0x04C11DB7, 0xFFFFFFFF, 0, False),
    "posix": Crc(32, 0x04C11DB7, 0, 0xFFFFFFFF, False),
    "crc_32q": Crc(32, 0x814141AB, 0, 0, False),
    "jamcrc": Crc(32, 0x04C11DB7, 0xFFFFFFFF, 0, True),
    "xfer": Crc(32, 0x000000AF, 0, 0, False),
    "crc_64": Crc(64, 0x1B, 0, 0, True),
    "crc_64_we": Crc(64, 0x42F0E1EBA9EA3693, 0xFFFFFFFFFFFFFFFF, 0xFFFFFFFFFFFFFFFF, False),
    "crc_64_jones": Crc(64, 0xAD93D23594C935A9, 0xFFFFFFFFFFFFFFFF, 0, True),
}


def custom_crc(name: str) -> Crc | None:
    """Return a CRC from a name such as `poly_0x18005_init_0xffff_not_rev_xout_0x0`; None if the name has another
    form."""
    words = iter(name.split("_"))
    values = {"poly": "", "init": "0", "xout": "0"}
    reflected = True
    for word in words:
        if word in values:
            values[word] = next(words, "")
        elif word == "not" and next(words, "") == "rev":
            reflected = False
        else:
            return None
    poly = values["poly"]
    if not poly.startswith("0x1") or (len(poly) - 3) * 4 not in (8, 16, 32, 64):
        return None
    try:
        numbers = [int(values[k], 16) for k in ("init", "xout")]
        return Crc((len(poly) - 3) * 4, int(poly[3:], 16), numbers[0], numbers[1], reflected)
    except ValueError:
        return None


SIGNATURE = "struct p4_state *in P4_UNUSED, const struct phv *p P4_UNUSED"


@dataclass
class Part:
    """Consecutive inputs from one header (or constants: header None); `whole` if the header as such."""

    header: Header | None
    items: list[PackedItem]
    whole: bool = False


@dataclass
class CalculationFunction:
    function: str
    payload: bool


class CalculationCodegen:
    """Generates one C function per calculation, on demand."""

    def __init__(self, model: Model, cx: CExpr, builder: ExprBuilder):
        self.model = model
        self.cx = cx
        self.builder = builder
        self.code: list[str] = []
        self.crcs: dict[Crc, str] = {}
        self._named: dict[str, CalculationFunction] = {}
        self.checksums_of_payload = False

    def named(self, node: JsonNode) -> CalculationFunction:
        """Return the calculation whose name is in `node`."""
        name = node.str()
        if name not in self._named:
            calculation = self.model.find(self.model.calculations, node, "calculation")
            self._named[name] = self.make(f"calc_{len(self._named)}", calculation, name)
        return self._named[name]

    def make(self, function: str, node: JsonNode, title: str) -> CalculationFunction:
        """Generate the function for an object with `algo` and `input`."""
        parts, payload = self._parts(node)
        hash_code = self._algorithm(node["algo"], title)
        aligned = all(p.whole or all(total(s) % 8 == 0 for s in _segments(p.items)) for p in parts)
        lines = [f"/* {comment(title)} */", f"static uint64_t {function}({SIGNATURE},"]
        lines.append("    const uint8_t *payload P4_UNUSED, uint32_t payload_len P4_UNUSED)")
        lines.append("{")
        sums = self._summed(parts, payload) if aligned and node["algo"].str() in SUMS else None
        if sums is not None:
            self.code += [*lines, *sums, "}"]
            return CalculationFunction(function, payload)
        size = sum(self._max_bits(p) for p in parts) // 8 + 2
        if payload:
            lines.append(f"    uint8_t *buffer = p4_scratch(in, {size} + (size_t)payload_len);")
            lines.append("    if (!buffer)")
            lines.append("        return 0;")
        else:
            lines.append(f"    uint8_t buffer[{size}];")
        lines += self._aligned(parts) if aligned else self._unaligned(parts, size)
        if payload:
            lines += [
                "    if (payload_len)",
                "        memcpy(buffer + n, payload, payload_len);",
                "    n += payload_len;",
            ]
        lines += [f"    return {hash_code};", "}"]
        self.code += lines
        return CalculationFunction(function, payload)

    def _max_bits(self, part: Part) -> int:
        varbit = sum(i.place.type.varbit_max * 8 for i in part.items if i.place and i.field and i.field.varbit)
        return total(part.items) + varbit

    def _aligned(self, parts: list[Part]) -> list[str]:
        out = ["    uint8_t *b = buffer;"]
        for part in parts:
            place = self.cx.layout.place(part.header) if part.header else None
            body: list[str] = []
            if part.whole and place:
                body = [*store_header(place, "b"), f"b += {header_bytes(place)};"]
            else:
                for segment in _segments(part.items):
                    body += self._append(segment)
            out += self._guard(place, body)
        return [*out, "    size_t n = (size_t)(b - buffer);"]

    def _summed(self, parts: list[Part], payload: bool) -> list[str] | None:
        """Return statements that add up the words of a ones' complement sum straight from the fields, without a
        buffer; None where a field's place in its word is known at run time only."""
        out = ["    uint64_t sum = 0;"]
        for i, part in enumerate(parts):
            terms = sum_terms(part.items)
            last = i == len(parts) - 1 and not payload
            if terms is None or (total(part.items) % 16 and not last):
                return None
            place = self.cx.layout.place(part.header) if part.header else None
            out += self._guard(place, [f"sum += {term};" for term in terms])
        if payload:
            out.append("    sum += p4_sum16(payload, payload_len);")
        return [*out, "    return p4_sum16_fold(sum);"]

    def _append(self, items: list[PackedItem]) -> list[str]:
        first = items[0]
        if first.field is not None and first.field.varbit and first.place is not None:
            length = first.place.length(first.field)
            return [f"memcpy(b, {first.target()}, {length}); b += {length};"]
        return [*store(items, "b"), f"b += {total(items) // 8};"]

    def _unaligned(self, parts: list[Part], size: int) -> list[str]:
        out = ["    uint64_t nb = 0;", f"    memset(buffer, 0, {size});"]
        for part in parts:
            place = self.cx.layout.place(part.header) if part.header else None
            body: list[str] = []
            for item in part.items:
                if item.field is not None and item.field.varbit and item.place is not None:
                    length = item.place.length(item.field)
                    body.append(f"p4_copy_bits(buffer, nb, {item.target()}, 0, 8 * (uint64_t){length});")
                    body.append(f"nb += 8 * (uint64_t){length};")
                else:
                    body += put_at(item, "buffer")
            out += self._guard(place, body)
        return [*out, "    size_t n = (size_t)((nb + 7) / 8);"]

    @staticmethod
    def _guard(place: HeaderPlace | None, body: list[str]) -> list[str]:
        if place is None or place.state is None:
            return [f"    {line}" for line in body]
        return [f"    if {place.valid()} {{", *(f"        {line}" for line in body), "    }"]

    def _parts(self, node: JsonNode) -> tuple[list[Part], bool]:
        parts: list[Part] = []
        payload = False
        for item in node["input"].items():
            kind = item["type"].str()
            if kind == "payload":
                payload = True
            elif kind == "header":
                header = self.model.find(self.model.headers, item["value"], "header")
                parts.append(Part(header, header_items(self.cx.layout.place(header)), True))
            elif kind == "hexstr":
                width = item["bitwidth"].int(1, 1 << 16)
                value = item["value"].hex() & ((1 << width) - 1)
                self._add(parts, None, PackedItem(width, value=value))
            elif kind == "field":
                ref = self.model.field_ref(item["value"])
                if ref.field.index < 0:
                    item.fail("$valid$ cannot be the input of a calculation")
                place = self.cx.layout.place(ref.header)
                self._add(parts, ref.header, PackedItem(ref.field.width, place, ref.field))
            else:
                item["type"].fail(f"'{kind}' is not an input of a calculation")
        return parts, payload

    @staticmethod
    def _add(parts: list[Part], header: Header | None, item: PackedItem) -> None:
        if parts and parts[-1].header is header and not parts[-1].whole:
            parts[-1].items.append(item)
        else:
            parts.append(Part(header, [item]))

    def _algorithm(self, node: JsonNode, title: str) -> str:
        name = node.str()
        if name in FUNCTIONS:
            return f"{FUNCTIONS[name]}(buffer, n)"
        crc = CRCS.get(name) or custom_crc(name)
        if crc is None:
            node.fail(f"the hash algorithm '{name}' is not supported")
        variable = self.crcs.setdefault(crc, f"crc_{len(self.crcs)}")
        if title not in self.model.custom_crcs:
            return f"p4_crc_compute(&{variable}, buffer, n)"
        changed = f"in->crcs[{list(self.model.custom_crcs).index(title)}]"
        return f"p4_crc_compute({changed} ? {changed} : &{variable}, buffer, n)"

    def crc_declarations(self) -> list[str]:
        return [
            f"static struct p4_crc {name} = {{.polynomial = UINT64_C({c.polynomial:#x}), "
            f".initial = UINT64_C({c.initial:#x}), .final_xor = UINT64_C({c.final_xor:#x}), .width = {c.width}, "
            f".data_reflected = {int(c.reflected)}, .remainder_reflected = {int(c.reflected)}}};"
            for c, name in self.crcs.items()
        ]

    # --- checksums ----------------------------------------------------------------------------------------
    def checksums(self, *, verify: bool) -> list[str]:
        """Return statements for all checksums that are verified after the parser, or updated before the deparser."""
        out: list[str] = []
        for node in self.model.root.items("checksums"):
            if not node.flag("verify" if verify else "update", True):
                continue
            target = self.model.field_ref(node["target"])
            if target.field.index < 0 or target.field.varbit or not 0 < target.field.width <= 64:
                node["target"].fail("a checksum goes into a field of 1 to 64 bits")
            place = self.cx.layout.place(target.header)
            kind = node["type"].str()
            if kind == "generic":
                calculation = self.named(node["calculation"])
                self.checksums_of_payload |= calculation.payload
                call = f"{calculation.function}(in, p, payload, payload_len)"
            elif kind == "ipv4":
                call = f"{self._ipv4(target.header)}(p)"
            else:
                node["type"].fail(f"'{kind}' is not a type of checksum")
            conditions = []
            if verify or kind == "ipv4":
                conditions.append(place.valid())
            if node.get("if_cond") is not None:
                conditions.append(self.cx.boolean(self.builder.boolean(node["if_cond"])))
            if verify:
                value, _, _ = self.cx.load(place, target.field)
                conditions.append(f"{call} != {value}")
                action = "p->head.checksum_error = 1;"
            else:
                e = BoundedExpr("data", "data_code", lo=0, hi=2**64 - 1, ref=call)
                action = self.cx.store(place, target.field, e)
            guard = " && ".join(conditions)
            out.append(f"    if ({guard}) {{ {action} }}" if guard else f"    {action}")
        return out

    def _ipv4(self, header: Header) -> str:
        """Generate the ones' complement sum of a header with bytes 10 and 11 taken as zero (old P4_14 programs)."""
        name = f"ipv4_sum_{header.slot}"
        if f"static uint64_t {name}(const struct phv *p)" not in self.code:
            place = self.cx.layout.place(header)
            size = header.type.fixed_bits // 8 + header.type.varbit_max
            self.code += [
                f"static uint64_t {name}(const struct phv *p)",
                "{",
                f"    uint8_t buffer[{size + 12}] = {{0}};",
            ]
            self.code += [f"    {line}" for line in store_header(place, "buffer")]
            self.code += ["    buffer[10] = buffer[11] = 0;"]
            self.code += [f"    return p4_hash_csum16(buffer, {header_bytes(place)});", "}"]
        return name


def _segments(items: list[PackedItem]) -> list[list[PackedItem]]:
    """Split the items into runs of fixed width and single varbits."""
    out: list[list[PackedItem]] = []
    fixed = False
    for item in items:
        varbit = item.field is not None and item.field.varbit
        if varbit or not fixed:
            out.append([])
        out[-1].append(item)
        fixed = not varbit
    return out
