"""What forwards instead of p4lite: whether it is here, what is asked of it, and what it is told."""

from __future__ import annotations

import dataclasses
import json
import pathlib
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest
from typer.testing import CliRunner

from mrc_topo import rules
from mrc_topo.export import routes
from mrc_topo.labfile import load_lab, parse_lab
from mrclab.cli.app import app
from mrclab.lab.describe import FabricPlan, fabric_description
from mrclab.lab.processes.process import ProcessExit
from mrclab.lab.records.record import LabRecord
from mrclab.lab.records.rundir import RunDir, RunError
from mrclab.lab.session.fidelity import Fidelity, judge
from mrclab.lab.session.load import SwitchLoad, Thread, threads_of
from mrclab.lab.switches import forwarders
from mrclab.lab.switches.bmv2 import SimpleSwitch, ThriftError, packets_per_second
from mrclab.lab.switches.forwarders import ReferencePartMissing, check, check_clock, chosen
from mrclab.lab.switches.program import FabricProgram, ProgramError, by_p4c, fabric_program
from mrclab.runs.execute import execute
from mrclab.runs.experiment import Experiment, ExperimentError, Workload
from mrclab.runs.sessions import check_usable
from p4lite.switch import documents
from p4lite.switch.server import FabricServer
from support.lab import stand_in

TINY = "name: tiny\nplanes: 1\nt0_per_plane: 2\nt1_per_plane: 2\nhosts: 4\n"


