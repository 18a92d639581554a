"""How many mutants of our endpoint the conformance kit finds: `python -m support.conform.sensitivity [TABLE] [-j N]`.

Each mutant breaks one rule. It is *named* when one of the cases of that rule fails, *found* when only others do. A
mutant without cases is one of an author who has not seen any, and those that cannot be seen on the wire do not count.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import os
import pathlib
import subprocess
import sys
from typing import Final, NamedTuple

from support.conform.mutant import Mutant, table

ROOT: Final = pathlib.Path(__file__).resolve().parents[3]
#: Share of mutants whose rule must be named.
FLOOR: Final = 0.95
#: Share of the mutants of an author without cases that must be found.
FLOOR_OF_AUTHORS: Final = 0.7


class Found(NamedTuple):
    """What the kit says of one mutant: the cases that do not pass."""

    mutant: Mutant
    failed: list[str]
    ended: str

    @property
    def named(self) -> bool:
        """Whether a case of the broken rule is among them."""
        return bool(set(self.failed) & set(self.mutant.cases))


def run(file: str, mutant: Mutant, *cases: str) -> Found:
    """Run the kit (only `cases` if there are any) against a mutant in a process of its own."""
    environment = {**os.environ, "MRCLAB_PURE": "1", "PYTHONPATH": str(ROOT / "tests")}
    command = [sys.executable, "-m", "support.conform.mutant", file, mutant.name, *cases]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    ended = "" if done.returncode == 0 else done.stderr[-2000:] or f"exit code {done.returncode}"
    return Found(mutant, done.stdout.split(), ended)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("table", nargs="?", default="mutants.yaml")
    parser.add_argument("-j", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--only", help="mutants whose names begin so")
    options = parser.parse_args()
    mutants = [each for each in table(options.table) if each.wire and each.name.startswith(options.only or "")]
    floor = FLOOR if all(mutant.cases for mutant in mutants) else FLOOR_OF_AUTHORS
    with concurrent.futures.ThreadPoolExecutor(options.j) as pool:
        results = list(pool.map(lambda each: run(options.table, each), mutants))
    for found in results:
        verdict = "named" if found.named else "found" if found.failed or found.ended else "SURVIVES"
        first = ", ".join(found.failed[:4])
        print(f"{verdict:9} {found.mutant.name:36} {len(found.failed):3} cases: {first} {found.ended}")
    named = sum(found.named for found in results)
    found_number = sum(bool(found.failed or found.ended) for found in results)
    print(f"{named} of {len(results)} named, {found_number} found")
    seen = named if floor == FLOOR else found_number
    sys.exit(seen < floor * len(results))


if __name__ == "__main__":
    main()
