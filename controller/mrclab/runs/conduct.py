"""Conduct an experiment on a session: its profiles, its workload and schedule, and what hosts find meanwhile."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from mrc_host.ctl_requests import CreateProfile, DeleteProfile, ProfileKind, ProfileState, SetProfileState
from mrc_topo.base import interruption
from mrc_topo.base.interruption import Interrupted
from mrclab.lab.hosts.hostclient import HostControl, HostError
from mrclab.lab.management import clustermapper, localiser
from mrclab.lab.management.clustermapper import Localiser
from mrclab.lab.session.base import Session
from mrclab.results.record import RunResult
from mrclab.results.recording import Recording
from mrclab.runs.endings import LOST
from mrclab.runs.experiment import Experiment
from mrclab.runs.runner import Observer, Watcher, WorkloadRun

#: Seconds that the hosts' probes have after a run to find the failures, and to see what works again, by clock: a busy
#: machine brings them back late; in simulated time ten probes of a target take far less.
FINDINGS_S = {"real": 30.0, "virtual": 2.0}
LOOK_S = 0.2


def run_on(
    session: Session,
    experiment: Experiment,
    observe: Observer | None = None,
    recording: Recording | None = None,
    interrupted: Callable[[], object] | None = None,
    watcher: Watcher | None = None,
) -> RunResult:
    """Run an experiment's workload and schedule on a session, with the hosts' own findings after every failure."""

    finder = localiser.load(session.topology.lab.policies.localiser)

    def watch(result: RunResult) -> None:
        _note_findings(session, result, finder)
        if observe is not None:
            observe(result)

    run = WorkloadRun(session, experiment.workload.spec(), experiment.actions(), watch, recording, interrupted, watcher)
    try:
        with _profiles(session, experiment):
            result = run.go()
            if experiment.expect.localised and not result.failures:
                _await_findings(session, result, finder, interrupted)
            return result
    except LOST as error:
        return run.partial_result(error)


@contextlib.contextmanager
def _profiles(session: Session, experiment: Experiment) -> Iterator[None]:
    """Keep the experiment's profiles ONLINE at every host for as long as the context lasts."""
    made: list[tuple[HostControl, ProfileKind, str]] = []
    try:
        for host in session.hosts.values():
            for profile in experiment.profiles:
                kind, name = ProfileKind(profile.kind), profile.name
                host.ask(CreateProfile(kind, name, profile.settings))
                made.append((host, kind, name))
                for state in (ProfileState.OFFLINE, ProfileState.ONLINE):
                    host.ask(SetProfileState(kind, name, state))
        yield
    finally:
        for host, kind, name in reversed(made):
            with contextlib.suppress(HostError):  # a host that died in the run
                for state in (ProfileState.OFFLINE, ProfileState.INIT):
                    host.ask(SetProfileState(kind, name, state))
                host.ask(DeleteProfile(kind, name))


def _note_findings(session: Session, result: RunResult, finder: Localiser) -> None:
    """Note what the hosts' probes find broken beside the latest event, until the next one."""
    if not result.happenings:
        return
    latest = result.happenings[-1]
    found = clustermapper.view_of(session.topology, session.hosts, finder)
    latest.localised = sorted(found)


def _await_findings(
    session: Session, result: RunResult, finder: Localiser, interrupted: Callable[[], object] | None
) -> None:
    """Wait until the hosts name what is broken, and no longer what works again: a run may end too soon after its last
    event for that."""
    if not result.happenings:
        return
    latest, until = result.happenings[-1], session.now_ns() + round(FINDINGS_S[session.clock] * 1e9)
    # The run is over, so that its verdict stands where the results of an interrupted run count.
    with contextlib.nullcontext() if interrupted is None else contextlib.suppress(Interrupted):
        while latest.localised != latest.broken and session.now_ns() < until and not session.deaths():
            session.advance(LOOK_S)
            (interrupted or interruption.check)()
            _note_findings(session, result, finder)
