"""Files of connection matrices: htsim's and CSV."""

from __future__ import annotations

import pathlib

import pytest

from mrc_host.workloads import WORKLOADS, WorkloadError
from mrc_host.workloads.flow_file import read_flows

FLOWS = WORKLOADS["flows"]
HTSIM = "Nodes 16\nConnections 2\n# both ways\n0->13 id 1 start 0 size 2000000\n13->0 start 2.5 size 64 prio 3\n"
CSV = "source,target,bytes,start\n0,13,2MB,0\n13,0,64,2.5us\n"


@pytest.mark.parametrize(("name", "text"), [("two.cm", HTSIM), ("two.csv", CSV)])
def test_both_kinds_of_files_have_the_same_flows(name: str, text: str, tmp_path: pathlib.Path) -> None:
    (tmp_path / name).write_text(text)
    wanted = [[0, 13, 2_000_000, 0], [13, 0, 64, 2500]]
    assert read_flows(tmp_path / name) == wanted
    assert FLOWS.placed({"flows": name}, tmp_path)["flows"] == wanted
    assert [list(row) for row in FLOWS.complete({"flows": '[[0,13,"2MB",0],[13,0,64,"2.5us"]]'}).flows] == wanted
    assert [list(row) for row in FLOWS.complete({"flows": [[0, 13, "2MB"], [13, 0, 64, 2500]]}).flows] == [
        [0, 13, 2_000_000],
        wanted[1],
    ]


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("x.cm", "Nodes 2\n0->1 size 5\n", "x.cm:2: start and size are needed"),
        ("x.cm", "0->1 trigger 3 size 5\n", "x.cm:1: trigger is not read"),
        ("x.cm", "0->1 start soon size 5\n", "x.cm:1: start 'soon' is no number"),
        ("x.cm", "0-1 start 0 size 5\n", "x.cm:1: '0-1' is no connection"),
        ("x.cm", "0->1 start 0 size\n", "x.cm:1: a word without its value"),
        ("x.cm", "Nodes 2\n", "x.cm:1: there is no flow"),
        ("x.csv", "from,to\n", "x.csv:1: the columns are 'from, to'"),
        ("x.csv", "source,target,bytes\n0,1,5\n\n0,1\n", "x.csv:4: 2 values for 3 columns"),
        ("x.csv", "source,target,bytes\n0,1,5kg\n", "x.csv:2: '5kg' is not a size"),
        ("x.csv", "source,target,bytes\nh0,1,5\n", "x.csv:2: invalid literal"),
        ("none.csv", None, "none.csv: cannot be read"),
    ],
)
def test_a_file_that_is_wrong_is_refused_with_its_line(
    name: str, text: str | None, says: str, tmp_path: pathlib.Path
) -> None:
    if text is not None:
        (tmp_path / name).write_text(text)
    with pytest.raises(WorkloadError) as refused:
        read_flows(tmp_path / name)
    assert says in str(refused.value)


def test_a_name_that_was_not_read_reaches_no_host() -> None:
    params = FLOWS.complete({"flows": "two.cm"})
    with pytest.raises(WorkloadError, match="was not read"):
        FLOWS.memory_bytes(2, params)
    with pytest.raises(WorkloadError, match="write"):
        FLOWS.complete({"flows": "[[0,1"})
