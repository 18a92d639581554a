"""Shared test set-up: what the markers lab, netns and root need, and fixed, printed seeds."""

from __future__ import annotations

import os
import pathlib
import signal
from collections import Counter
from collections.abc import Generator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

SEED = int(os.environ.get("MRCLAB_SEED", "20260101"))
CAP_NET_ADMIN = 12
HANDLED = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGCHLD, signal.SIGPIPE)
#: What a C compiler remarks about a generated program fails a test, and not a user's program.
os.environ["P4LITE_WARNINGS"] = "errors"
HANDLERS = pytest.StashKey[list[Any]]()

settings.register_profile("mrclab", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("mrclab")


def pytest_report_header() -> str:
    return f"seed: {SEED} (MRCLAB_SEED changes it); hypothesis: derandomized"


def _may_make_interfaces() -> bool:
    status = pathlib.Path("/proc/self/status").read_text().splitlines()
    effective = next(int(line.split()[1], 16) for line in status if line.startswith("CapEff:"))
    return os.geteuid() == 0 and bool(effective >> CAP_NET_ADMIN & 1)


#: Files of the workshop whose slow tests check whole exercises; they count as `long`. All long tests take some eight
#: minutes on two cores.
LONG = ("test_readmes.py", "test_wrong_answers.py", "test_grade.py", "test_scores.py", "test_format.py")


def _slow_files_first(items: list[pytest.Item]) -> None:
    """Order files by how many slow tests they have, so that none keeps one worker busy when the others are done."""
    slow = Counter(item.path for item in items if item.get_closest_marker("slow"))
    items.sort(key=lambda item: -slow[item.path])


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    _slow_files_first(items)
    marked = {name: [item for item in items if item.get_closest_marker(name)] for name in ("lab", "netns", "root")}
    why: dict[str, str | None] = {"lab": None, "netns": None, "root": None}
    # Imported where they are needed: the lab costs as much CPU as a file of quick tests.
    if marked["lab"]:
        from mrclab.lab import lifecycle

        why["lab"] = lifecycle.problem()
    if marked["netns"] and not _may_make_interfaces():
        why["netns"] = "no root of a network namespace: run it by `python -m mrclab.lab.processes.launch --run`"
    if marked["root"]:
        from mrclab.lab.processes.namespaces import is_machine_root

        if not is_machine_root():
            why["root"] = "needs the machine's root"
    for item in items:
        if "mrc_workshop" in item.path.parts and item.path.name in LONG and item.get_closest_marker("slow"):
            item.add_marker(pytest.mark.long)
        if item.get_closest_marker("long") and not os.environ.get("MRCLAB_LONG"):
            item.add_marker(pytest.mark.skip(reason="takes minutes: MRCLAB_LONG=1 runs it, as make soak does"))
    for name, reason in why.items():
        for item in marked[name] if reason else ():
            item.add_marker(pytest.mark.skip(reason=reason))  # type: ignore[arg-type]


@pytest.fixture
def seed() -> int:
    """Return the seed of every random choice that a test makes itself."""
    return SEED


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, None, None]:
    item.stash[HANDLERS] = [signal.getsignal(number) for number in HANDLED]
    yield


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, None, None]:
    """Fail a test that leaves a signal handler behind: worker processes forked by later tests would survive SIGTERM."""
    yield
    handlers = item.stash[HANDLERS]
    for number, before in zip(HANDLED, handlers, strict=True):
        after = signal.getsignal(number)
        if after is not before:
            signal.signal(number, before)
        # Libraries put back the usual handler even where a signal was ignored before, as it is in background jobs.
        usual = (signal.SIG_DFL, signal.SIG_IGN, signal.default_int_handler) if number is not signal.SIGPIPE else ()
        if after is not before and after not in usual:
            pytest.fail(f"the test left the handler {after!r} of {number.name} behind; restore {before!r}")
