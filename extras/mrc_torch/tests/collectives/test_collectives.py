"""Collective operations of ranks on the hosts of a bed, against what NumPy computes."""

from __future__ import annotations

import contextlib
import functools
import itertools
import pathlib
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from mrc_torch import ClosedError, CollectiveError, Collectives, MismatchError, RankSilentError
from mrc_torch import link as links
from mrc_torch.numbers import narrowed, widened
from support.verbs.bed import Bed, bed
from support.verbs.ranks import SECONDS, at_once, group, wait

LARGEST = 4
KINDS = ["float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool"]
#: Elements: none, fewer than ranks, not divisible, more than a slot holds.
LENGTHS = st.sampled_from([0, 1, 3, 5, 1000, 40_001])
PROPERTY = settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
_FUNCTIONS: dict[str, Any] = {
    "sum": np.add,
    "avg": np.add,
    "product": np.multiply,
    "min": np.minimum,
    "max": np.maximum,
}


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bed]:
    with bed(tmp_path_factory.mktemp("bed"), hosts=LARGEST) as made:
        yield made


@pytest.fixture(scope="module")
def groups(hosts: Bed, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[int, list[Collectives]]]:
    """One of each size; they share the hosts' devices."""
    with contextlib.ExitStack() as stack:
        yield {
            size: stack.enter_context(group(hosts, tmp_path_factory.mktemp("meet"), size))
            for size in range(1, LARGEST + 1)
        }


def values(kind: str, size: int, length: int, seed: int) -> list[NDArray[Any]]:
    """Return what each rank has; small, so that reductions neither overflow nor vanish."""
    rng = np.random.default_rng(seed)
    if kind == "bool":
        return [rng.integers(0, 2, length).astype(bool) for _ in range(size)]
    if kind.startswith(("int", "uint")):
        return [rng.integers(0 if kind == "uint8" else -9, 10, length).astype(kind) for _ in range(size)]
    rows = [rng.uniform(0.5, 2.0, length) for _ in range(size)]
    if kind == "bfloat16":
        return [narrowed(row.astype(np.float32)) for row in rows]
    return [row.astype(kind) for row in rows]


def plain(array: NDArray[Any], kind: str) -> NDArray[Any]:
    return widened(array).astype(np.float64) if kind == "bfloat16" else array


def reduced(rows: list[NDArray[Any]], op: str, kind: str) -> NDArray[Any]:
    wide = [plain(row, kind) for row in rows]
    if kind in ("float64", "float32", "float16", "bfloat16"):
        wide = [row.astype(np.float64) for row in wide]
    found: NDArray[Any] = functools.reduce(_FUNCTIONS[op], wide)
    if op == "avg":
        found = found / len(rows) if found.dtype.kind == "f" else (np.trunc(found / len(rows))).astype(found.dtype)
    return found


def check(found: NDArray[Any], expected: NDArray[Any], kind: str, size: int) -> None:
    """Integers exactly; others but for the rounding of each step."""
    if kind in ("float64", "float32", "float16", "bfloat16"):
        bits = {"float64": 52, "float32": 23, "float16": 10, "bfloat16": 7}[kind]
        np.testing.assert_allclose(plain(found, kind).astype(np.float64), expected, rtol=(size + 1) * 2.0**-bits)
    else:
        assert (found == expected).all()


@given(
    size=st.integers(1, LARGEST),
    kind=st.sampled_from(KINDS),
    op=st.sampled_from(list(_FUNCTIONS)),
    length=LENGTHS,
    algorithm=st.sampled_from(["auto", "ring", "tree"]),
    seed=st.integers(0, 1 << 30),
)
@PROPERTY
def test_all_reduce_gives_the_same_reduction_at_every_rank(
    groups: dict[int, list[Collectives]], size: int, kind: str, op: str, length: int, algorithm: Any, seed: int
) -> None:
    if (op, kind) == ("avg", "bool"):
        return
    rows = values(kind, size, length, seed)
    expected = reduced(rows, op, kind)
    wait([
        each.all_reduce(row, op, kind=kind, algorithm=algorithm)
        for each, row in zip(groups[size], rows, strict=True)
    ])  # fmt: skip
    check(rows[0], expected, kind, size)
    assert all(row.tobytes() == rows[0].tobytes() for row in rows), "ranks have different bits"


