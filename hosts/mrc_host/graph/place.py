"""Placement of ranks: rack-aligned, at random, or in what a cluster in use has left."""

from __future__ import annotations

import random

import numpy as np

from mrc_host.graph.errors import GraphError
from mrc_host.graph.graph import Ints

PLACEMENTS = ("rack", "random", "fragmented")


def place(placement: str, ranks: int, hosts: int, per_rack: int, fragment: int = 1, seed: int = 1) -> Ints:
    """Return the host of each rank; host n is in rack `n // per_rack`, below one T0 of each plane.

    `rack` fills rack after rack. `random` takes any host. `fragmented` takes `fragment` neighbouring hosts of a rack at
    a time, and a rack again only when all racks have given as many; which racks come first is drawn.

    Raises:
        GraphError: no such placement, or too few hosts.
    """
    if placement not in PLACEMENTS:
        raise GraphError(f"no placement '{placement[:40]}'; known: {', '.join(PLACEMENTS)}")
    if ranks > hosts:
        raise GraphError(f"{ranks} ranks on {hosts} hosts; use a larger lab or cluster, or fewer ranks")
    order = list(range(hosts))
    rng = random.Random(f"{seed}/{placement}")
    if placement == "random":
        rng.shuffle(order)
    elif placement == "fragmented":
        if per_rack < 1 or fragment < 1:
            raise GraphError("fragmented needs rack_hosts, the hosts below a T0, and fragment, at least 1 each")
        racks = list(range(-(-hosts // per_rack)))
        rng.shuffle(racks)
        position = {rack: number for number, rack in enumerate(racks)}
        order.sort(key=lambda host: (host % per_rack // fragment, position[host // per_rack], host % per_rack))
    return np.array(order[:ranks], np.int64)
