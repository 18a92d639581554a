"""A live view in a thread of the test's, commanded as the server would."""

from __future__ import annotations

import contextlib
import pathlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from mrclab.runs.experiment import Experiment
from mrclab.web import metrics
from mrclab.web.hub import CommandAnswer, Hub
from mrclab.web.lab import SimulationView
from mrclab.web.server import Server, Serving, serving
from mrclab.web.state import ViewState

WAIT_S = 60.0
LINK = "p0-t0.0--p0-t1.0"
#: Of another lab than most tests look at.
SHORT = Experiment.model_validate(
    {
        "name": "short",
        "title": "A link loses packets for a while",
        "lab": "spray",
        "workload": {"name": "ring_all_reduce", "params": {"size_bytes": 32768}, "duration": 0.6},
        "schedule": [
            {"at": 0.2, "fail": LINK, "settings": {"loss": 0.3}, "evidence": {"dropped": 1}},
            {"at": 0.4, "restore": LINK},
        ],
        "expect": {"valid": False},
    }
)


class Stopped(BaseException):
    """The test is over."""


class Watching:
    """A view that runs in a thread; `ask` commands it, `until` waits for a state."""

    def __init__(self, hub: Hub, go: Callable[[Callable[[], object]], object]) -> None:
        self.hub = hub
        self._over = threading.Event()
        self.error: BaseException | None = None
        #: The file of a captured port.
        self.captured: Callable[[str], pathlib.Path | None] = lambda port: None
        self._go = go
        self.thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        try:
            self._go(self._check)
        except Stopped:
            pass
        except BaseException as error:
            self.error = error
            self.hub.end()
            raise

    def _check(self) -> None:
        if self._over.is_set():
            raise Stopped

    def ask(self, name: str, /, **arguments: Any) -> CommandAnswer:
        """Return a command's answer."""
        return self.hub.submit(name, arguments).result(WAIT_S)

    def until(self, what: Callable[[ViewState], Any], wait_s: float = WAIT_S) -> ViewState:
        """Return the first state of which something is true."""
        deadline = time.monotonic() + wait_s
        while time.monotonic() < deadline and self.error is None:
            state = self.hub.state
            if state is not None and what(state):
                return state
            time.sleep(0.01)
        state = self.hub.state
        shown = (
            {key: value for key, value in state.items() if key not in ("hosts", "links", "switches")} if state else None
        )
        raise AssertionError(f"never so; the state is {shown}; error {self.error!r}")

    def stop(self) -> None:
        """End it."""
        self._over.set()
        self.hub.refuse_all("over")
        self.thread.join(WAIT_S)


@contextlib.contextmanager
def watching(hub: Hub, go: Callable[[Callable[[], object]], object]) -> Iterator[Watching]:
    """Yield a view in a thread for as long as the context lasts."""
    made = Watching(hub, go)
    made.thread.start()
    try:
        yield made
    finally:
        made.stop()


@contextlib.contextmanager
def simulating(
    lab: str = "tiny", first: Experiment | None = None, *, speed: float = 1.0, paused: bool = False
) -> Iterator[Watching]:
    """Yield a view of a simulation, which knows one experiment, `SHORT`."""
    hub = Hub()
    view = SimulationView(hub, lab, "mrc", lambda name: SHORT, [SHORT.name], speed=speed, paused=paused, first=first)
    with watching(hub, view.go) as made:
        made.captured = view.view.captures.file
        try:
            yield made
        finally:
            made.stop()
            view.view.close()


@contextlib.contextmanager
def served(hub: Hub, captured: Callable[[str], pathlib.Path | None] = lambda port: None) -> Iterator[Serving]:
    """Yield a server of a hub on a port of its own."""
    with serving(Server(hub, captured, metrics.render), "127.0.0.1", 0) as made:
        yield made
