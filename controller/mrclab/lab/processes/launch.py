"""Starts a program in namespaces of its own and goes.

    python -m mrclab.lab.processes.launch NAME < ORDER
    python -m mrclab.lab.processes.launch --run COMMAND...
    python -m mrclab.lab.processes.launch --probe

The first form is how a lab is started. The order is one line of JSON on standard input (`LaunchOrder`); the answers on
standard output are `pid N` (the PID namespace's first process, as the caller sees it) and `ready`, or `error TEXT`.
Nothing runs before the caller has written `go`: by then it has recorded the process, and if it dies before, so does
this. `--run` runs a command in the foreground, as root of the namespaces only, and ends with its exit code; `--probe`
tries whether there can be a lab at all.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import NoReturn

from mrclab.lab.processes import namespaces, process
from mrclab.lab.processes.namespaces import NamespaceError, Owner

UMASK = 0o077
SBIN = ("/usr/local/sbin", "/usr/sbin", "/sbin")


@dataclass(frozen=True)
class LaunchOrder:
    """What to start: `owner`, `trees` and `clock_ahead_ns` as in `namespaces.isolate`, `binds` below /run."""

    command: list[str]
    binds: dict[str, str] = field(default_factory=dict)
    trees: list[str] = field(default_factory=list)
    owner: Owner | None = None
    clock_ahead_ns: int = 0

    def line(self) -> str:
        """Return the order as one line of JSON."""
        return json.dumps(asdict(self)) + "\n"

    @classmethod
    def parse(cls, line: str) -> LaunchOrder:
        """Parse a line into an order."""
        document = json.loads(line)
        owner = document.pop("owner")
        if owner is not None:
            owner = Owner(owner["uid"], owner["gid"], tuple(owner["groups"]))
        return cls(**document, owner=owner)


def _say(text: str) -> None:
    # Two processes write to one pipe, so each writes a whole line at once.
    os.write(1, text.replace("\n", " ").encode() + b"\n")


def _first(command: list[str], last: Callable[[int], object]) -> NoReturn:
    """Run as the first process: mount, wait for the line `go`, run the command, then reap; `last` as in `reap`."""
    try:
        namespaces.first_process()
    except NamespaceError as error:
        _say(f"error {error}")
        os._exit(1)
    _say("ready")
    go = sys.stdin.readline()
    # Closing the pipe ends the wait of the process that reads the answers; the lab runs on.
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(2, 1)
    if go != "go\n":
        os._exit(1)
    _run(command, last)


def _run(command: list[str], last: Callable[[int], object] = int) -> NoReturn:
    """Run a command and reap children until it ends; forward SIGTERM and SIGINT to it."""
    child = os.fork()
    if child == 0:
        try:
            os.execvp(command[0], command)
        except OSError as error:
            print(f"{command[0]}: {error.strerror}", file=sys.stderr)
        os._exit(127)
    _pass_signals_to(child)
    namespaces.reap(child, last)


def _pass_signals_to(child: int) -> None:
    """Pass signals to end on to a process, which may be dead when one comes."""
    import signal

    def pass_on(number: int, frame: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, number)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, pass_on)


def _launch() -> int:
    order = LaunchOrder.parse(sys.stdin.readline())
    os.umask(UMASK)
    os.chdir("/")
    try:
        namespaces.isolate(order.owner, order.binds, order.trees, order.clock_ahead_ns)
    except (NamespaceError, OSError) as error:
        _say(f"error {error}")
        return 1
    pid = os.fork()
    if pid == 0:
        _first(order.command, lambda code: process.record_daemon_exit(pathlib.Path("/run/lab"), code))
    _say(f"pid {pid}")
    return 0


def _foreground(command: list[str]) -> int:
    where = os.getcwd()
    try:
        namespaces.isolate(None, {})
    except NamespaceError as error:
        print(f"mrclab.lab.processes.launch: {error}", file=sys.stderr)
        return 1
    child = os.fork()
    if child == 0:
        try:
            namespaces.first_process()
            os.chdir(where)
        except (NamespaceError, OSError) as error:
            print(f"mrclab.lab.processes.launch: {error}", file=sys.stderr)
            os._exit(1)
        _run(command)
    _pass_signals_to(child)
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def _probe() -> int:
    try:
        namespaces.isolate(namespaces.lab_owner(), {})
    except (NamespaceError, OSError) as error:
        _say(f"error {error}")
        return 1
    child = os.fork()
    if child == 0:
        try:
            namespaces.first_process()
        except NamespaceError as error:
            _say(f"error {error}")
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _path() -> None:
    """Add root's folders of programs to PATH: root in the namespace needs them, and a user's PATH often lacks them."""
    folders = os.environ.get("PATH", os.defpath).split(":")
    os.environ["PATH"] = ":".join([*folders, *(each for each in SBIN if each not in folders)])


def main(argv: list[str]) -> int:
    """Run as the entry point."""
    _path()
    if argv[:1] == ["--run"] and len(argv) > 1:
        return _foreground(argv[1:])
    if argv == ["--probe"]:
        return _probe()
    if len(argv) != 1 or argv[0].startswith("-"):
        print((__doc__ or "").split("\n\n")[1], file=sys.stderr)
        return 2
    return _launch()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
