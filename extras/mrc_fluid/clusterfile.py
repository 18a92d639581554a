"""Reading cluster files: YAML to `Cluster` and its shape, with errors that name file, line, key and remedy."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from mrc_fluid import jobs, pods, timeline
from mrc_fluid.fabric import Fabric, FabricShape, UnknownElement
from mrc_fluid.schema import CLASSES, Cluster
from mrc_topo.base import document
from mrc_topo.base.document import Document, DocumentError, KeyPath
from mrc_topo.shipped import find, shipped

EXAMPLE = "a cluster file is a mapping such as 'planes: 8'; see topologies/clusters"
#: Queue pairs that send at the same time; each costs about 1 KB of memory at 256 EVs.
MAX_QPS = 2_000_000
#: Times at which something changes; each costs seconds on a large cluster.
MAX_STEPS = 400


class ClusterError(DocumentError):
    """A cluster file that cannot be used; each entry of `problems` is one line for the user."""


@dataclass(frozen=True)
class Loaded:
    """A cluster file that was read: its contents, the shape of its fabric, and its failures with their times."""

    cluster: Cluster
    shape: FabricShape
    events: list[timeline.Event]
    name: str


def builtin_clusters() -> dict[str, Path]:
    """Return the cluster files that come with the project, by name."""
    return {path.stem: path for path in sorted(shipped("clusters").glob("*.yaml"))}


def load_cluster(name_or_path: str | Path, changes: dict[str, Any] | None = None) -> Loaded:
    """Return a cluster by the path of its file, or by the name of one that comes with the project; `changes` replace
    keys.

    Raises:
        ClusterError: there is none, or it cannot be.
    """
    given = str(name_or_path)
    try:
        path = find(name_or_path, builtin_clusters(), "cluster")
        text = document.read_text(path, given)
    except DocumentError as error:
        raise ClusterError(error.problems) from error
    return parse_cluster(text, given, path.absolute().parent, changes)


def parse_cluster(
    text: str, name: str = "<cluster>", folder: Path | None = None, changes: dict[str, Any] | None = None
) -> Loaded:
    """Return the cluster that YAML text describes; `name` stands in errors, `folder` is where a trace's path starts.

    Raises:
        ClusterError: it is none.
    """
    try:
        read = document.parse(text, name, EXAMPLE)
    except DocumentError as error:
        raise ClusterError(error.problems) from error
    try:
        cluster = Cluster.model_validate({**read.data, **(changes or {})})
    except ValidationError as error:
        raise ClusterError(read.explain(Cluster, error, "cluster")) from error
    shape = shape_of(cluster)
    problems = [read.problem(key, text, "cluster") for key, text in _wrong(cluster, shape)]
    if problems:
        raise ClusterError(problems)
    return Loaded(cluster, shape, _events(cluster, shape, read, folder), name)


def shape_of(cluster: Cluster) -> FabricShape:
    """Return the fabric of a cluster, without a check."""
    if cluster.tiers == 3:
        return pods.shape_of(cluster)
    per_t0 = cluster.nics_per_t0 or cluster.radix // 2
    t1s = cluster.t1_per_plane or cluster.radix // 2
    nics = cluster.nics or per_t0 * (cluster.radix if cluster.nics_per_t0 is None else 2)
    rate = cluster.port_rate
    return FabricShape(cluster.planes, -(-nics // per_t0), t1s, nics, per_t0, rate, cluster.fabric_rate or rate)


def _wrong(cluster: Cluster, shape: FabricShape) -> list[tuple[KeyPath, str]]:
    """Return what is wrong with a cluster as a whole: key and text."""
    found: list[tuple[KeyPath, str]] = []
    radix, planes = cluster.radix, cluster.planes
    ports, three = shape.per_t0 + shape.t1s, cluster.tiers == 3
    if ports > radix:
        text = f"a T0 needs {shape.per_t0} + {shape.t1s} = {ports} ports, the radix is {radix}; raise radix"
        found.append((("radix",), f"{text} or lower nics_per_t0 or {'t1_per_pod' if three else 't1_per_plane'}"))
    if not three and shape.t0s > radix:
        text = f"{shape.nics} NICs need {shape.t0s} T0s, and a T1 of radix {radix} connects {radix}"
        most = radix * shape.per_t0
        text = f"{text}; raise radix, lower nics to {most} at most, or use tiers: 3"
        found.append((("radix",), f"radix too small: {text}"))
    found += pods.wrong(cluster, shape)
    if cluster.ev.size > shape.paths:
        ways = f"{shape.t1s} T1s" + (f" x {shape.uplinks} uplinks of each" if shape.pods > 1 else "")
        text = f"{cluster.ev.size} EVs, but two NICs have {shape.paths} paths ({planes} planes x {ways})"
        found.append((("ev", "size"), f"more EVs than paths: {text}; lower ev.size to {shape.paths} at most"))
    for key in ("size", "active"):
        if getattr(cluster.ev, key) % planes:
            text = f"{getattr(cluster.ev, key)} EVs cannot be spread equally over {planes} planes"
            found.append((("ev", key), f"{text}; use a multiple of {planes}"))
    if not cluster.ev.min_active <= cluster.ev.active <= cluster.ev.size:
        given = cluster.ev
        text = f"min_active ({given.min_active}) <= active ({given.active}) <= size ({given.size}) must hold"
        found.append((("ev", "active"), text))
    if cluster.bin > cluster.duration:
        found.append((("bin",), "longer than duration; lower it"))
    elif cluster.duration // cluster.bin > 100_000:
        found.append((("bin",), "more than 100000 of them; raise bin or lower duration"))
    taken = sum(job.nics or 0 for job in cluster.jobs)
    rest = [number for number, job in enumerate(cluster.jobs) if job.nics is None]
    if len(rest) > 1:
        found.append((("jobs", rest[1], "nics"), "two jobs take all NICs that are left; say how many each has"))
    if taken > shape.nics or (rest and taken >= shape.nics):
        text = f"the jobs take {taken} NICs and more, the cluster has {shape.nics}; lower nics of a job"
        found.append((("jobs",), text))
    for number, job in enumerate(cluster.jobs):
        found += [(("jobs", number, key), text) for key, text in jobs.wrong(job, job.nics or shape.nics - taken)]
    if not found:
        qps = jobs.count(cluster.jobs, shape.nics)
        if qps > MAX_QPS:
            text = f"{qps} queue pairs at the same time, this model takes {MAX_QPS}; lower peers or nics"
            found.append((("jobs",), text))
    return found


def _domains(cluster: Cluster, probe: Fabric, read: Document) -> set[str]:
    """Return the names of the power domains, whose elements all exist."""
    names: set[str] = set()
    for number, domain in enumerate(cluster.domains):
        place: KeyPath = ("domains", number)
        if domain.name in names or domain.name in CLASSES or domain.name == "domains":
            raise ClusterError([read.problem((*place, "name"), f"'{domain.name}' names something else; use another")])
        names.add(domain.name)
        try:
            for element in timeline.members(domain.elements):
                probe.find(element)
        except UnknownElement as error:
            raise ClusterError([read.problem((*place, "elements"), str(error))]) from error
    return names


def _some(kind: str, probe: Fabric) -> None:
    if not probe.count(kind):
        raise UnknownElement(f"two tiers have no {kind}; use tiers: 3, or another class")


def _check_class(kind: str, probe: Fabric, read: Document, place: KeyPath) -> None:
    try:
        _some(kind, probe)
    except UnknownElement as error:
        raise ClusterError([read.problem(place, str(error))]) from error


def _events(cluster: Cluster, shape: FabricShape, read: Document, folder: Path | None) -> list[timeline.Event]:
    probe = Fabric(shape)
    domains = _domains(cluster, probe, read)
    for number, failure in enumerate(cluster.failures):
        place: KeyPath = ("failures", number)
        try:
            if failure.fail in CLASSES:
                _some(failure.fail, probe)
                if failure.count > probe.count(failure.fail):
                    text = f"{failure.count} {failure.fail}, the cluster has {probe.count(failure.fail)}; lower count"
                    raise UnknownElement(text)
            elif failure.fail not in domains:
                probe.find(failure.fail, failure.lanes)
        except UnknownElement as error:
            raise ClusterError([read.problem((*place, "fail"), str(error))]) from error
        if failure.repeat > 1 and (failure.every is None or failure.lasts is None):
            raise ClusterError([read.problem((*place, "repeat"), "needs 'every: ...' and 'for: ...', too")])
    for number, spec in enumerate(cluster.random):
        if spec.fail == "domains" and not domains:
            raise ClusterError(
                [read.problem(("random", number, "fail"), "the file has no domains; add 'domains: ...'")]
            )
        if spec.fail != "domains":
            _check_class(spec.fail, probe, read, ("random", number, "fail"))
        if (drawn := cluster.duration // spec.between) > timeline.MAX_EVENTS:
            text = f"about {drawn} failures, this model takes {timeline.MAX_EVENTS} of a class; raise between"
            raise ClusterError([read.problem(("random", number, "between"), text)])
    for number, batch in enumerate(cluster.batches):
        _check_class(batch.fail, probe, read, ("batches", number, "fail"))
    traced: list[timeline.Event] = []
    if cluster.trace is not None:
        path = (folder or Path()) / cluster.trace
        try:
            traced = timeline.read_trace(document.read_text(path, str(path)), str(path), probe)
        except DocumentError as error:
            raise ClusterError(error.problems) from error
    events = timeline.events(cluster, Fabric(shape), traced)
    steps = len(timeline.times(cluster, events))
    if steps > MAX_STEPS:
        text = f"something changes at {steps} times, this model takes {MAX_STEPS}; raise bin or have fewer failures"
        raise ClusterError([read.problem(("bin",), text, "cluster")])
    return events
