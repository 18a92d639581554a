"""Failures as data: what to break, how, and how exactly that is undone.

A failure changes state that somebody may have set before; what it found is kept, and `restore` puts back exactly that.
Targets are names of the topology: links (`p0-t0.1--p0-t1.0`), host ports (`h3:2`), switches (`p0-t1.0`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol

from mrc_topo.paths import Paths
from mrc_topo.topology import Link, Switch, Topology
from p4lite.switch import target_codec as codec
from p4lite.switch.fabric_types import LinkSettings, SwitchState
from p4lite.switch.target import FabricInfo

if TYPE_CHECKING:
    from mrc_control.session import Session

Direction = Literal["both", "up", "down"]
End = tuple[int, int]

#: Kinds of failure, what they need, and what they do.
KINDS = {
    "link_down": "cut a link, in both directions or one (direction: both, up = away from the host, down)",
    "port_down": "take a NIC port's link and carrier away",
    "impair": "loss, corrupt, duplicate, reorder, delay_ns, rate_bps or blackhole on a link",
    "transceiver": "cut `count` neighbouring links of a switch at once, from port `first` on",
    "stop": "switch off a switch: all its links go down",
    "freeze": "a switch's data plane stands still, its control plane lives",
    "reboot": "a switch off; restored with empty tables, which are then filled again",
}
IMPAIRMENTS = {"loss", "corrupt", "duplicate", "reorder", "reorder_extra_ns", "delay_ns", "rate_bps", "blackhole"}


class FailureError(Exception):
    """A failure that cannot be made or undone; the text names the target and what would work."""


class FabricControl(Protocol):
    """The part of the target API that failures use (`p4lite.switch.target.TargetClient` has it)."""

    def info(self) -> FabricInfo:
        """State of all switches and ports."""

    def set_port_up(
        self, device_id: int, port: int, up: bool, direction: Literal["both", "outgoing", "incoming"] = "both"
    ) -> None:
        """Cuts or mends at a port."""

    def set_port_link(
        self,
        device_id: int,
        port: int,
        *,
        outgoing: LinkSettings | dict[str, Any] | None = None,
        incoming: LinkSettings | dict[str, Any] | None = None,
    ) -> Any:
        """Changes settings."""

    def set_state(self, device_id: int, state: SwitchState | Literal["running", "frozen", "stopped"]) -> None:
        """Runs, freezes, stops."""

    def restart(self, device_id: int, *, disconnect: bool = False) -> None:
        """Empties a switch as a reboot does."""


@dataclass(frozen=True)
class Action:
    """`fail` or `restore` of a target. `kind` and `settings` belong to `fail`; `restore` undoes whatever is there.

    `loss` is what it must cost from then on, where that is not what the topology says.
    """

    verb: Literal["fail", "restore"]
    target: str
    kind: str = ""
    direction: Direction = "both"
    settings: Mapping[str, Any] = field(default_factory=dict)
    loss: float | None = None

    def describe(self) -> str:
        """As a person says it."""
        if self.verb == "restore":
            return f"restore {self.target}"
        extra = "".join(f" {key}={value}" for key, value in self.settings.items())
        way = "" if self.direction == "both" else f" ({self.direction})"
        return f"{self.kind.replace('_', ' ')} {self.target}{way}{extra}"

    def document(self) -> dict[str, Any]:
        """As JSON, with the description as `text`."""
        return {
            "verb": self.verb,
            "target": self.target,
            "kind": self.kind,
            "direction": self.direction,
            "settings": dict(self.settings),
            "loss": self.loss,
            "text": self.describe(),
        }


def default_kind(topology: Topology, target: str) -> str:
    """The failure people mean when they only name a target: link_down, port_down or stop."""
    element = topology.element(target)
    if isinstance(element, Switch):
        return "stop"
    if isinstance(element, Link):
        return "port_down" if element.is_host_link else "link_down"
    raise FailureError(f"{target} is a host; name one of its ports, like {target}:0")


@dataclass
class _PortState:
    """What a failure found at one port, to be put back."""

    end: End
    up_outgoing: bool
    up_incoming: bool
    outgoing: LinkSettings
    incoming: LinkSettings


@dataclass
class Broken:
    """One failure in force."""

    action: Action
    ports: list[_PortState] = field(default_factory=list)
    state: SwitchState | None = None
    device_id: int = 0
    carriers: list[tuple[str, int]] = field(default_factory=list)

    def document(self) -> dict[str, Any]:
        """As JSON, so that another process can restore it."""
        return {
            "action": {**self.action.document(), "text": None},
            "ports": [
                {**asdict(port), "outgoing": codec.plain(port.outgoing), "incoming": codec.plain(port.incoming)}
                for port in self.ports
            ],
            "state": self.state.value if self.state else None,
            "device_id": self.device_id,
            "carriers": [list(each) for each in self.carriers],
        }

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Broken:
        """What `document` wrote."""
        action = {key: value for key, value in document["action"].items() if key != "text"}
        ports = [
            _PortState(
                (each["end"][0], each["end"][1]),
                each["up_outgoing"],
                each["up_incoming"],
                codec.link_settings(each["outgoing"], "outgoing"),
                codec.link_settings(each["incoming"], "incoming"),
            )
            for each in document["ports"]
        ]
        state = SwitchState(document["state"]) if document["state"] else None
        carriers = [(host, port) for host, port in document["carriers"]]
        return cls(Action(**action), ports, state, document["device_id"], carriers)


class Failures:
    """What is broken in a lab, by target.

    Args:
        topology: the lab's.
        refill: fills a switch's tables again after a reboot (by name).
    """

    def __init__(self, topology: Topology, refill: Callable[[str], object]) -> None:
        self.topology = topology
        self.refill = refill
        self.broken: dict[str, Broken] = {}

    def perform(self, session: Session, action: Action) -> None:
        """Carries an action out.

        Raises:
            FailureError: an unknown kind or setting, a target it does not fit, broken already or not broken.
        """
        if action.verb == "fail":
            self.fail(session, action)
        else:
            self.restore(session, action.target)

    def check(self, action: Action) -> None:
        """Checks an action against the topology without doing it.

        Raises:
            FailureError: as `fail`; `UnknownElement` of the topology for an unknown target.
        """
        element = self.topology.element(action.target)
        if action.verb == "restore":
            return
        if action.kind not in KINDS:
            raise FailureError(f"no failure '{action.kind}'; known: {', '.join(KINDS)}")
        on_switch = action.kind in ("stop", "freeze", "reboot", "transceiver")
        if on_switch != isinstance(element, Switch):
            wanted = "a switch like p0-t1.0" if on_switch else "a link like p0-t0.1--p0-t1.0 or a host port like h3:2"
            raise FailureError(f"{action.kind} needs {wanted}, not {action.target}")
        if action.kind == "port_down" and not (isinstance(element, Link) and element.is_host_link):
            raise FailureError(f"port_down needs a host port like h3:2, not {action.target}")
        if action.direction not in ("both", "up", "down"):
            raise FailureError(f"direction is both, up or down, not '{action.direction}'")
        allowed = {"impair": IMPAIRMENTS, "transceiver": {"first", "count"}}.get(action.kind, set())
        for key, value in action.settings.items():
            if key not in allowed:
                raise FailureError(
                    f"{action.kind} takes no '{key}'; it takes: {', '.join(sorted(allowed)) or 'nothing'}"
                )
            self._check_setting(action, key, value)
        if action.kind == "impair" and not action.settings:
            raise FailureError(f"impair needs at least one of: {', '.join(sorted(IMPAIRMENTS))}")

    @staticmethod
    def _check_setting(action: Action, key: str, value: Any) -> None:
        if key in ("loss", "corrupt", "duplicate", "reorder"):
            fits = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1
            wanted = "a probability from 0 to 1"
        elif key == "blackhole":
            fits, wanted = isinstance(value, bool), "true or false"
        elif key == "rate_bps":
            fits, wanted = isinstance(value, int) and value >= 1000, "a rate of at least 1000 bits per second"
        else:
            fits, wanted = isinstance(value, int) and value >= 0, "a whole number of at least 0"
        if not fits:
            raise FailureError(f"{action.kind} {action.target}: {key} must be {wanted}, not {value!r}")

    def fail(self, session: Session, action: Action) -> None:
        """Breaks a target; see `perform`."""
        self.check(action)
        name = self._name(action.target)
        if name in self.broken:
            text = self.broken[name].action.describe()
            raise FailureError(f"{name} is broken already ({text}); restore it first")
        element = self.topology.element(name)
        broken = Broken(action)
        if isinstance(element, Switch):
            self._fail_switch(session, element, action, broken)
        elif isinstance(element, Link):
            self._fail_link(session, element, action, broken)
        self.broken[name] = broken

    def _name(self, target: str) -> str:
        return self.topology.element(target).name

    def _fail_switch(self, session: Session, switch: Switch, action: Action, broken: Broken) -> None:
        fabric = session.fabric
        if action.kind == "transceiver":
            first = int(action.settings.get("first", min(switch.links)))
            count = int(action.settings.get("count", 2))
            ports = [port for port in switch.links if first <= port < first + count]
            if not ports:
                raise FailureError(
                    f"{switch.name} has no ports {first} to {first + count - 1}; it has {list(switch.links)}"
                )
            for port in ports:
                self._cut(session, switch.links[port], "both", broken)
            return
        broken.device_id = switch.device_id
        broken.state = fabric.info().switches[switch.device_id].state
        if action.kind == "freeze":
            fabric.set_state(switch.device_id, "frozen")
            return
        fabric.set_state(switch.device_id, "stopped")
        self._carriers(session, switch.links.values(), broken)

    def _fail_link(self, session: Session, link: Link, action: Action, broken: Broken) -> None:
        if action.kind == "impair":
            end, direction = self._switch_end(link), action.direction
            broken.ports.append(self._remember(session, end))
            settings = dict(action.settings)
            up, down = (settings if direction in ("both", way) else None for way in ("up", "down"))
            session.fabric.set_port_link(*end, **self._oriented(link, up, down))
            return
        self._cut(session, link, action.direction, broken)

    def _cut(self, session: Session, link: Link, direction: Direction, broken: Broken) -> None:
        end = self._switch_end(link)
        broken.ports.append(self._remember(session, end))
        if direction == "both":
            session.fabric.set_port_up(*end, up=False)
            self._carriers(session, [link], broken)
        else:
            # Seen from the low end (or the T0 of a host link), away from the host is outgoing on fabric links.
            outgoing = (direction == "up") != link.is_host_link
            session.fabric.set_port_up(*end, up=False, direction="outgoing" if outgoing else "incoming")

    @staticmethod
    def _oriented(link: Link, up: Any, down: Any) -> dict[str, Any]:
        outgoing, incoming = (down, up) if link.is_host_link else (up, down)
        return {key: value for key, value in (("outgoing", outgoing), ("incoming", incoming)) if value is not None}

    def _carriers(self, session: Session, links: Any, broken: Broken) -> None:
        """A NIC sees its cable cut: the host's port loses its carrier."""
        for link in links:
            if link.is_host_link:
                session.set_carrier(link.low.node, link.low.port, False)
                broken.carriers.append((link.low.node, link.low.port))

    def _switch_end(self, link: Link) -> End:
        """(device id, port) of the end at a T0."""
        end = link.high if link.is_host_link else link.low
        return self.topology.switch(end.node).device_id, end.port

    @staticmethod
    def _remember(session: Session, end: End) -> _PortState:
        port = session.fabric.info().switches[end[0]].ports[end[1]]
        return _PortState(end, port.up_outgoing, port.up_incoming, port.outgoing, port.incoming)

    def restore(self, session: Session, target: str) -> None:
        """Puts back exactly what the failure of a target changed.

        Raises:
            FailureError: the target is not broken.
        """
        name = self._name(target)
        if name not in self.broken:
            now = ", ".join(self.broken) or "nothing is"
            raise FailureError(f"{name} is not broken; broken: {now}")
        broken = self.broken.pop(name)
        fabric = session.fabric
        for port in broken.ports:
            fabric.set_port_link(*port.end, outgoing=port.outgoing, incoming=port.incoming)
            fabric.set_port_up(*port.end, up=port.up_outgoing, direction="outgoing")
            fabric.set_port_up(*port.end, up=port.up_incoming, direction="incoming")
        if broken.state is not None:
            if broken.action.kind == "reboot":
                fabric.restart(broken.device_id, disconnect=False)
                self.refill(name)
            fabric.set_state(broken.device_id, broken.state)
        for host, number in broken.carriers:
            session.set_carrier(host, number, True)

    def restore_all(self, session: Session) -> list[str]:
        """Restores everything, latest first; returns the targets."""
        names = list(reversed(self.broken))
        for name in names:
            self.restore(session, name)
        return names

    def expected_loss(self, topology: Topology, hosts: Sequence[int] | None = None) -> float:
        """Share of capacity that the failures in force cost the host that loses most, endpoints avoiding them.

        Losses of several failures at one host add up; impairments other than a lower rate cost nothing.
        """
        paths = Paths(topology)
        worst = 0.0
        for host in topology.hosts if hosts is None else [topology.hosts[index] for index in hosts]:
            lost = 0.0
            for name, broken in self.broken.items():
                if broken.action.kind == "transceiver":
                    ends = {port.end for port in broken.ports}
                    links = [link for link in topology.links.values() if self._switch_end(link) in ends]
                    lost += sum(paths.capacity_lost(link, host.index) for link in links)
                elif broken.action.kind != "impair":
                    lost += paths.capacity_lost(topology.element(name), host.index)
            worst = max(worst, min(lost, 1.0))
        return worst


def flapping(
    target: str, kind: str, start_s: float, period_s: float, count: int, loss: float | None = None
) -> list[tuple[float, Action]]:
    """A target that goes down and up `count` times: down for the first half of every period."""
    schedule: list[tuple[float, Action]] = []
    for number in range(count):
        begin = start_s + number * period_s
        schedule.append((begin, Action("fail", target, kind, loss=loss)))
        schedule.append((begin + period_s / 2, Action("restore", target)))
    return schedule
