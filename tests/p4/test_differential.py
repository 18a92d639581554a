"""Random programs, compiled, do what an interpreter of their syntax trees says (`support/p4/differential.py`)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from p4lite.compiler.midend import calls
from p4lite.compiler.midend.places import Places
from p4lite.switch.fabric.values import Replica
from p4lite.switch.program.entry import ActionCall, EntryAction
from p4lite.switch.program.facts import TableFacts
from p4lite_tools.interpreter.core import InterpreterCore
from p4lite_tools.interpreter.state import GREEN, InterpreterState, MeterCell
from p4lite_tools.interpreter.tables import InterpreterTables
from p4lite_tools.interpreter.v1model import V1ModelSwitch
from support.amount import first
from support.p4.differential import Outcome, compact, judge, kept, main, run_seed
from support.p4.random_program import random_program
from support.p4.random_tree import Tree, nodes
from support.p4.shrink import shrunk

VECTORS = Path(__file__).parents[1] / "vectors/p4"
KEPT = sorted(VECTORS.glob("*.p4"))
PROGRAMS, PACKETS, PARTS = 300, 20, 6
EVERY = 15
"""One program in this many also runs as C, because the C compiler takes as long as five programs do."""
ALIAS = next(path for path in KEPT if path.stem == "argument_is_a_global")


@pytest.mark.parametrize("part", first(range(PARTS)))
def test_random_programs(part: int, seed: int) -> None:
    share = PROGRAMS // PARTS
    results = [run_seed(seed * 1000 + part * share + i, PACKETS, EVERY) for i in range(share)]
    assert {s: r.why for s, r in results if r.outcome is Outcome.DIFFERENT} == {}
    outcomes = Counter(r.outcome for _, r in results)
    assert outcomes[Outcome.SAME] > 0.95 * share, outcomes
    assert sum(r.packets for _, r in results) > 0.9 * share * PACKETS


@pytest.mark.parametrize("path", KEPT, ids=lambda p: p.stem)
def test_kept_programs(path: Path) -> None:
    result = judge(kept(path), with_switch=True)
    assert (result.outcome, result.why) == (Outcome.SAME, "")
    assert result.packets > 0


def test_a_wrong_compiler_is_found_and_its_program_reduced(monkeypatch: pytest.MonkeyPatch) -> None:
    """An argument that the body writes by its own name is not copied: seed 2040 shows it."""
    monkeypatch.setattr(calls, "may_overlap", lambda a, b: False)
    assert judge(kept(ALIAS)).outcome is Outcome.DIFFERENT


RESOLVE = InterpreterTables.resolve


def _first_member(
    tables: InterpreterTables, table: TableFacts, action: EntryAction | None, choose: int | None
) -> ActionCall | None:
    return RESOLVE(tables, table, action, 0)


FAULTS: tuple[tuple[str, str, type, str, Callable[..., object]], ...] = (
    ("copy of a varbit", "parser_and_tables", Places, "_copy_varbit", lambda *args: None),
    ("value set", "parser_and_tables", InterpreterState, "value_set_iter", lambda *args: iter(())),
    ("checksums", "parser_and_tables", V1ModelSwitch, "_applies", lambda *args, **kwargs: False),
    ("meter", "parser_and_tables", MeterCell, "execute", lambda *args: GREEN),
    ("member of a group", "parser_and_tables", InterpreterTables, "resolve", _first_member),
    ("multicast group", "copies", InterpreterCore, "group", lambda *args: (Replica(3, 1),)),
    ("what a copy keeps", "copies", V1ModelSwitch, "_keep", lambda *args: None),
    ("recirculation", "copies", V1ModelSwitch, "_again", lambda *args: None),
    ("clone of ingress", "copies", V1ModelSwitch, "_clone_at_ingress", lambda *args: None),
    ("clone of egress", "copies", V1ModelSwitch, "_clone_at_egress", lambda *args: None),
)
"""Each plants a fault: its name, the kept program that shows it, the class and its method, and what replaces that."""


@pytest.mark.parametrize(("program", "owner", "name", "wrong"), [f[1:] for f in FAULTS], ids=[f[0] for f in FAULTS])
def test_a_planted_fault_is_found(
    program: str, owner: type, name: str, wrong: Callable[..., object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner, name, wrong)
    assert judge(kept(VECTORS / f"{program}.p4")).outcome is Outcome.DIFFERENT


def test_reduction_leaves_what_matters() -> None:
    tree = random_program(3, 4)
    whole = len(tree.root.text())

    def fails(candidate: Tree) -> bool:
        return "hdr.s.next" in candidate.root.text() and len(candidate.packets) > 1

    assert fails(tree)
    shrunk(tree, fails)
    text = compact(tree.root.text())
    assert len(tree.packets) == 2
    assert not tree.entries
    assert len(text) < whole // 2
    assert len(text.splitlines()) < 20
    assert fails(tree)


def test_the_same_seed_is_the_same_program() -> None:
    assert random_program(5).root.text() == random_program(5).root.text()
    assert random_program(5).packets == random_program(5).packets
    assert sum(1 for _ in nodes(random_program(5).root)) > 50


def test_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--programs", "3", "--packets", "2", "--switch", "0", "--out", str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    assert "seeds 1 to 3: 3 same" in shown
    assert not list(tmp_path.iterdir())
