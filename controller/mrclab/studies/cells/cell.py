"""A cell: one run in simulated time, on a lab of its own."""

from __future__ import annotations

import hashlib
import json
import pathlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from mrc_topo.base.document import Model
from mrc_topo.schema import Lab
from mrc_topo.shipped import shipped
from mrclab.results.provenance import policy_digests
from mrclab.runs.experiment import Experiment, Tree

M = TypeVar("M", bound=Model)


@dataclass(frozen=True)
class Cell:
    """One run in simulated time.

    Args:
        name: unique in its figure.
        experiment: its schedule states the evidence of what it breaks; the lab that it names does not count.
        impair: settings of the failure `impair` on all links between switches, from before the run to its end.
        lost: packets that these links must lose, at least: the evidence of `impair`.
        cost: seconds of one core that it takes, roughly.
        may_fail: its workload may fail; that is then what is judged.
        watch: hosts, whose goodput, and switches' ports, whose load is kept by itself.
        watch_evs: a host of which the active set of EVs and each change of an EV's state are kept over time.
        policies: `FILE.py:Class` of the published policies (`policy_folder`), by kind of `Lab.policies`.
        broken: False runs it without any failure, and judges it as if there were one.
    """

    name: str
    lab: Lab
    experiment: Experiment
    impair: Mapping[str, float] = field(default_factory=dict)
    lost: int = 0
    cost: float = 10.0
    may_fail: bool = False
    watch: Sequence[str] = ()
    watch_evs: str = ""
    policies: Mapping[str, str] = field(default_factory=dict)
    broken: bool = True

    def digest(self, software: str) -> str:
        """Return the digest of all that its result depends on; `software` stands for the programs."""
        documents = [each.model_dump(mode="json") for each in (self.lab, self.experiment)]
        parts = [self.name, *documents, dict(self.impair), self.lost, self.broken, list(self.watch), self.watch_evs]
        # The documents only name policies.
        parts += [policy_digests(self.lab), {text: _digest_of(text) for text in self.policies.values()}]
        parts += [dict(self.policies), software]
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:24]

    def seeded(self, seed: int) -> Cell:
        """Return the same with the seed from which its lab draws all that is random."""
        return replace(self, lab=changed(self.lab, seed=seed))

    def healthy(self) -> Cell:
        """Return the same without its failures."""
        return replace(self, broken=False)

    def with_workload(self, **changes: object) -> Cell:
        """Return the same with other values of keys of the workload."""
        return replace(self, experiment=changed(self.experiment, workload=changed(self.experiment.workload, **changes)))

    def with_params(self, **changes: object) -> Cell:
        """Return the same with other parameters of the workload."""
        return self.with_workload(params={**self.experiment.workload.params, **changes})


def policy_folder() -> pathlib.Path:
    """Return the folder of the published policies."""
    return shipped("experiments") / "sweeps" / "policies"


def _digest_of(policy: str) -> str:
    """Return the digest of the file of a policy, `FILE.py:Class`."""
    return hashlib.sha256((policy_folder() / policy.rpartition(":")[0]).read_bytes()).hexdigest()


def changed(made: M, **changes: object) -> M:
    """Return a document with other values of some keys, checked as the whole.

    Raises:
        ValidationError: a value is none that its key may have.
    """
    return type(made).model_validate({**made.model_dump(mode="json", exclude_unset=True), **changes})


def experiment(workload: Tree, schedule: Sequence[object] = (), **more: object) -> Experiment:
    """Return a cell's experiment from its parts, as an experiment file has them."""
    given = {"name": "figure", "title": "figure", "workload": workload, "schedule": list(schedule), **more}
    return Experiment.model_validate(given)
