"""Places for the runs of a sweep on other machines: a Dask scheduler that is there, or a cluster of a file.

A Dask scheduler runs whatever Python its clients send. A file names a cluster by a word of a list: no class, module or
script is imported because a file says so (docs/security.md).
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import logging
import pathlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self

from pydantic import Field, ValidationError, model_validator

from mrc_topo.base import document
from mrc_topo.base.document import DocumentError, Model, printable
from mrc_topo.shipped import install, requirement
from mrclab.runs.experiment import ExperimentError
from mrclab.studies.sweeps.spec import nearest

EXAMPLE = "a cluster file is a mapping with kind, workers and options; see docs/sweeps.md"
#: Seconds within which a scheduler must answer, and have a worker.
REACHED_S, WORKERS_S = 10.0, 60.0

Kind = Literal["ssh", "slurm", "pbs", "lsf", "sge", "oar", "htcondor", "kubernetes"]

#: What a queueing system's script may be given.
JOB = {
    *("queue", "project", "account", "cores", "memory", "processes", "walltime", "interface", "python"),
    *("local_directory", "log_directory", "death_timeout", "resource_spec", "job_cpu", "job_mem", "worker_extra_args"),
    *("job_extra_directives", "job_directives_skip", "job_script_prologue", "shared_temp_directory", "job_name"),
}


@dataclass(frozen=True)
class AllowedCluster:
    """A class of Dask's: where it is, what brings it, and what a file may say to it; `inside` is of its mappings."""

    module: str
    name: str
    install: str
    options: frozenset[str]
    inside: Mapping[str, frozenset[str]]


def _jobs(name: str) -> AllowedCluster:
    return AllowedCluster("dask_jobqueue", name, "pip install dask-jobqueue", frozenset(JOB), {})


OFFERS: dict[str, AllowedCluster] = {
    "ssh": AllowedCluster(
        "distributed",
        "SSHCluster",
        "pip install asyncssh",
        frozenset({"hosts", "connect_options", "worker_options", "scheduler_options", "remote_python"}),
        {
            "connect_options": frozenset({"username", "port", "known_hosts", "client_keys"}),
            "worker_options": frozenset({"nthreads", "n_workers", "memory_limit", "local_directory"}),
            "scheduler_options": frozenset({"port", "host", "interface"}),
        },
    ),
    "slurm": _jobs("SLURMCluster"),
    "pbs": _jobs("PBSCluster"),
    "lsf": _jobs("LSFCluster"),
    "sge": _jobs("SGECluster"),
    "oar": _jobs("OARCluster"),
    "htcondor": _jobs("HTCondorCluster"),
    "kubernetes": AllowedCluster(
        "dask_kubernetes.operator",
        "KubeCluster",
        "pip install dask-kubernetes",
        frozenset({"name", "namespace", "image", "resources", "env", "quiet"}),
        {},
    ),
}


class TlsFiles(Model):
    """Certificates as Dask takes them: who signs, and our own with its key; files."""

    ca: str
    cert: str
    key: str


class ClusterSpec(Model):
    """A Dask cluster: its `kind`, its number of `workers`, and the `options` for Dask's class of that kind."""

    kind: Kind
    workers: Annotated[int, Field(ge=1, le=100_000)] = 2
    options: dict[str, Any] = {}
    tls: TlsFiles | None = None

    @model_validator(mode="after")
    def _allowed(self) -> Self:
        offer = OFFERS[self.kind]
        for key, value in self.options.items():
            if key not in offer.options:
                hint = nearest(key, sorted(offer.options))
                raise ValueError(f"options.{key}: nothing that a file may say of a cluster of kind {self.kind}; {hint}")
            inside = offer.inside.get(key)
            if inside is None:
                continue
            if not isinstance(value, dict):
                raise ValueError(f"options.{key}: a mapping with some of: {', '.join(sorted(inside))}")
            if unknown := next((each for each in value if each not in inside), None):
                hint = nearest(unknown, sorted(inside))
                raise ValueError(f"options.{key}.{unknown}: nothing that a file may say; {hint}")
        return self


