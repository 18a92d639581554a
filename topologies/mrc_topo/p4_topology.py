"""Reading networks as P4 tutorials (topology.json) and p4-utils (p4app.json) write them.

Both have `hosts` and `switches` by name, and `links`: in p4-utils `[A, B, {OPTION: VALUE}]` below `topology`, in the
tutorials `[A, SWITCH-pPORT, LATENCY, BANDWIDTH]`.
"""

from __future__ import annotations

import re
from typing import Any

from mrc_topo.base.document import Document, DocumentError, KeyPath, printable
from mrc_topo.drawn import Drawn, End

EXAMPLE = (
    "a topology of P4 tutorials or p4-utils is a mapping with hosts, switches and links; see docs/howto/mininet.md"
)
#: The names that these files have in every network.
USUAL = ("topology", "p4app", "network")
#: In a lab a router is a switch.
_SECTIONS = {"hosts": "host", "switches": "switch", "routers": "router"}
#: A delay without a unit is in ms.
_BARE_NS = 10**6
_PORT = re.compile(r"(?P<node>.+)-p(?P<port>\d{1,5})\Z")


def read(read: Document) -> Drawn:
    """Return what such a file says. Raises DocumentError if it is none."""
    path: KeyPath = ("topology",) if isinstance(read.data.get("topology"), dict) else ()
    spec = read.data["topology"] if path else read.data
    drawn = Drawn()
    if path:
        drawn.ignore("file", read.data.keys() - {"topology"})
    drawn.ignore("topology" if path else "file", spec.keys() - {*_SECTIONS, "links", "default"})
    for section, kind in _SECTIONS.items():
        nodes = spec.get(section, {} if section == "routers" else None)
        if not isinstance(nodes, dict):
            raise DocumentError([read.problem((*path, section), f"must be a mapping of names; {EXAMPLE}", "file")])
        for name, options in nodes.items():
            place: KeyPath = (*path, section, name)
            if not isinstance(options, dict | None):
                raise DocumentError([read.problem(place, "must be a mapping; write {} for a node without options")])
            if name in drawn.nodes:
                raise DocumentError([read.problem(place, "is the name of another node, too; rename one of them")])
            drawn.nodes[name], drawn.places[name] = kind, read.problem(place, "").removesuffix(": ")
            drawn.ignore(section, options or {})
    usual, links = spec.get("default") or {}, spec.get("links")
    if not isinstance(usual, dict):
        raise DocumentError([read.problem((*path, "default"), "must be a mapping of options of links")])
    if not isinstance(links, list):
        raise DocumentError([read.problem((*path, "links"), f"must be a list; {EXAMPLE}")])
    for at, link in enumerate(links):
        where = read.problem((*path, "links", at), "").removesuffix(": ")
        ends, options = _link(link, where)
        options = {**usual, **options}
        ports = [options.pop(f"port{side}", None) for side in (1, 2)]
        one, other = (_end(end, port, drawn, where) for end, port in zip(ends, ports, strict=True))
        drawn.add(one, other, drawn.settings(options, _BARE_NS, where), where)
    return drawn


def _link(link: object, place: str) -> tuple[list[str], dict[str, Any]]:
    """Return the two ends and the options of a link."""
    match link:
        case [str() as one, str() as other]:
            return [one, other], {}
        case [str() as one, str() as other, dict() as options]:
            return [one, other], options
        case [str() as one, str() as other, latency, *bandwidth] if len(bandwidth) < 2:
            return [one, other], {"delay": latency, "bw": next(iter(bandwidth), None)}
    raise DocumentError(
        [f"{place}: a link is [NODE, NODE], with {{OPTION: VALUE}} or LATENCY and BANDWIDTH after them"]
    )


def _end(text: str, port: object, drawn: Drawn, place: str) -> End:
    match = None if text in drawn.nodes else _PORT.match(text)
    node = match["node"] if match else text
    if node not in drawn.nodes:
        names = ", ".join(printable(name) for name in list(drawn.nodes)[:4])
        raise DocumentError([f"{place}: there is no node '{printable(text)}'; the first are {names or 'none'}"])
    number = int(match["port"]) if match else port
    if not isinstance(number, int | None):
        raise DocumentError([f"{place}: {printable(repr(port))} is no number of a port; write a whole number"])
    # A host's only interface has any number in these files, and in a lab 0.
    return End(node, port=None if drawn.nodes[node] == "host" else number)
