"""The same lab, rules and program on BMv2's simple_switch_grpc, where it is installed."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import select
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator

import grpc
import pytest
from google.protobuf import text_format
from pyroute2 import netns

from mrc_topo import rules
from mrc_topo.labfile import load_lab
from mrc_topo.modes import RoutingMode
from mrc_topo.paths import Paths
from mrc_topo.topology import Topology
from mrclab.lab.switches.p4rt import Device
from mrclab.lab.switches.program import push_rules
from support.namespaces import run
from support.p4.fabric_bed import compiled, lab_frame
from support.p4.mrc_frames import read

ETH_P_ALL = 3
PATIENCE_S = 20.0


class Bmv2Lab:
    """One plane of a lab in a namespace: a simple_switch_grpc per switch, veths between them, a socket per host."""

    def __init__(self, topology: Topology, folder: pathlib.Path) -> None:
        self.topology, self.folder = topology, folder
        self.name = f"bmv2-{os.getpid() % 100000}"
        self.sockets: dict[str, socket.socket] = {}
        self.devices: list[Device] = []

    def build(self, stack: contextlib.ExitStack) -> None:
        run("ip", "netns", "add", self.name)
        stack.callback(run, "ip", "netns", "del", self.name, check=False)
        run("ip", "-n", self.name, "link", "set", "lo", "up")
        run("ip", "netns", "exec", self.name, "sysctl", "-qw", "net.ipv6.conf.default.disable_ipv6=1")
        ends: dict[tuple[str, int], str] = {}
        for number, link in enumerate(self.topology.links.values()):
            low, high = f"l{number}", f"u{number}"
            run("ip", "-n", self.name, "link", "add", low, "mtu", "9000", "type", "veth", "peer", "name", high)
            for interface in (low, high):
                run("ip", "-n", self.name, "link", "set", interface, "mtu", "9000", "up")
            ends[link.low.node, link.low.port] = low
            ends[link.high.node, link.high.port] = high
        netns.pushns(self.name)
        try:
            for host in self.topology.hosts:
                endpoint = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
                stack.callback(endpoint.close)
                endpoint.bind((ends[host.name, 0], 0))
                self.sockets[host.name] = endpoint
        finally:
            netns.popns()
        for switch in self.topology.switches:
            command = ["ip", "netns", "exec", self.name, "simple_switch_grpc", "--no-p4"]
            command += ["--device-id", str(switch.device_id), "--thrift-port", str(9100 + switch.device_id)]
            for port in switch.links:
                command += ["-i", f"{port}@{ends[switch.name, port]}"]
            address = f"unix:{self.folder}/{switch.device_id}"
            command += ["--", "--grpc-server-addr", address, "--priority-queues", str(rules.PRIORITY_QUEUES)]
            process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            stack.callback(process.wait)
            stack.callback(process.kill)
            channel = grpc.insecure_channel(address)
            stack.callback(channel.close)
            grpc.channel_ready_future(channel).result(timeout=PATIENCE_S)
            self.control(channel, switch.name)

    def control(self, channel: grpc.Channel, name: str) -> None:
        loaded = compiled("p4lite")
        assert loaded is not None
        switch = self.topology.switch(name)
        device = Device(channel, switch.device_id, name, text_format.MessageToString(loaded.p4info))  # type: ignore[arg-type]
        device.become_primary()
        device.set_pipeline(json.dumps(loaded.bmv2).encode())
        push_rules(self.topology, switch, device)
        self.devices.append(device)

    def receive(self) -> tuple[str, bytes]:
        """Return the next frame that any host receives."""
        until = time.monotonic() + PATIENCE_S
        while True:
            ready, _, _ = select.select(list(self.sockets.values()), [], [], max(0.0, until - time.monotonic()))
            assert ready, "no packet came"
            for name, endpoint in self.sockets.items():
                if endpoint in ready:
                    frame, address = endpoint.recvfrom(65536)
                    if address[2] != socket.PACKET_OUTGOING:
                        return name, frame


@pytest.fixture(params=[RoutingMode.SRV6_USID, RoutingMode.SRV6_SRH, RoutingMode.STRUCTURED_EV, RoutingMode.ECMP])
def lab(request: pytest.FixtureRequest, tmp_path: pathlib.Path) -> Iterator[Bmv2Lab]:
    if shutil.which("simple_switch_grpc") is None:
        pytest.skip("simple_switch_grpc is not installed")
    given = load_lab("tiny").lab
    data = given.model_dump() | {"planes": 1, "routing": {"mode": request.param}}
    with contextlib.ExitStack() as stack:
        made = Bmv2Lab(Topology(type(given).model_validate(data)), tmp_path)
        made.build(stack)
        yield made


@pytest.mark.netns
@pytest.mark.slow
def test_every_path_carries_its_packets_on_bmv2(lab: Bmv2Lab) -> None:
    topology, paths = lab.topology, Paths(lab.topology)
    for src in range(4):
        for dst in range(4):
            for path in paths.all_paths(src, dst) if src != dst else ():
                frame = lab_frame(topology, src, dst, paths.ev_of_path(path, src * 4 + dst))
                lab.sockets[f"h{src}"].send(bytes(frame))
                name, received = lab.receive()
                seen = read(received)
                assert name == f"h{dst}"
                assert seen.inner[8:] == frame.inner[8:]
                assert seen.hop_limit == 64 - len(path.switches)
    for device in lab.devices:
        counters = device.counter(rules.COUNTERS["drops"])
        assert counters == {}
        device.close()
