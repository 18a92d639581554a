"""`mrclab status`: the truth from the fabric, and beside it what the hosts see."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from mrc_host.requests import GetSummary
from mrc_topo.base import interruption
from mrc_topo.base.plain import OMIT_NONE, encode
from mrc_topo.topology import Topology
from mrclab.cli.common import LabName, on_lab
from mrclab.lab.hosts.hostclient import HostClient, HostError
from mrclab.lab.management import clustermapper, denylist
from mrclab.lab.processes.process import StoppedProcess
from mrclab.lab.records.rundir import all_runs
from mrclab.lab.session.fidelity import MachineFidelity
from mrclab.lab.session.real import AgentProcess, RealSession
from mrclab.results.terminal import Terminal
from p4lite.switch.targetapi.values import DeviceStats, SwitchInfo

#: Links' rates are means over this time.
RATE_S, WATCH_S = 0.25, 1.0
#: The links that a terminal gets, the most loaded first; JSON has all.
MOST_LINKS = 64
#: The processes of a lab that get no requests.
INDIFFERENT = ("lab", "labd")


def verb(
    lab: LabName = None,
    as_json: Annotated[bool, typer.Option("--json", help="print JSON")] = False,
    watch: Annotated[bool, typer.Option("--watch", help="renew it each second until Ctrl-C")] = False,
) -> None:
    """Show what is up, the load of each link, which failures are injected, and what the hosts detect."""
    if lab is None and not all_runs():
        typer.echo("{}" if as_json else "no lab is up")
        return
    with on_lab(lab) as session:
        console = Terminal()
        while True:
            status = lab_status(session, rate_s=WATCH_S if watch else RATE_S)
            if as_json:
                typer.echo(json.dumps(status.document(), indent=None if watch else 1))
            else:
                if watch:
                    console.clear()
                _show(status, console)
            if not watch:
                return


@dataclass(frozen=True)
class SwitchRow:
    """A switch: `state` is the fabric's report, or dead, lost (with its machine), no answer."""

    name: str
    state: str
    ports: int
    ports_up: int = 0
    tx_packets: int = 0
    drops: int = 0


@dataclass(frozen=True)
class LinkRow:
    """A link: its rate, what both directions carry, and the load of the busier one as a share of the rate."""

    name: str
    rate_bps: int
    up_bps: int
    down_bps: int

    @property
    def load(self) -> float:
        """The share of the rate that the busier direction uses."""
        return max(self.up_bps, self.down_bps) / self.rate_bps if self.rate_bps else 0.0


@dataclass(frozen=True)
class HostRow:
    """A host: its agent's counters, or why there are none."""

    name: str
    alive: bool
    ports_up: int | None = field(default=None, metadata=OMIT_NONE)
    sent: int | None = field(default=None, metadata=OMIT_NONE)
    received: int | None = field(default=None, metadata=OMIT_NONE)
    retransmitted: int | None = field(default=None, metadata=OMIT_NONE)
    denied_evs: int | None = field(default=None, metadata=OMIT_NONE)
    error: str | None = field(default=None, metadata=OMIT_NONE)


@dataclass(frozen=True)
class HealthRow:
    """An element that is broken (`truth`), or that the hosts suspect."""

    element: str
    hosts: str
    truth: str


@dataclass(frozen=True)
class LabStatus:
    """Everything about a running lab: switches, hosts, what is broken, and what the hosts see."""

    lab: str
    switch: str
    compiler: str
    grpc_addresses: Sequence[str]
    switches: Sequence[SwitchRow]
    links: Sequence[LinkRow]
    hosts: Sequence[HostRow]
    agents: Sequence[AgentProcess]
    hosts_alive: int
    broken: Mapping[str, str]
    unsettled: Sequence[str]
    denied: Sequence[str]
    health: Sequence[HealthRow]
    harm: Sequence[str]
    machines: Mapping[str, MachineFidelity]

    def document(self) -> object:
        """Return the status as plain JSON values; machines are a list there, each with its name."""
        machines = [{"name": name, **encode(each)} for name, each in self.machines.items()]
        links = [{**encode(each), "load": round(each.load, 4)} for each in self.links]
        return {**encode(self), "machines": machines, "links": links}


