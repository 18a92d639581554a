"""The paths between the switches of a graph, computed with networkx."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import networkx as nx

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