@given(
    size=st.integers(1, LARGEST),
    kind=st.sampled_from(KINDS),
    op=st.sampled_from(["sum", "max"]),
    length=LENGTHS,
    root=st.integers(0, LARGEST - 1),
    seed=st.integers(0, 1 << 30),
)
@PROPERTY
def test_other_operations_give_expected_results_in_order_of_their_calls(
    groups: dict[int, list[Collectives]], size: int, kind: str, op: str, length: int, root: int, seed: int
) -> None:
    """All that is not all_reduce, called one after the other without waiting: works are done in order."""
    ranks, root = groups[size], root % size
    rows = values(kind, size, length, seed)
    many = [values(kind, size, length, seed + 1 + rank) for rank in range(size)]  # rank's own, one for each rank
    uneven = [values(kind, 1, length % 7 + rank, seed + 9 * rank)[0] for rank in range(size)]
    empty = lambda: np.zeros(length, rows[0].dtype)  # noqa: E731
    works, checks = [], []
    for rank, each in enumerate(ranks):
        sent = rows[rank].copy() if rank == root else empty()
        gathered, listed = np.zeros(size * length, rows[0].dtype), [np.zeros_like(row) for row in uneven]
        to_root, own, scattered, mine = [empty() for _ in ranks], rows[rank].copy(), empty(), empty()
        swapped, swapped_list, single = np.zeros(size * length, rows[0].dtype), [empty() for _ in ranks], empty()
        works += [
            each.broadcast(sent, root),
            each.all_gather(gathered, rows[rank]),
            each.all_gather_parts(listed, uneven[rank]),
            each.reduce(own, root, op, kind=kind),
            each.barrier(),
            each.gather(to_root if rank == root else None, rows[rank], root),
            each.scatter(scattered, many[root] if rank == root else None, root),
            each.reduce_scatter(single, np.concatenate(many[rank]), op, kind=kind),
            each.reduce_scatter_parts(mine, many[rank], op, kind=kind),
            each.all_to_all(swapped, np.concatenate(many[rank])),
            each.all_to_all_parts(swapped_list, many[rank]),
        ]
        checks.append((sent, gathered, listed, to_root, own, scattered, mine, swapped, swapped_list, single))
    wait(works)
    for rank, results in enumerate(checks):
        sent, gathered, listed, to_root, own, scattered, mine, swapped, swapped_list, single = results
        assert sent.tobytes() == rows[root].tobytes()
        assert gathered.tobytes() == np.concatenate(rows).tobytes()
        assert [row.tobytes() for row in listed] == [row.tobytes() for row in uneven]
        if rank == root:
            check(own, reduced(rows, op, kind), kind, size)
            assert [row.tobytes() for row in to_root] == [row.tobytes() for row in rows]
        else:
            assert own.tobytes() == rows[rank].tobytes(), "the others' arrays stay as they are"
        assert scattered.tobytes() == many[root][rank].tobytes()
        expected = reduced([theirs[rank] for theirs in many], op, kind)
        check(mine, expected, kind, size)
        check(single, expected, kind, size)
        assert swapped.tobytes() == np.concatenate([theirs[rank] for theirs in many]).tobytes()
        assert [row.tobytes() for row in swapped_list] == [theirs[rank].tobytes() for theirs in many]


def test_all_reduce_coalesced_reduces_every_array(groups: dict[int, list[Collectives]]) -> None:
    ranks = groups[3]
    rows = [[np.full(length, rank + 1.0, np.float32) for length in (3, 0, 50_000)] for rank in range(3)]
    wait([each.all_reduce_coalesced(row) for each, row in zip(ranks, rows, strict=True)])
    assert all((array == 6.0).all() for row in rows for array in row)


