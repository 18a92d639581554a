"""`mrclab export`: a lab in the formats of other tools."""

from __future__ import annotations

import json
import pathlib
from enum import StrEnum
from typing import Annotated, Any

import typer
import yaml

from mrc_topo import addressing, export
from mrc_topo.base.errors import UsageError
from mrc_topo.base.files import write_whole
from mrc_topo.labfile import load_lab
from mrc_topo.topology import Topology
from mrclab.cli.common import lab_file


class Format(StrEnum):
    """What a lab is written as."""

    CONTAINERLAB = "containerlab"
    SONIC = "sonic"
    JSON = "json"


def verb(
    wanted: Annotated[Format, typer.Argument(metavar="FORMAT", help="containerlab, sonic or json")],
    lab: Annotated[str, typer.Argument(help="a lab file, or the name of a built-in lab or of one that is up")],
    output: Annotated[
        pathlib.Path | None,
        typer.Option(
            "-o", "--output", help="file, or for sonic a folder with a file per switch (default: standard output)"
        ),
    ] = None,
    image: Annotated[str | None, typer.Option(help="for containerlab: the nodes' image")] = None,
) -> None:
    """Write a lab as a containerlab topology, as SONiC tables, or as a JSON graph.

    containerlab: Linux nodes with SRv6 uSID static routes. sonic: for each switch the tables of CONFIG_DB for ports,
    static SIDs and routes, ECN and trimming. json: nodes and links as networkx reads them.
    """
    if image is not None and wanted is not Format.CONTAINERLAB:
        raise UsageError("--image is for containerlab; the other formats have no images")
    topology = load_lab(lab_file(lab, "virtual"))
    if wanted is Format.SONIC and output is not None:
        _write_sonic(topology, output)
        return
    text = _text(wanted, topology, image)
    if output is None:
        typer.echo(text, nl=False)
        return
    write_whole(output, text)
    typer.echo(f"{output}: {len(topology.hosts)} hosts, {len(topology.switches)} switches")


def _text(wanted: Format, topology: Topology, image: str | None) -> str:
    match wanted:
        case Format.CONTAINERLAB:
            document = export.document(topology, image or export.IMAGE)
            return yaml.safe_dump(document, sort_keys=False, width=1000)
        case Format.SONIC:
            return json.dumps(export.documents(topology), indent=2) + "\n"
        case Format.JSON:
            return json.dumps(graph(topology), indent=1) + "\n"


def graph(topology: Topology) -> dict[str, Any]:
    """Return the graph in networkx's node-link form, with the addresses and uSIDs of its elements."""
    import networkx as nx

    data: dict[str, Any] = nx.node_link_data(topology.graph, edges="links")
    for node in data["nodes"]:
        if node["kind"] == "host":
            host = topology.host(node["id"])
            node["address"] = addressing.text(host.address)
            node["ports"] = [
                {"plane": port.plane, "address": addressing.text(port.address), "usid": f"{port.usid:04x}"}
                for port in host.ports
            ]
        else:
            node["usid"] = f"{topology.switch(node['id']).usid:04x}"
    return data


def _write_sonic(topology: Topology, folder: pathlib.Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, tables in export.documents(topology).items():
        write_whole(folder / f"{name}.json", json.dumps(tables, indent=2) + "\n")
    typer.echo(f"{folder}: {len(topology.switches)} files; `sonic-cfggen -j FILE --write-to-db` merges one")
