"""The page's libraries come from an npm registry, without npm: where from, checked how, and nothing beside them."""

from __future__ import annotations

import base64
import gzip
import hashlib
import http.server
import io
import json
import pathlib
import tarfile
import threading
from collections.abc import Iterator

import pytest

from mrclab.web import assets

LONG = b"x" * 1000


def package(*members: tuple[str, bytes | None], link: str | None = None) -> bytes:
    """Return a package of npm's; a member without bytes is a folder."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as archive:
        for name, data in members:
            info = tarfile.TarInfo(name)
            if data is None:
                info.type = tarfile.DIRTYPE
            info.size = len(data or b"")
            archive.addfile(info, io.BytesIO(data or b""))
        if link is not None:
            info = tarfile.TarInfo("package/link.js")
            info.type, info.linkname = tarfile.SYMTYPE, link
            archive.addfile(info)
    return gzip.compress(made.getvalue(), mtime=0)  # the same bytes in every process of the tests


def integrity(data: bytes) -> str:
    return "sha512-" + base64.b64encode(hashlib.sha512(data).digest()).decode()


GOOD = package(
    ("package/dist/a.js", b"let a;"),
    ("package/LICENSE", b"MIT"),
    ("package/sub", None),
    ("../../escaped", b"bad"),
    ("/tmp/escaped", b"bad"),
    link="/etc/passwd",
)


class Registry(http.server.ThreadingHTTPServer):
    """One that answers what it is told, in turn; the last answer stays."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.answers: list[tuple[int, bytes]] = [(200, GOOD)]
        self.asked: list[str] = []
        self.address = f"http://127.0.0.1:{self.server_port}"


class Handler(http.server.BaseHTTPRequestHandler):
    server: Registry

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        answers = self.server.answers
        status, data = answers.pop(0) if len(answers) > 1 else answers[0]
        self.send_response(status)
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def registry() -> Iterator[Registry]:
    made = Registry()
    thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield made
    made.shutdown()
    thread.join()
    made.server_close()


@pytest.fixture
def vendor(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, registry: Registry) -> pathlib.Path:
    """Where the libraries would lie; one is wanted, of that registry."""
    listed = {
        "thing": {"version": "1.2.3", "integrity": integrity(GOOD), "files": {"dist/a.js": "a.js", "LICENSE": "a.txt"}}
    }
    (tmp_path / "assets.json").write_text(json.dumps(listed))
    monkeypatch.setattr(assets, "LIST", tmp_path / "assets.json")
    monkeypatch.setattr(assets, "VENDOR", tmp_path / "vendor")
    monkeypatch.setenv("NPM_CONFIG_REGISTRY", registry.address + "/")
    monkeypatch.setattr(assets, "AGAIN_S", (0.0, 0.0))
    return tmp_path / "vendor"


def test_named_files_are_taken_and_nothing_else(vendor: pathlib.Path, registry: Registry) -> None:
    with pytest.raises(assets.AssetError, match="needs thing, which this checkout has not: `make web-assets`"):
        assets.need()
    said: list[str] = []
    assets.fetch(said.append)
    assert registry.asked == ["/thing/-/thing-1.2.3.tgz"]
    assert {path.name: path.read_bytes() for path in vendor.iterdir() if path.suffix != ".json"} == {
        "a.js": b"let a;",
        "a.txt": b"MIT",
    }
    assert said == ["thing 1.2.3: a.js, a.txt"]
    assert sorted(path.name for path in vendor.parent.iterdir()) == ["assets.json", "vendor"]
    assets.need()
    assets.fetch(said.append)
    assert len(registry.asked) == len(said) == 1
    # Another version is wanted: it is missing.
    listed = json.loads(assets.LIST.read_text())
    listed["thing"]["integrity"] = integrity(b"another")
    assets.LIST.write_text(json.dumps(listed))
    assert assets.missing() == ["thing"]


@pytest.mark.parametrize(
    "other", [GOOD + b"\0", package(("package/dist/a.js", b"evil")), b""], ids=["longer", "another", "empty"]
)
def test_another_package_is_refused_whole(vendor: pathlib.Path, registry: Registry, other: bytes) -> None:
    registry.answers = [(200, other)]
    with pytest.raises(assets.AssetError, match=r"its hash is .* nothing of it was used"):
        assets.fetch()
    assert not vendor.exists()


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (package(("package/dist/a.js", b"1")), "package/LICENSE"),
        (package(("package/dist/a.js", None), ("package/LICENSE", b"")), "dist/a.js is not a file"),
        (b"no archive", "this is not the package"),
        (GOOD[:60], "this is not the package"),
    ],
    ids=["a file less", "a folder", "no archive", "cut off"],
)
def test_a_package_that_lacks_what_is_wanted(
    vendor: pathlib.Path, registry: Registry, data: bytes, reason: str
) -> None:
    listed = json.loads(assets.LIST.read_text())
    listed["thing"]["integrity"] = integrity(data)
    assets.LIST.write_text(json.dumps(listed))
    registry.answers = [(200, data)]
    with pytest.raises(assets.AssetError, match=reason):
        assets.fetch()
    assert not vendor.exists()


def test_links_are_no_files_and_sizes_have_a_bound(
    monkeypatch: pytest.MonkeyPatch, vendor: pathlib.Path, registry: Registry
) -> None:
    listed = json.loads(assets.LIST.read_text())
    listed["thing"]["files"] = {"link.js": "link.js"}
    assets.LIST.write_text(json.dumps(listed))
    with pytest.raises(assets.AssetError, match=r"link\.js is not a file"):
        assets.fetch()
    monkeypatch.setattr(assets, "MOST_PACKED", len(GOOD) - 2)
    with pytest.raises(assets.AssetError, match="its hash is"):
        assets.fetch()
    assert not vendor.exists()


def test_a_passing_failure_is_tried_again_another_is_not(vendor: pathlib.Path, registry: Registry) -> None:
    registry.answers = [(404, b"")]
    with pytest.raises(assets.AssetError, match=r"thing-1\.2\.3\.tgz: HTTP Error 404: Not Found; is there a network\?"):
        assets.fetch()
    assert len(registry.asked) == 1
    registry.answers = [(500, b"")]
    with pytest.raises(assets.AssetError, match="HTTP Error 500"):
        assets.fetch()
    assert len(registry.asked) == 4
    registry.answers = [(503, b""), (429, b""), (200, GOOD)]
    assets.fetch()
    assert (vendor / "a.js").read_bytes() == b"let a;"


def test_without_a_network_it_says_so_and_what_to_do(capsys: pytest.CaptureFixture[str], vendor: pathlib.Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NPM_CONFIG_REGISTRY", "http://127.0.0.1:9")
        assert assets.main([]) == 1
        said = capsys.readouterr().err
        assert "http://127.0.0.1:9/thing/-/thing-1.2.3.tgz: <urlopen error [Errno 111] Connection refused>" in said
        assert "NPM_CONFIG_REGISTRY names another registry" in said
        patch.setenv("NPM_CONFIG_REGISTRY", "file:///etc")
        assert assets.main([]) == 1
        assert "is not an http address" in capsys.readouterr().err
    assert assets.main(["--check"]) == 1