def link_rows(
    topology: Topology, before: Mapping[int, DeviceStats], after: Mapping[int, DeviceStats]
) -> Iterator[LinkRow]:
    """Yield what each link carried between two readings, as its switch counts; of a link between switches, the lower.

    Links of switches that do not answer are left out.
    """
    idents = {switch.name: switch.device_id for switch in topology.switches}
    for link in topology.links.values():
        end = link.high if link.is_host_link else link.low
        old, new = before.get(idents[end.node]), after.get(idents[end.node])
        if old is None or new is None or end.port not in old.ports or end.port not in new.ports:
            continue
        ns = max(new.now_ns - old.now_ns, 1)
        was, now = old.ports[end.port], new.ports[end.port]
        # A switch that was started again counts from 0.
        sent, came = (
            max(count, 0) * 8 * 10**9 // ns for count in (now.tx_bytes - was.tx_bytes, now.rx_bytes - was.rx_bytes)
        )
        up, down = (came, sent) if link.is_host_link else (sent, came)
        yield LinkRow(link.name, link.spec.rate, up, down)


def lab_status(session: RealSession, rate_s: float = RATE_S) -> LabStatus:
    """Ask a lab for its status; the links' rates are means over `rate_s`."""
    frozen = {each.role: each for each in session.frozen()}
    silent = [role for role in frozen if role not in session.clients and role not in INDIFFERENT]
    if session.state.switch != "p4lite":
        # The wires answer in a switch's place.
        silent = [role for role in silent if role not in {switch.name for switch in session.topology.switches}]
    info: dict[int, SwitchInfo]
    stats: dict[int, DeviceStats]
    before: dict[int, DeviceStats] = {}
    for last in (False, True):
        if silent:  # a call to a frozen process blocks until it continues
            info, stats = {}, {}
        elif session.machine_of:  # a machine may be lost while it is asked
            info, stats = session.target.answering()
        else:
            info, stats = session.target.info().switches, session.target.stats()
        if not last:
            before = stats
            interruption.sleep(rate_s)
    # Asked only now: until a machine that does not answer is known to be lost, the questions above have taken as long.
    lost = session.lost()
    gone = {host: lost.get(machine) for host, machine in session.machine_of.items()}
    dead = {death.role for death in session.state.record.deaths}
    switches = [
        SwitchRow(
            name=switch.name,
            state="dead" if switch.name in dead else switch.state.value,
            ports=len(switch.ports),
            ports_up=sum(port.up_outgoing and port.up_incoming for port in switch.ports.values()),
            tx_packets=sum(port.tx_packets for port in stats[ident].ports.values()),
            drops=sum(sum(port.drops.values()) for port in stats[ident].ports.values()),
        )
        for ident, switch in info.items()
    ]
    told = {row.name for row in switches}
    switches += [
        SwitchRow(switch.name, "lost" if gone.get(switch.name) else "no answer", len(switch.links))
        for switch in session.topology.switches
        if gone.get(switch.name) or (session.machine_of and not silent and switch.name not in told)
    ]
    hosts = [_host(name, client, gone.get(name), frozen.get(name)) for name, client in session.clients.items()]
    return LabStatus(
        lab=session.topology.lab.name,
        switch=session.state.switch,
        compiler=session.state.compiler,
        grpc_addresses=list(session.switches.values()) or list(session.addresses),
        switches=switches,
        links=list(link_rows(session.topology, before, stats)),
        hosts=hosts,
        agents=session.agents(),
        hosts_alive=sum(host.alive for host in hosts),
        broken=session.failures.broken,
        unsettled=session.failures.unsettled,
        denied=sorted(session.denied),
        health=_health(session, {*frozen, *(host for host, how in gone.items() if how)}),
        harm=session.harm(),
        machines=session.machines(),
    )


def _host(name: str, client: HostClient, lost: str | None, frozen: StoppedProcess | None) -> HostRow:
    if lost:
        return HostRow(name, False, error=lost)
    if frozen is not None:
        return HostRow(name, False, error=frozen.text())
    try:
        found = client.ask(GetSummary())
    except HostError as error:
        return HostRow(name, False, error=str(error))
    return HostRow(name, True, found.ports_up, found.sent, found.received, found.retransmitted, found.denied)


def _health(session: RealSession, frozen: Collection[str]) -> list[HealthRow]:
    """Return every element that is broken, or that the hosts take for broken."""
    truth = session.failures.broken
    seen = clustermapper.view_of(
        session.topology,
        {name: host for name, host in session.hosts.items() if name not in frozen},
        denylist.load(session.topology.lab.policies.localiser),
    )
    return [
        HealthRow(name, seen.get(name, "healthy"), truth.get(name, "healthy"))
        for name in sorted(set(truth) | set(seen))
    ]


