"""Counts of the compiler over whole repositories of others, which are read from checkouts and never copied.

    python tests/p4/conformance_repositories.py FOLDER [--jobs N] [--timeout S] [--p4c PATH] [--markdown] [-v]

FOLDER holds one checkout a sub-folder. Of each, the programs are the .p4 files that include v1model.p4, themselves or
by the files that they include, and instantiate `main`; copies (files of equal text in one repository) count once. A
program is compiled in a process of its own, with the include folders and macros of INCLUDES where a repository's own
build gives any. It ends as

    compiled     BMv2 JSON and P4Info were made, and the switch makes C of the JSON
    refused      an error of ours with file and line, counted by what it says
    wrong        anything else: a traceback, no end within the timeout, a JSON that the switch refuses

With --p4c (p4c-bm2-ss) every program is given to it too: programs that it alone takes, programs that only we take,
whether the P4Info messages of programs that both take are equal, and whether p4c finds an error in the line that we
refuse; with -v both messages are printed where it does not. Exit code 1 when anything was wrong.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*[<"]([^>"\n]+)[>"]', re.M)
#: A program that any p4c takes.
NOTHING = """
#include <core.p4>
#include <v1model.p4>
struct empty {}
parser P(packet_in p, out empty h, inout empty m, inout standard_metadata_t s) { state start { transition accept; } }
control V(inout empty h, inout empty m) { apply {} }
control I(inout empty h, inout empty m, inout standard_metadata_t s) { apply {} }
control D(packet_out p, in empty h) { apply {} }
V1Switch(P(), V(), I(), I(), V(), D()) main;
"""
#: An error of p4c or of its preprocessor, with its place.
P4C_ERROR = re.compile(r"^(?P<file>[^\s:(]+)(?:\((?P<line>\d+)\)|:(?P<cpp_line>\d+):\d+):.*error.*", re.M)
MAIN = re.compile(r"\bV1Switch\b[^;]*\)\s*main\s*;", re.S)
CHILD_FAILED = 3
INCLUDES: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "onos/pipelines/fabric": ((), ("CPU_PORT=255",)),
    "fabric-tna": (("p4src",), ()),
    "sonic-pins": ((".", "sai_p4/instantiations/google"), ()),
    "DASH": (("dash-pipeline/bmv2",), ("TARGET_BMV2_V1MODEL",)),
}
"""Include folders and macros by a repository's folder, or one in it, as its own Makefile or BUILD file gives them."""


@dataclass(frozen=True)
class Outcome:
    """One program: what became of it here, what was said, and whether p4c takes it (None: not asked).

    Of a program that both refuse: `p4c_error` is the first error of p4c, and `same_place` whether one of its errors is
    in the file and line of ours.
    """

    path: str
    outcome: str
    message: str
    p4c: bool | None = None
    p4info_equal: bool | None = None
    p4c_error: str = ""
    same_place: bool | None = None


def closure(path: Path, folders: Sequence[Path], texts: dict[Path, str]) -> str:
    """Return the text of a file with the files that it includes in their place, as far as they are in the checkout."""
    if path in texts:
        return ""
    text = texts[path] = path.read_text(encoding="utf-8", errors="replace")

    def inner(match: re.Match[str]) -> str:
        found = [f / match[1] for f in (path.parent, *folders) if (f / match[1]).is_file()]
        return closure(found[0].resolve(), folders, texts) if found else match[0]

    return INCLUDE.sub(inner, text)


def programs(checkout: Path) -> list[Path]:
    """Return the v1model programs of a checkout: copies, and files that another program includes, left out."""
    found: dict[str, Path] = {}
    parts: set[Path] = set()
    for path in sorted(p.resolve() for p in checkout.rglob("*.p4") if p.is_file()):
        texts: dict[Path, str] = {}
        whole = closure(path, given(path, checkout)[0], texts)
        if MAIN.search(whole) and any(Path(name).name == "v1model.p4" for name in INCLUDE.findall(whole)):
            found.setdefault(hashlib.sha256(whole.encode()).hexdigest(), path)
            parts |= set(texts) - {path}
    return sorted(path for path in found.values() if path not in parts)


