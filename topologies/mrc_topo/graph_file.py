"""Graphs from files of other tools: containerlab topologies, DOT (by pydot), and JSON of P4 tutorials and p4-utils.

Only names, kinds, ends of links and, in DOT and JSON, what a link of a lab has, too, are taken from a file; whatever
else it says (images, commands, mounts, pictures) is left where it is. The file lies beside the lab file or below; one
of P4 tutorials or p4-utils is a lab by itself, too.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fnmatch
import io
import os
import re
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from mrc_topo import emulator_topology, p4_topology
from mrc_topo.base import document
from mrc_topo.base.document import LAB_NAME, Document, DocumentError, KeyPath, printable
from mrc_topo.drawn import Drawn, End
from mrc_topo.schema import (
    HEADER_BYTES,
    GraphSource,
    GraphSpec,
    Lab,
    LinkRates,
    LinkSpec,
    NodeRole,
    Parallel,
    QueueSpec,
)
from mrc_topo.shipped import install, requirement

EXAMPLE = "a containerlab topology is a mapping with name and topology; see docs/topology.md"
#: pydot takes seconds for a longer text.
MAX_DOT_BYTES = 100_000
#: Attributes of a DOT edge that a link has.
SETTINGS = ("rate", "delay", "loss", "corrupt")
#: The keys of `topology` that are about the file.
SOURCE_KEYS = ("from", "host_kinds", "roles", "parallel")
#: Links or nodes that are left out and that a note names.
NAMED = 3
#: Statements of DOT that set defaults look like nodes of these names.
DEFAULTS = ("node", "edge", "graph")
#: The forms of variables in a containerlab topology, which containerlab expands before it reads the file.
_VARIABLE = re.compile(r"\$\{(?P<name>[A-Za-z_]\w*)(?:(?P<how>:?[-=+])(?P<other>[^{}]*))?\}|\$(?P<bare>[A-Za-z_]\w*)")
_NAMED = re.compile(r'(?P<node>"(?:[^"\\]|\\.)*"|[^":]*)(?::(?P<port>"[^"]*"|[^":]*))?(?::[a-z_]+)?\Z', re.DOTALL)


class _Outside(StrEnum):
    """The types of containerlab's links that lead from a node out of the lab, or nowhere. In the short form of a link
    the type stands in the place of a node's name."""

    HOST = "host"
    MGMT_NET = "mgmt-net"
    MACVLAN = "macvlan"
    VXLAN = "vxlan"
    VXLAN_STITCH = "vxlan-stitch"
    DUMMY = "dummy"


def expanded(read: Document, folder: Path | None) -> Document:
    """Return a lab's document with the graph that its `topology.from` names in the place of that key; of a file that is
    such a graph itself, the lab of that graph.

    Raises:
        DocumentError: there is no such file, or it holds no graph that a lab can be.
    """
    if read.name.endswith(".json") and "name" not in read.data:
        stem = Path(read.name).stem
        # All files of a tool have one name, those of different networks lie in different folders.
        name = folder.name if stem in p4_topology.USUAL and folder is not None else stem
        return of_drawn(p4_topology.read(read), read.name, {"name": lab_name(name)})
    if emulator_topology.is_one(read.data):
        return emulator_topology.lab_of(read, lab_name(str(read.data.get("name"))))
    spec = read.data.get("topology")
    if not isinstance(spec, dict) or not isinstance(spec.get("from"), str):
        return read
    key = ("topology", "from")
    for other in ("switches", "hosts", "links"):
        if other in spec:
            raise _problem(read, ("topology", other), "the file of topology.from has it; leave one of them out")
    if folder is None:
        return read
    try:
        asked = GraphSource.model_validate({key: spec[key] for key in SOURCE_KEYS if key in spec})
    except ValidationError:
        return read  # The lab's own check says what is wrong.
    name, path = _beside(read, folder, spec["from"])
    try:
        drawn = _drawn(name, path)
    except DocumentError as error:
        raise DocumentError([read.problem(key, each, "lab") for each in error.problems]).needing(
            *error.packages
        ) from error
    graph = _graph(read, name, drawn, spec, asked)
    return Document(read.name, {**read.data, "topology": graph}, read.lines, tuple(_notes(drawn)))


def of_drawn(drawn: Drawn, name: str, keys: Mapping[str, Any]) -> Document:
    """Return the document of a lab that has these keys and what was drawn in the file `name`. Raises DocumentError if
    that is no graph that a lab can be."""
    read = Document(name, dict(keys))
    graph = _graph(read, name, drawn, {}, GraphSource())
    return Document(name, {**read.data, "topology": graph}, notes=tuple(_notes(drawn)))


