"""Fixtures of the switch's tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.switch.p4rt import Bench, Controller, control_config


@pytest.fixture
def bench() -> Iterator[Bench]:
    """Yield a served switch without pipeline, on the virtual clock."""
    made = Bench()
    yield made
    made.close()


@pytest.fixture
def primary(bench: Bench) -> Iterator[Controller]:
    """Yield the primary controller of `bench`, with the pipeline of control.p4."""
    with Controller(bench.address) as controller:
        controller.arbitrate()
        controller.set_pipeline(control_config())
        yield controller