def given(path: Path, checkout: Path) -> tuple[list[Path], list[str]]:
    """Return the include folders and the macros for a program of a checkout."""
    folders: list[Path] = []
    macros: list[str] = []
    for where, (names, definitions) in INCLUDES.items():
        if f"{checkout.name}/{path.relative_to(checkout)}".startswith(f"{where}/"):
            folders += [checkout / name for name in names]
            macros += definitions
    return folders, macros


def options(path: Path, checkout: Path) -> list[str]:
    """They as options -I and -D."""
    folders, macros = given(path, checkout)
    return [*(f"-I{folder}" for folder in folders), *(f"-D{macro}" for macro in macros)]


def child(argv: Sequence[str]) -> int:
    """Compile one program; print a JSON object with the outcome."""
    from p4lite.compiler import compile_program
    from p4lite.compiler.diagnostics import CompileError
    from p4lite.switch.runtime.loader import load_program

    path, p4info, *rest = argv
    folders = [o[2:] for o in rest if o.startswith("-I")]
    macros = [o[2:] for o in rest if o.startswith("-D")]
    try:
        compiled = compile_program(path, folders, macros)
        Path(p4info).write_text(compiled.p4info, encoding="utf-8")
    except CompileError as e:
        first = next(d for d in e.diagnostics if d.severity == "error")
        print(json.dumps(["refused", first.message, f"{Path(first.pos.file).name}:{first.pos.line}"]))
        return 0
    load_program(compiled.bmv2)
    print(json.dumps(["compiled", "", ""]))
    return 0


def run(path: Path, checkout: Path, timeout: float, p4c: Path | None) -> Outcome:
    """Compile one program here and, if asked, with p4c."""
    name, place = str(path.relative_to(checkout)), ""
    with tempfile.TemporaryDirectory() as folder:
        ours, theirs = Path(folder) / "ours.txtpb", Path(folder) / "theirs.txtpb"
        command = [sys.executable, __file__, "--child", str(path), str(ours), *options(path, checkout)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)
        except subprocess.TimeoutExpired:
            outcome, message = "wrong", f"not done in {timeout:.0f} s"
        else:
            if done.returncode == 0:
                outcome, message, place = json.loads(done.stdout)
            else:
                outcome, message = "wrong", (done.stderr.strip().splitlines() or [f"exit {done.returncode}"])[-1]
        if p4c is None:
            return Outcome(name, outcome, message)
        command = [
            str(p4c),
            "--std",
            "p4-16",
            *options(path, checkout),
            "-o",
            os.devnull,
            "--p4runtime-files",
            str(theirs),
        ]
        try:
            taken = subprocess.run([*command, str(path)], capture_output=True, text=True, timeout=timeout, check=False)
            accepted, said = taken.returncode == 0, taken.stderr
        except subprocess.TimeoutExpired:
            accepted, said = False, f"not done in {timeout:.0f} s"
        if accepted:
            equal = same_p4info(ours, theirs) if outcome == "compiled" else None
            return Outcome(name, outcome, message, accepted, equal)
        errors = list(P4C_ERROR.finditer(said))
        same = any(f"{Path(each['file']).name}:{each['line'] or each['cpp_line']}" == place for each in errors)
        first = errors[0][0] if errors else (said.strip().splitlines() or ["no message"])[0]
        return Outcome(name, outcome, message, accepted, None, first, same if outcome == "refused" else None)


def same_p4info(ours: Path, theirs: Path) -> bool:
    """Return whether two files hold equal P4Info messages."""
    from google.protobuf import text_format

    from p4lite.messages import p4info_pb2

    messages = []
    for path in (ours, theirs):
        messages.append(p4info_pb2.P4Info())
        text_format.Parse(path.read_text(encoding="utf-8"), messages[-1], allow_unknown_field=True)
    return bool(messages[0] == messages[1])


