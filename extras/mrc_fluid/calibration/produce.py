"""From a cluster to the folder of its results: the model's run, what others would do, the report, and Parquet."""

from __future__ import annotations

import importlib.util
import pathlib
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from mrc_fluid import baselines, effective, kernels, year
from mrc_fluid.baselines import Usable
from mrc_fluid.calibration import report
from mrc_fluid.calibration.calibration_run import CalibrationRun
from mrc_fluid.cases import Modelled, told
from mrc_fluid.clusterfile import Loaded
from mrc_fluid.effective import EffectiveTime
from mrc_fluid.fabric import Bools, Floats, Harm, Ints
from mrc_fluid.kernels import Kernels
from mrc_fluid.run import ClusterResult, ClusterRun
from mrc_fluid.sprayers import Sprayer, spray
from mrc_topo.base.errors import UsageError
from mrc_topo.base.files import write_whole
from mrc_topo.plan import CostSummary, Design, PlanError, bill, load_costs, plan
from mrc_topo.shipped import install, requirement
from mrclab.studies.cells.pages import parquet_of
from p4lite.files import make_private
from p4lite.switch.native.build import cache_dir

REPORT = "report.html"

#: Queue pairs beyond which other sprayers are left out: each takes about as long as MRC's own run.
MOST_SPRAYED = 32_768

#: A table: values by column.
Columns = dict[str, npt.NDArray[Any] | Sequence[float] | Sequence[str]]
Show = Callable[[float, str], None]


class ScaleError(UsageError):
    """A required package is not installed; the text names the remedy."""


def need_extra() -> None:
    """Check that the extra `scale` is there.

    Raises:
        ScaleError: it is not.
    """
    missing = [name for name in ("numba", "pyarrow") if importlib.util.find_spec(name) is None]
    if missing:
        which = "which is" if len(missing) == 1 else "which are"
        text = f"mrclab scale needs {' and '.join(missing)}, {which} not installed; {install('scale')}"
        raise ScaleError(text).needing(*requirement("scale"))


def load_kernels() -> Kernels:
    """Return the compiled kernels. What numba compiled is kept beside compiled switches, in a folder that no other user
    can write to, as it is loaded and run.

    Raises:
        ScaleError: numba is not installed.
        BuildError, FolderError: the folder cannot be used.
    """
    need_extra()
    return kernels.compiled(make_private(cache_dir() / "numba"))


def run(loaded: Loaded, made_by: Kernels, show: Show = lambda share, text: None) -> CalibrationRun:
    """Run a cluster: with MRC, and what others would do where most is broken."""
    began = time.monotonic()
    cluster, shape = loaded.cluster, loaded.shape
    every = ClusterRun(loaded, made_by, show)
    result = every.mrc()
    others: list[baselines.Baseline] = []
    if loaded.events:
        show(1.0, "other transports on the same failures")
        whole, failed = baselines.fabrics(shape, broken_at(loaded, result.worst_bin))
        wanted = np.full(len(every.flows), shape.nic_bps)
        fair = _fair(every, wanted)
        # Links between switches that are full: what queues leave of them (`queueing.used` at a load of 1).
        share = cluster.model.fabric_share or every.room / (every.room + 1)
        usable = Usable(cluster.model.nic_share, share, every.base_rtt / every.packet_bits)
        given = (shape, every.flows, every.ends, whole, failed)
        found_s = max(step.found_s for step in result.steps)
        sprayers = list(Sprayer) if len(every.flows) <= MOST_SPRAYED else []
        others = [
            *(spray(each, loaded, made_by, every.flows, every.beginning(), failed, found_s) for each in sprayers),
            baselines.ecmp(*given, cluster.roce, made_by, result.payload, usable),
            baselines.adaptive(*given, fair, cluster.roce, result.payload, usable),
        ]
    try:
        # The plan is one of two tiers, beside which it puts three.
        design = None if shape.uplinks else plan(cluster.radix, cluster.planes, shape.nics)
    except PlanError:
        design = None
    outcomes: list[year.YearOutcome] = []
    times: list[EffectiveTime] = []
    bills: list[tuple[Design, CostSummary]] = []
    if cluster.year is not None:
        show(1.0, f"{cluster.year.days:g} days of failures")
        outcomes = year.outcomes(cluster, shape, design, cluster.year)
        times = effective.effective_times(cluster, shape, design, cluster.year)
    if times and design is not None:
        costs = load_costs().model_copy(update={"nic_gbps": shape.nic_bps / 1e9})
        bills = [(each, bill(each, costs)) for each in (design.multi_plane, design.three_tier)]
    return CalibrationRun(result, others, design, outcomes, time.monotonic() - began, bills, times)


