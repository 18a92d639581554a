"""Programs in the hosts of a real lab: they reach their host's agent by name, and each other through the fabric."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys

import pytest

from support.lab.labs import lab_file

COMMAND = [sys.executable, "-c", "from mrc_cli.app import main; main()"]
PROGRAM = """
import sys
from mrc_host import verbs
with verbs.open_device() as context:
    domain = verbs.ProtectionDomain(context)
    cq = verbs.CompletionQueue(context, 16, verbs.CompletionChannel(context))
    region = verbs.MemoryRegion(domain, 1 << 17)
    qp = verbs.QueuePair(domain, cq)
    theirs = verbs.exchange("/run/lab/meet", {"qp": qp.document(), "region": region.remote}, 60)
    qp.connect(theirs["qp"])
    addr, rkey, _ = theirs["region"]
    if context.host == "h0":
        region.write(bytes(range(256)) * 256)
        verbs.exchange("/run/lab/ready", None, 60)
        qp.post_write_imm(region.sge(0, 1 << 16), addr + (1 << 16), rkey, 77)
    else:
        qp.post_recv(5)
        verbs.exchange("/run/lab/ready", None, 60)
    (done,) = cq.wait(60)
    print(context.host, done.status.name, done.opcode.name, done.byte_len, done.imm_data)
    if context.host == "h1":
        print(region.read(1 << 16, 1 << 16) == bytes(range(256)) * 256)
    print(verbs.open_device("h1").host, context.query_device().max_qp)
"""


@pytest.mark.lab
@pytest.mark.slow
def test_two_programs_write_through_a_lab(tmp_path: pathlib.Path) -> None:
    environment = {**os.environ, "COLUMNS": "200", "MRCLAB_RUN": str(tmp_path / "run")}
    path = lab_file(
        tmp_path, "tiny", hosts=2, hosts_per_t0=1, ev={"size": 32, "active": 16}, agents={"verbs": {"queue_pairs": 7}}
    )

    def mrclab(*words: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [*COMMAND, *words], env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )

    def said(process: subprocess.Popen[str]) -> str:
        with process:
            text, _ = process.communicate(timeout=180)
        assert process.returncode == 0, text
        return text

    said(mrclab("up", path))
    try:
        programs = [mrclab("exec", host, "--", sys.executable, "-c", PROGRAM) for host in ("h0", "h1")]
        assert [said(each).splitlines() for each in programs] == [
            ["h0 SUCCESS RDMA_WRITE 65536 0", "h1 7"],
            ["h1 SUCCESS RECV_RDMA_WITH_IMM 65536 77", "True", "h1 7"],
        ]
    finally:
        said(mrclab("down", "tiny"))
