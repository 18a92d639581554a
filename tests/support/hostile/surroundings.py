"""Commands in surroundings that lack something: `PYTHONPATH=tests python -m support.hostile.surroundings`, as root.

Each verb runs without a home, with closed or full streams, under limits of the shell, and with full disks. It must end
with 0, 1 or 2, say why it failed in a line that begins with `mrclab: error:` (unless the verdict says it, or the stream
for that is what is missing), print no traceback, and leave no process and no temporary file.

Exit status: 0, 1 (something else happened), 2 (usage).
"""

from __future__ import annotations

import argparse
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence

from support.lab.signals import left_processes

COMMAND = f"{sys.executable} -P -m mrclab.cli"
PATIENCE_S = 120.0
#: A user ID that no account has, so that it has no other processes.
STRANGER = 64321
RUN = "run write_bw --lab tiny --clock virtual --set iterations=2"
#: By name: what runs, `OUT` being a folder that is not there, `PREPARED` that of `PREPARE`.
VERBS = {
    "run": f"{RUN} -o OUT",
    "again": "run --again PREPARED/one -o OUT",
    "sweep": "sweep PREPARED/sweep.yaml -o OUT --workers 0",
    "report": "sweep report PREPARED/sweep",
    "figures": "figures table -o OUT",
    "compare": "compare PREPARED/compare.yaml -o OUT",
    "pack": "artifact pack PREPARED/one -o OUT",
    "check": "artifact check PREPARED/one.zip",
    "web": "web PREPARED/one --port 0",
    "workshop": "workshop check 05 PREPARED/exercise",
    "conform": "conform --only sack -o OUT",
    "up": "up tiny",
    "list": "list",
    "cleanup": "cleanup",
    "version": "--version",
    "help": "run --help",
}
SWEEP = """\
name: small
title: T
experiment: {lab: tiny, workload: {name: write_bw, params: {message_bytes: 4096, iterations: 4}}}
grid: {experiment.workload.params.window: [1, 2]}
"""
COMPARE = """\
name: small
title: T
lab: tiny
workload: {name: write_bw, params: {message_bytes: 4096, iterations: 4}, limit: 60}
variants:
  - {name: MRC, transport: mrc}
  - {name: RoCE, transport: roce}
conditions:
  - {name: no loss}
"""
PREPARE = (
    f"{RUN} -o PREPARED/one",
    "sweep PREPARED/sweep.yaml -o PREPARED/sweep --workers 0",
    "artifact pack PREPARED/one -o PREPARED/one.zip",
    "workshop start 05 PREPARED/exercise",
)
FULL = "mount -t tmpfs -o size=64k none {0}; cat /dev/zero > {0}/filler 2>/dev/null; "
#: By name: what a shell does before, the words before the command, and redirections after it. `HERE` is a new folder.
SURROUNDINGS = {
    "as usual": ("", "", ""),
    "home absent": ("export HOME=HERE/absent/home; unset MRCLAB_CACHE; ", "", ""),
    "home unset": ("unset HOME MRCLAB_CACHE; ", "", ""),
    "home read-only": (
        "mkdir HERE/home; mount -t tmpfs -o ro none HERE/home; export HOME=HERE/home; unset MRCLAB_CACHE; ",
        "",
        "",
    ),
    "home full": (
        "mkdir HERE/home; " + FULL.format("HERE/home") + "export HOME=HERE/home; unset MRCLAB_CACHE; ",
        "",
        "",
    ),
    "output closed": ("", "", ">&-"),
    "output full": ("", "", ">/dev/full"),
    "errors closed": ("", "", "2>&-"),
    "errors full": ("", "", "2>/dev/full"),
    "both closed": ("", "", ">&- 2>&-"),
    "both full": ("", "", ">/dev/full 2>/dev/full"),
    "input closed": ("", "", "<&-"),
    "all closed": ("", "", "<&- >&- 2>&-"),
    "200 MB": ("ulimit -v 200000; ", "", ""),
    "300 MB": ("ulimit -v 300000; ", "", ""),
    "600 MB": ("ulimit -v 600000; ", "", ""),
    "16 files": ("ulimit -n 16; ", "", ""),
    "64 files": ("ulimit -n 64; ", "", ""),
    "files of 0 bytes": ("ulimit -f 0; ", "", ""),
    "files of 4 KiB": ("ulimit -f 4; ", "", ""),
    "files of 64 KiB": ("ulimit -f 64; ", "", ""),
    "1 process": ("ulimit -u 1; ", f"setpriv --reuid={STRANGER} --regid={STRANGER} --clear-groups -- ", ""),
    "4 processes": ("ulimit -u 4; ", f"setpriv --reuid={STRANGER} --regid={STRANGER} --clear-groups -- ", ""),
    "temporary full": (FULL.format("$TMPDIR"), "", ""),
    "all full": (FULL.format("HERE"), "", ""),
}


