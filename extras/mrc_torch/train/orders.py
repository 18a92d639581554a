"""Messages to and from a rank: JSON documents, a line each, on standard input and output.

A rank says `{"event": "ready"}`, waits for a line, joins its group, says `{"event": "connected"}`, waits for a line,
and does its job. When it has ended it says `{"event": "done"}` and waits once more: its peers may still need it. It
dies with its input, so that nothing of a job outlives who started it.
"""

from __future__ import annotations

import json
import os
import select
import threading
from typing import Any

_BUFFER = 65536


class OrderReader:
    """Reads standard input by lines in one thread: a line that was written earlier is always seen."""

    def __init__(self, file: int = 0) -> None:
        self.file = file
        #: Exit code when the input ends.
        self.code = 3
        self._rest = b""
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        poll = select.poll()
        poll.register(self.file, 0)  # without any event: the writer has hung up
        while not poll.poll():
            pass
        os._exit(self.code)

    def done(self, **document: Any) -> None:
        """Say that the job has ended. The input may end as soon as this is heard, which is no failure any more."""
        self.code = 0
        say("done", **document)

    def wait(self) -> dict[str, Any]:
        """Return the next document."""
        while (found := self.look(None)) is None:
            pass
        return found

    def look(self, timeout_s: float | None = 0.0) -> dict[str, Any] | None:
        """Return the next document, if there is one within this time."""
        while b"\n" not in self._rest:
            if not select.select([self.file], [], [], timeout_s)[0]:
                return None
            data = os.read(self.file, _BUFFER)
            if not data:
                os._exit(self.code)
            self._rest += data
        line, _, self._rest = self._rest.partition(b"\n")
        document: dict[str, Any] = json.loads(line or b"{}")
        return document


def say(event: str, **document: Any) -> None:
    """Print an event for the process that started this rank."""
    print(json.dumps({"event": event, **document}), flush=True)
