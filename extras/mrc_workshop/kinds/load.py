"""Checks of the load of links and the rates of streams: balance over uplinks, rates and fairness."""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Collection, Sequence
from typing import Annotated

from pydantic import Field

from mrc_topo.addressing import Tier
from mrc_topo.base.document import Model
from mrc_topo.units import format_rate
from mrc_workshop.job import Run
from mrc_workshop.kinds.registry import Finding, kind
from mrc_workshop.trace import IPV6, CapturedPacket, line
from mrclab.results import performance

Share = Annotated[float, Field(ge=0)]
SHOWN = 6


class LinkLoad(Model):
    """`at_least`, `at_most`: the bounds of every uplink, as shares of the mean of its T0's uplinks."""

    at_least: Share = 0.8
    at_most: Share = 1.2


@kind(LinkLoad)
def link_load(params: LinkLoad, runs: Sequence[Run]) -> Finding:
    """Check that the uplinks of every sending T0 carry about the same: least and most as shares of the mean."""
    least, most = 1.0, 1.0
    failed: Finding | None = None
    for run in runs:
        for name, loads in _uplinks(run).items():
            mean = sum(loads.values()) / len(loads)
            shares = {port: load / mean for port, load in loads.items()}
            low, high = min(shares, key=lambda port: shares[port]), max(shares, key=lambda port: shares[port])
            least, most = min(least, shares[low]), max(most, shares[high])
            if failed is None and (shares[low] < params.at_least or shares[high] > params.at_most):
                failed = _unbalanced(run, name, shares, low, high)
    measured = f"least {least:.2f}, most {most:.2f} of the mean"
    wanted = f"wanted: {params.at_least:g} to {params.at_most:g}"
    if failed is None:
        return Finding(True, measured)
    return Finding(False, f"{measured}; {wanted}", failed.mistake, failed.evidence, failed.packets, failed.run)


def _uplinks(run: Run) -> dict[str, dict[int, int]]:
    """Return the bytes that each T0 sent on each of its uplinks, for T0s whose hosts sent anything to other T0s."""
    found = {}
    for switch in run.topology.switches:
        if switch.tier is not Tier.T0:
            continue
        ports = [port for port, link in switch.links.items() if not link.is_host_link]
        loads = {port: run.facts.ports.get(f"{switch.name}:{port}", {}).get("tx_bytes", 0) for port in ports}
        # Acknowledgements alone are too little traffic to balance.
        if len(ports) > 1 and sum(loads.values()) > 0.2 * _busiest(run):
            found[switch.name] = loads
    return found


def _busiest(run: Run) -> int:
    totals: Counter[str] = Counter()
    for name, counters in run.facts.ports.items():
        switch, _, port = name.partition(":")
        if not run.topology.switch(switch).links[int(port)].is_host_link:
            totals[switch] += counters["tx_bytes"]
    return max(totals.values(), default=0)


def _flows(run: Run, switch: str, ports: Collection[int]) -> tuple[Counter[str], Counter[str], list[CapturedPacket]]:
    """Return data bytes and number of EVs of each pair of hosts that left by some ports, and a packet of each pair."""
    names = {host.address: host.name for host in run.topology.hosts}
    flows: Counter[str] = Counter()
    evs: dict[str, set[int]] = {}
    first: dict[str, CapturedPacket] = {}
    for seen in run.packets:
        if seen.switch == switch and seen.port in ports and seen.out and seen.is_write:
            at = seen.inner_at
            ends = [names.get(seen.data[at + 8 : at + 24]), names.get(seen.data[at + 24 : at + 40])]
            pair = f"{ends[0]} to {ends[1]}"
            flows[pair] += seen.length
            label = struct.unpack_from("!I", seen.data, at)[0] & 0xFFFF
            evs.setdefault(pair, set()).add(label << 16 | struct.unpack_from("!H", seen.data, at + IPV6)[0])
            first.setdefault(pair, seen)
    return flows, Counter({pair: len(values) for pair, values in evs.items()}), list(first.values())


