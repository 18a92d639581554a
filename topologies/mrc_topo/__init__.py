"""Lab files, Clos graphs, addressing, and EV <-> path <-> uSID.

    topology = load_lab("default")          # LabError: lines for the user
    paths = Paths(topology)
    entries = rules.all_entries(topology)   # table entries of every switch

Rules and examples: docs/topology.md.
"""

from mrc_topo.graph_topology import build_topology
from mrc_topo.labfile import LabError, at_rate, builtin_labs, load_lab, parse_lab
from mrc_topo.modes import RoutingMode, SprayKind
from mrc_topo.paths import Paths, Srv6Path
from mrc_topo.schema import Lab
from mrc_topo.topology import Host, HostPort, Link, Path, PathError, Switch, Topology, TopologyError, UnknownElement

__all__ = [
    "Host",
    "HostPort",
    "Lab",
    "LabError",
    "Link",
    "Path",
    "PathError",
    "Paths",
    "RoutingMode",
    "SprayKind",
    "Srv6Path",
    "Switch",
    "Topology",
    "TopologyError",
    "UnknownElement",
    "at_rate",
    "build_topology",
    "builtin_labs",
    "load_lab",
    "parse_lab",
]
