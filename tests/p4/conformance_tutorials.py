"""Runs the exercises of p4lang/tutorials, unchanged, with `p4lite wrappers` in the place of p4c and BMv2 (root).

    python tests/p4/conformance_tutorials.py CHECKOUT [--only NAME] [--markdown] [-v]

The checkout is copied; the copy's program is replaced by its solution, `make run` starts Mininet as the README says,
and the README's commands are typed at its prompt. Each exercise runs in namespaces of its own (network, processes,
mounts). Where the environment has ptf, the PTF tests run too (`make test`). Exit code 0 when all passed, 2 when nothing
ran.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

SECONDS = 240
NAMESPACES = ["unshare", "--net", "--pid", "--fork", "--mount", "--mount-proc", "--kill-child"]
#: With this after it, `make` is no first process of the namespace, as which it would have to reap those of others.
LAST = "exit $?"
ALL_PINGS = r"Results: 0% dropped"
WAIT_FOR_PROBES = "sh for i in $(seq 60); do grep -q 'Switch 2 - Port 4' h1.out && break; sleep 1; done"
#: From `solution` the controller does not find the checkout's `utils`.
CONTROLLER = (("solution/mycontroller.py", "mycontroller.py"),)


@dataclass(frozen=True)
class Exercise:
    """What is typed at Mininet's prompt, and what must (or must not) be seen then."""

    typed: tuple[str, ...]
    seen: tuple[str, ...]
    unseen: tuple[str, ...] = ()
    copies: tuple[tuple[str, str], ...] = ()
    counts: dict[str, int] = field(default_factory=dict)
    ptf: bool = False


def receiver(host: str, name: str = "receive.py") -> tuple[str, ...]:
    return (f"{host} PYTHONUNBUFFERED=1 ./{name} > {host}.out 2>&1 &", "sh sleep 3")


