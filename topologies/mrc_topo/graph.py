"""The shape that the names and links of a graph make: ports, planes, what is wrong with them, and paths.

A graph is a lab's `topology` (`mrc_topo.schema.GraphSpec`). NIC port p of every host makes plane p of the EVs. Switches
that are connected without hosts are a component; all ports p are at one component.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from mrc_topo.addressing import MAX_PLANES, MAX_PORT
from mrc_topo.base.document import PlacedError, printable

if TYPE_CHECKING:
    import networkx as nx


#: Names become parts of files, sockets, host names and of the names of links.
HOST_NAME = re.compile(r"[A-Za-z](?:[A-Za-z0-9_-]{0,29}[A-Za-z0-9])?\Z")
SWITCH_NAME = re.compile(r"[A-Za-z](?:[A-Za-z0-9._-]{0,29}[A-Za-z0-9])?\Z")
NAME_RULE = "letters, digits, '_' and single '-' (and '.' of switches), a letter first, no sign last, at most 31"
#: The names of a lab's other processes, the ending of those of shells, and what the live view calls its boxes.
RESERVED = frozenset({"machine", "lab", "labd", "fabric", "relay", "shell", "localhost"})
BOX = re.compile(r"(?:plane|hosts)-\d+\Z")
END = re.compile(r"(?P<node>[^:]+)(?::(?P<port>\d{1,4}))?\Z")
#: A switch's table `host_routes` has an entry for each host and each of its ports.
HOST_ROUTES = 4096


@dataclass(frozen=True, slots=True)
class Joint:
    """A link: the names and port numbers of its ends. A host is the low end, and its port number is its plane."""

    low: str
    low_port: int
    high: str
    high_port: int


@dataclass(frozen=True)
class GraphShape:
    """A graph that was checked: its links in the order of the file, and the plane of each switch, which is the first
    that its component carries."""

    planes: int
    joints: tuple[Joint, ...]
    plane_of: Mapping[str, int]

    def check_radix(self, switches: Sequence[str], radix: int) -> None:
        """Raise PlacedError for a switch with more links than this."""
        used = Counter(node for each in self.joints for node in (each.low, each.high))
        for index, switch in enumerate(switches):
            if used[switch] > radix:
                raise PlacedError(
                    f"{switch} has {used[switch]} links, the radix is {radix}; use fewer or raise radix",
                    ("topology", "switches", index),
                )


class _Sets:
    """Disjoint sets of names."""

    def __init__(self, names: Iterable[str]) -> None:
        self._parent = {name: name for name in names}

    def find(self, name: str) -> str:
        """Return the name that stands for a name's set."""
        while self._parent[name] != name:
            self._parent[name] = self._parent[self._parent[name]]
            name = self._parent[name]
        return name

    def join(self, one: str, other: str) -> None:
        """Make one set of two."""
        self._parent[self.find(other)] = self.find(one)


def shape_of(switches: Sequence[str], hosts: Sequence[str], links: Sequence[tuple[str, str]]) -> GraphShape:
    """Return the shape of a graph; each end of a link is `NODE` or `NODE:PORT`.

    Raises:
        PlacedError: it is not a graph that a lab can be; the key begins with `switches`, `hosts` or `links`.
    """
    _check_names(switches, hosts)
    ends = _ends(switches, hosts, links)
    sets = _Sets(switches)
    for (one, _), (other, _) in ends:
        if one not in hosts and other not in hosts:
            sets.join(one, other)
    components = list(dict.fromkeys(sets.find(name) for name in switches))
    order = {name: components.index(sets.find(name)) for name in switches}
    joints = _numbered(set(hosts), ends, order)
    planes = _planes(hosts, joints, order)
    plane_of = _plane_of(hosts, switches, joints, order)
    most = HOST_ROUTES // (planes + 1)
    if len(hosts) > most:
        raise PlacedError(
            f"{len(hosts)} hosts with {planes} ports each do not fit a switch's table of {HOST_ROUTES} host routes; "
            f"give {most} hosts at most",
            ("hosts",),
        )
    return GraphShape(planes, joints, plane_of)


def _check_names(switches: Sequence[str], hosts: Sequence[str]) -> None:
    seen: set[str] = set()
    for kind, pattern, names in (("switches", SWITCH_NAME, switches), ("hosts", HOST_NAME, hosts)):
        for index, name in enumerate(names):
            key = (kind, index)
            if not pattern.match(name) or "--" in name:
                raise PlacedError(f"'{printable(name)}' is no name of a node; use {NAME_RULE}", key)
            if RESERVED & {*name.split(".")} or BOX.match(name):
                raise PlacedError(f"'{name}' names another part of a lab; rename the node", key)
            if name in seen:
                raise PlacedError(f"'{name}' is given twice; names of hosts and switches are unique", key)
            seen.add(name)
    for kind, names in (("switches", switches), ("hosts", hosts)):
        if not names:
            raise PlacedError(f"the graph has no {kind}; name them", (kind,))