def machine_line(name: str, machine: MachineFidelity) -> str:
    """Describe a machine that carries a part, in a line."""
    where = f" (ssh {machine.ssh})" if machine.ssh else ""
    parts = f"{len(machine.hosts)} hosts, {len(machine.switches)} switches"
    if machine.lost:
        return f"{machine.lost}; {parts} are gone with it"
    clock = machine.clock
    known = "its clock is not known"
    if clock is not None:
        known = f"its clock is within {(abs(clock.off_ns) + clock.uncertainty_ns) / 1e6:.2f} ms of ours"
    ends = machine.tunnels.values()
    lost, received = sum(end.lost for end in ends), sum(end.received for end in ends)
    return f"machine {name}{where}: {parts}; {len(ends)} tunnels, {received} datagrams, {lost} lost; {known}"


def agent_line(agent: AgentProcess) -> str:
    """Return which hosts an agents' process runs, and its memory."""
    memory = f"{agent.memory_bytes / 1e6:.0f} MB"
    if len(agent.hosts) == 1:
        return f"agent of {agent.hosts[0]}: a process of {memory}"
    share = f"{agent.memory_bytes / 1e6 / len(agent.hosts):.0f} MB"
    return f"agents of {', '.join(agent.hosts)}: a process of {memory}, {share} for each host"


def _show_links(links: Sequence[LinkRow], console: Terminal) -> None:
    if not links:
        return
    busiest = sorted(links, key=lambda each: -each.load)[:MOST_LINKS]
    table = Table(title="links")
    for column in ("link", "rate", "up, Mb/s", "down, Mb/s", "load"):
        table.add_column(column, justify="left" if column == "link" else "right")
    for link in links:
        if link in busiest:
            rates = (f"{bps / 1e6:.3f}" if bps < 1e6 else f"{bps / 1e6:.1f}" for bps in (link.up_bps, link.down_bps))
            table.add_row(link.name, f"{link.rate_bps / 1e6:g} Mb/s", *rates, f"{link.load:.1%}")
    console.print(table)
    if len(links) > len(busiest):
        console.print(f"{len(links) - len(busiest)} more links have less load; --json has all")


def _show(status: LabStatus, console: Terminal) -> None:
    parts = {"switches": status.switch, "compiler": status.compiler}
    other = "".join(f", {what}: {part}" for what, part in parts.items() if part != "p4lite")
    alive = f"{status.hosts_alive} of {len(status.hosts)} agents alive"
    console.print(Text.assemble("lab ", (status.lab, "bold"), f": {alive}{other}"))
    table = Table(title="switches")
    for column in ("switch", "state", "ports up", "tx packets", "drops"):
        table.add_column(column, justify="left" if column in ("switch", "state") else "right")
    for row in status.switches:
        table.add_row(row.name, row.state, f"{row.ports_up} of {row.ports}", str(row.tx_packets), str(row.drops))
    console.print(table)
    _show_links(status.links, console)
    table = Table(title="hosts")
    for column in ("host", "ports up", "sent", "received", "retransmitted", "EVs denied"):
        table.add_column(column, justify="left" if column == "host" else "right")
    for host in status.hosts:
        counts = (host.ports_up, host.sent, host.received, host.retransmitted, host.denied_evs)
        table.add_row(host.name, *("-" if each is None else str(each) for each in counts))
    console.print(table)
    for agent in status.agents:
        console.print(agent_line(agent))
    for name, machine in status.machines.items():
        console.print(machine_line(name, machine))
    table = Table(title="links: as the hosts see them, beside the truth")
    for column in ("element", "hosts say", "truth"):
        table.add_column(column)
    for health in status.health:
        table.add_row(health.element, health.hosts, health.truth)
    console.print(table if status.health else "all links and switches are healthy, and the hosts see them so")
    for line in status.harm:
        console.print(line, style="red")
    if status.unsettled:
        names = ", ".join(status.unsettled)
        console.print(f"in doubt after a change that broke off: {names}; `mrclab restore` puts them right")
    if status.denied:
        console.print(f"denied: {', '.join(status.denied)}; `mrclab allow` gives them back")
    elif any(host.denied_evs for host in status.hosts):
        console.print("EVs are denied that no element of the denylist explains; `mrclab allow` gives them back")
