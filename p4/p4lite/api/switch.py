"""A switch in this process, for tests and notebooks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from typing import Literal

from p4lite.api.arrays import Counter, MeterArray, Named, Register
from p4lite.api.backends import CompiledBackend, InterpreterBackend
from p4lite.api.control import Backend, Control
from p4lite.api.program import Program
from p4lite.api.tables import Table
from p4lite.interpreter.events import Observer
from p4lite.interpreter.primitives import PythonExtern
from p4lite.switch.errors import BuildError, InterpretedOnly, InvalidArgument
from p4lite.switch.fabric.values import CloneSession, Replica
from p4lite.switch.multicast import Replication
from p4lite.switch.program.facts import Array
from p4lite.switch.program.facts import Table as TableFacts

BackendName = Literal["compiled", "interpreter"]
PORTS = range(64)
#: A replica as it can be given: a port, or (port, rid).
ReplicaLike = int | tuple[int, int] | Replica


def _replica(given: ReplicaLike) -> Replica:
    if isinstance(given, Replica):
        return given
    return Replica(given) if isinstance(given, int) else Replica(*given)


class MulticastGroups(MutableMapping[int, tuple[Replica, ...]]):
    """Multicast groups: `switch.multicast[1] = [1, 2, (3, 7)]`, ports or (port, rid)."""

    def __init__(self, replication: Replication) -> None:
        self._replication = replication

    def __getitem__(self, group: int) -> tuple[Replica, ...]:
        return self._replication.multicast_groups()[group]

    def __setitem__(self, group: int, replicas: Sequence[ReplicaLike]) -> None:
        self._replication.set_multicast_group(group, [_replica(r) for r in replicas])

    def __delitem__(self, group: int) -> None:
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
        return self._replication.clone_sessions()[session]

    def __setitem__(self, session: int, config: CloneSession | int) -> None:
        made = CloneSession(port=config) if isinstance(config, int) else config
        self._replication.set_clone_session(session, made)

    def __delitem__(self, session: int) -> None:
        self._replication.delete_clone_session(session)

    def __iter__(self) -> Iterator[int]:
        return iter(self._replication.clone_sessions())

    def __len__(self) -> int:
        return len(self._replication.clone_sessions())


class Switch:
    """A switch that runs a program, on a clock that only `advance` moves.

    Args:
        program: what `p4lite.compile` returns.
        backend: "compiled" (C in this process) or "interpreter". None: compiled, unless there is no C compiler, the
            program is not for v1model, or `observers` or `externs` are given, which only the interpreter has.
        ports: the numbers of its ports; packets to others are dropped.
        seed: of the program's random().
        priority_queues: of every port; packets of a higher priority are dropped.
        observers: functions that get every event (`p4lite.interpreter.events`).
        externs: a Python object for each extern instance of the program, by its name.
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
        watched = bool(observers or externs)
        if backend == "compiled" and watched:
            raise InvalidArgument("observers and externs need the interpreter: leave backend out, or write interpreter")
        self.program = program
        self._backend: Backend | None = None
        if backend != "interpreter" and not watched:
            try:
                self._backend = CompiledBackend(program, ports, seed, priority_queues)
            except (BuildError, InterpretedOnly):
                if backend == "compiled":
                    raise
        self.backend: BackendName = "interpreter" if self._backend is None else "compiled"
        if self._backend is None:
            self._backend = InterpreterBackend(
                program, ports, seed, priority_queues, observers=observers, externs=externs
            )
        control = self.control
        facts = program.facts
        self.tables: Named[Table, TableFacts] = Named("table", facts.tables, lambda t: Table(self.control, t))
        self.registers: Named[Register, Array] = Named("register", facts.registers, lambda a: Register(control, a))
        self.counters: Named[Counter, Array] = Named("counter", facts.counters, lambda a: Counter(control, a))
        self.meters: Named[MeterArray, Array] = Named("meter", facts.meters, lambda a: MeterArray(control, a))
        self.multicast = MulticastGroups(self._running.replication)
        self.mirrors = MirrorSessions(self._running.replication)

    @property
    def _running(self) -> Backend:
        if self._backend is None:
            raise InvalidArgument("the switch is closed")
        return self._backend

    @property
    def control(self) -> Control:
        """The control operations under the mappings: see `ProgramInstance`."""
        return self._running.control

    @property
    def replication(self) -> Replication:
        """The operations on multicast groups and mirror sessions under the mappings."""
        return self._running.replication

    def send(self, port: int, data: bytes) -> list[tuple[int, bytes]]:
        """Send a packet in at a port; return what comes out because of it: (port, packet), in order."""
        return self._running.send(port, data)

    def advance(self, duration_ns: int) -> None:
        """Move the clock on."""
        self._running.advance(duration_ns)

    @property
    def now_ns(self) -> int:
        """The switch's clock, nanoseconds since it was made."""
        return self._running.now_ns

    def digests(self) -> list[tuple[str, tuple[int, ...]]]:
        """Return the digests since the last call: (name, values of the fields)."""
        return self._running.digests()

    def close(self) -> None:
        """Free the switch."""
        backend, self._backend = self._backend, None
        if backend is not None:
            backend.close()

    def __enter__(self) -> Switch:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
