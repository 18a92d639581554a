"""Other sprayers on the same fabric with the same EVs and failures: oblivious spraying, and REPS.

Both are the policies of `experiments/sweeps/policies` in the place of MRC's rule, which passes over an EV once for a
mark; EVs that carry nothing leave as they do in MRC. Oblivious spraying takes EVs in turn whatever marks say, so load
stays where it is. REPS takes EVs again whose packets arrived without a mark: load moves off full links as far as it
must, and a dead EV is not used a second time.
"""

from __future__ import annotations

import dataclasses
from concurrent.futures import ThreadPoolExecutor
from enum import Enum

import numpy as np

from mrc_fluid import evs as ev_states
from mrc_fluid.baselines import Baseline
from mrc_fluid.clusterfile import Loaded
from mrc_fluid.evs import Evs
from mrc_fluid.fabric import Bools, Fabric, Floats
from mrc_fluid.jobs import Flows
from mrc_fluid.kernels import Kernels, workers
from mrc_fluid.run import MAX_ROUNDS, ClusterRun
from mrc_fluid.shares import Model


class Sprayer(Enum):
    """A sprayer, by the keys of `model` that make it (`Calibration`)."""

    OBLIVIOUS = "oblivious spraying"
    REPS = "REPS"

    @property
    def settings(self) -> dict[str, float]:
        """Return how load moves: not at all, or without a bound."""
        return {"steps": 0} if self is Sprayer.OBLIVIOUS else {"steering": 1000.0}


def with_sprayer(loaded: Loaded, sprayer: Sprayer) -> Loaded:
    """Return a cluster whose endpoints spray so."""
    model = loaded.cluster.model.model_copy(update=sprayer.settings)
    return dataclasses.replace(loaded, cluster=loaded.cluster.model_copy(update={"model": model}))


def spray(
    sprayer: Sprayer, loaded: Loaded, kernels: Kernels, every: Flows, evs: Evs, failed: Fabric, found_s: float
) -> Baseline:
    """Return what a sprayer does before and after what has failed.

    Args:
        evs: of all queue pairs before the failures; they change.
        found_s: how long it takes until dead EVs have left.
    """
    run = ClusterRun(with_sprayer(loaded, sprayer), kernels, every=every, evs=evs)
    demand = np.full(len(every), run.window_bps)
    with ThreadPoolExecutor(workers()) as pool:
        model = run.model(pool, evs)
        before = run.settled(model, demand)[1].rates
        run.fabric = failed
        paths, ports = failed.dead_paths(), failed.dead_ports()
        used: Bools = ~ports[:, run.ends.src_nic] & ~ports[:, run.ends.dst_nic]
        arriving = _arriving(model, run, paths) * used
        for _ in range(MAX_ROUNDS):
            hits = ev_states.take_out(
                kernels, pool, evs, run.ends, (paths, paths), used, ev_states.ASSUMED_BAD
            )  # fmt: skip
            if not hits.any():
                break
        after = run.settled(model, demand)[1].rates
    # Until EVs have left, oblivious spraying loses what goes there; REPS goes on with the EVs that answer.
    share = arriving.mean(axis=0) if sprayer is Sprayer.OBLIVIOUS else np.ones(len(every))
    during = np.minimum(before * share, after) if sprayer is Sprayer.OBLIVIOUS else after
    stalled = int(np.count_nonzero(arriving.sum(axis=0) == 0))
    first, then, last = (float(each.sum()) * run.payload for each in (before, during, after))
    return Baseline(sprayer.value, first, then, last, stalled, int(np.count_nonzero(after <= 0)), len(every), found_s)


def _arriving(model: Model, run: ClusterRun, dead: Bools) -> Floats:
    """Return the share of active EVs that cross nothing dead, by plane and queue pair."""
    evs, ends = model.evs, run.ends
    found = np.zeros(evs.active.shape, np.int32)
    for p in range(run.loaded.shape.planes):
        run.kernels.living(evs.hop[p], evs.active[p], ends.src, ends.dst, dead[p], dead[p], found[p])
    share: Floats = found / np.maximum(evs.active, 1)
    return share