def load_cluster(path: pathlib.Path) -> ClusterSpec:
    """Read a cluster file.

    Raises:
        ExperimentError: it is none; names file, line, key and remedy.
    """
    try:
        found = document.load(path, str(path), EXAMPLE)
    except DocumentError as error:
        raise ExperimentError(str(error)) from error
    try:
        return ClusterSpec.model_validate(found.data)
    except ValidationError as error:
        raise ExperimentError("\n".join(found.explain(ClusterSpec, error, "cluster"))) from error


def have_dask() -> bool:
    """Return whether what the extra `cluster` brings is installed."""
    return importlib.util.find_spec("distributed") is not None


def need_dask(what: str) -> None:
    """Raise ExperimentError if Dask is missing."""
    if not have_dask():
        text = f"{what} needs Dask: {install('cluster')}; without it the runs are done on this machine"
        raise ExperimentError(text).needing(*requirement("cluster"))


@contextlib.contextmanager
def at_scheduler(address: str, tls: TlsFiles | None = None) -> Iterator[Any]:
    """Yield a client of a scheduler that runs already, and has a worker at least.

    Raises:
        ExperimentError: it cannot be reached, or has none.
    """
    need_dask("--scheduler")
    from distributed import Client

    shown = printable(address)
    if not address.startswith(("tcp://", "tls://")):
        raise ExperimentError(f"--scheduler {shown}: an address as Dask has them, tcp://HOST:8786 or tls://HOST:8786")
    _quiet()
    try:
        client = Client(address, timeout=REACHED_S, security=_security(tls), set_as_default=False)
    except (OSError, ValueError, RuntimeError, TypeError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        text = f"no scheduler answers: {reason}; start one (`dask scheduler`), or leave --scheduler out"
        raise ExperimentError(f"--scheduler {shown}: {text}"[:600]) from error
    with client:
        try:
            client.wait_for_workers(1, timeout=WORKERS_S)
        except (OSError, TimeoutError) as error:
            text = f"it has no workers after {WORKERS_S:.0f} s; start some (`dask worker {shown}`)"
            raise ExperimentError(f"--scheduler {shown}: {text}") from error
        yield client


def _quiet() -> None:
    """Silence what Dask and asyncio log of connections that end; a line of this module replaces it."""
    import distributed  # noqa: F401 - gives each of its loggers a level

    names = {"distributed", "asyncio", "tornado", *logging.root.manager.loggerDict}
    for name in names:
        if name.partition(".")[0] in ("distributed", "asyncio", "tornado"):
            logging.getLogger(name).setLevel(logging.CRITICAL)


def _security(tls: TlsFiles | None) -> Any:
    from distributed.security import Security

    if tls is None:
        return None  # as Dask's own configuration says
    return Security(
        require_encryption=True,
        tls_ca_file=tls.ca,
        **{
            f"tls_{role}_{part}": value
            for role in ("client", "scheduler", "worker")
            for part, value in (("cert", tls.cert), ("key", tls.key))
        },
    )


@contextlib.contextmanager
def from_file(path: pathlib.Path) -> Iterator[Any]:
    """Yield a client of a cluster that a file describes.

    Raises:
        ExperimentError: the file is none, what it takes is not installed, or the cluster cannot be had.
    """
    spec = load_cluster(path)
    need_dask("--cluster")
    from distributed import Client

    offer = OFFERS[spec.kind]
    shown = printable(str(path))
    try:
        kind = getattr(importlib.import_module(offer.module), offer.name)
    except (ImportError, AttributeError) as error:
        raise ExperimentError(f"{shown}: kind {spec.kind} needs more: {offer.install}") from error
    _quiet()
    options = dict(spec.options)
    if spec.tls is not None:
        options["security"] = _security(spec.tls)
    try:
        made = kind(**options)
    except Exception as error:  # whatever another machine answers
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ExperimentError(f"{shown}: no cluster of kind {spec.kind}: {reason}"[:600]) from error
    with made:
        if spec.kind != "ssh":  # there each host is one
            made.scale(spec.workers)
        with Client(made, set_as_default=False) as client:
            try:
                client.wait_for_workers(1, timeout=10 * WORKERS_S)
            except (OSError, TimeoutError) as error:
                raise ExperimentError(f"{shown}: no worker came within {10 * WORKERS_S:.0f} s") from error
            yield client
