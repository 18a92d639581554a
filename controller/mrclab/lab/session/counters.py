"""The fabric's counters, condensed for samples and status."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from mrc_topo import rules
from mrc_topo.topology import Topology
from mrclab.lab.switches.names import P4InfoNames
from p4lite.switch.fabric.fabric import Fabric
from p4lite.switch.fabric.values import CreditStats, PfcStats
from p4lite.switch.targetapi.values import DeviceSample, DeviceStats

#: Samples by name; `ports` are by `SWITCH:PORT`.
FabricSample = dict[str, dict[str, dict[str, int]]]
#: The reasons of `PortStats.drops` that only failures cause, not full queues or slow machines.
FAILURE_DROPS = ("link_down", "loss", "burst_loss", "blackhole", "not_running")


class StatsSource(Protocol):
    """A source of statistics."""

    def stats(self) -> dict[int, DeviceStats]:
        """Return the statistics of all switches."""


class SampleSource(Protocol):
    """A source of samples of many ports in little time."""

    def samples(
        self, priority: int, reasons: Iterable[str] = (), counters: Iterable[str] = ()
    ) -> dict[int, DeviceSample]:
        """Return samples of all ports of all switches; see `TargetClient.samples`."""


class CounterSource(Protocol):
    """A source of programs' counters (`TargetClient` has both kinds)."""

    def read_counter(self, device_id: int, counter: str, index: int | None = None) -> list[tuple[int, int]]:
        """Return the cells of a counter of the program."""


def sample(topology: Topology, source: StatsSource) -> FabricSample:
    """Return the counters of each switch port, by `SWITCH:PORT`.

    They are transmitted bytes, waiting bytes and the highest since the last reset, drops, `lost`: the drops that only a
    failure causes, and `storm_frames` where a stuck NIC sent any. Priority flow control adds how long the port was
    paused, the pause frames that it sent, and the storms that its watchdog saw; credits add how long waiting packets
    had none, and how many the port has.
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
            ports[f"{name}:{number}"] |= _controls(port.pfc, port.credits)
    return {"ports": ports}


def _controls(pfc: Sequence[PfcStats], credits: Sequence[CreditStats]) -> dict[str, int]:
    """Return the values of a sample that concern flow control and credits."""
    found: dict[str, int] = {}
    for paused in pfc:
        if paused.priority == rules.DATA_PRIORITY:
            found |= {"paused_ns": paused.paused_ns, "pauses_sent": paused.pauses_sent, "storms": paused.storms}
    for each in credits:
        if each.priority == rules.DATA_PRIORITY:
            found |= {"credit_stall_ns": each.stall_ns, "credit_bytes": each.credit_bytes}
    return found


def sample_inside(topology: Topology, fabric: Fabric) -> FabricSample:
    """Return `sample` of a fabric in this process, which reads all ports by one call."""
    names, ports = [], []
    for device_id, switch in fabric.switches.items():
        name = topology.switches[device_id - 1].name
        for number, port in switch.ports.items():
            names.append(f"{name}:{number}")
            ports.append(port)
    found: dict[str, dict[str, int]] = {}
    rows = fabric.port_samples(ports, rules.DATA_PRIORITY, FAILURE_DROPS)
    for key, port, row in zip(names, ports, rows, strict=True):
        tx_bytes, depth, highest, drops, lost, storm_frames, controls = row[:7]
        sampled = {"tx_bytes": tx_bytes, "depth_bytes": depth, "max_bytes": highest, "drops": drops, "lost": lost}
        if storm_frames:
            sampled["storm_frames"] = storm_frames
        if controls:
            sampled |= _controls(port.pfc_stats(), port.credit_stats())
        found[key] = sampled
    return {"ports": found}


#: Of the counters of `rules.COUNTERS`, those that `program_counters` takes as they are.
SUMMED = ("marked", "trimmed", "queue_drops")


def is_common(key: str) -> bool:
    """Return whether a key of `program_counters` is one of every lab, not of its own program."""
    return key in SUMMED or key in {f"drop_{reason}" for reason in rules.DROP_REASONS.values()}


def program_counters(topology: Topology, source: CounterSource, names: Mapping[str, str]) -> dict[str, int]:
    """Sum over all switches what the P4 program counts: marked, trimmed, dropped by reason.

    `names`: the program's names of the counters of `rules.COUNTERS`; a counter that it lacks is left out.
    """
    found: dict[str, int] = {}
    for switch in topology.switches:
        for key in SUMMED:
            if key in names:
                cells = source.read_counter(switch.device_id, names[key])
                found[key] = found.get(key, 0) + sum(packets for packets, _ in cells)
        if "drops" not in names:
            continue
        cells = source.read_counter(switch.device_id, names["drops"])
        for index, reason in rules.DROP_REASONS.items():
            if index == rules.TENANT_DENIED and not topology.lab.tenants:
                continue
            packets = cells[index][0] if index < len(cells) else 0
            found[f"drop_{reason}"] = found.get(f"drop_{reason}", 0) + packets
    return found


def own_counters(topology: Topology, source: CounterSource, names: P4InfoNames) -> dict[str, int]:
    """Sum over all switches and cells every counter of a lab's own P4 program, by its full name.

    The sums are packets; for a counter of bytes only, bytes; for a counter of both, bytes are in `NAME.bytes`. A direct
    counter has a cell for each entry that its table has now, and one for packets that no entry matched.
    """
    found: dict[str, int] = {}
    for name, counter in (names.counters | names.direct_counters).items():
        cells = [cell for switch in topology.switches for cell in source.read_counter(switch.device_id, name)]
        packets, octets = (sum(cell[part] for cell in cells) for part in (0, 1))
        found[name] = octets if counter.unit == "BYTES" else packets
        if counter.unit == "BOTH":
            found[f"{name}.bytes"] = octets
    return found
