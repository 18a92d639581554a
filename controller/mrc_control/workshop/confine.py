"""Running a job in a confined process, and what came of it: the facts, or why there are none."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import pathlib
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from pydantic import ValidationError

from mrc_control.lab import lifecycle
from mrc_control.lab.namespaces import Owner, owner_for_root
from mrc_control.workshop.confined import Confinement
from mrc_control.workshop.exercise import Limits
from mrc_control.workshop.job import FACTS, JOB, MAX_FACTS_BYTES, Facts, Job
from p4lite.switch.native import build

#: Of what a submission prints this much is kept, and with more than the second it is ended.
KEPT_OUTPUT, MAX_OUTPUT = 16 << 10, 4 << 20
#: All of the scratch folder; beyond it the run is ended.
MAX_SCRATCH_BYTES = 1 << 30
LOOK_S = 0.5
KEPT_ENVIRONMENT = ("PATH", "LANG", "LC_ALL", "CC", "VIRTUAL_ENV", "PYTHONHASHSEED", "PYTHONPATH", "MRCLAB_PURE")
#: What a learner's code does must not depend on Python's hashes of strings; who sets a seed gets that one.
SAME = {"PYTHONHASHSEED": "0"}
#: gRPC has something to say about every fork, even one that the kernel refuses.
QUIET = {"GRPC_ENABLE_FORK_SUPPORT": "0", "GRPC_VERBOSITY": "NONE"}


@dataclass(frozen=True)
class Outcome:
    """What a confined process left. `reason`: why it was ended, or ended by itself without facts; empty if it did not.
    `spent_s`: wall time."""

    facts: Facts
    reason: str
    output: str
    spent_s: float
    isolation: dict[str, bool] = field(default_factory=dict)


@contextlib.contextmanager
def scratch_folder() -> Iterator[pathlib.Path]:
    """A folder for one job, with what compiles quickly in it; gone at the end."""
    owner = owner_for_root()
    with tempfile.TemporaryDirectory(prefix="mrclab-workshop-") as name:
        folder = pathlib.Path(name)
        for part in ("tmp", "out", "learner"):
            (folder / part).mkdir(mode=0o700)
        shutil.copytree(_warm_cache(), folder / "cache")
        (folder / "cache").chmod(0o700)
        yield folder
        if owner is not None:
            give(folder, Owner(os.geteuid(), os.getegid()))


def give(folder: pathlib.Path, owner: Owner) -> None:
    """Makes all of a folder somebody else's; links are not followed."""
    os.chown(folder, owner.uid, owner.gid)
    for parent, folders, files in os.walk(folder):
        for name in (*folders, *files):
            os.chown(os.path.join(parent, name), owner.uid, owner.gid, follow_symlinks=False)


def _warm_cache() -> pathlib.Path:
    """The fabric's core and the parts of compiled programs that are the same for all, built once per version."""
    base = build.cache_dir() / "workshop"
    digest = hashlib.sha256()
    for path in sorted(build.CORE_DIR.rglob("*.[ch]")):
        digest.update(path.read_bytes())
    folder = base / digest.hexdigest()[:16]
    if (folder / "complete").is_file():
        return folder
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True, mode=0o700)
    code = (
        "from p4lite.switch.fabric.fabric import Fabric\n"
        "from p4lite.switch.source import load_source\n"
        "from mrc_topo.shipped import shipped\n"
        "with Fabric('virtual') as fabric:\n"
        "    fabric.add_switch(1).load(load_source(shipped('programs') / 'fabric.p4').program())\n"
    )
    subprocess.run(
        [sys.executable, "-P", "-c", code],
        env={**os.environ, "MRCLAB_CACHE": str(folder)},
        check=True,
        stdin=subprocess.DEVNULL,
    )
    (folder / "complete").touch()
    return folder


