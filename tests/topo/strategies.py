"""Labs of all shapes and modes, for Hypothesis."""

from __future__ import annotations

from hypothesis import strategies as st

from mrc_topo.graph_topology import build_topology
from mrc_topo.modes import RoutingMode, SprayKind
from mrc_topo.schema import Lab
from mrc_topo.topology import Topology


@st.composite
def topologies(draw: st.DrawFn, modes: tuple[RoutingMode, ...] = tuple(RoutingMode)) -> Topology:
    """Return a topology with up to 8 planes, 5 T0, 5 T1 and 3 hosts per T0."""
    planes = draw(st.integers(1, 8))
    t0 = draw(st.integers(1, 5))
    t1 = draw(st.integers(0 if t0 == 1 else 1, 5))
    per_t0 = draw(st.integers(1, 3))
    hosts = draw(st.integers((t0 - 1) * per_t0 + 1, t0 * per_t0))
    return Topology(
        Lab.model_validate(
            {
                "name": "drawn",
                "planes": planes,
                "t0_per_plane": t0,
                "t1_per_plane": t1,
                "hosts": hosts,
                "hosts_per_t0": per_t0,
                "routing": {"mode": draw(st.sampled_from(modes)), "spray": draw(st.sampled_from(SprayKind))},
                "ev": {"size": 16 * planes, "active": 8 * planes, "min_active": 1},
                "seed": draw(st.integers(0, 2**32)),
            }
        )
    )


@st.composite
def graphs(draw: st.DrawFn, most_switches: int = 6) -> Topology:
    """Return a connected graph with 2 to 4 hosts of up to two ports, and any links between its switches."""
    count = draw(st.integers(1, most_switches))
    trunks = {(draw(st.integers(0, at - 1)), at) for at in range(1, count)}
    pairs = [(one, other) for other in range(count) for one in range(other)]
    trunks |= draw(st.sets(st.sampled_from(pairs), max_size=6)) if pairs else set()
    planes, hosts = draw(st.integers(1, 2)), draw(st.integers(2, 4))
    links = [[f"h{host}", f"s{draw(st.integers(0, count - 1))}"] for host in range(hosts) for _ in range(planes)] + [
        [f"s{one}", f"s{other}"] for one, other in sorted(trunks)
    ]
    # Every switch must be connected to a host, so the others are not in the way: all are in one component.
    paths = {"limit": draw(st.integers(1, 8)), "extra_hops": draw(st.integers(0, 2))}
    return build_topology(
        Lab.model_validate(
            {
                "name": "drawn",
                "topology": {
                    "switches": [f"s{at}" for at in range(count)],
                    "hosts": [f"h{at}" for at in range(hosts)],
                    "links": draw(st.permutations(links)),
                    "paths": paths,
                },
                "routing": {"mode": "srv6_srh" if count > 5 else draw(st.sampled_from(["srv6_usid", "srv6_srh"]))},
                "ev": {"size": 16 * planes, "active": 8 * planes, "min_active": 1},
                "path_mtu": 1024,
            }
        )
    )
