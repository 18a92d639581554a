"""Who can command a switch: its owner on a socket, everybody on loopback when asked for, certificates beyond."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import stat
import subprocess
import urllib.parse
from pathlib import Path

import grpc
import pytest

from p4lite.messages import P4RuntimeStub, p4runtime_pb2
from p4lite.switch import listen
from p4lite.switch.fabric.fabric import Fabric
from p4lite.switch.server import FabricServer
from p4lite.switch.targetapi.client import TargetClient, TargetError
from support.lab import users
from support.switch.process import P4LITE, SwitchProcess

NOBODY = pwd.getpwnam("nobody").pw_uid
WARNING = "every user of this machine can command what is served here"
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else")

#: What was done to a root's switch by nobody: files made and truncated, an interface taken, the switch commanded.
ATTACK = """
import os, socket, sys
path, folder = sys.argv[1:]
failed = []
for what, attempt in (
    ("connect", lambda: socket.socket(socket.AF_UNIX).connect(path)),
    ("list", lambda: os.listdir(folder)),
    ("remove", lambda: os.unlink(path)),
    ("replace", lambda: os.rename(folder, folder + "2")),
    ("plant", lambda: open(folder + "/x", "w")),
):
    try:
        attempt()
    except OSError:
        failed.append(what)
print(" ".join(failed))
"""


def refusal(*arguments: str, code: int) -> str:
    done = subprocess.run(
        [*P4LITE, "switch", "--no-p4", *arguments], capture_output=True, text=True, timeout=300, check=False
    )
    assert (done.returncode, done.stdout) == (code, ""), done
    assert len(done.stderr.splitlines()) == 1, done.stderr
    return done.stderr


def test_by_default_a_socket_of_the_owners(tmp_path: Path) -> None:
    environment = {"P4LITE_RUN": str(tmp_path / "run dir")}
    with SwitchProcess("--no-p4", "--device-id", "7", addressed=False, environment=environment) as switch:
        path = tmp_path / "run dir" / "switch-7.sock"
        assert switch.address == f"unix:{urllib.parse.quote(str(path))}"
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        with TargetClient(switch.address) as target:
            assert list(target.info().switches) == [7]
            for call in (lambda: target.trace("/tmp/x"), lambda: target.add_port(7, 1, interface="lo")):
                with pytest.raises(TargetError) as caught:
                    call()
                assert caught.value.code == "PERMISSION_DENIED"
        again = subprocess.run(
            [*P4LITE, "switch", "--no-p4", "--device-id", "7"],
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert (again.returncode, "another server does" in again.stderr) == (1, True)
        with TargetClient(switch.address) as target:
            assert list(target.info().switches) == [7], "the first one keeps its socket"
        switch.process.kill()
        switch.process.wait()
        assert path.exists()
    with SwitchProcess("--no-p4", "--device-id", "7", addressed=False, environment=environment) as switch:
        assert switch.stop() == 0
    assert not path.exists()


@needs_root
def test_another_user_cannot_connect_to_the_socket(tmp_path_factory: pytest.TempPathFactory) -> None:
    """As user nobody, on the default socket and on one in a folder that everybody can open."""
    base = Path("/run") / f"p4lite-test-{os.getpid()}"
    base.mkdir(mode=0o755)
    try:
        for where in ("private", "open"):
            if where == "open":
                (base / where).mkdir(mode=0o755)
            path = base / where / ("switch-0.sock" if where == "private" else "s.sock")
            arguments = () if where == "private" else ("--grpc-server-addr", f"unix:{path}")
            environment = {"P4LITE_RUN": str(base / "private")}
            with SwitchProcess("--no-p4", *arguments, addressed=False, environment=environment) as switch:
                done = subprocess.run(
                    users.as_user(NOBODY, "/usr/bin/python3", "-c", ATTACK, str(path), str(path.parent)),
                    cwd="/",
                    capture_output=True,
                    text=True,
                    timeout=300,
                    check=False,
                )
                failed = done.stdout.split()
                assert set(failed) >= {"connect", "remove", "replace", "plant"}, done
                assert where == "open" or "list" in failed
                with TargetClient(switch.address) as target:
                    assert list(target.info().switches) == [0]
                assert switch.stop() == 0
    finally:
        shutil.rmtree(base)


def test_a_run_folder_of_somebody_elses_or_open_to_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("P4LITE_RUN", str(tmp_path / "open"))
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o1777)
    assert "others can write to it" in refusal(code=1)


def test_tcp_is_for_those_who_ask_and_says_who_can_call() -> None:
    with SwitchProcess("--no-p4", "--grpc-server-addr", "127.0.0.1:0", addressed=False) as switch:
        assert switch.address.startswith("127.0.0.1:")
        with TargetClient(switch.address) as target:
            assert list(target.info().switches) == [0]
        said = f"p4lite switch: warning: {listen.warning(switch.address, None)}\n"
        assert WARNING in said
        assert switch.stop(expected=said) == 0


@pytest.mark.parametrize("address", ["0.0.0.0:0", "[::]:0", "203.0.113.9:9559"])
def test_tcp_beyond_loopback_needs_certificates_of_clients(address: str) -> None:
    assert f"{address}: everybody who can reach this machine" in refusal("--grpc-server-addr", address, code=1)


@pytest.mark.parametrize(
    "address", ["unix-abstract:x", "nonsense", "127.0.0.1", "127.0.0.1:x", "127.0.0.1:99999", ":9559"]
)
def test_addresses_that_are_none(address: str) -> None:
    assert address in refusal("--grpc-server-addr", address, code=1)


def test_paths_where_there_can_be_no_socket(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("precious")
    for path, text in (
        (tmp_path / "file", "not a socket"),
        (tmp_path / "none" / "s", "there is no folder"),
        (tmp_path / ("x" * 108), "more than the 107"),
    ):
        assert text in refusal("--grpc-server-addr", f"unix:{path}", code=1)
    assert (tmp_path / "file").read_text() == "precious"


def test_a_server_in_the_same_process_listens_where_nobody_else_can_call() -> None:
    with FabricServer(Fabric("virtual")) as server:
        path = listen.socket_path(server.start())
        assert path is not None
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        assert os.umask(0o22) == 0o22
    assert not path.parent.exists()


# --- TLS ----------------------------------------------------------------------------------------------------


def openssl(*words: str, folder: Path) -> None:
    subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True)


@pytest.fixture(scope="module")
def pems(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """ca.pem with server, client and, of another authority, stranger."""
    if shutil.which("openssl") is None:
        pytest.skip("no openssl to make certificates")
    folder = tmp_path_factory.mktemp("pems")
    (folder / "san").write_text("subjectAltName=DNS:localhost,IP:127.0.0.1\n")
    curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    for authority, names in (("ca", ("server", "client")), ("other", ("stranger",))):
        curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
        subject = ["-subj", f"/CN={authority}", "-days", "2"]
        openssl(
            "req", "-x509", *curve, "-keyout", f"{authority}.key", "-out", f"{authority}.pem", *subject, folder=folder
        )
        for name in names:
            openssl(
                "req", *curve, "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}", folder=folder
            )
            signed = ["-CA", f"{authority}.pem", "-CAkey", f"{authority}.key", "-CAcreateserial", "-days", "2"]
            openssl(
                "x509", "-req", "-in", f"{name}.csr", *signed, "-extfile", "san", "-out", f"{name}.pem", folder=folder
            )
    return folder


def credentials(pems: Path, name: str | None) -> grpc.ChannelCredentials:
    root = (pems / "ca.pem").read_bytes()
    if name is None:
        return grpc.ssl_channel_credentials(root)
    return grpc.ssl_channel_credentials(root, (pems / f"{name}.key").read_bytes(), (pems / f"{name}.pem").read_bytes())


def options(pems: Path, *more: str) -> tuple[str, ...]:
    return (
        *("--grpc-server-addr", "localhost:0", "--grpc-server-ssl"),
        *("--grpc-server-cert", str(pems / "server.pem"), "--grpc-server-key", str(pems / "server.key")),
        *("--grpc-server-cacert", str(pems / "ca.pem"), *more),
    )


def test_tls_with_certificates_of_clients(pems: Path) -> None:
    with SwitchProcess("--no-p4", *options(pems, "--grpc-server-with-client-auth"), addressed=False) as switch:
        with TargetClient(switch.address, credentials=credentials(pems, "client")) as target:
            assert list(target.info().switches) == [0]
        with grpc.secure_channel(switch.address, credentials(pems, "client")) as channel:
            found = P4RuntimeStub(channel).Capabilities(p4runtime_pb2.CapabilitiesRequest())
            assert found.p4runtime_api_version
        for stranger in (credentials(pems, None), credentials(pems, "stranger"), None):
            with TargetClient(switch.address, credentials=stranger, timeout_s=5) as target:
                with pytest.raises(TargetError) as caught:
                    target.info()
                assert caught.value.code in ("UNAVAILABLE", "DEADLINE_EXCEEDED")
        switch.process.terminate()  # gRPC has said whom it refused
        assert switch.process.wait(timeout=120) == 0


def test_tls_alone_keeps_nobody_out_and_says_so(pems: Path) -> None:
    with SwitchProcess("--no-p4", *options(pems), addressed=False) as switch:
        with TargetClient(switch.address, credentials=credentials(pems, None)) as target:
            assert list(target.info().switches) == [0]
        assert switch.stop(expected=f"p4lite switch: warning: {listen.warning(switch.address, None)}\n") == 0


def test_options_of_tls_that_do_not_go_together(pems: Path) -> None:
    for words, text in (
        (("--grpc-server-cert", "x"), "--grpc-server-cert needs --grpc-server-ssl"),
        (("--grpc-server-with-client-auth",), "--grpc-server-with-client-auth needs --grpc-server-ssl"),
        (("--grpc-server-ssl",), "--grpc-server-ssl needs --grpc-server-cert and --grpc-server-key"),
        (
            ("--grpc-server-ssl", "--grpc-server-cert=x", "--grpc-server-key=x", "--grpc-server-with-client-auth"),
            "--grpc-server-with-client-auth needs --grpc-server-cacert",
        ),
    ):
        assert text in refusal(*words, code=2)
    where = ("--grpc-server-addr", "127.0.0.1:0", "--grpc-server-ssl")
    server = ("--grpc-server-cert", str(pems / "server.pem"))
    assert "none.pem: cannot read" in refusal(*where, *server, "--grpc-server-key", "none.pem", code=1)
    assert "no key in PEM form" in refusal(*where, *server, "--grpc-server-key", str(pems / "server.pem"), code=1)


def test_the_probe_of_a_socket_harms_nobody(tmp_path: Path) -> None:
    """A socket that is listened on by something that accepts nothing is left alone, too."""
    path = tmp_path / "s.sock"
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(path))
        other.listen(0)
        inode = path.stat().st_ino
        assert "another server does" in refusal("--grpc-server-addr", f"unix:{path}", code=1)
        assert path.stat().st_ino == inode
