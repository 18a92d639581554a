"""Bringing a real-clock lab up, taking it down, and cleaning up after whatever happened to it."""

from __future__ import annotations

import contextlib
import os
import pathlib
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import IO, TypedDict

from mrc_lab import policies, scheduling
from mrc_lab.hosts.hostnet import HostNetError, check_installed
from mrc_lab.lab_slice import LabSlice
from mrc_lab.processes.death import FEW, WORDS, several
from mrc_lab.processes.launch import LaunchOrder
from mrc_lab.processes.namespaces import NamespaceError, Owner, owner_for_root, user_name
from mrc_lab.processes.process import KILL_AFTER_S, Patience, Process, end_process, wait_dead
from mrc_lab.records import shells
from mrc_lab.records.record import LAB_FOLDER, State, last_line
from mrc_lab.records.rundir import LabDied, RunDir, RunError, all_parts, all_runs, base, check_ours, is_locked, locked
from mrc_lab.switches import forwarders
from mrc_lab.switches.program import FabricProgram, program_of
from mrc_lab.wanted import WantedLab
from mrc_topo.labfile import lab_path
from mrc_topo.topology import Topology
from p4lite.switch.errors import BuildError
from p4lite.switch.native import build

#: How long a lab may take to come up, and again as long while it works.
UP_S = 180.0
LAUNCH_S = 30.0
DOWN_S = 20.0
CACHE = "/run/cache"
#: What a lab of root's gets of root's environment.
ENVIRONMENT = (
    "PATH",
    "LANG",
    "LC_ALL",
    "TERM",
    "TZ",
    "CC",
    "PYTHONDONTWRITEBYTECODE",
    "P4LITE_SANITIZE",
    "LD_LIBRARY_PATH",
)

Progress = Callable[[str], None]


def quiet(text: str) -> None:
    """Nobody listens."""


def is_dead(run: RunDir) -> bool:
    """Whether nothing holds a lab any more: its first process is dead, or never came to be and nobody starts it."""
    if is_locked(run.path / "starting"):
        return False
    try:
        first = run.first()
    except RunError:
        return True
    return first is None or not first.alive()


