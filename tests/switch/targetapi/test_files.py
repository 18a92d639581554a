"""What the target API may touch of the machine: named files in one folder, interfaces named at start, nothing else."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from p4lite.switch.errors import GrantError
from p4lite.switch.targetapi.client import TargetClient, TargetError
from p4lite.switch.targetapi.grants import MAX_FILES, Grants
from p4lite_tools.entries import read_capture
from support.switch.p4rt import Bench, Controller, control_config

FRAME = b"\xff" * 6 + b"\2\0\0\0\0\1\x08\0" + b"x" * 600
LIMIT = 200_000


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "files"


@pytest.fixture
def bench(folder: Path) -> Iterator[Bench]:
    made = Bench(Grants(folder, LIMIT))
    with Controller(made.address) as controller:
        controller.arbitrate()
        controller.set_pipeline(control_config())
        yield made
    made.close()


@pytest.fixture
def target(bench: Bench) -> Iterator[TargetClient]:
    with TargetClient(bench.address) as client:
        yield client


def test_captures_and_traces_by_name(bench: Bench, target: TargetClient, folder: Path) -> None:
    target.capture(1, 1, "p.pcapng", label="h3:2", outside=True)
    target.trace("trace")
    target.add_port(1, 9, pcap="nine.pcapng")
    bench.send(1, FRAME)
    target.capture(1, 1, None)
    target.trace(None)
    [first] = [packet for packet in read_capture(folder / "p.pcapng") if packet.data == FRAME]
    assert first.inbound is False  # of the host, which sent it
    assert b"h3:2" in (folder / "p.pcapng").read_bytes()
    assert (folder / "trace").read_text(encoding="utf-8").count("\n") > 0
    assert (folder / "nine.pcapng").exists()
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o600}
    # Again into the same file, while it is open and afterwards.
    for _ in range(2):
        target.capture(1, 1, "p.pcapng")
    bench.send(1, FRAME)
    target.capture(1, 1, None)
    assert (folder / "p.pcapng").read_bytes().count(FRAME) == 1


@pytest.mark.parametrize(
    "name",
    [
        "/etc/x",
        "../x",
        "a/b",
        ".",
        "..",
        "",
        ".hidden",
        "-x",
        "a\0b",
        "a\nb",
        "x" * 101,
        "/proc/self/fd/1",
        "\u00e9",
        "a ",
    ],
)
def test_names_that_are_paths_or_worse(target: TargetClient, folder: Path, name: str) -> None:
    calls = (
        lambda: target.capture(1, 1, name),
        lambda: target.trace(name),
        lambda: target.add_port(1, 9, pcap=name),
    )
    for call in calls:
        with pytest.raises(TargetError) as caught:
            call()
        assert caught.value.code in ("PERMISSION_DENIED", "INVALID_ARGUMENT")
    assert list(folder.iterdir()) == []
    assert 9 not in target.info().switches[1].ports


@pytest.mark.parametrize("kind", ["symlink", "dangling", "hard link", "fifo", "folder", "device"])
def test_what_is_no_plain_file_is_left_alone(
    bench: Bench, target: TargetClient, folder: Path, tmp_path: Path, kind: str
) -> None:
    victim, place = tmp_path / "victim", folder / "x"
    victim.write_text("precious")
    if kind == "symlink":
        place.symlink_to(victim)
    elif kind == "dangling":
        place.symlink_to(tmp_path / "new")
    elif kind == "hard link":
        os.link(victim, place)
    elif kind == "fifo":
        os.mkfifo(place)
    elif kind == "folder":
        place.mkdir()
    elif os.geteuid() == 0:
        os.mknod(place, 0o20600, os.makedev(1, 3))
    else:
        pytest.skip("only root makes devices")
    for call in (lambda: target.capture(1, 1, "x"), lambda: target.trace("x"), lambda: target.add_port(1, 9, pcap="x")):
        with pytest.raises(TargetError) as caught:
            call()
        assert caught.value.code == "PERMISSION_DENIED"
    bench.send(1, FRAME)
    assert victim.read_text() == "precious"
    assert not (tmp_path / "new").exists()


def test_without_a_folder_there_are_no_files() -> None:
    bench = Bench()
    with TargetClient(bench.address) as target, pytest.raises(TargetError, match="no folder for captures and traces"):
        target.trace("x")
    bench.close()


def test_the_folder_is_never_filled_beyond_its_limit(
    bench: Bench, target: TargetClient, folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Two captures and a trace grow until the limit of all is reached, are told to begin anew, and stay below it."""
    for _ in range(3):
        target.capture(1, 1, "a.pcapng")
        target.capture(1, 2, "b.pcapng")
        target.trace("trace")
        for port in (1, 2):
            for _ in range(1000):
                bench.fabric.inject(bench.switch.port(port), FRAME)
        bench.run(10**9)
        target.capture(1, 1, None)
        target.capture(1, 2, None)
        target.trace(None)
        used = sum(path.stat().st_size for path in folder.iterdir())
        assert LIMIT // 2 < used <= LIMIT + 1000
    assert "it ends here" in capfd.readouterr().err
    assert bench.switch.port(1).stats().rx_packets == 3000


def test_as_many_files_as_that(bench: Bench, target: TargetClient, folder: Path) -> None:
    for number in range(MAX_FILES):
        (folder / f"f{number}").touch()
    target.trace("f7")
    with pytest.raises(TargetError, match="files already"):
        target.trace("one-more")


def test_interfaces_that_were_not_named(target: TargetClient) -> None:
    for name in ("lo", "eth0", "../lo", ""):
        with pytest.raises(TargetError) as caught:
            target.add_port(1, 9, interface=name)
        assert caught.value.code in ("PERMISSION_DENIED", "INVALID_ARGUMENT")


def test_a_folder_that_others_can_write_to(tmp_path: Path) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    with pytest.raises(GrantError, match="others can write to it"):
        Grants(tmp_path / "open")
