"""Performs a job inside a confined process: every run of it on the virtual clock, and writes down what was recorded.

Nothing is judged here. P4 programs are compiled first; then the process may start no other. A learner's Python is never
in this process: what the labs name of it is played by another one (`standins`, `player`).
"""

from __future__ import annotations

import contextlib
import json
import pathlib
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
from pydantic import ValidationError

from mrc_host import policy
from mrc_host.policy import PolicyError
from mrc_host.proto.limits import ConfigError
from mrc_topo.base.files import write_whole
from mrc_topo.base.plain import encode
from mrc_topo.labfile import LabError, parse_lab
from mrc_topo.topology import Topology
from mrc_workshop import inject, limits
from mrc_workshop.job import FACTS, JOB, CheckJob, Facts, JudgedCheck, RunFacts, RunOrder
from mrc_workshop.standins import LearnerProcess
from mrc_workshop.wire import Wire
from mrclab.lab.faults.ledger import UnsettledError
from mrclab.lab.hosts.hostclient import HostError
from mrclab.lab.session.virtual import VirtualSession
from mrclab.lab.switches.names import P4RuntimeError
from mrclab.lab.switches.program import SOURCE, ProgramError, fabric_program
from mrclab.results import resultdir, verdict
from mrclab.results.recording import TIME, Recording, Series
from mrclab.runs import execute, precheck
from mrclab.runs.experiment import Experiment, ExperimentError
from p4lite.switch.errors import BuildError, ControlError
from p4lite.switch.errors import ProgramError as SwitchProgramError
from p4lite.switch.fabric.fabric import Fabric
from p4lite.switch.fabric.outside import ferries
from p4lite.switch.program.entry import ActionCall
from p4lite.switch.runtime.loader import load_program

#: The first events of each host are kept, up to this number; a run with more is judged by its counters.
MAX_EVENTS = 2000
LEARNER, OUT = "learner", "out"


def main(scratch: pathlib.Path, isolation: dict[str, bool], wire: Wire | None) -> int:
    """Perform the job in a folder; return 0 when the facts are written, whatever they are.

    Args:
        wire: the connection to the process that runs the learner's classes; None if the labs name none.
    """
    job = CheckJob.model_validate_json((scratch / JOB).read_text(encoding="utf-8"))
    learner, out = scratch / LEARNER, scratch / OUT
    problems = _compile(job, learner)
    with contextlib.suppress(OSError):
        isolation["no processes"] = limits.forbid_processes()
    # No Python of a learner runs in this process, so it needs no restrictions here.
    isolation["no other files"] = True
    players = None if wire is None else LearnerProcess(wire, learner, job.edit)
    if players is not None:
        theirs = players.greeted()
        isolation = {what: had and bool(theirs.get(what)) for what, had in isolation.items()}
    with policy.supplied(_no_policies if players is None else players):
        runs: list[RunFacts] = []
        for number, order in enumerate(job.orders):
            if runs and runs[-1].stage:
                # One broken run decides; the others would only take their time, such as that of an endless loop again.
                runs.append(_facts(order, runs[-1].stage, runs[-1].problem))
            elif order.program in problems:
                runs.append(_facts(order, "program", problems[order.program]))
            else:
                runs.append(_perform(order, learner, out, number, players))
        facts = Facts(runs=runs, isolation=isolation)
    write_whole(out / FACTS, facts.model_dump_json())
    return 0


def _no_policies(reference: str, kind: str) -> Callable[..., Any]:
    raise ConfigError(f"policies.{kind}: {reference}: the exercise takes no classes")


def _facts(order: RunOrder, stage: str = "", problem: str = "", **more: Any) -> RunFacts:
    shown = problem[:4000]
    return RunFacts(name=order.name, seed=order.seed, hidden=order.hidden, stage=stage, problem=shown, **more)


def _compile(job: CheckJob, learner: pathlib.Path) -> dict[str | None, str]:
    """Compile the programs; return, by name, why one does not compile. Compiled ones are in the cache from then on."""
    problems: dict[str | None, str] = {}
    Fabric("virtual").close()  # builds the core, if it is not there yet
    ferries()  # and the hosts' interface to it
    for name in dict.fromkeys(order.program for order in job.orders):
        try:
            source = SOURCE if name is None else learner / name
            load_program(json.loads(fabric_program(source).bmv2), name=source.stem).build()
        except (ProgramError, SwitchProgramError, BuildError) as error:
            problems[name] = _shown(error, learner)
    return problems


def _perform(
    order: RunOrder, learner: pathlib.Path, out: pathlib.Path, number: int, players: LearnerProcess | None
) -> RunFacts:
    folder = out / f"{number:02d}-{order.name}"
    folder.mkdir()
    try:
        if players is not None:
            players.begin(order.lab)
        topology = parse_lab(order.lab, order.name, learner)
        if order.inject is not None:
            return _inject(order, topology, folder)
        return _run(order, topology, folder)
    except (ProgramError, P4RuntimeError) as error:
        return _facts(order, "program", _shown(error, learner))
    except (LabError, ExperimentError, ValidationError) as error:
        if isinstance(error.__cause__, ConfigError):  # a class that cannot be loaded
            return _facts(order, "python", _shown(error.__cause__, learner))
        return _facts(order, "lab", _shown(error, learner))
    except (HostError, UnsettledError) as error:
        return _facts(order, "run", str(error))
    except (PolicyError, ConfigError, SystemExit) as error:
        return _facts(order, "python", _shown(error, learner))
    except MemoryError:
        return _facts(order, "python", "it took more memory than it may")
    except Exception as error:  # noqa: BLE001 - whatever a learner's class does is a finding
        return _facts(order, "python", _told(error, learner))


