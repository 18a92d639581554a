"""Compares random programs, compiled, with the interpreter of syntax trees: `python -m support.p4.differential`.

    PYTHONPATH=tests python -m support.p4.differential --programs 10000 --packets 20 --seed 1 [--cores 2] [--switch 50]

Each program is compiled to BMv2 JSON, which the reference interpreter of BMv2 JSON executes; one of `--switch`
programs also runs as C in the switch. With `p4c-bm2-ss` on PATH it is given each program, too: what one of the two
compilers refuses the other must refuse, the P4Infos must be equal, and the interpreter executes p4c's JSON. With
`simple_switch` on PATH, one of `--bmv2` programs also runs there. A program whose packets, registers or counters
differ from what the tree says is reduced and written to `--out`; the command then returns 1.
`--seed S` goes on where a run of other seeds ended: program i of a run has the seed S + i.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Any

from p4lite.api.program import CompiledBackend, Program
from p4lite.compiler import backend, frontend, p4info
from p4lite.compiler.check import TypedProgram
from p4lite.compiler.diagnostics import CompileError
from p4lite.recursion import deep_recursion
from p4lite.switch.errors import ControlError, ProgramError
from p4lite_tools.backend import InterpreterBackend
from support.p4.ast_switch import AstSwitch
from support.p4.ast_values import Undefined
from support.p4.control_plane import Member, read, written
from support.p4.random_features import FEATURES
from support.p4.random_program import random_program
from support.p4.random_tree import Node, Tree
from support.p4.reference_compiler import P4C, P4cCrashed, P4cRefused, compiled_by_p4c, p4info_of
from support.p4.reference_switch import BMV2, QUIET_S, ReferenceSwitch, SwitchFailed
from support.p4.shrink import shrunk

PORTS = range(8)
NO_TOKENS = 1e-6
"""What simple_switch's meters get of a rate: its clock runs, and the interpreter's stands still."""
PROGRESS = 500
"""Programs after which the command says how far it is: `--seed` goes on from there."""
LINE = 120
"""Characters of a line of a program that is written."""


class Outcome(Enum):
    """What came of a program here."""

    SAME = "same"
    REFUSED = "refused by the compiler"
    DIFFERENT = "different"


class Comparison(Enum):
    """What was compared with the tree, or here with p4c."""

    JSON = "interpreter"
    SWITCH = "switch"
    P4C_ALONE = "p4c alone takes it"
    P4C_REFUSES = "p4c refuses it"
    P4C_CRASHES = "p4c crashes"
    P4INFO = "P4Info"
    P4INFO_HERE = "only in the P4Info of p4lite"
    P4INFO_THERE = "only in the P4Info of p4c"
    P4C = "p4c"
    P4C_JSON = "p4c's JSON does not load here"
    BMV2 = "simple_switch"
    BMV2_ENDS = "simple_switch ends"


OURS = (Comparison.JSON, Comparison.SWITCH)
BY_BMV2 = (Comparison.BMV2, Comparison.BMV2_ENDS)


@dataclass(frozen=True)
class References:
    """The reference tools, as programs; None where one is not to be asked."""

    p4c: str | None = None
    bmv2: str | None = None


NONE = References()


@dataclass
class Result:
    """The outcome of a program. `refusal`: what was said; `skipped` packets met undefined values.

    `found` has what differs, by what was compared.
    """

    refusal: str = ""
    packets: int = 0
    skipped: int = 0
    found: dict[Comparison, str] = field(default_factory=dict)

    @property
    def outcome(self) -> Outcome:
        """What came of the program here; what the references do does not matter."""
        if self.refusal:
            return Outcome.REFUSED
        return Outcome.DIFFERENT if any(each in self.found for each in OURS) else Outcome.SAME

    @property
    def why(self) -> str:
        """All that was found, or why the program was refused."""
        return self.refusal or "; ".join(f"{each.value}: {why}" for each, why in self.found.items())


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
    with deep_recursion():
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
        return difference(switch, tree, want)
    finally:
        switch.close()


def bmv2_difference(document: dict[str, Any], tree: Tree, want: Expected, binary: str) -> str:
    """Execute the JSON on simple_switch; return what differs, "" if nothing does."""
    entries = sorted(tree.entries, key=lambda e: e.number if isinstance(e, Member) else -1)
    entries.sort(key=lambda e: not isinstance(e, Member))
    tree = Tree(tree.root, entries, tree.packets)
    for quiet_s in (QUIET_S, 10 * QUIET_S):
        # A busy machine may send a packet late, which would then count as one of the next.
        with ReferenceSwitch(binary, document, quiet_s=quiet_s) as switch:
            switch.control.rate_scale = NO_TOKENS
            why = difference(switch, tree, want, switch.send)
        if not why:
            break
    return why


def difference(
    switch: Any,
    tree: Tree,
    want: Expected,
    send: Callable[[int, bytes, int], list[tuple[int, bytes]]] | None = None,
) -> str:
    """Execute a program on a switch; return what differs, "" if nothing does.

    Args:
        switch: a Backend, or what has its first operations.
        send: sends a packet, given how many the switch should send; the Backend's own by default.
    """
    for item in tree.entries:
        item.insert(switch)
    for number, (port, data, sent) in enumerate(want.packets):
        got = sorted(switch.send(port, data) if send is None else send(port, data, len(sent)))
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


def judge(tree: Tree, *, with_switch: bool = False, references: References = NONE) -> Result:
    """Compile and compare one program."""
    text = tree.root.text()
    try:
        program = frontend.load_text(text, "random.p4")
    except CompileError as error:
        return _refused(error, text, references)
    want = expected(program, tree)
    try:
        # The back end may change the tree that the interpreter has executed.
        with frontend.guarded(program.reporter, "random.p4"):
            document = backend.generate(program, program.reporter)
        program.reporter.check()
    except CompileError as error:
        return _refused(error, text, references)
    result = Result(packets=len(want.packets), skipped=want.skipped)

    def note(comparison: Comparison, why: str) -> None:
        if why:
            result.found[comparison] = why

    note(Comparison.JSON, json_difference(document, tree, want))
    if with_switch:
        note(Comparison.SWITCH, switch_difference(document, tree, want))
    if references.bmv2 is not None:
        try:
            note(Comparison.BMV2, bmv2_difference(document, tree, want, references.bmv2))
        except SwitchFailed as error:
            note(Comparison.BMV2_ENDS, str(error) or "no answer")
    if references.p4c is not None:
        reached = {table["name"] for pipeline in document["pipelines"] for table in pipeline["tables"]}
        try:
            theirs = compiled_by_p4c(references.p4c, text)
        except P4cRefused as error:
            note(Comparison.P4C_REFUSES, str(error))
        except P4cCrashed as error:
            note(Comparison.P4C_CRASHES, str(error))
        else:
            result.found |= p4info_differences(p4info.generate(program, reached), p4info_of(theirs.p4info))
            try:
                note(Comparison.P4C, json_difference(theirs.document, tree, want))
            except (ControlError, ProgramError) as error:
                note(Comparison.P4C_JSON, str(error))
    return result


def _refused(error: CompileError, text: str, references: References) -> Result:
    """Return the result of a program that is refused here: p4c must refuse it, too."""
    result = Result(_first_error(error))
    if references.p4c is not None:
        try:
            compiled_by_p4c(references.p4c, text)
        except (P4cRefused, P4cCrashed):
            pass
        else:
            result.found[Comparison.P4C_ALONE] = result.refusal
    return result


def p4info_differences(ours: Any, theirs: Any) -> dict[Comparison, str]:
    """Return what differs of two P4Info messages.

    Both compilers leave out objects that they find unreached, each in its own way. All else is another difference; but
    where one has left out a table, the other's actions and profiles cannot be equal.
    """
    found = {}
    tables = [{table.preamble.id for table in message.tables} for message in (ours, theirs)]
    kinds = ["tables", "actions", "action_profiles", "value_sets", "counters", "registers", "meters"]
    kinds += ["direct_counters", "direct_meters"]
    for message, other, comparison in (
        (ours, theirs, Comparison.P4INFO_HERE),
        (theirs, ours, Comparison.P4INFO_THERE),
    ):
        alone = []
        for kind in kinds:
            known = {each.preamble.id for each in getattr(other, kind)}
            alone += [(kind, each) for each in getattr(message, kind) if each.preamble.id not in known]
        for kind, each in alone:
            getattr(message, kind).remove(each)
        if alone:
            found[comparison] = ", ".join(each.preamble.name for _, each in alone)
    if tables[0] != tables[1]:
        for message in (ours, theirs):
            for kind in ("actions", "action_profiles", "type_info"):
                message.ClearField(kind)
    if ours != theirs:
        lines = [str(message).splitlines() for message in (ours, theirs)]
        pairs = ((here.strip(), there.strip()) for here, there in zip(*lines, strict=False) if here != there)
        here, there = next(pairs, (f"{len(lines[0])} lines", f"{len(lines[1])} lines"))
        found[Comparison.P4INFO] = f"{here}, and in p4c's {there}"
    return found


def _first_error(error: CompileError) -> str:
    return next(d.message for d in error.diagnostics if d.severity == "error")


def run_seed(
    seed: int,
    packets: int,
    every: int,
    references: References = NONE,
    features: Sequence[str] | None = None,
    every_bmv2: int = 1,
    *,
    portable: bool = False,
) -> tuple[int, Result]:
    """Judge the program of a seed, every `every`th also in the switch and `every_bmv2`th in simple_switch (0: none)."""
    with_switch = every > 0 and seed % every == 0
    if every_bmv2 <= 0 or seed % every_bmv2:
        references = References(references.p4c)
    tree = random_program(seed, packets, features, portable=portable)
    return seed, judge(tree, with_switch=with_switch, references=references)


def keep(tree: Tree, name: str, why: Comparison, out: Path, references: References = NONE) -> Path:
    """Reduce a program until only this difference is left, and write it, with packets and entries; return the file."""
    asked = References(
        p4c=references.p4c if why not in (*OURS, *BY_BMV2) else None,
        bmv2=references.bmv2 if why in BY_BMV2 else None,
    )
    run = partial(judge, with_switch=why is Comparison.SWITCH, references=asked)

    def fails(tree: Tree) -> bool:
        try:
            return why in run(tree).found
        except Exception:  # noqa: BLE001 - whatever it is, it is not this fault
            # A reduced program may be one that no generator would draw.
            return False

    tree = shrunk(tree, fails)
    final = run(tree)
    out.mkdir(parents=True, exist_ok=True)
    path = out / f"{name}.p4"
    path.write_text(f"// {final.why}\n{compact(tree.root.text())}", encoding="utf-8")
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
    parser.add_argument("--bmv2", type=int, default=5, help="run every N-th program in simple_switch, too (0: none)")
    parser.add_argument("--portable", action="store_true", help="draw nothing that p4c is known to refuse for BMv2")
    parser.add_argument("--reduce", type=int, default=10, help="reduce this many programs of each difference with p4c")
    options = parser.parse_args(argv)
    references = References(shutil.which(P4C), shutil.which(BMV2))
    print(f"{P4C}: {references.p4c or 'not on PATH, so it is not compared'}")
    print(f"{BMV2}: {references.bmv2 or 'not on PATH, so no program runs there'}")
    run = partial(
        run_seed,
        packets=options.packets,
        every=options.switch,
        references=references,
        features=options.features,
        every_bmv2=options.bmv2,
        portable=options.portable,
    )
    seeds = range(options.seed, options.seed + options.programs)
    outcomes: Counter[Outcome] = Counter()
    refused: Counter[str] = Counter()
    differences: Counter[Comparison] = Counter()
    compared = skipped = 0
    begin = time.process_time()
    with ProcessPoolExecutor(options.cores) as pool:
        for seed, result in pool.map(run, seeds, chunksize=10) if options.cores > 1 else map(run, seeds):
            outcomes[result.outcome] += 1
            compared, skipped = compared + result.packets, skipped + result.skipped
            if result.outcome is Outcome.REFUSED:
                refused[result.refusal] += 1
            for each, why in result.found.items():
                differences[each] += 1
                print(f"seed {seed}: {each.value}: {why}", flush=True)
                if each in OURS or differences[each] <= options.reduce:
                    tree = random_program(seed, options.packets, options.features, portable=options.portable)
                    path = keep(tree, f"seed{seed}-{each.name.lower()}", each, options.out, references)
                    print(f"  reduced to {path}", flush=True)
            if outcomes.total() % PROGRESS == 0:
                print(f"{outcomes.total()} programs, up to seed {seed}", flush=True)
    print(f"seeds {seeds.start} to {seeds.stop - 1}: " + ", ".join(f"{n} {o.value}" for o, n in outcomes.items()))
    print(f"{compared} packets compared, {skipped} met undefined values")
    for each, count in differences.most_common():
        print(f"{count} differ: {each.value}")
    print(f"CPU: {time.process_time() - begin:.1f} s" if options.cores == 1 else "")
    for why, count in refused.most_common():
        print(f"  {count} refused: {why}")
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main())
