"""Fabrics computed without building them: what an MRC fabric of a radix and a number of planes consists of, and what
it costs.

Integers only. Two tiers per plane (`mrc-protocol.md §9`): a T0 has half its ports down and half up, a plane has
radix/2 T1s and up to radix T0s. Beside it stands the usual three-tier network of one plane for the same NICs,
whose switches have the same capacity but fewer, faster ports. A NIC has one transceiver either way: with several
planes it carries one slower link for each, and so does every transceiver in a switch.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, ValidationError

from mrc_topo.base import document
from mrc_topo.base.document import DocumentError, Model
from mrc_topo.shipped import shipped


class PlanError(Exception):
    """Numbers from which no fabric can be built; the message names the remedy."""


@dataclass(frozen=True, slots=True)
class Design:
    """A fabric's design. Links run at the NIC's speed over `planes`; `note` says where the numbers need care.

    `lost` is the fraction of a NIC's capacity that a failure takes; `slowed` is the fraction by which the NIC is slower
    if it loads its planes equally, so that the slowest plane sets the pace (the paper's figures, `mrc-protocol.md
    §11`).
    """

    name: str
    planes: int
    tiers: int
    radix: int
    nics: int
    switches: dict[str, int]
    links: dict[str, int]
    paths_per_pair: int
    max_switch_hops: int
    lost: dict[str, Fraction]
    slowed: dict[str, Fraction]
    note: str = ""

    @property
    def total_switches(self) -> int:
        return sum(self.switches.values())

    @property
    def total_links(self) -> int:
        return sum(self.links.values())

    @property
    def optics(self) -> int:
        """The number of transceivers at the NIC's full speed: two ends per link, and `planes` links in one."""
        return _ceil(2 * self.total_links, self.planes)

    def as_dict(self) -> dict[str, Any]:
        """Return plain data for JSON; fractions as decimals."""
        data = asdict(self)
        for name in ("lost", "slowed"):
            data[name] = {key: float(value) for key, value in data[name].items()}
        data |= {
            "total_switches": self.total_switches,
            "total_links": self.total_links,
            "optics": self.optics,
        }
        return data


@dataclass(frozen=True, slots=True)
class Plan:
    """The multi-plane design and, for the same NICs and switch silicon, the single-plane three-tier one."""

    multi_plane: Design
    three_tier: Design


def _ceil(a: int, b: int) -> int:
    return -(-a // b)


def plan(radix: int, planes: int, nics: int | None = None) -> Plan:
    """Return both designs for switches of `radix` ports at one plane's port speed.

    `nics` defaults to the largest number two tiers connect, radix**2 / 2. The three-tier design splits the
    same silicon into radix/planes ports, each `planes` times as fast, so that a NIC needs one. Raises PlanError.
    """
    if planes < 1:
        raise PlanError(f"{planes} planes; give at least 1")
    if radix < 2 or radix % 2:
        raise PlanError(f"radix {radix}; give an even number of ports, half go down and half up")
    largest = radix * radix // 2
    nics = largest if nics is None else nics
    if not 1 <= nics <= largest:
        raise PlanError(
            f"{nics} NICs; two tiers of radix {radix} connect 1 to {largest}: lower --nics or raise --radix"
        )
    return Plan(_multi_plane(radix, planes, nics), _three_tier(radix, planes, nics))


def _multi_plane(radix: int, planes: int, nics: int) -> Design:
    half = radix // 2
    t0 = _ceil(nics, half)
    # A single T0 needs no T1. Otherwise every T0 has `half` uplinks, spread over as few T1s as possible.
    t1 = 0 if t0 == 1 else _ceil(t0 * half, radix)
    uplinks = 0 if t0 == 1 else t0 * half
    share = Fraction(1, planes)
    # A failed T0 or port takes its whole plane from a NIC, a failed uplink or T1 only a part of it.
    lost = {"NIC port": share, "T0-T1 link": Fraction(0), "T0": share, "T1": Fraction(0)}
    slowed = dict(lost)
    if t1:
        lost |= {"T0-T1 link": share / half, "T1": share / t1}
        slowed |= {"T0-T1 link": Fraction(1, half), "T1": Fraction(1, t1)}
    return Design(
        name=f"{planes} planes, two tiers",
        planes=planes,
        tiers=1 if t0 == 1 else 2,
        radix=radix,
        nics=nics,
        switches={"T0": planes * t0, "T1": planes * t1},
        links={"NIC-T0": planes * nics, "T0-T1": planes * uplinks},
        paths_per_pair=planes * (half if t1 else 1),
        max_switch_hops=3 if t1 else 1,
        lost=lost,
        slowed=slowed,
    )


def _three_tier(radix: int, planes: int, nics: int) -> Design:
    """Return a folded Clos of pods: radix r, r/2 T0 and r/2 T1 per pod, and T2s above; no oversubscription."""
    ports = radix // planes
    if ports < 2 or radix % planes:
        raise PlanError(f"radix {radix} does not divide into {planes} planes; use a multiple of {2 * planes}")
    ports -= ports % 2
    half = ports // 2
    largest = 2 * half**3
    t0 = _ceil(nics, half)
    t1 = _ceil(t0, half) * half
    t2 = _ceil(t1 * half, ports)
    per_uplink = Fraction(1, half)
    per_core_link = Fraction(1, half * half)
    lost = {
        "NIC port": Fraction(1),
        "T0-T1 link": per_uplink,
        "T0": Fraction(1),
        "T1": per_uplink,
        "T1-T2 link": per_core_link,
        "T2": per_core_link,
    }
    note = ""
    if nics > largest:
        note = (
            f"three tiers of radix {ports} reach {largest} NICs without oversubscription: "
            "the counts are a lower bound, a fourth tier would be needed"
        )
    return Design(
        name="one plane, three tiers",
        planes=1,
        tiers=3,
        radix=ports,
        nics=nics,
        switches={"T0": t0, "T1": t1, "T2": t2},
        links={"NIC-T0": nics, "T0-T1": t0 * half, "T1-T2": t1 * half},
        paths_per_pair=half * half,
        max_switch_hops=5,
        lost=lost,
        slowed=dict(lost),
        note=note,
    )


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
