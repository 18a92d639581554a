"""Who gets what of the live view's server: on real sockets, by hand-made requests."""

from __future__ import annotations

import http.client
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from mrclab.lab.records.rundir import RunError
from mrclab.web.hub import CommandAnswer, Hub
from mrclab.web.server import BODY_BYTES, STREAMS, Server, Serving, bind, is_loopback, names, serving

DATA = ("/api/stream", "/metrics", "/api/captures/h0:0")


@pytest.fixture(scope="module")
def served() -> Iterator[tuple[Hub, Serving]]:
    hub = Hub()
    done = threading.Event()

    def obey() -> None:
        while not done.is_set():
            hub.wait(0.05)
            while (command := hub.next_command()) is not None:
                command.done.set_result(CommandAnswer(f"{command.name} {json.dumps(command.arguments)}"))

    thread = threading.Thread(target=obey)
    thread.start()
    with serving(Server(hub, metrics=lambda layout, state: "secret 1\n"), "127.0.0.1", 0) as made:
        yield hub, made
        hub.end()
    done.set()
    thread.join()


def ask(
    serving: Serving, path: str, method: str = "GET", body: bytes | None = None, **headers: str | None
) -> tuple[int, str, dict[str, str]]:
    """Return a request with the right headers but for those that are given (None: without it)."""
    given: dict[str, str | None] = {
        "Host": f"127.0.0.1:{serving.port}",
        "Authorization": f"Bearer {serving.token}",
        "Content-Type": "application/json" if method == "POST" else None,
        "Content-Length": str(len(body)) if body is not None else None,
    }
    given |= {name.replace("_", "-"): value for name, value in headers.items()}
    connection = http.client.HTTPConnection("127.0.0.1", serving.port, timeout=120)
    connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
    for name, value in given.items():
        if value is not None:
            connection.putheader(name, value)
    connection.endheaders(body)
    answer = connection.getresponse()
    # A stream has no end; its beginning will do.
    text = "" if answer.status == 200 and path.startswith("/api/stream") else answer.read().decode()
    found = answer.status, text, {name.lower(): value for name, value in answer.getheaders()}
    connection.close()
    return found


def post(serving: Serving, name: str, body: bytes = b"{}", **headers: str | None) -> tuple[int, str]:
    return ask(serving, f"/api/{name}", "POST", body, **headers)[:2]


def test_who_has_the_token_gets_through(served: tuple[Hub, Serving]) -> None:
    _, serving = served
    assert ask(serving, "/api/stream")[0] == 200
    assert post(serving, "pause") == (200, '{"text":"pause {}"}')
    assert post(serving, "pause", Origin=f"http://127.0.0.1:{serving.port}")[0] == 200
    assert post(serving, "pause", Host=f"localhost:{serving.port}", Origin=f"http://localhost:{serving.port}")[0] == 200
    assert ask(serving, "/metrics")[0] == 503  # nothing to measure yet


def test_the_pages_own_files_need_no_token_and_have_no_data(served: tuple[Hub, Serving]) -> None:
    _, serving = served
    for path in ("/", "/static/main.js", "/static/style.css"):
        status, text, headers = ask(serving, path, Authorization=None)
        assert status == 200
        assert serving.token not in text
        assert "default-src 'none'" in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert "access-control-allow-origin" not in headers


@pytest.mark.parametrize("path", DATA)
@pytest.mark.parametrize("given", [None, "", "Bearer", "Bearer ", "Bearer x", "Basic TOKEN", "TOKEN", "Bearer TOKENx"])
def test_nothing_without_the_token(served: tuple[Hub, Serving], path: str, given: str | None) -> None:
    _, serving = served
    value = None if given is None else given.replace("TOKEN", serving.token)
    status, text, _ = ask(serving, path, Authorization=value)
    assert status == 401
    assert "secret" not in text
    assert serving.token not in text


def test_a_token_in_another_place_counts_for_nothing(served: tuple[Hub, Serving]) -> None:
    _, serving = served
    assert ask(serving, f"/metrics?token={serving.token}", Authorization=None)[0] == 401
    assert ask(serving, "/metrics", Authorization=None, Cookie=f"token={serving.token}")[0] == 401
    assert post(serving, "fail", Authorization=None, X_Token=serving.token)[0] == 401


