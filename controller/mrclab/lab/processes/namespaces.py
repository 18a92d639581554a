"""Namespaces of a lab's own: user, network, mount and PID namespace, made without root.

The calls are made here, by ctypes, and not by unshare(1): each step's refusal can then be told apart and explained, and
root can keep the one capability that makes a user namespace while it becomes another user. Entering a lab that is up
needs none of that, so that is left to nsenter(1). Only the standard library is imported: this runs before every lab.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import os
import pathlib
import pwd
import signal
import socket
import stat
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn

from mrc_topo.base.errors import SIMULATE, MrclabError

CLONE_NEWNS, CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET = 0x00020000, 0x10000000, 0x20000000, 0x40000000
CLONE_NEWTIME = 0x00000080
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC = 1, 2, 4, 8
MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE = 32, 4096, 16384, 1 << 18
MNT_DETACH = 2
PR_SET_DUMPABLE, PR_SET_KEEPCAPS = 4, 8
CAP_SYS_ADMIN = 21
SIOCSIFFLAGS, IFF_UP = 0x8914, 1
CAPABILITY_VERSION_3 = 0x20080522
SYS_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}

#: Labs that root starts without sudo run as the first of these user IDs that has no account. No other process of the
#: machine uses it (other processes do run as `nobody`, and could enter the lab). systemd's table of user IDs leaves
#: this range unused.
LAB_UIDS = range(61100, 61184)
#: The signals that keys of a terminal send to every process in its foreground.
FROM_TERMINAL = (signal.SIGINT, signal.SIGQUIT)
WAYS_OUT = f"two ways out: `sudo mrclab ...` (the lab still runs as you), or {SIMULATE}"
WAY_OUT_OF_ROOT = f"change the setting, or {SIMULATE}"


class NamespaceError(MrclabError):
    """Namespaces that this machine does not allow; the text names the setting and the ways out."""


@dataclass(frozen=True)
class Owner:
    """The user to whom a lab is mapped that root starts."""

    uid: int
    gid: int
    groups: tuple[int, ...] = ()

    @property
    def name(self) -> str:
        """The user's name, for messages."""
        return user_name(self.uid)


def user_name(uid: int) -> str:
    """Return a user's name, or the number of one without a name."""
    with contextlib.suppress(KeyError):
        return pwd.getpwuid(uid).pw_name
    return f"user {uid}"


class _Capabilities(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint32) for name in ("effective", "permitted", "inheritable")]


class _CapabilityHeader(ctypes.Structure):
    _fields_ = [("version", ctypes.c_uint32), ("pid", ctypes.c_int)]


_libc = ctypes.CDLL(None, use_errno=True)


def _check(result: int, step: str) -> None:
    if result < 0:
        number = ctypes.get_errno()
        raise NamespaceError(explain(step, number))


def _mount(source: str, target: str, kind: str | None, flags: int, data: str | None = None) -> None:
    result = _libc.mount(
        source.encode(),
        os.fsencode(target),
        None if kind is None else kind.encode(),
        ctypes.c_ulong(flags),
        None if data is None else data.encode(),
    )
    _check(result, f"mounting {kind or 'a folder'} on {target}")


def _setting(name: str) -> str | None:
    try:
        return pathlib.Path("/proc/sys", name.replace(".", "/")).read_text(encoding="utf-8").strip()
    except OSError:
        return None


def _seccomp() -> bool:
    with contextlib.suppress(OSError):
        for line in pathlib.Path("/proc/self/status").read_text(encoding="utf-8").splitlines():
            if line.startswith("Seccomp:"):
                return line.split()[1] == "2"
    return False


def _in_chroot() -> bool:
    """Return whether our root directory is not the root of its mount namespace; the kernel then creates no user
    namespace."""
    try:
        mounts = pathlib.Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return False
    return not any(line.split()[4] == "/" for line in mounts)


