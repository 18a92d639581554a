"""A workload over the kernel's own TCP, and iperf3, between the hosts of a lab on the real clock.

In simulated time there is none: a home-made TCP would be a worse baseline than no TCP. `one_plane` connects the hosts'
ports in plane 0. `ecmp` connects the hosts' own addresses, to which the hosts' kernels have a route over every plane:
each hashes a connection to one of them (addresses and ports, `fib_multipath_hash_policy` 1). In the fabric, T0s hash
addresses and flow label, which the kernel draws for each connection. Agents are idle meanwhile.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import shutil
import sys
import time
from collections.abc import Iterator, Sequence

from mrc_host.answers import JobProgress
from mrc_topo import addressing
from mrc_topo.base.plain import DecodeError, decode
from mrc_topo.topology import Topology
from mrclab.lab.hosts import inside
from mrclab.lab.hosts.hostnet import ROUTER
from mrclab.lab.hosts.hostprocess import HostProcess
from mrclab.lab.records.rundir import RunError
from mrclab.lab.session.real import RealSession
from mrclab.runs.workload import WorkloadSpec, fitted

PORT = 5201
READY_S = 60.0
IPERF3 = "iperf3 is missing; install it (Debian: `apt-get install iperf3`) or leave its variants out"


@dataclasses.dataclass
class TcpResult:
    """The result of a TCP run: seconds of an iteration (infinite when it failed), the first failure, and verified
    bytes.

    With iperf3 no bytes are verified: it only counts them.
    """

    seconds: float
    failure: str = ""
    verified: int = 0


def have_iperf3() -> bool:
    """Return whether this machine has it."""
    return shutil.which("iperf3") is not None


def addresses(topology: Topology, names: Sequence[str], over: str) -> list[str]:
    """Return the addresses to which the ranks connect."""
    hosts = [topology.host(name) for name in names]
    return [addressing.text(host.address if over == "ecmp" else host.ports[0].address) for host in hosts]


def route_lines(topology: Topology, name: str, names: Sequence[str], verb: str) -> list[str]:
    """Return lines for `ip -batch` that give a host its own address and routes over all planes, or (`del`) take them
    away."""
    host = topology.host(name)
    put = {"add": "replace", "del": "del"}[verb]
    own = addressing.text(host.address)
    lines = [f"address {put} {own}/128 dev lo nodad" if verb == "add" else f"address del {own}/128 dev lo"]
    hops = " ".join(f"nexthop via {ROUTER} dev {port.interface} onlink" for port in host.ports)
    for peer in names:
        if peer != name:
            there = addressing.text(topology.host(peer).address)
            lines.append(f"route {put} {there}/128 src {own} {hops}" if verb == "add" else f"route del {there}/128")
    return lines if verb == "add" else lines[::-1]


@contextlib.contextmanager
def routed(session: RealSession, names: Sequence[str], over: str) -> Iterator[None]:
    """Add the routes that `ecmp` needs, for the time of the context.

    Raises:
        RunError: the hosts' kernels refuse them.
    """
    if over != "ecmp":
        yield
        return
    try:
        for name in names:
            policy = ["sh", "-c", "echo 1 > /proc/sys/net/ipv6/fib_multipath_hash_policy"]
            _checked(session, name, policy, "")
            _checked(session, name, ["ip", "-batch", "-"], _text(session, name, names, "add"))
        yield
    finally:
        for name in names:
            words = ["ip", "-force", "-batch", "-"]
            given = _text(session, name, names, "del")
            inside.run(session.state, words, host=name, input=given, capture_output=True, text=True)


def _text(session: RealSession, name: str, names: Sequence[str], verb: str) -> str:
    return "\n".join(route_lines(session.topology, name, names, verb)) + "\n"


def _checked(session: RealSession, name: str, words: Sequence[str], text: str) -> None:
    done = inside.run(session.state, words, host=name, input=text, capture_output=True, text=True)
    if done.returncode:
        raise RunError(f"host {name}: {' '.join(words[:2])}: {done.stderr.strip()[:300]}")


def run(session: RealSession, spec: WorkloadSpec, over: str) -> TcpResult:
    """Run the workload over sockets, with `qps_per_peer` connections to each peer.

    Raises:
        RunError: the hosts' kernels refuse routes.
    """
    names = list(spec.hosts or session.hosts)
    places = addresses(session.topology, names, over)
    with routed(session, names, over), contextlib.ExitStack() as stack:
        ranks = []
        params = fitted(session.topology, spec.workload, spec.params, names)
        for rank, name in enumerate(names):
            config = {
                "workload": spec.workload, "params": params, "rank": rank, "addresses": places, "port": PORT,
                "streams": spec.qps_per_peer, "timeout_s": spec.limit_s,
            }  # fmt: skip
            words = [sys.executable, "-P", "-m", "mrc_host.tcp", json.dumps(config)]
            ranks.append(HostProcess(session.state, name, words, "the TCP program"))
            stack.callback(ranks[-1].end)
        try:
            for wait_s in (READY_S, READY_S):
                for each in ranks:
                    _await_ready(each, time.monotonic() + wait_s)
                for each in ranks:
                    each.tell()
            deadline = time.monotonic() + spec.limit_s + READY_S
            told = [_heard(each, deadline) for each in ranks]
        except (RunError, ValueError, DecodeError) as error:
            return TcpResult(math.inf, str(error))
    return judged([each.progress for each in told], [each.error for each in told])


@dataclasses.dataclass(frozen=True)
class RankLine:
    """A line of a rank's program: it is ready, how far it has come, or why it has ended."""

    ready: str = ""
    error: str = ""
    progress: JobProgress = dataclasses.field(default_factory=lambda: JobProgress(takes_part=False))


