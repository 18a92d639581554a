"""How long a command waits for a lab that comes up slowly, and for one that never will."""

from __future__ import annotations

import os
import pathlib
from types import SimpleNamespace
from typing import Any

import pytest

from mrc_control.lab import lifecycle
from mrc_control.lab.death import Frozen
from mrc_control.lab.process import Process
from mrc_control.lab.rundir import RunError

COMMAND_S = 0.1


class Slow:
    """A run directory whose lab is up at the tenth deadline or never."""

    def __init__(self, *, frozen: bool = False) -> None:
        self.name = "slow"
        self.folder = SimpleNamespace(path=pathlib.Path("/nowhere"))
        self.stopped = frozen
        self.phase = "starting"

    def read(self) -> Any:
        return SimpleNamespace(
            first=Process.of("lab", os.getpid()), roles={}, phase=self.phase, ending=False, error="", deaths=[]
        )

    def frozen(self) -> list[Frozen]:
        return [Frozen("h1", None)] if self.stopped else []


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lifecycle, "UP_S", COMMAND_S)
    monkeypatch.setattr(lifecycle, "is_dead", lambda run: False)


def wait(run: Slow, monkeypatch: pytest.MonkeyPatch, share: float, up_after: int = 1000) -> int:
    """How often it was looked at whether a lab works that wants so much of a core."""
    asked: list[float] = []

    def wanted_s(pid: int) -> float:
        asked.append(share * COMMAND_S * (len(asked) + 1))
        if len(asked) == up_after:
            run.phase = "up"
        return asked[-1]

    monkeypatch.setattr(lifecycle, "wanted_s", wanted_s)
    lifecycle._wait_up(run, lambda text: None)  # type: ignore[arg-type]
    return len(asked)


@pytest.mark.usefixtures("impatient")
def test_a_lab_that_works_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    assert wait(Slow(), monkeypatch, 0.5, up_after=5) == 5


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize(("share", "frozen", "periods"), [(0.1, False, 1), (0.5, True, 1), (0.5, False, 8)])
def test_a_lab_that_hangs_or_never_ends_its_work_is_not(
    monkeypatch: pytest.MonkeyPatch, share: float, frozen: bool, periods: int
) -> None:
    monkeypatch.setattr(lifecycle, "UP_TIMES", 8)
    with pytest.raises(RunError, match=r"did not come up in \d+ s") as caught:
        wait(Slow(frozen=frozen), monkeypatch, share)
    assert ("h1" in str(caught.value)) is frozen
    assert periods == 1 or "in 1 s" in str(caught.value)
