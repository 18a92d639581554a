"""Into a running lab: status, exec, sh, p4sh, capture, deny, on a small real one; and what `up` refuses."""

from __future__ import annotations

import json
import os
import pathlib
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from ipaddress import IPv6Address

import pytest

from mrc_host.ctl_requests import SetDenials
from mrc_topo.labfile import load_lab
from mrclab.cli.status import link_rows
from mrclab.lab.hosts import inside
from mrclab.lab.processes.process import Process
from mrclab.lab.records.capture_tail import place_of
from mrclab.lab.records.record import LabRecord, LabState
from mrclab.lab.records.rundir import RunDir, RunError
from mrclab.lab.session.real import RealSession
from mrclab.lab.session.virtual import VirtualSession
from mrclab.results.record import RunResult
from mrclab.runs.runner import WorkloadRun
from mrclab.runs.workload import WorkloadSpec
from p4lite_tools.entries import read_capture
from support.lab.labs import lab_file
from support.p4shell import need_shell
from support.pcapng import packets

COMMAND = [sys.executable, "-c", "from mrclab.cli.app import main; main()"]
STATUS = {
    "lab",
    "switch",
    "compiler",
    "agents",
    "grpc_addresses",
    "switches",
    "links",
    "hosts",
    "hosts_alive",
    "broken",
    "unsettled",
    "denied",
    "health",
    "machines",
    "harm",
}
LINK = "p0-t0.0--p0-t1.0"


def mrclab(
    environment: dict[str, str], *words: str, code: int = 0, stdin: str = "", prefix: str = ""
) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", f"{prefix}; from mrclab.cli.app import main; main()"] if prefix else COMMAND
    done = subprocess.run([*command, *words], env=environment, capture_output=True, text=True, timeout=120, input=stdin)
    assert done.returncode == code, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done


def environment_in(folder: pathlib.Path) -> dict[str, str]:
    return {**os.environ, "COLUMNS": "200", "MRCLAB_RUN": str(folder / "run")}


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Yield the environment of commands to a lab that is up: two planes, two T0 and two T1 each, two hosts."""
    folder = tmp_path_factory.mktemp("inside")
    environment = {
        **os.environ,
        "COLUMNS": "200",
        "MRCLAB_RUN": str(folder / "run"),
        "IPYTHONDIR": str(folder),
        "TERM": "dumb",
    }
    path = lab_file(folder, "tiny", hosts=2, hosts_per_t0=1, ev={"size": 32, "active": 16})
    mrclab(environment, "up", path)
    try:
        yield environment
    finally:
        mrclab(environment, "down", "tiny")


def status(lab: dict[str, str]) -> dict[str, object]:
    document = json.loads(mrclab(lab, "status", "--json").stdout)
    assert set(document) == STATUS
    return document


@pytest.mark.lab
@pytest.mark.slow
def test_root_becomes_the_labs_user_without_a_fork(monkeypatch: pytest.MonkeyPatch) -> None:
    """Found by chaos: a fork beside threads of gRPC now and then ended the child with SIGSEGV, without a word."""
    asked: list[dict[str, object]] = []
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(subprocess, "run", lambda words, **options: asked.append({"words": words, **options}))
    monkeypatch.setattr(subprocess, "Popen", lambda words, **options: asked.append({"words": words, **options}))
    state = LabState(
        "tiny", first=Process.of("lab", os.getpid()), uid=61100, gid=61101, record=LabRecord(hosts={"h1": 2})
    )
    inside.run(state, ["true"])
    inside.start(state, ["true"], host="h1")
    for each in asked:
        assert not {"user", "group", "extra_groups", "preexec_fn"} & set(each)
        assert each["words"][:4] == ["setpriv", "--reuid=61100", "--regid=61101", "--clear-groups"]  # type: ignore[index]


def test_status_as_json(lab: dict[str, str]) -> None:
    document = json.loads(mrclab(lab, "status", "--json").stdout)
    assert set(document) == STATUS
    assert document["lab"] == "tiny"
    assert (document["hosts_alive"], document["broken"], document["denied"], document["health"]) == (2, {}, [], [])
    assert len(document["switches"]) == 8
    for switch in document["switches"]:
        assert set(switch) == {"name", "state", "ports", "ports_up", "tx_packets", "drops"}
        assert switch["ports"] == switch["ports_up"] == (3 if "t0" in switch["name"] else 2)
        assert switch["state"] == "running"
    assert len(document["links"]) == 12
    for link in document["links"]:
        assert set(link) == {"name", "rate_bps", "up_bps", "down_bps", "load"}
    assert max(link["load"] for link in document["links"]) > 0, "the hosts' probes"
    for host in document["hosts"]:
        assert set(host) == {"name", "alive", "ports_up", "sent", "received", "retransmitted", "denied_evs"}
        assert (host["alive"], host["ports_up"]) == (True, 2)


@pytest.mark.parametrize(("link", "up", "down"), [("h0:0", 16_000, 8_000), (LINK, 8_000, 16_000)])
def test_rates_of_a_link_are_those_of_its_switchs_port(link: str, up: int, down: int) -> None:
    """A link's way up is away from the host: what the port of a host receives, and a T0 sends to a T1."""
    session = VirtualSession(load_lab("tiny"))
    try:
        before = session.fabric.stats()
    finally:
        session.close()
    topology = session.topology
    found = topology.links[link]
    end = found.high if found.is_host_link else found.low
    device = topology.switch(end.node).device_id
    port = before[device].ports[end.port]
    counted = replace(port, tx_bytes=port.tx_bytes + 500, rx_bytes=port.rx_bytes + 1000)
    ports = {**before[device].ports, end.port: counted}
    after = {**before, device: replace(before[device], now_ns=before[device].now_ns + 500_000_000, ports=ports)}
    rows = {row.name: row for row in link_rows(topology, before, after)}
    assert rows.keys() == topology.links.keys()
    assert (rows[link].up_bps, rows[link].down_bps) == (up, down)
    assert rows[link].load == 16_000 / found.spec.rate
    assert {row.load for row in rows.values() if row.name != link} == {0.0}
    assert link not in {row.name for row in link_rows(topology, before, {})}


