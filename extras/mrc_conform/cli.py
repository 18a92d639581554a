"""`mrclab conform`: test an MRC endpoint by its packets."""

from __future__ import annotations

import json
import os
import pathlib
import sys
from typing import Annotated

import typer
from rich.table import Table

from mrc_conform import evidence, report
from mrc_conform.case import Case, select
from mrc_conform.device import Device
from mrc_conform.devices.kinds import DeviceKind, Target, make
from mrc_conform.profile import Profile, load
from mrc_conform.run import CaseResult, Conformance, Verdict, run_cases
from mrc_topo.base.errors import ExitCode, UsageError
from mrc_topo.base.files import write_whole
from mrc_topo.base.interruption import interruptible
from mrclab.cli.progress import steps
from mrclab.results import resultdir
from mrclab.results.terminal import Terminal

PAGE, JUNIT, CAPTURES = "report.html", "junit.xml", "packets"


def verb(
    only: Annotated[
        list[str] | None, typer.Option("--only", help="cases whose names begin so, or of this area; may be repeated")
    ] = None,
    listed: Annotated[bool, typer.Option("--list", help="list the cases with their rules and sources")] = False,
    device: Annotated[
        DeviceKind | None, typer.Option(help="virtual: our endpoint, exact times (the default); agent: a real agent")
    ] = None,
    interface: Annotated[
        list[str] | None, typer.Option(help="test an endpoint behind this interface; one for each plane, in order")
    ] = None,
    peer: Annotated[str | None, typer.Option(help="the IPv6 address of the endpoint behind the interface")] = None,
    adapter: Annotated[
        str | None, typer.Option(help="command that asks the endpoint to connect and to post (default: prompts)")
    ] = None,
    udp_port: Annotated[
        int | None,
        typer.Option(min=1, max=65535, help="MRC's UDP port, if the endpoint behind the interface has another"),
    ] = None,
    no_icrc: Annotated[
        bool, typer.Option("--no-icrc", help="let a wrong ICRC of the device's packets pass, to see what else is wrong")
    ] = False,
    profile: Annotated[
        str | None,
        typer.Option(help="file that says what the device cannot do, has fixed, and does otherwise (ours have one)"),
    ] = None,
    seed: Annotated[int, typer.Option(help="chooses the device's random numbers, where it takes a seed")] = 1,
    strict: Annotated[bool, typer.Option("--strict", help="exit with 1 for differences, too")] = False,
    every: Annotated[bool, typer.Option("--packets", help="keep the packets of cases that passed, too")] = False,
    output: Annotated[
        pathlib.Path | None, typer.Option("-o", "--output", help="folder for report.html, junit.xml and packets")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print JSON instead of a table")] = False,
    inside: Annotated[bool, typer.Option("--inside", hidden=True)] = False,
) -> None:
    """Test an endpoint against MRC 1.0 with scripted packets, and name each rule that it breaks.

    Nothing is sent on interfaces that were not named. Exit with 1 if a case failed or could not run.
    """
    cases = select(only or [])
    if listed:
        _list(cases, as_json)
        return
    kind = device or (DeviceKind.INTERFACE if interface else DeviceKind.VIRTUAL)
    if kind is DeviceKind.INTERFACE and not (interface and peer):
        raise UsageError(
            "--interface and --peer go together: name the interface of each plane, and the endpoint's address"
        )
    if kind is not DeviceKind.INTERFACE and (interface or peer):
        raise UsageError(f"--interface and --peer do not go with --device {kind.value}")
    if kind is DeviceKind.VIRTUAL and adapter:
        raise UsageError("--adapter does not go with --device virtual: the kit asks that endpoint itself")
    if profile is None and kind is not DeviceKind.INTERFACE and not adapter:
        profile = kind.value
    claims = load(profile) if profile is not None else None
    target = Target(kind, tuple(interface or ()), peer or "", adapter or "", udp_port)
    if kind is DeviceKind.AGENT and not inside:
        _enter_namespace()
    folder = output or resultdir.default_folder("conform", "mrc")
    with interruptible(), resultdir.prepared(folder, 0.0):
        tested = make(target)
        tested.check_icrc = not no_icrc
        try:
            run = _run(cases, tested, seed, claims)
        finally:
            tested.close()
        page = _write(run, folder, every)
    if as_json:
        typer.echo(json.dumps(_document(run, page), indent=2))
    else:
        _show(run, page)
    if not run.passed or (strict and run.count(Verdict.DIFFERENT)):
        raise typer.Exit(ExitCode.FAILED)


def _enter_namespace() -> None:
    """Run the command again in namespaces of its own, where the kit may make interfaces, and end with its exit code.

    Whatever the agent and the kit leave there, also after SIGKILL, goes with the namespaces.
    """
    program = [sys.executable, "-c", "from mrclab.cli.entry import main; main()"]
    words = [sys.executable, "-m", "mrclab.lab.processes.launch", "--run", *program, *sys.argv[1:], "--inside"]
    os.execv(sys.executable, words)


def _run(cases: list[Case], tested: Device, seed: int, claims: Profile | None) -> Conformance:
    """Run the cases with a line of progress on a terminal."""
    done = 0
    with steps() as tell:

        def show(result: CaseResult) -> None:
            nonlocal done
            done += 1
            tell(f"{done} of {len(cases)}: {result.case.name}")

        return run_cases(cases, tested, seed, show, claims)


def _write(run: Conformance, folder: pathlib.Path, every: bool) -> pathlib.Path:
    """Write the reports and the packets of what did not pass (`every`: of all); return the page's path."""
    captures: dict[str, str] = {result.case.name: "" for result in run.results}
    kept = [each for each in run.results if every or each.wrong]
    for result in kept:
        if result.transcript:
            (folder / CAPTURES).mkdir(exist_ok=True)
            captures[result.case.name] = f"{CAPTURES}/{evidence.write(result, folder / CAPTURES).name}"
    write_whole(folder / JUNIT, report.junit(run))
    write_whole(folder / PAGE, report.page(run, captures))
    return folder / PAGE


def _list(cases: list[Case], as_json: bool) -> None:
    if as_json:
        rows = [
            {
                "name": each.name,
                "area": each.area.value,
                "rule": each.rule,
                "basis": each.basis.value,
                "clause": each.clause,
            }
            for each in cases
        ]
        typer.echo(json.dumps(rows, indent=2))
        return
    area = None
    for each in cases:
        if each.area is not area:
            area = each.area
            typer.echo(f"\n{area.value} (--only {area.name.lower()})")
        typer.echo(f"  {each.name}: {each.rule} [{each.basis.value}, {each.clause}]")


def _show(run: Conformance, page: pathlib.Path) -> None:
    console = Terminal()
    table = Table(box=None)
    table.add_column("area")
    shown = [verdict for verdict in Verdict if run.count(verdict)]
    for verdict in shown:
        table.add_column(verdict.value, justify="right")
    for area, counts in report.by_area(run).items():
        table.add_row(area.value, *(str(counts[verdict] or "") for verdict in shown))
    console.print(table)
    for result in run.results:
        if result.wrong:
            console.print(f"{result.verdict.value}: {result.case.name}: {result.case.rule}", highlight=False)
            console.print(f"    {result.text} ({report.source(result)})", highlight=False, soft_wrap=True)
    skipped = {result.text for result in run.results if result.verdict is Verdict.SKIPPED}
    for text in sorted(skipped):
        console.print(f"skipped: {text}", highlight=False, soft_wrap=True, style="dim")
    console.print(f"{report.summary(run)}, in {run.seconds:.1f} s", highlight=False, soft_wrap=True)
    console.print(f"report: {page}", highlight=False, soft_wrap=True)


def _document(run: Conformance, page: pathlib.Path) -> dict[str, object]:
    return {
        "device": run.device,
        "seed": run.seed,
        "seconds": round(run.seconds, 3),
        "counts": {verdict.value: run.count(verdict) for verdict in Verdict},
        "results": [
            {"case": each.case.name, "verdict": each.verdict.value, "text": each.text, "rule": each.case.rule}
            for each in run.results
        ],
        "report": str(page),
    }
