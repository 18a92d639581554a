"""Forwarders of a lab's packets (p4lite, BMv2, the Linux kernel): what each can do, and whether its parts are here.

Everything is checked outside of the lab, before anything is started.
"""

from __future__ import annotations

import os
import pathlib
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from typing import get_args

from mrc_topo.base.errors import SIMULATE
from mrc_topo.modes import RoutingMode
from mrc_topo.schema import Compiler, Forwarder, Lab
from mrc_topo.topology import Topology
from mrclab.lab.records.rundir import RunError

FORWARDERS: tuple[Forwarder, ...] = get_args(Forwarder)
COMPILERS: tuple[Compiler, ...] = get_args(Compiler)
HELP = "docs/reference-parts.md tells where it comes from"
#: The routing modes of the kernel, which routes by addresses and uSIDs and hashes flows over uplinks, but reads no EV.
KERNEL_MODES = (RoutingMode.SRV6_USID, RoutingMode.SRV6_SRH, RoutingMode.ECMP)
#: The oldest BMv2 that is known to take Unix sockets for gRPC and to have priority queues.
BMV2_LEAST = (1, 13)
TRY_S = 60.0
#: The limit of namespaces and agents on one machine.
MAX_REAL_HOSTS = 256
#: The commands that test whether the kernel supports uSIDs.
KERNEL_PROBE = (
    "ip link add probe type veth peer name other && ip link set probe up && ip -6 route add fd4d:5243:1::/48 "
    "encap seg6local action End flavors next-csid lblen 32 nflen 16 dev probe"
)


class ReferencePartMissing(RunError):
    """A reference part that is not installed, does not work, or lacks a function; the text says what to do."""


def chosen(
    topology: Topology, switch: str | None = None, compiler: str | None = None, clock: str | None = None
) -> Topology:
    """Return the lab with another backend or compiler than its file names (None: as there); checked with a `clock`.

    The kernel neither marks nor trims, so the queues of its labs do neither.

    Raises:
        ReferencePartMissing: a name is unknown, or the backend cannot run the lab; as `check_clock` and `check`.
    """
    made = _chosen(topology, switch, compiler)
    if clock is not None:
        check_clock(made, clock)
    if clock == "real":
        check(made)
    return made


def _chosen(topology: Topology, switch: str | None, compiler: str | None) -> Topology:
    switch, compiler = switch or topology.lab.switch, compiler or topology.lab.compiler
    if switch not in FORWARDERS:
        raise ReferencePartMissing(f"switch is {', '.join(FORWARDERS[:-1])} or {FORWARDERS[-1]}, not '{switch}'")
    if compiler not in COMPILERS:
        raise ReferencePartMissing(f"compiler is {' or '.join(COMPILERS)}, not '{compiler}'")
    queues = topology.lab.all_queues.values()
    for key, what in (("pfc", "priority flow control"), ("credits", "link-level credits")):
        if switch != "p4lite" and any(getattr(queue, key) is not None for queue in queues):
            raise ReferencePartMissing(f"{switch} has no {what}; leave queues.{key} out, or use p4lite")
    lab = topology.lab.model_copy(update={"switch": switch, "compiler": compiler})
    if switch == "kernel":
        if topology.lab.program is not None:
            raise ReferencePartMissing(
                f"the kernel runs no P4 program: leave `program` out of lab '{topology.lab.name}'"
            )
        if compiler != "p4lite":
            raise ReferencePartMissing(f"the kernel runs no P4 program, so there is nothing for {compiler} to compile")
        _check_kernel_mode(topology.lab)
        lab = lab.with_queues(lambda queue: queue.model_copy(update={"ecn": None, "trim": None}))
    return topology if lab == topology.lab else topology.with_lab(lab)


def _check_kernel_mode(lab: Lab) -> None:
    mode = lab.routing.mode
    if mode not in KERNEL_MODES:
        modes = ", ".join(each.value for each in KERNEL_MODES)
        raise ReferencePartMissing(
            f"the kernel cannot route {mode.value}: it reads no EV; routing.mode must be one of {modes}"
        )


def check_clock(topology: Topology, clock: str) -> None:
    """Check that the backend supports this clock.

    Raises:
        ReferencePartMissing: it does not.
    """
    switch = topology.lab.switch
    if clock != "real" and switch != "p4lite":
        raise ReferencePartMissing(f"switch {switch} has the real clock only; `--clock real`, or `--switch p4lite`")