def test_messages_are_matched_by_tag_and_wait_for_nothing_else(groups: dict[int, list[Collectives]]) -> None:
    first, second, third = groups[3]
    large = np.arange(300_000, dtype=np.int32)
    got, small, any_one = np.zeros_like(large), np.zeros(2, np.int32), np.zeros(1, np.int64)
    stuck = first.all_reduce(np.ones(5))  # of which the others do not know yet
    works = [first.send(large, 1, 7), first.send(np.array([1, 2], np.int32), 1, 8)]
    last = second.receive(small, 0, 8)
    last.wait(SECONDS)
    assert small.tolist() == [1, 2]
    wait([second.receive(got, 0, 7), *works])
    assert (got == large).all()
    found = third.receive(any_one, None, 3)
    wait([second.send(np.array([41]), 2, 3), found])
    assert (found.source, any_one.tolist()) == (1, [41])
    wait([first.send(np.array([42]), 2, 3)])
    again = third.receive(any_one, None, 3)
    again.wait(SECONDS)
    assert (again.source, any_one.tolist()) == (0, [42])
    assert not stuck.done()
    wait([stuck, second.all_reduce(np.ones(5)), third.all_reduce(np.ones(5))])


def test_messages_of_one_tag_keep_their_order(groups: dict[int, list[Collectives]]) -> None:
    first, second = groups[2]
    rows = [np.zeros(1, np.int64) for _ in range(40)]
    early = [second.receive(row, 0) for row in rows[:20]]
    sends = [first.send(np.array([number]), 1) for number in range(40)]
    wait([*early, *sends, *[second.receive(row, 0) for row in rows[20:]]])
    assert [int(row[0]) for row in rows] == list(range(40))


