"""Small P4 programs for tests: a frame with one header, to be filled in, compiled and run on the interpreter."""

from __future__ import annotations

from functools import cache
from typing import Any

from p4lite.compiler import backend, frontend
from support.p4.oracle import Switch

FIELDS = (("a", 8), ("b", 8), ("c", 16), ("d", 32))
INPUT = {"a": 0x12, "b": 0x34, "c": 0x5678, "d": 0x9ABCDEF0}
OUT_PORT = 2

FRAME = """
#include <core.p4>
#include <v1model.p4>
header h_t {{ bit<8> a; bit<8> b; bit<16> c; bit<32> d; }}
{types}
struct headers {{ h_t h; {headers} }}
struct meta_t {{ {meta} }}
{top}
parser P(packet_in pkt, out headers hdr, inout meta_t meta, inout standard_metadata_t sm) {{
    {parser_locals}
    {parser}
}}
control VC(inout headers hdr, inout meta_t meta) {{ apply {{ {verify} }} }}
control Ig(inout headers hdr, inout meta_t meta, inout standard_metadata_t sm) {{
    {locals}
    apply {{
        sm.egress_spec = 2;
        {body}
    }}
}}
control Eg(inout headers hdr, inout meta_t meta, inout standard_metadata_t sm) {{
    {egress_locals}
    apply {{ {egress} }}
}}
control CC(inout headers hdr, inout meta_t meta) {{ apply {{ {update} }} }}
control Dep(packet_out pkt, in headers hdr) {{ apply {{ pkt.emit(hdr.h); {emit} }} }}
V1Switch(P(), VC(), Ig(), Eg(), CC(), Dep()) main;
"""
DEFAULTS = dict.fromkeys(
    (
        "types",
        "headers",
        "meta",
        "top",
        "parser_locals",
        "verify",
        "locals",
        "body",
        "egress_locals",
        "egress",
        "update",
        "emit",
    ),
    "",
) | {"parser": "state start { pkt.extract(hdr.h); transition accept; }"}


def source(**parts: str) -> str:
    """Return the frame with its parts filled in (see FRAME; what is not given is empty)."""
    unknown = parts.keys() - DEFAULTS.keys()
    assert not unknown, unknown
    return FRAME.format(**(DEFAULTS | parts))


@cache
def compile_text(text: str) -> dict[str, Any]:
    """Return the BMv2 JSON of a program."""
    program = frontend.load_text(text, "case.p4")
    return backend.generate(program, program.reporter)


def switch(**parts: str) -> Switch:
    """Return a switch that runs the frame with these parts."""
    return Switch(compile_text(source(**parts)))


def pack(**values: int) -> bytes:
    """Return a packet of the frame's header; fields not given are as in INPUT."""
    fields = INPUT | values
    return b"".join(fields[name].to_bytes(width // 8, "big") for name, width in FIELDS)


def unpack(data: bytes) -> dict[str, int]:
    """Return the fields of the frame's header."""
    out, at = {}, 0
    for name, width in FIELDS:
        out[name] = int.from_bytes(data[at : at + width // 8], "big")
        at += width // 8
    return out


def run(**parts: str) -> dict[str, int]:
    """Return the header that comes out for INPUT; the packet must come out of OUT_PORT, once."""
    return run_on(switch(**parts))


def run_on(target: Switch, **values: int) -> dict[str, int]:
    """Return the header that a switch sends for a packet with these fields."""
    sent = target.process(0, pack(**values))
    assert [port for port, _ in sent] == [OUT_PORT]
    return unpack(sent[0][1])
