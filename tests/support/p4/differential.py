"""Compares random programs, compiled, with the interpreter of syntax trees: `python -m support.p4.differential`.

    PYTHONPATH=tests python -m support.p4.differential --programs 10000 --packets 20 --seed 1 [--cores 2] [--switch 50]

Each program is compiled to BMv2 JSON, which the reference interpreter of BMv2 JSON executes; one of `--switch`
programs also runs as C in the switch. With `p4c-bm2-ss` on PATH its JSON is executed, too. A program whose packets,
registers or counters differ from what the tree says is reduced and written to `--out`; the command then returns 1.
`--seed S` goes on where a run of other seeds ended: program i of a run has the seed S + i.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Any

from p4lite.api.backends import CompiledBackend, InterpreterBackend
from p4lite.api.control import Backend
from p4lite.api.program import Program
from p4lite.compiler import backend, frontend
from p4lite.compiler.check import TypedProgram
from p4lite.compiler.diagnostics import CompileError
from support.p4.ast_switch import AstSwitch
from support.p4.ast_values import Undefined
from support.p4.control_plane import read, written
from support.p4.random_features import FEATURES
from support.p4.random_program import random_program
from support.p4.random_tree import Node, Tree
from support.p4.shrink import shrunk

P4C = "p4c-bm2-ss"
PORTS = range(8)
PROGRESS = 500
"""Programs after which the command says how far it is: `--seed` goes on from there."""
LINE = 120
"""Characters of a line of a program that is written."""


class Outcome(Enum):
    """What came of a program."""

    SAME = "same"
    REFUSED = "refused by the compiler"
    DIFFERENT = "different"


@dataclass
class Result:
    """The outcome of a program. `why` says what differs or was refused; `skipped` packets met undefined values."""

    outcome: Outcome
    why: str = ""
    packets: int = 0
    skipped: int = 0


@dataclass
class Expected:
    """What the tree says: for each packet that means something, what is sent; then registers and counters."""

    packets: list[tuple[int, bytes, list[tuple[int, bytes]]]]
    registers: dict[str, list[Any]]
    counters: dict[str, list[int]]
    skipped: int


def expected(program: TypedProgram, tree: Tree) -> Expected:
    """Execute the tree of the program."""
    switch = AstSwitch(program, tree.entries)
    packets, skipped = [], 0
    with frontend.deep_recursion():
        for port, data in tree.packets:
            try:
                packets.append((port, data, switch.process(port, data)))
            except Undefined:
                skipped += 1
    return Expected(packets, switch.registers, switch.counters, skipped)


def json_difference(document: dict[str, Any], tree: Tree, want: Expected) -> str:
    """Execute BMv2 JSON; return what differs, "" if nothing does."""
    switch = InterpreterBackend(Program("random", document), PORTS, 1, 1)
    switch.interpreter.strict = True
    return difference(switch, tree, want)


def switch_difference(document: dict[str, Any], tree: Tree, want: Expected) -> str:
    """Compile the JSON to C and execute it; return what differs, "" if nothing does."""
    switch = CompiledBackend(Program("random", document), PORTS, 1, 1)
    try:
        why = difference(switch, tree, want)
    finally:
        switch.close()
    return f"switch: {why}" if why else ""


def difference(switch: Backend, tree: Tree, want: Expected) -> str:
    """Execute a program on a switch; return what differs, "" if nothing does."""
    for item in tree.entries:
        item.insert(switch)
    for number, (port, data, sent) in enumerate(want.packets):
        got = sorted(switch.send(port, data))
        if got != sent:
            return _packet(number, port, data, got, sent)
    control = switch.control
    for name, cells in want.registers.items():
        if name in control.program.registers and (seen := control.register_read_all(name)) != cells:
            return f"register {name}: {seen}, not {cells}"
    for name, counts in want.counters.items():
        if name not in control.program.counters:
            continue
        packets = [cell.packets for cell in control.counter_read_all(name)]
        if packets != counts:
            return f"counter {name}: {packets}, not {counts}"
    return ""


def _packet(number: int, port: int, data: bytes, got: object, want: list[tuple[int, bytes]]) -> str:
    def shown(sent: Any) -> str:
        return ", ".join(f"{to}:{packet.hex()}" for to, packet in sent) or "nothing"

    return f"packet {number} ({data.hex()} at port {port}): {shown(got)}, not {shown(want)}"


def judge(tree: Tree, *, with_switch: bool = False, p4c: str | None = None) -> Result:
    """Compile and compare one program."""
    text = tree.root.text()
    try:
        program = frontend.load_text(text, "random.p4")
    except CompileError as error:
        return Result(Outcome.REFUSED, _first_error(error))
    want = expected(program, tree)
    try:
        # The back end may change the tree that the interpreter has executed.
        with frontend.guarded(program.reporter, "random.p4"):
            document = backend.generate(program, program.reporter)
        program.reporter.check()
    except CompileError as error:
        return Result(Outcome.REFUSED, _first_error(error))
    done = {"packets": len(want.packets), "skipped": want.skipped}
    why = json_difference(document, tree, want)
    if not why and with_switch:
        why = switch_difference(document, tree, want)
    if not why and p4c is not None:
        why = p4c_difference(p4c, text, tree, want)
    return Result(Outcome.DIFFERENT if why else Outcome.SAME, why, **done)


def _first_error(error: CompileError) -> str:
    return next(d.message for d in error.diagnostics if d.severity == "error")


def p4c_difference(p4c: str, text: str, tree: Tree, want: Expected) -> str:
    """Compile with p4c and execute its JSON; return what differs. What p4c refuses does not."""
    with tempfile.TemporaryDirectory() as folder:
        source, made = Path(folder) / "random.p4", Path(folder) / "random.json"
        source.write_text(text, encoding="utf-8")
        done = subprocess.run([p4c, str(source), "-o", str(made)], capture_output=True, timeout=120, check=False)
        if done.returncode != 0:
            return ""
        why = json_difference(json.loads(made.read_text(encoding="utf-8")), tree, want)
    return f"p4c: {why}" if why else ""


def run_seed(
    seed: int, packets: int, every: int, p4c: str | None, features: Sequence[str] | None = None
) -> tuple[int, Result]:
    """Judge the program of a seed; every `every`th also in the switch (0: none)."""
    with_switch = every > 0 and seed % every == 0
    return seed, judge(random_program(seed, packets, features), with_switch=with_switch, p4c=p4c)


def keep(tree: Tree, name: str, why: str, out: Path, *, with_switch: bool) -> Path:
    """Reduce a failing program and write it, with its packets and entries; return the file."""

    def fails(tree: Tree) -> bool:
        try:
            return judge(tree, with_switch=with_switch).outcome is Outcome.DIFFERENT
        except Exception:  # noqa: BLE001 - whatever it is, it is not this fault
            # A reduced program may be one that no generator would draw.
            return False

    tree = shrunk(tree, fails)
    final = judge(tree, with_switch=with_switch)
    out.mkdir(parents=True, exist_ok=True)
    path = out / f"{name}.p4"
    path.write_text(f"// {final.why or why}\n{compact(tree.root.text())}", encoding="utf-8")
    case = {
        "entries": [written(e) for e in tree.entries],
        "packets": [[port, data.hex()] for port, data in tree.packets],
    }
    path.with_suffix(".json").write_text(json.dumps(case) + "\n", encoding="utf-8")
    return path


def compact(text: str) -> str:
    """Return a program with few lines: none is empty, or only closes braces."""
    text = re.sub(r"\n(?=[})])", " ", re.sub(r"\s*\n\s*", "\n", text))
    lines: list[str] = []
    for line in text.splitlines():
        if lines and lines[-1].endswith("{") and len(lines[-1]) + len(line) < LINE:
            lines[-1] += " " + line
        else:
            lines.append(line)
    return "\n".join(lines) + "\n"


def kept(path: Path) -> Tree:
    """Return a program that `keep` has written, with its packets and entries."""
    case = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
    packets = [(port, bytes.fromhex(data)) for port, data in case["packets"]]
    return Tree(Node([path.read_text(encoding="utf-8")]), [read(e) for e in case["entries"]], packets)


def main(argv: list[str] | None = None) -> int:
    """Run the command line; return 1 if a program differs."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--programs", type=int, default=300)
    parser.add_argument("--packets", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1, help="seed of the first program")
    parser.add_argument("--cores", type=int, default=1)
    parser.add_argument("--switch", type=int, default=50, help="run every N-th program in the switch, too (0: none)")
    parser.add_argument("--out", type=Path, default=Path("build/differential"), help="folder of failing programs")
    parser.add_argument(
        "--features", nargs="*", choices=FEATURES, help="what each program has of these, instead of what it draws"
    )
    options = parser.parse_args(argv)
    p4c = shutil.which(P4C)
    print(f"{P4C}: {p4c or 'not on PATH, so its JSON is not compared'}")
    run = partial(run_seed, packets=options.packets, every=options.switch, p4c=p4c, features=options.features)
    seeds = range(options.seed, options.seed + options.programs)
    outcomes: Counter[Outcome] = Counter()
    refused: Counter[str] = Counter()
    compared = skipped = 0
    begin = time.process_time()
    with ProcessPoolExecutor(options.cores) as pool:
        for seed, result in pool.map(run, seeds, chunksize=10) if options.cores > 1 else map(run, seeds):
            outcomes[result.outcome] += 1
            compared, skipped = compared + result.packets, skipped + result.skipped
            if result.outcome is Outcome.REFUSED:
                refused[result.why] += 1
            elif result.outcome is Outcome.DIFFERENT:
                print(f"seed {seed}: {result.why}", flush=True)
                found = result.why.startswith("switch")
                tree = random_program(seed, options.packets, options.features)
                path = keep(tree, f"seed{seed}", result.why, options.out, with_switch=found)
                print(f"  reduced to {path}", flush=True)
            if outcomes.total() % PROGRESS == 0:
                print(f"{outcomes.total()} programs, up to seed {seed}", flush=True)
    print(f"seeds {seeds.start} to {seeds.stop - 1}: " + ", ".join(f"{n} {o.value}" for o, n in outcomes.items()))
    print(f"{compared} packets compared, {skipped} met undefined values")
    print(f"CPU: {time.process_time() - begin:.1f} s" if options.cores == 1 else "")
    for why, count in refused.most_common():
        print(f"  {count} refused: {why}")
    return 1 if outcomes[Outcome.DIFFERENT] else 0


if __name__ == "__main__":
    sys.exit(main())
