"""A recorded run, shown as it was: its samples and events, at any time of it, at any speed.

What was not recorded is not shown: which EVs a queue pair had, and which switch trimmed.
"""

from __future__ import annotations

import pathlib
import time
from collections.abc import Callable
from typing import Final

import numpy as np

from mrc_host.answers import Event, RoceHostStatistics
from mrc_topo.base.document import printable
from mrclab.lab.faults.action import Action, Effects, together
from mrclab.lab.faults.kinds import effects_of
from mrclab.lab.session.fidelity import UNMEASURED
from mrclab.results.history import peers_of, topology_of
from mrclab.results.reading import RESULT, FolderError, document_of, readable
from mrclab.results.record import LabEvent, RunResult
from mrclab.web import actions
from mrclab.web.hub import CommandAnswer, CommandError, Hub
from mrclab.web.log import LogLine, LogWriter, Peers
from mrclab.web.sampler import SAMPLE_S, completions_of, edges_of
from mrclab.web.state import (
    FORMAT,
    ActiveFailure,
    HostState,
    Job,
    LinkRow,
    PlaneState,
    Scheduled,
    SwitchState,
    ViewState,
    layout_of,
)
from p4lite.switch.fabric.values import SwitchState as Running

#: Rates are averaged over this time before the moment that is shown.
WINDOW_NS: Final = 300_000_000
#: Counters of hosts that are shown, from the start of the run.
COUNTED: Final = ("delivered_bytes", "packets", "retransmissions", "losses", "trims", "marks", "timeouts")
#: The number of lines that the log of a long run keeps.
LINES: Final = 2000


class Recorded:
    """A recorded run, by the folder of its results.

    Raises:
        FolderError: there is no such run, a file of it is damaged, or its lab is unknown.
    """

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        self.result = RunResult.load(folder)
        with readable(folder / RESULT):
            self.topology = topology_of(self.result, folder)
            # Everything that a page needs is computed before the first page opens: a damaged file is then an error of
            # the command.
            Replay(Hub(), self).prepare()


