"""Programs in the hosts of a real lab: they reach their host's agent by name, and each other through the fabric."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys

import pytest

from support.amount import first
from support.lab.labs import lab_file

COMMAND = [sys.executable, "-c", "from mrclab.cli.app import main; main()"]
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
BOTH = """
import struct
from mrc_host import verbs
from mrc_host.verbs import Access, RingOpcode, Wire
ALL = Access.LOCAL_WRITE | Access.REMOTE_WRITE | Access.REMOTE_READ | Access.REMOTE_ATOMIC
DATA = bytes(range(256)) * 256
with verbs.open_device() as context:
    domain = verbs.ProtectionDomain(context)
    cq = verbs.CompletionQueue(context, 64, verbs.CompletionChannel(context))
    region = verbs.MemoryRegion(domain, 1 << 18, ALL)
    qps = [verbs.QueuePair(domain, cq, wire=wire) for wire in (Wire.ROCE, Wire.MRC, *[Wire.ROCE] * 6)]
    mine = {"qps": [qp.document() for qp in qps], "region": region.remote}
    theirs = verbs.exchange("/run/lab/meet", mine, 60)
    for qp, document in zip(qps, theirs["qps"]):
        qp.connect(document)
    addr, rkey, _ = theirs["region"]
    def wait(count):
        found = []
        while len(found) < count:
            found += cq.wait(60) or exit("nothing completes")
        assert all(each.status.name == "SUCCESS" for each in found), found
        return found
    if context.host == "h0":
        region.write(DATA)
        verbs.exchange("/run/lab/ready", None, 60)
        for qp in qps[:1] + qps[2:]:
            qp.post_message(region.sge(0, 1 << 14))
            qp.post_read(region.sge(1 << 17, 1 << 16), addr + (1 << 17), rkey)
            qp.post_atomic(RingOpcode.FETCH_ADD, region.sge(1 << 16, 8), addr + (1 << 16), rkey, 3)
        qps[1].post_write_imm(region.sge(0, 1 << 14), addr + (1 << 16) + 8, rkey, 77)
        wait(3 * 7 + 1)
        print(region.read(1 << 16, 1 << 17) == DATA[::-1], context.transport)
        verbs.exchange("/run/lab/done", None, 60)
    else:
        region.write(DATA[::-1], 1 << 17)
        for qp in qps[:1] + qps[2:]:
            qp.post_recv(0, local=region.sge(0, 1 << 14))
        qps[1].post_recv(1)
        verbs.exchange("/run/lab/ready", None, 60)
        wait(8)
        verbs.exchange("/run/lab/done", None, 60)
        print(region.read(1 << 14) == DATA[:1 << 14], struct.unpack("=Q", region.read(8, 1 << 16))[0],
              region.read(1 << 10, (1 << 16) + 8) == DATA[:1 << 10])
"""


@pytest.mark.lab
@pytest.mark.slow
@pytest.mark.parametrize("mode", first(["srv6_usid", "structured_ev", "ecmp"]))
def test_both_transports_go_through_one_lab(tmp_path: pathlib.Path, mode: str) -> None:
    """In each way of routing that an MRC lab has, packets of RoCE find their path; a lab of RoCE serves MRC as well."""
    environment = {**os.environ, "COLUMNS": "200", "MRCLAB_RUN": str(tmp_path / "run")}
    path = lab_file(tmp_path, "tiny", hosts=2, hosts_per_t0=1, ev={"size": 32, "active": 16}, routing={"mode": mode})

    def mrclab(*words: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [*COMMAND, *words], env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )

    def said(process: subprocess.Popen[str]) -> str:
        with process:
            text, _ = process.communicate(timeout=180)
        assert process.returncode == 0, text
        return text

    for transport in ("mrc", "roce"):
        said(mrclab("up", path, "--transport", transport))
        try:
            first, second = (mrclab("exec", host, "--", sys.executable, "-c", BOTH) for host in ("h0", "h1"))
            assert said(first).split() == ["True", transport]
            assert said(second).split() == ["True", "21", "True"]
        finally:
            said(mrclab("down"))


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
