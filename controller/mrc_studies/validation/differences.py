"""Where backends differ, by how much, and why: every difference above the bound has a cause or is unexplained."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from mrc_studies.cells.intervals import interval
from mrc_studies.validation.causes import CAUSES
from mrc_studies.validation.htsim import PACKET_BYTES
from mrc_studies.validation.outcome import Outcome
from mrc_studies.validation.scenario import MTU, OF_PACKETS, RELATIVE, Backend, Quantity

#: Relative difference, and difference of shares of packets in percentage points, from which on a cause is asked for.
RELATIVE_BOUND, POINTS_BOUND = 0.05, 1.0
#: Of what a link carries, the payload of htsim's packets.
HTSIM_SHARE = MTU / PACKET_BYTES
#: Which payload rate is proportional to, and what is proportional to its inverse.
_RATES, _TIMES = frozenset({Quantity.GOODPUT}), frozenset({Quantity.P50, Quantity.P99})


@dataclass(frozen=True)
class Value:
    """A quantity of a scenario by a backend: mean over seeds, half of its 95 % confidence interval, number of seeds."""

    scenario: str
    backend: Backend
    quantity: Quantity
    mean: float
    half: float | None
    seeds: int


@dataclass(frozen=True)
class Difference:
    """What another backend says beside packets. `off`: relative, or in percentage points for shares of packets.

    `cause` is empty where the difference is within the bound, or where no cause is known (`unexplained`).
    """

    scenario: str
    backend: Backend
    quantity: Quantity
    packets: float
    other: float
    off: float
    bound: float
    cause: str

    @property
    def beyond(self) -> bool:
        """Return whether a cause is asked for."""
        return abs(self.off) > self.bound

    @property
    def unexplained(self) -> bool:
        """Return whether a cause is asked for and none is known."""
        return self.beyond and not self.cause


def values(outcomes: Iterable[Outcome]) -> list[Value]:
    """Return means over seeds, in the order of the outcomes."""
    groups: dict[tuple[str, Backend, Quantity], list[float]] = {}
    for outcome in outcomes:
        for quantity, value in outcome.values.items():
            groups.setdefault((outcome.scenario, outcome.backend, quantity), []).append(value)
    made = []
    for (scenario, backend, quantity), found in groups.items():
        mean, half = interval(found)
        made.append(Value(scenario, backend, quantity, mean or 0.0, half, len(found)))
    return made


def differences(found: Sequence[Value], payload_shares: dict[str, float]) -> list[Difference]:
    """Return every other backend beside packets.

    Args:
        payload_shares: of what a link carries in the packets of each scenario.
    """
    packets = {(each.scenario, each.quantity): each.mean for each in found if each.backend is Backend.PACKETS}
    made = []
    for each in found:
        mine = packets.get((each.scenario, each.quantity))
        if each.backend is Backend.PACKETS or mine is None:
            continue
        if each.backend is Backend.FLUID and each.quantity in OF_PACKETS:
            continue
        relative = each.quantity in RELATIVE
        off = (each.mean - mine) / mine if relative else each.mean - mine
        bound = RELATIVE_BOUND if relative else POINTS_BOUND
        cause = ""
        if abs(off) > bound:
            cause = _headers(each, mine, payload_shares[each.scenario]) or _known(each)
        made.append(Difference(each.scenario, each.backend, each.quantity, mine, each.mean, off, bound, cause))
    return made


def _headers(each: Value, mine: float, share: float) -> str:
    """Return the cause where headers and SACKs alone bring htsim's packets within the bound; htsim's are smaller."""
    if each.backend is not Backend.HTSIM or each.quantity not in _RATES | _TIMES:
        return ""
    ratio = HTSIM_SHARE / share
    corrected = mine * ratio if each.quantity in _RATES else mine / ratio
    off = (each.mean - corrected) / corrected
    if abs(off) > RELATIVE_BOUND:
        return ""
    return (
        f"headers: MRC's packets with SRv6, and SACKs on the way back, leave {share:.1%} of a link for payload, "
        f"htsim's {HTSIM_SHARE:.1%}; corrected for that it is {off:+.1%}"
    )


def _known(each: Value) -> str:
    """Return the cause that is listed."""
    return next(
        (
            cause.text
            for cause in CAUSES
            if cause.backend is each.backend and each.scenario in cause.scenarios and each.quantity in cause.quantities
        ),
        "",
    )
