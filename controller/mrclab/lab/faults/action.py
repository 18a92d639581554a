"""Actions on a lab as data: to fail or to restore a target of the topology."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from mrc_topo.base.errors import UsageError

Direction = Literal["both", "up", "down"]
#: A setting of a failure: a rate, a probability, a time, a number, or a switch.
Setting = bool | int | float


class FailureError(UsageError):
    """A failure that cannot be injected or restored; the text names the target and what would work."""


#: An `Action` as JSON, with its description as `text`.
ActionDocument = dict[str, str | float | dict[str, Setting] | None]


@dataclass(frozen=True)
class Action:
    """`fail` or `restore` of a target: a link (`p0-t0.1--p0-t1.0`), a host port (`h3:2`), a switch (`p0-t1.0`).

    An empty `kind` of `fail` is the target's default (`kinds.resolved`). `restore` ends all failures in force at the
    target, or only the failure of a `kind`. `direction` and `settings` belong to `fail`. `loss` is the expected loss of
    capacity from then on, where it differs from what the topology predicts.
    """

    verb: Literal["fail", "restore"]
    target: str
    kind: str = ""
    direction: Direction = "both"
    settings: Mapping[str, Setting] = field(default_factory=dict)
    loss: float | None = None

    def describe(self) -> str:
        """Return the action as a person would say it."""
        if self.verb == "restore":
            return f"restore {self.target}" + (f" ({self.kind})" if self.kind else "")
        extra = "".join(f" {key}={value}" for key, value in self.settings.items())
        way = "" if self.direction == "both" else f" ({self.direction})"
        return f"{(self.kind or 'fail').replace('_', ' ')} {self.target}{way}{extra}"

    def document(self) -> ActionDocument:
        """Return the action as JSON, with the description as `text`."""
        return {
            "verb": self.verb,
            "target": self.target,
            "kind": self.kind,
            "direction": self.direction,
            "settings": dict(self.settings),
            "loss": self.loss,
            "text": self.describe(),
        }


def flapping(fail: Action, start_s: float, period_s: float, count: int) -> list[tuple[float, Action]]:
    """Return a failure that comes and goes `count` times: it is in force in the first half of every period. Times are
    in seconds."""
    mend = Action("restore", fail.target, fail.kind)
    schedule: list[tuple[float, Action]] = []
    for number in range(count):
        begin = start_s + number * period_s
        schedule += [(begin, fail), (begin + period_s / 2, mend)]
    return schedule
