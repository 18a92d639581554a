"""The interpreter: a switch of the architecture that its program is for."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from p4lite.recursion import deep_recursion
from p4lite.switch.bmv2.model import Bmv2Architecture
from p4lite.switch.program.facts import Facts
from p4lite_tools.interpreter.core import DROP_PORT, InterpreterCore, Output
from p4lite_tools.interpreter.events import Observer
from p4lite_tools.interpreter.primitives import PythonExtern
from p4lite_tools.interpreter.psa import PsaSwitch
from p4lite_tools.interpreter.v1model import V1ModelSwitch

PATHS: dict[Bmv2Architecture, type[V1ModelSwitch] | type[PsaSwitch]] = {
    Bmv2Architecture.V1MODEL: V1ModelSwitch,
    Bmv2Architecture.PSA: PsaSwitch,
}


class Interpreter(InterpreterCore):
    """One switch that interprets a program. Control operations are those of `InterpreterTables` and `InterpreterState`.

    `ports`: the numbers of its ports, None for any; packets to others are dropped. `externs`: a Python object for each
    extern instance of the program, by its name. `strict`: what P4 leaves undefined raises AssertionFailed.
    Raises ProgramError for a document that it cannot run.
    """

    def __init__(
        self,
        program: Facts,
        *,
        seed: int = 1,
        drop_port: int = DROP_PORT,
        ports: Collection[int] | None = None,
        priority_queues: int = 1,
        strict: bool = False,
        externs: Mapping[str, PythonExtern] | None = None,
        observers: Sequence[Observer] = (),
    ) -> None:
        with deep_recursion():
            super().__init__(
                program,
                seed=seed,
                drop_port=drop_port,
                ports=ports,
                priority_queues=priority_queues,
                strict=strict,
                externs=externs,
                observers=observers,
            )
        self._paths = PATHS[program.architecture](self)
        self.parser = self._paths.parser
        """The parser that packets from outside enter."""

    def process(self, port: int, data: bytes, *, now_ns: int | None = None) -> list[Output]:
        """Return everything that is sent because of one packet, in order.

        `now_ns` is the time on the switch's clock, by default the latest.
        """
        if now_ns is not None:
            self.now_ns = now_ns
        with deep_recursion():
            sent = self._paths.process(port, data)
        self.current = None
        return sent
