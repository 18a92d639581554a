"""Counts p4c's STF tests on BMv2 itself, with the JSON of p4lite: passed, failed, unsupported.

    PYTHONPATH=tests python tests/p4/conformance_bmv2.py P4C_CHECKOUT --switch PATH [--only TEXT] [--markdown]

PATH is BMv2's simple_switch, which runs the tests for v1model, or psa_switch, which runs those for PSA. Each test has a
switch of its own, whose packets and control plane are those of `support.p4.reference_switch`. Exit code 0 when nothing
failed.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from conformance_stf import Outcome, find_tests, report

from p4lite.compiler import compile_program
from p4lite.compiler.diagnostics import CompileError
from p4lite.switch.stf.engine import run_on
from p4lite.switch.stf.parse import StfError, parse_stf
from support.p4.reference_switch import PSA, QUIET_S, ReferenceSwitch, SwitchFailed
from support.p4.thrift import CallRefused


def run_test(group: str, program: Path, test: Path, switch: str) -> Outcome:
    """Run one test on a switch of its own."""
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


def main(argv: list[str] | None = None) -> int:
    """Run the tests and print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("directory", type=Path, metavar="P4C_CHECKOUT")
    parser.add_argument("--switch", required=True, metavar="PATH", help="simple_switch or psa_switch")
    parser.add_argument("--only", default="", metavar="TEXT", help="tests whose name contains TEXT")
    parser.add_argument("--markdown", action="store_true", help="rows for docs/conformance.md")
    arguments = parser.parse_args(argv)
    psa = Path(arguments.switch).name == PSA
    tests = [
        (group, program, test)
        for group, program, test in find_tests(arguments.directory)
        if arguments.only in test.stem and (group == "psa") == psa
    ]
    if not tests:
        print(f"{arguments.directory}: no STF tests of p4c here", file=sys.stderr)
        return 2
    outcomes = [run_test(*test, arguments.switch) for test in tests]
    report(outcomes, arguments.markdown)
    return int(any(item.outcome == "failed" for item in outcomes))


if __name__ == "__main__":
    sys.exit(main())
