"""The kernels without a compiler: universes by the endpoint's own functions, load in NumPy, EV states queue pair by
queue pair in Python. For small clusters, and as what the compiled ones are held against."""

from __future__ import annotations

import random
from typing import Any

import numpy as np

from mrc_host.proto.paths.ev import ASSUMED_BAD
from mrc_topo.ev import draw_profile, hop_of
from mrc_topo.modes import RoutingMode


def _generator(words: Any, count: int) -> random.Random:
    """Create the generator that `random.Random(text)` makes."""
    value = int.from_bytes(np.asarray(words[:count], "<u4").tobytes(), "little")
    return random.Random(value)


def add_uplinks(rng: random.Random, t1s: int, uplinks: int, even: bool, hops: list[int]) -> list[int]:
    """Return paths to other pods by the T1s of EVs (`fabric`): each use of a T1 takes the next of its uplinks, in an
    order that is drawn for each T1; without `even` each uplink is drawn by itself."""
    orders = [list(range(uplinks)) for _ in range(t1s if even else 0)]
    for order in orders:
        rng.shuffle(order)
    taken = [0] * t1s
    paths = []
    for t1 in hops:
        uplink = orders[t1][taken[t1] % uplinks] if even else rng.randrange(uplinks)
        taken[t1] += 1
        paths.append(t1s + t1 * uplinks + uplink)
    return paths


def draw(
    first: Any, first_words: Any, second: Any, second_words: Any, t1s: int, uplinks: int, far: Any, even: bool,
    hop: Any, begin: int, end: int,
) -> None:  # fmt: skip
    """See `Kernels`."""
    planes, _, each = hop.shape
    for q in range(begin, end):
        rng = _generator(first[q], first_words[q])
        profile = draw_profile(RoutingMode.SRV6_USID, [t1s] * planes, each * planes, rng, even)
        paths = [[hop_of(value) for value in values] for values in profile]
        if far[q]:
            paths = [add_uplinks(rng, t1s, uplinks, even, hops) for hops in paths]
        order = _generator(second[q], second_words[q])
        for plane, chosen in enumerate(paths):
            order.shuffle(chosen)
            hop[plane, q] = chosen


def _used(hop: Any, active: Any, src: Any, dst: Any) -> Any:
    return (np.arange(hop.shape[1]) < active[:, None]) & (src != dst)[:, None]


def _weights(hop: Any, src: Any, dst: Any, lowest: float, weight_up: Any, weight_dn: Any) -> Any:
    halves = weight_up[src[:, None], hop] * weight_dn[dst[:, None], hop]
    return np.where(halves == 0.0, 0.0, np.maximum(halves, lowest))


def spread(
    hop: Any, active: Any, src: Any, dst: Any, value: Any, lowest: float, weight_up: Any, weight_dn: Any, up: Any,
    dn: Any,
) -> None:  # fmt: skip
    """See `Kernels`."""
    weight = _weights(hop, src, dst, lowest, weight_up, weight_dn)
    weight[~_used(hop, active, src, dst)] = 0.0
    total = weight.sum(axis=1)
    scale = np.divide(value, total, out=np.zeros_like(total), where=total > 0)
    part = scale[:, None] * weight
    np.add.at(up, (np.broadcast_to(src[:, None], hop.shape), hop), part)
    np.add.at(dn, (np.broadcast_to(dst[:, None], hop.shape), hop), part)


def least(
    hop: Any, active: Any, src: Any, dst: Any, wanted: Any, weight_up: Any, weight_dn: Any, up: Any, dn: Any, out: Any
) -> None:
    """See `Kernels`."""
    counts = _used(hop, active, src, dst) & wanted[:, None].astype(bool)
    counts &= (weight_up[src[:, None], hop] > 0) & (weight_dn[dst[:, None], hop] > 0)
    values = np.where(counts, np.minimum(up[src[:, None], hop], dn[dst[:, None], hop]), np.inf)
    np.minimum(out, values.min(axis=1, initial=np.inf), out=out)


def living(hop: Any, active: Any, src: Any, dst: Any, dead_up: Any, dead_dn: Any, out: Any) -> None:
    """See `Kernels`."""
    inside = np.arange(hop.shape[1]) < active[:, None]
    dead = (dead_up[src[:, None], hop] | dead_dn[dst[:, None], hop]) & (src != dst)[:, None]
    out[:] = (inside & ~dead).sum(axis=1)


