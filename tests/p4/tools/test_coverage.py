"""`p4lite coverage`: what counts as reached, lcov, the page, and sums of several runs."""

from __future__ import annotations

import pathlib
import re
from html.parser import HTMLParser

import pytest

import p4lite
import p4lite.cli
from p4lite_tools.coverage import Coverage, CoverageError, page
from support.p4.tools import FORWARD, ipv4, router, saved

STF = """
add routes hdr.ip.dst:0x0a000000/8 forward(to:2, port:2)
packet 1 {frame}
expect 2
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    monkeypatch.chdir(tmp_path)
    for name in ("router.p4", "routes.txt"):
        (tmp_path / name).write_text(saved(name), encoding="utf-8")
    return tmp_path


def measured(*frames: bytes) -> Coverage:
    """Return the coverage of frames that a router with one route gets."""
    coverage = Coverage(router())
    with p4lite.Switch(router(), observers=[coverage]) as switch:
        switch.tables["routes"]["10.0.0.0/8"] = FORWARD
        switch.tables["routes"]["11.0.0.0/8"] = FORWARD
        for frame in frames:
            switch.send(1, frame)
        coverage.take_entries(switch.control)
    return coverage


def reached(coverage: Coverage, kind: str) -> set[str]:
    """Return the ways of a kind that packets went."""
    return {b.way for b, n in coverage.branches.items() if b.kind == kind and n}


def texts(coverage: Coverage) -> set[str]:
    """Return the source lines that packets did not reach."""
    lines = saved("router.p4").splitlines()
    return {lines[line - 1].strip() for (_, line), n in coverage.lines.items() if n == 0}


def test_what_packets_reach() -> None:
    nothing = measured()
    assert nothing.share("lines")[0] == 0
    some = measured(ipv4())
    assert texts(some) == {"action drop() { mark_to_drop(sm); }", "drop();"}
    assert reached(some, "transitions") == {"0: parse_ip", "0: accept"}
    assert reached(some, "conditions") == {"true"}
    assert reached(some, "actions") == {"hit: RouterIngress.forward"}
    assert len(reached(some, "entries")) == 1
    assert some.share("entries") == (1, 2)
    everything = measured(ipv4(), ipv4(dst="0b000001"), ipv4(dst="0c000001"), ipv4(ttl=0), bytes(60))
    for kind in ("lines", "transitions", "conditions", "entries"):
        assert everything.share(kind)[0] == everything.share(kind)[1], kind
    assert everything.share("actions") == (3, 4)  # no entry drops


def test_actions_that_are_called_without_a_table_count_by_the_line_of_the_call() -> None:
    (call,) = [b for b in measured().branches if b.kind == "actions" and b.way.startswith("call: ")]
    assert saved("router.p4").splitlines()[call.line - 1].strip() == "drop();"
    assert call.way not in reached(measured(ipv4()), "actions")
    assert call.way in reached(measured(bytes(14)), "actions")


def test_lcov_sums_up_its_lines() -> None:
    text = measured(ipv4(), ipv4()).lcov()
    counts = {int(line): int(n) for line, n in re.findall(r"^DA:(\d+),(\d+)$", text, re.M)}
    assert f"\nLF:{len(counts)}\nLH:{sum(n > 0 for n in counts.values())}\n" in text
    branches = re.findall(r"^BRDA:\d+,\d+,\d+,(\d+|-)$", text, re.M)
    assert f"\nBRF:{len(branches)}\nBRH:{sum(n not in ('0', '-') for n in branches)}\n" in text
    assert max(counts.values()) == 2
    assert text.endswith("end_of_record\n")
    assert "-" in re.findall(r"^BRDA:\d+,\d+,\d+,(\d+|-)$", measured().lcov(), re.M)


class _Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_page_is_well_formed_and_marks_lines() -> None:
    text = page(measured(ipv4()))
    tags = _Tags()
    tags.feed(text)
    assert tags.open == []
    assert "prefers-color-scheme: dark" in text
    assert re.search(r'class="missed".*action drop\(\)', text)
    assert re.search(r'class="hit".*hdr\.ip\.ttl = hdr\.ip\.ttl - 1', text)
    assert re.search(r'class="part".*if \(hdr\.ip\.isValid\(\) &amp;&amp;', text)
    assert "<script" not in text


def test_runs_add_up(folder: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = ["coverage", "router.p4", "--data", "counts.json", "--entries", "routes.txt"]
    assert p4lite.cli.main([*run, "--packets", ipv4().hex(), "--fail-under", "90"]) == 1
    first = capsys.readouterr().out
    assert p4lite.cli.main([*run, "--packets", ipv4(ttl=1).hex(), "--fail-under", "100"]) == 0
    second = capsys.readouterr().out
    assert "lines          13 of   15" in first
    assert "lines          15 of   15" in second
    (folder / "counts.json").write_text("{}")
    assert p4lite.cli.main([*run]) == 2
    assert "counts.json: not a file that --data has written" in capsys.readouterr().err


def test_counts_of_another_program_are_refused(folder: pathlib.Path) -> None:
    Coverage(p4lite.compile(saved("router.p4").replace("bit<32> count;", "\nbit<32> count;"))).save(folder / "x.json")
    with pytest.raises(CoverageError, match="counts of another program"):
        measured().merge(folder / "x.json")


def test_packets_and_entries_of_stf(folder: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "one.stf").write_text(STF.format(frame=ipv4().hex()))
    assert p4lite.cli.main(["coverage", "router.p4", "--stf", "one.stf"]) == 0
    assert "lines          13 of   15" in capsys.readouterr().out
    (folder / "one.stf").write_text("add route hdr.ip.dst:1 drop()\n")
    assert p4lite.cli.main(["coverage", "router.p4", "--stf", "one.stf"]) == 2
    assert "one.stf:1: no table 'route'" in capsys.readouterr().err
