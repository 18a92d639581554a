"""A class on a shared server: two accounts, homes that the other student cannot read, and root who collects.

The accounts are real ones in a mount namespace that has its own /etc/passwd.
"""

from __future__ import annotations

import json
import os
import pathlib
import pwd
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pytest

from support.workshop import small

pytestmark = [pytest.mark.root, pytest.mark.slow]

MRCLAB = pathlib.Path(sys.executable).parent / "mrclab"
STUDENTS = {"annmrc": 61001, "bobmrc": 61002}


@dataclass
class Server:
    """A machine of two students."""

    folder: pathlib.Path

    def home(self, account: str) -> pathlib.Path:
        return self.folder / "home" / account

    def run(self, *words: str, user: str = "root", place: pathlib.Path | None = None) -> tuple[int, str]:
        """Run a command as a user; return exit code and output."""
        become: Sequence[str] = ()
        home = self.folder / "root"
        if user != "root":
            number = str(STUDENTS[user])
            become = ("setpriv", "--reuid", number, "--regid", number, "--clear-groups")
            home = self.home(user)
        script = 'mount --bind "$0" /etc/passwd && cd "$1" && shift && exec "$@"'
        done = subprocess.run(
            ["unshare", "--mount", "--propagation", "private", "sh", "-c", script, str(self.folder / "passwd"),
             str(place or home), *become, *words],
            env={"PATH": os.environ["PATH"], "HOME": str(home), "COLUMNS": "100", "LANG": "C.UTF-8"},
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
        )  # fmt: skip
        return done.returncode, done.stdout

    def mrclab(self, *words: str, user: str = "root", place: pathlib.Path | None = None) -> str:
        code, printed = self.run(str(MRCLAB), "workshop", *words, user=user, place=place)
        assert code == 0, printed
        return printed


@pytest.fixture
def server() -> Iterator[Server]:
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        folder.chmod(0o755)
        (folder / "root").mkdir(mode=0o700)
        (folder / "home").mkdir()
        lines = pathlib.Path("/etc/passwd").read_text()
        for account, number in STUDENTS.items():
            home = folder / "home" / account
            home.mkdir(mode=0o700)
            os.chown(home, number, number)
            lines += f"{account}:x:{number}:{number}::{home}:/bin/sh\n"
        (folder / "passwd").write_text(lines)
        made = Server(folder)
        code, printed = made.run(str(MRCLAB), "--version", user="annmrc")
        if code:
            pytest.skip(f"an ordinary user cannot run this checkout: {printed[-200:]}")
        yield made


def test_two_accounts_on_a_shared_server(server: Server) -> None:
    with pytest.raises(KeyError):
        pwd.getpwnam("annmrc")
    small.make(server.folder / "50-policy")
    secret = server.folder / "root" / "secret"
    secret.write_text("the instructor's\n")
    for account in STUDENTS:
        work = server.home(account) / "mrclab"
        assert server.run("mkdir", str(work), user=account)[0] == 0
        server.mrclab("start", "../../../50-policy", user=account, place=work)
    ann, bob = (server.home(each) / "mrclab" / "50-policy" for each in STUDENTS)
    assert server.run("cat", str(ann / "policy.py"), user="bobmrc")[0] == 1
    # Ann answers rightly; Bob puts links where his files were, and results that he has made up.
    shutil.copyfile(server.folder / "50-policy/solution/policy.py", ann / "policy.py")
    for command in (
        ["ln", "-sf", str(secret), str(bob / "policy.py")],
        ["sh", "-c", f"mkdir -p {bob}/check && echo passed > {bob}/check/grades.csv"],
    ):
        assert server.run(*command, user="bobmrc")[0] == 0
    mine = server.folder / "root" / "class"
    server.mrclab("class", "new", str(mine))
    (mine / "class.yaml").write_text("title: Server\nwork: mrclab\nexercises: [{name: ../../50-policy}]\n")
    (mine / "roster.csv").write_text("id,name,account\na,Ann,annmrc\nb,Bob,bobmrc\nc,Eve,root\nd,Dan,nosuch\n")
    printed = server.mrclab("class", "collect", place=mine)
    assert "a 50-policy: version 1 of " in printed
    assert "b 50-policy: policy.py: is a link, pipe, device or folder" in printed
    assert "c: 'root' is root's account" in printed
    assert "d: this machine has no account 'nosuch'" in printed
    assert "1 passed, 1 failed" in server.mrclab("class", "grade", place=mine)
    found = {each["student"]: each for each in json.loads(server.mrclab("class", "progress", "--json", place=mine))}
    assert [found[each]["state"] for each in "abcd"] == ["passed", "failed", "nothing", "nothing"]
    assert found["a"]["isolated"] == "yes"
    assert not [path for path in mine.rglob("*") if path.is_file() and "the instructor" in path.read_text()]
    # A reset is done by the student's own rights: nothing behind Bob's link is touched.
    assert "backup: kept/backups/b/50-policy/" in server.mrclab("class", "reset", "b", "50-policy", place=mine)
    assert secret.read_text() == "the instructor's\n"
    assert (bob / "policy.py").stat().st_uid == STUDENTS["bobmrc"]
    assert not (bob / "policy.py").is_symlink()
    assert (bob / "policy.py").read_text() == small.STARTER
    assert "backup:" in server.mrclab("class", "reset", "a", "50-policy", place=mine)
    (kept,) = (mine / "kept/backups/a/50-policy").glob("*/policy.py")
    assert kept.read_text() == small.POLITE
    assert (ann / "policy.py.mine").read_text() == small.POLITE
