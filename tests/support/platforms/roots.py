"""Root file systems of distributions, made by debootstrap, which root enters in namespaces of their own.

Only the standard library is used, so that the system's Python can run it before `make setup`.
"""

from __future__ import annotations

import configparser
import io
import os
import pathlib
import shutil
import subprocess
import sys
import urllib.parse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import IO, Final

ENTER: Final = pathlib.Path(__file__).with_name("enter.sh")
CHECKOUT: Final = pathlib.Path(__file__).parents[3]
#: The folder inside a root to which files that pip's settings name are copied.
SETTINGS: Final = "check"
#: The folder of the checkout that `make vendor` fills.
VENDOR: Final = "vendor"
PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
DEBIAN: Final = "http://deb.debian.org/debian"
UBUNTU: Final = "http://archive.ubuntu.com/ubuntu"
PACKAGES: Final = "ca-certificates,make,sudo"


class RootError(Exception):
    """A root cannot be made or entered here; the text says why and what to do."""


@dataclass(frozen=True)
class Platform:
    """A release of a distribution: its suite, mirror, keyring, and the words that `make` gets there."""

    suite: str
    mirror: str
    keyring: str
    components: str = "main"
    python: str = "python3"

    def words(self) -> list[str]:
        """Return the variables of `make` for the Python of this release; none where its python3 is 3.11 or later."""
        if self.python == "python3":
            return []
        packages = _makefile("APT_PACKAGES").replace("python3-", f"{self.python}-")
        needed = _makefile("APT_NEEDED").replace("python3-", f"{self.python}-")
        return [f"PYTHON=/usr/bin/{self.python}", f"APT_PACKAGES={packages}", f"APT_NEEDED={needed}"]


_DEBIAN_KEYS: Final = "/usr/share/keyrings/debian-archive-keyring.gpg"
_UBUNTU_KEYS: Final = "/usr/share/keyrings/ubuntu-archive-keyring.gpg"
PLATFORMS: Final[Mapping[str, Platform]] = {
    "debian-12": Platform("bookworm", DEBIAN, _DEBIAN_KEYS),
    "debian-13": Platform("trixie", DEBIAN, _DEBIAN_KEYS),
    "debian-testing": Platform("testing", DEBIAN, _DEBIAN_KEYS),
    "ubuntu-22.04": Platform("jammy", UBUNTU, _UBUNTU_KEYS, "main,universe", "python3.11"),
    "ubuntu-24.04": Platform("noble", UBUNTU, _UBUNTU_KEYS, "main,universe"),
}


def _makefile(name: str) -> str:
    """Return the value of a variable of the Makefile that is set on one line."""
    lines = (CHECKOUT / "Makefile").read_text(encoding="utf-8").splitlines()
    return next(line for line in lines if line.startswith(f"{name} := ")).partition(" := ")[2]


def settings(listed: str, environment: Mapping[str, str]) -> dict[str, str]:
    """Return pip's settings by option name.

    Args:
        listed: the output of `pip config list`, lines such as `global.cert='/a/file'`.
        environment: variables such as PIP_CERT, which `pip config list` shows as `:env:.cert`; they count for more.
    """
    found: dict[str, str] = {}
    for line in listed.splitlines():
        key, _, value = line.partition("=")
        section, _, name = key.rpartition(".")
        if section in ("global", "install"):
            found[name] = value.strip().strip("'\"").replace("\\n", "\n")
    for name, value in environment.items():
        if name.startswith("PIP_") and name != "PIP_CONFIG_FILE":
            found[name.removeprefix("PIP_").lower().replace("_", "-")] = value
    return found


def _local(word: str) -> pathlib.Path | None:
    """Return the file or folder of this machine that a word of a setting names."""
    path = urllib.parse.urlparse(word).path if word.startswith("file://") else word
    return pathlib.Path(path) if path.startswith("/") and pathlib.Path(path).exists() else None


def shared_folders(found: Mapping[str, str]) -> list[pathlib.Path]:
    """Return the folders of this machine that pip's settings name, and no folder inside another of them.

    An index by `file:` refers to files beside it, so that its whole parent is shared.
    """
    folders = set()
    for name, value in found.items():
        for word in value.split():
            path = _local(word)
            if path is not None and path.is_dir():
                folders.add(path.parent if name.endswith("index-url") else path)
    return sorted(each for each in folders if not any(other in each.parents for other in folders))


def configuration(found: Mapping[str, str], root: pathlib.Path) -> str:
    """Copy the files that pip's settings name into the root; return a pip.conf for it."""
    parser = configparser.RawConfigParser()
    parser.add_section("global")
    for name, value in found.items():
        path = _local(value)
        if path is not None and path.is_file():
            (root / SETTINGS).mkdir(exist_ok=True)
            shutil.copyfile(path, root / SETTINGS / name)
            value = f"/{SETTINGS}/{name}"
        parser.set("global", name, "\n".join(value.split()))
    text = io.StringIO()
    parser.write(text)
    return text.getvalue()


