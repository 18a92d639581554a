"""Grey failures: elements that stay up and lose a share of their packets.

An EV leaves at the first packet that is inferred lost (`mrc_host.proto.paths.ev`), its backup takes its place, and
probes bring it back as a backup. So where enough EVs avoid a grey link, it costs each EV across it one packet. Where
none does (a port, a T0), EVs of that plane go and come: each leaves after one over the loss share packets, and comes
back when enough probes in a row were answered. With few EVs in a plane this limits what the plane carries.
Rates are packets per second, times seconds.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mrc_fluid.fabric import Bools, Fabric, Floats
from mrc_fluid.schema import EvSpec
from mrc_fluid.shares import LinkPrices, Model


def revival_s(loss: Floats, spec: EvSpec, base_rtt: float) -> Floats:
    """Return the mean time until an EV comes back whose paths lose this share of packets in each direction: an answer
    needs both, and as many as `probes_to_revive` must follow each other."""
    answered = np.maximum((1.0 - loss) ** 2, 1e-3)
    row = answered**spec.probes_to_revive
    # The mean number of trials until this many successes follow each other (Feller, "Probability Theory", XIII.7).
    lost = np.maximum(1.0 - answered, 1e-12)
    trials = np.where(answered > 1 - 1e-9, float(spec.probes_to_revive), (1.0 - row) / (lost * row))
    found: Floats = trials * spec.probe_interval / 1e9 + base_rtt
    return found


def most(loss: Floats, evs: float, revival: Floats) -> Floats:
    """Return the packets per second that a plane of this many EVs carries at most, all of which lose this share: as
    many leave as come back."""
    with np.errstate(divide="ignore"):
        found: Floats = np.where(loss > 0, evs / (loss * revival), np.inf)
    return found


def go_back_n(loss: Floats, window: Floats) -> Floats:
    """Return the share of a RoCE queue pair's packets that is new: a window is sent again for each lost one (Schwartz,
    "Telecommunication Networks", 4.2)."""
    found: Floats = (1.0 - loss) / (1.0 + loss * (window - 1.0))
    return found


@dataclass(frozen=True)
class Grey:
    """What is grey for queue pairs, by plane and queue pair: `loss`, the mean share of packets lost; `trapped`: no EV
    of the plane avoids it."""

    loss: Floats
    trapped: Bools


def grey(model: Model, fabric: Fabric, prices: LinkPrices) -> Grey | None:
    """Return what is grey for queue pairs with their active EVs; None: nothing is."""
    links, upper, ports = fabric.losses()
    if not links.any() and not upper.any() and not ports.any():
        return None
    ends, shape = model.ends, model.shape
    kept = (1.0 - ports[:, ends.src_nic]) * (1.0 - ports[:, ends.dst_nic])
    trapped: Bools = kept < 1.0
    if links.any() or upper.any():
        passing = model.passing(prices, LinkPrices.both_ways(1 - links, 1 - upper))
        kept = kept * np.where(ends.src == ends.dst, 1.0, passing)
        bad = shape.halves(links > 0, upper > 0, np.logical_or)
        trapped = trapped | (clean(model, bad | fabric.dead_paths()) == 0)
    return Grey(1.0 - kept, trapped & model.use & (shape.t1s > 0))


def clean(model: Model, bad: Bools) -> Floats:
    """Return how many EVs of the universe cross none of these halves of paths, by plane and queue pair."""
    evs, ends = model.evs, model.ends
    every = np.full(evs.active.shape, evs.hop.shape[2], np.int32)
    found = np.zeros(evs.active.shape, np.int32)
    for p in range(model.shape.planes):
        model.kernels.living(evs.hop[p], every[p], ends.src, ends.dst, bad[p], bad[p], found[p])
    return found.astype(float)
