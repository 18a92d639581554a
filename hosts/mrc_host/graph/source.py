"""Source of a graph, by parameters that both models take: a trace's file, or a model that is generated; and the
placement of its ranks.
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from pathlib import Path

import numpy as np

from mrc_host.graph import chakra, goal
from mrc_host.graph.generate import Parallelism, generate
from mrc_host.graph.graph import Collective as CollectiveNode
from mrc_host.graph.graph import Compute, Graph, GraphError, GraphProgram, Ints, Node, Receive, Send, at
from mrc_host.graph.schedule import Schedule, lower

PLACEMENTS = ("rack", "random", "fragmented")


def place(placement: str, ranks: int, hosts: int, per_rack: int, fragment: int = 1, seed: int = 1) -> Ints:
    """Return the host of each rank; host n is in rack `n // per_rack`, below one T0 of each plane.

    `rack` fills rack after rack. `random` takes any host. `fragmented` takes `fragment` neighbouring hosts of a rack at
    a time, and a rack again only when all racks have given as many; which racks come first is drawn.

    Raises:
        GraphError: no such placement, or too few hosts.
    """
    if placement not in PLACEMENTS:
        raise GraphError(f"no placement '{placement[:40]}'; known: {', '.join(PLACEMENTS)}")
    if ranks > hosts:
        raise GraphError(f"{ranks} ranks on {hosts} hosts; use a larger lab or cluster, or fewer ranks")
    order = list(range(hosts))
    rng = random.Random(f"{seed}/{placement}")
    if placement == "random":
        rng.shuffle(order)
    elif placement == "fragmented":
        if per_rack < 1 or fragment < 1:
            raise GraphError("fragmented needs rack_hosts, the hosts below a T0, and fragment, at least 1 each")
        racks = list(range(-(-hosts // per_rack)))
        rng.shuffle(racks)
        position = {rack: number for number, rack in enumerate(racks)}
        order.sort(key=lambda host: (host % per_rack // fragment, position[host // per_rack], host % per_rack))
    return np.array(order[:ranks], np.int64)


_NUMBERED = re.compile(r"\.(\d{1,6})\.(et|json)$")


@dataclass(frozen=True)
class Source(Parallelism):
    """Parameters of a graph. `file`: PREFIX of `PREFIX.0.et` and so on, one such file, or a GOAL schedule; or `model`
    and the others of `generate.Parallelism`.

    `groups`: a JSON file with communicator groups; `ranks`: how many ranks follow a trace of one; `bytes_divisor`,
    `time_divisor`: what sizes and computations are divided by; `placement`, `placement_seed`, `rack_hosts`, `fragment`:
    see `place.place`.
    """

    model: str = ""
    file: str = ""
    groups: str = ""
    ranks: int = 0
    bytes_divisor: int = 1
    time_divisor: int = 1
    placement: str = "rack"
    placement_seed: int = 1
    rack_hosts: int = 0
    fragment: int = 1

    def hosts(self, ranks: int, hosts: int, per_rack: int = 0) -> Ints:
        """Return the host of each rank; `per_rack` where the fabric is known.

        Raises:
            GraphError: they have no place.
        """
        return place(self.placement, ranks, hosts, self.rack_hosts or per_rack, self.fragment, self.placement_seed)


def source_of(given: Source) -> Source:
    """Return the parameters alone, of an object that has more."""
    return Source(**{each.name: getattr(given, each.name) for each in fields(Source)})


def load(source: Source) -> Graph:
    """Return the graph of these parameters, scaled; the last ones are remembered while their files stay as they are.

    Raises:
        GraphError: there is none.
    """
    return _load(_unplaced(source), _state(source))


@lru_cache(maxsize=2)
def _load(source: Source, _: object) -> Graph:
    if bool(source.file) == bool(source.model):
        raise GraphError("give file=TRACE (Chakra or GOAL) or model=NAME, one of them")
    if min(source.bytes_divisor, source.time_divisor) < 1:
        raise GraphError("bytes_divisor and time_divisor are at least 1")
    if source.model:
        graph = generate(source)
    else:
        graph = _read(source)
    return _scaled(graph, source.bytes_divisor, source.time_divisor)


def schedule(source: Source, phase_ns: float | None = None) -> Schedule:
    """Return the lowered graph of these parameters, remembered as `load` does.

    Raises:
        GraphError: there is none, or it cannot run.
    """
    return _schedule(_unplaced(source), phase_ns, _state(source))


@lru_cache(maxsize=4)
def _schedule(source: Source, phase_ns: float | None, state: object) -> Schedule:
    return lower(_load(source, state), phase_ns)


def _unplaced(source: Source) -> Source:
    """Return a source without what does not change its graph."""
    return replace(source, placement="rack", placement_seed=1, rack_hosts=0, fragment=1)


def _state(source: Source) -> object:
    """Return what changes with the files of a source."""
    if not source.file or source.model:
        return None
    files = files_of(Path(source.file))
    if source.groups and Path(source.groups).is_file():
        files.append(Path(source.groups))
    return tuple((path, path.stat().st_mtime_ns, path.stat().st_size) for path in files)


def files_of(given: Path) -> list[Path]:
    """Return the files of a trace, of one rank or all of them, by its file or PREFIX.

    Raises:
        GraphError: there are none, or one is missing.
    """
    return [path for _, path in _files(given)]


def _files(given: Path) -> list[tuple[int | None, Path]]:
    """Return the files of a trace with their ranks; None for a file of all ranks.

    Raises:
        GraphError: there are none, or one is missing.
    """
    try:
        if given.is_file():
            found = _NUMBERED.search(given.name)
            return [(int(found[1]) if found else None, given)]
        parent = given.parent
        names = sorted(parent.iterdir()) if parent.is_dir() else []
    except (OSError, ValueError) as error:
        raise at(str(given), f"cannot be read ({type(error).__name__})") from None
    ranks: dict[int, Path] = {}
    for path in names:
        found = _NUMBERED.search(path.name)
        if found and path.name[: found.start()] == given.name:
            ranks.setdefault(int(found[1]), path)
    if not ranks:
        text = f"no such file, and no {given.name[:60]}.0.et beside it"
        raise at(str(given), f"{text}; give a trace, or the PREFIX of PREFIX.RANK.et")
    for rank in range(max(ranks)):
        if rank not in ranks:
            raise at(str(given), f"rank {rank} of {max(ranks) + 1} has no file; a trace has one for each rank")
    return sorted(ranks.items())


def _read(source: Source) -> Graph:
    files = _files(Path(source.file))
    if files[0][1].suffix not in (".et", ".json"):
        path = files[0][1]
        data = chakra.read_bytes(path)
        try:
            return goal.parse(data.decode(), path.name)
        except UnicodeDecodeError:
            raise at(
                path.name, "no text; GOAL schedules are read as text (Chakra traces end in .et or .json)"
            ) from None
    room, read = chakra.MAX_BYTES, []
    for _, path in files:
        data = chakra.read_bytes(path, room)
        room -= len(data)
        parse = chakra.parse_json if path.suffix == ".json" else chakra.parse_protobuf
        read.append((path.name, parse(data, path.name)))
    ranks = len(files) if len(files) > 1 else max(source.ranks, 1)
    if len(files) > 1 and source.ranks not in (0, len(files)):
        raise GraphError(f"ranks: {source.ranks}, and the trace has {len(files)} files; leave ranks out")
    if len(files) == 1 and ranks == 1 and any(node.kind is chakra.NodeType.COLLECTIVE for node in read[0][1]):
        raise at(read[0][0], "a trace of one rank with collectives; give ranks=N to let N ranks follow it")
    groups = chakra.read_groups(Path(source.groups)) if source.groups else {}
    per_ns = source.gpu_tflops * source.utilisation_percent * 10.0
    return chakra.to_graph(read, ranks, groups, per_ns, Path(source.file).name)


def _scaled(graph: Graph, by_bytes: int, by_time: int) -> Graph:
    """Return a graph with sizes and computations divided, sizes rounded up."""
    if by_bytes == by_time == 1:
        return graph

    def scaled(node: Node) -> Node:
        if isinstance(node, Compute):
            return replace(node, ns=round(node.ns / by_time))
        if isinstance(node, Send | Receive | CollectiveNode):
            return replace(node, size=-(-node.size // by_bytes))
        return node

    programs = [GraphProgram(each.ranks, [scaled(node) for node in each.nodes]) for each in graph.programs]
    return replace(graph, programs=programs)


def hosts_of(source: Source, ranks: int, hosts: int, per_rack: int = 0) -> Ints:
    """Return the rank that each host runs, -1 for none.

    Raises:
        GraphError: they have no place.
    """
    chosen = source.hosts(ranks, hosts, per_rack)
    made = np.full(hosts, -1, np.int64)
    made[chosen] = np.arange(ranks)
    return made