_Ends = list[tuple[tuple[str, int | None], tuple[str, int | None]]]


def _ends(switches: Sequence[str], hosts: Sequence[str], links: Sequence[tuple[str, str]]) -> _Ends:
    """Return the ends of every link, hosts first, each with its port number or None."""
    known_hosts, known = set(hosts), {*hosts, *switches}
    pairs: set[frozenset[str]] = set()
    found: _Ends = []
    for index, link in enumerate(links):
        key = ("links", index)
        parsed = []
        for text in link:
            match = END.match(text)
            if match is None or match["node"] not in known:
                raise PlacedError(
                    f"'{printable(text)}' is no end of a link; write NODE or NODE:PORT, with a node of hosts or "
                    "switches",
                    key,
                )
            parsed.append((match["node"], None if match["port"] is None else int(match["port"])))
        one, other = parsed
        if one[0] == other[0]:
            raise PlacedError(f"{one[0]} is linked to itself; remove the link", key)
        if one[0] not in known_hosts:
            one, other = (other, one) if other[0] in known_hosts else (one, other)
        if other[0] in known_hosts:
            raise PlacedError(f"{one[0]} and {other[0]} are both hosts; put a switch between them", key)
        pair = frozenset((one[0], other[0]))
        if pair in pairs and one[0] not in known_hosts:
            raise PlacedError(
                f"{one[0]} and {other[0]} have a link already, and a uSID names the next switch, not the link to it; "
                "keep one, with the rate of both",
                key,
            )
        pairs.add(pair)
        found.append((one, other))
    return found


def _numbered(hosts: set[str], ends: _Ends, order: Mapping[str, int]) -> tuple[Joint, ...]:
    """Return the links with the numbers of their ports; those that the file does not give are the free ones, in the
    order of components (of a host's ports) and of the file."""
    taken: dict[str, dict[int, int]] = {}
    for index, pair in enumerate(ends):
        for node, port in pair:
            if port is None:
                continue
            low, high, unit = (0, MAX_PLANES - 1, "NIC port") if node in hosts else (1, MAX_PORT, "port")
            if not low <= port <= high:
                raise PlacedError(f"{node} has no {unit} {port}; give {low} to {high}", ("links", index))
            if port in taken.setdefault(node, {}):
                raise PlacedError(f"{unit} {port} of {node} has a link already; give another", ("links", index))
            taken[node][port] = index
    numbers: dict[tuple[int, str], int] = {(at, node): port for node, by in taken.items() for port, at in by.items()}
    # Of a host, links to the first component come first, so that planes that share nothing need no numbers.
    turn = sorted(range(len(ends)), key=lambda at: (order[ends[at][1][0]] if ends[at][0][0] in hosts else 0, at))
    of_hosts = [(at, ends[at][0][0]) for at in turn if ends[at][0][0] in hosts]
    of_switches = [(at, node) for at, pair in enumerate(ends) for node, _ in pair if node not in hosts]
    for at, node in of_hosts + of_switches:
        if (at, node) in numbers:
            continue
        low, most = (0, MAX_PLANES) if node in hosts else (1, MAX_PORT)
        used = taken.setdefault(node, {})
        if len(used) >= most:
            raise PlacedError(f"{node} has more than {most} links; use fewer", ("links", at))
        port = next(each for each in range(low, low + most) if each not in used)
        used[port] = at
        numbers[at, node] = port
    return tuple(
        Joint(one, numbers[at, one], other, numbers[at, other]) for at, ((one, _), (other, _)) in enumerate(ends)
    )


def _planes(hosts: Sequence[str], joints: Iterable[Joint], order: Mapping[str, int]) -> int:
    """Return the number of ports that every host has; `order`: the component of each switch."""
    at: dict[str, dict[int, str]] = {host: {} for host in hosts}
    for joint in joints:
        if joint.low in at:
            at[joint.low][joint.low_port] = joint.high
    first = hosts[0]
    for index, (host, mine) in enumerate(at.items()):
        key = ("hosts", index)
        if not mine:
            raise PlacedError(f"{host} has no link; connect it to a switch, or leave it out", key)
        if len(mine) != len(at[first]):
            raise PlacedError(
                f"{host} has {_counted(len(mine))}, {first} has {len(at[first])}, and port p of a host sends to port p "
                f"of another; {_evened((host, mine), (first, at[first]), order)}",
                key,
            )
        if sorted(mine) != list(range(len(mine))):
            raise PlacedError(f"the NIC ports of {host} are {sorted(mine)}; number them 0 to {len(mine) - 1}", key)
    return len(at[first])


def _counted(ports: int) -> str:
    return f"{ports} NIC port" + "s" * (ports != 1)


