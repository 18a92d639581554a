"""Compiles C into shared objects and keeps them in a cache (`objects`), keyed by all that goes in.

Cache: `$MRCLAB_CACHE`, else `$XDG_CACHE_HOME/mrclab`, else `~/.cache/mrclab`. `CC` names another compiler.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import platform
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import ClassVar

from p4lite import terminal
from p4lite.files import UNFINISHED, FolderError, cache_path, is_private_file, make_private, write_whole
from p4lite.switch.errors import BuildError

#: Folders and files of killed builds are removed after this time; no build takes as long.
ABANDONED_S = 3600


class Store:
    """Objects by name in a folder that only we can write to. All methods but `find` let OSError through."""

    BUILD_PREFIX: ClassVar = "build-"

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def find(self, name: str) -> Path | None:
        """Return the object's path if it is there and whole."""
        path = self.folder / name
        try:
            with self._locked(fcntl.LOCK_SH):
                if not self._is_whole(path):
                    return None
        except OSError:
            return None
        with contextlib.suppress(OSError):
            os.utime(path)
        return path

    def put(self, name: str, made: Path) -> Path:
        """Store a copy of the file `made` under a name; return its path."""
        data = made.read_bytes()
        path = self.folder / name
        with self._locked(fcntl.LOCK_EX):
            write_whole(path, data, mode=0o755)
            write_whole(self._sum_file(path), _sum(data), mode=0o644)
        self._sweep()
        return path

    def copy(self, name: str, target: Path) -> bool:
        """Copy a whole object to `target`; return False when there is none."""
        found = self.find(name)
        if found is None:
            return False
        shutil.copyfile(found, target)
        return True

    def _sum_file(self, path: Path) -> Path:
        return path.with_name(path.name + ".sum")

    def _is_whole(self, path: Path) -> bool:
        with path.open("rb") as file:
            return is_private_file(os.fstat(file.fileno())) and (
                self._sum_file(path).read_text(encoding="ascii", errors="replace") == _sum(file.read())
            )

    @contextlib.contextmanager
    def _locked(self, kind: int) -> Iterator[None]:
        access = os.O_RDONLY if kind == fcntl.LOCK_SH else os.O_RDWR | os.O_CREAT
        handle = os.open(self.folder / ".lock", access | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(handle, kind)
            yield
        finally:
            os.close(handle)

    def _sweep(self) -> None:
        """Remove the remains of killed builds."""
        for pattern in (f"{self.BUILD_PREFIX}*", f".*{UNFINISHED}"):
            for path in self.folder.glob(pattern):
                with contextlib.suppress(OSError):
                    if time.time() - path.stat().st_mtime <= ABANDONED_S:
                        continue
                    if path.is_dir():
                        shutil.rmtree(path, ignore_errors=True)
                    else:
                        path.unlink()


def _sum(data: bytes) -> str:
    return f"{len(data)} {hashlib.sha256(data).hexdigest()}\n"


CORE_DIR = Path(__file__).parents[1] / "core"
"""The C sources; `describe.h` there is for both libraries."""
PROGRAM_DIR = CORE_DIR / "program"
"""What a generated program is linked with; `pipeline.h` there is its interface to the fabric core."""
FABRIC_DIR = CORE_DIR / "fabric"
WARNINGS = ("-Wall", "-Wextra", "-Werror")
COMMON_FLAGS: tuple[str, ...] = (
    "-std=c11",
    "-D_GNU_SOURCE",
    "-fPIC",
    "-fvisibility=hidden",
    "-fno-strict-aliasing",
    "-g1",
)
# A product and a sum are rounded one after the other, as on a machine that has no instruction for both.
COMMON_FLAGS += ("-ffp-contract=off",)
OPTIMISE = ("-O2",)
OPTIMISE_LARGE = ("-O1",)
LARGE = 1_000_000
"""Bytes of generated code above which the C compiler gets `OPTIMISE_LARGE`: the rest would not pay for its time."""
#: How long the compiler may take for a file, and how often a wait for it looks for an end of the command, s.
COMPILER_S, LOOK_S = 600, 0.1
SANITIZE = ("-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer")
SANITIZE_THREADS = ("-O1", "-fsanitize=thread", "-fno-omit-frame-pointer")


def sanitized() -> bool:
    """Return whether the environment asks for the sanitizers: `P4LITE_SANITIZE` is 1 (addresses, undefined
    behaviour) or threads."""
    return os.environ.get("P4LITE_SANITIZE") in ("1", "threads")


def _of_generated() -> tuple[str, ...]:
    """Return what generated code is compiled with besides: what another version of a compiler finds remarkable in a
    user's program does not keep it from running. `P4LITE_WARNINGS=errors`, which our tests set, makes it an error."""
    return () if os.environ.get("P4LITE_WARNINGS") == "errors" else ("-Wno-error",)


def cache_dir() -> Path:
    """Return the directory of built objects; made on demand. Raises BuildError if it cannot be, if others can write
    to it (what is in it gets loaded), or if its file system is mounted so that nothing can be loaded from it."""
    try:
        folder = make_private(cache_path())
    except FolderError as error:
        raise BuildError(f"the cache of compiled switches: {error}; or set MRCLAB_CACHE") from None
    # Only Linux names the flag.
    if os.statvfs(folder).f_flag & getattr(os, "ST_NOEXEC", 0):
        raise BuildError(
            f"the cache of compiled switches: no code can be loaded from {folder}, whose file system is mounted with "
            "noexec; set MRCLAB_CACHE to a folder of another"
        )
    return folder


def _not_linux() -> str:
    """Return why no compiler of this machine can help, if it is none with Linux: the beginning of a message."""
    if sys.platform == "linux":
        return ""
    return (
        f"the switch's C code is for Linux, and this is {platform.system()}: use a virtual machine or a container "
        "with Linux; "
    )


def compiler() -> list[str]:
    """Return the C compiler's command, from CC or `cc`. Raises BuildError if it is not installed."""
    given = os.environ.get("CC", "cc")
    try:
        command = shlex.split(given)
    except ValueError as error:  # a quotation without an end
        raise BuildError(f"CC={given}: no command that a shell would understand ({error}); set CC=gcc, say") from None
    if not command or shutil.which(command[0]) is None:
        name = command[0] if command else "(empty CC)"
        if why := _not_linux():
            raise BuildError(f"{why}{name}: no C compiler found")
        raise BuildError(f"{name}: no C compiler found; install gcc (apt install gcc libc6-dev) or set CC")
    return command


@cache
def _compiler_identity(command: tuple[str, ...]) -> bytes:
    """Return the compiler's version and the machine that it compiles for, as the compiler prints them.

    Debian's gcc prints the same version on x86-64 and arm64, so that the version alone does not tell objects of one
    from objects of the other in a home folder that both share.

    Raises:
        BuildError: it cannot be run.
    """
    said = []
    for question in ("--version", "-dumpmachine"):
        try:
            done = subprocess.run([*command, question], capture_output=True, timeout=30, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise BuildError(f"{command[0]}: cannot run the C compiler: {error}") from None
        said.append(done.stdout)
    return b"\0".join(said)


def _digest(parts: Sequence[bytes]) -> str:
    h = hashlib.sha256()
    for part in parts:
        h.update(len(part).to_bytes(8, "big"))
        h.update(part)
    return h.hexdigest()[:32]


def _headers(texts: Sequence[bytes], include: Sequence[Path]) -> list[bytes]:
    """Return the headers that the texts include with quotes, and those that these include."""
    found: dict[str, bytes] = {}
    todo = list(texts)
    while todo:
        for name in re.findall(rb'^\s*#\s*include\s+"([^"]+)"', todo.pop(), re.MULTILINE):
            path = next((d / name.decode() for d in include if (d / name.decode()).is_file()), None)
            if path is not None and str(path) not in found:
                found[str(path)] = path.read_bytes()
                todo.append(found[str(path)])
    return [found[name] for name in sorted(found)]


def _run(command: list[str], what: str, folder: Path) -> None:
    """Run a compiler, whose own temporary files go to the folder. Raises BuildError."""
    try:
        code, errors = _wait(command, folder)
    except OSError as error:
        raise BuildError(f"{what}: cannot run {command[0]}: {error.strerror}") from None
    except subprocess.TimeoutExpired:
        raise BuildError(f"{what}: the C compiler took more than {COMPILER_S} s") from None
    if code:
        full = [line for line in errors.splitlines() if os.strerror(errno.ENOSPC) in line]
        if full:
            # Of the compiler's many lines, assembler and linker say why.
            text = f"{cache_dir()}: cannot keep what was compiled: {os.strerror(errno.ENOSPC)}"
            raise BuildError(f"{text}; make room there, or set MRCLAB_CACHE")
        if os.strerror(errno.EAGAIN) in errors:
            raise BuildError(f"{what}: the C compiler can start no process; raise the limit (`ulimit -u`)")
        raise BuildError(f"{_not_linux()}{what}: the C compiler failed:\n{errors[-4000:]}")


def _wait(command: list[str], folder: Path) -> tuple[int, str]:
    """Run a command, temporary files in the folder; return its exit code and what it wrote to standard error."""
    end = time.monotonic() + COMPILER_S
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(folder)},
        process_group=0,  # A compiler is a driver that starts others, which would go on without it.
    ) as process:
        try:
            while True:
                terminal.look()
                try:
                    _, errors = process.communicate(timeout=LOOK_S)
                except subprocess.TimeoutExpired:
                    if time.monotonic() > end:
                        raise
                else:
                    return process.returncode, errors
        except BaseException:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            raise


