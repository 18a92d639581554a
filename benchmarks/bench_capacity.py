"""How many cores and how much memory hosts need at each level of fidelity, from the costs that `mrclab plan` uses.

The same load at all levels: each host sends to one other on two planes of 10 Mb/s, at full rate. Nothing is run. Labs
that can be made are computed; larger numbers of hosts continue the two largest labs linearly, and are marked by `~`.
"""

from __future__ import annotations

from typing import Any

from benchmarks import scaled

#: Hosts for which a table is printed.
WANTED = scaled((1_000, 10_000, 100_000), (1_000,))
#: T0 switches per plane, with as many hosts each, of the labs that are computed on the real and on the virtual clock.
REAL_SIDES, VIRTUAL_SIDES = scaled((8, 16), (2, 3)), scaled((16, 32), (2, 3))
#: NICs and radix of the clusters that are computed.
CLUSTERS = scaled(((1_024, 64), (10_240, 256), (131_072, 512)), ((2_048, 64),))


def lab(side: int) -> Any:
    """Return the topology of two planes with `side` T0, and as many hosts at each."""
    from mrc_topo.schema import Lab
    from mrc_topo.topology import Topology

    link = {"rate": "10Mbps", "delay": "100us"}
    shape: dict[str, object] = {"planes": 2, "t0_per_plane": side, "t1_per_plane": min(side, 8), "hosts": side * side}
    shape |= {"hosts_per_t0": side, "links": {"host": link, "fabric": {**link, "rate": "40Mbps"}}}
    return Topology(Lab.model_validate({"name": "capacity", "max_oversubscription": 8, **shape}))


def needs(side: int) -> dict[str, dict[str, float]]:
    """Return cores and bytes by level, for a second of a lab's permutation."""
    from mrc_runs.experiment import Experiment
    from mrc_studies.estimates import costs, real
    from mrc_studies.estimates.traffic import expected
    from mrc_studies.estimates.work import work_of

    topology = lab(side)
    workload = {"name": "permutation", "params": {"message_bytes": 1 << 16, "shift": side}, "duration": 1}
    experiment = Experiment.model_validate({"name": "capacity", "title": "capacity", "workload": workload})
    traffic = expected(topology, experiment.workload.spec(), "mrc")
    work = work_of(experiment, topology, traffic)
    found, known = real.needs(topology, traffic, work, 1.0), costs.shipped()
    return {
        "real": {"cores": found.cores, "memory": found.memory_bytes},
        "virtual": {
            "cores": sum(known.seconds("simulate", work).values()) / traffic.seconds,
            "memory": sum(known.resident_bytes(work).values()),
        },
    }


def run() -> None:
    """Print a line per level and number of hosts."""
    from mrc_scale.clusterfile import load_cluster
    from mrc_studies.estimates import cluster
    from mrc_studies.estimates.estimate import Machine

    print(f"{'level':<14}{'hosts':>10}{'cores, or CPU s per s':>24}{'memory GiB':>12}")
    for level, sides in (("real", REAL_SIDES), ("virtual", VIRTUAL_SIDES)):
        small, large = (needs(side)[level] for side in sides)
        few, many = (side * side for side in sides)
        for hosts in (many, *(each for each in WANTED if each > many)):
            share = (hosts - few) / (many - few)
            cells = [small[what] + share * (large[what] - small[what]) for what in ("cores", "memory")]
            mark = "" if hosts == many else "~"
            print(f"{level:<14}{mark + format(hosts, ','):>10}{cells[0]:>24,.1f}{cells[1] / 2**30:>12,.2f}", flush=True)
    for nics, radix in CLUSTERS:
        loaded = load_cluster("cluster-131k", {"nics": nics, "radix": radix, "failures": []})
        made = cluster.estimate(loaded, Machine(1, 1 << 50, 1.0, 1.0))
        print(
            f"{'scale, a run':<14}{nics:>10,}{made.cpu_seconds:>24,.1f}{made.memory_bytes / 2**30:>12,.2f}", flush=True
        )