@pytest.fixture(autouse=True)
def nothing_installed(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """Return an empty PATH for the parts, whatever this machine has."""
    monkeypatch.setenv("MRCLAB_RUN", str(tmp_path / "run"))
    monkeypatch.delenv("MRCLAB_BMV2", raising=False)
    monkeypatch.delenv("MRCLAB_P4C", raising=False)
    programs = tmp_path / "bin"
    programs.mkdir()
    monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin:/usr/sbin:/sbin")
    if (pathlib.Path("/usr/bin/simple_switch_grpc")).exists():
        monkeypatch.setenv("PATH", str(programs))
    return programs


def program(path: pathlib.Path, script: str) -> pathlib.Path:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


# -- the choice -----------------------------------------------------------------------------------------------


def test_a_lab_file_names_its_switch_and_options_override_it() -> None:
    lab = parse_lab(f"{TINY}switch: bmv2\ncompiler: p4c\n")
    assert (lab.lab.switch, lab.lab.compiler) == ("bmv2", "p4c")
    assert chosen(lab) is lab
    other = chosen(lab, "p4lite", "p4lite")
    assert (other.lab.switch, other.lab.compiler) == ("p4lite", "p4lite")
    assert rules.all_entries(other) == rules.all_entries(lab)
    with pytest.raises(ReferencePartMissing, match="switch is p4lite, bmv2 or kernel, not 'ovs'"):
        chosen(lab, "ovs")
    with pytest.raises(ReferencePartMissing, match="compiler is p4lite or p4c, not 'gcc'"):
        chosen(lab, None, "gcc")
    with pytest.raises(Exception, match="switch"):
        parse_lab(f"{TINY}switch: ovs\n")


def test_the_kernel_neither_marks_nor_trims() -> None:
    override = {"p0-t0.0--p0-t1.0": {"queue": {"limit": "64KiB", "trim": {"threshold": "8KiB"}}}}
    lab = chosen(parse_lab(f"{TINY}overrides: {json.dumps(override)}"), "kernel")
    assert lab.lab.queues.ecn is lab.lab.queues.trim is None
    assert all(link.queue.ecn is link.queue.trim is None for link in lab.links.values())
    assert lab.links["p0-t0.0--p0-t1.0"].queue.limit == 65536
    with pytest.raises(ReferencePartMissing, match="the kernel cannot route structured_ev: it reads no EV"):
        chosen(load_lab("structured-ev"), "kernel")
    with pytest.raises(ReferencePartMissing, match="the kernel runs no P4 program"):
        chosen(load_lab("tiny"), "kernel", "p4c")


def test_only_p4lite_has_the_virtual_clock() -> None:
    lab = chosen(load_lab("tiny"), "bmv2")
    with pytest.raises(
        ReferencePartMissing, match="switch bmv2 has the real clock only; `--clock real`, or `--switch p4lite`"
    ):
        check_clock(lab, "virtual")
    check_clock(lab, "real")
    workload = Workload(name="all_to_all", params={"block_bytes": 1000, "iterations": 1})
    experiment = Experiment(name="e", title="e", lab="tiny", switch="kernel", workload=workload)
    with pytest.raises(ReferencePartMissing, match="switch kernel has the real clock only"):
        execute(experiment, "virtual")


def test_chaos_is_for_p4lite(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mrclab.cli.chaos.need_namespaces", lambda: None)
    for clock in ("real", "virtual"):
        done = CliRunner().invoke(app, ["chaos", "--lab", "bmv2-tiny", "--clock", clock, "--seed", "1"])
        assert isinstance(done.exception, ExperimentError), done.output
        told = "chaos: the rules look into the switches of p4lite, and lab 'bmv2-tiny' has switch bmv2; take a lab with"
        assert str(done.exception).startswith(told)


# -- the parts ------------------------------------------------------------------------------------------------

BAD_BMV2: dict[str, tuple[Callable[[pathlib.Path], object], str]] = {
    "missing": (lambda path: None, "BMv2 is missing: simple_switch_grpc is not in PATH, and MRCLAB_BMV2 is not set"),
    "crashes": (lambda path: program(path, "echo ouch >&2; exit 3"), "BMv2 does not start: .*--version: ouch"),
    "killed": (lambda path: program(path, "kill -SEGV $$"), "BMv2 does not start: .*: exit code -11"),
    "another": (lambda path: program(path, "echo hello"), "BMv2 does not start: .*--version: it says no version"),
    "silent": (lambda path: program(path, "exec sleep 9"), "BMv2 does not start: .*--version: no answer within 0.2 s"),
    "no program": (lambda path: program(path, "").write_bytes(b"\x7fELF"), "--version: Exec format error"),
    "old": (lambda path: program(path, "echo 1.10.0"), "BMv2 is too old: .* is version 1.10.0, and 1.13 is needed"),
    "no Thrift": (lambda path: program(path, "echo 1.15.0 --device-id"), "BMv2 was built without Thrift, .*"),
}


@pytest.mark.parametrize("case", sorted(BAD_BMV2))
def test_bmv2_that_is_not_here_or_does_not_work(
    case: str, nothing_installed: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make, text = BAD_BMV2[case]
    if case == "silent":
        monkeypatch.setattr(forwarders, "TRY_S", 0.2)
    make(nothing_installed / "simple_switch_grpc")
    with pytest.raises(ReferencePartMissing, match=text) as caught:
        check(chosen(load_lab("tiny"), "bmv2"))
    assert str(caught.value).endswith("; docs/reference-parts.md tells where it comes from")
    assert "\n" not in str(caught.value)
    check(load_lab("tiny"))


def test_parts_that_the_environment_names(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MRCLAB_BMV2", str(tmp_path / "nowhere"))
    with pytest.raises(ReferencePartMissing, match=r"BMv2 is missing: MRCLAB_BMV2=.*/nowhere is not a program"):
        check(chosen(load_lab("tiny"), "bmv2"))
    monkeypatch.setenv("MRCLAB_BMV2", str(stand_in.executable(tmp_path)))
    assert forwarders.problem(chosen(load_lab("tiny"), "bmv2")) is None
    monkeypatch.setenv("MRCLAB_P4C", str(tmp_path / "nothing"))
    problem = forwarders.problem(chosen(load_lab("tiny"), "bmv2", "p4c"))
    assert problem is not None
    assert problem.startswith("p4c is missing: MRCLAB_P4C=")


@pytest.mark.parametrize("command", [["up", "tiny"], ["run", "all_to_all", "--lab", "tiny", "--clock", "real"]])
@pytest.mark.parametrize("option", ["--switch=bmv2", "--compiler=p4c"])
def test_a_missing_part_is_told_before_anything_starts(
    command: list[str], option: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("mrclab.lab.lifecycle.check", lambda: None)
    done = CliRunner().invoke(app, [*command, option])
    assert isinstance(done.exception, ReferencePartMissing), done.output
    assert not (tmp_path / "results").exists()
    assert not list((tmp_path / "run").glob("*"))


def test_half_of_the_switches_dead_is_one_line() -> None:
    deaths = [ProcessExit.now(f"p0-t0.{index}", "was killed by SIGKILL") for index in range(4)]
    record = LabRecord(deaths=[ProcessExit.now("h0", "ended"), *deaths], hosts={"h0": 1})
    state = SimpleNamespace(record=record)
    lab = cast(RunDir, SimpleNamespace(name="tiny", read=lambda: state))
    told = r"^lab 'tiny' is damaged: p0-t0\.0 .*, p0-t0\.1 .*, p0-t0\.2 was .* and 1 more; `mrclab down tiny` first$"
    with pytest.raises(RunError, match=told):
        check_usable(lab)


def test_p4c_is_called_as_the_reference_is(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = fabric_program()
    ours.save(tmp_path / "ours.json")
    assert FabricProgram.load(tmp_path / "ours.json") == ours
    script = (
        f'[ "$1 $2 $3 $5" = "--p4v 16 -o --p4runtime-files" ] && [ -f "$7" ] || exit 9\n'
        f'cd "{tmp_path}" && /bin/cp ours.json "$4" && /bin/cp ours.p4info.txtpb "$6"'
    )
    assert by_p4c(program(tmp_path / "p4c-bm2-ss", script)) == ours
    failing = "echo note >&2; echo 'fabric.p4(3): [--Werror=type-error] error: no' >&2; echo more >&2; exit 1"
    told = {
        failing: r"p4c-bm2-ss: fabric.p4\(3\): \[--Werror=type-error\] error: no",
        "exit 4": "p4c-bm2-ss: exit code 4",
        "exit 0": "p4c-bm2-ss: it wrote no program",
        "exec sleep 9": "p4c-bm2-ss: no answer within 0.2 s",
    }
    for script, text in told.items():
        monkeypatch.setattr("mrclab.lab.switches.program.P4C_S", 0.2 if "sleep" in script else 60.0)
        with pytest.raises(
            ProgramError, match=f"^p4c does not compile .*/{text}; `--compiler p4lite` does without it$"
        ):
            by_p4c(program(tmp_path / "p4c-bm2-ss", script))
    no_program = tmp_path / "p4c-bm2-ss"
    no_program.write_bytes(b"\x7fELF")
    with pytest.raises(ProgramError, match="p4c-bm2-ss: Exec format error; `--compiler"):
        by_p4c(no_program)


# -- Thrift ---------------------------------------------------------------------------------------------------


class Server:
    """A Thrift server that answers with what is next in `answers`."""

    def __init__(self, answers: list[int | str | bytes]) -> None:
        self.calls: list[tuple[str, list[int]]] = []
        self.answers = answers
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = self.listener.getsockname()
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        peer, _ = self.listener.accept()
        with peer, peer.makefile("rb", buffering=0) as stream:
            for result in self.answers:
                call = stand_in.read_call(stream)
                if call is None:
                    return
                name, number, arguments = call
                self.calls.append((name, arguments))
                peer.sendall(result if isinstance(result, bytes) else stand_in.answer(name, number, result))


def test_thrift_calls_as_simple_switch_takes_them() -> None:
    server = Server([0, 0])
    with SimpleSwitch(server.address) as client:
        client.set_queue_rate(3, 0, 5_000_000_000)
        client.set_queue_depth(2, 65536)
    assert server.calls == [
        ("simple_switch:set_egress_priority_queue_rate", [3, 0, 5_000_000_000]),
        ("simple_switch:set_egress_queue_depth", [2, 65536]),
    ]


@pytest.mark.parametrize(
    ("result", "text"),
    [
        (1, "set_egress_queue_depth: the switch answers 1"),
        ("unknown method", "set_egress_queue_depth: unknown method"),
        (b"HTTP/1.1 400 what is this", "no answer of Thrift's binary protocol"),
        (b"\x80", "the switch does not answer"),
    ],
)
def test_thrift_answers_that_are_refusals(result: int | str | bytes, text: str) -> None:
    server = Server([result])
    with SimpleSwitch(server.address) as client, pytest.raises(ThriftError, match=text):
        client.set_queue_depth(1, 1)


def test_a_thrift_server_that_never_comes() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = listener.getsockname()
    with pytest.raises(ThriftError, match=f"no Thrift server at 127.0.0.1:{address[1]}"):
        SimpleSwitch(address)


# -- what the lab tells its parts -----------------------------------------------------------------------------


def test_wires_in_the_fabrics_description() -> None:
    topology = chosen(load_lab("tiny"), "bmv2")
    behind = {
        (switch.name, port): f"w{switch.device_id}-{port}" for switch in topology.switches for port in switch.links
    }
    description = documents.plain(fabric_description(topology, FabricPlan("unix:x", "real", {}, behind=behind)))
    first = description["switches"][0]
    assert first["patches"] == [[1, 1001], [2, 1002], [3, 1003], [4, 1004]]
    assert [port.get("interface") for port in first["ports"]] == [None] * 4 + ["w1-1", "w1-2", "w1-3", "w1-4"]
    # But for the interfaces it is one that a fabric takes, links and all.
    for switch in description["switches"]:
        for port in switch["ports"]:
            port.pop("interface", None)
    server = FabricServer.from_description(description | {"clock": "virtual", "files": None})
    assert len(server.fabric.links) == 8
    server.stop()


def test_queue_rates_fit_the_links() -> None:
    topology = load_lab("tiny")
    assert packets_per_second(topology, 20_000_000) == 20_000_000 // (8 * (1024 + 166))
    assert packets_per_second(topology, 0) == 0
    assert packets_per_second(topology, 1000) == 1


def test_kernel_routes_are_the_programs_tables() -> None:
    topology = chosen(load_lab("tiny"), "kernel")
    t0, t1 = topology.switch("p1-t0.1"), topology.switch("p1-t1.0")
    ends = "encap seg6local action End flavors next-csid lblen 32 nflen 16"
    assert routes(topology, t0, {1: "a", 2: "b", 3: "c", 4: "d"})["main"] == [
        f"route add fd4d:5243:1401::/48 {ends} dev a",
        "route add fd4d:5243:1c00::/48 via fe80::1 dev a onlink",
        "route add fd4d:5248:1::1/128 via fe80::1 dev a onlink",
        "route add fd4d:5248:1:2::1/128 via fe80::1 dev a onlink",
        "route add fd4d:5243:1c01::/48 via fe80::1 dev b onlink",
        "route add fd4d:5248:1::2/128 via fe80::1 dev b onlink",
        "route add fd4d:5248:1:2::2/128 via fe80::1 dev b onlink",
        "route add fd4d:5243:1800::/48 via fe80::1 dev c onlink",
        "route add fd4d:5243:1801::/48 via fe80::1 dev d onlink",
        "route add blackhole fd4d:5248:1::/48",
        "route add fd4d:5248::/48 nexthop via fe80::1 dev c onlink nexthop via fe80::1 dev d onlink",
    ]
    assert routes(topology, t1, {1: "a", 2: "b"})["main"][1:3] == [
        "route add fd4d:5243:1400::/48 via fe80::1 dev a onlink",
        "route add fd4d:5248::/48 via fe80::1 dev a onlink",
    ]


def test_a_switch_that_misses_packets_or_has_no_time_left_makes_a_run_not_valid() -> None:
    good = SwitchLoad(0.5, busiest_thread=0.5, runnable=0.9, waited_ns=200_000.0, given=100_000, missed=100)

    def reasons(**changes: Any) -> list[str]:
        return judge(Fidelity(switches={"p0-t0.0": dataclasses.replace(good, **changes)}), 10**6)

    assert reasons() == []
    assert reasons(missed=101) == ["p0-t0.0 missed 101 of 100000 packets that its links gave it"]
    assert reasons(busiest_thread=0.99) == ["a thread of p0-t0.0 took 99% of a core"]
    assert reasons(busiest_thread=0.05, runnable=0.98) == [
        "p0-t0.0 is starved: a thread of it had work 98% of the time, and no thread of it got more than 5% of a core"
    ]
    assert reasons(waited_ns=260_000.0) == [
        "p0-t0.0 is starved: a thread of it waited 0.26 ms for a core each time (mean); base RTT 1.00 ms"
    ]


def test_a_process_that_waits_for_a_core_is_seen_to_wait() -> None:
    """Two that always have work on one core; the kernel's own words of it, where it has any."""
    if not pathlib.Path("/proc/self/schedstat").exists():
        pytest.skip("the kernel has no scheduler statistics")
    code = "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\nwhile True: pass"
    both = [subprocess.Popen([sys.executable, "-c", code]) for _ in range(2)]
    try:
        deadline = time.monotonic() + 60
        while True:
            found = [threads_of(each.pid)[each.pid] for each in both]
            if all(each.used > 0.2 and each.waited > 0.05 for each in found) or time.monotonic() > deadline:
                break
            time.sleep(0.05)
    finally:
        for each in both:
            each.kill()
            each.wait()
    for thread in found:
        told = SwitchLoad.of([thread.since(Thread(0.0)), Thread(0.0)], thread.used + thread.waited, 0, 0)
        assert told.runnable == pytest.approx(1.0)
        assert told.busiest_thread == told.cpu_share < 0.9
        assert told.waited_ns > 0
