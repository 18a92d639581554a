"""The count over repositories, on a small folder of our own."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

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


P4C = """#!/bin/sh
for word; do case $word in *.p4) program=$word;; esac; done
case $program in
    *nothing.p4) exit $NOTHING;;
    *) echo "$program$PLACE error: no field b in header h_t" >&2; exit 1;;
esac
"""


@pytest.mark.parametrize(
    ("place", "cells"), [("(11): [--Werror=type-error]", "1 | 0"), (":11:5: fatal", "1 | 0"), ("(12):", "0 | 1")]
)
def test_programs_that_both_refuse_are_compared_by_the_line_of_the_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, cells: str
) -> None:
    (tmp_path / "one" / "inner").mkdir(parents=True)
    (tmp_path / "one" / "refused.p4").write_text(HEAD + HEADER + REST.replace("APPLY", "hdr.h.b = 1;"))
    p4c = tmp_path / "p4c"
    p4c.write_text(P4C, encoding="utf-8")
    p4c.chmod(0o755)
    monkeypatch.setenv("PLACE", place)
    monkeypatch.setenv("NOTHING", "0")
    command = [sys.executable, str(SCRIPT), str(tmp_path), "--jobs", "1", "--markdown", "-v", "--p4c", str(p4c)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"| one | 1 | 0 | 1 | 0 | 0 | 0 | 0 | 0 | {cells} |" in done.stdout
    assert ("no field b" in done.stdout) == (place == "(12):")
    # A p4c that takes nothing is no p4c to compare with.
    monkeypatch.setenv("NOTHING", "1")
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 2
    assert "P4C_16_INCLUDE_PATH" in done.stderr


def test_a_folder_without_checkouts(tmp_path: Path) -> None:
    command = [sys.executable, str(SCRIPT), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 2
    assert "no checkouts with v1model programs" in done.stderr
