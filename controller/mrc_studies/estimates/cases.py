"""The short runs from which the costs of a machine are computed: each has much of a few quantities."""

from __future__ import annotations

import json
from collections.abc import Mapping

from mrc_runs.experiment import Experiment
from mrc_studies.estimates.child import Order
from mrc_topo.schema import Lab
from mrc_topo.topology import Topology


def _shape(
    planes: int, t0: int, t1: int, per_t0: int, rate: str, delay: str = "20us", **other: object
) -> dict[str, object]:
    link = {"rate": rate, "delay": delay}
    return {
        "planes": planes,
        "t0_per_plane": t0,
        "t1_per_plane": t1,
        "hosts": t0 * per_t0,
        "hosts_per_t0": per_t0,
        "links": {"host": link, "fabric": link},
        **other,
    }


def _load(name: str, duration: float, **params: object) -> dict[str, object]:
    return {"name": name, "duration": duration, "params": params}


_MANY = {"size": 64, "active": 32}
#: Lab, workload and transport, by name.
CASES: Mapping[str, tuple[dict[str, object], dict[str, object], str]] = {
    # One switch: packets of 4 KiB, and packets of 1 KiB.
    "packets": (_shape(1, 1, 0, 2, "1Gbps"), _load("send_recv", 0.4, message_bytes=1 << 20, window=4), "mrc"),
    "small packets": (
        _shape(1, 1, 0, 2, "200Mbps", path_mtu=1024),
        _load("send_recv", 0.5, message_bytes=1 << 20, window=4),
        "mrc",
    ),
    # Three switches on the way.
    "spine": (_shape(2, 2, 2, 2, "100Mbps"), _load("permutation", 0.6, message_bytes=1 << 18, shift=2), "mrc"),
    "ring": (_shape(2, 4, 2, 4, "50Mbps"), _load("ring_all_reduce", 0.5, size_bytes=1 << 22), "mrc"),
    # More hosts than caches hold the state of.
    "scattered": (
        _shape(2, 8, 8, 8, "1Gbps"),
        {"name": "permutation", "params": {"message_bytes": 1 << 18, "shift": 8, "iterations": 24}},
        "mrc",
    ),
    # Messages of one small packet, which come one by one.
    "alone": (_shape(1, 1, 0, 2, "100Mbps"), _load("write_lat", 1, message_bytes=8), "mrc"),
    "messages": (
        _shape(2, 8, 4, 4, "50Mbps", path_mtu=1024, ev=_MANY),
        _load(
            "training",
            0.3,
            compute_us=10_000,
            gradient_bytes=32_768,
            pipeline=4,
            micro_batches=4,
            experts=4,
            activation_bytes=4096,
            expert_bytes=4096,
        ),
        "mrc",
    ),
    "tree": (
        _shape(2, 16, 8, 16, "100Mbps", path_mtu=1024, ev=_MANY),
        _load("tree_all_reduce", 0.12, size_bytes=1024),
        "mrc",
    ),
    # Time alone: many ports and switches, many hosts, many queue pairs. Links are long, so that little is sent.
    "idle ports": (_shape(8, 4, 4, 4, "10Mbps", "5ms"), _load("write_lat", 6, message_bytes=8), "mrc"),
    "idle hosts": (_shape(1, 8, 4, 16, "10Mbps", "5ms", ev=_MANY), _load("write_lat", 4, message_bytes=8), "mrc"),
    "idle pairs": (
        _shape(1, 2, 1, 16, "100Mbps", ev=_MANY),
        _load(
            "training", 4, compute_us=1_500_000, gradient_bytes=1024, buckets=1, pipeline=2, experts=16, expert_bytes=64
        ),
        "mrc",
    ),
    "wide": (_shape(4, 8, 8, 1, "10Mbps", "5ms"), _load("write_lat", 1, message_bytes=8), "mrc"),
    # What hosts find is asked for after a failure.
    "failure": (_shape(8, 4, 4, 4, "10Mbps", "5ms"), _load("write_lat", 6, message_bytes=8), "mrc"),
    "roce": (
        _shape(2, 2, 2, 2, "100Mbps", path_mtu=1024),
        _load("permutation", 0.6, message_bytes=1 << 18, shift=2),
        "roce",
    ),
    "roce pairs": (
        _shape(2, 16, 4, 16, "100Mbps", path_mtu=1024),
        _load("tree_all_reduce", 0.05, size_bytes=1024),
        "roce",
    ),
}
#: What fails in a case, by name.
FAILURES: Mapping[str, dict[str, object]] = {
    "failure": {"at": 0.1, "fail": "p7-t0.3--p7-t1.3", "evidence": {"dropped": 1}}
}


def order_of(name: str) -> Order:
    """Return what a child is to run for a case."""
    shape, load, transport = CASES[name]
    lab = {"name": "plan", **shape}
    experiment: dict[str, object] = {
        "name": "plan",
        "title": name,
        "transport": transport,
        "workload": load,
        "expect": {"valid": False},
    }
    if name in FAILURES:
        experiment["schedule"] = [FAILURES[name]]
    return Order(experiment, json.dumps(lab))  # JSON is YAML, too


def built(name: str) -> tuple[Experiment, Topology]:
    """Return the experiment and the lab of a case."""
    shape, _, transport = CASES[name]
    lab = Lab.model_validate({"name": "plan", **shape})
    return Experiment.model_validate(order_of(name).experiment), Topology(lab).for_transport(transport)
