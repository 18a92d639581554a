"""Between the thread that has the session and the server's event loop: the newest state, and commands on their way.

Nothing queues up here: a slow page receives the newest state when it is ready for it, and the log as far as it is
kept. What a page shows of the past comes from a history of bounded length.
"""

from __future__ import annotations

import asyncio
import collections
import concurrent.futures
import json
import queue
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from mrc_topo.base.plain import OMIT_NONE
from mrclab.web.log import Log
from mrclab.web.sampler import IDLE, POINT_NS, POINTS, without
from mrclab.web.state import Completions, Layout, Pair, ViewState

#: The limit of waiting commands.
WAITING: Final = 64


class CommandError(Exception):
    """A command that cannot be carried out; the text says why, and what would work."""


@dataclass(frozen=True)
class CommandAnswer:
    """The result of a command: `text` for people, the expected `loss` of capacity, or a `file` and its `name`."""

    text: str
    loss: float | None = field(default=None, metadata=OMIT_NONE)
    file: str | None = field(default=None, metadata=OMIT_NONE)
    name: str | None = field(default=None, metadata=OMIT_NONE)


@dataclass
class Command:
    """A command of a page; `done` gets the answer, or a CommandError."""

    name: str
    arguments: object
    done: concurrent.futures.Future[CommandAnswer] = field(default_factory=concurrent.futures.Future)


def encoded(document: object) -> bytes:
    """Return a document as JSON without spaces, in UTF-8."""
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode()


class Hub:
    """See the module's docstring. `publish`, `show` and `next_command` belong to the session's thread."""

    def __init__(self) -> None:
        self.log = Log()
        self.layout: Layout | None = None
        self.state: ViewState | None = None
        self.state_bytes = b""
        self.number = 0
        self.layouts = 0
        #: Rows of time, goodput, planes, hosts, in bits per second, and `Job.completion_ns`.
        self.history: collections.deque[list[int]] = collections.deque(maxlen=POINTS)
        #: The history of a whole recorded run, computed once.
        self.whole: list[list[int]] | None = None
        self.completions: Completions = without(IDLE)
        self.pairs: dict[tuple[str, str], bytes] = {}
        self.ended = False
        #: Called when there is something to show for the first time.
        self.announce: Callable[[], object] = bool
        self._wanted: collections.Counter[tuple[str, str]] = collections.Counter()
        self._commands: queue.Queue[Command] = queue.Queue(WAITING)
        self._awake = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._listeners: set[asyncio.Event] = set()
        self._lock = threading.Lock()

    # --- the session's thread ----------------------------------------------------------------------------

    def show(self, layout: Layout) -> None:
        """Show another lab, or the same lab again; the curves start over."""
        self.layouts += 1
        layout["number"] = self.layouts
        self.layout = layout
        self.state = None
        self.history.clear()
        self.whole = None
        self.completions = without(IDLE)
        self.pairs = {}
        if self.layouts == 1:
            self.announce()

    def publish(self, state: ViewState) -> None:
        """Publish the newest state."""
        self.number += 1
        state["number"] = self.number
        self.state = state
        self.state_bytes = encoded(state)
        last_ns = self.history[-1][0] if self.history else -POINT_NS
        job = state["job"] or {}
        # A workload that ran since the last row has its time in this one, however short it was.
        ended = last_ns < job.get("ended_ns", -1) <= state["t_ns"]
        if state["t_ns"] - last_ns >= POINT_NS or ended:
            planes = [plane["rx_bps"] for plane in state["planes"]]
            hosts = [host.get("goodput_bps", 0) for host in state["hosts"]]
            completion_ns = job.get("completion_ns", 0) if job.get("running") or ended else 0
            self.history.append([state["t_ns"], state["goodput_bps"], *planes, *hosts, completion_ns])
        self._tell()

    def show_pairs(self, pairs: Mapping[tuple[str, str], Pair]) -> None:
        """Publish the newest numbers of the pairs that some page shows."""
        self.pairs = {key: encoded(pair) for key, pair in pairs.items()}

    def wanted(self) -> list[tuple[str, str]]:
        """Return the pairs of hosts that some page shows."""
        with self._lock:
            return list(self._wanted)

    def next_command(self) -> Command | None:
        """Return the oldest waiting command, or None."""
        try:
            return self._commands.get_nowait()
        except queue.Empty:
            return None

    def refuse_all(self, reason: str) -> None:
        """Refuse the waiting commands, because the view ends."""
        while (command := self.next_command()) is not None:
            command.done.set_exception(CommandError(reason))

    def wait(self, seconds: float) -> None:
        """Sleep for this time, or until a command arrives."""
        if seconds > 0:
            self._awake.wait(seconds)
        self._awake.clear()

    def end(self) -> None:
        """Mark the stream as ended: refuse the waiting commands and wake the waiting pages."""
        self.ended = True
        self.refuse_all("the command has ended")
        self._tell()

    def _tell(self) -> None:
        loop = self._loop
        if loop is not None and not loop.is_closed():
            try:
                loop.call_soon_threadsafe(self._wake)
            except RuntimeError:  # it was closed just now
                return

    # --- the server's loop -------------------------------------------------------------------------------

    def attach(self, loop: asyncio.AbstractEventLoop) -> None:
        """Set the event loop on which `listen` is used."""
        self._loop = loop

    def _wake(self) -> None:
        for each in self._listeners:
            each.set()

    def listen(self) -> asyncio.Event:
        """Return an event that is set whenever there is something new, until `ignore`."""
        made = asyncio.Event()
        made.set()
        self._listeners.add(made)
        return made

    def ignore(self, listener: asyncio.Event) -> None:
        """End `listen`."""
        self._listeners.discard(listener)

    def want(self, pair: tuple[str, str], more: int) -> None:
        """Count a page that begins (1) or ceases (-1) to show a pair of hosts."""
        with self._lock:
            self._wanted[pair] += more
            if self._wanted[pair] <= 0:
                del self._wanted[pair]
        self._awake.set()

    def submit(self, name: str, arguments: object) -> concurrent.futures.Future[CommandAnswer]:
        """Hand a command to the session's thread.

        Raises:
            CommandError: too many commands wait.
        """
        command = Command(name, arguments)
        if self.ended:
            raise CommandError("the command has ended; start it again")
        try:
            self._commands.put_nowait(command)
        except queue.Full:
            raise CommandError("too many commands wait; try again in a moment") from None
        self._awake.set()
        return command.done
