"""Two ways to ask a device: a program that reads and writes lines, and a person at a terminal."""

from __future__ import annotations

import abc
import os
import select
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence

from mrc_conform.adapters import lines
from mrc_conform.device import DeviceError

#: How long an answer may take (s).
PATIENCE_S = 30.0


class Adapter(abc.ABC):
    """Asks the device for one thing at a time."""

    @abc.abstractmethod
    def ask(self, word: str, **values: object) -> Mapping[str, str]:
        """Return the values of the answer. Raises DeviceError when the device refuses or does not answer."""

    @abc.abstractmethod
    def close(self) -> None:
        """End it."""


class ProcessAdapter(Adapter):
    """A command, such as `ssh HOST PROGRAM`, that reads requests from its standard input and answers on its output."""

    def __init__(self, command: str | Sequence[str], **environment: str) -> None:
        """Start the command with some variables more. Raises DeviceError when it cannot be started."""
        words = shlex.split(command) if isinstance(command, str) else list(command)
        self._name = words[0] if words else "the adapter"
        try:
            self._process = subprocess.Popen(
                words,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                bufsize=1,
                env={**os.environ, **environment},
            )
        except (OSError, IndexError) as error:
            raise DeviceError(f"--adapter {command!r}: {error}") from None

    def ask(self, word: str, **values: object) -> Mapping[str, str]:
        """See `Adapter`."""
        asked = lines.request(word, **values)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(asked.line() + "\n")
            self._process.stdin.flush()
        except OSError:
            raise DeviceError(f"{self._name} has ended ({self._ended()}) before `{word}`") from None
        if not select.select([self._process.stdout], [], [], PATIENCE_S)[0]:
            raise DeviceError(f"{self._name} does not answer `{word}` within {PATIENCE_S:.0f} s")
        found = self._process.stdout.readline()
        if not found:
            raise DeviceError(f"{self._name} has ended ({self._ended()}) instead of answering `{word}`")
        return lines.answer(found, word)

    def _ended(self) -> str:
        try:
            return f"exit code {self._process.wait(1)}"
        except subprocess.TimeoutExpired:
            return "it closed its output"

    def close(self) -> None:
        """See `Adapter`: its input ends, and it has a moment to clean up."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()


class PromptAdapter(Adapter):
    """A person: each request is shown, and the answer is typed."""

    def ask(self, word: str, **values: object) -> Mapping[str, str]:
        """See `Adapter`; an empty line means `ok`."""
        print(f"device: {lines.request(word, **values).line()}", file=sys.stderr)
        print("answer (ok key=value ..., or error TEXT): ", end="", file=sys.stderr, flush=True)
        found = sys.stdin.readline()
        if not found:
            raise DeviceError("standard input has ended; give --adapter COMMAND, or answer at a terminal")
        return lines.answer(found.strip() or "ok", word)

    def close(self) -> None:
        """See `Adapter`."""
