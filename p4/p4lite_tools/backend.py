"""The interpreter as a switch of the API; `p4lite.api.program` finds it by its entry point."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from p4lite.api.program import Program, switch_seed
from p4lite_tools.interpreter.events import Observer
from p4lite_tools.interpreter.machine import Interpreter
from p4lite_tools.interpreter.primitives import PythonExtern


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
