"""Counts of the compiler against programs of others, which are read from checkouts and never copied.

    python tests/p4/conformance.py compile DIR [--p4info OUTPUTS] [--pattern '*-bmv2.p4'] [--front] [-v]
    python tests/p4/conformance.py compile DIR --architecture psa [--p4info OUTPUTS] [-v]
    python tests/p4/conformance.py errors DIR [-v]
    python tests/p4/conformance.py tutorials DIR
    python tests/p4/conformance.py load DIR --simple-switch PATH [--pattern '*-bmv2.p4'] [-v]
    python tests/p4/conformance.py format DIR

`compile`: each program of DIR ends as *compiled*, *refused* (an error of ours, counted by what it says) or *wrong* (a
traceback). With --p4info the P4Info is compared, as a message, with OUTPUTS/NAME.p4.p4info.txtpb where that exists.
`errors`: programs that p4c refuses; each should be refused by us. `tutorials`: the solutions in a checkout of
p4lang/tutorials, as a table. `load`: starts BMv2's simple_switch with the JSON of each program that compiles; it is
loaded when the switch opens its control port. `format`: formats every program below DIR, which must keep its words and
not change when it is formatted again. Exit code 1 when anything was wrong.
"""

from __future__ import annotations

import argparse
import json
import re
import socket
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from p4lite.compiler import compile_program, frontend
from p4lite.compiler.diagnostics import CompileError
from p4lite_tools.editor.format import format_text
from p4lite_tools.editor.scan import same_code

LOAD_SECONDS = 10.0
OTHER_ARCHITECTURE = re.compile(r"#\s*include\s*[<\"](?:bmv2/)?(?:psa|pna|tna|ubpf_model|ebpf_model|xdp_model)\b")
PSA = re.compile(r"#\s*include\s*[<\"](?:(?:bmv2|dpdk)/)?psa\.p4[>\"]")


@dataclass
class Counts:
    """What became of the programs."""

    compiled: list[str] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)
    wrong: dict[str, str] = field(default_factory=dict)
    p4info_equal: list[str] = field(default_factory=list)
    p4info_differs: list[str] = field(default_factory=list)
    seconds: float = 0.0


def programs(directory: Path, pattern: str, architecture: str = "v1model") -> list[Path]:
    """Return the programs of a directory for PSA, or those for v1model: they include no other architecture."""
    found = []
    for path in sorted(directory.glob(pattern)):
        text = path.read_text(encoding="utf-8", errors="replace")
        if PSA.search(text) if architecture == "psa" else not OTHER_ARCHITECTURE.search(text):
            found.append(path)
    return found


def compile_all(paths: Sequence[Path], *, front_only: bool = False, p4info: Path | None = None) -> Counts:
    """Compile each program by itself."""
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
    """Compare P4Info messages, identifiers and the order of objects included."""
    from google.protobuf import text_format

    from p4lite.messages import p4info_pb2

    expected_file = outputs / f"{path.name}.p4info.txtpb"
    if not expected_file.exists():
        return
    ours, expected = p4info_pb2.P4Info(), p4info_pb2.P4Info()
    text_format.Parse(text, ours)
    text_format.Parse(expected_file.read_text(encoding="utf-8"), expected, allow_unknown_field=True)
    (counts.p4info_equal if ours == expected else counts.p4info_differs).append(path.name)


def reason(message: str) -> str:
    """Return a refusal without the names of the program at hand, to count by."""
    return re.sub(r"'[^']*'", "'...'", re.sub(r"\d+", "N", message))


def show_counts(counts: Counts, verbose: bool) -> None:
    """Print the table for docs/conformance.md."""
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


def tutorials(checkout: Path) -> int:
    """Return the solutions of p4lang/tutorials, and exercises that come complete, as a Markdown table."""
    exercises = checkout / "exercises" if (checkout / "exercises").is_dir() else checkout
    solved = sorted(exercises.glob("*/solution/*.p4"))
    names = {(path.parent.parent.name, path.name) for path in solved}
    complete = [path for path in sorted(exercises.glob("*/*.p4")) if (path.parent.name, path.name) not in names]
    if not solved:
        print(f"{checkout}: no exercises/*/solution/*.p4 there", file=sys.stderr)
        return 2
    print("| program | outcome | tables | actions |\n|---|---|---|---|")
    wrong = compiled = 0
    for path in [*solved, *complete]:
        tables = actions = ""
        try:
            info = compile_program(path).p4info_message
            outcome, tables, actions = "compiled", str(len(info.tables)), str(len(info.actions))
            compiled += 1
        except CompileError as e:
            outcome = "refused: " + next(d.message for d in e.diagnostics if d.severity == "error")
        except Exception as e:  # noqa: BLE001 - a traceback is what is counted here
            outcome, wrong = f"wrong: {type(e).__name__}", wrong + 1
        print(f"| {path.relative_to(exercises)} | {outcome} | {tables} | {actions} |")
    print(f"\nprograms {len(solved) + len(complete)}  compiled {compiled}  wrong (traceback) {wrong}")
    return 1 if wrong else 0


