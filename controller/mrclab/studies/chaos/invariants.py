"""Invariants of a lab, true whatever was done to it. A check that fails raises `Violation`."""

from __future__ import annotations

import contextlib
import re
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import grpc

from mrc_host.answers import JobProgress
from mrc_host.requests import GetStatistics, GetSummary
from mrc_topo.base import interruption
from mrclab.lab.faults.action import Action
from mrclab.lab.session.base import Session
from mrclab.lab.switches.p4rt import Device
from mrclab.studies.chaos import truth
from p4lite.switch.fabric.values import SwitchState
from p4lite.switch.targetapi.values import FabricInfo, PortInfo

#: On the real clock kernels and agents see a carrier a little later.
SETTLE_S = 5.0
#: Workloads in which every byte that is sent is one that is verified where it lands.
EXACT = {"all_to_all", "permutation", "incast", "send_recv", "write_bw", "write_lat"}
_BLAME = re.compile(r"rank (\d+) to rank (\d+): (\S+): .+")


class Violation(Exception):
    """An invariant does not hold. `rule` names it, the text gives the element.

    The rules: truth, bytes, requests, errors, progress, left, fault, refused, named.
    """

    def __init__(self, rule: str, text: str) -> None:
        super().__init__(f"{rule}: {text}")
        self.rule = rule


def look(session: Session, asked: Iterable[str]) -> tuple[FabricInfo, truth.Carriers]:
    """Return the fabric as its target API reports it, and the carriers as these hosts do; nothing that only time
    changes.
    """
    info = session.fabric.info()
    switches = {key: replace(each, stream_drops=0) for key, each in info.switches.items()}
    carriers = {(name, port.port): port.up for name in asked for port in session.hosts[name].ask(GetStatistics()).ports}
    return replace(info, now_ns=0, events=0, switches=switches), carriers


