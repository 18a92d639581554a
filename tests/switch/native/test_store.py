"""The cache of compiled objects: nothing that is cut, changed or somebody else's to change is ever loaded."""

from __future__ import annotations

import errno
import os
import pwd
import random
import shutil
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from p4lite import terminal
from p4lite.files import FolderError, check_private, make_private
from p4lite.switch.errors import BuildError
from p4lite.switch.native.build import ABANDONED_S, Store, _compiler_identity, build, cache_dir
from support.amount import first

SOURCE = {"a.c": 'int answer(void);\n__attribute__((visibility("default"))) int answer(void) { return 42; }\n'}
#: A process of its own, which a SIGBUS would end: build or find, load, call.
USE = f"""
import ctypes, pathlib
from p4lite.switch.native.build import PROGRAM_DIR, build
path = build("answer", [PROGRAM_DIR / "hashes.c"], generated={SOURCE!r})
print(ctypes.CDLL(str(path)).answer())
"""
CORE = "from p4lite.switch.fabric.fabric import Fabric\nFabric('virtual').close()\nprint(42)"

DAMAGES = ("cut in half", "cut to nothing", "a byte", "sum gone", "longer")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "cache"
    monkeypatch.setenv("MRCLAB_CACHE", str(folder))
    return folder


def use(code: str = USE) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, f"{done.returncode} {done.stderr}"
    return done.stdout.strip()


@pytest.mark.parametrize(
    ("code", "damage"),
    # The core takes seconds to compile, and comes from the same store.
    [*((USE, damage) for damage in DAMAGES), (CORE, "cut in half")],
    ids=[*DAMAGES, "core"],
)
def test_a_damaged_object_is_never_loaded(cache: Path, code: str, damage: str) -> None:
    """A cut object maps past its end: SIGBUS before there were sums."""
    assert use(code) == "42"
    for path in cache.glob("*-*.*o"):
        whole = path.read_bytes()
        if damage == "sum gone":
            path.with_name(path.name + ".sum").unlink()
        elif damage == "a byte":
            place = random.Random(1).randrange(len(whole))
            path.write_bytes(whole[:place] + bytes([whole[place] ^ 0xFF]) + whole[place + 1 :])
        elif damage == "longer":
            path.write_bytes(whole + b"\0")
        else:
            os.truncate(path, len(whole) // 2 if damage == "cut in half" else 0)
    assert use(code) == "42"
    store = Store(cache)
    assert all(store.find(path.name) for path in cache.glob("*-*.so"))


def test_a_file_that_others_can_write_to_is_not_loaded(cache: Path) -> None:
    path = build("answer", generated=SOURCE)
    assert stat.S_IMODE(cache.stat().st_mode) == 0o700
    inode = path.stat().st_ino
    path.chmod(0o777)
    assert build("answer", generated=SOURCE).stat().st_ino != inode


@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o757])
def test_a_folder_that_others_can_write_to_is_refused(cache: Path, mode: int) -> None:
    build("answer", generated=SOURCE)
    cache.chmod(mode)
    with pytest.raises(BuildError, match=r"others can write to it; `chmod go-w .*or set MRCLAB_CACHE"):
        build("answer", generated=SOURCE)


def test_a_folder_whose_place_others_can_take_is_refused(cache: Path, tmp_path: Path) -> None:
    cache_dir()
    tmp_path.chmod(0o777)
    with pytest.raises(BuildError, match=r"others can write to .*, and put another in its place"):
        cache_dir()
    tmp_path.chmod(0o1777)
    assert cache_dir() == cache