def run(job: Job, scratch: pathlib.Path, allowed: Limits, hide: Sequence[pathlib.Path] = ()) -> Outcome:
    """Runs a job whose files are in `scratch/learner`; leaves captures and reports in `scratch/out`.

    Args:
        hide: folders that the process must not see, beyond the workshop's own.
    """
    (scratch / JOB).write_text(job.model_dump_json())
    owner = owner_for_root()
    order = Confinement(
        scratch=str(scratch),
        hide=[str(each) for each in hide],
        cpu_s=allowed.cpu_s,
        memory_bytes=allowed.memory_mb << 20,
        owner=owner,
        trees=[] if owner is None else lifecycle.trees(),
    )
    if owner is not None:
        give(scratch, owner)
    begin = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "mrc_control.workshop.confined"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=SAME | {key: os.environ[key] for key in KEPT_ENVIRONMENT if key in os.environ} | QUIET,
        start_new_session=True,
    )
    assert process.stdin is not None
    try:
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(order.line().encode())
            process.stdin.close()
        output, reason = _attend(process, begin + allowed.wall_s, scratch)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        code = process.wait()
        if process.stdout is not None:
            process.stdout.close()
    spent = time.monotonic() - begin
    if owner is not None:
        give(scratch, Owner(os.geteuid(), os.getegid()))
    if reason == "wall":
        reason = f"it ran for {allowed.wall_s} s without an end, which is the limit; is there an endless loop?"
    elif not reason and code in (128 + signal.SIGXCPU, 128 + signal.SIGKILL, -signal.SIGXCPU, -signal.SIGKILL):
        reason = f"it took {allowed.cpu_s} s of CPU time, which is the limit; is there an endless loop?"
    elif not reason and code in (128 + signal.SIGXFSZ, -signal.SIGXFSZ):
        reason = "it wrote a file of more than 512 MB"
    facts = _read(scratch / "out" / FACTS)
    if facts is None:
        facts = Facts()
        if not reason:
            last = next((each for each in reversed(output.splitlines()) if each.strip()), "")
            reason = f"its process ended with code {code} before there were results" + (f": {last}" if last else "")
    return Outcome(facts, reason, output, spent, facts.isolation)


def _attend(process: subprocess.Popen[bytes], until: float, scratch: pathlib.Path) -> tuple[str, str]:
    """Reads what is printed until the process ends or must be ended; returns its beginning, and why it was ended."""
    assert process.stdout is not None
    handle = process.stdout.fileno()
    kept, total, looked = b"", 0, time.monotonic()
    while True:
        now = time.monotonic()
        if now > until:
            return kept.decode(errors="replace"), "wall"
        if now - looked > LOOK_S:
            looked = now
            if _size(scratch) > MAX_SCRATCH_BYTES:
                return kept.decode(errors="replace"), "it wrote more than 1 GB of files"
        ready, _, _ = select.select([handle], [], [], min(LOOK_S, max(until - now, 0.0)))
        if not ready:
            if process.poll() is not None:
                break
            continue
        data = os.read(handle, 1 << 16)
        if not data:
            break
        total += len(data)
        kept += data[: KEPT_OUTPUT - len(kept)]
        if total > MAX_OUTPUT:
            return kept.decode(errors="replace"), f"it printed more than {MAX_OUTPUT >> 20} MB"
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(max(until - time.monotonic(), 0.0))
        return kept.decode(errors="replace"), ""
    return kept.decode(errors="replace"), "wall"


def _size(folder: pathlib.Path) -> int:
    total = 0
    for parent, _, files in os.walk(folder):
        for name in files:
            with contextlib.suppress(OSError):
                total += os.lstat(os.path.join(parent, name)).st_blocks * 512
    return total


def _read(path: pathlib.Path) -> Facts | None:
    """The facts that a process left; None if it left none, or something else."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    with os.fdopen(handle, "rb") as file:
        data = file.read(MAX_FACTS_BYTES + 1)
    try:
        return Facts.model_validate(json.loads(data)) if len(data) <= MAX_FACTS_BYTES else None
    except (ValueError, ValidationError, RecursionError):
        return None
