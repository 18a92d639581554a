"""The fabric's counters, condensed for samples and status."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Protocol

from mrc_topo import rules
from mrc_topo.topology import Topology
from p4lite.switch.targetapi.client import DeviceStats

#: Reasons of `PortStats.drops` that full queues and slow machines do not have.
FAILURE_DROPS = ("link_down", "loss", "burst_loss", "blackhole", "not_running")


class StatsSource(Protocol):
    """Where statistics come from."""

    def stats(self) -> dict[int, DeviceStats]:
        """All switches."""


class CounterSource(Protocol):
    """Where counters of programs come from (`TargetClient` has both kinds)."""

    def read_counter(self, device_id: int, counter: str, index: int | None = None) -> list[tuple[int, int]]:
        """Cells of a counter of the program."""


def sample(topology: Topology, source: StatsSource) -> dict[str, Any]:
    """Per port `SWITCH:PORT`: transmitted bytes, waiting bytes and the highest since the last reset, drops, `lost`:
    those of them that only a failure makes, and `storm_frames` where a stuck NIC sent any. With priority flow control
    also how long the port was paused, the pause frames that it sent, and the storms that its watchdog saw; with credits
    how long it had none for what waited, and how many it has.
    """
    ports: dict[str, dict[str, int]] = {}
    for device_id, device in source.stats().items():
        name = topology.switches[device_id - 1].name
        for number, port in device.ports.items():
            data = next((queue for queue in port.queues if queue.priority == rules.DATA_PRIORITY), None)
            ports[f"{name}:{number}"] = {
                "tx_bytes": port.tx_bytes,
                "depth_bytes": data.depth_bytes if data else 0,
                "max_bytes": data.max_bytes if data else 0,
                "drops": sum(port.drops.values()),
                "lost": sum(port.drops.get(reason, 0) for reason in FAILURE_DROPS),
            }
            if port.storm_frames:
                ports[f"{name}:{number}"]["storm_frames"] = port.storm_frames
            for pfc in port.pfc:
                if pfc.priority == rules.DATA_PRIORITY:
                    ports[f"{name}:{number}"] |= {
                        "paused_ns": pfc.paused_ns,
                        "pauses_sent": pfc.pauses_sent,
                        "storms": pfc.storms,
                    }
            for credits in port.credits:
                if credits.priority == rules.DATA_PRIORITY:
                    ports[f"{name}:{number}"] |= {
                        "credit_stall_ns": credits.stall_ns,
                        "credit_bytes": credits.credit_bytes,
                    }
    return {"ports": ports}


def pauses(topology: Topology, source: StatsSource) -> dict[str, dict[str, Any]]:
    """What priority flow control did, per `SWITCH:PORT` and priority (`PfcStats`); only where it did something."""
    found: dict[str, dict[str, Any]] = {}
    for device_id, device in source.stats().items():
        name = topology.switches[device_id - 1].name
        for number, port in device.ports.items():
            for each in port.pfc:
                if each.pauses_sent or each.pauses_received or each.headroom_drops:
                    found.setdefault(f"{name}:{number}", {})[str(each.priority)] = asdict(each)
    return found


def stalls(topology: Topology, source: StatsSource) -> dict[str, dict[str, Any]]:
    """What credits did, per `SWITCH:PORT` and priority (`CreditStats`); only where somebody waited for them."""
    found: dict[str, dict[str, Any]] = {}
    for device_id, device in source.stats().items():
        name = topology.switches[device_id - 1].name
        for number, port in device.ports.items():
            for each in port.credits:
                if each.stalls:
                    found.setdefault(f"{name}:{number}", {})[str(each.priority)] = asdict(each)
    return found


def program_counters(topology: Topology, source: CounterSource, names: Mapping[str, str]) -> dict[str, int]:
    """Sums over all switches of what the P4 program counts: marked, trimmed, dropped by reason.

    `names`: what it calls the counters of `rules.COUNTERS`; of what it does not count there is nothing.
    """
    found: dict[str, int] = {}
    for switch in topology.switches:
        for key in ("marked", "trimmed", "queue_drops"):
            if key in names:
                cells = source.read_counter(switch.device_id, names[key])
                found[key] = found.get(key, 0) + sum(packets for packets, _ in cells)
        if "drops" not in names:
            continue
        cells = source.read_counter(switch.device_id, names["drops"])
        for index, reason in rules.DROP_REASONS.items():
            packets = cells[index][0] if index < len(cells) else 0
            found[f"drop_{reason}"] = found.get(f"drop_{reason}", 0) + packets
    return found
