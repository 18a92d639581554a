"""The compiler: `p4lite compile` as a fresh process with its start-up, and what each stage costs inside one process.

Two programs: fabric.p4 with its includes, and a generated one of about 600 lines without includes of its own. "First
run" builds the parser's tables, as after an installation; all other runs find them in the user's cache.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from rich.console import Console
from rich.table import Table as Grid

from benchmarks import scaled
from p4lite.compiler import backend, compile_program, frontend, p4info
from p4lite.compiler.check import check_program

ROOT = Path(__file__).parent.parent
RUNS = scaled(5, 1)
STAGES = 40
LIMIT_S = 2.0

HEAD = """#include <core.p4>
#include <v1model.p4>
header eth_t { bit<48> dst; bit<48> src; bit<16> type; }
struct headers { eth_t eth; }
struct meta_t { bit<32> key; bit<9> port; bit<16> count; }
parser P(packet_in p, out headers h, inout meta_t m, inout standard_metadata_t s) {
    state start { p.extract(h.eth); transition accept; }
}
control V(inout headers h, inout meta_t m) { apply { } }
control I(inout headers h, inout meta_t m, inout standard_metadata_t s) {
"""
STAGE = """    action set_N(bit<9> port, bit<32> key) {
        m.port = port;
        m.key = key ^ (bit<32>) h.eth.type;
    }
    table stage_N {
        key = {
            h.eth.dst : ternary;
            m.key[15:0] : exact;
        }
        actions = { set_N; NoAction; }
        size = 256;
    }
"""
TAIL = """}
control E(inout headers h, inout meta_t m, inout standard_metadata_t s) { apply { } }
control C(inout headers h, inout meta_t m) { apply { } }
control D(packet_out p, in headers h) { apply { p.emit(h.eth); } }
V1Switch(P(), V(), I(), E(), C(), D()) main;
"""


def generated() -> str:
    """Return a program of STAGES tables one after the other, with conditions between them."""
    flow = [
        f"        if (m.key != {n}) {{ stage_{n}.apply(); }}\n        m.count = m.count + 1;\n" for n in range(STAGES)
    ]
    stages = [STAGE.replace("N", str(n)).replace(f"{n}oAction", "NoAction") for n in range(STAGES)]
    return HEAD + "".join(stages) + "    apply {\n" + "".join(flow) + "        s.egress_spec = m.port;\n    }\n" + TAIL


def _lines(path: Path) -> int:
    """Lines of the program with those of its own includes."""
    program = compile_program(path).program
    files = [name for name in program.reporter.sources if not name.endswith(("core.p4", "v1model.p4"))]
    return sum(len(program.reporter.sources[name]) for name in files)


def process(path: Path, folder: Path, cache: Path | None = None) -> float:
    """Seconds of one `p4lite compile` with both outputs."""
    environment = dict(os.environ) if cache is None else {**os.environ, "XDG_CACHE_HOME": str(cache)}
    start = "import sys; from p4lite.cli import main; sys.exit(main())"
    command = [sys.executable, "-c", start, "compile", str(path), "-w"]
    command += ["-o", str(folder / "out.json"), "--p4info", str(folder / "out.txtpb")]
    began = time.perf_counter()
    subprocess.run(command, check=True, env=environment)
    return time.perf_counter() - began


def _median(body: Callable[[], object]) -> float:
    seconds = []
    for _ in range(RUNS):
        began = time.perf_counter()
        body()
        seconds.append(time.perf_counter() - began)
    return statistics.median(seconds)


def stages(path: Path) -> list[tuple[str, float]]:
    """Median seconds of each stage."""

    def parse() -> object:
        return frontend.parse_file(path)

    def check() -> object:
        tree, reporter = frontend.parse_file(path)
        return check_program(tree, str(path), reporter)

    parsing = _median(parse)
    checking = _median(check) - parsing

    def lower() -> object:
        program = frontend.load(path)
        return backend.generate(program, program.reporter)

    lowering = _median(lower) - parsing - checking
    compiled = compile_program(path)
    describing = _median(lambda: p4info.generate(compiled.program, compiled.reached))
    return [
        ("preprocess and parse", parsing),
        ("resolve and check", checking),
        ("lower and write BMv2 JSON", lowering),
        ("P4Info", describing),
    ]


def run() -> None:
    """Print both tables."""
    console = Console()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        made = folder / "generated.p4"
        made.write_text(generated(), encoding="utf-8")
        programs = [ROOT / "p4" / "programs" / "fabric.p4", made]
        grid = Grid(
            "program", "lines", "first run s", "s (median)", f"of {LIMIT_S:g} s", title="p4lite compile, a process"
        )
        for path in programs:
            first = process(path, folder, folder / f"cache-{path.stem}")
            usual = statistics.median(process(path, folder) for _ in range(RUNS))
            share = f"{100 * usual / LIMIT_S:.0f} %"
            grid.add_row(path.name, str(_lines(path)), f"{first:.2f}", f"{usual:.2f}", share)
        console.print(grid)
        inside = Grid("stage", *(f"{path.name} ms" for path in programs), title="inside one process (median)")
        for rows in zip(*(stages(path) for path in programs), strict=True):
            inside.add_row(rows[0][0], *(f"{1e3 * seconds:.1f}" for _, seconds in rows))
        console.print(inside)
