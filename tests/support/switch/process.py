"""A `p4lite switch` or fabric server as a process of its own, for tests."""

from __future__ import annotations

import os
import queue
import re
import signal
import subprocess
import sys
import tempfile
import threading

P4LITE = [sys.executable, "-c", "import sys; from p4lite.cli import main; sys.exit(main())"]


class SwitchProcess:
    """`p4lite switch ARGS` on a socket of its own; `address` once it says that it is ready.

    `environment` is added to ours; with `addressed` False the arguments say where to listen.
    """

    def __init__(
        self,
        *arguments: str,
        command: list[str] | None = None,
        addressed: bool = True,
        environment: dict[str, str] | None = None,
    ) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="switch")
        where = ["--grpc-server-addr", f"unix:{self._folder.name}/s.sock"] if addressed else []
        self.process = subprocess.Popen(
            [*(command or [*P4LITE, "switch"]), *where, *arguments],
            env={**os.environ, **(environment or {})},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        lines: queue.Queue[str] = queue.Queue()
        assert self.process.stdout is not None
        stdout = self.process.stdout
        threading.Thread(target=lambda: [lines.put(line) for line in stdout] or lines.put(""), daemon=True).start()
        line = lines.get(timeout=120)
        if not line.startswith("ready "):
            self.process.kill()
            raise AssertionError(f"not ready: {line!r} {self.process.communicate()[1]}")
        self.address = line.split()[1]

    def stop(self, number: int = signal.SIGTERM, expected: str = "") -> int:
        """Send a signal and return the exit code; nothing may have been said on standard error but the line `expected`
        and how far a slow start has come."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        assert self.process.stderr is not None
        said = self.process.stderr.read().splitlines()
        errors = [line for line in said if not re.fullmatch(r"p4lite switch: .* \(\d+ s\)", line)]
        code = self.process.wait(timeout=120)
        assert errors == expected.splitlines()
        return code

    def __enter__(self) -> SwitchProcess:
        return self

    def __exit__(self, *exc: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(timeout=120)
        for pipe in (self.process.stdout, self.process.stderr):
            if pipe is not None:
                pipe.close()
        self._folder.cleanup()
