"""Programs that die, agents that die, programs that write nonsense: errors in time, nothing left, nobody harmed."""

from __future__ import annotations

import contextlib
import gc
import os
import pathlib
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mrc_host import verbs
from mrc_host.verbs import Access, DeviceLostError, EventType, QpState, VerbsError, WcStatus, layout
from mrc_host.verbs.requests import DeregMr, DestroyQp, RegMr
from mrclab.lab.processes.namespaces import is_machine_root
from support.amount import examples
from support.lab import users
from support.verbs.bed import Bed, End, bed, ends, open_end, process

#: Opens a device, connects a queue pair by a rendezvous, says so, and does nothing more.
IDLER = """
import sys, time
from mrc_host import verbs
context = verbs.open_device(sys.argv[1])
domain = verbs.ProtectionDomain(context)
cq = verbs.CompletionQueue(context, 16, verbs.CompletionChannel(context))
region = verbs.MemoryRegion(domain, 1 << 20)
qp = verbs.QueuePair(domain, cq)
with verbs.Rendezvous.at(sys.argv[2]) as meeting:
    qp.connect(meeting.exchange(qp.document()))
    meeting.exchange(region.remote)
time.sleep(600)
"""


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bed]:
    with bed(tmp_path_factory.mktemp("verbs")) as made:
        yield made


