"""The reference of the HTTP interface has every action, field and event."""

from __future__ import annotations

import json
import pathlib
import re
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from mrc_topo.labfile import load_lab
from mrclab.web import server
from mrclab.web.actions import MODELS
from mrclab.web.hub import Hub
from mrclab.web.server import Serving
from mrclab.web.state import calm, layout_of
from support.web import served

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "docs"))

import http_interface as interface  # type: ignore[import-not-found]

PAGE = pathlib.Path(__file__).parents[2] / "docs" / "reference" / "http-interface.md"


def section() -> str:
    return PAGE.read_text(encoding="utf-8").partition("\n## Requests\n")[2].partition("\n## ")[0]


def test_reference_names_every_action_and_field() -> None:
    """Without the program that makes the table, which could leave some out."""
    rows = re.findall(r"^\| `(\w+)` \| [^|]+ \| ([^|]+) \|$", section().partition("| `NAME` |")[2], re.M)
    found = {name: re.findall(r"`(\w+)`: ", fields) for name, fields in rows if name in MODELS}
    assert found == {name: list(model.model_fields) for name, model in MODELS.items()}


def test_reference_has_the_tables_as_they_are_made() -> None:
    for made in (interface.actions_table(), interface.events_table()):
        text = "\n".join(made)
        assert text in section(), f"{PAGE.name}: `python docs/http_interface.py` prints another table:\n{text}"


def test_reference_names_every_event_that_the_server_sends() -> None:
    source = pathlib.Path(server.__file__).read_text(encoding="utf-8")
    assert set(re.findall(r'yield event\("(\w+)"', source)) == set(interface.EVENTS)


def test_bounds_choices_and_defaults_are_in_the_table() -> None:
    step, start, fail = (interface.fields_of(MODELS[name]) for name in ("step", "start", "fail"))
    assert step["seconds"] == "number, above 0, at most 10 (default: `0.01`)"
    assert start["hosts"] == "list of text (optional)"
    assert start["workload"] == "text"
    assert fail["direction"] == "`both` or `up` or `down` (default: `both`)"


@pytest.fixture
def serving() -> Iterator[Serving]:
    hub = Hub()
    layout = layout_of(load_lab("tiny"), "lab", clock="real", transport="mrc", began_ns=0, can=[])
    hub.show(layout)
    hub.publish(calm(layout, 1))
    with served(hub) as made:
        yield made


def test_statuses_are_those_of_the_reference(serving: Serving) -> None:
    good = {"Authorization": f"Bearer {serving.token}", "Content-Type": "application/json"}
    tries: list[tuple[int, str, bytes | None, dict[str, Any]]] = [
        (400, "api/fail", b"{", good),
        (401, "api/fail", b"{}", good | {"Authorization": "Bearer x"}),
        (403, "api/fail", b"{}", good | {"Origin": "http://another.example"}),
        (404, "api/melt", b"{}", good),
        (413, "api/fail", b" " * (65 << 10), good),
        (415, "api/fail", b"{}", good | {"Content-Type": "text/plain"}),
        (421, "api/fail", b"{}", good | {"Host": "another.example"}),
    ]
    for status, path, body, headers in tries:
        request = urllib.request.Request(f"{serving.address}{path}", body, headers)
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(request)
        assert refused.value.code == status
        assert f"{status} (" in " ".join(section().split())
        if status == 404:
            assert json.loads(refused.value.read())["error"].startswith("no command of that name")