EXERCISES = {
    "basic": Exercise(("h1 ping -c 2 h2", "pingall"), (ALL_PINGS,), ptf=True),
    "basic_tunnel": Exercise(
        (
            *receiver("h2"),
            'h1 ./send.py 10.0.2.2 "P4 is cool"',
            'h1 ./send.py 10.0.2.2 "P4 is cool" --dst_id 2',
            'h1 ./send.py 10.0.3.3 "P4 is cool" --dst_id 2',
            "sh sleep 1; echo; sed s/^/h2:/ h2.out",
        ),
        (r"h2:.*MyTunnel", r"h2: *dst_id *= 2", r"h2: *dst *= 10\.0\.3\.3"),
        counts={"h2:got a packet": 3},
        ptf=True,
    ),
    "calc": Exercise(
        (r"h1 printf '1+1\n7-3\n12&10\n12|3\n5^1\nquit\n' | python3 calc.py",),
        (r"> 1\+1\r?\n2\r?\n> 7-3\r?\n4\r?\n> 12&10\r?\n8\r?\n> 12\|3\r?\n15\r?\n> 5\^1\r?\n4\r?\n",),
    ),
    "ecn": Exercise(
        (
            *receiver("h2"),
            "h22 iperf -s -u > h22.out 2>&1 &",
            'h1 ./send.py 10.0.2.2 "P4 is cool" 25 > h1.out 2>&1 &',
            "sh sleep 2",
            "h11 iperf -c 10.0.2.22 -t 15 -u",
            "sh sleep 8; echo; sed s/^/h2:/ h2.out",
        ),
        (r"h2: *tos *= 0x1\s", r"h2: *tos *= 0x3\s"),
    ),
    "firewall": Exercise(
        (
            "h2 iperf -s > /dev/null 2>&1 &",
            "h3 iperf -s > /dev/null 2>&1 &",
            "h1 iperf -s -p 5002 > /dev/null 2>&1 &",
            "sh sleep 1",
            "h1 echo; timeout 20 iperf -c 10.0.2.2 -t 2 | sed s/^/inside:/",
            "h1 echo; timeout 20 iperf -c 10.0.3.3 -t 2 | sed s/^/outwards:/",
            "h3 echo; timeout -s KILL 6 iperf -c 10.0.1.1 -p 5002 -t 2 2>&1 | sed s/^/inwards:/",
        ),
        (r"inside:.*bits/sec", r"outwards:.*bits/sec"),
        (r"inwards:.*bits/sec",),
    ),
    "flowcache": Exercise(
        ("sh PYTHONUNBUFFERED=1 ./mycontroller.py > c.out 2>&1 &", "sh sleep 6", "h1 ping -c 8 h2",
         "sh sleep 6; echo; sed s/^/c:/ c.out"),
        (r"bytes from 10\.0\.2\.2", r"c:For switch s1 flow .* added table entry", r"c:Deleted flow_cache entry on s1"),
        (r"c:.*(Traceback|gRPC Error)",),
        copies=CONTROLLER,
    ),
    "link_monitor": Exercise(
        # Mininet's `iperf h1 h4` would wait for what else runs in h1's shell, which the README has in terminals.
        (*receiver("h1"), "h1 ./send.py > /dev/null 2>&1 &", "h4 iperf -s > /dev/null 2>&1 &", "sh sleep 1",
         "h1 echo; timeout 20 iperf -c 10.0.4.4 -t 4 | sed s/^/flow:/", WAIT_FOR_PROBES,
         "sh echo; sed s/^/h1:/ h1.out"),
        (r"flow:.*bits/sec", *(rf"h1:Switch {n} - Port {p}: [0-9.]+ Mbps" for n, p in ((1, 4), (4, 1), (2, 4)))),
    ),
    "load_balance": Exercise(
        (
            *receiver("h2"),
            *receiver("h3"),
            *(['h1 ./send.py 10.0.0.1 "P4 is cool"'] * 8),
            "sh sleep 1; echo; sed s/^/h:/ h2.out h3.out; grep -c 'got a packet' h2.out h3.out",
        ),
        (r"h2\.out:[1-7]\b", r"h3\.out:[1-7]\b"),
        counts={"h:got a packet": 8},
    ),
    "mri": Exercise(
        (
            *receiver("h2"),
            "h22 iperf -s -u > h22.out 2>&1 &",
            'h1 ./send.py 10.0.2.2 "P4 is cool" 25 > h1.out 2>&1 &',
            "sh sleep 2",
            "h11 iperf -c 10.0.2.22 -t 15 -u",
            "sh sleep 8; echo; sed s/^/h2:/ h2.out",
        ),
        (r"h2:.*count *= 2", r"h2:.*swid *= 2", r"h2:.*swid *= 1", r"h2:.*qdepth *= [1-9]"),
    ),
    "multicast": Exercise(
        ("h1 ping -c 2 h2", "pingall"), (ALL_PINGS,), copies=(("solution/s1-runtime.json", "sig-topo/s1-runtime.json"),)
    ),
    "p4runtime": Exercise(
        ("sh PYTHONUNBUFFERED=1 ./mycontroller.py > c.out 2>&1 &", "sh sleep 4",
         "h1 ping -c 3 h2", "sh sleep 3; echo; sed s/^/c:/ c.out"),
        (r" 0% packet loss", r"c:s1 MyIngress\.ingressTunnelCounter 100: [1-9]", r"c:MyIngress\.ipv4_lpm: .*->"),
        copies=CONTROLLER,
    ),
    "qos": Exercise(
        (
            *receiver("h2"),
            'h1 ./send.py --p=UDP --des=10.0.2.2 --m="P4 is cool" --dur=2',
            'h1 ./send.py --p=TCP --des=10.0.2.2 --m="P4 is cool" --dur=2',
            "sh sleep 1; echo; sed s/^/h2:/ h2.out",
        ),
        (r"h2: *tos *= 0xb9", r"h2: *tos *= 0xb1"),
    ),
    "source_routing": Exercise(
        (*receiver("h2"), r"h1 printf '2 3 2 2 1\nq\n' | ./send.py 10.0.2.2", "sh sleep 1; echo; sed s/^/h2:/ h2.out"),
        (r"h2:got a packet", r"h2: *ttl *= 59"),
    ),
}  # fmt: skip
"""After each exercise's README."""


def prepare(folder: Path, exercise: Exercise) -> None:
    """Put the solution where a student would have written it."""
    for solution in (folder / "solution").glob("*.p4"):
        shutil.copy(solution, folder / solution.name)
    for source, target in exercise.copies:
        shutil.copy(folder / source, folder / target)


