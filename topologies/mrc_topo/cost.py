"""Power and cost of a planned fabric, from inputs in YAML (`topologies/costs`), where their sources stand."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

from pydantic import Field, ValidationError

from mrc_topo.base import document
from mrc_topo.base.document import DocumentError, Model
from mrc_topo.plan import Design, PlanError, plan
from mrc_topo.shipped import shipped

EXAMPLE = "a file of costs is a mapping such as 'nic_gbps: 800'; see topologies/costs"
HOURS = 365 * 24
Number = Annotated[float, Field(ge=0, le=1e9)]


class CostError(DocumentError):
    """Inputs that cannot be used; each entry of `problems` is one line for the user."""


class Costs(Model):
    """The inputs of a cost estimate. All of them must be given, so that no default goes unnoticed."""

    nic_gbps: Annotated[float, Field(gt=0, le=1e6)]
    switch_watts_per_tbps: Number
    transceiver_watts: Number
    switch_usd_per_tbps: Number
    transceiver_usd: Number
    pue: Annotated[float, Field(ge=1, le=10)]
    usd_per_kwh: Number


@dataclass(frozen=True, slots=True)
class CostSummary:
    """The cost of a design: power of switches and transceivers (kW, without cooling), their price, and a year's
    electricity with cooling (USD)."""

    switch_kw: float
    transceiver_kw: float
    switch_usd: float
    transceiver_usd: float
    electricity_usd: float

    @property
    def kw(self) -> float:
        """The power of switches and transceivers together."""
        return self.switch_kw + self.transceiver_kw

    @property
    def usd(self) -> float:
        """The price of switches and transceivers together."""
        return self.switch_usd + self.transceiver_usd

    def as_dict(self) -> dict[str, float]:
        """Return plain data for JSON."""
        return {**asdict(self), "kw": self.kw, "usd": self.usd}


def load_costs(path: str | Path | None = None) -> Costs:
    """Return the inputs in a file; without one, those that come with the project.

    Raises:
        CostError: the file cannot be used.
    """
    found = shipped("costs") / "default.yaml" if path is None else Path(path)
    try:
        read = document.load(found, str(path or found.name), EXAMPLE)
    except DocumentError as error:
        raise CostError(error.problems) from error
    try:
        return Costs.model_validate(read.data)
    except ValidationError as error:
        raise CostError(read.explain(Costs, error, "costs")) from error


def bill(design: Design, costs: Costs) -> CostSummary:
    """Return the power and price of a design. A switch is priced by its capacity: `radix` ports of a NIC's share of a
    plane."""
    tbps = design.total_switches * design.radix * costs.nic_gbps / design.planes / 1000
    switch_kw = tbps * costs.switch_watts_per_tbps / 1000
    transceiver_kw = design.optics * costs.transceiver_watts / 1000
    return CostSummary(
        switch_kw=switch_kw,
        transceiver_kw=transceiver_kw,
        switch_usd=tbps * costs.switch_usd_per_tbps,
        transceiver_usd=design.optics * costs.transceiver_usd,
        electricity_usd=(switch_kw + transceiver_kw) * costs.pue * HOURS * costs.usd_per_kwh,
    )


def compared(text: str, nics: int | None) -> list[Design]:
    """Return the multi-plane designs of `RADIX,RADIX x PLANES,PLANES`, one for each possible pair.

    Raises:
        PlanError: the text has another form, or no pair is possible.
    """
    left, _, right = text.replace(" ", "").partition("x")
    try:
        radixes, planes = ([int(each) for each in part.split(",")] for part in (left, right))
    except ValueError:
        raise PlanError(
            f"--compare is two lists such as '128,256,512 x 2,4,8' (radix x planes), not '{text}'"
        ) from None
    if len(radixes) * len(planes) > 100:
        raise PlanError(f"--compare has {len(radixes) * len(planes)} pairs; give 100 at most")
    found: list[Design] = []
    wrong = ""
    for radix in radixes:
        for count in planes:
            try:
                found.append(plan(radix, count, nics).multi_plane)
            except PlanError as error:
                wrong = wrong or str(error)
    if not found:
        raise PlanError(f"no pair of --compare can be: {wrong}")
    return found
