"""C that moves fields between the PHV and bytes: extraction, deparsing, and the inputs of calculations.

Fields are handled in runs that begin and end at byte boundaries. A run of up to 64 bits is one big-endian load or
store with shifts; a field of whole bytes is moved as it is; anything else goes bit by bit.
"""

from __future__ import annotations

from dataclasses import dataclass

from p4lite.switch.bmv2.model import FieldType
from p4lite.switch.codegen.cexpr import CExpr, literal, width_for
from p4lite.switch.codegen.phv import HeaderPlace, limbs


@dataclass(frozen=True)
class PackedItem:
    """A field of a header, or a constant of `width` bits when `place` is None."""

    width: int
    place: HeaderPlace | None = None
    field: FieldType | None = None
    value: int = 0

    def target(self) -> str:
        assert self.place is not None
        assert self.field is not None
        return self.place.field(self.field)

    def code(self, bits: int) -> str:
        """Return the value as an unsigned C integer of `bits` bits (64 or 128)."""
        if self.place is None:
            return literal(self.value, bits)
        return f"({'uint64_t' if bits == 64 else 'u128'}){self.target()}"


def runs(items: list[PackedItem]) -> list[list[PackedItem]]:
    """Return runs of consecutive items, cut wherever a byte boundary lies between two of them."""
    out: list[list[PackedItem]] = []
    bits = 0
    for item in items:
        if bits % 8 == 0:
            out.append([])
        out[-1].append(item)
        bits += item.width
    return out


def total(items: list[PackedItem]) -> int:
    return sum(item.width for item in items)


def _cut(ctype_bits: int, code: str) -> str:
    names = {8: "uint8_t", 16: "uint16_t", 32: "uint32_t", 64: "uint64_t"}
    size = next((n for n in names if ctype_bits <= n), 0)
    return f"({names[size]})({code})" if size else f"(u128)({code})"


def load(items: list[PackedItem], base: str) -> list[str]:
    """Return statements that read consecutive fields from the bytes at C pointer `base`."""
    out: list[str] = []
    offset = 0
    for run in runs(items):
        bits, at = total(run), offset // 8
        where = f"{base} + {at}" if at else base
        if len(run) == 1 and bits == 128:
            out.append(f"{run[0].target()} = p4_be128({where});")
        elif bits <= 64:
            out += _load_run(run, bits, where)
        else:
            out += _load_bits(run, base, offset)
        offset += bits
    return out


def _load_run(run: list[PackedItem], bits: int, where: str) -> list[str]:
    n = (bits + 7) // 8
    if len(run) == 1:
        pad = n * 8 - bits
        code = f"p4_be({where}, {n})" + (f" >> {pad}" if pad else "")
        return [f"{run[0].target()} = {_cut(run[0].width, code)};"]
    out = [f"v = p4_be({where}, {n});"]
    left = n * 8
    for item in run:
        left -= item.width
        code = f"v >> {left}" if left else "v"
        if item.width not in (8, 16, 32, 64) and left + item.width < n * 8:
            code = f"({code}) & {literal((1 << item.width) - 1, 64)}"
        out.append(f"{item.target()} = {_cut(item.width, code)};")
    return out


def _load_bits(run: list[PackedItem], base: str, offset: int) -> list[str]:
    out = []
    for item in run:
        if item.width > 128:
            out.append(f"p4w_get_bits({item.target()}, {limbs(item.width)}, {base}, {offset}, {item.width});")
        else:
            own = width_for(item.width)
            out.append(f"{item.target()} = {_cut(item.width, f'p4_get_bits{own}({base}, {offset}, {item.width})')};")
        offset += item.width
    return out


def store(items: list[PackedItem], base: str) -> list[str]:
    """Return statements that write consecutive items to the bytes at `base`; a last partial byte is padded with 0."""
    out: list[str] = []
    offset = 0
    for run in runs(items):
        bits, at = total(run), offset // 8
        where = f"{base} + {at}" if at else base
        n = (bits + 7) // 8
        if len(run) == 1 and bits == 128:
            out.append(f"p4_wr128({where}, {run[0].code(128)});")
        elif bits <= 64:
            out.append(f"p4_wr({where}, {n}, {_joined(run, n)});")
        else:
            out.append(f"memset({where}, 0, {n});")
            for item in run:
                out += _put(item, base, str(offset))
                offset += item.width
            continue
        offset += bits
    return out


def sum_terms(items: list[PackedItem]) -> list[str] | None:
    """Return C terms that add up to the sum of the 16-bit words that `store` would write, modulo 65535.

    The sum is 0 only if all words are. 2**16 is 1 modulo 65535, so that a run counts as the number it is, times 256 if
    it ends within a word. Terms stay below 2**42, which leaves room for four million of them. None for items that are
    no loads and stores of up to 128 bits.
    """
    out: list[str] = []
    offset = 0
    for run in runs(items):
        bits = total(run)
        if any(item.field is not None and item.field.varbit for item in run) or bits > (128 if len(run) == 1 else 64):
            return None
        n = (bits + 7) // 8
        if bits > 64:
            code = f"p4_sum128({run[0].code(128)}{f' << {n * 8 - bits}' if n * 8 > bits else ''})"
        else:
            code = _joined(run, n)
            code = f"p4_sum64({code})" if n > 4 else f"({code})"
        offset += n
        out.append(f"({code} << 8)" if offset % 2 else code)
    return out


