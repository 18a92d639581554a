"""A P4 program of a lab's own: what it may leave out, what it must have, and how its mistakes are told."""

from __future__ import annotations

import json
import pathlib
import sys
from collections.abc import Callable

import pytest

from mrc_topo.labfile import LabError, load_lab
from mrclab.cli import app as cli
from mrclab.lab.session.base import closing
from mrclab.lab.session.virtual import VirtualSession
from mrclab.lab.switches import forwarders, mapping
from mrclab.lab.switches.program import FabricProgram, OwnProgramError, fabric_program, program_of, sources_of

Run = Callable[..., tuple[int, str]]

LAB = """\
name: own
planes: 2
t0_per_plane: 2
t1_per_plane: 2
hosts: 4
hosts_per_t0: 2
path_mtu: 1024
ev: {size: 64, active: 32}
program: programs/own.p4
"""
#: SRv6 uSID and nothing else: no ECN, no trimming, no control queue, no MAC addresses, one counter.
PLAIN = """\
#include <core.p4>
#include <v1model.p4>
#include "headers.p4"
#include "shift.p4"

control OwnIngress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    counter(16, CounterType.packets) drops;
    action end_un() { SHIFT }
    action forward(bit<9> port) { std.egress_spec = port; }
    action drop() { mark_to_drop(std); drops.count(4); }
    table local_usid {
        key = { hdr.ipv6.dst_addr[127:80]: exact; }
        actions = { end_un; NoAction; }
    }
    table usid_routes {
        key = { hdr.ipv6.dst_addr[127:80]: lpm; }
        actions = { forward; drop; }
        default_action = drop();
    }
    apply {
        local_usid.apply();
        usid_routes.apply();
    }
}
control OwnEgress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) { apply { } }
control Sums(inout headers_t hdr, inout metadata_t meta) { apply { } }
V1Switch(FabricParser(), Sums(), OwnIngress(), OwnEgress(), Sums(), FabricDeparser()) main;
"""
SHIFT = "#define SHIFT hdr.ipv6.dst_addr = hdr.ipv6.dst_addr[127:96] ++ hdr.ipv6.dst_addr[79:0] ++ 16w0;\n"


def lab_file(folder: pathlib.Path, program: str = PLAIN, lab: str = LAB) -> str:
    (folder / "programs").mkdir(exist_ok=True)
    (folder / "programs/own.p4").write_text(program)
    (folder / "programs/shift.p4").write_text(SHIFT)
    (folder / "own.yaml").write_text(lab)
    return str(folder / "own.yaml")


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run a workload on a lab by the command, in this process: code, errors."""

    def go(lab: str, folder: pathlib.Path, clock: str = "virtual") -> tuple[int, str]:
        words = ["mrclab", "run", "write_bw", "--lab", lab, "--clock", clock, "-o", str(folder), "--json"]
        monkeypatch.setattr(sys, "argv", [*words, "--set", "message_bytes=65536", "--set", "iterations=2"])
        with pytest.raises(SystemExit) as caught:
            cli.main()
        return int(caught.value.code or 0), capsys.readouterr().err

    return go


def test_a_program_of_srv6_alone_carries_a_lab(tmp_path: pathlib.Path, run: Run) -> None:
    lab = lab_file(tmp_path)
    code, told = run(lab, tmp_path / "results")
    assert code == 0, told
    kept = tmp_path / "results/program"
    assert (kept / "own.p4").read_text() == PLAIN
    assert (kept / "shift.p4").read_text() == SHIFT
    assert json.loads((kept / "program.json").read_text())["pipelines"]
    program = json.loads((tmp_path / "results/result.json").read_text())["program"]
    assert program["files"] == ["own.p4", "shift.p4"]
    assert program["file"] == str(tmp_path / "programs/own.p4")
    assert len(program["sha256"]) == 64
    # What it lacks is told, each once, with what that means.
    for missing in ("traffic_classes", "ports", "host_routes", "uplink_choice"):
        assert told.count(f"no table {missing}: ") == 1, told


def test_the_program_of_the_documentation_carries_a_lab(tmp_path: pathlib.Path, run: Run) -> None:
    page = pathlib.Path(__file__).parents[2] / "docs/extending.md"
    program = page.read_text().partition("```p4\n")[2].partition("```")[0]
    code, told = run(lab_file(tmp_path, program), tmp_path / "results")
    assert code == 0, told


def test_the_projects_own_program_is_named_too(tmp_path: pathlib.Path, run: Run) -> None:
    code, told = run("tiny", tmp_path / "results")
    assert code == 0, told
    program = json.loads((tmp_path / "results/result.json").read_text())["program"]
    assert (program["file"], program["files"]) == ("fabric.p4", [])
    assert not (tmp_path / "results/program").exists()


def test_counters_that_a_program_has_not_are_not_counted(tmp_path: pathlib.Path) -> None:
    with closing(VirtualSession(load_lab(lab_file(tmp_path)))) as session:
        found = session.program_counters()
    assert "marked" not in found
    assert found["drop_no_route"] == 0


#: One of each unit, under names that the controller does not know, and one with several cells.
COUNTING = """\
    counter(16, CounterType.packets) drops;
    counter(4, CounterType.packets) by_size;
    counter(1, CounterType.bytes) volume;
    counter(1, CounterType.packets_and_bytes) shifted;
