"""`mrclab run`: an experiment, or a workload by options."""

from __future__ import annotations

import pathlib
from collections.abc import Mapping
from typing import Annotated, Any, NoReturn, get_args

import typer
from pydantic import ValidationError

from mrc_host.workloads import WORKLOADS
from mrc_topo import schema
from mrc_topo.base.document import dotted, explain, printable
from mrc_topo.labfile import LabError, load_lab
from mrclab.cli import common
from mrclab.cli.common import Compiler, Payload, Switch, TrustCode, duration, lab_file, own_file, parse_settings
from mrclab.cli.outcome import Clock, Folder, clock_of, run_and_show
from mrclab.lab.records.rundir import RunDir
from mrclab.results.expectation import Expectation
from mrclab.runs import again as repetition
from mrclab.runs.experiment import (
    Experiment,
    ExperimentError,
    UnknownExperiment,
    known_experiments,
    load_experiment,
    placed_params,
)
from mrclab.runs.experiment import lasting as workload_lasting

OPTIONS: dict[tuple[int | str, ...], str] = {
    ("workload", "duration"): "--duration",
    ("workload", "qps_per_peer"): "--qps",
    ("workload", "hosts"): "--hosts",
    ("workload",): "--set",
    ("transport",): "--transport",
    ("lab",): "--lab",
}

#: Options of workloads; an experiment has all of this in its file.
LOADS = ("--set", "--lab", "--hosts", "--qps", "--transport")


def _runnable(incomplete: str) -> list[str]:
    """Return the experiments and workloads for a shell that completes one."""
    return [name for name in (*known_experiments(), *sorted(WORKLOADS)) if name.startswith(incomplete)]


def verb(
    name: Annotated[
        str | None, typer.Argument(help="an experiment (name or file) or a workload", autocompletion=_runnable)
    ] = None,
    param: Annotated[
        list[str] | None,
        typer.Option(
            "--set", help="a parameter of the workload, such as size_bytes=1048576; may be given several times"
        ),
    ] = None,
    lab: Annotated[
        str | None,
        typer.Option(help="for a workload: the lab (default: $MRCLAB_LAB, the lab of this shell, or `default`)"),
    ] = None,
    custom: common.Custom = None,
    topo: common.Topo = None,
    hosts: Annotated[
        str | None, typer.Option(help="for a workload: participating hosts, such as h0,h3 (default: all)")
    ] = None,
    length: Annotated[
        float | None,
        duration("time to run, such as 2s or 500ms (default: as in the experiment; a workload: its iterations)"),
    ] = None,
    transport: Annotated[str | None, typer.Option(help="for a workload: mrc or roce (default: mrc)")] = None,
    qps: Annotated[int | None, typer.Option(help="for a workload: queue pairs per peer (default: 1)")] = None,
    switch: Switch = None,
    compiler: Compiler = None,
    payload: Payload = None,
    trust_code: TrustCode = False,
    clock: Clock = None,
    seed: Annotated[
        int | None, typer.Option(min=0, max=2**63 - 1, help="seed of the lab (default: as in the lab's file)")
    ] = None,
    again: Annotated[
        pathlib.Path | None,
        typer.Option(help="repeat the run whose results are in this folder, with its lab, experiment, seed and clock"),
    ] = None,
    output: Folder = None,
    as_json: Annotated[bool, typer.Option("--json", help="print the verdict as JSON")] = False,
) -> None:
    """Run an experiment or a workload, check it, and write a report.

    Exit with 1 if a check fails.
    """
    clock = clock_of(clock)
    given = {"--set": param, "--lab": lab, "--hosts": hosts, "--duration": length, "--qps": qps}
    given["--transport"] = transport
    of_lab = {"--switch": switch, "--compiler": compiler, "--payload": payload}
    if again is not None:
        _repeat(
            again,
            {"a name": name, **given, **of_lab, "--custom": custom, "--clock": clock, "--seed": seed},
            output,
            as_json,
            trust_code=trust_code,
        )
    with common.lab_or_custom(lab, custom, topo) as file:
        experiment = experiment_of(name, {**given, **of_lab, "--lab": file}, clock)
        if seed is None:
            run_and_show(experiment, clock, output, as_json, trust_code=trust_code)
        with repetition.seeded(experiment, seed) as chosen:
            run_and_show(chosen, clock, output, as_json, trust_code=trust_code, recorded=experiment)


