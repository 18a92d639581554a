"""The count over repositories, on a small folder of our own."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).with_name("conformance_repositories.py")
HEAD = "#include <core.p4>\n#include <v1model.p4>\n"
REST = """
struct headers { h_t h; }
struct meta_t {}
parser P(packet_in p, out headers hdr, inout meta_t m, inout standard_metadata_t s) {
    state start { p.extract(hdr.h); transition accept; }
}
control V(inout headers hdr, inout meta_t m) { apply {} }
control I(inout headers hdr, inout meta_t m, inout standard_metadata_t s) { apply { APPLY } }
control C(inout headers hdr, inout meta_t m) { apply {} }
control D(packet_out p, in headers hdr) { apply { p.emit(hdr.h); } }
V1Switch(P(), V(), I(), I(), C(), D()) main;
"""
HEADER = "header h_t { bit<8> a; }\n"


def test_counts_programs_once_by_what_became_of_them(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    (one / "inner").mkdir(parents=True)
    two.mkdir()
    good = HEAD + HEADER + REST.replace("APPLY", "hdr.h.a = 1;")
    (one / "good.p4").write_text(good)
    (one / "inner" / "copy.p4").write_text(good)
    (one / "part.p4").write_text(HEAD + HEADER)
    (one / "other.p4").write_text(good.replace("v1model.p4", "psa.p4"))
    (one / "refused.p4").write_text(HEAD + HEADER + REST.replace("APPLY", "hdr.h.b = 1;"))
    (two / "all.h").write_text(HEAD + HEADER)
    (two / "by_include.p4").write_text('#include "all.h"\n' + REST.replace("APPLY", ""))
    (tmp_path / "empty").mkdir()
    command = [sys.executable, str(SCRIPT), str(tmp_path), "--jobs", "1", "--markdown", "-v"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "| one | 2 | 1 | 1 | 0 |" in done.stdout
    assert "| two | 1 | 1 | 0 | 0 |" in done.stdout
    assert "| total | 3 | 2 | 1 | 0 |" in done.stdout
    assert re.search(r"refused +one/refused\.p4: .*'b'", done.stdout)


def test_a_folder_without_checkouts(tmp_path: Path) -> None:
    command = [sys.executable, str(SCRIPT), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert "no checkouts with v1model programs" in done.stderr
