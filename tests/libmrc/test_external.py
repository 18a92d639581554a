"""Programs of others in two hosts of a lab: they find each other by name, and the fabric carries their data.

`MRCLAB_OCP` names a checkout of OCP's repository of MRC; the rest is of the Debian packages perftest and ibverbs-utils.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import re
import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence

import pytest

from libmrc import build
from mrclab.lab.hosts import hostnet
from p4lite.switch.errors import BuildError
from support.lab import users
from support.lab.labs import lab_file

OCP = pathlib.Path(os.environ.get("MRCLAB_OCP", "/nonexistent"))
PORTS = tuple(f":{port:04X}" for port in (18515, 18185))  # on which these programs and OCP's example listen
LISTENING = "0A"
ADDRESSES = {f"h{index}": hostnet.address(index) for index in range(2)}
MRC = {"MRCLAB_RC": "mrc"}
ROCE: dict[str, str] = {}
PATIENCE_S = 120
FEW = ("-x", "3", "-F", "-n", "20")
PROGRAMS: dict[str, tuple[dict[str, str], tuple[str, ...]]] = {
    "pingpong": (ROCE, ("ibv_rc_pingpong", "-g", "3", "-n", "20")),
    "pingpong with events": (ROCE, ("ibv_rc_pingpong", "-g", "3", "-n", "20", "-e")),
    "write_bw": (ROCE, ("ib_write_bw", "-s", "4096", *FEW)),
    "write_bw of four pairs": (ROCE, ("ib_write_bw", "-s", "4096", "-q", "4", *FEW)),
    "write_bw both ways": (ROCE, ("ib_write_bw", "-s", "4096", "-b", *FEW)),
    "write_bw inline": (ROCE, ("ib_write_bw", "-s", "64", "-I", "64", *FEW)),
    "write_lat": (ROCE, ("ib_write_lat", "-s", "64", *FEW)),
    "write_bw by MRC": (MRC, ("ib_write_bw", "-s", "65536", *FEW)),
    "write_bw of four pairs by MRC": (MRC, ("ib_write_bw", "-s", "4096", "-q", "4", *FEW)),
    "write_bw both ways by MRC": (MRC, ("ib_write_bw", "-s", "4096", "-b", *FEW)),
    "write_lat by MRC": (MRC, ("ib_write_lat", "-s", "64", "-I", "64", *FEW)),
    "send_bw": (ROCE, ("ib_send_bw", "-s", "4096", *FEW)),
    "send_bw of four pairs": (ROCE, ("ib_send_bw", "-s", "4096", "-q", "4", *FEW)),
    "send_bw both ways with events": (ROCE, ("ib_send_bw", "-s", "4096", "-b", "-e", *FEW)),
    "send_lat": (ROCE, ("ib_send_lat", "-s", "64", "-I", "64", *FEW)),
    "read_bw": (ROCE, ("ib_read_bw", "-s", "4096", *FEW)),
    "read_bw of four pairs": (ROCE, ("ib_read_bw", "-s", "4096", "-q", "4", *FEW)),
    "read_lat": (ROCE, ("ib_read_lat", "-s", "64", *FEW)),
    "atomic_bw": (ROCE, ("ib_atomic_bw", *FEW)),
    "atomic_bw of four pairs": (ROCE, ("ib_atomic_bw", "-A", "FETCH_AND_ADD", "-q", "4", *FEW)),
    "atomic_lat": (ROCE, ("ib_atomic_lat", *FEW)),
}
LINK = "p0-t0.0--p0-t1.0"
#: All links between h0's switches T0 and those of the second tier: what crosses them waits, on whatever path it is.
UPLINKS = tuple(f"p{plane}-t0.0--p{plane}-t1.{t1}" for plane in range(2) for t1 in range(2))
OUTAGES = (
    ("ib_write_bw", "-s", "4096"),
    ("ib_send_bw", "-s", "4096"),
    ("ib_read_bw", "-s", "4096"),
    ("ib_atomic_bw",),
)
#: Half a gigabyte takes minutes on the usual links of 20 Mbit/s.
FAST = {"host": {"rate": "1Gbps", "delay": "20us"}, "fabric": {"rate": "1Gbps", "delay": "20us"}}


def mrclab(*words: str, code: int = 0) -> str:
    done = subprocess.run([*users.MRCLAB, *words], capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[pathlib.Path]:
    """Yield a folder of a lab of two hosts below two T0."""
    folder = tmp_path_factory.mktemp("external")
    try:
        build.library()
    except BuildError as error:
        pytest.skip(str(error))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MRCLAB_RUN", str(folder / "run"))
        patch.setenv("COLUMNS", "200")
        mrclab("up", lab_file(folder, "tiny", hosts=2, hosts_per_t0=1))
        try:
            yield folder
        finally:
            mrclab("down", "tiny")


@contextlib.contextmanager
def program(host: str, settings: dict[str, str], words: Sequence[str]) -> Iterator[subprocess.Popen[str]]:
    """Start a program in a host, and end it where it has not ended."""
    assigned = [f"{name}={value}" for name, value in settings.items()]
    command = [*users.MRCLAB, "exec", host, "--", "env", *assigned, *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def await_listener(host: str, server: subprocess.Popen[str]) -> None:
    """Wait until something in a host listens on the port."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline and server.poll() is None:
        rows = [
            line.split() for line in mrclab("exec", host, "--", "cat", "/proc/net/tcp", "/proc/net/tcp6").splitlines()
        ]
        if any(row[1].endswith(PORTS) and row[3] == LISTENING for row in rows):
            return
    raise AssertionError(f"no server: {server.stdout.read() if server.stdout and server.poll() is not None else ''}")


