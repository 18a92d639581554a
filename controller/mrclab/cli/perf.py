"""`mrclab perf`: collectives over sizes, with the columns of nccl-tests."""

from __future__ import annotations

import json
import sys
from typing import Annotated

import typer

from mrc_topo.base.interruption import interruptible
from mrc_topo.labfile import load_lab
from mrclab.cli.common import lab_file, need_namespaces, own_lab
from mrclab.cli.outcome import clock_of
from mrclab.extras import need
from mrclab.lab.payloads import NOT_VERIFIED
from mrclab.lab.records.rundir import RunDir
from mrclab.lab.requested import TRANSPORTS, LabRequest
from mrclab.lab.session.real import RealSession
from mrclab.runs import perf, precheck
from mrclab.runs.experiment import ExperimentError
from mrclab.runs.sessions import session_for

BACKENDS = ("workload", "torch", "gloo")


def verb(
    collective: Annotated[str, typer.Argument(help=f"one of: {', '.join(perf.COLLECTIVES)}")],
    begin: Annotated[str, typer.Option("-b", "--minbytes", help="smallest message size, such as 8, 64K or 16M")] = "8",
    end: Annotated[str, typer.Option("-e", "--maxbytes", help="largest message size")] = "1M",
    factor: Annotated[float, typer.Option("-f", "--stepfactor", help="factor from one size to the next")] = 2,
    iterations: Annotated[
        int, typer.Option("-n", "--iters", help="measured operations per size, after one warm-up operation")
    ] = 5,
    lab: Annotated[
        str | None, typer.Option("--lab", help="a lab (default: the one that is up, otherwise `default`)")
    ] = None,
    hosts: Annotated[str | None, typer.Option(help="participating hosts, such as h0,h3 (default: all)")] = None,
    clock: Annotated[str | None, typer.Option(help="real or virtual (default: real if a lab is up)")] = None,
    transport: Annotated[str, typer.Option(help="mrc or roce")] = "mrc",
    qps: Annotated[int, typer.Option(help="queue pairs per peer")] = 1,
    backend: Annotated[
        str,
        typer.Option(help="workload: mrclab's own; torch: torch.distributed over MRC, real clock only; gloo: over TCP"),
    ] = "workload",
    as_json: Annotated[bool, typer.Option("--json", help="print JSON")] = False,
) -> None:
    """Measure a collective operation over message sizes, as nccl-tests do.

    Exit with 1 if an operation fails or an element is wrong.
    """
    _check_options(collective, backend, transport, iterations, qps)
    wanted = perf.sizes(perf.parse_size("-b", begin), perf.parse_size("-e", end), factor)
    up = own_lab() if lab is None and clock != "virtual" else None
    own = backend == "workload"
    clock = clock_of(clock) or ("real" if up is not None or not own else "virtual")
    by_torch = None
    if not own:
        if clock != "real":
            raise ExperimentError(f"--backend {backend} runs programs, which there are on the real clock only")
        if qps > 1:
            raise ExperimentError("--qps is of workloads; torch.distributed has as many queue pairs as it needs")
        by_torch = need("mrclab.perf", "mrc_torch", f"--backend {backend}")
        by_torch.need("torch")
    name = lab_file(lab, clock) if lab else ("default" if up is None else RunDir(up).read().lab_file)
    topology = load_lab(name)
    names = _participants(hosts, [each.name for each in topology.hosts], name)
    precheck.check_tenants(topology, names, lambda _: range(len(names)), f"perf {collective}")
    todo = perf.plan(collective, wanted, len(names))
    if clock == "real":
        need_namespaces()
    rows = []
    with interruptible(), session_for(LabRequest.of(name, transport, clock=clock)) as session:
        if not as_json:
            how = {"workload": transport, "torch": f"torch.distributed over {transport}"}.get(backend, "gloo over TCP")
            typer.echo(f"# {collective} among {len(names)} ranks by {how} on lab {name}, {clock} clock, in place")
            typer.echo("\n".join(perf.head()))
        if by_torch is None:
            measured = perf.measure(session, collective, todo, iterations, names, qps)
        else:
            assert isinstance(session, RealSession)
            chosen = transport if backend == "torch" else backend
            measured = by_torch.measure(session, collective, todo, iterations, names, chosen)
        for row in measured:
            rows.append(row)
            if not as_json:
                typer.echo(perf.line(collective, row, len(names)))
                sys.stdout.flush()
    if as_json:
        typer.echo(json.dumps([perf.document(collective, row, len(names)) for row in rows], indent=1, allow_nan=False))
    else:
        _sums(collective, rows, len(names))
    if any(row.wrong or row.failure for row in rows):
        raise SystemExit(1)


def _check_options(collective: str, backend: str, transport: str, iterations: int, qps: int) -> None:
    """Refuse an option that has a wrong value.

    Raises:
        ExperimentError: with the option and the values that it may have.
    """
    if collective not in perf.COLLECTIVES:
        raise ExperimentError(f"no collective '{collective[:40]}'; known: {', '.join(perf.COLLECTIVES)}")
    if backend not in BACKENDS:
        raise ExperimentError(f"--backend is one of {', '.join(BACKENDS)}, not '{backend[:40]}'")
    if transport not in TRANSPORTS:
        raise ExperimentError(f"--transport is {' or '.join(TRANSPORTS)}, not '{transport[:40]}'")
    for option, value, most in (("-n", iterations, 100_000), ("--qps", qps, 64)):
        if not 1 <= value <= most:
            raise ExperimentError(f"{option} is a number from 1 to {most}, not {value}")


def _participants(wanted: str | None, known: list[str], lab: str) -> list[str]:
    """Return the hosts of a list separated by commas, or all.

    Raises:
        ExperimentError: one is not in the lab, or is named twice.
    """
    names = known if wanted is None else wanted.split(",")
    for each in names:
        if each not in known or names.count(each) > 1:
            what = "is named twice" if each in known else f"is not a host of {lab}; it has: {', '.join(known)}"
            raise ExperimentError(f"--hosts: '{each[:60]}' {what}"[:600])
    return names


def _sums(collective: str, rows: list[perf.Row], ranks: int) -> None:
    counts = [row.wrong for row in rows if row.wrong is not None]
    verdict = f"{sum(counts)} {'FAILED' if any(counts) else 'OK'}" if len(counts) == len(rows) else NOT_VERIFIED
    typer.echo(f"# Out of bounds values : {verdict}")
    good = [row for row in rows if not row.failure]
    if good:
        mean = sum(row.algbw for row in good) / len(good) * perf.COLLECTIVES[collective].factor(ranks)
        typer.echo(f"# Avg bus bandwidth    : {mean:.4g}")
    for row in rows:
        if row.failure:
            typer.echo(f"# {row.size} bytes: {row.failure}")
        if row.doubt:
            typer.echo(f"# {row.size} bytes: its time is not valid: {row.doubt}")