def vendored(checkout: pathlib.Path = CHECKOUT) -> pathlib.Path:
    """Return the folder that `make vendor` has filled. Raises RootError where it is missing."""
    folder = checkout / VENDOR
    if not all((folder / name).is_dir() for name in ("debs", "wheels")):
        raise RootError(f"{folder} is missing, from which a root without a network is set up: run `make vendor` first")
    return folder


class Root:
    """A root file system in a folder; with `offline`, what runs in it has no network."""

    def __init__(self, folder: pathlib.Path, *, offline: bool = False) -> None:
        self.folder = folder
        self.offline = offline
        listed = subprocess.run(
            [sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=False
        )
        self.pip = settings(listed.stdout, os.environ)

    def make(self, platform: Platform, log: IO[str], include: str = PACKAGES) -> None:
        """Make the system with debootstrap and the packages `include`, this machine's resolver and pip's settings.

        Raises:
            RootError: not root; debootstrap, a keyring or a script of debootstrap is missing; or debootstrap failed.
        """
        if os.geteuid() != 0:
            raise RootError("debootstrap and mount need root: run it with sudo")
        if shutil.which("debootstrap") is None:
            raise RootError("debootstrap is missing: apt-get install debootstrap")
        keyring = os.environ.get("ROOTS_KEYRING", platform.keyring)
        if not pathlib.Path(keyring).is_file():
            raise RootError(
                f"{keyring} is missing, with which the packages of {platform.suite} are signed: install the package "
                "ubuntu-archive-keyring (of Debian 13), or name a copy of the file in ROOTS_KEYRING"
            )
        script = pathlib.Path("/usr/share/debootstrap/scripts", platform.suite)
        # Ubuntu's releases share one script; an older debootstrap does not know the names of newer ones.
        words = [] if script.exists() else [str(script.with_name("gutsy" if platform.mirror == UBUNTU else "sid"))]
        mirror = os.environ.get("ROOTS_MIRROR", platform.mirror)
        command = ["debootstrap", "--variant=minbase", f"--include={include}", f"--components={platform.components}"]
        command += [f"--keyring={keyring}", platform.suite, str(self.folder), mirror, *words]
        if subprocess.run(command, stdout=log, stderr=subprocess.STDOUT, check=False).returncode:
            raise RootError(f"debootstrap failed; is {mirror} within reach? Its messages are in {log.name}")
        if platform.mirror == UBUNTU:
            # As on every Ubuntu; 22.04 has its python3.11 there.
            with (self.folder / "etc/apt/sources.list").open("a", encoding="utf-8") as sources:
                sources.write(f"deb {mirror} {platform.suite}-updates {platform.components.replace(',', ' ')}\n")
        self.furnish()

    def furnish(self) -> None:
        """Give the root this machine's resolver, host names and pip's settings."""
        for name in ("resolv.conf", "hosts"):
            target = self.folder / "etc" / name
            target.unlink(missing_ok=True)
            shutil.copyfile(f"/etc/{name}", target)
        (self.folder / "etc/pip.conf").write_text(self.configuration(self.folder))

    def configuration(self, folder: pathlib.Path) -> str:
        """Return a pip.conf for the root; copy the files that it names below `folder`, as `configuration`."""
        return configuration(self.pip, folder)

    def copy_checkout(self, inside: str) -> None:
        """Copy the checkout's files that git knows to a folder of the root, an absolute path inside it.

        Without a network, the folder of `make vendor` is copied with them.

        Raises:
            RootError: that folder is missing.
        """
        target = self.folder / inside.lstrip("/")
        target.mkdir(parents=True, exist_ok=True)
        git = ["git", "-c", f"safe.directory={CHECKOUT}", "ls-files", "-z"]
        listed = subprocess.run(git, cwd=CHECKOUT, capture_output=True, check=True).stdout
        command = ["xargs", "-0", "cp", "--parents", "-t", str(target)]
        subprocess.run(command, cwd=CHECKOUT, input=listed, check=True)
        if self.offline:
            shutil.copytree(vendored(), target / VENDOR, dirs_exist_ok=True)

    def command(self, words: Sequence[str], variables: Mapping[str, str] | None = None) -> list[str]:
        """Return the command that runs these words inside, as root, with the given environment variables alone."""
        environment = {"PATH": PATH, "HOME": "/root", "LANG": "C.UTF-8", **(variables or {})}
        enter = ["unshare", "--mount", "--pid", *(["--net"] if self.offline else []), "--fork", "--kill-child"]
        enter += ["--propagation", "private", "sh", str(ENTER)]
        binds = [f"{each}={each}" for each in shared_folders(self.pip)]
        pairs = [f"{name}={value}" for name, value in environment.items()]
        return [*enter, str(self.folder), *binds, "--", "env", "-i", *pairs, *words]

    def run(self, words: Sequence[str], log: IO[str], variables: Mapping[str, str] | None = None) -> int:
        """Run these words inside with their output in a log; return the exit code."""
        command = self.command(words, variables)
        done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, check=False)
        return done.returncode
