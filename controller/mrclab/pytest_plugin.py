"""Plugin of pytest: the fixture `lab` is a lab in simulated time, which `@pytest.mark.lab("tiny", seed=3)` chooses.

Without the mark it is lab tiny. The report of the last job of a test that fails is kept in the test's `tmp_path`.

`conftest.py` asks for it by `pytest_plugins = "mrclab.pytest_plugin"`. It is no entry point, since pytest would
rewrite the assertions of all of mrclab then, in every run.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from mrc_topo.base.errors import MrclabError

if TYPE_CHECKING:
    from mrclab.api import Lab

REPORT = "report.html"


def pytest_configure(config: pytest.Config) -> None:
    """Register the mark."""
    config.addinivalue_line("markers", "lab(source, **keys): the lab of the fixture `lab`; arguments of mrclab.Lab")


@pytest.fixture
def lab(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Lab]:
    """Yield the lab of the test's mark, which is closed after the test."""
    # Test runs without labs do not import this.
    from mrclab.api import Lab

    mark = request.node.get_closest_marker("lab")
    arguments = mark.args if mark and mark.args else ("tiny",)
    with Lab(*arguments, **(mark.kwargs if mark else {})) as opened:
        yield opened


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Keep the report of the last job of a lab whose test has failed, and say where it is."""
    found = yield
    used = getattr(item, "funcargs", {})
    if call.when == "call" and found.failed and "lab" in used:
        from mrclab.api import Lab

        # Others call a fixture of their own like this.
        if isinstance(used["lab"], Lab) and used["lab"].results and "tmp_path" in used:
            path = used["tmp_path"] / REPORT
            try:
                used["lab"].results[-1].report(path)
                found.sections.append(("mrclab", f"report of the last job: {path}"))
            except MrclabError as error:
                found.sections.append(("mrclab", f"no report of the last job: {error}"))
    return found