def lab_name(text: str) -> str:
    """Return the name of a lab that is closest to a text."""
    close = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:31]
    return close if re.match(LAB_NAME, close) else f"lab-{close}".strip("-")[:31]


def _notes(drawn: Drawn) -> Iterator[str]:
    """Yield lines about what was left out."""
    if drawn.ignored:
        what = "; ".join(f"{section}: {', '.join(sorted(keys))}" for section, keys in sorted(drawn.ignored.items()))
        yield f"left out, as a lab has nothing of the kind: {what}"
    if drawn.left_out:
        first = ", ".join(f"{place} ({kind})" for place, kind in drawn.left_out[:NAMED])
        more = len(drawn.left_out) - NAMED
        many = "a link" if len(drawn.left_out) == 1 else f"{len(drawn.left_out)} links"
        yield f"left out, as a lab has no others than between its nodes: {many}: {first}" + (
            f" and {more} more" if more > 0 else ""
        )
    if drawn.alone:
        first = ", ".join(printable(each) for each in drawn.alone[:NAMED])
        more = len(drawn.alone) - NAMED
        yield f"left out, as they have no link to another node: {first}" + (f" and {more} more" if more > 0 else "")


def _problem(read: Document, key: KeyPath, message: str) -> DocumentError:
    return DocumentError([read.problem(key, message, "lab")])


def _beside(read: Document, folder: Path, given: str) -> tuple[str, Path]:
    """Return the printable name and the path of a file beside the lab file or below."""
    name, path = printable(given), Path(given)
    inside = not path.is_absolute() and ".." not in path.parts
    # Links are followed, as they may lead out again.
    if not inside or not (folder / path).resolve().is_relative_to(folder.resolve()):
        raise _problem(
            read, ("topology", "from"), f"{name} is not beside the lab file; put it into the same folder or below"
        )
    return name, folder / path


def _drawn(name: str, path: Path) -> Drawn:
    match path.suffix:
        case ".dot" | ".gv":
            return _dot(name, document.read_text(path, name))
        case ".yml" | ".yaml":
            return _containerlab(document.parse(_with_variables(document.read_text(path, name)), name, EXAMPLE))
        case ".json":
            return p4_topology.read(document.load(path, name, p4_topology.EXAMPLE))
        case ".py":
            # Reading a lab runs no code. A file that is named on the command line is the user's own.
            raise DocumentError([f"{name}: a Python file is run only if it is named itself: mrclab up --custom {name}"])
    kinds = "a DOT file (.dot, .gv), a containerlab topology (.yml, .yaml), or one of P4 tutorials or p4-utils (.json)"
    raise DocumentError([f"{name}: give {kinds}"])


def _graph(read: Document, name: str, drawn: Drawn, spec: dict[str, Any], asked: GraphSource) -> dict[str, Any]:
    """Return the `topology` that a drawn graph is."""
    hosts = _hosts(read, drawn, asked)
    if not hosts:
        raise _problem(
            read,
            ("topology",),
            f"no node of {name} is a host: none has a kind of host_kinds ({', '.join(asked.host_kinds)}); say which "
            'are, such as roles: {"h*": host}',
        )
    switches = [node for node in drawn.nodes if node not in hosts]
    if not switches:
        raise _problem(read, ("topology",), _no_switches(name, drawn))
    drawn = _without_parallel(read, drawn, set(switches), asked.parallel)
    numbers = _numbers(drawn, set(hosts))
    links = []
    for at, (one, other, settings) in enumerate(drawn.links):
        ends = [f"{end.node}{numbers.get((at, side), '')}" for side, end in enumerate((one, other))]
        kept = {key: value for key, value in settings.items() if key != "packets"}
        links.append({"ends": ends, **kept, **_queue(read, settings.get("packets"))})
    made = {"switches": switches, "hosts": hosts, "links": links}
    try:
        GraphSpec.model_validate(made)
    except ValidationError as error:
        places: dict[KeyPath, str] = {("switches", at): drawn.places[node] for at, node in enumerate(switches)}
        places |= {("hosts", at): drawn.places[node] for at, node in enumerate(hosts)}
        places |= {("links", at): place for at, place in enumerate(drawn.link_places)}
        problems = []
        for each in error.errors()[: document.MAX_PROBLEMS]:
            key = document.place_of(each)
            rest = f"{document.dotted(key[2:])}: " if key[2:] and key[2] != "ends" else ""
            problems.append(f"{places.get(key[:2], name)}: {rest}{document.explain(GraphSpec, each)}")
        raise DocumentError(problems) from error
    return {key: value for key, value in spec.items() if key not in SOURCE_KEYS} | made


