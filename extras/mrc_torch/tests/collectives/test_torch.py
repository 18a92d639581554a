"""The backend `mrc` of torch.distributed: what its groups compute is what gloo's compute; errors come out of `wait`."""

from __future__ import annotations

import importlib.metadata
import os
import pathlib
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch", reason="torch is not installed (pip install mrclab[torch])")

import torch._C._distributed_c10d as options_of  # noqa: E402
import torch.distributed as dist  # noqa: E402

from mrc_torch import CollectiveError, RankSilentError, devices  # noqa: E402
from mrc_torch.backend import ProcessGroupMrc  # noqa: E402
from support.verbs.bed import Bed, bed  # noqa: E402
from support.verbs.ranks import SECONDS, at_once  # noqa: E402

LARGEST = 4
TIMEOUT = timedelta(seconds=SECONDS)
KINDS = ["float64", "float32", "float16", "bfloat16", "int64", "int32", "int8", "uint8"]
SHAPES = [(), (0,), (5,), (3, 4), (2, 0, 3), (40_001,)]
OPS = {"sum": dist.ReduceOp.SUM, "product": dist.ReduceOp.PRODUCT, "min": dist.ReduceOp.MIN, "max": dist.ReduceOp.MAX}
PROPERTY = settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
Groups = dict[int, tuple[list[Any], list[Any]]]


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bed]:
    with bed(tmp_path_factory.mktemp("bed"), hosts=LARGEST) as made:
        yield made


@pytest.fixture(scope="module")
def groups(hosts: Bed) -> Iterator[Groups]:
    """Of each size ours and gloo's, one rank a thread."""
    made: Groups = {}
    for size in range(1, LARGEST + 1):
        store = dist.HashStore()
        made[size] = (
            at_once(
                size,
                lambda rank, size=size, store=store: ProcessGroupMrc(  # type: ignore[misc]
                    dist.PrefixStore("mrc", store), rank, size, TIMEOUT, device=hosts.path(rank)
                ),
            ),
            at_once(
                size,
                lambda rank, size=size, store=store: dist.ProcessGroupGloo(  # type: ignore[misc]
                    dist.PrefixStore("gloo", store), rank, size, timeout=TIMEOUT
                ),
            ),
        )
    yield made
    for ours, _ in made.values():
        at_once(len(ours), lambda rank, ours=ours: ours[rank].shutdown())  # type: ignore[misc]


def tensors(kind: str, shape: tuple[int, ...], count: int, seed: int) -> list[Any]:
    generator = torch.Generator().manual_seed(seed)
    dtype = getattr(torch, kind)
    if dtype.is_floating_point:
        return [(torch.rand(shape, generator=generator) + 0.5).to(dtype) for _ in range(count)]
    return [torch.randint(0, 4, shape, generator=generator).to(dtype) for _ in range(count)]


def both(groups: Groups, size: int, call: Callable[[Any, int], Any]) -> tuple[list[Any], list[Any]]:
    """Return what a call gives at all ranks: with our groups, and with gloo's."""
    ours, gloo = groups[size]
    return at_once(size, lambda rank: call(ours[rank], rank)), at_once(size, lambda rank: call(gloo[rank], rank))


def same(ours: Any, gloo: Any, size: int) -> None:
    """But for the order of the roundings."""
    for one, other in zip(ours, gloo, strict=True):
        if isinstance(one, list):
            same(one, other, size)
        elif one.dtype.is_floating_point:
            torch.testing.assert_close(one, other, rtol=2 * size * torch.finfo(one.dtype).eps, atol=0)
        else:
            assert torch.equal(one, other)


