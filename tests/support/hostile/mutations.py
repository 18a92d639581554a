"""A campaign of damaged files: each is read, or refused in lines of text; anything else is a traceback for a user.

    PYTHONPATH=tests python -m support.hostile.mutations --count 500

Prints a line for each kind of file, and exits with 1 if reading one ended otherwise.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import hashlib
import importlib.util
import io
import json
import pathlib
import random
import shutil
import sys
import tempfile
import traceback
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from mrc_host.graph import source as graphs
from mrc_topo.base.errors import MrclabError
from mrc_topo.labfile import builtin_labs, load_lab
from mrclab.lab.switches import program
from mrclab.lab.switches.names import P4InfoNames
from mrclab.results import history, verdict
from mrclab.results.reading import RESULT, readable
from mrclab.results.record import RunResult
from mrclab.results.recording import EVENTS, SAMPLES
from mrclab.runs import again, artifact, compare, precheck
from mrclab.runs.compare import known_comparisons, load_comparison
from mrclab.runs.execute import execute
from mrclab.runs.experiment import known_experiments, load_experiment
from mrclab.studies.sweeps import plan, work
from mrclab.studies.sweeps.spec import known_sweeps, load_sweep
from p4lite.errors import P4liteError
from p4lite.switch.source import read_p4info

#: Of another type than what stands there.
ODD: tuple[Any, ...] = (None, -1, 1e308, 10**40, "", "x" * 300, [], {}, [[]], {"a": None}, True, "2001:db8::1", "../x")
DEEP = 20_000
#: What the command line shows as lines of text.
REFUSED = (MrclabError, P4liteError, OSError)


@dataclass(frozen=True)
class Target:
    """A kind of file: how one is damaged, into a new folder, and how it is read there."""

    damage: Callable[[pathlib.Path, random.Random], object]
    read: Callable[[pathlib.Path], object]


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the paths of all values of a document."""
    found = [path] if path else []
    if isinstance(value, dict | list):
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            found += places(inner, (*path, key))
    return found


def changed(document: Any, rng: random.Random) -> Any:
    """Return a document of which one value is gone, odd, or beside an unknown key."""
    made = copy.deepcopy(document)
    # The first levels are most of what is read by name.
    depth = rng.randint(1, 5)
    known = [path for path in places(made) if len(path) <= depth]
    if not known or rng.random() < 0.03:
        return rng.choice(ODD)
    *way, last = rng.choice(known)
    inner = made
    for key in way:
        inner = inner[key]
    kind = rng.random()
    if kind < 0.3:
        del inner[last]
    elif kind < 0.4 and isinstance(inner, dict):
        inner["unknown"] = rng.choice(ODD)
    else:
        inner[last] = rng.choice(ODD)
    return made


def scrambled(data: bytes, rng: random.Random) -> bytes:
    """Return bytes that were cut, changed, repeated, or that nest without an end."""
    made = bytearray(data or b"nothing")
    here = rng.randrange(len(made))
    match rng.randrange(6):
        case 0:
            del made[here:]
        case 1:
            del made[here : here + rng.randint(1, 40)]
        case 2:
            made[here:here] = made[here : here + rng.randint(1, 200)]
        case 3:
            made[here:here] = rng.choice((b"[", b'{"a":', b"- ", b"(", b"{")) * DEEP
        case _:
            for _ in range(rng.randint(1, 20)):
                made[rng.randrange(len(made))] = rng.randrange(256)
    return bytes(made)


def text_of(data: bytes, rng: random.Random) -> bytes:
    """Return YAML or JSON text, damaged as text or as a document."""
    if rng.random() < 0.4:
        return scrambled(data, rng)
    return json.dumps(changed(yaml.safe_load(data), rng)).encode()


def documents(paths: Mapping[str, pathlib.Path], read: Callable[[pathlib.Path], object]) -> Target:
    """Return the kind of YAML files of which `paths` are some."""
    known = sorted(paths.values())

    def damage(folder: pathlib.Path, rng: random.Random) -> None:
        path = folder / "file.yaml"
        path.write_bytes(text_of(rng.choice(known).read_bytes(), rng))
        path.chmod(0o600)

    return Target(damage, lambda folder: read(folder / "file.yaml"))


def raw(data: bytes, name: str, read: Callable[[pathlib.Path], object]) -> Target:
    """Return a kind of file of which `data` is one."""
    return Target(
        lambda folder, rng: (folder / name).write_bytes(scrambled(data, rng)), lambda folder: read(folder / name)
    )


