"""One line of a verdict, from an expectation or from the evidence of a failure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Check:
    """One line of the verdict. `timed`: a matter of times and rates, which count when the machine kept up; the others
    must hold on any machine."""

    what: str
    expected: str
    measured: str
    passed: bool
    timed: bool = False
