"""Place of each header, field and counter of a program in the C `struct phv`, and how C reaches it.

Storage of a field: the smallest unsigned integer that holds it up to 128 bits, above that an array of 64-bit limbs,
least significant first; a varbit is a byte array and its length in bytes. Every header that is not metadata has a
state byte: bit 0 valid, bit 1 touched (its storage may be non-zero, so a reset must clear it).
"""

from __future__ import annotations

from dataclasses import dataclass

from p4lite.switch.bmv2.model import FieldType, Header, HeaderLayout, Model

VALID, TOUCHED = 1, 2


def c_type(width: int) -> str:
    """Return the C type of a field of `width` bits (up to 128)."""
    for bits, name in ((8, "uint8_t"), (16, "uint16_t"), (32, "uint32_t"), (64, "uint64_t")):
        if width <= bits:
            return name
    return "u128"


def limbs(width: int) -> int:
    return (width + 63) // 64


def c_string(text: str) -> str:
    """Return a C string literal."""
    out = []
    for byte in text.encode("utf-8"):
        char = chr(byte)
        if char in '"\\?' or not 32 <= byte < 127:
            out.append(f"\\{byte:03o}")
        else:
            out.append(char)
    return '"' + "".join(out) + '"'


def comment(text: str) -> str:
    """Return text that is safe within a C comment."""
    return "".join(c if 32 <= ord(c) < 127 else "?" for c in text).replace("*/", "* /").replace("/*", "/ *")


@dataclass(frozen=True)
class HeaderPlace:
    """C expressions for a header: its struct (an lvalue) and its state byte, None for metadata."""

    type: HeaderLayout
    struct: str
    state: str | None

    def field(self, f: FieldType) -> str:
        return f"{self.struct}.f{f.index}"

    def length(self, f: FieldType) -> str:
        """Return length in bytes of the varbit `f`."""
        return f"{self.struct}.n{f.index}"

    def valid(self) -> str:
        return "1" if self.state is None else f"({self.state} & 1)"

    def touch(self) -> str:
        return "" if self.state is None else f"{self.state} |= {TOUCHED};"


class Layout:
    """Names and declarations of the PHV of one program."""

    def __init__(self, model: Model):
        self.model = model
        self.metadata = [h for h in model.headers.values() if h.metadata]
        self.packet = sorted((h for h in model.headers.values() if not h.metadata), key=lambda h: h.slot)
        self._meta_index = {h.name: i for i, h in enumerate(self.metadata)}

    def place(self, header: Header) -> HeaderPlace:
        if header.metadata:
            return HeaderPlace(header.type, f"p->m.m{self._meta_index[header.name]}", None)
        if header.stack is not None:
            struct = f"p->s{header.stack.slot}[{header.stack_index}]"
        else:
            struct = f"p->h{header.slot}"
        return HeaderPlace(header.type, struct, f"p->hs[{header.slot}]")

    def offset_expr(self, header: Header, f: FieldType) -> str:
        """Return the C expression of the byte offset of a field in the PHV."""
        path = f"{self.place(header).struct[3:]}.f{f.index}"
        return f"(int32_t)offsetof(struct phv, {path})"

    def declarations(self) -> list[str]:
        """Return the header structs and `struct phv`."""
        out = []
        for t in self.model.header_types.values():
            out.append(f"struct t{t.index} {{ /* {comment(t.name)} */")
            for f in t.fields:
                if f.varbit:
                    out.append(f"    uint8_t f{f.index}[{max(t.varbit_max, 1)}]; uint32_t n{f.index};")
                elif f.width > 128:
                    out.append(f"    uint64_t f{f.index}[{limbs(f.width)}];")
                else:
                    out.append(f"    {c_type(f.width)} f{f.index}; /* {comment(f.name)} : {f.width} */")
            if not t.fields:
                out.append("    uint8_t empty;")
            out.append("};")
        stacks, unions = len(self.model.stacks), len(self.model.unions)
        stacks += len(self.model.union_stacks)
        out += ["struct phv {", "    struct p4_phv head;", "    struct {"]
        out += [f"        struct t{h.type.index} m{i}; /* {comment(h.name)} */" for i, h in enumerate(self.metadata)]
        if not self.metadata:
            out.append("        uint8_t empty;")
        out += ["    } m;", f"    uint8_t hs[{max(len(self.packet), 1)}];"]
        out += [f"    uint8_t next[{max(stacks, 1)}];", f"    uint8_t un[{max(unions, 1)}];"]
        for s in self.model.stacks.values():
            out.append(f"    struct t{s.type.index} s{s.slot}[{len(s.headers)}]; /* {comment(s.name)} */")
        for h in self.packet:
            if h.stack is None:
                out.append(f"    struct t{h.type.index} h{h.slot}; /* {comment(h.name)} */")
        out.append("};")
        return out

    def groups(self) -> list[tuple[int, int, str]]:
        """Return (first slot, count, struct lvalue of the first) for each stack and each single header."""
        out = [(s.headers[0].slot, len(s.headers), f"p->s{s.slot}") for s in self.model.stacks.values()]
        out += [(h.slot, 1, f"p->h{h.slot}") for h in self.packet if h.stack is None]
        return sorted(out)
