"""Schema of a cluster file: the fabric, its jobs, and what fails. Reading one: `clusterfile`."""

from __future__ import annotations

from typing import Annotated, Literal, get_args

from pydantic import BeforeValidator, Field

from mrc_topo.addressing import MAX_INDEX, MAX_PLANES
from mrc_topo.base.document import LAB_NAME, Model
from mrc_topo.schema import Rate, Size, SomeTime, Time
from mrc_topo.units import parse_size_bytes

Share = Annotated[float, Field(ge=0.0, le=1.0)]
PerYear = Annotated[float, Field(ge=0.0, le=1e6)]
Hours = Annotated[float, Field(gt=0.0, le=1e5)]
#: A message may be larger than any buffer of a lab.
Bytes = Annotated[int, BeforeValidator(parse_size_bytes), Field(ge=1, le=1 << 50)]
#: Of a cluster.
MAX_NICS = 1 << 20
#: Of a "year" of failures.
MAX_DAYS = 3660
Count = Annotated[int, Field(ge=1, le=1 << 24)]
#: Of all packets that an element forwards; of its rate.
Loss = Annotated[float, Field(ge=0.0, lt=1.0)]
Left = Annotated[float, Field(gt=0.0, le=1.0)]
#: Where random failures are drawn: classes, and power domains of the file.
Drawn = Literal["links", "upper_links", "ports", "t0s", "t1s", "t2s", "domains"]
Repair = Literal["exponential", "lognormal", "fixed"]
#: Of elements drawn at random.
CLASSES: tuple[str, ...] = tuple(name for name in get_args(Drawn) if name != "domains")


class EvSpec(Model):
    """EVs of a queue pair: totals over all planes, as in a lab file; times are those of NICs.

    `spread`: `even` gives each T1 of a plane as many of a queue pair's EVs as any other, as labs do; `random` draws the
    T1 of each EV by itself, as the paper's formula has it.
    """

    size: Annotated[int, Field(ge=1, le=4096)] = 256
    active: Annotated[int, Field(ge=1, le=4096)] = 128
    min_active: Annotated[int, Field(ge=1, le=4096)] = 4
    spread: Literal["even", "random"] = "even"
    probe_interval: SomeTime = 1_000_000
    probes_to_revive: Annotated[int, Field(ge=1, le=100)] = 2
    probe_burst: Annotated[int, Field(ge=1, le=4096)] = 16


class JobSpec(Model):
    """A job whose ranks work in step: `compute`, then `message` bytes from each NIC to each of its peers at once.

    `group`: ranks that exchange with each other (0: all). `peers`: to how many of them a NIC sends at the same time.
    `placement`: `packed` fills T0 after T0, `striped` puts neighbours under different T0s, `random` anywhere.
    """

    name: Annotated[str, Field(pattern=LAB_NAME)]
    kind: Literal["all_to_all", "ring", "tree", "incast"] = "all_to_all"
    nics: Count | None = None
    group: Annotated[int, Field(ge=0, le=1 << 24)] = 0
    peers: Annotated[int, Field(ge=1, le=64)] = 1
    message: Bytes = 1 << 26
    compute: Time = 0
    placement: Literal["packed", "striped", "random"] = "striped"


class FailureSpec(Model):
    """Something fails at a time, for a time (null: for good), `repeat` times, once `every` so often.

    `fail`: `p0-t1.3`, `p0-t0.3`, `p0-t0.1--p0-t1.3`, `h7:2`, `p0` (all links between switches of a plane), a domain of
    the file, or `count` of a class drawn at random: `links`, `ports`, `t0s`, `t1s`. Three tiers also have `p0-t2.3`,
    `p0-t1.4--p0-t2.3` (all links between the two; `:0` behind it is the first of several), and the classes `t2s` and
    `upper_links` (T1-T2). `lanes`: of a T0: not the switch but a transceiver of it, which carries this many NIC links.
    `loss`: grey: it stays up and loses this share of packets; `rate`: it keeps this share of its rate.
    """

    at: Time = 0
    fail: str = Field(max_length=64)
    count: Count = 1
    lasts: Annotated[SomeTime | None, Field(alias="for")] = None
    repeat: Annotated[int, Field(ge=1, le=10_000)] = 1
    every: SomeTime | None = None
    lanes: Annotated[int, Field(ge=1, le=64)] | None = None
    loss: Loss = 0.0
    rate: Left = 1.0


