"""Table of the verbs for `mrclab --help`: the group, the sentence and the examples of each.

Only the standard library is imported here, because tab completion reads this table within a keystroke.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from p4lite.contributions import tables


class Group(StrEnum):
    """A panel of `mrclab --help`, with its title."""

    LAB = "Lab"
    RUN = "Run"
    BREAK = "Break"
    LOOK = "Look"
    LEARN = "Learn and test"
    SCALE = "Fabrics and clusters"


@dataclass(frozen=True)
class Verb:
    """A verb: its group; the first sentence of its docstring; commands that can be typed as they stand; the module that
    has it, if it is not the one of its name here, and its function there; and whether it is left out of lists, since no
    user types it."""

    group: Group
    summary: str
    examples: tuple[str, ...]
    module: str = ""
    function: str = "verb"
    hidden: bool = False


_BREAKING = "mrclab.cli.breaking"
#: In the order in which `--help` has them.
_CORE = {
    "up": Verb(
        Group.LAB,
        "Start a lab on the real clock: namespaces, switches, tables and host agents.",
        (
            "mrclab up",
            "mrclab up tiny --transport roce",
            "mrclab up ./mylab.yaml --web",
            "mrclab up --custom topo.py --topo mytopo",
        ),
    ),
    "down": Verb(Group.LAB, "Stop a lab and remove everything that it created.", ("mrclab down", "mrclab down tiny")),
    "status": Verb(
        Group.LAB,
        "Show what is up, the load of each link, which failures are injected, and what the hosts detect.",
        ("mrclab status", "mrclab status --watch", "mrclab status tiny --json"),
    ),
    "list": Verb(
        Group.LAB,
        "List your running labs, and the labs, experiments, workloads and exercises that come with mrclab.",
        ("mrclab list", "mrclab list running", "mrclab list experiments", "mrclab list labs --json"),
    ),
    "logs": Verb(
        Group.LAB,
        "Print the logs of a lab's processes.",
        ("mrclab logs", "mrclab logs h0 --lines 20", "mrclab logs -f labd"),
    ),
    "cleanup": Verb(
        Group.LAB,
        "Remove what killed labs and commands left behind: processes, namespaces, files.",
        ("mrclab cleanup",),
    ),
    "run": Verb(
        Group.RUN,
        "Run an experiment or a workload, check it, and write a report.",
        (
            "mrclab run fabric-links",
            "mrclab run fabric-links --duration 8s --clock virtual",
            "mrclab run incast --lab tiny --clock virtual --set size_bytes=65536 --duration 500ms",
            "mrclab run --again results/fabric-links-virtual",
        ),
    ),
    "artifact": Verb(
        Group.RUN,
        "Pack runs with all that is needed to repeat them, and repeat the runs of such a file.",
        ("mrclab artifact pack results/* -o paper.zip", "mrclab artifact check paper.zip"),
    ),
    "demo": Verb(
        Group.RUN,
        "Run the demonstration: MRC continues while links, ports and switches fail.",
        ("mrclab demo", "mrclab demo --clock virtual"),
    ),
    "compare": Verb(
        Group.RUN,
        "Run one workload over several transports and conditions, and compare the results.",
        ("mrclab compare", "mrclab compare mrc-vs-lossless --json"),
    ),
    "perf": Verb(
        Group.RUN,
        "Measure a collective operation over message sizes, as nccl-tests do.",
        ("mrclab perf all_reduce --clock virtual --lab tiny",),
    ),
    "sweep": Verb(
        Group.RUN,
        "Run one experiment over many settings and seeds, and draw the results.",
        ("mrclab sweep list", "mrclab sweep evs-failures"),
    ),
    "fail": Verb(
        Group.BREAK,
        "Inject a failure into a link, a host port or a switch.",
        ("mrclab fail p0-t1.1", "mrclab fail h3:2 --kind port_down", "mrclab fail p0-t0.1--p0-t1.0 --set loss=0.2"),
        _BREAKING,
        "fail",
    ),
    "flap": Verb(
        Group.BREAK,
        "Let a link, a host port or a switch fail and come back, again and again.",
        ("mrclab flap p0-t0.1--p0-t1.0 --count 3", "mrclab flap h3:2 --period 500ms --duty 0.2"),
        _BREAKING,
        "flap",
    ),
    "restore": Verb(
        Group.BREAK,
        "Undo injected failures: restore exactly what each of them changed.",
        ("mrclab restore", "mrclab restore p0-t1.1"),
        _BREAKING,
        "restore",
    ),
    "deny": Verb(
        Group.BREAK,
        "Put elements on the denylist: no queue pair sends across them until `allow`.",
        ("mrclab deny", "mrclab deny p0-t1.1"),
        _BREAKING,
        "deny",
    ),
    "allow": Verb(
        Group.BREAK,
        "Take elements off the denylist; their EVs are used again.",
        ("mrclab allow", "mrclab allow p0-t1.1"),
        _BREAKING,
        "allow",
    ),
    "chaos": Verb(
        Group.BREAK,
        "Inject failures and kills at random, and check invariants of the lab after each.",
        ("mrclab chaos --clock virtual --seeds 3 --duration 20s",),
    ),
    "web": Verb(
        Group.LOOK,
        "Serve a live view in a browser, of a lab, a simulation or a recorded run, until Ctrl-C.",
        ("mrclab web", "mrclab web --clock virtual"),
    ),
    "events": Verb(
        Group.LOOK,
        "Print what happened in a recorded run, in order of time, with host, peer, plane, path and cause.",
        ("mrclab events results/fabric-links-virtual", "mrclab events results/fabric-links-virtual --host h3 --json"),
    ),
    "capture": Verb(
        Group.LOOK,
        "Capture both directions of a port into a pcapng file (Wireshark: load docs/mrc.lua).",
        ("mrclab capture h3:2 --duration 2s -o h3.pcapng",),
    ),
    "trace": Verb(
        Group.LOOK,
        "Show what a switch's program does with the next packets, by source line: states, tables, changed fields.",
        ("mrclab trace p0-t0.0 --packets 3",),
    ),
    "exec": Verb(
        Group.LOOK,
        "Run a command in a host and return its exit code; `h1.p0` is h1's port in the fabric, `h1` in management.",
        ("mrclab exec h0 ip addr", "mrclab exec h0 -- python3 examples/write_bw.py --help"),
    ),
    "env": Verb(
        Group.LOOK,
        "Print the variables that `mrclab exec` sets for programs in a host.",
        ("mrclab env h0", "mrclab env h0 --json"),
    ),
    "sh": Verb(
        Group.LOOK,
        "Open a prompt as Mininet's on a lab that is up; `help` lists its commands.",
        ("mrclab sh",),
    ),
    "p4sh": Verb(
        Group.LOOK,
        "Open p4runtime-shell on a switch as its primary controller, to read and change tables.",
        ("mrclab p4sh p0-t0.0",),
    ),
    "figures": Verb(
        Group.LEARN,
        "Reproduce the figures of the MRC paper in simulated time.",
        ("mrclab figures --list", "mrclab figures 9a"),
    ),
    "topo": Verb(
        Group.SCALE,
        "Check, show, draw and plan fabrics.",
        ("mrclab topo show default", "mrclab topo plan --radix 512 --planes 8"),
    ),
    "export": Verb(
        Group.SCALE,
        "Write a lab as a containerlab topology, as SONiC tables, or as a JSON graph.",
        ("mrclab export containerlab tiny -o tiny.clab.yml", "mrclab export sonic default -o switches"),
    ),
}
_ALL: dict[str, Verb] = {**_CORE}
for _verbs in tables("mrclab.verbs"):
    _ALL |= _verbs
#: Verbs of the core and of extras: those of lists, and those that no user types.
VERBS = {name: verb for name, verb in _ALL.items() if not verb.hidden}
HIDDEN = {name: verb for name, verb in _ALL.items() if verb.hidden}
#: Verbs of earlier versions, and what to write instead.
RENAMED = {"experiments": "list experiments"}
