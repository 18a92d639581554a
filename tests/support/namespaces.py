"""Network namespaces that a test makes and takes away, and what labs leave of theirs."""

from __future__ import annotations

import contextlib
import os
import pathlib
import re
import subprocess
import time
from collections.abc import Iterable
from types import TracebackType

SETTLE_S = 10.0
#: Begins a command in a mount namespace of its own, in which it may mount.
OWN_MOUNTS = ["unshare", "--mount"] if os.geteuid() == 0 else ["unshare", "--user", "--map-root-user", "--mount"]
#: Names that `Hosts.port` gives.
PORTS_OF_HOSTS = re.compile(r"[a-z]+\d+p\d+")


def run(*command: str, timeout_s: float = 30, check: bool = True) -> str:
    """Run a command and return its output. Raise AssertionError with the output when it fails."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False)
    if check:
        assert done.returncode == 0, f"{' '.join(command)}: {done.stdout}{done.stderr}"
    return done.stdout


class Hosts:
    """`count` namespaces, each with eth0 (10.9.0.k/24, fd09::k/64, MAC 12:00:00:00:00:0k), whose other end is
    here, named `port(k)`."""

    def __init__(self, tag: str, count: int = 2, mtu: int = 1500) -> None:
        self.prefix = f"{tag}{os.getpid() % 100000}"
        self.count = count
        self.mtu = mtu

    def name(self, k: int) -> str:
        """Return the namespace of host k (1 …)."""
        return f"{self.prefix}h{k}"

    def port(self, k: int) -> str:
        """Return the interface on the switch's side."""
        return f"{self.prefix}p{k}"

    def plug(self, k: int) -> None:
        """Make the cable of host k."""
        host, port = self.name(k), self.port(k)
        run("ip", "link", "add", port, "mtu", str(self.mtu), "type", "veth", "peer", "name", "eth0", "netns", host)
        run("ip", "-n", host, "link", "set", "eth0", "address", f"12:00:00:00:00:{k:02x}", "mtu", str(self.mtu))
        run("sysctl", "-qw", f"net.ipv6.conf.{port}.disable_ipv6=1")
        run("ip", "-n", host, "addr", "add", f"10.9.0.{k}/24", "dev", "eth0")
        run("ip", "-n", host, "addr", "add", f"fd09::{k}/64", "dev", "eth0", "nodad")
        run("ip", "-n", host, "link", "set", "eth0", "up")
        run("ip", "link", "set", port, "up")

    def __enter__(self) -> Hosts:
        for k in range(1, self.count + 1):
            run("ip", "netns", "add", self.name(k))
            run("ip", "-n", self.name(k), "link", "set", "lo", "up")
            self.plug(k)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        for k in range(1, self.count + 1):
            run("ip", "link", "del", self.port(k), check=False)
            run("ip", "netns", "del", self.name(k), check=False)

    def on(self, k: int, *command: str, timeout_s: float = 30, check: bool = True) -> str:
        """Run a command on host k."""
        return run("ip", "netns", "exec", self.name(k), *command, timeout_s=timeout_s, check=check)


def interfaces() -> set[str]:
    """Return the names of this machine's interfaces, but for those of `Hosts`: tests of root make and remove them while
    tests of labs run."""
    return {name for name in os.listdir("/sys/class/net") if PORTS_OF_HOSTS.fullmatch(name) is None}


class HeldNamespaces:
    """The network namespaces of some processes, held open: the kernel gives the number of one that is gone to the next
    that is made, which may be another test's."""

    def __init__(self, pids: Iterable[int]) -> None:
        self._open: dict[tuple[int, int], int] = {}
        for pid in pids:
            held = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY)
            place = os.fstat(held)
            if self._open.setdefault((place.st_dev, place.st_ino), held) != held:
                os.close(held)

    def __len__(self) -> int:
        return len(self._open)

    def processes(self) -> set[int]:
        """Return the PIDs of the processes that are in them."""
        found = set()
        for entry in pathlib.Path("/proc").iterdir():
            if entry.name.isdigit():
                with contextlib.suppress(OSError):
                    place = os.stat(entry / "ns" / "net")
                    if (place.st_dev, place.st_ino) in self._open:
                        found.add(int(entry.name))
        return found

    def __enter__(self) -> HeldNamespaces:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        for held in self._open.values():
            os.close(held)


def lab_processes(folder: pathlib.Path) -> dict[int, str]:
    """Living processes of labs whose run directory is below `folder`: PID and command."""
    found = {}
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                mounts = (entry / "mountinfo").read_text()
                words = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                # A zombie has no command.
                if words and any(f"{folder}/" in line and " /run/lab " in line for line in mounts.splitlines()):
                    found[int(entry.name)] = words
    return found


def left_behind(before: set[str], folder: pathlib.Path) -> list[str]:
    """Return what is left of labs below `folder` after a moment: processes, and interfaces that were not there
    `before`. The kernel takes interfaces away a little later than the processes of their namespace."""
    deadline = time.monotonic() + SETTLE_S
    while True:
        left = [f"interface {name}" for name in sorted(interfaces() - before)]
        left += [f"process {pid}: {words}" for pid, words in lab_processes(folder).items()]
        if not left or time.monotonic() > deadline:
            return left
        time.sleep(0.05)
