"""A verdict, and its lines: each from an expectation or from the evidence of a failure."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field

from mrclab.lab.processes.process import ProcessExit
from mrclab.results.analysis import Recovery


@dataclass(frozen=True)
class Check:
    """One line of the verdict.

    `timed`: it concerns times and rates, which count when the machine kept up; the others must hold on any machine.
    """

    what: str
    expected: str
    measured: str
    passed: bool
    timed: bool = False


@dataclass(frozen=True)
class Verdict:
    """All checks; `valid`: the machine kept up with the run (a simulation always does).

    `deaths`: the processes of the lab that died meanwhile (`lab.death.ProcessExit`). `interrupted`: the signal that
    ended the run before its time. `payload`: that packets had only its length, if so.
    """

    checks: list[Check]
    recoveries: list[Recovery]
    valid: bool
    reasons: list[str]
    deaths: list[ProcessExit] = field(default_factory=list)
    interrupted: str = ""
    payload: str = ""

    @property
    def passed(self) -> bool:
        """Return whether every check holds."""
        return not self.missed

    @property
    def missed(self) -> list[Check]:
        """The checks that do not hold."""
        return [check for check in self.checks if not check.passed]

    @property
    def holds(self) -> bool:
        """Return whether every check holds that must hold however slow the machine was."""
        return all(check.passed for check in self.checks if not check.timed)

    @property
    def status(self) -> str:
        """In one word: passed, failed or interrupted."""
        return "interrupted" if self.interrupted else "passed" if self.passed else "failed"

    @property
    def timing_only(self) -> bool:
        """Return whether nothing was missed but times and rates, on a machine that did not keep up: they say
        nothing."""
        return not self.interrupted and not self.passed and self.holds and not self.valid

    @property
    def outcome(self) -> str:
        """For people: the status, or that the run passed and its times are not valid."""
        return "passed; timing not valid" if self.timing_only else self.status

    def document(self) -> dict[str, object]:
        """Return the verdict as plain values for JSON."""
        return {
            "status": self.status,
            "passed": self.passed,
            "holds": self.holds,
            "valid": self.valid,
            **({"payload": self.payload} if self.payload else {}),
            "reasons": self.reasons,
            "deaths": [asdict(each) for each in self.deaths],
            "checks": [asdict(check) for check in self.checks],
            "recoveries": [asdict(each) for each in self.recoveries],
        }
