"""What the fabric processes of several machines are told: together they are the lab, every link once."""

from __future__ import annotations

import collections
import dataclasses
import json
import os
import pathlib
from typing import Any

import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from mrc_machines.lab_slice import LabSlice, relayed
from mrc_topo.labfile import parse_lab
from mrc_topo.placement import Placement
from mrc_topo.topology import Topology
from mrclab.lab import describe
from mrclab.lab.hosts.hostnet import switch_interfaces
from p4lite.switch import documents
from p4lite.switch.description import FabricDescription
from topo.strategies import topologies


@st.composite
def placed(draw: st.DrawFn) -> Topology:
    """Return a small lab whose hosts and switches are anywhere on two machines."""
    document: dict[str, Any] = draw(topologies()).lab.model_dump(mode="json")
    plain = parse_lab(yaml.safe_dump(document))
    machines: dict[str, dict[str, Any]] = {
        name: {"address": f"10.0.0.{k}", "hosts": [], "switches": []} for k, name in enumerate(("a", "b"), 1)
    }
    machines["a"]["hosts"].append("h0")
    machines["b"]["switches"].append(plain.switches[0].name)
    for kind, elements in (("hosts", plain.hosts[1:]), ("switches", plain.switches[1:])):
        for element in elements:
            machines[draw(st.sampled_from("ab"))][kind].append(element.name)
    return parse_lab(yaml.safe_dump({**document, "machines": machines}))


def described(placement: Placement, machine: str) -> dict[str, Any]:
    topology = placement.topology
    part = LabSlice(machine, dict.fromkeys(placement.ends(machine), 5), 4)
    plan = describe.FabricPlan("unix:x", "real", switch_interfaces(topology, placement.hosts(machine)))
    described = describe.fabric_description(topology, part.wired(plan, placement), placement.switches(machine))
    made: dict[str, Any] = json.loads(json.dumps(documents.plain(described)))
    assert documents.read(FabricDescription, made, "") == described
    return made


@given(placed())
@settings(max_examples=25)
def test_every_link_is_there_once_and_its_ends_agree(topology: Topology) -> None:
    placement = Placement(topology)
    seen: collections.Counter[str] = collections.Counter()
    tunnels: dict[tuple[int, int], dict[str, Any]] = {}
    for machine in placement.machines:
        made = described(placement, machine)
        interfaces = switch_interfaces(topology, placement.hosts(machine))
        by_id = {each.device_id: each for each in placement.switches(machine)}
        used = []
        for switch in made["switches"]:
            relay = switch["device_id"] == describe.RELAY
            for port in switch["ports"]:
                used += [port["interface"]] if "interface" in port else []
                if "tunnel" in port:
                    tunnel = port["tunnel"]
                    tunnels[tunnel["end"], tunnel["peer_end"]] = tunnel
                if relay:
                    continue
                link = by_id[switch["device_id"]].links[port["port"]]
                if "interface" in port:
                    assert link.is_host_link
                    seen[link.name] += 2
                elif "tunnel" in port:
                    seen[link.name] += 1
                    # The rate is kept by whoever sends; of a host link by the T0, in both directions.
                    assert port["to_host"]["rate_bps"] == link.spec.rate
                    assert ("to_switch" in port) is link.is_host_link
            if relay:
                for name in relayed(placement, machine):
                    seen[name] += 1
                assert len(switch["patches"]) == len(relayed(placement, machine)) == len(switch["ports"]) / 2
        for link_made in made["links"]:
            ends = [by_id[device].links[port].name for device, port in (link_made["a"], link_made["b"])]
            assert ends[0] == ends[1]
            seen[ends[0]] += 2
        assert sorted(used) == sorted(interfaces.values()), "every host port is plugged in"
    assert seen == dict.fromkeys(topology.links, 2)
    for (end, peer), tunnel in tunnels.items():
        other = tunnels[peer, end]
        assert (tunnel["local"], tunnel["peer"]) == (other["peer"], other["local"])


def test_the_daemon_is_told_by_a_private_file(tmp_path: pathlib.Path) -> None:
    with (tmp_path / "x").open("w") as some:
        part = LabSlice("a", {"p0-t0.0--p0-t1.0": some.fileno()}, some.fileno(), -5, "00" * 16)
        part.save(tmp_path, os.geteuid(), os.getegid())
        assert LabSlice.load(tmp_path) == dataclasses.replace(part, key="")
    assert (tmp_path / "tunnel.key").read_text() == part.key
    for name in ("part.json", "tunnel.key"):
        assert (tmp_path / name).stat().st_mode & 0o777 == 0o600