@pytest.mark.parametrize(
    "host", ["evil.example:PORT", "127.0.0.1", "127.0.0.1:1", "[::1]:PORT", "localhost.evil.example:PORT", ""]
)
def test_another_name_for_the_server_is_refused(served: tuple[Hub, Serving], host: str) -> None:
    """A page of a site whose name leads to our address (DNS rebinding) asks under its own name."""
    _, serving = served
    for path in ("/", *DATA):
        assert ask(serving, path, Host=host.replace("PORT", str(serving.port)))[0] == 421
    assert ask(serving, "/", Host=None)[0] in (400, 421)


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "https://127.0.0.1:PORT", "http://127.0.0.1:1", ""])
def test_a_forged_origin_is_refused(served: tuple[Hub, Serving], origin: str) -> None:
    _, serving = served
    given = origin.replace("PORT", str(serving.port))
    assert post(serving, "fail", Origin=given)[0] == 403
    assert ask(serving, "/api/stream", Origin=given)[0] == 403


def test_requests_that_another_site_makes_are_refused(served: tuple[Hub, Serving]) -> None:
    _, serving = served
    for site in ("cross-site", "same-site"):
        assert post(serving, "fail", Sec_Fetch_Site=site)[0] == 403
        assert ask(serving, "/metrics", Sec_Fetch_Site=site)[0] == 403
    # A link on another page may lead to ours.
    assert ask(serving, "/", Authorization=None, Sec_Fetch_Site="cross-site")[0] == 200


def test_commands_are_json_of_bounded_size(served: tuple[Hub, Serving]) -> None:
    _, serving = served
    assert post(serving, "fail", Content_Type="text/plain")[0] == 415
    assert post(serving, "fail", Content_Type="application/x-www-form-urlencoded")[0] == 415
    assert post(serving, "fail", b" " * (BODY_BYTES + 1))[0] == 413
    assert post(serving, "fail", Content_Length=None, Transfer_Encoding="chunked")[0] == 413
    status, text = post(serving, "fail", b"{")
    assert (status, "not JSON" in text) == (400, True)
    assert post(serving, "fail", b"[" * 60_000)[0] == 400
    status, text = post(serving, "erase")
    assert status == 404
    assert "known: fail" in text
    assert ask(serving, "/api/fail", "GET")[0] in (404, 405)
    assert ask(serving, "/", "POST", b"{}", Authorization=None)[0] == 401


@pytest.mark.parametrize(
    "path", ["/static/../guard.py", "/static/%2e%2e/guard.py", "/static/index.html/../x", "/static//etc/passwd"]
)
def test_no_other_file_goes_out(served: tuple[Hub, Serving], path: str) -> None:
    _, serving = served
    assert ask(serving, path)[0] == 404
    assert ask(serving, path, Authorization=None)[0] == 401


def test_streams_have_a_bound_and_leave_nothing(served: tuple[Hub, Serving]) -> None:
    hub, serving = served
    opened = []
    for _ in range(STREAMS):
        one = socket.create_connection(("127.0.0.1", serving.port), timeout=120)
        lines = (
            "GET /api/stream?source=h0&destination=h1 HTTP/1.1",
            f"Host: 127.0.0.1:{serving.port}",
            f"Authorization: Bearer {serving.token}",
        )
        one.sendall("\r\n".join((*lines, "", "")).encode())
        assert b"200 OK" in one.recv(1000)
        opened.append(one)
    assert hub.wanted() == [("h0", "h1")]
    assert ask(serving, "/api/stream")[0] == 503
    for one in opened:
        one.close()
    for _ in range(100):
        if not hub.wanted() and ask(serving, "/api/stream")[0] == 200:
            break
        threading.Event().wait(0.2)
    assert not hub.wanted()
    assert ask(serving, "/api/stream")[0] == 200


def test_a_taken_port_names_the_remedy() -> None:
    with bind("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(RunError, match=f"port {port} is taken; choose another with --port"):
            bind("127.0.0.1", port)


def test_only_loopback_is_loopback() -> None:
    assert [is_loopback(host) for host in ("127.0.0.1", "127.9.9.9", "::1", "localhost")] == [True] * 4
    assert [is_loopback(host) for host in ("0.0.0.0", "192.0.2.1", "::", "example.org")] == [False] * 4
    assert names("127.0.0.1", 80) == {"127.0.0.1:80", "localhost:80"}
    assert "127.0.0.1:80" in names("0.0.0.0", 80)
    assert names("192.0.2.1", 80) == {"192.0.2.1:80"}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else")
def test_another_user_of_the_machine_gets_nothing(served: tuple[Hub, Serving]) -> None:
    _, serving = served
    code = (
        # Another user may not be able to read this interpreter's files: it is that user only when it has them.
        "import encodings.idna,http.client,os,sys; os.setgid(65534); os.setuid(65534);"
        "c=http.client.HTTPConnection('127.0.0.1', int(sys.argv[1]));"
        "c.request('GET', '/api/stream'); print(c.getresponse().status)"
    )
    command = [sys.executable, "-I", "-S", "-c", code, str(serving.port)]
    done = subprocess.run(command, cwd="/", capture_output=True, text=True, check=False)
    assert done.stdout == "401\n", done.stderr