class FabricInvariant:
    """The fabric is as it was when this was made, under all failures that were requested since."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.before = look(session, session.hosts)

    def check(self, in_force: Sequence[Action], asked: Sequence[str]) -> None:
        """Compare with the ledger and with the fabric.

        Raises:
            Violation: truth; names the element and both states.
        """
        failures = self.session.failures
        failures.reload()
        said = [each.describe() for each in failures.causes]
        wanted = [each.describe() for each in in_force]
        if said != wanted:
            raise Violation("truth", f"the ledger has {_list(said)}; in force are {_list(wanted)}")
        if failures.unsettled:
            raise Violation("truth", f"in doubt without any change that broke off: {', '.join(failures.unsettled)}")
        # On the real clock carriers take their time.
        deadline = time.monotonic() + (SETTLE_S if self.session.clock == "real" else 0.0)
        while (found := self._difference(in_force, asked)) and time.monotonic() < deadline:
            interruption.sleep(0.05)
        if found:
            raise Violation("truth", f"{found}; in force: {_list(wanted)}")

    def _difference(self, in_force: Sequence[Action], asked: Sequence[str]) -> str:
        topology = self.session.topology
        info, carriers = truth.expected(topology, *self.before, in_force)
        now, seen = look(self.session, asked)
        for switch in topology.switches:
            want, have = info.switches[switch.device_id], now.switches[switch.device_id]
            if want.state is not have.state:
                return f"{switch.name} is {have.state.value}, not {want.state.value}"
            for number, link in switch.links.items():
                host = link.low if link.is_host_link else None
                carrier = host is None or carriers[host.node, host.port]
                one, other = (_port(each.ports[number], carrier) for each in (want, have))
                if one != other:
                    return f"{link.name} at {switch.name} is {_told(other)}, not {_told(one)}"
        for (name, port), up in seen.items():
            if carriers[name, port] != up:
                return f"{name}:{port} has {'a' if up else 'no'} carrier"
        return ""


def _port(port: PortInfo, carrier: bool) -> PortInfo:
    """Return the state of a port; without a carrier it depends on the attachment, so it counts as down both ways."""
    return port if carrier or port.interface is None else replace(port, up_outgoing=False, up_incoming=False)


def _told(port: PortInfo) -> str:
    def way(up: bool, settings: Any) -> str:
        return f"{'up' if up else 'down'} {settings}"

    return f"(out {way(port.up_outgoing, port.outgoing)}, in {way(port.up_incoming, port.incoming)})"


def _list(items: Sequence[str]) -> str:
    return ", ".join(items) or "nothing"


def entries(session: Session) -> dict[str, int]:
    """Return the number of table entries of every switch."""
    program, found = session.program, {}
    for switch in session.topology.switches:
        with grpc.insecure_channel(session.p4runtime_address(switch.name)) as channel:
            patient = session.clock == "virtual"
            device = Device(channel, switch.device_id, switch.name, program.p4info, patient=patient)
            found[switch.name] = device.count_entries()
    return found


def blame(failure: str, names: Sequence[str]) -> frozenset[str]:
    """Return the two hosts that a workload's failure names.

    Raises:
        Violation: errors; it names none.
    """
    match = _BLAME.match(failure)
    if match is None or max(int(match[1]), int(match[2])) >= len(names) or names[int(match[2])] != match[3]:
        raise Violation("errors", f"an error that names no culprit: {failure}")
    return frozenset((names[int(match[1])], match[3]))


def check_bytes(name: str, kind: str, names: Sequence[str], progress: Mapping[str, JobProgress]) -> None:
    """Check a workload that every rank reports as done, without an error.

    Raises:
        Violation: bytes, requests.
    """
    for host, each in progress.items():
        if each.mismatches:
            raise Violation("bytes", f"{name} ({kind}): {each.mismatches} wrong values at {host}")
        if each.requests_posted != each.requests_ended:
            raise Violation("requests", f"{name} ({kind}) is done, but {_open(host, each)}")
        if each.takes_part and each.iterations and kind not in EXACT and not each.bytes_verified:
            raise Violation("bytes", f"{name} ({kind}): {host} verified nothing in {each.iterations} iterations")
    if kind in EXACT:
        sent, verified = (
            sum(getattr(each, key) for each in progress.values()) for key in ("bytes_sent", "bytes_verified")
        )
        if sent != verified:
            raise Violation("bytes", f"{name} ({kind}): {sent} bytes were sent, {verified} verified")


def open_requests(progress: Mapping[str, JobProgress]) -> str:
    """Name the hosts with work requests that have not ended; empty if there are none."""
    return ", ".join(
        _open(host, each) for host, each in progress.items() if each.requests_posted != each.requests_ended
    )


def _open(host: str, each: JobProgress) -> str:
    return f"{host} has {each.requests_posted - each.requests_ended} of {each.requests_posted} requests open"


def check_nothing_left(session: Session, tables: Mapping[str, int]) -> None:
    """Check that nothing is left in a lab in which everything is restored and every workload has finished.

    Raises:
        Violation: left, fault; names what is left and where.
    """
    for name, host in session.hosts.items():
        has = host.ask(GetSummary())
        if has.faults:
            raise Violation("fault", f"{name} counts {has.faults} internal faults; see its event log")
        if has.jobs or has.queue_pairs:
            raise Violation("left", f"{name} still has {has.queue_pairs} queue pairs of workloads {has.jobs}")
        if has.denied:
            raise Violation("left", f"{name} keeps {has.denied} EVs denied after everything was allowed")
    failures = session.failures
    failures.reload()
    if failures.broken or failures.unsettled or session.denied:
        raise Violation(
            "left", f"{failures.broken}, {failures.unsettled}, {session.denied} after everything was restored"
        )
    stopped = [each.name for each in session.fabric.info().switches.values() if each.state is not SwitchState.RUNNING]
    if stopped:
        raise Violation("left", f"switches that do not run: {', '.join(stopped)}")
    if (now := entries(session)) != tables:
        changed = [
            f"{name} has {now[name]} entries, had {count}" for name, count in tables.items() if now[name] != count
        ]
        raise Violation("left", ", ".join(changed))


def threads() -> set[threading.Thread]:
    """Return the threads of this process."""
    return set(threading.enumerate())


def check_threads_gone(before: set[threading.Thread]) -> None:
    """Check that the threads of a virtual lab that was closed end by themselves.

    Raises:
        Violation: left.
    """
    deadline = time.monotonic() + SETTLE_S
    while (left := threads() - before) and time.monotonic() < deadline:
        for each in left:
            with contextlib.suppress(RuntimeError):
                each.join(0.05)
    if left:
        raise Violation("left", f"threads after the lab's end: {', '.join(sorted(each.name for each in left))}")
