"""Counts p4c's STF tests for v1model and PSA: passed, failed, unsupported.

    python tests/p4/conformance_stf.py P4C_CHECKOUT [--jobs N] [--timeout S] [--only TEXT] [--json DIR] [--markdown]
    PYTHONPATH=tests python tests/p4/conformance_stf.py P4C_CHECKOUT --switch PATH [--only TEXT] [--markdown]

The tests are not part of this repository; P4C_CHECKOUT is a checkout of p4lang/p4c (or its
`testdata/p4_16_samples`). Every test runs in a process of its own. With `--json DIR`, programs are taken as BMv2 JSON
(DIR/NAME.json, such as p4c writes) instead of being compiled here, which tells the switch's failures from the
compiler's. With `--switch PATH`, BMv2's simple_switch or psa_switch runs the JSON of p4lite for the tests of its
architecture. Exit code 0 when nothing failed.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

SAMPLES = Path("testdata/p4_16_samples")
COMMAND = [sys.executable, "-c", "import sys; from p4lite.cli import main; sys.exit(main())", "stf"]
OUTCOMES = {0: "passed", 1: "failed", 2: "unsupported"}


@dataclass(frozen=True)
class Outcome:
    """One test: its group, what became of it, the first telling line, and how long it took."""

    group: str
    name: str
    outcome: str
    reason: str
    seconds: float


def find_tests(directory: Path) -> Iterator[tuple[str, Path, Path]]:
    """(group, program, test) of p4c's tests for v1model and, in the group psa, for PSA."""
    samples = directory / SAMPLES if (directory / SAMPLES).is_dir() else directory
    groups = {
        "samples": sorted(samples.glob("*-bmv2.stf")),
        "parser-inline": sorted((samples / "parser-inline").glob("*.stf")),
        "predication": sorted(samples.glob("predication_issue_*.stf")),
    }
    for group, tests in groups.items():
        for test in tests:
            program = test.with_suffix(".p4")
            text = program.read_text(encoding="utf-8", errors="replace")
            architecture = re.search(r"#\s*include\s*[<\"][^>\"]*(v1model|psa)\.p4[>\"]", text)
            if architecture:
                yield "psa" if architecture[1] == "psa" else group, program, test


def run_test(group: str, program: Path, test: Path, timeout: float) -> Outcome:
    """Run one test in its own process group, which is ended as a whole after `timeout` seconds."""
    start = time.monotonic()
    with subprocess.Popen(
        [*COMMAND, str(program), str(test)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    ) as process:
        try:
            output, _ = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            return Outcome(group, test.stem, "failed", f"not done in {timeout:.0f} s", timeout)
    seconds = time.monotonic() - start
    outcome = OUTCOMES.get(process.returncode, "failed")
    return Outcome(
        group, test.stem, outcome, "" if outcome == "passed" else reason_of(output, process.returncode), seconds
    )


def run_on_bmv2(group: str, program: Path, test: Path, switch: str) -> Outcome:
    """Run one test on a BMv2 switch of its own."""
    from p4lite.compiler import compile_program
    from p4lite.compiler.diagnostics import CompileError
    from p4lite_tools.stf.engine import run_on
    from p4lite_tools.stf.parse import StfError, parse_stf
    from support.p4.reference_switch import QUIET_S, ReferenceSwitch, SwitchFailed
    from support.p4.thrift import CallRefused

    outcome, reason = "passed", ""
    try:
        document = compile_program(program).bmv2
        statements = parse_stf(test.read_text(encoding="utf-8"), test.name)
        for quiet_s in (QUIET_S, 20 * QUIET_S):
            # On a busy machine the switch may send a packet later than expected.
            with ReferenceSwitch(switch, document, quiet_s=quiet_s) as bench:
                result = run_on(bench, statements, test.name)
            if result.passed:
                break
        else:
            outcome, reason = "failed", result.failures[0]
    except CompileError as error:
        outcome, reason = "unsupported", next(d.message for d in error.diagnostics if d.severity == "error")
    except (StfError, SwitchFailed, CallRefused) as error:
        outcome, reason = "failed", str(error)
    return Outcome(group, test.stem, outcome, reason, 0.0)


def reason_of(output: str, code: int) -> str:
    """Return the line of a run's output that tells most."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    if not lines:
        return f"exit code {code}"
    if any(line.startswith("Traceback") for line in lines):
        return "crash: " + lines[-1]
    telling = [line for line in lines if not line.startswith("FAIL ")]
    return (telling or lines)[0]


def main(argv: list[str] | None = None) -> int:
    """Run the tests and print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("directory", type=Path, metavar="P4C_CHECKOUT")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--timeout", type=float, default=60.0, metavar="SECONDS")
    parser.add_argument("--only", default="", metavar="TEXT", help="tests whose name contains TEXT")
    parser.add_argument("--json", type=Path, metavar="DIR", help="take DIR/NAME.json instead of compiling NAME.p4")
    parser.add_argument("--switch", metavar="PATH", help="run p4lite's JSON on this simple_switch or psa_switch")
    parser.add_argument("--markdown", action="store_true", help="rows for docs/conformance.md")
    arguments = parser.parse_args(argv)
    tests = [item for item in find_tests(arguments.directory) if arguments.only in item[2].stem]
    if arguments.json is not None:
        tests = [(group, arguments.json / f"{test.stem}.json", test) for group, _, test in tests]
    if not tests:
        print(f"{arguments.directory}: no STF tests of p4c here", file=sys.stderr)
        return 2
    if arguments.switch is not None:
        psa = Path(arguments.switch).name == "psa_switch"
        found = [run_on_bmv2(*item, arguments.switch) for item in tests if (item[0] == "psa") == psa]
        report(found, arguments.markdown)
        return int(any(item.outcome == "failed" for item in found))
    with ThreadPoolExecutor(arguments.jobs) as pool:
        runs = [pool.submit(run_test, *item, arguments.timeout) for item in tests]
        outcomes = [run.result() for run in runs]
    report(outcomes, arguments.markdown)
    return int(any(item.outcome == "failed" for item in outcomes))


def report(outcomes: list[Outcome], markdown: bool) -> None:
    """Count by group, then every test that did not pass with its reason."""
    kinds = ("passed", "failed", "unsupported")
    print("| group | tests | passed | failed | unsupported |\n|---|---|---|---|---|" if markdown else "")
    groups = [*dict.fromkeys(item.group for item in outcomes), "total"]
    for group in groups:
        chosen = [item for item in outcomes if group in ("total", item.group)]
        counts = Counter(item.outcome for item in chosen)
        cells = [group, str(len(chosen)), *(str(counts[kind]) for kind in kinds)]
        print(
            f"| {' | '.join(cells)} |"
            if markdown
            else "{:14} {:>5} tests {:>5} passed {:>5} failed {:>5} unsupported".format(*cells)
        )
    rest = [item for item in outcomes if item.outcome != "passed"]
    if rest:
        print("\n| test | outcome | reason |\n|---|---|---|" if markdown else "")
    for item in sorted(rest, key=lambda item: (item.outcome, item.name)):
        if markdown:
            reason = item.reason.replace("|", "\\|")
            print(f"| {item.name} | {item.outcome} | {reason} |")
        else:
            print(f"{item.outcome:12} {item.name}: {item.reason}")


if __name__ == "__main__":
    sys.exit(main())
