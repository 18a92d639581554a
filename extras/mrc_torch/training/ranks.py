"""The ranks of a job: a process (`mrc_torch.train`) in each host, started together and spoken to by lines."""

from __future__ import annotations

import contextlib
import importlib.metadata
import importlib.util
import json
import os
import pathlib
import select
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from mrc_topo.base import interruption
from mrc_topo.base.plain import DecodeError, decode
from mrc_topo.shipped import install, requirement
from mrclab.lab.hosts.hostprocess import HostProcess
from mrclab.lab.records.record import LabState
from mrclab.lab.session.real import RealSession
from mrclab.runs.experiment import ExperimentError, Tree
from p4lite.scratch import scratch

#: What a rank asks of the group, and which transport the lab's agents speak then. Gloo's is the kernel's TCP.
BACKENDS = {"mrc": ("mrc", "mrc"), "roce": ("mrc", "roce"), "gloo": ("gloo", "mrc")}


class RankEvent(StrEnum):
    """The events that a rank reports (`mrc_torch.train.orders`); `GONE` stands for a rank that has ended."""

    READY = "ready"
    CONNECTED = "connected"
    STEP = "step"
    HELD = "held"
    SIZE = "size"
    GOING = "going"
    DONE = "done"
    ERROR = "error"
    GONE = "gone"


@dataclass(frozen=True)
class RankMessage:
    """A line of a rank: its `event`, and what belongs to that. Times are ns of the session's clock, or `seconds`."""

    event: RankEvent
    text: str = ""
    step: int = 0
    begin_ns: int = 0
    end_ns: int = 0
    all_reduce_ns: list[int] = field(default_factory=list)
    loss: float = 0.0
    unit: str = ""
    per_step: int = 0
    accuracy: float | None = None
    size: int = 0
    seconds: float = 0.0
    wrong: int = 0


def need(*packages: str) -> None:
    """Check that the ranks will find these.

    Raises:
        ExperimentError: one is missing, or torch of a version that will not do; names the remedy.
    """
    for name in packages:
        if importlib.util.find_spec(name) is None:
            shown = {"sklearn": "scikit-learn"}.get(name, name)
            text = (
                f"{shown} is missing, which PyTorch jobs need: install it with `{install('torch')}` "
                "(of PyTorch the CPU wheel is enough)"
            )
            raise ExperimentError(text).needing(*requirement("torch"))
    from mrc_torch.versions import refusal

    with contextlib.suppress(importlib.metadata.PackageNotFoundError):  # of a torch that is not installed as a package
        said = refusal(importlib.metadata.version("torch"))
        if said is not None:
            raise ExperimentError(said)


@contextlib.contextmanager
def shared_folder(state: LabState) -> Iterator[pathlib.Path]:
    """Yield a folder that only the hosts of the lab see and may write to; it goes with the context."""
    others = os.geteuid() == 0 and state.uid > 0
    with scratch("train", passable=others) as folder:
        if others:
            os.chown(folder, state.uid, state.gid)
        yield folder


class Ranks:
    """All ranks of one attempt. `backend` is one of `BACKENDS`; `settings` are the same for all.

    Raises:
        RunError: the lab is gone.
    """

    def __init__(
        self,
        session: RealSession,
        names: Sequence[str],
        backend: str,
        store: pathlib.Path,
        settings: Tree,
    ) -> None:
        self.names = list(names)
        self.processes: list[HostProcess] = []
        common = {**settings, "size": len(names), "backend": BACKENDS[backend][0], "store": str(store)}
        try:
            for rank, name in enumerate(names):
                interface = session.topology.host(name).ports[0].interface
                # Agents are to be on time; on a small machine ranks leave them the processor.
                words = ["env", "OMP_NUM_THREADS=1", f"GLOO_SOCKET_IFNAME={interface}", "nice", "-n", "5"]
                words += [sys.executable, "-P", "-m", "mrc_torch.train", json.dumps({**common, "rank": rank})]
                self.processes.append(HostProcess(session.state, name, words, f"rank {rank}"))
        except BaseException:
            self.end()
            raise
        self._gone: set[int] = set()

    def tell(self, rank: int, **document: Any) -> None:
        """Send a document to one rank."""
        self.processes[rank].tell(json.dumps(document))

    def tell_all(self, **document: Any) -> None:
        """Send a document to all ranks, to rank 0 last."""
        for rank in reversed(range(len(self.processes))):
            self.tell(rank, **document)

    def events(self, timeout_s: float) -> list[tuple[int, RankMessage]]:
        """Return the events of ranks, waiting at most this long; `RankEvent.GONE`, once, for a rank that has ended."""
        left = [each for rank, each in enumerate(self.processes) if rank not in self._gone]
        interruption.check()
        select.select(left, [], [], timeout_s)
        found = []
        for rank, process in enumerate(self.processes):
            if rank in self._gone:
                continue
            lines = process.lines()
            if lines is None:
                self._gone.add(rank)
                found.append((rank, RankMessage(RankEvent.GONE, process.last_error_line())))
            for line in lines or ():
                with contextlib.suppress(ValueError, DecodeError):  # a library that prints something of its own
                    found.append((rank, decode(RankMessage, json.loads(line), lenient=True)))
        return found

    def end(self) -> None:
        """End all: they end with their input."""
        for process in self.processes:
            with contextlib.suppress(OSError):
                assert process.process.stdin is not None
                process.process.stdin.close()
        for process in self.processes:
            process.end()