def _joined(run: list[PackedItem], n: int) -> str:
    """Return C of a run of up to 64 bits as one number of `n` bytes, padded with 0 on the right."""
    left = n * 8
    parts = []
    for item in run:
        left -= item.width
        code = item.code(64)
        parts.append(f"{code} << {left}" if left else code)
    return " | ".join(parts)


def _put(item: PackedItem, base: str, offset: str) -> list[str]:
    if item.width > 128:
        if item.place is None:
            words = ", ".join(literal(item.value >> (64 * i), 64) for i in range(limbs(item.width)))
            return [f"p4w_put_bits({base}, {offset}, {item.width}, (const uint64_t[]){{{words}}});"]
        return [f"p4w_put_bits({base}, {offset}, {item.width}, {item.target()});"]
    return [f"p4_put_bits128({base}, {offset}, {item.width}, {item.code(128)});"]


def put_at(item: PackedItem, base: str) -> list[str]:
    """Return statements that append an item at run-time bit offset `nb` (of zeroed memory) and advance it."""
    return [*_put(item, base, "nb"), f"nb += {item.width};"]


def header_items(place: HeaderPlace) -> list[PackedItem]:
    return [PackedItem(f.width, place, f) for f in place.type.fields]


def split_varbit(items: list[PackedItem]) -> tuple[list[PackedItem], PackedItem | None, list[PackedItem]]:
    """Return the items before the varbit, the varbit, the items behind it."""
    for i, item in enumerate(items):
        if item.field is not None and item.field.varbit:
            return items[:i], item, items[i + 1 :]
    return items, None, []


def load_header(place: HeaderPlace, base: str, varbit_bytes: str | None) -> list[str]:
    """Return statements that extract a header from `base`; `varbit_bytes` is C for the length of its varbit."""
    before, varbit, after = split_varbit(header_items(place))
    if varbit is None or varbit.field is None:
        return load(before, base)
    size, f = total(before), varbit.field
    if size % 8:
        # rare: the varbit does not begin at a byte boundary; everything goes bit by bit
        out = load_unaligned(before, base, "0")
        out.append(f"{place.length(f)} = {varbit_bytes};")
        out.append(f"p4_copy_bits({place.field(f)}, 0, {base}, {size}, 8 * (uint64_t){place.length(f)});")
        return out + load_unaligned(after, base, f"{size} + 8 * (uint64_t){place.length(f)}")
    out = load(before, base)
    out.append(f"{place.length(f)} = {varbit_bytes};")
    out.append(f"memcpy({place.field(f)}, {base} + {size // 8}, {place.length(f)});")
    return out + load(after, f"({base} + {size // 8} + {place.length(f)})")


def load_unaligned(items: list[PackedItem], base: str, start: str) -> list[str]:
    out, offset = [], 0
    for item in items:
        if item.width > 128:
            out.append(f"p4w_get_bits({item.target()}, {limbs(item.width)}, {base}, {start} + {offset}, {item.width});")
        else:
            call = f"p4_get_bits{width_for(item.width)}({base}, {start} + {offset}, {item.width})"
            out.append(f"{item.target()} = {_cut(item.width, call)};")
        offset += item.width
    return out


def store_header(place: HeaderPlace, base: str) -> list[str]:
    """Return statements that write a header to `base` (its bytes need not be zero before)."""
    before, varbit, after = split_varbit(header_items(place))
    if varbit is None or varbit.field is None:
        return store(before, base)
    f, size = varbit.field, total(before)
    if size % 8:
        fixed = (size + total(after)) // 8
        out = [f"memset({base}, 0, {fixed} + {place.length(f)});"]
        offset = 0
        for item in before:
            out += _put(item, base, str(offset))
            offset += item.width
        out.append(f"p4_copy_bits({base}, {size}, {place.field(f)}, 0, 8 * (uint64_t){place.length(f)});")
        for item in after:
            out += _put(item, base, f"{offset} + 8 * (uint64_t){place.length(f)}")
            offset += item.width
        return out
    out = store(before, base)
    out.append(f"memcpy({base} + {size // 8}, {place.field(f)}, {place.length(f)});")
    return out + store(after, f"({base} + {size // 8} + {place.length(f)})")


def header_bytes(place: HeaderPlace) -> str:
    """Return C of the length of a header in bytes."""
    varbit = place.type.varbit
    fixed = place.type.fixed_bits // 8
    return f"({fixed} + {place.length(varbit)})" if varbit else str(fixed)


def append_padded(item: PackedItem, cx: CExpr) -> list[str]:
    """Return statements that append a field, padded on the left to whole bytes, at `out + n`, and advance n."""
    width = item.width
    size = (width + 7) // 8
    if item.field is not None and item.field.varbit and item.place is not None:
        length = item.place.length(item.field)
        return [f"memcpy(out + n, {item.target()}, {length}); n += {length};"]
    if width <= 64:
        return [f"p4_wr(out + n, {size}, {item.code(64)}); n += {size};"]
    cx.wide.add(limbs(width) if width > 128 else 3)
    pad = size * 8 - width
    return [f"memset(out + n, 0, {size});", *_put(item, "(out + n)", str(pad)), f"n += {size};"]