def explain(step: str, number: int) -> str:
    """Return why a step was refused, by the settings that are known to forbid it, and what can be done.

    Args:
        step: what was tried, for the message.
        number: the errno.
    """
    found = []
    change = None
    if number in (errno.ENOSPC, errno.EUSERS):
        limits = {f"user.max_{kind}_namespaces" for kind in ("user", "net", "mnt", "pid")}
        values = {name: _setting(name) for name in sorted(limits)}
        found = [f"{name} = {value}" for name, value in values.items() if value == "0"]
        found = found or [f"a limit is reached ({', '.join(f'{name} = {value}' for name, value in values.items())})"]
    if number in (errno.EPERM, errno.EACCES):
        if _setting("kernel.unprivileged_userns_clone") == "0":
            found.append("kernel.unprivileged_userns_clone = 0")
            change = "kernel.unprivileged_userns_clone=1"
        if _setting("kernel.apparmor_restrict_unprivileged_userns") not in (None, "0"):
            found.append("kernel.apparmor_restrict_unprivileged_userns = 1")
            change = "kernel.apparmor_restrict_unprivileged_userns=0"
        if _setting("user.max_user_namespaces") == "0":
            found.append("user.max_user_namespaces = 0")
        if _in_chroot():
            found.append("this is a chroot, where the kernel makes no user namespaces")
        if "mounting" in step:
            found.append("a container that masks parts of /proc or /sys must show them (systempaths=unconfined)")
        if _seccomp():
            found.append("a seccomp filter (of a container?) forbids it")
    if number in (errno.ENOSYS, errno.EINVAL):
        found.append("the kernel is built without user namespaces")
    reason = "; ".join(found) or "the kernel does not say why"
    way = WAY_OUT_OF_ROOT if is_machine_root() else WAYS_OUT
    if change is not None:
        way += f"; `{'' if is_machine_root() else 'sudo '}sysctl -w {change}` allows them until the machine restarts"
    return f"no namespaces for a lab on this machine: {step}: {os.strerror(number)} ({reason}); {way}"


# -- whose lab it is -----------------------------------------------------------------------------------------


def is_machine_root() -> bool:
    """Return whether we are the machine's root, and not only root of a user namespace."""
    if os.geteuid() != 0:
        return False
    try:
        first = pathlib.Path("/proc/self/uid_map").read_text(encoding="utf-8").split()
    except OSError:
        return True
    # A namespace that maps one user only can map a lab to no other user.
    return first[0] == "0" and int(first[2]) > max(LAB_UIDS)


def lab_owner() -> Owner | None:
    """Return the owner of a lab that starts now: None for ourselves; for root the user behind sudo, else a free ID."""
    if not is_machine_root():
        return None
    with contextlib.suppress(KeyError, ValueError):
        behind = pwd.getpwuid(int(os.environ.get("SUDO_UID", "0")))
        if behind.pw_uid != 0:
            return Owner(behind.pw_uid, behind.pw_gid, tuple(os.getgrouplist(behind.pw_name, behind.pw_gid)))
    for uid in LAB_UIDS:
        try:
            pwd.getpwuid(uid)
        except KeyError:
            return Owner(uid, uid)
    raise NamespaceError(
        f"every user ID from {LAB_UIDS[0]} to {LAB_UIDS[-1]} has an account; use sudo from another user"
    )


def _drop_to_owner(owner: Owner) -> None:
    """Change from root to the owner for good; keep only the capability to create user namespaces."""
    _check(_libc.prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0), "keeping a capability")
    try:
        os.setgroups(owner.groups)
        os.setresgid(owner.gid, owner.gid, owner.gid)
        os.setresuid(owner.uid, owner.uid, owner.uid)
    except OSError as error:
        raise NamespaceError(f"root cannot become {owner.name} here: {error.strerror}") from error
    header = _CapabilityHeader(CAPABILITY_VERSION_3, 0)
    only = 1 << CAP_SYS_ADMIN
    sets = (_Capabilities * 2)(_Capabilities(only, only, 0), _Capabilities(0, 0, 0))
    _check(_libc.capset(ctypes.byref(header), sets), "keeping a capability")
    # After the change of user, this process's entries in /proc belong to root.
    _check(_libc.prctl(PR_SET_DUMPABLE, 1, 0, 0, 0), "prctl")


# -- what a lab sees of the machine's files ------------------------------------------------------------------


def _open_folder(path: str) -> int:
    try:
        return os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise NamespaceError(f"{path}: {error.strerror}") from error


def _bind(source: int, target: str) -> None:
    _mount(f"/proc/self/fd/{source}", target, None, MS_BIND | MS_REC)


