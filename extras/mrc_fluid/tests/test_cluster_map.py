"""The map of a cluster's links in the report of `mrclab scale`, in a browser."""

from __future__ import annotations

import pathlib
from typing import Any

import pytest

from mrc_fluid import kernels
from mrc_fluid.calibration import produce, report
from mrc_fluid.clusterfile import parse_cluster
from support.browser import browser, lacking, opened

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(lacking()), reason=lacking())]

CLUSTER = """
name: small
radix: 16
planes: 2
nics: 32
ev: {size: 16, active: 8}
duration: 1s
jobs:
  - {name: experts, kind: all_to_all, group: 16, peers: 2, message: 1MiB, compute: 1ms}
failures:
  - {at: 500ms, fail: p1-t0.2--p1-t1.3}
"""


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    made = produce.run(parse_cluster(CLUSTER, "small.yaml"), kernels.reference())
    path: pathlib.Path = tmp_path_factory.mktemp("cluster") / "report.html"
    path.write_text(report.render(made, made.result.series()), encoding="utf-8")
    return path.as_uri()


def test_arrow_keys_go_from_link_to_link_and_tell_which_is_dead(page: str) -> None:
    with browser() as made:
        one = opened(made, page)
        one.until("document.querySelector('#key').textContent")
        one.page.select_option("#plane", "1")
        one.page.focus("#map")
        for key in ("ArrowDown", "ArrowDown", "ArrowRight", "ArrowRight", "ArrowRight"):
            one.page.keyboard.press(key)
        assert one.page.inner_text("#told") == "p1-t0.2--p1-t1.3: dead"
        one.page.select_option("#when", "0")
        one.page.keyboard.press("Tab")
        one.page.focus("#map")
        one.page.keyboard.press("ArrowLeft")
        assert one.page.inner_text("#told").startswith("p1-t0.2--p1-t1.2: ")
        whole = one.page.inner_text("#key")
        one.page.select_option("#range", "shown")
        assert one.page.inner_text("#key") != whole


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_report_breaks_no_rule_of_axe(page: str, scheme: str) -> None:
    axe: Any = pytest.importorskip(
        "axe_playwright_python.sync_playwright", reason="axe is missing: make setup-web"
    ).Axe()
    with browser() as made:
        one = opened(made, page, color_scheme=scheme)
        found = axe.run(one.page).response["violations"]
        assert [(each["id"], each["nodes"][0]["target"]) for each in found] == []
