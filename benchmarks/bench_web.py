"""What the live view costs: a lab's agents and fabric while a page is open, and a browser's work for one update.

A ring goes on over a lab (`MRCLAB_LAB`, default) on the real clock, with and without a view in turn, `MRCLAB_RUNS` (3)
times `MRCLAB_SECONDS` (10) each. The page's part needs `make setup-web`; it is of a lab of 24 switches whose every link
changes with every update.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import pathlib
import statistics
import sys
import tempfile
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any

import psutil

from benchmarks import scaled
from mrc_host.requests import GetView
from mrc_topo.labfile import load_lab
from mrclab.lab import lifecycle
from mrclab.lab.hosts.hostclient import ask_all
from mrclab.lab.records import rundir
from mrclab.lab.records.rundir import RunDir
from mrclab.lab.requested import LabRequest
from mrclab.lab.session.real import RealSession
from mrclab.runs.experiment import Experiment, ExperimentError
from mrclab.runs.runner import WorkloadRun
from mrclab.runs.workload import WorkloadSpec
from mrclab.web.hub import Hub
from mrclab.web.lab import LabView
from mrclab.web.server import Server, Serving, serving
from mrclab.web.state import ViewState, calm, layout_of
from mrclab.web.view import View

LAB = os.environ.get("MRCLAB_LAB", "default")
RUNS = int(os.environ.get("MRCLAB_RUNS", scaled("3", "1")))
SECONDS = float(os.environ.get("MRCLAB_SECONDS", scaled("10", "0.5")))
UPDATES = scaled(200, 5)
#: Before something is measured.
SETTLE_S = scaled(2.0, 0.1)
#: Updates in an hour.
HOUR = scaled(36_000, 120)


class Over(BaseException):
    """The measurement is over."""


def unknown(name: str) -> Experiment:
    """No experiments here."""
    raise ExperimentError(name)


def cpu_s(run: RunDir) -> float:
    """CPU seconds of all of a lab's processes so far."""
    found = 0.0
    # Several hosts may share a process.
    for pid in {process.pid for process in run.processes()}:
        with contextlib.suppress(psutil.Error):
            times = psutil.Process(pid).cpu_times()
            found += times.user + times.system
    return found


def share(run: RunDir) -> float:
    """Of a core, that a lab takes, over `SECONDS`."""
    before, began = cpu_s(run), time.monotonic()
    time.sleep(SECONDS)
    return (cpu_s(run) - before) / (time.monotonic() - began)


def read(serving: Serving, counted: list[int], over: threading.Event) -> None:
    """Read a page's stream as a browser does."""
    connection = http.client.HTTPConnection("127.0.0.1", serving.port, timeout=60)
    connection.request(
        "GET", "/api/stream?source=h0&destination=h1", headers={"Authorization": f"Bearer {serving.token}"}
    )
    answer = connection.getresponse()
    with contextlib.suppress(OSError):  # the server has ended
        while not over.is_set():
            line = answer.readline()
            counted[0] += line.startswith(b"event: state")
            counted[1] += len(line)


@contextlib.contextmanager
def looked_at(name: str) -> Iterator[tuple[View, list[int]]]:
    """View a lab with one page open; yield the view, and the number of states and bytes that the page received."""
    hub, over, counted = Hub(), threading.Event(), [0, 0]
    view = LabView(hub, name, unknown, [])

    def check() -> None:
        if over.is_set():
            raise Over

    def go() -> None:
        with contextlib.suppress(Over):
            view.go(check)

    thread = threading.Thread(target=go)
    thread.start()
    with serving(Server(hub), "127.0.0.1", 0) as made:
        reader = threading.Thread(target=read, args=(made, counted, over))
        reader.start()
        try:
            time.sleep(SETTLE_S)
            counted[0] = counted[1] = 0
            yield view.view, counted
        finally:
            over.set()
            thread.join()
            reader.join()
            view.view.close()


