"""The live view behind jupyter-server-proxy, as `examples/jupyterhub` configures it."""

from __future__ import annotations

import importlib.util
import pathlib
import runpy
import types
from typing import Any
from unittest import mock

import pytest

from mrc_topo.base.errors import UsageError
from mrclab.web.server import TOKEN, Guard, new_token
from support import cli

FILE = pathlib.Path(__file__).parents[2] / "examples/jupyterhub/jupyter_server_config.py"


@pytest.fixture(scope="module")
def entry() -> dict[str, Any]:
    """Return what the configuration says of the server."""
    config = types.SimpleNamespace(ServerProxy=types.SimpleNamespace())
    with mock.patch("builtins.get_config", return_value=config, create=True):
        runpy.run_path(str(FILE))
    found: dict[str, Any] = config.ServerProxy.servers["mrclab"]
    return found


def test_command_of_the_configuration_can_be_typed(entry: dict[str, Any]) -> None:
    assert cli.problem([word.format(port=8080) for word in entry["command"]]) is None


def refusal(token: str, headers: dict[str, str]) -> tuple[int, str] | None:
    """Return why the view on port 8080 refuses a request for its state."""
    guard = Guard(mock.Mock(), token, frozenset({"127.0.0.1:8080"}), frozenset({"/"}))
    raw = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
    return guard.problem({"type": "http", "method": "GET", "path": "/api/stream", "headers": raw})


def test_view_accepts_the_proxy_and_not_those_who_come_past_it(entry: dict[str, Any]) -> None:
    token = new_token(entry["environment"])
    page = {"Host": "hub.example.org", "Origin": "https://hub.example.org", "Authorization": "Bearer proxy"}
    sent = page | {name: value.format(port=8080) for name, value in entry["request_headers_override"].items()}
    assert refusal(token, sent) is None
    assert refusal(token, page) is not None
    for name in ("Host", "Origin", "Authorization"):
        assert refusal(token, sent | {name: page[name]}) is not None, name
    assert entry["launcher_entry"]["path_info"].endswith("#" + page["Authorization"].split()[1])


def test_token_of_a_proxy_must_be_hard_to_guess() -> None:
    assert new_token({}) != new_token({})
    for weak in ("", "secret", "x" * 42, "x" * 42 + " "):
        with pytest.raises(UsageError, match="not a token of at least 43"):
            new_token({TOKEN: weak})


def test_proxy_itself_takes_the_configuration() -> None:
    if importlib.util.find_spec("jupyter_server_proxy") is None:
        pytest.skip("jupyter-server-proxy is not installed: `pip install jupyter-server-proxy`")
    from jupyter_server_proxy.config import ServerProxy, make_handlers  # type: ignore[import-not-found, unused-ignore]
    from traitlets.config.loader import PyFileConfigLoader  # type: ignore[import-not-found, unused-ignore]

    config = PyFileConfigLoader(FILE.name, path=str(FILE.parent)).load_config()
    servers = ServerProxy(config=config).servers
    assert list(servers) == ["mrclab"]
    assert make_handlers("/", list(servers.values()))