def _evened(one: tuple[str, Mapping[int, str]], other: tuple[str, Mapping[int, str]], order: Mapping[str, int]) -> str:
    """Return what gives two hosts equally many links; of each its name, and the switch at each of its ports."""
    (few, mine), (many, theirs) = sorted((one, other), key=lambda host: len(host[1]))
    missing = len(theirs) - len(mine)
    # New links lead to the parts of the fabric that the other host reaches more often, so that ports of one number are
    # in one part; there to switches that the host has no link to yet, if there are some.
    short = Counter(order[switch] for switch in theirs.values())
    short.subtract(order[switch] for switch in mine.values())
    wanted: list[str] = []
    for switch in sorted(theirs.values(), key=lambda name: name in mine.values()):
        if short[order[switch]] > 0 and len(wanted) < missing:
            wanted.append(switch)
            short[order[switch]] -= 1
    added = " and ".join(f"{few}--{switch}" for switch in wanted)
    links = ", ".join(f"{many}--{theirs[port]}" for port in sorted(theirs))
    more, away = ("a further link", "one") if missing == 1 else (f"{missing} further links", str(missing))
    return f"give {few} {more}, such as {added}, or take {away} of the links of {many} away: {links}"


def _plane_of(
    hosts: Sequence[str], switches: Sequence[str], joints: Iterable[Joint], order: Mapping[str, int]
) -> dict[str, int]:
    """Return the plane of every switch: the lowest port of hosts at its component."""
    known = {host: index for index, host in enumerate(hosts)}
    first: dict[int, tuple[str, int]] = {}
    plane_of: dict[int, int] = {}
    for joint in joints:
        if joint.low not in known:
            continue
        port, component = joint.low_port, order[joint.high]
        host, there = first.setdefault(port, (joint.low, component))
        if there != component:
            raise PlacedError(
                f"{host}:{port} and {joint.low}:{port} are not connected: no switches lead from one to the other; "
                "connect them, or number the NIC ports so that port p of all hosts is in one part of the fabric",
                ("hosts", known[joint.low]),
            )
        plane_of[component] = min(port, plane_of.get(component, port))
    for index, switch in enumerate(switches):
        if order[switch] not in plane_of:
            raise PlacedError(
                f"no host is connected to {switch}, not even through other switches; connect it, or leave it out",
                ("switches", index),
            )
    return {switch: plane_of[order[switch]] for switch in switches}


#: At most this many shortest paths are listed; those that EVs name are chosen among them, equally far apart.
ENUMERATED = 1024

Switches = tuple[str, ...]


class SwitchPaths:
    """The paths of a graph of switches: the shortest and those of up to `extra` links more, `limit` at most, of `most`
    switches at most."""

    def __init__(
        self, switches: Iterable[str], links: Iterable[tuple[str, str]], limit: int, extra: int, most: int
    ) -> None:
        # networkx takes a quarter of the start of a command, and other labs do not need it.
        import networkx as nx

        self.graph: nx.Graph = nx.Graph()
        self.graph.add_nodes_from(switches)
        self.graph.add_edges_from(links)
        self._rank = {name: at for at, name in enumerate(self.graph)}
        self._limit, self._extra, self._most = limit, extra, most
        self._found: dict[tuple[str, str], tuple[Switches, ...]] = {}
        self._next: dict[str, dict[str, str]] = {}
        self._far: dict[str, dict[str, int]] = {}

    def between(self, one: str, other: str) -> tuple[Switches, ...]:
        """Return the paths from a switch to another, shortest first. The way back has the same paths, reversed, in the
        same order."""
        if self._rank[one] > self._rank[other]:
            return tuple(path[::-1] for path in self.between(other, one))
        if (one, other) not in self._found:
            self._found[one, other] = tuple(self._search(one, other)) if one != other else ((one,),)
        return self._found[one, other]

    def distances(self, switch: str) -> dict[str, int]:
        """Return how many links every switch of the component is away."""
        import networkx as nx

        if switch not in self._far:
            self._far[switch] = nx.single_source_shortest_path_length(self.graph, switch)
        return self._far[switch]

    def towards(self, switch: str) -> dict[str, str]:
        """Return the next switch on a shortest path to a switch, by switch of its component."""
        import networkx as nx

        if switch not in self._next:
            self._next[switch] = dict(nx.bfs_predecessors(self.graph, switch))
        return self._next[switch]

    def _search(self, one: str, other: str) -> Iterator[Switches]:
        import networkx as nx

        if not self._extra:
            found = list(islice(nx.all_shortest_paths(self.graph, one, other), ENUMERATED))
            yield from (tuple(each) for each in spread(found, self._limit))
            return
        longest = min(self.distances(one)[other] + 1 + self._extra, self._most)
        for path in islice(nx.shortest_simple_paths(self.graph, one, other), self._limit):
            if len(path) > longest:
                return
            yield tuple(path)


def spread(found: Sequence[list[str]], limit: int) -> list[list[str]]:
    """Return at most `limit` of the paths, equally far apart."""
    if len(found) <= limit:
        return list(found)
    return [found[at * len(found) // limit] for at in range(limit)]
