"""Makes the pictures of docs/web.md and docs/scale.md:

    python docs/screenshots.py [simulation] [lab] [run] [racks] [cluster]

Needs `make setup-web`; `lab` needs namespaces, `cluster` the extra `scale`. Each picture is of the page over a lab, a
simulation or a recorded run, or of a cluster's report.
"""

from __future__ import annotations

import contextlib
import io
import os
import pathlib
import sys
import tempfile
from collections.abc import Iterator
from typing import Any

from PIL import Image

from mrc_fluid import kernels
from mrc_fluid.calibration import produce, report
from mrc_fluid.clusterfile import load_cluster
from mrclab.lab import lifecycle
from mrclab.lab.records import rundir
from mrclab.lab.requested import LabRequest
from mrclab.runs.execute import execute
from mrclab.runs.experiment import load_experiment
from mrclab.web.hub import Hub
from mrclab.web.lab import LabView
from mrclab.web.replay import Recorded, Replay

ROOT = pathlib.Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))
from support.browser import browser, lacking  # noqa: E402
from support.web import SHORT, Watching, served, simulating, watching  # noqa: E402

ASSETS = ROOT / "docs" / "assets"
COLOURS = 255
LINK = "p1-t0.0--p1-t1.0"


@contextlib.contextmanager
def page(chromium: Any, view: Watching) -> Iterator[Any]:
    """Open the page over a view, and yield it once it shows something."""
    with served(view.hub) as serving:
        made = chromium.new_page(viewport={"width": 1280, "height": 800}, color_scheme="light")
        made.set_default_timeout(120_000)
        made.goto(serving.url)
        until(made, "window.mrclab?.latest()")
        yield made
        made.close()


def until(made: Any, script: str) -> None:
    """Until an expression is true in the page."""
    while not made.evaluate(f"Boolean({script})"):
        made.wait_for_timeout(100)


def save(made: Any, name: str) -> None:
    """Save a small PNG."""
    # Long enough that nothing shines any more, and short of the next states.
    made.wait_for_timeout(300)
    picture = Image.open(io.BytesIO(made.screenshot())).convert("RGB")
    path = ASSETS / f"web-{name}.png"
    picture.quantize(COLOURS, Image.Quantize.MEDIANCUT, kmeans=3, dither=Image.Dither.NONE).save(path, optimize=True)
    print(f"{path.relative_to(ROOT)}: {path.stat().st_size} bytes")


def simulation(chromium: Any) -> None:
    """Show a link that is cut; the EVs that crossed it are assumed bad."""
    with simulating("default", speed=0, paused=True) as view, page(chromium, view) as made:
        view.ask("start", workload="ring_all_reduce", params={"size_bytes": 1 << 20})
        view.ask("resume")
        view.until(lambda state: state["t_ns"] > 700_000_000)
        view.ask("fail", target=LINK)
        view.ask("fail", target="h5:2", kind="port_down")
        view.until(lambda state: LINK in state["found"] and "h5:2" in state["found"], 300)
        made.click("#tab-pair")
        made.select_option("#source", "h1")
        made.select_option("#destination", "h2")
        made.wait_for_selector("#evs .ev.ASSUMED_BAD")
        view.ask("pause")
        made.locator("#evs .ev.ASSUMED_BAD").first.click()
        save(made, "simulation")


def lab(chromium: Any) -> None:
    """Show a lab on the real clock with a T1 off and selected."""
    if lifecycle.problem() is not None:
        print(f"lab: left out: {lifecycle.problem()}")
        return
    with tempfile.TemporaryDirectory(prefix="mrclab-pictures-") as folder:
        os.environ["MRCLAB_RUN"] = folder
        lifecycle.up(LabRequest.of("default", clock="real"))
        try:
            hub = Hub()
            shown = LabView(hub, "default", load_experiment, [])
            with watching(hub, shown.go) as view, page(chromium, view) as made:
                view.ask("start", workload="ring_all_reduce", params={"size_bytes": 1 << 18})
                began = view.until(lambda state: state["goodput_bps"] > 0)["t_ns"]
                view.until(lambda state: state["t_ns"] > began + 6 * 10**9)
                view.ask("fail", target="p2-t1.1")
                view.until(lambda state: "p2-t1.1" in state["found"])
                made.evaluate("mrclab.fabric.choose('p2-t1.1')")
                save(made, "lab")
        finally:
            rundir.down("default")


def run(chromium: Any) -> None:
    """Show a recorded run in the middle of its failure."""
    with tempfile.TemporaryDirectory(prefix="mrclab-pictures-") as folder:
        execute(SHORT.model_copy(update={"lab": "default"}), folder=pathlib.Path(folder), live=False)
        hub = Hub()
        with watching(hub, Replay(hub, Recorded(pathlib.Path(folder))).go) as view, page(chromium, view) as made:
            view.ask("pause")
            view.ask("seek", seconds=0.33)
            until(made, "mrclab.latest().t_ns === 330000000")
            made.click("#tab-job")
            save(made, "run")


def racks(chromium: Any) -> None:
    """Show a lab whose hosts are drawn by T0: 1024 of them, with a T1 off."""
    with simulating("thousand", speed=0, paused=True) as view, page(chromium, view) as made:
        # A thousand agents take their time to begin.
        for command, arguments in (
            ("start", {"workload": "permutation", "params": {"message_bytes": 1 << 16}}),
            ("resume", {}),
        ):
            view.hub.submit(command, arguments).result(600)
        began = view.until(lambda state: state["goodput_bps"] > 0, 600)["t_ns"]
        view.hub.submit("fail", {"target": "p1-t1.3"}).result(600)
        view.until(lambda state: state["t_ns"] > began + 2 * 10**7, 600)
        view.hub.submit("pause", {}).result(600)
        made.evaluate("mrclab.fabric.choose('p1-t1.3')")
        save(made, "racks")


def cluster(chromium: Any) -> None:
    """Show the load of a cluster's links between switches, some of which a failure has emptied."""
    made = produce.run(load_cluster("power-16k"), kernels.compiled())
    with tempfile.TemporaryDirectory(prefix="mrclab-pictures-") as folder:
        path = pathlib.Path(folder) / "report.html"
        path.write_text(report.render(made, made.result.series()), encoding="utf-8")
        shown = chromium.new_page(viewport={"width": 1280, "height": 800})
        shown.goto(path.as_uri())
        until(shown, "document.querySelector('#key').textContent")
        shown.get_by_role("heading", name="Load of links").evaluate("heading => heading.scrollIntoView()")
        save(shown, "cluster")


def main(names: list[str]) -> int:
    """Entry point."""
    if lacking():
        print(lacking(), file=sys.stderr)
        return 1
    known = {"simulation": simulation, "lab": lab, "run": run, "racks": racks, "cluster": cluster}
    with browser() as chromium:
        for name in names or list(known):
            known[name](chromium)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