class Replay:
    """Shows a recorded run; `go` plays it."""

    def __init__(self, hub: Hub, recorded: Recorded, speed: float = 1.0) -> None:
        self.hub = hub
        self.folder = recorded.folder
        self.result = recorded.result
        self.topology = recorded.topology
        self.speed = speed or 1.0
        self.paused = False
        self.began_ns = self.result.started_ns
        self.length_ns = max(self.result.finished_ns - self.began_ns, 1)
        self.t_ns = 0
        self._samples = self.result.samples
        self._fabric = self.result.recording.fabric
        self._rows = self._log_rows()
        self._line = 0
        self._done = 0

    def prepare(self) -> None:
        """Give the hub what does not change: the lab's layout, and the history of the whole run."""
        layout = layout_of(
            self.topology,
            "run",
            clock=self.result.clock,
            transport=transport_of(self.result),
            began_ns=self.began_ns,
            length_ns=self.length_ns,
            can=["pause", "resume", "speed", "seek"],
        )
        self.hub.show(layout)
        self.hub.whole = self.history()
        self.hub.completions = completions_of(self.result, self.began_ns)

    def go(self, interrupted: Callable[[], object]) -> None:
        """Play the run until it is interrupted."""
        self.prepare()
        before = time.monotonic()
        while True:
            interrupted()
            while (command := self.hub.next_command()) is not None:
                try:
                    command.done.set_result(self._do(command.name, command.arguments))
                except CommandError as error:
                    command.done.set_exception(error)
                self._done += 1
            now = time.monotonic()
            if not self.paused:
                self._move(min(self.t_ns + round((now - before) * 1e9 * self.speed), self.length_ns))
            before = now
            self.hub.publish(self.state())
            self.hub.wait(SAMPLE_S)

    def _do(self, name: str, arguments: object) -> CommandAnswer:
        asked = actions.parse_action(name, arguments)
        match asked:
            case actions.Seek():
                self._move(min(round(asked.seconds * 1e9), self.length_ns))
                return CommandAnswer(f"at {self.t_ns / 1e9:g} s")
            case actions.Speed():
                self.speed = asked.speed or 1.0
                return CommandAnswer(f"speed {self.speed:g}")
        if name not in ("pause", "resume"):
            raise CommandError(f"{name} is not possible here: this is a recorded run")
        self.paused = name == "pause"
        if not self.paused and self.t_ns >= self.length_ns:
            self._move(0)
        return CommandAnswer(name)

    def _move(self, t_ns: int) -> None:
        """Move to a time; the log then has the events until that time."""
        if t_ns < self.t_ns:
            # The numbers continue, so that pages which have the old lines drop them.
            self._line = 0
            self.hub.log.add(t_ns, "back", "")
        self.t_ns = t_ns
        while self._line < len(self._rows) and self._rows[self._line].t_ns <= t_ns:
            self.hub.log.append(self._rows[self._line])
            self._line += 1

    # --- what is shown -----------------------------------------------------------------------------------

    def history(self) -> list[list[int]]:
        """Return curves of the whole run: time, goodput, planes, hosts, and no mean completion time."""
        times = edges_of(self.length_ns)
        # In whole ns two edges of a run that never began are the same.
        edges = np.linspace(0.0, self.length_ns / 1e9, len(times))
        names = [host.name for host in self.topology.hosts]
        nothing = np.zeros(len(edges) - 1)
        hosts = [self.result.rates(name, "delivered_bytes", edges) * 8 for name in names]
        planes = [
            sum((self.result.rates(name, f"rx_bytes.{plane}", edges) * 8 for name in names), nothing)
            for plane in range(self.topology.lab.planes)
        ]
        columns = [sum(hosts, nothing), *planes, *hosts, nothing]
        return [[t_ns, *map(int, row)] for t_ns, *row in zip(times[1:], *columns, strict=True)]

    def _log_rows(self) -> list[LogLine]:
        """Return all lines, by time; what was done to the lab has the time of its beginning, before its effects."""
        rows: list[LogLine] = []
        for happening in self.result.happenings:
            at, done, action = happening.at_ns - self.began_ns, happening.done_ns - self.began_ns, happening.action
            what = "failure" if happening.fails else "restore"
            rows.append(LogLine(at, what, action.describe(), action.target, done))
            if happening.error:
                rows.append(LogLine(done, "note", happening.error, action.target))
        peers = Peers(self.topology, peers_of(self.result, self.topology))
        teller = LogWriter(self.topology, rows.append, peers)
        for host, events in self.result.events.items():
            batch: list[Event] = []
            for row in events:
                # Equal events within a sample's time share a line, as they did in the live view.
                if batch and row.t_ns - batch[0].t_ns > SAMPLE_S * 1e9:
                    peers.learn(host, batch)
                    teller.tell(host, batch, self.began_ns)
                    batch = []
                batch.append(row)
            peers.learn(host, batch)
            teller.tell(host, batch, self.began_ns)
        for failure in self.result.failures:
            rows.append(LogLine(self.length_ns, "job", failure))
        return sorted(rows, key=lambda row: row.t_ns)[-LINES:]

    def _causes(self) -> tuple[list[Action], LabEvent | None]:
        """Return the failures in force at this time, and the latest event."""
        now_ns = self.began_ns + self.t_ns
        causes: list[Action] = []
        latest = None
        for happening in self.result.happenings:
            if happening.done_ns > now_ns or happening.error:
                continue
            latest = happening
            action = happening.action
            if action.verb == "fail":
                causes.append(action)
            else:
                causes = [each for each in causes if each.target != action.target or action.kind not in ("", each.kind)]
        return causes, latest

    def _found(self, latest: LabEvent | None) -> dict[str, str]:
        """Return what the hosts' probes named after the latest event: `broken`, or that they were of the past."""
        if latest is None:
            return {}
        past = self.result.past_findings(latest)
        return {name: "healthy; probes of before" if name in past else "broken" for name in latest.localised}

    def state(self) -> ViewState:
        """Return the state of the lab at this time."""
        now_ns = self.began_ns + self.t_ns
        causes, latest = self._causes()
        effects = together(effects_of(self.topology, each) for each in causes)
        hosts = [self._host(host.name, now_ns) for host in self.topology.hosts]
        links, switches = self._fabric_state(now_ns, effects, hosts)
        states = dict(zip(self.topology.links, links, strict=True))
        planes: list[PlaneState] = [
            {
                "rx_bps": sum(host["rx_bps"][plane] for host in hosts if "rx_bps" in host),
                "ports_up": sum(states[host.ports[plane].name].get("state") == "up" for host in self.topology.hosts),
            }
            for plane in range(self.topology.lab.planes)
        ]
        broken: list[ActiveFailure] = [
            {
                "target": each.target,
                "kind": each.kind,
                "direction": each.direction,
                "settings": dict(each.settings),
                "text": each.describe(),
            }
            for each in causes
        ]
        fidelity = self.result.fidelity
        over = self.t_ns >= self.length_ns
        return {
            "format": FORMAT,
            "number": 0,
            "layout": self.hub.layout["number"] if self.hub.layout else 0,
            "t_ns": self.t_ns,
            "phase": "ended" if over else "paused" if self.paused else "running",
            "problem": "",
            "speed": 0.0 if self.paused or over else self.speed,
            "asked_speed": self.speed,
            "hosts": hosts,
            "switches": switches,
            "links": links,
            "planes": planes,
            "goodput_bps": sum(host.get("goodput_bps", 0) for host in hosts),
            "broken": broken,
            "denied": [],
            "found": self._found(latest),
            "captures": [],
            "job": self._job(over),
            "fidelity": {
                "valid": fidelity.valid,
                "simulated": fidelity.simulated,
                "reasons": [] if fidelity == UNMEASURED else list(fidelity.reasons),
            },
            "log_end": self.hub.log.end,
            "commands": self._done,
        }

    def _job(self, over: bool) -> Job:
        result = self.result
        schedule: list[Scheduled] = [
            {
                "t_ns": each.at_ns - self.began_ns,
                "text": each.action.describe(),
                "breaks": each.fails,
            }
            for each in result.happenings
        ]
        made: Job = {
            "name": result.workload,
            "workload": result.workload,
            "params": dict(result.params),
            "hosts": result.ranks,
            "running": not over,
            "began_ns": 0,
            "schedule": schedule,
            "failures": result.failures if over else [],
            "verdict": "",
        }
        if over:
            # The progress of the ranks is recorded for the end alone.
            achieved = result.achieved()
            made["iterations"] = achieved.least_iterations
            made["bytes_verified"], made["mismatches"] = achieved.bytes_verified, achieved.mismatches
            made["verdict"] = verdict_of(self.folder)
        return made

    def _host(self, name: str, now_ns: int) -> HostState:
        series = self._samples.get(name)
        last = None if series is None else series.at(now_ns)
        if series is None or last is None:
            return {}
        before = series.at(now_ns - WINDOW_NS) or series.at(series.first["t_ns"]) or last
        span = max(last["t_ns"] - before["t_ns"], 1)

        def rate(column: str) -> int:
            return max(round((last.get(column, 0) - before.get(column, 0)) * 8e9 / span), 0)

        planes = range(self.topology.lab.planes)
        carried = [f"{way}_bytes.{plane}" for way in ("tx", "rx") for plane in planes]
        grown = series.growth_until(now_ns, [*COUNTED, *carried])
        made: HostState = {
            "alive": True,
            "goodput_bps": rate("delivered_bytes"),
            "tx_bytes": [grown[f"tx_bytes.{plane}"] for plane in planes],
            "rx_bytes": [grown[f"rx_bytes.{plane}"] for plane in planes],
            "tx_bps": [rate(f"tx_bytes.{plane}") for plane in planes],
            "rx_bps": [rate(f"rx_bytes.{plane}") for plane in planes],
            "ev": {key.partition(".")[2]: value for key, value in last.items() if key.startswith("ev.")},
            "cc": {},
        }
        made["ports_up"] = last.get("ports_up", 0)
        for key in COUNTED:
            made[key] = grown[key]
        for key in ("cwnd", "inflight", "rtt_ns", "rate_bps"):
            if f"cc.{key}" in last:
                made["cc"][key] = last[f"cc.{key}"]  # type: ignore[literal-required]
        return made

    def _fabric_state(
        self, now_ns: int, effects: Effects, hosts: list[HostState]
    ) -> tuple[list[LinkRow], list[SwitchState]]:
        last = self._fabric.at(now_ns) or {}
        before = self._fabric.at(now_ns - WINDOW_NS) or {}
        span = max(last.get("t_ns", 0) - before.get("t_ns", self.began_ns), 1)
        names = {switch.name for switch in self.topology.switches}
        still = {name for name, state in effects.switches.items() if state is not Running.RUNNING}

        counters = [name for name in self._fabric.columns if name.endswith((".tx_bytes", ".drops", ".lost"))]
        grown = self._fabric.growth_until(now_ns, counters)

        def total(node: str, port: int, key: str) -> int:
            column = f"ports.{node}:{port}.{key}"
            return grown.get(column, last.get(column, 0))

        def rate(node: str, port: int) -> int:
            column = f"ports.{node}:{port}.tx_bytes"
            return max(round((last.get(column, 0) - before.get(column, 0)) * 8e9 / span), 0)

        links: list[LinkRow] = []
        impaired = {name for name, _ in effects.settings}
        for link in self.topology.links.values():
            low, high = link.low, link.high
            cut = {way for name, way in effects.cut if name == link.name}
            row: LinkRow = {
                "state": "dark"
                if still & {low.node, high.node}
                else "cut"
                if len(cut) == 2
                else f"cut_{cut.pop()}"
                if cut
                else "up",
                "impaired": link.name in impaired,
                "denied": False,
                "down_bytes": total(high.node, high.port, "tx_bytes"),
                "down_bps": rate(high.node, high.port),
                "down_queue_bytes": total(high.node, high.port, "depth_bytes"),
                "drops": total(high.node, high.port, "drops"),
                "lost": total(high.node, high.port, "lost"),
            }
            if low.node in names:
                row["up_bytes"] = total(low.node, low.port, "tx_bytes")
                row["up_bps"] = rate(low.node, low.port)
                row["up_queue_bytes"] = total(low.node, low.port, "depth_bytes")
                row["drops"] += total(low.node, low.port, "drops")
                row["lost"] += total(low.node, low.port, "lost")
            else:
                host = hosts[self.topology.host(low.node).index]
                if "tx_bytes" in host:
                    row["up_bytes"], row["up_bps"] = host["tx_bytes"][low.port], host["tx_bps"][low.port]
            links.append(row)
        switches: list[SwitchState] = []
        for switch in self.topology.switches:
            state = effects.switches.get(switch.name, Running.RUNNING).value
            mine: SwitchState = {"state": state}
            for key, column in (("queue_bytes", "depth_bytes"), ("drops", "drops"), ("lost", "lost")):
                mine[key] = sum(total(switch.name, port, column) for port in switch.links)  # type: ignore[literal-required]
            switches.append(mine)
        return links, switches


def transport_of(result: RunResult) -> str:
    """Return the transport that the hosts of a run used."""
    for statistics in result.statistics.values():
        return "roce" if isinstance(statistics, RoceHostStatistics) else "mrc"
    return "mrc"


def verdict_of(folder: pathlib.Path) -> str:
    """Return the status in verdict.json; empty without one that can be read."""
    try:
        return printable(str(document_of(folder / "verdict.json").get("status", "")))
    except FolderError:
        return ""