def until(true: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 120
    while not true():
        assert time.monotonic() < deadline, what
        time.sleep(0.01)


@contextlib.contextmanager
def idler(device: str, meeting: pathlib.Path) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-c", IDLER, device, str(meeting)]) as program:
        try:
            yield program
        finally:
            program.kill()


def test_a_killed_program_leaves_nothing_and_its_peer_an_error(hosts: Bed, tmp_path: pathlib.Path) -> None:
    host = hosts.nodes[1]
    gc.collect()
    before = len(os.listdir("/proc/self/fd"))
    with ends(hosts) as (witness, _), idler(hosts.path(1), tmp_path / "meet") as program:
        a = open_end(hosts.path(0))
        with verbs.Rendezvous.at(tmp_path / "meet") as meeting:
            a.qp.connect(meeting.exchange(a.qp.document()))
            peer = verbs.RemoteMemory(*meeting.exchange(a.region.remote))
        assert not list(tmp_path.iterdir()), "the rendezvous tidies up"
        a.qp.post_write(a.region.sge(0, 8), peer.addr, peer.rkey)
        assert a.wait()[0].status is WcStatus.SUCCESS
        assert len(host.programs.connected) == 2
        program.send_signal(signal.SIGKILL)
        until(lambda: len(host.programs.connected) == 1, "the agent has not noticed")
        assert peer.rkey not in host.endpoint.context.memory.regions  # type: ignore[attr-defined]
        event = a.context.get_async_event(30)  # though it only waits
        assert event is not None
        assert (event.type, event.element, event.text) == (EventType.QP_FATAL, a.qp.qp_num, "remote operation error")
        event.ack()
        a.qp.post_write(a.region.sge(0, 8), peer.addr, peer.rkey)
        (done,) = a.wait()
        assert done.status is WcStatus.WR_FLUSH_ERR
        assert a.qp.query().state is QpState.ERR
        witness.qp.post_write(witness.region.sge(0, 8), *witness.peer[:2])
        assert witness.wait()[0].status is WcStatus.SUCCESS
        a.context.close()
    until(lambda: not any(node.programs.connected for node in hosts.nodes), "programs are left")
    until(lambda: not hosts.nodes[1].command("statistics", {}, time.monotonic_ns())["qps"], "queue pairs are left")
    del witness, _, a, event
    gc.collect()  # of the programs in this process
    assert len(os.listdir("/proc/self/fd")) <= before + 2, "file descriptors are left"


FORKER = """
import os, sys, time
from mrc_host import verbs
context = verbs.open_device(sys.argv[1])
if os.fork():
    print("open", flush=True)
time.sleep(600)
"""


def test_a_child_does_not_hide_the_death_of_its_parent(hosts: Bed) -> None:
    """Workers of a data loader outlive the program that forked them by seconds."""
    programs = hosts.nodes[1].programs.connected
    before = len(programs)
    with subprocess.Popen(
        [sys.executable, "-c", FORKER, hosts.path(1)], stdout=subprocess.PIPE, process_group=0
    ) as program:
        try:
            assert program.stdout is not None
            assert program.stdout.readline() == b"open\n"
            assert len(programs) == before + 1
            program.kill()
            program.wait(30)
            until(lambda: len(programs) == before, "the agent has not noticed")
        finally:
            os.killpg(program.pid, signal.SIGKILL)  # the child


FORKED = """
import os, signal, sys, threading
from mrc_host import verbs
context = verbs.open_device(sys.argv[1])
domain = verbs.ProtectionDomain(context)
cq = verbs.CompletionQueue(context, 16, verbs.CompletionChannel(context))
region = verbs.MemoryRegion(domain, 4096)
qp = verbs.QueuePair(domain, cq)
qp.document()
locked, go = threading.Event(), threading.Event()
def hold():
    with context.lock:
        locked.set()
        go.wait(60)
threading.Thread(target=hold).start()
locked.wait()
if not (child := os.fork()):
    signal.alarm(60)
    for use in (
        qp.post_recv, cq.poll, lambda: cq.wait(60), lambda: context.get_async_event(60), context.query_device,
        lambda: cq.channel.get_cq_event(60), lambda: verbs.MemoryRegion(domain, 64),
    ):
        try:
            use()
        except verbs.DeviceLostError as error:
            assert "the process that this one was forked from; open the device again" in str(error), error
        else:
            sys.exit(3)
    region.write(b"of the child")
    context.close()
    with verbs.open_device(sys.argv[1]) as own:
        sys.exit(7 if own.query_device().max_qp else 4)
go.set()
status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
assert status == 7, status
qp.post_recv()
print(qp.query().receives_posted, region.read(12).decode())
"""


def test_a_child_has_nothing_but_the_memory_of_its_parent(hosts: Bed) -> None:
    """Rings are shared memory, too: what a child posted would be its parent's."""
    # Python 3.12 and later warn of a fork beside other threads, which is what this test is about.
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", FORKED, hosts.path(1)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (done.stdout, done.stderr) == ("1 of the child\n", "")


def test_use_of_a_closed_context_raises_an_error(hosts: Bed) -> None:
    with ends(hosts) as (a, _):
        a.context.close()
        for use in (
            lambda: a.qp.post_write(a.region.sge(0, 8), *a.peer[:2]),
            a.qp.post_recv,
            a.qp.query,
            a.cq.poll,
            lambda: a.cq.wait(1),
            lambda: a.channel.get_cq_event(1),
            lambda: a.context.get_async_event(1),
        ):
            with pytest.raises(DeviceLostError, match="the context is closed"):
                use()


def test_program_gets_device_lost_when_its_agent_is_killed(tmp_path: pathlib.Path) -> None:
    with process(tmp_path) as agent:
        a = open_end(str(tmp_path / "h0.verbs"))
        agent.kill()
        agent.wait(30)
        with pytest.raises(DeviceLostError, match="the agent is gone"):
            a.cq.wait(30)
        with pytest.raises(DeviceLostError):
            a.context.get_async_event(30)
        with pytest.raises(DeviceLostError):
            _poll_for_ever(a)
        with pytest.raises(DeviceLostError):
            a.qp.query()
        a.region.write(b"still here")
        a.context.close()
        with pytest.raises(VerbsError, match="no agent answers"):
            verbs.open_device(str(tmp_path / "h0.verbs"))


def _poll_for_ever(end: End) -> None:
    while True:
        end.cq.poll()


def test_an_agent_that_ends_removes_its_sockets(tmp_path: pathlib.Path) -> None:
    with process(tmp_path) as agent:
        a = open_end(str(tmp_path / "h0.verbs"))
        agent.terminate()
        assert agent.wait(30) == 0
        assert not list(tmp_path.iterdir())
        with pytest.raises(DeviceLostError):
            a.cq.wait(30)


@pytest.fixture(scope="module")
def witnesses(hosts: Bed) -> Iterator[tuple[End, End]]:
    with ends(hosts) as pair:
        yield pair


@given(
    entries=st.lists(st.binary(min_size=64, max_size=layout.REQUEST_BYTES), min_size=1, max_size=8),
    opcode=st.sampled_from([None, 1, 2, 3, 4, 9]),
    own=st.booleans(),
)
@settings(max_examples=examples(60), suppress_health_check=list(HealthCheck))
def test_nonsense_in_the_ring_harms_its_program_only(
    hosts: Bed, witnesses: tuple[End, End], entries: list[bytes], opcode: int | None, own: bool
) -> None:
    a, b = witnesses
    wicked = open_end(hosts.path(0), size=4096)
    wicked.qp.document()
    ring = wicked.context._submissions
    for entry in entries:
        at = ring.at(ring.tail)
        ring.buffer[at : at + len(entry)] = entry
        if opcode is not None:
            ring.buffer[at] = opcode
        if own:
            ring.buffer[at + 4 : at + 8] = wicked.qp.qp_num.to_bytes(4, sys.byteorder)
        ring.tail += 1
    wicked.context._ring()
    data = bytes(range(200))
    a.region.write(data)
    a.qp.post_write(a.region.sge(0, 200), *a.peer[:2])
    assert a.wait()[0].status is WcStatus.SUCCESS
    assert b.region.read(200) == data
    wicked.context.close()


@pytest.mark.parametrize("spoil", ["tail", "head", "completions", "events"])
def test_program_that_corrupts_a_ring_is_disconnected(hosts: Bed, spoil: str) -> None:
    with ends(hosts) as (a, b):
        if spoil == "tail":
            b.context._submissions.words[layout.TAIL] = 1 << 40
            os.eventfd_write(b.context._doorbell, 1)
        elif spoil == "head":
            b.context._submissions.words[layout.HEAD] = 1 << 40  # the agent keeps its own: nobody is hurt
            b.qp.modify(QpState.ERR)
        elif spoil == "completions":
            b.cq._ring.words[layout.HEAD] = layout.WORD
            b.qp.post_recv(0, 3)
            with contextlib.suppress(VerbsError):
                b.qp.modify(QpState.ERR)
        else:
            b.context._events.words[layout.HEAD] = layout.WORD
            with contextlib.suppress(DeviceLostError):
                a.qp.post_write(a.region.sge(0, 1), 0, 0)
                a.wait()
        if spoil == "head":
            b.qp.query()
        else:
            with pytest.raises(VerbsError, match=r"disconnected: (its|a) ring of|the agent is gone"):
                until(lambda: not b.qp.query(), "it is still served")
        other = open_end(hosts.path(1))
        other.context.close()


def test_program_that_reads_nothing_does_not_stop_others(hosts: Bed) -> None:
    """Neither its answers on the socket, nor its events, nor its completions."""
    with ends(hosts) as (a, b), socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as deaf:
        deaf.connect(hosts.path(0))
        deaf.settimeout(30)
        with contextlib.suppress(OSError):
            for _ in range(10_000):
                deaf.send(b'{"op": "x"}')
        programs = hosts.nodes[1].programs
        newest, _ = list(programs.connected.values())[-1]
        for _ in range(1200):
            programs._tell(newest, EventType.PORT_ERR, 1)
        a.qp.post_write(a.region.sge(0, 8), *a.peer[:2])
        assert a.wait()[0].status is WcStatus.SUCCESS
        assert b.context.events_lost == 1200 - 1024


def test_program_cannot_resize_shared_memory(hosts: Bed) -> None:
    """Who could would end the agent by SIGBUS, and all hosts in its process."""
    with contextlib.closing(verbs.open_device(hosts.path(0))) as context:
        domain = verbs.ProtectionDomain(context)
        _, files = context.ask_files(RegMr(domain.number, 1 << 20, Access(3)))
        for nbytes in (0, 1 << 30):
            with pytest.raises(PermissionError):
                os.ftruncate(files[0], nbytes)
        os.close(files[0])


def test_programs_on_one_host_cannot_use_each_others_objects(hosts: Bed) -> None:
    with ends(hosts) as (a, b), ends(hosts) as (c, d):
        for first, second, text in ((a, b, b"one"), (c, d, b"two")):
            first.region.write(text)
            first.qp.post_write(first.region.sge(0, 3), *first.peer[:2])
            assert first.wait()[0].status is WcStatus.SUCCESS
            assert second.region.read(3) == text
        with pytest.raises(VerbsError, match=r"no queue pair .* of this program"):
            a.context.ask(DestroyQp(c.qp.qp_num))
        with pytest.raises(VerbsError, match=r"no memory region with the key .* of this program"):
            a.context.ask(DeregMr(c.region.lkey))


@pytest.mark.parametrize("said", [b"x", b"[]", b'{"op": "hello", "version": 99}', b'{"op": 3}', b"{" * 5000])
def test_malformed_first_request_is_refused_with_an_answer(hosts: Bed, said: bytes) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as stranger:
        stranger.connect(hosts.path(0))
        stranger.settimeout(30)
        stranger.send(said)
        assert b'"ok": false' in stranger.recv(1 << 16)


@pytest.mark.skipif(not is_machine_root(), reason="needs another user")
def test_another_user_is_not_served(tmp_path: pathlib.Path) -> None:
    nobody = 65534
    with users.home(nobody) as home:
        home.chmod(0o755)
        with bed(home) as made:
            assert os.stat(made.path(0)).st_mode & 0o777 == 0o600
            os.chmod(made.path(0), 0o777)  # as if the mode did not keep him out
            # Imported before, since the other user may not be able to read the checkout.
            code = (
                "import os; from mrc_host import verbs\n"
                f"os.setgroups([]); os.setgid({nobody}); os.setuid({nobody}); verbs.open_device({made.path(0)!r})"
            )
            command = [sys.executable, "-P", "-c", code]
            done = subprocess.run(command, env={}, cwd="/", capture_output=True, text=True, check=False)
            assert "the agent is gone" in done.stderr
            assert not made.nodes[0].programs.connected
