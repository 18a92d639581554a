"""Differences between backends, and their causes: every difference above the bound has a cause or is unexplained."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from pydantic import computed_field
from pydantic.dataclasses import dataclass

from mrc_fluid.validation.causes import CAUSES
from mrc_fluid.validation.htsim import PACKET_BYTES
from mrc_fluid.validation.outcome import ScenarioOutcome, interval_of
from mrc_fluid.validation.scenario import MTU, OF_PACKETS, RELATIVE, Backend, Quantity

#: Relative difference, and difference of shares of packets in percentage points, from which on a cause is asked for.
RELATIVE_BOUND, POINTS_BOUND = 0.05, 1.0
#: Of what a link carries, the payload of htsim's packets.
HTSIM_SHARE = MTU / PACKET_BYTES
#: What is left of a data packet of the suite when it is trimmed: all up to RETH (mrc-protocol.md §9), bytes.
TRIMMED_BYTES = 138
#: A mean: scenario, backend, quantity.
Key = tuple[str, Backend, Quantity]
#: What the payload rate is proportional to, and what is proportional to its inverse.
_RATES, _TIMES = frozenset({Quantity.GOODPUT, Quantity.STEADY}), frozenset({Quantity.P50, Quantity.P99})


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

    `cause` is empty where the difference is within the bound, or where no cause is known (`unexplained`). `corrected`
    is `off` with headers taken into account, and the same as that where they do not count.
    """

    scenario: str
    backend: Backend
    quantity: Quantity
    packets: float
    other: float
    off: float
    bound: float
    cause: str
    corrected: float

    @property
    def beyond(self) -> bool:
        """Return whether a cause is asked for."""
        return abs(self.off) > self.bound

    @computed_field  # type: ignore[prop-decorator]
    @property
    def unexplained(self) -> bool:
        """Return whether a cause is asked for and none is known."""
        return self.beyond and not self.cause


def values(outcomes: Iterable[ScenarioOutcome]) -> list[Value]:
    """Return means over seeds, in the order of the outcomes."""
    groups: dict[tuple[str, Backend, Quantity], list[float]] = {}
    for outcome in outcomes:
        for quantity, value in outcome.values.items():
            groups.setdefault((outcome.scenario, outcome.backend, quantity), []).append(value)
    made = []
    for (scenario, backend, quantity), found in groups.items():
        mean, half = interval_of(found)
        made.append(Value(scenario, backend, quantity, mean, half, len(found)))
    return made


def differences(found: Sequence[Value], payload_shares: dict[str, float]) -> list[Difference]:
    """Return every other backend beside packets.

    Args:
        payload_shares: of what a link carries in the packets of each scenario.
    """
    means = {(each.scenario, each.backend, each.quantity): each.mean for each in found}
    made = []
    for each in found:
        mine = means.get((each.scenario, Backend.PACKETS, each.quantity))
        if each.backend is Backend.PACKETS or mine is None:
            continue
        if each.backend is Backend.FLUID and each.quantity in OF_PACKETS:
            continue
        relative = each.quantity in RELATIVE
        off = (each.mean - mine) / mine if relative else each.mean - mine
        bound = RELATIVE_BOUND if relative else POINTS_BOUND
        corrected, headers = _headers(each, mine, off, payload_shares[each.scenario], means)
        cause = ""
        if abs(off) > bound:
            cause = headers if abs(corrected) <= bound else _known(each)
        made.append(
            Difference(each.scenario, each.backend, each.quantity, mine, each.mean, off, bound, cause, corrected)
        )
    return made


def _headers(
    each: Value, mine: float, off: float, share: float, found: Mapping[Key, float]
) -> tuple[float, str]:  # fmt: skip
    """Return how far another backend is off beside its headers, and the cause if that is within the bound.

    On a link lie the headers of data, SACKs on the way back, and the headers of trimmed packets: `TRIMMED_BYTES` for
    each in MRC, 64 in htsim, nothing in the fluid.
    """
    if each.quantity not in _RATES | _TIMES:
        return off, ""
    ours = _with_trims(share, TRIMMED_BYTES, each.scenario, Backend.PACKETS, found)
    if each.backend is Backend.HTSIM:
        theirs = _with_trims(HTSIM_SHARE, PACKET_BYTES - MTU, each.scenario, Backend.HTSIM, found)
    else:
        theirs = share
    ratio = theirs / ours
    corrected = mine * ratio if each.quantity in _RATES else mine / ratio
    off = (each.mean - corrected) / corrected
    if each.backend is Backend.FLUID:
        return off, (
            f"headers of trimmed packets, which the fluid has not, use the receiver's link: payload has {ours:.1%} of "
            f"it and not {theirs:.1%}; corrected for that it is {off:+.1%}"
        )
    return off, (
        f"headers: MRC's packets with SRv6, SACKs on the way back and headers of trimmed packets leave {ours:.1%} of a "
        f"link for payload, htsim's {theirs:.1%}; corrected for that it is {off:+.1%}"
    )


def _with_trims(share: float, bytes_each: int, scenario: str, backend: Backend, found: Mapping[Key, float]) -> float:
    """Return the share of payload in what a link carries, with the headers of packets that were trimmed before it."""
    trimmed = found.get((scenario, backend, Quantity.TRIMMED), 0.0)
    arrived = 100 - found.get((scenario, backend, Quantity.AGAIN), 0.0)
    return 1 / (1 / share + trimmed / arrived * bytes_each / MTU)


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