@pytest.mark.lab
@pytest.mark.slow
def test_status_is_renewed_until_a_signal_comes(lab: dict[str, str]) -> None:
    command = [*COMMAND, "status", "--watch", "--json"]
    with subprocess.Popen(command, env=lab, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for _ in range(2):
            assert set(json.loads(process.stdout.readline())) == STATUS
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 130


@pytest.mark.lab
@pytest.mark.slow
def test_exec_and_sh(lab: dict[str, str]) -> None:
    assert "h0-p1" in mrclab(lab, "exec", "h0", "ip", "-br", "link").stdout
    asked = "/proc/sys/net/ipv6/conf/h0-p1/router_solicitations"
    assert mrclab(lab, "exec", "h0", "cat", asked).stdout == "0\n", "captures show no packets of the kernel"
    mrclab(lab, "exec", "h1", "--", "sh", "-c", "exit 7", code=7)
    assert "no host 'h7' in lab 'tiny'; it has: h0, h1" in mrclab(lab, "exec", "h7", "true", code=2).stderr
    text = mrclab(lab, "sh", stdin="hosts\n\nh1 cat /proc/net/dev\nfail h9:0\n'\nstatus --json\nexit\n")
    assert "h0 h1" in text.stdout
    assert "h1-p0" in text.stdout
    assert "h9:0" in text.stderr
    assert "No closing quotation" in text.stderr
    assert '"hosts_alive": 2' in text.stdout


#: Both T1s of plane 0 stand still: h0 and h1 are at different T0s, and only the management network joins them there.
PROMPT = """
fail p0-t1.0 --kind freeze
fail p0-t1.1 --kind freeze
pingall
h0 ping -c 1 -W 1 h1
h0 ping -c 1 -W 1 h1.p1
h0 getent hosts h1.p1
restore
link p0-t0.0 p0-t1.0 down
py lab.broken
link p0-t0.0 p0-t1.0 up
py lab.broken
py twice = 2 * len(h0.addresses)
py twice
py no = 1 / 0
py for
link h0 h1 down
iperf h0 h1
iperf h0
source more
nodes
"""


@pytest.mark.lab
@pytest.mark.slow
def test_the_prompt_pings_through_the_fabric(
    lab: dict[str, str], tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "more").write_text("# a comment\nhosts\nexit\nnodes\n", encoding="utf-8")
    said = mrclab(lab, "sh", stdin=PROMPT)
    assert "plane 0:\nh0 -> X\nh1 -> X\nplane 1:\nh0 -> h1\nh1 -> h0\n" in said.stdout
    assert "*** Results: 50% dropped (2/4 received)" in said.stdout
    assert "1 packets transmitted, 0 received" in said.stdout
    assert "1 packets transmitted, 1 received" in said.stdout
    assert "h1 is fd4d:5248:1:1::1 (fabric, plane 0)" in said.stderr
    assert "fd4d:5248:1:2::1 h1.p1" in said.stdout
    assert "['p0-t0.0--p0-t1.0']\nmrclab> mrclab> []" in said.stdout
    assert "mrclab> 4\n" in said.stdout
    assert "error: ZeroDivisionError" in said.stderr
    assert "error: SyntaxError" in said.stderr
    assert "error: no link between h0 and h1" in said.stderr
    assert "error: write: iperf A B" in said.stderr
    assert "h0 -> h1: " in said.stdout
    assert said.stdout.rstrip().endswith("mrclab> h0 h1")


@pytest.mark.lab
@pytest.mark.slow
def test_p4sh_takes_the_primary_role_and_the_lab_goes_on(lab: dict[str, str], tmp_path: pathlib.Path) -> None:
    need_shell()
    typed = 'print("ENTRIES", sum(1 for _ in table_entry["FabricIngress.routing.usid_routes"].read()))\nexit\n'
    for _ in range(2):
        done = mrclab(lab, "p4sh", "p0-t0.0", stdin=typed)
        found = [line for line in done.stdout.splitlines() if "ENTRIES" in line]
        assert found, done.stdout + done.stderr
        assert int(found[-1].split("ENTRIES")[1].split()[0]) > 0
    assert "p9-t0.0" in mrclab(lab, "p4sh", "p9-t0.0", code=2).stderr
    # The lab's own controller must still be able to fill the switch again after a reboot.
    mrclab(lab, "fail", "p0-t0.0", "--kind", "reboot")
    mrclab(lab, "restore")
    done = mrclab(lab, "run", "write_bw", "--set", "iterations=2", "--set", "message_bytes=65536", "--json", "-o",
                  str(tmp_path))  # fmt: skip
    assert json.loads(done.stdout)["passed"]
    again = mrclab(lab, "p4sh", "p0-t0.0", stdin=typed)
    assert "ENTRIES" in again.stdout


def test_directions_of_a_capture_are_those_of_the_port_that_was_named() -> None:
    """A host's port is captured at the switch, which is the other end of its cable."""
    topology = load_lab("default")
    mine, uplink = place_of(topology, "h3:2"), place_of(topology, "p0-t0.1:3")
    port = topology.hosts[3].ports[2]
    assert mine[:2] == (topology.switch(port.t0).device_id, port.t0_port)
    assert uplink[:2] == (topology.switch("p0-t0.1").device_id, 3)
    assert (mine.outside, uplink.outside) == (True, False)
    assert (mine.label, uplink.label) == ("h3:2", "p0-t0.1:3")


@pytest.mark.lab
@pytest.mark.slow
@pytest.mark.parametrize("port", ["h0:1", "p1-t0.0:1"])
def test_capture_both_directions(lab: dict[str, str], port: str, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "c.pcapng"
    mrclab(lab, "capture", port, "-o", str(path), "--duration", "0.5")
    frames = packets(path.read_bytes())
    if port == "h0:1":
        [own] = {packet.data[:6] for packet in read_capture(path) if packet.inbound}
        assert own in {packet.data[6:12] for packet in read_capture(path) if not packet.inbound}
    assert len({frame[:6] for frame in frames if frame[12:14] == b"\x86\xdd"}) == 2, "probes out and back"
    path = tmp_path / "d.pcapng"
    process = subprocess.Popen([*COMMAND, "capture", port, "-o", str(path)], env=lab, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    assert "capturing" in process.stderr.readline()
    deadline = time.monotonic() + 60
    while not (path.exists() and path.stat().st_size > 1000):  # some packets beside the header
        assert time.monotonic() < deadline
        time.sleep(0.02)
    process.send_signal(signal.SIGTERM)
    assert process.wait(20) == 0
    assert packets(path.read_bytes())
    size = path.stat().st_size
    time.sleep(0.3)
    assert path.stat().st_size == size, "the capture ended with the command"


@pytest.mark.lab
@pytest.mark.slow
def test_trace_of_the_next_packets(lab: dict[str, str]) -> None:
    done = mrclab(lab, "trace", "p0-t0.0", "--packets", "3", "--json")
    document = json.loads(done.stdout)
    assert len(document["packets"]) == 3
    for events in document["packets"]:
        names = [event["event"] for event in events]
        assert names[0] == "packet_started"
        assert {"table_applied", "extracted"} <= set(names)
        assert names[-1] in ("sent", "dropped")
        assert {event["where"]["file"].rpartition("/")[2] for event in events if event["where"]} >= {"fabric.p4"}
    assert "replayed in p4lite's interpreter" in document["notes"][0]
    assert "h9" in mrclab(lab, "trace", "h9", code=2).stderr


@pytest.mark.lab
@pytest.mark.slow
def test_capture_refuses_ports_and_files_that_do_not_exist(lab: dict[str, str], tmp_path: pathlib.Path) -> None:
    for port, hint in (("h0", "names no port"), ("h0:2", "ports 0 to 1"), ("p0-t0.0:9", "has ports"), ("h9:0", "h9")):
        assert hint in mrclab(lab, "capture", port, code=2).stderr
    done = mrclab(lab, "capture", "h0:0", "-o", str(tmp_path / "no" / "c.pcapng"), code=2)
    assert "c.pcapng: cannot be written: No such file or directory" in done.stderr


@pytest.mark.lab
@pytest.mark.slow
def test_fail_deny_allow_restore(lab: dict[str, str]) -> None:
    assert "find nothing dead" in mrclab(lab, "deny").stdout
    assert "p9-t9.9" in mrclab(lab, "fail", "p9-t9.9", code=2).stderr
    mrclab(lab, "fail", LINK)
    health = [{"element": LINK, "hosts": "dead", "truth": f"link down {LINK}"}]
    deadline = time.monotonic() + 60
    while status(lab)["health"] != health:  # until the hosts' probes are lost; it stays so
        assert time.monotonic() < deadline
    assert f"denied: {LINK}" in mrclab(lab, "deny").stdout
    document = status(lab)
    assert (document["denied"], document["health"]) == ([LINK], health)
    assert f"denied: {LINK}; `mrclab allow`" in mrclab(lab, "status").stdout
    assert f"is not denied; denied: {LINK}" in mrclab(lab, "allow", "h0:0", code=2).stderr
    assert "denied: nothing" in mrclab(lab, "allow").stdout
    mrclab(lab, "restore", LINK)
    assert status(lab)["broken"] == {}


@pytest.mark.lab
@pytest.mark.slow
def test_flap_breaks_as_often_as_asked_and_leaves_nothing_broken(lab: dict[str, str]) -> None:
    for wrong in (["--duty", "1"], ["--period", "0"], ["--count", "-1"]):
        mrclab(lab, "flap", LINK, *wrong, code=2)
    done = mrclab(lab, "flap", LINK, "--period", "0.1", "--duty", "0.3", "--count", "3")
    assert f"{LINK} has flapped 3 times" in done.stdout
    assert status(lab)["broken"] == {}
    process = subprocess.Popen([*COMMAND, "flap", LINK, "--period", "100", "--duty", "0.9"], env=lab)
    deadline = time.monotonic() + 60
    while status(lab)["broken"] != {LINK: f"link down {LINK}"}:
        assert time.monotonic() < deadline
    process.send_signal(signal.SIGTERM)
    process.wait(20)
    assert status(lab)["broken"] == {}


@pytest.mark.lab
@pytest.mark.slow
def test_allow_reaches_hosts_after_their_workload(lab: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MRCLAB_RUN", lab["MRCLAB_RUN"])

    def kept() -> list[int]:
        return [host["denied_evs"] for host in json.loads(mrclab(lab, "status", "--json").stdout)["hosts"]]

    denied: list[str] = []

    def deny(result: RunResult) -> None:
        if not denied:
            denied.append(mrclab(lab, "deny", LINK).stdout)

    session = RealSession("tiny")
    try:
        spec = WorkloadSpec("ring_all_reduce", {"size_bytes": 1 << 15}, duration_s=2.0)
        result = WorkloadRun(session, spec, (), deny).go()
        assert not result.failures
        assert min(kept()) > 0
        assert f"denied: nothing; EVs given back: {sum(kept())}" in mrclab(lab, "allow").stdout
        assert kept() == [0, 0]
        # What another controller denies is shown, and given back.
        evs = session.hosts["h0"].ask(SetDenials({str(IPv6Address(session.topology.hosts[1].address)): [1, 2]}))
        assert evs.changed == 2
        assert "EVs are denied that no element of the denylist explains" in mrclab(lab, "status").stdout
        assert "EVs given back: 2" in mrclab(lab, "allow").stdout
    finally:
        session.close()


@pytest.mark.lab
def test_a_name_in_use(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    environment = environment_in(tmp_path)
    monkeypatch.setenv("MRCLAB_RUN", environment["MRCLAB_RUN"])
    run = RunDir("tiny")
    run.create()
    run.write(LabState("tiny", first=Process.of("lab", os.getpid())))
    assert "lab 'tiny' is in use; `mrclab down tiny` ends it" in mrclab(environment, "up", "tiny", code=2).stderr


@pytest.mark.parametrize(
    ("changes", "hint"),
    [
        ({"links": {"host": {"rate": 0}}}, "links.host.rate"),
        ({"links": {"fabric": {"rate": "0bps"}}}, "links.fabric.rate"),
        ({"hosts": 5000}, "hosts"),
        ({"overrides": {"p7-t0.0--p7-t1.0": {"rate": "1Mbps"}}}, "p7-t0.0--p7-t1.0"),
    ],
)
def test_up_refuses_labs_that_cannot_be(changes: dict[str, object], hint: str, tmp_path: pathlib.Path) -> None:
    environment = environment_in(tmp_path)
    done = mrclab(environment, "up", lab_file(tmp_path, "tiny", **changes), code=2)
    assert hint in done.stderr
    assert len(done.stderr.strip().splitlines()) <= 3
    assert not (tmp_path / "run").exists()


def test_mininet_missing(tmp_path: pathlib.Path) -> None:
    environment = environment_in(tmp_path)
    hide = (
        "import importlib.util as u; find = u.find_spec; "
        "u.find_spec = lambda name, package=None: None if name == 'mininet' else find(name, package)"
    )
    for words in (["up", "tiny"], ["run", "write_bw", "--lab", "tiny", "--clock", "real"], ["demo", "--clock", "real"]):
        done = mrclab(environment, *words, code=1, prefix=hide)
        assert "Mininet is missing; it comes with the Debian package mininet" in done.stderr
        assert "--clock virtual" in done.stderr
        assert not (tmp_path / "run").exists()


def test_unknown_targets_are_named_before_anything_starts(tmp_path: pathlib.Path) -> None:
    environment = environment_in(tmp_path)
    path = tmp_path / "e.yaml"
    step = "{at: 1, fail: 'p0-t7.0', evidence: {dropped: 1}}"
    path.write_text(f"name: x\ntitle: y\nlab: tiny\nworkload: {{name: write_bw}}\nschedule:\n  - {step}\n")
    done = mrclab(environment, "run", str(path), code=2)
    assert "p0-t7.0" in done.stderr
    assert "building" not in done.stderr


def test_a_missing_program_that_enters_labs_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(inside, "command", lambda *_, **__: ["nsenter"])
    monkeypatch.setattr(inside, "_leave_the_terminal", dict)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    for enter in (inside.run, inside.exec_in_host):
        with pytest.raises(RunError, match="util-linux"):
            enter(LabState("tiny"), ["true"], host="h0")
