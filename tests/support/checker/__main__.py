"""Explore every order of events of two endpoints: `PYTHONPATH=tests python -m support.checker --minutes M`.

Without `--messages` or `--scenario` the scenarios of `suite.py` are explored with ever more faults. A counterexample is
printed as a list of events and written to a file, which `--replay FILE` runs again; `--planted` looks for the bugs of
`planted.py`. Exit status: 0, 1 when something was found (or a planted bug was not), 2 for wrong usage.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from mrc_host import native
from support.checker.planted import PLANTED, by_name, find
from support.checker.replay import Counterexample, counterexample, replay
from support.checker.scenario import KINDS, MRC, ROCE, FaultKind, Scenario
from support.checker.search import Result
from support.checker.suite import SUITE, explore_all


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m support.checker", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=1.0, help="CPU time of all explorations together")
    parser.add_argument("--transport", choices=(MRC, ROCE), default=MRC)
    parser.add_argument(
        "--messages", nargs="+", metavar="MESSAGE", help="packets of each, or b and bytes; i: with immediate. 3 1i b10"
    )
    parser.add_argument("--faults", type=int, default=3, help="most faults in one run")
    parser.add_argument("--kinds", nargs="+", choices=[each.value for each in FaultKind], help="of faults")
    parser.add_argument("--scenario", help="fields of a scenario as JSON, see scenario.py")
    parser.add_argument("--replay", type=Path, metavar="FILE", help="run a counterexample again")
    parser.add_argument("--planted", nargs="?", const="all", metavar="NAME", help="look for planted bugs, or one")
    parser.add_argument("--out", type=Path, default=Path("counterexamples"), help="where counterexamples are written")
    chosen = parser.parse_args()
    if chosen.minutes <= 0:
        parser.error(f"--minutes is {chosen.minutes}; it must be more than 0")
    if chosen.faults < 0:
        parser.error(f"--faults is {chosen.faults}; it must be 0 or more")
    return chosen


def _scenarios(chosen: argparse.Namespace) -> tuple[Scenario, ...]:
    """Return what to explore. Raises ValueError for a wrong scenario."""
    if chosen.messages is None and chosen.scenario is None:
        if chosen.kinds:
            raise ValueError("--kinds needs --messages or --scenario: the scenarios of the suite have their own")
        return SUITE[chosen.transport]
    fields = {"transport": chosen.transport, "kinds": [each.value for each in KINDS[chosen.transport]]}
    fields |= json.loads(chosen.scenario) if chosen.scenario else {}
    if chosen.messages is not None:
        fields["messages"] = chosen.messages
    if chosen.kinds:
        fields["kinds"] = chosen.kinds
    return (Scenario.from_dict(fields),)


def _replay(path: Path) -> int:
    found = Counterexample.read(path)
    run = replay(found.scenario, found.steps)
    print(found.scenario)
    print("\n".join(run.lines()))
    print(run.problem or f"nothing went wrong; it was: {found.problem}")
    return int(run.problem is not None)


def _planted(name: str) -> int:
    missed = 0
    for bug in PLANTED if name == "all" else (by_name(name),):
        found = find(bug)
        if found.problem is None:
            missed += 1
            print(f"NOT FOUND {bug.name}: {found.states} states, {found.seconds:.1f} s", flush=True)
            continue
        print(f"{bug.name}: {len(found.lines)} events, {found.states} states, {found.seconds:.1f} s: {found.problem}",
              flush=True)  # fmt: skip
        if name != "all":
            print("\n".join(found.lines))
    return int(missed > 0)


class _Report:
    """Prints each result, and writes counterexamples."""

    def __init__(self, out: Path) -> None:
        self.out = out
        self.found = 0

    def __call__(self, result: Result) -> None:
        print(f"{result.scenario.faults} faults, {result.scenario}\n  {result}", flush=True)
        if result.problem is None:
            return
        self.found += 1
        shortest = counterexample(result)
        path = self.out / f"{shortest.scenario.transport}-{self.found}.json"
        shortest.write(path)
        print("\n".join(replay(shortest.scenario, shortest.steps).lines()))
        print(f"  run it again: python -m support.checker --replay {path}", flush=True)


def main() -> int:
    """See the module's docstring."""
    chosen = _arguments()
    try:
        if chosen.replay is not None:
            return _replay(chosen.replay)
        if chosen.planted is not None:
            return _planted(chosen.planted)
        scenarios = _scenarios(chosen)
    except (ValueError, OSError) as error:
        print(f"support.checker: {error}", file=sys.stderr)
        return 2
    report = _Report(chosen.out)
    results = explore_all(scenarios, chosen.faults, 60 * chosen.minutes, report)
    states, transitions = sum(each.states for each in results), sum(each.transitions for each in results)
    seconds = sum(each.seconds for each in results)
    print(
        f"{'compiled' if native.COMPILED else 'pure'} {chosen.transport}: {states} states, {transitions} transitions, "
        f"depth {max((each.depth for each in results), default=0)}, {seconds:.0f} s of CPU, "
        f"{states / max(seconds, 1e-9):.0f} states/s, {report.found} counterexamples"
    )
    return int(report.found > 0)


if __name__ == "__main__":
    sys.exit(main())
