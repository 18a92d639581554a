"""Provenance of a result: the software, the machine, the time, and digests of everything that was asked for.

`result.json` and `verdict.json` hold it under `provenance` (docs/reference/results.md).
"""

from __future__ import annotations

import datetime
import hashlib
import importlib.metadata
import json
import os
import platform
import subprocess
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from mrc_host import running
from mrc_topo.base.document import Model
from mrc_topo.schema import Lab
from mrc_topo.shipped import shipped

#: A repository on a file system that does not answer must not hold a run up.
GIT_S = 10.0
#: The entry with the time of the run, in which two runs of the same experiment always differ.
WHEN = "date"


class Machine(Model):
    """The machine of the run: host name, operating system, kind of processor, and how many of them the process sees."""

    name: str
    system: str
    processor: str
    cpus: int


class Provenance(Model):
    """What a result was made by and from. Digests are SHA-256 in hexadecimal digits.

    `commit` and `dirty` (tracked files were changed) are null where mrclab does not run from a git checkout. `lab` and
    `experiment` are digests of the documents with all defaults (`lab_digest`), so that layout, comments and folders
    of the files do not matter. `policies` (by kind) are of the files; a policy that could not be read has an empty one.
    `program` is over the sources of the P4 program.
    """

    version: str
    commit: str | None
    dirty: bool | None
    python: str
    core: str
    crc: str
    machine: Machine
    date: str
    lab: str
    experiment: str
    policies: dict[str, str]
    program: str

    def differences(self, other: Provenance) -> list[str]:
        """Return a line for each entry in which another one differs, without the date; this one's value comes first."""
        mine, theirs = _flat(self.model_dump()), _flat(other.model_dump())
        keys = [key for key in dict.fromkeys([*mine, *theirs]) if key != WHEN]
        return [
            f"{key}: {_shown(mine.get(key))}, now {_shown(theirs.get(key))}"
            for key in keys
            if mine.get(key) != theirs.get(key)
        ]


def collect(lab: Lab, experiment: Mapping[str, Any], program: Mapping[str, Any]) -> Provenance:
    """Collect the provenance of a run that is made now, by this process.

    Args:
        lab: as it was run, with the policies that were chosen.
        experiment: the document of the experiment (`Experiment.model_dump`).
        program: of the P4 program (`FabricProgram.document`); empty if the lab never came up.
    """
    commit, dirty = checkout()
    software = running.document()
    return Provenance(
        version=importlib.metadata.version("mrclab"),
        commit=commit,
        dirty=dirty,
        python=f"{platform.python_implementation()} {platform.python_version()}",
        core=software["core"],
        crc=software["crc"],
        machine=Machine(
            name=platform.node(), system=platform.platform(), processor=platform.machine(), cpus=os.cpu_count() or 0
        ),
        date=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        lab=lab_digest(lab),
        experiment=experiment_digest(experiment),
        policies=policy_digests(lab),
        program=str(program.get("sha256", "")),
    )


def policy_digests(lab: Lab) -> dict[str, str]:
    """Return the digests of the files of a lab's policies, by kind; empty for one that cannot be read."""
    return {kind: _file_digest(given) for kind, given in lab.policies.named.items()}


def lab_digest(lab: Lab) -> str:
    """Return the digest of a lab with all defaults; of policies and program it holds the names without folders."""
    document = lab.model_dump(mode="json")
    document["policies"] = _names(document["policies"])
    document["program"] = None if lab.program is None else Path(lab.program).name
    return _digest(document)


def experiment_digest(experiment: Mapping[str, Any]) -> str:
    """Return the digest of an experiment with all defaults, without its lab, which has a digest of its own."""
    document = {key: value for key, value in experiment.items() if key != "lab"}
    return _digest({**document, "policies": _names(document.get("policies", {}))})


@cache
def checkout() -> tuple[str | None, bool | None]:
    """Return the git commit that this process runs from, and whether tracked files of it were changed.

    Both are None where there is no checkout or no git, or git refuses the folder because it is another user's.
    """
    root = shipped("labs").resolve().parents[1]
    if not (root / ".git").exists():
        return None, None
    # Variables of a git command that started us (a hook, say) would lead to another repository.
    clean = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}

    def git(*words: str) -> str:
        command = ["git", "--no-optional-locks", "-C", str(root), *words]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=GIT_S, env=clean)
        return done.stdout.strip()

    try:
        return git("rev-parse", "HEAD"), bool(git("status", "--porcelain", "--untracked-files=no"))
    except (OSError, subprocess.SubprocessError, UnicodeDecodeError):
        return None, None


def _names(policies: Mapping[str, str | None]) -> dict[str, str | None]:
    return {kind: None if given is None else given.rpartition("/")[2] for kind, given in policies.items()}


def _digest(document: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(document, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def _file_digest(policy: str) -> str:
    try:
        return hashlib.sha256(Path(policy.rpartition(":")[0]).read_bytes()).hexdigest()
    except OSError:
        return ""


def _flat(document: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in document.items():
        if isinstance(value, Mapping):
            found |= _flat(value, f"{prefix}{key}.")
        else:
            found[f"{prefix}{key}"] = value
    return found


def _shown(value: object) -> str:
    """Return a value as a line has it; of a digest or a commit its first digits."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    text = "" if value is None else str(value)
    return text[:12] if len(text) in (40, 64) else text or "none"
