"""Pictures of the state machines come from the tables."""

from __future__ import annotations

import pytest

from mrc_host import diagrams
from mrc_host.proto.paths import ev
from mrc_host.proto.reliability import qp


@pytest.mark.parametrize(("machine", "table"), [("qp", qp.TRANSITIONS), ("ev", ev.TRANSITIONS)])
def test_every_change_of_state_is_an_edge(machine: str, table: dict) -> None:
    changes = {(state.name, target.name) for (state, _), target in table.items() if state is not target}
    assert {(source, target) for source, target, _ in diagrams.edges(machine)} == changes
    for (state, item), target in table.items():
        if state is not target:
            (label,) = [text for a, b, text in diagrams.edges(machine) if (a, b) == (state.name, target.name)]
            assert item.value in label


def test_output(capsys: pytest.CaptureFixture[str]) -> None:
    assert diagrams.main(["ev"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("stateDiagram-v2\n    [*] --> GOOD\n")
    assert "    SKIP --> GOOD: the cursor meets it\n" in out
    assert diagrams.main(["qp", "--dot"]) == 0
    assert '"RESET" -> "INIT"' in capsys.readouterr().out
    assert diagrams.main(["tcp"]) == 2
    assert "unknown machine 'tcp'; known: qp, ev" in capsys.readouterr().err