def answer_cost(session: RealSession, run: RunDir) -> None:
    """CPU time of each kind of question: what the lab takes to answer, without what it takes anyway, and what asking
    takes.

    Their ratio is `sampler.SampleKind.answers`. CPU time hardly depends on what else the machine does.
    """
    names = session.counter_names()
    counted = [names[each] for each in ("marked", "trimmed") if each in names]
    hosts = list(session.hosts.values())
    questions: dict[str, tuple[int, Callable[[], object]]] = {
        "all hosts": (100, lambda: ask_all(session.hosts, dict.fromkeys(session.hosts, GetView(1 << 40, False, True)))),
        "all hosts and their probes": (
            50,
            lambda: ask_all(session.hosts, dict.fromkeys(session.hosts, GetView(1 << 40, True, True))),
        ),
        "all ports": (150, session.samples),
        "all ports, marks and trims": (100, lambda: session.samples(counted)),
        "a pair": (50, lambda: hosts[0].request("pair", peer=list(session.hosts)[1])),
        "fidelity": (10, session.fidelity),
    }
    for name, (many, ask) in questions.items():
        before, began = cpu_s(run), time.monotonic()
        time.sleep(SETTLE_S)
        idle = (cpu_s(run) - before) / (time.monotonic() - began)
        before, began, own = cpu_s(run), time.monotonic(), time.thread_time()
        for _ in range(many):
            ask()
        own = (time.thread_time() - own) / many
        lab = (cpu_s(run) - before - idle * (time.monotonic() - began)) / many
        print(f"web: {name}: the lab {lab * 1e3:.2f} ms, asking {own * 1e3:.2f} ms, ratio {lab / own:.1f}")


def lab_cost() -> None:
    """Agents and fabric with and without a view."""
    problem = lifecycle.problem()
    if problem is not None:
        print(f"web: the lab's cost is not measured: {problem}")
        return
    with tempfile.TemporaryDirectory(prefix="mrclab-web-") as folder:
        os.environ["MRCLAB_RUN"] = folder
        name, _ = lifecycle.up(LabRequest.of(LAB, clock="real"))
        try:
            session = RealSession(name)
            answer_cost(session, RunDir(name))
            seconds = 2 * RUNS * (SECONDS + 5) + 30
            spec = WorkloadSpec("ring_all_reduce", {"size_bytes": 1 << 20}, duration_s=seconds)
            job = WorkloadRun(session, spec)
            runner = threading.Thread(target=job.go, daemon=True)
            runner.start()
            time.sleep(3)
            run = RunDir(name)
            without, beside, rates = [], [], []
            host_rates, port_rates = [], []
            for _ in range(RUNS):
                without.append(share(run))
                with looked_at(name) as (view, counted):
                    assert view.sampler is not None
                    hosts, ports = view.sampler.taken
                    began = time.monotonic()
                    beside.append(share(run))
                    took = time.monotonic() - began
                    rates.append(counted[0] / took)
                    host_rates.append((view.sampler.taken[0] - hosts) / took)
                    port_rates.append((view.sampler.taken[1] - ports) / took)
            median = statistics.median
            print(
                f"web: lab {LAB}, agents and fabric: {median(without):.1%} of a core, with a page open "
                f"{median(beside):.1%}: {median(beside) - median(without):+.1%}; {median(rates):.1f} updates/s; "
                f"new values of hosts {median(host_rates):.1f}, of ports {median(port_rates):.1f} times a second"
            )
        finally:
            rundir.down(name)
            del os.environ["MRCLAB_RUN"]