def check(topology: Topology) -> None:
    """Check that the parts that a lab on the real clock needs are installed and work.

    Raises:
        ReferencePartMissing: a part is missing, or there are more hosts than one machine has namespaces for.
    """
    hosts = topology.lab.hosts
    if hosts > MAX_REAL_HOSTS:
        raise ReferencePartMissing(
            f"lab '{topology.lab.name}' has {hosts} hosts, the real clock takes {MAX_REAL_HOSTS} at most; "
            f"{SIMULATE}, which has no such limit"
        )
    if topology.lab.switch == "bmv2":
        check_bmv2()
    if topology.lab.switch == "kernel":
        check_kernel()
    if topology.lab.compiler == "p4c":
        p4c()


def problem(topology: Topology) -> str | None:
    """Return why a lab's parts cannot be used here; None if they can."""
    try:
        check(topology)
    except ReferencePartMissing as error:
        return str(error)
    return None


def _found(program: str, variable: str, what: str, environment: Mapping[str, str]) -> pathlib.Path:
    named = environment.get(variable)
    path = shutil.which(named or program, path=environment.get("PATH", os.defpath))
    if path is None:
        where = (
            f"{variable}={named} is not a program" if named else f"{program} is not in PATH, and {variable} is not set"
        )
        raise ReferencePartMissing(f"{what} is missing: {where}; {HELP}")
    return pathlib.Path(path).absolute()


def silence(error: OSError | subprocess.TimeoutExpired) -> str:
    """Return why a program that was started produced no output."""
    if isinstance(error, subprocess.TimeoutExpired):
        return f"no answer within {error.timeout:g} s"
    return error.strerror or str(error)


def bmv2() -> pathlib.Path:
    """Return BMv2's switch with P4Runtime: MRCLAB_BMV2, or simple_switch_grpc in PATH.

    Raises:
        ReferencePartMissing: it is not installed.
    """
    return _found("simple_switch_grpc", "MRCLAB_BMV2", "BMv2", os.environ)


def p4c() -> pathlib.Path:
    """Return p4c's compiler for BMv2: MRCLAB_P4C, or p4c-bm2-ss in PATH.

    Raises:
        ReferencePartMissing: it is not installed.
    """
    return _found("p4c-bm2-ss", "MRCLAB_P4C", "p4c", os.environ)


def bmv2_options(binary: str | pathlib.Path) -> str:
    """Return what a BMv2 says of its options, which depend on what it was built with; nothing if it does not start."""
    try:
        return subprocess.run([binary, "--help"], capture_output=True, text=True, check=False, timeout=TRY_S).stdout
    except (OSError, subprocess.TimeoutExpired, UnicodeDecodeError):
        return ""


def check_bmv2() -> pathlib.Path:
    """Return `bmv2` after a check that it starts, is not too old, and has Thrift, which sets its queues."""
    path = bmv2()
    started = f"BMv2 does not start: {path} --version"
    try:
        done = subprocess.run([path, "--version"], capture_output=True, text=True, check=False, timeout=TRY_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ReferencePartMissing(f"{started}: {silence(error)}; {HELP}") from error
    said = [*done.stdout.split(), *done.stderr.strip().splitlines()[-1:]]
    version = re.match(r"(\d+)\.(\d+)", said[0]) if said else None
    if done.returncode:
        word = done.stderr.strip().splitlines()[-1:] or [f"exit code {done.returncode}"]
        raise ReferencePartMissing(f"{started}: {word[0]}; {HELP}")
    if version is None:
        raise ReferencePartMissing(f"{started}: it says no version; {HELP}")
    if (int(version[1]), int(version[2])) < BMV2_LEAST:
        least = ".".join(map(str, BMV2_LEAST))
        raise ReferencePartMissing(f"BMv2 is too old: {path} is version {said[0]}, and {least} is needed; {HELP}")
    if "--thrift-port" not in bmv2_options(path):
        raise ReferencePartMissing(
            f"BMv2 was built without Thrift, by which labs set its queues: {path}; build it with WITH_THRIFT=ON "
            f"(--with-thrift); {HELP}"
        )
    return path


def check_kernel() -> None:
    """Check that this machine's kernel and iproute2 support uSIDs.

    Raises:
        ReferencePartMissing: they do not.
    """
    command = [sys.executable, "-P", "-m", "mrclab.lab.processes.launch", "--run", "sh", "-c", KERNEL_PROBE]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        word = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[0]
        raise ReferencePartMissing(
            f"this kernel does not forward SRv6 uSIDs ({word}); it takes Linux 6.1 with "
            "CONFIG_IPV6_SEG6_LWTUNNEL, and iproute2 6.1"
        )
