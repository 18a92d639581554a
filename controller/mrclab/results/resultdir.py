"""The folder of a run's results: checked before the run, filled after it, each file complete or absent."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import time
from collections.abc import Iterator

from mrc_topo.base.document import printable
from mrc_topo.base.files import write_whole
from mrc_topo.topology import Topology
from mrc_topo.units import format_size
from mrclab.results import report
from mrclab.results.check import Verdict
from mrclab.results.reading import RESULT, FolderError
from mrclab.results.record import RunResult
from mrclab.results.recording import EVENTS, SAMPLES, Recording

RESULTS = pathlib.Path("results")
#: A report, and room for what the samples of a short run need.
LEAST_BYTES = 16 << 20
#: Samples and events, per host and second, with their share of the fabric's ports; measured: 0.4 to 1.4 KB.
BYTES_PER_HOST_SECOND = 3_000


def default_folder(name: str, clock: str) -> pathlib.Path:
    """Return `results/NAME-CLOCK-TIME`, with a number appended if that exists."""
    first = RESULTS / f"{name}-{clock}-{time.strftime('%Y%m%d-%H%M%S')}"
    folder, number = first, 2
    while folder.exists():
        folder, number = first.with_name(f"{first.name}-{number}"), number + 1
    return folder


@contextlib.contextmanager
def prepared(folder: pathlib.Path, host_seconds: float) -> Iterator[pathlib.Path]:
    """Yield the folder, made and tried; removed again if nothing was written into it.

    Args:
        folder: existing or not.
        host_seconds: how long how many hosts will be sampled, at most.

    Raises:
        FolderError: it cannot be made or written, or the disk has too little room for the results.
    """
    made = _make(folder, LEAST_BYTES + int(host_seconds * BYTES_PER_HOST_SECOND))
    try:
        yield folder
    finally:
        # Only what is empty, and only what this run made.
        for each in made:
            with contextlib.suppress(OSError):
                each.rmdir()


def _make(folder: pathlib.Path, needed: int) -> list[pathlib.Path]:
    """Make and try the folder; return the new folders, innermost first."""
    shown = printable(str(folder))
    remedy = "choose another with -o"
    made: list[pathlib.Path] = []
    try:
        missing = [each for each in (folder, *folder.parents) if not each.exists()]
        for each in reversed(missing):
            each.mkdir(exist_ok=True)
            made.insert(0, each)
        if not folder.is_dir():
            raise FolderError(f"{shown}: no folder for results: it is a file; {remedy}")
        probe = folder / ".mrclab-writes-here"
        write_whole(probe, b"")
        probe.unlink()
        # `f_bavail` is the space left for this user; a file system without blocks (of a network, say) reports none.
        disk = os.statvfs(folder)
        free = disk.f_bavail * disk.f_frsize
        if disk.f_blocks and free < needed:
            text = f"{format_size(free)} free, up to {format_size(needed)} needed"
            raise FolderError(f"{shown}: too little room for the results: {text}; {remedy}")
    except (OSError, ValueError, FolderError) as error:
        for each in made:
            with contextlib.suppress(OSError):
                each.rmdir()
        if isinstance(error, FolderError):
            raise
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise FolderError(f"{shown}: no folder for results: {reason}; {remedy}") from error
    return made


def write(
    folder: pathlib.Path, result: RunResult, topology: Topology, judged: Verdict, title: str, recording: Recording
) -> pathlib.Path:
    """Write verdict.json, sample and events, result.json and report.html, in this order; return the folder.

    Args:
        recording: of the result, in this folder.

    Raises:
        WriteError: one could not be written; those before it are complete, it and those after it are absent.
    """
    names = ("verdict.json", RESULT, "report.html")
    # What an earlier run left would be taken for this one's, should a file of this one not fit.
    for name in (*names, SAMPLES, EVENTS):
        with contextlib.suppress(FileNotFoundError):
            (folder / name).unlink()
    came = {} if result.provenance is None else {"provenance": result.provenance.model_dump()}
    write_whole(folder / names[0], json.dumps({**judged.document(), **came}, indent=1))
    recording.keep()
    result.save(folder)
    write_whole(folder / names[2], report.render(result, topology, judged, title))
    return folder