def _mount_run(binds: Mapping[str, str], owner: Owner | None) -> None:
    """Mount an empty /run, and in it the folders of `binds` (place below /run: folder outside)."""
    _mount("none", "/", None, MS_REC | MS_PRIVATE)
    sources = {place: _open_folder(folder) for place, folder in binds.items()}
    whose = "" if owner is None else f",uid={owner.uid},gid={owner.gid}"
    _mount("tmpfs", "/run", "tmpfs", MS_NOSUID | MS_NODEV, f"mode=0755,size=64m{whose}")
    for place, source in sources.items():
        os.makedirs(place, exist_ok=True)
        _bind(source, place)
        os.close(source)


def _may_pass(found: os.stat_result, owner: Owner) -> bool:
    """Return whether the owner may enter a folder, by its mode."""
    if found.st_uid == owner.uid:
        return bool(found.st_mode & stat.S_IXUSR)
    if found.st_gid == owner.gid or found.st_gid in owner.groups:
        return bool(found.st_mode & stat.S_IXGRP)
    return bool(found.st_mode & stat.S_IXOTH)


def _closed_parent(path: str, owner: Owner) -> str | None:
    """Return the outermost folder above `path` that the owner may not enter."""
    for parent in reversed(pathlib.Path(path).parents):
        if not _may_pass(os.stat(parent), owner):
            return str(parent)
    return None


def _grant_access(trees: Sequence[str], owner: Owner) -> None:
    """Let the owner reach these folders even if they lie in closed ones, such as root's home.

    An empty folder covers each closed one, in this mount namespace only, and holds nothing but the path to the trees.
    """
    while True:
        closed: dict[str, list[str]] = {}
        for tree in trees:
            parent = _closed_parent(tree, owner)
            if parent is not None:
                closed.setdefault(parent, []).append(tree)
        if not closed:
            break
        for parent, inside in closed.items():
            sources = {tree: _open_folder(tree) for tree in inside}
            _mount("tmpfs", parent, "tmpfs", MS_NOSUID | MS_NODEV, "mode=0755,size=1m")
            for tree, source in sorted(sources.items()):
                os.makedirs(tree, exist_ok=True)
                _bind(source, tree)
                _mount("none", tree, None, MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID)
                os.close(source)
    for tree in trees:
        found = os.stat(tree)
        if not _may_pass(found, owner):
            raise NamespaceError(
                f"a lab of root's runs as {owner.name}, who may not read {tree}: `chmod -R go+rX {tree}`, "
                "or use sudo from a user who may"
            )


def mount_file(source: pathlib.Path, target: pathlib.Path) -> None:
    """Mount a file on another, in this mount namespace and in those that are copied from it later.

    Raises:
        NamespaceError: the machine forbids it, or there is no such file.
    """
    _mount(str(source), str(target), None, MS_BIND)


def _place(folder: int) -> tuple[str, int]:
    """Return mount and inode of an open folder."""
    info = pathlib.Path(f"/proc/self/fdinfo/{folder}").read_text(encoding="utf-8").splitlines()
    mount = next((line for line in info if line.startswith("mnt_id:")), "")
    return mount, os.fstat(folder).st_ino


def _leave_chroot() -> None:
    """Make a chroot the root of the mount namespace, which the kernel requires for user namespaces. Only root can do
    this."""
    number = SYS_PIVOT_ROOT.get(os.uname().machine)
    inside = _open_folder("/")
    os.chdir("/")
    # A root directory below the working directory does not stop `..` on its way up.
    os.chroot("/usr")
    while True:
        here = os.stat(".")
        os.chdir("..")
        if os.path.samestat(here, os.stat(".")):
            break
    os.chroot(".")
    top = _open_folder("/")
    if _place(inside) != _place(top) and number is not None:
        path = os.readlink(f"/proc/self/fd/{inside}")
        _mount("none", "/", None, MS_REC | MS_PRIVATE)
        _mount(path, path, None, MS_BIND | MS_REC)
        os.chdir(path)
        _check(_libc.syscall(ctypes.c_long(number), b".", b"."), "leaving the chroot")
        _check(_libc.umount2(b".", MNT_DETACH), "leaving the chroot")
        os.chdir("/")
    os.close(inside)
    os.close(top)


# -- making them ---------------------------------------------------------------------------------------------


def _map(uid: int, gid: int) -> None:
    """Map root inside to this user outside, and map no other user."""
    try:
        pathlib.Path("/proc/self/setgroups").write_text("deny", encoding="utf-8")
        pathlib.Path("/proc/self/uid_map").write_text(f"0 {uid} 1", encoding="utf-8")
        pathlib.Path("/proc/self/gid_map").write_text(f"0 {gid} 1", encoding="utf-8")
    except OSError as error:
        raise NamespaceError(explain("mapping the user", error.errno or 0)) from error