def build(
    name: str,
    sources: Sequence[Path] = (),
    *,
    generated: Mapping[str, str] | None = None,
    include: Sequence[Path] = (CORE_DIR, PROGRAM_DIR, FABRIC_DIR),
    libs: Sequence[str] = (),
    flags: Sequence[str] = (),
    sanitize: bool = False,
    executable: bool = False,
    large: bool = False,
) -> Path:
    """Compile and link C files into `name-HASH.so` (or an executable) in the cache, and return its path.

    `sources` are files on disk, each compiled to an object that is cached on its own (so that common run-time
    files compile once); `generated` maps file names to C text. The key covers the text of sources and of the
    headers they include from the `include` directories, flags, compiler version, the compiler's target and this
    machine's architecture. With `large` the generated files are optimised less. Raises BuildError.
    """
    command = compiler()
    # The files on disk are ours and small; with `large` only what is generated is optimised less.
    sanitizers = SANITIZE_THREADS if os.environ.get("P4LITE_SANITIZE") == "threads" else SANITIZE
    mode = list(sanitizers if sanitize else OPTIMISE)
    generated_mode = [*(OPTIMISE_LARGE if large and not sanitize else mode), *_of_generated()]
    common = [*COMMON_FLAGS, *WARNINGS, *flags, *(f"-I{d}" for d in include)]
    generated = dict(generated or {})
    headers = _headers([p.read_bytes() for p in sources] + [t.encode() for t in generated.values()], include)
    base = [" ".join(command).encode(), _compiler_identity(tuple(command)), platform.machine().encode(), *headers]
    base += [f.encode() for f in [*COMMON_FLAGS, *WARNINGS, *mode, *flags]]
    more = [f.encode() for f in [*generated_mode, *libs]]
    texts = [p.read_bytes() for p in sources] + [f"{n}\0{t}".encode() for n, t in sorted(generated.items())]
    kind = "exe" if executable else "so"
    key = _digest([*base, *more, kind.encode(), *texts])
    store = Store(cache_dir())
    final = f"{name}-{key}{'' if executable else '.so'}"
    found = store.find(final)
    if found is not None:
        return found
    try:
        with tempfile.TemporaryDirectory(prefix=store.BUILD_PREFIX, dir=store.folder) as tmp_name:
            tmp = Path(tmp_name)
            objects = []
            for path, text in zip(sources, texts, strict=False):
                object_name = f"{path.stem}-{_digest([*base, text])}.o"
                made = tmp / f"{path.stem}.o"
                if not store.copy(object_name, made):
                    _run([*command, *common, *mode, "-c", str(path), "-o", str(made)], path.name, tmp)
                    store.put(object_name, made)
                objects.append(str(made))
            for file_name, c_text in generated.items():
                write_whole(tmp / file_name, c_text)
                made = tmp / (file_name + ".o")
                terminal.step(f"compiling {len(c_text) // 1000} kB of C for {name}")
                if large:
                    terminal.notice(
                        f"{name} is large: optimised with {' '.join(OPTIMISE_LARGE)}, its packets take longer"
                    )
                _run(
                    [*command, *common, *generated_mode, f"-I{tmp}", "-c", str(tmp / file_name), "-o", str(made)],
                    f"{name}/{file_name}",
                    tmp,
                )
                objects.append(str(made))
            linked = tmp / final
            link = [] if executable else ["-shared"]
            _run([*command, *mode, *link, *objects, "-o", str(linked), "-lpthread", *libs], name, tmp)
            return store.put(final, linked)
    except OSError as error:
        raise BuildError(
            f"{store.folder}: cannot keep what was compiled: {error.strerror}; make room, or set MRCLAB_CACHE"
        ) from None