def broken_at(loaded: Loaded, number: int) -> list[tuple[str, int | None, Harm]]:
    """Return the elements that are broken in a bin."""
    down: dict[tuple[str, int | None, Harm], int] = {}
    for event in loaded.events:
        if event.at // loaded.cluster.bin <= number:
            key = (event.name, event.lanes, event.harm)
            down[key] = down.get(key, 0) + event.by
    return [key for key, count in down.items() if count > 0]


def _fair(every: ClusterRun, demand: Floats) -> Floats:
    """Return what ports allow each queue pair, all of them being there."""
    shape, ends = every.loaded.shape, every.ends
    senders = np.bincount(ends.src_nic, minlength=shape.nics)[ends.src_nic]
    receivers = np.bincount(ends.dst_nic, minlength=shape.nics)[ends.dst_nic]
    fair: Floats = demand / np.maximum(senders, receivers)
    return fair


def write(made: CalibrationRun, folder: pathlib.Path) -> list[str]:
    """Write report and Parquet into a folder; return the files' names.

    Raises:
        WriteError: one could not be written.
    """
    result = made.result
    series = result.series()
    loaded, bins = result.loaded, np.arange(len(series["time_s"]))
    kept = {
        name: told(loaded, of, values, bins) if (of := _modelled(name)) else values for name, values in series.items()
    }
    worst = told(loaded, Modelled.GOODPUT, result.worst_rates, np.full(len(result.flows), result.worst_bin))
    tables: dict[str, Columns] = {
        "series": {**kept},
        "steps": _steps(result),
        **_links(result),
        "queue_pairs": {
            "source": result.flows.src,
            "target": result.flows.dst,
            "job": result.flows.job,
            "rate_bps": result.rates,
            "rate_worst_bps": worst,
            "window_bytes": result.cwnd,
        },
    }
    if made.others:
        tables["transports"] = _transports(made)
    for name, columns in tables.items():
        write_whole(folder / f"{name}.parquet", parquet_of({head: (None, values) for head, values in columns.items()}))
    write_whole(folder / REPORT, report.render(made, series))
    return [REPORT, *(f"{name}.parquet" for name in tables)]


def _modelled(column: str) -> Modelled | None:
    """Return what a column of the series tells that may not be told."""
    if column == "goodput_bps":
        return Modelled.GOODPUT
    return Modelled.STEPS if column.startswith("step_s_") else None


def _transports(made: CalibrationRun) -> Columns:
    rows: Columns = {"transport": [each.name for each in made.others]}
    for name in ("before", "during", "after", "stalled", "broken", "of", "outage_s"):
        rows[name] = [getattr(each, name) for each in made.others]
    return rows


def _steps(result: ClusterResult) -> Columns:
    cluster = result.loaded.cluster
    rows: Columns = {"at_s": [step.bin * cluster.bin / 1e9 for step in result.steps]}
    for name in ("goodput", "offered", "lost", "worst_nic", "hit", "probes", "cut", "found_s", "grey"):
        rows[name] = [getattr(step, name) for step in result.steps]
    bins = np.array([step.bin for step in result.steps])
    rows["goodput"] = told(result.loaded, Modelled.GOODPUT, np.array(rows["goodput"], float), bins)
    rows["what"] = ["; ".join(step.what) for step in result.steps]
    return rows


def _links(result: ClusterResult) -> dict[str, Columns]:
    """Return the tables of links between switches: `upper_links` only where there are T2s."""
    shape = result.loaded.shape
    plane, t0, own = (part.ravel() for part in np.indices(result.dead_links.shape))
    t1 = shape.pod_of[t0] * shape.t1s + own
    loads = [(name, each.fabric()) for name, each in (("first", result.first), ("worst", result.worst))]
    lower = [(name, each.up, each.dn) for name, each in loads]
    tables = {"links": _loads({"plane": plane, "t0": t0, "t1": t1}, lower, result.dead_links)}
    if shape.uplinks:
        plane, pod, uplink = (part.ravel() for part in np.indices(result.dead_upper.shape))
        t1, (t2, single) = pod * shape.t1s + uplink // shape.uplinks, np.divmod(uplink, shape.parallel)
        places = {"plane": plane, "t1": t1, "t2": t2, "number": single}
        upper = [(name, each.upper_up, each.upper_dn) for name, each in loads]
        tables["upper_links"] = _loads(places, upper, result.dead_upper)
    return tables


def _loads(places: dict[str, Ints], loads: Sequence[tuple[str, Floats, Floats]], dead: Bools) -> Columns:
    """Return a row per link: its place, and its load up and down."""
    rows: Columns = {name: part.astype(np.int16) for name, part in places.items()}
    for name, up, down in loads:
        rows[f"{name}_up"] = up.ravel().astype(np.float32)
        rows[f"{name}_down"] = down.ravel().astype(np.float32)
    rows["dead"] = dead.ravel()
    return rows