"""


DIRECT = """\
    direct_counter(CounterType.packets) own;
    direct_counter(CounterType.packets_and_bytes) routed;
"""


def test_all_counters_of_a_program_are_in_the_result(tmp_path: pathlib.Path, run: Run) -> None:
    counted = "action forward(bit<9> port) { std.egress_spec = port; volume.count(0); shifted.count(0); "
    counted += "by_size.count((bit<32>) std.packet_length[9:8]); }"
    program = edited("    counter(16, CounterType.packets) drops;\n", COUNTING)
    program = program.replace("action forward(bit<9> port) { std.egress_spec = port; }", counted)
    code, told = run(lab_file(tmp_path, program), tmp_path / "results")
    assert code == 0, told
    found = json.loads((tmp_path / "results/result.json").read_text())["program_counters"]
    assert found["OwnIngress.shifted"] == found["OwnIngress.by_size"] > 0
    assert found["OwnIngress.shifted.bytes"] == found["OwnIngress.volume"] > 100 * found["OwnIngress.shifted"]
    assert found["OwnIngress.drops"] == found["drop_no_route"] == 0


@pytest.mark.lab
def test_all_counters_are_in_the_result_on_the_real_clock(tmp_path: pathlib.Path, run: Run) -> None:
    program = edited("std.egress_spec = port; }", "std.egress_spec = port; sent.count(0); }")
    program = program.replace("    action end_un", "    counter(1, CounterType.packets) sent;\n    action end_un")
    code, told = run(lab_file(tmp_path, program), tmp_path / "results", "real")
    assert code == 0, told
    found = json.loads((tmp_path / "results/result.json").read_text())["program_counters"]
    assert found["OwnIngress.sent"] > 0


def test_direct_counters_count_entries_and_misses(tmp_path: pathlib.Path, run: Run) -> None:
    """Every packet is looked up in both tables; `local_usid` has an entry for the packets of its own switch only."""
    program = edited(
        "    counter(16, CounterType.packets) drops;\n", f"{DIRECT}    counter(16, CounterType.packets) drops;\n"
    )
    for table, counter in (("local_usid", "own"), ("usid_routes", "routed")):
        program = program.replace(f"table {table} {{", f"table {table} {{ counters = {counter};")
    code, told = run(lab_file(tmp_path, program), tmp_path / "results")
    assert code == 0, told
    found = json.loads((tmp_path / "results/result.json").read_text())["program_counters"]
    assert found["OwnIngress.own"] == found["OwnIngress.routed"] > 0
    assert found["OwnIngress.routed.bytes"] > 100 * found["OwnIngress.routed"]


def test_fabric_p4_lacks_nothing_in_any_lab() -> None:
    names = fabric_program().names
    for name in ("tiny", "structured-ev", "spray", "ecmp", "srv6-srh"):
        assert mapping.lacking(load_lab(name), names) == []


def edited(old: str, new: str) -> str:
    assert old in PLAIN
    return PLAIN.replace(old, new)


@pytest.mark.parametrize(
    ("program", "lab", "named"),
    [
        pytest.param(
            edited("usid_routes", "my_routes"), LAB, ["no table usid_routes", "OwnIngress.my_routes"], id="no-table"
        ),
        pytest.param(
            edited("forward", "send"), LAB, ["OwnIngress.usid_routes has no action forward", "send"], id="action"
        ),
        pytest.param(
            edited("[127:80]: lpm", "[127:64]: lpm"), LAB, ["must have one key, of 48 bits", "64 bits"], id="key-width"
        ),
        pytest.param(edited("[127:80]: lpm", "[127:80]: ternary"), LAB, ["is ternary", "exact or lpm"], id="key-kind"),
        pytest.param(
            edited("bit<9> port) { std.egress_spec = port", "bit<9> to) { std.egress_spec = to"),
            LAB,
            ["takes 'to'", "it gives: port"],
            id="parameter",
        ),
        pytest.param(
            edited("bit<9> port) { std.egress_spec = port", "bit<1> port) { std.egress_spec = (bit<9>) port"),
            LAB,
            ["'port' has 1 bits, too few"],
            id="parameter-width",
        ),
        pytest.param(
            edited("default_action = drop();", "default_action = drop(); size = 1;"),
            LAB,
            ["room for 1 entries", "raise its size"],
            id="size",
        ),
        pytest.param(
            PLAIN, LAB + "routing: {mode: structured_ev}\n", ["no table host_routes", "structured_ev"], id="mode"
        ),
        pytest.param(edited("std.egress_spec", "std.egres_spec"), LAB, ["own.p4:9:", "egres_spec"], id="compiler"),
    ],
)
def test_what_a_program_must_have_is_named_before_anything_starts(
    program: str, lab: str, named: list[str], tmp_path: pathlib.Path, run: Run
) -> None:
    code, told = run(lab_file(tmp_path, program, lab), tmp_path / "results")
    assert code == 2, told
    for text in ("own.p4", *named):
        assert text in told.replace("\n", " "), told
    assert not (tmp_path / "results").exists()


def test_entries_of_its_own_stay(tmp_path: pathlib.Path) -> None:
    const = edited(
        "actions = { end_un; NoAction; }", "actions = { end_un; NoAction; } const entries = { 7: end_un(); }"
    )
    topology = load_lab(lab_file(tmp_path, const))
    assert any("has entries of its own" in text for text in mapping.lacking(topology, program_of(topology).names))


def test_a_program_is_found_from_the_lab_file_and_must_be_a_file(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab_file(tmp_path)
    monkeypatch.chdir(tmp_path)
    assert load_lab("own.yaml").lab.program == str(tmp_path / "programs/own.p4")
    (tmp_path / "programs/own.p4").unlink()
    with pytest.raises(OwnProgramError, match=r"own\.p4: cannot be read"):
        program_of(load_lab("own.yaml"))
    (tmp_path / "programs/own.p4").symlink_to("/dev/zero")
    with pytest.raises(OwnProgramError, match="a device"):
        program_of(load_lab("own.yaml"))
    (tmp_path / "own.yaml").write_text(LAB.replace("own.p4", "own.json"))
    with pytest.raises(LabError, match=r"ends in \.p4"):
        load_lab("own.yaml")


def test_only_files_of_its_own_folder_are_kept(tmp_path: pathlib.Path) -> None:
    (tmp_path / "secret.p4").write_text("#define SHIFT ;\n")
    lab_file(tmp_path, PLAIN.replace('"shift.p4"', '"../secret.p4"'))
    assert sorted(sources_of(tmp_path / "programs/own.p4")) == ["own.p4"]


def test_what_a_lab_keeps_of_its_program(tmp_path: pathlib.Path) -> None:
    made = program_of(load_lab(lab_file(tmp_path)))
    made.save(tmp_path / "program.json")
    again = FabricProgram.load(tmp_path / "program.json")
    assert again == made
    assert again.document() == made.document()


def test_the_kernel_runs_no_program(tmp_path: pathlib.Path) -> None:
    with pytest.raises(forwarders.ReferencePartMissing, match="leave `program` out"):
        forwarders.chosen(load_lab(lab_file(tmp_path)), "kernel")


def test_p4c_is_given_the_folders_of_headers(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lab = lab_file(tmp_path, lab=LAB + "compiler: p4c\n")
    script = tmp_path / "p4c-bm2-ss"
    script.write_text(f"#!/bin/sh\necho \"$@\" > {tmp_path}/words\necho 'own.p4(7): error: no' >&2\nexit 1\n")
    script.chmod(0o755)
    monkeypatch.setenv("MRCLAB_P4C", str(script))
    with pytest.raises(OwnProgramError, match=r"own\.p4\(7\): error: no"):
        program_of(load_lab(lab))
    words = (tmp_path / "words").read_text().split()
    assert f"-I{tmp_path}/programs" in words
    assert any(word.startswith("-I") and word.endswith("include") for word in words)


@pytest.mark.lab
@pytest.mark.slow
def test_on_the_real_clock(tmp_path: pathlib.Path, run: Run) -> None:
    lab = lab_file(tmp_path, lab=LAB.replace("name: own", "name: own-real"))
    code, told = run(lab, tmp_path / "results", "real")
    assert code == 0, told
    assert (tmp_path / "results/program/shift.p4").read_text() == SHIFT
