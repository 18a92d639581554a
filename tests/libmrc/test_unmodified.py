"""Programs that know nothing of libmrc, which comes before libibverbs by LD_PRELOAD."""

from __future__ import annotations

import pathlib
import re
import shutil
import subprocess
import time
from collections.abc import Sequence

import pytest

from libmrc import build
from support.libmrc import compiler, environment
from support.verbs.bed import bed


def command(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed")
    compiler()
    return found


def run(arguments: Sequence[str], **changes: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        arguments, env=environment(**changes), capture_output=True, text=True, timeout=120, check=False
    )


def preloaded() -> dict[str, str]:
    return {"LD_PRELOAD": str(build.library() / build.SONAME)}


def test_ibv_devinfo_shows_the_device(tmp_path: pathlib.Path) -> None:
    devinfo = command("ibv_devinfo")
    with bed(tmp_path) as made:
        done = run([devinfo, "-v"], MRC_DEVICE=made.path(1), **preloaded())
    assert done.returncode == 0, done.stderr
    said = dict(re.findall(r"^\s*([\w\[ \]]+):\s+(.*)$", done.stdout, re.MULTILINE))
    assert said["hca_id"] == "mrc0"
    assert said["state"] == "PORT_ACTIVE (4)"
    assert said["link_layer"] == "Ethernet"
    assert said["board_id"] == "MRCLAB"
    assert said["active_mtu"] == "4096 (5)"
    assert [said[f"GID[  {index}]"] for index in range(4)] == ["fd00::2, RoCE v2"] * 4


def test_the_device_has_the_name_that_the_environment_says(tmp_path: pathlib.Path) -> None:
    devices = command("ibv_devices")
    done = run([devices], MRC_DEVICE=str(tmp_path / "h0.verbs"), MRCLAB_DEVICE_NAME="mlx5_0", **preloaded())
    assert done.stdout.split()[-2] == "mlx5_0"


def test_a_port_is_active_while_one_plane_is_up(tmp_path: pathlib.Path) -> None:
    devinfo = command("ibv_devinfo")
    with bed(tmp_path) as made:
        states = []
        for down in ((), (0,), (0, 1)):
            for port in down:
                made.nodes[0].command("port", {"port": port, "up": False}, time.monotonic_ns())
            states.append(re.findall(r"state:\s+(\w+)", run([devinfo], MRC_DEVICE=made.path(0), **preloaded()).stdout))
    assert states == [["PORT_ACTIVE"], ["PORT_ACTIVE"], ["PORT_DOWN"]]


def test_without_a_device_calls_go_on_to_libibverbs() -> None:
    devinfo = command("ibv_devinfo")
    plain, handed = run([devinfo]), run([devinfo], **preloaded())
    assert (plain.returncode, plain.stdout, plain.stderr) == (handed.returncode, handed.stdout, handed.stderr)


@pytest.mark.parametrize("test", ["ib_write_bw", "ib_write_lat"])
def test_perftest_writes_over_mrc(tmp_path: pathlib.Path, test: str) -> None:
    """`MRCLAB_RC=mrc` lets programs of libibverbs use MRC; perftest's two ends meet by TCP on this machine."""
    program = command(test)
    with bed(tmp_path) as made:
        changes = {"MRCLAB_RC": "mrc", **preloaded()}
        port = str(20000 + hash(str(tmp_path)) % 20000)
        common = [program, "-d", "mrc0", "-F", "-n", "100", "-s", "2000", "-p", port]
        with subprocess.Popen(
            common, env=environment(MRC_DEVICE=made.path(0), **changes), stdout=subprocess.PIPE, text=True
        ) as server:
            try:
                for _ in range(20):  # until the server listens
                    done = run([*common, "127.0.0.1"], MRC_DEVICE=made.path(1), **changes)
                    if "connect" not in done.stderr:
                        break
                assert done.returncode == 0, done.stdout + done.stderr
                said = server.communicate(timeout=300)[0]
            finally:
                server.kill()
        assert server.returncode == 0, said
    assert re.search(r"^ 2000 +100 ", done.stdout, re.MULTILINE)


def test_ucx_finds_a_transport_of_the_device(tmp_path: pathlib.Path) -> None:
    """UCX looks for the device's file in /dev first."""
    info = command("ucx_info")
    with bed(tmp_path) as made:
        done = run([info, "-d"], MRC_DEVICE=made.path(0), **preloaded())
    assert re.search(r"Transport: rc_verbs\n#\s+Device: mrc0:1\n", done.stdout), done.stdout


def test_other_files_are_seen_as_they_are(tmp_path: pathlib.Path) -> None:
    compiler()
    (tmp_path / "file").touch()
    device = {"MRC_DEVICE": str(tmp_path / "none.verbs"), **preloaded()}
    for name in ("file", "nothing"):
        for tool in (["/usr/bin/test", "-r", name], ["/usr/bin/test", "-s", name]):
            plain = subprocess.run(tool, cwd=tmp_path, check=False)
            assert (
                subprocess.run(tool, cwd=tmp_path, env=environment(**device), check=False).returncode
                == plain.returncode
            )