class RandomSpec(Model):
    """Failures of a class as a Poisson process: on average one `between` so long, each for `repair` on average.

    `repairs`: how the times of repair are distributed; `sigma`: of the logarithm of lognormal ones. `loss`, `rate`: as
    in `FailureSpec`.
    """

    fail: Drawn
    between: SomeTime
    repair: SomeTime
    repairs: Repair = "exponential"
    sigma: Annotated[float, Field(gt=0, le=5)] = 1.0
    loss: Loss = 0.0
    rate: Left = 1.0


class DomainSpec(Model):
    """What fails together, such as the switches of a rack or row that have one power supply: `fail: NAME`.

    `elements`: names as in `FailureSpec`; `p0-t1.0..15` are sixteen of them, `p0..7-t0.3` the eight of a rack.
    """

    name: Annotated[str, Field(pattern=LAB_NAME)]
    elements: Annotated[list[Annotated[str, Field(max_length=64)]], Field(min_length=1, max_length=1000)]


class BatchSpec(Model):
    """A batch of optics: the `share` of `links` (T0-T1), `upper_links` or `ports` that is of it goes bad at times drawn
    equally from `over`, which begins `at`. Each is repaired after `repair` (null: never), distributed as in
    `RandomSpec`."""

    fail: Literal["links", "upper_links", "ports"] = "links"
    share: Annotated[float, Field(gt=0, le=1)]
    at: Time = 0
    over: SomeTime
    loss: Loss = 0.0
    repair: SomeTime | None = None
    repairs: Repair = "exponential"
    sigma: Annotated[float, Field(gt=0, le=5)] = 1.0


class RoceSpec(Model):
    """The baselines: queue pairs of RoCE per peer and plane port, and how long routing takes to go around a failure:
    `ecmp` where switches hash (BGP), `adaptive` where a subnet manager sweeps. `retry`: how long a queue pair
    repeats before it gives up, which ends its job."""

    qps_per_plane: Annotated[int, Field(ge=1, le=16)] = 1
    ecmp: SomeTime = 1_000_000_000
    adaptive: SomeTime = 5_000_000_000
    retry: SomeTime = 4_000_000_000


class ElementRates(Model):
    """Of one element: failures a year and how long one lasts, hours."""

    per_year: PerYear
    hours: Hours


class YearSpec(Model):
    """A year of a job on the whole cluster: what fails how often, and what an interruption of the job costs.

    `flaps` are of links between switches and `port_flaps` of NIC ports, seconds each; the others are failures until
    repair, `t1s` also of T2s. A job stands still while it writes a checkpoint (`checkpoint_write_minutes`).
    """

    days: Annotated[float, Field(gt=0, le=MAX_DAYS)] = 365.0
    flaps: ElementRates = ElementRates(per_year=1.0, hours=0.003)
    port_flaps: ElementRates = ElementRates(per_year=0.005, hours=0.003)
    links: ElementRates = ElementRates(per_year=0.00684, hours=24.0)
    ports: ElementRates = ElementRates(per_year=0.00684, hours=24.0)
    t0s: ElementRates = ElementRates(per_year=0.0808, hours=2.0)
    t1s: ElementRates = ElementRates(per_year=0.0808, hours=2.0)
    communication: Share = 0.3
    restart_minutes: Annotated[float, Field(ge=0, le=10_000)] = 10.0
    checkpoint_minutes: Annotated[float, Field(ge=0, le=10_000)] = 30.0
    checkpoint_write_minutes: Annotated[float, Field(ge=0, le=1_000)] = 0.5