@given(
    size=st.integers(1, LARGEST),
    kind=st.sampled_from(KINDS),
    shape=st.sampled_from(SHAPES),
    op=st.sampled_from(list(OPS)),
    root=st.integers(0, LARGEST - 1),
    seed=st.integers(0, 1 << 20),
)
@PROPERTY
def test_reductions_give_the_results_of_gloo(
    groups: Groups, size: int, kind: str, shape: tuple[int, ...], op: str, root: int, seed: int
) -> None:
    root %= size
    rows = tensors(kind, shape, size, seed)

    def call(group: Any, rank: int) -> Any:
        own, several, at_root = rows[rank].clone(), [rows[rank].clone(), rows[rank].clone()], rows[rank].clone()
        options = options_of.AllreduceOptions()
        options.reduceOp = OPS[op]
        coalesced = options_of.AllreduceCoalescedOptions()
        coalesced.reduceOp = OPS[op]
        reduce = options_of.ReduceOptions()
        reduce.reduceOp, reduce.rootRank = OPS[op], root
        group.allreduce([own], options).wait(TIMEOUT)
        group.allreduce_coalesced(several, coalesced).wait(TIMEOUT)
        group.reduce([at_root], reduce).wait(TIMEOUT)
        return [own, *several, at_root if rank == root else own]

    same(*both(groups, size, call), size)


@given(
    size=st.integers(1, LARGEST),
    kind=st.sampled_from([*KINDS, "bool"]),
    shape=st.sampled_from(SHAPES),
    root=st.integers(0, LARGEST - 1),
    seed=st.integers(0, 1 << 20),
)
@PROPERTY
def test_broadcast_gather_and_scatter_give_the_results_of_gloo(
    groups: Groups, size: int, kind: str, shape: tuple[int, ...], root: int, seed: int
) -> None:
    root %= size
    rows = tensors(kind, shape, size * size, seed)
    empty = lambda: torch.zeros(shape, dtype=getattr(torch, kind))  # noqa: E731

    def call(group: Any, rank: int) -> Any:
        own, mine = rows[rank], rows[rank * size : (rank + 1) * size]
        sent = own.clone() if rank == root else empty()
        listed, at_root, scattered = [empty() for _ in range(size)], [empty() for _ in range(size)], empty()
        broadcast, gather, scatter = (
            options_of.BroadcastOptions(),
            options_of.GatherOptions(),
            options_of.ScatterOptions(),
        )
        broadcast.rootRank = gather.rootRank = scatter.rootRank = root
        group.broadcast([sent], broadcast).wait(TIMEOUT)
        group.allgather([listed], [own], options_of.AllgatherOptions()).wait(TIMEOUT)
        group.gather([at_root] if rank == root else [], [own], gather).wait(TIMEOUT)
        group.scatter([scattered], [mine] if rank == root else [], scatter).wait(TIMEOUT)
        group.barrier(options_of.BarrierOptions()).wait(TIMEOUT)
        return [sent, listed, at_root if rank == root else listed, scattered]

    same(*both(groups, size, call), size)


