"""`p4lite wrappers`: p4c's and BMv2's commands as a course calls them, on an exercise of our own."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from p4lite.cli import main
from p4lite_tools.cli.p4lang import p4c as compiler
from p4lite_tools.cli.p4lang import simple_switch
from p4lite_tools.cli.p4lang.p4c import P4DeviceConfig

PROGRAM = """#include <core.p4>
#include <v1model.p4>
header tag_t { bit<8> kind; bit<8> way; }
struct headers { tag_t tag; }
struct metadata { }
parser MyParser(packet_in packet, out headers hdr, inout metadata meta, inout standard_metadata_t sm) {
    state start { packet.extract(hdr.tag); transition accept; }
}
control MyVerify(inout headers hdr, inout metadata meta) { apply { } }
control MyIngress(inout headers hdr, inout metadata meta, inout standard_metadata_t sm) {
    action drop() { mark_to_drop(sm); }
    action forward(bit<9> port) { sm.egress_spec = port; }
    table ways { key = { hdr.tag.way: exact; } actions = { forward; drop; } default_action = drop(); }
    apply { ways.apply(); }
}
control MyEgress(inout headers hdr, inout metadata meta, inout standard_metadata_t sm) { apply { } }
control MyCompute(inout headers hdr, inout metadata meta) { apply { } }
control MyDeparser(packet_out packet, in headers hdr) { apply { packet.emit(hdr.tag); } }
V1Switch(MyParser(), MyVerify(), MyIngress(), MyEgress(), MyCompute(), MyDeparser()) main;
"""

#: What a course's controller does: the pipeline in a P4DeviceConfig, then an entry.
CONTROLLER = """
import sys
import threading
import grpc
from google.protobuf import text_format
from p4.config.v1 import p4info_pb2
from p4.tmp import p4config_pb2
from p4.v1 import p4runtime_pb2, p4runtime_pb2_grpc

address, info, program = sys.argv[1:]
stub = p4runtime_pb2_grpc.P4RuntimeStub(grpc.insecure_channel(address))
def requests():
    request = p4runtime_pb2.StreamMessageRequest()
    request.arbitration.device_id, request.arbitration.election_id.low = 3, 1
    yield request
    threading.Event().wait()
stream = stub.StreamChannel(requests())
print(next(iter(stream)).arbitration.status.code)
set_ = p4runtime_pb2.SetForwardingPipelineConfigRequest(device_id=3, action="VERIFY_AND_COMMIT")
set_.election_id.low = 1
text_format.Merge(open(info, encoding="utf-8").read(), set_.config.p4info)
wrapped = p4config_pb2.P4DeviceConfig(reassign=True, device_data=open(program, "rb").read())
set_.config.p4_device_config = wrapped.SerializeToString()
stub.SetForwardingPipelineConfig(set_)
print(set_.config.p4info.tables[0].preamble.name)
stream.cancel()
"""


@pytest.fixture(scope="module")
def course(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the wrappers and an exercise."""
    folder = tmp_path_factory.mktemp("course")
    assert main(["wrappers", str(folder / "p4lang")]) == 0
    (folder / "way.p4").write_text(PROGRAM, encoding="utf-8")
    return folder


