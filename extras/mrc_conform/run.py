"""Running cases against a device, one after the other, and what came out."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum

from mrc_conform.case import Basis, Case
from mrc_conform.device import Device, DeviceError
from mrc_conform.script import Line, Mismatch, Script


class Verdict(Enum):
    """The outcome of a case. DIFFERENT: another's device does not follow a rule that is only our reading of the
    specification."""

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


def run_case(case: Case, device: Device, seed: int) -> CaseResult:
    """Run one case; `seed` chooses the device's random numbers where it has a seed."""
    began = time.perf_counter()
    missing = case.needs - device.offers
    if missing:
        text = f"{device.name} does not offer: {', '.join(sorted(need.value for need in missing))}"
        return CaseResult(case, Verdict.SKIPPED, text, 0.0)
    script: Script | None = None
    verdict, text = Verdict.PASSED, ""
    try:
        device.start(case.settings, seed)
        script = Script(device, case.settings)
        if case.connected:
            script.connect()
        case.script(script)
    except Mismatch as error:
        verdict = Verdict.DIFFERENT if case.basis is Basis.OURS and not device.ours else Verdict.FAILED
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
    cases: Sequence[Case], device: Device, seed: int, report: Callable[[CaseResult], None] = lambda _: None
) -> Conformance:
    """Run cases in order; `report` is called after each."""
    began = time.perf_counter()
    results = []
    for case in cases:
        result = run_case(case, device, seed)
        report(result)
        results.append(result)
    return Conformance(device.name, seed, tuple(results), time.perf_counter() - began)
