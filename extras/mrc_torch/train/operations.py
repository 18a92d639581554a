"""Collectives of torch.distributed over sizes, as `mrclab perf` measures them: every result checked."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from mrc_torch.train.orders import OrderReader, say

FLOAT_BYTES = 4
#: Values are small whole numbers: sums are exact in any order.
PERIOD = 251


def values(rank: int, number: int, count: int) -> Tensor:
    """Return a rank's input of an operation."""
    return ((torch.arange(count) * 7 + rank * 131 + number * 17) % PERIOD).float()


def all_reduce(rank: int, size: int, count: int, number: int) -> tuple[Callable[[], Tensor], Tensor]:
    """Return the operation (a sum over ranks of `count` elements), and the result that it must have."""
    mine = values(rank, number, count)
    want = torch.stack([values(each, number, count) for each in range(size)]).sum(0)

    def act() -> Tensor:
        dist.all_reduce(mine)
        return mine

    return act, want


def all_gather(rank: int, size: int, count: int, number: int) -> tuple[Callable[[], Tensor], Tensor]:
    """Return an all-gather of `count` elements of every rank, and its result."""
    mine, out = values(rank, number, count), torch.empty(count * size)

    def act() -> Tensor:
        dist.all_gather_into_tensor(out, mine)
        return out

    return act, torch.cat([values(each, number, count) for each in range(size)])


def reduce_scatter(rank: int, size: int, count: int, number: int) -> tuple[Callable[[], Tensor], Tensor]:
    """Return a reduce-scatter of which each rank keeps `count` elements, and its result."""
    mine, out = values(rank, number, count * size), torch.empty(count)

    def act() -> Tensor:
        dist.reduce_scatter_tensor(out, mine)
        return out

    whole = torch.stack([values(each, number, count * size) for each in range(size)]).sum(0)
    return act, whole[rank * count : (rank + 1) * count]


def all_to_all(rank: int, size: int, count: int, number: int) -> tuple[Callable[[], Tensor], Tensor]:
    """Return an exchange of `count` elements from each rank to each rank, and its result."""
    mine, out = values(rank, number, count * size), torch.empty(count * size)

    def act() -> Tensor:
        dist.all_to_all_single(out, mine)
        return out

    part = slice(rank * count, (rank + 1) * count)
    return act, torch.cat([values(each, number, count * size)[part] for each in range(size)])


def broadcast(rank: int, size: int, count: int, number: int) -> tuple[Callable[[], Tensor], Tensor]:
    """Return a broadcast of `count` elements from rank 0, and its result."""
    mine = values(rank, number, count)

    def act() -> Tensor:
        dist.broadcast(mine, 0)
        return mine

    return act, values(0, number, count)


def sendrecv(rank: int, size: int, count: int, number: int) -> tuple[Callable[[], Tensor], Tensor]:
    """Return a message of `count` elements to the next rank, and what arrives from the previous one."""
    mine, out = values(rank, number, count), torch.empty(count)

    def act() -> Tensor:
        sent = dist.isend(mine, (rank + 1) % size)
        dist.recv(out, (rank - 1) % size)
        if sent is not None:
            sent.wait()
        return out

    return act, values((rank - 1) % size, number, count)


OPERATIONS = {each.__name__: each for each in (all_reduce, all_gather, reduce_scatter, all_to_all, broadcast, sendrecv)}


def run(config: Mapping[str, Any], orders: OrderReader) -> None:
    """Run each size of `sizes` ([bytes, elements of a rank]) `iterations` times, after one run that is not measured.

    Report every `word_s` seconds, because large sizes take minutes.
    """
    rank, size = int(config["rank"]), int(config["size"])
    operation = OPERATIONS[config["collective"]]
    say("connected")
    orders.wait()
    said = time.monotonic()
    for nbytes, count in config["sizes"]:
        wrong, taken = 0, []
        for number in range(int(config["iterations"]) + 1):
            act, want = operation(rank, size, count, number)
            dist.barrier()
            begin = time.monotonic_ns()
            got = act()
            taken.append(time.monotonic_ns() - begin)
            wrong += int((got != want).sum())
            if time.monotonic() - said >= float(config["word_s"]):
                say("going", size=nbytes, operations=number + 1)
                said = time.monotonic()
        say("size", size=nbytes, count=count, seconds=sum(taken[1:]) / len(taken[1:]) / 1e9, wrong=wrong)
    orders.done()
