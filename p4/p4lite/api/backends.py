"""The two switches behind the API: the compiled one in a fabric on the virtual clock, and the interpreter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from p4lite.api.program import Program
from p4lite.interpreter.events import Observer
from p4lite.interpreter.machine import Interpreter
from p4lite.interpreter.primitives import PythonExtern
from p4lite.switch.fabric.fabric import Fabric
from p4lite.switch.fabric.switch import FabricSwitch
from p4lite.switch.fabric.values import NotificationKind, QueueLimits
from p4lite.switch.runtime.instance import ProgramInstance

DEVICE_ID = 1


def switch_seed(seed: int) -> int:
    """Return the seed of the program in switch DEVICE_ID of a fabric, whose random() the interpreter shall share."""
    return (seed * 0x9E3779B97F4A7C15 + DEVICE_ID * 0xD1342543DE82EF95) % (1 << 64) or 1


class CompiledBackend:
    """The program as compiled C, in a fabric of one switch whose ports are outside."""

    def __init__(self, program: Program, ports: Sequence[int], seed: int, priority_queues: int) -> None:
        self._fabric = Fabric("virtual", seed=seed)
        try:
            self._switch = self._fabric.add_switch(DEVICE_ID, priority_queues=priority_queues)
            self._switch.load(program.native)
            for port in ports:
                self._switch.add_port(port).set_queue(QueueLimits(packets=0))
        except BaseException:
            self._fabric.close()
            raise

    @property
    def control(self) -> ProgramInstance:
        return self._switch.instance

    @property
    def replication(self) -> FabricSwitch:
        return self._switch

    @property
    def now_ns(self) -> int:
        return self._fabric.now_ns

    def send(self, port: int, data: bytes) -> list[tuple[int, bytes]]:
        self._fabric.inject(self._switch.port(port), data)
        return [(out, frame) for _, _, out, frame in self._fabric.run_until(self._fabric.now_ns)]

    def advance(self, duration_ns: int) -> None:
        self._fabric.run_until(self._fabric.now_ns + duration_ns)

    def digests(self) -> list[tuple[str, tuple[int, ...]]]:
        lists = {d.id: d for d in self.control.program.learn_lists}
        notes = [n for n in self._fabric.notifications() if n.kind is NotificationKind.DIGEST]
        return [(lists[n.ident].name, lists[n.ident].split(n.data)) for n in notes]

    def close(self) -> None:
        self._fabric.close()


class InterpreterBackend:
    """The program interpreted."""

    def __init__(
        self,
        program: Program,
        ports: Sequence[int],
        seed: int,
        priority_queues: int,
        *,
        observers: Sequence[Observer] = (),
        externs: Mapping[str, PythonExtern] | None = None,
    ) -> None:
        self.interpreter = Interpreter(
            program.facts,
            seed=switch_seed(seed),
            ports=frozenset(ports),
            priority_queues=priority_queues,
            observers=observers,
            externs=externs,
        )

    @property
    def control(self) -> Interpreter:
        return self.interpreter

    @property
    def replication(self) -> Interpreter:
        return self.interpreter

    @property
    def now_ns(self) -> int:
        return self.interpreter.now_ns

    def send(self, port: int, data: bytes) -> list[tuple[int, bytes]]:
        return [(output.port, output.data) for output in self.interpreter.process(port, data)]

    def advance(self, duration_ns: int) -> None:
        self.interpreter.now_ns += duration_ns

    def digests(self) -> list[tuple[str, tuple[int, ...]]]:
        taken, self.interpreter.digests = self.interpreter.digests, []
        return taken

    def close(self) -> None:
        self.interpreter.observers = []
