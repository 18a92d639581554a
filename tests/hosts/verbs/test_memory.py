"""Memory of the program itself: it is registered where it lies, and may go at any time."""

from __future__ import annotations

import ctypes
import errno
import json
import mmap
import os
import pathlib
import random
import socket
import time
from collections.abc import Iterator

import pytest

from mrc_host import verbs
from mrc_host.verbs import QpState, WcStatus, layout
from support.verbs.bed import Bed, bed, ends

LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.mmap.restype = ctypes.c_void_p
LIBC.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
LIBC.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]


@pytest.fixture(scope="module", params=["mrc", "roce"])
def hosts(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bed]:
    with bed(tmp_path_factory.mktemp("verbs"), transport=request.param) as made:
        yield made


class Mapping:
    """Memory that a test may unmap although something refers to it."""

    def __init__(self, nbytes: int) -> None:
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        self.address = LIBC.mmap(None, nbytes, mmap.PROT_READ | mmap.PROT_WRITE, flags, -1, 0)
        self.nbytes = nbytes
        self.buffer = memoryview((ctypes.c_char * nbytes).from_address(self.address)).cast("B")

    def unmap(self) -> None:
        assert LIBC.munmap(self.address, self.nbytes) == 0


def test_a_buffer_is_written_from_and_to_where_it_lies(hosts: Bed) -> None:
    with ends(hosts) as (a, b):
        source, target = bytearray(random.Random(1).randbytes(300_001)), bytearray(300_100)
        own = verbs.MemoryRegion.over(a.domain, source)
        theirs = verbs.MemoryRegion.over(b.domain, target)
        a.qp.post_write(own.sge(), theirs.addr + 50, theirs.rkey)
        (done,) = a.wait()
        assert done.status is WcStatus.SUCCESS
        assert target == bytes(50) + source + bytes(49)


def test_a_list_may_mix_both_kinds_of_memory(hosts: Bed) -> None:
    with ends(hosts) as (a, b):
        source = bytearray(random.Random(2).randbytes(10_000))
        own = verbs.MemoryRegion.over(a.domain, source)
        a.region.write(b"shared" * 1000)
        local = [own.sge(3, 5000), a.region.sge(0, 6000), own.sge(9000, 1000)]
        a.qp.post_write(local, b.region.addr, b.region.rkey)
        a.wait()
        assert b.region.read(12_000) == source[3:5003] + b"shared" * 1000 + source[9000:]


def test_a_source_that_is_unmapped_ends_the_queue_pair(hosts: Bed) -> None:
    with ends(hosts) as (a, b):
        gone = Mapping(1 << 16)
        own = verbs.MemoryRegion.over(a.domain, gone.buffer)
        gone.unmap()
        a.qp.post_write(own.sge(), b.region.addr, b.region.rkey, wr_id=9)
        (done,) = a.wait()
        assert (done.wr_id, done.status) == (9, WcStatus.LOC_PROT_ERR)
        assert a.qp.query().state is QpState.ERR
        assert a.qp.query().why == "memory of the program is gone"
        assert b.region.read(1 << 16) == bytes(1 << 16)  # no invented bytes were sent
        assert not any(node.faults for node in hosts.nodes)


def test_a_target_that_is_unmapped_ends_both_queue_pairs(hosts: Bed) -> None:
    with ends(hosts) as (a, b):
        gone = Mapping(1 << 16)
        theirs = verbs.MemoryRegion.over(b.domain, gone.buffer)
        gone.unmap()
        a.qp.post_write(a.region.sge(0, 5000), theirs.addr, theirs.rkey)
        (done,) = a.wait()
        assert done.status is WcStatus.REM_OP_ERR
        assert b.qp.query().state is QpState.ERR
        assert b.qp.query().why == "memory of the program is gone"


def test_a_deregistered_buffer_is_out_of_reach(hosts: Bed) -> None:
    with ends(hosts) as (a, b):
        target = bytearray(100)
        theirs = verbs.MemoryRegion.over(b.domain, target)
        theirs.destroy()
        a.qp.post_write(a.region.sge(0, 10), theirs.addr, theirs.rkey)
        (done,) = a.wait()
        assert done.status is WcStatus.REM_ACCESS_ERR


def greet(path: str, files: list[int]) -> dict[str, object]:
    """Say hello with file descriptors beside it; return the answer."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as stream:
        stream.connect(path)
        hello = json.dumps({"op": "hello", "version": layout.VERSION, "pid": os.getpid()}).encode()
        socket.send_fds(stream, [hello], files)
        data, received, _, _ = socket.recv_fds(stream, 1 << 16, 8)
        for fd in received:
            os.close(fd)
        answer: dict[str, object] = json.loads(data)
        return answer


def test_only_the_memory_of_a_process_is_taken(hosts: Bed, tmp_path: pathlib.Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    (tmp_path / "mem").write_bytes(b"")
    for path, flags in (
        ("/dev/zero", os.O_RDWR),
        (str(tmp_path / "mem"), os.O_RDWR),
        ("/proc/self/mem", os.O_RDONLY),
        ("/proc/self", os.O_RDONLY),
    ):
        fd = os.open(path, flags)
        answer = greet(hosts.path(0), [fd])
        os.close(fd)
        assert (answer["ok"], answer["errno"]) == (False, errno.EBADF), path
    fd = os.open("/proc/self/mem", os.O_RDWR)
    assert greet(hosts.path(0), [fd])["ok"]
    os.close(fd)
    assert greet(hosts.path(0), [])["ok"]
    deadline = time.monotonic() + 120
    while len(os.listdir("/proc/self/fd")) > before:  # the agents of this bed share the test's process
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_peers_may_be_named_instead_of_sending_documents(hosts: Bed) -> None:
    with ends(hosts, connected=False) as (a, b):
        for own, other, psns in ((a, b, (0xFFFFFE, 5)), (b, a, (5, 0xFFFFFE))):
            own.qp.modify(QpState.INIT)
            own.qp.modify(sq_psn=psns[0])
            remote = verbs.RemoteQp(
                gid=other.context.address, qp_num=other.qp.qp_num, rq_psn=psns[1], path_mtu=9000, service_time=True
            )
            own.qp.modify(QpState.RTR, remote=remote)
        for own in (a, b):
            own.qp.modify(QpState.RTS)
        data = random.Random(3).randbytes(20_000)
        for own, other in ((a, b), (b, a)):
            own.region.write(data)
            own.qp.post_write(own.region.sge(0, len(data)), other.region.addr + 30_000, other.region.rkey)
            (done,) = own.wait()
            assert done.status is WcStatus.SUCCESS
            assert other.region.read(len(data), 30_000) == data
