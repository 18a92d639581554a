"""Counts of the compiler against p4c's own programs, which are read from a checkout of p4lang/p4c and never copied.

    python tests/p4/conformance.py compile DIR [--p4info OUTPUTS] [--pattern '*-bmv2.p4'] [--front] [-v]
    python tests/p4/conformance.py errors DIR [-v]

`compile`: each program of DIR ends as *compiled*, *refused* (an error of ours, counted by what it says) or *wrong* (a
traceback). With --p4info the P4Info is compared, as a message, with OUTPUTS/NAME.p4.p4info.txtpb where that exists.
`errors`: programs that p4c refuses; each should be refused by us. Exit code 1 when anything was wrong.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
import traceback
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from p4lite.compiler import compile_program, frontend
from p4lite.compiler.diagnostics import CompileError

OTHER_ARCHITECTURE = re.compile(r"#\s*include\s*[<\"](?:bmv2/)?(?:psa|pna|tna|ubpf_model|ebpf_model|xdp_model)\b")


@dataclass
class Counts:
    """What became of the programs."""

    compiled: list[str] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)
    wrong: dict[str, str] = field(default_factory=dict)
    p4info_equal: list[str] = field(default_factory=list)
    p4info_differs: list[str] = field(default_factory=list)
    seconds: float = 0.0


def programs(directory: Path, pattern: str) -> list[Path]:
    """The v1model programs of a directory: those that include no other architecture."""
    found = []
    for path in sorted(directory.glob(pattern)):
        if not OTHER_ARCHITECTURE.search(path.read_text(encoding="utf-8", errors="replace")):
            found.append(path)
    return found


def compile_all(paths: Sequence[Path], *, front_only: bool = False, p4info: Path | None = None) -> Counts:
    """Compiles each program by itself."""
    counts = Counts()
    began = time.perf_counter()
    for path in paths:
        try:
            if front_only:
                frontend.load(path)
            else:
                compiled = compile_program(path)
                if p4info is not None:
                    compare_p4info(path, compiled.p4info, p4info, counts)
            counts.compiled.append(path.name)
        except CompileError as e:
            counts.refused[path.name] = next(d.message for d in e.diagnostics if d.severity == "error")
        except Exception:  # noqa: BLE001 - a traceback is what is counted here
            counts.wrong[path.name] = traceback.format_exc()
    counts.seconds = time.perf_counter() - began
    return counts


def compare_p4info(path: Path, text: str, outputs: Path, counts: Counts) -> None:
    """Compares P4Info messages, identifiers included, whatever the order of repeated fields' text."""
    from google.protobuf import text_format
    from p4.config.v1 import p4info_pb2

    expected_file = outputs / f"{path.name}.p4info.txtpb"
    if not expected_file.exists():
        return
    ours, expected = p4info_pb2.P4Info(), p4info_pb2.P4Info()
    text_format.Parse(text, ours)
    text_format.Parse(expected_file.read_text(encoding="utf-8"), expected, allow_unknown_field=True)
    (counts.p4info_equal if ours == expected else counts.p4info_differs).append(path.name)


def reason(message: str) -> str:
    """A refusal without the names of the program at hand, to count by."""
    return re.sub(r"'[^']*'", "'...'", re.sub(r"\d+", "N", message))


def show_counts(counts: Counts, verbose: bool) -> None:
    """The table for docs/conformance.md."""
    total = len(counts.compiled) + len(counts.refused) + len(counts.wrong)
    share = 100 * len(counts.compiled) / total if total else 0.0
    print(
        f"programs {total}  compiled {len(counts.compiled)} ({share:.1f} %)  refused by name {len(counts.refused)}",
        end="",
    )
    print(f"  wrong (traceback) {len(counts.wrong)}  in {counts.seconds:.1f} s")
    if counts.p4info_equal or counts.p4info_differs:
        print(f"P4Info: equal {len(counts.p4info_equal)}  different {len(counts.p4info_differs)}")
        for name in counts.p4info_differs:
            print(f"  differs: {name}")
    for why, n in Counter(map(reason, counts.refused.values())).most_common():
        print(f"  refused {n:4}: {why}")
    if verbose:
        for name, message in counts.refused.items():
            print(f"  {name}: {message}")
    for name, trace in counts.wrong.items():
        print(f"  WRONG {name}: {trace if verbose else trace.strip().splitlines()[-1]}")


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("mode", choices=("compile", "errors"))
    parser.add_argument("directory", type=Path)
    parser.add_argument("--p4info", type=Path, help="directory of expected P4Info files")
    parser.add_argument("--pattern", help="programs to take (default: *-bmv2.p4; errors: *.p4)")
    parser.add_argument("--front", action="store_true", help="stop after the front end")
    parser.add_argument("-v", "--verbose", action="store_true")
    args = parser.parse_args(argv)
    if not args.directory.is_dir():
        print(f"{args.directory}: not a directory", file=sys.stderr)
        return 2
    default = "*-bmv2.p4" if args.mode == "compile" else "*.p4"
    paths = programs(args.directory, args.pattern or default)
    if not paths:
        print(f"{args.directory}: no programs {args.pattern or default}", file=sys.stderr)
        return 2
    if args.mode == "compile":
        counts = compile_all(paths, front_only=args.front, p4info=args.p4info)
        show_counts(counts, args.verbose)
        return 1 if counts.wrong else 0
    counts = compile_all(paths, front_only=True)
    no_main = [n for n, m in counts.refused.items() if "no package instance" in m]
    refused = len(counts.refused) - len(no_main)
    accepted = counts.compiled + no_main
    print(f"programs {len(paths)}  refused {refused}  accepted {len(accepted)}  wrong (traceback) {len(counts.wrong)}")
    if args.verbose:
        for name in sorted(accepted):
            print(f"  accepted: {name}")
    for name, trace in counts.wrong.items():
        print(f"  WRONG {name}: {trace.strip().splitlines()[-1]}")
    return 1 if counts.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
