"""`p4lite graph`: what is drawn, and how it fails."""

from __future__ import annotations

import re
import shutil
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from p4lite.cli import main
from p4lite.compiler import frontend
from p4lite_tools import graph

HEAD = """#include <core.p4>
#include <v1model.p4>
header eth_t { bit<48> dst; bit<16> type; }
header tag_t { bit<16> type; bit<16> id; }
struct headers { eth_t eth; tag_t[2] tags; }
struct meta_t { bit<8> n; }
"""
TAIL = """
control vr(inout headers h, inout meta_t m) { apply { } }
control ck(inout headers h, inout meta_t m) { apply { } }
control dep(packet_out b, in headers h) { apply { b.emit(h.eth); b.emit(h.tags); } }
V1Switch(p(), vr(), ig(), eg(), ck(), dep()) main;
"""
PARSER = """
parser p(packet_in b, out headers h, inout meta_t m, inout standard_metadata_t s) {
    state start { b.extract(h.eth); transition select(h.eth.type) { 0x8100: tag; 0x0800 .. 0x0810: accept; } }
    state tag {
        b.extract(h.tags.next);
        m.n = m.n + 1;
        transition select(h.tags.last.type, m.n) { (0x8100 &&& 0xffff, 1): tag; (_, _): accept; }
    }
}
"""
INGRESS = """
control sub(inout headers h, inout meta_t m) {
    table inner { key = { m.n : exact; } actions = { NoAction; } }
    apply { if (m.n == 7) { return; } inner.apply(); }
}
control ig(inout headers h, inout meta_t m, inout standard_metadata_t s) {
    action forward(bit<9> port) { s.egress_spec = port; }
    action drop() { mark_to_drop(s); }
    table fwd {
        key = { h.eth.dst : lpm; m.n : ternary @name("count"); }
        actions = { forward; drop; }
        default_action = drop;
    }
    table acl { key = { h.eth.type : exact; } actions = { drop; NoAction; } }
    sub() part;
    apply {
        m.n = (bit<8>) h.eth.type;
        if (fwd.apply().hit) { part.apply(h, m); } else if (m.n < 3) { exit; }
        switch (acl.apply().action_run) { drop: { m.n = 1; } default: { m.n = 2; } }
    }
}
control eg(inout headers h, inout meta_t m, inout standard_metadata_t s) { apply { } }
"""
PROGRAM = HEAD + PARSER + INGRESS + TAIL


def drawing(text: str = PROGRAM, blocks: tuple[str, ...] = ()) -> Picture:
    return Picture(graph.to_dot(frontend.load_text(text), blocks))


class Picture:
    """Nodes by their first text, and edges as (from, to, label) of those texts."""

    def __init__(self, dot: str) -> None:
        self.dot = dot
        nodes = {}
        for name, label in re.findall(r"^  (n\d+) \[label=(<.*>|\".*?\"),? ?.*\];$", dot, re.MULTILINE):
            texts = [t for t in re.split(r"<[^>]*>|\\n|\"", label) if t.strip(" <>")]
            nodes[name] = texts
        self.nodes = {texts[0] if texts else name: texts for name, texts in nodes.items()}
        first = {name: texts[0] if texts else name for name, texts in nodes.items()}
        self.edges = set()
        for a, b, rest in re.findall(r"^  (n\d+) -> (n\d+)(.*);$", dot, re.MULTILINE):
            label = re.search(r'label="([^"]*)"', rest)
            self.edges.add((first[a], first[b], label.group(1).strip() if label else ""))


def test_parser_states_with_extracts_and_select_values_on_edges() -> None:
    seen = drawing(blocks=("parser",))
    assert "extract h.eth" in seen.nodes["start"]
    assert "select (h.eth.type)" in seen.nodes["start"]
    assert "m.n = m.n + 1" in seen.nodes["tag"]
    assert seen.edges == {
        ("start", "tag", "0x8100"),
        ("start", "accept", "0x0800 .. 0x0810"),
        ("start", "reject", "no match"),
        ("tag", "tag", "(0x8100 &&& 0xffff, 1)"),
        ("tag", "accept", "(_, _)"),
    }