def test_a_folder_from_which_nothing_can_be_loaded_is_refused(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache_dir()
    found = list(os.statvfs(cache))
    found[8] |= os.ST_NOEXEC
    monkeypatch.setattr(os, "statvfs", lambda _: os.statvfs_result(found))
    with pytest.raises(BuildError, match="mounted with noexec; set MRCLAB_CACHE"):
        cache_dir()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder to somebody else")
def test_a_folder_of_somebody_else_is_refused(cache: Path, tmp_path: Path) -> None:
    cache.mkdir()
    os.chown(cache, pwd.getpwnam("nobody").pw_uid, -1)
    with pytest.raises(FolderError, match="belongs to user"):
        check_private(cache)
    os.chown(cache, 0, -1)
    parent = tmp_path / "theirs"
    (parent / "ours").mkdir(parents=True)
    os.chown(parent, pwd.getpwnam("nobody").pw_uid, -1)
    with pytest.raises(FolderError, match="can put another in its place"):
        check_private(parent / "ours")
    link = tmp_path / "link"
    link.symlink_to(parent / "ours")
    with pytest.raises(FolderError, match="can put another in its place"):
        make_private(link)


def test_many_processes_at_once_build_one_object(cache: Path) -> None:
    """Also with the files cut again and again between them."""
    processes = [
        subprocess.Popen([sys.executable, "-c", USE], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(4)
    ]
    chance = random.Random(2)
    while any(process.poll() is None for process in processes):
        # As a process that is killed between the two renames leaves it.
        for path in cache.glob("*.sum"):
            if chance.random() < 0.3:
                path.unlink(missing_ok=True)
        time.sleep(0.02)
    for process in processes:
        output, errors = process.communicate()
        assert (process.returncode, output.strip()) == (0, "42"), errors


def test_what_killed_builds_left_is_removed(cache: Path) -> None:
    old, new = cache_dir() / "build-old", cache / "build-new"
    for folder in (old, new):
        folder.mkdir()
        (folder / "x").write_text("")
    cut, fresh = cache / ".0123456789abcdef.part", cache / ".fedcba9876543210.part"
    for file in (cut, fresh):
        file.write_text("")
    for path in (old, cut):
        os.utime(path, (time.time() - 2 * ABANDONED_S,) * 2)
    build("answer", generated=SOURCE)
    assert not old.exists()
    assert not cut.exists()
    assert new.exists()
    assert fresh.exists()


FULL = """
set -e
mount -t tmpfs -o size={size}k,mode=700 full "$1"
export MRCLAB_CACHE="$1"
"$2" -c "$3" || echo "exit $?"
dd if=/dev/zero of="$1/ballast" bs=1k 2>/dev/null || true
rm -rf "$1"/*.so "$1"/*.o
"$2" -c "$3" || echo "exit $?"
rm "$1/ballast"
# Without the options that are in force: an ordinary user may not name them again.
mount --options-mode ignore -o remount,size=64m "$1"
"$2" -c "$3"
"""


def _can_unshare() -> bool:
    if shutil.which("unshare") is None:
        return False
    done = subprocess.run(["unshare", "-Urm", "true"], capture_output=True, check=False)
    return done.returncode == 0


@pytest.mark.skipif(not _can_unshare(), reason="no mount namespace of our own here (unshare -Urm)")
@pytest.mark.parametrize("size", first([24, 4, 64, 200]))
def test_a_full_disk_is_one_clear_line_and_leaves_nothing_cut(tmp_path: Path, size: int) -> None:
    folder = tmp_path / "full"
    folder.mkdir()
    code = USE.replace(
        "path = build(", "import sys\nfrom p4lite.switch.errors import BuildError\ntry: path = build(", 1
    )
    code = code.replace("\nprint(", "\nexcept BuildError as error: sys.exit(str(error).splitlines()[0])\nprint(")
    done = subprocess.run(
        ["unshare", "-Urm", "sh", "-c", FULL.format(size=size), "sh", str(folder), sys.executable, code],
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert done.returncode == 0, done
    said = done.stdout.split("\n")[:-1]
    assert said[-1] == "42", done
    assert set(said) <= {"42", "exit 1"}, done
    assert "exit 1" in said
    assert "Traceback" not in done.stderr
    for line in done.stderr.splitlines():
        assert "cannot keep what was compiled: No space left on device; make room" in line or "compiler failed" in line


def test_another_machine_has_objects_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """A home folder may be shared by an x86-64 and an arm64 machine, whose compilers print the same version."""
    here = build("answer", generated=SOURCE)
    assert build("answer", generated=SOURCE) == here
    monkeypatch.setattr("platform.machine", lambda: "another")
    assert build("answer", generated=SOURCE) != here


def test_another_target_of_the_compiler_has_objects_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same command, its version the same, that compiles for another machine."""
    wrapper = tmp_path / "cc-wrapper"
    wrapper.write_text('#!/bin/sh\n[ "$1" = -dumpmachine ] && { echo "$MRCLAB_TEST_TARGET"; exit; }\nexec cc "$@"\n')
    wrapper.chmod(0o755)
    monkeypatch.setenv("CC", str(wrapper))
    monkeypatch.setenv("MRCLAB_TEST_TARGET", "x86_64-linux-gnu")
    one = build("answer", generated=SOURCE)
    monkeypatch.setenv("MRCLAB_TEST_TARGET", "aarch64-linux-gnu")
    _compiler_identity.cache_clear()
    assert build("answer", generated=SOURCE) != one


#: A compiler that begins another program, which outlives it if only the compiler is ended.
DRIVER = """\
#!/bin/sh
case "$1" in --version|-dumpmachine) exit 0;; esac
(sleep 20; echo alive) > {folder}/pipe &
echo > "$TMPDIR/intermediate.s"
echo "$TMPDIR" > {folder}/begun
wait
"""


def test_a_build_that_is_ended_leaves_neither_compilers_nor_their_files(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver, begun = tmp_path / "cc", tmp_path / "begun"
    driver.write_text(DRIVER.format(folder=tmp_path))
    driver.chmod(0o700)
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    monkeypatch.setenv("CC", str(driver))

    def end() -> None:
        if begun.exists() and begun.read_text():
            raise KeyboardInterrupt

    monkeypatch.setattr(terminal, "look", end)
    with pytest.raises(KeyboardInterrupt):
        build("answer", generated=SOURCE)
    os.set_blocking(reader, True)
    assert os.read(reader, 1) == b""  # The pipe's last writer is gone.
    os.close(reader)
    assert Path(begun.read_text().strip()).is_relative_to(cache)
    assert not [path for path in cache.rglob("*") if path.name != ".lock"]


def test_a_compiler_that_may_start_no_process_names_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = tmp_path / "cc"
    said = f"fatal error: cannot execute cc1: vfork: {os.strerror(errno.EAGAIN)}"
    compiler.write_text(f'#!/bin/sh\ncase "$1" in --version|-dumpmachine) exit 0;; esac\necho "{said}" >&2\nexit 1\n')
    compiler.chmod(0o700)
    monkeypatch.setenv("CC", str(compiler))
    with pytest.raises(BuildError, match="`ulimit -u`"):
        build("answer", generated=SOURCE)