def _unbalanced(run: Run, switch: str, shares: dict[int, float], low: int, high: int) -> Finding:
    flows, evs, packets = _flows(run, switch, (high,))
    peers = {port: run.topology.switch(switch).peer(port).node for port in shares}
    text = ", ".join(f"{peers[port]} {share:.2f}" for port, share in shares.items())
    evidence = [f"uplinks of {switch}, as shares of their mean: {text}"]
    evidence += [
        f"to {peers[high]}: {pair}, {flows[pair]} bytes on {evs[pair]} EV{'s' * (evs[pair] > 1)}" for pair in flows
    ]
    evidence += [line(run.topology, packet) for packet in packets[:2]]
    pairs = len(flows)
    lab = run.topology.lab
    uplinks = [port for port, link in run.topology.switch(switch).links.items() if not link.is_host_link]
    used = max(_flows(run, switch, uplinks)[1].values(), default=0)
    if lab.ev.active > lab.planes and used < lab.ev.active / lab.planes / 2:
        mistake = (
            f"the uplink of {switch} to {peers[high]} carries {shares[high]:.2f} of the mean, the one to {peers[low]} "
            f"{shares[low]:.2f}: of its {lab.ev.active} EVs no flow took more than {used}: "
            "`choose` must take another for each packet"
        )
    elif lab.ev.active == lab.planes:
        mistake = (
            f"{pairs} flows share the uplink of {switch} to {peers[high]}, while the one to {peers[low]} carries "
            f"{shares[low]:.2f} of the mean: each flow has one path, and the hash does not care who else has it"
        )
    else:
        mistake = (
            f"the uplink of {switch} to {peers[high]} carries {shares[high]:.2f} of the mean, the one to {peers[low]} "
            f"{shares[low]:.2f}: with {lab.ev.active} EVs per flow chance still decides; the more EVs a flow has, "
            "the more equal they are"
        )
    return Finding(False, "", mistake, tuple(evidence), tuple(packets[:SHOWN]), run)


class Streams(Model):
    """`at_least`: the least rate of every stream, as a share of what its host could send; `jain`: the least value of
    Jain's index over all streams."""

    at_least: Share = 0.0
    jain: Share = 0.0


@kind(Streams)
def streams(params: Streams, runs: Sequence[Run]) -> Finding:
    """Every stream of a workload has its share, and they are fair to each other (Jain's index)."""
    slowest, fairest = 1e9, 1.0
    failed: Finding | None = None
    for run in runs:
        rates = performance.stream_rates(run.result, None, None)
        if not rates:
            return Finding(False, "no stream finished", "no stream has a rate: nothing was acknowledged", run=run)
        capacity = run.topology.lab.host_rate_bps
        low = min(rates, key=lambda each: rates[each])
        index = performance.jain(list(rates.values()))
        slowest, fairest = min(slowest, rates[low] / capacity), min(fairest, index)
        if failed is None and (rates[low] / capacity < params.at_least or index < params.jain):
            evidence = [f"{name}: {rate / capacity:.2f} of a host's capacity" for name, rate in sorted(rates.items())]
            mistake = f"{low} got {rates[low] / capacity:.2f} of what its host can send"
            if rates[low] / capacity >= params.at_least:
                mistake = f"Jain's index of {len(rates)} rates is {index:.3f}, not {params.jain:g}: {low} got least"
            failed = Finding(False, "", mistake, tuple(evidence), run=run)
    measured = f"slowest {slowest:.2f} of a host's capacity, Jain's index {fairest:.3f}"
    if failed is None:
        return Finding(True, measured)
    return Finding(False, measured, failed.mistake, failed.evidence, run=failed.run)


class HostCapacity(Model):
    """`capacity_bps`: the rate of all ports of a host together; `ports`: their number."""

    capacity_bps: Annotated[int, Field(gt=0)]
    ports: Annotated[int, Field(gt=0)]


@kind(HostCapacity)
def host_capacity(params: HostCapacity, runs: Sequence[Run]) -> Finding:
    """Check that a host of the learner's lab has this many ports and this total rate."""
    for run in runs:
        lab = run.topology.lab
        rate = lab.host_rate_bps
        measured = f"{lab.planes} port{'s' * (lab.planes > 1)}, {format_rate(rate)}"
        if lab.planes != params.ports:
            text = f"a host has {lab.planes} port{'s' * (lab.planes > 1)}, not {params.ports}: `planes` says how many"
            return Finding(False, measured, text, run=run)
        if rate != params.capacity_bps:
            wanted = format_rate(params.capacity_bps)
            text = f"a host can send {format_rate(rate)}, not {wanted}: links.host.rate is per port"
            return Finding(False, measured, text, run=run)
        if lab.links.fabric.rate != lab.links.host.rate:
            text = "links.fabric.rate is not links.host.rate: the uplinks of a T0 must carry what its hosts send"
            return Finding(False, measured, text, run=run)
    return Finding(True, measured)
