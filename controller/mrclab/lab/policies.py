"""Policies that a lab file or an experiment names: which hold, and where their code may run (docs/security.md)."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from mrc_host.policy import supplier
from mrc_topo.base.errors import SIMULATE
from mrc_topo.base.files import write_whole
from mrc_topo.labfile import lab_path
from mrc_topo.schema import PoliciesSpec
from mrc_topo.topology import Topology
from mrclab.lab.processes.namespaces import is_machine_root
from mrclab.lab.records import rundir
from mrclab.lab.records.rundir import RunError, base, check_ours
from p4lite.files import FolderError, check_private, is_private_file

#: The kinds of policies that the hosts' agents run; the localiser belongs to the controller.
HOST_KINDS = ("congestion", "ev", "loss")
#: The folder in the run directory and in the lab's folder with the copies that a lab on the real clock runs, by kind.
FOLDER = "policies"
REMEDY = f"{SIMULATE}; or run it as yourself with --trust-code"


class PolicyRefused(RunError):
    """Policies that may not be used as requested; the text says what to do."""


@dataclass(frozen=True)
class Trusted:
    """A policy's file as it was read, which no other user could have written; `name` is that of the class."""

    kind: str
    file: str
    name: str
    text: bytes

    @property
    def reference(self) -> str:
        """The reference to the copy, from a lab file beside `FOLDER`."""
        return f"{FOLDER}/{self.kind}/{self.file}:{self.name}"


def chosen(topology: Topology, given: PoliciesSpec | None) -> Topology:
    """Return the lab with policies that override those of its file; a kind that is not given keeps the file's."""
    if given is None or not given.named:
        return topology
    policies = topology.lab.policies.model_copy(update=given.named)
    return topology.with_lab(topology.lab.model_copy(update={"policies": policies}))


def check(topology: Topology, clock: str, transport: str, *, trust_code: bool = False) -> None:
    """Check that a lab's policies may run on this clock, under this transport.

    Raises:
        PolicyRefused: they may not; the text says why.
    """
    named = topology.lab.policies.named
    hosts = [kind for kind in HOST_KINDS if kind in named]
    if hosts and transport != "mrc":
        raise PolicyRefused(f"policies.{hosts[0]} is of MRC; the transport is {transport}: leave it out")
    if not named:
        return
    if clock == "virtual":
        check_files(topology)
        return
    kind, reference = next(iter(named.items()))
    if is_machine_root():
        raise PolicyRefused(
            f"policies.{kind}: {reference}: on the real clock root runs no code that a file names; "
            f"{SIMULATE}; or use an ordinary user's --trust-code"
        )
    if _are_copies(topology):
        return
    if not trust_code:
        raise PolicyRefused(
            f"policies.{kind}: {reference}: on the real clock agents run no code that a file names unless you say so; "
            f"{REMEDY}"
        )
    read(topology)


def check_files(topology: Topology) -> None:
    """Check that only this user and root can change the files of a lab's policies, which run in this process.

    In a sandbox whose classes another process supplies, no file is run and none is checked.

    Raises:
        PolicyRefused: another user can change one; the text names the policy, the file and the remedy.
    """
    if supplier() is not None:
        return
    for kind, reference in topology.lab.policies.named.items():
        try:
            rundir.check(Path(reference.rpartition(":")[0]))
        except FolderError as error:
            raise PolicyRefused(f"policies.{kind}: {error}") from None


def check_lab_file(lab: str, topology: Topology) -> None:
    """Check that only this user and root can change a lab's file if it names policies or a P4 program.

    Raises:
        PolicyRefused: another user can change it.
    """
    if topology.lab.policies.named or topology.lab.program is not None:
        try:
            rundir.check(lab_path(lab))
        except FolderError as error:
            raise PolicyRefused(str(error)) from None


def _are_copies(topology: Topology) -> bool:
    """Return whether a lab's policies are the copies in its run directory, made while its user trusted the files.

    Raises:
        RunError: the folder of run directories is not ours alone.
    """
    return all(Path(each).is_relative_to(base()) for each in topology.lab.policies.named.values()) and check_ours(
        base()
    )


def read(topology: Topology) -> list[Trusted]:
    """Read the files of a lab's policies.

    Raises:
        PolicyRefused: a file is missing, or another user can change it.
    """
    found = []
    for kind, reference in topology.lab.policies.named.items():
        file, _, name = reference.rpartition(":")
        found.append(Trusted(kind, Path(file).name, name, _read(kind, Path(file))))
    return found


def _read(kind: str, path: Path) -> bytes:
    where = f"policies.{kind}: "
    try:
        check_private(path.parent)
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FolderError as error:
        raise PolicyRefused(f"{where}{error}") from None
    except OSError as error:
        what = "is a link; name the file itself" if error.errno == errno.ELOOP else error.strerror
        raise PolicyRefused(f"{where}{path}: {what}") from None
    with os.fdopen(handle, "rb") as file:
        if not is_private_file(os.fstat(handle)):
            raise PolicyRefused(
                f"{where}{path}: must be a plain file of yours that no other user can write to; "
                f"`chmod go-w {path}` after a look at what is in it"
            )
        return file.read()


def copied(text: str, files: Sequence[Trusted]) -> str:
    """Return the text of a lab file whose policies are the copies beside it."""
    document = yaml.safe_load(text) or {}
    return yaml.safe_dump({**document, "policies": {each.kind: each.reference for each in files}}, sort_keys=False)


def place(files: Sequence[Trusted], folder: Path) -> None:
    """Write the copies below a folder of this user."""
    for each in files:
        path = folder / FOLDER / each.kind / each.file
        path.parent.mkdir(parents=True, mode=0o700)
        write_whole(path, each.text)


def same(topology: Topology, other: Topology) -> bool:
    """Return whether the policies of two labs are the same classes with the same code."""
    return {each.kind: each for each in read(topology)} == {each.kind: each for each in read(other)}