def _no_switches(name: str, drawn: Drawn) -> str:
    """Return that all nodes of a file are hosts, and what makes switches of those that look like some."""
    ends = Counter(end.node for one, other, _ in drawn.links for end in (one, other))
    between = [node for node in drawn.nodes if ends[node] > 1] or list(drawn.nodes)
    stem = between[0].rstrip("0123456789")
    alike = [node for node in drawn.nodes if node.startswith(stem)]
    pattern = f"{stem}*" if stem and set(alike) <= set(between) else between[0]
    kinds = ", ".join(sorted({printable(kind) for kind in drawn.nodes.values()}))
    return (
        f"all nodes of {name} are of kind {kinds}, and so hosts; say which are switches, such as "
        f'roles: {{"{printable(pattern)}": switch}}'
    )


def _without_parallel(read: Document, drawn: Drawn, switches: set[str], what: Parallel) -> Drawn:
    """Return the same with one link, of the rate of all, in the place of several between two switches.

    Raises:
        DocumentError: there are several, and they are not to be merged.
    """
    first: dict[frozenset[str], int] = {}
    links: list[tuple[End, End, dict[str, Any]]] = []
    places: list[str] = []
    for (one, other, settings), place in zip(drawn.links, drawn.link_places, strict=True):
        pair = frozenset((one.node, other.node))
        if pair <= switches and len(pair) > 1 and pair in first:
            if what is Parallel.REFUSE:
                raise DocumentError([
                    f"{place}: {printable(one.node)} and {printable(other.node)} have a link already, and a uSID names "
                    "the next switch, not the link to it; give the lab file's topology `parallel: merge`, which makes "
                    "one link with the rate of all"
                ])  # fmt: skip
            known = links[first[pair]]
            total = _rate(read, known[2]) + _rate(read, settings)
            links[first[pair]] = (known[0], known[1], {**known[2], "rate": total})
            continue
        first[pair] = len(links)
        links.append((one, other, settings))
        places.append(place)
    return dataclasses.replace(drawn, links=links, link_places=places)


def _rate(read: Document, settings: Mapping[str, Any]) -> int:
    """Return the rate of a link between switches in bit/s."""
    try:
        if "rate" in settings:
            return LinkSpec.model_validate({"rate": settings["rate"]}).rate
        return LinkRates.model_validate(read.data.get("links") or {}).fabric.rate
    except ValidationError:
        return 0  # The lab's own check says what is wrong.


def _queue(read: Document, packets: int | None) -> dict[str, Any]:
    """Return the key `queue` of a link whose queue holds this many full packets, in the proportions of the lab's."""
    if packets is None:
        return {}
    try:
        usual = QueueSpec.model_validate(read.data.get("queues") or {})
        mtu = int(read.data.get("path_mtu", Lab.model_fields["path_mtu"].default))
    except (ValidationError, TypeError, ValueError):
        return {}  # The lab's own check says what is wrong.
    return {"queue": usual.at_rate(packets * (mtu + HEADER_BYTES), usual.limit, 0).model_dump(mode="json")}


def _hosts(read: Document, drawn: Drawn, asked: GraphSource) -> list[str]:
    roles: dict[str, NodeRole] = {}
    for pattern, role in asked.roles.items():
        named = fnmatch.filter(drawn.nodes, pattern)
        if not named:
            raise _problem(
                read, ("topology", "roles", pattern), f"no node has such a name; there are {_some(drawn.nodes)}"
            )
        for node in named:
            roles.setdefault(node, role)
    usual = {node: NodeRole.HOST if kind in asked.host_kinds else NodeRole.SWITCH for node, kind in drawn.nodes.items()}
    return [node for node in drawn.nodes if roles.get(node, usual[node]) is NodeRole.HOST]


def _some(names: Mapping[str, Any]) -> str:
    shown = ", ".join(printable(each) for each in list(names)[:4])
    return f"{shown} and {len(names) - 4} more" if len(names) > 4 else shown or "none"


