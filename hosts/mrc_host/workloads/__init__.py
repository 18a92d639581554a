"""Workloads whose data is checked: collectives, point-to-point streams, and perftest's two classics."""

from __future__ import annotations

from mrc_host.workloads.base import Channel, Progress, Workload, WorkloadError
from mrc_host.workloads.exchange import AllToAll
from mrc_host.workloads.latency import WriteLat
from mrc_host.workloads.ring import AllGather, ReduceScatter, RingAllReduce
from mrc_host.workloads.streams import Incast, Permutation, SendRecv, WriteBw
from mrc_host.workloads.tree import TreeAllReduce

WORKLOADS: dict[str, type[Workload]] = {
    kind.name: kind
    for kind in (
        RingAllReduce,
        TreeAllReduce,
        ReduceScatter,
        AllGather,
        AllToAll,
        Permutation,
        Incast,
        SendRecv,
        WriteBw,
        WriteLat,
    )
}

__all__ = ["WORKLOADS", "Channel", "Progress", "Workload", "WorkloadError"]
