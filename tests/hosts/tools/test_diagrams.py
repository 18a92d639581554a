"""Pictures of the state machines come from the tables."""

from __future__ import annotations

from typing import Any

import pytest

from mrc_host import diagrams
from mrc_host.proto.paths import ev
from mrc_host.proto.reliability import qp
from mrc_host.proto.wire.fields import HEADERS


@pytest.mark.parametrize(("machine", "table"), [("qp", qp.TRANSITIONS), ("ev", ev.TRANSITIONS)])
def test_every_change_of_state_is_an_edge(machine: str, table: dict[Any, Any]) -> None:
    changes = {(state.name, target.name) for (state, _), target in table.items() if state is not target}
    assert {(source, target) for source, target, _ in diagrams.edges(machine)} == changes
    for (state, item), target in table.items():
        if state is not target:
            (label,) = [text for a, b, text in diagrams.edges(machine) if (a, b) == (state.name, target.name)]
            assert item.value in label


def test_command_prints_state_machines_and_refuses_unknown_ones(capsys: pytest.CaptureFixture[str]) -> None:
    assert diagrams.main(["ev"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("stateDiagram-v2\n    [*] --> GOOD\n")
    assert "    SKIP --> GOOD: the cursor meets it\n" in out
    assert diagrams.main(["qp", "--dot"]) == 0
    assert '"RESET" -> "INIT"' in capsys.readouterr().out
    assert diagrams.main(["tcp"]) == 2
    assert "unknown machine or header 'tcp'; known: qp, ev, headers, IPV6" in capsys.readouterr().err


def test_a_header_is_drawn_bit_by_bit(capsys: pytest.CaptureFixture[str]) -> None:
    assert diagrams.main(["tseth", "AETH"]) == 0
    line = "+" + "-+" * 32
    assert capsys.readouterr().out.splitlines() == [
        "TSETH: Timestamp Extended Transport Header, 4 bytes",
        line,
        "|          tx_timestamp         |t|          0          | ftype |",
        line,
        "AETH: ACK Extended Transport Header, 4 bytes",
        line,
        "|    syndrome   |                      msn                      |",
        line,
    ]
    for header in HEADERS.values():
        rows = diagrams.picture(header).splitlines()[2::2]
        assert sum(len(row) // 2 for row in rows) == header.size * 8, "two columns for each bit"
        assert sum(row.count("|") - 1 for row in rows) >= len(header.fields)
