"""The part of a lab on one machine, as its coordinator commands it: `mrclab part`, by ssh, with the stream on standard
input and output.

It opens the tunnels' sockets, brings its part up as a lab of its own (in the run directory `.parts/MACHINE` beside the
user's labs), hands on connections to its processes, and takes it down when the stream ends. If it is killed itself, its
lab notices by a pipe.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable

from mrc_machines import probe
from mrc_machines.lab_slice import LabSlice
from mrc_machines.requests import (
    ControlAgent,
    ListAgents,
    MeasureFidelity,
    SetCarrier,
    SignalProcess,
    SignalSent,
    SliceAgents,
    SliceFidelity,
)
from mrc_machines.sources import sources, version
from mrc_machines.stream import Message, StreamBroken, StreamEnd
from mrc_topo.base import rpc
from mrc_topo.base.plain import encode
from mrc_topo.placement import MACHINE, Placement, TunnelEnd
from mrclab.lab import lifecycle
from mrclab.lab.processes.namespaces import has_time_namespaces
from mrclab.lab.records import rundir
from mrclab.lab.records.record import LabRecord
from mrclab.lab.records.rundir import PART_VARIABLE, PARTS, RunDir, RunError, base, check_ours
from mrclab.lab.requested import LabRequest
from mrclab.lab.session.real import RealSession
from p4lite.scratch import scratch
from p4lite.switch.fabric.port import tunnel_socket

#: The role whose socket serves the verbs of this process; all other roles are the lab's processes.
VERBS = "part"
#: The slice ends when the coordinator is silent for this time.
SILENCE_S = 120.0
LOOK_S = 0.2
#: Linux' socket options for the MTU of the path to the peer.
IP_MTU, IPV6_MTU = 14, 24
IP_HEADERS = {socket.AF_INET: 28, socket.AF_INET6: 48}
TUNNEL_HEADER = 32


def open_tunnel(end: TunnelEnd) -> socket.socket:
    """Open the socket of a tunnel's end.

    Raises:
        RunError: the socket cannot be opened; the text says why.
    """
    try:
        return tunnel_socket(end.local, end.peer)
    except OSError as error:
        raise RunError(
            f"a tunnel from {end.local} to {end.peer}: {error.strerror or error}; `address` must be one of this "
            "machine's own, and the ports from `port_base` on free"
        ) from error


def path_mtu(opened: socket.socket) -> int:
    """Return the largest frame that a tunnel carries unfragmented: the MTU towards its peer minus the outer headers."""
    six = opened.family == socket.AF_INET6
    level, option = (socket.IPPROTO_IPV6, IPV6_MTU) if six else (socket.IPPROTO_IP, IP_MTU)
    return opened.getsockopt(level, option) - IP_HEADERS[opened.family] - TUNNEL_HEADER


class RemoteLabAgent:
    """Carries out the coordinator's requests for a slice. A separate thread does so one after another, so that requests
    for the time are answered meanwhile."""

    def __init__(self, source: int, sink: int) -> None:
        self.line = StreamEnd(source, sink, self.heard, self.opened)
        self.heard_at = time.monotonic()
        self.run: RunDir | None = None
        self._wanted: LabRequest | None = None
        self._machine = ""
        self._sockets: dict[str, socket.socket] = {}
        self._lifeline = -1
        self._session: RealSession | None = None
        self._asking = threading.Lock()
        # Any error becomes the answer for the other machine.
        self._carry_out = rpc.refusing(lambda verb, arguments, now: self._verbs()(verb, arguments, now), (Exception,))
        self._ended = threading.Event()
        self._left = contextlib.ExitStack()
        self._job: threading.Thread | None = None

    # --- the stream -----------------------------------------------------------------------------------

    def heard(self, message: Message) -> None:
        """Handle a message of the coordinator."""
        self.heard_at = time.monotonic()
        what = message.get("do")
        if what == "ping":
            self.line.send(said="pong", sent_ns=message["sent_ns"], t_ns=time.monotonic_ns())
        elif what in ("prepare", "probe", "start"):
            work = {"prepare": self._prepare, "probe": self._probe, "start": self._start}[what]
            self._job = threading.Thread(target=self._done, args=(what, work, message), daemon=True)
            self._job.start()
        elif what == "end":
            # The stream stays open, so that the coordinator learns when the slice has ended.
            threading.Thread(target=self._leave, daemon=True).start()

    def _done(self, what: str, work: Callable[[Message], Message], message: Message) -> None:
        try:
            try:
                answer = work(message)
            except Exception as error:  # noqa: BLE001 - the other machine reports whatever it was
                text = str(error) or type(error).__name__
                self.line.send(said="failed", what=what, error=text)
            else:
                self.line.send(said=what, **answer)
        except StreamBroken:
            self._ended.set()

    def opened(self, role: str) -> socket.socket:
        """Connect to a process of the lab, or to this one."""
        if role == VERBS:
            ours, theirs = socket.socketpair()
            threading.Thread(target=self._serve, args=(ours,), daemon=True).start()
            return theirs
        if self.run is None or role not in self._roles():
            raise FileNotFoundError(role)
        made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            made.connect(str(self.run.socket(role)))
        except OSError:
            made.close()
            raise
        return made

    def _roles(self) -> set[str]:
        record = self._record()
        return {*record.hosts, *record.fabric}

    # --- from nothing to a lab ------------------------------------------------------------------------

    def _prepare(self, message: Message) -> Message:
        """Check everything that can be checked before anything runs, and open the tunnels."""
        machine, text = str(message["machine"]), str(message["lab"])
        if not MACHINE.match(machine):
            raise RunError("its name is not the name of a machine")
        os.environ.pop(PART_VARIABLE, None)
        folder = base() / PARTS / machine
        for each in (base(), base() / PARTS, folder):
            each.mkdir(exist_ok=True, mode=0o700, parents=each == base())
            check_ours(each)
        os.environ["MRCLAB_RUN"] = str(folder)
        given = self._left.enter_context(scratch("part"))
        (given / "lab.yaml").write_text(text, encoding="utf-8")
        wanted = LabRequest.of(str(given / "lab.yaml"), str(message["transport"]), clock="real")
        placement = Placement(wanted.topology)
        if machine not in placement.machines:
            raise RunError(f"the lab file has no machine {machine}")
        lifecycle.check()
        run = RunDir(wanted.topology.lab.name)
        if run.exists() and not run.is_dead():
            raise RunError(f"a part of a lab '{run.name}' is up there already; end it first")
        frames = 1 << 16
        for link, end in placement.ends(machine).items():
            self._sockets[link] = self._left.enter_context(open_tunnel(end))
            with contextlib.suppress(OSError):
                frames = min(frames, path_mtu(self._sockets[link]))
        self._wanted, self._machine = wanted, machine
        return {"frame_bytes": frames, "time_namespaces": has_time_namespaces()}

    def _probe(self, message: Message) -> Message:
        """Probe the tunnels while the other slices do."""
        return {"silent": probe.probe(self._sockets, str(message["token"]))}

    def _start(self, message: Message) -> Message:
        """Bring the slice up."""
        if self._wanted is None:
            raise RunError("nothing is prepared")
        probe.drain(self._sockets)
        run = self.run = RunDir(self._wanted.topology.lab.name)
        reading, self._lifeline = os.pipe()
        sockets = {link: each.fileno() for link, each in self._sockets.items()}
        part = LabSlice(self._machine, sockets, reading, int(message["clock_ahead_ns"]), str(message["key"]))
        try:
            lifecycle.up(self._wanted, self._progress, part=part)
        finally:
            os.close(reading)
            # The lab has the descriptors now, and they end with it.
            for each in self._sockets.values():
                each.close()
        self._session = RealSession(run.name)
        threading.Thread(target=self._watch, daemon=True).start()
        return {"record": encode(self._record())}

    def _progress(self, text: str) -> None:
        with contextlib.suppress(StreamBroken):
            self.line.send(said="progress", text=text)

    def _record(self) -> LabRecord:
        assert self.run is not None
        try:
            return self.run.folder.read()
        except (OSError, ValueError):
            return LabRecord(phase="ending")

    def _watch(self) -> None:
        """Forward the slice's record to the coordinator, and report the slice's death."""
        run, session = self.run, self._session
        assert run is not None
        assert session is not None
        known = ""
        with contextlib.suppress(StreamBroken):
            while not self._ended.is_set():
                record, alive = self._record(), session.first.alive()
                if not alive:
                    record.deaths = run.deaths(session.first)
                text = json.dumps([encode(record), alive])
                if text != known:
                    known = text
                    self.line.send(said="record", record=encode(record), alive=alive)
                self._ended.wait(LOOK_S)

    # --- verbs ----------------------------------------------------------------------------------------

    def _serve(self, peer: socket.socket) -> None:
        """Answer requests one after another, as a host's agent does."""
        with contextlib.suppress(OSError), peer, peer.makefile("rb") as lines:
            for line in lines:
                with self._asking:
                    answer = rpc.answer_to(line, self._carry_out, time.monotonic_ns())
                peer.sendall(answer + b"\n")

    def _verbs(self) -> rpc.Verbs:
        session = self._session
        if session is None:
            raise RunError(f"the part on {self._machine} is not up")
        verbs = rpc.Verbs()
        verbs.add(MeasureFidelity, lambda request, now: SliceFidelity(session.fidelity()))
        verbs.add(ListAgents, lambda request, now: SliceAgents(session.agents()))
        verbs.add(SignalProcess, lambda request, now: SignalSent(session.signal_process(request.role, request.number)))

        def carrier(request: SetCarrier, now: int) -> rpc.Done:
            session.set_carrier(request.host, request.port, request.up)
            return rpc.Done()

        def agent(request: ControlAgent, now: int) -> rpc.Done:
            actions[request.action](request.host)
            return rpc.Done()

        verbs.add(SetCarrier, carrier)
        verbs.add(ControlAgent, agent)
        actions: dict[str, Callable[[str], object]] = {
            "freeze": session.freeze_agent,
            "thaw": session.thaw_agent,
            "kill": session.kill_agent,
            "restart": session.restart_agent,
        }
        return verbs

    # --- the end --------------------------------------------------------------------------------------

    def _leave(self) -> None:
        """Take the slice down and report it."""
        self._down()
        with contextlib.suppress(StreamBroken):
            self.line.send(said="ended")
        self._ended.set()

    def _down(self) -> None:
        """End what runs, and what is still starting as soon as that is possible."""
        run, job = self.run, self._job
        while run is not None:
            with contextlib.suppress(RunError):
                rundir.down(run.name)
            if job is None or not job.is_alive():
                break
            job.join(LOOK_S)

    def stop(self, *_: object) -> None:
        """End the slice as if the stream had ended."""
        self._ended.set()

    def serve(self) -> None:
        """Serve until the coordinator ends the slice or is silent, or until SIGTERM; then remove the slice."""

        def listen() -> None:
            try:
                self.line.listen()
            except StreamBroken as error:
                print(f"mrclab part: {error}", file=sys.stderr)
            self._ended.set()

        with self._left:
            self.line.greet()
            self.line.send(said="here", version=version(), sources=sources())
            threading.Thread(target=listen, daemon=True).start()
            while not self._ended.wait(1.0):
                if time.monotonic() - self.heard_at > SILENCE_S:
                    print(f"mrclab part: no word of the lab's coordinator for {SILENCE_S:.0f} s", file=sys.stderr)
                    break
            self._down()


def main() -> int:
    """Run as the entry point of `mrclab part`; standard output is the stream's alone."""
    if sys.stdin.isatty():
        print("mrclab: error: `mrclab part` is started by `mrclab up`, on each machine of a lab", file=sys.stderr)
        return 2
    source, sink = os.dup(0), os.dup(1)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(2, 1)
    station = RemoteLabAgent(source, sink)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, station.stop)
    try:
        station.serve()
    except StreamBroken as error:
        print(f"mrclab part: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
