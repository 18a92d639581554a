"""The processes that have a learner's files: each puts itself into namespaces, limits itself, and then does its part.

    python -m mrc_workshop.confined < ORDER

The order is a line of JSON (`Confinement`). One process performs the job (`perform`). Where a lab names classes of the
learner's, another one plays them (`player`), and they talk by a socket, which is all that they have in common. What
cannot be done on this machine is left out; the facts tell what was done (`Facts.isolation`). The first process of the
PID namespace stays ours; with it everything ends.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import socket
import sys
from dataclasses import asdict, dataclass, field
from typing import NoReturn

from mrc_topo.base.errors import end_with_parent
from mrc_workshop import landlock, limits
from mrclab.lab.processes import namespaces
from mrclab.lab.processes.namespaces import NamespaceError, Owner

SCRATCH = "/run/scratch"
NOT_ISOLATED = "not isolated: "


@dataclass(frozen=True)
class Confinement:
    """The limits and resources of a confined process.

    `scratch`: the one folder that can be written to, with the job or the learner's files (of the process that `plays`,
    only `tmp` is writable, and in memory); `hide`: files and folders that must not be visible; `cpu_s` and
    `memory_bytes`: the limits; `owner` and `trees` as in `namespaces.isolate`; `plays`: the process has the learner's
    classes, else it performs the job; `socket`: the descriptor of the socket to the other process, or -1; `parent`: the
    process that gave the order, and with which this one ends (0: any); `readable`: what the learner's classes may read,
    beside `scratch`.
    """

    scratch: str
    hide: list[str] = field(default_factory=list)
    cpu_s: int = 120
    memory_bytes: int = 3 << 30
    owner: Owner | None = None
    trees: list[str] = field(default_factory=list)
    plays: bool = False
    socket: int = -1
    parent: int = 0
    readable: list[str] = field(default_factory=list)

    def line(self) -> str:
        """Return the confinement as one line of JSON."""
        return json.dumps(asdict(self)) + "\n"

    @classmethod
    def parse(cls, line: str) -> Confinement:
        """Parse a line into a confinement."""
        document = json.loads(line)
        owner = document.pop("owner")
        if owner is not None:
            owner = Owner(owner["uid"], owner["gid"], tuple(owner["groups"]))
        return cls(**document, owner=owner)


def main() -> NoReturn:
    """Run the job and return its exit code."""
    order = Confinement.parse(sys.stdin.readline())
    os.umask(0o077)
    isolation = {"namespaces": False, "read-only files": False, "no rights": False, "no processes": False}
    isolation["no other files"] = False
    scratch = order.scratch
    try:
        namespaces.isolate(order.owner, {SCRATCH: order.scratch}, order.trees)
        isolation["namespaces"], scratch = True, SCRATCH
        limits.leave_shared_objects()
    except (NamespaceError, OSError) as error:
        print(f"{NOT_ISOLATED}{error}", file=sys.stderr, flush=True)
    # This comes last, because a change of user undoes it. If the command is killed, its submission ends with it.
    end_with_parent()
    if order.parent and os.getppid() != order.parent:
        os._exit(1)
    child = os.fork()
    if child:
        _wait(child)
    end_with_parent()
    if isolation["namespaces"]:
        namespaces.first_process()
        child = os.fork()
        if child:
            namespaces.reap(child)
        isolation["read-only files"] = _close_files(order, scratch)
        with contextlib.suppress(OSError):
            limits.drop_rights()
            isolation["no rights"] = True
    limits.set_limits(order.cpu_s, order.memory_bytes)
    if isolation["namespaces"]:
        limits.limit_processes()
    home = f"{scratch}/tmp" if order.plays else scratch
    os.chdir(home)
    os.environ |= {"HOME": home, "TMPDIR": f"{scratch}/tmp", "MRCLAB_CACHE": f"{home}/cache"}
    os.environ["XDG_RUNTIME_DIR"] = f"{scratch}/tmp"
    # Remaining threads, ours or the learner's, are not awaited.
    code = 1
    try:
        code = _part(order, pathlib.Path(scratch), isolation)
    except MemoryError:
        os.write(2, b"it took more memory than it may\n")
    except BaseException as error:  # noqa: BLE001 - the last word of a process that ends
        with contextlib.suppress(MemoryError):
            os.write(2, f"{type(error).__name__}: {error}\n".encode(errors="replace"))
    finally:
        sys.stdout.flush()
        os._exit(code)


def _part(order: Confinement, scratch: pathlib.Path, isolation: dict[str, bool]) -> int:
    """Return the function that this process runs, imported late because that starts threads and takes long."""
    from mrc_workshop.wire import Wire

    wire = None if order.socket < 0 else Wire(socket.socket(fileno=order.socket))
    if order.plays and wire is not None:
        # Where mounts cover all other files, an old kernel without Landlock is as safe.
        isolation["no other files"] = isolation["read-only files"]
        with contextlib.suppress(OSError):
            isolation["no other files"] |= landlock.restrict(
                [*order.readable, str(scratch)], [f"{scratch}/tmp", "/dev/null"]
            )
        with contextlib.suppress(OSError):
            isolation["no processes"] = limits.forbid_processes()
        from mrc_workshop import player

        return player.main(wire, scratch, isolation)
    if not isolation["namespaces"]:
        with contextlib.suppress(OSError):
            limits.forbid_tracing()
    from mrc_workshop import perform

    return perform.main(scratch, isolation, wire)


def _wait(child: int) -> NoReturn:
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    os._exit(code if code >= 0 else 128 - code)


def _close_files(order: Confinement, scratch: str) -> bool:
    try:
        if order.plays:
            limits.make_notes(f"{scratch}/tmp")
        limits.make_read_only(f"{scratch}/tmp" if order.plays else scratch)
        for path in order.hide:
            if os.path.exists(path):
                limits.cover(path)
    except OSError as error:
        print(f"{NOT_ISOLATED}{error}", file=sys.stderr, flush=True)
        return False
    return True


if __name__ == "__main__":
    main()
