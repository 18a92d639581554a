"""Compiled programs alone: time per packet in parser, pipelines and deparser, lookups by table size, table updates.

No queues, links or interfaces: what a packet costs beside them. One core, packets and entries made at random from
the program. Ratios are to the first row of each table.
"""

from __future__ import annotations

import random
import subprocess
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table as Grid

from benchmarks import scaled
from p4lite.compiler.backend import generate
from p4lite.compiler.frontend import load, load_text
from p4lite.switch.native.build import PROGRAM_DIR, build
from p4lite.switch.program.entry import ActionCall, Exact, Lpm, MatchValue, Range, Ternary
from p4lite.switch.runtime.loader import RUNTIME, LoadedProgram, load_program
from p4lite_tools.fuzz.campaign import loader_c, templates_c

HERE = Path(__file__).parent
ROOT = HERE.parent
PACKETS = scaled(2_000_000, 2000)
UPDATES = scaled(20_000, 200)

LOOKUP = """
#include <core.p4>
#include <v1model.p4>
header h_t { bit<32> a; bit<32> b; }
struct headers { h_t h; }
struct meta {}
parser P(packet_in p, out headers h, inout meta m, inout standard_metadata_t s) {
    state start { p.extract(h.h); transition accept; } }
control V(inout headers h, inout meta m) { apply {} }
control I(inout headers h, inout meta m, inout standard_metadata_t s) {
    action to(bit<9> port) { s.egress_spec = port; }
    table t { key = { h.h.a : MATCH; } actions = { to; NoAction; } size = 200000; default_action = NoAction(); }
    apply { t.apply(); } }
control E(inout headers h, inout meta m, inout standard_metadata_t s) { apply {} }
control C(inout headers h, inout meta m) { apply {} }
control D(packet_out p, in headers h) { apply { p.emit(h.h); } }
V1Switch(P(), V(), I(), E(), C(), D()) main;
"""


def pipeline_cost(program: LoadedProgram) -> tuple[float, int]:
    """(ns per packet, bytes of the PHV)."""
    rng = random.Random(1)
    text = "\n".join(['#include "fuzz.h"', *templates_c(program, rng), *loader_c(program, rng)]) + "\n"
    sources = [*(PROGRAM_DIR / f for f in RUNTIME), HERE / "pipeline_loop.c"]
    generated = {"program.c": program.code.text, "tables_random.c": text}
    executable = build("bench-program", sources, generated=generated, executable=True)
    out = subprocess.run([str(executable), str(PACKETS)], capture_output=True, text=True, check=True).stdout.split()
    return float(out[0]), int(out[1])


def random_key(match: str, rng: random.Random) -> MatchValue:
    value = rng.getrandbits(32)
    if match == "exact":
        return Exact(value)
    if match == "lpm":
        length = rng.randint(8, 32)
        return Lpm(value >> (32 - length) << (32 - length), length)
    if match == "ternary":
        mask = 0xFFFFFFFF << rng.randint(0, 24) & 0xFFFFFFFF
        return Ternary(value & mask, mask)
    return Range(value, min(value + rng.getrandbits(rng.randint(1, 20)), 2**32 - 1))


def update_rate(program: LoadedProgram, match: str) -> tuple[float, float]:
    """Return (insertions, deletions) per second, from Python."""
    rng = random.Random(1)
    instance = program.instance()
    keys = list({random_key(match, rng) for _ in range(UPDATES)})
    ranked = program.tables["I.t"].needs_priority
    start = time.perf_counter()
    handles = [
        instance.table_add("I.t", (key,), ActionCall("I.to", (1,)), priority=i % 1000 if ranked else 0)
        for i, key in enumerate(keys)
    ]
    middle = time.perf_counter()
    for handle in handles:
        instance.table_delete("I.t", handle)
    end = time.perf_counter()
    instance.close()
    return len(keys) / (middle - start), len(keys) / (end - middle)


def run() -> None:
    console = Console(width=100)
    documents: dict[str, Any] = {
        path.stem: generate(load(str(path))) for path in (HERE / "router.p4", ROOT / "p4/programs/fabric.p4")
    }
    first = 0.0
    grid = Grid("program", "ns/packet", "M packets/s", "PHV bytes", "ratio", title="pipelines alone, one core")
    for name, document in documents.items():
        ns, size = pipeline_cost(load_program(document, name=name))
        first = first or ns
        grid.add_row(name, f"{ns:.0f}", f"{1e3 / ns:.2f}", str(size), f"{ns / first:.2f}")
    console.print(grid)
    grid = Grid("match", "insertions/s", "deletions/s", "ratio", title=f"{UPDATES} table entries from Python")
    first = 0.0
    for match in ("exact", "lpm", "ternary", "range"):
        program = load_program(generate(load_text(LOOKUP.replace("MATCH", match))), name=match)
        added, deleted = update_rate(program, match)
        first = first or added
        grid.add_row(match, f"{added:.0f}", f"{deleted:.0f}", f"{added / first:.2f}")
    console.print(grid)


if __name__ == "__main__":
    run()
