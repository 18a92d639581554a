"""`mrclab status`: the truth from the fabric, and beside it what the hosts see."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from mrc_control.lab.hostclient import HostError
from mrc_control.paths import clustermapper
from mrc_control.session.real import RealSession

#: Of the lab's processes those whom nothing asks.
INDIFFERENT = ("lab", "labd")


def lab_status(session: RealSession) -> dict[str, Any]:
    """Everything about a running lab as plain data: switches, hosts, what is broken, and what the hosts see."""
    frozen = {each.role: each for each in session.frozen()}
    silent = [role for role in frozen if role not in session.clients and role not in INDIFFERENT]
    # Whoever asks what is frozen waits until it goes on.
    info, stats = ({}, {}) if silent else (session.target.info().switches, session.target.stats())
    switches = []
    for ident, switch in info.items():
        ports = switch.ports.values()
        switches.append(
            {
                "name": switch.name,
                "state": switch.state.value,
                "ports": len(switch.ports),
                "ports_up": sum(port.up_outgoing and port.up_incoming for port in ports),
                "tx_packets": sum(port.tx_packets for port in stats[ident].ports.values()),
                "drops": sum(sum(port.drops.values()) for port in stats[ident].ports.values()),
            }
        )
    hosts: list[dict[str, Any]] = []
    for name, client in session.clients.items():
        row: dict[str, Any] = {"name": name, "alive": name not in frozen}
        if name in frozen:
            hosts.append(row | {"error": frozen[name].text()})
            continue
        try:
            counters = client.request("summary")
            row |= {key: counters[key] for key in ("ports_up", "sent", "received", "retransmitted")}
        except HostError as error:
            row |= {"alive": False, "error": str(error)}
        hosts.append(row)
    return {
        "lab": session.topology.lab.name,
        "grpc_addresses": [client.address for client in session.target.clients],
        "switches": switches,
        "hosts": hosts,
        "hosts_alive": sum(host["alive"] for host in hosts),
        "broken": session.failures.broken,
        "unsettled": session.failures.unsettled,
        "denied": sorted(session.denied),
        "health": _health(session, frozen),
        "harm": session.harm(),
    }


def _health(session: RealSession, frozen: Collection[str]) -> list[dict[str, str]]:
    """Every element that is broken, or that the hosts take for broken."""
    truth = session.failures.broken
    seen = clustermapper.view_of(
        session.topology, {name: host for name, host in session.hosts.items() if name not in frozen}
    )
    return [
        {"element": name, "hosts": seen.get(name, "healthy"), "truth": truth.get(name, "healthy")}
        for name in sorted(set(truth) | set(seen))
    ]
