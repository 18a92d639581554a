"""One rank of a job with FSDP2, or with FSDP1: `fsdp_job.py MEET RANKS RANK [1]`.

It prints its losses, and those of one process alone.

It trains the tiny transformer of `mrclab train`. Samples come by a DataLoader, whose worker is a fork of the rank made
after it has joined its group.
"""

from __future__ import annotations

import json
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.utils.data import DataLoader, TensorDataset

import mrc_torch  # noqa: F401
from mrc_torch.train import models

STEPS = 5
BATCH = 4


def train(model: nn.Module, loader: DataLoader[tuple[torch.Tensor, ...]], share: float) -> list[torch.Tensor]:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3, momentum=0.9)
    losses = []
    for inputs, targets in loader:
        loss = nn.functional.cross_entropy(model(inputs).flatten(0, -2), targets.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach() * share)
    return losses


def what_else_programs_call(rank: int, ranks: int) -> None:
    """Objects in a subgroup, several operations as one, messages in a batch."""
    subgroup = dist.new_group([0, ranks - 1])
    if rank in (0, ranks - 1):
        told: list[object] = [None, None]
        dist.all_gather_object(told, {"rank": rank}, group=subgroup)
        assert told == [{"rank": 0}, {"rank": ranks - 1}]
    first, second = torch.full((3,), float(rank)), torch.ones(2)
    with dist._coalescing_manager():
        dist.all_reduce(first)
        dist.all_reduce(second)
    assert first.tolist() == [ranks * (ranks - 1) / 2] * 3
    assert second.tolist() == [ranks] * 2
    sent, got = torch.tensor([rank]), torch.tensor([-1])
    batch = [dist.P2POp(dist.isend, sent, (rank + 1) % ranks), dist.P2POp(dist.irecv, got, (rank - 1) % ranks)]
    for work in dist.batch_isend_irecv(batch):
        work.wait()
    assert got.item() == (rank - 1) % ranks


def main() -> None:
    meet, ranks, rank = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    torch.set_num_threads(1)
    dist.init_process_group("mrc", init_method=f"file://{meet}", world_size=ranks, rank=rank)
    task = models.make("gpt-tiny", 1)
    mine = [row for row in range(STEPS * BATCH * ranks) if row // BATCH % ranks == rank]
    model: nn.Module = task.model
    if sys.argv[4:] == ["1"]:
        for index, block in enumerate(model.blocks):
            model.blocks[index] = FullyShardedDataParallel(block, device_id=torch.device("cpu"), use_orig_params=True)
        model = FullyShardedDataParallel(model, device_id=torch.device("cpu"), use_orig_params=True)
    else:
        mesh = init_device_mesh("cpu", (ranks,))
        for block in model.blocks:
            fully_shard(block, mesh=mesh)
        fully_shard(model, mesh=mesh)
    own = TensorDataset(task.inputs[mine], task.targets[mine])
    losses = train(model, DataLoader(own, BATCH, num_workers=1, multiprocessing_context="fork"), 1 / ranks)
    for loss in losses:
        dist.all_reduce(loss)
    what_else_programs_call(rank, ranks)
    task = models.make("gpt-tiny", 1)
    whole = TensorDataset(task.inputs[: STEPS * BATCH * ranks], task.targets[: STEPS * BATCH * ranks])
    alone = [loss.item() for loss in train(task.model, DataLoader(whole, BATCH * ranks), 1.0)]
    print(json.dumps({"fsdp": [loss.item() for loss in losses], "alone": alone}), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