def _numbers(drawn: Drawn, hosts: set[str]) -> dict[tuple[int, int], str]:
    """Return `:PORT` of every end that has a number, or whose interface has a name: these are numbered by node, in the
    natural order of names."""
    known: dict[tuple[int, int], str] = {}
    at: dict[str, list[tuple[list[tuple[int, str]], tuple[int, int]]]] = {}
    for index, (one, other, _) in enumerate(drawn.links):
        for side, end in enumerate((one, other)):
            if end.port is not None:
                known[index, side] = f":{end.port}"
            elif end.interface:
                parts = re.findall(r"\d+|\D+", end.interface)
                natural = [(int(part), "") if part.isdecimal() else (-1, part) for part in parts]
                at.setdefault(end.node, []).append((natural, (index, side)))
    return known | {
        place: f":{number}"
        for node, ends in at.items()
        for number, (_, place) in enumerate(sorted(ends), 0 if node in hosts else 1)
    }


# --- containerlab --------------------------------------------------------------------------------------


def _with_variables(text: str) -> str:
    """Return a text with the values of its variables, as containerlab puts them in place before it reads a file."""

    def value(match: re.Match[str]) -> str:
        known = os.environ.get(match["name"] or match["bare"])
        how, other = match["how"] or "", match["other"] or ""
        there = known is not None and (bool(known) or not how.startswith(":"))
        if how.endswith("+"):
            return other if there else ""
        if known is not None and there:
            return known
        # containerlab leaves a variable that nothing sets as it is.
        return other if how else match[0]

    return _VARIABLE.sub(value, text)


def _containerlab(read: Document) -> Drawn:
    topology = read.data.get("topology")
    if not isinstance(topology, dict):
        raise DocumentError([read.problem((), f"has no topology; {EXAMPLE}")])
    drawn = Drawn()
    sections = {key: topology.get(key) or {} for key in ("nodes", "groups", "defaults")}
    for key, section in sections.items():
        if not isinstance(section, dict):
            raise DocumentError([read.problem(("topology", key), "must be a mapping")])
    usual = sections["defaults"].get("kind", "")
    for name, node in sections["nodes"].items():
        node = node if isinstance(node, dict) else {}
        group = sections["groups"].get(str(node.get("group", "")))
        kind = node.get("kind") or (group.get("kind") if isinstance(group, dict) else None) or usual
        drawn.nodes[name] = str(kind)
        drawn.places[name] = read.problem(("topology", "nodes", name), "").removesuffix(": ")
    links = topology.get("links") or []
    if not isinstance(links, list):
        raise DocumentError([read.problem(("topology", "links"), "must be a list")])
    for at, link in enumerate(links):
        place: KeyPath = ("topology", "links", at)
        outside = _outside(link, drawn.nodes)
        if outside is not None:
            drawn.left_out.append((read.problem(place, "").removesuffix(": "), outside))
            continue
        ends = link.get("endpoints") if isinstance(link, dict) else None
        parsed = [_endpoint(each) for each in ends] if isinstance(ends, list) else []
        if len(parsed) != 2 or None in parsed:
            raise DocumentError(
                [read.problem(place, 'a link between two nodes has endpoints: ["NODE:INTERFACE", "NODE:INTERFACE"]; '
                              f"links out of the lab have one of the types {', '.join(_Outside)}")]
            )  # fmt: skip
        one, other = parsed
        assert one is not None
        assert other is not None
        for end in (one, other):
            if end.node not in drawn.nodes:
                raise DocumentError(
                    [read.problem(place, f"there is no node '{printable(end.node)}'; {_some(drawn.nodes)}")]
                )
        drawn.add(one, other, {}, read.problem(place, "").removesuffix(": "))
    linked = {end.node for one, other, _ in drawn.links for end in (one, other)}
    if linked:
        drawn.alone = [node for node in drawn.nodes if node not in linked]
        drawn.nodes = {node: kind for node, kind in drawn.nodes.items() if node in linked}
    return drawn


def _outside(link: object, nodes: Mapping[str, str]) -> _Outside | None:
    """Return the type of a link that does not lead to another node; None for all other links."""
    if not isinstance(link, dict):
        return None
    types = [link.get("type")]
    ends = link.get("endpoints")
    if types == [None] and isinstance(ends, list):
        names = [each.partition(":")[0] for each in ends if isinstance(each, str)]
        types = [name for name in names if name not in nodes]
    known = set(_Outside)
    return next((_Outside(each) for each in types if isinstance(each, str) and each in known), None)


def _endpoint(given: object) -> End | None:
    if isinstance(given, str) and given.count(":") == 1:
        node, interface = given.split(":")
        return End(node, interface)
    if isinstance(given, dict) and isinstance(given.get("node"), str) and isinstance(given.get("interface"), str):
        return End(given["node"], given["interface"])
    return None