def p4c_problem(p4c: Path) -> str:
    """Return why p4c cannot be compared with, or "": it must take `NOTHING`."""
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "nothing.p4"
        program.write_text(NOTHING, encoding="utf-8")
        try:
            done = subprocess.run(
                [str(p4c), str(program), "-o", os.devnull], capture_output=True, text=True, timeout=300, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return f"{p4c}: {error}"
    if done.returncode == 0:
        return ""
    said = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[0]
    return f"{p4c} does not compile v1model.p4 ({said}): set P4C_16_INCLUDE_PATH to its p4include folder"


def report(results: dict[str, list[Outcome]], *, asked: bool, markdown: bool, verbose: bool) -> None:
    """Print the table, then each refusal and each wrong program."""
    head = ["repository", "programs", "compiled", "refused", "wrong"]
    if asked:
        head += ["taken by p4c only", "taken here only", "P4Info equal", "P4Info different"]
        head += ["refused by both in one line", "in different lines"]
    print("| " + " | ".join(head) + " |\n" + "|---" * len(head) + "|" if markdown else "  ".join(head))
    everything = [o for outcomes in results.values() for o in outcomes]
    for name, outcomes in [*results.items(), ("total", everything)]:
        counts = Counter(o.outcome for o in outcomes)
        cells = [len(outcomes), counts["compiled"], counts["refused"], counts["wrong"]]
        if asked:
            cells += [
                sum(o.p4c is True and o.outcome != "compiled" for o in outcomes),
                sum(o.p4c is False and o.outcome == "compiled" for o in outcomes),
                sum(o.p4info_equal is True for o in outcomes),
                sum(o.p4info_equal is False for o in outcomes),
                sum(o.same_place is True for o in outcomes),
                sum(o.same_place is False for o in outcomes),
            ]
        row = [name, *map(str, cells)]
        print("| " + " | ".join(row) + " |" if markdown else "  ".join(row))
    reasons = Counter(re.sub(r"'[^']*'", "'...'", o.message) for o in everything if o.outcome == "refused")
    print()
    for reason, count in reasons.most_common():
        print(f"| {reason} | {count} |" if markdown else f"{count:5} {reason}")
    for name, outcomes in results.items():
        for o in outcomes:
            if o.outcome == "wrong" or (verbose and o.outcome != "compiled"):
                print(f"{o.outcome:8} {name}/{o.path}: {o.message}")
            if verbose and o.same_place is False:
                print(f"  p4c    {o.p4c_error}")
            if o.p4c is True and o.outcome == "refused" and not verbose:
                print(f"p4c only {name}/{o.path}: {o.message}")
            if o.p4info_equal is False:
                print(f"P4Info   {name}/{o.path}")


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point."""
    words = list(sys.argv[1:] if argv is None else argv)
    if words[:1] == ["--child"]:
        return child(words[1:])
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path, metavar="FOLDER")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--timeout", type=float, default=300.0, metavar="SECONDS", help="for each program")
    parser.add_argument("--p4c", type=Path, metavar="PATH", help="p4c-bm2-ss, to compare with")
    parser.add_argument("--markdown", action="store_true", help="tables for docs/conformance.md")
    parser.add_argument("-v", "--verbose", action="store_true", help="name every program that does not compile")
    arguments = parser.parse_args(words)
    if arguments.p4c is not None and (problem := p4c_problem(arguments.p4c)):
        print(problem, file=sys.stderr)
        return 2
    checkouts = (
        sorted(p.resolve() for p in arguments.folder.iterdir() if p.is_dir()) if arguments.folder.is_dir() else []
    )
    work = {c: programs(c) for c in checkouts}
    if not any(work.values()):
        print(f"{arguments.folder}: no checkouts with v1model programs there", file=sys.stderr)
        return 2
    results: dict[str, list[Outcome]] = {}
    with ThreadPoolExecutor(arguments.jobs) as pool:
        for checkout, paths in work.items():
            runs = [pool.submit(run, p, checkout, arguments.timeout, arguments.p4c) for p in paths]
            if runs:
                results[checkout.name] = [r.result() for r in runs]
    report(results, asked=arguments.p4c is not None, markdown=arguments.markdown, verbose=arguments.verbose)
    return int(any(o.outcome == "wrong" for outcomes in results.values() for o in outcomes))


if __name__ == "__main__":
    sys.exit(main())
