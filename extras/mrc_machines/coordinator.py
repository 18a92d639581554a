"""Keeps a lab that is on several machines: reaches its parts, brings them up, and stands for them in the run directory.

    python -m mrc_machines.coordinator NAME < ORDER

The coordinator is the lab's first process. It begins when it is given its order, a line of JSON (`CoordinatorOrder`),
by which time it is recorded. For every process of a part that has a socket it has one here, and hands on connections;
what the parts say of themselves it writes into one record. When it ends, however it ends, the streams to the parts end,
and with them the parts.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import secrets
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace

from mrc_machines.clock import Clock, ClockOffset
from mrc_machines.remote import VERBS
from mrc_machines.sources import sources, version
from mrc_machines.stream import Message, StreamBroken, StreamEnd
from mrc_topo.base.files import write_whole
from mrc_topo.base.plain import OMIT_NONE, DecodeError, decode, encode
from mrc_topo.labfile import load_lab
from mrc_topo.placement import Placement
from mrclab.lab.processes.process import MACHINE, ProcessExit, Role, cause
from mrclab.lab.records.record import LabRecord, read_untrusted
from mrclab.lab.records.rundir import RunDir, RunError
from mrclab.lab.session.fidelity import ClockFidelity
from p4lite.switch.fabric.values import TUNNEL_KEY_BYTES

#: The file of what the coordinator records of the machines, beside the lab's record.
MACHINES = "machines.json"
#: The time until a machine's first message, and until an answer, if each busy process has a core. When the cores are
#: shared, time counts less, by the load per core of this machine.
REACH_S = 180.0
PREPARE_S = 180.0
#: A machine that is silent for this time is lost: while its slice comes up, and once the lab is up. The coordinator
#: pings it every `PING_S`, and a separate thread of the remote agent answers.
SILENCE_S = 60.0
SILENCE_UP_S = 8.0
END_S = 15.0
PING_S = 1.0
LOOK_S = 0.1
#: The exchanges that set the clock before the lab starts: at least this many, and more within a limited time until the
#: offset is certain enough.
PINGS = 16
WELL_NS = 1_000_000
MEASURE_S = 15.0
#: A clock within this offset stays as it is: two slices on one machine have the same.
SAME_CLOCK_NS = 1_000_000
SAID = 200


@dataclass(frozen=True)
class SliceReadiness:
    """What a slice has reported before it came up: the largest frame that goes through its tunnels in one piece, and
    whether its kernel can give it another clock."""

    frame_bytes: int
    time_namespaces: bool


@dataclass(frozen=True)
class MachineKnown:
    """The coordinator's data about a machine: how it was lost, its clock, and its report (`SliceReadiness`)."""

    lost: str | None = None
    clock: ClockFidelity | None = None
    frame_bytes: int | None = field(default=None, metadata=OMIT_NONE)
    time_namespaces: bool | None = field(default=None, metadata=OMIT_NONE)


def recorded_machines(run: RunDir) -> dict[str, MachineKnown]:
    """Return the coordinator's record of each machine."""
    try:
        return decode(dict[str, MachineKnown], json.loads(read_untrusted(run.folder.path / MACHINES)), lenient=True)
    except (OSError, ValueError, DecodeError):
        return {}


def silent_tunnels(placement: Placement, silent: Mapping[str, Sequence[str]]) -> list[str]:
    """Return a message for each tunnel through which no datagram came.

    Args:
        placement: that of the lab.
        silent: by machine, the links through which nothing has arrived there.
    """
    found = []
    for machine, links in silent.items():
        ends = placement.ends(machine)
        for link in links:
            if link in ends:
                end = ends[link]
                found.append(
                    f"tunnel {link}: no datagram from {end.peer} arrives at machine {machine} ({end.local}); let UDP "
                    "through on the way, and check `address` and `port_base` of both machines"
                )
    return found


class BringUpCancelled(Exception):
    """The coordinator received a signal to end while the lab was coming up."""


class MachineError(Exception):
    """A machine that cannot run its slice; the text does not name it."""