def busy_state(number: int, layout: Any) -> ViewState:
    """Return a state in which every link, switch and host differs from the one before; each second another switch is
    off.
    """
    state = calm(layout, number)
    load = [(number * 37 + at * 11) % 100 for at in range(len(layout["links"]))]
    for at, host in enumerate(state["hosts"]):
        host |= {"goodput_bps": 10**6 * (number % 60 + at), "rx_bps": [10**6] * layout["planes"], "ev": {"GOOD": 9}}
    for at, switch in enumerate(state["switches"]):
        switch |= {
            "state": "stopped" if number // 10 % len(layout["switches"]) == at else "running",
            "queue_bytes": (number * 977 + at * 100) % 90_000,
            "marked": number // 3,
            "trimmed": number // 9,
        }
    for at, (link, told) in enumerate(zip(layout["links"], state["links"], strict=True)):
        told |= {
            "state": "up" if (number + at) % 17 else "cut",
            "impaired": not (number + at) % 13,
            "up_bps": link["rate_bps"] * load[at] // 100,
            "down_bps": link["rate_bps"] * load[at] // 150,
            "lost": number if (number + at) % 17 == 0 else 0,
        }
    for plane in state["planes"]:
        plane |= {"rx_bps": 10**7 + number * 1000, "ports_up": 8}
    state["goodput_bps"] = 10**8 + number * 10_000
    state["found"] = {layout["links"][number // 10 % len(layout["links"])]["name"]: "dead"}
    return state


#: Put into the page before it begins. Of each frame in which a script drew: what the scripts took, what all took from
#: the first of them until style, layout and paint were done, which is when a message posted by it comes.
FRAMES = """
(() => {
    const ask = window.requestAnimationFrame.bind(window), channel = new MessageChannel();
    let frame = null;
    window.frames_ms = [];
    window.scripts_ms = [];
    channel.port1.onmessage = () => {
        frames_ms.push(performance.now() - frame.began);
        scripts_ms.push(frame.script);
        frame = null;
    };
    window.requestAnimationFrame = (draw) => ask((time) => {
        const began = performance.now();
        if (frame === null) {
            frame = { began, script: 0 };
            channel.port2.postMessage(0);
        }
        draw(time);
        frame.script += performance.now() - began;
    });
})();
"""


def quantiles(values: list[float]) -> str:
    """Median and 95th percentile, ms."""
    ordered = sorted(values)
    return f"{statistics.median(ordered):.1f} ms (p95 {ordered[len(ordered) * 95 // 100]:.1f})"


def page_cost() -> None:
    """Measure a browser's work per update: the main thread's, and that of all its processes, which draw without a
    GPU.
    """
    sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "tests"))
    from support.browser import an_hour, browser, lacking

    if lacking():
        print(f"web: the page's cost is not measured: {lacking()}")
        return
    topology = load_lab("default")
    hub = Hub()
    hub.show(layout_of(topology, "lab", clock="real", transport="mrc", began_ns=0, can=["fail", "deny"]))
    assert hub.layout is not None
    with serving(Server(hub), "127.0.0.1", 0) as made, browser() as chromium:
        page = chromium.new_page(viewport={"width": 1280, "height": 800})
        page.add_init_script(FRAMES)
        page.goto(made.url)
        hub.publish(busy_state(1, hub.layout))
        while not page.evaluate("Boolean(window.mrclab?.latest())"):
            page.wait_for_timeout(100)
        page.wait_for_timeout(1000)
        metrics = page.context.new_cdp_session(page)
        metrics.send("Performance.enable", {"timeDomain": "threadTicks"})
        page.evaluate("frames_ms.length = scripts_ms.length = 0")
        before, all_before, began = main_thread_s(metrics), browser_s(), page.evaluate("mrclab.updates")
        for number in range(2, UPDATES + 2):
            hub.publish(busy_state(number, hub.layout))
            page.wait_for_timeout(100)
        many = max(page.evaluate("mrclab.updates") - began, 1)
        main_s, all_s = (main_thread_s(metrics) - before) / many, (browser_s() - all_before) / many
        frames, scripts = page.evaluate("[frames_ms, scripts_ms]")
        print(
            f"web: page, {len(topology.switches)} switches, {len(topology.links)} links, {many} updates, "
            f"{len(frames)} frames: script {quantiles(scripts)}, with style, layout and paint {quantiles(frames)}; CPU "
            f"per update: main thread {main_s * 1e3:.1f} ms, all of the browser's processes {all_s * 1e3:.1f} ms"
        )
        sizes = [heap / 1e6 for heap, _ in an_hour(page)]
        print(f"web: memory of the page's scripts: {sizes[0]:.1f} MB after 7 minutes, {sizes[1]:.1f} after an hour")
        hub.end()


def browser_s() -> float:
    """CPU seconds of the browser's processes so far: ours that are called so."""
    found = 0.0
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            if "chrom" in process.name():
                times = process.cpu_times()
                found += times.user + times.system
    return found


def main_thread_s(metrics: Any) -> float:
    """CPU seconds of a page's main thread so far."""
    found = metrics.send("Performance.getMetrics")["metrics"]
    return float(next(each["value"] for each in found if each["name"] == "TaskDuration"))


def memory_cost() -> None:
    """Measure what the server keeps of an hour of updates, ten a second."""
    topology, hub = load_lab("default"), Hub()
    hub.show(layout_of(topology, "lab", clock="real", transport="mrc", began_ns=0, can=[]))
    assert hub.layout is not None
    tracemalloc.start()
    kept: list[float] = []
    state = busy_state(1, hub.layout)
    for number in range(1, HOUR + 1):
        hub.publish({**state, "t_ns": number * 100_000_000, "goodput_bps": number})
        hub.log.add(number, "note", f"line {number}")
        if number in (HOUR // 12, HOUR):
            kept.append(tracemalloc.get_traced_memory()[0] / 1e6)
    tracemalloc.stop()
    print(
        f"web: memory of the server's past, default lab: {kept[0]:.1f} MB after 5 minutes, {kept[1]:.1f} after an hour"
    )


def run() -> None:
    """All."""
    page_cost()
    memory_cost()
    lab_cost()
