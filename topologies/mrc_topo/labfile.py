"""Reading lab files: YAML to `Lab`, with errors that name file, line, key and remedy."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from mrc_topo import graph_file
from mrc_topo.base import document
from mrc_topo.base.document import POLICY_CLASS, DocumentError, printable
from mrc_topo.graph_topology import build_topology
from mrc_topo.placement import Placement
from mrc_topo.schema import Lab, PoliciesSpec, QueueSpec
from mrc_topo.shipped import UnknownNameError, find, shipped
from mrc_topo.topology import Topology, TopologyError

#: A lab file as plain YAML values.
Document = dict[str, Any]
#: The group of entry points by which installed packages offer policies.
POLICIES = "mrclab.policies"
EXAMPLE = "a lab file is a mapping such as 'planes: 4'; see topologies/labs"


class LabError(DocumentError):
    """A lab file that cannot be used; each entry of `problems` is one line for the user."""


def builtin_labs() -> dict[str, Path]:
    """Return the lab files that come with the project, by name."""
    return {path.stem: path for path in sorted(shipped("labs").glob("*.yaml"))}


def lab_path(name_or_path: str | Path) -> Path:
    """Return the file of a lab, given by path or by the name of one that comes with the project (`mrc_topo.shipped`).

    Raises:
        LabError: there is no such lab.
    """
    try:
        return find(name_or_path, builtin_labs(), "lab")
    except UnknownNameError as error:
        raise LabError(error.problems) from error


def load_lab(name_or_path: str | Path) -> Topology:
    """Return the topology of a lab file, or of a named lab that comes with the project. Raises LabError."""
    return read_lab(name_or_path)[1]


def read_lab(name_or_path: str | Path) -> tuple[str, Topology]:
    """Return text and topology of a lab file. The text needs no other file for its graph: one that is named is written
    out.

    Raises:
        LabError: there is no such lab, or its file is wrong.
    """
    path = lab_path(name_or_path)
    try:
        text = document.read_text(path, str(name_or_path))
    except DocumentError as error:
        raise LabError(error.problems) from error
    return _parsed(text, str(name_or_path), path.absolute().parent)


def parse_lab(text: str, name: str = "<lab>", folder: Path | None = None) -> Topology:
    """Return the topology that YAML text describes; `name` stands for it in errors, relative paths start in `folder`.

    Raises:
        LabError: the text does not describe a lab.
    """
    return _parsed(text, name, folder)[1]


def _parsed(text: str, name: str, folder: Path | None) -> tuple[str, Topology]:
    try:
        written = document.parse(text, name, EXAMPLE)
        read = graph_file.expanded(written, folder)
    except DocumentError as error:
        raise LabError(error.problems).needing(*error.packages) from error
    try:
        topology = build_topology(_placed(Lab.model_validate(read.data), folder))
        Placement(topology)
        topology.notes = read.notes
        return text if read is written else yaml.safe_dump(read.data, sort_keys=False), topology
    except ValidationError as error:
        raise LabError(read.explain(Lab, error, "lab")) from error
    except TopologyError as error:
        raise LabError([read.problem(error.key, str(error), "lab")]) from error


def _placed(lab: Lab, folder: Path | None) -> Lab:
    """Return the lab with absolute paths of the files that it names."""
    if folder is None:
        return lab
    if lab.program is not None:
        lab = lab.model_copy(update={"program": str(folder / lab.program)})
    if lab.policies.named:
        lab = lab.model_copy(update={"policies": placed(lab.policies, folder)})
    return lab


def placed(policies: PoliciesSpec, folder: Path) -> PoliciesSpec:
    """Return the policies that a file in this folder names, each as `/.../FILE.py:Class`.

    Raises:
        LabError: `@NAME` is of no installed package.
    """

    return policies.model_copy(update={kind: policy_class(given, folder) for kind, given in policies.named.items()})


def policy_class(given: str, folder: Path) -> str:
    """Return a policy that a file in this folder names, as `/.../FILE.py:Class`; what names none, as it is.

    Raises:
        LabError: `@NAME` is of no installed package.
    """
    if not re.search(POLICY_CLASS, given):
        return given
    if given.startswith("@"):
        return installed_policy(given[1:])
    where, _, name = given.rpartition(":")
    file = where if where.endswith(".py") else where.replace(".", "/") + ".py"
    return f"{folder / file}:{name}"


def installed_policy(name: str) -> str:
    """Return the class that an installed package offers under a name, as `/.../FILE.py:Class`.

    Packages do so by entry points of the group `mrclab.policies` (docs/extending.md).

    Raises:
        LabError: there is none, or its module cannot be found.
    """
    offered = importlib.metadata.entry_points(group=POLICIES)
    found = next((each for each in offered if each.name == name), None)
    if found is None:
        known = ", ".join(f"@{each}" for each in sorted({each.name for each in offered})) or "none"
        raise LabError([f"policies: @{printable(name)}: no installed package offers it; offered: {known}"])
    module, _, cls = found.value.partition(":")
    try:
        spec = importlib.util.find_spec(module)
    except (ImportError, ValueError) as error:
        raise LabError(
            [f"policies: @{name}: {found.value}: {printable(str(error))}; install its package again"]
        ) from error
    if spec is None or spec.origin is None or not spec.origin.endswith(".py"):
        raise LabError([f"policies: @{name}: {found.value}: there is no such Python file; install its package again"])
    return f"{spec.origin}:{cls}"


def merged(document: Document, changes: Mapping[str, Any]) -> Document:
    """Return a lab's document with changes: mappings are merged, everything else is replaced."""
    made = dict(document)
    for key, value in changes.items():
        old = made.get(key)
        made[key] = merged(old, value) if isinstance(old, dict) and isinstance(value, Mapping) else value
    return made


def at_rate(lab: Lab, rate_bps: int) -> Document:
    """Return the document of a lab whose host links have this rate, and all other links one in proportion.

    Queues hold the same time as before, but have room for whole packets: at least 8, 5 before trimming, 1 and 4 before
    ECN.
    """
    scaled: Document = lab.model_dump(mode="json")
    own, packet = lab.links.host.rate, lab.interface_mtu + 14

    def queue(spec: Document) -> Document:
        return QueueSpec.model_validate(spec).at_rate(rate_bps, own, packet).model_dump(mode="json")

    scaled["queues"] = queue(scaled["queues"])
    of_graph = [] if lab.topology is None else scaled["topology"]["links"]
    for link in (scaled["links"]["host"], scaled["links"]["fabric"], *scaled["overrides"].values(), *of_graph):
        if link["rate"] is not None:
            link["rate"] = link["rate"] * rate_bps // own
        if link.get("queue") is not None:
            link["queue"] = queue(link["queue"])
    return scaled