def test_every_node_names_its_source_line() -> None:
    seen = drawing()
    for text, declared in (("start", "state start"), ("table fwd", "table fwd"), ("table inner", "table inner")):
        line = next(n for n, source in enumerate(PROGRAM.splitlines(), 1) if declared in source)
        assert f"line {line}" in " ".join(seen.nodes[text])


def test_tables_show_keys_actions_and_default() -> None:
    texts = " ".join(drawing().nodes["table fwd"])
    for part in ("h.eth.dst : lpm", "m.n : ternary", "forward(port)", "drop()", "default: drop()"):
        assert part in texts


def test_flow_of_hits_conditions_exits_and_action_runs() -> None:
    edges = drawing(blocks=("ingress",)).edges
    assert ("table fwd", "m.n == 7", "hit") in edges
    assert ("table fwd", "m.n < 3", "miss") in edges
    assert ("m.n < 3", "end", "true: exit") in edges
    assert ("m.n < 3", "table acl", "false") in edges
    assert ("m.n == 7", "table inner", "false") in edges
    assert {label for a, _, label in edges if a == "table acl"} == {"drop", "default"}


def test_a_sub_control_is_a_box_with_its_own_flow() -> None:
    dot = drawing().dot
    box = dot[dot.index('label="part: sub') :]
    assert box.index("table inner") < box.index("  }")


def test_only_blocks_that_do_something_unless_asked_for() -> None:
    assert "egress: eg" not in drawing().dot
    assert "egress: eg" in drawing(blocks=("egress",)).dot
    assert "ingress: ig" not in drawing(blocks=("egress",)).dot


def test_loops_and_value_switches() -> None:
    text = PROGRAM.replace(
        "m.n = (bit<8>) h.eth.type;",
        "for (bit<8> i in 8w1..8w4) { if (i == 3) { break; } m.n = m.n + i; } switch (m.n) { 1: 2: { m.n = 5; } }",
    )
    edges = drawing(text, ("ingress",)).edges
    head = next(a for a, _, label in edges if label == "each")
    assert head.startswith("for i in")
    assert (head, "i == 3", "each") in edges
    assert ("switch (m.n)", "table fwd", "otherwise") in edges
    assert ("i == 3", "switch (m.n)", "true") in edges
    assert ("switch (m.n)", "statements", "1\\n2") in edges


def test_operators_keep_their_grouping() -> None:
    text = PROGRAM.replace("m.n == 7", "(m.n << 1) * 3 == 6 && m.n > 2")
    assert "(((m.n << 1) * 3) == 6) && (m.n > 2)" in drawing(text).dot


@pytest.mark.skipif(shutil.which("dot") is None, reason="needs graphviz")
def test_command_writes_svg_png_and_dot(tmp_path: Path) -> None:
    source = tmp_path / "prog.p4"
    source.write_text(PROGRAM)
    for suffix in ("svg", "png", "dot"):
        assert main(["graph", str(source), "-o", str(tmp_path / f"out.{suffix}")]) == 0
    root = ET.parse(tmp_path / "out.svg").getroot()
    assert any("parse" in (e.text or "") or "start" in (e.text or "") for e in root.iter())
    assert (tmp_path / "out.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "out.dot").read_text().startswith("digraph")


def test_command_failures(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    source = tmp_path / "prog.p4"
    source.write_text(PROGRAM)
    assert main(["graph", str(source), "-o", str(tmp_path / "out.gif")]) == 2
    assert ".svg, .png, .pdf, .dot" in capsys.readouterr().err
    assert main(["graph", str(source)]) == 2
    capsys.readouterr()
    assert main(["graph", str(source), "-o", str(tmp_path / "no" / "out.dot")]) == 1
    assert "cannot write" in capsys.readouterr().err
    source.write_text(PROGRAM.replace("fwd.apply().hit", "fwd.apply().hot"))
    assert main(["graph", str(source), "-o", "-"]) == 1
    assert re.search(r"prog\.p4:\d+:\d+: error:", capsys.readouterr().err)
    source.write_text(PROGRAM)
    monkeypatch.setattr(shutil, "which", lambda _: None)
    assert main(["graph", str(source), "-o", str(tmp_path / "out.svg")]) == 1
    assert "install graphviz" in capsys.readouterr().err
