"""What a run needs on the real clock, where time is given and a machine keeps up or does not.

Rates are those that `python -m benchmarks lab` measured (docs/measurements.md, docs/explanation/performance.md): the
CPU per packet falls with the rate, because rounds cost by hosts and ports. So a part is per packet and a part per host.
"""

from __future__ import annotations

from dataclasses import dataclass

from mrc_host import native
from mrc_lab.describe import agent_groups
from mrc_studies.estimates.traffic import Traffic
from mrc_studies.estimates.work import Work
from mrc_topo.topology import Topology

#: CPU seconds of agents and of the fabric for a data packet with its SACK, at three switches.
AGENT_PACKET_S, FABRIC_PACKET_S = 21e-6, 9e-6
#: Cores that rounds take: of an agent for each host, and of the fabric in all and for each host.
AGENT_HOST, FABRIC, FABRIC_HOST = 0.045, 0.1, 0.015
#: How much more an interpreted core takes.
INTERPRETED = 1.7
#: CPU seconds until a lab is up: in all, and for each port of a host.
START_S, START_PORT_S = 1.5, 0.05
#: Resident bytes: the command and the daemon with the fabric, a process of agents, a host in it.
COMMAND_BYTES, DAEMON_BYTES, AGENT_BYTES, HOST_BYTES = 110e6, 90e6, 45e6, 1e6
#: The share of a machine's cores up to which runs were valid.
FULL = 0.8


@dataclass(frozen=True)
class RealNeeds:
    """CPU seconds of start, agents and fabric; cores that agents and fabric keep busy; resident bytes."""

    start_s: float
    agents_s: float
    fabric_s: float
    cores: float
    memory_bytes: float
    bits_per_second: float

    def goodput_bps(self, topology: Topology) -> float:
        """Return the goodput that these needs are for."""
        return self.bits_per_second


def needs(topology: Topology, traffic: Traffic, work: Work, slowness: float) -> RealNeeds:
    """Return what a run needs on the real clock."""
    slower = slowness * (1.0 if native.COMPILED else INTERPRETED)
    hops = traffic.hops / traffic.packets / 3 if traffic.packets else 1.0
    agents = slower * (AGENT_PACKET_S * traffic.packets + AGENT_HOST * work.hosts * traffic.seconds)
    rounds = FABRIC + FABRIC_HOST * work.hosts
    fabric = slowness * (FABRIC_PACKET_S * hops * traffic.packets + rounds * traffic.seconds)
    seconds = max(traffic.seconds, 1e-9)
    memory = COMMAND_BYTES + DAEMON_BYTES + AGENT_BYTES * len(agent_groups(topology))
    return RealNeeds(
        start_s=slowness * (START_S + START_PORT_S * work.host_ports),
        agents_s=agents,
        fabric_s=fabric,
        cores=(agents + fabric) / seconds,
        memory_bytes=memory + HOST_BYTES * work.hosts + work.region_bytes,
        bits_per_second=8 * traffic.payload_bytes / seconds,
    )