def _shown(error: BaseException, learner: pathlib.Path) -> str:
    """Return an error with the learner's own file names."""
    return str(error).replace(f"{learner}/", "").replace(f"{LEARNER}/", "")


def _told(error: Exception, learner: pathlib.Path) -> str:
    """Return an exception's text with the innermost line of a learner's file that it came through."""
    text = f"{type(error).__name__}: {error}"
    frames = [each for each in traceback.extract_tb(error.__traceback__) if each.filename.startswith(str(learner))]
    if not frames:
        traceback.print_exception(error, file=sys.stderr)
        return text
    where = frames[-1]
    return f"{pathlib.Path(where.filename).name}:{where.lineno}: in {where.name}: {where.line}: {text}"


@contextlib.contextmanager
def _captured(session: VirtualSession, folder: pathlib.Path, which: str, snaplen: int) -> Iterator[None]:
    """Capture every port of every switch (`all`), or only the ports towards other switches (`fabric`)."""
    ports = [
        (switch, number, session.server.fabric.switch(switch.device_id).port(number))
        for switch in session.topology.switches
        for number, link in switch.links.items()
        if which == "all" or (which == "fabric" and not link.is_host_link)
    ]
    for switch, number, port in ports:
        port.capture(folder / f"{switch.name}_{number}.pcapng", snaplen)
    try:
        yield
    finally:
        for _, _, port in ports:
            port.capture(None)


def _inject(order: RunOrder, topology: Topology, folder: pathlib.Path) -> RunFacts:
    """Inject frames from outside without hosts: hosts never act, because their driver is never called."""
    session = VirtualSession(topology)
    try:
        fabric = session.server.fabric
        with _captured(session, folder, "all", order.snaplen):
            for each in inject.PLANS[str(order.inject)](topology, order.seed):
                port = topology.hosts[each.host].ports[each.plane]
                switch = topology.switch(port.t0)
                fabric.inject(fabric.switch(switch.device_id).port(port.t0_port), each.frame, each.at_ns)
                fabric.run_until(each.at_ns + inject.GAP_NS - 1)
            fabric.run_until(fabric.now_ns + 10 * inject.GAP_NS)
            _send_looks(session, topology)
        return _facts(order, folder=folder.name, ports=session.fabric_sample()["ports"])
    finally:
        session.close()


def _send_looks(session: VirtualSession, topology: Topology) -> None:
    """Let the switches forward what they have no route for, and send `inject.looks`."""
    fabric = session.server.fabric
    for each in inject.looks(topology):
        port = topology.hosts[each.host].ports[each.plane]
        switch = fabric.switch(topology.switch(port.t0).device_id)
        tables = [name for name in switch.instance.program.tables if name.rpartition(".")[2] == "usid_routes"]
        for name in tables:
            actions = [action for action in switch.instance.program.tables[name].actions if action.endswith("forward")]
            with contextlib.suppress(ControlError):
                switch.instance.table_set_default(name, ActionCall(actions[0], (topology.first_uplink,)))
        fabric.inject(switch.port(port.t0_port), each.frame)
        fabric.run_until(fabric.now_ns + inject.GAP_NS)


def _note_deepest(ports: dict[str, dict[str, int]], fabric: Series, started_ns: int) -> None:
    """Add to each port when its longest queue was first seen (`max_at_ns`, after the start of the run)."""
    names = {f"ports.{name}.max_bytes": name for name in ports}
    names = {column: name for column, name in names.items() if column in fabric.columns}
    if not names or not len(fabric):
        return
    times, *depths = fabric.take([TIME, *names])
    for name, depth in zip(names.values(), depths, strict=True):
        ports[name]["max_at_ns"] = int(times[int(np.argmax(depth))]) - started_ns


def _grown(ports: Mapping[str, Mapping[str, int]], before: Mapping[str, int]) -> dict[str, dict[str, int]]:
    """Return the counters of each port since a sample of the fabric; levels and high-water marks as they are."""
    return {
        port: {
            name: count if name in ("depth_bytes", "max_bytes") else count - before.get(f"ports.{port}.{name}", 0)
            for name, count in counts.items()
        }
        for port, counts in ports.items()
    }


def _run(order: RunOrder, topology: Topology, folder: pathlib.Path) -> RunFacts:
    experiment = Experiment.model_validate(order.experiment)
    precheck.check(experiment, topology)
    with Recording(folder) as recording:
        session = VirtualSession(topology, order.transport)
        try:
            with _captured(session, folder, order.capture, order.snaplen):
                result = execute.run_on(session, experiment, None, recording)
            ports = _grown(session.fabric_sample()["ports"], recording.fabric.first)
            _note_deepest(ports, recording.fabric, result.started_ns)
        finally:
            session.close()
        judged = verdict.judge(result, topology, experiment.expect, experiment.claims())
        if order.report:
            resultdir.write(folder, result, topology, judged, experiment.title, recording)
        events = {name: encode(list(result.events[name])[:MAX_EVENTS]) for name in result.events}
        plain = json.loads(json.dumps(result.document(recorded=False), default=str))
        return _facts(
            order,
            document=plain,
            ports=ports,
            events=events,
            checks=[
                JudgedCheck(what=each.what, expected=each.expected, measured=each.measured, passed=each.passed)
                for each in judged.checks
            ],
            folder=folder.name,
        )