def both(
    settings: dict[str, str],
    words: Sequence[str],
    hosts: tuple[str, str] = ("h1", "h0"),
    trouble: Sequence[str] = (),
    *,
    by_address: bool = False,
) -> tuple[str, str]:
    """Run a program as server in a host and as client in another; return what both said. Both must succeed."""
    first, second = hosts
    with program(first, settings, words) as server:
        await_listener(first, server)
        with program(second, settings, [*words, ADDRESSES[first] if by_address else first]) as client:
            if trouble:
                time.sleep(0.5)
                for target in trouble:
                    mrclab("fail", target)
                time.sleep(0.5)
                for target in trouble:
                    mrclab("restore", target)
            said = client.communicate(timeout=PATIENCE_S)[0]
        heard = server.communicate(timeout=PATIENCE_S)[0]
    assert (client.returncode, server.returncode) == (0, 0), f"client: {said}\nserver: {heard}"
    return said, heard


def needed(name: str) -> None:
    if shutil.which(name) is None:
        pytest.skip(f"{name} is not installed")


@pytest.mark.lab
@pytest.mark.slow
def test_tools_see_the_device(lab: pathlib.Path) -> None:
    needed("ibv_devices")
    assert "mrc0" in mrclab("exec", "h0", "--", "ibv_devices")
    said = mrclab("exec", "h0", "--", "ibv_devinfo", "-v")
    assert re.search(r"hca_id:\s+mrc0", said)
    assert re.search(r"state:\s+PORT_ACTIVE", said)
    assert re.search(r"active_mtu:\s+1024", said)


@pytest.mark.lab
@pytest.mark.slow
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_of_others(lab: pathlib.Path, name: str) -> None:
    settings, words = PROGRAMS[name]
    needed(words[0])
    both(settings, words)


@pytest.mark.lab
@pytest.mark.slow
def test_writes_by_mrc_outlast_a_link_that_fails_and_returns(lab: pathlib.Path) -> None:
    needed("ib_write_bw")
    both(MRC, ("ib_write_bw", "-s", "65536", "-n", "100", "-x", "3", "-F"), trouble=[LINK])


@pytest.mark.lab
@pytest.mark.long
@pytest.mark.parametrize("words", OUTAGES, ids=lambda words: words[0])
def test_roce_waits_for_links_that_return_in_time(lab: pathlib.Path, words: tuple[str, ...]) -> None:
    needed(words[0])
    both(ROCE, (*words, "-x", "3", "-F", "-n", "5000", "-u", "18"), trouble=UPLINKS)


@pytest.mark.lab
@pytest.mark.long
@pytest.mark.parametrize("words", OUTAGES, ids=lambda words: words[0])
def test_roce_ends_with_its_retries(lab: pathlib.Path, words: tuple[str, ...]) -> None:
    """A timeout of 4 ms (`-u 10`) and 7 retries are spent long before the links return."""
    needed(words[0])
    command = (*words, "-x", "3", "-F", "-n", "100000", "-u", "10")
    with program("h1", ROCE, command) as server:
        await_listener("h1", server)
        with program("h0", ROCE, [*command, "h1"]) as client:
            time.sleep(0.5)
            for target in UPLINKS:
                mrclab("fail", target)
            try:
                said = client.communicate(timeout=PATIENCE_S)[0]
            finally:
                mrclab("restore")
    assert client.returncode, said
    assert re.search(r"status 12|transport retry counter exceeded", said), said


