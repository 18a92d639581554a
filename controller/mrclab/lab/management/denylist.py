"""Denylists: elements that no packet of a queue pair shall cross, whatever the endpoints think of them; and the
policies that choose them.

The controller knows which EVs cross an element (`mrc_topo.Paths`); the hosts' node controllers set those DENIED on
their QPs (`mrc-protocol.md §7`: any state <-> DENIED, and only the controller undoes it).

Denials live in two places. The lab's denylist (`Session.denied`, on the real clock in `state.json`) has elements, and
only `deny` and `allow` change it. Each host keeps the EVs that are denied towards each peer (`proto.context.denied`),
also while it has no queue pair; `apply` replaces all of them by what follows from the list. The states of a queue
pair's EVs follow what its host keeps, and an agent that starts again keeps nothing. QPs that are made later get the
list when their workload starts (`enforce`, in `runner.WorkloadRun`).
"""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Iterable, Sequence
from ipaddress import IPv6Address
from typing import Any

from mrc_host.ctl_requests import EvList, QueryEvs, SetDenials
from mrc_host.policy import PolicyError, load_class, supplier
from mrc_host.proto.limits import ConfigError
from mrc_host.requests import Hello
from mrc_topo.addressing import Tier
from mrc_topo.base.errors import ErrorCode, UsageError
from mrc_topo.ev import plane_of
from mrc_topo.modes import MODES, UplinkChooser
from mrc_topo.paths import Paths
from mrc_topo.topology import Host, Link, PathError, Switch, Topology, UnknownElement
from mrclab.lab.hosts.hostclient import HostError, HostGone
from mrclab.lab.management import clustermapper
from mrclab.lab.management.clustermapper import WORDS, Clustermapper, Finding, Localiser, Views
from mrclab.lab.session.base import Session


def load(reference: str | None) -> Localiser:
    """Load the localiser that `FILE.py:Class` names; None selects the built-in one.

    Raises:
        ConfigError: there is no such class, or it has no `locate`.
    """
    if reference is None:
        return Clustermapper()
    file = reference.rpartition(":")[0]
    elsewhere = supplier()
    if elsewhere is not None:
        return CheckedLocaliser(elsewhere(reference, "localiser")(), file)
    cls = load_class(reference)
    if not callable(getattr(cls, "locate", None)):
        raise ConfigError(
            f"{file}: class {cls.__name__} is not a localiser: it must have locate(self, topology, views)"
        )
    try:
        return CheckedLocaliser(cls(), file)
    except (Exception, SystemExit) as error:
        raise ConfigError(f"{file}: class {cls.__name__} cannot be made without arguments: {error}") from error


class CheckedLocaliser:
    """A localiser whose errors and invalid results become a `PolicyError`."""

    def __init__(self, inner: Any, file: str) -> None:
        self.inner = inner
        self.file = file
        method = type(inner).locate
        self._where = f"{type(inner).__name__}.locate"
        self._line: int = getattr(getattr(method, "__code__", None), "co_firstlineno", 1)

    def locate(self, topology: Topology, views: Views) -> list[Finding]:
        """See `Localiser`."""
        try:
            found = self.inner.locate(topology, views)
        except (Exception, SystemExit) as error:
            frames = [each for each in traceback.extract_tb(error.__traceback__) if each.filename == self.file]
            line = (frames[-1].lineno if frames else None) or self._line
            raise self._error(f"{type(error).__name__}: {error}", line) from error
        if not isinstance(found, list):
            raise self._error(f"returned {found!r}, not a list of findings", self._line)
        for finding in found:
            self._check(topology, finding)
        return found

    def _check(self, topology: Topology, finding: object) -> None:
        if not isinstance(finding, Finding):
            raise self._error(f"returned {finding!r} among the findings, not a Finding", self._line)
        if finding.state not in WORDS.values():
            known = " or ".join(WORDS.values())
            raise self._error(f"says that {finding.element} is {finding.state!r}, not {known}", self._line)
        try:
            topology.element(finding.element)
        except UnknownElement as error:
            raise self._error(f"named {finding.element!r}: {error}", self._line) from error

    def _error(self, text: str, line: int) -> PolicyError:
        return PolicyError(f"{self.file}:{line}: {self._where}: {text}")


