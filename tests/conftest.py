"""Shared test set-up: the root marker's skip, and fixed, printed seeds."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, settings

SEED = int(os.environ.get("MRCLAB_SEED", "20260101"))

settings.register_profile("mrclab", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("mrclab")


def pytest_report_header() -> str:
    return f"seed: {SEED} (MRCLAB_SEED changes it); hypothesis: derandomized"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if os.geteuid() == 0:
        return
    skip = pytest.mark.skip(reason="needs root (network namespaces, raw sockets)")
    for item in items:
        if item.get_closest_marker("root"):
            item.add_marker(skip)


@pytest.fixture
def seed() -> int:
    """The seed of every random choice that a test makes itself."""
    return SEED