def test_sender_waits_when_the_receiver_keeps_too_many_bytes(
    groups: dict[int, list[Collectives]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(links, "KEPT_BYTES", 1 << 18)
    first, second = groups[2]
    rows = [np.full(1 << 17, number, np.uint8) for number in range(30)]
    sends = [first.send(row, 1, 5) for row in rows]
    sends[2].wait(SECONDS)
    kept = second.group.links[0]
    assert not sends[-1].done()
    assert kept._kept_bytes <= 1 << 18
    for row in rows:
        got = np.zeros(1 << 17, np.uint8)
        second.receive(got, 0, 5).wait(SECONDS)
        assert (got == row).all()
    wait(sends)
    assert kept._kept_bytes == 0


def test_ranks_with_different_operations_get_an_error(hosts: Bed, tmp_path: pathlib.Path) -> None:
    with group(hosts, tmp_path, 3) as ranks:
        works = [each.all_reduce(np.zeros(7 if rank else 8)) for rank, each in enumerate(ranks)]
        for work in works:
            with pytest.raises(CollectiveError, match=r"the same operation with the same sizes|has given up"):
                work.wait(SECONDS)
        assert sum(isinstance(each.error, MismatchError) for each in ranks) >= 1
        with pytest.raises(CollectiveError):
            ranks[2].barrier().wait(SECONDS)


def test_error_names_a_rank_that_does_not_join_an_operation(hosts: Bed, tmp_path: pathlib.Path) -> None:
    with group(hosts, tmp_path, 3, timeout=2) as ranks:
        works = [ranks[0].barrier(), ranks[1].barrier()]
        said = []
        for work in works:
            with pytest.raises(CollectiveError) as caught:
                work.wait(SECONDS)
            said.append(caught.value)
        assert [error.rank for error in said if isinstance(error, RankSilentError)] == [2, 2]
        first = [str(error) for error in said if "has given up" not in str(error)]
        assert first
        assert "barrier (operation 1 of rank" in first[0]
        assert "rank 2 (host h2) lives and does not do its part" in first[0]


@pytest.mark.parametrize("absent", range(LARGEST))
def test_a_neighbour_that_waits_itself_is_not_blamed(hosts: Bed, tmp_path: pathlib.Path, absent: int) -> None:
    """In a ring each rank waits for the one before it, and only one of these is the cause."""
    with group(hosts, tmp_path, LARGEST, timeout=2) as ranks:
        works = [
            each.all_reduce(np.ones(100_000), algorithm="ring") for rank, each in enumerate(ranks) if rank != absent
        ]
        for work in works:
            with pytest.raises(RankSilentError, match=rf"rank {absent} \(host h{absent}\)") as caught:
                work.wait(SECONDS)
            assert caught.value.rank == absent


def test_ranks_that_wait_for_each_other_are_all_named(hosts: Bed, tmp_path: pathlib.Path) -> None:
    with group(hosts, tmp_path, 2, timeout=2) as ranks:
        works = [ranks[0].receive(np.zeros(1), 1), ranks[1].receive(np.zeros(1), 0)]
        for work in works:
            with pytest.raises(CollectiveError, match=r"ranks 0, 1 wait for each other|has given up"):
                work.wait(SECONDS)


def test_a_callback_may_wait_for_other_operations(hosts: Bed, tmp_path: pathlib.Path) -> None:
    with group(hosts, tmp_path, 2, timeout=20) as ranks:
        ended = [threading.Event(), threading.Event()]

        def call(rank: int) -> None:
            ranks[rank].barrier().wait(SECONDS)
            ended[rank].set()

        works = [each.receive(np.zeros(1), 1 - each.rank) for each in ranks]
        for rank, work in enumerate(works):
            work.when_done(lambda _, rank=rank: call(rank))  # type: ignore[misc]
        wait([each.send(np.ones(1), 1 - each.rank) for each in ranks])
        assert all(each.wait(SECONDS) for each in ended)


def test_the_timeout_fires_while_a_callback_runs(hosts: Bed, tmp_path: pathlib.Path) -> None:
    with group(hosts, tmp_path, 2, timeout=2) as ranks:
        running, go = threading.Event(), threading.Event()
        work = ranks[0].receive(np.zeros(1), 1)
        work.when_done(lambda _: (running.set(), go.wait(SECONDS)))  # type: ignore[arg-type]
        ranks[1].send(np.ones(1), 0).wait(SECONDS)
        assert running.wait(SECONDS)
        try:
            with pytest.raises(RankSilentError):
                ranks[0].receive(np.zeros(1), 1).wait(SECONDS)
        finally:
            go.set()


def test_rank_that_left_fails_only_operations_that_need_it(hosts: Bed, tmp_path: pathlib.Path) -> None:
    with group(hosts, tmp_path, 3) as ranks:
        wait([each.barrier() for each in ranks])
        last = ranks[2].send(np.array([5]), 0)
        ranks[2].close()
        got = np.zeros(1, np.int64)
        wait([last, ranks[0].receive(got, 2)])
        assert got[0] == 5
        wait([ranks[0].send(got, 1), ranks[1].receive(got, 0)])
        with pytest.raises(CollectiveError, match=r"rank 2 \(host h2\) has left the group|has given up because"):
            ranks[0].barrier().wait(SECONDS)
        with pytest.raises(ClosedError, match="rank 2 has left"):
            ranks[2].barrier().wait(SECONDS)


def test_error_names_a_rank_that_does_not_join_the_group(hosts: Bed, tmp_path: pathlib.Path) -> None:
    from mrc_torch import FolderStore

    with pytest.raises(CollectiveError, match=r"rank 1 of 2 has not come to the group: .*mrc%1: no rank has written"):
        Collectives(FolderStore(tmp_path, 0.2), 0, 2, device=hosts.path(0))
    assert not hosts.nodes[0].programs.connected or all(
        program.number for program, _ in hosts.nodes[0].programs.connected.values()
    )


def test_a_rank_that_cannot_join_is_named_at_once(hosts: Bed, tmp_path: pathlib.Path) -> None:
    """By those who wait for its document; the one who has it waits for its word that it is ready."""
    from mrc_torch import FolderStore

    class Full(FolderStore):
        """Fails once all ranks have told who they are."""

        def get(self, key: str, /) -> bytes:
            for rank in range(3):
                super().get(f"mrc/{rank}")
            raise OSError(28, "No space left on device")

    def join(rank: int) -> str:
        store = (Full if rank == 2 else FolderStore)(tmp_path / "late", SECONDS)
        with pytest.raises(CollectiveError) as caught:
            Collectives(store, rank, 3, device=hosts.path(rank))
        return str(caught.value)

    *others, own = at_once(3, join)
    assert own == "rank 0 of 3 has not come to the group: [Errno 28] No space left on device"
    assert all(each.endswith(f"rank 2 of 3 cannot join the group: {own}") for each in others), others
    with pytest.raises(
        CollectiveError, match=r"^rank 1 of 2 cannot join the group: device .*nowhere: no agent answers"
    ):
        at_once(2, lambda rank: Collectives(FolderStore(tmp_path), rank, 2, device=(hosts.path(0), "/nowhere")[rank]))


def test_groups_share_a_device_and_leave_nothing(hosts: Bed, tmp_path: pathlib.Path) -> None:
    programs = hosts.nodes[0].programs
    before = {number: (len(program.pairs), len(program.regions), program.memory.used) for number, (program, _) in
              programs.connected.items()}  # fmt: skip
    with group(hosts, tmp_path / "a", 2) as one, group(hosts, tmp_path / "b", 2) as other:
        assert len(programs.connected) <= max(len(before), 1)
        works = itertools.chain.from_iterable((a.barrier(), b.barrier()) for a, b in zip(one, other, strict=True))
        wait(list(works))
    for number, (program, _) in programs.connected.items():
        if number in before:
            assert (len(program.pairs), len(program.regions), program.memory.used) == before[number]


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda c: c.all_reduce(np.zeros((4, 4))[:, :2]), "the array has gaps"),
        (
            lambda c: c.all_reduce(np.zeros(4, np.float32), kind="bfloat16"),
            "float32 holds no bfloat16; that needs uint",
        ),
        (lambda c: c.all_reduce(np.zeros(4), "mean"), "no operation 'mean'"),
        (lambda c: c.all_reduce(np.zeros(4), algorithm="star"), "no algorithm 'star'; known: auto, ring, tree"),
        (lambda c: c.all_reduce(np.zeros(4, bool), "avg"), "an average of bool"),
        (lambda c: c.all_reduce_coalesced([]), "of no array"),
        (lambda c: c.all_reduce(np.frombuffer(b"12345678")), "the array is read-only"),
        (lambda c: c.broadcast(np.zeros(4), 2), "rank 2 of a group of 2"),
        (lambda c: c.all_gather(np.zeros(4), np.zeros(3)), "the output has 4 elements; 2 ranks need 6"),
        (lambda c: c.all_gather_parts([np.zeros(4)], np.zeros(4)), "1 outputs for 2 ranks"),
        (lambda c: c.all_to_all(np.zeros(3), np.zeros(4)), "3 elements of the output are not divisible by 2"),
        (lambda c: c.gather(None, np.zeros(4), 0), "rank 0 is the root and gives no outputs"),
        (lambda c: c.scatter(np.zeros(4), [np.zeros(4)] * 2, 1), "inputs are given at rank 1, the root"),
        (lambda c: c.send(np.zeros(4), 0), "send to rank 0: rank 0 is no other rank of a group of 2"),
        (lambda c: c.receive(np.zeros(4), 5), "rank 5 is no other rank"),
    ],
)
def test_operation_with_invalid_arguments_is_refused_at_once(
    groups: dict[int, list[Collectives]], call: Any, said: str
) -> None:
    with pytest.raises(ValueError, match=said):
        call(groups[2][0])
    assert groups[2][0].error is None


def test_a_group_of_one_needs_no_device(tmp_path: pathlib.Path) -> None:
    from mrc_torch import FolderStore

    with Collectives(FolderStore(tmp_path), 0, 1, device="nowhere") as alone:
        row = np.array([4, 5])
        wait([alone.all_reduce(row, "avg"), alone.barrier(), alone.broadcast(row)])
        assert row.tolist() == [4, 5]
    with pytest.raises(ValueError, match="rank 3 of 3"):
        Collectives(FolderStore(tmp_path), 3, 3)


def test_ranks_in_threads_may_wait_for_each_operation(groups: dict[int, list[Collectives]]) -> None:
    """As programs do: each waits for its work before it calls the next one."""

    def loop(rank: int) -> float:
        row = np.full(10, float(rank))
        for _ in range(20):
            groups[4][rank].all_reduce(row, "avg").wait(SECONDS)
        return float(row[0])

    assert at_once(4, loop) == [1.5] * 4
