"""Denylists: elements that no packet of a queue pair shall cross, whatever the endpoints think of them.

The controller knows which EVs cross an element (`mrc_topo.Paths`); the hosts' node controllers set those DENIED on
their QPs (`mrc-protocol.md §7`: any state <-> DENIED, and only the controller undoes it). QPs that are made later
are given the list when their workload starts (`runner.Run`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from mrc_common.errors import UsageError
from mrc_host.answers import EvRow
from mrc_host.ctl_requests import QueryEvs, SetEvs
from mrc_host.proto.events import EvState
from mrc_host.requests import Hello
from mrc_lab.hosts.hostclient import HostError
from mrc_lab.management import clustermapper, localiser
from mrc_lab.session.base import Session
from mrc_topo.addressing import Tier
from mrc_topo.modes import MODES, UplinkChooser
from mrc_topo.paths import Paths
from mrc_topo.topology import Host, Link, Switch, Topology

Element = Link | Switch | Host


class DenylistError(UsageError):
    """A denylist that cannot be applied; the text names the hosts or the element, and the remedy."""


@dataclass
class _HostOrders:
    """The changes for one host's QPs to one peer."""

    deny: set[int] = field(default_factory=set)
    allow: set[int] = field(default_factory=set)


def dead_now(session: Session) -> list[str]:
    """Return the elements that are dead by the hosts' probes now."""
    finder = localiser.load(session.topology.lab.policies.localiser)
    view = clustermapper.view_of(session.topology, session.hosts, finder)
    return sorted(name for name, state in view.items() if state == clustermapper.WORDS[clustermapper.DEAD])


def deny(session: Session, elements: Iterable[str]) -> int:
    """Add elements to the lab's denylist; return how many EVs, over all QPs, that took out of use.

    Raises:
        DenylistError: some QP would have no EV left, no EV is sure to cross an element, or the lab runs RoCE.
        UnknownElement: the topology has no such element.
    """
    topology = session.topology
    wanted = {topology.element(name).name for name in elements}
    for name in wanted:
        _check(topology, name)
    with session.changing_denied():
        changed = apply(session, session.denied | wanted)
        session.denied |= wanted
    return changed


def allow(session: Session, elements: Iterable[str] | None = None) -> int:
    """Take elements (None: all) off the denylist; return how many EVs, over all QPs, came back.

    Raises:
        DenylistError: an element is not on the list.
    """
    wanted = None if elements is None else {session.topology.element(each).name for each in elements}
    with session.changing_denied():
        names = set(session.denied) if wanted is None else wanted
        for name in names - session.denied:
            now = ", ".join(sorted(session.denied)) or "nothing"
            raise DenylistError(f"{name} is not denied; denied: {now}")
        changed = apply(session, session.denied - names)
        session.denied -= names
    return changed


def apply(session: Session, denied: Iterable[str]) -> int:
    """Make every QP's DENIED EVs exactly those that cross these elements; return how many EVs, over all QPs, changed.

    Raises:
        DenylistError: some QP would have no EV left, or the hosts have no node controller; nothing is changed then.
    """
    topology = session.topology
    elements = [topology.element(name) for name in sorted(denied)]
    paths = Paths(topology)
    orders: dict[tuple[str, str], _HostOrders] = {}
    for source, host in session.hosts.items():
        try:
            transport = host.ask(Hello()).transport
        except HostError:
            continue  # Its agent is gone, and its queue pairs with it.
        if transport != "mrc":
            raise DenylistError("denylists are of EVs, which only MRC has; this lab runs roce")
        for qp in host.ask(QueryEvs()).qps:
            order = orders.setdefault((source, qp.peer), _HostOrders())
            left = _sort_evs(paths, elements, (source, qp.peer), qp.evs, order)
            if not left:
                names = ", ".join(each.name for each in elements)
                raise DenylistError(f"without {names} no EV is left from {source} to {qp.peer}")
    changed = 0
    for (source, peer), order in orders.items():
        for state, evs in ((EvState.DENIED, order.deny), (EvState.GOOD, order.allow)):
            if evs:
                changed += session.hosts[source].ask(SetEvs(sorted(evs), state, peer)).changed
    return changed


def _sort_evs(
    paths: Paths,
    elements: Sequence[Element],
    pair: tuple[str, str],
    evs: Iterable[EvRow],
    order: _HostOrders,
) -> int:
    """Sort the EVs of one QP into the order; return how many are left in use."""
    source, destination = (paths.topology.host(name).index for name in pair)
    left = 0
    for each in evs:
        crosses = any(must_cross(paths, element, (source, destination), each.ev, each.plane) for element in elements)
        denied = each.state is EvState.DENIED
        left += not crosses
        if crosses and not denied:
            order.deny.add(each.ev)
        elif not crosses and denied:
            order.allow.add(each.ev)
    return left


def must_cross(paths: Paths, element: Element, pair: tuple[int, int], value: int, plane: int) -> bool:
    """Return whether packets of an EV are sure to cross an element. Where switches spray, all paths of the plane must
    cross it."""
    path = paths.path_of_ev(*pair, value, plane)
    ways = [path] if path is not None else paths.all_paths(*pair, plane)
    return all(paths.crosses(element, each) for each in ways)


def _check(topology: Topology, name: str) -> None:
    element = topology.element(name)
    if isinstance(element, Host):
        raise DenylistError(f"{name} is a host; name one of its ports, like {name}:0")
    chosen_by_switch = element.tier is Tier.T1 if isinstance(element, Switch) else not element.is_host_link
    if MODES[topology.lab.routing.mode].chooser is UplinkChooser.SWITCH and chosen_by_switch:
        raise DenylistError(f"{name}: in routing mode spray the switches choose, no EV has a path of its own")
