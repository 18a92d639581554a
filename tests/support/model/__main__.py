"""Run many scenarios: `PYTHONPATH=tests python -m support.model --cpu-hours H --transport mrc|roce|both --seed S`.

Each failure is printed with its seed, made small, and written to a file that `--replay FILE` runs again;
`--replay SEED` runs one seed. Exit status: 0, 1 when something failed, 2 for wrong usage.
"""

from __future__ import annotations

import argparse
import collections
import pathlib
import sys
import time

from mrc_host import native
from support.model.judge import Outcome, run
from support.model.scenario import MRC, ROCE, Scenario, draw
from support.model.shrink import shrink
from support.model.world import skippable


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m support.model", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--cpu-hours", type=float, default=0.01, help="CPU time of all runs together")
    parser.add_argument("--transport", choices=(MRC, ROCE, "both"), default="both")
    parser.add_argument("--seed", type=int, default=1, help="the first seed; the others follow")
    parser.add_argument("--replay", metavar="SEED|FILE", help="run one seed, or the scenario of a file")
    parser.add_argument("--skip-known", default="", metavar="LIST", help="classes of failures, or items, not to report")
    parser.add_argument(
        "--out", type=pathlib.Path, default=pathlib.Path("model-failures"), help="where files are written"
    )
    parser.add_argument("--shrink-seconds", type=float, default=30.0, help="CPU time to make one failure small")
    parser.add_argument("--quick", action="store_true", help="small scenarios only")
    parser.add_argument("--stop", action="store_true", help="end with the first failure")
    chosen = parser.parse_args()
    if chosen.cpu_hours <= 0:
        parser.error(f"--cpu-hours is {chosen.cpu_hours}; it must be more than 0")
    return chosen


def _describe(scenario: Scenario) -> str:
    lines = [str(scenario.setup)]
    lines += [f"  {op}" for op in scenario.ops]
    lines += [f"  {fault}" for fault in scenario.faults]
    return "\n".join(lines)


def _replay(chosen: argparse.Namespace) -> int:
    skip = skippable(chosen.skip_known)
    path = pathlib.Path(chosen.replay)
    if path.suffix == ".json" or path.exists():
        scenarios = [Scenario.from_json(path.read_text())]
    elif chosen.replay.isdigit():
        kinds = (MRC, ROCE) if chosen.transport == "both" else (chosen.transport,)
        scenarios = [draw(int(chosen.replay), kind, quick=chosen.quick) for kind in kinds]
    else:
        print(f"--replay {chosen.replay}: neither a seed nor a file", file=sys.stderr)
        return 2
    bad = False
    for scenario in scenarios:
        outcome = run(scenario, skip=skip)
        bad |= outcome.bad
        print(_describe(scenario))
        print(f"{scenario.setup.transport}: {outcome.kind} {outcome.text} skipped {outcome.skipped}")
    return int(bad)


def _report(chosen: argparse.Namespace, scenario: Scenario, outcome: Outcome, name: str) -> None:
    """Print a failure, make it small, write it to a file."""
    skip = skippable(chosen.skip_known)
    print(f"FAILED {name}: {outcome.kind}: {outcome.text}", flush=True)
    small = shrink(
        scenario, lambda tried: run(tried, skip=skip, limit=300_000).kind == outcome.kind, chosen.shrink_seconds
    )
    again = run(small, skip=skip)
    chosen.out.mkdir(parents=True, exist_ok=True)
    path = chosen.out / f"{name}-{outcome.kind}.json"
    path.write_text(small.to_json())
    print(f"  smallest: {len(small.ops)} operations, {len(small.faults)} faults: {again.text.strip()}")
    print(f"  run it again: python -m support.model --replay {path}", flush=True)


def main() -> int:
    """See the module's docstring."""
    chosen = _arguments()
    if chosen.replay is not None:
        return _replay(chosen)
    skip = skippable(chosen.skip_known)
    end = time.process_time() + chosen.cpu_hours * 3600
    told = time.process_time()
    seed, failures = chosen.seed, 0
    outcomes: collections.Counter[str] = collections.Counter()
    writes = succeeded = packets = 0
    way = "compiled" if native.COMPILED else "pure"
    while time.process_time() < end:
        for transport in (MRC, ROCE) if chosen.transport == "both" else (chosen.transport,):
            scenario = draw(seed, transport, quick=chosen.quick)
            outcome = run(scenario, skip=skip)
            outcomes[outcome.kind] += 1
            for kind in set(outcome.skipped):
                outcomes[f"skipped {kind}"] += 1
            writes, succeeded = writes + outcome.writes, succeeded + outcome.succeeded
            packets += outcome.packets
            if outcome.bad:
                failures += 1
                _report(chosen, scenario, outcome, f"{transport}-{seed}")
                if chosen.stop:
                    end = 0
        seed += 1
        if time.process_time() - told > 60 or time.process_time() >= end:
            told = time.process_time()
            print(f"{way} {chosen.transport}: seeds {chosen.seed}..{seed - 1}, {told:.0f} s of CPU, {packets} packets, "
                  f"{succeeded} of {writes} writes succeeded, {dict(outcomes)}", flush=True)  # fmt: skip
    return int(failures > 0)


if __name__ == "__main__":
    sys.exit(main())