def weigh(
    hop: Any, active: Any, src: Any, dst: Any, lowest: float, weight_up: Any, weight_dn: Any, up: Any, dn: Any,
    add: bool, out: Any,
) -> None:  # fmt: skip
    """See `Kernels`."""
    weight = _weights(hop, src, dst, lowest, weight_up, weight_dn)
    weight *= (np.add if add else np.multiply)(up[src[:, None], hop], dn[dst[:, None], hop])
    weight[(src == dst)] = 1.0
    weight[np.arange(hop.shape[1]) >= active[:, None]] = 0.0
    out[:] = weight.sum(axis=1)


def take_out(
    hop: Any, state: Any, active: Any, backup: Any, src: Any, dst: Any, dead_up: Any, dead_dn: Any, used: Any,
    floor: int, to: int, hits: Any, begin: int, end: int,
) -> None:  # fmt: skip
    """See `Kernels`."""
    for q in range(begin, end):
        a, b = src[q], dst[q]
        if a == b:
            continue
        rows = [_Row(hop, state, active, backup, p, q) for p in range(hop.shape[0])]
        total = sum(len(row.active) for row in rows)
        for p, row in enumerate(rows):
            if not used[p, q]:
                continue
            dead = dead_up[p, a] | dead_dn[p, b]
            if to != ASSUMED_BAD:
                found = [ev for ev in row.backup if dead[ev[0]]]
                row.backup = [ev for ev in row.backup if not dead[ev[0]]]
                row.out = [(ev[0], to) for ev in reversed(found)] + row.out
                hits[p, q] += len(found)
            i = 0
            while i < len(row.active):
                h = row.active[i][0]
                if not dead[h]:
                    i += 1
                    continue
                hits[p, q] += 1
                if row.backup:
                    row.active[i] = row.backup.pop(0)
                elif to == ASSUMED_BAD and total <= floor:
                    row.active[i] = (h, to)
                    i += 1
                    continue
                else:
                    del row.active[i]
                    total -= 1
                    i -= 1
                row.out.insert(0, (h, to))
                i += 1
            row.store()


def bring_back(
    hop: Any, state: Any, active: Any, backup: Any, src: Any, dst: Any, dead_up: Any, dead_dn: Any, target: int,
    was: int, count: Any, begin: int, end: int,
) -> None:  # fmt: skip
    """See `Kernels`."""
    for q in range(begin, end):
        a, b = src[q], dst[q]
        for p in range(hop.shape[0]):
            row = _Row(hop, state, active, backup, p, q)
            dead = dead_up[p, a] | dead_dn[p, b]
            for i, (h, why) in enumerate(row.active):
                if why == was and not dead[h]:
                    row.active[i] = (h, 0)
                    count[q] += 1
            j = 0
            while j < len(row.out):
                h, why = row.out[j]
                if why != was or dead[h]:
                    j += 1
                    continue
                count[q] += 1
                bad = next((i for i, ev in enumerate(row.active) if ev[1] == ASSUMED_BAD), None)
                if bad is not None:
                    row.out[j], row.active[bad] = row.active[bad], (h, 0)
                    j += 1
                    continue
                # The first that is out of use takes its place.
                row.out[j] = row.out[0]
                del row.out[0]
                (row.active if len(row.active) < target else row.backup).append((h, 0))
            row.store()


class _Row:
    """EVs of a queue pair in a plane: lists of (path, state)."""

    def __init__(self, hop: Any, state: Any, active: Any, backup: Any, p: int, q: int) -> None:
        self.arrays = (hop, state, active, backup)
        self.place = (p, q)
        all_of = list(zip(hop[p, q].tolist(), state[p, q].tolist(), strict=True))
        n, m = int(active[p, q]), int(backup[p, q])
        self.active, self.backup, self.out = all_of[:n], all_of[n : n + m], all_of[n + m :]

    def store(self) -> None:
        """Write the row back into the arrays."""
        hop, state, active, backup = self.arrays
        rows = self.active + self.backup + self.out
        hop[self.place] = [ev[0] for ev in rows]
        state[self.place] = [ev[1] for ev in rows]
        active[self.place], backup[self.place] = len(self.active), len(self.backup)
