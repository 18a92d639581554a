"""The interpreter: a switch of the architecture that its program is for."""

from __future__ import annotations

from p4lite.recursion import deep_recursion
from p4lite.switch.bmv2.model import Bmv2Architecture
from p4lite_tools.interpreter.core import InterpreterCore, Output
from p4lite_tools.interpreter.psa import PsaSwitch
from p4lite_tools.interpreter.v1model import V1ModelSwitch

PATHS: dict[Bmv2Architecture, type[V1ModelSwitch] | type[PsaSwitch]] = {
    Bmv2Architecture.V1MODEL: V1ModelSwitch,
    Bmv2Architecture.PSA: PsaSwitch,
}


class Interpreter(InterpreterCore):
    """One switch that interprets a program; `InterpreterCore` has its arguments.

    Control operations are those of `InterpreterTables` and `InterpreterState`.
    """

    def _start(self) -> None:
        self._paths = PATHS[self.program.architecture](self)
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
