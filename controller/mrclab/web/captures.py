"""Packets of ports, written to files that a page may fetch: few at a time, of bounded size, gone with the view."""

from __future__ import annotations

import contextlib
import itertools
import pathlib
import re

from mrclab.lab.hosts.inside import check_here
from mrclab.lab.records.capture_tail import CaptureTail, place_of
from mrclab.lab.records.rundir import RunError
from mrclab.lab.session.base import Session
from mrclab.lab.session.real import RealSession
from mrclab.lab.session.virtual import VirtualSession
from mrclab.web.hub import CommandError
from p4lite.scratch import scratch

MOST = 8
MOST_BYTES = 64 << 20


class Captures:
    """The captures of a view, by the requested port. Files stay until `close`."""

    def __init__(self) -> None:
        self._left = contextlib.ExitStack()
        self._folder = self._left.enter_context(scratch("captures"))
        self._going: dict[str, CaptureTail | None] = {}
        self._places: dict[str, tuple[int, int]] = {}
        self._numbers = itertools.count(1)
        self._files: dict[str, pathlib.Path] = {}

    @property
    def ports(self) -> list[str]:
        """Ports that are captured at present."""
        return sorted(self._going)

    def file(self, port: str) -> pathlib.Path | None:
        """Return the capture of a port, or None."""
        return self._files.get(port)

    def begin(self, session: Session, port: str) -> None:
        """Begin to capture a port.

        Raises:
            RunError, UnknownElement: the text names no port.
            CommandError: the port is captured already, or too many ports are.
        """
        place = place_of(session.topology, port)
        if port in self._going:
            raise CommandError(f"{port} is captured already")
        if len(self._going) >= MOST or len(self._files) >= 8 * MOST:
            raise CommandError(f"{MOST} ports are captured already; end one first")
        # The file's name is made safe, because a page's text must never act as a path.
        path = self._folder / f"{re.sub(r'[^a-z0-9]', '-', port)}.pcapng"
        number = next(self._numbers)
        if isinstance(session, RealSession):
            try:
                check_here(session.state)
            except RunError as error:
                raise CommandError(str(error)) from error
            following = CaptureTail(session.run.folder, path, number)
            session.target.capture(*place, following.name)
            self._going[port] = following
        elif isinstance(session, VirtualSession):
            session.simulated.switch(place[0]).port(place[1]).capture(path)
            self._going[port] = None
        self._places[port] = place
        self._files[port] = path

    def copy(self, session: Session) -> list[str]:
        """Copy new packets; return the ports whose file has become too large, and end their capture."""
        full = []
        for port, following in list(self._going.items()):
            if following is not None:
                following.copy()
            with contextlib.suppress(OSError):
                if self._files[port].stat().st_size > MOST_BYTES:
                    self.end(session, port)
                    full.append(port)
        return full

    def end(self, session: Session, port: str) -> None:
        """End the capture of a port; its file stays.

        Raises:
            CommandError: the port is not being captured.
        """
        if port not in self._going:
            raise CommandError(f"{port} is not captured")
        following, place = self._going.pop(port), self._places.pop(port)
        if isinstance(session, RealSession):
            session.target.capture(*place, None)
        elif isinstance(session, VirtualSession):
            session.simulated.switch(place[0]).port(place[1]).capture(None)
        if following is not None:
            following.__exit__(None, None, None)

    def leave(self, session: Session) -> None:
        """Prepare for the end of the session."""
        for port in self.ports:
            with contextlib.suppress(Exception):
                self.end(session, port)
        self._going.clear()
        self._places.clear()

    def close(self) -> None:
        """Remove all files."""
        self._left.close()
