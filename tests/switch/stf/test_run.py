"""`p4lite stf` on programs of our own: what passes, what fails and how that reads, what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from p4lite.cli import main
from p4lite_tools.cli import stf
from support.switch.p4rt import PROGRAMS

CONTROL = str(PROGRAMS / "control.p4")
FRAME = "000000000002 000000000001 9999"
FORWARD = "setdefault l2 forward(port:2)\n"


def run(capsys: pytest.CaptureFixture[str], tmp_path: Path, text: str, program: str = CONTROL) -> tuple[int, str, str]:
    """Exit code and output of a test's text."""
    path = tmp_path / "x.stf"
    path.write_text(text, encoding="utf-8")
    code = stf.run([program, str(path)])
    captured = capsys.readouterr()
    return code, captured.out.replace(str(tmp_path), "T"), captured.err.replace(str(tmp_path), "T")


def test_every_feature_passes(capsys: pytest.CaptureFixture[str]) -> None:
    path = str(PROGRAMS / "control.stf")
    code = stf.run([CONTROL, path])
    assert capsys.readouterr().out == f"PASS {path} (19 packets in, 16 out)\n"
    assert code == 0


@pytest.mark.parametrize(
    "command",
    [
        "counter_write ort_count 010 2 3",
        "meter_set_rates ort_meter 1 1:2",
        "register_write een 1 5",
        "mc_mgrp_create 1",
    ],
)
def test_commands_take_shortened_names_and_numbers_of_stf(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, command: str
) -> None:
    code, out, _ = run(capsys, tmp_path, f"{command}\n")
    assert (code, out) == (0, "PASS T/x.stf (0 packets in, 0 out)\n")


def test_a_packet_that_differs(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    text = f"{FORWARD}packet 1 {FRAME} 0102\nexpect 2 {FRAME} 0103\n"
    code, out, _ = run(capsys, tmp_path, text)
    assert code == 1
    assert out.splitlines() == [
        "FAIL T/x.stf (1 packets in, 1 out)",
        "T/x.stf:3: packet 1 on port 2 differs (expected 16 bytes or more, received 16):",
        "     0    expected 00 00 00 00 00 02 00 00 00 00 00 01 99 99 01 03",
        "          received 00 00 00 00 00 02 00 00 00 00 00 01 99 99 01 02",
        "                                                                 ^",
    ]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (f"packet 1 {FRAME}\nexpect 2\n", "x.stf:2: port 2: this packet never came (0 came, 1 expected)"),
        (f"{FORWARD}packet 1 {FRAME}\npacket 2 {FRAME}\nexpect 2\n", "port 2: unexpected packet (2 came, 1 expected)"),
        (f"{FORWARD}packet 2 {FRAME}\nno_packet\nexpect 2\n", "x.stf:3: no_packet: 1 packets came out"),
        (f"{FORWARD}packet 1 {FRAME} 01\nexpect 2 {FRAME}$\n", "expected 14 bytes, received 15"),
        (f"{FORWARD}packet 1 {FRAME}\nexpect 2 {FRAME} **\n", "expected 15 bytes or more, received 14"),
        ("check_counter port_count(1) packets == 5\n", "I.port_count(1) is 0 packets, expected == 5"),
        ("mirroring_get 5\n", "x.stf:1: there is no mirror session 5"),
        ("add nothing a:1 b()\n", "x.stf:1: no table 'nothing'; known: "),
        ("add l2 dst:1 nothing()\n", "no action of table 'I.l2' 'nothing'"),
        ("add l2 nothing:1 forward(port:1)\n", "no key 'nothing'; known: hdr.ethernet.dst"),
        ("add l2 dst:1 forward()\n", "action 'I.forward' needs an argument 'port'"),
        ("add l2 dst:1 forward(port:1, x:2)\n", "action 'I.forward' has no parameter 'x'"),
        ("add l2 dst:1 forward(port:512)\n", "x.stf:1: "),
        ("add l2 dst:0x*1 forward(port:1)\n", "'0x*1' is not a value for the exact key"),
        ("add l2 dst:1 forward(port:1)\nadd l2 dst:1 forward(port:1)\n", "x.stf:2: "),
        ("mc_node_associate 1 0\n", "no multicast node 0"),
        ("meter_set_rates port_meter 1 5\n", "x.stf:1: '5' is not RATE:BURST"),
        ("register_read\n", "register_read: arguments are missing"),
        ("packet 511 01\n", "x.stf: port 511: "),
        ("remove x\n", "no entry was added as 'x'"),
    ],
)
def test_failures_are_explained(capsys: pytest.CaptureFixture[str], tmp_path: Path, text: str, reason: str) -> None:
    code, out, _ = run(capsys, tmp_path, text)
    assert code == 1
    assert out.startswith("FAIL T/x.stf")
    assert reason in out


def test_stf_refuses_programs_and_tests_that_it_cannot_read(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    broken = tmp_path / "broken.p4"
    broken.write_text("control x", encoding="utf-8")
    other = tmp_path / "other.json"
    other.write_text("{}", encoding="utf-8")
    cases = [
        ("bogus 1\n", CONTROL, "'bogus' starts no STF statement"),
        ("wait\n", str(broken), "broken.p4:1"),
        ("wait\n", str(other), "other.json"),
        ("wait\n", str(tmp_path / "none.json"), "none.json"),
    ]
    for text, program, reason in cases:
        code, out, err = run(capsys, tmp_path, text, program)
        assert (code, out) == (2, ""), text
        assert reason in err
    assert stf.run([CONTROL]) == 2
    assert stf.run([CONTROL, str(tmp_path / "none.stf")]) == 2


@pytest.mark.parametrize("option", ["-D", "--define"])
@pytest.mark.parametrize("verb", ["compile", "lint", "stf"])
def test_verbs_take_macros_in_the_same_way(verb: str, option: str, tmp_path: Path) -> None:
    program, test = tmp_path / "p.p4", tmp_path / "p.stf"
    text = Path(CONTROL).read_text(encoding="utf-8")
    program.write_text(f"#if ONE != 1 || TWO != 2\n#error macros\n#endif\n{text}", encoding="utf-8")
    test.write_text("", encoding="utf-8")
    words = [verb, str(program), *([str(test)] if verb == "stf" else [])]
    assert main([*words, option, "ONE", option, "TWO=2"]) == (1 if verb == "lint" else 0)  # lint has advice on it
    assert main(words) == (1 if verb == "compile" else 2)