def _heard(rank: HostProcess, deadline: float) -> RankLine:
    return decode(RankLine, json.loads(rank.line(deadline)), lenient=True)


def _await_ready(rank: HostProcess, deadline: float) -> None:
    said = _heard(rank, deadline)
    if not said.ready:
        raise RunError(f"host {rank.host}: {said.error or 'it is not ready'}")


def judged(progress: Sequence[JobProgress], errors: Sequence[str]) -> TcpResult:
    """Judge what the ranks report: the time from the first one's start to the last one's end, by iterations."""
    taking = [each for each in progress if each.takes_part]
    wrong = [text for text in (*errors, *(each.failure for each in progress)) if text]
    wrong += [f"{each.mismatches} values are wrong" for each in taking if each.mismatches]
    verified = sum(each.bytes_verified for each in taking)
    if wrong or not taking or not all(each.iterations for each in taking):
        return TcpResult(math.inf, wrong[0] if wrong else "no rank has ended an iteration", verified)
    begin, end = min(each.started_ns for each in taking), max(each.finished_ns for each in taking)
    return TcpResult((end - begin) / 1e9 / min(each.iterations for each in taking), "", verified)


def iperf3(session: RealSession, spec: WorkloadSpec, over: str) -> TcpResult:
    """Send `write_bw`'s bytes from its source to its target by iperf3, `qps_per_peer` connections at once.

    Raises:
        RunError: iperf3 is missing, or the hosts' kernels refuse routes.
    """
    if not have_iperf3():
        raise RunError(IPERF3)
    names = list(spec.hosts or session.hosts)
    ends = [names[int(spec.params.get(key, default))] for key, default in (("source", 0), ("target", 1))]
    source, target = addresses(session.topology, ends, over)
    message, count = (
        int(spec.params.get(key, default)) for key, default in (("message_bytes", 1 << 18), ("iterations", 1))
    )
    # The server ends when its input does, whether or not its client has connected.
    serve = ["sh", "-c", '"$@" & read -r _; kill $! 2>/dev/null', "sh"]
    serve += ["iperf3", "-s", "-1", "-B", target, "-p", str(PORT), "--forceflush"]
    call = ["iperf3", "-c", target, "-B", source, "-p", str(PORT), "-n", str(message * count), "-J"]
    call += ["-P", str(spec.qps_per_peer)]
    deadline = time.monotonic() + spec.limit_s + READY_S
    with routed(session, ends, over), contextlib.ExitStack() as stack:
        server = HostProcess(session.state, ends[1], serve, "iperf3")
        stack.callback(server.end)
        try:
            while "listening" not in server.line(deadline):
                pass
            client = HostProcess(session.state, ends[0], call, "iperf3")
            stack.callback(client.end)
            document = json.loads(client.everything(deadline))
        except (RunError, ValueError) as error:
            return TcpResult(math.inf, f"iperf3: {error}")
    if document.get("error"):
        return TcpResult(math.inf, f"iperf3: {document['error']}"[:300])
    received = document["end"]["sum_received"]
    rate = float(received["bits_per_second"])
    return TcpResult(message * 8 / rate) if rate else TcpResult(math.inf, "iperf3: nothing arrived")
