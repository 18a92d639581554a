"""Clusters by name: a plain name is never a file."""

from __future__ import annotations

import pathlib

import pytest

from mrc_fluid.clusterfile import ClusterError, builtin_clusters, load_cluster


def test_a_plain_name_is_never_a_file(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("cluster-131k", "mine"):
        (tmp_path / name).write_text("nonsense")
    assert load_cluster("cluster-131k").cluster
    assert "cluster-131k" in builtin_clusters()
    with pytest.raises(ClusterError, match=r"mine: no cluster of that name; known: .*; a file is given by its path"):
        load_cluster("mine")
