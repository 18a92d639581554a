"""Listening address of a server, and who may command it there.

A user who can call a server controls its switches completely. By default that is one user: the server listens on a
unix socket (0600) in a folder (0700) of its owner's. TCP is for those who ask for it: on loopback every user of the
machine can call (a warning says so); beyond it only who has a certificate.
"""

from __future__ import annotations

import argparse
import contextlib
import ipaddress
import os
import re
import socket
import stat
import urllib.parse
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from p4lite.errors import P4liteError
from p4lite.files import FolderError, make_private
from p4lite.scratch import scratch

if TYPE_CHECKING:
    import grpc

#: Linux limits the path of a unix socket to this many bytes (and a NUL).
SOCKET_PATH_BYTES = 107
#: An address in a private folder of its own, which goes with the server.
PRIVATE = "private"


class ServerError(P4liteError):
    """A server that cannot start, or a wrong description; one line with the place and the remedy."""

    code = "no_server"


@dataclass(frozen=True, slots=True)
class Tls:
    """Server certificate and key, and the authority (None: the system's) whose certificates clients must have if
    `client_auth`; all PEM files."""

    cert: Path
    key: Path
    cacert: Path | None = None
    client_auth: bool = False

    def credentials(self) -> grpc.ServerCredentials:
        """Return the credentials for gRPC. Raises ServerError, which names the file that cannot be used."""
        # A fabric that is not served, as in a simulation, needs no gRPC, whose import takes as long as a small lab.
        import grpc

        cert, key = _pem(self.cert, "CERTIFICATE"), _pem(self.key, "KEY")
        cacert = None if self.cacert is None else _pem(self.cacert, "CERTIFICATE")
        return grpc.ssl_server_credentials([(key, cert)], cacert, require_client_auth=self.client_auth)


def _pem(path: Path, kind: str) -> bytes:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ServerError(f"{path}: cannot read: {error.strerror}") from None
    if not re.search(rb"-----BEGIN [A-Z ]*" + kind.encode() + rb"-----", data):
        raise ServerError(f"{path}: no {kind.lower()} in PEM form")
    return data


def add_options(parser: argparse.ArgumentParser, default: str) -> None:
    """Add the options of simple_switch_grpc for the address and the certificates."""
    add = parser.add_argument
    add("--grpc-server-addr", metavar="ADDR", help=f"unix:PATH or HOST:PORT (default: {default})")
    add("--grpc-server-ssl", action="store_true", help="TLS; needs a certificate and a key")
    add("--grpc-server-cacert", metavar="FILE", help="authority of the clients' certificates (PEM)")
    add("--grpc-server-cert", metavar="FILE", help="the server's certificate (PEM)")
    add("--grpc-server-key", metavar="FILE", help="the server's key (PEM)")
    add("--grpc-server-with-client-auth", action="store_true", help="only clients with a certificate")


def tls_of(arguments: argparse.Namespace) -> Tls | None:
    """Return the TLS settings of the options of `add_options`. Raises ValueError when the options contradict each
    other."""
    given: dict[str, Any] = {
        name: getattr(arguments, f"grpc_server_{name}") for name in ("cacert", "cert", "key", "with_client_auth")
    }
    if not arguments.grpc_server_ssl:
        named = [f"--grpc-server-{name.replace('_', '-')}" for name, value in given.items() if value]
        if named:
            raise ValueError(f"{named[0]} needs --grpc-server-ssl")
        return None
    if given["cert"] is None or given["key"] is None:
        raise ValueError("--grpc-server-ssl needs --grpc-server-cert and --grpc-server-key")
    if given["with_client_auth"] and given["cacert"] is None:
        raise ValueError("--grpc-server-with-client-auth needs --grpc-server-cacert")
    cacert = None if given["cacert"] is None else Path(given["cacert"])
    return Tls(Path(given["cert"]), Path(given["key"]), cacert, given["with_client_auth"])


# -- addresses -----------------------------------------------------------------------------------------------


def run_folder() -> Path:
    """Return the default folder of sockets: P4LITE_RUN, /run/p4lite for root, else below the user's runtime folder."""
    chosen = os.environ.get("P4LITE_RUN")
    if chosen:
        return Path(chosen)
    uid = os.geteuid()
    if uid == 0:
        return Path("/run/p4lite")
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    usual = Path(runtime) if runtime else Path(f"/run/user/{uid}")
    with contextlib.suppress(OSError):
        if usual.stat().st_uid == uid:
            return usual / "p4lite"
    return Path(f"/tmp/p4lite-{uid}")