def run(name: str, exercise: Exercise, tree: Path, wrappers: Path) -> tuple[str, str]:
    """(outcome, all that was printed) of one exercise."""
    folder = tree / "exercises" / name
    prepare(folder, exercise)
    script = (
        f"ip link set lo up && mount -t sysfs sysfs /sys && . {wrappers}/activate && cd {folder} && make run; {LAST}"
    )
    try:
        done = subprocess.run(
            [*NAMESPACES, "bash", "-c", script],
            input="".join(f"{line}\n" for line in (*exercise.typed, "exit")),
            capture_output=True,
            text=True,
            errors="replace",
            timeout=SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        text = error.stdout.decode(errors="replace") if isinstance(error.stdout, bytes) else ""
        return f"not done in {SECONDS} s", text
    out = done.stdout + done.stderr
    for expected in exercise.seen:
        if not re.search(expected, out):
            return f"not seen: {expected}", out
    for unexpected in exercise.unseen:
        if re.search(unexpected, out):
            return f"seen: {unexpected}", out
    for line, count in exercise.counts.items():
        if out.count(line) != count:
            return f"{out.count(line)} times, not {count}: {line}", out
    return ("passed" if done.returncode == 0 else f"make run ended with {done.returncode}"), out


def run_ptf(name: str, tree: Path, wrappers: Path) -> tuple[str, str]:
    """(outcome, all that was printed) of `make test`, which calls sudo, whose own PATH has /usr/local/bin."""
    folder = tree / "exercises" / name
    script = (
        f"ip link set lo up && mount -t sysfs sysfs /sys && mount --bind {wrappers}/bin /usr/local/bin"
        f" && . {wrappers}/activate && cd {folder} && make test; {LAST}"
    )
    # Not a pipe: what `sudo` runs in the background may keep it open.
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as said:
        try:
            subprocess.run(
                [*NAMESPACES, "bash", "-c", script],
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=subprocess.STDOUT,
                timeout=SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return f"not done in {SECONDS} s", ""
        said.seek(0)
        out = said.read()
    ran = re.search(r"Ran (\d+) tests? in", out)
    if ran is None:
        return "no test ran", out
    return (f"passed, {ran[1]} tests" if re.search(r"^OK\b", out, re.M) else "failed"), out


def missing() -> list[str]:
    """Return what this needs and the machine lacks."""
    commands = ("unshare", "make", "sudo", "mn", "iperf", "telnet", "route", "arp", "ethtool")
    lacks = [name for name in commands if shutil.which(name) is None]
    return lacks if os.geteuid() == 0 else ["root", *lacks]


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("checkout", type=Path, metavar="CHECKOUT")
    parser.add_argument("--only", metavar="NAME", action="append", help="this exercise")
    parser.add_argument("--markdown", action="store_true", help="print a table")
    parser.add_argument("-v", "--verbose", action="store_true", help="print what a failed exercise printed")
    arguments = parser.parse_args(argv)
    lacks = missing()
    if lacks or not (arguments.checkout / "utils/run_exercise.py").is_file():
        why = f"needs {', '.join(lacks)}" if lacks else "no checkout of p4lang/tutorials"
        print(f"{arguments.checkout}: nothing run: {why}", file=sys.stderr)
        return 2
    failed = 0
    with tempfile.TemporaryDirectory() as name:
        tree, wrappers = Path(name) / "tutorials", Path(name) / "p4lang"
        shutil.copytree(arguments.checkout, tree, symlinks=True, ignore=shutil.ignore_patterns(".git"))
        command = [sys.executable, "-c", "from p4lite.cli import main; main()", "wrappers", str(wrappers)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        has_ptf = (wrappers / "bin" / "ptf").is_file()
        for exercise in arguments.only or EXERCISES:
            began = time.monotonic()
            given = EXERCISES[exercise]
            results = [(exercise, *run(exercise, given, tree, wrappers))]
            if given.ptf and has_ptf:
                results.append((f"{exercise}, PTF", *run_ptf(exercise, tree, wrappers)))
            for what, outcome, out in results:
                failed += not outcome.startswith("passed")
                seconds = time.monotonic() - began
                line = f"| {what} | {outcome} |" if arguments.markdown else f"{what:20} {outcome}  ({seconds:.0f} s)"
                print(line, flush=True)
                if arguments.verbose and not outcome.startswith("passed"):
                    print(out)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
