"""What a lab on several machines cannot be is said before anything is started."""

from __future__ import annotations

import json
import pathlib
from dataclasses import replace
from typing import Any

import pytest
import yaml

from mrc_machines.coordinator import MACHINES
from mrc_machines.lifecycle import warnings
from mrclab.lab import lifecycle
from mrclab.lab.hosts import inside
from mrclab.lab.records.record import LabState
from mrclab.lab.records.rundir import RunDir, RunError, all_parts, all_runs
from mrclab.lab.requested import LabRequest

LAB: dict[str, Any] = {
    "name": "two",
    "planes": 1,
    "t0_per_plane": 2,
    "t1_per_plane": 1,
    "hosts": 2,
    "hosts_per_t0": 1,
    "path_mtu": 2048,
    "ev": {"size": 8, "active": 4},
    "machines": {
        "m1": {"ssh": "x", "address": "10.0.0.1", "hosts": ["h0"], "switches": ["p0-t0.0", "p0-t1.0"]},
        "m2": {"ssh": "y", "address": "10.0.0.2", "hosts": ["h1"], "switches": ["p0-t0.1"]},
    },
}


@pytest.fixture(autouse=True)
def own_folder(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MRCLAB_RUN", str(tmp_path / "run"))


def wanted(folder: pathlib.Path, **changes: Any) -> LabRequest:
    path = folder / "two.yaml"
    path.write_text(yaml.safe_dump({**LAB, **changes}))
    return LabRequest.of(str(path))


@pytest.mark.parametrize(
    ("changes", "links", "connect", "hint"),
    [
        ({"switch": "bmv2"}, "memory", None, "has `machines`: its switches are p4lite's, not bmv2's"),
        ({"compiler": "p4c"}, "memory", None, "not p4lite's or p4c's"),
        ({}, "veth", None, "leave --links out"),
        ({"program": "own.p4"}, "memory", None, "leave `program` out"),
        ({"policies": {"loss": "own.py:Loss"}}, "memory", None, "leave `policies` out"),
        ({}, "memory", "ssh there", "has no {ssh}"),
    ],
)
def test_lab_that_several_machines_cannot_run_is_refused(
    tmp_path: pathlib.Path, changes: dict[str, Any], links: str, connect: str | None, hint: str
) -> None:
    with pytest.raises(RunError) as caught:
        lifecycle.up(replace(wanted(tmp_path, **changes), links=links, connect=connect))
    assert hint in str(caught.value)
    assert not all_runs()


def test_who_enters_a_host_is_told_where_it_is() -> None:
    state = LabState("two", machines={"m1": ["h0"], "m2": ["h1"]})
    with pytest.raises(RunError, match=r"host h1 is on machine m2: .*MRCLAB_PART=m2"):
        inside.check_here(state, "h1")
    with pytest.raises(RunError, match=r"lab 'two' is on several machines: .*MRCLAB_PART=MACHINE"):
        inside.check_here(state)
    inside.check_here(LabState("two"), "h1")


def test_frames_that_travel_in_pieces_are_told_with_both_remedies(tmp_path: pathlib.Path) -> None:
    lab = wanted(tmp_path)
    run = RunDir("two")
    run.create()
    (run.folder.path / MACHINES).write_text(json.dumps({"m1": {"frame_bytes": 1440}, "m2": {"frame_bytes": 9000}}))
    (said,) = warnings(lab.topology)
    # 2048 bytes and 166 of headers, as `schema.HEADER_BYTES` has them.
    assert "from machine m1 full frames of 2214 bytes" in said
    assert "takes 1440 in one; raise its MTU by 774, or set path_mtu to 1272" in said


def test_parts_are_no_labs_of_this_machines_commands(tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "run" / ".parts" / "m1"
    for each in (folder.parent.parent, folder.parent, folder):
        each.mkdir(mode=0o700)
    part = RunDir("two", folder)
    part.create()
    part.write(LabState("two"))
    assert not all_runs()
    assert [each.path for each in all_parts()] == [part.path]
    assert list(lifecycle.cleanup()) == ["two (machine m1)"]
    assert not part.path.exists()
