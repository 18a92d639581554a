"""Runs PTF tests of others on `p4lite switch`, in a network namespace of its own (root).

    python tests/p4/conformance_ptf.py CHECKOUT --ptf PTF [--only TEXT] [--timeout S]

CHECKOUT is a checkout of jafingerhut/p4-guide or opennetworkinglab/ngsdn-tutorial; the tests stay there. PTF is the
`ptf` command of an environment that has ptf and p4runtime-shell. Each test script gets a switch with eight ports and
passes when `ptf` does. Exit code 0 when all that ran passed, 2 when there is nothing to run.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from p4lite.compiler import compile_text
from p4lite.compiler.diagnostics import CompileError

REWRITES = (
    (
        r"\bclone3\(([^,{]*),([^,{]*),\s*\{ standard_metadata.ingress_port \}\)",
        r"local_metadata.from_port = standard_metadata.ingress_port; clone_preserving_field_list(\1, \2, 1)",
    ),
    (r"(standard_metadata\.egress_spec = CPU_PORT;)", r"\1 local_metadata.from_port = standard_metadata.ingress_port;"),
    (r"(hdr\.cpu_in\.ingress_port =) standard_metadata\.ingress_port;", r"\1 local_metadata.from_port;"),
    (r"(struct local_metadata_t \{)", r"\1 @field_list(1) bit<9> from_port;"),
)
"""For a program that calls clone3, which p4c refuses today as we do: what the error says in its place."""

PORTS = 8
ADDRESS = "127.0.0.1:9559"
SWITCH = [sys.executable, "-c", "import sys; from p4lite.cli import main; sys.exit(main())", "switch"]


@dataclass(frozen=True)
class Case:
    """A program and the PTF script for it; `preload`: the switch starts with the program, its ports from 1."""

    program: str
    script: str
    cpu_port: int = 510
    preload: bool = False


CASES = {
    "testlib/p4runtime_shell_utils.py": [
        Case("demo1/demo1.p4_16.p4", "demo1/ptf/demo1.py"),
        Case("demo2/demo2.p4_16.p4", "demo2/ptf/demo2.py"),
        Case("demo7/demo7.p4", "demo7/ptf/demo7.py"),
        Case("lpmtester/lpmtester.p4", "lpmtester/ptf/lpmtester.py"),
        Case("lpmtester/lpmwidth20bits/lpmtester.p4", "lpmtester/lpmwidth20bits/ptf/lpmtester.py"),
        *(
            Case(f"initial-table-entries/{kind}-entries-bmv2.p4", "initial-table-entries/dump_t1_entries.py")
            for kind in ("const", "init", "no")
        ),
        Case("ptf-tests/duplicatekeys/duplicatekeys.p4", "ptf-tests/duplicatekeys/duplicatekeys.py"),
        Case("ptf-tests/idletimeout/idletimeout.p4", "ptf-tests/idletimeout/idletimeout.py"),
        Case("ptf-tests/matchkinds/matchkinds.p4", "ptf-tests/matchkinds/matchkinds.py"),
        Case("ptf-tests/packetinout/packetinout.p4", "ptf-tests/packetinout/packetinout.py"),
        Case("ptf-tests/registeraccess/registeraccess.p4", "ptf-tests/registeraccess/registeraccess.py"),
    ],
    "ptf/lib/base_test.py": [
        Case("solution/p4src/main.p4", f"solution/ptf/tests/{name}.py", cpu_port=255, preload=True)
        for name in ("bridging", "packetio", "routing", "srv6")
    ],
}
"""Test scripts by a file that tells the repository."""


def sh(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True)


def run(case: Case, checkout: Path, ptf: Path, timeout: float) -> tuple[str, str]:
    """(outcome, what was said) of one script."""
    script = checkout / case.script
    namespace = f"ptf{os.getpid()}"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        source = checkout / case.program
        text = source.read_text(encoding="utf-8")
        for pattern, replacement in REWRITES if "clone3(" in text else ():
            text = re.sub(pattern, replacement, text)
        try:
            compiled = compile_text(text, source)
        except CompileError as error:
            return "failed", next(str(d) for d in error.diagnostics if d.severity == "error")
        program, p4info = folder / "program.json", folder / "program.txtpb"
        program.write_text(json.dumps(compiled.bmv2), encoding="utf-8")
        p4info.write_text(compiled.p4info, encoding="utf-8")
        (folder / "map.json").write_text(
            json.dumps([{"ptf_port": i, "p4_port": i + 1, "iface_name": f"t{i}"} for i in range(PORTS)]),
            encoding="utf-8",
        )
        (folder / "tests").mkdir()
        (folder / "tests" / script.name).write_bytes(script.read_bytes())
        sh("ip", "netns", "add", namespace)
        try:
            inside = ["ip", "netns", "exec", namespace]
            sh(*inside, "ip", "link", "set", "lo", "up")
            sh(*inside, "sysctl", "-qw", "net.ipv6.conf.all.disable_ipv6=1", "net.ipv6.conf.default.disable_ipv6=1")
            first = 1 if case.preload else 0
            ports: list[str] = []
            for i in range(PORTS):
                sh(*inside, "ip", "link", "add", f"s{i}", "type", "veth", "peer", "name", f"t{i}")
                for end in (f"s{i}", f"t{i}"):
                    sh(*inside, "ip", "link", "set", end, "up")
                ports += ["-i", f"{i + first}@s{i}"]
            start = [str(program), "--p4info", str(p4info)] if case.preload else ["--no-p4"]
            device = "1" if case.preload else "0"
            more = ["--device-id", device, "--cpu-port", str(case.cpu_port), "--grpc-server-addr", ADDRESS]
            with subprocess.Popen(
                [*inside, *SWITCH, *start, *more, *ports], stdout=subprocess.PIPE, text=True
            ) as switch:
                try:
                    assert switch.stdout is not None
                    if not switch.stdout.readline().startswith("ready "):
                        return "failed", "the switch did not start"
                    return run_ptf(case, checkout, folder, [*inside, str(ptf)], timeout)
                finally:
                    switch.terminate()
        finally:
            subprocess.run(["ip", "netns", "del", namespace], check=False, capture_output=True)


def run_ptf(case: Case, checkout: Path, folder: Path, command: list[str], timeout: float) -> tuple[str, str]:
    """Run `ptf` in the namespace."""
    values = {
        "grpcaddr": ADDRESS,
        "p4info": str(folder / "program.txtpb"),
        "config": str(folder / "program.json"),
        "port_map": str(folder / "map.json"),
    }
    params = ";".join([*(f"{k}='{v}'" for k, v in values.items()), "device_id=1", f"cpu_port={case.cpu_port}"])
    interfaces = [word for i in range(PORTS) for word in ("-i", f"{i + case.preload}@t{i}")]
    library = f"{checkout / 'testlib'}:{checkout / 'ptf/lib'}"
    arguments = ["--pypath", library, *interfaces, "--test-params", params, "--test-dir", str(folder / "tests")]
    try:
        done = subprocess.run(
            [*command, *arguments],
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
            cwd=folder,
            env={**os.environ, "PYTHONPATH": library},
        )
    except subprocess.TimeoutExpired:
        return "failed", f"not done in {timeout:.0f} s"
    lines = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
    if done.returncode == 0:
        return "passed", next((line for line in lines if line.startswith("Ran ")), "")
    return "failed", "\n    ".join(lines[-30:])


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("checkout", type=Path, metavar="CHECKOUT")
    parser.add_argument("--ptf", type=Path, required=True, metavar="PTF")
    parser.add_argument("--only", default="", metavar="TEXT", help="scripts whose path contains TEXT")
    parser.add_argument("--timeout", type=float, default=300.0, metavar="SECONDS")
    arguments = parser.parse_args(argv)
    checkout = arguments.checkout.resolve()
    cases = next((c for mark, c in CASES.items() if (checkout / mark).is_file()), [])
    cases = [case for case in cases if arguments.only in case.script]
    missing = [
        what for what, there in (("root", os.geteuid() == 0), (f"{arguments.ptf}", arguments.ptf.exists())) if not there
    ]
    if not cases or missing:
        why = f"needs {', '.join(missing)}" if missing else "no checkout of p4-guide or ngsdn-tutorial"
        print(f"{checkout}: nothing run: {why}", file=sys.stderr)
        return 2
    failed = 0
    for case in cases:
        outcome, said = run(case, checkout, arguments.ptf.absolute(), arguments.timeout)
        failed += outcome != "passed"
        print(f"{outcome:8}{case.script} on {Path(case.program).name}  {said}", flush=True)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
