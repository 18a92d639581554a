"""The kinds of failure: one class each says what it may be done to, what it does, and what that costs.

A new kind is a class here, a name in `KINDS`, and a row in docs/reference/experiments.md.
"""

from __future__ import annotations

import abc
import random
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import ClassVar, cast

from mrc_topo.topology import Host, Link, Switch, Topology
from mrclab.lab.faults.action import DOWN, UP, Action, Effects, FailureError, Setting, Way
from p4lite.switch.fabric.values import SwitchState
from p4lite.switch.targetapi.values import LinkChanges

LINK = "a link like p0-t0.1--p0-t1.0 or a host port like h3:2"
PORT = "a host port like h3:2"
SWITCH = "a switch like p0-t1.0"
PROBABILITIES = {"loss", "corrupt", "duplicate", "reorder"}
IMPAIRMENTS = PROBABILITIES | {"reorder_extra_ns", "delay_ns", "rate_bps", "blackhole"}
#: The settings that a link accepts (`p4lite.switch.fabric.values.LinkSettings`).
LARGEST = 10**15


class FailureKind(abc.ABC):
    """A kind of failure. `takes` names its settings, `directed` says whether it can affect one direction alone."""

    name: ClassVar[str]
    summary: ClassVar[str]
    wanted: ClassVar[str]
    takes: ClassVar[frozenset[str]] = frozenset()
    directed: ClassVar[bool] = False

    def check(self, topology: Topology, action: Action) -> None:
        """Check an action of this kind against the topology.

        Raises:
            FailureError: a target, direction or setting does not fit.
            UnknownElement: the topology has no such target.
        """
        if not self.fits(topology.element(action.target)):
            raise FailureError(f"{self.name} needs {self.wanted}, not {action.target}")
        if action.direction not in ("both", UP, DOWN):
            raise FailureError(f"direction is both, up or down, not '{action.direction}'")
        if action.direction != "both" and not self.directed:
            raise FailureError(f"{self.name} takes no direction; it hits all of {action.target}")
        self.check_settings(action.settings, action.target)

    @abc.abstractmethod
    def fits(self, element: Link | Switch | Host) -> bool:
        """Return whether this kind of failure applies to an element."""

    def check_settings(self, settings: Mapping[str, Setting], target: str) -> None:
        """Check names and values of the settings. Raises FailureError."""
        for key, value in settings.items():
            if key not in self.takes:
                names = ", ".join(sorted(self.takes)) or "nothing"
                raise FailureError(f"{self.name} takes no '{key}'; it takes: {names}")
            fits, wanted = _setting_fits(key, value)
            if not fits:
                raise FailureError(f"{self.name} {target}: {key} must be {wanted}, not {value!r}")

    def drawn(self, element: Link | Switch | Host, rng: random.Random) -> dict[str, Setting]:
        """Draw random settings of a failure for `mrclab chaos`."""
        return {}

    @abc.abstractmethod
    def effects(self, topology: Topology, action: Action) -> Effects:
        """Return the effects of an action that was checked."""


def _setting_fits(key: str, value: object) -> tuple[bool, str]:
    number = None if isinstance(value, bool) or not isinstance(value, int | float) else value
    whole = number if isinstance(number, int) else -1
    if key in PROBABILITIES:
        return number is not None and 0 <= number <= 1, "a probability from 0 to 1"
    if key == "blackhole":
        return isinstance(value, bool), "true or false"
    if key == "rate_bps":
        return 1000 <= whole <= LARGEST, "a rate of at least 1000 bits per second"
    return 0 <= whole <= LARGEST, "a whole number of at least 0"


def _ways(link: Link, direction: str) -> list[Way]:
    return [(link.name, way) for way in (UP, DOWN) if direction in ("both", way)]


def _cables(links: Iterable[Link]) -> Effects:
    """Return the effects of cut cables; the NICs at their ends lose their carrier."""
    links = list(links)
    cut = frozenset(way for link in links for way in _ways(link, "both"))
    return Effects(cut=cut, carriers=frozenset(link.name for link in links if link.is_host_link))


class OfLink(FailureKind):
    """A failure of a link."""

    wanted = LINK

    def fits(self, element: Link | Switch | Host) -> bool:
        return isinstance(element, Link)


class OfSwitch(FailureKind):
    """A failure of a switch."""

    wanted = SWITCH

    def fits(self, element: Link | Switch | Host) -> bool:
        return isinstance(element, Switch)


class OfPort(OfLink):
    """A failure of a NIC port."""

    wanted = PORT

    def fits(self, element: Link | Switch | Host) -> bool:
        return super().fits(element) and isinstance(element, Link) and element.is_host_link


class LinkDown(OfLink):
    """A cut of a link. A cut in one direction leaves light, and so the NIC's carrier, in the other."""

    name = "link_down"
    summary = "cut a link, in both directions or one (direction: both, up = away from the host, down)"
    directed = True

    def effects(self, topology: Topology, action: Action) -> Effects:
        link = topology.links[action.target]
        return _cables([link]) if action.direction == "both" else Effects(cut=frozenset(_ways(link, action.direction)))


class PortDown(OfPort):
    """A NIC port that is down."""

    name = "port_down"
    summary = "take a NIC port's link and carrier away"

    def effects(self, topology: Topology, action: Action) -> Effects:
        return _cables([topology.links[action.target]])