def shell(course: Path, script: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-c", f". p4lang/activate && {script}"],
        cwd=course,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


def test_exercise_compiles_starts_and_is_programmed_as_the_course_does(course: Path) -> None:
    """The commands are those of the course's Makefile and of its switch class."""
    (course / "controller.py").write_text(CONTROLLER, encoding="utf-8")
    compile_ = "p4c-bm2-ss --p4v 16 --p4runtime-files build/way.p4.p4info.txtpb -o build/way.json way.p4"
    assert shell(course, f"mkdir -p build && {compile_}").returncode == 0
    start = (
        "exec simple_switch_grpc --nanolog ipc:///tmp/bm-0-log.ipc --device-id 3 build/way.json --log-console "
        "--thrift-port 9090 -- --grpc-server-addr 0.0.0.0:0 --cpu-port 510 > s1.log 2>&1"
    )
    with subprocess.Popen(["bash", "-c", f". p4lang/activate && {start}"], cwd=course) as switch:
        try:
            log = course / "s1.log"
            while "ready " not in (text := log.read_text(encoding="utf-8") if log.exists() else ""):
                assert switch.poll() is None, text
            address = text.partition("ready ")[2].split()[0]
            assert address.startswith("127.0.0.1:")
            assert "note: listening on 127.0.0.1:0, not on 0.0.0.0:0" in text
            assert Path(f"/proc/{switch.pid}/comm").read_text(encoding="ascii") == "simple_switch_g\n"
            done = shell(course, f"python3 controller.py {address} build/way.p4.p4info.txtpb build/way.json")
            assert done.stdout.split() == ["0", "MyIngress.ways"], done.stderr
        finally:
            switch.send_signal(signal.SIGTERM)


COMMANDS = """table_set_default ways drop
table_add ways forward 7 => 2
# a comment
table_add ways forward 7
table_dump ways
"""


def test_a_running_switch_takes_the_commands_of_simple_switch_cli(
    course: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("P4LITE_RUN", str(tmp_path / "run"))
    (course / "commands.txt").write_text(COMMANDS, encoding="utf-8")
    assert shell(course, "p4c-bm2-ss -o way.json way.p4").returncode == 0
    start = "exec simple_switch --thrift-port 9097 way.json > plain.log 2>&1"
    with subprocess.Popen(["bash", "-c", f". p4lang/activate && {start}"], cwd=course) as switch:
        try:
            log = course / "plain.log"
            while "ready " not in (text := log.read_text(encoding="utf-8") if log.exists() else ""):
                assert switch.poll() is None, text
            [socket] = (tmp_path / "run").glob("thrift-*")
            assert (socket.name, socket.stat().st_mode & 0o777) == ("thrift-9097.sock", 0o600)
            again = shell(course, "simple_switch --thrift-port 9097 way.json")
            assert again.returncode == 1
            assert "another server does" in again.stderr
            done = shell(course, "simple_switch_CLI --thrift-port 9097 < commands.txt")
            lines = done.stdout.splitlines()
            assert done.returncode == 0, done.stderr  # as BMv2, although one command has no argument
            assert "Entry has been added with handle 0" in lines
            assert [line for line in lines if line.startswith("Error: ")] == [
                "Error: table_add: table 'MyIngress.ways': MyIngress.forward takes port: bit<9>, not 0 values"
            ]
            assert any("0x07" in line for line in lines)
        finally:
            switch.send_signal(signal.SIGTERM)
    assert not list((tmp_path / "run").glob("thrift-*"))
    gone = shell(course, "echo show_tables | simple_switch_CLI --thrift-port 9097")
    assert gone.returncode == 1
    assert "no switch with --thrift-port 9097 runs as this user" in gone.stderr


@pytest.mark.skipif(not Path("/usr/lib/python3/dist-packages/mininet").is_dir(), reason="needs Debian's mininet")
def test_python_of_the_course_has_the_systems_mininet(course: Path) -> None:
    done = shell(course, "python3 -c 'import mininet.net, p4.v1.p4runtime_pb2; print(mininet.net.__file__)'")
    assert Path(done.stdout.strip()).is_relative_to(course), done.stderr


def test_p4c_writes_into_a_folder(
    course: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(course)
    words = ["-b", "bmv2", "-a", "v1model", "--p4runtime-files", "out/i.json,out/i.bin", "-o", "out", "way.p4"]
    assert compiler.p4c(words) == 1
    assert "out/i.json: cannot write: No such file or directory" in capsys.readouterr().err
    (course / "out").mkdir()
    assert compiler.p4c(words) == 0
    assert json.loads((course / "out/way.json").read_text(encoding="utf-8"))["actions"]
    assert json.loads((course / "out/i.json").read_text(encoding="utf-8"))["tables"][0]["preamble"]["alias"] == "ways"
    assert b"MyIngress.ways" in (course / "out/i.bin").read_bytes()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--p4v", "14", "x.p4"], "P4_14 is not supported (14)"),
        (["--std", "p4-15", "x.p4"], "'p4-15' is not a version of P4"),
        (["--arch", "pna", "x.p4"], "architecture 'pna' is not supported: expected v1model or psa"),
        (["--target", "dpdk", "x.p4"], "target 'dpdk' is not supported: expected bmv2"),
        (["--toJSON", "x.json", "x.p4"], "--toJSON is not supported"),
        (["--frobnicate", "x.p4"], "unrecognized arguments: --frobnicate"),
        ([], "no program given"),
    ],
)
def test_what_p4c_has_and_p4lite_lacks_is_refused_by_name(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert compiler.p4c_bm2_ss(words) == 1
    assert said in capsys.readouterr().err


def test_options_about_p4cs_passes_are_accepted(course: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["-T", "a:3", "-Tb:4", "--dump", "d", "--top4=End", "-v", "--Wdisable=unused", "-I", ".", "-DX=1", "-UX"]
    assert compiler.p4c_bm2_ss([*words, str(course / "way.p4")]) == 0
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("given", "address"),
    [
        ([], "127.0.0.1:9559"),
        (["--grpc-server-addr", "0.0.0.0:50051"], "127.0.0.1:50051"),
        (["--grpc-server-addr", "[::]:50051"], "127.0.0.1:50051"),
        (["--grpc-server-addr", "unix:/run/s.sock"], "unix:/run/s.sock"),
        (["--grpc-server-ssl", "--grpc-server-with-client-auth", "--grpc-server-addr", "0.0.0.0:1"], "0.0.0.0:1"),
        (["--grpc-server-ssl", "--grpc-server-addr", "0.0.0.0:1"], "127.0.0.1:1"),
    ],
)
def test_switch_listens_beyond_loopback_only_for_clients_with_certificates(given: list[str], address: str) -> None:
    words = simple_switch.translate(["--no-p4", *given]).words
    assert words is not None
    assert words[:2] == ["--grpc-server-addr", address]


def test_switch_options_are_translated() -> None:
    given = (
        "-i 1@s1-eth1 --pcap pcaps --log-file ss-log --log-flush --dump-packet-data 10000 --device-id 0 p.json "
        "-- --priority-queues 8"
    )
    translated = simple_switch.translate(given.split())
    assert translated.captures == Path("pcaps")
    assert translated.words is not None
    assert translated.thrift_port is None
    rest = "--device-id 0 --priority-queues 8 -i 1@s1-eth1 --log-file ss-log.txt p.json"
    assert translated.words[2:] == rest.split()


def test_switch_option_that_cannot_be_served_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert simple_switch.run(["--use-files", "1", "p.json"]) == 1
    assert "--use-files is not supported" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("shown", "rate_bps"),
    [
        ("class htb 5:1 root prio 0 rate 500Kbit ceil 500Kbit burst 15Kb cburst 1600b \n", 500_000),
        ("class htb 5:1 root leaf 10: prio 0 rate 1.5Mbit ceil 2Mbit\nclass htb 5:2 root rate 800bit\n", 800),
        ("", 0),
    ],
)
def test_rate_of_a_mininet_link_is_read_from_tc(shown: str, rate_bps: int, monkeypatch: pytest.MonkeyPatch) -> None:
    netem = '[{"kind":"netem","options":{"delay":{"delay":0.01,"jitter":0},"loss-random":{"loss":0.05}}}]'
    monkeypatch.setattr(simple_switch, "_tc", lambda *words: shown if words[0] == "class" else netem)
    found = simple_switch.settings("s1-eth1")
    assert (found.rate_bps, found.delay_ns, found.loss) == (rate_bps, 10_000_000, 0.05)


def test_device_config_has_the_fields_that_controllers_set() -> None:
    assert P4DeviceConfig(reassign=True, device_data=b"{}").SerializeToString() == b"\x08\x01\x1a\x02{}"


def test_wrappers_leave_foreign_folders_and_commands_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    (theirs / "p4c").write_text("#!/bin/sh\n", encoding="utf-8")
    (theirs / "p4c").chmod(0o755)
    assert main(["wrappers", str(theirs)]) == 2
    assert "has files that this command did not write: choose a new folder" in capsys.readouterr().err
    assert os.listdir(theirs) == ["p4c"]
    monkeypatch.setenv("PATH", f"{theirs}:{os.environ['PATH']}")
    ours = tmp_path / "ours"
    for _ in range(2):  # it writes its own folder again
        assert main(["wrappers", str(ours)]) == 0
        assert f"note: {theirs}/p4c stays as it is" in capsys.readouterr().out
    assert shutil.which("p4c") == f"{theirs}/p4c"
    assert sys.executable in (ours / "bin/p4c").read_text(encoding="utf-8")
