"""Actions on a lab as data: to fail or to restore a target of the topology, and the effects of failures."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, cast

from mrc_topo.base.errors import UsageError
from mrc_topo.topology import Topology
from p4lite.switch.fabric.values import SwitchState
from p4lite.switch.targetapi.values import LinkChanges

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


def flapping(
    fail: Action, start_s: float, period_s: float, count: int, duty: float = 0.5
) -> list[tuple[float, Action]]:
    """Return a failure that comes and goes `count` times: it is in force in the first part `duty` of every period.
    Times are in seconds."""
    mend = Action("restore", fail.target, fail.kind)
    schedule: list[tuple[float, Action]] = []
    for number in range(count):
        begin = start_s + number * period_s
        schedule += [(begin, fail), (begin + period_s * duty, mend)]
    return schedule


#: One direction of a link, by the link's name: up is away from the host.
Way = tuple[str, Literal["up", "down"]]
UP: Literal["up"] = "up"
DOWN: Literal["down"] = "down"

#: The states of a switch by severity; the last one wins where several failures require different states.
_SEVERITY = (SwitchState.RUNNING, SwitchState.FROZEN, SwitchState.STOPPED)


@dataclass(frozen=True)
class Effects:
    """The combined effects of one or more failures.

    `cut`: directions of links that carry nothing; `settings`: link settings that directions get instead of their own;
    `carriers`: host ports (by link name) without carrier; `switches`: switches that do not run; `emptied`: switches
    that return with empty tables.
    """

    cut: frozenset[Way] = frozenset()
    settings: Mapping[Way, LinkChanges] = field(default_factory=dict)
    carriers: frozenset[str] = frozenset()
    switches: Mapping[str, SwitchState] = field(default_factory=dict)
    emptied: frozenset[str] = frozenset()

    def __or__(self, other: Effects) -> Effects:
        settings = dict(self.settings)
        for way, values in other.settings.items():
            mine = dict(settings.get(way, {}))
            for key, value in values.items():
                mine[key] = _worse(key, mine[key], value) if key in mine else value
            settings[way] = cast(LinkChanges, mine)
        switches = dict(self.switches)
        for name, state in other.switches.items():
            switches[name] = max(state, switches.get(name, state), key=_SEVERITY.index)
        return Effects(
            self.cut | other.cut,
            settings,
            self.carriers | other.carriers,
            switches,
            self.emptied | other.emptied,
        )

    def touched(self) -> frozenset[str]:
        """Return the links and switches whose state these effects change."""
        links = {name for name, _ in (*self.cut, *self.settings)} | self.carriers
        return frozenset(links | set(self.switches) | self.emptied)

    def rates(self, topology: Topology) -> dict[Way, int]:
        """Return the bits per second that the affected directions can still deliver; all others are unchanged.

        Impairments count by their rate; a direction that loses or corrupts every packet, or is paused without end,
        delivers none. Partial loss costs no capacity here: endpoints leave such a path, or repair it, as they see fit.
        """
        rates: dict[Way, int] = {}
        for way, settings in sorted(self.settings.items(), key=lambda each: "pause_storm_mac" in each[1]):
            dead = settings.get("blackhole") or 1 in (settings.get("loss"), settings.get("corrupt"))
            rates[way] = 0 if dead else int(settings.get("rate_bps", topology.links[way[0]].spec.rate))
            if settings.get("pause_storm_mac") and topology.links[way[0]].queue.lossless:
                rates[way[0], DOWN] = 0
        for name, state in self.switches.items():
            if state is not SwitchState.RUNNING:
                for link in topology.switch(name).links.values():
                    rates |= {(link.name, UP): 0, (link.name, DOWN): 0}
        return rates | dict.fromkeys(self.cut, 0)


def together(several: Iterable[Effects]) -> Effects:
    """Return all effects at once."""
    union = Effects()
    for each in several:
        union |= each
    return union


def _worse(key: str, one: Any, other: Any) -> Any:
    """Return the worse of two values of a link setting: the lower rate, the higher value of any other setting."""
    return min(one, other) if key == "rate_bps" else max(one, other)
