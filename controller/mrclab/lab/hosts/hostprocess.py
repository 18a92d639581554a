"""A program in a host of a lab that is up, spoken to by lines."""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import threading
import time
from collections.abc import Sequence
from typing import IO

from mrclab.lab.hosts import inside
from mrclab.lab.records.record import LabState
from mrclab.lab.records.rundir import RunError

#: The time to end for a process that was asked to.
GRACE_S = 5.0
#: The number of bytes that are kept from the end of its standard error.
WORDS_BYTES = 8192


class HostProcess:
    """A program in a host. `what` is its name in errors. It ends when its input ends, or is killed."""

    def __init__(self, state: LabState, host: str, words: Sequence[str], what: str) -> None:
        self.host, self.what = host, what
        command = inside.command(state, words, host=host)
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=True)
        os.set_blocking(self._out.fileno(), False)
        self._rest = b""
        self._words = b""
        # A thread reads standard error, so that a program that writes much there never blocks.
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    @property
    def _out(self) -> IO[bytes]:
        assert self.process.stdout is not None
        return self.process.stdout

    def fileno(self) -> int:
        """Return the file descriptor of the program's standard output, to wait on."""
        return self._out.fileno()

    def _listen(self) -> None:
        assert self.process.stderr is not None
        with contextlib.suppress(OSError, ValueError):
            while data := os.read(self.process.stderr.fileno(), WORDS_BYTES):
                self._words = (self._words + data)[-WORDS_BYTES:]

    def tell(self, text: str = "") -> None:
        """Write a line to the process; an empty line lets it continue."""
        assert self.process.stdin is not None
        with contextlib.suppress(OSError):
            self.process.stdin.write(text.encode() + b"\n")
            self.process.stdin.flush()

    def lines(self) -> list[str] | None:
        """Return the lines available without waiting; None when the output has ended."""
        found, ended = [], False
        while True:
            data = self._out.read(65536)
            if data == b"":
                ended = True
            if not data:
                break
            self._rest += data
        while b"\n" in self._rest:
            line, _, self._rest = self._rest.partition(b"\n")
            found.append(line.decode(errors="replace"))
        return None if ended and not found else found

    def line(self, deadline: float) -> str:
        """Return the next line of the program's standard output.

        Raises:
            RunError: the program has ended, or writes no line before the deadline.
        """
        while b"\n" not in self._rest:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self._out], [], [], left)[0]:
                raise RunError(f"host {self.host}: no word from {self.what} in time")
            data = self._out.read(65536)
            if data == b"":
                raise RunError(f"host {self.host}: {self.what} has ended: {self.last_error_line()}")
            self._rest += data or b""
        line, _, self._rest = self._rest.partition(b"\n")
        return line.decode(errors="replace")

    def everything(self, deadline: float) -> str:
        """Return all output until the program ends. Raises as `line`."""
        while True:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self._out], [], [], left)[0]:
                raise RunError(f"host {self.host}: {self.what} does not end")
            data = self._out.read(65536)
            if data == b"":
                return self._rest.decode(errors="replace")
            self._rest += data or b""

    def last_error_line(self) -> str:
        """Return the last line that an ended program wrote on its standard error, else its exit code."""
        code = self.process.wait()
        self._listener.join(GRACE_S)
        words = self._words.decode(errors="replace").strip().splitlines()
        return words[-1][:300] if words else f"exit code {code}"

    def end(self, grace_s: float = GRACE_S) -> None:
        """Close the program's input, so that it ends, and kill it if it does not."""
        process = self.process
        with contextlib.suppress(OSError):
            assert process.stdin is not None
            process.stdin.close()
        try:
            process.wait(grace_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        self._listener.join(GRACE_S)
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                stream.close()