def experiment_of(name: str | None, given: Mapping[str, Any], clock: str | None) -> Experiment:
    """Return what the name and options ask for; `given`: the value of each option, None where it is left out.

    Raises:
        ExperimentError: there is no such experiment or workload, or an option that does not belong to it.
    """
    if name is None:
        raise ExperimentError("Missing argument 'name'; see mrclab run --help")
    lab, hosts, qps, transport = (given[option] for option in ("--lab", "--hosts", "--qps", "--transport"))
    if name in WORKLOADS:
        own = own_file(clock) if lab is None else lab_file(lab, clock)
        running = own is not None and _is_up(own)
        chosen = "default" if own is None else own
        workload = {
            "name": name,
            "params": placed_params(
                name, parse_settings(given["--set"] or [], WORKLOADS[name].texts()), pathlib.Path()
            ),
            "hosts": None if hosts is None else hosts.split(","),
            "duration": given["--duration"],
            "qps_per_peer": 1 if qps is None else qps,
        }
        experiment = _from_options(
            {
                "name": name,
                "title": f"{name} on {printable(pathlib.Path(chosen).stem)[:100]}",
                "lab": chosen,
                "clock": ("real" if running else "virtual") if clock is None else clock,
                "transport": "mrc" if transport is None else transport,
                "workload": workload,
                "expect": Expectation(valid=False),
            }
        )
    else:
        try:
            experiment = load_experiment(name)
        except UnknownExperiment as error:
            raise ExperimentError(f"{error}; workloads: {', '.join(sorted(WORKLOADS))}") from error
        ignored = [option for option in LOADS if given[option] is not None]
        if ignored:
            raise ExperimentError(
                f"{ignored[0]} is for workloads; '{experiment.name}' is an experiment: change its file"
            )
        if given["--duration"] is not None:
            experiment = lasting(experiment, given["--duration"])
    payload = given.get("--payload")
    if payload is not None and payload not in get_args(schema.Payload):
        raise ExperimentError(f"--payload: '{printable(payload)[:60]}'; known: {', '.join(get_args(schema.Payload))}")
    asked = {"switch": given["--switch"], "compiler": given["--compiler"], "payload": payload}
    return experiment.model_copy(update={key: value for key, value in asked.items() if value is not None})


def lasting(experiment: Experiment, seconds: float) -> Experiment:
    """Return an experiment whose workload runs for this many seconds.

    Raises:
        ExperimentError: the time is none, or something of the schedule happens later.
    """
    last = max((at for at, _ in experiment.actions()), default=0.0)
    if seconds <= last:
        raise ExperimentError(
            f"--duration: {seconds:g} s end before all of the schedule has happened; '{experiment.name}' has an action "
            f"at {last:g} s: give a longer time"
        )
    document = workload_lasting(experiment.workload, seconds)
    changed = _from_options({"name": experiment.name, "title": experiment.title, "workload": document}).workload
    return experiment.model_copy(update={"workload": changed})


def _repeat(
    folder: pathlib.Path,
    given: Mapping[str, object],
    output: pathlib.Path | None,
    as_json: bool,
    *,
    trust_code: bool,
) -> NoReturn:
    """Repeat a run from its results and end the command; `given`: what else was asked for, by option.

    Raises:
        ExperimentError, FolderError: it cannot be repeated, or something was asked for that the results say.
        SystemExit: as of `run_and_show`.
    """
    for option, value in given.items():
        if value is not None:
            raise ExperimentError(f"{option} with --again: the results say what is run; leave one of them out")
    earlier = repetition.load(folder)
    if output is not None:
        repetition.check_other(output, earlier)
    with repetition.repeatable(earlier) as experiment:
        run_and_show(experiment, None, output, as_json, trust_code=trust_code, earlier=earlier)


def _is_up(lab: str) -> bool:
    """Return whether a lab that is given by name or path is up; its file is checked later."""
    try:
        return RunDir(load_lab(lab).lab.name).exists()
    except LabError:
        return False


def _from_options(document: dict[str, Any]) -> Experiment:
    """Return the experiment that a command's options describe.

    Raises:
        ExperimentError: an option that cannot be; names it.
    """
    try:
        return Experiment.model_validate(document)
    except ValidationError as error:
        problems = []
        for each in error.errors():
            path = tuple(each["loc"])
            option = OPTIONS.get(path[:2]) or OPTIONS.get(path[:1]) or dotted(path)
            problems.append(f"{option}: {explain(Experiment, each)}")
        raise ExperimentError("\n".join(problems)) from error
