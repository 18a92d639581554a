"""`%%p4` and `%p4_packet`, in an IPython shell of this process."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("IPython", reason="needs IPython")

from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output

CELL = """#include <core.p4>
#include <v1model.p4>
header h_t { bit<8> a; bit<8> b; }
struct headers { h_t h; }
struct meta { }
parser P(packet_in pk, out headers hdr, inout meta m, inout standard_metadata_t sm) {
    state start { pk.extract(hdr.h); transition accept; }
}
control V(inout headers hdr, inout meta m) { apply { } }
control I(inout headers hdr, inout meta m, inout standard_metadata_t sm) {
    action out_at(bit<9> port) { sm.egress_spec = port; }
    table t {
        key = { hdr.h.a: exact; }
        actions = { out_at; NoAction; }
        const entries = { 7: out_at(3); }
    }
    apply { t.apply(); hdr.h.b = hdr.h.b + 1; }
}
control E(inout headers hdr, inout meta m, inout standard_metadata_t sm) { apply { } }
control C(inout headers hdr, inout meta m) { apply { } }
control D(packet_out pk, in headers hdr) { apply { pk.emit(hdr.h); } }
V1Switch(P(), V(), I(), E(), C(), D()) main;
"""


@pytest.fixture(scope="module")
def shell() -> Iterator[Any]:
    """Yield a shell with the extension."""
    made = InteractiveShell.instance()
    made.extension_manager.load_extension("p4lite_tools.notebook")
    yield made
    InteractiveShell.clear_instance()


def test_cell_is_compiled_and_its_parser_drawn(shell: Any) -> None:
    with capture_output() as shown:
        shell.run_cell_magic("p4", "prog", CELL)
    assert shown.stdout == "prog: compiled; tables: I.t\n"
    assert shell.user_ns["prog"].bmv2["pipelines"]
    if shutil.which("dot"):
        assert "<svg" in shown.outputs[0].data["image/svg+xml"]


def test_error_names_the_line_of_the_cell(shell: Any) -> None:
    with capture_output() as shown:
        shell.run_cell_magic("p4", "--no-graph broken", CELL.replace("hdr.h.b + 1", "hdr.h.c"))
    assert shown.stderr.startswith("<broken>:18:")
    assert "hdr.h.c" in shown.stderr.splitlines()[1]
    assert "broken" not in shell.user_ns


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("0702 --program nothing", "there is no compiled program 'nothing'"),
        ("070", "expected an even number of hexadecimal digits"),
        ("--wrong", "usage: %p4_packet"),
    ],
)
def test_wrong_use_is_explained(shell: Any, line: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        shell.run_line_magic("p4_packet", line)


def test_packet_is_traced_as_a_table(shell: Any) -> None:
    with capture_output() as shown:
        shell.run_cell_magic("p4", "--no-graph prog", CELL)
        result = shell.run_line_magic("p4_packet", "07:02 --program prog")
    assert result == [(3, "0703")]
    table = shown.outputs[0].data["text/html"]
    assert "<td style='text-align:left'>8</td>" in table
    assert "I.t" in table


def test_packet_goes_through_the_program_of_the_last_cell(shell: Any) -> None:
    with capture_output():
        shell.run_cell_magic("p4", "--no-graph one", CELL)
        shell.run_cell_magic("p4", "--no-graph two", CELL.replace("out_at(3)", "out_at(4)"))
        assert shell.run_line_magic("p4_packet", "0702") == [(4, "0703")]
        shell.run_cell_magic("p4", "--no-graph one", CELL)
        assert shell.run_line_magic("p4_packet", "0702") == [(3, "0703")]
        shell.run_cell_magic("p4", "--no-graph two", CELL.replace("out_at(3)", "out_at("))
    with pytest.raises(UsageError, match=r"there is no compiled program 'two': run %%p4 first; there is: .*one"):
        shell.run_line_magic("p4_packet", "0702")