def check() -> None:
    """Checks that there can be a real-clock lab here, before anything is made.

    Raises:
        HostNetError: Mininet is missing.
        NamespaceError: the machine gives no namespaces; with the setting and the ways out.
    """
    check_installed()
    command = [sys.executable, "-P", "-m", "mrc_lab.processes.launch", "--probe"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        text = done.stdout.strip().removeprefix("error ") or (done.stderr.strip().splitlines() or ["no word"])[-1]
        raise NamespaceError(text)


def problem() -> str | None:
    """Why there can be no real-clock lab here, with the remedy; None if there can."""
    try:
        check()
    except (HostNetError, NamespaceError) as error:
        return str(error)
    return None


def up(
    lab: str,
    transport: str = "mrc",
    progress: Progress = quiet,
    links: str = "memory",
    switch: str | None = None,
    compiler: str | None = None,
    *,
    trust_code: bool = False,
) -> tuple[str, Topology]:
    """Brings a lab up; returns its name and topology. `links` is memory (one process carries all switches) or veth;
    `switch` and `compiler` are instead of the lab file's; `trust_code`: its policies may run.

    Raises:
        LabError: the lab file.
        PartMissing: what shall forward or compile is not here.
        PolicyRefused: its policies may not run.
        ProgramError, RunError, HostNetError, NamespaceError: as `bring_up`.
    """
    wanted = WantedLab.of(lab, transport, switch=switch, compiler=compiler, trust_code=trust_code)
    wanted.check("real")
    return bring_up(wanted, progress, links)


def bring_up(
    wanted: WantedLab,
    progress: Progress = quiet,
    links: str = "memory",
    *,
    part: LabSlice | None = None,
    key: str = "",
) -> tuple[str, Topology]:
    """Brings a lab up that was checked (`WantedLab.check`); see `up`. Of one that is on several machines it takes a
    `part`, and the `key` of the tunnels to the others (hexadecimal digits): `mrc_lab.machines`.

    Raises:
        ProgramError: p4c refuses the program, or it is the lab's own and cannot be used.
        RunError: the name is in use, or the lab did not come up.
        HostNetError: Mininet is missing.
        NamespaceError: this machine gives no namespaces.
    """
    topology = wanted.topology
    if topology.lab.machines and part is None:
        raise RunError(f"lab '{topology.lab.name}' is on several machines, and only a part of it can be here")
    if links == "veth" and topology.lab.switch != "p4lite":
        raise RunError(f"links veth is for p4lite; links of switch {topology.lab.switch} are wires of one process")
    check()
    # The project's own program is compiled inside.
    lab_runs_another = topology.lab.compiler == "p4c" or topology.lab.program is not None
    program = program_of(topology) if lab_runs_another else None
    owner = owner_for_root()
    run = RunDir(topology.lab.name)
    roles = [host.name for host in topology.hosts] + [switch.name for switch in topology.switches]
    with claimed(run, roles, progress, owner):
        if program is not None:
            program.save(run.program_file)
        _start(run, wanted, links, owner, part, key)
    # From here on the lab comes up by itself, even if we are killed.
    try:
        await_up(run, progress)
    except BaseException:
        give_up(run)
        raise
    if owner is not None:
        scheduling.grant(run)
    return run.name, topology


@contextlib.contextmanager
def claimed(run: RunDir, roles: Sequence[str], progress: Progress, owner: Owner | None = None) -> Iterator[None]:
    """A run directory that is ours while the lab in it is started, with room for the sockets of `roles`; it goes if
    that fails. What a dead lab of that name left is removed before.

    Raises:
        RunError: the name is in use, or a socket would have too long a path.
        LabDied: it was removed meanwhile.
    """
    with contextlib.ExitStack() as stack:
        with _base_lock():
            if run.exists() and is_dead(run):
                progress(f"removing what the last run of {run.name} left")
                run.remove()
            for role in roles:
                run.check_socket(role)
            run.create(*((owner.uid, owner.gid) if owner is not None else ()))
            stack.enter_context(locked(run.path / "starting"))
        try:
            yield
        except FileNotFoundError:
            if run.exists():
                raise
            raise LabDied(f"lab '{run.name}' did not start: it was ended and removed before") from None
        except BaseException:
            give_up(run)
            raise


def give_up(run: RunDir) -> None:
    """Ends what did not come up, unless somebody else has."""
    with contextlib.suppress(RunError):
        down(run.name)


@contextlib.contextmanager
def _base_lock() -> Iterator[None]:
    """One command at a time makes or clears away run directories."""
    if not check_ours(base()):
        base().mkdir(parents=True, exist_ok=True, mode=0o700)
        check_ours(base())
    with locked(base() / ".lock"):
        yield


def _cache(owner: Owner | None) -> pathlib.Path:
    """The folder of compiled switches that the lab writes to and loads from: a user's own; for root's labs another."""
    try:
        folder = build.cache_dir()
    except BuildError:
        # A user without a home.
        folder = base() / ".cache"
        folder.mkdir(exist_ok=True, mode=0o700)
    if owner is None:
        return folder
    folder = folder / f"labs-of-{owner.uid}"
    folder.mkdir(exist_ok=True, mode=0o700)
    os.chown(folder, owner.uid, owner.gid)
    return folder


def trees(*more: pathlib.Path) -> list[str]:
    """Folders that whoever runs the lab must be able to read: interpreter, libraries, our code, and `more`."""
    here = pathlib.Path(__file__).resolve()
    wanted = [pathlib.Path(sys.prefix), pathlib.Path(sys.base_prefix), here.parents[2], *more]
    wanted += [pathlib.Path(each) for each in sys.path if each]
    found: list[pathlib.Path] = []
    for path in sorted({each.resolve() for each in wanted if each.is_dir()}):
        if not any(path.is_relative_to(each) for each in found):
            found.append(path)
    return [str(each) for each in found]


def _environment(owner: Owner | None) -> dict[str, str]:
    if owner is None:
        return {**os.environ, "MRCLAB_CACHE": CACHE}
    kept = {key: os.environ[key] for key in ENVIRONMENT if key in os.environ}
    return {**kept, "HOME": LAB_FOLDER, "MRCLAB_CACHE": CACHE}


def _start(
    run: RunDir, wanted: WantedLab, links: str, owner: Owner | None, part: LabSlice | None = None, key: str = ""
) -> None:
    """Launches the daemon in namespaces and lets it go once it is recorded."""
    source, lab, transport = lab_path(wanted.lab).resolve(), wanted.topology.lab, wanted.transport
    inside = run.folder.path / run.lab_file.name
    if lab.policies.named:
        trusted = policies.read(wanted.topology)
        text = policies.copied(source.read_text(), trusted)
        for path in (run.lab_file, inside):
            policies.place(trusted, path.parent)
            path.write_text(text)
    else:
        shutil.copyfile(source, run.lab_file)
        shutil.copyfile(source, inside)
    if run.program_file.exists():
        FabricProgram.load(run.program_file).save(run.folder.path / run.program_file.name)
    state = State(run.name, lab_file=str(run.lab_file), transport=transport, links=links, since=time.time())
    state.switch, state.compiler, state.shell = lab.switch, lab.compiler, shells.here()
    bmv2 = [forwarders.bmv2()] if lab.switch == "bmv2" else []
    state.uid, state.gid = (os.geteuid(), os.getegid()) if owner is None else (owner.uid, owner.gid)
    if owner is not None:
        os.chown(inside, owner.uid, owner.gid)
    if part is not None:
        part.save(run.folder.path, key, *((owner.uid, owner.gid) if owner is not None else ()))
    run.write(state)
    order = LaunchOrder(
        command=[
            *(sys.executable, "-P", "-m", "mrc_lab.daemon", run.name),
            *(transport, links, lab.switch, lab.compiler, *map(str, bmv2)),
        ],
        binds={LAB_FOLDER: str(run.folder.path), CACHE: str(_cache(owner))},
        trees=[] if owner is None else trees(*(each.resolve().parent for each in bmv2)),
        owner=owner,
        clock_ahead_ns=0 if part is None else part.clock_ahead_ns,
    )
    with run.log_file.open("wb") as log:
        launcher = subprocess.Popen(
            [sys.executable, "-P", "-m", "mrc_lab.processes.launch", run.name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            env=_environment(owner),
            start_new_session=True,
            pass_fds=() if part is None else part.descriptors,
        )
    assert launcher.stdin is not None
    assert launcher.stdout is not None
    try:
        launcher.stdin.write(order.line().encode())
        launcher.stdin.flush()
        answers = _answers(launcher.stdout, 2)
        pid = next((int(each.split()[1]) for each in answers if each.startswith("pid ")), None)
        error = next((each.removeprefix("error ") for each in answers if each.startswith("error ")), None)
        if error is not None:
            raise NamespaceError(error)
        if pid is None or "ready" not in answers:
            raise LabDied(f"lab '{run.name}' did not start: {last_line(run.log_file) or 'no word from the launcher'}")
        with run.change() as changed:
            changed.first = Process.of("lab", pid)
        launcher.stdin.write(b"go\n")
        launcher.stdin.flush()
    except (BrokenPipeError, ProcessLookupError):
        raise LabDied(f"lab '{run.name}' did not start: {last_line(run.log_file) or 'it died'}") from None
    finally:
        with contextlib.suppress(BrokenPipeError):
            launcher.stdin.close()
        launcher.stdout.close()
        launcher.wait()


def _answers(pipe: IO[bytes], count: int) -> list[str]:
    """Lines of the launcher, in the order in which two processes wrote them, until `count` or an error or the end."""
    data = b""
    deadline = time.monotonic() + LAUNCH_S
    while data.count(b"\n") < count and b"error " not in data:
        if not select.select([pipe], [], [], max(0.0, deadline - time.monotonic()))[0]:
            break
        more = os.read(pipe.fileno(), 1 << 16)
        if not more:
            break
        data += more
    return data.decode(errors="replace").splitlines()


def _last_words(run: RunDir, state: State) -> str:
    """What the processes started last have said: their logs are gone when the lab is."""
    said = [(role, last_line(run.folder.log(role))) for role in state.record.roles]
    return "".join(f"; {role}: {words[:WORDS]}" for role, words in [each for each in said if each[1]][-FEW:])


def await_up(run: RunDir, progress: Progress) -> None:
    """Waits until a lab that was started is up.

    Raises:
        LabDied: it is not going to be.
        RunError: it takes too long.
    """
    seen = 0
    state = run.read()
    first = state.first
    assert first is not None
    # What other machines do for it is not seen here; their coordinator sees whether they do something.
    patience = Patience(first.pid, UP_S * (Patience.PERIODS if state.machines else 1))
    while True:
        dead = is_dead(run)
        try:
            state = run.read()
        except RunError:
            if run.exists():
                raise
            raise LabDied(f"lab '{run.name}' did not come up: it was ended and removed before") from None
        record = state.record
        if len(record.roles) > seen:
            seen = len(record.roles)
            progress(f"starting: {list(record.roles)[-1]}")
        if record.phase == "up":
            return
        if record.phase == "failed" or state.ending or dead:
            deaths = several(run.deaths(first))
            # What a daemon could not tell in its record, its last words in the log may.
            words = last_line(run.log_file)
            told = deaths if words in deaths else "; ".join(filter(None, (deaths, words)))
            reason = record.error or told or "it died"
            raise LabDied(f"lab '{run.name}' did not come up: {reason}")
        if time.monotonic() > patience.ends:
            frozen = "; ".join(each.text() for each in run.frozen())
            if frozen or patience.over():
                raise LabDied(
                    f"lab '{run.name}' did not come up in {patience.ends - patience.began:.0f} s"
                    f"{frozen and f' ({frozen})'}{_last_words(run, state)}"
                )
        time.sleep(0.05)


def down(name: str) -> list[str]:
    """Ends a lab; returns what was ended.

    Raises:
        RunError: there is none of this name.
    """
    run = RunDir(name)
    if not run.exists():
        run.read()
    with contextlib.suppress(OSError):
        run.ending_file.touch()
    return run.remove(grace_s=DOWN_S)


class LabRow(TypedDict):
    """A lab in `mrclab list`; `phase` is dead where nothing holds it any more, unreadable where its record is none."""

    name: str
    phase: str
    hosts: int
    fabric: int
    transport: str
    links: str
    since: float
    user: str
    pid: int | None


def listing() -> list[LabRow]:
    """Our labs, one row each."""
    rows: list[LabRow] = []
    for run in all_runs():
        row = LabRow(
            name=run.name,
            phase="unreadable",
            hosts=0,
            fabric=0,
            transport="",
            links="",
            since=0.0,
            user="",
            pid=None,
        )
        with contextlib.suppress(RunError):
            state = run.read()
            row["phase"] = "dead" if is_dead(run) else "ending" if state.ending else state.record.phase
            row["hosts"], row["fabric"] = len(state.record.hosts), len(state.record.fabric)
            row["transport"], row["links"], row["since"] = state.transport, state.links, state.since
            row["user"] = user_name(state.uid)
            row["pid"] = None if state.first is None else state.first.pid
        rows.append(row)
    return rows


def cleanup(progress: Progress = quiet) -> dict[str, list[str]]:
    """Removes every lab that nothing holds any more, and what is left of it; returns that by name.

    A lab that somebody is ending is waited for, and one that is starting or up is left alone; `progress` hears of each.
    """
    removed: dict[str, list[str]] = {}
    if not check_ours(base()):
        return removed
    for run in all_runs():
        if not is_dead(run) and not _await_end(run, progress):
            continue
        with _base_lock():
            if run.exists() and is_dead(run):
                removed[run.name] = run.remove()
    # Parts that are up are their coordinator's to end, on whatever machine that is.
    for part in all_parts():
        with _base_lock():
            if part.exists() and is_dead(part):
                removed[f"{part.name} (machine {part.path.parent.name})"] = part.remove()
    return removed


def _await_end(run: RunDir, progress: Progress) -> bool:
    """Waits for a living lab if it is ending; whether it ended."""
    if is_locked(run.path / "starting"):
        progress(f"lab {run.name}: is being started; left alone")
        return False
    try:
        state = run.read()
    except RunError as error:
        progress(f"lab {run.name}: is left alone: {error}")
        return False
    if state.first is None:
        return True
    if not state.ending and state.record.phase not in ("ending", "failed"):
        progress(f"lab {run.name}: is up; `mrclab down {run.name}` ends it")
        return False
    progress(f"lab {run.name}: is ending; waiting for it")
    if not wait_dead(state.first, DOWN_S + KILL_AFTER_S):
        end_process(state.first, 0.0)
    return True
