"""Small P4 programs for tests of the front end: a v1model frame with holes, and checks of single declarations."""

from __future__ import annotations

from p4lite.compiler import ast, frontend
from p4lite.compiler.check.program import Checker
from p4lite.compiler.diagnostics import CompileError, Diagnostic, Reporter
from p4lite.recursion import deep_recursion

MARK = "/*!*/"
"""Put before a token of a program: the place where an error is expected."""

HEADERS = """
header eth_t { bit<48> dst; bit<48> src; bit<16> type; }
header opt_t { bit<8> kind; varbit<64> data; }
header_union addr_t { eth_t eth; eth_t alt; }
struct headers_t { eth_t eth; eth_t[3] tags; addr_t addr; opt_t opt; }
struct meta_t { bit<8> a; bit<8> b; bit<16> w; int<8> s; bool flag; }
"""


def program(
    *, top: str = "", locals: str = "", apply: str = "", parser_locals: str = "", states: str = "", package: str = ""
) -> str:
    """Return a v1model program with these pieces; `hdr`, `meta`, `sm` are the usual parameters."""
    states = states or "state start { transition accept; }"
    return f"""#include <core.p4>
#include <v1model.p4>
{HEADERS}
{top}
parser MyParser(packet_in pkt, out headers_t hdr, inout meta_t meta, inout standard_metadata_t sm) {{
{parser_locals}
{states}
}}
control MyVerify(inout headers_t hdr, inout meta_t meta) {{ apply {{ }} }}
control MyIngress(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t sm) {{
{locals}
apply {{
{apply}
}}
}}
control MyEgress(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t sm) {{ apply {{ }} }}
control MyCompute(inout headers_t hdr, inout meta_t meta) {{ apply {{ }} }}
control MyDeparser(packet_out pkt, in headers_t hdr) {{ apply {{ pkt.emit(hdr.eth); }} }}
{package or "V1Switch(MyParser(), MyVerify(), MyIngress(), MyEgress(), MyCompute(), MyDeparser()) main;"}
"""


def errors(text: str) -> list[Diagnostic]:
    """Return the errors of a program; empty when it is accepted."""
    try:
        frontend.load_text(text, "test.p4")
    except CompileError as e:
        return [d for d in e.diagnostics if d.severity == "error"]
    return []


def warnings(text: str) -> list[str]:
    """Return the messages of the warnings of a program that is accepted."""
    return [d.message for d in frontend.load_text(text, "test.p4").diagnostics]


def declarations(text: str) -> tuple[dict[str, ast.Declaration], Reporter]:
    """Return declarations of a piece of program without `main`, checked, by name. Raises `CompileError`."""
    tree, reporter = frontend.parse_text(text, "test.p4")
    checker = Checker(reporter)
    with deep_recursion():
        for d in tree.decls:
            checker.declaration(d)
    reporter.check()
    return {d.name: d for d in tree.decls}, reporter


def constant(expression: str, type_: str = "int", before: str = "") -> object:
    """Return the compile-time value of an expression as a constant of a type."""
    decls, _ = declarations(f"{before}\nconst {type_} result = {expression};")
    decl = decls["result"]
    assert isinstance(decl, ast.ConstDecl)
    return decl.const


def marked(text: str) -> tuple[str, tuple[int, int] | None]:
    """Return the text without the mark, and the line and column of the token after it."""
    at = text.find(MARK)
    if at < 0:
        return text, None
    line = text.count("\n", 0, at) + 1
    col = at - (text.rfind("\n", 0, at) + 1) + 1
    return text.replace(MARK, "", 1), (line, col)
