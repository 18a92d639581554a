"""How messages say to install an extra: a checkout names itself, an installed package the release."""

import pathlib
import re

import pytest

from mrc_topo import shipped
from mrc_topo.shipped import install, requirement

ROOT = pathlib.Path(__file__).parents[2]


def test_in_the_folder_of_a_checkout_the_command_names_the_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    assert install("scale") == "pip install -e '.[scale]'"


def test_elsewhere_the_command_names_the_path_of_the_checkout(
    monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    monkeypatch.chdir(tmp_path)
    assert install("web") == f"pip install -e '{ROOT}[web]'"
    assert requirement("web") == ("-e", f"{ROOT}[web]")


def test_an_installed_package_names_the_release(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shipped, "checkout", lambda: None)
    assert install("scale") == "pip install 'mrclab[scale]'"
    assert requirement("scale") == ("mrclab[scale]",)


def test_a_wheel_is_no_checkout(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> None:
    package = tmp_path / "site-packages" / "mrc_topo"
    (package / "data" / "labs").mkdir(parents=True)
    monkeypatch.setattr(shipped, "_package", lambda: package)
    assert shipped.checkout() is None


def test_no_message_names_the_release_itself() -> None:
    """Each place asks `install`, so that no message asks to install the release over a checkout."""
    sources = [path for part in ("controller", "extras", "hosts", "topologies") for path in (ROOT / part).rglob("*.py")]
    found = {
        path.name
        for path in sources
        if not {"__compiled__", "tests"} & set(path.parts)
        and re.search(r"pip install '?mrclab\[", path.read_text(encoding="utf-8"))
    }
    assert found <= {"shipped.py", "build.py"}, "build.py is below the packages that know of checkouts"