def load_all(paths: Sequence[Path], switch: Path, *, verbose: bool) -> int:
    """Start simple_switch with the JSON of each program; print how many it loads."""
    version = subprocess.run([switch, "--version"], capture_output=True, text=True, check=True).stdout.strip()
    loaded, failed, refused = 0, {}, 0
    with tempfile.TemporaryDirectory() as name:
        for path in paths:
            try:
                document = compile_program(path).bmv2
            except CompileError:
                refused += 1
                continue
            file = Path(name) / "program.json"
            file.write_text(json.dumps(document), encoding="utf-8")
            said = load(file, switch, Path(name))
            if said is None:
                loaded += 1
            else:
                failed[path.name] = said
    print(f"simple_switch {version}: loaded {loaded} of {loaded + len(failed)}; {refused} do not compile")
    for program, said in failed.items():
        print(f"  not loaded: {program}: {said if verbose else said.splitlines()[-1]}")
    return 1 if failed else 0


def load(file: Path, switch: Path, folder: Path) -> str | None:
    """None when the switch takes the JSON; else what it said."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    # A number of its own keeps the switch's sockets apart from those of others on this machine.
    command = [str(switch), "--thrift-port", str(port), "--device-id", str(port), str(file)]
    with (folder / "said").open("w+") as said:
        process = subprocess.Popen(command, stdout=said, stderr=subprocess.STDOUT)
        try:
            end = time.monotonic() + LOAD_SECONDS
            while time.monotonic() < end and process.poll() is None:
                try:
                    socket.create_connection(("127.0.0.1", port), 0.2).close()
                    return None
                except OSError:
                    time.sleep(0.02)
            said.seek(0)
            return said.read().strip() or f"exit code {process.poll()}"
        finally:
            process.kill()
            process.wait()


def format_all(directory: Path) -> int:
    """Format each program of a directory and its folders in memory, and print the counts."""
    paths, wrong = sorted(directory.rglob("*.p4")), 0
    for path in paths:
        text = path.read_text(encoding="utf-8", errors="replace")
        once = format_text(text)
        what = [] if same_code(text, once) else ["changes more than white space"]
        what += [] if format_text(once) == once else ["changes when formatted again"]
        wrong += bool(what)
        for each in what:
            print(f"  {path.relative_to(directory)}: {each}")
    print(f"programs {len(paths)}  wrong {wrong}")
    return int(wrong > 0)


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("mode", choices=("compile", "errors", "tutorials", "load", "format"))
    parser.add_argument("directory", type=Path)
    parser.add_argument("--p4info", type=Path, help="directory of expected P4Info files")
    parser.add_argument("--pattern", help="programs to take (default: *-bmv2.p4; errors: *.p4)")
    parser.add_argument("--architecture", choices=("v1model", "psa"), default="v1model")
    parser.add_argument("--front", action="store_true", help="stop after the front end")
    parser.add_argument("--simple-switch", type=Path, metavar="PATH", help="BMv2's simple_switch, for load")
    parser.add_argument("-v", "--verbose", action="store_true")
    args = parser.parse_args(argv)
    if not args.directory.is_dir():
        print(f"{args.directory}: not a directory", file=sys.stderr)
        return 2
    if args.mode == "tutorials":
        return tutorials(args.directory)
    if args.mode == "format":
        return format_all(args.directory)
    if args.mode == "load" and args.simple_switch is None:
        print("load needs --simple-switch PATH", file=sys.stderr)
        return 2
    default = "*.p4" if args.mode == "errors" or args.architecture == "psa" else "*-bmv2.p4"
    paths = programs(args.directory, args.pattern or default, args.architecture)
    if not paths:
        print(f"{args.directory}: no programs {args.pattern or default}", file=sys.stderr)
        return 2
    if args.mode == "compile":
        counts = compile_all(paths, front_only=args.front, p4info=args.p4info)
        show_counts(counts, args.verbose)
        return 1 if counts.wrong else 0
    if args.mode == "load":
        return load_all(paths, args.simple_switch, verbose=args.verbose)
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
