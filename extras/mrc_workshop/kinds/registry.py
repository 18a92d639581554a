"""Registry of the kinds of checks.

A kind is a function `(params, runs) -> Finding`, or with `sources` as third parameter, which gets the texts of the
learner's files (a written prediction, say). It judges recorded facts only (`job.Run`) and is never in the learner's
process. What it says of a failure names the mistake, and shows the packet or event.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from mrc_topo.base.document import Model
from mrc_workshop.job import Document, Run
from mrc_workshop.trace import CapturedPacket


class NoParams(Model):
    """The parameters of kinds that take none."""


@dataclass(frozen=True)
class Finding:
    """The result of a check: `measured` in a few words and, if it failed, `mistake`, what is wrong and probably why;
    `evidence`, decoded lines that show it; `packets`, for the small capture; `run`, the run in question."""

    passed: bool
    measured: str
    mistake: str = ""
    evidence: tuple[str, ...] = ()
    packets: tuple[CapturedPacket, ...] = ()
    run: Run | None = None
    #: The score of exercises that are ranked; higher is better.
    score: float | None = None
    details: Document = field(default_factory=dict)


Judge = Callable[..., Finding]
J = TypeVar("J", bound=Judge)


@dataclass(frozen=True)
class CheckKind:
    """A registered kind: its function, the model of its parameters, and its description (the function's first line)."""

    name: str
    judge: Judge
    params: type[Model]
    about: str


KINDS: dict[str, CheckKind] = {}


def kind(params: type[Model]) -> Callable[[J], J]:
    """Register a function under its name."""

    def register(function: J) -> J:
        name = function.__name__
        about = (inspect.getdoc(function) or "").partition("\n")[0]
        KINDS[name] = CheckKind(name, function, params, about)
        return function

    return register
