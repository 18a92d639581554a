"""Labs of all shapes and modes, for Hypothesis."""

from __future__ import annotations

from hypothesis import strategies as st

from mrc_topo import Lab, RoutingMode, SprayKind, Topology


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