@pytest.fixture(scope="module")
def example(lab: pathlib.Path) -> pathlib.Path:
    """Return OCP's example, built from unchanged sources by its own makefile with our headers and library."""
    if not (OCP / "examples" / "benchmark" / "mrc_example.c").is_file() or shutil.which("make") is None:
        pytest.skip("MRCLAB_OCP names no checkout of OCP's repository, or make is not installed")
    folder = lab / "benchmark"
    shutil.copytree(OCP / "examples" / "benchmark", folder)
    folder.chmod(0o755)
    settings = [f"MRC_H_PATH={build.INCLUDE}", f"MRC_LIB_DIR={build.library()}"]
    done = subprocess.run(["make", "-C", str(folder), *settings], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"the example cannot be built: {done.stderr.splitlines()[-1]}")
    found = folder / "mrc_example"
    # Where a lab of root's can read it.
    place = lab / "run" / "tiny" / "lab" / "mrc_example"
    shutil.copy(found, place)
    place.chmod(0o755)
    return pathlib.Path("/run/lab/mrc_example")


@pytest.mark.lab
@pytest.mark.slow
@pytest.mark.parametrize("hosts", [("h0", "h1"), ("h1", "h0")])
def test_ocps_example_sweeps_over_sizes(lab: pathlib.Path, example: pathlib.Path, hosts: tuple[str, str]) -> None:
    words = (str(example), "-d", "mrc0", "-n", "4", "-s", "65536", "--step-factor", "16", "-m", "1024", "-g", "3")
    said, _ = both(ROCE, words, hosts, by_address=True)
    sizes = [int(line.split()[0]) for line in said.splitlines() if re.match(r"\s*\d+\s+[\d.]+", line)]
    assert sizes == [1, 16, 256, 4096, 65536], said


@pytest.mark.lab
@pytest.mark.long
@pytest.mark.parametrize("hosts", [("h0", "h1"), ("h1", "h0")])
def test_ocps_example_sweeps_from_1_byte_to_64_mb(
    lab: pathlib.Path,
    example: pathlib.Path,
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    hosts: tuple[str, str],
) -> None:
    monkeypatch.setenv("MRCLAB_RUN", str(tmp_path / "run"))
    mrclab("up", lab_file(tmp_path, "tiny", hosts=2, hosts_per_t0=1, path_mtu=4096, links=FAST))
    try:
        shutil.copy(lab / "run" / "tiny" / "lab" / example.name, tmp_path / "run" / "tiny" / "lab")
        said, _ = both(ROCE, (str(example), "-d", "mrc0", "-n", "2", "-w", "1"), hosts, by_address=True)
    finally:
        mrclab("down", "tiny")
    sizes = [int(line.split()[0]) for line in said.splitlines() if re.match(r"\s*\d+\s+[\d.]+", line)]
    assert sizes == [1 << power for power in range(27)], said


@pytest.mark.lab
@pytest.mark.slow
def test_ocps_api_test_runs(lab: pathlib.Path) -> None:
    """Built by its makefile, with OCP's headers; it opens the device and allocates a protection domain."""
    if not (OCP / "test" / "mrc_test.c").is_file() or shutil.which("make") is None:
        pytest.skip("MRCLAB_OCP names no checkout of OCP's repository, or make is not installed")
    folder = lab / "ocp"
    shutil.copytree(OCP, folder, ignore=shutil.ignore_patterns(".git"))
    done = subprocess.run(["make", "-C", str(folder / "test")], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"the test cannot be built: {done.stderr.splitlines()[-1]}")
    place = lab / "run" / "tiny" / "lab" / "mrc_test"
    shutil.copy(folder / "test" / "mrc_test", place)
    place.chmod(0o755)
    assert mrclab("exec", "h0", "--", "/run/lab/mrc_test", "-d", "mrc0").strip() == "Hello MRC!"
    assert "Failed to find device" in mrclab("exec", "h0", "--", "/run/lab/mrc_test", "-d", "none", code=1)


@pytest.mark.lab
@pytest.mark.slow
def test_ocps_example_outlasts_a_link_that_fails(lab: pathlib.Path, example: pathlib.Path) -> None:
    words = (str(example), "-d", "mrc0", "-n", "60", "-s", "65536", "--min-size", "65536", "-m", "1024", "-g", "3")
    both(ROCE, words, trouble=[LINK], by_address=True)
