"""`mrclab train`: a PyTorch job in a lab, by one backend or by several, side by side."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from mrc_topo.base.files import write_whole
from mrc_topo.base.interruption import Interruption, interruptible
from mrc_topo.base.plain import encode
from mrc_topo.labfile import load_lab
from mrc_topo.topology import Topology, UnknownElement
from mrc_torch.training import page, ranks, summary
from mrc_torch.training.job import Attempt, AttemptEnd, JobResult, TrainingJob, TrainingPlan
from mrclab.cli.common import lab_file, need_namespaces, own_lab, parse_seconds, seconds
from mrclab.cli.outcome import Folder
from mrclab.lab.faults import kinds
from mrclab.lab.faults.action import Action, FailureError
from mrclab.lab.records.rundir import RunDir
from mrclab.lab.requested import LabRequest
from mrclab.lab.session.real import RealSession
from mrclab.results import resultdir
from mrclab.runs.experiment import ExperimentError, load_experiment
from mrclab.runs.sessions import session_for

MODELS = ("digits", "mlp", "gpt-tiny")
#: A line about the job every this many steps.
EVERY = 10


def verb(
    model: Annotated[str, typer.Option(help=f"what is trained: {', '.join(MODELS)}")] = "digits",
    backend: Annotated[str, typer.Option(help="mrc, roce or gloo, or a list such as mrc,roce to compare them")] = "mrc",
    schedule: Annotated[
        str | None, typer.Option(help="an experiment whose schedule of failures is applied to the lab")
    ] = None,
    lab: Annotated[
        str | None,
        typer.Option(
            "--lab", help="a lab (default: the one that is up, otherwise the experiment's, otherwise `default`)"
        ),
    ] = None,
    hosts: Annotated[str | None, typer.Option(help="hosts that run a rank each, such as h0,h3 (default: all)")] = None,
    steps: Annotated[
        int, typer.Option(help="least number of steps; a job also lasts until its schedule has ended")
    ] = 60,
    batch: Annotated[int, typer.Option(help="samples per rank and step")] = 16,
    seed: Annotated[int, typer.Option(help="seed of the model and of the order of the data")] = 1,
    checkpoint: Annotated[int, typer.Option(help="steps between checkpoints")] = 10,
    restarts: Annotated[int, typer.Option(help="how often a failed job is restarted")] = 2,
    collective_timeout: Annotated[
        float,
        typer.Option(
            parser=parse_seconds,
            metavar="TIME",
            help="time after which a collective operation that has not ended counts as failed",
        ),
    ] = 20.0,
    output: Folder = None,
    as_json: Annotated[bool, typer.Option("--json", help="print JSON")] = False,
) -> None:
    """Train a PyTorch model with one rank per host while the lab fails around it.

    Exit with 1 if a job does not complete.
    """
    backends = backend.split(",")
    for each in backends:
        if each not in ranks.BACKENDS or backends.count(each) > 1:
            what = "is named twice" if each in ranks.BACKENDS else f"is none of {', '.join(ranks.BACKENDS)}"
            raise ExperimentError(f"--backend: '{each[:40]}' {what}")
    if model not in MODELS:
        raise ExperimentError(f"--model is one of {', '.join(MODELS)}, not '{model[:40]}'")
    for option, value, least, most in (
        *(("--steps", steps, 1, 1_000_000), ("--batch", batch, 1, 1024), ("--seed", seed, 0, 1 << 31)),
        *(("--checkpoint", checkpoint, 1, 1_000_000), ("--restarts", restarts, 0, 100)),
    ):
        if not least <= value <= most:
            raise ExperimentError(f"{option} is a number from {least} to {most}, not {value}")
    seconds("--collective-timeout", collective_timeout, least=1)
    experiment = None if schedule is None else load_experiment(schedule)
    if experiment is not None and not experiment.schedule:
        raise ExperimentError(f"--schedule: experiment {experiment.name} has no schedule")
    up = own_lab() if lab is None else None
    named = "default" if experiment is None else experiment.lab
    name = lab_file(lab) if lab else (named if up is None else RunDir(up).read().lab_file)
    topology = load_lab(name)
    names = _names(topology, name, hosts)
    actions = [] if experiment is None else experiment.actions()
    _check(topology, name, actions)
    ranks.need("torch", *(() if model == "gpt-tiny" else ("sklearn",)))
    need_namespaces()
    plan = TrainingPlan(model, names, steps, batch, seed, checkpoint, collective_timeout, restarts, actions)
    folder = output or resultdir.default_folder(f"train-{model}", "real")
    found = []
    with interruptible() as interruption, resultdir.prepared(folder, 0.0):
        for each in backends:
            found.append(_one(name, plan, each, interruption, quiet=as_json))
        title = f"{model} on {topology.lab.name}, {len(names)} ranks, by {' and '.join(backends)}"
        write_whole(folder / "train.json", json.dumps(encode(found), indent=1, allow_nan=False))
        write_whole(folder / "report.html", page.render(found, title))
    if as_json:
        typer.echo(json.dumps(encode(found), indent=1, allow_nan=False))
    else:
        typer.echo(page.text(found))
        for job in found:
            for text in job.failures:
                typer.echo(f"{job.backend}: {text}")
        typer.echo(f"report: {folder / 'report.html'}")
    if not all(job.done for job in found):
        raise SystemExit(1)


def _names(topology: Topology, lab: str, hosts: str | None) -> list[str]:
    known = [each.name for each in topology.hosts]
    names = known if hosts is None else hosts.split(",")
    for each in names:
        if each not in known or names.count(each) > 1:
            what = "is named twice" if each in known else f"is not a host of {lab}; it has: {', '.join(known)}"
            raise ExperimentError(f"--hosts: '{each[:60]}' {what}"[:600])
    if len(names) < 2:
        raise ExperimentError(f"--hosts: a job needs at least 2 ranks, not {len(names)}")
    return names


def _check(topology: Topology, lab: str, actions: list[tuple[float, Action]]) -> None:
    """Check every action before anything is started. Raises ExperimentError."""
    for _, action in actions:
        try:
            kinds.check(topology, action)
        except (UnknownElement, FailureError) as error:
            raise ExperimentError(f"--schedule on lab {lab}: {action.describe()}: {error}") from error


def _one(lab: str, plan: TrainingPlan, backend: str, interruption: Interruption, quiet: bool) -> summary.JobSummary:
    def tell(text: str) -> None:
        if not quiet:
            typer.echo(f"{backend}: {text}", err=True)

    told = {"happenings": 0, "attempts": 0, "step": 0}

    def observe(result: JobResult, attempt: Attempt) -> None:
        if len(result.attempts) > told["attempts"] and attempt.connected_ns:
            again = f", from the checkpoint of step {attempt.resumed_at}" if told["attempts"] else ""
            tell(f"{len(plan.names)} ranks train{again}")
            told["attempts"] = len(result.attempts)
        for each in result.happenings[told["happenings"] :]:
            at = (each.done_ns - summary.zero_ns(result)) / 1e9
            tell(f"{at:6.2f} s  {each.error or each.action.describe()}")
        told["happenings"] = len(result.happenings)
        done = attempt.steps(len(plan.names))
        if done and done[-1] != told["step"] and (done[-1] // EVERY != told["step"] // EVERY or attempt.ended):
            at, took = attempt.ends[done[-1]], attempt.ends[done[-1]] - attempt.begins[done[-1]]
            zero = summary.zero_ns(result)
            loss = attempt.losses[done[-1]]
            tell(f"{(at - zero) / 1e9:6.2f} s  step {done[-1]}, loss {loss:.4f}, {took / 1e6:.0f} ms")
            told["step"] = done[-1]
        if attempt.ended not in (None, AttemptEnd.DONE):
            tell(f"{attempt.ended}: {attempt.error}")

    transport = ranks.BACKENDS[backend][1]
    with session_for(LabRequest.of(lab, transport, clock="real"), tell) as session:
        assert isinstance(session, RealSession)
        tell("starting PyTorch")
        return summary.summary(TrainingJob(session, plan, backend, observe, interruption.check).go())
