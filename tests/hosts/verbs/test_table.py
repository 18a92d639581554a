"""The table of docs/verbs.md: every name of ours in it exists, every function of the headers is in it once."""

from __future__ import annotations

import dataclasses
import pathlib
import re

import pytest

from mrc_host import control_api, verbs
from mrc_host.node.programs.pairs import ATTRIBUTES

PAGE = (pathlib.Path(__file__).parents[3] / "docs" / "verbs.md").read_text()
ROWS = [
    [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in PAGE.splitlines() if line[:3] == "| `"
]
#: mrc.h has 27 functions, mrc_ctl.h 14 (with both forms of the queries of devices).
FUNCTIONS = {
    "mrc": "query_device query_device_ex query_version create_context destroy_context create_comp_channel"
    " get_comp_channel_fd destroy_comp_channel create_cq poll_cq destroy_cq create_qp_hint destroy_qp_hint"
    " query_qp_hint modify_qp_hint create_qp destroy_qp query_qp modify_qp get_qpn post_recv post_send get_async_event"
    " ack_async_event req_notify_cq get_cq_event ack_cq_events",
    "mrc_ctl": "query_device query_device_ex query_version query_port modify_port modify_ev_fmt_profile"
    " query_ev_fmt_profile modify_ev_profile query_ev_profile modify_cc_profile query_cc_profile create_ev_event_cq"
    " poll_ev_event ep_batch_send_wait",
}


def names(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def of_headers() -> list[list[str]]:
    rows = [row for row in ROWS if len(row) == 3 and row[2] != "how far"]
    return [row for row in rows if names(row[0])[0].startswith(("mrc_", "vendor_cfg"))]


@pytest.mark.parametrize("row", of_headers(), ids=lambda row: names(row[0])[0])
def test_what_the_table_names_exists(row: list[str]) -> None:
    module = control_api if "mrc_ctl_" in row[0] else verbs
    for name in names(row[1]):
        found: object = module
        for part in name.split("."):
            fields = {each.name for each in dataclasses.fields(found)} if dataclasses.is_dataclass(found) else set()
            if part in fields or (part == "qp_num" and found is verbs.QueuePair):
                break
            found = getattr(found, part)
    assert bool(names(row[1])) != row[2].startswith("not")
    assert re.match(r"same|partly: |not: ", row[2])


def test_every_function_is_there_once() -> None:
    told = [name for row in of_headers() for name in names(row[0])]
    for prefix, functions in FUNCTIONS.items():
        for function in functions.split():
            assert f"{prefix}_{function}" in told, f"{prefix}_{function}"
    assert len(FUNCTIONS["mrc"].split()) == 27
    assert len(FUNCTIONS["mrc_ctl"].split()) == 14


def test_attributes_that_the_table_names_can_be_set() -> None:
    row = next(row for row in of_headers() if ".timeout" in row[0])
    assert set(names(row[2])) <= set(ATTRIBUTES)


def test_the_objects_of_the_page_exist() -> None:
    table = PAGE[PAGE.index("| object |") : PAGE.index("* **Memory**")]
    for name in re.findall(r"^\| `(\w+)", table, re.M):
        assert hasattr(verbs, name), name
    assert set(verbs.__all__) <= set(dir(verbs))