@dataclass(frozen=True)
class CoordinatorOrder:
    """The coordinator's order. `commands` start the slice on each machine."""

    commands: dict[str, list[str]]
    transport: str

    def line(self) -> str:
        """Return the order as one line of JSON."""
        return json.dumps(asdict(self)) + "\n"


def processes_per_core() -> float:
    """Return the number of processes per core of this machine that run or wait for it, at least 1."""
    return max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))


class RemoteMachine:
    """The coordinator's connection to one machine."""

    def __init__(self, name: str, command: Sequence[str]) -> None:
        self.name = name
        self.command = command
        self.clock = Clock()
        self.record = LabRecord()
        self.ahead_ns = 0
        self.set_within_ns = 0
        #: How the machine was lost; None while it is not.
        self.lost: ProcessExit | None = None
        self.ended = False
        self.facts: SliceReadiness | None = None
        self.tell: Callable[[str], object] = bool
        self._said = ""
        self._answers: dict[str, Message] = {}
        self._changed = threading.Condition()
        #: Whether any message has come from it, and how many seconds have passed since the last one.
        self._heard = False
        self._silent_s = 0.0
        self._looked = time.monotonic()
        #: The machine is lost after this many silent seconds.
        self.silence_s = SILENCE_S
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.line = StreamEnd(self.process.stdout.fileno(), self.process.stdin.fileno(), self._hear)
        self._echoing = threading.Thread(target=self._echo, daemon=True)
        self._echoing.start()
        for work in (self._listen, self._keep_asking):
            threading.Thread(target=work, daemon=True).start()

    # --- what it says ---------------------------------------------------------------------------------

    def _echo(self) -> None:
        """Copy what ssh and the remote agent print beside the stream into the log."""
        assert self.process.stderr is not None
        for raw in self.process.stderr:
            text = "".join(each for each in raw.decode(errors="replace") if each.isprintable()).strip()
            if text:
                self._said = text[-SAID:]
                print(f"{self.name}: {text}", file=sys.stderr, flush=True)

    def _listen(self) -> None:
        how = ""
        try:
            self.line.await_greeting()
            self.line.listen()
        except StreamBroken as error:
            how = str(error)
        except (KeyError, TypeError, ValueError, DecodeError) as error:
            how = f"a message of it cannot be understood ({type(error).__name__}: {error})"
        if how:
            self.process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(END_S)
        self._echoing.join(1.0)  # its last lines say why
        self.lose(how or self._end_of_process())

    def _end_of_process(self) -> str:
        code = self.process.returncode
        program = pathlib.Path(self.command[0]).name
        what = "does not end" if code is None else cause(code)
        return f"`{program} ...`, which leads there, {what}{self._said and f': {self._said}'}"

    def lose(self, how: str) -> None:
        """Mark the machine as lost."""
        with self._changed:
            if self.lost is None:
                self.lost = ProcessExit.now(f"{MACHINE}{self.name}", f"is lost: {how}")
            self._changed.notify_all()

    def _hear(self, message: Message) -> None:
        now = time.monotonic_ns()
        said = message.get("said")
        with self._changed:
            self._heard = True
            self._silent_s = 0.0
            if said == "pong":
                self.clock.add(ClockOffset.of(int(message["sent_ns"]), int(message["t_ns"]), now))
            elif said == "progress":
                self.tell(f"machine {self.name}: {message['text']}")
            elif said == "record":
                self._take(message)
            elif said == "ended":
                self.ended = True
            else:
                self._answers[str(said)] = message
            self._changed.notify_all()

    def _take(self, message: Message) -> None:
        """Read a remote agent's message, which is trusted no more than a lab's own files."""
        self.record = LabRecord.parse(message["record"])

    # --- what is asked of it --------------------------------------------------------------------------

    def answer(self, what: str, seconds: float, stopped: Callable[[], bool]) -> Message:
        """Wait for the next answer of a kind and return it.

        Raises:
            MachineError: no answer comes, or it is a refusal.
            StartCancelled: the coordinator received a signal to end.
        """
        waited, looked = 0.0, time.monotonic()
        with self._changed:
            while what not in self._answers:
                if "failed" in self._answers:
                    raise MachineError(str(self._answers["failed"]["error"]))
                if self.lost is not None:
                    raise MachineError(self.lost.how)
                if stopped():
                    raise BringUpCancelled
                self.check()
                now = time.monotonic()
                waited, looked = waited + (now - looked) / processes_per_core(), now
                if waited > seconds:
                    raise MachineError(f"does not answer within {seconds:.0f} s")
                self._changed.wait(LOOK_S)
            return self._answers.pop(what)

    def _keep_asking(self) -> None:
        """Request the time at intervals, in a separate thread, because a stream may block."""
        while self.lost is None:
            self._ask()
            time.sleep(PING_S)

    def _ask(self) -> None:
        with contextlib.suppress(StreamBroken):
            self.line.send(do="ping", sent_ns=time.monotonic_ns())

    def check(self) -> None:
        """Mark machines as lost that have been silent for too long.

        Time in which this process itself did not run does not count, because it could not read what arrived meanwhile.
        """
        now = time.monotonic()
        with self._changed:
            self._silent_s += min(now - self._looked, PING_S)
            self._looked = now
            silent = self._heard and self._silent_s > self.silence_s
        if self.lost is None and silent:
            self.lose(f"no word from it for {self.silence_s:.0f} s")
            self.process.kill()

    def measure(self, stopped: Callable[[], bool]) -> None:
        """Set the slice's clock to that of this machine.

        Raises:
            MachineError: the slice cannot have this clock.
        """
        deadline = time.monotonic() + MEASURE_S
        while self.lost is None and not stopped() and not self._clock_known(deadline):
            known = self.clock.count
            self._ask()
            with self._changed:
                if self.clock.count == known:
                    self._changed.wait(PING_S)
            self.check()
        best = self.clock.best
        if best is None:
            raise MachineError("does not tell its time")
        if abs(best.ahead_ns) > SAME_CLOCK_NS + best.uncertainty_ns:
            if self.facts is None or not self.facts.time_namespaces:
                raise MachineError(
                    f"its monotonic clock is {best.ahead_ns / 1e9:+.3f} s from ours, and its kernel cannot give the "
                    "lab another (CONFIG_TIME_NS, Linux 5.6)"
                )
            self.ahead_ns = -best.ahead_ns
        self.set_within_ns = best.uncertainty_ns

    def _clock_known(self, deadline: float) -> bool:
        best = self.clock.best
        if best is None or self.clock.count < PINGS:
            return False
        return best.uncertainty_ns <= WELL_NS or time.monotonic() > deadline

    def document(self) -> MachineKnown:
        """Return the data about the machine."""
        best = self.clock.best
        clock = None
        if best is not None:
            clock = ClockFidelity(
                off_ns=best.ahead_ns + self.ahead_ns,
                set_ns=self.ahead_ns,
                uncertainty_ns=best.uncertainty_ns,
                rtt_ns=best.rtt_ns,
                set_uncertainty_ns=self.set_within_ns,
            )
        known = MachineKnown(None if self.lost is None else self.lost.text(), clock)
        return known if self.facts is None else replace(known, **asdict(self.facts))

    def end(self, seconds: float) -> None:
        """End the slice, and close the connection to its machine."""
        deadline = time.monotonic() + seconds
        if self.lost is None:
            with contextlib.suppress(StreamBroken):
                self.line.send(do="end")
            with self._changed:
                while not self.ended and self.lost is None and time.monotonic() < deadline:
                    self._changed.wait(LOOK_S)
        if not self.ended:
            self.process.kill()  # a thread may still wait to write to it
        self.line.shut()
        assert self.process.stdin is not None
        with contextlib.suppress(OSError):
            self.process.stdin.close()
        try:
            self.process.wait(max(1.0, deadline - time.monotonic()) if self.lost is None else 1.0)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class LabCoordinator:
    """A lab on several machines, from start to end."""

    def __init__(self, run: RunDir, order: CoordinatorOrder) -> None:
        self.run = run
        self.order = order
        self.topology = load_lab(run.lab_file)
        self.placement = Placement(self.topology)
        self.posts: list[RemoteMachine] = []
        self.ended = False
        self.record = LabRecord(roles={"labd": os.getpid()})
        self._written = ""
        self._listeners: dict[str, socket.socket] = {}
        self._deaths: list[ProcessExit] = []

    def stop(self, *_: object) -> None:
        """Handle SIGTERM."""
        self.ended = True

    # --- coming up ------------------------------------------------------------------------------------

    def start(self) -> None:
        """Bring all slices up, each step on all machines before the next.

        Raises:
            RunError: a machine fails; the text names it.
            StartCancelled: a signal has asked the coordinator to end.
        """
        self.write()
        for name, command in self.order.commands.items():
            try:
                self.posts.append(RemoteMachine(name, command))
            except OSError as error:
                raise RunError(f"machine {name}: {command[0]}: {error.strerror}") from error
            self.record.roles[f"{MACHINE}{name}"] = self.posts[-1].process.pid
        self.write()
        text, key = self.run.lab_file.read_text(encoding="utf-8"), secrets.token_hex(TUNNEL_KEY_BYTES)
        token, own = secrets.token_hex(8), sources()
        silent: dict[str, list[str]] = {}

        def reach(post: RemoteMachine) -> None:
            post.tell = self.tell
            there = post.answer("here", REACH_S, self.is_ended)
            theirs, ours = there.get("version"), version()
            if theirs != ours:
                raise MachineError(f"there is mrclab {theirs}, here {ours}; install the same on all machines")
            if there.get("sources") != own:
                raise MachineError(
                    f"there is mrclab {theirs} of other sources ({there.get('sources')}) than here ({own}); install "
                    "the same on all machines"
                )
            post.line.send(do="prepare", machine=post.name, lab=text, transport=self.order.transport)
            said = post.answer("prepare", PREPARE_S, self.is_ended)
            post.facts = SliceReadiness(
                frame_bytes=int(said["frame_bytes"]), time_namespaces=bool(said["time_namespaces"])
            )
            post.measure(self.is_ended)

        def probe(post: RemoteMachine) -> None:
            post.line.send(do="probe", token=token)
            silent[post.name] = list(map(str, post.answer("probe", PREPARE_S, self.is_ended)["silent"]))

        def begin(post: RemoteMachine) -> None:
            post.line.send(do="start", key=key, clock_ahead_ns=post.ahead_ns)
            post._take(post.answer("start", float("inf"), self.is_ended))

        self._all(reach)
        self._all(probe)
        problems = silent_tunnels(self.placement, silent)
        if problems:
            raise RunError("; ".join(problems))
        self._all(begin, together=True)
        for post in self.posts:
            for role in [*post.record.hosts, *(f"{post.name}.{each}" for each in [*post.record.fabric, VERBS])]:
                self._listen(post, role)
        for post in self.posts:
            post.silence_s = SILENCE_UP_S
        # A command that finds the lab up finds this data, too.
        self.note()
        self.record.phase = "up"
        self.write()

    def _all(self, step: Callable[[RemoteMachine], None], *, together: bool = False) -> None:
        """Run a step on all machines at once. With `together`, the others stop when one fails."""
        problems, stopped = [], False

        def done(post: RemoteMachine) -> str:
            try:
                step(post)
            except (MachineError, StreamBroken) as error:
                return f"machine {post.name}: {error}"
            return ""

        with ThreadPoolExecutor(len(self.posts)) as pool:
            for each in [pool.submit(done, post) for post in self.posts]:
                try:
                    problems.append(each.result())
                except BringUpCancelled:
                    stopped = True
                if together and problems and problems[-1]:
                    self.ended = True
        if any(problems):
            raise RunError("; ".join(filter(None, problems)))
        if stopped:
            raise BringUpCancelled

    def is_ended(self) -> bool:
        """Return whether the coordinator has been asked to end."""
        return self.ended

    def tell(self, text: str) -> None:
        """Log a remote agent's progress."""
        print(text, file=sys.stderr, flush=True)

    # --- sockets --------------------------------------------------------------------------------------

    def _listen(self, post: RemoteMachine, role: str) -> None:
        """Forward connections to a role's socket here to the process of that role on its machine."""
        path = self.run.socket(role)
        made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        before = os.umask(0o177)
        try:
            made.bind(str(path))
        finally:
            os.umask(before)
        made.listen(64)
        self._listeners[role] = made
        there = role.removeprefix(f"{post.name}.")

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    peer, _ = made.accept()
                    try:
                        post.line.connect(there, peer)
                    except StreamBroken:
                        peer.close()

        threading.Thread(target=serve, daemon=True).start()

    def _close_unreachable(self, post: RemoteMachine) -> None:
        """Close the sockets of a machine that cannot be reached any more."""
        for role in [each for each in self._listeners if self._owner(each) is post]:
            self.run.socket(role).unlink(missing_ok=True)
            with contextlib.suppress(OSError):
                self._listeners.pop(role).shutdown(socket.SHUT_RDWR)

    def _owner(self, role: str) -> RemoteMachine | None:
        machine = self.placement.machine_of.get(role) or role.partition(".")[0]
        return next((post for post in self.posts if post.name == machine), None)

    # --- the record -----------------------------------------------------------------------------------

    def write(self) -> None:
        """Record the state if it has changed."""
        record = self.record
        order = {host.name: index for index, host in enumerate(self.topology.hosts)}
        hosts = {host: pid for post in self.posts for host, pid in post.record.hosts.items() if host in order}
        record.hosts = dict(sorted(hosts.items(), key=lambda each: order[each[0]]))
        record.fabric = {
            f"{post.name}.{role}": devices for post in self.posts for role, devices in post.record.fabric.items()
        }
        record.frozen = {
            self._role(post, role): since for post in self.posts for role, since in post.record.frozen.items()
        }
        for post in self.posts:
            if post.lost is not None and post.lost not in record.deaths and not self.ended:
                record.deaths.append(post.lost)
                self._close_unreachable(post)
            for death in post.record.deaths:
                known = ProcessExit(self._role(post, death.role), death.how, death.at_ns, death.at)
                if known not in record.deaths and not self.ended:
                    record.deaths.append(known)
        text = json.dumps(encode(record))
        if text != self._written:
            self._written = text
            self.run.folder.write(record)

    def _role(self, post: RemoteMachine, role: str) -> str:
        """Return the lab-wide name of a slice's role."""
        return role if self.placement.machine_of.get(Role.parse(role).name) == post.name else f"{post.name}.{role}"

    def note(self) -> None:
        """Record the further data about the machines."""
        document = {post.name: post.document() for post in self.posts}
        write_whole(self.run.folder.path / MACHINES, json.dumps(encode(document), indent=1))

    # --- being up, and the end ------------------------------------------------------------------------

    def wait(self) -> None:
        """Wait for SIGTERM or for the removal of the run directory; a lost machine does not end the wait."""
        noted = 0.0
        while not self.ended and self.run.state_file.exists():
            for post in self.posts:
                post.check()
            with contextlib.suppress(OSError):
                self.write()
                if time.monotonic() - noted > PING_S:
                    self.note()
                    noted = time.monotonic()
            time.sleep(LOOK_S)

    def end(self) -> None:
        """End all slices."""
        self.ended = True
        if self.record.phase != "failed":
            self.record.phase = "ending"
        with contextlib.suppress(OSError):
            self.write()
        with ThreadPoolExecutor(max(1, len(self.posts))) as pool:
            list(pool.map(lambda post: post.end(END_S), self.posts))


def main(argv: list[str]) -> int:
    """Run as the entry point."""
    if len(argv) != 1 or argv[0].startswith("-"):
        print((__doc__ or "").split("\n\n")[1], file=sys.stderr)
        return 2
    line = sys.stdin.readline()
    if not line:
        return 1
    os.umask(0o077)
    coordinator = LabCoordinator(RunDir(argv[0]), CoordinatorOrder(**json.loads(line)))
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, coordinator.stop)
    code = 0
    try:
        coordinator.start()
        coordinator.wait()
    except BringUpCancelled:
        pass
    except (RunError, OSError) as error:
        coordinator.record.phase, coordinator.record.error = "failed", str(error)
        with contextlib.suppress(OSError):
            coordinator.write()
        code = 1
    finally:
        coordinator.end()
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