class Impair(OfLink):
    """A link that loses, corrupts, duplicates, reorders or delays packets, or has a lower rate."""

    name = "impair"
    summary = "loss, corrupt, duplicate, reorder, delay_ns, rate_bps or blackhole on a link"
    takes = frozenset(IMPAIRMENTS)
    directed = True

    def check_settings(self, settings: Mapping[str, Setting], target: str) -> None:
        super().check_settings(settings, target)
        if not settings:
            raise FailureError(f"impair needs at least one of: {', '.join(sorted(IMPAIRMENTS))}")

    def drawn(self, element: Link | Switch | Host, rng: random.Random) -> dict[str, Setting]:
        choices: dict[str, Setting] = {
            "loss": rng.choice((0.01, 0.1, 0.5, 1.0)),
            "corrupt": rng.choice((0.01, 0.1, 1.0)),
            "duplicate": rng.choice((0.01, 0.5)),
            "reorder": rng.choice((0.01, 0.5)),
            "delay_ns": rng.choice((1_000_000, 20_000_000)),
            "rate_bps": rng.choice((100_000, 2_000_000)),
            "blackhole": True,
        }
        settings = {key: choices[key] for key in rng.sample(sorted(choices), rng.choice((1, 1, 2)))}
        if "reorder" in settings:
            settings["reorder_extra_ns"] = rng.choice((100_000, 5_000_000))
        return settings

    def effects(self, topology: Topology, action: Action) -> Effects:
        ways = _ways(topology.links[action.target], action.direction)
        return Effects(settings={way: cast(LinkChanges, dict(action.settings)) for way in ways})


class PauseStorm(OfPort):
    """A NIC that accepts no more packets and sends pause frames for all priorities. Only a switch port with priority
    flow control obeys them, so under MRC the NIC port works."""

    name = "pause_storm"
    summary = "a NIC port asks for pauses without end; a switch with queues.pfc obeys, and what waits there spreads"

    def effects(self, topology: Topology, action: Action) -> Effects:
        link = topology.links[action.target]
        mac = topology.host(link.low.node).ports[link.low.port].mac
        return Effects(settings={(link.name, UP): LinkChanges(pause_storm_mac=mac)})


class Transceiver(OfSwitch):
    """A failure of several links that share a module."""

    name = "transceiver"
    summary = "cut `count` neighbouring links of a switch at once, from port `first` on"
    takes = frozenset({"first", "count"})

    def check(self, topology: Topology, action: Action) -> None:
        super().check(topology, action)
        if not self._links(topology, action):
            switch = topology.switch(action.target)
            ports, has = self._ports(switch, action), list(switch.links)
            raise FailureError(f"{switch.name} has no ports {ports.start} to {ports.stop - 1}; it has {has}")

    def drawn(self, element: Link | Switch | Host, rng: random.Random) -> dict[str, Setting]:
        assert isinstance(element, Switch)
        return {"first": rng.choice(list(element.links)), "count": rng.randint(1, 2)}

    @staticmethod
    def _ports(switch: Switch, action: Action) -> range:
        first = int(action.settings.get("first", min(switch.links)))
        return range(first, first + int(action.settings.get("count", 2)))

    def _links(self, topology: Topology, action: Action) -> list[Link]:
        switch = topology.switch(action.target)
        ports = self._ports(switch, action)
        return [link for port, link in switch.links.items() if port in ports]

    def effects(self, topology: Topology, action: Action) -> Effects:
        return _cables(self._links(topology, action))


class SwitchStop(OfSwitch):
    """A switch without power; NICs at its ports lose their carrier."""

    name = "stop"
    summary = "switch off a switch: all its links go down"

    def effects(self, topology: Topology, action: Action) -> Effects:
        links = topology.switch(action.target).links.values()
        carriers = frozenset(link.name for link in links if link.is_host_link)
        return Effects(carriers=carriers, switches={action.target: SwitchState.STOPPED})


class Freeze(OfSwitch):
    """Observe nothing."""

    name = "freeze"
    summary = "a switch's data plane stands still, its control plane lives"

    def effects(self, topology: Topology, action: Action) -> Effects:
        return Effects(switches={action.target: SwitchState.FROZEN})


class Reboot(SwitchStop):
    """A switch that is off, like `stop`, and loses its tables."""

    name = "reboot"
    summary = "a switch off; restored with empty tables, which are then filled again"

    def effects(self, topology: Topology, action: Action) -> Effects:
        return replace(super().effects(topology, action), emptied=frozenset({action.target}))


KINDS: dict[str, FailureKind] = {
    kind.name: kind
    for kind in (LinkDown(), PortDown(), Impair(), PauseStorm(), Transceiver(), SwitchStop(), Freeze(), Reboot())
}


def resolved(topology: Topology, action: Action) -> Action:
    """Return the action with its target's canonical name and, where no kind is given, the target's default kind.

    That is `impair` where there are settings, else `port_down` for a host port, `link_down` for a link, `stop` for a
    switch.

    Raises:
        FailureError: the target is a host.
        UnknownElement: of the topology.
    """
    element = topology.element(action.target)
    if isinstance(element, Host):
        raise FailureError(f"{action.target} is a host; name one of its ports, like {action.target}:0")
    kind = action.kind
    if not kind and action.verb == "fail":
        if action.settings:
            kind = Impair.name
        elif isinstance(element, Switch):
            kind = SwitchStop.name
        else:
            kind = PortDown.name if element.is_host_link else LinkDown.name
    return replace(action, target=element.name, kind=kind)


def check(topology: Topology, action: Action) -> Action:
    """Return the action as `resolved` does, checked but not carried out.

    Raises:
        FailureError: the kind or a setting is unknown, or the target does not fit.
        UnknownElement: the topology has no such target.
    """
    action = resolved(topology, action)
    if action.kind and action.kind not in KINDS:
        raise FailureError(f"no failure '{action.kind}'; known: {', '.join(KINDS)}")
    if action.verb == "fail":
        KINDS[action.kind].check(topology, action)
    return action


def effects_of(topology: Topology, action: Action) -> Effects:
    """Return the effects of an action that was checked."""
    return KINDS[action.kind].effects(topology, action)
