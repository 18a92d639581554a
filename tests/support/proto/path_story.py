"""A story of endpoints with several planes, paths and EVs, whose network neither marks, trims nor drops."""

from __future__ import annotations

from mrc_host.proto.config import EvConfig, PortsConfig, ReliabilityConfig, WireConfig
from support.proto.net import NetConfig
from support.proto.story import WIDE, Story

MTU = 1024
PATHS = 4
INTERVAL = 200_000


def story(planes: int = 2, *, ev: EvConfig | None = None, gbps: int = 100, seed: int = 1, **changes: object) -> Story:
    """Return a story of two endpoints; `changes` replace settings of both."""
    rate = gbps * 10**9
    config = NetConfig(
        planes=planes,
        paths=PATHS,
        port_rate_bps=rate,
        path_rate_bps=rate,
        trim_bytes=None,
        ecn=None,
        queue_bytes=1 << 30,
        port_queue_bytes=1 << 30,
    )
    settings: dict[str, object] = {
        "wire": WireConfig(mtu=MTU),
        "cc": WIDE,
        "ports": PortsConfig(count=planes),
        "reliability": ReliabilityConfig(timeout=10),
        "ev": ev or EvConfig(count=32, active=16, probe_interval_ns=INTERVAL, probe_timeout_ns=INTERVAL),
    }
    return Story(config, seed, **(settings | changes))