Element = Link | Switch | Host


class DenylistError(UsageError):
    """A denylist that cannot be applied; the text names the hosts or the element, and the remedy."""


def dead_now(session: Session) -> list[str]:
    """Return the elements that are dead by the hosts' probes now."""
    finder = load(session.topology.lab.policies.localiser)
    view = clustermapper.view_of(session.topology, session.hosts, finder)
    return sorted(name for name, state in view.items() if state == clustermapper.WORDS[clustermapper.DEAD])


def deny(session: Session, elements: Iterable[str]) -> int:
    """Add elements to the lab's denylist; return how many EVs that took out of use (see `apply`).

    Raises:
        DenylistError: some QP would have no EV left, no EV is sure to cross an element, a host does not answer, or the
            lab runs RoCE.
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
    """Take elements (None: all) off the denylist; return how many EVs came back (see `apply`).

    Raises:
        DenylistError: an element is not on the list, or a host does not answer.
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


def enforce(session: Session) -> None:
    """Give queue pairs that were just made the lab's denylist. Raises as `apply`."""
    with session.changing_denied():
        if session.denied:
            apply(session, session.denied)


def apply(session: Session, denied: Iterable[str]) -> int:
    """Make the EVs that each host keeps denied exactly those that cross these elements; return how many EVs changed,
    over all queue pairs, and over the peers to which a host has none.

    Raises:
        DenylistError: some QP would have no EV left, a host does not answer, or the hosts have no node controller;
            nothing is changed then.
    """
    topology = session.topology
    elements = [topology.element(name) for name in sorted(denied)]
    paths = Paths(topology)
    frozen = {each.role: each.text() for each in session.frozen()}
    denials: dict[str, SetDenials] = {}
    for source, host in session.hosts.items():
        try:
            if source in frozen:
                raise HostError(frozen[source])
            transport = host.ask(Hello()).transport
        except HostError as error:
            if isinstance(error, HostGone) and error.code is not ErrorCode.SILENT:
                continue  # Its agent is gone, with its queue pairs and what was denied to it.
            raise DenylistError(f"{error}; nothing is denied or allowed while a host cannot learn of it") from error
        if transport != "mrc":
            raise DenylistError("denylists are of EVs, which only MRC has; this lab runs roce")
        denials[source] = denials_of(paths, elements, source, host.ask(QueryEvs()))
    return sum(session.hosts[source].ask(order).changed for source, order in denials.items())


def denials_of(paths: Paths, elements: Sequence[Element], source: str, found: EvList) -> SetDenials:
    """Return what one host is to deny towards each peer.

    EVs of queue pairs have their planes. Of other EVs, towards peers whose queue pairs have gone, those that cross an
    element stay denied.
    """
    topology = paths.topology
    start = topology.host(source).index
    numbers = {str(IPv6Address(address)): number for address, number in topology.by_address.items()}
    addresses = {host.name: str(IPv6Address(host.address)) for host in topology.hosts}
    denials: dict[str, set[int]] = {}
    known: dict[str, set[int]] = {}

    def crosses(address: str, value: int, plane: int) -> bool:
        return any(must_cross(paths, each, (start, numbers[address]), value, plane) for each in elements)

    for qp in found.qps:
        address = addresses.get(qp.peer, qp.peer)  # programs' queue pairs have the peer's address
        if numbers.get(address, start) == start:
            continue  # It is not connected, or its packets do not leave the host.
        crossing = {each.ev for each in qp.evs if crosses(address, each.ev, each.plane)}
        if len(crossing) == len(qp.evs):
            names = ", ".join(each.name for each in elements)
            peer = topology.host(numbers[address]).name
            raise DenylistError(f"without {names} no EV is left from {source} to {peer}")
        denials.setdefault(address, set()).update(crossing)
        known.setdefault(address, set()).update(each.ev for each in qp.evs)
    for address, values in found.denied.items():
        if numbers.get(address, start) != start:
            for value in set(values) - known.get(address, set()):
                with contextlib.suppress(PathError):  # It is of an AUTO profile, and its bits name no plane.
                    if crosses(address, value, plane_of(value)):
                        denials.setdefault(address, set()).add(value)
    return SetDenials({address: sorted(values) for address, values in denials.items() if values})


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
