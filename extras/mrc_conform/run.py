"""Running cases against a device, one after the other, and what came out."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum

from mrc_conform.case import Basis, Case
from mrc_conform.device import Device, DeviceError
from mrc_conform.profile import Profile
from mrc_conform.script import Line, Mismatch, Script


class Verdict(Enum):
    """The outcome of a case. DIFFERENT: the device does not follow a rule that it does not claim to follow; without a
    profile these are the rules that are only our reading of the specification."""

    PASSED = "passed"
    FAILED = "failed"
    DIFFERENT = "different"
    SKIPPED = "skipped"
    ERROR = "error"


@dataclass(frozen=True)
class CaseResult:
    """One case: its verdict, why, how long it took (s), and its packets."""

    case: Case
    verdict: Verdict
    text: str
    seconds: float
    transcript: tuple[Line, ...] = ()

    @property
    def wrong(self) -> bool:
        """Whether a reader must look at it: it did not pass, and was not skipped."""
        return self.verdict not in (Verdict.PASSED, Verdict.SKIPPED)


@dataclass(frozen=True)
class Conformance:
    """A whole run."""

    device: str
    seed: int
    results: tuple[CaseResult, ...]
    seconds: float

    def count(self, verdict: Verdict) -> int:
        """Return how many cases ended so."""
        return sum(result.verdict is verdict for result in self.results)

    @property
    def passed(self) -> bool:
        """Whether no case failed and none could not be run; differences and skipped cases count for neither."""
        return not self.count(Verdict.FAILED) and not self.count(Verdict.ERROR)


def run_case(case: Case, device: Device, seed: int, profile: Profile | None = None) -> CaseResult:
    """Run one case; `seed` chooses the device's random numbers where it has a seed.

    `profile`: what the device claims. Without one, what it does not offer is skipped.
    """
    began = time.perf_counter()
    outside = profile.outside(case) if profile is not None else None
    if outside is not None:
        return CaseResult(case, Verdict.SKIPPED, outside, 0.0)
    missing = case.needs - device.offers
    if missing:
        text = f"{device.name} does not offer: {', '.join(sorted(need.value for need in missing))}"
        if profile is None:
            return CaseResult(case, Verdict.SKIPPED, text, 0.0)
        names = ", ".join(sorted(need.name for need in missing))
        return CaseResult(case, Verdict.ERROR, f"{text}; say why in the profile, under `cannot`: {names}", 0.0)
    claimed = profile.claims(case) if profile is not None else case.basis is not Basis.OURS
    script: Script | None = None
    verdict, text = Verdict.PASSED, ""
    try:
        device.start(case.settings, seed)
        script = Script(device, case.settings)
        if case.connected:
            script.connect()
        case.script(script)
        if profile is not None and case.name in profile.departs:
            verdict, text = Verdict.DIFFERENT, "it follows the rule, from which it departs by its profile"
    except Mismatch as error:
        verdict = Verdict.FAILED if claimed else Verdict.DIFFERENT
        text = str(error)
    except DeviceError as error:
        verdict, text = Verdict.ERROR, str(error)
    except MemoryError:  # of the machine, not of the device
        raise
    except Exception:  # noqa: BLE001 - one case must not end the run; the traceback is its result
        verdict, text = Verdict.ERROR, traceback.format_exc(limit=-3)
    transcript = tuple(script.transcript) if script is not None else ()
    return CaseResult(case, verdict, text, time.perf_counter() - began, transcript)


def run_cases(
    cases: Sequence[Case],
    device: Device,
    seed: int,
    report: Callable[[CaseResult], None] = lambda _: None,
    profile: Profile | None = None,
) -> Conformance:
    """Run cases in order; `report` is called after each."""
    began = time.perf_counter()
    results = []
    for case in cases:
        result = run_case(case, device, seed, profile)
        report(result)
        results.append(result)
    name = profile.device if profile is not None else device.name
    return Conformance(name, seed, tuple(results), time.perf_counter() - began)