def has_time_namespaces() -> bool:
    """Return whether this machine's kernel can give processes another monotonic clock."""
    return os.path.exists("/proc/self/ns/time_for_children") and os.path.exists("/proc/self/timens_offsets")


def _set_clock(ahead_ns: int) -> None:
    """Set the children's monotonic clock ahead of this one by the offset, which may be negative. Offsets count from
    the machine's own clock, and ours may have one."""
    path = pathlib.Path("/proc/self/timens_offsets")
    try:
        _check(_libc.unshare(CLONE_NEWTIME), "unshare")
        words = next(
            line.split() for line in path.read_text(encoding="utf-8").splitlines() if line.startswith("monotonic")
        )
        seconds, rest = divmod(int(words[1]) * 10**9 + int(words[2]) + ahead_ns, 10**9)
        path.write_text(f"monotonic {seconds} {rest}\n", encoding="utf-8")
    except OSError as error:
        raise NamespaceError(f"the clock of another machine cannot be had here: {path}: {error.strerror}") from error


def isolate(owner: Owner | None, binds: Mapping[str, str], trees: Sequence[str] = (), clock_ahead_ns: int = 0) -> None:
    """Move this process (with one thread) into new user, network and mount namespaces, and its children into a new PID
    namespace; the next fork is its first process and calls `first_process`.

    Args:
        owner: the user that root becomes; None: the user stays the same. Inside it is root, without rights outside.
        binds: folders that are visible below the new, empty /run.
        trees: folders that the owner must be able to read.
        clock_ahead_ns: how far the children's monotonic clock is ahead of this machine's; if it is not 0, they are in a
            time namespace, too.

    Raises:
        NamespaceError: the machine forbids it; the text names the setting and the ways out.
    """
    everything = CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWPID
    if owner is None:
        uid, gid = os.geteuid(), os.getegid()
        _check(_libc.unshare(everything), "unshare")
        _map(uid, gid)
        _mount_run(binds, None)
        if clock_ahead_ns:
            _set_clock(clock_ahead_ns)
        return
    _check(_libc.unshare(CLONE_NEWNS), "unshare")
    _leave_chroot()
    _mount_run(binds, owner)
    _grant_access(trees, owner)
    _drop_to_owner(owner)
    _check(_libc.unshare(everything), "unshare")
    _map(owner.uid, owner.gid)
    if clock_ahead_ns:
        _set_clock(clock_ahead_ns)


def first_process() -> None:
    """Set up the first process of the PID namespace: its own /proc and /sys, and the loopback interface.

    Raises:
        NamespaceError: a step fails.
    """
    _mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC)
    _mount("sysfs", "/sys", "sysfs", MS_NOSUID | MS_NODEV | MS_NOEXEC)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", IFF_UP))


def reap(child: int, last: Callable[[int], object] = int) -> NoReturn:
    """Reap children as the first process, and end when `child` does, with its exit code.

    Before that, `last` is called with the code (negative: the signal that killed it). The kernel then ends all other
    processes in the namespace.
    """
    while True:
        pid, status = os.wait()
        if pid == child:
            code = os.waitstatus_to_exitcode(status)
            last(code)
            os._exit(code if code >= 0 else 128 - code)


def enter(pid: int, command: Sequence[str], *, files: bool = True) -> list[str]:
    """Return the command that runs `command` in the namespaces of a process, as their owner, in the same working
    directory.

    Args:
        pid: the first process of a lab, as we see it.
        command: program and arguments.
        files: enter the mount and PID namespaces, too; else only the network.
    """
    words = ["nsenter", "--target", str(pid), "--user", "--net", "--preserve-credentials"]
    if not files:
        return [*words, "--", *command]
    words += ["--mount", "--pid", "--"]
    # nsenter waits outside for the command, which must not outlive it. The command receives the terminal's signals even
    # where nsenter ignores them.
    terminal = ",".join(each.name.removeprefix("SIG") for each in FROM_TERMINAL)
    words += ["env", f"--default-signal={terminal}", "setpriv", "--pdeathsig", "KILL"]
    # Another mount namespace starts at its root; a command runs even if the working directory does not exist there.
    return [*words, "sh", "-c", 'cd "$1" 2>/dev/null; shift; exec "$@"', "sh", os.getcwd(), *command]
