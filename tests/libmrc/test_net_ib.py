"""The verbs calls of NCCL's net_ib, of a sender and a receiver in two hosts, or both in one."""

from __future__ import annotations

import ctypes.util
import pathlib
import socket
import subprocess

import pytest

from libmrc import build
from support.libmrc import PROGRAMS, WARNINGS, compiler, environment
from support.verbs.bed import bed


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    if ctypes.util.find_library("ibverbs") is None:
        pytest.skip("libibverbs is not installed")
    made = tmp_path_factory.mktemp("net_ib") / "net_ib"
    command = [*compiler(), *WARNINGS, "-O2", str(PROGRAMS / "net_ib.c"), "-o", str(made)]
    subprocess.run([*command, "-ldl", "-lpthread"], check=True)
    return made


@pytest.mark.parametrize(
    ("transport", "pairs", "inline", "hosts"),
    [
        ("roce", 1, 0, (0, 1)),
        ("roce", 4, 1, (0, 1)),
        ("roce", 2, 1, (0, 0)),
        ("mrc", 4, 1, (0, 1)),
        ("mrc", 2, 0, (1, 1)),
    ],
)
def test_calls_of_net_ib(
    program: pathlib.Path, tmp_path: pathlib.Path, transport: str, pairs: int, inline: int, hosts: tuple[int, int]
) -> None:
    with bed(tmp_path) as made:
        ends = socket.socketpair()
        settings = {"LD_PRELOAD": str(build.library() / build.SONAME), "MRCLAB_RC": transport}
        started = [
            subprocess.Popen(
                [str(program), role, str(pairs), str(inline), str(end.fileno())],
                env=environment(MRC_DEVICE=made.path(host), **settings),
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                pass_fds=[end.fileno()],
                text=True,
            )
            for role, end, host in zip(("send", "receive"), ends, hosts, strict=True)
        ]
        for end in ends:
            end.close()
        said = [each.communicate(timeout=120) for each in started]
    assert [each.returncode for each in started] == [0, 0], said
    # RoCE flushes by a READ from the own host, which MRC does not have.
    assert said[1][0] == f"300 rounds, {'flushed' if transport == 'roce' else 'READ refused'}\n"
