"""The checks that a run makes of itself: what its `expect` and the evidence of its schedule say."""

from __future__ import annotations

from collections.abc import Sequence

from mrc_topo.base.document import Model
from mrc_workshop.job import Run
from mrc_workshop.kinds.registry import Finding, kind


class VerdictParams(Model):
    """`hint`: the meaning of a failed check, by a word in its name."""

    hint: dict[str, str] = {}


@kind(VerdictParams)
def verdict(params: VerdictParams, runs: Sequence[Run]) -> Finding:
    """Everything holds that a run expects of itself: evidence of failures, settled goodput, recovery, queue pairs."""
    count = 0
    for run in runs:
        checks = run.facts.checks
        count += len(checks)
        failed = next((each for each in checks if not each.passed), None)
        if failed is None and checks:
            continue
        if failed is None:
            return Finding(False, "no checks", "the run left no verdict", run=run)
        text = f"{failed.what}: expected {failed.expected}, measured {failed.measured}"
        why = next((says for word, says in params.hint.items() if word in failed.what), "")
        evidence = [f"{each.what}: {each.measured}" for each in checks if not each.passed][1:4]
        return Finding(False, failed.measured[:80], f"{text}: {why}" if why else text, tuple(evidence), run=run)
    return Finding(True, f"{count} checks hold")
