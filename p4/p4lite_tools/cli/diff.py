"""`p4lite diff`: whether two programs do the same with the same packets and entries."""

from __future__ import annotations

import argparse
from pathlib import Path

from p4lite.cli.options import add_compiler
from p4lite_tools.cli import common
from p4lite_tools.cli.common import MAX_SEED, MOST_PACKETS, whole
from p4lite_tools.diff import Comparison, Difference, Pair, parting
from p4lite_tools.entries import load_entries
from p4lite_tools.trace import Lines


def run(argv: list[str]) -> int:
    """Compare; return 0 if nothing differed, 1 if something did, 2 for wrong usage or input."""
    parser = argparse.ArgumentParser(
        prog="p4lite diff",
        description="Send the same packets through two programs with the same table entries, and show the first packet "
        "that they treat differently, with both traces. Without --packet and --entries both are random.",
    )
    parser.add_argument("one", metavar="A", help="P4 source (.p4) or BMv2 JSON")
    parser.add_argument("other", metavar="B")
    add_compiler(parser)
    common.add_packets(parser)
    parser.add_argument(
        "--packets", type=whole(1, MOST_PACKETS), default=1000, metavar="N", help="random packets (default 1000)"
    )
    parser.add_argument(
        "--seed", type=whole(0, MAX_SEED), default=1, metavar="S", help="of packets and entries (default 1)"
    )
    return common.run_verb("diff", parser, argv, _diff)


def _diff(arguments: argparse.Namespace) -> int:
    one, other = (common.load(arguments, path) for path in (arguments.one, arguments.other))
    pair = Pair(one, other, seed=arguments.seed)
    for path in arguments.entries:
        for switch in pair.switches:
            load_entries(Path(path), switch.control, switch.replication)
    entries = pair.fill() if not arguments.entries else 0
    given = [(arguments.port, packet.data) for packet in common.packets(arguments.packet)]
    result = pair.compare(given or pair.packets(arguments.packets))
    result.entries = entries
    return _tell(result, (arguments.one, arguments.other), arguments.seed)


def _tell(result: Comparison, names: tuple[str, str], seed: int) -> int:
    for note in result.notes:
        print(f"note: {note}")
    what = f"{result.packets} packets, {result.entries} random entries, seed {seed}"
    if result.difference is None:
        print(f"no difference: {what}")
        return 0
    difference = result.difference
    print(f"packet {difference.number} differs: {difference.data.hex()} at port {difference.port} ({what})")
    for name, sent in zip(names, difference.sent, strict=True):
        shown = ", ".join(f"port {port}: {data.hex()}" for port, data in sent)
        print(f"  {name} sends {shown or 'nothing'}")
    if difference.sent[0] == difference.sent[1]:
        print("  registers, counters or digests differ")
    _traces(difference, names)
    return 1


def _traces(difference: Difference, names: tuple[str, str]) -> None:
    lines = Lines(colour=common.in_colour())
    for name, events, at in zip(names, difference.events, parting(*difference.events), strict=True):
        print(f"\n{name}:")
        for line in lines.render(events[:at]):
            print(f"  {line}")
        print("  " + lines.style("-- here the two part --", "bad"))
        for line in lines.render(events[at:]):
            print(f"  {line}")