class Calibration(Model):
    """What packets and queues do and a fluid does not, as numbers; `mrclab scale --calibrate` tests them.

    `nic_share`: what of a NIC port can be used when it is full. `fabric_share`: of a T0-T1 link, `detection_rtts`: how
    long packets go on an EV that has died, in base round trips, and `port_rtts` towards a port that went down; these
    three follow from windows and queues if they are left out (`queueing`). `ecn_low`, `ecn_high`: at which queueing
    delay marks begin, and at which all packets are marked, in shares of NSCC's target delay. `steering`: how much an
    EV's share falls at most where links of its path mark; `steps`: passes in which load moves off such. `trim_rtts`:
    what a queue holds when its switch trims, in base round trips at the link's full rate; `min_rtt`: the round trip of
    a packet through empty queues, by which endpoints bound their window, if it is shorter than `base_rtt`.
    """

    detection_rtts: Annotated[float, Field(gt=0, le=1000)] | None = None
    port_rtts: Annotated[float, Field(gt=0, le=1000)] | None = None
    nic_share: Annotated[float, Field(gt=0, le=1)] = 0.97
    fabric_share: Annotated[float, Field(gt=0, le=1)] | None = None
    ecn_low: Annotated[float, Field(ge=0, le=10)] = 0.28
    ecn_high: Annotated[float, Field(gt=0, le=10)] = 1.12
    steering: Annotated[float, Field(ge=1, le=1000)] = 2.0
    steps: Annotated[int, Field(ge=0, le=1000)] = 32
    trim_rtts: Annotated[float, Field(gt=0, le=1000)] = 1.0
    min_rtt: SomeTime | None = None


class Cluster(Model):
    """A cluster and what happens to it. `radix` gives the fabric as `mrclab topo plan` does, unless `nics_per_t0` and
    `t1_per_plane` say otherwise. `denylist`: what is dead at the start is known then (the Clustermapper's denylists).

    `tiers: 3`: pods of `t0_per_pod` T0s and `t1_per_pod` T1s in each plane. A T1 has `t1_uplinks` to T2s. All are half
    of the radix if left out, and there are as few T2s (`t2_per_plane`) as the radix allows. `pods` is for files without
    `nics`.
    """

    name: Annotated[str, Field(pattern=LAB_NAME)]
    description: str = ""
    planes: Annotated[int, Field(ge=1, le=MAX_PLANES)] = 8
    radix: Annotated[int, Field(ge=2, le=MAX_INDEX, multiple_of=2)] = 512
    nics: Annotated[int, Field(ge=2, le=MAX_NICS)] | None = None
    nics_per_t0: Annotated[int, Field(ge=1, le=MAX_INDEX)] | None = None
    t1_per_plane: Annotated[int, Field(ge=1, le=MAX_INDEX)] | None = None
    tiers: Literal[2, 3] = 2
    pods: Annotated[int, Field(ge=1, le=MAX_INDEX)] | None = None
    t0_per_pod: Annotated[int, Field(ge=1, le=MAX_INDEX)] | None = None
    t1_per_pod: Annotated[int, Field(ge=1, le=MAX_INDEX)] | None = None
    t1_uplinks: Annotated[int, Field(ge=1, le=MAX_INDEX)] | None = None
    t2_per_plane: Annotated[int, Field(ge=1, le=1 << 16)] | None = None
    port_rate: Rate = 100_000_000_000
    fabric_rate: Rate | None = None
    base_rtt: SomeTime = 10_000
    path_mtu: Annotated[int, Field(ge=64, le=8192, multiple_of=4)] = 4096
    ev: EvSpec = EvSpec()
    denylist: bool = True
    duration: SomeTime = 10_000_000_000
    bin: SomeTime = 100_000_000
    jobs: Annotated[list[JobSpec], Field(min_length=1, max_length=64)]
    failures: Annotated[list[FailureSpec], Field(max_length=1000)] = []
    random: Annotated[list[RandomSpec], Field(max_length=16)] = []
    batches: Annotated[list[BatchSpec], Field(max_length=16)] = []
    domains: Annotated[list[DomainSpec], Field(max_length=1000)] = []
    trace: Annotated[str, Field(max_length=4096)] | None = None
    roce: RoceSpec = RoceSpec()
    year: YearSpec | None = None
    model: Calibration = Calibration()
    seed: Annotated[int, Field(ge=0, le=2**63 - 1)] = 1


__all__ = ["CLASSES", "Cluster", "FailureSpec", "JobSpec", "Rate", "Size", "YearSpec"]