def left(temporary: pathlib.Path) -> list[str]:
    """Return temporary files that are left."""
    return [str(path) for path in temporary.rglob("*") if path.is_file() and path.name != ".lock"]


def attempt(words: str, surrounding: str, prepared: pathlib.Path, here: pathlib.Path) -> tuple[int, str, list[str]]:
    """Run a command in a surrounding; return its exit code, what it said, and what was wrong."""
    before, wrapper, after = SURROUNDINGS[surrounding]
    temporary = here / "tmp"
    temporary.mkdir(parents=True)
    if wrapper:
        os.chown(here, STRANGER, STRANGER)
        os.chown(temporary, STRANGER, STRANGER)
    words = words.replace("PREPARED", str(prepared)).replace("OUT", str(here / "out"))
    script = f"{before}cd HERE; exec {wrapper}{COMMAND} {words} {after}".replace("HERE", str(here))
    environment = {**os.environ, "TMPDIR": str(temporary), "MRCLAB_RUN": str(here / "run")}
    # `exec` in a shell of its own session: what a limit of the shell ends early is seen, too.
    command = ["unshare", "-m", "--propagation", "private", "timeout", "-s", "INT", "-k", "20"]
    command += ["8" if words.startswith("web") else str(PATIENCE_S), "bash", "-c", script]
    pipe = subprocess.PIPE
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, text=True, env=environment, start_new_session=True
    )
    said, told = process.communicate()
    code = process.returncode
    if words.startswith("up"):
        subprocess.run(
            [*COMMAND.split(), "down", "--all"],
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
        )
    wrong = []
    # `web` goes on until it is ended, and `figures` has a code for figures that could not run.
    if code not in (0, 1, 2, *{"web": (124,), "figures": (3,)}.get(words.split()[0], ())):
        wrong.append(f"exit {code}")
    if "Traceback" in said + told:
        wrong.append("a traceback")
    if "Exception ignored" in said + told:
        wrong.append("an exception ignored")
    if code in (1, 2) and "2>" not in after and "mrclab: error:" not in told and "not good" not in said:
        wrong.append("no error line")
    if files := left(temporary):
        wrong.append(f"left {files[:3]}")
    if processes := left_processes(process.pid, temporary):
        wrong.append(f"left processes {processes[:3]}")
    return code, told or said, wrong


def main(arguments: Sequence[str]) -> int:
    """Run as the entry point; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m support.hostile.surroundings")
    parser.add_argument("verbs", nargs="*", choices=[[], *VERBS], metavar="VERB", help=f"of {', '.join(VERBS)}")
    parser.add_argument("--in", dest="where", action="append", choices=[*SURROUNDINGS], help="one of the surroundings")
    parser.add_argument("--all", action="store_true", help="print what each command said")
    given = parser.parse_args(arguments)
    bad = tried = 0
    with tempfile.TemporaryDirectory(prefix="mrclab-surroundings-") as name:
        top = pathlib.Path(name)
        os.chmod(top, 0o755)
        prepared = top / "prepared"
        prepared.mkdir()
        (prepared / "sweep.yaml").write_text(SWEEP)
        (prepared / "compare.yaml").write_text(COMPARE)
        for words in PREPARE:
            subprocess.run(
                [*COMMAND.split(), *words.replace("PREPARED", str(prepared)).split()], check=True, capture_output=True
            )
        for surrounding in given.where or SURROUNDINGS:
            for verb in given.verbs or VERBS:
                here = top / "here"
                code, told, wrong = attempt(VERBS[verb], surrounding, prepared, here)
                shutil.rmtree(here, ignore_errors=True)
                tried += 1
                bad += bool(wrong)
                if wrong or given.all:
                    lines = "\n    ".join(told.strip().splitlines()[-6:])
                    print(f"{verb}, {surrounding}: exit {code}; {'; '.join(wrong) or 'fine'}\n    {lines}", flush=True)
    print(f"{tried} commands, {bad} of them not as they should")
    return int(bool(bad))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
