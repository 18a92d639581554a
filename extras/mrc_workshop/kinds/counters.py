"""Checks of what hosts and switches counted over a run, and of a job's end with every byte right."""

from __future__ import annotations

from collections.abc import Sequence

from mrc_topo.base.document import Model
from mrc_workshop.job import Run
from mrc_workshop.kinds.registry import Finding, NoParams, kind
from mrclab.results.counted import TOTALS

#: The meanings of names, for messages; other names are counters of `mrc_host.proto.stats` or of the P4 program.
MEANS = {
    "timeouts": "packets that nothing was heard of for an ACK timeout",
    "trims": "trimmed packets that hosts received",
    "marks": "packets that hosts received with CE",
    "nacks": "NACKs that hosts sent",
    "losses": "packets that hosts took for lost",
    "inferred": "packets taken for lost without a NACK that said so",
    "qp_errors": "queue pairs that went to ERROR",
    "wrong_bytes": "values that were not what was sent",
    "spurious": "retransmissions of packets that had arrived",
}


class Counters(Model):
    """`least`, `most`: bounds by counter, over all hosts of a run: those of `MEANS`, or a counter by its own name;
    `hint`: what a missed bound means."""

    least: dict[str, int] = {}
    most: dict[str, int] = {}
    hint: dict[str, str] = {}


def totals(run: Run) -> dict[str, dict[str, int]]:
    """Return totals by counter and host; those of the P4 program's counters are under the host `switches`."""
    found: dict[str, dict[str, int]] = {}

    def add(name: str, host: str, value: int) -> None:
        of = found.setdefault(name, {})
        of[host] = of.get(host, 0) + int(value)

    for host, counted in run.result.counted.items():
        for name, value in counted.items():
            half, _, plain = name.rpartition(".")
            if not half or plain not in TOTALS:
                add(plain, host, value)
        add("nacks", host, counted.get("responder.nacks_sent", 0))
        add("spurious", host, counted["spurious_retransmissions"])
        guessed = ("lost_rack", "lost_same_ev", "lost_timeout")
        add("inferred", host, sum(counted.get(f"requestor.{each}", 0) for each in guessed))
    for host, progress in run.result.progress.items():
        add("qp_errors", host, progress.qps - progress.qps_in_rts)
        add("wrong_bytes", host, progress.mismatches)
    for name, value in (run.result.program_counters or {}).items():
        add(name, "switches", value)
    return found


@kind(Counters)
def counters(params: Counters, runs: Sequence[Run]) -> Finding:
    """Counters of hosts and switches are within bounds: timeouts, trims, marks, nacks, inferred, qp_errors and more."""
    measured: dict[str, list[int]] = {}
    failed: Finding | None = None
    for run in runs:
        found = totals(run)
        for name, low, high in _bounds(params):
            hosts = found.get(name, {})
            total = sum(hosts.values())
            measured.setdefault(name, []).append(total)
            if failed is not None or ((low is None or total >= low) and (high is None or total <= high)):
                continue
            bound = f"at least {low}" if low is not None and total < low else f"at most {high}"
            text = params.hint.get(name, "")
            mistake = f"{total} {name} ({MEANS.get(name, 'a counter')}), must be {bound}"
            evidence = [f"{host}: {value} {name}" for host, value in sorted(hosts.items()) if value]
            failed = Finding(False, "", f"{mistake}: {text}" if text else mistake, tuple(evidence), run=run)
    shown = ", ".join(f"{name} {_span(values)}" for name, values in measured.items())
    if failed is None:
        return Finding(True, shown)
    return Finding(False, shown, failed.mistake, failed.evidence, run=failed.run)


def _bounds(params: Counters) -> list[tuple[str, int | None, int | None]]:
    return [
        (name, params.least.get(name), params.most.get(name)) for name in dict.fromkeys([*params.least, *params.most])
    ]


def _span(values: Sequence[int]) -> str:
    low, high = min(values), max(values)
    return str(low) if low == high else f"{low} to {high}"


@kind(NoParams)
def finished(params: NoParams, runs: Sequence[Run]) -> Finding:
    """Every rank of the workload came to its end, and every byte is what was sent."""
    bytes_right = 0
    for done, run in enumerate(runs):
        result = run.result
        failures, progress = result.failures, result.progress
        late = [host for host, each in progress.items() if not each.done]
        wrong = result.achieved().mismatches
        if failures or late or wrong:
            mistake = failures[0] if failures else f"{', '.join(late)} did not come to an end"
            if wrong and not failures:
                mistake = f"{wrong} values are not what was sent"
            waits = [f"{host} waits for {each.what}" for host, each in result.waiting.items()][:3]
            return Finding(False, f"{done} runs of {len(runs)}", mistake, (*failures[1:4], *waits), run=run)
        bytes_right += result.achieved().bytes_verified
    return Finding(True, f"{bytes_right / 1e6:.1f} MB right")