def rewritten(path: pathlib.Path, out: pathlib.Path, rng: random.Random) -> None:
    """Write an artifact with one damaged document, and the digests that go with it."""
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    content = json.loads(members[artifact.CONTENT])
    place = content["runs"][0]["folder"]
    name = rng.choice((artifact.CONTENT, f"{place}/{RESULT}", f"{place}/verdict.json", f"{place}/{SAMPLES}"))
    if name == artifact.CONTENT:
        members[name] = text_of(members[name], rng)
    else:
        members[name] = scrambled(members[name], rng) if name.endswith(".npz") else text_of(members[name], rng)
        content["runs"][0]["files"][name.rpartition("/")[2]] = hashlib.sha256(members[name]).hexdigest()
        members[artifact.CONTENT] = json.dumps(content).encode()
    with zipfile.ZipFile(out, "w") as archive:
        for inside, data in members.items():
            archive.writestr(inside, data)


def checked(path: pathlib.Path) -> None:
    """Unpack an artifact and repeat its runs."""
    (path.parent / "out").mkdir()
    made = artifact.unpack(path, path.parent / "out")
    for row in artifact.check(made, path.parent / "out", path.parent / "work"):
        assert isinstance(row.same, bool)


def result_read(folder: pathlib.Path, whole: pathlib.Path) -> None:
    """Read a folder of results for all that commands do with one."""
    earlier = again.load(folder)
    result = RunResult.load(folder)
    with readable(folder / RESULT):
        topology = history.topology_of(result, folder)
        history.history(result, topology)
        verdict.judge(result, topology, earlier.experiment.expect, earlier.experiment.claims())
    again.compared(earlier, RunResult.load(whole), whole)


def experiment_checked(path: pathlib.Path) -> None:
    """Read an experiment, and check it against its lab as before a run."""
    experiment = load_experiment(str(path))
    precheck.check(experiment, precheck.requested_lab(experiment).topology)


def plan_read(path: pathlib.Path) -> object:
    """Read the plan in a sweep's folder."""
    path.rename(path.parent / work.PLAN)
    return work.load_plan(path.parent)


def damaged_result(whole: pathlib.Path) -> Callable[[pathlib.Path, random.Random], None]:
    """Return what damages one file of a folder of results."""

    def damage(folder: pathlib.Path, rng: random.Random) -> None:
        shutil.copytree(whole, folder, dirs_exist_ok=True)
        path = folder / rng.choice((RESULT, RESULT, RESULT, SAMPLES, EVENTS))
        data = path.read_bytes()
        path.write_bytes(text_of(data, rng) if path.name == RESULT else scrambled(data, rng))

    return damage


def class_target(folder: pathlib.Path) -> Target:
    """Return the kind of a class file with its roster."""
    from mrc_workshop.classroom import classfile

    written = classfile.write_example(folder)

    def damage(place: pathlib.Path, rng: random.Random) -> None:
        for path in written:
            shutil.copy(path, place / path.name)
        path = place / rng.choice(written).name
        data = path.read_bytes()
        path.write_bytes(scrambled(data, rng) if path.suffix == ".csv" else text_of(data, rng))

    return Target(damage, lambda place: classfile.read_class(place / written[0].name))


def with_graph(name: str) -> Callable[[pathlib.Path], object]:
    """Return what reads a lab with the graph of a file."""

    def read(path: pathlib.Path) -> object:
        lab = path.parent / "lab.yaml"
        lab.write_text(f'name: a\ntopology: {{from: {name}, roles: {{"h*": host}}}}\n')
        return load_lab(lab)

    return read


CLAB = b"""name: a
topology:
  nodes:
    s0: {kind: linux}
    h0: {kind: linux}
    h1: {kind: linux}
  links:
  - endpoints: ["s0:eth1", "h0:eth1"]
  - endpoints: ["s0:eth2", "h1:eth1"]
"""
DOT = b'graph a { s0; h0; h1; h0 -- s0 [rate="1Gbps"]; h1 -- s0 [delay="1ms"]; }\n'
GOAL = b"""num_ranks 2
rank 0 {
l1: send 4096b to 1 tag 1
l2: calc 10
l2 requires l1
}
rank 1 {
l1: recv 4096b from 0 tag 1
}
"""


def trace() -> bytes:
    """Return a binary Chakra trace of a rank: metadata, a computation, and a send."""

    def varint(value: int) -> bytes:
        return bytes((value & 127 | 128,)) + varint(value >> 7) if value > 127 else bytes((value,))

    def whole(key: int, value: int) -> bytes:
        return varint(key << 3) + varint(value)

    def block(key: int, data: bytes) -> bytes:
        return varint(key << 3 | 2) + varint(len(data)) + data

    def attribute(name: str, value: int) -> bytes:
        return block(10, block(1, name.encode()) + whole(9, value))

    compute = whole(1, 1) + block(2, b"compute") + whole(3, 4) + whole(7, 10)
    send = whole(1, 2) + block(2, b"reduce") + whole(3, 7) + whole(5, 1) + attribute("comm_type", 0)
    send += attribute("comm_size", 4096)
    return b"".join(varint(len(each)) + each for each in (block(1, b"0.0.4"), compute, send))


