"""A network of hosts whose retry times are short, for tests of peers, profiles and outages."""

from __future__ import annotations

import random
from typing import Any

from mrc_host.proto.config import (
    EndpointConfig,
    EvConfig,
    PortsConfig,
    ReliabilityConfig,
    WireConfig,
)
from mrc_host.proto.endpoint import Endpoint
from support.proto.net import NetConfig
from support.proto.story import WIDE
from support.proto.workload import Bench

MTU = 1024
PLANES = 4
MS = 1_000_000


def bench(planes: int = PLANES, **changes: Any) -> Bench:
    """Return a bench without trimming and ECN; `changes` replace fields of `EndpointConfig`."""
    settings: dict[str, Any] = {
        "wire": WireConfig(mtu=MTU),
        "cc": WIDE,
        "ports": PortsConfig(count=planes),
        "reliability": ReliabilityConfig(timeout=8, linear_cnt=2, exp_cnt=2),
        "ev": EvConfig(count=8 * planes, active=4 * planes, ev_min_active=1),
    }
    return Bench(NetConfig(planes=planes, trim_bytes=None, ecn=None), 3, **(settings | changes))


def lone(planes: int = 1) -> Endpoint:
    """Return an endpoint that is connected to none."""
    return Endpoint(
        EndpointConfig(
            address=bytes(15) + b"\x01", ports=PortsConfig(count=planes), ev=EvConfig(count=8 * planes, active=4)
        ),
        random.Random(1),
    )