@given(
    size=st.integers(2, LARGEST), kind=st.sampled_from(KINDS), length=st.integers(0, 9), seed=st.integers(0, 1 << 20)
)
@PROPERTY
def test_all_to_all_with_split_sizes_gives_the_result_of_gloo(
    groups: Groups, size: int, kind: str, length: int, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    splits = torch.randint(0, length + 1, (size, size), generator=generator).tolist()  # [from][to]
    rows = [tensors(kind, (sum(splits[rank]), 3), 1, seed + rank)[0] for rank in range(size)]

    def call(group: Any, rank: int) -> Any:
        incoming = [splits[peer][rank] for peer in range(size)]
        output = torch.zeros((sum(incoming), 3), dtype=getattr(torch, kind))
        method = getattr(group, "all_to_all_single", None) or group.alltoall_base
        method(output, rows[rank], incoming, splits[rank], options_of.AllToAllOptions()).wait(TIMEOUT)
        return [output]

    same(*both(groups, size, call), size)


@given(
    size=st.integers(1, LARGEST),
    kind=st.sampled_from(KINDS),
    length=st.sampled_from([0, 1, 5, 3001]),
    op=st.sampled_from([*OPS, "avg"]),
    seed=st.integers(0, 1 << 20),
)
@PROPERTY
def test_operations_that_gloo_lacks_equal_combinations_of_its_own(
    groups: Groups, size: int, kind: str, length: int, op: str, seed: int
) -> None:
    """Averages, reduce_scatter, and one tensor or a list for all ranks."""
    rows = tensors(kind, (size * length,), size, seed)
    parts = [[row[place * length : (place + 1) * length] for place in range(size)] for row in rows]
    reduce, scatter, total = (
        options_of.AllreduceOptions(),
        options_of.ReduceScatterOptions(),
        options_of.AllreduceOptions(),
    )
    reduce.reduceOp = scatter.reduceOp = OPS.get(op, dist.ReduceOp.AVG)
    total.reduceOp = OPS.get(op, dist.ReduceOp.SUM)

    def empty(number: int = 1) -> Any:
        return torch.zeros(number * length, dtype=getattr(torch, kind))

    def call(group: Any, rank: int) -> Any:
        whole, part, listed, gathered = rows[rank].clone(), empty(), empty(), empty(size * size)
        swapped = [empty() for _ in range(size)]
        works = [
            group.allreduce([whole], reduce),
            group.reduce_scatter_single(part, rows[rank], scatter),
            group.reduce_scatter([listed], [parts[rank]], scatter),
            group.all_gather_single(gathered, rows[rank]),
            group.alltoall(swapped, parts[rank]),
        ]
        for work in works:
            work.wait(TIMEOUT)
        return [whole, part, listed, gathered, torch.cat(swapped)]

    def by_gloo(group: Any, rank: int) -> Any:
        whole, swapped, gathered = rows[rank].clone(), empty(size), [empty(size) for _ in range(size)]
        group.allreduce([whole], total).wait(TIMEOUT)
        if op == "avg":
            whole = (whole.double() / size).to(whole.dtype)  # of integers without what is behind the point
        group.allgather([gathered], [rows[rank]], options_of.AllgatherOptions()).wait(TIMEOUT)
        method = getattr(group, "all_to_all_single", None) or group.alltoall_base
        method(swapped, rows[rank], [], [], options_of.AllToAllOptions()).wait(TIMEOUT)
        part = whole[rank * length : (rank + 1) * length]
        return [whole, part, part, torch.cat(gathered), swapped]

    ours, gloo = groups[size]
    same(
        at_once(size, lambda rank: call(ours[rank], rank)),
        at_once(size, lambda rank: by_gloo(gloo[rank], rank)),
        size,
    )


def test_non_contiguous_tensors_are_sent_and_received(groups: Groups) -> None:
    ours = groups[2][0]
    wide = [torch.zeros(4, 6), torch.arange(24.0).reshape(4, 6)]

    def call(rank: int) -> Any:
        if rank:
            ours[1].send([wide[1][:, ::2]], 0, 3).wait(TIMEOUT)
            return -1
        work = ours[0].recv_anysource([wide[0][:, ::2]], 3)
        work.wait(TIMEOUT)
        return work._source_rank()

    assert at_once(2, call) == [1, -1]
    assert torch.equal(wide[0][:, ::2], wide[1][:, ::2])
    assert not wide[0][:, 1::2].any()


def test_futures_have_the_tensors(groups: Groups) -> None:
    ours = groups[2][0]
    rows = [torch.ones(3), torch.ones(3)]
    works = [group.allreduce([row]) for group, row in zip(ours, rows, strict=True)]
    futures = [work.get_future().then(lambda future: future.value()[0] * 10) for work in works]
    assert [future.wait().tolist() for future in futures] == [[20.0] * 3] * 2
    assert all(work.is_completed() and work.is_success() for work in works)
    assert works[0].get_future().wait()[0] is rows[0]


def test_callbacks_of_futures_may_wait_for_other_operations_and_futures(groups: Groups) -> None:
    ours = groups[2][0]
    rows = [torch.ones(3), torch.ones(3)]

    def again(group: Any, row: Any) -> Any:
        group.allreduce([row]).wait(TIMEOUT)
        return group.allreduce([row]).get_future().wait()[0]

    futures = [
        group.allreduce([row]).get_future().then(lambda _, group=group, row=row: again(group, row))
        for group, row in zip(ours, rows, strict=True)
    ]
    assert at_once(2, lambda rank: futures[rank].wait().tolist()) == [[8.0] * 3] * 2


def test_a_group_is_the_backend_of_the_cpu_and_counts_its_operations(groups: Groups) -> None:
    ours = groups[3][0]
    assert ours[0]._get_backend(torch.device("cpu")) is ours[0]
    with pytest.raises(RuntimeError, match="not of cuda"):
        ours[0]._get_backend(torch.device("cuda"))
    ours[0]._set_sequence_number_for_group()
    before = [group._get_sequence_number_for_group() for group in ours]
    assert len(set(before)) == 1
    at_once(3, lambda rank: ours[rank].barrier().wait(TIMEOUT))
    assert [group._get_sequence_number_for_group() for group in ours] == [count + 1 for count in before]


def test_a_monitored_barrier_names_who_is_missing(groups: Groups, hosts: Bed) -> None:
    at_once(4, lambda rank: groups[4][0][rank].monitored_barrier(TIMEOUT))
    store = dist.HashStore()
    ours = at_once(4, lambda rank: ProcessGroupMrc(store, rank, 4, TIMEOUT, device=hosts.path(rank)))

    def call(rank: int) -> RankSilentError | None:
        if rank in (1, 3):
            return None
        with pytest.raises(RankSilentError) as caught:
            ours[rank].monitored_barrier(timedelta(seconds=1), wait_all_ranks=True)
        return caught.value

    try:
        at_zero, _, at_two, _ = at_once(4, call)
        assert at_zero is not None
        assert at_two is not None
        assert str(at_zero) == "monitored_barrier: not called within 1 s by ranks 1, 3"
        assert at_zero.rank == at_two.rank == 1
        assert "rank 0 (host h0) has given up because of rank 1" in str(at_two)
    finally:
        at_once(4, lambda rank: ours[rank].shutdown())


def test_operations_are_ranges_of_the_profiler(groups: Groups) -> None:
    ours = groups[1][0][0]
    with torch.profiler.profile() as profile:
        ours.allreduce([torch.ones(3)]).wait(TIMEOUT)
        ours.barrier().wait(TIMEOUT)
    names = {event.key: event.count for event in profile.key_averages() if event.key.startswith("mrc:")}
    assert names == {"mrc:all_reduce": 1, "mrc:barrier": 1, "mrc:wait": 2}


#: What `torchrun` starts, two of it.
LAUNCHED = """
import torch, torch.distributed as dist
import mrc_torch
dist.init_process_group("mrc")
row = torch.ones(2)
dist.all_reduce(row)
dist.group.WORLD.monitored_barrier()
print(row.tolist(), dist.group.WORLD.collectives.group.host, flush=True)
dist.destroy_process_group()
"""


def test_torchrun_gives_each_rank_a_device(hosts: Bed, tmp_path: pathlib.Path) -> None:
    program = tmp_path / "job.py"
    program.write_text(LAUNCHED)
    words = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", str(program)]
    listed = ",".join(hosts.path(rank) for rank in range(2))
    done = subprocess.run(
        [sys.executable, *words], env={**os.environ, "MRC_DEVICES": listed}, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == ["[2.0, 2.0] h0", "[2.0, 2.0] h1"]


def test_too_few_devices_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MRC_DEVICES", "h0, h1")
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert devices.of_local_rank() == "h1"
    monkeypatch.setenv("LOCAL_RANK", "2")
    with pytest.raises(ValueError, match="MRC_DEVICES lists 2 devices, and LOCAL_RANK is 2"):
        devices.of_local_rank()
    monkeypatch.delenv("LOCAL_RANK")
    assert devices.of_local_rank() is None


def test_errors_come_out_of_wait_and_of_futures(hosts: Bed) -> None:
    store = dist.HashStore()
    ours = at_once(2, lambda rank: ProcessGroupMrc(store, rank, 2, TIMEOUT, device=hosts.path(rank)))
    try:
        early = ours[0].allreduce([torch.zeros(4)])
        future = early.get_future()
        late = ours[1].allreduce([torch.zeros(5)])
        for work in (early, late):
            with pytest.raises(CollectiveError, match=r"same sizes|has given up"):
                work.wait(TIMEOUT)
            assert work.is_completed()
            assert not work.is_success()
            assert isinstance(work.exception(), CollectiveError)
        for each in (future, late.get_future(), ours[0].barrier().get_future()):
            with pytest.raises(RuntimeError, match=r"same sizes|has given up"):
                each.wait()
    finally:
        at_once(2, lambda rank: ours[rank].shutdown())


@pytest.mark.parametrize("order", ["import mrc_torch, torch", "import torch, mrc_torch"])
def test_backend_is_registered_in_any_order_of_imports(order: str) -> None:
    """In the first order by torch itself, of what is installed."""
    if order.startswith("import mrc_torch") and not importlib.metadata.entry_points(group="torch.backends", name="mrc"):
        pytest.skip("this installation of mrclab is older than its entry point; pip install -e .")
    code = f"{order}\nfrom torch.distributed import Backend\nprint(Backend.backend_capability[Backend.MRC])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "['cpu']\n"
    assert done.stderr == ""


def test_storages_can_be_resized_after_an_operation(groups: Groups) -> None:
    """FSDP1 frees parameters by that."""
    ours = groups[2][0]
    rows = [torch.ones(8), torch.ones(8)]
    halves = [torch.ones(8, dtype=torch.bfloat16), torch.ones(8, dtype=torch.bfloat16)]
    gathered = [torch.zeros(16), torch.zeros(16)]

    def call(rank: int) -> None:
        ours[rank].allreduce([rows[rank]]).wait(TIMEOUT)
        ours[rank].allreduce([halves[rank]]).wait(TIMEOUT)
        ours[rank].all_gather_single(gathered[rank], rows[rank]).wait(TIMEOUT)

    at_once(2, call)
    assert [row.tolist() for row in gathered] == [[2.0] * 16] * 2
    for tensor in (*rows, *halves, *gathered):
        storage = tensor.untyped_storage()
        assert storage.resizable()
        storage.resize_(0)
        storage.resize_(64)


def test_conjugated_and_negated_views_are_sent_as_what_they_show(groups: Groups) -> None:
    ours = groups[2][0]
    base = torch.tensor([1 + 2j, 3 - 1j])

    def call(rank: int) -> list[Any]:
        own, negated = base.clone().conj(), base.clone().conj().imag
        assert own.is_conj()
        assert negated.is_neg()
        ours[rank].allreduce([own]).wait(TIMEOUT)
        ours[rank].allreduce([negated]).wait(TIMEOUT)
        return [own.tolist(), negated.tolist()]

    assert at_once(2, call) == [[[2 - 4j, 6 + 2j], [-4.0, 2.0]]] * 2


def test_unsupported_tensors_and_reductions_are_refused(groups: Groups) -> None:
    ours = groups[2][0][0]
    with pytest.raises(ValueError, match=r"dense tensors of the CPU, not torch\.sparse_coo of cpu"):
        ours.allreduce([torch.zeros(3).to_sparse()])
    with pytest.raises(ValueError, match="no reduction of float8_e4m3fn"):
        ours.allreduce([torch.zeros(3).to(torch.float8_e4m3fn)])
    options = options_of.AllreduceOptions()
    options.reduceOp = options_of._make_nccl_premul_sum(2.0)
    with pytest.raises(ValueError, match="mrc has no reduction"):
        ours.allreduce([torch.zeros(3)], options)
