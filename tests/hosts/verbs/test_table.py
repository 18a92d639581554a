"""The table of docs/reference/verbs.md: every name of ours in it exists, every function of the header is in it once."""

from __future__ import annotations

import dataclasses
import pathlib
import re

import pytest

from mrc_host import verbs
from mrc_host.node.programs.pairs import ATTRIBUTES

PAGE = (pathlib.Path(__file__).parents[3] / "docs" / "reference" / "verbs.md").read_text()
ROWS = [
    [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in PAGE.splitlines() if line[:3] == "| `"
]
#: mrc.h has 27 functions (with both forms of the query of devices).
FUNCTIONS = {
    "mrc": "query_device query_device_ex query_version create_context destroy_context create_comp_channel"
    " get_comp_channel_fd destroy_comp_channel create_cq poll_cq destroy_cq create_qp_hint destroy_qp_hint"
    " query_qp_hint modify_qp_hint create_qp destroy_qp query_qp modify_qp get_qpn post_recv post_send get_async_event"
    " ack_async_event req_notify_cq get_cq_event ack_cq_events",
}
#: What is in their structures (of unnamed ones inside them only the name), and their enumerations.
MEMBERS = {
    "mrc_device_attr": "mrc_protocol_version wimm_attr mpr_attr qp_attr cap",
    "mrc_context_attr": "mrc_api_version_used mrc_vendor_api_version_used",
    "mrc_qp_hint_attr": "num_qps_per_peer num_send_peers num_remote_recv_peers vendor_cfg",
    "mrc_qp_hint_init_attr": "attr",
    "mrc_qp_init_attr": "qp_context send_cq recv_cq cap sq_sig_all pd send_ops_flags protocol_version",
    "mrc_qp_attr": "mpr wimm timeout profile retry qp_hint cap vendor_cfg",
    "mrc_async_event": "element event_type",
}
ENUMERATIONS = "mrc_protocol_version mrc_device_cap mrc_qp_hint_attr_mask mrc_qp_attr_mask mrc_qp_cap"


def names(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def of_headers() -> list[list[str]]:
    rows = [row for row in ROWS if len(row) == 3 and row[2] != "how far"]
    return [row for row in rows if names(row[0])[0].startswith("mrc_")]


def of_the_first_column() -> list[str]:
    """Whole names: `.member` is of the structure named before it."""
    found: list[str] = []
    for row in of_headers():
        for name in names(row[0]):
            found.append(found[-1].partition(".")[0] + name if name.startswith(".") else name)
    return found


@pytest.mark.parametrize("row", of_headers(), ids=lambda row: names(row[0])[0])
def test_every_name_in_the_table_exists(row: list[str]) -> None:
    for name in names(row[1]):
        found: object = verbs
        for part in name.split("."):
            fields = {each.name for each in dataclasses.fields(found)} if dataclasses.is_dataclass(found) else set()
            if part in fields or (part == "qp_num" and found is verbs.QueuePair):
                break
            found = getattr(found, part)
    assert bool(names(row[1])) != row[2].startswith("not")
    assert re.match(r"same|partly: |not: ", row[2])


def test_table_lists_every_function_of_the_headers() -> None:
    told = [name for row in of_headers() for name in names(row[0])]
    for prefix, functions in FUNCTIONS.items():
        for function in functions.split():
            assert f"{prefix}_{function}" in told, f"{prefix}_{function}"
    assert len(FUNCTIONS["mrc"].split()) == 27


def test_every_structure_and_enumeration_is_there_with_all_its_members() -> None:
    members = {f"{name}.{member}" for name, text in MEMBERS.items() for member in text.split()}
    functions = {f"{prefix}_{name}" for prefix, text in FUNCTIONS.items() for name in text.split()}
    assert set(of_the_first_column()) == members | functions | set(ENUMERATIONS.split())


def test_attributes_that_the_table_names_can_be_set() -> None:
    row = next(row for row in of_headers() if ".timeout" in row[0])
    assert set(names(row[2])) <= set(ATTRIBUTES)


def test_the_objects_of_the_page_exist() -> None:
    table = PAGE[PAGE.index("| object |") : PAGE.index("* **Memory**")]
    for name in re.findall(r"^\| `(\w+)", table, re.M):
        assert hasattr(verbs, name), name
    assert set(verbs.__all__) <= set(dir(verbs))
