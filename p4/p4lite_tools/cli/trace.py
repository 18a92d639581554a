"""`p4lite trace`: what a program does with a packet, by source line."""

from __future__ import annotations

import argparse
import json

from p4lite_tools.cli import common
from p4lite_tools.trace import Lines, Recorder, to_json


def run(argv: list[str]) -> int:
    """Trace packets; return 0, or 2 for wrong usage, a program with errors, or entries that do not fit it."""
    parser = argparse.ArgumentParser(
        prog="p4lite trace",
        description="Show what a program does with packets: parser states, tables with entries and actions, and each "
        "changed field with its old and new value, by source line.",
    )
    common.add_program(parser)
    common.add_packets(parser)
    parser.add_argument("--json", action="store_true", help="write JSON: a list of events for each packet")
    return common.run_verb("trace", parser, argv, _trace)


def _trace(arguments: argparse.Namespace) -> int:
    recorder, program = Recorder(), common.load(arguments)
    packets = common.packets(arguments.packet)
    lines, documents = Lines(colour=common.in_colour()), []
    with common.switch_for(program, arguments, [recorder]) as switch:
        for number, packet in enumerate(packets):
            switch.send(arguments.port, packet.data)
            events = recorder.take()
            if arguments.json:
                documents.append(to_json(events))
                continue
            if number:
                print()
            for line in lines.render(events):
                print(line)
    if arguments.json:
        print(json.dumps(documents, indent=1))
    return 0
