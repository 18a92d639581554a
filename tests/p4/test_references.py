"""What the comparison with p4c and BMv2 does, also where neither is installed."""

from __future__ import annotations

import shutil
import socket
import struct
import threading
from pathlib import Path

import pytest

from p4lite.messages import p4info_pb2
from support.p4.differential import Comparison, References, judge, p4info_differences, run_seed
from support.p4.random_program import random_program
from support.p4.random_tree import Node, Tree
from support.p4.reference_compiler import P4C, P4cCrashed, P4cRefused, compiled_by_p4c, p4info_of
from support.p4.reference_switch import BMV2
from support.p4.thrift import CallRefused, Client, Kind, Value, i32, items, record, text

PROGRAMS, PACKETS = 4, 10
KNOWN = {
    Comparison.P4C,
    Comparison.P4C_JSON,
    Comparison.P4C_REFUSES,
    Comparison.P4C_CRASHES,
    Comparison.P4INFO_HERE,
    Comparison.P4INFO_THERE,
    Comparison.BMV2_ENDS,
}
"""Faults of the references, which docs/conformance.md lists."""


def _p4c(folder: Path, script: str) -> str:
    path = folder / P4C
    path.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    path.chmod(0o755)
    return str(path)


def test_an_error_of_p4c_is_a_refusal(tmp_path: Path) -> None:
    said = "x.p4(3): [--Werror=invalid] error: a % b: not at compilation time"
    with pytest.raises(P4cRefused, match=r"^a % b: not at compilation time$"):
        compiled_by_p4c(_p4c(tmp_path, f"echo '{said}' >&2; exit 1"), "")


@pytest.mark.parametrize("script", ["echo 'Compiler Bug: Null body' >&2; exit 1", "exit 3"])
def test_a_bug_of_p4c_is_no_refusal(script: str, tmp_path: Path) -> None:
    with pytest.raises(P4cCrashed, match=r"Null body|exit code 3"):
        compiled_by_p4c(_p4c(tmp_path, script), "")


def test_a_program_that_p4c_alone_takes_is_found(tmp_path: Path) -> None:
    p4c = _p4c(tmp_path, 'shift 4; echo \'{}\' > "$1"; : > "$3"')
    result = judge(Tree(Node(["control c( {"])), references=References(p4c))
    assert set(result.found) == {Comparison.P4C_ALONE}


def test_a_program_that_p4c_refuses_is_found(tmp_path: Path) -> None:
    _, result = run_seed(1, 1, 0, References(_p4c(tmp_path, "echo 'error: no' >&2; exit 1")))
    assert result.found == {Comparison.P4C_REFUSES: "no"}


def test_objects_in_one_p4info_are_told_from_other_differences() -> None:
    def info(**sizes: int) -> p4info_pb2.P4Info:
        made = p4info_pb2.P4Info()
        for number, (name, size) in enumerate(sizes.items()):
            table = made.tables.add(size=size)
            table.preamble.id, table.preamble.name = number + 1, name
        return made

    assert p4info_differences(info(a=1, b=2), info(a=1, b=2)) == {}
    assert p4info_differences(info(a=1, b=2), info(a=1)) == {Comparison.P4INFO_HERE: "b"}
    assert p4info_differences(info(a=1), info(a=1, b=2)) == {Comparison.P4INFO_THERE: "b"}
    more = info(a=1)
    more.actions.add().preamble.id = 9
    assert p4info_differences(more, info(a=1)) == {Comparison.P4INFO_HERE: ""}
    assert p4info_differences(info(a=1), info(a=3)) == {Comparison.P4INFO: "size: 1, and in p4c's size: 3"}


def test_a_later_p4info_is_read() -> None:
    assert p4info_of("a_new_field: 3\ntables { size: 7 }").tables[0].size == 7


def test_portable_programs_have_nothing_that_p4c_refuses() -> None:
    whole = "".join(random_program(seed, 1, portable=True).root.text() for seed in range(30))
    for each in ("for (", " / ", " % ", "tuple<bit<8>, bit<3>>", "value_set<int"):
        assert each not in whole


def _answer(server: socket.socket, asked: list[bytes], answers: list[bytes]) -> None:
    connection, _ = server.accept()
    with connection:
        for answer in answers:
            asked.append(connection.recv(4096))
            connection.sendall(answer)


def test_calls_of_thrift() -> None:
    head = struct.pack(">Ii", 0x80010002, 1) + b"m" + struct.pack(">i", 1)
    number = head + struct.pack(">bhi", Kind.I32, 0, 7) + b"\0"
    refused = head + struct.pack(">bh", Kind.STRUCT, 1) + struct.pack(">bhi", Kind.I32, 1, 18) + b"\0\0"
    asked: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=_answer, args=(server, asked, [number, refused]))
        thread.start()
        client = Client(server.getsockname()[1])
        assert (
            client.call("s", "m", i32(5), text("ab"), items([text(b"\1")]), record({2: Value(Kind.DOUBLE, 1.0)})) == 7
        )
        with pytest.raises(CallRefused, match=r"s:m: .*18"):
            client.call("s", "m")
        client.close()
        thread.join()
    values = struct.pack(">bhi", Kind.I32, 1, 5) + struct.pack(">bhi", Kind.STRING, 2, 2) + b"ab"
    values += struct.pack(">bhbii", Kind.LIST, 3, Kind.STRING, 1, 1) + b"\1"
    values += struct.pack(">bh", Kind.STRUCT, 4) + struct.pack(">bhd", Kind.DOUBLE, 2, 1.0) + b"\0\0"
    assert asked[0] == struct.pack(">Ii", 0x80010001, 3) + b"s:m" + struct.pack(">i", 1) + values


@pytest.mark.skipif(shutil.which(P4C) is None, reason=f"{P4C} is not on PATH: it is not compared with p4lite")
def test_programs_compiled_by_p4c(seed: int) -> None:
    results = [run_seed(seed + i, PACKETS, 0, References(P4C), portable=True) for i in range(PROGRAMS)]
    assert {s: r.why for s, r in results if set(r.found) - KNOWN} == {}
    assert any(not r.found for _, r in results)


@pytest.mark.skipif(shutil.which(BMV2) is None, reason=f"{BMV2} is not on PATH: no program runs there")
def test_programs_on_simple_switch(seed: int) -> None:
    bmv2 = References(bmv2=shutil.which(BMV2))
    results = [run_seed(seed + i, PACKETS, 0, bmv2, portable=True) for i in range(PROGRAMS)]
    assert {s: r.why for s, r in results if set(r.found) - KNOWN} == {}
