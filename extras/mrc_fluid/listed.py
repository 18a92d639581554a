"""Clusters in `mrclab list`."""

from __future__ import annotations

from mrc_fluid.clusterfile import builtin_clusters, load_cluster
from mrclab.cli.listed import Available, ListedKind, Section


def _clusters() -> list[Available]:
    found = {name: load_cluster(name) for name in builtin_clusters()}
    return [
        Available(name, each.cluster.description, {"NICs": str(each.shape.nics), "planes": str(each.shape.planes)})
        for name, each in found.items()
    ]


SECTIONS = {ListedKind.CLUSTERS: Section("mrclab scale NAME", builtin_clusters, _clusters)}