# --- DOT -----------------------------------------------------------------------------------------------


def _dot(name: str, text: str) -> Drawn:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # pydot calls pyparsing by names of earlier versions
        return _read_dot(name, text)


def _read_dot(name: str, text: str) -> Drawn:
    try:
        import pydot
    except ImportError:
        raise DocumentError([f"{name}: DOT needs pydot: {install('dot')}"]).needing(*requirement("dot")) from None
    if len(text.encode()) > MAX_DOT_BYTES:
        raise DocumentError([f"{name}: larger than {MAX_DOT_BYTES} bytes, which no graph for a lab needs"])
    said = io.StringIO()
    try:
        # It prints what is wrong.
        with contextlib.redirect_stdout(said):
            graphs = pydot.graph_from_dot_data(text)
    except RecursionError:
        raise DocumentError([f"{name}: not usable DOT: nested too deep"]) from None
    if not graphs:
        why = said.getvalue().strip().splitlines() or ["no graph"]
        raise DocumentError([f"{name}: not DOT: {printable(why[-1])}"])
    reader = _DotReader(name, graphs[0].get_type() == "digraph", bool(graphs[0].get_strict()))
    reader.read(graphs[0], {}, {})
    return reader.drawn


class _DotReader:
    """Collects the nodes and edges of a graph and its subgraphs."""

    def __init__(self, name: str, directed: bool, strict: bool) -> None:
        self.drawn = Drawn()
        self._name, self._directed, self._strict = name, directed, strict
        self._seen: set[tuple[End, End]] = set()

    def read(self, graph: Any, node_defaults: Mapping[str, str], edge_defaults: Mapping[str, str]) -> None:
        """Add what a graph or subgraph has, with the defaults that hold there."""
        nodes = {each.get_name(): _unquoted(each.get_attributes()) for each in graph.get_nodes()}
        node_defaults = {**node_defaults, **nodes.get("node", {})}
        edge_defaults = {**edge_defaults, **nodes.get("edge", {})}
        for each in graph.get_nodes():
            if each.get_name() not in DEFAULTS:
                end, own = _end(each.get_name()), {**node_defaults, **_unquoted(each.get_attributes())}
                self._node(end.node, own)
        for sub in graph.get_subgraphs():
            self.read(sub, node_defaults, edge_defaults)
        for edge in graph.get_edges():
            settings = {**edge_defaults, **_unquoted(edge.get_attributes())}
            for one in _ends(edge.get_source(), settings.get("tailport", "")):
                for other in _ends(edge.get_destination(), settings.get("headport", "")):
                    self._edge(one, other, node_defaults, settings)

    def _node(self, node: str, attributes: Mapping[str, str]) -> None:
        if "kind" in attributes or node not in self.drawn.nodes:
            self.drawn.nodes[node] = attributes.get("kind", "")
        self.drawn.places.setdefault(node, f"{self._name}: {printable(node)}")

    def _edge(self, one: End, other: End, defaults: Mapping[str, str], settings: Mapping[str, str]) -> None:
        for end in (one, other):
            if end.node not in self.drawn.nodes:
                self._node(end.node, defaults)
        # The two directions of a link are two edges of a directed graph; a strict graph has each edge once.
        known = (self._directed and (other, one) in self._seen) or (
            self._strict and {(one, other), (other, one)} & self._seen
        )
        self._seen.add((one, other))
        if not known:
            kept = {key: settings[key] for key in SETTINGS if key in settings}
            self.drawn.add(one, other, kept, f"{self._name}: {printable(one.node)} -- {printable(other.node)}")


def _ends(given: Any, port: str) -> Iterator[End]:
    """Yield the ends that one side of an edge has: a node, or all nodes of a subgraph."""
    if isinstance(given, str):
        end = _end(given)
        yield End(end.node, end.interface or port)
        return
    for name in given["nodes"] if isinstance(given, Mapping) else [each.get_name() for each in given.get_nodes()]:
        if name not in DEFAULTS:
            yield End(_end(name).node)


def _end(given: str) -> End:
    match = _NAMED.match(given)
    if match is None:
        return End(given)
    return End(_bare(match["node"]), _bare(match["port"] or ""))


def _bare(text: str) -> str:
    quoted = len(text) > 1 and text[0] == text[-1] == '"'
    return text[1:-1].replace('\\"', '"') if quoted else text


def _unquoted(attributes: Mapping[str, Any]) -> dict[str, str]:
    return {key: _bare(str(value)) for key, value in attributes.items()}
