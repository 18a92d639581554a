"""A user's own localiser: loaded from its file, and supervised."""

from __future__ import annotations

import traceback
from typing import Any

from mrc_host.policy import PolicyError, load_class, supplier
from mrc_host.proto.limits import ConfigError
from mrc_topo.topology import Topology, UnknownElement
from mrclab.lab.management.clustermapper import WORDS, Clustermapper, Finding, Localiser, Views


def load(reference: str | None) -> Localiser:
    """Load the localiser that `FILE.py:Class` names; None selects the built-in one.

    Raises:
        ConfigError: there is no such class, or it has no `locate`.
    """
    if reference is None:
        return Clustermapper()
    file = reference.rpartition(":")[0]
    elsewhere = supplier()
    if elsewhere is not None:
        return CheckedLocaliser(elsewhere(reference, "localiser")(), file)
    cls = load_class(reference)
    if not callable(getattr(cls, "locate", None)):
        raise ConfigError(
            f"{file}: class {cls.__name__} is not a localiser: it must have locate(self, topology, views)"
        )
    try:
        return CheckedLocaliser(cls(), file)
    except (Exception, SystemExit) as error:
        raise ConfigError(f"{file}: class {cls.__name__} cannot be made without arguments: {error}") from error


class CheckedLocaliser:
    """A localiser whose errors and invalid results become a `PolicyError`."""

    def __init__(self, inner: Any, file: str) -> None:
        self.inner = inner
        self.file = file
        method = type(inner).locate
        self._where = f"{type(inner).__name__}.locate"
        self._line: int = getattr(getattr(method, "__code__", None), "co_firstlineno", 1)

    def locate(self, topology: Topology, views: Views) -> list[Finding]:
        """See `Localiser`."""
        try:
            found = self.inner.locate(topology, views)
        except (Exception, SystemExit) as error:
            frames = [each for each in traceback.extract_tb(error.__traceback__) if each.filename == self.file]
            line = (frames[-1].lineno if frames else None) or self._line
            raise self._error(f"{type(error).__name__}: {error}", line) from error
        if not isinstance(found, list):
            raise self._error(f"returned {found!r}, not a list of findings", self._line)
        for finding in found:
            self._check(topology, finding)
        return found

    def _check(self, topology: Topology, finding: object) -> None:
        if not isinstance(finding, Finding):
            raise self._error(f"returned {finding!r} among the findings, not a Finding", self._line)
        if finding.state not in WORDS.values():
            known = " or ".join(WORDS.values())
            raise self._error(f"says that {finding.element} is {finding.state!r}, not {known}", self._line)
        try:
            topology.element(finding.element)
        except UnknownElement as error:
            raise self._error(f"named {finding.element!r}: {error}", self._line) from error

    def _error(self, text: str, line: int) -> PolicyError:
        return PolicyError(f"{self.file}:{line}: {self._where}: {text}")
