"""A lab's switches as tables of SONiC's CONFIG_DB: ports, static SIDs and routes, ECN and trimming.

The keys and values are those of SONiC's published YANG models (sonic-net/sonic-buildimage, `src/sonic-yang-models`):
sonic-port, sonic-interface, sonic-srv6, sonic-static-route, sonic-neigh, sonic-trimming, sonic-buffer-profile,
sonic-wred-profile, sonic-queue, sonic-dscp-tc-map, sonic-tc-queue-map and sonic-port-qos-map. A document is merged into
a device's own `config_db.json`, which has what is the device's: lanes, buffer pools, management.
"""

from __future__ import annotations

from typing import Any, Final

from mrc_topo import addressing, rules
from mrc_topo.addressing import Tier
from mrc_topo.kernel_routes import NEIGHBOUR, prefix_of, uplinks
from mrc_topo.schema import HEADER_BYTES
from mrc_topo.topology import Switch, Topology

Tables = dict[str, dict[str, Any]]
LOCATOR: Final = "MRC"
#: Names of what a lab's queues become.
DATA_MAP, PROFILE = "mrclab", "mrclab"
DATA_QUEUE, CONTROL_QUEUE = "0", "7"
#: Traffic classes by DSCP: data may wait, and control is sent first.
CLASSES: Final = {
    rules.DSCP_NO_TRIM: "0",
    rules.DSCP_TRIMMABLE: "0",
    rules.DSCP_TRIMMABLE_RETX: "0",
    rules.DSCP_TRIMMED: "7",
    rules.DSCP_TRIMMED_LASTHOP: "7",
    rules.DSCP_CONTROL: "7",
}


def documents(topology: Topology) -> dict[str, Tables]:
    """Return the tables of each switch, by its name."""
    return {switch.name: switch_tables(topology, switch) for switch in topology.switches}


def switch_tables(topology: Topology, switch: Switch) -> Tables:
    """Return the tables of one switch."""
    names = {port: f"Ethernet{port - 1}" for port in switch.links}
    tables: Tables = {
        "DEVICE_METADATA": {"localhost": {"hostname": switch.name, "type": _role(switch)}},
        "PORT": {name: _port(topology, switch, port, name) for port, name in names.items()},
        "INTERFACE": {name: {"ipv6_use_link_local_only": "enable"} for name in names.values()},
        "NEIGH": {
            f"{name}|{NEIGHBOUR}": {
                "family": "IPv6", "neigh": addressing.mac_text(rules.next_mac(topology, switch, port)),
            }
            for port, name in names.items()
        },
        **_sids(switch),
        "STATIC_ROUTE": _routes(topology, switch, names),
    }  # fmt: skip
    return tables | _queues(switch, names)


def _role(switch: Switch) -> str:
    return "ToRRouter" if switch.tier is Tier.T0 else "LeafRouter"


def _port(topology: Topology, switch: Switch, port: int, name: str) -> dict[str, str]:
    link = switch.links[port]
    peer = switch.peer(port)
    return {
        "alias": name,
        # The unit is Mb/s. A real port has no rates as low as a lab's, so a device may refuse them.
        "speed": str(max(1, link.spec.rate // 10**6)),
        "mtu": str(topology.lab.interface_mtu),
        "admin_status": "up",
        "description": f"{peer.node}:{peer.port}",
    }


def _sids(switch: Switch) -> Tables:
    """Return the locator and the one static SID of a switch: its own uSID, which it shifts out (uN)."""
    prefix = addressing.text(addressing.carrier((switch.usid,)))
    return {
        "SRV6_MY_LOCATORS": {
            LOCATOR: {"prefix": prefix, "block_len": "32", "node_len": "16", "func_len": "16", "arg_len": "0"}
        },
        "SRV6_MY_SIDS": {f"{LOCATOR}|{prefix}/48": {"action": "uN", "decap_dscp_mode": "pipe"}},
    }


def _routes(topology: Topology, switch: Switch, names: dict[int, str]) -> dict[str, Any]:
    """Return static routes: to the uSIDs of neighbours, to host addresses, and over all uplinks to other T0s."""
    found: dict[str, Any] = {}
    for entry in rules.switch_entries(topology, switch):
        if entry.table not in (rules.USID_ROUTES, rules.HOST_ROUTES):
            continue
        prefix = prefix_of(entry)
        if "port" in entry.params:
            ports = [names[entry.params["port"]]]
        elif entry.action.rpartition(".")[2] == "go_up":
            ports = uplinks(topology, switch, names)
        else:
            found[f"default|{prefix}"] = {"blackhole": "true", "nexthop": "::", "ifname": ""}
            continue
        found[f"default|{prefix}"] = {
            "nexthop": ",".join([NEIGHBOUR] * len(ports)), "ifname": ",".join(ports),
        }  # fmt: skip
    return found


def _queues(switch: Switch, names: dict[int, str]) -> Tables:
    """Return classes, ECN and trimming. The thresholds of a port are those of its link."""
    tables: Tables = {
        "DSCP_TO_TC_MAP": {DATA_MAP: {str(dscp): CLASSES.get(dscp, "0") for dscp in range(64)}},
        "TC_TO_QUEUE_MAP": {DATA_MAP: {"0": DATA_QUEUE, "7": CONTROL_QUEUE}},
        "PORT_QOS_MAP": {
            name: {"dscp_to_tc_map": DATA_MAP, "tc_to_queue_map": DATA_MAP} for name in names.values()
        },
        "SCHEDULER": {"mrclab-data": {"type": "DWRR", "weight": "1"}, "mrclab-control": {"type": "STRICT"}},
        "QUEUE": {}, "BUFFER_PROFILE": {}, "BUFFER_QUEUE": {}, "WRED_PROFILE": {},
    }  # fmt: skip
    trims = False
    for port, name in names.items():
        link = switch.links[port]
        queue, marks = link.queue, link.marks
        data = {"scheduler": "mrclab-data"}
        if marks is not None:
            profile = f"{PROFILE}-{marks.kmin}-{marks.kmax}"
            tables["WRED_PROFILE"][profile] = {
                "ecn": "ecn_all",
                "wred_green_enable": "true",
                "green_min_threshold": str(marks.kmin),
                "green_max_threshold": str(marks.kmax),
                "green_drop_probability": "100",
            }
            data["wred_profile"] = profile
        tables["QUEUE"][f"{name}|{DATA_QUEUE}"] = data
        tables["QUEUE"][f"{name}|{CONTROL_QUEUE}"] = {"scheduler": "mrclab-control"}
        size = queue.trim.threshold if queue.trim is not None else queue.limit
        trims = trims or queue.trim is not None
        buffer = f"{PROFILE}-{size}-{'trim' if queue.trim is not None else 'drop'}"
        tables["BUFFER_PROFILE"][buffer] = {
            "pool": "egress_lossy_pool", "size": "0", "static_th": str(size),
            "packet_discard_action": "trim" if queue.trim is not None else "drop",
        }  # fmt: skip
        tables["BUFFER_QUEUE"][f"{name}|{DATA_QUEUE}"] = {"profile": buffer}
    if trims:
        tables["SWITCH_TRIMMING"] = {
            "GLOBAL": {
                "size": str(HEADER_BYTES),
                "dscp_value": str(rules.DSCP_TRIMMED),
                "queue_index": CONTROL_QUEUE,
            }
        }
    return {name: table for name, table in tables.items() if table}