def targets(base: pathlib.Path) -> Iterator[tuple[str, Target]]:
    """Yield every kind of file; `base`: a new folder for what is made for them once."""
    (base / "e.yaml").write_text(
        "{name: a, title: a, lab: tiny, workload: {name: write_bw, params: {iterations: 2, message_bytes: 4096}}}\n"
    )
    experiment = load_experiment(str(base / "e.yaml"))
    whole = base / "whole"
    execute(experiment, "virtual", folder=whole, live=False)
    artifact.pack([whole], base / "a.zip")
    yield (
        "documents of artifacts",
        Target(lambda folder, rng: rewritten(base / "a.zip", folder / "a.zip", rng), lambda f: checked(f / "a.zip")),
    )
    yield "archives of artifacts", raw((base / "a.zip").read_bytes(), "a.zip", checked)
    yield "folders of results", Target(damaged_result(whole), lambda folder: result_read(folder, whole))
    yield "experiments", documents(known_experiments(), experiment_checked)
    yield "comparisons", documents(known_comparisons(), lambda path: compare.check(load_comparison(str(path))))
    yield "sweeps", documents(known_sweeps(), lambda path: load_sweep(str(path)))
    known = yaml.safe_load(known_sweeps()["loss-messages"].read_text())
    (base / "plan.json").write_text(json.dumps({"format": plan.FORMAT, "sweep": known, "software": ""}))
    yield "plans of sweeps", documents({"": base / "plan.json"}, plan_read)
    yield "labs", documents(builtin_labs(), load_lab)
    yield "containerlab", raw(CLAB, "a.yaml", with_graph("a.yaml"))
    yield "DOT", raw(DOT, "a.dot", with_graph("a.dot"))
    yield "GOAL", raw(GOAL, "a.goal", lambda path: graphs.schedule(graphs.Source(file=str(path))))
    chakra = trace()
    yield "Chakra", raw(chakra, "a.0.et", lambda path: graphs.schedule(graphs.Source(file=str(path), ranks=2)))
    info = program.fabric_program().p4info.encode()
    yield "P4Info", raw(info, "a.txtpb", read_p4info)
    yield (
        "P4Info of p4c",
        raw(info, "a.txtpb", lambda path: P4InfoNames.of(path.read_text(encoding="utf-8", errors="replace"))),
    )
    if importlib.util.find_spec("mrc_fluid"):
        from mrc_fluid.clusterfile import builtin_clusters, load_cluster

        yield "clusters", documents(builtin_clusters(), lambda path: load_cluster(str(path)))
    if importlib.util.find_spec("mrc_workshop"):
        (base / "class").mkdir()
        yield "classes", class_target(base / "class")
        yield "hand-ins", handin_target()


def handin_target() -> Target:
    """Return the kind of a student's hand-in."""
    from mrc_workshop.classroom import handin
    from mrc_workshop.exercise import find

    exercise = find("01-usid")
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as written:
        for name in exercise.content.edit:
            written.writestr(f"{exercise.name}/{name}", (exercise.starter / name).read_bytes())
    return raw(archive.getvalue(), "a.zip", lambda path: handin.read(path.read_bytes(), {exercise.name: exercise}))


def attack(target: Target, count: int, seed: int) -> tuple[int, list[str]]:
    """Return how many of `count` damaged files were refused, and the errors of those that ended otherwise."""
    refused, wrong = 0, []
    for number in range(count):
        rng = random.Random(f"{seed}/{number}")
        with tempfile.TemporaryDirectory() as place, contextlib.redirect_stderr(io.StringIO()):
            folder = pathlib.Path(place)
            target.damage(folder, rng)
            try:
                target.read(folder)
            except REFUSED:
                refused += 1
            except BaseException as error:  # noqa: BLE001 - what a user would see as a traceback
                last = traceback.extract_tb(error.__traceback__)[-1]
                where = f"{pathlib.Path(last.filename).name}:{last.lineno}"
                wrong.append(f"{number}: {type(error).__name__}: {str(error)[:80]} ({where})")
    return refused, wrong


def main() -> int:
    """Run the campaign."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=500, help="damaged files of each kind")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", help="kinds whose name begins like this")
    given = parser.parse_args()
    failed = False
    with tempfile.TemporaryDirectory() as place:
        for name, target in targets(pathlib.Path(place)):
            if name.startswith(given.only):
                refused, wrong = attack(target, given.count, given.seed)
                print(f"{name}: {given.count} damaged, {refused} refused, {len(wrong)} otherwise", flush=True)
                for text in wrong[:10]:
                    print(f"  {text}")
                failed = failed or bool(wrong)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
