"""A switch in this process, for tests and notebooks."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import replace
from functools import wraps
from typing import Any, Literal, TypeVar, cast

from p4lite.api.program import BACKENDS, CompiledBackend, Program, interpreter
from p4lite.api.tables import ProgramObjects
from p4lite.api.values import Backend, Control, Missing, Observer, PythonExtern, is_int
from p4lite.contributions import contributions
from p4lite.switch.errors import BuildError, InterpretedOnly, InvalidArgument
from p4lite.switch.fabric.values import (
    MAX_TIME_NS,
    CloneSession,
    FabricError,
    Replica,
    check_clone_session,
    check_multicast_group,
)
from p4lite.switch.multicast import Replication
from p4lite.switch.program.facts import DROP_PORT


class Gate:
    """Holds the backend; `with gate as backend:` makes other threads wait. Re-entrant, for observers and externs."""

    def __init__(self, backend: Backend) -> None:
        self._backend: Backend | None = backend
        self._lock = threading.RLock()

    def __enter__(self) -> Backend:
        self._lock.acquire()
        if self._backend is None:
            self._lock.release()
            raise InvalidArgument("the switch is closed")
        return self._backend

    def __exit__(self, *exc: object) -> None:
        self._lock.release()

    def close(self) -> None:
        """Close the backend after the call that runs, if any; without effect the second time."""
        with self._lock:
            backend, self._backend = self._backend, None
            if backend is not None:
                backend.close()


class _Guarded:
    """Offers the methods of a part of the backend; each call goes through the gate.

    Code that keeps this object, one of its methods or an iterator that it returned can therefore not reach a closed
    switch: the part is looked up in each call, and iterators are read to their end within it.
    """

    def __init__(self, gate: Gate, part: Callable[[Backend], Any]) -> None:
        self._gate, self._part = gate, part
        with gate as backend:
            self._stands_for: type[object] = type(part(backend))

    @property  # type: ignore[misc]
    def __class__(self) -> type[object]:  # type: ignore[override]
        """The class of the part, for `isinstance`: who looks into the interpreter asks whether it is one."""
        return self._stands_for

    def __setattr__(self, name: str, value: object) -> None:
        if name.startswith("_"):
            object.__setattr__(self, name, value)
            return
        with self._gate as backend:
            setattr(self._part(backend), name, value)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(f"a switch's operations do not include '{name}'")
        with self._gate as backend:
            found = getattr(self._part(backend), name)
        if not callable(found):
            return found

        @wraps(found)
        def call(*arguments: Any, **options: Any) -> Any:
            with self._gate as backend:
                result = getattr(self._part(backend), name)(*arguments, **options)
                return iter(list(result)) if isinstance(result, Iterator) else result

        return call


def guarded_control(gate: Gate) -> Control:
    """Return the control operations of the switch behind a gate."""
    return cast(Control, _Guarded(gate, lambda backend: backend.control))


def guarded_replication(gate: Gate) -> Replication:
    """Return the operations on multicast groups and mirror sessions of the switch behind a gate."""
    return cast(Replication, _Guarded(gate, lambda backend: backend.replication))


BackendName = Literal["compiled", "interpreter"]
PORTS = range(64)
#: The ports that tools give a switch.
ALL_PORTS = range(DROP_PORT)
MAX_PORT = 65535
MAX_PACKET = 65536
MAX_PRIORITIES = 8
T = TypeVar("T")
#: A replica as it can be given: a port, or (port, rid).
ReplicaLike = int | tuple[int, int] | Replica


def _replica(given: ReplicaLike) -> Replica:
    pair = (given.port, given.rid) if isinstance(given, Replica) else given if isinstance(given, tuple) else (given, 0)
    if len(pair) != 2 or not all(is_int(number) for number in pair):
        raise InvalidArgument(f"{given!r} is not a replica; write a port, (port, rid) or Replica(port, rid)")
    return Replica(*pair)


def _group(replication: Mapping[int, T], number: int, what: str) -> T:
    if number not in replication:
        raise Missing(f"there is no {what} {number!r}; there are: {', '.join(map(str, replication)) or 'none'}")
    return replication[number]


@contextmanager
def _as_invalid_argument() -> Iterator[None]:
    try:
        yield
    except FabricError as error:
        raise InvalidArgument(str(error)) from None


def _checked_number(number: int, what: str) -> int:
    if not is_int(number):
        raise InvalidArgument(f"{number!r} is not the number of a {what}; write an int")
    return number


def _checked_ports(ports: Sequence[int]) -> Sequence[int]:
    """Return the ports. Raises InvalidArgument, which says what is allowed."""
    if not isinstance(ports, Sequence | Set) or isinstance(ports, str | bytes):
        raise InvalidArgument(f"ports={ports!r}: a list of numbers is wanted")
    for port in ports:
        if not is_int(port) or not 0 <= port <= MAX_PORT or port == DROP_PORT:
            raise InvalidArgument(
                f"ports: {port!r} is not a port: an int from 0 to {MAX_PORT} without {DROP_PORT} (drop)"
            )
    if len(set(ports)) != len(ports):
        raise InvalidArgument("ports: a number is there twice")
    return ports if isinstance(ports, range) else tuple(ports)


def _named_ports(ports: Sequence[int]) -> str:
    if isinstance(ports, range) and ports.step == 1 and ports:
        return f"there are: {ports.start} to {ports.stop - 1}; Switch(program, ports=...) gives others"
    return f"there are: {', '.join(map(str, ports)) or 'none'}; Switch(program, ports=...) gives others"


def _packet(data: object) -> bytes:
    """Return the bytes of a packet. Raises InvalidArgument."""
    try:
        packet = data if type(data) is bytes else memoryview(data).tobytes()  # type: ignore[arg-type]
    except (TypeError, BufferError):
        what = type(data).__name__
        raise InvalidArgument(
            f"a packet is bytes (or bytearray, memoryview), not {what}; bytes.fromhex('0102') makes them of text"
        ) from None
    if len(packet) > MAX_PACKET:
        raise InvalidArgument(f"a packet of {len(packet)} bytes: {MAX_PACKET} are the most")
    return packet


class MulticastGroups(MutableMapping[int, tuple[Replica, ...]]):
    """Multicast groups: `switch.multicast[1] = [1, 2, (3, 7)]`, ports or (port, rid)."""

    def __init__(self, replication: Replication) -> None:
        self._replication = replication

    def __getitem__(self, group: int) -> tuple[Replica, ...]:
        return _group(self._replication.multicast_groups(), group, "multicast group")

    def __setitem__(self, group: int, replicas: Sequence[ReplicaLike]) -> None:
        if not isinstance(replicas, Sequence) or isinstance(replicas, str | bytes):
            raise InvalidArgument(f"{replicas!r} is not a list of replicas; write [1, 2, (3, 7)], ports or (port, rid)")
        given = [_replica(r) for r in replicas]
        with _as_invalid_argument():
            check_multicast_group("", _checked_number(group, "multicast group"), given)
        self._replication.set_multicast_group(group, given)

    def __delitem__(self, group: int) -> None:
        _ = self[group]
        self._replication.delete_multicast_group(group)

    def __iter__(self) -> Iterator[int]:
        return iter(self._replication.multicast_groups())

    def __len__(self) -> int:
        return len(self._replication.multicast_groups())


class MirrorSessions(MutableMapping[int, CloneSession]):
    """Mirror sessions: `switch.mirrors[250] = 3` (a port) or a CloneSession."""

    def __init__(self, replication: Replication) -> None:
        self._replication = replication

    def __getitem__(self, session: int) -> CloneSession:
        return _group(self._replication.clone_sessions(), session, "mirror session")

    def __setitem__(self, session: int, config: CloneSession | int) -> None:
        made = CloneSession(port=config) if is_int(config) else config
        if not isinstance(made, CloneSession):
            raise InvalidArgument(f"{config!r} is not a mirror session; write a port, or CloneSession(...)")
        numbers = [made.truncate_bytes, *(n for n in (made.port, made.mcast_group) if n is not None)]
        if not all(is_int(number) for number in numbers):
            raise InvalidArgument(f"{made!r}: its port, group and truncate_bytes are ints")
        made = replace(made, replicas=tuple(_replica(r) for r in made.replicas))
        with _as_invalid_argument():
            check_clone_session("", _checked_number(session, "mirror session"), made)
        self._replication.set_clone_session(session, made)

    def __delitem__(self, session: int) -> None:
        _ = self[session]
        self._replication.delete_clone_session(session)

    def __iter__(self) -> Iterator[int]:
        return iter(self._replication.clone_sessions())

    def __len__(self) -> int:
        return len(self._replication.clone_sessions())


class Switch:
    """A switch that runs a program, on a clock that only `advance` moves.

    Several threads may use a switch: one call at a time goes in, and the others wait. After `close` every call, also
    of what the switch has handed out before, raises InvalidArgument.

    Args:
        program: what `p4lite.compile` returns.
        backend: "compiled" (C in this process) or "interpreter". None: compiled, unless there is no C compiler, the
            program is not for v1model, or `observers` or `externs` are given, which only the interpreter has.
        ports: the numbers of its ports, 0 to 65535 without 511 (drop); packets to others are dropped.
        seed: of the program's random().
        priority_queues: of every port, 1 to 8; packets of a higher priority are dropped.
        observers: functions that get every event (`p4lite_tools.interpreter.events`).
        externs: a Python object for each extern instance of the program, by its name.

    Raises:
        InvalidArgument: an argument is wrong; the text says what is allowed.
        ProgramError: the program cannot be run.
        BuildError: the compiled switch was asked for and cannot be built.
    """

    def __init__(
        self,
        program: Program,
        *,
        backend: BackendName | None = None,
        ports: Sequence[int] = PORTS,
        seed: int = 1,
        priority_queues: int = 1,
        observers: Sequence[Observer] = (),
        externs: Mapping[str, PythonExtern] | None = None,
    ) -> None:
        if backend not in (None, "compiled", "interpreter"):
            raise InvalidArgument(f"there is no backend '{backend}': write compiled or interpreter")
        if not isinstance(program, Program):
            shown = repr(program) if isinstance(program, str) else f"a {type(program).__name__}"
            raise InvalidArgument(
                f"{shown} is not a program; write p4lite.Switch(p4lite.compile('router.p4')), or another file"
            )
        ports = _checked_ports(ports)
        if not is_int(priority_queues) or not 1 <= priority_queues <= MAX_PRIORITIES:
            raise InvalidArgument(f"priority_queues={priority_queues!r}: an int from 1 to {MAX_PRIORITIES} is wanted")
        if not is_int(seed):
            raise InvalidArgument(f"seed={seed!r}: an int is wanted")
        if not isinstance(observers, Sequence) or not all(callable(each) for each in observers):
            raise InvalidArgument("observers is a list of functions: write observers=[function]")
        if externs is not None and not isinstance(externs, Mapping):
            raise InvalidArgument("externs is a dict from names of extern instances to Python objects")
        watched = bool(observers or externs)
        if backend == "compiled" and watched:
            raise InvalidArgument("observers and externs need the interpreter: leave backend out, or write interpreter")
        self.program = program
        made: Backend | None = None
        if backend != "interpreter" and not watched:
            try:
                made = CompiledBackend(program, ports, seed, priority_queues)
            except (BuildError, InterpretedOnly):
                if backend == "compiled" or not contributions(BACKENDS):
                    raise
        self.backend: BackendName = "interpreter" if made is None else "compiled"
        if made is None:
            made = interpreter(program, ports, seed, priority_queues, observers=observers, externs=externs)
        self._ports = ports
        self._gate = Gate(made)
        control = self._control = guarded_control(self._gate)
        replication = self._replication = guarded_replication(self._gate)
        objects = ProgramObjects(control, self._gate, program.scopes)
        self.tables, self.registers = objects.tables, objects.registers
        self.counters, self.meters = objects.counters, objects.meters
        self.multicast = MulticastGroups(replication)
        self.mirrors = MirrorSessions(replication)

    @property
    def control(self) -> Control:
        """The control operations under the mappings: see `ProgramInstance`."""
        with self._gate:
            return self._control

    @property
    def replication(self) -> Replication:
        """The operations on multicast groups and mirror sessions under the mappings."""
        with self._gate:
            return self._replication

    def send(self, port: int, data: bytes) -> list[tuple[int, bytes]]:
        """Send a packet in at a port; return what comes out because of it: (port, packet), in order.

        `data` is bytes, or another object with the bytes of a packet, such as bytearray and memoryview. Raises
        InvalidArgument for a port that the switch does not have, other data, and packets beyond 65536 bytes.
        """
        if not is_int(port) or port not in self._ports:
            raise InvalidArgument(f"there is no port {port!r}; {_named_ports(self._ports)}")
        packet = _packet(data)
        with self._gate as backend:
            return backend.send(port, packet)

    def advance(self, duration_ns: int) -> None:
        """Move the clock on by a whole number of nanoseconds, which is not negative; at 2^63 ns the clock ends.

        Raises InvalidArgument, which says what is allowed.
        """
        if not is_int(duration_ns) or duration_ns < 0:
            raise InvalidArgument(
                f"the clock cannot advance by {duration_ns!r}: an int of nanoseconds, 0 or more, is wanted"
            )
        with self._gate as backend:
            if duration_ns > MAX_TIME_NS - backend.now_ns:
                raise InvalidArgument(
                    f"the clock cannot advance by {duration_ns} ns: it is at {backend.now_ns} ns and ends at "
                    f"{MAX_TIME_NS} ns"
                )
            backend.advance(duration_ns)

    @property
    def now_ns(self) -> int:
        """The switch's clock, nanoseconds since it was made."""
        with self._gate as backend:
            return backend.now_ns

    def digests(self) -> list[tuple[str, tuple[int, ...]]]:
        """Return the digests since the last call: (name, values of the fields)."""
        with self._gate as backend:
            return backend.digests()

    def close(self) -> None:
        """Free the switch; what it has handed out raises InvalidArgument from then on."""
        self._gate.close()

    def __enter__(self) -> Switch:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
