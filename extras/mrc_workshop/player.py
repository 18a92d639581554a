"""The process that has a learner's Python: loads its classes, and answers for them (`standins` asks).

It knows what the public interfaces of `mrc_host.policy` tell, and nothing else of a run: no seed, no schedule, no
packet.
"""

from __future__ import annotations

import contextlib
import pathlib
import random
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import TYPE_CHECKING, Any

from mrc_host import policy
from mrc_host.policy import PolicyError
from mrc_host.proto.limits import ConfigError
from mrc_workshop.mirrors import MIRRORS, LossMirror
from mrc_workshop.wire import Wire, WireError

TraceFunction = Callable[[FrameType, str, Any], Any]
#: The CPU time of one call of a learner's code. Calls take microseconds.
CALL_CPU_S = 10

if TYPE_CHECKING:
    from mrclab.lab.management.clustermapper import Views


class EndlessLoop(BaseException):
    """Raised at a line of a learner's code that computes for too long. `except Exception` does not catch it."""


class LearnerObjects:
    """The classes and objects of one run."""

    def __init__(self, wire: Wire, learner: pathlib.Path) -> None:
        self._wire = wire
        self._learner = learner
        self._made: list[Any] = []
        self._lab = ""
        self._topology: Any = None

    def serve(self) -> None:
        """Answer requests until the other end is gone."""
        while True:
            try:
                word, *given = self._wire.receive()
            except WireError:
                return
            try:
                with self._bounded():
                    answer = getattr(self, f"_{word}")(*given)
            except ConfigError as error:
                self._wire.send(["config", self._shown(error)])
            except (EndlessLoop, PolicyError) as error:
                self._wire.send(["policy", self._shown(error)])
            except BaseException as error:  # noqa: BLE001 - whatever a learner's class does is an answer
                self._wire.send(["policy", f"{type(error).__name__}: {self._shown(error)}"])
            else:
                self._wire.send(["ok", *answer])

    @contextlib.contextmanager
    def _bounded(self) -> Iterator[None]:
        """End what computes for longer than any sensible call: an endless loop gets the line that it is at."""

        def expire(_number: int, frame: FrameType | None) -> None:
            # A handler must not raise: it may run within compiled code, or while an answer is sent. So the learner's
            # next line does. The loop may catch what ends it; then it is ended again.
            while frame is not None:
                if self._is_learners(frame):
                    frame.f_trace = trace
                frame = frame.f_back
            sys.settrace(trace)

        def trace(frame: FrameType, event: str, _: object) -> TraceFunction | None:
            if not self._is_learners(frame):
                return None
            if event == "line":
                raise EndlessLoop(self._line(frame))
            return trace

        if threading.current_thread() is not threading.main_thread():
            yield  # signals go to the main thread, so other threads have no bound
            return
        before, traced = signal.signal(signal.SIGPROF, expire), sys.gettrace()
        signal.setitimer(signal.ITIMER_PROF, CALL_CPU_S, CALL_CPU_S / 10)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
            signal.signal(signal.SIGPROF, before)
            sys.settrace(traced)

    def _is_learners(self, frame: FrameType) -> bool:
        return frame.f_code.co_filename.startswith(f"{self._learner}/")

    def _line(self, frame: FrameType) -> str:
        code, took = frame.f_code, f"one call took more than {CALL_CPU_S} s of CPU time"
        where = f"{pathlib.Path(code.co_filename).name}:{frame.f_lineno}"
        return f"{where}: {took}; is there an endless loop at this line, in {code.co_name}()?"

    def _shown(self, error: BaseException) -> str:
        return str(error).replace(f"{self._learner}/", "")[:4000]

    def _draw(self, bits: int) -> int:
        self._wire.send(["draw", bits])
        return int(self._wire.receive()[0])

    def _fresh(self, lab: str) -> list[Any]:
        self._made.clear()
        self._lab, self._topology = lab, None
        random.seed(0)  # for a learner who uses Python's own generator
        return [None]

    def _load(self, kind: str, file: str, name: str) -> list[Any]:
        reference = f"{self._learner / file}:{name}"
        if kind == "localiser":
            from mrclab.lab.management import denylist

            self._made.append(denylist.load(reference))
        else:
            self._made.append((policy.load(reference, kind), MIRRORS[kind]))
        return [len(self._made) - 1]

    def _make(self, number: int, given: list[Any]) -> list[Any]:
        cls, mirror = self._made[number]
        made = mirror(cls, given, self._draw)
        self._made.append(made)
        return [len(self._made) - 1, None if isinstance(made, LossMirror) else made.told()]

    def _call(self, number: int, method: str, given: list[Any], state: Any) -> list[Any]:
        return list(self._made[number].call(method, given, state))

    def _locate(self, number: int, views: Views) -> list[Any]:
        if self._topology is None:
            from mrc_topo.labfile import parse_lab

            self._topology = parse_lab(self._lab, "lab")
        found = self._made[number].locate(self._topology, views)
        return [[[each.element, each.state, list(each.witnesses)] for each in found]]


def main(wire: Wire, scratch: pathlib.Path, isolation: dict[str, bool]) -> int:
    """Answer the simulation's requests until it is over."""
    wire.send(["hello", isolation])
    LearnerObjects(wire, scratch / "learner").serve()
    return 0
