"""Expectations of a run, as experiment files state them: of the whole, and of each failure in it."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from mrc_topo.base.document import Model
from mrc_topo.units import parse_seconds, parse_share

Count = Annotated[int, Field(ge=1)]
#: A number that may be written as a percentage, `5%`.
Ratio = Annotated[float, BeforeValidator(parse_share)]
Share = Annotated[Ratio, Field(ge=0, lt=1)]
#: Seconds, or a time with its unit, `300ms`.
Seconds = Annotated[float, BeforeValidator(parse_seconds)]


class Evidence(Model):
    """What must be seen of one failure; each key that is given is a check of the verdict.

    `dropped`: packets that the fabric dropped at the element's ports because of a failure (not of a full queue), at
    least. `carried`: what the element's ports sent, as a share of what they sent before, at most. `evs_lost`: EVs
    that cross the element and that hosts took for bad, at least. `losses`: packets that hosts took for lost, at
    least. `ports_down`: hosts that noticed, or were notified, that a port of the element is down, at least. `goodput`:
    of all hosts, as a share of that before, at most. `pause_frames`: that stuck NICs sent at the element's ports, at
    least. `paused`: seconds that its switch ports were paused (`queues.pfc`), or had no credits for what waited
    (`queues.credits`), all together, at least.
    """

    dropped: Count | None = None
    carried: Share | None = None
    evs_lost: Count | None = None
    losses: Count | None = None
    ports_down: Count | None = None
    goodput: Share | None = None
    pause_frames: Count | None = None
    paused: Annotated[Seconds, Field(gt=0)] | None = None

    @model_validator(mode="after")
    def _some(self) -> Self:
        if not self.model_dump(exclude_none=True):
            raise ValueError(f"evidence needs at least one of: {', '.join(type(self).model_fields)}")
        return self


class StreamExpectation(Model):
    """Of all streams from `source` to `destination` (hosts; any if left out): each one's average rate as a share of a
    host's link capacity, and Jain's index of fairness over all of them."""

    source: str | None = None
    destination: str | None = None
    at_least: Annotated[Ratio, Field(gt=0, le=1)] | None = None
    at_most: Share | None = None
    jain: Annotated[float, Field(gt=0, le=1)] | None = None

    @model_validator(mode="after")
    def _some(self) -> Self:
        if self.at_least is None and self.at_most is None and self.jain is None:
            raise ValueError("streams are expected to have at_least, at_most or jain")
        return self


class StepExpectation(Model):
    """Of the steps of `training`: a statistic (`of`) of the times of all, or of those `during` which something of the
    lab was `broken`, or nothing was (`whole`), in seconds."""

    of: Literal["mean", "p50", "p99", "max"]
    during: Literal["all", "broken", "whole"] = "all"
    at_least: Annotated[Seconds, Field(gt=0)] | None = None
    at_most: Annotated[Seconds, Field(gt=0)] | None = None

    @model_validator(mode="after")
    def _some(self) -> Self:
        if self.at_least is None and self.at_most is None:
            raise ValueError("steps are expected to have at_least or at_most")
        return self


class Expectation(Model):
    """What must be true of the result; a check that is left out is not made.

    `verified`: all bytes that arrived are right, and every rank did its iterations. `recovery`: after every
    action the goodput is back at 95 % of what the remaining capacity allows within 10 base RTTs, one ACK
    timeout, and this many seconds more. `min_share`: settled goodput after the last failure, as a share of the
    expected. `goodput_share`: total goodput as a share of the ranks' link capacity. `qp_errors`: how many
    QPs may die. `timeouts`: how many packets hosts may give up waiting for. `spurious`:
    the largest share of all data packets that may be retransmissions of packets that had arrived. `plane_spread`:
    between the planes that carried most and least, as a share of the mean. `steps`: of `training`. `localised`: the
    hosts' probes alone name what was broken. `denied`: streams go to hosts of other tenants, of which no message
    arrives, and switches deny this many packets at least; that these streams fail is expected.
    """

    verified: bool = True
    qp_errors: Annotated[int, Field(ge=0)] = 0
    recovery: Annotated[Seconds, Field(ge=0)] | None = None
    min_share: Annotated[Ratio, Field(ge=0)] | None = None
    max_dip: Annotated[Ratio, Field(ge=0, le=1)] | None = None
    goodput_share: Annotated[Ratio, Field(ge=0)] | None = None
    max_goodput_share: Annotated[Ratio, Field(ge=0)] | None = None
    trims: bool | None = None
    marks: bool | None = None
    timeouts: Annotated[int, Field(ge=0)] | None = None
    spurious: Annotated[Ratio, Field(ge=0, le=1)] | None = None
    plane_spread: Annotated[Ratio, Field(gt=0)] | None = None
    streams: list[StreamExpectation] = []
    steps: list[StepExpectation] = []
    localised: bool | None = None
    denied: Count | None = None
    valid: bool = True