def default_address(name: str) -> str:
    """Return the socket NAME.sock in the run folder, which is created. Raises ServerError if others can change it."""
    try:
        folder = make_private(run_folder())
    except FolderError as error:
        raise ServerError(f"the folder of sockets: {error}; or set P4LITE_RUN") from None
    return f"unix:{urllib.parse.quote(str(folder / f'{name}.sock'))}"


def socket_path(address: str) -> Path | None:
    """Return the path of a `unix:` address; None for another."""
    if not address.startswith("unix:"):
        return None
    rest = address.removeprefix("unix:")
    return Path(urllib.parse.unquote(rest.removeprefix("//") if rest.startswith("//") else rest))


def warning(address: str, tls: Tls | None) -> str | None:
    """Describe which other users can command a server at this address; None when none can."""
    if address.startswith("unix:") or (tls is not None and tls.client_auth):
        return None
    return (
        f"{address}: every user of this machine can command what is served here; listen on unix:PATH, "
        "or use --grpc-server-ssl with --grpc-server-with-client-auth"
    )


@contextlib.contextmanager
def private_address() -> Iterator[str]:
    """Yield an address in a folder of its own that no other user can open, and that is removed afterwards."""
    with scratch("switch") as folder:
        yield f"unix:{urllib.parse.quote(f'{folder}/switch.sock')}"


def check(address: str, tls: Tls | None) -> None:
    """Check that a server can and may listen at an address, with a clearer error than gRPC's.

    Raises:
        ServerError: a server listens on the socket, or no socket can be at the path; the port is in use; the address is
            beyond loopback without certificates of clients.
    """
    path = socket_path(address)
    if path is not None:
        _check_path(path)
        return
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit() or int(port) > 65535:
        raise ServerError(f"{address}: no address; expected unix:PATH or HOST:PORT")
    try:
        found = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)
        if tls is None or not tls.client_auth:
            for *_, target in found:
                if not ipaddress.ip_address(str(target[0]).partition("%")[0]).is_loopback:
                    raise ServerError(
                        f"{address}: everybody who can reach this machine could command what is served here; "
                        "choose a loopback address, or use --grpc-server-ssl with --grpc-server-with-client-auth"
                    )
        family, kind, protocol, _, place = found[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(place)
    except (OSError, OverflowError, UnicodeError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise ServerError(f"{address}: cannot listen: {reason}; choose another address") from None


def _check_path(path: Path) -> None:
    length = len(os.fsencode(path))
    if length > SOCKET_PATH_BYTES:
        raise ServerError(f"{path}: {length} bytes are more than the {SOCKET_PATH_BYTES} that a socket's path may have")
    if not path.parent.is_dir():
        raise ServerError(f"{path}: cannot listen: there is no folder {path.parent}")
    try:
        found = path.lstat()
    except FileNotFoundError:
        return
    except OSError as error:
        raise ServerError(f"{path}: cannot listen: {error.strerror}") from None
    if not stat.S_ISSOCK(found.st_mode):
        raise ServerError(f"{path}: cannot listen: there is something that is not a socket")
    # gRPC removes an existing socket, whether it is in use or left behind.
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1)
        with contextlib.suppress(ConnectionRefusedError, FileNotFoundError):
            try:
                probe.connect(str(path))
            except ConnectionRefusedError:
                raise
            except OSError:
                pass
            raise ServerError(f"{path}: cannot listen: another server does; choose another address")


def bind(server: grpc.Server, address: str, tls: Tls | None) -> str:
    """Listen, and return the address with the port in use. A unix socket belongs to its owner from the first moment.
    Raises ServerError."""
    check(address, tls)
    credentials = None if tls is None else tls.credentials()
    mask = os.umask(0o177) if address.startswith("unix:") else None
    try:
        if credentials is None:
            port = server.add_insecure_port(address)
        else:
            port = server.add_secure_port(address, credentials)
    except RuntimeError:
        port = 0
    finally:
        if mask is not None:
            os.umask(mask)
    if not port:
        what = "cannot listen on this address" if tls is None else "cannot listen with this certificate and key"
        raise ServerError(f"{address}: {what}; choose another")
    return f"{address[:-1]}{port}" if address.endswith(":0") and not address.startswith("unix:") else address
