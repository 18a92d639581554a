"""Three tiers in a cluster file: the sizes of pods, and what is wrong with them."""

from __future__ import annotations

from collections.abc import Iterator

from mrc_fluid.fabric import FabricShape
from mrc_fluid.schema import MAX_NICS, Cluster
from mrc_topo.base.document import KeyPath

#: Keys of three tiers alone.
KEYS = ("pods", "t0_per_pod", "t1_per_pod", "t1_uplinks", "t2_per_plane")
#: Paths of a plane: an EV holds one in 16 bits.
MAX_NUMBERS = 1 << 16
#: Halves of paths of all planes; each costs about 100 bytes of memory.
MAX_HALVES = 1 << 25


def shape_of(cluster: Cluster) -> FabricShape:
    """Return the fabric of a cluster of three tiers, without a check."""
    half = cluster.radix // 2
    per_t0, t0_per_pod = cluster.nics_per_t0 or half, cluster.t0_per_pod or half
    t1s, uplinks = cluster.t1_per_pod or half, cluster.t1_uplinks or half
    nics = cluster.nics or per_t0 * t0_per_pod * (cluster.pods or cluster.radix)
    t0s, rate = -(-nics // per_t0), cluster.port_rate
    pods = -(-t0s // t0_per_pod)
    if cluster.t2_per_plane is None:
        # The most links between a T1 and a T2 that a T2 has ports for.
        divisors = (each for each in range(uplinks, 0, -1) if uplinks % each == 0)
        parallel = next((each for each in divisors if each * pods <= cluster.radix), 1)
    else:
        parallel = max(t1s * uplinks // cluster.t2_per_plane, 1)
    return FabricShape(
        cluster.planes, t0s, t1s, nics, per_t0, rate, cluster.fabric_rate or rate, t0_per_pod, uplinks, parallel
    )


def wrong(cluster: Cluster, shape: FabricShape) -> Iterator[tuple[KeyPath, str]]:
    """Yield key and text of what is impossible about the tiers of a cluster."""
    if cluster.tiers == 2:
        for key in KEYS:
            if getattr(cluster, key) is not None:
                yield (key,), "is a key of three tiers; add 'tiers: 3', or remove it"
        return
    radix = cluster.radix
    if cluster.t1_per_plane is not None:
        yield ("t1_per_plane",), "is a key of two tiers; use t1_per_pod"
    ports = shape.t0_per_pod + shape.uplinks
    if ports > radix:
        text = f"a T1 needs {shape.t0_per_pod} + {shape.uplinks} = {ports} ports, the radix is {radix}"
        yield ("radix",), f"{text}; raise radix or lower t0_per_pod or t1_uplinks"
    given = cluster.t2_per_plane
    if given is not None and (given % shape.t1s or shape.uplinks % max(given // shape.t1s, 1)):
        text = f"the {shape.uplinks} uplinks of {shape.t1s} T1s cannot be spread equally over {given} T2s"
        sizes = (shape.t1s * each for each in range(1, shape.uplinks + 1) if shape.uplinks % each == 0)
        yield ("t2_per_plane",), f"{text}; use one of {', '.join(map(str, sizes))}"
    elif shape.pods * shape.parallel > radix:
        links = f"{shape.parallel} links to each of {shape.pods} pods"
        text = f"a T2 needs {links} = {shape.pods * shape.parallel} ports, the radix is {radix}"
        remedy = "raise t2_per_plane" if shape.parallel > 1 else "lower nics or pods, or raise t0_per_pod"
        yield ("radix",), f"{text}; {remedy} or raise radix"
    if cluster.pods is not None and cluster.pods != shape.pods:
        yield ("pods",), f"{shape.nics} NICs need {shape.pods} pods; give pods or nics, not both"
    if shape.nics > MAX_NICS:
        yield ("radix",), f"pods of this radix have {shape.nics} NICs, this model takes {MAX_NICS}; give nics or pods"
    elif shape.numbers > MAX_NUMBERS:
        text = f"{shape.t1s} T1s with {shape.uplinks} uplinks each, this model takes {MAX_NUMBERS} paths of a plane"
        yield ("radix",), f"{text}; lower t1_per_pod or t1_uplinks"
    elif shape.planes * shape.t0s * shape.numbers > MAX_HALVES:
        text = f"{shape.planes} planes x {shape.t0s} T0s x {shape.numbers} paths, this model takes {MAX_HALVES}"
        yield ("radix",), f"{text}; lower nics, planes, t1_per_pod or t1_uplinks"
